"""The help of every command ends with examples, which the command line accepts."""

import shlex
from collections.abc import Iterator
from importlib import import_module

import click
import pytest

from cli.__main__ import COMMANDS, ebb
from tests.support.page_commands import parse


def commands() -> Iterator[tuple[str, click.Command]]:
    yield "", ebb
    for name in COMMANDS:
        command = import_module(f"cli.commands.{name}").command
        yield name, command
        if isinstance(command, click.Group):
            yield from ((f"{name} {part}", sub) for part, sub in command.commands.items())


EVERY = dict(commands())


@pytest.mark.parametrize("path", EVERY)
def test_help_has_valid_examples(path: str) -> None:
    command = EVERY[path]
    assert command.epilog
    _, title, *lines = command.epilog.split("\n")
    assert title == "Examples:"
    for line in lines:
        program, *words = shlex.split(line.replace("source <(", "").replace(")", ""))
        for sign in ("|", ">"):
            words = words[: words.index(sign)] if sign in words else words
        assert program == "ebb"
        assert f" {path}" in line
        parse(ebb, words)
