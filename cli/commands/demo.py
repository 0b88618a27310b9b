"""`ebb demo`: simulate the same load in a few variants; print a table, write a picture or page."""

from typing import Any, Final

import click

from cli.input import source
from cli.usage import examples

DAYS_MAX: Final = 60
RULES: Final = (
    "an EbbConfiguration; its `mode` is ignored; default: the default settings, with a "
    "reconciliation every 20 s"
)


def _days(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text[:9]) <= DAYS_MAX:
        raise click.BadParameter(
            f"{text!r:.40}; allowed: a whole number of days from 1 to {DAYS_MAX}"
        )
    return int(text)


@click.command(
    "demo", epilog=examples("demo", "demo --page --days 2", "demo --config ebb.yaml --seed 7")
)
@click.option(
    "--trace",
    type=click.Path(),
    metavar="PATH",
    help="simulate the openb trace in a folder or the DLRM trace in a file; see docs/replay.md",
)
@click.option("--config", type=source.FILE, metavar="FILE", help=RULES)
@click.option("--days", type=_days, default="1", metavar="N", help="days to simulate; default 1")
@click.option(
    "--seed", type=int, default=1, metavar="N", help="random seed of the load; default 1"
)
@click.option(
    "--wire/--no-wire",
    default=True,
    help="--wire (default): the simulation calls webhook and extender over HTTP(S) on 127.0.0.1; "
    "--no-wire: it calls them as functions",
)
@click.option(
    "--page",
    is_flag=True,
    help="write a time lapse of the nodes instead of the picture, and open it in the browser",
)
@click.option(
    "--output",
    type=click.Path(),
    metavar="FILE",
    help="file of the picture, default ebb-demo.png; with --page, default ebb-demo.html",
)
def command(**values: Any) -> None:  # noqa: ANN401 options of several types
    """Simulate one day of a cluster in four variants; virtual time, no cluster needed."""
    from cli import demo  # noqa: PLC0415 slow to import

    demo.play(demo.Options(**values))
