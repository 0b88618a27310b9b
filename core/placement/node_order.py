"""Sort the nodes in first-fit order, with the requests of their pods.

Ebb's own taint is ignored. If a marked node turns out not to be removable, Ebb removes the mark
and so the taint. Until then the taint must not keep pods away from the node. Node ids are
positions in `nodes`.
"""

from collections.abc import Collection, Mapping, Sequence
from copy import copy
from typing import Final

from core.marks.taints import without_our_taint
from core.model.cluster import Cluster
from core.model.cost import cost_share
from core.model.node import Node
from core.model.resources import Resources

SHARE_SCALE: Final = 2**40
"""Denominator of shares; finer differences count as equal."""


class NodeOrder:
    """The nodes of a cluster in first-fit order: fullest first, then by name.

    The fullest node has the largest dominant share: the largest of the requested shares of its
    CPU, memory and extended resources.
    """

    def __init__(
        self,
        cluster: Cluster,
        taint_key: str,
        closed: Collection[str] = (),
        requests: Mapping[str, Resources] | None = None,
    ) -> None:
        """Sort the nodes of *cluster*, without Ebb's taint, which has the key *taint_key*.

        *closed*: names of the nodes that accept no pods. *requests*: total requests of the pods on
        each node, by node name; None: they are computed from *cluster*.
        """
        self.unschedulable_nodes = frozenset(closed)
        """Names of the nodes that accept no pods."""
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
        """Return a copy in which the nodes named in *last* are at the end, in the order of *last*.

        *closed*: names of the nodes that accept no pods in the copy. *instead*: Node objects that
        replace those of the same name.
        """
        order = copy(self)
        order.unschedulable_nodes = frozenset(closed)
        last_names = frozenset(last)
        order.nodes = [node for node in self.nodes if node.name not in last_names]
        order.nodes += (self.nodes[self.ids[name]] for name in last)
        order.nodes = [instead.get(node.name, node) for node in order.nodes]
        order._number({node.name: used for node, used in zip(self.nodes, self.used, strict=True)})  # noqa: SLF001 of this class
        return order

    def share(self, node: int) -> int:
        """Return the dominant share of the node, in units of 1 / SHARE_SCALE.

        It is the largest of the requested shares of its CPU, memory and extended resources.
        """
        return dominant_share(self.used[node], self.nodes[node].allocatable)

    def cost_share(self, node: int) -> int:
        """Return the share of the node's cost that is requested, in units of 1 / SHARE_SCALE.

        It is the cost of the requests over that of the allocatable resources (core.model.cost).
        """
        return cost_share(self.used[node], self.nodes[node].allocatable, SHARE_SCALE)


def dominant_share(requests: Resources, whole: Resources) -> int:
    """Return the largest requested share of *whole*: of its CPU, memory or extended resources.

    The share is in units of 1 / SHARE_SCALE, rounded down. Extended resources that *whole* lacks
    are ignored.
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
    """Return the largest requested share of *whole*, including ephemeral storage and pods.

    The share is in units of 1 / SHARE_SCALE. `dominant_share`, which orders pods, ignores storage
    and the number of pods. A limit on how much a user gets must include both, because they fill
    nodes as well.
    """
    share = dominant_share(requests, whole)
    for requested, have in (
        (requests.ephemeral_bytes, whole.ephemeral_bytes),
        (requests.pods, whole.pods),
    ):
        if have:
            share = max(share, requested * SHARE_SCALE // have)
    return share
