"""All pages of the documentation: their links, their length, and the table of contents."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from core.config.schema import settings
from runtime.files import parse_config
from runtime.yaml_text import as_yaml
from tests.support import readme_plan
from tests.support.configurations import HEAD
from tests.support.pages import ROOT, anchors, links, pages, yaml_blocks

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
    changes = (ROOT / "CHANGELOG.md").read_text()
    table = changes.partition("### Metrics of development versions")[2].partition("\n#")[0]
    former = set(re.findall(r"^\| `(ebb_\w+)`", table, re.MULTILINE))
    assert former, "the changelog lists former metrics"
    suffixes = ("", "_bucket", "_sum", "_count")
    series = {f"{name}{suffix}" for name in known for suffix in suffixes}
    assert not former & series
    for page in pages():
        found = set(re.findall(r"\bebb_\w*[a-z]\b", page.read_text("utf-8")))
        assert found <= series | (former if page.name == "CHANGELOG.md" else set()), page.name


def configurations(page: Path) -> list[dict[str, Any]]:
    """Return the configurations of Ebb on a page, and its parts of configurations."""
    known = {re.split(r"[.[]", setting.path)[0] for setting in settings()} - HEAD.keys()
    documents = [one for text in yaml_blocks(page) for one in yaml.safe_load_all(text)]
    return [one for one in documents if isinstance(one, dict) and not known.isdisjoint(one)]


CONFIGURATIONS = {path: found for path in pages() if (found := configurations(path))}


@pytest.mark.parametrize("page", CONFIGURATIONS, ids=lambda path: str(path.relative_to(ROOT)))
def test_configurations_on_page_are_valid(page: Path) -> None:
    for found in CONFIGURATIONS[page]:
        parse_config(as_yaml(HEAD | found).encode(), page.name)


def test_coming_from_shows_a_configuration_for_each_of_three_tools() -> None:
    whole = [HEAD.items() <= one.items() for one in CONFIGURATIONS[ROOT / "docs/coming-from.md"]]
    assert whole == [True] * 3


def test_readme_fits_on_one_screen() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").split()) <= README_WORDS_MAX


def test_readme_shows_plan_of_example_cluster() -> None:
    page = readme_plan.PAGE.read_text("utf-8")
    assert page == readme_plan.written(page), "make fix writes it"
    assert "make check " in "\n".join(page.splitlines()[:60])


@pytest.mark.parametrize(
    ("options", "removable"), [(("--max-cpu", "80%", "--max-memory", "80%"), 5), ((), 7)]
)
def test_example_cluster_of_readme_loses_a_quarter_or_more_than_a_third(
    options: tuple[str, ...], removable: int
) -> None:
    assert readme_plan.plan(*options).startswith(f"{removable} of 20 nodes can be removed")


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
