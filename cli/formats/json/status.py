"""The answer of `ebb status` as JSON."""

from typing import Any

from cli.formats.json import explain, leader
from cli.formats.json import plan as plan_json
from cli.formats.json.headline import devices, headline
from cli.input.overview import ClusterStatus
from core.config.settings import API_VERSION
from runtime.messages import printable


def document(status: ClusterStatus) -> dict[str, Any]:
    """Return the status of a cluster as a JSON document."""
    plan, cluster_input = status.plan, status.cluster_input
    return {
        "apiVersion": API_VERSION,
        "kind": "Status",
        **leader.origin(cluster_input, status.now_seconds),
        **leader.running(cluster_input),
        "headline": headline(status.headline),
        "counts": {field: count for field, _, count in status.counts},
        "before": plan_json.totals(plan.before),
        "after": plan_json.totals(plan.after),
        "devices": devices(status.headline),
        "reaches": plan_json.reaches(plan),
        "buffers": plan_json.buffers(plan),
        "published": [
            {
                "buffer": buffer.buffer,
                "pods": buffer.pods,
                "accepted": buffer.accepted,
                "fault": printable(buffer.why),
            }
            for buffer in status.published
        ],
        "marks": [
            {
                "node": mark.node,
                **explain.mark(mark),
                "podsLeft": mark.pods_left,
            }
            for mark in status.marked
        ],
        "leftOverTaints": list(status.left_over_taints),
        "pendingPods": {"all": status.pending, "unschedulable": status.unschedulable},
        "markedInfeasible": list(plan.marked_infeasible),
        "removable": [removal.node for removal in plan.removals],
        "keptEmpty": plan_json.kept_empty(status.kept_empty),
        "nothingBegins": plan_json.refused(status.refused),
        "warnings": plan_json.warnings(status.caveats),
        "reasons": [{"code": code, "nodes": count} for code, count in status.reasons],
    }
