"""The taints that a Node should carry for its mark."""

from dataclasses import replace

from core.marks.mark import EFFECT_OF, Mark, mark_of, marked_since
from core.model.node import Node, Taint


def desired_taints(node: Node, taint_key: str) -> tuple[Taint, ...]:
    """Return the taints that *node* should carry, given the mark that it carries.

    Others' taints stay untouched and in place. Ours, if there is a mark, keeps its place when it
    is already right (or right but for the effect) and else comes last; its value is the unix
    second of the mark. Idempotent: applied to its own answer it changes nothing.
    """
    mark = mark_of(node.labels)
    if mark is None:
        return tuple(taint for taint in node.taints if taint.key != taint_key)
    ours = _taint(node, taint_key, mark)
    taints = list(node.taints)
    places = [place for place, taint in enumerate(taints) if taint.key == taint_key]
    if not places:
        return (*taints, ours)
    taints[places[0]] = ours
    return tuple(t for place, t in enumerate(taints) if place not in places[1:])


def hard_taint(node: Node, taint_key: str) -> Taint:
    """Return the taint of a marked Node if its mark is, or were, a hard one."""
    return _taint(node, taint_key, Mark.HARD)


def _taint(node: Node, taint_key: str, mark: Mark) -> Taint:
    return Taint(taint_key, str(marked_since(node, taint_key)), EFFECT_OF[mark])


def keys_unknown(node: Node, taint_key: str) -> list[str]:
    """Return under which other keys a marked node without our taint has one like ours.

    It may be somebody else's: a kubelet writes the details of its own Node, and so can make a
    taint with a number as its value look like this.
    """
    mark = mark_of(node.labels)
    if mark is None or any(taint.key == taint_key for taint in node.taints):
        return []
    bare = (replace(taint, time_added="") for taint in node.taints)
    return sorted(taint.key for taint in bare if taint == _taint(node, taint.key, mark))


def without_our_taint(node: Node, taint_key: str) -> Node:
    """Return the node as it would be without Ebb's taint, as filters are to see it."""
    if all(taint.key != taint_key for taint in node.taints):
        return node
    taints = tuple(taint for taint in node.taints if taint.key != taint_key)
    return replace(node, taints=taints)
