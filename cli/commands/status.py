"""`ebb status`: summarize the cluster, its marks and the leader."""

import click

from cli import output
from cli.input import overview, source
from cli.input.cluster_input import ClusterInput
from core.edge.clock import SystemClock


@click.command("status")
@source.options
@output.option(overview.ClusterStatus)
def command(cluster_input: ClusterInput, /, form: str) -> None:
    """Summarize nodes, marks, Pending pods, reasons and the leader; read-only.

    Pending pods that fit on no node (pendingPods.unschedulable in -o json) do not include
    DaemonSet pods, pods that Ebb cannot evaluate, and pods with a priority below -10: Ebb
    searches no node for them.
    """
    output.print_answer(
        overview.summarize(cluster_input, cluster_input.now_seconds(SystemClock())), form
    )
