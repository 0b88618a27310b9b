"""The status as JSON."""

from typing import Any

from cli.forms.json import explain
from cli.forms.json import plan as plan_json
from cli.input.cluster_input import Leader
from cli.input.overview import ClusterStatus
from cli.terminal import printable
from core.config.settings import API_VERSION


def document(status: ClusterStatus) -> dict[str, Any]:
    """Return the status as a JSON document."""
    plan, cluster_input = status.plan, status.cluster_input
    return {
        "apiVersion": API_VERSION,
        "kind": "Status",
        "source": printable(cluster_input.where),
        "configuration": cluster_input.config_from and printable(cluster_input.config_from),
        "leader": _leader(cluster_input.leader) if cluster_input.leader else None,
        "counts": {field: count for field, _, count in status.counts},
        "before": plan_json.totals(plan.before),
        "after": plan_json.totals(plan.after),
        "reaches": plan_json.reaches(plan),
        "buffers": plan_json.buffers(plan),
        "published": [
            {
                "buffer": one.buffer,
                "pods": one.pods,
                "accepted": one.accepted,
                "fault": printable(one.why),
            }
            for one in status.published
        ],
        "marks": [
            {
                "node": one.node,
                **explain.mark(one),
                "podsLeft": one.pods_left,
            }
            for one in status.marked
        ],
        "leftOverTaints": list(status.left_over_taints),
        "pendingPods": {"all": status.pending, "unschedulable": status.unschedulable},
        "markedInfeasible": list(plan.marked_infeasible),
        "removable": [removal.node for removal in plan.removals],
        "nothingBegins": plan_json.refused(status.refused),
        "warnings": plan_json.warnings(status.caveats),
        "reasons": [{"code": code, "nodes": count} for code, count in status.reasons],
    }


def _leader(leader: Leader) -> dict[str, Any]:
    return {
        "lease": leader.lease,
        "holder": leader.holder or None,
        "renewed": leader.renewed_seconds,
        "durationSeconds": leader.duration_seconds,
        "problem": leader.problem,
    }
