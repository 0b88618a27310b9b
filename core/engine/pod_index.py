"""Index the pods of a cluster, and update the index at each reconciliation.

The only node properties that matter here are whether the node exists and whether it is virtual.
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from operator import is_
from typing import Final, TypeVar

from core.guards.pod_classes import (
    TYPICAL,
    TYPICAL_POD,
    PodClass,
    PodClasses,
    classes_of,
    is_typical,
    updated_classes,
)
from core.model.cluster import Cluster
from core.model.constraints import NO_POD_CONSTRAINTS, NodeConstraints
from core.model.pod import Pod
from core.model.resources import Resources
from core.model.workload import goes_by_cost
from core.packing.equivalence_groups import BY_NAME

UPDATE_ONE_IN: Final = 8
"""If more than one pod in this many has changed, the index is rebuilt."""
BLOCK: Final = 128
"""Number of pods that are compared at once."""
Alike = tuple[Resources, NodeConstraints]
"""Requests and constraints that the pods of a group share."""
_NONE: Final = Resources()
Key_ = TypeVar("Key_")


@dataclass(frozen=True, slots=True, kw_only=True)
class PodIndex:
    """The pods of a cluster, grouped and summed up as the engine needs them; read-only.

    Consecutive indexes share their unchanged parts. A pod whose node has left the cluster is
    indexed as a pending pod if its controller will replace it. Expendable pods that are pending
    are only in `pending` and `constrained`.
    """

    pods: tuple[Pod, ...]
    virtual: Mapping[str, bool]
    """Whether the node is virtual, by name, for all nodes."""
    requests: Mapping[str, Resources]
    """Total requests by node."""
    resident_requests: Mapping[str, Resources]
    """Requests by node of the DaemonSet and static pods, which terminate with their node; nodes
    without such pods are absent."""
    scale_in_pods: Mapping[str, int]
    """Number of pods by node that a scale-in may delete."""
    classes: PodClasses
    """Pods on nodes by class, for the rules in core.guards."""
    groups: Mapping[Alike, Sequence[Pod]]
    """Pods that Ebb can place, by group, sorted by namespace and name.

    They include pending pods that Ebb cannot fully evaluate, with the constraints that it can
    evaluate. So Ebb keeps room for them, although other constraints may exclude that room."""
    waiting: Mapping[Alike, int]
    """Number of the pending pods in each group; groups without such pods are absent."""
    untypical: Sequence[Pod]
    """Pods on nodes for which `is_typical` returns False, by namespace and name."""
    pending: Sequence[Pod]
    """Pods without a node, by namespace and name."""
    constrained: Sequence[Pod]
    """Pods with constraints on other pods, by namespace and name."""
    unevaluable: Sequence[Pod]
    """Pods that Ebb cannot evaluate or must not move, by namespace and name."""
    terminating: Sequence[Pod]
    """Pods that are being deleted, by namespace and name."""

    @staticmethod
    def of(cluster: Cluster) -> "PodIndex":
        """Build the index of all pods."""
        virtual = {node.name: node.virtual for node in cluster.nodes}
        index = _indexed(cluster.pods, virtual)
        return replace(index, requests={**dict.fromkeys(virtual, _NONE), **index.requests})

    def count_movable(self, node: str) -> int:
        """Return the number of pods on the node that do not terminate with it."""
        return self.requests[node].pods - self.resident_requests.get(node, _NONE).pods

    def updated(self, cluster: Cluster) -> "PodIndex":
        """Return the index of *cluster*, built from this index if few pods have changed."""
        if cluster.pods is self.pods:
            left: list[Pod] = []
            new: list[Pod] = []
        else:
            left, new = changes(self.pods, cluster.pods)
        many = (len(left) + len(new)) * UPDATE_ONE_IN > len(cluster.pods)
        if many or self.virtual != {node.name: node.virtual for node in cluster.nodes}:
            return PodIndex.of(cluster)
        gone, came = (_indexed(tuple(some), self.virtual) for some in (left, new))
        return PodIndex(
            pods=cluster.pods,
            virtual=self.virtual,
            requests=_summed(self.requests, gone.requests, came.requests),
            resident_requests=_summed(
                self.resident_requests, gone.resident_requests, came.resident_requests
            ),
            scale_in_pods=_counted(self.scale_in_pods, gone.scale_in_pods, came.scale_in_pods),
            classes=updated_classes(self.classes, gone.classes, came.classes),
            groups=_updated_groups(self.groups, gone.groups, came.groups),
            waiting=_counted(self.waiting, gone.waiting, came.waiting),
            untypical=_replaced(self.untypical, gone.untypical, came.untypical),
            pending=_replaced(self.pending, gone.pending, came.pending),
            constrained=_replaced(self.constrained, gone.constrained, came.constrained),
            unevaluable=_replaced(self.unevaluable, gone.unevaluable, came.unevaluable),
            terminating=_replaced(self.terminating, gone.terminating, came.terminating),
        )


def _indexed(pods: tuple[Pod, ...], virtual: Mapping[str, bool]) -> PodIndex:
    """Return the index of some pods; its mappings contain only nodes with such pods."""
    builder = _Builder(virtual)
    builder.add(pods)
    return builder.built(pods)


class _Builder:
    """Collects pods for an index."""

    def __init__(self, virtual: Mapping[str, bool]) -> None:
        """Start without pods; *virtual*: see PodIndex."""
        self._virtual = virtual
        self._typical: dict[str, list[Resources]] = {
            node: [] for node, is_virtual in virtual.items() if not is_virtual
        }
        """Requests of the typical pods by node, for all nodes that are not virtual."""
        self._others: dict[str, list[Resources]] = {}
        """Requests of all other pods by node."""
        self._resident: dict[str, list[Resources]] = {}
        self._groups: dict[Alike, list[Pod]] = {}
        """Pods that Ebb can place."""
        self._same: dict[tuple[int, int], list[Pod]] = {}
        """Lists of `_groups` by the ids of requests and constraints.

        Most pods share these objects. Comparing the objects first avoids hashing 150,000 values,
        which would take longer than the whole packing."""
        self._waiting = Counter[Alike]()
        self._scale_in_pods = Counter[str]()
        self._untypical: list[Pod] = []
        self._pending: list[Pod] = []
        self._constrained: list[Pod] = []
        self._unevaluable: list[Pod] = []
        self._terminating: list[Pod] = []

    def add(self, pods: Iterable[Pod]) -> None:
        """Add pods that are sorted by namespace and name."""
        # There may be hundreds of thousands of pods, and nearly all are typical. So this loop does
        # little for each of these, and there is no second loop.
        typical, same = self._typical, self._same
        for pod in pods:
            if pod.company is not NO_POD_CONSTRAINTS:
                self._constrained.append(pod)
            if is_typical(pod) and (on_node := typical.get(pod.node or "")) is not None:
                on_node.append(pod.requests)
                group = same.get((id(pod.requests), id(pod.placing)))
                if group is None:
                    group = self._group(pod)
                group.append(pod)
            else:
                self._add(pod)

    def _group(self, pod: Pod) -> list[Pod]:
        """Return the pods of the pod's group."""
        key = id(pod.requests), id(pod.placing)
        found = self._same.get(key)
        if found is None:
            found = self._groups.setdefault((pod.requests, pod.placing), [])
            self._same[key] = found
        return found

    def _add(self, pod: Pod) -> None:
        """Add a pod that is not typical, or is on a virtual node or on none."""
        if pod.node is None:
            self._pending.append(pod)
        found = pod if pod.node is None or pod.node in self._virtual else _replacement(pod)
        # No autoscaler adds a node for a pending expendable pod.
        if found is None or (found.node is None and found.expendable):
            return
        if not found.movable:
            self._unevaluable.append(found)
        if found.terminating:
            self._terminating.append(found)
        if found.node is not None:
            self._add_on_node(found, found.node)
        elif found.estimable and not found.stays_with_node:
            self._group(found).append(found.as_estimated())
            self._waiting[found.requests, found.placing] += 1

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
        """Return the index of all added *pods*."""
        typical = Counter({node: len(found) for node, found in self._typical.items() if found})
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
            resident_requests={node: Resources.total(one) for node, one in self._resident.items()},
            scale_in_pods=typical + self._scale_in_pods,
            classes=classes,
            groups=self._groups,
            waiting=self._waiting,
            untypical=self._untypical,
            pending=self._pending,
            constrained=self._constrained,
            unevaluable=self._unevaluable,
            terminating=self._terminating,
        )


