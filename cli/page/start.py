"""Read the cluster that the command line selects, and prepare to follow it."""

from cli.input import reader
from cli.input.source import ClusterOptions, Environment
from cli.page.feed import Feed
from cli.page.following import Source
from runtime.clock import SystemClock


def source_of(environment: Environment, where: ClusterOptions) -> Source:
    """Return a dump, or the feed of a live cluster. Raises: as `reader.read`."""
    if where.from_file:
        return reader.read(environment, where)
    return Feed(reader.read_live(environment, where), SystemClock())
