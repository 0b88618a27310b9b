"""What a write to a Node or a Pod is; values only."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final, Generic, Self, TypeVar

from core.config.settings import Mode
from core.marks.mark import Mark, mark_of
from core.marks.taints import desired_taints
from core.marks.wellknown import GUARDS, KEEP_ANNOTATION, MARK_LABEL, OUR_ANNOTATIONS
from core.model.node import Node, Taint
from core.model.node_lifecycle import being_deleted, why_leaving
from core.model.pod import Pod

Object = TypeVar("Object", bound=Node | Pod)
Keys = Mapping[str, str | None]
"""Labels or annotations to write; None takes one away."""


class WriteKind(StrEnum):
    """What a write is for; a metric's label."""

    MARK = "mark"
    HARDEN = "harden"
    SOFTEN = "soften"
    RELEASE = "release"
    GUARD = "guard"
    HOLD = "hold"
    """The guard of a node without a mark."""
    UNGUARD = "unguard"
    REPAIR = "repair"
    TELL = "tell"
    """For which pods a node is kept, where its guard stays as it is."""
    FORGET = "forget"
    """A node's back-off, long after it has ended."""


class CostKind(StrEnum):
    """What a write to a Pod is for; a metric's label."""

    SET = "set"
    CLEAR = "clear"


PRESSING: Final = (WriteKind.RELEASE, WriteKind.SOFTEN, WriteKind.GUARD, WriteKind.REPAIR)
"""What keeps pods from waiting or from being evicted, and what completes that; in this order."""
PATIENT: Final = (*PRESSING, CostKind.CLEAR)
"""What takes back, and so is as right when it is late. All else rests on a plan, and is judged
again instead of waiting."""
ADDING: Final = (WriteKind.MARK, CostKind.SET)
"""What mode observe only tells; all else takes away what another mode has left."""
_ANNOTATIONS: Final = (*OUR_ANNOTATIONS, *GUARDS, KEEP_ANNOTATION)
"""What a decision rests on: if it has changed, nothing is written."""


@dataclass(frozen=True, slots=True)
class Write(Generic[Object]):
    """One merge patch of one object."""

    kind: WriteKind | CostKind
    before: Object
    """As it was when this was decided."""
    metadata: Mapping[str, Keys]
    """By field, in the order of the patch."""
    note: str
    """Why, for people."""
    taints: tuple[Taint, ...] | None = None
    """The whole list, so that nobody else's is lost; None: as it is."""

    @classmethod
    def of(
        cls,
        kind: WriteKind | CostKind,
        before: Object,
        labels: Keys,
        annotations: Keys,
        note: str,
    ) -> Self:
        """Return the write of these labels and annotations."""
        metadata = {"annotations": annotations} | ({"labels": labels} if labels else {})
        return cls(kind, before, metadata, note)

    @property
    def labels(self) -> Keys:
        """Return what labels are written."""
        return self.metadata.get("labels", {})

    @property
    def annotations(self) -> Keys:
        """Return what annotations are written."""
        return self.metadata.get("annotations", {})

    @property
    def key(self) -> str:
        """Return the Node's name, or the Pod's namespace/name."""
        return self.before.key

    def if_as_seen(self, found: Object) -> Self | None:
        """Return the write if the object still is as it was when this was decided."""
        return self if fingerprint(found) == fingerprint(self.before) else None

    def merge_patch(self, version: str) -> dict[str, Any]:
        """Return the patch on a resourceVersion; null removes a key."""
        metadata = {field: dict(keys) for field, keys in self.metadata.items()}
        patch: dict[str, Any] = {"metadata": {"resourceVersion": version, **metadata}}
        if self.taints is not None:
            patch["spec"] = {"taints": [_taint_json(taint) for taint in self.taints]}
        return patch


def fingerprint(found: Node | Pod) -> tuple[str | None, ...]:
    """Return everything that a decision about a mark, a guard or a cost rests on."""
    if isinstance(found, Node):
        leaving = "being deleted" if being_deleted(found) else why_leaving(found)
        mark = found.labels.get(MARK_LABEL)
        return (found.uid, mark, *map(found.annotations.get, _ANNOTATIONS), leaving)
    going = "terminating" if found.terminating else None
    costs = found.deletion_cost, found.deletion_cost_ours
    return (found.uid, found.node, found.owner_kind, *costs, going)


def _taint_json(taint: Taint) -> dict[str, str]:
    """Write a taint as the API has it; what is empty is left out."""
    written = {
        "key": taint.key,
        "value": taint.value,
        "effect": taint.effect,
        "timeAdded": taint.time_added,
    }
    return {name: value for name, value in written.items() if value}


def split(
    writes: Iterable[Write[Object]], mode: Mode
) -> tuple[list[Write[Object]], list[Write[Object]]]:
    """Return the writes that the mode lets be written, and those that it only tells."""
    found: tuple[list[Write[Object]], list[Write[Object]]] = [], []
    for write in writes:
        found[mode is Mode.OBSERVE and write.kind in ADDING].append(write)
    return found


def applied(write: Write[Node], node: Node) -> Node:
    """Return what stands when the write is done, if no webhook adds to it."""
    labels, annotations = (
        {key: value for key, value in {**old, **new}.items() if value is not None}
        for old, new in ((node.labels, write.labels), (node.annotations, write.annotations))
    )
    taints = node.taints if write.taints is None else write.taints
    return replace(node, labels=labels, annotations=annotations, taints=taints)


def repair(node: Node, taint_key: str, note: str) -> Write[Node] | None:
    """Return the write of the taints that the node's mark asks for, None if it carries them."""
    wanted = desired_taints(node, taint_key)
    if wanted == node.taints or being_deleted(node):
        return None
    return Write(WriteKind.REPAIR, node, {}, note, wanted)


def softened(nodes: Iterable[Node], note: str) -> list[Write[Node]]:
    """Return the writes that leave no mark hard, whatever else is the case."""
    return [
        Write.of(WriteKind.SOFTEN, node, {MARK_LABEL: Mark.SOFT.value}, {}, note)
        for node in nodes
        if mark_of(node.labels) is Mark.HARD and not being_deleted(node)
    ]
