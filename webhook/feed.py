"""From watches to the cluster view."""

from core.edge.clock import Clock
from core.edge.kube.client import NODES
from core.edge.metrics import Metrics
from core.model import Node, Pod
from webhook.view import ClusterView


class Feed:
    """One resource, nodes or pods, into the view."""

    def __init__(self, view: ClusterView, resource: str, clock: Clock, metrics: Metrics) -> None:
        self._view, self._resource = view, resource
        self._clock, self._metrics = clock, metrics
        self._known: dict[str, Node] | dict[str, Pod] = (
            view.nodes if resource == NODES else view.pods
        )

    def replaced(self, objects: list[Node | Pod]) -> None:
        """Take the whole list: what is not in it is gone."""
        self._known.clear()
        self._view.unreadable.pop(self._resource, None)
        for found in objects:
            self.changed(found)

    def changed(self, obj: Node | Pod) -> None:
        """Take one."""
        if isinstance(obj, Node):
            self._view.nodes[obj.name] = obj
        else:
            self._view.pods[obj.key] = obj

    def deleted(self, key: str) -> None:
        """Forget one."""
        self._known.pop(key, None)

    def alive(self) -> None:
        """Note that the view is up to date."""
        self._view.alive(self._resource, self._clock.monotonic_seconds())

    def refused(self, reason: str) -> None:
        """Count an object that could not be read; the view is not whole until the next list."""
        self._view.unreadable[self._resource] = reason
        self._metrics.refused_objects.labels(self._resource).inc()

    def restarted(self, reason: str) -> None:
        """Count a watch that ended early."""
        self._metrics.watch_restarts.labels(self._resource, reason).inc()
