"""The plan as JSON."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from cli.answers import Planned
from cli.explain.caveats import Caveat
from cli.explain.emptying import Emptying
from cli.explain.headline import Cost
from cli.formats.json import DIGITS, leader
from cli.formats.json.headline import devices, headline
from cli.input.kept_empty import KeptEmpty
from cli.nodes import NodeRow
from core.config.settings import API_VERSION
from core.config.thresholds import Thresholds
from core.engine.plan import DeviceSums, Plan, ReachSums
from core.model.reason import Blocker
from core.placement.usable_capacity import Amount, Share, Totals, Usability
from core.policies.all import POLICIES
from runtime.messages import printable

if TYPE_CHECKING:  # slow to import
    from sim.fewest_nodes import NodesNeeded

NODES_LISTED: Final = 20
"""Nodes listed in one warning."""


def document(answer: Planned) -> dict[str, Any]:
    """Return the plan as a JSON document."""
    plan, rows = answer.plan, {row.name: row for row in answer.rows}
    return {
        "apiVersion": API_VERSION,
        "kind": "Plan",
        "mode": "offline",
        **leader.origin(answer.cluster_input, answer.now_seconds),
        "headline": headline(answer.headline),
        "policy": plan.policy,
        **_rule(answer),
        "usableCapacity": _derived(plan),
        "before": totals(plan.before),
        "after": totals(plan.after),
        "devices": devices(answer.headline),
        "reaches": reaches(plan),
        "pending": [{"pod": pending.pod, "node": pending.node} for pending in plan.pending],
        "removals": [
            {
                "node": removal.node,
                "order": removal.order,
                **_facts(rows[removal.node]),
                "placements": [
                    {"pod": placement.pod, "node": placement.node}
                    for placement in removal.placements
                ],
                "emptiedBy": _emptying(answer.emptying[removal.node]),
            }
            for removal in plan.removals
        ],
        "unremovable": [
            {"node": kept.node, "reasons": [_reason(blocker) for blocker in kept.blockers]}
            for kept in plan.kept
        ],
        "markedInfeasible": list(plan.marked_infeasible),
        "buffers": buffers(plan),
        "warnings": warnings(answer.caveats),
        "prices": _cost(answer.headline.cost) if answer.headline.cost else None,
        "nothingBegins": refused(answer.refused),
        "keptEmpty": kept_empty(answer.kept_empty),
        "bound": _bound(answer.needed) if answer.needed else None,
    }


def _bound(needed: "NodesNeeded") -> dict[str, int]:
    return {
        "nodes": needed.nodes,
        "planned": needed.planned,
        "found": needed.found,
        "atLeast": needed.at_least,
    }


def _facts(row: NodeRow) -> dict[str, Any]:
    """Return the fields of a node that `-o wide` shows too, such as pool and price."""
    return {
        "pods": row.pods,
        "requested": round(float(row.requested), DIGITS),
        "price": None if row.price is None else round(float(row.price), DIGITS),
        "ageSeconds": row.age_seconds,
        "pool": row.pool or None,
        "zone": row.zone or None,
        "instanceType": row.instance_type or None,
    }


def _emptying(emptying: Emptying) -> dict[str, Any]:
    return {
        "moves": emptying.moves,
        "completion": emptying.completing,
        "turnover": emptying.turnover,
        "staying": [_reason(blocker) for blocker in emptying.staying],
    }


def refused(blockers: Sequence[Blocker]) -> list[dict[str, Any]]:
    """Return as JSON why no mark, surge move or eviction may begin now; empty if they may.

    `until` is the end of a reason in Unix seconds, or null. In a surge move, Ebb starts a
    replacement before a pod is deleted.
    """
    return [
        {"code": blocker.code, "message": blocker.message, "until": blocker.until}
        for blocker in blockers
    ]


def kept_empty(kept: Sequence[KeptEmpty]) -> list[dict[str, Any]]:
    """Return as JSON the empty nodes that Ebb keeps from scale-down."""
    return [
        {
            "node": node.node,
            "why": printable(node.why),
            "until": node.until,
            "price": None if node.price is None else round(float(node.price), DIGITS),
        }
        for node in kept
    ]


def buffers(plan: Plan) -> list[dict[str, Any]]:
    """Return as JSON the CapacityBuffers that Ebb has not created, with the capacity for each.

    Numbers count pods: requested, allowed by Ebb's settings, and reserved.
    """
    return [
        {
            "buffer": buffer.buffer,
            "requested": buffer.asked,
            "allowed": buffer.allowed,
            "reserved": buffer.placed,
            "fault": printable(buffer.fault),
        }
        for buffer in plan.buffers
    ]


def _rule(answer: Planned) -> dict[str, Any]:
    """Return the thresholds if the policy uses them, else the metrics of the policy."""
    plan = answer.plan
    if POLICIES[plan.policy].thresholds:
        return {"thresholds": _limits(answer.config.thresholds), "metrics": []}
    metrics = [
        {
            "name": metric.gauge,
            "labels": list(metric.labels),
            "value": round(float(metric.value), DIGITS),
        }
        for metric in plan.figures
    ]
    return {"thresholds": None, "metrics": metrics}


def _cost(cost: Cost) -> dict[str, float]:
    return {
        "before": round(float(cost.before), DIGITS),
        "after": round(float(cost.after), DIGITS),
        "removed": round(float(cost.removed), DIGITS),
    }


def reaches(plan: Plan) -> list[dict[str, Any]]:
    """Return as JSON each reach (a set of nodes that some pods can use), with its totals.

    The totals are those before and after the plan.
    """
    return [_reach(reach) for reach in plan.reaches]


def _reach(reach: ReachSums) -> dict[str, Any]:
    return {
        "name": reach.name,
        "key": reach.key,
        "thresholds": _limits(reach.enter),
        "unmarkThresholds": _limits(reach.unmark),
        "usableCapacity": _usability(reach.usability),
        "before": totals(reach.before),
        "after": totals(reach.after),
        "devices": [_device(device) for device in reach.devices],
    }


def _device(device: DeviceSums) -> dict[str, Any]:
    return {
        "name": device.resource,
        "threshold": float(device.enter),
        "unmarkThreshold": float(device.unmark),
        "before": device.before._asdict(),
        "after": device.after._asdict(),
    }


def _limits(share: Share | Thresholds) -> dict[str, float]:
    return {"cpu": float(share.cpu), "memory": float(share.memory)}


def totals(totals: Totals) -> dict[str, Any]:
    """Return as JSON the number of nodes, their capacity and requests, and the ratios of both.

    CPU is in millicores, memory in bytes.
    """
    return {
        "nodes": totals.nodes,
        "capacity": _amount(totals.capacity),
        "requests": _amount(totals.requests),
        "usable": _amount(totals.usable),
        "utilization": _shares(totals.requests, totals.capacity),
        "usableUtilization": _shares(totals.requests, totals.usable),
    }


def _amount(amount: Amount) -> dict[str, int]:
    return {"cpu": amount.cpu_millis, "memory": amount.memory_bytes}


def _shares(used: Amount, whole: Amount) -> dict[str, float]:
    return {
        name: round(part / total, DIGITS) if total else 0.0
        for name, part, total in zip(("cpu", "memory"), used, whole, strict=True)
    }


def _derived(plan: Plan) -> dict[str, Any] | None:
    usability = _usability(plan.usability)
    return usability and {"derived": plan.usability_derived, **usability}


def _usability(usability: Usability | None) -> dict[str, Any] | None:
    if usability is None:
        return None
    return {
        "minCPU": usability.min_cpu_millis,
        "minMemory": usability.min_memory_bytes,
        "maxCPUPerGB": float(usability.max_cpu_per_gb),
        "maxGBPerCPU": float(usability.max_gb_per_cpu),
    }


def _reason(blocker: Blocker) -> dict[str, str | None]:
    return {"code": blocker.code, "message": blocker.message, "pod": blocker.pod}


def warnings(caveats: Sequence[Caveat]) -> list[dict[str, Any]]:
    """Return the warnings about the cluster and the configuration as JSON."""
    return [
        {
            "code": caveat.code,
            "message": printable(caveat.message),
            "count": caveat.count,
            "nodes": [{"node": node, "pods": pods} for node, pods in caveat.nodes[:NODES_LISTED]],
        }
        for caveat in caveats
    ]
