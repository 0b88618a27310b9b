"""From watches to the cluster view."""

import logging
from typing import Any

from core.edge.clock import Clock
from core.edge.kube.client import BUDGETS, CLAIMS, CSI_NODES, NODES, PODS, VOLUMES
from core.edge.kube.wire import Object
from core.edge.logs import fields
from core.edge.metrics import Metrics
from core.model import Node, Pod
from core.volumes import CsiNode, Volume
from webhook.view import ClusterView

log = logging.getLogger("ebb.webhook")


class Feed:
    """One resource into the view."""

    def __init__(self, view: ClusterView, resource: str, clock: Clock, metrics: Metrics) -> None:
        self._view, self._resource = view, resource
        self._clock, self._metrics = clock, metrics
        known: dict[str, dict[str, Any]] = {
            NODES: view.nodes,
            PODS: view.pods,
            BUDGETS: view.budgets,
            CLAIMS: view.claims,
            VOLUMES: view.volumes,
            CSI_NODES: view.csi_nodes,
        }
        self._known = known[resource]
        self._unreadable = view.unreadable[resource]

    def replaced(self, objects: list[Object]) -> None:
        """Take the whole list: what is not in it is gone."""
        self._known.clear()
        self._unreadable.clear()
        for found in objects:
            self.changed(found)

    def changed(self, obj: Object) -> None:
        """Take one."""
        if isinstance(obj, Node | Volume | CsiNode):
            key = obj.name
        else:
            key = f"{obj.namespace}/{obj.name}"
        if isinstance(obj, Pod):
            self._view.take_pod(obj)
        else:
            self._known[key] = obj
        self._unreadable.pop(key, None)

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
        """Note and count a watch that ended early."""
        self._view.lost(self._resource)
        self._metrics.watch_restarts.labels(self._resource, reason).inc()
