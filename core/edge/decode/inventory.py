"""What is known of a cluster now; dumps, lists and watches fill it by the same four methods."""

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from operator import is_
from typing import Any

from core.edge.decode.blocks import Blocks, Moment, in_order
from core.edge.decode.kinds import KINDS, NODES, PODS, AnyKind
from core.model.cluster import Cluster
from core.model.node import Node
from core.model.pod import Pod
from core.model.schedulers import Judged, judged_by
from core.model.volumes import cluster_of

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
        self._blocks: dict[AnyKind, Blocks] = {}
        """The same once more, of kinds that were looked at since their last list."""
        nothing: dict[str, Moment] = {kind.field: () for kind in KINDS}
        self._made: tuple[dict[str, Moment], Collection[str], Cluster | None] = nothing, (), None
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
        self._blocks.pop(kind, None)
        known.clear()
        known.update((kind.key(one), one) for one in objects)
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
        if kind in self._blocks:
            self._blocks[kind].put(one)
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
            if kind in self._blocks:
                self._blocks[kind].drop(key)
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

        With 150,000 pods that takes a good part of a second: too long for a loop that answers
        reviews meanwhile.
        """
        for kind, known in self._known.items():
            if kind not in self._blocks:
                self._blocks[kind] = Blocks(known, kind.key)
        moments = {kind.field: self._blocks[kind].moment() for kind in KINDS}
        return partial(self._made_of, moments, schedulers)

    def _made_of(self, moments: dict[str, Moment], schedulers: Collection[str]) -> Cluster:
        """Return the same Cluster as the last time where all in it is the same."""
        before, known, made = self._made
        same = all(_same(before[field], now) for field, now in moments.items())
        if made is None or known != schedulers or not same:
            found = {field: in_order(now) for field, now in moments.items()}
            pods, self._judged = judged_by(schedulers, found[PODS.field], self._judged)
            made = cluster_of(**{**found, PODS.field: pods})
            self._made = moments, schedulers, made
        return made


def _alike(kind: AnyKind, before: Any, one: Any) -> bool:  # noqa: ANN401 by kind
    """Say whether nothing has changed; equal Nodes are of different versions perhaps."""
    if kind is NODES or before != one:
        return False
    return kind is not PODS or before.ready == one.ready


def _same(before: Moment, now: Moment) -> bool:
    """Say whether these are the same blocks: two Nodes of different versions may be equal."""
    return len(before) == len(now) and all(map(is_, before, now))


def _unreadable(one: Any) -> str:  # noqa: ANN401 by kind
    """Say why an object stands for one that could not be read; few kinds have such."""
    why: str = getattr(one, "unreadable", "")
    return why
