"""Print answers: every command passes its answer here, and an output format writes it."""

import sys
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

if TYPE_CHECKING:  # help must be fast
    from cli.answers import Answer, ClusterPart


class Form(NamedTuple):
    """An output format; the function `text` of its module converts an answer to text."""

    name: str
    module: str
    """Module of the format, imported when the format is requested."""
    help: str
    of: tuple[str, ...] = ()
    """Names of the answer types that the format can write; empty: all."""
    several: tuple[str, ...] = ()
    """Names of the answer types that the format can write for several clusters at once.

    The function `part` of its module converts the answer of each cluster, and the function
    `several` joins these parts to one text."""


FINDINGS: Final = 1
"""Exit code of a command with findings, if --exit-code is given."""
TABLE: Final = "table"
PLAN: Final = "Planned"
STATUS: Final = "ClusterStatus"
FORMS: Final = (
    Form(TABLE, "cli.formats.text", "table: for people", several=(STATUS,)),
    Form("wide", "cli.formats.wide", "wide: a row for each node", of=(PLAN,), several=(PLAN,)),
    Form("json", "cli.formats.json", "json: for programs", several=(PLAN, STATUS)),
    Form("yaml", "cli.formats.yaml", "yaml: as json", several=(PLAN, STATUS)),
    Form("csv", "cli.formats.csv", "csv: as wide", of=(PLAN,), several=(PLAN,)),
    Form("name", "cli.formats.name", "name: removable nodes", of=(PLAN,), several=(PLAN,)),
    Form(
        "markdown",
        "cli.formats.markdown",
        "markdown: the page in docs/",
        of=("Reasons", "SettingsSchema"),
    ),
    Form("html", "cli.formats.page", "html: one page that opens offline", of=(PLAN,)),
    Form("html", "cli.formats.page.lapse", "html: one page that opens offline", of=("Replayed",)),
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
    text = _module(form, type(answer).__name__).text(answer)
    for line in warnings(answer, form):
        print(line, file=sys.stderr)
    sys.stdout.write(text)


def warnings(answer: "Answer", form: str) -> Iterator[str]:
    """Yield the warnings about an answer that its output format does not contain."""
    # JSON has the warnings in its document.
    if form in (TABLE, "wide", "csv", "name"):
        from cli.terminal import printable  # noqa: PLC0415 not needed for JSON

        for caveat in getattr(answer, "caveats", ()):
            yield f"Warning: {printable(caveat.message)}"


def check_several(form: str, answer: str) -> None:
    """Raise UsageError if the format cannot write this type of answer for several clusters."""
    allowed = [one.name for one in FORMS if answer in one.several]
    if form not in allowed:
        names = ", ".join(allowed)
        raise click.UsageError(f"-o {form}: not allowed with several --context; allowed: {names}")


def part(answer: "Answer", form: str) -> Any:  # noqa: ANN401 by format
    """Return the answer for one of several clusters, as its output format needs it."""
    return _module(form, type(answer).__name__).part(answer)


def print_several(parts: Sequence["ClusterPart"], form: str, answer: str) -> None:
    """Print the answers of this type for several clusters in the named format."""
    sys.stdout.write(_module(form, answer).several(parts))


def write_answer(answer: "Answer", form: str, path: str) -> None:
    """Write an answer to a file. Raises: InvalidInputError."""
    from runtime import files  # noqa: PLC0415 help must be fast

    files.write_text(path, _module(form, type(answer).__name__).text(answer))


def _module(form: str, answer: str) -> Any:  # noqa: ANN401 a module of the table
    return import_module(
        next(one.module for one in FORMS if one.name == form and (not one.of or answer in one.of))
    )
