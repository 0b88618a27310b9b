"""The rules of the house that no linter knows."""

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("core", "extender", "webhook", "sim", "cli")
MODULES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
FUNCTION_LINES_MAX = 50
MODULE_LINES_MAX = 300


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_lengths(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= MODULE_LINES_MAX
    for found in ast.walk(ast.parse(text)):
        if isinstance(found, (ast.FunctionDef, ast.AsyncFunctionDef)):
            assert (found.end_lineno or 0) - found.lineno < FUNCTION_LINES_MAX, found.name


def test_nothing_in_the_tree_knows_where_it_was_made() -> None:
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    absolute = re.compile(r"(?<![\w.:/~$}*-])/(home|root|work|Users|farm)/\w")
    for line in listed.stdout.splitlines():
        path = ROOT / line
        if path.suffix in (".py", ".md", ".toml", ".yaml", ".lock", "") and path.is_file():
            assert not absolute.search(path.read_text(errors="replace")), line
