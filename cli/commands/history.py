"""`ebb history`: what Ebb has done and saved, by day."""

import datetime as dt
from typing import TYPE_CHECKING

import click

from cli import output
from cli.input import source
from cli.input.cluster_options import Environment, kubeconfig_of
from cli.usage import examples
from kube.target import Overrides

if TYPE_CHECKING:  # help must be fast
    from cli.answers import PastDays
    from cli.input.history import History


@click.command(
    "history",
    epilog=examples("history", "history day", "history month --until 2026-01-31 -o csv"),
)
@click.argument("period", type=click.Choice(["day", "week", "month"]), default="week")
@click.option(
    "--until",
    metavar="DATE",
    type=click.DateTime(["%Y-%m-%d"]),
    help="last day of the period, such as 2026-01-31; default: today, in UTC",
)
@source.live_options
@source.installed
@output.option(output.HISTORY)
@click.pass_obj
def command(
    environment: Environment,
    /,
    *,
    period: str,
    until: dt.datetime | None,
    form: "output.Format[PastDays]",
    kubeconfig: str | None,
    context: str | None,
    config: str | None,
    ebb_namespace: str,
    overrides: Overrides,
) -> None:
    """Show what Ebb has done and saved in a day, a week (default) or a month; read-only.

    Days are those of UTC. A month is 30 days. The figures survive a rollout of the controller.
    """
    import asyncio  # noqa: PLC0415 slow to import, as are the others

    from cli.history import past_days  # noqa: PLC0415
    from cli.input.history import read  # noqa: PLC0415
    from kube.client import Client  # noqa: PLC0415
    from runtime.clock import SystemClock  # noqa: PLC0415

    if config is not None:
        raise click.UsageError("--config: the history does not depend on the configuration")

    async def read_all() -> "tuple[History, str]":
        path = kubeconfig_of(kubeconfig, environment)
        async with await Client.connect(path, context, overrides=overrides) as client:
            return await read(client, ebb_namespace), str(client.target)

    history, cluster = asyncio.run(read_all())
    now, last = SystemClock().unix_seconds(), until.date() if until else None
    output.print_answer(past_days(history, period, last, now, cluster), form)
