"""Remove everything that Ebb has written from a Node; without I/O.

The scale-down protection is removed at once, not after a delay: after a cleanup, no controller
removes it.
"""

from dataclasses import replace

from core.marks.mark import UNMARKED_BY_PERSON, mark_of, next_backoff, protection_of
from core.marks.wellknown import BACKOFF_ANNOTATION, KEEP_ANNOTATION, OUR_PREFIXES
from core.model.humanize import timestamp
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


def unmark_write(node: Node, taint_key: str, now_seconds: int) -> Write[Node] | None:
    """Return the next write of `ebb unmark` to the Node; None if nothing is left to do.

    It is the write of `ebb cleanup`, but a backoff remains. If the Node is marked, one begins at
    *now_seconds* (Unix), so that the controller does not mark the Node again at once.
    """
    others = {key: value for key, value in node.annotations.items() if key != BACKOFF_ANNOTATION}
    write = cleanup_write(replace(node, annotations=others), taint_key)
    if write is None or mark_of(node.labels) is None:
        return write and replace(write, before=node)
    backoff = next_backoff(node.annotations, now_seconds, UNMARKED_BY_PERSON)
    annotations = {**write.annotations, BACKOFF_ANNOTATION: str(backoff)}
    return replace(
        write,
        before=node,
        metadata={**write.metadata, "annotations": annotations},
        note=f"{write.note}; not marked again before {timestamp(backoff.until)}",
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
