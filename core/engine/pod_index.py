"""The pods of a cluster, sorted out once; the next look follows what has changed since.

What a node is does not matter here, but for whether it is one and whether it is virtual.
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import is_
from typing import Final

from core.model.cluster import Cluster
from core.model.constraints import NodeConstraints
from core.model.pod import Pod
from core.model.resources import Resources
from core.model.workload import goes_by_cost
from core.packing.equivalence_groups import BY_NAME, group_by_identity, merged

FOLLOWED_SHARE: Final = 8
"""Where more than one pod of so many has come, gone or changed, all are sorted out anew."""
BLOCK: Final = 128
"""Pods that are compared at once."""
Alike = tuple[Resources, NodeConstraints]
_NONE: Final = Resources()


@dataclass(frozen=True, slots=True)
class PodIndex:
    """Read only; what two looks have in common they share."""

    pods: tuple[Pod, ...]
    virtual: Mapping[str, bool]
    """By name, of all nodes."""
    requests: Mapping[str, Resources]
    """By node: the requests on it."""
    resident_requests: Mapping[str, Resources]
    """The part of it that goes with the node; no key: nothing."""
    scale_in_pods: Mapping[str, int]
    """By node: how many pods on it a scale-in might take."""
    groups: Mapping[Alike, Sequence[Pod]]
    """Pods that the engine can place, each group by namespace and name."""
    unevaluable: Sequence[Pod]
    """Pods of which not all is known that they ask, by namespace and name.

    Expendable pods that wait are in none of these. One whose node has left the cluster is there as
    one that waits, if it is made anew."""

    @staticmethod
    def of(cluster: Cluster) -> "PodIndex":
        """Sort out all pods."""
        virtual = {node.name: node.virtual for node in cluster.nodes}
        stays: dict[str, list[Resources]] = {}
        movable: list[Pod] = []
        odd: list[Pod] = []
        scaled: Counter[str] = Counter()
        for there in cluster.pods:
            pod = there if there.node is None or there.node in virtual else _replacement(there)
            if pod is None or (pod.node is None and pod.expendable):
                continue  # nobody makes it anew, or no autoscaler adds a node for it
            if not pod.evaluable:
                odd.append(pod)
            if pod.node is not None and goes_by_cost(pod):
                scaled[pod.node] += 1
            if pod.stays_with_node:
                if pod.node is not None:
                    stays.setdefault(pod.node, []).append(pod.requests)
            elif pod.evaluable and not virtual.get(pod.node or ""):
                movable.append(pod)
        parts: dict[Alike, list[list[Pod]]] = {}
        for members in group_by_identity(movable):
            parts.setdefault((members[0].requests, members[0].placing), []).append(members)
        return PodIndex(
            pods=cluster.pods,
            virtual=virtual,
            requests=cluster.used(),
            resident_requests={name: Resources.total(found) for name, found in stays.items()},
            scale_in_pods=scaled,
            groups={key: merged(found) for key, found in parts.items()},
            unevaluable=odd,
        )

    def count_movable(self, node: str) -> int:
        """Return how many pods stand on the node that do not go with it."""
        return self.requests[node].pods - self.resident_requests.get(node, _NONE).pods

    def updated(self, cluster: Cluster) -> "PodIndex":
        """Return that of the *cluster*, which may be this one after some changes."""
        if cluster.pods is self.pods:
            gone: list[Pod] = []
            came: list[Pod] = []
        else:
            gone, came = changes(self.pods, cluster.pods)
        many = (len(gone) + len(came)) * FOLLOWED_SHARE > len(cluster.pods)
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


def _replacement(pod: Pod) -> Pod | None:
    """Return what comes in the place of a pod whose node has left the cluster; None: nothing.

    It stands there for about a minute, until PodGC collects it; then its like waits.
    """
    collected = pod.terminating or pod.stays_with_node or not pod.owner_kind
    return None if collected else replace(pod, node=None)


def changes(before: Sequence[Pod], now: Sequence[Pod]) -> tuple[list[Pod], list[Pod]]:
    """Return which objects are gone, and which have come; both are sorted by name."""
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
    """Return *pods* without some of them and with others; they are not looked at one by one."""
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
