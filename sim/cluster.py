"""The simulated cluster's state: nodes, pods, and sums a node; no behaviour of its own."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from core.capacity.usable import NOTHING, Amount
from core.marks.mark import mark_of
from core.model.cluster import Cluster
from core.model.constraints import NodeConstraints, Toleration
from core.model.node import Node
from core.model.pod import Pod
from core.model.resources import Resources
from core.model.workload import DAEMON_SET

GPU: Final = "gpu-milli"
"""Thousandths of a GPU, as an integer extended resource."""
NONZERO_CPU_MILLIS: Final = 100
NONZERO_MEMORY_BYTES: Final = 200 * 1024**2
"""What kube-scheduler's scores assume of a pod that asks for nothing."""
DAEMON_REQUESTS: Final = Resources(200, 512 * 1024**2, 0, 1)
"""One agent runs on every node."""
EVERYWHERE: Final = NodeConstraints(tolerations=(Toleration(operator="Exists"),))
"""As agents of nodes do, it tolerates every taint."""


def counted(asked: Resources) -> Amount:
    """Return what kube-scheduler's scores count of a pod's requests."""
    return Amount(
        asked.cpu_millis or NONZERO_CPU_MILLIS, asked.memory_bytes or NONZERO_MEMORY_BYTES
    )


class Found(NamedTuple):
    """What kube-scheduler finds of a node that admits a pod."""

    score: int
    """Of its plugins that look at this node alone."""
    disliked: int
    """Taints that the pod would rather not have."""


@dataclass(slots=True)
class Place:
    """A node with what is on it."""

    node: Node
    created_ms: int
    free: Resources
    used: Amount = NOTHING
    """As scores count: with the assumed minimum for pods that ask for nothing."""
    pods: dict[str, Pod] = field(default_factory=dict)
    """Those that keep it from being empty, by key."""
    found: dict[object, Found | None] = field(default_factory=dict)
    """What a scheduler has found for pods of a kind (by what stands for it there) of this node as
    it is now; None: not admitted."""


class State:
    """All places, all pods, and who waits."""

    def __init__(self) -> None:
        self.places: dict[str, Place] = {}
        self.pods: dict[str, Pod] = {}
        self.pending: dict[str, int] = {}
        """Pods without a node, and since when they wait (ms)."""
        self.buffers: Sequence[Pod] = ()
        """What CapacityBuffers ask for room for; no such pods are there."""

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
            placing=EVERYWHERE,
            daemon=True,
        )
        self.pods[agent.key] = agent
        self._take(agent, 1)
        return agent

    def remove_node(self, name: str) -> list[Pod]:
        """Remove an empty node; return what went with it."""
        gone = [pod for pod in self.pods.values() if pod.node == name]
        for pod in gone:
            del self.pods[pod.key]
        del self.places[name]
        return gone

    def replace_node(self, node: Node) -> None:
        """Store a changed node."""
        place = self.places[node.name]
        place.node = node
        place.found.clear()

    def arrive(self, pod: Pod, now_ms: int) -> None:
        """Add a Pending pod."""
        self.pods[pod.key] = pod
        self.pending[pod.key] = now_ms

    def refuse(self, key: str) -> Pod:
        """Note that the scheduler found no node for a waiting pod; return it as it is now."""
        pod = self.pods[key] = replace(self.pods[key], unschedulable=True)
        return pod

    def bind(self, pod: Pod, name: str) -> Pod:
        """Bind a waiting pod; return it as it is now."""
        bound = replace(pod, node=name, unschedulable=False)
        self.pods[pod.key] = bound
        del self.pending[pod.key]
        self._take(bound, 1)
        self.places[name].pods[pod.key] = bound
        return bound

    def finish(self, key: str) -> Pod:
        """Let a bound pod end."""
        pod = self.pods.pop(key)
        self._take(pod, -1)
        del self.places[pod.node or ""].pods[key]
        return pod

    def delete(self, key: str) -> Pod:
        """Take away a pod, bound or waiting."""
        if self.pending.pop(key, None) is None:
            return self.finish(key)
        return self.pods.pop(key)

    def replace_pod(self, pod: Pod) -> None:
        """Store what was written on a pod."""
        self.pods[pod.key] = pod
        if pod.node is not None and pod.key in self.places[pod.node].pods:
            self.places[pod.node].pods[pod.key] = pod

    def evict(self, key: str, now_ms: int) -> Pod:
        """Take a bound pod off its node; it waits again. Return it as it is now."""
        waiting = replace(self.finish(key), node=None)
        self.arrive(waiting, now_ms)
        return waiting

    def snapshot(self) -> Cluster:
        """Return the cluster as the engine sees it."""
        return Cluster.of((place.node for place in self.places.values()), self.pods.values())

    def marked(self) -> Iterable[Place]:
        """Yield the places that carry a mark."""
        return (place for place in self.places.values() if mark_of(place.node.labels) is not None)

    def _take(self, pod: Pod, sign: int) -> None:
        place, asked = self.places[pod.node or ""], pod.requests
        place.found.clear()
        place.free = place.free - asked if sign > 0 else place.free + asked
        amount = counted(asked)
        place.used = place.used.plus(amount) if sign > 0 else place.used.minus(amount)
