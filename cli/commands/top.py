"""`ebb top`: show a cluster in a terminal, and follow it."""

import sys
from typing import TYPE_CHECKING

import click

from cli.input import source
from cli.input.cluster_options import Environment
from cli.usage import examples

if TYPE_CHECKING:  # help must be fast
    from cli.input.cluster_options import ClusterOptions


@click.command("top", epilog=examples("top", "top --context eu", "top --from-file dump.json"))
@source.unread_options
def command(environment: Environment, where: "ClusterOptions", /) -> None:
    """Show savings, nodes, marks and surge moves, and follow the cluster; read-only.

    Keys: q quits, s sorts, / filters by name, pool, zone or state, arrows scroll. Without a
    terminal, the command prints all nodes once.
    """
    if sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty():
        import asyncio  # noqa: PLC0415 help must be fast

        from cli.page.following import source_of  # noqa: PLC0415
        from cli.top.run import follow  # noqa: PLC0415

        asyncio.run(follow(source_of(environment, where)))
        return
    from cli.answers import RowOptions  # noqa: PLC0415
    from cli.formats.page.state import PageState  # noqa: PLC0415
    from cli.input import reader  # noqa: PLC0415
    from cli.plan import Limits, planned  # noqa: PLC0415
    from cli.terminal import PIPE_WIDTH  # noqa: PLC0415
    from cli.top.screen import ScreenState, render  # noqa: PLC0415

    plan = planned(reader.read(environment, where), Limits(), RowOptions())
    state = PageState(plan).document(details=False)
    print(render(state, (), ScreenState(), PIPE_WIDTH, None).plain)
