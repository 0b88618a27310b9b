"""State of the mark, taint and scale-down protection of each node, by its Node and its pods."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from core.eligibility.emptiness import occupants
from core.marks.mark import (
    PROTECTED_WHILE_MARKED,
    PROTECTED_WHILE_UNMARKED,
    Details,
    Mark,
    backoff_of,
    decode_details,
    mark_of,
    mark_order,
    marked_since,
    protection_key,
    protection_of,
    reserved_for,
)
from core.marks.taints import desired_taints
from core.marks.wellknown import TAINT_KEY
from core.model.cluster import Cluster
from core.model.node import Node
from core.model.node_lifecycle import being_deleted, is_terminating
from core.model.now import Now


class Protection(StrEnum):
    """Protection of a node from scale-down by an autoscaler: by whom, and for how long.

    JSON contains the names in lower case, text the values.
    """

    NONE = "none"
    MARKED = "by Ebb, while the node is marked"
    UNMARKED = "by Ebb, until it allows scale-down"
    ENDING = "by Ebb, for a while after the node was unmarked"
    OTHERS = "not by Ebb"


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkStatus:
    """State of the mark and scale-down protection of one node."""

    node: str
    mark: Mark | None
    since: int | None
    """Time of the mark in Unix seconds; None if not marked or unknown."""
    order: tuple[int, int]
    """Sort key of marks: time of the mark, then position in its plan."""
    details: Details | None
    """Details annotation; None if not marked, missing or invalid."""
    overdue: bool
    """True if the deadline of the mark has passed."""
    pods_left: int
    """Number of pods that keep the node from being empty by the rules of its autoscaler."""
    protection: Protection
    scaled_in_first: int
    """Number of pods with a low pod deletion cost from Ebb: scale-ins delete them first."""
    reserved: bool
    """True if the node is empty, and the leader's annotation reserves it for expected pods."""
    taints_correct: bool
    """True if Ebb's taint matches the mark; on an unmarked node, if it is absent."""
    leaving: bool
    """True if the node is leaving (core.model.node_lifecycle)."""
    being_deleted: bool
    """True if the Node object is being deleted, or if a taint says that an autoscaler is about to
    delete it."""
    backoff_until: int | None
    """Time in Unix seconds until which Ebb does not mark the node again; None if there is no
    backoff."""

    @property
    def effect(self) -> str:
        """Return the effect of the mark's taint, such as NoSchedule; empty if not marked."""
        return self.mark or ""

    @property
    def empty(self) -> bool:
        """Return whether the autoscaler can remove the node without evicting a pod."""
        return not self.pods_left


def mark_statuses(cluster: Cluster, now_seconds: int) -> tuple[MarkStatus, ...]:
    """Return the state of each node's mark and scale-down protection, in the cluster's order."""
    pods_left_on = occupants(cluster, Now(now_seconds))
    low_cost_pods = Counter(pod.node for pod in cluster.pods if pod.has_our_cost)
    return tuple(
        _status_of(node, pods_left_on, low_cost_pods[node.name], now_seconds)
        for node in cluster.nodes
    )


def _status_of(
    node: Node,
    pods_left_on: Mapping[str, int],
    scaled_in_first: int,
    now_seconds: int,
) -> MarkStatus:
    mark, taint_key = mark_of(node.labels), TAINT_KEY
    details = decode_details(node.annotations) if mark else None
    return MarkStatus(
        node=node.name,
        mark=mark,
        since=marked_since(node, taint_key) or None if mark else None,
        order=mark_order(node, taint_key),
        details=details,
        overdue=details is not None and now_seconds >= details.deadline,
        pods_left=pods_left_on.get(node.name, 0),
        protection=_protection(node),
        scaled_in_first=scaled_in_first,
        reserved=reserved_for(node) is not None and not pods_left_on.get(node.name),
        taints_correct=desired_taints(node, taint_key) == node.taints,
        leaving=is_terminating(node),
        being_deleted=being_deleted(node),
        backoff_until=None if mark else _backoff_until(node, now_seconds),
    )


def _backoff_until(node: Node, now_seconds: int) -> int | None:
    """Return the Unix second until which the controller does not mark the node again.

    Returns None if the node has no backoff annotation, or the controller would not respect it now.
    """
    backoff = backoff_of(node.annotations)
    return backoff.until if backoff and backoff.holds(Now(now_seconds)) else None


def _protection(node: Node) -> Protection:
    if (ours := protection_of(node)) is None:
        return Protection.OTHERS if protection_key(node) in node.annotations else Protection.NONE
    lasting = {
        PROTECTED_WHILE_MARKED: Protection.MARKED,
        PROTECTED_WHILE_UNMARKED: Protection.UNMARKED,
    }
    return lasting.get(ours.until, Protection.ENDING)
