"""`ebb demo`: simulate the same load in five variants; print a table and draw a picture."""

from typing import Final

import click

from cli.input import source

DAYS_MAX: Final = 60
RULES: Final = (
    "an EbbConfiguration; its mode is ignored; default: built-in settings, thresholds 85%"
)


def _days(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text[:9]) <= DAYS_MAX:
        raise click.BadParameter(f"{text!r} is not a number of days, 1 to {DAYS_MAX}")
    return int(text)


@click.command("demo")
@click.option(
    "--trace",
    type=click.Path(),
    metavar="PATH",
    help="simulate the openb trace in a folder or the DLRM trace in a file; docs/replay.md",
)
@click.option("--config", type=source.FILE, metavar="FILE", help=RULES)
@click.option("--days", type=_days, default="1", metavar="N", help="days to simulate; default 1")
@click.option(
    "--seed", type=int, default=1, metavar="N", help="random seed of the load; default 1"
)
@click.option(
    "--wire/--no-wire",
    default=True,
    help="call webhook and extender over HTTP and HTTPS on loopback (default), or in process",
)
@click.option(
    "--output",
    type=click.Path(),
    default="ebb-demo.png",
    metavar="FILE",
    help="file of the picture; default ebb-demo.png",
)
def command(
    trace: str | None, config: str | None, days: int, seed: int, *, wire: bool, output: str
) -> None:
    """Simulate one day of a cluster in five variants; virtual time, no cluster needed."""
    from cli import demo  # noqa: PLC0415 slow to import

    demo.play(trace, output, config=config, days=days, seed=seed, wire=wire)
