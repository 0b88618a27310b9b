"""Print answers: every command passes its answer here, and an output format writes it."""

import sys
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

if TYPE_CHECKING:  # help must be fast
    from cli.answers import Answer


class Form(NamedTuple):
    """An output format; the function `text` of its module converts an answer to text."""

    name: str
    module: str
    """Module of the format, imported when the format is requested."""
    help: str
    of: tuple[str, ...] = ()
    """Names of the answer types that the format can write; empty: all."""


FINDINGS: Final = 1
"""Exit code of a command with findings, if --exit-code is given."""
TABLE: Final = "table"
FORMS: Final = (
    Form(TABLE, "cli.forms.text", "table: for people"),
    Form("wide", "cli.forms.wide", "wide: a row for each node", of=("Planned",)),
    Form("json", "cli.forms.json", "json: for programs"),
    Form("yaml", "cli.forms.yaml", "yaml: as json"),
    Form("csv", "cli.forms.csv", "csv: as wide", of=("Planned",)),
    Form("name", "cli.forms.name", "name: removable nodes", of=("Planned",)),
    Form(
        "markdown",
        "cli.forms.markdown",
        "markdown: the page in docs/",
        of=("Reasons", "SettingsSchema"),
    ),
    Form("html", "cli.forms.html", "html: one self-contained page", of=("Replayed",)),
)


def option(
    answer: str, default: str = TABLE
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the option that selects the output format of the answer type of that name."""
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


def exit_code_option(help_text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the option with which a command exits with FINDINGS."""
    return click.option("--exit-code", is_flag=True, help=f"exit with {FINDINGS} {help_text}")


def exit_if(found: bool) -> None:  # noqa: FBT001 a condition
    """End the command with the exit code for findings."""
    if found:
        click.get_current_context().exit(FINDINGS)


def print_answer(answer: "Answer", form: str) -> None:
    """Print an answer in the named format; the warnings of a table go to standard error."""
    text = _module(form).text(answer)
    # JSON has the warnings in its document.
    if form in (TABLE, "wide", "csv", "name"):
        from cli.terminal import printable  # noqa: PLC0415 not needed for JSON

        for caveat in getattr(answer, "caveats", ()):
            print(f"Warning: {printable(caveat.message)}", file=sys.stderr)
    sys.stdout.write(text)


def write_answer(answer: "Answer", form: str, path: str) -> None:
    """Write an answer to a file. Raises: InvalidInputError."""
    from core.edge import files  # noqa: PLC0415 help must be fast

    files.write_text(path, _module(form).text(answer))


def preload(form: str) -> None:
    """Import a format: missing packages fail before a long run. Raises: InvalidInputError."""
    _module(form)


def _module(form: str) -> Any:  # noqa: ANN401 a module of the table
    return import_module(next(one.module for one in FORMS if one.name == form))
