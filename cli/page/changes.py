"""Record the changes of an inventory, so that another process can keep a copy of it.

An inventory keeps the objects of a cluster up to date by watches. The transfer of 150,000 pods
takes seconds, and most plans follow changes of a few pods.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from kube.cluster_kinds import KINDS
from kube.decode.kinds import AnyKind
from kube.inventory import Inventory

_KINDS: Final = {kind.name: kind for kind in KINDS}


class Changes(NamedTuple):
    """The changes of an inventory, to be sent to another process.

    They are keyed by the name of the kind, because a Kind cannot be pickled.
    """

    replaced: Mapping[str, Sequence[Any]]
    """All objects of each kind that has been listed."""
    changed: Mapping[str, Mapping[str, Any]]
    """New state of each changed object of other kinds by key; None if it was deleted."""

    def apply(self, copy: Inventory) -> None:
        """Apply the changes to *copy*, a copy of the inventory before the changes."""
        for name, objects in self.replaced.items():
            copy.replaced(_KINDS[name], objects)
        for name, states in self.changed.items():
            for key, state in states.items():
                if state is None:
                    copy.deleted(_KINDS[name], key)
                else:
                    copy.changed(_KINDS[name], state)


class RecordingInventory(Inventory):
    """An inventory that records its changes until `changes` returns them."""

    def __init__(self) -> None:
        super().__init__()
        self._listed: set[AnyKind] = set()
        self._changed: dict[AnyKind, set[str]] = {kind: set() for kind in KINDS}

    def relisted(self, kind: AnyKind) -> None:
        """Record that all objects of a kind were listed anew."""
        self._listed.add(kind)

    def became(self, kind: AnyKind, key: str, before: Any, after: Any) -> None:  # noqa: ANN401, ARG002 by kind
        """Record that the object *key* was created, changed or deleted."""
        self._changed[kind].add(key)

    def changes(self, *, whole: bool = False) -> Changes:
        """Return the changes since the last call, and forget them.

        *whole*: return every object instead, as if all kinds were listed anew.
        """
        listed = KINDS if whole else self._listed
        replaced = {kind.name: [*self.of(kind).values()] for kind in listed}
        changed = {
            kind.name: {key: self.of(kind).get(key) for key in keys}
            for kind, keys in self._changed.items()
            if keys and kind not in listed
        }
        self._listed = set()
        self._changed = {kind: set() for kind in KINDS}
        return Changes(replaced, changed)
