"""Sums of the requests on each node, as far as scores use them."""

from collections.abc import Mapping
from typing import Final

from core.model.pod import Pod
from core.model.resources import Resources


class NodeRequests:
    """Sum of the requests on a node; adding or removing a pod does not visit the other pods."""

    __slots__ = ("cpu_millis", "devices", "memory_bytes", "pods")

    def __init__(self) -> None:
        self.cpu_millis = self.memory_bytes = self.pods = 0
        self.devices: dict[str, int] = {}

    def add(self, requests: Resources, sign: int) -> None:
        """Add a pod (*sign* 1) or remove it (*sign* -1)."""
        self.cpu_millis += sign * requests.cpu_millis
        self.memory_bytes += sign * requests.memory_bytes
        self.pods += sign
        for name, amount in requests.devices.items():
            self.devices[name] = total = self.devices.get(name, 0) + sign * amount
            if not total:
                del self.devices[name]


NO_REQUESTS: Final = NodeRequests()


class RequestsByNode:
    """Requests by node; nodes without pods have no entry."""

    def __init__(self) -> None:
        self._by_node: dict[str, NodeRequests] = {}

    def replace_all(self, pods: Mapping[str, Pod]) -> None:
        """Replace all pods."""
        self._by_node = {}
        for pod in pods.values():
            self.add(pod, 1)

    def add(self, pod: Pod, sign: int) -> None:
        """Add a pod (*sign* 1) or remove it (*sign* -1)."""
        if pod.node is not None:
            requests = self._by_node.setdefault(pod.node, NodeRequests())
            requests.add(pod.requests, sign)
            if not requests.pods:
                del self._by_node[pod.node]

    def of(self, name: str) -> NodeRequests:
        """Return the requests on a node."""
        return self._by_node.get(name, NO_REQUESTS)