def _updated_groups(
    before: Mapping[Alike, Sequence[Pod]],
    gone: Mapping[Alike, Sequence[Pod]],
    came: Mapping[Alike, Sequence[Pod]],
) -> dict[Alike, Sequence[Pod]]:
    groups = dict(before)
    for key in {**gone, **came}:
        found = _replaced(groups.get(key, ()), gone.get(key, ()), came.get(key, ()))
        if found:
            groups[key] = found
        else:
            groups.pop(key, None)
    return groups


def _replacement(pod: Pod) -> Pod | None:
    """Return the pending pod that replaces a pod whose node has left the cluster, or None."""
    # The pod exists for about a minute, until PodGC deletes it. Then its replacement is pending.
    collected = pod.terminating or pod.stays_with_node or not pod.owner_kind
    return None if collected else replace(pod, node=None)


def changes(before: Sequence[Pod], now: Sequence[Pod]) -> tuple[list[Pod], list[Pod]]:
    """Return the pods that are gone and the pods that are new, both sorted by name."""
    gone: list[Pod] = []
    came: list[Pod] = []
    here = there = 0
    while here < len(before) and there < len(now):
        same = list(map(is_, before[here : here + BLOCK], now[there : there + BLOCK]))
        run = len(same) if all(same) else same.index(False)
        here, there = here + run, there + run
        if run < len(same):
            if BY_NAME(before[here]) <= BY_NAME(now[there]):
                gone.append(before[here])
                here += 1
            else:
                came.append(now[there])
                there += 1
    return [*gone, *before[here:]], [*came, *now[there:]]


def _replaced(pods: Sequence[Pod], gone: Iterable[Pod], came: Iterable[Pod]) -> Sequence[Pod]:
    """Return *pods* without the *gone* and with the *came* pods, found by binary search."""
    found = list(pods)
    for pod in gone:
        place = bisect_left(found, BY_NAME(pod), key=BY_NAME)
        if place < len(found) and BY_NAME(found[place]) == BY_NAME(pod):
            del found[place]
    for pod in came:
        insort(found, pod, key=BY_NAME)
    return found


def _summed(
    before: Mapping[str, Resources], gone: Mapping[str, Resources], came: Mapping[str, Resources]
) -> Mapping[str, Resources]:
    found = dict(before)
    for node, amount in came.items():
        found[node] = found.get(node, _NONE) + amount
    for node, amount in gone.items():
        found[node] = found.get(node, _NONE) - amount
    return found


def _counted(
    before: Mapping[Key_, int], gone: Mapping[Key_, int], came: Mapping[Key_, int]
) -> Mapping[Key_, int]:
    found = Counter(before)
    found.update(came)
    found.subtract(gone)
    return +found
