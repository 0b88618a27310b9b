"""Keep the statistics of a leader, which are exported as metrics and in its report.

They are about savings, Pending pods, repeated marks, the states of nodes by pool, and the day.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from controller.figures.day import CLOCKS_APART_SECONDS_MAX, DayFigures, Happened
from controller.figures.marks import MarkFigures
from controller.figures.pending import Cause, PendingFigures
from controller.figures.pools import PoolFigures, pool_figures
from controller.figures.savings import CREDIT_SECONDS_MAX, SavingsFigures
from core.engine.reconcile import ReconcileResult
from core.history.today import Today

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
    day: DayFigures = field(default_factory=DayFigures)

    def observe(self, result: ReconcileResult, happened: Sequence[Happened] = ()) -> "Figures":
        """Return the statistics after a further reconciliation, which has this result.

        *happened*: writes of this leader since the previous one.
        """
        seconds = 0 if self.at is None else min(max(0, result.at - self.at), GAP_SECONDS_MAX)
        pending = self.pending.observe(result, seconds)
        savings = self.savings.observe(result, seconds)
        day = self.day.observe(
            result,
            self.savings,
            savings.removable,
            waiting=pending.pods[Cause.MARK],
            happened=happened,
            seconds_max=GAP_SECONDS_MAX,
        )
        figures = replace(self, at=result.at, pending=pending, savings=savings, day=day)
        if result.skipped:
            return figures
        pools = pool_figures(result, {name: group for name, (_, group) in day.pools.items()})
        return replace(figures, pools=pools, marks=self.marks.observe(result))

    def restored(self, stored: Today, now: int) -> "Figures":
        """Return the statistics that continue what a leader has stored, if that is possible.

        *now*: Unix time.
        """
        day = self.day.restored(stored, now)
        if day.today is not stored:
            return self
        latest = now + CREDIT_SECONDS_MAX + CLOCKS_APART_SECONDS_MAX
        earned = tuple(credit for credit in stored.credits if credit.until <= latest)
        savings = replace(self.savings, allowed=stored.allowed, credits=earned, nodes=stored.nodes)
        return replace(self, day=day, savings=savings)

    @property
    def to_store(self) -> Today | None:
        """Return what the next leader needs; None before the first reconciliation."""
        if self.day.today is None:
            return None
        saved = self.savings
        return replace(
            self.day.today, allowed=saved.allowed, credits=saved.credits, nodes=saved.nodes
        )

    def restarted(self) -> "Figures":
        """Return the statistics of a replica that starts leading again: only its totals remain."""
        # Another leader may have counted what happened in between.
        return Figures(
            pending=PendingFigures(pod_seconds=self.pending.pod_seconds),
            savings=SavingsFigures(expected=self.savings.expected, real=self.savings.real),
            marks=MarkFigures(repeated=self.marks.repeated),
        )
