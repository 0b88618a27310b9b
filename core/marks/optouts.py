"""By which annotation a node is kept, and whose it is."""

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


def guarded_by_us(node: Node) -> bool:
    """Say whether the autoscaler's opt-out on the node was put there by Ebb."""
    return (
        node.annotations.get(GUARD_ANNOTATION) == "true"
        and GUARD_OURS_ANNOTATION in node.annotations
    )


def opted_out(node: Node) -> str | None:
    """Return the annotation by which a person or tool keeps the node, or None."""
    for key in (KEEP_ANNOTATION, KARPENTER_KEEP_ANNOTATION):
        if node.annotations.get(key) == "true":
            return key
    # Any value of somebody else's counts: with "false" in place, Ebb could not guard the node
    # without taking that person's word away.
    if GUARD_ANNOTATION in node.annotations and not guarded_by_us(node):
        return GUARD_ANNOTATION
    return None


def traces(node: Node) -> tuple[str | None, ...]:
    """Return everything on the node that a decision about its mark or guard rests on."""
    annotations = node.annotations
    return (
        node.labels.get(MARK_LABEL),
        *(
            annotations.get(key)
            for key in (
                DETAILS_ANNOTATION,
                GUARD_ANNOTATION,
                GUARD_OURS_ANNOTATION,
                KEEP_ANNOTATION,
                KARPENTER_KEEP_ANNOTATION,
                BACKOFF_ANNOTATION,
            )
        ),
        "being deleted" if being_deleted(node) else why_leaving(node),
    )
