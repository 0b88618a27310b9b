"""Define the writes to Nodes and Pods, and which of them are urgent."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final, Generic, Self, TypeVar

from core.config.settings import Mode
from core.marks.mark import Mark, mark_of
from core.marks.taints import desired_taints
from core.marks.wellknown import (
    KEEP_ANNOTATION,
    MARK_LABEL,
    OUR_ANNOTATIONS,
    PROTECTION_KEYS,
    REMOVAL_DISABLED,
)
from core.model.node import Node, Taint
from core.model.node_lifecycle import being_deleted, why_leaving
from core.model.pod import Pod

Object = TypeVar("Object", bound=Node | Pod)
Keys = Mapping[str, str | None]
"""Labels or annotations to write; None removes the key."""


class WriteKind(StrEnum):
    """The operation of a write to a Node, such as to set a mark; a value of a metric label.

    docs/design/life-cycle.md explains the operations.
    """

    MARK = "mark"
    SET_NO_SCHEDULE = "set_no_schedule"
    SET_PREFER_NO_SCHEDULE = "set_prefer_no_schedule"
    UNMARK = "unmark"
    PROTECT = "protect"
    PROTECT_UNMARKED = "protect_unmarked"
    """Protect an unmarked node from scale-down."""
    REMOVE_PROTECTION = "remove_protection"
    """Remove the scale-down protection; this allows the scale-down of a marked node."""
    ALLOW_DRIFT = "allow_drift"
    """Remove the protection of a marked node that Karpenter may replace, empty or not."""
    REPAIR_TAINTS = "repair_taints"
    UPDATE_RESERVE = "update_reserve"
    """Update the annotation with the pods for which the node is reserved."""
    REMOVE_BACKOFF = "remove_backoff"
    """Remove the annotation of an expired backoff."""


class CostKind(StrEnum):
    """The operation of a write to a Pod: set or remove its pod deletion cost; a metric label."""

    SET = "set_deletion_cost"
    REMOVE = "remove_deletion_cost"


URGENT: Final = (
    WriteKind.UNMARK,
    WriteKind.SET_PREFER_NO_SCHEDULE,
    WriteKind.PROTECT,
    WriteKind.REPAIR_TAINTS,
)
"""Writes that keep pods from being Pending or evicted, and repairs of taints, in this order."""
DEFERRABLE: Final = (*URGENT, CostKind.REMOVE)
"""Writes that remove or restore something. They remain correct later, so they may be retried.

