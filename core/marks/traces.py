"""What on a node or a pod a decision rests on: if it has changed, nothing is written."""

from core.marks.keys import (
    BACKOFF_ANNOTATION,
    DETAILS_ANNOTATION,
    GUARD_ANNOTATION,
    GUARD_OURS_ANNOTATION,
    KARPENTER_KEEP_ANNOTATION,
    KEEP_ANNOTATION,
    MARK_LABEL,
)
from core.model.leaving import being_deleted, why_leaving
from core.model.node import Node
from core.model.pod import Pod

_ANNOTATIONS = (
    DETAILS_ANNOTATION,
    GUARD_ANNOTATION,
    GUARD_OURS_ANNOTATION,
    KEEP_ANNOTATION,
    KARPENTER_KEEP_ANNOTATION,
    BACKOFF_ANNOTATION,
)


def traces(found: Node | Pod) -> tuple[str | None, ...]:
    """Return everything that a decision about a mark, a guard or a cost rests on."""
    return _of_node(found) if isinstance(found, Node) else _of_pod(found)


def _of_node(node: Node) -> tuple[str | None, ...]:
    leaving = "being deleted" if being_deleted(node) else why_leaving(node)
    return (node.labels.get(MARK_LABEL), *map(node.annotations.get, _ANNOTATIONS), leaving)


def _of_pod(pod: Pod) -> tuple[str | None, ...]:
    going = "terminating" if pod.terminating else None
    return (
        pod.uid,
        pod.node,
        pod.owner_kind,
        pod.deletion_cost,
        pod.deletion_cost_ours,
        going,
    )
