"""`ebb page`: show a cluster in a browser, and follow it."""

from typing import TYPE_CHECKING

import click

from cli.input import source
from cli.input.cluster_options import Environment
from cli.usage import examples

if TYPE_CHECKING:  # help must be fast
    from cli.input.cluster_options import ClusterOptions


@click.command(
    "page",
    epilog=examples(
        "page", "page --context eu --port 8080 --no-browser", "page --from-file dump.json"
    ),
)
@source.unread_options
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    metavar="PORT",
    help="port on 127.0.0.1; default: any free port",
)
@click.option("--no-browser", is_flag=True, help="only print the URL")
def command(
    environment: Environment, where: "ClusterOptions", /, *, port: int, no_browser: bool
) -> None:
    """Serve a page with the plan and the nodes on 127.0.0.1, and open it; read-only.

    The page follows a live cluster with watches. It shows what your kubeconfig may read. The URL
    contains a token: other users of this machine cannot open the page without it.
    """
    import asyncio  # noqa: PLC0415 help must be fast

    from cli.page.following import source_of  # noqa: PLC0415
    from cli.page.run import open_browser, serve  # noqa: PLC0415

    cluster = source_of(environment, where)
    asyncio.run(serve(cluster, port, None if no_browser else open_browser))
