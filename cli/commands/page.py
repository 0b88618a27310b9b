"""`ebb page`: show a cluster in a browser, and follow it."""

from typing import TYPE_CHECKING

import click

from cli.input import source

if TYPE_CHECKING:  # help must be fast
    from cli.input.reader import Where


@click.command("page")
@source.several_options
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    metavar="PORT",
    help="port on 127.0.0.1; default: any free port",
)
@click.option("--no-browser", is_flag=True, help="only print the URL")
def command(
    environment: source.Environment, where: "Where", /, *, port: int, no_browser: bool
) -> None:
    """Serve a page with the plan and the nodes on 127.0.0.1, and open it; read-only.

    The page follows a live cluster with watches. It shows what your kubeconfig may read. The URL
    contains a token: other users of this machine cannot open the page without it.
    """
    import asyncio  # noqa: PLC0415 help must be fast

    from cli.input import reader  # noqa: PLC0415
    from cli.input.cluster_input import Installation  # noqa: PLC0415
    from cli.page.feed import Feed  # noqa: PLC0415
    from cli.page.run import open_browser, serve  # noqa: PLC0415
    from core.edge.clock import SystemClock  # noqa: PLC0415

    if len(where.contexts) > 1:
        raise click.UsageError("--context: ebb page shows one cluster; give it once")
    first = reader.read(environment, where)
    feed = None
    if first.target is not None:
        context = where.contexts[0] if where.contexts else None
        (connecting,) = reader.connecting(environment, where, [context])
        # The file of --config may be a pipe, so it is not read again.
        given = first.config if where.config else None
        feed = Feed(first, connecting, Installation(where.ebb_namespace, given), SystemClock())
    asyncio.run(serve(first, feed, port, (lambda _: None) if no_browser else open_browser))
