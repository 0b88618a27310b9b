"""All pages of the documentation: their links, their length, and the table of contents."""

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
