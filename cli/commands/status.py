"""`ebb status`: summarize the cluster, its marks and the leader."""

from typing import TYPE_CHECKING

import click

from cli import clusters, output
from cli.input import source
from cli.usage import examples

if TYPE_CHECKING:  # help must be fast
    from cli.input.cluster_input import ClusterInput
    from cli.input.overview import ClusterStatus
    from cli.nodes import Selection


@click.command(
    "status",
    epilog=examples(
        "status", "status -w", "status --context eu --context us", "status --exit-code -o json"
    ),
)
@source.selection_options
@clusters.options(
    output.STATUS,
    "if no replica leads, writes are refused, a mark is overdue, or a taint is wrong",
)
def command(
    cluster_input: "ClusterInput", /, *, selection: "Selection"
) -> "clusters.Answered[ClusterStatus]":
    """Summarize nodes, marks, Pending pods, reasons and the leader; read-only.

    Pending pods that fit on no node (pendingPods.unschedulable in -o json) do not include
    DaemonSet pods, pods that Ebb cannot evaluate, and pods with a priority below -10: Ebb
    searches no node for them.
    """
    from cli.input import overview  # noqa: PLC0415 the engine is slow to import
    from runtime.clock import SystemClock  # noqa: PLC0415

    now = cluster_input.now_seconds(SystemClock())
    status = overview.summarize(cluster_input, now, selection)
    return clusters.Answered(status, status.needs_attention)
