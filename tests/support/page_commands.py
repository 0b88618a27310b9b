"""Which commands of the pages a test runs, and which ones their program at least accepts."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import click

from cli.__main__ import ebb
from tests.support.pages import ROOT, Block, Command, blocks, commands, pages

CHART_PAGE: Final = ROOT / "manifests" / "charts" / "ebb" / "README.md"
SEPARATORS: Final = frozenset({"|", "||", "&&", ";", "&"})


def programs(*folders: str, **variables: str) -> dict[str, str]:
    """Return the environment of a shell that finds programs in *folders*, and this checkout's."""
    path = os.pathsep.join([*folders, str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), **variables}


def all_pages() -> list[Path]:
    """Return all pages with commands: those of the documentation, and that of the chart."""
    return [*pages(), CHART_PAGE]


def page_commands() -> Iterator[Command]:
    """Yield the commands in the blocks of all pages."""
    for page in all_pages():
        for one in blocks(page):
            yield from commands(one)


def run_by_tests() -> set[str]:
    """Return the commands that tests run: those of blocks in constants that a test module uses."""
    found = set[str]()
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        text = path.read_text("utf-8")
        if "tests.support.pages import" in text:
            module = import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
            for name, value in vars(module).items():
                shown = [one.text for block in _blocks_in(value) for one in commands(block)]
                if shown and len(re.findall(rf"\b{name}\b", text)) > 1:
                    found.update(shown)
    return found


def _blocks_in(value: Any) -> Iterator[Block]:
    if isinstance(value, Block):
        yield value
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _blocks_in(one)


def accepted(text: str) -> bool:
    """Return whether a line consists of commands of ebb and make that these accept.

    Raises: click.UsageError or subprocess.CalledProcessError if they do not.
    """
    for words in _simple_commands(text):
        match words:
            case ["ebb", *arguments]:
                parse(ebb, arguments)
            case ["make", *arguments]:
                command = ["make", "--dry-run", *arguments]
                subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
            case _:
                return False
    return True


def _simple_commands(text: str) -> Iterator[list[str]]:
    lexer = shlex.shlex(text, posix=True, punctuation_chars="|&;<>()")
    lexer.whitespace_split = True
    words = list[str]()
    for word in (*lexer, ";"):
        if word in SEPARATORS:
            yield words[: words.index(">")] if ">" in words else words
            words = []
        else:
            words.append(word)


def parse(command: click.Command, words: list[str]) -> None:
    """Raise UsageError unless the words are a valid command line; --help and --version are."""
    if not {"--help", "--version"}.isdisjoint(words):
        return
    context = command.make_context("ebb", list(words), obj={})
    if isinstance(command, click.Group):
        name, found, others = command.resolve_command(
            context, [*context._protected_args, *context.args]
        )
        assert name
        assert found
        parse(found, others)
