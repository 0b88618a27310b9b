"""Keep the highest requests within `stabilizationWindow` by reach: this demand may return soon."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Self

from core.engine.reach_keys import RenamedKeys
from core.model.constraints import NodeConstraints
from core.model.now import Now
from core.placement.reaches import REACHES_MAX, Reaches
from core.placement.usable_capacity import Amount

RECENT_TEMPLATES_MAX: Final = REACHES_MAX
"""Maximum number of remembered node constraints that no current pod has."""


@dataclass(frozen=True, slots=True)
class Peak:
    """Requests by reach that are, or may become, the highest of the window."""

    samples: Mapping[str, tuple[tuple[int, Amount], ...]] = field(default_factory=dict)
    """Samples (unix seconds, requests) by the key of a reach.

    A sample is dropped when a later one is at least as high in CPU and memory."""

    def observe(self, seen: tuple[Mapping[str, Amount], int], now: Now) -> Self:
        """Return the state after a reconciliation.

        *seen*: the requests by reach, and `stabilizationWindow` in seconds.
        """
        demand, window_seconds = seen
        return replace(
            self,
            samples={
                key: _added(self.samples.get(key, ()), amount, window_seconds, now)
                for key, amount in demand.items()
            },
        )

    def unchanged(self, now: Now) -> Self:
        """Return the state after a skipped reconciliation: the last sample extends to *now*."""
        return replace(
            self,
            samples={
                key: (*samples[:-1], (now.seconds, samples[-1][1]))
                for key, samples in self.samples.items()
            },
        )

    def renamed(self, keys: RenamedKeys) -> Self:
        """Return the state with the previous keys of reaches replaced by the current ones."""
        return replace(
            self, samples={keys.get(key, key): samples for key, samples in self.samples.items()}
        )

    def beyond_current(self) -> Mapping[str, Amount]:
        """Return by reach the difference between the highest requests and the current ones."""
        return {key: _beyond_current(samples) for key, samples in self.samples.items()}


def _added(
    before: Iterable[tuple[int, Amount]], current: Amount, window_seconds: int, now: Now
) -> tuple[tuple[int, Amount], ...]:
    """Append the current requests, and drop samples that are too old or not higher than these."""
    kept = [
        (second, amount)
        for second, amount in before
        if (amount.cpu_millis > current.cpu_millis or amount.memory_bytes > current.memory_bytes)
        and now.before(second + window_seconds)
    ]
    return (*kept, (now.seconds, current))


def _beyond_current(samples: Sequence[tuple[int, Amount]]) -> Amount:
    current = samples[-1][1]
    return Amount(
        max(amount.cpu_millis for _, amount in samples) - current.cpu_millis,
        max(amount.memory_bytes for _, amount in samples) - current.memory_bytes,
    )


@dataclass(frozen=True, slots=True)
class RecentTemplates:
    """Node constraints that pods had within `stabilizationWindow`, one for each set of nodes.

    These nodes count as reached until the window has passed. Otherwise, when the last pod that can
    use them ends, the peak of the cluster would include this pod without their capacity.
    """

    seen_at: Mapping[NodeConstraints, int] = field(default_factory=dict)
    """Time of the last reconciliation that saw a pod with the constraints, unix seconds."""
    current: frozenset[NodeConstraints] = frozenset()
    """Constraints that pods had in the last reconciliation."""

    def within(
        self, window_seconds: int, without: Collection[NodeConstraints], now: Now
    ) -> list[NodeConstraints]:
        """Return the constraints of the window that current pods do not have (*without*)."""
        return [
            one
            for one, at in self.seen_at.items()
            if one not in without and now.before(at + window_seconds)
        ]

    def observe(self, seen: tuple[Reaches, int], now: Now) -> Self:
        """Return the state after a reconciliation.

        *seen*: the reaches of the cluster, and `stabilizationWindow` in seconds.
        """
        reaches, window_seconds = seen
        if not window_seconds:
            return type(self)()
        left = sorted(reaches.recent_templates, key=lambda one: -self.seen_at[one])
        if len(left) > RECENT_TEMPLATES_MAX:
            # The next reconciliation lacks the constraints that are dropped here, so it may have
            # another result and must not be skipped.
            now.expire()
        kept = {one: self.seen_at[one] for one in left[:RECENT_TEMPLATES_MAX]}
        current = frozenset(reaches.current_templates)
        return replace(
            self,
            seen_at=kept | dict.fromkeys(reaches.current_templates, now.seconds),
            current=current,
        )

    def unchanged(self, now: Now) -> Self:
        """Return the state after a skipped reconciliation."""
        return replace(self, seen_at={**self.seen_at, **dict.fromkeys(self.current, now.seconds)})

    def renamed(self, keys: RenamedKeys) -> Self:  # noqa: ARG002
        """Return the state itself, because it contains no keys of reaches."""
        return self
