"""`ebb status`: the cluster, its marks and who leads, in one look."""

from functools import partial

import click

from cli import output
from cli.input import overview, source
from cli.input.cluster_input import ClusterInput
from core.edge.clock import SystemClock


@click.command("status")
@partial(source.options, leader=True)
@source.installed
@output.option(overview.Status)
def command(found: ClusterInput, /, form: str) -> None:
    """Tell nodes, marks, waiting pods, reasons and who leads, in one look; nothing is written.

    Waiting pods that find no place (findNoPlace in -o json) are those for which one is looked
    for: not pods of DaemonSets, nor such that Ebb cannot judge, nor those of a priority under -10.
    """
    output.print_answer(overview.look(found, found.now_seconds(SystemClock())), form)
