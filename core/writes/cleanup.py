"""Remove everything that Ebb has written from a Node; without I/O.

The scale-down protection is removed at once, not after a delay: after a cleanup, no controller
removes it.
"""

from core.marks.mark import protection_of
from core.marks.wellknown import KEEP_ANNOTATION, OUR_PREFIXES
from core.model.node import Node
from core.writes.write import Write, WriteKind


def cleanup_write(node: Node, taint_key: str) -> Write[Node] | None:
    """Return the next write of `ebb cleanup` to the Node; None if nothing of Ebb is left on it.

    The first write removes the labels and annotations with a prefix of Ebb, whatever version wrote
    them; its note lists them. If no webhook removes the taint then, a second write does.
    """
    left = tuple(taint for taint in node.taints if taint.key != taint_key)
    tainted = ["taint"] if left != node.taints else []
    labels = sorted(key for key in node.labels if key.startswith(OUR_PREFIXES))
    fields = {"labels": labels, "annotations": annotation_keys_of_ebb(node)}
    removed = {field: dict.fromkeys(keys) for field, keys in fields.items() if keys}
    note = ", ".join([*labels, *fields["annotations"], *tainted])
    return (
        Write(WriteKind.UNMARK, node, removed, note, None if removed else left) if note else None
    )


def annotation_keys_of_ebb(node: Node) -> list[str]:
    """Return the sorted keys of the annotations that Ebb has written on the Node.

    The annotation that protects from scale-down is included only if Ebb has set it. The annotation
    with which a person opts the Node out is never included.
    """
    protection = protection_of(node)
    written = {key for key in node.annotations if key.startswith(OUR_PREFIXES)}
    written |= {protection.key} if protection else set()
    return sorted(written - {KEEP_ANNOTATION})
