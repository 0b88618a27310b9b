"""What is known of a cluster now; dumps, lists and watches fill it by the same four methods."""

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Any

from core.edge.decode.kinds import KINDS, NODES, PODS, AnyKind
from core.model.cluster import Cluster
from core.model.node import Node
from core.model.pod import Pod
from core.model.schedulers import Judged, judged_by
from core.model.volumes import build_cluster

Ordered = dict[str, Sequence[Any]]
"""By field of `cluster_of`: the objects of a kind, in the order of their keys."""
Odd = tuple[str, str]
"""The key of an object that cannot be read, and why not."""


class Inventory:
    """Objects by kind and key; beside them what cannot be read, and why.

    What fills it returns by key why objects cannot be read, as far as that is news.
    """

    def __init__(self) -> None:
        self._known: dict[AnyKind, dict[str, Any]] = {kind: {} for kind in KINDS}
        self.unreadable: dict[AnyKind, dict[str, str]] = {kind: {} for kind in KINDS}
        """By key, why. What stands for such an object keeps its own node."""
        self.versions: dict[AnyKind, int] = dict.fromkeys(KINDS, 0)
        """Of a kind; another one whenever something has changed."""
        self._keys: dict[AnyKind, list[str]] = {kind: [] for kind in KINDS}
        """The keys of what is known, in order."""
        self._ordered: dict[AnyKind, tuple[int, Sequence[Any]]] = dict.fromkeys(KINDS, (0, ()))
        """The objects in the order of their keys, and of which version they are."""
        self._made: tuple[Ordered, Collection[str], Cluster | None] = {}, (), None
        self._judged: Judged = {}

    def of(self, kind: AnyKind) -> dict[str, Any]:
        """Return what is known of a kind, by key."""
        return self._known[kind]

    @property
    def nodes(self) -> dict[str, Node]:
        """By name."""
        return self._known[NODES]

    @property
    def pods(self) -> dict[str, Pod]:
        """By namespace/name."""
        return self._known[PODS]

    def replaced(
        self, kind: AnyKind, objects: Iterable[Any], refused: Iterable[Odd] = ()
    ) -> Sequence[Odd]:
        """Take a whole list: what is not in it is gone.

        *refused*: by key why nothing stands for an object.
        """
        known, before = self._known[kind], self.unreadable[kind]
        known.clear()
        known.update((kind.key(one), one) for one in objects)
        self._keys[kind] = sorted(known)
        odd = {key: why for key, one in known.items() if (why := _unreadable(one))}
        odd.update(refused)
        self.unreadable[kind] = odd
        self.versions[kind] += 1
        self.relisted(kind)
        return [(key, why) for key, why in odd.items() if before.get(key) != why]

    def changed(self, kind: AnyKind, one: Any) -> Sequence[Odd]:  # noqa: ANN401 by kind
        """Take a new or changed object."""
        key, known = kind.key(one), self._known[kind]
        before = known.get(key)
        if before is not None and _alike(kind, before, one):
            return ()  # as with most events of pods: they are about what is not read
        known[key] = one
        if before is None:
            insort(self._keys[kind], key)
        self.versions[kind] += 1
        self.became(kind, key, before, one)
        if why := _unreadable(one):
            return self._note(kind, key, why)
        self.unreadable[kind].pop(key, None)
        return ()

    def deleted(self, kind: AnyKind, key: str) -> None:
        """Forget one."""
        self.unreadable[kind].pop(key, None)
        self._forget(kind, key)

    def refused(self, kind: AnyKind, key: str, reason: str) -> Sequence[Odd]:
        """Forget one that cannot be read any more; it is judged as not known."""
        self._forget(kind, key)
        return self._note(kind, key, reason)

    def _forget(self, kind: AnyKind, key: str) -> None:
        before = self._known[kind].pop(key, None)
        if before is not None:
            self.versions[kind] += 1
            keys = self._keys[kind]
            del keys[bisect_left(keys, key)]
            self.became(kind, key, before, None)

    def _note(self, kind: AnyKind, key: str, reason: str) -> Sequence[Odd]:
        before = self.unreadable[kind].get(key)
        self.unreadable[kind][key] = reason
        return () if before == reason else ((key, reason),)

    def relisted(self, kind: AnyKind) -> None:
        """Work out anew what follows from all objects of a kind; for those who inherit."""

    def became(self, kind: AnyKind, key: str, before: Any, after: Any) -> None:  # noqa: ANN401 by kind
        """Work out what follows from one change; None: not there. For those who inherit."""

    def snapshot(self, schedulers: Collection[str]) -> Callable[[], Cluster]:
        """Hold on to what is known now; the call makes a Cluster of it, in any thread.

        *schedulers*: pods of others cannot be judged in it.

        With 150,000 pods the call takes a good part of a second: too long for the event loop,
        which renews the Lease.
        """
        objects = {kind.field: self._in_order(kind) for kind in KINDS}
        return partial(self._made_of, objects, schedulers)

    def _in_order(self, kind: AnyKind) -> Sequence[Any]:
        """Return the objects of a kind in the order of their keys; never changed afterwards."""
        version, found = self._ordered[kind]
        if version != self.versions[kind]:
            found = [*map(self._known[kind].__getitem__, self._keys[kind])]
            self._ordered[kind] = self.versions[kind], found
        return found

    def _made_of(self, objects: Ordered, schedulers: Collection[str]) -> Cluster:
        """Return the same Cluster as the last time where all in it is the same."""
        before, known, made = self._made
        same = all(before.get(field) is now for field, now in objects.items())
        if made is None or known != schedulers or not same:
            pods, self._judged = judged_by(schedulers, objects[PODS.field], self._judged)
            made = build_cluster(**{**objects, PODS.field: pods})
            self._made = objects, schedulers, made
        return made


def _alike(kind: AnyKind, before: Any, one: Any) -> bool:  # noqa: ANN401 by kind
    """Say whether nothing has changed; equal Nodes are of different versions perhaps."""
    if kind is NODES or before != one:
        return False
    return kind is not PODS or before.ready == one.ready


def _unreadable(one: Any) -> str:  # noqa: ANN401 by kind
    """Say why an object stands for one that could not be read; few kinds have such."""
    why: str = getattr(one, "unreadable", "")
    return why
