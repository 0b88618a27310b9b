"""What the pods of each node ask for together, as far as scores go by it."""

from collections.abc import Mapping
from typing import Final

from core.model.pod import Pod
from core.model.resources import Resources


class NodeRequests:
    """A sum that changes by what one pod names, however much others of its node do."""

    __slots__ = ("cpu_millis", "devices", "memory_bytes", "pods")

    def __init__(self) -> None:
        self.cpu_millis = self.memory_bytes = self.pods = 0
        self.devices: dict[str, int] = {}

    def add(self, requests: Resources, sign: int) -> None:
        """Count a pod, or take it away."""
        self.cpu_millis += sign * requests.cpu_millis
        self.memory_bytes += sign * requests.memory_bytes
        self.pods += sign
        for name, many in requests.devices.items():
            self.devices[name] = left = self.devices.get(name, 0) + sign * many
            if not left:
                del self.devices[name]


NOTHING: Final = NodeRequests()


class OnNodes:
    """By node; where no pods are there is nothing."""

    def __init__(self) -> None:
        self._on: dict[str, NodeRequests] = {}

    def listed(self, pods: Mapping[str, Pod]) -> None:
        """Take a whole list."""
        self._on = {}
        for pod in pods.values():
            self.add(pod, 1)

    def add(self, pod: Pod, sign: int) -> None:
        """Count a pod, or take it away."""
        if pod.node is not None:
            asked = self._on.setdefault(pod.node, NodeRequests())
            asked.add(pod.requests, sign)
            if not asked.pods:
                del self._on[pod.node]

    def of(self, name: str) -> NodeRequests:
        """Return what is asked for on a node."""
        return self._on.get(name, NOTHING)
