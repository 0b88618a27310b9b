"""Read the pages of the documentation: their headings, links and commands; replace a part."""

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
FENCED: Final = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
MARKED: Final = re.compile(
    r"^<!-- test: (run|background|until ([^\n]+)) -->\n```console\n(.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
LINK: Final = re.compile(r"\]\(([^()\s]+)\)")


class Block(NamedTuple):
    """A marked block of commands: run once, in the background, or until its output has a text."""

    how: str
    expected: str
    commands: str


def with_part(page: str, head: str, content: str, end: str) -> str:
    """Return the text of a page with *content* from *head* to the next *end*; both stay."""
    before, found, rest = page.partition(head)
    assert found, f"the page lacks {head!r}"
    return before + head + content + end + rest.partition(end)[2]


def blocks(page: Path) -> list[Block]:
    """Return the marked blocks of a page, in their order."""
    return [Block(*found) for found in MARKED.findall(page.read_text("utf-8"))]


def yaml_blocks(page: Path) -> list[str]:
    """Return the YAML blocks of a page, without the indentation of a list that they are in."""
    found = FENCED.findall(page.read_text("utf-8"))
    return [textwrap.dedent(text) for _, language, text in found if language == "yaml"]


def pages() -> list[Path]:
    """Return all pages for readers, in the order of their paths."""
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page, as GitHub makes them from headings."""
    text = FENCED.sub("", page.read_text("utf-8"))
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    # The text of a link is part of its heading, the address is not.
    plain = (re.sub(r"\]\([^)]*\)", "", heading).lower() for heading in headings)
    return {re.sub(r"[^\w\s-]", "", heading).replace(" ", "-") for heading in plain}


def links(page: Path) -> Iterator[str]:
    """Yield the targets of all links of a page that are no URLs."""
    text = re.sub(r"`[^`\n]*`", "", FENCED.sub("", page.read_text("utf-8")))
    return (link for link in LINK.findall(text) if "://" not in link)
