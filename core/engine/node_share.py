"""Bound how many pods Ebb's moves and evictions place on one node within a window; pure.

A kubelet may report any capacity, and kube-scheduler believes it. Without this bound, a node that
claims room for all pods of a cluster would get them within a minute, with their data and
credentials. Only the replacements of pods that Ebb itself has moved or evicted count.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Final, NamedTuple

from core.marks.taints import without_our_taint
from core.model.node import Node, Taint
from core.model.now import Now
from core.model.pod import KEEPERS, Pod
from core.placement.matching import is_blocking, tolerates
from core.placement.reaches import bare

WINDOW_SECONDS: Final = 600
"""Length of the window; the default of `surge.minPodAge`, before which no pod is moved again."""
SHARE_MIN: Final = 4
"""Number of pods that every node may get within a window."""


class Placement(NamedTuple):
    """The node on which the replacement of a moved or evicted pod was first seen."""

    pod: str
    """UID of the replacement."""
    node: str
    at: int
    """Unix second at which it was first seen there."""


def first_placed(new: Iterable[Pod], now: Now) -> Placement | None:
    """Return the placement of the oldest of the *new* pods that has a node; None if none has."""
    found = [
        (pod.created_seconds or 0, Placement(pod.uid, pod.node, now.seconds))
        for pod in new
        if pod.node
    ]
    return min(found)[1] if found else None


def within_window(placed: Mapping[str, Placement], now: Now) -> dict[str, Placement]:
    """Return the placements of the last window; *placed*: by any key."""
    return {key: one for key, one in placed.items() if now.before(one.at + WINDOW_SECONDS)}


class _Group:
    """The nodes with the same taints."""

    def __init__(self) -> None:
        self.nodes, self.pods = 0, 0
        self.fullest = 0, ""
        """The largest number of placements on one of these nodes, and the node's name."""


class NodeShares:
    """Say which pods must not be replaced now, because a node could get more than its share.

    kube-scheduler may choose another node than the plan: it believes what a node claims. So each
    replaced pod without a node counts for every node whose taints it tolerates. The share comes
    from the pods that run in the cluster, and not from what nodes claim: as many as each node
    would have if there was one node less. Of nodes, only taints count, which kubelets cannot
    change; a kubelet could change labels for a moment.
    """

    def __init__(
        self,
        nodes: Iterable[Node],
        pods: Iterable[Pod],
        placed: Iterable[Placement],
        *,
        unplaced: int,
        taint_key: str,
    ) -> None:
        """Count the placements of the last window.

        *pods*: of the cluster, without those that are being replaced. *placed*: placements of the
        last window. *unplaced*: number of other replaced pods whose replacement has no node yet.
        *taint_key*: key of Ebb's taint, which is ignored.
        """
        self._nodes, self._pods, self._taint_key = nodes, pods, taint_key
        self._unplaced = unplaced
        self._placed: dict[str, list[int]] = {}
        """Unix seconds of the placements by node."""
        for one in placed:
            self._placed.setdefault(one.node, []).append(one.at)
        self._most = max(map(len, self._placed.values()), default=0)

    def take(self) -> None:
        """Count a pod that is replaced now."""
        self._unplaced += 1

    def why_not(self, pod: Pod) -> str | None:
        """Return why the pod must not be replaced now; None if it may be."""
        if self._most + self._unplaced < SHARE_MIN:
            return None
        tolerations = pod.node_constraints.tolerations
        groups = [
            group
            for taints, group in self._groups.items()
            if all(any(tolerates(one, taint) for one in tolerations) for taint in taints)
        ]
        others = max(1, sum(group.nodes for group in groups) - 1)
        share = max(SHARE_MIN, -(-sum(group.pods for group in groups) // others))
        got, name = max((group.fullest for group in groups), default=(0, ""))
        if got + self._unplaced < share:
            return None
        return (
            f"within {WINDOW_SECONDS // 60} minutes a node may get {share} replacements of pods: "
            f"node {name} has got {got}, and {self._unplaced} more have no node yet"
        )

    @cached_property
    def _groups(self) -> Mapping[tuple[Taint, ...], _Group]:
        held = Counter(
            pod.node
            for pod in self._pods
            if pod.owner_kind in KEEPERS and not pod.terminating and not pod.detached
        )
        groups: dict[tuple[Taint, ...], _Group] = {}
        for node in self._nodes:
            usual = bare(without_our_taint(node, self._taint_key))
            taints = tuple(replace(one, time_added="") for one in usual.taints if is_blocking(one))
            group = groups.setdefault(taints, _Group())
            group.nodes += 1
            group.pods += held[node.name]
            group.fullest = max(group.fullest, (self._got(node), node.name))
        return groups

    def _got(self, node: Node) -> int:
        # A node that was created since then shares only its name with the earlier one.
        since = node.created_seconds or 0
        return sum(at >= since for at in self._placed.get(node.name, ()))
