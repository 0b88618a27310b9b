"""What a write to a Node is; values only."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from core.marks.keys import MARK_LABEL
from core.marks.mark import Mark, mark_of
from core.marks.optouts import traces
from core.model.leaving import being_deleted
from core.model.node import Node


class WriteKind(StrEnum):
    """What a write is for; a metric's label."""

    MARK = "mark"
    HARDEN = "harden"
    SOFTEN = "soften"
    RELEASE = "release"
    GUARD = "guard"
    UNGUARD = "unguard"
    REPAIR = "repair"
    FORGET = "forget"
    """A node's back-off, long after it has ended."""


PRESSING: Final = (WriteKind.RELEASE, WriteKind.SOFTEN, WriteKind.GUARD, WriteKind.REPAIR)
"""What keeps pods from waiting or from being evicted, and what completes that; in this order."""


@dataclass(frozen=True, slots=True)
class Write:
    """One merge patch of one Node's metadata; a repair has none: the taints are missing."""

    kind: WriteKind
    before: Node
    """As it was when this was decided."""
    labels: Mapping[str, str | None]
    annotations: Mapping[str, str | None]
    note: str
    """Why, for people."""

    @property
    def node(self) -> str:
        """Return the Node's name."""
        return self.before.name

    @property
    def seen(self) -> tuple[str | None, ...]:
        """Return what stood on the node that this rests on."""
        return traces(self.before)

    def merge_patch(self, version: str) -> dict[str, Any]:
        """Return the patch on a resourceVersion; null removes a key."""
        metadata: dict[str, Any] = {
            "resourceVersion": version,
            "annotations": dict(self.annotations),
        }
        if self.labels:
            metadata["labels"] = dict(self.labels)
        return {"metadata": metadata}


def softened(nodes: Iterable[Node], note: str) -> list[Write]:
    """Return the writes that leave no mark hard, whatever else is the case."""
    labels = {MARK_LABEL: Mark.SOFT.value}
    return [
        Write(WriteKind.SOFTEN, node, labels, {}, note)
        for node in nodes
        if mark_of(node.labels) is Mark.HARD and not being_deleted(node)
    ]
