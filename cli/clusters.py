"""Answer a command for the selected cluster, or for several clusters in one output."""

import sys
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from cli import output
from cli.input import source

if TYPE_CHECKING:  # help must be fast
    from cli.answers import Answer, ClusterPart
    from cli.input.live import ClusterOutcome
    from cli.input.source import ClusterOptions

Command = Callable[..., "Answered"]
FAULT: Final = 2
"""Exit code if a cluster could not be read."""


class Answered(NamedTuple):
    """The answer for one cluster."""

    answer: "Answer"
    found: bool
    """Whether there are findings for --exit-code."""


def options(answer: str, findings: str) -> Callable[[Command], Callable[..., None]]:
    """Add the options that select clusters and the output of this type of answer.

    The command receives a ClusterInput for each cluster, and returns its answer. *findings*:
    help of --exit-code.
    """

    def decorate(command: Command) -> Callable[..., None]:
        @wraps(command)
        def wrapped(
            environment: source.Environment,
            where: "ClusterOptions",
            /,
            *,
            form: str,
            exit_code: bool,
            **given: Any,  # noqa: ANN401 by option
        ) -> None:
            from cli.input import reader  # noqa: PLC0415

            if len(where.contexts) > 1:
                output.check_several(form, answer)
                outcomes = reader.read_each(
                    environment, where, lambda one: _part(command(one, **given), form)
                )
                found = _print_each(outcomes, form, answer)
            else:
                one, found = command(reader.read(environment, where), **given)
                output.print_answer(one, form)
            output.exit_if(exit_code and found)

        with_output = output.option(answer)(output.exit_code_option(findings)(wrapped))
        return source.several_options(with_output)

    return decorate


class _Part(NamedTuple):
    """The answer for one of several clusters, as its output format needs it."""

    part: Any
    found: bool
    warnings: tuple[str, ...]


def _part(answered: Answered, form: str) -> _Part:
    answer, found = answered
    return _Part(output.part(answer, form), found, tuple(output.warnings(answer, form)))


def _print_each(outcomes: "list[ClusterOutcome[_Part]]", form: str, answer: str) -> bool:
    """Print the answers for all clusters; return whether there are findings.

    Exits with FAULT if a cluster could not be read.
    """
    for one in outcomes:
        lines = [*one.warnings.splitlines(), *(one.answer.warnings if one.answer else ())]
        lines += [f"ebb: {line}" for line in one.error.splitlines()]
        sys.stderr.writelines(f"{one.context}: {line}\n" for line in map(_printable, lines))
    output.print_several([_cluster_part(one) for one in outcomes], form, answer)
    if any(one.answer is None for one in outcomes):
        click.get_current_context().exit(FAULT)
    return any(one.answer.found for one in outcomes if one.answer)


def _cluster_part(one: "ClusterOutcome[_Part]") -> "ClusterPart":
    from cli.answers import ClusterPart  # noqa: PLC0415 the engine is slow to import

    return ClusterPart(one.context, one.answer.part if one.answer else None, one.error)


def _printable(text: str) -> str:
    from cli.terminal import printable  # noqa: PLC0415 help needs no terminal

    return printable(text)
