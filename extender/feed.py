"""From watches to the view."""

import logging

from core.edge.clock import Clock
from core.edge.kube.client import NODES, PODS
from core.edge.logs import fields
from core.edge.metrics import Metrics
from core.model.node import Node
from core.model.pod import Pod
from extender.view import View

log = logging.getLogger("ebb.extender")


class _Feed:
    resource = ""

    def __init__(self, view: View, clock: Clock, metrics: Metrics) -> None:
        self._view, self._clock, self._metrics = view, clock, metrics

    def alive(self) -> None:
        self._view.alive(self.resource, self._clock.monotonic_seconds())

    def deleted(self, key: str) -> None:
        raise NotImplementedError

    def refused(self, key: str, reason: str) -> None:
        self._note(key, reason)
        self.deleted(key)

    def _note(self, key: str, reason: str) -> None:
        if reason:
            told = fields(resource=self.resource, key=key, reason=reason)
            log.warning("cannot read", extra=told)
            self._metrics.refused_objects.labels(self.resource).inc()

    def restarted(self, reason: str) -> None:
        self._metrics.watch_restarts.labels(self.resource, reason).inc()


class NodeFeed(_Feed):
    """Nodes into the view."""

    resource = NODES

    def replaced(self, objects: list[Node]) -> None:
        """Take the whole list."""
        self._view.replace_nodes(objects)

    def changed(self, obj: Node) -> None:
        """Take one."""
        self._note(obj.name, obj.unreadable)
        self._view.apply_node(obj)

    def deleted(self, key: str) -> None:
        """Forget one."""
        self._view.delete_node(key)


class PodFeed(_Feed):
    """Pods into the view."""

    resource = PODS

    def replaced(self, objects: list[Pod]) -> None:
        """Take the whole list."""
        self._view.replace_pods(objects)

    def changed(self, obj: Pod) -> None:
        """Take one."""
        self._note(obj.key, obj.unreadable)
        self._view.apply_pod(obj)

    def deleted(self, key: str) -> None:
        """Forget one."""
        self._view.delete_pod(key)
