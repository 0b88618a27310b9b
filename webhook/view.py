"""The cluster as the watches tell it, ready to be judged."""

import asyncio

from core.model import Cluster, Node, Pod


class ClusterView:
    """Nodes and pods by name; a snapshot is one Cluster."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, Pod] = {}
        self.unreadable: dict[str, dict[str, str]] = {"nodes": {}, "pods": {}}
        """By resource and key: what could not be read, and why."""
        self.urgent = asyncio.Event()
        """Set when something has changed that cannot wait for the engine's interval."""
        self._news: dict[str, float] = {}

    def alive(self, resource: str, now: float) -> None:
        """Note that *resource* ("nodes", "pods") is up to date at *now* (monotonic seconds)."""
        self._news[resource] = now

    def why_stale(self, now: float, seconds_max: int) -> str | None:
        """Return why nothing must be decided on this view, or None."""
        for resource in ("nodes", "pods"):
            news = self._news.get(resource)
            if news is None:
                return f"{resource} have not been listed yet"
            for reason in self.unreadable[resource].values():
                # A pod that is not known would make its node look empty.
                return f"one of the {resource} could not be read: {reason}"
            if now - news > seconds_max:
                return f"no news of {resource} for {now - news:.0f} s"
        return None

    def snapshot(self) -> Cluster:
        """Return the cluster as it is known now."""
        return Cluster.of(self.nodes.values(), self.pods.values())
