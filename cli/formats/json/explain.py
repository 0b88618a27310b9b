"""The answers of `ebb explain` and `ebb reasons` as JSON."""

from collections.abc import Iterable
from typing import Any

from cli.answers import Explained, NodeExplained, PodExplained, Reasons
from cli.explain.explainer import NodeVerdict
from cli.explain.reasons import REASONS, advice, with_placeholders
from cli.formats.json import DIGITS, leader
from cli.input.mark_status import MarkStatus
from core.config.settings import API_VERSION
from core.model.reason import Blocker, Reason
from core.placement.reaches import Reach


def document(answer: Explained) -> dict[str, Any]:
    """Return the explanation as a JSON document, or several explanations as a list."""
    documents = [
        node(one) if isinstance(one, NodeExplained) else pod(one) for one in answer.explanations
    ]
    if len(documents) == 1:
        return documents[0]
    kind = f"{documents[0]['kind']}List"
    return {"apiVersion": API_VERSION, "kind": kind, "items": documents}


def node(explained: NodeExplained) -> dict[str, Any]:
    """Return the explanation of a node as a JSON document."""
    answer, status = explained.answer, explained.status
    facts = explained.cluster_input.facts
    return {
        "apiVersion": API_VERSION,
        "kind": "NodeExplanation",
        **leader.origin(explained.cluster_input, explained.now_seconds),
        "knownToLeader": leader.about_node(facts, answer.node.name, explained.limits),
        "node": answer.node.name,
        "verdict": verdict(answer),
        "mark": mark(status),
        "rule": answer.policy_text or None,
        "rank": {"price": float(answer.price), "requested": round(float(answer.share), DIGITS)},
        "pods": {
            "all": len(answer.pods),
            "toMove": answer.to_move,
            "removedWithNode": sum(pod.stays_with_node for pod in answer.pods),
            "remaining": status.pods_left,
            "scaleInFirst": status.scaled_in_first,
        },
        "reaches": [_reach(reach) for reach in answer.reaches],
        "reached": answer.reached,
        "scalability": {
            "state": answer.scalability.state.value,
            "evidence": answer.scalability.evidence,
        },
        "reasons": _reasons(answer.blockers, answer.node.name),
        "rateLimits": _reasons(answer.rate_limits, answer.node.name),
        "reservedFor": _reasons(answer.reserved, answer.node.name),
        "emptiesLate": _reasons(answer.long_lived, answer.node.name),
        "staysPreferNoSchedule": _reasons(answer.no_schedule_blockers, answer.node.name),
        "notEvicted": _reasons(answer.not_evicted, answer.node.name),
        "notMoved": _reasons(answer.not_moved, answer.node.name),
        "surgeMoves": answer.moved,
        "placements": [
            {"pod": placement.pod, "node": placement.node} for placement in answer.placements
        ],
        "unplaced": [{"pod": pod, "reason": why} for pod, why in answer.unassigned],
        "plannedHere": [{"pod": pod, "runsOn": node} for pod, node in answer.planned_from.items()],
    }


def _reach(reach: Reach) -> dict[str, Any]:
    return {"name": reach.name, "key": reach.key, "nodes": len(reach.nodes)}


def verdict(answer: NodeVerdict) -> dict[str, Any]:
    """Return as JSON whether the node is removable, and its position in the removal order.

    The position is null for a node that is not removable.
    """
    return {"removable": answer.order is not None, "order": answer.order}


def mark(status: MarkStatus) -> dict[str, Any]:
    """Return the state of a node's mark and scale-down protection as JSON.

    Times are Unix seconds; texts are null without a mark.
    """
    details = status.details
    return {
        "value": status.mark.value if status.mark else None,
        "since": status.since,
        "deadline": details.deadline if details else None,
        "owner": details.owner if details else None,
        "policy": details.policy if details else None,
        "reason": details.reason if details else None,
        "overdue": status.overdue,
        "empty": status.empty,
        "scaleDownProtection": status.protection.name.lower(),
        "taintsCorrect": status.taints_correct,
        "leaving": status.leaving,
        "beingDeleted": status.being_deleted,
        "skippedUntil": status.backoff_until,
    }


def _reasons(blockers: Iterable[Blocker], node: str) -> list[dict[str, Any]]:
    return [
        {
            "code": blocker.code,
            "message": blocker.message,
            "pod": blocker.pod,
            **_texts(advice(blocker, node)),
        }
        for blocker in blockers
    ]


def _texts(reason: Reason) -> dict[str, str]:
    return {"meaning": reason.meaning, "fix": reason.fix, "endsWhen": reason.ends_when}


def pod(explained: PodExplained) -> dict[str, Any]:
    """Return the explanation of a pod as a JSON document."""
    answer = explained.answer
    subject, node_answer = answer.pod, answer.node_answer
    return {
        "apiVersion": API_VERSION,
        "kind": "PodExplanation",
        **leader.origin(explained.cluster_input, explained.now_seconds),
        "pod": subject.key,
        "node": subject.node,
        "pending": subject.node is None,
        "requests": {"cpu": subject.requests.cpu_millis, "memory": subject.requests.memory_bytes},
        "removedWithNode": subject.stays_with_node,
        "movable": not subject.stays_with_node and not answer.blockers,
        "reach": _reach(answer.reach) if answer.reach else None,
        "admittedBy": answer.admitted,
        "reasons": _reasons(answer.blockers, subject.node or ""),
        "remarks": _reasons(answer.remarks, subject.node or ""),
        "nodeVerdict": verdict(node_answer) if node_answer else None,
        "nodeReasons": [blocker.code for blocker in node_answer.blockers] if node_answer else [],
        "target": answer.target,
        "whyNoTarget": answer.why_no_target,
        "couldRunOn": list(answer.feasible),
        "couldRunOnMarked": list(answer.feasible_marked),
        "rejectedBy": [{"rule": rule, "nodes": count} for rule, count in answer.rejections],
    }


def codes(answer: Reasons) -> list[dict[str, str]]:
    """Return reason codes with their meaning and fix as JSON."""
    return [{"code": code, **_texts(with_placeholders(REASONS[code]))} for code in answer.codes]
