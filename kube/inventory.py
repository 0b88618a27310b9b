"""Store the known objects of a cluster by kind; dumps, lists and watches update them."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from core.cluster.assumptions import Assumed, assume
from core.cluster.build import ClusterObjects, build_cluster
from core.cluster.default_spread import Spread, with_default_spread
from core.cluster.namespaces import Kept, with_kept
from core.cluster.read_options import READ_DEFAULTS, Judged, ReadOptions, judged_by
from core.model.cluster import Cluster
from core.model.cluster_pods import Completed, SortedPods, same_objects
from core.model.node import Node
from core.model.node_groups import leaving_by_claim
from core.model.node_lifecycle import LeavingNodes, LeavingRules, leaving_ends, name_leaving
from core.model.pod import Pod
from core.model.sorted_objects import BY_NAME, BY_NAMESPACE_AND_NAME, SortedObjects
from core.moves.objects import SurgeObjects
from kube.cluster_kinds import (
    CLUSTER_KINDS,
    KINDS,
    SURGE_KINDS,
    Lists,
    cluster_objects,
    surge_objects,
)
from kube.decode.kinds import NODES, PODS, AnyKind, Object

Captured = dict[AnyKind, Any]
"""Sorted and immutable objects of each kind: ClusterPods for pods, else a tuple."""
Undecodable = tuple[str, str]
"""Key of an object that cannot be decoded, and the reason."""


class Inventory:
    """Objects by kind and key, and the reasons why objects cannot be decoded.

    The key of an object is namespace/name, or the name of a cluster-scoped object.
    """

    def __init__(self, unix_seconds: Callable[[], int | None] = lambda: None) -> None:
        """Create an empty inventory.

        *unix_seconds*: returns the time, which ends old announcements that a node will be removed;
        None if no time counts as passed.
        """
        self._unix_seconds = unix_seconds
        self._known: dict[AnyKind, dict[str, Any]] = {kind: {} for kind in KINDS}
        self.unreadable: dict[AnyKind, dict[str, str]] = {kind: {} for kind in KINDS}
        """Reasons by key of the object. While a Node or a Pod cannot be decoded, its placeholder
        keeps the node from being marked."""
        self.versions: dict[AnyKind, int] = dict.fromkeys(KINDS, 0)
        """Version of a kind, which increases with every change."""
        self._sorted: dict[AnyKind, Any] = {}
        """SortedPods or SortedObjects, if a snapshot has read the kind since its last list."""
        self._captured: dict[AnyKind, tuple[int, Any]] = {}
        """Objects of each kind in the latest snapshot, and the version of the kind then."""
        self._made: tuple[Captured, _Steps, Cluster | None] = {}, _Steps(READ_DEFAULTS), None
        """Latest Cluster, and the objects and steps that it was created from."""
        self._surge: tuple[Captured, SurgeObjects] = {}, SurgeObjects()
        """Latest SurgeObjects, and the objects that they were created from."""

    def of(self, kind: AnyKind) -> dict[str, Any]:
        """Return the known objects of a kind by key: the inventory's own dict, not a copy."""
        return self._known[kind]

    @property
    def nodes(self) -> dict[str, Node]:
        """Return the nodes by name."""
        return self._known[NODES]

    @property
    def pods(self) -> dict[str, Pod]:
        """Return the pods by namespace/name."""
        return self._known[PODS]

    def replaced(
        self, kind: AnyKind, objects: Iterable[Object], refused: Iterable[Undecodable] = ()
    ) -> Sequence[Undecodable]:
        """Replace all objects of a kind by the objects of a list.

        *refused*: keys and reasons of objects that cannot be decoded and have no placeholder.
        Returns: key and reason of each undecodable object, unless the same reason was known
        before.
        """
        known, before = self._known[kind], self.unreadable[kind]
        known.clear()
        known.update((kind.key(obj), obj) for obj in objects)
        self._sorted.pop(kind, None)
        undecodable = {key: reason for key, obj in known.items() if (reason := _unreadable(obj))}
        undecodable.update(refused)
        self.unreadable[kind] = undecodable
        self.versions[kind] += 1
        self.relisted(kind)
        return [(key, reason) for key, reason in undecodable.items() if before.get(key) != reason]

    def changed(self, kind: AnyKind, obj: Object) -> Sequence[Undecodable]:
        """Add a new object, or replace the previous version of it.

        Returns: its key and the reason if *obj* is a placeholder and this reason is new; else
        empty.
        """
        key, known = kind.key(obj), self._known[kind]
        before = known.get(key)
        if before is not None and _unchanged(before, obj):
            return ()  # most events of pods change only fields that Ebb does not read
        known[key] = obj
        self._update(kind, key, before, obj)
        if reason := _unreadable(obj):
            return self._note(kind, key, reason)
        self.unreadable[kind].pop(key, None)
        return ()

    def deleted(self, kind: AnyKind, key: str) -> None:
        """Remove the object with this key, if it is known."""
        self.unreadable[kind].pop(key, None)
        self._forget(kind, key)

    def refused(self, kind: AnyKind, key: str, reason: str) -> Sequence[Undecodable]:
        """Remove an object that cannot be decoded and has no placeholder; record the reason.

        Returns: its key and the reason if this reason is new; else empty.
        """
        self._forget(kind, key)
        return self._note(kind, key, reason)

    def _forget(self, kind: AnyKind, key: str) -> None:
        before = self._known[kind].pop(key, None)
        if before is not None:
            self._update(kind, key, before, None)

    def _update(
        self, kind: AnyKind, key: str, before: Object | None, after: Object | None
    ) -> None:
        self.versions[kind] += 1
        if kind in self._sorted:
            self._sorted[kind].update(before, after)
        self.became(kind, key, before, after)

    def _note(self, kind: AnyKind, key: str, reason: str) -> Sequence[Undecodable]:
        before = self.unreadable[kind].get(key)
        self.unreadable[kind][key] = reason
        return () if before == reason else ((key, reason),)

    def relisted(self, kind: AnyKind) -> None:
        """Do something after all objects of a kind were replaced; subclasses override this."""

    def became(self, kind: AnyKind, key: str, before: Any, after: Any) -> None:  # noqa: ANN401 by kind
        """Do something after one object has changed; subclasses override this.

        *before*: the previous version; None for a new object. *after*: the current version; None
        for a deleted object.
        """

    def snapshot(self, options: ReadOptions) -> Callable[[], Cluster]:
        """Capture the known objects; the returned function creates a Cluster from them.

        The function may run in any thread. With 150,000 pods it can take seconds, for example if
        all of them have volumes. That is too long for the event loop, which must renew the Lease.
        """
        return partial(
            self._cluster_of, self._capture(CLUSTER_KINDS), options, self._unix_seconds()
        )

    def surge_snapshot(self) -> Callable[[], SurgeObjects]:
        """Capture the objects of surge moves; the returned function creates SurgeObjects."""
        return partial(self._surge_of, self._capture(SURGE_KINDS))

    def _capture(self, kinds: Iterable[AnyKind]) -> Captured:
        """Return the objects of these kinds; of each kind the same object until a change."""
        for kind in kinds:
            version, _ = self._captured.get(kind, (None, None))
            if version == self.versions[kind]:
                continue
            # The extender takes no snapshots, so it needs no sorted objects.
            if kind not in self._sorted:
                self._sorted[kind] = _sorted(kind, self._known[kind].values())
            self._captured[kind] = self.versions[kind], self._sorted[kind].snapshot()
        return {kind: self._captured[kind][1] for kind in kinds}

    def _surge_of(self, captured: Captured) -> SurgeObjects:
        """Convert captured objects to SurgeObjects; return the last result if nothing changed."""
        before, made = self._surge
        if not _same(before, captured):
            made = surge_objects(Lists(captured.__getitem__))
            self._surge = captured, made
        return made

    def _cluster_of(
        self, captured: Captured, options: ReadOptions, now_seconds: int | None
    ) -> Cluster:
        """Create a Cluster of captured objects; return the last Cluster if nothing changed."""
        before, steps, made = self._made
        if steps.options != options:
            steps, made = _Steps(options), None
        if made is None or not _same(before, captured) or steps.changes_until(now_seconds):
            made = steps.cluster(cluster_objects(Lists(captured.__getitem__)), now_seconds)
            self._made = captured, steps, made
        return made


