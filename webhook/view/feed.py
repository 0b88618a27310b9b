"""From watches to the cluster view."""

import logging
from collections.abc import Mapping
from typing import Any

from core.edge.clock import Clock
from core.edge.kube.client import BUDGETS, CLAIMS, CSI_NODES, NODES, PODS, VOLUMES
from core.edge.kube.wire import Object
from core.edge.logs import fields
from core.edge.metrics import Metrics
from core.model.node import Node
from core.model.pod import Pod
from core.model.volumes import CsiNode, Volume
from webhook.view.view import ClusterView

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
        self._counted = 0
        metrics.unreadable_objects.labels(resource).set(0)

    def replaced(self, objects: list[Object]) -> None:
        """Take the whole list: what is not in it is gone."""
        self._known.clear()
        before = dict(self._unreadable)
        self._unreadable.clear()
        for found in objects:
            self._take(found, before)
        self._count()

    def changed(self, obj: Object) -> None:
        """Take one."""
        self._take(obj, self._unreadable)
        self._count()

    def _take(self, obj: Object, before: Mapping[str, str]) -> None:
        if isinstance(obj, Node | Volume | CsiNode):
            key = obj.name
        else:
            key = f"{obj.namespace}/{obj.name}"
        if isinstance(obj, Pod):
            self._view.take_pod(obj)
        else:
            self._known[key] = obj
        if isinstance(obj, Node | Pod) and obj.unreadable:
            self._note(key, obj.unreadable, before)
        else:
            self._unreadable.pop(key, None)

    def deleted(self, key: str) -> None:
        """Forget one."""
        self._known.pop(key, None)
        self._unreadable.pop(key, None)
        self._count()

    def alive(self) -> None:
        """Note that the view is up to date."""
        self._view.alive(self._resource, self._clock.monotonic_seconds())

    def refused(self, key: str, reason: str) -> None:
        """Count an object that could not be read, and that is judged as not known."""
        self._known.pop(key, None)
        self._note(key, reason, self._unreadable)
        self._count()

    def _note(self, key: str, reason: str, before: Mapping[str, str]) -> None:
        """Keep why an object cannot be read; it is logged when it is news."""
        if before.get(key) != reason:
            log.warning("cannot read", extra=fields(resource=self._resource, reason=reason))
            self._metrics.refused_objects.labels(self._resource).inc()
        self._unreadable[key] = reason

    def _count(self) -> None:
        if len(self._unreadable) != self._counted:
            self._counted = len(self._unreadable)
            self._metrics.unreadable_objects.labels(self._resource).set(self._counted)

    def restarted(self, reason: str) -> None:
        """Note and count a watch that ended early."""
        self._view.lost(self._resource)
        self._metrics.watch_restarts.labels(self._resource, reason).inc()
