"""Read the cluster that the command line selects, and prepare to follow it."""

import click

from cli.input import reader
from cli.input.cluster_input import ClusterInput, Installation
from cli.input.reader import Where
from cli.input.source import Environment
from cli.page.feed import Feed
from core.edge.clock import SystemClock


def cluster_and_feed(environment: Environment, where: Where) -> tuple[ClusterInput, Feed | None]:
    """Return the cluster as it is now, and its feed; None for a dump. Raises: EbbError."""
    if len(where.contexts) > 1:
        raise click.UsageError("--context: the command shows one cluster; give it once")
    first = reader.read(environment, where)
    if first.target is None:
        return first, None
    context = where.contexts[0] if where.contexts else None
    (connecting,) = reader.connecting(environment, where, [context])
    # The file of --config may be a pipe, so it is not read again.
    given = first.config if where.config else None
    installation = Installation(where.ebb_namespace, given)
    return first, Feed(first, connecting, installation, SystemClock())
