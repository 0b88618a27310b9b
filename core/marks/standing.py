"""Marks as they stand on the nodes of a cluster, read once a look."""

from collections.abc import Iterable
from typing import NamedTuple

from core.marks.mark import Mark, mark_of, mark_order
from core.model.node import Node


class Standing(NamedTuple):
    """A node's mark."""

    mark: Mark
    since: int
    """Unix seconds, as it is written."""
    order: int
    """Place in the plan that marked it."""


def standing_marks(nodes: Iterable[Node], taint_key: str) -> dict[str, Standing]:
    """Return the marks by name of the node, in the order of *nodes*."""
    marked = ((node, mark_of(node.labels)) for node in nodes)
    return {
        node.name: Standing(mark, *mark_order(node, taint_key)) for node, mark in marked if mark
    }
