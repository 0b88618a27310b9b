"""By which annotation a node is kept, and whose it is."""

from core.marks.keys import (
    GUARD_ANNOTATION,
    GUARD_OURS_ANNOTATION,
    KARPENTER_KEEP_ANNOTATION,
    KEEP_ANNOTATION,
)
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
