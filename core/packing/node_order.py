"""The ground that pods are packed on: the nodes in first-fit order, and what is used on them.

Ebb's own taint is set aside here, once for all: a node that must stay is released anyway, so its
mark keeps no pod from it. All ids of nodes are places in `nodes`.
"""

from collections.abc import Collection, Mapping, Sequence
from copy import copy
from typing import Final

from core.marks.taints import without_our_taint
from core.model.cluster import Cluster
from core.model.node import Node
from core.model.resources import Resources

SHARE_SCALE: Final = 2**40
"""Shares are compared as whole parts of this; finer differences count as ties."""


class NodeOrder:
    """Nodes fullest first by dominant share of their own allocatable, then by name."""

    def __init__(
        self,
        cluster: Cluster,
        taint_key: str,
        closed: Collection[str] = (),
        requests: Mapping[str, Resources] | None = None,
    ) -> None:
        """Order the nodes; those named in *closed* take no pods.

        *requests* are those on each node, None: they are summed up.
        """
        self.unschedulable_nodes = frozenset(closed)
        """Names of nodes that take no pods."""
        used = cluster.used() if requests is None else requests
        self.nodes: list[Node] = sorted(
            (without_our_taint(node, taint_key) for node in cluster.nodes),
            key=lambda node: (-dominant_share(used[node.name], node.allocatable), node.name),
        )
        self._number(used)

    def _number(self, used: Mapping[str, Resources]) -> None:
        self.ids = {node.name: number for number, node in enumerate(self.nodes)}
        self.used: list[Resources] = [used[node.name] for node in self.nodes]

    def with_last(
        self, last: Sequence[str], closed: Collection[str], instead: Mapping[str, Node]
    ) -> "NodeOrder":
        """Return the ground with the nodes named *last* after all others, and others *closed*.

        *instead*: by name, nodes that stand there in place of those of before.
        """
        found = copy(self)
        found.unschedulable_nodes = frozenset(closed)
        aside = frozenset(last)
        found.nodes = [node for node in self.nodes if node.name not in aside]
        found.nodes += (self.nodes[self.ids[name]] for name in last)
        found.nodes = [instead.get(node.name, node) for node in found.nodes]
        found._number({node.name: used for node, used in zip(self.nodes, self.used, strict=True)})  # noqa: SLF001 of this class
        return found

    def share(self, node: int) -> int:
        """Return the dominant share of the node's requests, in parts of SHARE_SCALE."""
        return dominant_share(self.used[node], self.nodes[node].allocatable)


def dominant_share(requests: Resources, whole: Resources) -> int:
    """Return the largest share of *whole* in CPU, memory or an extended resource.

    In parts of SHARE_SCALE, rounded down; of what *whole* does not have, nothing counts.
    """
    share = max(
        requests.cpu_millis * SHARE_SCALE // max(whole.cpu_millis, 1),
        requests.memory_bytes * SHARE_SCALE // max(whole.memory_bytes, 1),
    )
    if requests.extended:
        have = dict(whole.extended)
        for name, amount in requests.extended:
            if have.get(name):
                share = max(share, amount * SHARE_SCALE // have[name])
    return share


def share_of_room(requests: Resources, whole: Resources) -> int:
    """Return the largest share of *whole* in anything that a pod takes room by.

    As `dominant_share`, by which pods are ordered, and in ephemeral storage and numbers of pods:
    what bounds how much somebody is given must see those too, since they fill nodes as well.
    """
    share = dominant_share(requests, whole)
    for asked, have in (
        (requests.ephemeral_bytes, whole.ephemeral_bytes),
        (requests.pods, whole.pods),
    ):
        if have:
            share = max(share, asked * SHARE_SCALE // have)
    return share