Other writes depend on the plan: instead of retrying them, Ebb plans again."""
ADDING: Final = (WriteKind.MARK, CostKind.SET)
"""Writes that mode observe only reports; other writes also remove what mode enforce has left."""
_ANNOTATIONS: Final = (*OUR_ANNOTATIONS, *PROTECTION_KEYS, KEEP_ANNOTATION, REMOVAL_DISABLED)
"""Annotations that decisions depend on; if one has changed, the write is dropped."""


@dataclass(frozen=True, slots=True)
class Write(Generic[Object]):
    """A merge patch of a Node or Pod, the object on which it was based, and its reason."""

    kind: WriteKind | CostKind
    before: Object
    """The object on which the decision was based."""
    metadata: Mapping[str, Keys]
    """Labels and annotations by metadata field, in the order of the patch."""
    note: str
    """Reason for the write, for operators."""
    taints: tuple[Taint, ...] | None = None
    """Complete list of taints, including those of others; None leaves the taints unchanged."""
    code: str = field(default="", compare=False)
    """Code of the reason why Ebb unmarks a node, for metrics; empty for other writes."""

    @classmethod
    def of(
        cls,
        kind: WriteKind | CostKind,
        before: Object,
        labels: Keys,
        annotations: Keys,
        note: str,
    ) -> Self:
        """Return a write that changes labels and annotations, and leaves the taints unchanged.

        A key with the value None is removed. Empty *labels* are left out of the patch. *before*:
        the object on which the decision was based. *note*: the reason, for operators.
        """
        metadata = {"annotations": annotations} | ({"labels": labels} if labels else {})
        return cls(kind, before, metadata, note)

    @property
    def labels(self) -> Keys:
        """Return the labels to write, by key; None removes a label."""
        return self.metadata.get("labels", {})

    @property
    def annotations(self) -> Keys:
        """Return the annotations to write, by key; None removes an annotation."""
        return self.metadata.get("annotations", {})

    @property
    def key(self) -> str:
        """Return the name of the Node, or namespace/name of the Pod."""
        return self.before.key

    def if_unchanged(self, current: Object) -> Self | None:
        """Return the write itself, or None if *current* differs from the object of the decision.

        Only the fields in `fingerprint` are compared.
        """
        return self if fingerprint(current) == fingerprint(self.before) else None

    def merge_patch(self, version: str) -> dict[str, Any]:
        """Return the merge patch as JSON.

        The API server rejects it unless *version* is the current resourceVersion of the object.
        """
        metadata = {field: dict(keys) for field, keys in self.metadata.items()}
        patch: dict[str, Any] = {"metadata": {"resourceVersion": version, **metadata}}
        if self.taints is not None:
            patch["spec"] = {"taints": [_taint_json(taint) for taint in self.taints]}
        return patch


def fingerprint(current: Node | Pod) -> tuple[str | None, ...]:
    """Return the fields of a Node or Pod on which a decision to write it depends.

    A write is dropped if its object has another fingerprint than at the decision.
    """
    if isinstance(current, Node):
        # `leaving` and `leaving_taints` are set on the nodes of a Cluster, but not on Nodes that a
        # writer reads. They must not make the two differ.
        known = current
        if current.leaving or current.leaving_taints:
            known = replace(current, leaving="", leaving_taints=())
        leaving = "being deleted" if being_deleted(known) else why_leaving(known)
        mark = current.labels.get(MARK_LABEL)
        return (current.uid, mark, *map(current.annotations.get, _ANNOTATIONS), leaving)
    terminating = "terminating" if current.terminating else None
    costs = current.deletion_cost, current.deletion_cost_ours
    return (current.uid, current.node, current.owner_kind, *costs, terminating)


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
    """Return the writes to carry out in this mode, and the writes that are only reported.

    Mode observe only reports new marks and new pod deletion costs. The second list is empty in
    mode enforce.
    """
    split_writes: tuple[list[Write[Object]], list[Write[Object]]] = [], []
    for write in writes:
        split_writes[mode is Mode.OBSERVE and write.kind in ADDING].append(write)
    return split_writes


def applied(write: Write[Node], node: Node) -> Node:
    """Return *node* with the labels, annotations and taints of the write.

    On a real API server, an admission webhook may change the taints in addition.
    """
    labels, annotations = (
        {key: value for key, value in {**old, **new}.items() if value is not None}
        for old, new in ((node.labels, write.labels), (node.annotations, write.annotations))
    )
    taints = node.taints if write.taints is None else write.taints
    return replace(node, labels=labels, annotations=annotations, taints=taints)


def repair(node: Node, taint_key: str, note: str) -> Write[Node] | None:
    """Return a write that makes the taints of the node match its mark; None if they match already.

    None also for a Node that is being deleted. *note*: the reason, for operators.
    """
    wanted = desired_taints(node, taint_key)
    if wanted == node.taints or being_deleted(node):
        return None
    return Write(WriteKind.REPAIR_TAINTS, node, {}, note, wanted)


def prefer_no_schedule_writes(nodes: Iterable[Node], note: str) -> list[Write[Node]]:
    """Return writes that change every NoSchedule mark to PreferNoSchedule, whatever the plan.

    Nodes that are being deleted are left out. *note*: the reason, for operators.
    """
    return [
        Write.of(
            WriteKind.SET_PREFER_NO_SCHEDULE,
            node,
            {MARK_LABEL: Mark.PREFER_NO_SCHEDULE.value},
            {},
            note,
        )
        for node in nodes
        if mark_of(node.labels) is Mark.NO_SCHEDULE and not being_deleted(node)
    ]
