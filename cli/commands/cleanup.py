"""`ebb cleanup`: remove everything that Ebb has written in the cluster."""

import click

from cli.cleanup.run import Options, clean_up, options
from cli.usage import examples
from core.model.errors import InvalidInputError


@click.command(
    "cleanup", epilog=examples("cleanup --all --dry-run", "cleanup --all --stop-controller --yes")
)
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="required: clean up all nodes and pods, surge moves, and Ebb's CapacityBuffers "
    "and history",
)
@click.option(
    "--stop-controller",
    is_flag=True,
    help="first scale the controller to 0, and wait until no replica leads",
)
@options
def command(
    shared: Options,
    /,
    *,
    everything: bool,
    stop_controller: bool,
) -> None:
    """Remove everything that Ebb has written in the cluster, and nothing else.

    The command names the cluster, lists what it will remove, and asks.

    A running controller in mode enforce marks nodes again: set `mode: observe` first, uninstall,
    or use --stop-controller.
    """
    if not everything:
        raise InvalidInputError("cleanup", "use --all, or `ebb unmark NODE` for single nodes")
    from cli.cleanup.cluster import Request  # noqa: PLC0415 the client is slow to import

    request = Request(stop_controller=stop_controller)
    clean_up(shared, "cleanup", request)
