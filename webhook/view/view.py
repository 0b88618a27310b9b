"""The cluster as the watches tell it, ready to be judged."""

import asyncio
import math
from collections.abc import Callable
from functools import partial
from typing import Final

from core.edge.kube.client import BUDGETS, CLAIMS, CSI_NODES, NODES, PODS, VOLUMES
from core.engine.waiting import cannot_wait, waits
from core.marks.mark import mark_of
from core.marks.optouts import guarded_by_us
from core.model.cluster import Cluster, DisruptionBudget
from core.model.node import Node
from core.model.pod import Pod
from core.model.volumes import Claim, CsiNode, Storage, Volume, cluster_of

RESOURCES = (NODES, PODS, BUDGETS, CLAIMS, VOLUMES, CSI_NODES)
"""What is watched; as long as one of them is not up to date, nothing is decided."""
TURNED_MAX: Final = 4096
"""Pods that turned unschedulable and were not looked at yet; others wait for the interval."""


class ClusterView:
    """Nodes, pods and budgets by name; a snapshot is one Cluster."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, Pod] = {}
        self.budgets: dict[str, DisruptionBudget] = {}
        self.claims: dict[str, Claim] = {}
        self.volumes: dict[str, Volume] = {}
        self.csi_nodes: dict[str, CsiNode] = {}
        self.unreadable: dict[str, dict[str, str]] = {resource: {} for resource in RESOURCES}
        """By resource and key: what cannot be read, and why. It keeps its own node."""
        self.urgent = asyncio.Event()
        """Set when something has changed that cannot wait for the engine's interval."""
        self.turned = asyncio.Event()
        """Set when pods have turned unschedulable; whether they can wait is asked of `turns`."""
        self._turned: dict[str, Pod] = {}
        self._news: dict[str, float] = {}
        self._lost: set[str] = set()

    def alive(self, resource: str, now: float) -> None:
        """Note that *resource* is up to date at *now* (monotonic seconds)."""
        self._news[resource] = now
        self._lost.discard(resource)

    def lost(self, resource: str) -> None:
        """Note that the watch of *resource* has broken off: what comes next is not known."""
        self._lost.add(resource)

    def age_seconds(self, resource: str, now: float) -> float:
        """Return how long ago there was news of *resource*; infinite before there was any."""
        return now - self._news.get(resource, -math.inf)

    def why_stale(self, now: float, seconds_max: int) -> str | None:
        """Return why nothing must be decided on this view, or None."""
        for resource in RESOURCES:
            news = self._news.get(resource)
            if news is None:
                return f"{resource} have not been listed yet"
            if resource in self._lost:
                return f"the watch of {resource} broke off and has told nothing new yet"
            if now - news > seconds_max:
                return f"no news of {resource} for {now - news:.0f} s"
        return None

    def take_pod(self, pod: Pod) -> None:
        """Take a pod; if it cannot wait for the engine's interval, say so."""
        before = self.pods.get(pod.key)
        self.pods[pod.key] = pod
        if waits(pod) and not (before and waits(before)) and len(self._turned) < TURNED_MAX:
            self._turned[pod.key] = pod  # a marked node may have to be released for it
            self.turned.set()
        arrived = pod.node is not None and not (before and before.node)
        if arrived and not pod.stays_with_node and self._handed_over(pod.node):
            self.urgent.set()  # the guard must be put back before the autoscaler comes

    def _handed_over(self, name: str | None) -> bool:
        node = self.nodes.get(name or "")
        return node is not None and mark_of(node.labels) is not None and not guarded_by_us(node)

    def turns(self, taint_key: str) -> Callable[[], bool]:
        """Take the pods that have turned unschedulable since the last time.

        The call says, in any thread, whether one of them cannot wait for the engine's interval.
        """
        turned, self._turned = list(self._turned.values()), {}
        self.turned.clear()
        snapshot = self.snapshot()
        return lambda: bool(turned) and cannot_wait(snapshot(), turned, taint_key)

    def snapshot(self) -> Callable[[], Cluster]:
        """Hold on to what is known now; the call makes a Cluster of it, in any thread.

        With 150,000 pods that takes a good part of a second: too long for a loop that answers
        reviews meanwhile.
        """
        storage = Storage(dict(self.claims), dict(self.volumes), dict(self.csi_nodes))
        nodes, pods = list(self.nodes.values()), list(self.pods.values())
        return partial(cluster_of, nodes, pods, list(self.budgets.values()), storage)
