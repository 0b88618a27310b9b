"""State of the simulated cluster: nodes, pods, and requests per node; no behavior of its own."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from core.marks.mark import mark_of
from core.model.cluster import Cluster
from core.model.constraints import NodeConstraints, Toleration
from core.model.node import Node
from core.model.pod import DAEMON_SET, Pod
from core.model.resources import Resources
from core.placement.usable_capacity import NOTHING, Amount

GPU: Final = "gpu-milli"
"""Thousandths of a GPU, as an extended resource in whole numbers."""
NONZERO_CPU_MILLIS: Final = 100
NONZERO_MEMORY_BYTES: Final = 200 * 1024**2
"""Requests that kube-scheduler's scores assume for a pod without requests."""
DAEMON_REQUESTS: Final = Resources(200, 512 * 1024**2, 0, 1)
"""Requests of the agent (a DaemonSet pod) on every node."""
TOLERATE_ALL: Final = NodeConstraints(tolerations=(Toleration(operator="Exists"),))
"""Constraints of the agent: it tolerates every taint."""


def scored_requests(requests: Resources) -> Amount:
    """Return the CPU and memory requests of a pod as kube-scheduler's scores count them.

    A pod without a request counts with kube-scheduler's default: 100 millicores, 200 MiB.
    """
    return Amount(
        requests.cpu_millis or NONZERO_CPU_MILLIS, requests.memory_bytes or NONZERO_MEMORY_BYTES
    )


class NodeResult(NamedTuple):
    """Score of a feasible node for a pod, and number of its taints that count against it."""

    score: int
    """Weighted sum of the scores that do not depend on other nodes."""
    untolerated: int
    """Number of PreferNoSchedule taints that the pod does not tolerate."""


@dataclass(slots=True)
class Place:
    """A simulated node with its pods and its free capacity."""

    node: Node
    created_ms: int
    free: Resources
    used: Amount = NOTHING
    """Requests as scores count them, with the assumed minimum for pods without requests."""
    pods: dict[str, Pod] = field(default_factory=dict)
    """Pods on the node by key, without the agent."""
    results: dict[object, NodeResult | None] = field(default_factory=dict)
    """Cached results of the scheduler by class of pods; None: the node is not feasible."""


class ClusterState:
    """All nodes by name, all pods by key, and since when each Pending pod has been Pending."""

    def __init__(self) -> None:
        self.places: dict[str, Place] = {}
        self.pods: dict[str, Pod] = {}
        self.pending: dict[str, int] = {}
        """Time in ms since which each Pending pod has waited, by its key."""
        self.buffers: Sequence[Pod] = ()
        """Pods that CapacityBuffers request capacity for; these pods do not exist."""
        self.add_moves: Callable[[Cluster], Cluster] = lambda cluster: cluster
        """Adds the facts about surge moves that Ebb's plans use to a cluster."""

    def add_node(self, node: Node, now_ms: int) -> Pod:
        """Add a node together with its DaemonSet pod, the agent; return the agent."""
        self.places[node.name] = Place(node, now_ms, node.allocatable)
        agent = Pod(
            namespace="kube-system",
            name=f"agent-{node.name}",
            node=node.name,
            requests=DAEMON_REQUESTS,
            owner_kind=DAEMON_SET,
            owner_name="agent",
            node_constraints=TOLERATE_ALL,
            daemon=True,
        )
        self.pods[agent.key] = agent
        self._take(agent, 1)
        return agent

    def remove_node(self, name: str) -> list[Pod]:
        """Remove a node without pods except its DaemonSet pod; return the removed pods."""
        removed = [pod for pod in self.pods.values() if pod.node == name]
        for pod in removed:
            del self.pods[pod.key]
        del self.places[name]
        return removed

    def replace_node(self, node: Node) -> None:
        """Store a changed node in place of the node with the same name."""
        place = self.places[node.name]
        place.node = node
        place.results.clear()

    def arrive(self, pod: Pod, now_ms: int) -> None:
        """Add a pod that is Pending since *now_ms*."""
        self.pods[pod.key] = pod
        self.pending[pod.key] = now_ms

    def refuse(self, key: str) -> Pod:
        """Set a Pending pod's condition that it is unschedulable; return the changed pod."""
        pod = self.pods[key] = replace(self.pods[key], unschedulable=True)
        return pod

    def bind(self, pod: Pod, name: str) -> Pod:
        """Bind a Pending pod to the node *name*; return the changed pod."""
        bound = replace(pod, node=name, unschedulable=False)
        self.pods[pod.key] = bound
        del self.pending[pod.key]
        self._take(bound, 1)
        self.places[name].pods[pod.key] = bound
        return bound

    def finish(self, key: str) -> Pod:
        """Remove a pod that is bound to a node; return the removed pod."""
        pod = self.pods.pop(key)
        self._take(pod, -1)
        del self.places[pod.node or ""].pods[key]
        return pod

    def delete(self, key: str) -> Pod:
        """Remove a pod, bound or Pending; return the removed pod."""
        if self.pending.pop(key, None) is None:
            return self.finish(key)
        return self.pods.pop(key)

    def replace_pod(self, pod: Pod) -> None:
        """Store a changed pod in place of the pod with the same key."""
        self.pods[pod.key] = pod
        if pod.node is not None and pod.key in self.places[pod.node].pods:
            self.places[pod.node].pods[pod.key] = pod

    def evict(self, key: str, now_ms: int) -> Pod:
        """Unbind a pod, so that it is Pending again since *now_ms*; return the changed pod."""
        waiting = replace(self.finish(key), node=None)
        self.arrive(waiting, now_ms)
        return waiting

    def snapshot(self) -> Cluster:
        """Return the cluster as Ebb's controller sees it, with surge moves if Ebb makes any."""
        cluster = Cluster.of((place.node for place in self.places.values()), self.pods.values())
        return self.add_moves(cluster)

    def marked(self) -> Iterable[Place]:
        """Return the nodes that have Ebb's mark, with their pods."""
        return (place for place in self.places.values() if mark_of(place.node.labels) is not None)

    def _take(self, pod: Pod, sign: int) -> None:
        place, requests = self.places[pod.node or ""], pod.requests
        place.results.clear()
        place.free = place.free - requests if sign > 0 else place.free + requests
        amount = scored_requests(requests)
        place.used = place.used.plus(amount) if sign > 0 else place.used.minus(amount)
