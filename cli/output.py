"""The output formats of each type of answer, and how a command prints an answer.

Each function that a format uses imports its module only when it runs, because help must be fast.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

import click

from runtime.messages import tell

if TYPE_CHECKING:  # help must be fast
    from rich.console import Console

    from cli.answers import (
        ClusterPart,
        Explained,
        PastDays,
        Planned,
        Reasons,
        Replayed,
        SettingsSchema,
    )
    from cli.doctor.finding import Diagnosis
    from cli.formats.rows import Rows
    from cli.input.overview import ClusterStatus

Answer = TypeVar("Answer")
Json = dict[str, Any] | list[Any]
Parts = Sequence["ClusterPart[Any]"]


class Several(NamedTuple, Generic[Answer]):
    """How a format writes the answers for several clusters as one text."""

    part: Callable[[Answer], Any]
    """Return the part of the answer for one cluster that the text needs, to save memory."""
    text: Callable[[Parts], str]
    """Join the parts of all clusters."""


class Format(NamedTuple, Generic[Answer]):
    """An output format for one type of answer."""

    name: str
    help: str
    text: Callable[[Answer], str]
    """Convert an answer to text."""
    several: Several[Answer] | None = None
    """None: the format cannot write several clusters at once."""


Formats = tuple[Format[Answer], ...]

FINDINGS: Final = 1
"""Exit code of a command with findings, if --exit-code is given."""
TABLE: Final = "table"
JSON: Final = "json"
FOR_PEOPLE: Final = "table: for people"
AS_HTML: Final = "html: one page that opens offline"
AS_MARKDOWN: Final = "markdown: the page in docs/"
WITHOUT_WARNINGS: Final = frozenset((TABLE, "wide", "csv", "name"))
"""Formats that do not contain the warnings about an answer."""


# The functions of the tables


def _text(write: "Callable[[Answer, Console], None]", answer: Answer) -> str:
    """Return the text that *write* prints for an answer: with color for a terminal only."""
    from cli.terminal import render

    return render(lambda out: write(answer, out))


def _json(document: Json) -> str:
    import orjson

    return orjson.dumps(document, option=orjson.OPT_INDENT_2).decode() + "\n"


def _yaml(document: Json) -> str:
    from runtime.yaml_text import as_yaml

    return as_yaml(document)


def _clusters(parts: Parts) -> Json:
    from cli.formats.json import list_document

    return list_document(parts)


def _json_and_yaml(
    document: Callable[[Answer], Json], *, several: bool = False
) -> Formats[Answer]:
    """Return the formats json and yaml; *document* converts an answer to the content of both.

    *several*: the formats can write several clusters at once.
    """
    return (
        Format(
            JSON,
            "json: for programs",
            lambda answer: _json(document(answer)),
            Several(document, lambda parts: _json(_clusters(parts))) if several else None,
        ),
        Format(
            "yaml",
            "yaml: as json",
            lambda answer: _yaml(document(answer)),
            Several(document, lambda parts: _yaml(_clusters(parts))) if several else None,
        ),
    )


def _plan_table(answer: "Planned") -> str:
    from cli.formats.text import plan

    return _text(plan.write, answer)


def _plan_json(answer: "Planned") -> Json:
    from cli.formats.json import plan

    return plan.document(answer)


def _plan_rows(answer: "Planned") -> "Rows":
    from cli.formats import rows

    return rows.rows_of(answer)


def _plan_wide(answer: "Planned") -> str:
    from cli.formats import rows

    return rows.wide(answer)


def _plans_wide(parts: Parts) -> str:
    from cli.formats import rows

    return rows.wide_of_several(parts)


def _plan_csv(answer: "Planned") -> str:
    from cli.formats import rows

    return rows.comma_separated(answer)


def _plans_csv(parts: Parts) -> str:
    from cli.formats import rows

    return rows.comma_separated_of_several(parts)


def _plan_names(answer: "Planned") -> str:
    from cli.formats import rows

    return rows.names(answer)


def _plans_names(parts: Parts) -> str:
    from cli.formats import rows

    return rows.names_of_several(parts)


def _plan_html(answer: "Planned") -> str:
    from cli.formats import page

    return page.text(answer)


def _explained_table(answer: "Explained") -> str:
    from cli.formats.text import explain

    return _text(explain.write, answer)


def _explained_json(answer: "Explained") -> Json:
    from cli.formats.json import explain

    return explain.document(answer)


def _status_table(answer: "ClusterStatus") -> str:
    from cli.formats.text import status

    return _text(status.write, answer)


def _status_row(answer: "ClusterStatus") -> tuple[str, ...]:
    from cli.formats.text import status

    return status.row(answer)


def _statuses_table(parts: Parts) -> str:
    from cli.formats.text import status

    return status.several(parts)


def _status_json(answer: "ClusterStatus") -> Json:
    from cli.formats.json import status

    return status.document(answer)


def _diagnosis_table(answer: "Diagnosis") -> str:
    from cli.formats.text import doctor

    return _text(doctor.write, answer)


def _diagnosis_json(answer: "Diagnosis") -> Json:
    from cli.formats.json import doctor

    return doctor.document(answer)


def _history_table(answer: "PastDays") -> str:
    from cli.formats.text import history

    return _text(history.write, answer)


def _history_json(answer: "PastDays") -> Json:
    from cli.formats.json import history

    return history.document(answer)


def _history_csv(answer: "PastDays") -> str:
    from cli.formats import rows

    return rows.history(answer)


def _reasons_table(answer: "Reasons") -> str:
    from cli.formats.text import explain

    return _text(explain.write_codes, answer)


def _reasons_json(answer: "Reasons") -> Json:
    from cli.formats.json import explain

    return list[Any](explain.codes(answer))


def _reasons_page(_: "Reasons") -> str:
    from cli.explain.reasons import page

    return page()


def _settings_table(_: "SettingsSchema") -> str:
    from cli.formats.text import settings
    from cli.terminal import render

    return render(settings.write)


def _settings_json(_: "SettingsSchema") -> Json:
    from core.config.schema import schema

    return schema()


def _settings_page(_: "SettingsSchema") -> str:
    from core.config.page import reference

    return reference()


def _replay_table(answer: "Replayed") -> str:
    from cli.formats.text import replay

    return _text(replay.write, answer)


def _replay_json(answer: "Replayed") -> Json:
    from cli.formats.json import replay

    return replay.document(answer)


def _replay_html(answer: "Replayed") -> str:
    from cli.formats.page import lapse

    return lapse.text(answer)


# The tables: the formats of each type of answer, in the order of the help

PLAN: Final[Formats["Planned"]] = (
    Format(TABLE, FOR_PEOPLE, _plan_table),
    Format("wide", "wide: a row for each node", _plan_wide, Several(_plan_rows, _plans_wide)),
    *_json_and_yaml(_plan_json, several=True),
    Format("csv", "csv: as wide", _plan_csv, Several(_plan_rows, _plans_csv)),
    Format("name", "name: removable nodes", _plan_names, Several(_plan_rows, _plans_names)),
    Format("html", AS_HTML, _plan_html),
)
EXPLAINED: Final[Formats["Explained"]] = (
    Format(TABLE, FOR_PEOPLE, _explained_table),
    *_json_and_yaml(_explained_json),
)
STATUS: Final[Formats["ClusterStatus"]] = (
    Format(TABLE, FOR_PEOPLE, _status_table, Several(_status_row, _statuses_table)),
    *_json_and_yaml(_status_json, several=True),
)
DIAGNOSIS: Final[Formats["Diagnosis"]] = (
    Format(TABLE, FOR_PEOPLE, _diagnosis_table),
    *_json_and_yaml(_diagnosis_json),
)
HISTORY: Final[Formats["PastDays"]] = (
    Format(TABLE, FOR_PEOPLE, _history_table),
    *_json_and_yaml(_history_json),
    Format("csv", "csv: a row for each day and pool", _history_csv),
)
REASONS: Final[Formats["Reasons"]] = (
    Format(TABLE, FOR_PEOPLE, _reasons_table),
    *_json_and_yaml(_reasons_json),
    Format("markdown", AS_MARKDOWN, _reasons_page),
)
SETTINGS: Final[Formats["SettingsSchema"]] = (
    Format(TABLE, FOR_PEOPLE, _settings_table),
    *_json_and_yaml(_settings_json),
    Format("markdown", AS_MARKDOWN, _settings_page),
)
REPLAY_PAGE: Final[Format["Replayed"]] = Format("html", AS_HTML, _replay_html)
REPLAY: Final[Formats["Replayed"]] = (
    Format(TABLE, FOR_PEOPLE, _replay_table),
    *_json_and_yaml(_replay_json),
    REPLAY_PAGE,
)


# What commands use


def option(
    formats: Formats[Any], default: str = TABLE
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the click option -o, which selects one of the formats.

    The command receives the selected Format as the argument `form`.
    """
    by_name = {form.name: form for form in formats}
    return click.option(
        "-o",
        "--output",
        "form",
        type=click.Choice(list(by_name)),
        default=default,
        show_default=True,
        callback=lambda _context, _option, name: by_name[name],
        help=", ".join(form.help for form in formats),
    )


