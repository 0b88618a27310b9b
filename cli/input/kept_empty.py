"""The empty nodes that Ebb keeps: why, until when, and at what price."""

from collections.abc import Iterable
from fractions import Fraction
from typing import NamedTuple

from cli.input.mark_status import MarkStatus, Protection
from core.config.settings import Config
from core.marks.mark import protection_of, reserved_for, seconds_of
from core.model.cluster import Cluster


class KeptEmpty(NamedTuple):
    """An empty node that no autoscaler may remove, because Ebb protects it from scale-down."""

    node: str
    why: str
    until: int | None
    """Time at which the protection ends, in Unix seconds; None if it has no fixed end."""
    price: Fraction | None
    """Price of the node for an hour; None if no prices are configured."""


def kept_empty(
    statuses: Iterable[MarkStatus], cluster: Cluster, config: Config
) -> tuple[KeptEmpty, ...]:
    """Return the empty nodes that Ebb keeps, by name; *statuses*: of the nodes to look at."""
    nodes = {node.name: node for node in cluster.nodes}
    kept = []
    for status in statuses:
        ours = status.protection not in {Protection.NONE, Protection.OTHERS}
        if ours and status.empty and not status.leaving:
            node = nodes[status.node]
            record = protection_of(node)
            kept.append(
                KeptEmpty(
                    node.name,
                    reserved_for(node) or f"protected {status.protection.value}",
                    seconds_of(record.until) if record else None,
                    config.price_of(node.labels) if config.prices else None,
                )
            )
    return tuple(sorted(kept))
