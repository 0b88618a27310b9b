"""Taints as they stand in JSON: the mark's taint goes in or out, all others stay as they are.

The model's Taint knows key, value and effect; what is written back must also keep the fields that
it does not know (timeAdded, and whatever a later API adds). Serves the webhook and the repair.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from core.errors import InvalidInputError
from core.marks import desired_taints
from core.model import Node, Resources, Taint

RawTaint = Mapping[str, Any]
_NO_RESOURCES: Final = Resources()


def marked_node(
    name: str,
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    raw: Sequence[RawTaint],
) -> Node:
    """Return a Node with what `desired_taints` reads, and nothing else."""
    return Node(
        name=name,
        labels=labels,
        annotations=annotations,
        taints=tuple(taint_of(one) for one in raw),
        allocatable=_NO_RESOURCES,
    )


def taint_of(raw: RawTaint) -> Taint:
    """Read a taint; what is absent or null is empty.

    Raises: InvalidInputError when a field is not text.
    """
    key, value, effect = (raw.get(field) or "" for field in ("key", "value", "effect"))
    if not (isinstance(key, str) and isinstance(value, str) and isinstance(effect, str)):
        raise InvalidInputError("spec.taints", "key, value and effect of a taint must be text")
    return Taint(key, value, effect)


def changed_taints(
    node: Node, raw: Sequence[RawTaint], taint_key: str
) -> tuple[RawTaint, ...] | None:
    """Return the whole list of taints that the node should carry, or None when it carries it.

    *raw* are the node's own taints, one for each of node.taints. Others' taints come back as
    they are, in their order; so does ours where it is right already.
    """
    wanted = desired_taints(node, taint_key)
    if wanted == node.taints:
        return None
    others = iter([one for one in raw if one.get("key") != taint_key])
    ours = {taint_of(one): one for one in reversed(raw) if one.get("key") == taint_key}
    return tuple(
        ours.get(taint, _written(taint)) if taint.key == taint_key else next(others)
        for taint in wanted
    )


def _written(taint: Taint) -> RawTaint:
    return {"key": taint.key, "value": taint.value, "effect": taint.effect}
