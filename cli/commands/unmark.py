"""`ebb unmark`: remove what Ebb has written on some nodes and their pods."""

from collections.abc import Sequence

import click

from cli.cleanup.run import Options, clean_up, options


@click.command("unmark")
@click.argument("nodes", nargs=-1, required=True, metavar="NODE...")
@options
def command(shared: Options, /, *, nodes: Sequence[str]) -> None:
    """Remove what Ebb has written on these nodes and their pods, and nothing else.

    The command names the cluster, lists what it will remove, and asks.

    A running controller in mode enforce may mark the nodes again. To exclude a node for good, set
    the annotation kube-ebb.io/keep: "true".
    """
    from cli.cleanup.cluster import Request  # noqa: PLC0415 the client is slow to import

    clean_up(shared, "unmark", Request(frozenset(nodes)))
