"""Keep the statistics of a leader, which are exported as metrics and in its report.

They are about savings, Pending pods, repeated marks, and the states of nodes by pool.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from controller.figures.marks import MarkFigures
from controller.figures.pending import PendingFigures
from controller.figures.pools import PoolFigures, pool_figures
from controller.figures.savings import SavingsFigures
from core.engine.reconcile import ReconcileResult

GAP_SECONDS_MAX: Final = 600
"""Maximum time between two reconciliations that counts. After a longer gap, such as a suspended
process, it is unknown how long pods were Pending and which nodes were missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The statistics of this replica about the reconciliations that it has made as the leader."""

    at: int | None = None
    """Time of the last reconciliation, unix seconds; None before the first one."""
    pools: Mapping[str, PoolFigures] = field(default_factory=dict)
    pending: PendingFigures = field(default_factory=PendingFigures)
    savings: SavingsFigures = field(default_factory=SavingsFigures)
    marks: MarkFigures = field(default_factory=MarkFigures)

    def observe(self, result: ReconcileResult) -> "Figures":
        """Return the statistics after a further reconciliation, which has this result."""
        seconds = 0 if self.at is None else min(max(0, result.at - self.at), GAP_SECONDS_MAX)
        figures = replace(
            self,
            at=result.at,
            pending=self.pending.observe(result, seconds),
            savings=self.savings.observe(result, seconds),
        )
        if result.skipped:
            return figures
        return replace(figures, pools=pool_figures(result), marks=self.marks.observe(result))

    def restarted(self) -> "Figures":
        """Return the statistics of a replica that starts leading again: only its totals remain."""
        # Another leader may have counted what happened in between.
        return Figures(
            pending=PendingFigures(pod_seconds=self.pending.pod_seconds),
            savings=SavingsFigures(expected=self.savings.expected, real=self.savings.real),
            marks=MarkFigures(repeated=self.marks.repeated),
        )
