"""From watches to the cluster view."""

import logging

from core.edge.clock import Clock
from core.edge.kube.client import NODES
from core.edge.logs import fields
from core.edge.metrics import Metrics
from core.model import Node, Pod
from webhook.view import ClusterView

log = logging.getLogger("ebb.webhook")


class Feed:
    """One resource, nodes or pods, into the view."""

    def __init__(self, view: ClusterView, resource: str, clock: Clock, metrics: Metrics) -> None:
        self._view, self._resource = view, resource
        self._clock, self._metrics = clock, metrics
        self._known: dict[str, Node] | dict[str, Pod] = (
            view.nodes if resource == NODES else view.pods
        )
        self._unreadable = view.unreadable[resource]

    def replaced(self, objects: list[Node | Pod]) -> None:
        """Take the whole list: what is not in it is gone."""
        self._known.clear()
        self._unreadable.clear()
        for found in objects:
            self.changed(found)

    def changed(self, obj: Node | Pod) -> None:
        """Take one."""
        if isinstance(obj, Node):
            self._view.nodes[obj.name] = obj
            self._unreadable.pop(obj.name, None)
        else:
            self._view.pods[obj.key] = obj
            self._unreadable.pop(obj.key, None)

    def deleted(self, key: str) -> None:
        """Forget one."""
        self._known.pop(key, None)
        self._unreadable.pop(key, None)

    def alive(self) -> None:
        """Note that the view is up to date."""
        self._view.alive(self._resource, self._clock.monotonic_seconds())

    def refused(self, key: str, reason: str) -> None:
        """Count an object that could not be read; until it can or is gone, nothing is judged."""
        log.warning("cannot read", extra=fields(resource=self._resource, reason=reason))
        self._known.pop(key, None)
        self._unreadable[key] = reason
        self._metrics.refused_objects.labels(self._resource).inc()

    def restarted(self, reason: str) -> None:
        """Count a watch that ended early."""
        self._metrics.watch_restarts.labels(self._resource, reason).inc()
