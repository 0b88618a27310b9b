"""The status as JSON."""

from typing import Any

from cli.forms.json import explain
from cli.forms.json import plan as plan_json
from cli.input.cluster_input import Leader
from cli.input.overview import Status
from cli.terminal import printable
from core.config.settings import API_VERSION


def document(status: Status) -> dict[str, Any]:
    """Return the status in the form that orjson writes."""
    plan, found = status.plan, status.found
    return {
        "apiVersion": API_VERSION,
        "kind": "Status",
        "source": printable(found.where),
        "configuration": found.config_from and printable(found.config_from),
        "leader": _leader(found.leader) if found.leader else None,
        "counts": {_camel(name): count for name, count in status.counts},
        "before": plan_json.totals(plan.before),
        "after": plan_json.totals(plan.after),
        "reaches": plan_json.reaches(plan),
        "buffers": plan_json.buffers(plan),
        "published": [
            {
                "buffer": one.buffer,
                "pods": one.asked,
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
        "leftOverTaints": list(status.stray),
        "podsThatWait": {"all": status.waiting, "findNoPlace": status.stuck},
        "markedInfeasible": list(plan.marked_infeasible),
        "removable": [removal.node for removal in plan.removals],
        "warnings": plan_json.warnings(status.minded),
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


def _camel(name: str) -> str:
    first, *others = name.replace(",", "").replace("-", " ").split()
    return first + "".join(word.capitalize() for word in others)
