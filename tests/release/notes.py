"""Write the release notes: the section of the changelog, then the files and their checksums."""

import re
from collections.abc import Mapping
from typing import Final

from tests.release.errors import ReleaseError

DATE: Final = re.compile(r"\d{4}-\d\d-\d\d")


def section(changelog: str, version: str) -> tuple[str, str]:
    """Return the date and the text of a version in CHANGELOG.md. Raises: ReleaseError."""
    pattern = rf"^## {re.escape(version)} \(([^)]*)\)\n(.*?)(?=^## |\Z)"
    found = re.search(pattern, changelog, re.MULTILINE | re.DOTALL)
    if not found:
        raise ReleaseError(f"CHANGELOG.md: no section `## {version} (DATE)`")
    return found[1], found[2].strip()


def is_dated(date: str) -> bool:
    """Return whether the date of a section is that of a release, not the word unreleased."""
    return DATE.fullmatch(date) is not None


def notes(text: str, checksums: Mapping[str, str], base: str | None, missing: list[str]) -> str:
    """Return the text of the release on GitHub, in Markdown."""
    parts = [text, "### Files"]
    if missing:
        parts.append("Not available:\n\n" + "\n".join(f"- {line}" for line in missing))
    if base:
        parts.append(f"Base image: `{base}`")
    rows = [f"| `{name}` | `{digest}` |" for name, digest in checksums.items()]
    parts.append("\n".join(["| file | SHA-256 |", "|---|---|", *rows]))
    return "\n\n".join(parts) + "\n"
