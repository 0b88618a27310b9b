"""Read the pages of the documentation: their headings, links and commands; replace a part."""

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
FENCED: Final = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
SHELL: Final = re.compile(
    r"(?:^ *<!-- test: (?P<how>\w+) ?(?P<expected>[^\n]*) -->\n)?"
    r"^(?P<indent> *)```console\n(?P<commands>.*?)^(?P=indent)```$",
    re.DOTALL | re.MULTILINE,
)
LINK: Final = re.compile(r"\]\(([^()\s]+)\)")
SPAN: Final = re.compile(r"`([^`]+)`")
NOT_TESTED: Final = "# not tested: needs "
"""Start of the comment on a command, or above commands, for which the tests lack something."""
COMMENT: Final = re.compile(r"(?:^|\s+)#\s.*$")
HERE_DOCUMENT: Final = re.compile(r"<<'?(\w+)'?$")
CONTINUED: Final = ("\\", "|", "&&")
"""Ends of lines after which a command goes on in the next line."""


class Command(NamedTuple):
    """A command in a block of a page, without the comment that ends it."""

    page: Path
    line: int
    text: str
    how: str
    """How the comment above the block tells a test to run it; empty without such a comment."""
    needs: str
    """What the tests lack to run the command; empty if a test must run it."""

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}: {self.text}"


class Block(NamedTuple):
    """A block of commands, and what the comment above it says.

    `how` says how tests/e2e/test_marked_blocks.py runs the block: once (run), in the background,
    or until its output has a text (until). It is empty for all other blocks.
    """

    how: str
    expected: str
    commands: str
    page: Path = ROOT
    line: int = 0


def with_part(page: str, head: str, content: str, end: str) -> str:
    """Return the text of a page with *content* from *head* to the next *end*; both stay."""
    before, found, rest = page.partition(head)
    assert found, f"the page lacks {head!r}"
    return before + head + content + end + rest.partition(end)[2]


def blocks(page: Path) -> list[Block]:
    """Return the blocks of commands of a page, in their order."""
    text = page.read_text("utf-8")
    return [
        Block(
            found["how"] or "",
            found["expected"] or "",
            textwrap.dedent(found["commands"]),
            page,
            text.count("\n", 0, found.start("commands")) + 1,
        )
        for found in SHELL.finditer(text)
    ]


def marked(page: Path) -> list[Block]:
    """Return the blocks of a page that tests/e2e/test_marked_blocks.py runs."""
    return [block for block in blocks(page) if block.how]


def console(page: str, part: str) -> Block:
    """Return the only block of commands of a page that contains this text.

    A constant of a test module that has this value says that a test of the module runs the block.
    """
    found = [one for one in blocks(ROOT / page) if part in one.commands]
    assert len(found) == 1, f"{page}: {len(found)} blocks of commands contain {part!r}"
    return found[0]


def spans(page: Path) -> Iterator[str]:
    """Yield the texts in backticks of a page outside of blocks, with single spaces."""
    found = SPAN.findall(FENCED.sub("", page.read_text("utf-8")))
    return (" ".join(span.split()) for span in found)


def commands(block: Block) -> Iterator[Command]:
    """Yield the commands of a block; if it shows output, only the lines after `$` are commands."""
    lines = list(enumerate(block.commands.splitlines(), block.line))
    if any(line.startswith("$ ") for _, line in lines):
        lines = [(at, line.removeprefix("$ ")) for at, line in lines if line.startswith("$ ")]
    needs, begun, parts, end = "", 0, list[str](), ""
    for at, line in lines:
        _, _, own = line.partition(NOT_TESTED)
        text = COMMENT.sub("", line).strip()
        if own and not text:
            needs = own
        if not text:
            continue
        begun = begun if parts else at
        parts.append(text.removesuffix("\\").rstrip())
        if document := HERE_DOCUMENT.search(text):
            end = document[1]
        if text == end:
            end = ""
        if not end and not text.endswith(CONTINUED):
            yield Command(block.page, begun, " ".join(parts), block.how, own or needs)
            parts = []


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
