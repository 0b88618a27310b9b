"""`ebb replay`: a cluster's own past, played under every mode and rule, and what to choose."""

from collections.abc import Callable
from typing import Any, Final

import click

from cli import output
from cli.answers import Replayed
from cli.input import source

DAYS_MAX: Final = 60
SEEDS_MAX: Final = 20
PODS_MAX: Final = 100_000
PARTS_MAX: Final = 1000
SECONDS_MAX: Final = 3600


def _whole(most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not text.isdecimal() or not 1 <= int(text[:9]) <= most:
            raise click.BadParameter(f"{text!r:.40}; allowed: a whole number from 1 to {most:,}")
        return int(text)

    read.__name__ = "N"
    return read


FOLDER: Final = click.Path()


@click.command("replay")
@click.option(
    "--trace", type=FOLDER, metavar="DIR", help="two CSV files, as `ebb demo` reads them"
)
@click.option(
    "--dumps",
    type=FOLDER,
    metavar="DIR",
    help="what `kubectl get nodes,pods -A -o json` wrote from time to time",
)
@click.option(
    "--prometheus", type=FOLDER, metavar="DIR", help="answers of query_range; see docs/replay.md"
)
@click.option("--config", type=source.FILE, metavar="FILE", help="Ebb's rules; default: built in")
@click.option(
    "--at-once",
    type=_whole(PODS_MAX),
    metavar="N",
    help="draw pods from the trace's rows, so that N run at once on average",
)
@click.option(
    "--days", type=_whole(DAYS_MAX), metavar="N", help="with --at-once, so long; default 2"
)
@click.option(
    "--part",
    type=_whole(PARTS_MAX),
    default="1",
    metavar="N",
    help="one node and pod in N, others with each seed; default 1: all",
)
@click.option("--seeds", type=_whole(SEEDS_MAX), default="3", metavar="N", help="default 3")
@click.option(
    "--interval",
    type=_whole(SECONDS_MAX),
    default="60",
    metavar="SECONDS",
    help="the engine looks so often, and at once when a pod waits; default 60",
)
@click.option(
    "--sweep",
    multiple=True,
    metavar="SETTING=VALUE,VALUE",
    help="play every combination; repeat it, or give `usual`",
)
@click.option("--page", type=FOLDER, metavar="FILE", help="write it all as one HTML file, too")
@click.option(
    "--recommend", type=FOLDER, metavar="FILE", help="write the configuration to choose, too"
)
@output.option(Replayed)
def command(form: str, **given: Any) -> None:  # noqa: ANN401 as the options have it
    """Play a cluster's own past under every mode and rule; nothing is written to a cluster."""
    from cli import replay  # noqa: PLC0415 the simulation takes long

    asked = replay.Asked(**given)
    answer = replay.play(asked)
    try:  # neither a full disk nor a pipe that is closed is to cost what was played for hours
        output.print_answer(answer, form)
    finally:
        replay.save(answer, asked)
