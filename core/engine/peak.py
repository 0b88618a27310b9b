"""Keep the highest requests of the peak window by reach, because this demand may return soon."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Self

from core.capacity.reaches import REACHES_MAX
from core.capacity.usable import Amount
from core.engine.reach_keys import RenamedKeys
from core.model.constraints import NodeConstraints
from core.model.now import Now

if TYPE_CHECKING:
    from core.engine.snapshot import ClusterSnapshot

RECENT_TEMPLATES_MAX: Final = REACHES_MAX
"""Maximum number of remembered templates that no current pod has."""


@dataclass(frozen=True, slots=True)
class Peak:
    """Requests by reach that may still be the highest of the window."""

    looks: Mapping[str, tuple[tuple[int, Amount], ...]] = field(default_factory=dict)
    """Samples (unix seconds, requests) that no later sample exceeds, by the key of a reach."""

    def observe(self, seen: "ClusterSnapshot", now: Now) -> Self:
        """Return the state after a reconciliation."""
        seconds = seen.config.budgets.stabilization_window_seconds
        return replace(
            self,
            looks={
                key: _added(self.looks.get(key, ()), amount, seconds, now)
                for key, amount in seen.demand().items()
            },
        )

    def unchanged(self, now: Now) -> Self:
        """Return the state after a skipped reconciliation: the last sample extends to *now*."""
        return replace(
            self,
            looks={
                key: (*looks[:-1], (now.seconds, looks[-1][1]))
                for key, looks in self.looks.items()
            },
        )

    def renamed(self, keys: RenamedKeys) -> Self:
        """Return the state under the new keys of the reaches."""
        return replace(
            self, looks={keys.get(key, key): looks for key, looks in self.looks.items()}
        )

    def beyond_current(self) -> Mapping[str, Amount]:
        """Return by reach the difference between the highest requests and the current ones."""
        return {key: _beyond_current(looks) for key, looks in self.looks.items()}


def _added(
    before: Iterable[tuple[int, Amount]], current: Amount, window_seconds: int, now: Now
) -> tuple[tuple[int, Amount], ...]:
    """Append the current requests, and drop samples that are too old or not higher."""
    kept = [
        (second, amount)
        for second, amount in before
        if (amount.cpu_millis > current.cpu_millis or amount.memory_bytes > current.memory_bytes)
        and now.before(second + window_seconds)
    ]
    return (*kept, (now.seconds, current))


def _beyond_current(looks: Sequence[tuple[int, Amount]]) -> Amount:
    current = looks[-1][1]
    return Amount(
        max(amount.cpu_millis for _, amount in looks) - current.cpu_millis,
        max(amount.memory_bytes for _, amount in looks) - current.memory_bytes,
    )


@dataclass(frozen=True, slots=True)
class RecentTemplates:
    """Templates that pods had within the peak window, one for each set of nodes.

    These sets of nodes remain reaches until the window has passed. If the last pod of a reach
    ended and the reach disappeared at once, the other reaches would be compared with a peak that
    includes its pods, without the capacity of its nodes.
    """

    seen_at: Mapping[NodeConstraints, int] = field(default_factory=dict)
    """Time of the last reconciliation that saw a pod with the template, unix seconds."""
    current: frozenset[NodeConstraints] = frozenset()
    """Templates of the pods in the last reconciliation."""

    def within(
        self, window_seconds: int, without: Collection[NodeConstraints], now: Now
    ) -> list[NodeConstraints]:
        """Return the templates of the window that are not in *without*, those of current pods."""
        return [
            one
            for one, at in self.seen_at.items()
            if one not in without and now.before(at + window_seconds)
        ]

    def observe(self, seen: "ClusterSnapshot", now: Now) -> Self:
        """Return the state after a reconciliation."""
        if not seen.config.budgets.stabilization_window_seconds:
            return type(self)()
        left = sorted(seen.reaches.recent_templates, key=lambda one: -self.seen_at[one])
        if len(left) > RECENT_TEMPLATES_MAX:
            # The next reconciliation does not know the templates that are dropped here, so it must
            # run.
            now.expire()
        kept = {one: self.seen_at[one] for one in left[:RECENT_TEMPLATES_MAX]}
        current = frozenset(seen.reaches.current_templates)
        return replace(
            self,
            seen_at=kept | dict.fromkeys(seen.reaches.current_templates, now.seconds),
            current=current,
        )

    def unchanged(self, now: Now) -> Self:
        """Return the state after a skipped reconciliation."""
        return replace(self, seen_at={**self.seen_at, **dict.fromkeys(self.current, now.seconds)})

    def renamed(self, keys: RenamedKeys) -> Self:  # noqa: ARG002
        """Return the state itself, because templates contain no keys of reaches."""
        return self
