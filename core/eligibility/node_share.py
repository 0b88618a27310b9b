"""Bound how many pods Ebb's moves and evictions place on one node within a window; pure.

A kubelet may report any capacity. Without this bound, a node that claims room for all pods of a
cluster would get them within a minute, with their data and their credentials.
"""

from collections import Counter
from statistics import median_high
from typing import Final

from core.marks.mark import mark_of
from core.model.cluster import Cluster
from core.model.node_lifecycle import why_leaving
from core.model.now import Now
from core.model.pod import KEEPERS

WINDOW_SECONDS: Final = 600
"""Length of the window; `surge.minPodAge` by default, so pods of a rollout wait as long anyway."""
NODE_SHARE_MIN: Final = 4
"""Number of pods that every node may get within a window."""
NODE_SHARE_PART: Final = 2
"""A node may get half of the pods that the typical node has.

The claims of nodes do not count, and the pods on one node hardly change the median of all. A node
that fills with the pods of a removed node has room for about half of a node, so it is not slowed.
"""


class NodeShares:
    """The numbers of pods that nodes have got within the last window.

    Pods of ReplicaSets and StatefulSets count, whoever caused them: nothing tells the replacement
    of a pod from others, and kube-scheduler may choose another node than the plan. Nodes that are
    new do not count: they fill with pods that were Pending.
    """

    def __init__(self, cluster: Cluster, now: Now) -> None:
        held: Counter[str] = Counter()
        self._got: Counter[str] = Counter()
        since = now.seconds - WINDOW_SECONDS
        for pod in cluster.pods:
            if pod.node is not None and pod.owner_kind in KEEPERS:
                held[pod.node] += 1
                if (pod.created_seconds or 0) > since:
                    self._got[pod.node] += 1
        typical = median_high(held.values()) if held else 0
        self.share = max(NODE_SHARE_MIN, -(-typical // NODE_SHARE_PART))
        """Maximum number of pods that a node may get within a window."""
        self._full = sorted(
            node.name
            for node in cluster.nodes
            if self._got[node.name] >= self.share
            and not node.unschedulable
            and mark_of(node.labels) is None
            and why_leaving(node) is None
            and (node.created_seconds or 0) <= since - WINDOW_SECONDS
        )

    def take(self, name: str) -> None:
        """Count a pod that will be placed on a node."""
        self._got[name] += 1

    def why_not(self, place: str) -> str | None:
        """Return why a pod with this place in the plan may not be moved now; None if it may.

        Once a node has got its share, no pod is moved: kube-scheduler could choose this node for
        any of them.
        """
        name = place if self._got[place] >= self.share else next(iter(self._full), None)
        if name is None:
            return None
        minutes = WINDOW_SECONDS // 60
        return f"node {name} has got {self._got[name]} pods within {minutes} minutes"
