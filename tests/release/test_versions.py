import re
import shutil
from pathlib import Path

import pytest

from tests.release.__main__ import ROOT
from tests.release.notes import is_dated
from tests.release.versions import CHART, PLACES, PROJECT, differences

FILES = sorted({name for name, _ in PLACES if name != CHART})
CHART_TEXT = 'apiVersion: v2\nname: ebb\nversion: 0.1.0\nappVersion: "0.1.0"\n'


def test_all_files_contain_version_of_project() -> None:
    assert list(differences(ROOT)) == []


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a tree with version 0.1.0 in all places."""
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
        text = (tmp_path / name).read_text("utf-8")
        for _, pattern in (place for place in PLACES if place[0] == name):
            multiline = re.compile(pattern, re.MULTILINE)
            text = multiline.sub(lambda found: found[0].replace(found[1], "0.1.0"), text)
        (tmp_path / name).write_text(text, "utf-8")
    (tmp_path / PROJECT).write_text('[project]\nversion = "0.1.0"\n', "utf-8")
    (tmp_path / CHART).parent.mkdir(parents=True)
    (tmp_path / CHART).write_text(CHART_TEXT, "utf-8")
    return tmp_path


def test_differences_are_empty_when_versions_agree(tree: Path) -> None:
    assert list(differences(tree)) == []
    (tree / CHART).unlink()
    assert list(differences(tree)) == []


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("manifests/components/release/kustomization.yaml", "newTag: 0.1.0", "newTag: 0.0.9"),
        (
            "manifests/components/release/kustomization.yaml",
            "app.kubernetes.io/version: 0.1.0",
            "app.kubernetes.io/version: 0.0.9",
        ),
        ("Dockerfile", "/ebb:0.1.0", "/ebb:0.0.9"),
        ("README.md", "/ebb:0.1.0", "/ebb:0.0.9"),
        ("docs/install.md", "/ebb:0.1.0", "/ebb:0.0.9"),
        (CHART, "\nversion: 0.1.0", "\nversion: 0.0.9"),
        (CHART, 'appVersion: "0.1.0"', 'appVersion: "0.0.9"'),
    ],
)
def test_differences_name_file_with_another_version(
    tree: Path, name: str, before: str, after: str
) -> None:
    text = (tree / name).read_text("utf-8")
    assert before in text
    (tree / name).write_text(text.replace(before, after), "utf-8")
    assert list(differences(tree)) == [f"{name}: version 0.0.9; pyproject.toml has 0.1.0"]


def test_differences_name_file_when_it_contains_no_version(tree: Path) -> None:
    (tree / "Dockerfile").write_text("FROM scratch\n", "utf-8")
    (difference,) = differences(tree)
    assert difference.startswith("Dockerfile: no match for ")
    assert difference.endswith("expected version 0.1.0 there")


def test_releasing_page_lists_all_files_with_version() -> None:
    page = (ROOT / "docs" / "releasing.md").read_text("utf-8")
    assert [name for name in (PROJECT, *FILES, CHART) if f"`{name}`" not in page] == []


@pytest.mark.parametrize("page", ["README.md", "docs/install.md"])
def test_page_builds_image_before_it_installs_while_no_version_is_published(page: str) -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    if any(map(is_dated, re.findall(r"^## \S+ \((.*)\)", changelog, re.MULTILINE))):
        return
    text = (ROOT / page).read_text("utf-8")
    build = text.index("docker buildx build ")
    assert "No version of Ebb has been published yet" in text[:build]
    assert build < text.index("kubectl apply ")
    assert not re.search(r"kubectl apply -k manifests/\s", text)
