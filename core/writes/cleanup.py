"""What to take away so that a Node carries nothing of ours; pure.

The guard goes at once, without the time that a release leaves it: nobody is left to lift it later.
"""

from collections.abc import Collection
from dataclasses import replace

from core.marks.mark import guard_of
from core.marks.taints import desired_taints, of_keys_before
from core.marks.wellknown import MARK_LABEL, OUR_ANNOTATIONS
from core.model.node import Node
from core.model.node_lifecycle import being_deleted
from core.writes.write import Write, WriteKind


def cleanup(node: Node, taint_key: str, keys_before: Collection[str] = ()) -> Write[Node] | None:
    """Return the next write that takes off what is ours, None if nothing is; its note says what.

    First the metadata; then the taints, if no webhook took ours. The key may have been another.
    """
    old = of_keys_before(node, keys_before)
    left = tuple(taint for taint in node.taints if taint.key != taint_key and taint not in old)
    tainted = ["taint"] if left != node.taints else []
    fields = {"labels": {MARK_LABEL} & {*node.labels}, "annotations": ours(node)}
    gone = {field: dict.fromkeys(keys) for field, keys in fields.items() if keys}
    note = ", ".join([*fields["labels"], *fields["annotations"], *tainted])
    return Write(WriteKind.RELEASE, node, gone, note, None if gone else left) if note else None


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


def ours(node: Node) -> list[str]:
    """Return the annotations that are ours, in their order.

    An autoscaler's opt-out is only if we have written it, and only as long as it says so.
    """
    guard = guard_of(node)
    keys = {*OUR_ANNOTATIONS, *([guard.key] if guard else [])}
    return sorted(keys & {*node.annotations})
