"""What to take away so that a Node carries nothing of ours; pure.

The guard goes at once, without the time that a release leaves it: nobody is left to lift it later.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from core.marks.keys import (
    BACKOFF_ANNOTATION,
    DETAILS_ANNOTATION,
    GUARD_ANNOTATION,
    GUARD_OURS_ANNOTATION,
    MARK_LABEL,
)
from core.marks.optouts import guarded_by_us
from core.marks.taints import desired_taints, of_keys_before
from core.model.leaving import being_deleted
from core.model.node import Node, Taint
from core.writes.write import Write, WriteKind


@dataclass(frozen=True, slots=True)
class Cleanup:
    """Keys to remove from one Node, and the taints that are left."""

    labels: tuple[str, ...]
    annotations: tuple[str, ...]
    taints: tuple[Taint, ...]
    tainted: bool
    """A taint of ours is among those that the node has now."""

    def write(self, node: Node) -> Write[Node]:
        """Return the next write: of the metadata, then of the taints if no webhook took ours."""
        fields = {"labels": self.labels, "annotations": self.annotations}
        gone = {field: dict.fromkeys(keys) for field, keys in fields.items() if keys}
        taints = None if gone else self.taints
        return Write(WriteKind.RELEASE, node, gone, "everything of ours goes", taints)


def cleanup(node: Node, taint_key: str, keys_before: Collection[str] = ()) -> Cleanup | None:
    """Return what is ours on the node, None if nothing is; the taint's key may have been another.

    The autoscaler's opt-out is ours only if we have written it, and only as long as it says so.
    """
    old = of_keys_before(node, keys_before)
    left = tuple(taint for taint in node.taints if taint.key != taint_key and taint not in old)
    found = Cleanup(
        labels=_present(node.labels, (MARK_LABEL,)),
        annotations=_present(node.annotations, _ours(node)),
        taints=left,
        tainted=left != node.taints,
    )
    return found if found.labels or found.annotations or found.tainted else None


def rekeyed(node: Node, keys_before: Collection[str], taint_key: str) -> Write[Node] | None:
    """Return the write that puts our taint in the place of those of other keys, if there are any.

    On a node that is being deleted nothing is written.
    """
    gone = of_keys_before(node, keys_before)
    if not gone or being_deleted(node):
        return None
    bare = replace(node, taints=tuple(one for one in node.taints if one not in gone))
    note = f"took taints of keys before away: {', '.join(sorted({taint.key for taint in gone}))}"
    return Write(WriteKind.REPAIR, node, {}, note, desired_taints(bare, taint_key))


def _ours(node: Node) -> tuple[str, ...]:
    guard = (GUARD_ANNOTATION,) if guarded_by_us(node) else ()
    return (
        DETAILS_ANNOTATION, GUARD_OURS_ANNOTATION, BACKOFF_ANNOTATION, *guard
    )  # fmt: skip


def _present(given: Mapping[str, str], keys: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted(key for key in keys if key in given))
