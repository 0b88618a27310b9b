"""The one door for answers: a command gives its answer here, and a form writes it."""

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final, NamedTuple

import click

from cli.answers import Answer, Reasons, Replayed, Settings
from core.edge import files


class Form(NamedTuple):
    """A way to write answers; `text` in its module takes one and returns what is printed."""

    name: str
    module: str
    """Imported when the form is asked for."""
    told: str
    of: tuple[type, ...] = ()
    """The answers that it writes; none: all."""


FORMS: Final = (
    Form("table", "cli.forms.text", "table for people"),
    Form("json", "cli.forms.json", "json for programs"),
    Form(
        "markdown", "cli.forms.markdown", "markdown for its page in docs/", of=(Reasons, Settings)
    ),
    Form("html", "cli.forms.html", "html: a page that opens offline", of=(Replayed,)),
)


def option(
    answer: type, default: str = "table"
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command the option that says in which form its *answer* is written."""
    forms = [form for form in FORMS if not form.of or answer in form.of]
    return click.option(
        "-o",
        "--output",
        "form",
        type=click.Choice([form.name for form in forms]),
        default=default,
        show_default=True,
        help=", ".join(form.told for form in forms),
    )


def print_answer(answer: Answer, form: str) -> None:
    """Write an answer to standard output, in the form of that name."""
    sys.stdout.write(_module(form).text(answer))


def write_answer(answer: Answer, form: str, path: str) -> None:
    """Write an answer into a file. Raises: InvalidInputError."""
    files.write_text(path, _module(form).text(answer))


def ready(form: str) -> None:
    """Load what a form is written with, long before it is. Raises: InvalidInputError."""
    _module(form)


def _module(form: str) -> Any:  # noqa: ANN401 a module of the table
    return import_module(next(one.module for one in FORMS if one.name == form))
