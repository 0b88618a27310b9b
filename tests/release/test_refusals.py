import subprocess
from pathlib import Path

import pytest

from tests.release.__main__ import refusals


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a git repository with one commit."""
    (tmp_path / "file").write_text("text")
    for command in (
        ["init", "--quiet"],
        ["add", "file"],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "-m", "one"],
    ):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    return tmp_path


def test_clean_tree_with_dated_version_is_not_refused(tree: Path) -> None:
    assert list(refusals(tree, "2026-12-01", "0.1.0")) == []


@pytest.mark.parametrize("name", ["file", "new"])
def test_tree_is_refused_when_changes_are_not_committed(tree: Path, name: str) -> None:
    (tree / name).write_text("changed")
    (refusal,) = refusals(tree, "2026-12-01", "0.1.0")
    assert refusal.startswith("changes are not committed:\n")
    assert refusal.endswith(name)


def test_tree_is_refused_when_version_is_unreleased(tree: Path) -> None:
    (refusal,) = refusals(tree, "unreleased", "0.1.0")
    assert refusal == (
        "CHANGELOG.md: the date of version 0.1.0 is 'unreleased'; expected YYYY-MM-DD"
    )
