"""Store the cluster as the watches report it, and notice changes that cannot wait."""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Container
from typing import Any, Final

from core.cluster.read_options import ReadOptions
from core.eligibility.emptiness import holds, holds_karpenters_alone
from core.engine.unschedulable import cannot_wait, is_unschedulable
from core.marks.mark import is_scale_down_allowed
from core.model.cluster import Cluster
from core.model.node import Node
from core.model.node_lifecycle import being_deleted
from core.model.now import Now
from core.model.pod import REPLICA_SET, Pod
from kube.cluster_kinds import SURGE_KINDS
from kube.decode.kinds import DEPLOYMENTS, NODES, PODS, AnyKind
from kube.freshness import Freshness
from kube.inventory import Inventory

MovingPods = dict[tuple[str, str], dict[str, Pod]]
"""Pods by namespace and name of their ReplicaSet, and by key."""
UNCHECKED_MAX: Final = 4096
"""Maximum number of newly unschedulable pods that wait for a check; others wait for the next
reconciliation."""

WOKE_FOR_MAX: Final = 4096
"""Maximum number of nodes and pods that may wake the loop until its interval passes without a
change."""


class ClusterView(Inventory):
    """The cluster as the watches report it, the age of this information, and urgent changes.

    A change is urgent if the loop must reconcile at once instead of at the next interval.
    """

    def __init__(self, unix_seconds: Callable[[], int | None] = lambda: None) -> None:
        """Create an empty view; *unix_seconds*: as for Inventory."""
        super().__init__(unix_seconds)
        self.freshness = Freshness()
        self.surge_freshness = Freshness(SURGE_KINDS)
        """Age of the information about the kinds that only surge moves need."""
        self.surge_changed = asyncio.Event()
        """Set when an object of a surge move changes."""
        self.moving_deployments: frozenset[str] = frozenset()
        """Deployments with a surge move, as namespace/name."""
        self.detached: dict[str, Pod] = {}
        """Pods that moves have detached, by key."""
        # Updated with each event: to search all pods at each step of a move would block the event
        # loop. Whoever labels pods as detached causes one search for each turn of the mover.
        self._moving_pods: MovingPods | None = {}
        """All pods of their ReplicaSets; None: to be searched."""
        self.wake = asyncio.Event()
        """Set when a change cannot wait until the interval between reconciliations has passed."""
        self.became_unschedulable = asyncio.Event()
        """Set when pods became unschedulable; `unschedulable_check` decides whether they can
        wait."""
        self._unchecked: set[str] = set()
        """Newly unschedulable pods, as namespace/name."""
        # Counted with each event: to search all pods for each marked node would block the
        # event loop.
        self._occupants: Counter[str] = Counter()
        """Number of pods on each node that keep it from being empty and are not terminating."""
        self._karpenter_occupants: dict[str, dict[str, Pod]] = {}
        """Pods that may keep a node from being empty for Karpenter only, by node and key."""
        self.snapshot_at: int | None = None
        """Time of the last snapshot in Unix seconds; None if there was none."""
        self._woke_for: set[str] = set()
        """Node names and pod UIDs that have woken the loop since `idle_reconciliation_started`."""

    def idle_reconciliation_started(self) -> None:
        """Record that a reconciliation starts only because the interval has passed.

        Afterwards each node and pod may wake the loop again; otherwise each wakes it only once.
        """
        self._woke_for.clear()

    def occupied(self, name: str) -> bool:
        """Return whether a pod that is not terminating keeps the node *name* from being empty.

        Whether a terminating pod counts depends on the time; the plan decides that.
        """
        if name in self._occupants:
            return True
        node, others = self.nodes.get(name), self._karpenter_occupants.get(name, {})
        # Whether a pod counts for Karpenter depends on the time. The time of the snapshot gives
        # the same answer as the decision to allow the scale-down of the node.
        now = Now.at(self.snapshot_at)
        return node is not None and any(holds(pod, node, now) for pod in others.values())

    def freshness_of(self, kind: AnyKind) -> Freshness:
        """Return the record in which the watch of a kind notes how current its objects are."""
        return self.surge_freshness if kind in SURGE_KINDS else self.freshness

    def pods_beside(self, pod: Pod) -> Collection[Pod]:
        """Return all pods of the ReplicaSet of a detached pod; none if it has no ReplicaSet."""
        if self._moving_pods is None:
            self._moving_pods = self._found_moving_pods()
        owner = _replica_set_of(pod)
        return self._moving_pods[owner].values() if owner in self._moving_pods else ()

    def _found_moving_pods(self) -> MovingPods:
        owners = map(_replica_set_of, self.detached.values())
        found: MovingPods = {owner: {} for owner in owners if owner is not None}
        if found:
            for key, pod in self.pods.items():
                if (owner := _replica_set_of(pod)) in found:
                    found[owner][key] = pod
        return found

    def relisted(self, kind: AnyKind) -> None:
        """Handle all objects of a kind, after a new list, as if they had just been added."""
        if kind in SURGE_KINDS:
            self.surge_changed.set()
        if kind is PODS:
            self._occupants.clear()
            self._karpenter_occupants.clear()
            self.detached = {key: pod for key, pod in self.pods.items() if pod.detached}
            self._moving_pods = None
            self.surge_changed.set()
        if kind in (NODES, PODS):
            for key, current in self.of(kind).items():
                self.became(kind, key, None, current)

    def became(self, kind: AnyKind, key: str, before: Any, after: Any) -> None:  # noqa: ANN401 as inherited
        """Handle a change of an object: count the pods on nodes, and wake the loop if necessary.

        *before*, *after*: the decoded object; None if it did not exist or does not exist any more.
        """
        if (self.detached or self.moving_deployments) and self._is_of_move(kind, key):
            self.surge_changed.set()
        if kind is PODS:
            self._update_moving_pods(key, before, after)
            self._update_karpenter_occupants(before, after)
            self._count_occupant(after, _occupied_by(before), _occupied_by(after))
            if after and is_unschedulable(after) and not (before and is_unschedulable(before)):
                self._add_unchecked(key)
        elif kind is NODES and after and not (before and _may_be_removed(before)):
            self._wake_once(after.name, after.name)

    def _update_moving_pods(self, key: str, before: Pod | None, after: Pod | None) -> None:
        if after is not None and after.detached:
            self.detached[key] = after
        if key in self.detached:
            if after is None or not after.detached:
                del self.detached[key]
            self._moving_pods = None
            self.surge_changed.set()
        known = self._moving_pods
        for pod in (before, after):
            owner = _replica_set_of(pod) if pod is not None else None
            if not known or owner not in known:
                continue
            self.surge_changed.set()
            known[owner].pop(key, None)
            if pod is after and after is not None:
                known[owner][key] = after

    def _is_of_move(self, kind: AnyKind, key: str) -> bool:
        """Return whether a change of the Deployment or Node *key* can end a move."""
        if kind is DEPLOYMENTS:
            return key in self.moving_deployments
        return kind is NODES and any(pod.node == key for pod in self.detached.values())

    def _count_occupant(self, pod: Pod | None, before: str | None, after: str | None) -> None:
        """Count a pod on the node *after* instead of *before*, and wake the loop if necessary.

        Counted are pods that keep the node from being empty. None: the pod counts on no node.
        """
        if before == after:
            return
        if before is not None:
            self._occupants[before] -= 1
            if not self._occupants[before]:
                del self._occupants[before]
        if pod is not None and after is not None:
            self._occupants[after] += 1
            self._wake_once(pod.uid or pod.key, after)

    def _update_karpenter_occupants(self, before: Pod | None, after: Pod | None) -> None:
        if before is not None and (name := _karpenter_node(before)) is not None:
            on_node = self._karpenter_occupants.get(name, {})
            on_node.pop(before.key, None)
            if not on_node:
                self._karpenter_occupants.pop(name, None)
        if after is not None and (name := _karpenter_node(after)) is not None:
            self._karpenter_occupants.setdefault(name, {})[after.key] = after
            if before is None or _karpenter_node(before) != name:
                self._wake_once(after.uid or after.key, name)

    def _wake_once(self, cause: str, name: str) -> None:
        """Wake the loop if the scale-down of the node *name* is allowed although it has pods.

        The next reconciliation protects the node again. *cause*: name of a node or UID of a pod,
        each of which wakes the loop only once.
        """
        node = self.nodes.get(name)
        occupied = node is not None and _may_be_removed(node) and self.occupied(name)
        # Each cause wakes the loop once. A kubelet can report changes of its Node and of its pods
        # as often as it likes, and would delay the reconciliations of all other nodes. It cannot
        # create pods with new UIDs.
        if occupied and cause not in self._woke_for and len(self._woke_for) < WOKE_FOR_MAX:
            self._woke_for.add(cause)
            self.wake.set()

    def _add_unchecked(self, key: str) -> None:
        if len(self._unchecked) < UNCHECKED_MAX:
            self._unchecked.add(key)
            self.became_unschedulable.set()

    def unschedulable_check(self, taint_key: str, options: ReadOptions) -> Callable[[], bool]:
        """Return a function that checks the pods that became unschedulable since the last call.

        The function may run in any thread. It returns whether a pod cannot wait for the interval,
        because Ebb may have to unmark a node for it. *options*: how pods are decoded.
        """
        keys, self._unchecked = self._unchecked, set()
        self.became_unschedulable.clear()
        snapshot = self.snapshot(options)
        return lambda: bool(keys) and _cannot_wait(snapshot(), keys, taint_key)


def _replica_set_of(pod: Pod) -> tuple[str, str] | None:
    return (pod.namespace, pod.owner_name) if pod.owner_kind == REPLICA_SET else None


def _cannot_wait(cluster: Cluster, keys: Container[str], taint_key: str) -> bool:
    # The pods of the cluster, not those of the events: only a complete cluster shows which of a
    # pod's constraints Ebb can evaluate.
    pods = [pod for pod in cluster.pods if is_unschedulable(pod) and pod.key in keys]
    return cannot_wait(cluster, pods, taint_key)


def _occupied_by(pod: Pod | None) -> str | None:
    """Return the name of the node that the pod keeps from being empty, or None."""
    return pod.node if pod is not None and pod.occupies and not pod.terminating else None


def _karpenter_node(pod: Pod) -> str | None:
    """Return the node that the pod keeps from being empty for Karpenter only, or None."""
    return pod.node if not pod.terminating and holds_karpenters_alone(pod) else None


def _may_be_removed(node: Node) -> bool:
    """Return whether the autoscaler may remove the node, and is not removing it already."""
    # Ebb writes nothing to a Node that is being deleted, so a reconciliation would not help there.
    return is_scale_down_allowed(node) and not being_deleted(node)
