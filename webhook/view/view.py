"""The cluster as the watches tell it, ready to be judged."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from core.edge.decode.inventory import Inventory
from core.edge.decode.kinds import PODS, AnyKind
from core.edge.kube.news import News
from core.engine.waiting import cannot_wait, waits
from core.marks.mark import handed_over
from core.model.leaving import being_deleted
from core.model.node import Node
from core.model.pod import Pod

TURNED_MAX: Final = 4096
"""Pods that turned unschedulable and were not looked at yet; others wait for the interval."""


class ClusterView(Inventory):
    """Everything that is known, how new it is, and what in it cannot wait."""

    def __init__(self) -> None:
        super().__init__()
        self.news = News()
        self.urgent = asyncio.Event()
        """Set when something has changed that cannot wait for the engine's interval."""
        self.turned = asyncio.Event()
        """Set when pods have turned unschedulable; whether they can wait is asked of `turns`."""
        self._turned: dict[str, Pod] = {}

    def relisted(self, kind: AnyKind) -> None:
        """Look at all pods as if they had just come."""
        if kind is PODS:
            for key, pod in self.pods.items():
                self.became(kind, key, None, pod)

    def became(self, kind: AnyKind, key: str, before: Any, after: Any) -> None:  # noqa: ANN401 as inherited
        """Note a pod that cannot wait for the engine's interval."""
        if kind is not PODS or after is None:
            return
        if waits(after) and not (before and waits(before)) and len(self._turned) < TURNED_MAX:
            self._turned[key] = after  # a marked node may have to be released for it
            self.turned.set()
        node = self.nodes.get(after.node) if after.node and not (before and before.node) else None
        if node is not None and after.occupies and _may_be_taken(node):
            self.urgent.set()  # the guard must be put back before the autoscaler comes

    def turns(self, taint_key: str) -> Callable[[], bool]:
        """Take the pods that have turned unschedulable since the last time.

        The call says, in any thread, whether one of them cannot wait for the engine's interval.
        """
        turned, self._turned = list(self._turned.values()), {}
        self.turned.clear()
        snapshot = self.snapshot()
        return lambda: bool(turned) and cannot_wait(snapshot(), turned, taint_key)


def _may_be_taken(node: Node) -> bool:
    """Say whether an autoscaler may take the node, and is not deleting it already.

    Nothing is written on one that it is deleting, so that no pass changes anything there.
    """
    return handed_over(node) and not being_deleted(node)
