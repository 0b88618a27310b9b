"""Evaluate inter-pod rules: host ports, claims, attach limits, pod affinity, topology spread.

Each rule reads a count: the number of certain pods in the node's domain. The domain is the node's
value of a topology label, or for a host port the node itself. So the whole state consists of
DomainCounts, which change by one when a pod comes or leaves. A pod that no rule concerns has no
Group and costs nothing. If all pods are like that, nothing is counted.

The pods on all nodes count, including cordoned nodes. Nodes that the plan removes still count,
without the pods that have moved but with DaemonSet pods: a marked node exists for a long time.
"""

from collections.abc import Iterable, Mapping, Sequence

from core.model.cluster import Cluster
from core.model.constraints import NO_POD_CONSTRAINTS
from core.model.node import Node
from core.model.pod import Pod
from core.placement.inter_pod_rules import InterPodRules
from core.placement.tallies import Attachments, DomainCount, Group

Changes = tuple[tuple[DomainCount, int], ...]
"""Counts of pods, and by how much they change."""


class PodTopology:
    """The current node of every pod that inter-pod rules concern, and the pod counts of the rules.

    Inter-pod rules are, for example, pod affinity, topology spread and host ports. Pod ids and
    node ids are those of the Packer. Changes by `try_without` and `try_with` are undone by `undo`;
    `commit` is permanent.
    """

    def __init__(
        self,
        cluster: Cluster,
        nodes: Sequence[Node],
        movable: Sequence[Pod],
        constrained: Iterable[Pod] | None = None,
    ) -> None:
        """Count the pods of *cluster* that inter-pod rules read, on *nodes*.

        Node ids are positions in *nodes*. Pod ids are positions in *movable*, the pods that may be
        placed. *constrained*: all pods of the cluster with constraints on other pods; None: they
        are searched for.
        """
        self._groups: dict[int, Group] = {}
        self._node_of: dict[int, int] = {}
        self._tried: list[tuple[Group, int, int]] = []
        self._changes: dict[tuple[Group, str], Changes] = {}
        """Counts that change when a pod of a group loses a label, by group and label."""
        self._rules: InterPodRules | None = None
        asking = cluster.pods if constrained is None else constrained
        pod_constraints = {id(pod.pod_constraints): pod.pod_constraints for pod in asking}
        if all(
            pod_constraints == NO_POD_CONSTRAINTS for pod_constraints in pod_constraints.values()
        ):
            return
        limits = [cluster.attach_limits.get(node.name, {}) for node in nodes]
        attached = [cluster.attachments.get(node.name, ()) for node in nodes]
        rules = InterPodRules(nodes, pod_constraints.values(), Attachments(limits, attached))
        self._rules = rules
        groups = [rules.group(pod) for pod in movable]
        rules.write_rules()
        node_ids = {node.name: number for number, node in enumerate(nodes)}
        for pod in cluster.pods:
            if pod.node in node_ids:
                for tally in rules.adds(rules.group(pod)):
                    tally.add(node_ids[pod.node], 1)
        for number, (pod, group) in enumerate(zip(movable, groups, strict=True)):
            if rules.adds(group) or group.rules:
                self._groups[number] = group
                if pod.node is not None:
                    self._node_of[number] = node_ids[pod.node]

    @property
    def groups(self) -> Mapping[int, Group]:
        """Return the group of each pod that an inter-pod rule concerns, by pod id."""
        return self._groups

    def changes_without_label(self, group: Group, label: str, node: int) -> Changes:
        """Return the counts that change when a pod of the group loses a label, and by how much.

        *node*: id of the node of the pod. The result is empty if no rule would then answer
        otherwise for any other node.
        """
        changes = self._changes.get((group, label))
        if changes is None:
            changes = self._changes[group, label] = self._all_changes(group, label)
        matter = any(by > 0 or tally.matters_elsewhere(node) for tally, by in changes)
        return changes if matter else ()

    def _all_changes(self, group: Group, label: str) -> Changes:
        if self._rules is None:
            return ()
        other = self._rules.without(group, label)
        before, after = self._rules.adds(group), self._rules.adds(other)
        dropped = tuple((tally, -1) for tally in before if tally not in after)
        return dropped + tuple((tally, 1) for tally in after if tally not in before)

    def group(self, pod: int) -> Group | None:
        """Return the group of pods that all inter-pod rules treat like this pod, with its rules.

        Return None if no inter-pod rule concerns the pod.
        """
        return self._groups.get(pod)

    def involves(self, pods: Iterable[int]) -> bool:
        """Report whether an inter-pod rule concerns at least one of the pods."""
        return bool(self._groups) and not self._groups.keys().isdisjoint(pods)

    def try_without(self, pods: Iterable[int]) -> None:
        """Stop counting the pods on their nodes until `undo`."""
        for pod in pods:
            if pod in self._node_of:
                self._try(self._groups[pod], self._node_of[pod], -1)

    def try_with(self, pod: int, node: int) -> None:
        """Count the pod on the node until `undo`.

        The pod is pending, or was passed to `try_without`.
        """
        if pod in self._groups:
            self._try(self._groups[pod], node, 1)

    def undo(self) -> None:
        """Undo all changes by `try_without` and `try_with`."""
        for group, node, by in reversed(self._tried):
            _count(group, node, -by)
        self._tried.clear()

    def commit(self, placements: Iterable[tuple[int, int]]) -> None:
        """Move pods permanently; *placements*: pairs of pod id and id of the new node.

        Pods without a placement stay on their nodes.
        """
        for pod, node in placements:
            if pod in self._groups:
                if pod in self._node_of:
                    _count(self._groups[pod], self._node_of[pod], -1)
                self._node_of[pod] = node
                _count(self._groups[pod], node, 1)

    def remove(self, placements: Iterable[tuple[int, int]]) -> None:
        """Remove pods permanently; *placements*: pairs of pod id and id of the current node."""
        for pod, node in placements:
            if self._node_of.pop(pod, None) is not None:
                _count(self._groups[pod], node, -1)

    def _try(self, group: Group, node: int, by: int) -> None:
        self._tried.append((group, node, by))
        _count(group, node, by)


def _count(group: Group, node: int, by: int) -> None:
    for tally in group.adds or ():
        tally.add(node, by)
