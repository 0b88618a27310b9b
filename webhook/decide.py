"""What to write on which Node, given a cluster and the engine's plan; pure.

Source: the marks' contract (core.marks) and what a real Cluster Autoscaler does with marked nodes:
the guard stands from the mark on, is lifted when the node is empty, is put back when a pod
arrives, stays a while after a release, and a node that is being deleted is left alone.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from core import marks
from core.config import Config
from core.engine import Plan
from core.marks import Details, Mark, mark_of
from core.model import Cluster, Node, Pod

GUARD_AFTER_RELEASE_SECONDS: Final = 900
"""A released node is among the emptiest: unguarded, the autoscaler would drain it at once."""
EXPENDABLE_PRIORITY: Final = -10
"""Pods below this are none to Cluster Autoscaler."""
REASON: Final = "the cluster can do without it"
GUARD_WHILE_MARKED: Final = "marked"
"""Value of the annotation that says the guard is ours; after a release: until which second."""


class WriteKind(StrEnum):
    """What a write is for; a metric's label."""

    MARK = "mark"
    RELEASE = "release"
    GUARD = "guard"
    UNGUARD = "unguard"
    REPAIR = "repair"


@dataclass(frozen=True, slots=True)
class Write:
    """One merge patch of one Node's metadata; a repair has none: the taints are missing."""

    kind: WriteKind
    node: str
    seen: tuple[str | None, ...]
    """What stood on the node when this was decided (core.marks.traces)."""
    labels: Mapping[str, str | None]
    annotations: Mapping[str, str | None]
    note: str
    """Why, for people."""

    def merge_patch(self, version: str) -> dict[str, Any]:
        """Return the patch on a resourceVersion; null removes a key."""
        metadata: dict[str, Any] = {
            "resourceVersion": version,
            "annotations": dict(self.annotations),
        }
        if self.labels:
            metadata["labels"] = dict(self.labels)
        return {"metadata": metadata}


def _write(
    kind: WriteKind,
    node: Node,
    labels: Mapping[str, str | None],
    annotations: Mapping[str, str | None],
    note: str,
) -> Write:
    return Write(kind, node.name, marks.traces(node), labels, annotations, note)


def decide(
    cluster: Cluster, plan: Plan, config: Config, *, now_seconds: int, owner: str
) -> tuple[Write, ...]:
    """Return the writes that bring the Nodes to where the plan wants them, by node name.

    Releases come first: what must not be marked any more matters more than what could be.
    """
    wanted = {removal.node for removal in plan.removals}
    why = {kept.node: kept.blockers for kept in plan.kept}
    occupied = _occupied(cluster.pods)
    releases: list[Write] = []
    others: list[Write] = []
    for node in cluster.nodes:
        if marks.going(node):
            continue
        if mark_of(node.labels) is None:
            if node.name in wanted:
                others.append(_mark(node, plan, config, now_seconds, owner))
            else:
                others += _expire_guard(node, now_seconds)
                others += _repair(node, config)
        elif node.name not in wanted:
            found = "; ".join(f"{one.code}: {one.message}" for one in why.get(node.name, ()))
            releases.append(_release(node, now_seconds, found))
        elif _overdue(node, now_seconds):
            releases.append(_release(node, now_seconds, "it did not empty before its deadline"))
        else:
            if marks.decode_details(node.annotations) is None:
                others.append(_mark(node, plan, config, now_seconds, owner))
            others += _hand_over(node, occupied=node.name in occupied)
            others += _repair(node, config)
    return (*releases, *others)


def _occupied(pods: Iterable[Pod]) -> frozenset[str]:
    """Return the nodes that are not empty, as Cluster Autoscaler counts."""
    return frozenset(
        pod.node
        for pod in pods
        if pod.node is not None and not pod.stays_with_node and pod.priority >= EXPENDABLE_PRIORITY
    )


def _mark(node: Node, plan: Plan, config: Config, now_seconds: int, owner: str) -> Write:
    since = now_seconds
    if mark_of(node.labels) is not None:  # adopt a mark whose details are lost
        since = marks.marked_since(node, config.taint_key) or now_seconds
    details = Details(
        since=since,
        deadline=since + config.deadline_seconds,
        owner=owner,
        policy=plan.policy,
        reason=REASON,
    )
    annotations: dict[str, str | None] = {marks.DETAILS_ANNOTATION: marks.encode_details(details)}
    if _may_guard(node):
        annotations |= _GUARDED
    return _write(WriteKind.MARK, node, {marks.MARK_LABEL: Mark.SOFT.value}, annotations, REASON)


_GUARDED: Final = {
    marks.GUARD_ANNOTATION: "true",
    marks.GUARD_OURS_ANNOTATION: GUARD_WHILE_MARKED,
}


def _may_guard(node: Node) -> bool:
    """Say whether writing the guard takes nothing away that somebody else has written."""
    return marks.GUARD_ANNOTATION not in node.annotations or marks.guarded_by_us(node)


def _release(node: Node, now_seconds: int, why: str) -> Write:
    annotations: dict[str, str | None] = {marks.DETAILS_ANNOTATION: None}
    if _may_guard(node):
        until = str(now_seconds + GUARD_AFTER_RELEASE_SECONDS)
        annotations |= {marks.GUARD_ANNOTATION: "true", marks.GUARD_OURS_ANNOTATION: until}
    return _write(WriteKind.RELEASE, node, {marks.MARK_LABEL: None}, annotations, why)


def _overdue(node: Node, now_seconds: int) -> bool:
    details = marks.decode_details(node.annotations)
    return details is not None and now_seconds >= details.deadline


def _hand_over(node: Node, *, occupied: bool) -> Iterable[Write]:
    """Lift the guard of an empty node; put it on one that is not."""
    if occupied and not marks.guarded_by_us(node) and _may_guard(node):
        yield _write(WriteKind.GUARD, node, {}, _GUARDED, "marked, and not empty any more")
    if not occupied and marks.guarded_by_us(node):
        yield _unguard(node, "marked and empty: the autoscaler may take it")


def _expire_guard(node: Node, now_seconds: int) -> Iterable[Write]:
    """Lift the guard that was left on a released node, when its time has come."""
    until = node.annotations.get(marks.GUARD_OURS_ANNOTATION)
    if until is None:
        return
    if until == GUARD_WHILE_MARKED and marks.guarded_by_us(node):
        # Somebody else took the mark away: this is a release like any other.
        later = str(now_seconds + GUARD_AFTER_RELEASE_SECONDS)
        until_later = _GUARDED | {marks.GUARD_OURS_ANNOTATION: later}
        yield _write(WriteKind.GUARD, node, {}, until_later, "somebody else took the mark away")
        return
    left = int(until) - now_seconds if until.isdecimal() and len(until) < 16 else 0
    if not 0 < left <= GUARD_AFTER_RELEASE_SECONDS:
        yield _unguard(node, "released long enough ago")


def _unguard(node: Node, why: str) -> Write:
    lifted: dict[str, str | None] = {marks.GUARD_OURS_ANNOTATION: None}
    if marks.guarded_by_us(node):
        lifted[marks.GUARD_ANNOTATION] = None
    return _write(WriteKind.UNGUARD, node, {}, lifted, why)


def _repair(node: Node, config: Config) -> Iterable[Write]:
    """Ask for the taint where the webhook has not set it."""
    if marks.desired_taints(node, config.taint_key) != node.taints:
        yield _write(WriteKind.REPAIR, node, {}, {}, "its taints are not those of its mark")
