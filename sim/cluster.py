"""State of the simulated cluster: nodes, pods, and sums per node; no behavior of its own."""

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
    """Return the requests of a pod as kube-scheduler's scores count them."""
    return Amount(
        requests.cpu_millis or NONZERO_CPU_MILLIS, requests.memory_bytes or NONZERO_MEMORY_BYTES
    )


class NodeResult(NamedTuple):
    """Score and taint count of a feasible node, as kube-scheduler computes them for a pod."""

    score: int
    """Weighted sum of the scores that do not depend on other nodes."""
    untolerated: int
    """Number of PreferNoSchedule taints that the pod does not tolerate."""


@dataclass(slots=True)
class Place:
    """A node and its pods."""

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
    """All nodes, all pods, and the Pending pods."""

    def __init__(self) -> None:
        self.places: dict[str, Place] = {}
        self.pods: dict[str, Pod] = {}
        self.pending: dict[str, int] = {}
        """Time in ms since which each Pending pod has waited, by its key."""
        self.buffers: Sequence[Pod] = ()
        """Pods that CapacityBuffers request capacity for; these pods do not exist."""
        self.add_moves: Callable[[Cluster], Cluster] = lambda cluster: cluster
        """Adds to a cluster what Ebb's plans know of surge moves."""

    def add_node(self, node: Node, now_ms: int) -> Pod:
        """Add a node with its agent; return the agent."""
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
        """Remove an empty node; return its remaining pods (the agent)."""
        removed = [pod for pod in self.pods.values() if pod.node == name]
        for pod in removed:
            del self.pods[pod.key]
        del self.places[name]
        return removed

    def replace_node(self, node: Node) -> None:
        """Replace a changed node."""
        place = self.places[node.name]
        place.node = node
        place.results.clear()

    def arrive(self, pod: Pod, now_ms: int) -> None:
        """Add a Pending pod."""
        self.pods[pod.key] = pod
        self.pending[pod.key] = now_ms

    def refuse(self, key: str) -> Pod:
        """Mark a Pending pod as unschedulable; return the changed pod."""
        pod = self.pods[key] = replace(self.pods[key], unschedulable=True)
        return pod

    def bind(self, pod: Pod, name: str) -> Pod:
        """Bind a Pending pod to a node; return the changed pod."""
        bound = replace(pod, node=name, unschedulable=False)
        self.pods[pod.key] = bound
        del self.pending[pod.key]
        self._take(bound, 1)
        self.places[name].pods[pod.key] = bound
        return bound

    def finish(self, key: str) -> Pod:
        """Remove a bound pod."""
        pod = self.pods.pop(key)
        self._take(pod, -1)
        del self.places[pod.node or ""].pods[key]
        return pod

    def delete(self, key: str) -> Pod:
        """Remove a pod, bound or Pending."""
        if self.pending.pop(key, None) is None:
            return self.finish(key)
        return self.pods.pop(key)

    def replace_pod(self, pod: Pod) -> None:
        """Replace a changed pod."""
        self.pods[pod.key] = pod
        if pod.node is not None and pod.key in self.places[pod.node].pods:
            self.places[pod.node].pods[pod.key] = pod

    def evict(self, key: str, now_ms: int) -> Pod:
        """Unbind a pod, so that it is Pending again; return the changed pod."""
        waiting = replace(self.finish(key), node=None)
        self.arrive(waiting, now_ms)
        return waiting

    def snapshot(self) -> Cluster:
        """Return the cluster as the controller sees it."""
        found = Cluster.of((place.node for place in self.places.values()), self.pods.values())
        return self.add_moves(found)

    def marked(self) -> Iterable[Place]:
        """Return the marked nodes."""
        return (place for place in self.places.values() if mark_of(place.node.labels) is not None)

    def _take(self, pod: Pod, sign: int) -> None:
        place, requests = self.places[pod.node or ""], pod.requests
        place.results.clear()
        place.free = place.free - requests if sign > 0 else place.free + requests
        amount = scored_requests(requests)
        place.used = place.used.plus(amount) if sign > 0 else place.used.minus(amount)
