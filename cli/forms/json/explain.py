"""Explanations as JSON."""

from collections.abc import Iterable
from typing import Any

from cli.explain.explainer import NodeAnswer, PodAnswer
from cli.explain.reasons import REASONS, advice, in_general
from cli.forms.json.plan import DIGITS
from cli.input.node_status import NodeStatus
from core.capacity.reaches import Reach
from core.config.settings import API_VERSION
from core.model.reason import Blocker, Reason


def node(answer: NodeAnswer, standing: NodeStatus) -> dict[str, Any]:
    """Return what there is to say about a node in the form that orjson writes."""
    return {
        "apiVersion": API_VERSION,
        "kind": "NodeExplanation",
        "node": answer.node.name,
        "verdict": verdict(answer),
        "mark": mark(standing),
        **({"rule": answer.rule} if answer.rule else {}),
        "rank": {"price": float(answer.price), "requested": round(float(answer.share), DIGITS)},
        "pods": {
            "all": len(answer.pods),
            "toMove": answer.to_move,
            "goWithNode": sum(pod.stays_with_node for pod in answer.pods),
            "left": standing.pods_left,
            "takenFirst": standing.taken_first,
        },
        "reaches": [_reach(one) for one in answer.reaches],
        "reached": answer.reached,
        "reasons": _reasons(answer.blockers, answer.node.name),
        "waitsFor": _reasons(answer.held, answer.node.name),
        "isKeptFor": _reasons(answer.reserved, answer.node.name),
        "emptiesLate": _reasons(answer.lingers, answer.node.name),
        "staysSoft": _reasons(answer.against_hard, answer.node.name),
        "notDrained": _reasons(answer.undrained, answer.node.name),
        "placements": [{"pod": one.pod, "node": one.node} for one in answer.placements],
        "unplaced": [{"pod": pod, "reason": why} for pod, why in answer.homeless],
    }


def _reach(one: Reach) -> dict[str, Any]:
    return {"name": one.name, "key": one.key, "nodes": len(one.nodes)}


def verdict(answer: NodeAnswer) -> dict[str, Any]:
    """Return whether the node goes, and as which."""
    return {"goes": answer.order is not None, "order": answer.order}


def mark(standing: NodeStatus) -> dict[str, Any]:
    """Return what of Ebb's own stands on the node."""
    details = standing.details
    return {
        "value": standing.mark.value if standing.mark else None,
        "since": standing.since,
        "deadline": details.deadline if details else None,
        "owner": details.owner if details else None,
        "policy": details.policy if details else None,
        "reason": details.reason if details else None,
        "overdue": standing.overdue,
        "empty": standing.empty,
        "guard": standing.guard.name.lower(),
        "taintsRight": standing.taints_right,
        "leaving": standing.going,
        "beingDeleted": standing.being_deleted,
        "leftAloneUntil": standing.left_alone_until,
    }


def _reasons(blockers: Iterable[Blocker], node: str) -> list[dict[str, Any]]:
    """Return blockers, each with what it means and what helps."""
    return [
        {"code": one.code, "message": one.message, "pod": one.pod, **_told(advice(one, node))}
        for one in blockers
    ]


def _told(reason: Reason) -> dict[str, str]:
    return {"meaning": reason.meaning, "fix": reason.fix, "endsWhen": reason.lifted}


def pod(answer: PodAnswer) -> dict[str, Any]:
    """Return what there is to say about a pod in the form that orjson writes."""
    one, home = answer.pod, answer.home
    return {
        "apiVersion": API_VERSION,
        "kind": "PodExplanation",
        "pod": one.key,
        "node": one.node,
        "waits": one.node is None,
        "requests": {"cpu": one.requests.cpu_millis, "memory": one.requests.memory_bytes},
        "goesWithNode": one.stays_with_node,
        "movable": not one.stays_with_node and not answer.blockers,
        "reach": _reach(answer.reach) if answer.reach else None,
        "admittedBy": answer.admitted,
        "reasons": _reasons(answer.blockers, one.node or ""),
        "nature": _reasons(answer.nature, one.node or ""),
        "nodeVerdict": verdict(home) if home else None,
        "nodeReasons": [blocker.code for blocker in home.blockers] if home else [],
        "wouldGoTo": answer.place,
        "whyNot": answer.why_not,
        "couldRunOn": list(answer.takers),
        "couldRunOnMarked": list(answer.marked_takers),
        "refusedBy": [{"rule": rule, "nodes": count} for rule, count in answer.refusals],
    }


def codes() -> list[dict[str, str]]:
    """Return all codes in the form that orjson writes."""
    return [{"code": code, **_told(in_general(reason))} for code, reason in REASONS.items()]
