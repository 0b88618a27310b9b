"""Count the nodes that Ebb marks again within an hour after they were unmarked."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from core.engine.mark_limits import NewMarks
from core.engine.reconcile import ReconcileResult
from core.marks.mark import is_scale_down_allowed

AGAIN_SECONDS: Final = 3600
"""Time within which a new mark on the same node counts as a repeated mark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkFigures:
    """The number of repeated marks, and the nodes from which it is computed.

    These are the nodes that were marked in the last reconciliation, or lost their mark recently.
    """

    repeated: int = 0
    """Number of marks on nodes whose previous mark was removed at most AGAIN_SECONDS before."""
    marked: frozenset[str] = frozenset()
    """Names of the marked nodes."""
    removed_at: Mapping[str, int] = field(default_factory=dict)
    """Time at which each existing node lost its mark, within AGAIN_SECONDS; unix seconds."""
    oldest: int | None = None
    """Time of the oldest mark on a node whose scale-down is not allowed yet, unix seconds; None if
    there is none."""

    def observe(self, result: ReconcileResult) -> "MarkFigures":
        """Return the statistics after a further reconciliation, which has this result."""
        snapshot, at = result.snapshot, result.at
        marked = frozenset(snapshot.marks)
        recent = {
            name: since
            for name, since in self.removed_at.items()
            if at - since <= AGAIN_SECONDS and name in snapshot.node_order.ids
        }
        repeated = len((marked - self.marked) & recent.keys())
        staying = snapshot.node_order.ids.keys() - snapshot.leaving_nodes
        lost = (self.marked - marked) & staying
        removed_at = {name: since for name, since in recent.items() if name not in marked}
        return MarkFigures(
            repeated=self.repeated + repeated,
            marked=marked,
            removed_at=removed_at | dict.fromkeys(lost, at),
            oldest=_oldest(result),
        )


def _oldest(result: ReconcileResult) -> int | None:
    snapshot, marks = result.snapshot, result.state.limit(NewMarks).marks
    nodes, ids = snapshot.node_order.nodes, snapshot.node_order.ids
    times = (
        marks[name].since for name in snapshot.marks if not is_scale_down_allowed(nodes[ids[name]])
    )
    return min((since for since in times if since), default=None)
