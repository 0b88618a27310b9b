"""All pages of the documentation: their links, their length, and the table of contents."""

import re
from pathlib import Path

import pytest

from tests.support.pages import ROOT, anchors, links, pages

README_WORDS_MAX = 1200


@pytest.mark.parametrize("page", pages(), ids=lambda path: str(path.relative_to(ROOT)))
def test_links_of_page_exist(page: Path) -> None:
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_manifests_named_on_pages_exist() -> None:
    for page in pages():
        for path in re.findall(r"(?<![\w/.-])manifests/[\w./-]+", page.read_text("utf-8")):
            assert (ROOT / path.rstrip(".")).exists(), f"{page.name}: {path}"


def test_metrics_named_on_pages_exist() -> None:
    known = re.findall(
        r"^\| `(ebb_\w+)`", (ROOT / "docs" / "metrics.md").read_text(), re.MULTILINE
    )
    suffixes = ("", "_bucket", "_sum", "_count")
    series = {f"{name}{suffix}" for name in known for suffix in suffixes}
    for page in pages():
        found = re.findall(r"\bebb_\w*[a-z]\b", page.read_text("utf-8"))
        assert set(found) <= series, page.name


def test_readme_fits_on_one_screen() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").split()) <= README_WORDS_MAX


def test_contents_list_every_page() -> None:
    contents = ROOT / "docs" / "README.md"
    listed = {(contents.parent / link.partition("#")[0]).resolve() for link in links(contents)}
    overviews = {path for path in listed if path.name == "README.md"}
    listed |= {
        (overview.parent / link.partition("#")[0]).resolve()
        for overview in overviews
        for link in links(overview)
    }
    assert sorted({*(ROOT / "docs").rglob("*.md")} - listed - {contents}) == []
