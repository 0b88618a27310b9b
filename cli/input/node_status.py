"""What of Ebb's own stands on a node, read from the node and its pods alone."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from core.config.budgets import Backoff
from core.config.settings import Config
from core.guards.emptiness import occupants
from core.marks.mark import (
    GUARD_WHILE_HELD,
    GUARD_WHILE_MARKED,
    Details,
    Mark,
    backoff_of,
    decode_details,
    guard_key,
    guard_of,
    mark_of,
    mark_order,
    marked_since,
    reserved_for,
)
from core.marks.taints import desired_taints
from core.model.cluster import Cluster
from core.model.node import Node
from core.model.node_lifecycle import being_deleted, is_terminating
from core.model.now import Now


class Guard(StrEnum):
    """Who keeps the autoscaler from the node, if anybody."""

    NONE = "none"
    MARKED = "ebb, while it is marked"
    HELD = "ebb, until it is handed over"
    RELEASED = "ebb, for a while after its release"
    OTHERS = "somebody else"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatus:
    """The state of a mark."""

    node: str
    mark: Mark | None
    since: int | None
    """Unix seconds; None: not marked, or not known."""
    order: tuple[int, int]
    """By what marks are judged one after the other: the second, the place in its plan."""
    details: Details | None
    """None: not marked, or the annotation is missing or damaged."""
    overdue: bool
    """Marked for longer than its deadline allows."""
    pods_left: int
    """Pods that keep it from being empty, as its autoscaler counts."""
    guard: Guard
    taken_first: int
    """Pods on which Ebb has written that a scale-in is to take them before others."""
    reserved: bool
    """Whether the engine has said on it that it is kept for pods to be expected."""
    taints_right: bool
    """Whether it carries exactly the taint that its mark asks for."""
    going: bool
    """Whether it is leaving (core.model.node_lifecycle)."""
    being_deleted: bool
    """Whether that is so because somebody deletes it."""
    left_alone_until: int | None
    """As it did not empty in time, unix seconds; None: it is marked, or not left alone for it."""

    @property
    def empty(self) -> bool:
        """Say whether the autoscaler may take it without evicting anything."""
        return not self.pods_left


def node_statuses(cluster: Cluster, config: Config, now_seconds: int) -> tuple[NodeStatus, ...]:
    """Read every node, in the cluster's order."""
    left = occupants(cluster, Now(now_seconds))
    first = Counter(pod.node for pod in cluster.pods if pod.has_our_cost)
    return tuple(
        _standing(node, left, first[node.name], config, now_seconds) for node in cluster.nodes
    )


def _standing(
    node: Node, left: Mapping[str, int], taken_first: int, config: Config, now_seconds: int
) -> NodeStatus:
    mark, taint_key = mark_of(node.labels), config.taint_key
    details = decode_details(node.annotations) if mark else None
    return NodeStatus(
        node=node.name,
        mark=mark,
        since=marked_since(node, taint_key) or None if mark else None,
        order=mark_order(node, taint_key),
        details=details,
        overdue=details is not None and now_seconds >= details.deadline,
        pods_left=left.get(node.name, 0),
        guard=_guard(node),
        taken_first=taken_first,
        reserved=reserved_for(node) is not None and not left.get(node.name),
        taints_right=desired_taints(node, taint_key) == node.taints,
        going=is_terminating(node),
        being_deleted=being_deleted(node),
        left_alone_until=None if mark else _left_alone(node, config.budgets.backoff, now_seconds),
    )


def _left_alone(node: Node, rules: Backoff, now_seconds: int) -> int | None:
    """Return the end of its back-off, if the engine holds to it now."""
    found = backoff_of(node.annotations)
    return found.until if found and rules.holds(found.until, Now(now_seconds)) else None


def _guard(node: Node) -> Guard:
    if (ours := guard_of(node)) is None:
        return Guard.OTHERS if guard_key(node) in node.annotations else Guard.NONE
    lasting = {GUARD_WHILE_MARKED: Guard.MARKED, GUARD_WHILE_HELD: Guard.HELD}
    return lasting.get(ours.until, Guard.RELEASED)
