"""What to take away so that a Node carries nothing of ours; pure.

The guard goes at once, without the time that a release leaves it: nobody is left to lift it later.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from core.marks.keys import (
    BACKOFF_ANNOTATION,
    DETAILS_ANNOTATION,
    GUARD_ANNOTATION,
    GUARD_OURS_ANNOTATION,
    MARK_LABEL,
    TAINT_KEY,
)
from core.marks.optouts import guarded_by_us
from core.marks.taints import of_keys_before
from core.model.node import Node, Taint


@dataclass(frozen=True, slots=True)
class Cleanup:
    """Keys to remove from one Node, and the taints that are left."""

    labels: tuple[str, ...]
    annotations: tuple[str, ...]
    taints: tuple[Taint, ...]
    tainted: bool
    """A taint of ours is among those that the node has now."""

    def merge_patch(self, version: str) -> dict[str, Any]:
        """Return the patch of the metadata on a resourceVersion; null removes a key."""
        metadata: dict[str, Any] = {"resourceVersion": version}
        for field, keys in (("labels", self.labels), ("annotations", self.annotations)):
            if keys:
                metadata[field] = dict.fromkeys(keys)
        return {"metadata": metadata}


def cleanup(
    node: Node, taint_key: str = TAINT_KEY, keys_before: Collection[str] = ()
) -> Cleanup | None:
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


def _ours(node: Node) -> tuple[str, ...]:
    guard = (GUARD_ANNOTATION,) if guarded_by_us(node) else ()
    return (
        DETAILS_ANNOTATION, GUARD_OURS_ANNOTATION, BACKOFF_ANNOTATION, *guard
    )  # fmt: skip


def _present(given: Mapping[str, str], keys: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted(key for key in keys if key in given))
