"""Index the pods of a cluster, and update the index at each reconciliation.

The only node properties that matter here are whether the node exists and whether it is virtual.
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from operator import is_
from typing import Final

from core.eligibility.pod_classes import (
    TYPICAL,
    TYPICAL_POD,
    PodClass,
    PodClasses,
    classes_of,
    is_typical,
    updated_classes,
    updated_counts,
)
from core.model.cluster import Cluster
from core.model.constraints import NO_POD_CONSTRAINTS, NodeConstraints
from core.model.pod import Pod, goes_by_cost
from core.model.resources import Resources
from core.model.sorted_objects import BY_NAMESPACE_AND_NAME

UPDATE_ONE_IN: Final = 8
"""The index is rebuilt if more than one in this many pods has changed."""
BLOCK_PODS: Final = 128
"""Number of pods that are compared at once."""
GroupKey = tuple[Resources, NodeConstraints]
"""Requests and constraints that the pods of a group share."""
_NONE: Final = Resources()


@dataclass(frozen=True, slots=True, kw_only=True)
class PodIndex:
    """The pods of a cluster, with sums by node and groups of equal pods; read-only.

    Consecutive indexes share their unchanged parts. Pending pods of so low a priority that
    autoscalers ignore them are only in `pending` and `constrained`. A pod whose node has left the
    cluster is indexed as the pending pod that will replace it, but is not in `pending`, because
    the replacement does not exist yet.
    """

    pods: tuple[Pod, ...]
    virtual: Mapping[str, bool]
    """Whether the node is virtual, by name, for all nodes."""
    requests: Mapping[str, Resources]
    """Total requests by node, for all nodes."""
    resident_requests: Mapping[str, Resources]
    """Requests by node of the DaemonSet and static pods, which terminate with their node.

    A node without such pods is absent or has zero requests."""
    scale_in_pods: Mapping[str, int]
    """Number of pods by node that a scale-in may delete."""
    classes: PodClasses
    """Pods on nodes by class, for the rules in core.eligibility."""
    groups: Mapping[GroupKey, Sequence[Pod]]
    """Pods that Ebb can place, by group, sorted by namespace and name.

    A pending pod that Ebb can evaluate only in part is included with the constraints that Ebb can
    evaluate (Pod.as_estimated). So Ebb keeps room for the pod, even if the other constraints
    exclude the node with this room."""
    pending_counts: Mapping[GroupKey, int]
    """Number of pending pods in each group; groups without pending pods are absent."""
    untypical: Sequence[Pod]
    """Pods on nodes for which `is_typical` returns False, and all pods on virtual nodes; by
    namespace and name."""
    pending: Sequence[Pod]
    """Pods without a node, by namespace and name."""
    constrained: Sequence[Pod]
    """Pods with constraints on other pods, by namespace and name."""
    unevaluable: Sequence[Pod]
    """Pods that are not movable (Pod.movable), by namespace and name."""
    terminating: Sequence[Pod]
    """Pods that are being deleted, by namespace and name."""

    @staticmethod
    def of(cluster: Cluster) -> "PodIndex":
        """Return the index of all pods of the cluster."""
        virtual = {node.name: node.virtual for node in cluster.nodes}
        index = _indexed(cluster.pods, virtual)
        return replace(index, requests={**dict.fromkeys(virtual, _NONE), **index.requests})

    def count_movable(self, node: str) -> int:
        """Return the number of pods on the node, without DaemonSet pods and static pods."""
        return self.requests[node].pods - self.resident_requests.get(node, _NONE).pods

    def updated(self, cluster: Cluster) -> "PodIndex":
        """Return the index of *cluster*, a later state of the same cluster.

        If few pods have changed, it shares the unchanged parts of this index. Otherwise it is
        built anew.
        """
        if cluster.pods is self.pods:
            removed_pods: list[Pod] = []
            added_pods: list[Pod] = []
        else:
            removed_pods, added_pods = changes(self.pods, cluster.pods)
        many = (len(removed_pods) + len(added_pods)) * UPDATE_ONE_IN > len(cluster.pods)
        if many or self.virtual != {node.name: node.virtual for node in cluster.nodes}:
            return PodIndex.of(cluster)
        removed = _indexed(tuple(removed_pods), self.virtual)
        added = _indexed(tuple(added_pods), self.virtual)
        return PodIndex(
            pods=cluster.pods,
            virtual=self.virtual,
            requests=_updated_sums(self.requests, removed.requests, added.requests),
            resident_requests=_updated_sums(
                self.resident_requests, removed.resident_requests, added.resident_requests
            ),
            scale_in_pods=updated_counts(
                self.scale_in_pods, removed.scale_in_pods, added.scale_in_pods
            ),
            classes=updated_classes(self.classes, removed.classes, added.classes),
            groups=_updated_groups(self.groups, removed.groups, added.groups),
            pending_counts=updated_counts(
                self.pending_counts, removed.pending_counts, added.pending_counts
            ),
            untypical=_updated_pods(self.untypical, removed.untypical, added.untypical),
            pending=_updated_pods(self.pending, removed.pending, added.pending),
            constrained=_updated_pods(self.constrained, removed.constrained, added.constrained),
            unevaluable=_updated_pods(self.unevaluable, removed.unevaluable, added.unevaluable),
            terminating=_updated_pods(self.terminating, removed.terminating, added.terminating),
        )


def _indexed(pods: tuple[Pod, ...], virtual: Mapping[str, bool]) -> PodIndex:
    """Return the index of *pods* alone; its mappings contain only nodes with one of these pods.

    *virtual*: whether the node is virtual, by name, for all nodes of the cluster.
    """
    builder = _Builder(virtual)
    builder.add(pods)
    return builder.built(pods)


class _Builder:
    def __init__(self, virtual: Mapping[str, bool]) -> None:
        self._virtual = virtual
        self._typical: dict[str, list[Resources]] = {
            node: [] for node, is_virtual in virtual.items() if not is_virtual
        }
        """Requests of the typical pods by node, for all nodes that are not virtual."""
        self._others: dict[str, list[Resources]] = {}
        """Requests of all other pods by node."""
        self._resident: dict[str, list[Resources]] = {}
        self._groups: dict[GroupKey, list[Pod]] = {}
        """Pods that Ebb can place."""
        self._groups_by_id: dict[tuple[int, int], list[Pod]] = {}
        """The lists in `_groups`, by the `id` of the requests and the `id` of the constraints.

        Most pods share these two objects. To hash the values of 150,000 pods instead of their ids
        would take longer than the whole packing."""
        self._pending_counts = Counter[GroupKey]()
        self._scale_in_pods = Counter[str]()
        self._untypical: list[Pod] = []
        self._pending: list[Pod] = []
        self._constrained: list[Pod] = []
        self._unevaluable: list[Pod] = []
        self._terminating: list[Pod] = []

    def add(self, pods: Iterable[Pod]) -> None:
        """Add *pods*, which are sorted by namespace and name, to the index."""
        # There may be hundreds of thousands of pods, and nearly all are typical. So this loop does
        # little for each of these, and there is no second loop.
        typical, groups = self._typical, self._groups_by_id
        for pod in pods:
            if pod.pod_constraints is not NO_POD_CONSTRAINTS:
                self._constrained.append(pod)
            if is_typical(pod) and (on_node := typical.get(pod.node or "")) is not None:
                on_node.append(pod.requests)
                group = groups.get((id(pod.requests), id(pod.node_constraints)))
                if group is None:
                    group = self._group(pod)
                group.append(pod)
            else:
                self._add(pod)

    def _group(self, pod: Pod) -> list[Pod]:
        key = id(pod.requests), id(pod.node_constraints)
        group = self._groups_by_id.get(key)
        if group is None:
            group = self._groups.setdefault((pod.requests, pod.node_constraints), [])
            self._groups_by_id[key] = group
        return group

    def _add(self, pod: Pod) -> None:
        """Add a pod that is not typical (`is_typical`), or without a real, existing node."""
        if pod.node is None:
            self._pending.append(pod)
        indexed = pod if pod.node is None or pod.node in self._virtual else _replacement(pod)
        # No autoscaler adds a node for a pending expendable pod.
        if indexed is None or (indexed.node is None and indexed.expendable):
            return
        if not indexed.movable:
            self._unevaluable.append(indexed)
        if indexed.terminating:
            self._terminating.append(indexed)
        if indexed.node is not None:
            self._add_on_node(indexed, indexed.node)
        elif indexed.estimable and not indexed.stays_with_node:
            self._group(indexed).append(indexed.as_estimated())
            self._pending_counts[indexed.requests, indexed.node_constraints] += 1

    def _add_on_node(self, pod: Pod, node: str) -> None:
        self._untypical.append(pod)
        self._others.setdefault(node, []).append(pod.requests)
        if goes_by_cost(pod):
            self._scale_in_pods[node] += 1
        if pod.stays_with_node:
            self._resident.setdefault(node, []).append(pod.requests)
        elif pod.movable and not self._virtual[node]:
            self._group(pod).append(pod)

    def built(self, pods: tuple[Pod, ...]) -> PodIndex:
        typical = Counter(
            {node: len(pods_on) for node, pods_on in self._typical.items() if pods_on}
        )
        classes = updated_classes(
            classes_of(self._untypical), {}, {TYPICAL: PodClass(TYPICAL_POD, typical)}
        )
        requests = {
            node: Resources.total(chain(self._typical.get(node, ()), self._others.get(node, ())))
            for node in {**typical, **self._others}
        }
        return PodIndex(
            pods=pods,
            virtual=self._virtual,
            requests=requests,
            resident_requests={
                node: Resources.total(requests) for node, requests in self._resident.items()
            },
            scale_in_pods=typical + self._scale_in_pods,
            classes=classes,
            groups=self._groups,
            pending_counts=self._pending_counts,
            untypical=self._untypical,
            pending=self._pending,
            constrained=self._constrained,
            unevaluable=self._unevaluable,
            terminating=self._terminating,
        )


def _updated_groups(
    before: Mapping[GroupKey, Sequence[Pod]],
    removed: Mapping[GroupKey, Sequence[Pod]],
    added: Mapping[GroupKey, Sequence[Pod]],
) -> dict[GroupKey, Sequence[Pod]]:
    groups = dict(before)
    for key in {**removed, **added}:
        pods = _updated_pods(groups.get(key, ()), removed.get(key, ()), added.get(key, ()))
        if pods:
            groups[key] = pods
        else:
            groups.pop(key, None)
    return groups


def _replacement(pod: Pod) -> Pod | None:
    """Return the pending pod that will replace a pod whose node has left the cluster.

    None if no controller creates a replacement, because the pod was terminating, is a DaemonSet or
    static pod, or has no owner.
    """
    # PodGC deletes the pod after about a minute. Then its controller creates the replacement.
    not_replaced = pod.terminating or pod.stays_with_node or not pod.owner_kind
    return None if not_replaced else replace(pod, node=None)


def changes(before: Sequence[Pod], now: Sequence[Pod]) -> tuple[list[Pod], list[Pod]]:
    """Return the removed pods and the added pods, both sorted by namespace and name.

    *before*, *now*: all pods of two states of the cluster, sorted the same way. A pod whose object
    differs from the one in *before* counts as removed and as added.
    """
    removed: list[Pod] = []
    added: list[Pod] = []
    old = new = 0
    while old < len(before) and new < len(now):
        same = list(map(is_, before[old : old + BLOCK_PODS], now[new : new + BLOCK_PODS]))
        run = len(same) if all(same) else same.index(False)
        old, new = old + run, new + run
        if run < len(same):
            if BY_NAMESPACE_AND_NAME(before[old]) <= BY_NAMESPACE_AND_NAME(now[new]):
                removed.append(before[old])
                old += 1
            else:
                added.append(now[new])
                new += 1
    return [*removed, *before[old:]], [*added, *now[new:]]


def _updated_pods(
    pods: Sequence[Pod], removed: Iterable[Pod], added: Iterable[Pod]
) -> Sequence[Pod]:
    updated, name_of = list(pods), BY_NAMESPACE_AND_NAME
    for pod in removed:
        index = bisect_left(updated, name_of(pod), key=name_of)
        if index < len(updated) and name_of(updated[index]) == name_of(pod):
            del updated[index]
    for pod in added:
        insort(updated, pod, key=name_of)
    return updated


def _updated_sums(
    before: Mapping[str, Resources],
    removed: Mapping[str, Resources],
    added: Mapping[str, Resources],
) -> Mapping[str, Resources]:
    sums = dict(before)
    for node, amount in added.items():
        sums[node] = sums.get(node, _NONE) + amount
    for node, amount in removed.items():
        sums[node] = sums.get(node, _NONE) - amount
    return sums
