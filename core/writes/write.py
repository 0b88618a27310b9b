"""Values that describe a write to a Node or a Pod."""

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
"""Labels or annotations to write; None removes the key."""


class WriteKind(StrEnum):
    """The purpose of a write to a Node; a label of a metric."""

    MARK = "mark"
    HARDEN = "harden"
    SOFTEN = "soften"
    RELEASE = "release"
    GUARD = "guard"
    HOLD = "hold"
    """Scale-down protection of an unmarked node."""
    UNGUARD = "unguard"
    DRIFT = "drift"
    """The end of the protection of a marked node that Karpenter may replace, empty or not."""
    REPAIR = "repair"
    TELL = "tell"
    """The pods for which a node is reserved, without another change of its protection."""
    FORGET = "forget"
    """Remove an expired backoff."""


class CostKind(StrEnum):
    """The purpose of a write to a Pod; a label of a metric."""

    SET = "set"
    CLEAR = "clear"


PRESSING: Final = (WriteKind.RELEASE, WriteKind.SOFTEN, WriteKind.GUARD, WriteKind.REPAIR)
"""Writes that keep pods from being Pending or evicted, and repairs of taints, in this order."""
PATIENT: Final = (*PRESSING, CostKind.CLEAR)
"""Writes that remove or restore something, so that they are still right later; they may be
retried.

Other writes depend on the plan, so Ebb plans again instead of retrying them."""
ADDING: Final = (WriteKind.MARK, CostKind.SET)
"""Writes that mode observe only reports; other writes also remove what mode enforce has left."""
_ANNOTATIONS: Final = (*OUR_ANNOTATIONS, *GUARDS, KEEP_ANNOTATION)
"""Annotations that decisions depend on; if one has changed, the write is dropped."""


@dataclass(frozen=True, slots=True)
class Write(Generic[Object]):
    """A merge patch of one object."""

    kind: WriteKind | CostKind
    before: Object
    """The object on which the decision was based."""
    metadata: Mapping[str, Keys]
    """Labels and annotations by metadata field, in the order of the patch."""
    note: str
    """Reason for the write, for operators."""
    taints: tuple[Taint, ...] | None = None
    """Complete list of taints, including those of others; None leaves the taints unchanged."""

    @classmethod
    def of(
        cls,
        kind: WriteKind | CostKind,
        before: Object,
        labels: Keys,
        annotations: Keys,
        note: str,
    ) -> Self:
        """Return a write of these labels and annotations."""
        metadata = {"annotations": annotations} | ({"labels": labels} if labels else {})
        return cls(kind, before, metadata, note)

    @property
    def labels(self) -> Keys:
        """Return the labels to write."""
        return self.metadata.get("labels", {})

    @property
    def annotations(self) -> Keys:
        """Return the annotations to write."""
        return self.metadata.get("annotations", {})

    @property
    def key(self) -> str:
        """Return the name of the Node, or namespace/name of the Pod."""
        return self.before.key

    def if_as_seen(self, current: Object) -> Self | None:
        """Return the write if its object has not changed since the decision, else None."""
        return self if fingerprint(current) == fingerprint(self.before) else None

    def merge_patch(self, version: str) -> dict[str, Any]:
        """Return the patch for a resourceVersion; null removes a key."""
        metadata = {field: dict(keys) for field, keys in self.metadata.items()}
        patch: dict[str, Any] = {"metadata": {"resourceVersion": version, **metadata}}
        if self.taints is not None:
            patch["spec"] = {"taints": [_taint_json(taint) for taint in self.taints]}
        return patch


def fingerprint(found: Node | Pod) -> tuple[str | None, ...]:
    """Return all facts on which a decision about a mark, protection or cost depends."""
    if isinstance(found, Node):
        leaving = "being deleted" if being_deleted(found) else why_leaving(found)
        mark = found.labels.get(MARK_LABEL)
        return (found.uid, mark, *map(found.annotations.get, _ANNOTATIONS), leaving)
    terminating = "terminating" if found.terminating else None
    costs = found.deletion_cost, found.deletion_cost_ours
    return (found.uid, found.node, found.owner_kind, *costs, terminating)


def _taint_json(taint: Taint) -> dict[str, str]:
    """Return a taint as JSON of the API, without empty fields."""
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
    """Return the writes that the mode allows, and those that it only reports."""
    found: tuple[list[Write[Object]], list[Write[Object]]] = [], []
    for write in writes:
        found[mode is Mode.OBSERVE and write.kind in ADDING].append(write)
    return found


def applied(write: Write[Node], node: Node) -> Node:
    """Return the Node after the write, if no webhook adds changes."""
    labels, annotations = (
        {key: value for key, value in {**old, **new}.items() if value is not None}
        for old, new in ((node.labels, write.labels), (node.annotations, write.annotations))
    )
    taints = node.taints if write.taints is None else write.taints
    return replace(node, labels=labels, annotations=annotations, taints=taints)


def repair(node: Node, taint_key: str, note: str) -> Write[Node] | None:
    """Return a write that repairs the taints of the node, or None if they match its mark."""
    wanted = desired_taints(node, taint_key)
    if wanted == node.taints or being_deleted(node):
        return None
    return Write(WriteKind.REPAIR, node, {}, note, wanted)


def softened(nodes: Iterable[Node], note: str) -> list[Write[Node]]:
    """Return writes that change every NoSchedule mark to PreferNoSchedule, unconditionally."""
    return [
        Write.of(WriteKind.SOFTEN, node, {MARK_LABEL: Mark.SOFT.value}, {}, note)
        for node in nodes
        if mark_of(node.labels) is Mark.HARD and not being_deleted(node)
    ]
