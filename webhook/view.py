"""The cluster as the watches tell it, ready to be judged."""

import asyncio

from core.edge.kube.client import BUDGETS, NODES, PODS
from core.model import Cluster, DisruptionBudget, Node, Pod

RESOURCES = (NODES, PODS, BUDGETS)
"""What is watched; as long as one of them is not up to date, nothing is decided."""


class ClusterView:
    """Nodes, pods and budgets by name; a snapshot is one Cluster."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, Pod] = {}
        self.budgets: dict[str, DisruptionBudget] = {}
        self.unreadable: dict[str, dict[str, str]] = {resource: {} for resource in RESOURCES}
        """By resource and key: what could not be read, and why."""
        self.urgent = asyncio.Event()
        """Set when something has changed that cannot wait for the engine's interval."""
        self._news: dict[str, float] = {}
        self._lost: set[str] = set()

    def alive(self, resource: str, now: float) -> None:
        """Note that *resource* is up to date at *now* (monotonic seconds)."""
        self._news[resource] = now
        self._lost.discard(resource)

    def lost(self, resource: str) -> None:
        """Note that the watch of *resource* has broken off: what comes next is not known."""
        self._lost.add(resource)

    def why_stale(self, now: float, seconds_max: int) -> str | None:
        """Return why nothing must be decided on this view, or None."""
        for resource in RESOURCES:
            news = self._news.get(resource)
            if news is None:
                return f"{resource} have not been listed yet"
            if resource in self._lost:
                return f"the watch of {resource} broke off and has told nothing new yet"
            for reason in self.unreadable[resource].values():
                # A pod that is not known would make its node look empty.
                return f"one of the {resource} could not be read: {reason}"
            if now - news > seconds_max:
                return f"no news of {resource} for {now - news:.0f} s"
        return None

    def snapshot(self) -> Cluster:
        """Return the cluster as it is known now."""
        return Cluster.of(self.nodes.values(), self.pods.values(), self.budgets.values())
