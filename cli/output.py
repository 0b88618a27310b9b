"""Print answers: every command passes its answer here, and an output format writes it."""

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final, NamedTuple

import click

from cli.answers import Answer, Planned, Reasons, Replayed, SettingsSchema
from cli.input.overview import ClusterStatus
from core.edge import files


class Form(NamedTuple):
    """An output format; the function `text` of its module converts an answer to text."""

    name: str
    module: str
    """Module of the format, imported when the format is requested."""
    help: str
    of: tuple[type, ...] = ()
    """Answer types that the format can write; empty: all."""


TABLE: Final = "table"
FORMS: Final = (
    Form(TABLE, "cli.forms.text", "table: for people"),
    Form("json", "cli.forms.json", "json: for programs"),
    Form(
        "markdown",
        "cli.forms.markdown",
        "markdown: the page in docs/",
        of=(Reasons, SettingsSchema),
    ),
    Form("html", "cli.forms.html", "html: one self-contained page", of=(Replayed,)),
)


def option(
    answer: type, default: str = TABLE
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the option that selects the output format of *answer*."""
    forms = [form for form in FORMS if not form.of or answer in form.of]
    return click.option(
        "-o",
        "--output",
        "form",
        type=click.Choice([form.name for form in forms]),
        default=default,
        show_default=True,
        help=", ".join(form.help for form in forms),
    )


def print_answer(answer: Answer, form: str) -> None:
    """Print an answer in the named format; the warnings of a table go to standard error."""
    text = _module(form).text(answer)
    # JSON has the warnings in its document.
    if form == TABLE and isinstance(answer, Planned | ClusterStatus):
        from cli.terminal import printable  # noqa: PLC0415 not needed for JSON

        for caveat in answer.caveats:
            print(f"Warning: {printable(caveat.message)}", file=sys.stderr)
    sys.stdout.write(text)


def write_answer(answer: Answer, form: str, path: str) -> None:
    """Write an answer to a file. Raises: InvalidInputError."""
    files.write_text(path, _module(form).text(answer))


def preload(form: str) -> None:
    """Import a format: missing packages fail before a long run. Raises: InvalidInputError."""
    _module(form)


def _module(form: str) -> Any:  # noqa: ANN401 a module of the table
    return import_module(next(one.module for one in FORMS if one.name == form))
