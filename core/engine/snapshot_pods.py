"""Sort the pods of a snapshot: which need room elsewhere, end with their node, or fit nowhere."""

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property
from itertools import chain
from typing import Final

from core.eligibility.drainability import KEPT, why_kept
from core.engine.pod_index import GroupKey, PodIndex
from core.engine.unschedulable import is_unschedulable, never_schedulable
from core.marks.wellknown import TAINT_KEY
from core.model.cluster import Cluster
from core.model.constraints import NodeConstraints, without_volumes
from core.model.now import Now
from core.model.pod import STATEFUL_SET, Pod
from core.model.reason import Blocker
from core.model.resources import Resources

NO_REQUESTS: Final = Resources()


class SnapshotPods:
    """Read-only facts about the pods of a cluster; each is computed when it is first read."""

    def __init__(self, cluster: Cluster, index: PodIndex, now: Now | None) -> None:
        """Store the inputs; *now*: None if no deadline counts as passed."""
        self._cluster, self._index, self._now = cluster, index, now

    @cached_property
    def unschedulable(self) -> Sequence[Pod]:
        """Return the Pending pods that the scheduler has tried and could not place."""
        return [pod for pod in self._index.pending if is_unschedulable(pod)]

    @cached_property
    def nodes_with_unreadable(self) -> frozenset[str]:
        """Return the names of the nodes with a pod that could not be decoded."""
        return frozenset(pod.node or "" for pod in self._index.unevaluable if pod.unreadable)

    @cached_property
    def by_node(self) -> Mapping[str, Sequence[Pod]]:
        """Return all pods by the node that they are bound to; nodes without pods are absent."""
        pods: dict[str, list[Pod]] = {}
        for pod in self._cluster.pods:
            if pod.node is not None:
                pods.setdefault(pod.node, []).append(pod)
        return pods

    def kept(self) -> Iterator[tuple[str, Blocker]]:
        """Yield the nodes with pods that keep them from being marked, each with the reason."""
        # Few clusters have such pods, and each reconciliation would ask all pods.
        kept = (one for one in self._index.classes.values() if why_kept(one.example))
        nodes = frozenset(chain.from_iterable(one.by_node for one in kept))
        for pod in self._cluster.pods if nodes else ():
            if pod.node in nodes and (why := why_kept(pod)) is not None:
                yield pod.node, Blocker(KEPT, why, pod.key)

    @cached_property
    def unevaluable(self) -> Sequence[Pod]:
        """Return the pods that Ebb cannot place and that do not end with their node.

        Ebb cannot evaluate their constraints, or they count as pods of a nominated node only. Pods
        on virtual nodes are left out.
        """
        return [
            pod
            for pod in self._index.unevaluable
            if not pod.stays_with_node
            and not self._index.virtual.get(pod.node or "")
            and pod.key not in self._overdue
        ]

    @cached_property
    def unsupported(self) -> Sequence[Pod]:
        """Return the pods that Ebb cannot evaluate but whose requests it knows."""
        return [pod for pod in self.unevaluable if pod.estimable]

    @cached_property
    def _overdue(self) -> Mapping[str, Pod]:
        """Return by namespace/name the pods that should have terminated long ago.

        Such a pod ends with its node and needs no room elsewhere, as for Cluster Autoscaler
        (LongTerminating). On a node that stays, it keeps its room. Pods of StatefulSets are not
        included: their replacements are created only when the pods are gone, and need room.
        """
        return {
            pod.key: pod
            for pod in self._index.terminating
            if pod.node is not None
            and pod.owner_kind != STATEFUL_SET
            and not pod.stays_with_node
            and pod.overdue(self._now)
        }

    @cached_property
    def _ending(self) -> Mapping[str, Pod]:
        """Return by namespace/name the pods on nodes that need no room elsewhere.

        These are overdue pods, and pods that a surge move replaces: their Deployment has one more
        replica for a while, and the new pod has taken the room already.
        """
        replaced = self._cluster.surge.replaced
        if not replaced:
            return self._overdue
        replaced_pods = {
            pod.key: pod
            for pod in self._cluster.pods
            if pod.key in replaced and pod.node is not None
        }
        return {**self._overdue, **replaced_pods}

    @cached_property
    def resident_requests(self) -> Mapping[str, Resources]:
        """Return by node the requests of the pods that end with the node.

        These are DaemonSet pods, static pods, overdue pods and pods that a surge move replaces.
        """
        requests = dict(self._index.resident_requests)
        for pod in self._ending.values():
            if (name := pod.node) in self._index.virtual and name is not None:
                requests[name] = requests.get(name, NO_REQUESTS) + pod.requests
        return requests

    @cached_property
    def unplaceable(self) -> AbstractSet[GroupKey]:
        """Return the groups of Pending pods that no node can ever hold.

        A group is the requests and node constraints that its pods share. Ebb does not count these
        pods as a lack of room, and reserves no room for them.
        """
        return self._unplaceable_checked.keys()

    @cached_property
    def unchecked(self) -> frozenset[GroupKey]:
        """Return the groups in `unplaceable` that count as unplaceable without a check.

        A group is the requests and node constraints of pods. After IMPOSSIBLE_MAX unplaceable
        groups, further groups are not checked.
        """
        return frozenset(
            group for group, checked in self._unplaceable_checked.items() if not checked
        )

    @cached_property
    def _unplaceable_checked(self) -> Mapping[GroupKey, bool]:
        groups = self._index.groups.values()
        pending = (pods[0] for pods in groups if all(pod.node is None for pod in pods))
        unplaceable = never_schedulable(self._cluster, pending, TAINT_KEY)
        return {(pod.requests, pod.node_constraints): checked for pod, checked in unplaceable}

    @cached_property
    def placeable(self) -> Sequence[Sequence[Pod]]:
        """Return the pods that Ebb can place, grouped by requests and node constraints.

        Pods that no node can hold, or that need no room elsewhere, are left out. Pods whose reach
        (set of usable nodes) is not tracked are included.
        """
        groups = (
            members for key, members in self._index.groups.items() if key not in self.unplaceable
        )
        if self._ending:
            remaining = (
                [pod for pod in members if pod.key not in self._ending] for members in groups
            )
            return sorted(filter(None, remaining), key=_first_key)
        return sorted(groups, key=_first_key)

    @cached_property
    def by_template(self) -> Mapping[NodeConstraints, Sequence[Sequence[Pod]]]:
        """Return the placeable groups of pods by their node constraints without volumes."""
        groups: dict[NodeConstraints, list[Sequence[Pod]]] = {}
        for members in self.placeable:
            groups.setdefault(without_volumes(members[0].node_constraints), []).append(members)
        return groups


def _first_key(members: Sequence[Pod]) -> tuple[str, str]:
    return members[0].namespace, members[0].name
