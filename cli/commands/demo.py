"""`ebb demo`: simulate the same load in five variants; print a table, write a picture or page."""

from typing import Any, Final

import click

from cli.input import source

DAYS_MAX: Final = 60
TIMER_SECONDS_MAX: Final = 3600
RULES: Final = (
    "an EbbConfiguration; its mode is ignored; default: built-in settings, thresholds 85%"
)


def _days(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text[:9]) <= DAYS_MAX:
        raise click.BadParameter(f"{text!r} is not a number of days, 1 to {DAYS_MAX}")
    return int(text)


def _timer(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text[:9]) <= TIMER_SECONDS_MAX:
        allowed = f"allowed: a whole number from 1 to {TIMER_SECONDS_MAX:,}"
        raise click.BadParameter(f"{text!r:.40}; {allowed}")
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
    "--scale-down-timers",
    type=_timer,
    default="600",
    metavar="SECONDS",
    help="`--scale-down-unneeded-time` and `--scale-down-delay-after-add` of the autoscaler of "
    "all variants; default 600",
)
@click.option(
    "--wire/--no-wire",
    default=True,
    help="call webhook and extender over HTTP and HTTPS on loopback (default), or in process",
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
    """Simulate one day of a cluster in five variants; virtual time, no cluster needed."""
    from cli import demo  # noqa: PLC0415 slow to import

    demo.play(demo.Options(**values))
