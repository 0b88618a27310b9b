"""Index the pods of a cluster, and update the index at each reconciliation.

The only node properties that matter here are whether the node exists and whether it is virtual.
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import is_
from typing import Final

from core.model.cluster import Cluster
from core.model.constraints import NodeConstraints
from core.model.pod import Pod
from core.model.resources import Resources
from core.model.workload import goes_by_cost
from core.packing.equivalence_groups import BY_NAME, group_by_identity, merged

UPDATE_ONE_IN: Final = 8
"""If more than one pod in this many has changed, the index is rebuilt."""
BLOCK: Final = 128
"""Number of pods that are compared at once."""
Alike = tuple[Resources, NodeConstraints]
"""Requests and constraints that the pods of a group share."""
_NONE: Final = Resources()


@dataclass(frozen=True, slots=True)
class PodIndex:
    """The pods of a cluster, grouped and summed up as the engine needs them; read-only.

    Consecutive indexes share their unchanged parts. Pending expendable pods are in no part of the
    index. A pod whose node has left the cluster is indexed as a pending pod if its controller will
    replace it.
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
    groups: Mapping[Alike, Sequence[Pod]]
    """Pods that Ebb can place, by group, sorted by namespace and name.

    They include pending pods that Ebb cannot fully evaluate, with the constraints that it can
    evaluate. So Ebb keeps room for them, although other constraints may exclude that room."""
    unevaluable: Sequence[Pod]
    """Pods that Ebb cannot evaluate or must not move, by namespace and name."""
    terminating: Sequence[Pod]
    """Pods that are being deleted, by namespace and name."""

    @staticmethod
    def of(cluster: Cluster) -> "PodIndex":
        """Build the index of all pods."""
        virtual = {node.name: node.virtual for node in cluster.nodes}
        requests: dict[str, list[Resources]] = {name: [] for name in virtual}
        stays: dict[str, list[Resources]] = {}
        placeable: list[Pod] = []
        unevaluable: list[Pod] = []
        terminating: list[Pod] = []
        scale_in_pods = Counter[str]()
        # There may be hundreds of thousands of pods, so they are read in one loop.
        for pod in _indexed(cluster.pods, virtual):
            node, movable = pod.node, pod.movable
            if node is not None:
                requests[node].append(pod.requests)
                if goes_by_cost(pod):
                    scale_in_pods[node] += 1
            if not movable:
                unevaluable.append(pod)
            if pod.terminating:
                terminating.append(pod)
            if pod.stays_with_node:
                if node is not None:
                    stays.setdefault(node, []).append(pod.requests)
            elif node is None and pod.estimable:
                placeable.append(pod.as_estimated())
            elif movable and not virtual.get(node or ""):
                placeable.append(pod)
        return PodIndex(
            pods=cluster.pods,
            virtual=virtual,
            requests={name: Resources.total(found) for name, found in requests.items()},
            resident_requests={name: Resources.total(found) for name, found in stays.items()},
            scale_in_pods=scale_in_pods,
            groups=_grouped(placeable),
            unevaluable=unevaluable,
            terminating=terminating,
        )

    def count_movable(self, node: str) -> int:
        """Return the number of pods on the node that do not terminate with it."""
        return self.requests[node].pods - self.resident_requests.get(node, _NONE).pods

    def updated(self, cluster: Cluster) -> "PodIndex":
        """Return the index of *cluster*, built from this index if few pods have changed."""
        if cluster.pods is self.pods:
            gone: list[Pod] = []
            came: list[Pod] = []
        else:
            gone, came = changes(self.pods, cluster.pods)
        many = (len(gone) + len(came)) * UPDATE_ONE_IN > len(cluster.pods)
        if many or self.virtual != {node.name: node.virtual for node in cluster.nodes}:
            return PodIndex.of(cluster)
        used, resident, scaled = (
            dict(self.requests),
            dict(self.resident_requests),
            Counter(self.scale_in_pods),
        )
        for pods, sign in ((gone, -1), (came, 1)):
            for pod in pods:
                if pod.node in used:
                    _add(used, pod, sign)
                    if pod.stays_with_node:
                        _add(resident, pod, sign)
                    elif goes_by_cost(pod):
                        scaled[pod.node] += sign
        few = PodIndex.of(Cluster(cluster.nodes, tuple(came)))
        return PodIndex(
            pods=cluster.pods,
            virtual=self.virtual,
            requests=used,
            resident_requests=resident,
            scale_in_pods=scaled,
            groups=self._updated_groups(gone, few.groups),
            unevaluable=_replaced(self.unevaluable, gone, few.unevaluable),
            terminating=_replaced(self.terminating, gone, few.terminating),
        )

    def _updated_groups(
        self, gone: Iterable[Pod], came: Mapping[Alike, Sequence[Pod]]
    ) -> dict[Alike, Sequence[Pod]]:
        left: dict[Alike, list[Pod]] = {}
        for pod in gone:
            left.setdefault((pod.requests, pod.placing), []).append(pod)
        groups = dict(self.groups)
        for key in {**left, **came}:
            found = _replaced(groups.get(key, ()), left.get(key, ()), came.get(key, ()))
            if found:
                groups[key] = found
            else:
                groups.pop(key, None)
        return groups


def _grouped(pods: Iterable[Pod]) -> dict[Alike, Sequence[Pod]]:
    """Return the pods by group; each group is sorted by namespace and name, as *pods* are."""
    parts: dict[Alike, list[list[Pod]]] = {}
    for members in group_by_identity(pods):
        parts.setdefault((members[0].requests, members[0].placing), []).append(members)
    return {key: merged(found) for key, found in parts.items()}


def _indexed(pods: Iterable[Pod], nodes: Container[str]) -> Iterator[Pod]:
    """Yield the pods to index, with the expected replacement of each pod whose node has left."""
    for pod in pods:
        found = pod if pod.node is None or pod.node in nodes else _replacement(pod)
        # No autoscaler adds a node for a pending expendable pod.
        if found is not None and not (found.node is None and found.expendable):
            yield found


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


def _add(sums: dict[str, Resources], pod: Pod, sign: int) -> None:
    before = sums.get(pod.node or "", _NONE)
    sums[pod.node or ""] = before + pod.requests if sign > 0 else before - pod.requests
