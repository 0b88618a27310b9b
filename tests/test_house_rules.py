"""Rules of CONTRIBUTING.md that no linter checks."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import packages_page

ROOT = Path(__file__).parents[1]
ROOMS = (
    "core",
    "runtime",
    "serving",
    "kube",
    "extender",
    "webhook",
    "controller",
    "sim",
    "cli",
)
FUNCTION_LINES_MAX = 80
NOT_OURS = {"__pycache__", "build", "dist", "mutants", "out"}
WORKPLACE = re.compile(r"(?<![\w.:/~$}*-])/(?:home|root|work|Users|farm)/\w")
LOCKED = re.compile(
    r"[a-z0-9][a-z0-9.-]*==\S+(?: ; [^\\]+)? \\"  # a package, and its hashes on the next lines
    r"|    --hash=sha256:[0-9a-f]{64}(?: \\)?"
    r"|    # .*|# The following packages .*|"
)


def modules() -> list[Path]:
    return sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))


def ours(folder: Path) -> Iterator[Path]:
    """Yield every file of the repository, without dot files except those of CI."""
    for path in folder.iterdir():
        if path.name in NOT_OURS or path.name.endswith(".egg-info"):
            continue
        if path.name.startswith(".") and path.name != ".ci":
            continue
        if path.is_dir():
            yield from ours(path)
        elif path.is_file():
            yield path


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_functions_are_short(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            assert lines <= FUNCTION_LINES_MAX, f"{node.name} has {lines} lines"


COMPARES_SECONDS = {"core/engine/reconcile.py", "core/engine/arrivals.py"}
"""`reconcile` decides whether to skip a pass; `arrivals` registers the ends of its slots."""


@pytest.mark.parametrize("room", ["eligibility", "engine", "placement", "policies"])
def test_rules_do_not_compare_seconds_with_current_time(room: str) -> None:
    """Otherwise the scheduler of the next pass would not know when a limit ends."""
    for path in sorted((ROOT / "core" / room).rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        found = [
            node.lineno
            for node in ast.walk(ast.parse(path.read_text("utf-8")))
            if isinstance(node, ast.Compare)
            and any("now" in _spelled(part) for part in ast.walk(node))
        ]
        assert bool(found) == (name in COMPARES_SECONDS), f"{name}: {found}"


def _spelled(part: ast.AST) -> set[str]:
    """Return the name before `seconds` in an expression: now_seconds, now.seconds."""
    if isinstance(part, ast.Attribute) and part.attr == "seconds":
        return {ast.unparse(part.value).split(".")[-1].strip("_")}
    if isinstance(part, ast.Name) and part.id.endswith("_seconds"):
        return {part.id.split("_")[0]}
    return set()


VALUES = {
    "core.config.settings",
    "core.marks.wellknown",
    *(f"core.model.{part}" for part in ("cluster", "constraints", "node", "pod", "resources")),
}


@pytest.mark.parametrize(
    "path", sorted((ROOT / "tests" / "support").glob("reference*.py")), ids=lambda path: path.stem
)
def test_reference_plan_imports_only_values(path: Path) -> None:
    """Imports for type checking are inside a condition, which this test does not visit."""
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.ImportFrom):
            assert node.module in VALUES or not (node.module or "").startswith(ROOMS)
        elif isinstance(node, ast.Import):
            assert not any(one.name.startswith(ROOMS) for one in node.names)


def test_no_file_contains_absolute_local_path() -> None:
    for path in ours(ROOT):
        try:
            text = path.read_text("utf-8")
        except UnicodeDecodeError:
            continue
        assert WORKPLACE.findall(text) == [], path.relative_to(ROOT)


def test_lock_file_pins_by_hash_and_names_no_registry() -> None:
    for number, line in enumerate((ROOT / "requirements.lock").read_text().splitlines(), start=1):
        assert LOCKED.fullmatch(line), f"line {number}: {line}"
        assert "://" not in line


def test_every_make_target_has_description() -> None:
    makefile = (ROOT / "Makefile").read_text()
    phony = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert phony
    told = re.findall(r"^([a-z0-9-]+):.*## \w", makefile, re.MULTILINE)
    assert set(phony[1].split()) == set(told)


def test_readme_and_contributing_name_commands_of_ci() -> None:
    lines = (ROOT / ".ci" / "run").read_text().splitlines()
    commands = [line for line in lines if line.startswith("make ")]
    assert commands == ["make promtool", "make chromium", "make check-full", "make e2e"]
    for name in ("README.md", "CONTRIBUTING.md"):
        text = (ROOT / name).read_text()
        for command in ("make check", *commands):
            assert re.search(rf"{command}(?![\w-])", text), f"{name} does not name {command}"


def test_tests_do_not_patch() -> None:
    for path in sorted((ROOT / "tests").rglob("*.py")):
        if path != Path(__file__):
            text = path.read_text("utf-8")
            assert not re.search(r"\bunittest\.mock\b|\bmonkeypatch\b|\bmocker\b", text), path


def test_contributing_has_first_line_of_each_package() -> None:
    page = packages_page.PAGE.read_text("utf-8")
    assert page == packages_page.with_table(page), "make fix writes it anew"
    assert packages_page.table() in page


def named_in(page: Path) -> set[str]:
    return set(re.findall(r"`([^`\s]+)`", page.read_text()))


def test_files_and_bounds_in_threat_model_exist() -> None:
    """Compare the file and constant names on the page with the repository."""
    names = named_in(ROOT / "docs" / "threat-model.md")
    rooms = "|".join((*ROOMS, "tests", "components"))
    files = {name for name in names if re.match(rf"(?:{rooms})/", name)}
    bounds = {name for name in names if re.fullmatch(r"[A-Z_]{6,}", name)}
    assert len(files) > 10
    assert len(bounds) > 10
    folders = ROOT, ROOT / "manifests"
    assert [f for f in files if not any((folder / f).exists() for folder in folders)] == []


def bounds_of(page: Path) -> Iterator[tuple[str, str]]:
    """Yield each bound on a page with the file name that follows in the same line."""
    for line in page.read_text().splitlines():
        names = re.findall(r"`([^`\s]+)`", line)
        for place, name in enumerate(names):
            if re.fullmatch(r"[A-Z_]{6,}", name):
                yield name, next((file for file in names[place:] if file.endswith(".py")), "")


@pytest.mark.parametrize(
    ("bound", "file"), sorted(set(bounds_of(ROOT / "docs" / "threat-model.md")))
)
def test_bound_is_defined_in_file_named_by_threat_model(bound: str, file: str) -> None:
    assert file, "no file is named after it"
    assert re.search(rf"^{bound}: Final\b", (ROOT / file).read_text(), re.MULTILINE)
