"""Write the table of checks in docs/doctor.md: `python -m tests.support.doctor_page`."""

from pathlib import Path
from typing import Final

from cli.doctor.checks import CHECKS

PAGE: Final = Path(__file__).parents[2] / "docs" / "doctor.md"
HEAD: Final = "| check | question | otherwise |\n|---|---|---|\n"
END: Final = "\n\n"


def table() -> str:
    """Return one row for each check."""
    rows = (f"| `{one.code}` | {one.question} | {one.effect} |" for one in CHECKS)
    return HEAD + "\n".join(rows)


def with_table(page: str) -> str:
    """Return the page with the current table."""
    before, head, rest = page.partition(HEAD)
    return before + table() + END + rest.partition(END)[2] if head else page


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text("utf-8")), "utf-8")
