"""Where commands print: colour and width of a terminal if there is one, else plain and wide."""

import sys
from collections.abc import Callable, Iterable
from typing import Literal

from rich.console import Console
from rich.table import Table

PIPE_WIDTH = 10_000
"""A pipe has no width: rows stay whole, so that grep and awk find what they look for."""


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Leave a reader's going to whoever started the command; rich would exit with 1."""
        raise BrokenPipeError


def console() -> Console:
    """Return a console on standard output."""
    if sys.stdout.isatty():
        return _Console(highlight=False, emoji=False, markup=False)
    return _Console(
        force_terminal=False,
        width=PIPE_WIDTH,
        highlight=False,
        emoji=False,
        markup=False,
        no_color=True,
        soft_wrap=True,
    )


def written(write: Callable[[Console], None]) -> str:
    """Return what *write* prints: with colour for a terminal, without for a pipe."""
    out = console()
    with out.capture() as captured:
        write(out)
    return "".join(f"{line.rstrip()}\n" for line in captured.get().splitlines())


def print_lines(out: Console, lines: Iterable[str]) -> None:
    """Print lines as they are."""
    for line in lines:
        out.print(line)


def table(*columns: str, left: tuple[int, ...] = (0,)) -> Table:
    """Open a table without lines; the columns *left* are texts, the others numbers."""
    made = Table(box=None, pad_edge=False, header_style="bold", show_header=any(columns))
    for number, column in enumerate(columns):
        side: Literal["left", "right"] = "left" if number in left else "right"
        made.add_column(column, justify=side, overflow="fold")
    return made


def printable(text: str) -> str:
    """Escape what would steer the terminal: names come from files that anybody may have made."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
