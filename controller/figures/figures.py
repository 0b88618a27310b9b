"""Keep the figures of a leader: savings, Pending pods, marks, and the states of nodes by pool."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from controller.figures.marks import MarkAccount
from controller.figures.pending import PendingAccount
from controller.figures.pools import PoolFigures, pool_figures
from controller.figures.savings import SavingsAccount
from core.engine.reconcile import PassResult

GAP_SECONDS_MAX: Final = 600
"""Maximum time between two reconciliations that counts. After a longer gap, such as a suspended
process, it is unknown how long pods were Pending and which nodes were missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Figures of the reconciliations of this process while it leads."""

    at: int | None = None
    """Time of the last reconciliation, unix seconds; None before the first one."""
    pools: Mapping[str, PoolFigures] = field(default_factory=dict)
    pending: PendingAccount = field(default_factory=PendingAccount)
    savings: SavingsAccount = field(default_factory=SavingsAccount)
    marks: MarkAccount = field(default_factory=MarkAccount)

    def observe(self, found: PassResult) -> "Account":
        """Return the account after a reconciliation."""
        seconds = 0 if self.at is None else min(max(0, found.at - self.at), GAP_SECONDS_MAX)
        account = replace(
            self,
            at=found.at,
            pending=self.pending.observe(found, seconds),
            savings=self.savings.observe(found, seconds),
        )
        if found.skipped:
            return account
        return replace(account, pools=pool_figures(found), marks=self.marks.observe(found))

    def restarted(self) -> "Account":
        """Return the account of a replica that starts leading again: only its totals remain."""
        # Another leader may have counted what happened in between.
        return Account(
            pending=PendingAccount(pod_seconds=self.pending.pod_seconds),
            savings=SavingsAccount(expected=self.savings.expected, real=self.savings.real),
            marks=MarkAccount(repeated=self.marks.repeated),
        )
