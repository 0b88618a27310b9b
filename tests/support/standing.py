"""A cluster whose nodes only the engine's loop changes; its pods stay where they are."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from core.marks.keys import TAINT_KEY
from core.marks.mark import mark_of
from core.marks.taints import desired_taints
from core.model.cluster import Cluster
from core.model.node import Node, Taint
from tests.support.admission import merge


class Standing:
    """Nodes as an API server keeps them; implements webhook.engine.controller.NodeWriter."""

    def __init__(self, cluster: Cluster, *, webhook_up: bool = True) -> None:
        self.cluster, self._webhook_up = cluster, webhook_up
        self._nodes = {node.name: node for node in cluster.nodes}
        self.now = 0
        self.turns: list[tuple[int, str, bool]] = []
        """When which node was marked (true) or released."""

    async def get_node(self, name: str) -> tuple[Node, str]:
        return self._nodes[name], "1"

    async def patch_node(self, name: str, patch: Mapping[str, Any]) -> tuple[Node, str]:
        before, metadata = self._nodes[name], patch["metadata"]
        labels = merge(before.labels, metadata.get("labels", {}))
        annotations = merge(before.annotations, metadata["annotations"])
        after = replace(before, labels=labels, annotations=annotations)
        if self._webhook_up:
            after = replace(after, taints=desired_taints(after, TAINT_KEY))
        return self._store(after)

    async def replace_taints(
        self,
        name: str,
        taints: Sequence[Taint],
        resource_version: str,  # noqa: ARG002
    ) -> tuple[Node, str]:
        return self._store(replace(self._nodes[name], taints=tuple(taints)))

    def _store(self, node: Node) -> tuple[Node, str]:
        before, after = (mark_of(one.labels) is not None for one in (self._nodes[node.name], node))
        if before != after:
            self.turns.append((self.now, node.name, after))
        self._nodes[node.name] = node
        self.cluster = replace(
            self.cluster, nodes=tuple(self._nodes[one.name] for one in self.cluster.nodes)
        )
        return node, "1"