@dataclass(slots=True)
class _Steps:
    """The steps that create a Cluster of captured objects, each with its latest result.

    A step reuses its result, so that unchanged pods and nodes are the same objects in the next
    Cluster. The results are valid only for the same ReadOptions.
    """

    options: ReadOptions
    judged: Judged = field(default_factory=dict)
    spread: Spread = field(default_factory=dict)
    leaving: LeavingNodes = field(default_factory=dict)
    leaving_ends: int | None = None
    """Unix second at which the next announcement that a node will be removed ends to count."""
    kept: Kept = field(default_factory=dict)
    assumed: Assumed = field(default_factory=dict)
    completed: Completed = field(default_factory=dict)

    def changes_until(self, now_seconds: int | None) -> bool:
        """Return whether the time alone makes the next Cluster differ from the last one."""
        ends = self.leaving_ends
        return ends is not None and now_seconds is not None and now_seconds >= ends

    def cluster(self, objects: ClusterObjects, now_seconds: int | None) -> Cluster:
        options = self.options
        pods, self.judged = judged_by(options.schedulers, objects.pods, self.judged)
        pods, self.spread = with_default_spread(options.default_spread, pods, self.spread)
        rules = LeavingRules(
            options.leaving_taints,
            options.leaving_conditions,
            leaving_by_claim(objects.node_claims),
            now_seconds,
        )
        nodes, self.leaving = name_leaving(rules, objects.nodes, self.leaving)
        self.leaving_ends = leaving_ends(node for _, node in self.leaving.values())
        pods, self.kept = with_kept(objects.namespaces, pods, self.kept)
        pods, self.assumed = assume(nodes, pods, self.assumed)
        made = build_cluster(replace(objects, nodes=nodes, pods=pods))
        same_pods, self.completed = same_objects(pods.all, made.pods, self.completed)
        return replace(made, pods=same_pods)


def _same(before: Captured, now: Captured) -> bool:
    return all(before.get(kind) is objects for kind, objects in now.items())


def _sorted(kind: AnyKind, objects: Iterable[Any]) -> SortedPods | SortedObjects[Any]:
    if kind is PODS:
        return SortedPods(objects)
    return SortedObjects(BY_NAMESPACE_AND_NAME if kind.namespaced else BY_NAME, objects)


def _unchanged(before: Object, after: Object) -> bool:
    # Equal Nodes may have different resource versions, and a write needs the latest.
    if isinstance(after, Node) or before != after:
        return False
    # Readiness does not count when pods are compared.
    return not (isinstance(before, Pod) and isinstance(after, Pod)) or (
        before.ready == after.ready and before.ready_seconds == after.ready_seconds
    )


def _unreadable(obj: Object) -> str:
    return obj.unreadable if isinstance(obj, Node | Pod) else ""
