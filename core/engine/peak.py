"""The busiest moment of the peak window, by reach: requests that may come back soon; pure."""

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
"""Templates that are remembered although no pod has them any more."""


@dataclass(frozen=True, slots=True)
class Peak:
    """Requests by reach, as far as they may still be the highest of the window."""

    looks: Mapping[str, tuple[tuple[int, Amount], ...]] = field(default_factory=dict)
    """By the reach's key: the looks (unix seconds, requests) that no later one exceeds."""

    def observe(self, seen: "ClusterSnapshot", now: Now) -> Self:
        """Return the state after a look at the cluster."""
        seconds = seen.config.budgets.peak_window_seconds
        return replace(
            self,
            looks={
                key: _added(self.looks.get(key, ()), amount, seconds, now)
                for key, amount in seen.demand().items()
            },
        )

    def unchanged(self, now: Now) -> Self:
        """Return the state after the same cluster was seen again."""
        return replace(
            self,
            looks={
                key: (*looks[:-1], (now.seconds, looks[-1][1]))
                for key, looks in self.looks.items()
            },
        )

    def renamed(self, keys: RenamedKeys) -> Self:
        """Return the state under the keys that the reaches have now."""
        return replace(
            self, looks={keys.get(key, key): looks for key, looks in self.looks.items()}
        )

    def beyond_current(self) -> Mapping[str, Amount]:
        """Return by reach how much the highest requests exceed the current ones."""
        return {key: _beyond_current(looks) for key, looks in self.looks.items()}


def _added(
    before: Iterable[tuple[int, Amount]], current: Amount, window_seconds: int, now: Now
) -> tuple[tuple[int, Amount], ...]:
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
    """Templates that pods have had within the peak window, one for each set of nodes.

    Their nodes stay in the sums that the peak is compared with. Otherwise the sums of other nodes
    would be too full as soon as the last such pod has ended.
    """

    seen_at: Mapping[NodeConstraints, int] = field(default_factory=dict)
    """By template: unix seconds of the last look that saw such a pod."""
    current: frozenset[NodeConstraints] = frozenset()
    """Templates of pods that were there at the last look."""

    def within(
        self, window_seconds: int, without: Collection[NodeConstraints], now: Now
    ) -> list[NodeConstraints]:
        """Return those of the window that are not among the templates of current pods."""
        return [
            one
            for one, at in self.seen_at.items()
            if one not in without and now.before(at + window_seconds)
        ]

    def observe(self, seen: "ClusterSnapshot", now: Now) -> Self:
        """Return the state after a look at the cluster."""
        if not seen.config.budgets.peak_window_seconds:
            return type(self)()
        left = sorted(seen.reaches.recent_templates, key=lambda one: -self.seen_at[one])
        if len(left) > RECENT_TEMPLATES_MAX:
            # The next look does not know the templates that are forgotten here.
            now.expire()
        kept = {one: self.seen_at[one] for one in left[:RECENT_TEMPLATES_MAX]}
        current = frozenset(seen.reaches.current_templates)
        return replace(
            self,
            seen_at=kept | dict.fromkeys(seen.reaches.current_templates, now.seconds),
            current=current,
        )

    def unchanged(self, now: Now) -> Self:
        """Return the state after the same cluster was seen again."""
        return replace(self, seen_at={**self.seen_at, **dict.fromkeys(self.current, now.seconds)})

    def renamed(self, keys: RenamedKeys) -> Self:  # noqa: ARG002
        """Return the state itself: templates have no keys of reaches."""
        return self
