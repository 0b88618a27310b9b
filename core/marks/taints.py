"""Derive the taints of a Node from its mark (Ebb's label on the Node)."""

from dataclasses import replace

from core.marks.mark import Mark, mark_of, marked_since
from core.model.node import Effect, Node, Taint


def desired_taints(node: Node, taint_key: str) -> tuple[Taint, ...]:
    """Return all taints that the Node should have, given its mark.

    Taints of others are unchanged. On a marked Node, Ebb's taint replaces the first taint with its
    key, or is added at the end. Its value is the Unix second of the mark. A Node without a mark
    has no taint of Ebb. Applied to its own result, the function changes nothing.

    *taint_key*: key of Ebb's taint.
    """
    mark = mark_of(node.labels)
    if mark is None:
        return tuple(taint for taint in node.taints if taint.key != taint_key)
    wanted = _taint(node, taint_key, mark)
    taints = list(node.taints)
    positions = [index for index, taint in enumerate(taints) if taint.key == taint_key]
    if not positions:
        return (*taints, wanted)
    taints[positions[0]] = wanted
    return tuple(taint for index, taint in enumerate(taints) if index not in positions[1:])


def no_schedule_taint(node: Node, taint_key: str) -> Taint:
    """Return the taint that follows, or would follow, from a NoSchedule mark on the Node.

    *taint_key*: key of Ebb's taint.
    """
    return _taint(node, taint_key, Mark.NO_SCHEDULE)


def _taint(node: Node, taint_key: str, mark: Mark) -> Taint:
    return Taint(taint_key, str(marked_since(node, taint_key)), Effect(mark.value))


def without_our_taint(node: Node, taint_key: str) -> Node:
    """Return the Node without Ebb's taint; the same object if it has none.

    So the filters of the scheduler admit the pods that an unmarked node would admit. *taint_key*:
    key of Ebb's taint.
    """
    if all(taint.key != taint_key for taint in node.taints):
        return node
    taints = tuple(taint for taint in node.taints if taint.key != taint_key)
    return replace(node, taints=taints)
