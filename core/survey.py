"""One look at a cluster: who may move, who may go, what is used, before anything is decided."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from core.account import Account
from core.capacity import NOTHING, Amount, Share, Usability, derive_usability
from core.config import Config, UsabilityMode
from core.guards import Blocker, node_blockers, pod_blockers
from core.marks import going
from core.model import Cluster, Node, Pod
from core.stickiness import sticky_pods


class Survey:
    """The facts about a cluster that the engine's steps share; read only."""

    def __init__(self, cluster: Cluster, config: Config) -> None:
        self.thresholds = Share(config.thresholds.cpu, config.thresholds.memory)
        self.usability = _usability(cluster, config)
        self.gone = frozenset(node.name for node in cluster.nodes if going(node))
        """Nodes that are leaving."""
        self.closed = frozenset(_closed(cluster))
        """Nodes that take no pods."""
        self.blockers: dict[str, list[Blocker]] = {
            node.name: node_blockers(node) for node in cluster.nodes
        }
        """By node: what the node itself and its pods say against its going."""
        self.movable: list[Pod] = []
        """Pods that the engine can place: on nodes that move, and pending ones."""
        self._used: dict[str, list[int]] = {node.name: [0, 0, 0, 0] for node in cluster.nodes}
        self._cluster = cluster
        self._look_at_pods(cluster)

    @cached_property
    def sticky(self) -> Mapping[str, int]:
        """Count by node the pods that rarely leave by themselves (core.stickiness); 0: no key."""
        return sticky_pods(self._cluster.pods)

    def _look_at_pods(self, cluster: Cluster) -> None:
        for pod in cluster.pods:
            sums = self._used.get(pod.node) if pod.node is not None else None
            if pod.node is not None and sums is None:
                continue  # its node has left the cluster: the pod is about to be collected
            if sums is not None:
                sums[0] += pod.requests.cpu_millis
                sums[1] += pod.requests.memory_bytes
                if pod.daemon or pod.mirror:
                    sums[2] += pod.requests.cpu_millis
                    sums[3] += pod.requests.memory_bytes
                    continue
            if pod.evaluable:
                self.movable.append(pod)
            elif pod.node is not None:
                self.blockers[pod.node] += pod_blockers(pod)

    def account(self, nodes: Sequence[Node]) -> Account:
        """Open an account whose node ids are the places in *nodes*."""
        return Account(
            nodes,
            used=[Amount(*self._used[node.name][:2]) for node in nodes],
            daemon=[Amount(*self._used[node.name][2:]) for node in nodes],
            usability=self.usability,
            closed=self.closed,
            gone=self.gone,
        )

    def movable_amount(self, node: str) -> Amount:
        """Return the requests on the node that do not go with it."""
        cpu, memory, daemon_cpu, daemon_memory = self._used.get(node, (*NOTHING, *NOTHING))
        return Amount(cpu - daemon_cpu, memory - daemon_memory)


def _closed(cluster: Cluster) -> Iterable[str]:
    """Name the nodes that take no pods; what one takes whose pods cannot be read is not known."""
    for node in cluster.nodes:
        if node.unschedulable or not node.ready or node.virtual or node.unreadable:
            yield node.name
    for pod in cluster.pods:
        if pod.unreadable and pod.node is not None:
            yield pod.node


def _usability(cluster: Cluster, config: Config) -> Usability | None:
    match config.usability:
        case UsabilityMode.AUTO:
            return derive_usability(cluster.pods)
        case UsabilityMode.NONE:
            return None
        case given:
            return given
