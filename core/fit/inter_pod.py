"""May a pod run beside those pods: ports, claims, attached volumes, pod affinity, spread.

Every rule here is a question about a count: how many pods of one description stand in the node's
domain (its value of a topology label; for a port, the node itself). So all the state is Tallies,
which change by one when a pod comes or goes. Pods that ask nothing of others and are asked about
by nobody belong to no Group and cost nothing; where all pods are such, nothing is counted.

All nodes of the cluster count with the pods on them: cordoned ones, and those that have been
chosen to go, as empty of the pods that moved, because they stand in the cluster, marked, for a
long time. Their DaemonSets' pods count too while they stand.
"""

from collections.abc import Iterable, Sequence

from core.fit.inter_pod_rules import InterPodRules
from core.fit.tallies import Attachments, Group
from core.model.cluster import Cluster
from core.model.constraints import NO_POD_CONSTRAINTS
from core.model.node import Node
from core.model.pod import Pod


class PodTopology:
    """Where the pods stand that somebody's rules are about, and what that allows.

    Pods are known by the Packer's ids, nodes too. What `lift` and `put` change is on trial until
    `undo`; `move` is for good.
    """

    def __init__(self, cluster: Cluster, nodes: Sequence[Node], movable: Sequence[Pod]) -> None:
        """Count all pods of *cluster*; *movable* are those that may be placed."""
        self._groups: dict[int, Group] = {}
        self._node_of: dict[int, int] = {}
        self._tried: list[tuple[Group, int, int]] = []
        pod_constraints = {id(pod.company): pod.company for pod in cluster.pods}
        if all(company == NO_POD_CONSTRAINTS for company in pod_constraints.values()):
            return
        limits = [cluster.attach_limits.get(node.name, {}) for node in nodes]
        rules = InterPodRules(nodes, pod_constraints.values(), Attachments(limits))
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

    def group(self, pod: int) -> Group | None:
        """Return the pod's group; None: it asks nothing here and is asked about by nobody."""
        return self._groups.get(pod)

    def involves(self, pods: Iterable[int]) -> bool:
        """Say whether any of the pods has a group."""
        return bool(self._groups) and not self._groups.keys().isdisjoint(pods)

    def try_without(self, pods: Iterable[int]) -> None:
        """Try without the pods where they stand."""
        for pod in pods:
            if pod in self._node_of:
                self._try(self._groups[pod], self._node_of[pod], -1)

    def try_with(self, pod: int, node: int) -> None:
        """Try with a lifted or pending pod on the node."""
        if pod in self._groups:
            self._try(self._groups[pod], node, 1)

    def undo(self) -> None:
        """Forget what was tried."""
        for group, node, by in reversed(self._tried):
            _count(group, node, -by)
        self._tried.clear()

    def commit(self, placements: Iterable[tuple[int, int]]) -> None:
        """Let pods change their place; those without a new one stand where they stood."""
        for pod, node in placements:
            if pod in self._groups:
                if pod in self._node_of:
                    _count(self._groups[pod], self._node_of[pod], -1)
                self._node_of[pod] = node
                _count(self._groups[pod], node, 1)

    def remove(self, placements: Iterable[tuple[int, int]]) -> None:
        """Let pods stand nowhere; *placements*: (pod id, the node where each stood)."""
        for pod, node in placements:
            if self._node_of.pop(pod, None) is not None:
                _count(self._groups[pod], node, -1)

    def _try(self, group: Group, node: int, by: int) -> None:
        self._tried.append((group, node, by))
        _count(group, node, by)


def _count(group: Group, node: int, by: int) -> None:
    for tally in group.adds or ():
        tally.add(node, by)
