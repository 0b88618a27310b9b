"""Where commands print: colour and width of a terminal if there is one, else plain and wide."""

import sys

from rich.console import Console

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


def printable(text: str) -> str:
    """Escape what would steer the terminal: names come from files that anybody may have made."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
