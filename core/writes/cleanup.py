"""Remove everything that Ebb has written from a Node; pure.

The scale-down protection is removed at once, not after a delay: after a cleanup, no controller
removes it.
"""

from core.marks.mark import guard_of
from core.marks.wellknown import MARK_LABEL, OUR_ANNOTATIONS
from core.model.node import Node
from core.writes.write import Write, WriteKind


def cleanup(node: Node, taint_key: str) -> Write[Node] | None:
    """Return the next write of a cleanup, or None if the Node has nothing of Ebb.

    The first write removes the label and the annotations; its note lists them. If no webhook
    removes the taint then, a second write does.
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
    """Return the keys of Ebb's annotations on the Node, sorted.

    The annotation that protects from scale-down is included only if Ebb has set it.
    """
    guard = guard_of(node)
    keys = {*OUR_ANNOTATIONS, *([guard.key] if guard else [])}
    return sorted(keys & {*node.annotations})
