"""Answer a command for the selected cluster, or for several clusters in one output."""

import sys
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

import click

from cli import output
from cli.input import source
from cli.input.cluster_options import Environment
from runtime.messages import tell

if TYPE_CHECKING:  # help must be fast
    from cli.input.cluster_input import ClusterInput
    from cli.input.cluster_options import ClusterOptions

Answer = TypeVar("Answer")
FAULT: Final = 2
"""Exit code if a cluster could not be read."""


class Answered(NamedTuple, Generic[Answer]):
    """The answer of a command for one cluster, and whether it has findings."""

    answer: Answer
    found: bool
    """Whether there are findings for --exit-code."""


Command = Callable[..., Answered[Answer]]


class _Part(NamedTuple):
    """Part of the answer for one of several clusters, kept until all of them are written."""

    part: Any
    found: bool
    warnings: tuple[str, ...]


def options(
    formats: output.Formats[Answer], findings: str
) -> Callable[[Command[Answer]], Callable[..., None]]:
    """Return a decorator that adds the options for clusters, for the output, and --exit-code.

    The decorated command is called with a ClusterInput for each selected cluster, and returns an
    Answered. *formats*: output formats that -o allows. *findings*: end of the help text of
    --exit-code, after "exit with 1".
    """

    def decorate(command: Command[Answer]) -> Callable[..., None]:
        @wraps(command)
        def wrapped(
            environment: Environment,
            where: "ClusterOptions",
            /,
            *,
            form: output.Format[Answer],
            exit_code: bool,
            watch: bool,
            **values: Any,  # noqa: ANN401 by option
        ) -> None:
            from cli.input import reader  # noqa: PLC0415

            found = False
            if watch:
                _check_watch(where, exit_code=exit_code)
                _print_changes(environment, where, form, lambda read: command(read, **values))
            elif len(where.contexts) > 1:
                several = output.several(form, formats)
                found = _print_each(environment, where, several, form.name, command, values)
            else:
                answer, found = command(reader.read(environment, where), **values)
                output.print_answer(answer, form)
            output.exit_if(exit_code and found)

        with_watch = click.option(
            "-w",
            "--watch",
            is_flag=True,
            help="print the answer again after changes, until Ctrl-C",
        )(wrapped)
        with_output = output.option(formats)(output.exit_code_option(findings)(with_watch))
        return source.unread_options(with_output, several=True)

    return decorate


def _check_watch(where: "ClusterOptions", *, exit_code: bool) -> None:
    others = (
        ("--from-file", where.from_file),
        ("several --context", len(where.contexts) > 1),
        ("--exit-code", exit_code),
    )
    for name, given in others:
        if given:
            raise click.UsageError(f"--watch: not allowed with {name}")


def _print_changes(
    environment: Environment,
    where: "ClusterOptions",
    form: output.Format[Answer],
    command: "Callable[[ClusterInput], Answered[Answer]]",
) -> None:
    """Print the answer of *command* for a live cluster now and after changes, until Ctrl-C."""
    import asyncio  # noqa: PLC0415 help must be fast

    from cli.input import reader  # noqa: PLC0415
    from cli.page.feed import Feed  # noqa: PLC0415
    from cli.page.printing import print_each  # noqa: PLC0415
    from runtime.clock import SystemClock  # noqa: PLC0415

    told: list[str] = []

    def text(cluster_input: "ClusterInput") -> str:
        answer = command(cluster_input).answer
        warnings = list(output.warnings(answer, form.name))
        for warning in warnings:
            if warning not in told:
                tell(warning)
        told[:] = warnings
        return form.text(answer)

    feed = Feed(reader.read_live(environment, where), SystemClock())
    asyncio.run(print_each(feed, text, form.name, sys.stdout))


def _print_each(
    environment: Environment,
    where: "ClusterOptions",
    several: output.Several[Answer],
    form: str,
    command: Command[Answer],
    values: dict[str, Any],
) -> bool:
    """Print the answers for all clusters, and return whether any of them has findings.

    *several* and *form*: the output format and its name. *values*: options that are passed to the
    command. Exits with FAULT if a cluster could not be read.
    """
    from cli.answers import ClusterPart  # noqa: PLC0415 the engine is slow to import
    from cli.input import reader  # noqa: PLC0415
    from cli.input.cluster_input import ClusterInput  # noqa: PLC0415

    def part(cluster_input: ClusterInput) -> _Part:
        answer, found = command(cluster_input, **values)
        return _Part(several.part(answer), found, tuple(output.warnings(answer, form)))

    outcomes = reader.read_each(environment, where, part)
    for outcome in outcomes:
        lines = outcome.warnings.splitlines()
        lines += outcome.answer.warnings if outcome.answer else ()
        lines += [f"ebb: {line}" for line in outcome.error.splitlines()]
        for line in lines:
            tell(f"{outcome.context}: {line}")
    parts = [
        ClusterPart(
            outcome.context, outcome.answer.part if outcome.answer else None, outcome.error
        )
        for outcome in outcomes
    ]
    sys.stdout.write(several.text(parts))
    if any(outcome.answer is None for outcome in outcomes):
        click.get_current_context().exit(FAULT)
    return any(outcome.answer.found for outcome in outcomes if outcome.answer)
