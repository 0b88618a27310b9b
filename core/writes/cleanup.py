"""What to take away so that a Node carries nothing of ours; pure.

The guard goes at once, without the time that a release leaves it: nobody is left to lift it later.
"""

from core.marks.mark import guard_of
from core.marks.wellknown import MARK_LABEL, OUR_ANNOTATIONS
from core.model.node import Node
from core.writes.write import Write, WriteKind


def cleanup(node: Node, taint_key: str) -> Write[Node] | None:
    """Return the next write that takes off what is ours, None if nothing is; its note says what.

    First the metadata; then the taints, if no webhook took ours.
    """
    left = tuple(taint for taint in node.taints if taint.key != taint_key)
    tainted = ["taint"] if left != node.taints else []
    fields = {"labels": {MARK_LABEL} & {*node.labels}, "annotations": ours(node)}
    gone = {field: dict.fromkeys(keys) for field, keys in fields.items() if keys}
    note = ", ".join([*fields["labels"], *fields["annotations"], *tainted])
    return (
        Write(WriteKind.RELEASE_MARK, node, gone, note, None if gone else left) if note else None
    )


def ours(node: Node) -> list[str]:
    """Return the annotations that are ours, in their order.

    An autoscaler's opt-out is only if we have written it, and only as long as it says so.
    """
    guard = guard_of(node)
    keys = {*OUR_ANNOTATIONS, *([guard.key] if guard else [])}
    return sorted(keys & {*node.annotations})
