"""`ebb unmark`: remove what Ebb has written on some nodes and their pods."""

from collections.abc import Sequence

import click

from cli.cleanup.run import Options, clean_up, options
from cli.input.subjects import complete_nodes, node_names
from cli.usage import examples


@click.command(
    "unmark", epilog=examples("unmark worker-1 worker-2 --dry-run", "unmark worker-1 --yes")
)
@click.argument(
    "nodes",
    nargs=-1,
    required=True,
    metavar="NODE...",
    callback=node_names,
    shell_complete=complete_nodes,
)
@options
def command(shared: Options, /, *, nodes: Sequence[str]) -> None:
    """Remove what Ebb has written on these nodes and their pods, and nothing else.

    The command names the cluster, lists what it will remove, and asks.

    A marked node gets an Event and a backoff: the controller does not mark it again for an hour,
    and for longer each time, up to a day. The command prints when that ends. To exclude a node
    for good, set the annotation kube-ebb.io/keep: "true".
    """
    from cli.cleanup.cluster import Request  # noqa: PLC0415 the client is slow to import

    clean_up(shared, "unmark", Request(frozenset(nodes)))
