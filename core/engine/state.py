"""What a leader remembers from one reconciliation to the next: the interface of each such state.

Each state is an immutable value. When it changes by time alone is known to the Now that it is
asked with: every comparison with the time registers its moment there.
"""

from collections.abc import Collection, Container, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol, Self, TypeVar, runtime_checkable

from core.engine.reach_keys import RenamedKeys
from core.model.now import Now

Seen_contra = TypeVar("Seen_contra", contravariant=True)


@runtime_checkable
class State(Protocol[Seen_contra]):
    """State that survives from one reconciliation to the next."""

    def observe(self, seen: Seen_contra, now: Now) -> Self:
        """Return the state after a reconciliation has *seen* this."""

    def unchanged(self, now: Now) -> Self:
        """Return the state after the same cluster was seen again, without a reconciliation."""

    def renamed(self, keys: RenamedKeys) -> Self:
        """Return the state under the keys that the reaches have now."""


@dataclass(frozen=True, slots=True)
class LastSeen:
    """When each node was last found in some situation; nodes that have left are forgotten."""

    at: Mapping[str, int] = field(default_factory=dict)
    """By node: unix seconds of the last look that found it so."""
    current: frozenset[str] = frozenset()
    """Nodes that the last look found so."""

    def observe(self, seen: tuple[Collection[str], Container[str]], now: Now) -> Self:
        """Return the state after a look; *seen*: the nodes found so, and all nodes there are."""
        found, nodes = seen
        known = {name: now.capped(at) for name, at in self.at.items() if name in nodes}
        return replace(
            self, at=known | dict.fromkeys(found, now.seconds), current=frozenset(found)
        )

    def unchanged(self, now: Now) -> Self:
        """Return the state after the same cluster was seen again."""
        return replace(self, at={**self.at, **dict.fromkeys(self.current, now.seconds)})

    def renamed(self, keys: RenamedKeys) -> Self:  # noqa: ARG002
        """Return the state itself: it knows no reaches."""
        return self