def exit_code_option(help_text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the click option --exit-code, with which a command with findings exits with 1.

    *help_text*: when it does so, in words that follow "exit with 1".
    """
    return click.option("--exit-code", is_flag=True, help=f"exit with {FINDINGS} {help_text}")


def exit_if(found: bool) -> None:  # noqa: FBT001 a condition
    """End the command with exit code 1 (FINDINGS) if *found* is True, else do nothing."""
    if found:
        click.get_current_context().exit(FINDINGS)


def print_answer(answer: Answer, form: Format[Answer]) -> None:
    """Print an answer in a format on standard output, and its warnings on standard error."""
    text = form.text(answer)
    for line in warnings(answer, form.name):
        tell(line)
    sys.stdout.write(text)


def warnings(answer: object, name: str) -> Iterator[str]:
    """Yield the warnings about an answer as lines for standard error.

    Yields nothing for a format that contains the warnings itself; *name*: name of the format.
    """
    if name in WITHOUT_WARNINGS:
        from runtime.messages import printable

        for caveat in getattr(answer, "caveats", ()):
            yield f"Warning: {printable(caveat.message)}"


def several(form: Format[Answer], formats: Formats[Answer]) -> Several[Answer]:
    """Return how a format writes several clusters at once.

    *formats*: all formats of the command, for the error message. Raises: UsageError if the format
    can write one cluster only.
    """
    if form.several is None:
        names = ", ".join(one.name for one in formats if one.several)
        raise click.UsageError(
            f"-o {form.name}: not allowed with several --context; allowed: {names}"
        )
    return form.several


def write_answer(answer: Answer, form: Format[Answer], path: str) -> None:
    """Write an answer in a format to the file *path*. Raises: InvalidInputError."""
    from runtime import files

    files.write_text(path, form.text(answer))
