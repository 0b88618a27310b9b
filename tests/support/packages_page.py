"""Write the table of packages in CONTRIBUTING.md: `python -m tests.support.packages_page`."""

import ast
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "CONTRIBUTING.md"
HEAD: Final = "| package | purpose |\n|---|---|\n"
END: Final = "\n\n"
PACKAGES: Final = (
    "cli",
    "sim",
    "extender",
    "webhook",
    "controller",
    "kube",
    "serving",
    "runtime",
    "core",
)
"""Packages; imports point to the right."""


def table() -> str:
    """Return one row for each package: the first line of its docstring."""
    rows = []
    for top in PACKAGES:
        for path in sorted((ROOT / top).rglob("__init__.py")):
            summary = (ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "").splitlines()[0]
            rows.append(f"| `{path.parent.relative_to(ROOT)}/` | {summary} |")
    return HEAD + "\n".join(rows)


def with_table(page: str) -> str:
    """Return the page with the current table."""
    before, head, rest = page.partition(HEAD)
    return before + table() + END + rest.partition(END)[2] if head else page


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text("utf-8")), "utf-8")
