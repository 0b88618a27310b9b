"""Keep a cluster in memory whose nodes only the controller changes, and whose pods do not move."""

from dataclasses import replace

from core.marks.mark import mark_of
from core.marks.taints import desired_taints
from core.marks.wellknown import TAINT_KEY
from core.model.cluster import Cluster
from core.model.node import Node
from core.writes.write import Write, applied


class Standing:
    """Nodes of an API server in memory; implements objects.Objects."""

    def __init__(self, cluster: Cluster, *, webhook_up: bool = True) -> None:
        self.cluster, self._webhook_up = cluster, webhook_up
        self._nodes = {node.name: node for node in cluster.nodes}
        self.now = 0
        self.turns: list[tuple[int, str, bool]] = []
        """Time, node, and whether it was marked (True) or released."""

    async def get(self, key: str) -> tuple[Node, str]:
        return self._nodes[key], "1"

    async def write(self, write: Write[Node], version: str) -> tuple[Node, str]:  # noqa: ARG002
        after = applied(write, self._nodes[write.key])
        if self._webhook_up and write.taints is None:
            after = replace(after, taints=desired_taints(after, TAINT_KEY))
        return self._store(after)

    def _store(self, node: Node) -> tuple[Node, str]:
        before, after = (mark_of(one.labels) is not None for one in (self._nodes[node.name], node))
        if before != after:
            self.turns.append((self.now, node.name, after))
        self._nodes[node.name] = node
        self.cluster = replace(
            self.cluster, nodes=tuple(self._nodes[one.name] for one in self.cluster.nodes)
        )
        return node, "1"
