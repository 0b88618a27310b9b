"""Define the interface of the states that a leader remembers between reconciliations.

Each state is immutable. It compares times through core.model.now.Now, which records when the
next answer changes. So the leader knows when a state will change although the cluster does not.
"""

from collections.abc import Collection, Container, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol, Self, TypeVar, runtime_checkable

from core.engine.reach_keys import RenamedKeys
from core.model.now import Now

Seen_contra = TypeVar("Seen_contra", contravariant=True)


@runtime_checkable
class RememberedState(Protocol[Seen_contra]):
    """A state that survives from one reconciliation to the next."""

    def observe(self, seen: Seen_contra, now: Now) -> Self:
        """Return the state after a reconciliation that has *seen* this value."""

    def unchanged(self, now: Now) -> Self:
        """Return the state after a skipped reconciliation: the cluster had not changed."""

    def renamed(self, keys: RenamedKeys) -> Self:
        """Return the state with the previous keys of reaches replaced by the current ones."""


@dataclass(frozen=True, slots=True)
class LastSeen:
    """Time at which each existing node was last in one situation, such as protected."""

    at: Mapping[str, int] = field(default_factory=dict)
    """Time of the last reconciliation that saw each node in the situation, unix seconds."""
    current: frozenset[str] = frozenset()
    """Nodes that were in the situation in the last reconciliation."""

    def observe(self, seen: tuple[Collection[str], Container[str]], now: Now) -> Self:
        """Return the state after a reconciliation; *seen*: names of (nodes in it, all nodes)."""
        found, nodes = seen
        known = {name: now.capped(at) for name, at in self.at.items() if name in nodes}
        return replace(
            self, at=known | dict.fromkeys(found, now.seconds), current=frozenset(found)
        )

    def unchanged(self, now: Now) -> Self:
        """Return the state after a skipped reconciliation."""
        return replace(self, at={**self.at, **dict.fromkeys(self.current, now.seconds)})

    def renamed(self, keys: RenamedKeys) -> Self:  # noqa: ARG002
        """Return the state itself, because it contains no keys of reaches."""
        return self
