"""Keep the highest requests within `stabilizationWindow` by reach: this demand may return soon.

A reach is a set of nodes that some pods can use.
"""

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
    """Recent requests for CPU and memory by reach, from which the highest ones are computed."""

    samples: Mapping[str, tuple[tuple[int, Amount], ...]] = field(default_factory=dict)
    """Samples (unix seconds, requests) by the key of a reach.

    A sample is dropped when a later one is at least as high in CPU and memory."""

    def observe(self, facts: tuple[Mapping[str, Amount], int], now: Now) -> Self:
        """Return the samples after a reconciliation, with the current requests added.

        *facts*: the current requests by reach, and `stabilizationWindow` in seconds.
        """
        demand, window_seconds = facts
        return replace(
            self,
            samples={
                key: _with_sample(self.samples.get(key, ()), amount, window_seconds, now)
                for key, amount in demand.items()
            },
        )

    def unchanged(self, now: Now) -> Self:
        """Return the samples with *now* as the time of the last one, as nothing has changed."""
        return replace(
            self,
            samples={
                key: (*samples[:-1], (now.seconds, samples[-1][1]))
                for key, samples in self.samples.items()
            },
        )

    def renamed(self, keys: RenamedKeys) -> Self:
        """Return the samples under the current keys of reaches; *keys*: current by previous key.

        A reach is a set of nodes that some pods can use.
        """
        return replace(
            self, samples={keys.get(key, key): samples for key, samples in self.samples.items()}
        )

    def beyond_current(self) -> Mapping[str, Amount]:
        """Return by reach how far the highest requests exceed the current ones, at least 0."""
        return {key: _beyond_current(samples) for key, samples in self.samples.items()}


def _with_sample(
    before: Iterable[tuple[int, Amount]], current: Amount, window_seconds: int, now: Now
) -> tuple[tuple[int, Amount], ...]:
    """Return the samples *before* that may become the peak again, then the current requests.

    A sample is a unix second and the requests at that time. Samples are dropped if they are older
    than the window, or not higher than the current requests in CPU or memory.
    """
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

    Until the window has passed, these nodes still count as usable by a movable pod. Otherwise,
    when the last pod that can use them ends, the peak of the cluster would include the pod's
    requests, but not the capacity of these nodes.
    """

    seen_at: Mapping[NodeConstraints, int] = field(default_factory=dict)
    """Time of the last reconciliation that saw a pod with the constraints, unix seconds."""
    current: frozenset[NodeConstraints] = frozenset()
    """Constraints that pods had in the last reconciliation."""

    def within(
        self, window_seconds: int, without: Collection[NodeConstraints], now: Now
    ) -> list[NodeConstraints]:
        """Return the node constraints that pods had within the window, but no current pod has.

        *without*: the node constraints of current pods.
        """
        return [
            node_constraints
            for node_constraints, at in self.seen_at.items()
            if node_constraints not in without and now.before(at + window_seconds)
        ]

    def observe(self, facts: tuple[Reaches, int], now: Now) -> Self:
        """Return the constraints to remember after a reconciliation.

        *facts*: the reaches of the cluster, and `stabilizationWindow` in seconds.
        """
        reaches, window_seconds = facts
        if not window_seconds:
            return type(self)()
        recent = sorted(
            reaches.recent_templates, key=lambda node_constraints: -self.seen_at[node_constraints]
        )
        if len(recent) > RECENT_TEMPLATES_MAX:
            # The next reconciliation lacks the constraints that are dropped here, so it may have
            # another result and must not be skipped.
            now.expire()
        kept = {
            node_constraints: self.seen_at[node_constraints]
            for node_constraints in recent[:RECENT_TEMPLATES_MAX]
        }
        return replace(
            self,
            seen_at=kept | dict.fromkeys(reaches.current_templates, now.seconds),
            current=frozenset(reaches.current_templates),
        )

    def unchanged(self, now: Now) -> Self:
        """Return the constraints with *now* for those of current pods, as nothing has changed."""
        return replace(self, seen_at={**self.seen_at, **dict.fromkeys(self.current, now.seconds)})

    def renamed(self, keys: RenamedKeys) -> Self:  # noqa: ARG002
        """Return the state itself, because it contains no keys of reaches."""
        return self
