"""The cluster as the watches tell it, ready to be judged."""

import asyncio
from collections import Counter
from collections.abc import Callable, Container
from typing import Any, Final

from core.edge.decode.inventory import Inventory
from core.edge.decode.kinds import NODES, PODS, AnyKind
from core.edge.kube.freshness import Freshness
from core.engine.unschedulable import cannot_wait, is_unschedulable
from core.guards.emptiness import holds, holds_karpenters_alone
from core.marks.mark import is_released_to_autoscaler
from core.model.cluster import Cluster
from core.model.node import Node
from core.model.node_lifecycle import being_deleted
from core.model.now import Now
from core.model.pod import Pod
from core.model.read_options import ReadOptions

TURNED_MAX: Final = 4096
"""Pods that turned unschedulable and were not looked at yet; others wait for the interval."""

HURRIED_MAX: Final = 4096
"""Nodes and pods that hurry the engine before it waits for its interval once more."""


class ClusterView(Inventory):
    """Everything that is known, how new it is, and what in it cannot wait."""

    def __init__(self) -> None:
        super().__init__()
        self.news = Freshness()
        self.urgent = asyncio.Event()
        """Set when something has changed that cannot wait for the engine's interval."""
        self.turned = asyncio.Event()
        """Set when pods have turned unschedulable; whether they can wait is asked of `turns`."""
        self._turned: set[str] = set()
        self._occupants: Counter[str] = Counter()
        """By node the pods that may have come to stay, kept up to date: a walk over all pods for
        each node that is handed over would hold up the event loop."""
        self._others: dict[str, dict[str, Pod]] = {}
        """By node and key those that may have come to stay and count for Karpenter alone."""
        self.looked_at: int | None = None
        """Unix seconds of the last look; None: there was none."""
        self._hurried: set[str] = set()
        """Nodes by name and pods by uid that have hurried the engine since it last waited for its
        interval."""

    def rested(self) -> None:
        """Note that a pass begins because it is due: nothing could not wait."""
        self._hurried.clear()

    def occupied(self, name: str) -> bool:
        """Say whether a pod that does not end already keeps the node from being empty.

        For how long one that ends does, the look that a decision rests on has found out, and which
        pods need not be left in peace any more.
        """
        if name in self._occupants:
            return True
        node, others = self.nodes.get(name), self._others.get(name, {})
        now = Now.at(self.looked_at)
        return node is not None and any(holds(pod, node, now) for pod in others.values())

    def relisted(self, kind: AnyKind) -> None:
        """Look at all nodes, or pods, as if they had just come."""
        if kind is PODS:
            self._occupants.clear()
            self._others.clear()
        if kind in (NODES, PODS):
            for key, one in self.of(kind).items():
                self.became(kind, key, None, one)

    def became(self, kind: AnyKind, key: str, before: Any, after: Any) -> None:  # noqa: ANN401 as inherited
        """Note what cannot wait for the engine's interval."""
        if kind is PODS:
            self._note_other(before, after)
            self._note_place(after, _occupied_by(before), _occupied_by(after))
            if after and is_unschedulable(after) and not (before and is_unschedulable(before)):
                self._note_turned(key)
        elif kind is NODES and after and not (before and _may_be_taken(before)):
            self._hurry_once(after.name, after.name)

    def _note_place(self, pod: Pod | None, before: str | None, after: str | None) -> None:
        """Count a pod where it is now; *before* and *after* are names of nodes."""
        if before == after:
            return
        if before is not None:
            self._occupants[before] -= 1
            if not self._occupants[before]:
                del self._occupants[before]
        if pod is not None and after is not None:
            self._occupants[after] += 1
            self._hurry_once(pod.uid or pod.key, after)

    def _note_other(self, before: Pod | None, after: Pod | None) -> None:
        """Keep the pod, as it is now, if it is one of those that count for Karpenter alone."""
        if before is not None and (name := _other_on(before)) is not None:
            own = self._others.get(name, {})
            own.pop(before.key, None)
            if not own:
                self._others.pop(name, None)
        if after is not None and (name := _other_on(after)) is not None:
            self._others.setdefault(name, {})[after.key] = after
            if before is None or _other_on(before) != name:
                self._hurry_once(after.uid or after.key, name)

    def _hurry_once(self, who: str, name: str) -> None:
        """Have the guard put back before the autoscaler comes, where that is to be done.

        Once for each node, and for each pod by uid: a kubelet may say of its node that it is
        handed over, and of its pods that they have ended and have not, as often as it likes, and
        each time all others would wait. It cannot make pods with uids of their own.
        """
        node = self.nodes.get(name)
        occupied = node is not None and _may_be_taken(node) and self.occupied(name)
        if occupied and who not in self._hurried and len(self._hurried) < HURRIED_MAX:
            self._hurried.add(who)
            self.urgent.set()

    def _note_turned(self, key: str) -> None:
        if len(self._turned) < TURNED_MAX:
            self._turned.add(key)  # a marked node may have to be released for it
            self.turned.set()

    def turns(self, taint_key: str, options: ReadOptions) -> Callable[[], bool]:
        """Take the pods that have turned unschedulable since the last time.

        The call says, in any thread, whether one of them cannot wait for the engine's interval.
        *options*: as for `snapshot`.
        """
        turned, self._turned = self._turned, set()
        self.turned.clear()
        snapshot = self.snapshot(options)
        return lambda: bool(turned) and _cannot_wait(snapshot(), turned, taint_key)


def _cannot_wait(cluster: Cluster, turned: Container[str], taint_key: str) -> bool:
    """Ask it of the pods as the cluster has them: what can be judged is known there alone.

    *turned*: by namespace/name those that have turned unschedulable.
    """
    pods = [pod for pod in cluster.pods if is_unschedulable(pod) and pod.key in turned]
    return cannot_wait(cluster, pods, taint_key)


def _occupied_by(pod: Pod | None) -> str | None:
    """Return the name of the node that the pod stays on and keeps from being empty, or None."""
    return pod.node if pod is not None and pod.occupies and not pod.terminating else None


def _other_on(pod: Pod) -> str | None:
    """Return the name of the node that it keeps from being empty if that is Karpenter's alone."""
    return pod.node if not pod.terminating and holds_karpenters_alone(pod) else None


def _may_be_taken(node: Node) -> bool:
    """Say whether an autoscaler may take the node, and is not deleting it already.

    Nothing is written on one that it is deleting, so that no pass changes anything there.
    """
    return is_released_to_autoscaler(node) and not being_deleted(node)
