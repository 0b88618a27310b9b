"""`ebb replay`: simulate a cluster's history without and with Ebb, and recommend settings."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import click

from cli import output
from cli.input import source
from cli.usage import examples

if TYPE_CHECKING:  # slow to import
    from cli.answers import Replayed

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


@click.command(
    "replay",
    epilog=examples(
        "replay --dumps dumps/ --recommend ebb.yaml",
        "replay --prometheus responses/ --seeds 5 -o html",
        "replay --trace openb/ --at-once 500 --sweep usual",
    ),
)
@click.option(
    "--trace", type=FOLDER, metavar="PATH", help="a trace in a format of `ebb demo --trace`"
)
@click.option(
    "--dumps",
    type=FOLDER,
    metavar="DIR",
    help="a folder of outputs of `kubectl get nodes,pods -A -o json`, taken periodically",
)
@click.option(
    "--prometheus",
    type=FOLDER,
    metavar="DIR",
    help="a folder of responses of Prometheus to query_range; see docs/replay.md",
)
@click.option(
    "--config",
    type=source.FILE,
    metavar="FILE",
    help="an EbbConfiguration; default: built-in settings",
)
@click.option(
    "--at-once",
    type=_whole(PODS_MAX),
    metavar="N",
    help="draw pods from the trace at random, so that N run concurrently on average",
)
@click.option(
    "--days",
    type=_whole(DAYS_MAX),
    metavar="N",
    help="length of the simulation, only with --at-once; default 2",
)
@click.option(
    "--part",
    type=_whole(PARTS_MAX),
    default="1",
    metavar="N",
    help="simulate one of every N nodes and pods, others for each seed; default 1: all",
)
@click.option(
    "--seeds",
    type=_whole(SEEDS_MAX),
    default="3",
    metavar="N",
    help="simulate each variant with N random seeds; default 3",
)
@click.option(
    "--interval",
    type=_whole(SECONDS_MAX),
    default="60",
    metavar="SECONDS",
    help="time between reconciliations; a Pending pod starts a reconciliation at once; default 60",
)
@click.option(
    "--sweep",
    multiple=True,
    metavar="SETTING=VALUE,VALUE",
    help="simulate every combination of these values; repeatable; `usual` stands for usual values "
    "of thresholds, reserve.window and extender.score",
)
@click.option("--page", type=FOLDER, metavar="FILE", help="also write the answer as one HTML file")
@click.option(
    "--recommend", type=FOLDER, metavar="FILE", help="also write the recommended configuration"
)
@output.option(output.REPLAY)
def command(form: "output.Format[Replayed]", **values: Any) -> None:  # noqa: ANN401 options of several types
    """Simulate a cluster's history without Ebb and with Ebb; read-only."""
    from cli import replay  # noqa: PLC0415 slow to import

    options = replay.Options(**values)
    record = form is output.REPLAY_PAGE or options.page is not None
    answer = replay.run(options, record=record)
    try:  # a full disk or a closed pipe must not lose the result of hours
        output.print_answer(answer, form)
    finally:
        replay.save(answer, options)
