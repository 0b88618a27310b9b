"""What the engine loop writes: a plan and a cluster in, merge patches out. Pure.

Each rule takes one Node in one state and answers at most one Write, so that mark, details and
guard always stand in one PATCH. Source of the guard's rules: what a real Cluster Autoscaler does
(it deletes empty nodes, drains lonely pods, and cannot be stopped once it has begun).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from core.config import Config
from core.engine import Plan, Removal
from core.marks import (
    DETAILS_ANNOTATION,
    GUARD_ANNOTATION,
    GUARD_OURS_ANNOTATION,
    MARK_LABEL,
    Details,
    Mark,
    decode_details,
    desired_taints,
    encode_details,
    going,
    guarded_by_us,
    mark_of,
    marked_since,
    opted_out,
)
from core.model import Cluster, Node, Pod

GUARD_AFTER_RELEASE_SECONDS: Final = 900
"""A released node is often the emptiest: without its guard the autoscaler would drain it at once.
Longer than the autoscaler's default unneeded time of ten minutes."""
GUARD_WHILE_MARKED: Final = "marked"
"""Value of our guard's annotation while the mark stands; after a release, the unix second until
which the guard stays."""
EXPENDABLE_BELOW_PRIORITY: Final = -10
"""Cluster Autoscaler's --expendable-pods-priority-cutoff: such pods do not make a node full."""


class WriteKind(StrEnum):
    """What a write is for, in the order in which writes are carried out."""

    RELEASE = "release"
    GUARD = "guard"
    REPAIR = "repair"
    UNGUARD = "unguard"
    MARK = "mark"


_ORDER: Final = {kind: place for place, kind in enumerate(WriteKind)}


@dataclass(frozen=True, slots=True)
class Write:
    """One PATCH of one Node (JSON merge patch)."""

    node: str
    kind: WriteKind
    reason: str
    labels: Mapping[str, str | None] = field(default_factory=dict)
    """None removes."""
    annotations: Mapping[str, str | None] = field(default_factory=dict)

    @property
    def merge_patch(self) -> dict[str, Any]:
        """Return the patch; an empty one still passes through the webhook, which is a repair."""
        changes = {"labels": dict(self.labels), "annotations": dict(self.annotations)}
        metadata = {key: value for key, value in changes.items() if value}
        return {"metadata": metadata} if metadata else {}


def decide(
    cluster: Cluster, plan: Plan, config: Config, now_seconds: int, owner: str
) -> tuple[Write, ...]:
    """Return what must be written to bring the nodes to where the plan wants them.

    At most one write a node; releases first, marks last, and each by the plan's order or by name.
    *owner* stands in the details of the marks. Never touches a node that is being deleted.
    """
    full = {pod.node for pod in cluster.pods if _holds(pod)}
    removals = {removal.node: removal for removal in plan.removals}
    infeasible = frozenset(plan.marked_infeasible)
    rules = _Rules(config, now_seconds, owner)
    writes: list[Write] = []
    for node in cluster.nodes:
        if going(node):
            continue
        if mark_of(node.labels) is not None:
            write = rules.marked(
                node, full=node.name in full, feasible=node.name not in infeasible
            )
        else:
            write = rules.unmarked(node, removals.get(node.name))
        if write is not None:
            writes.append(write)
    return _in_order(writes, removals)


def _in_order(writes: Iterable[Write], removals: Mapping[str, Removal]) -> tuple[Write, ...]:
    def rank(write: Write) -> tuple[int, int, str]:
        removal = removals.get(write.node)
        place = removal.order if removal is not None and write.kind is WriteKind.MARK else 0
        return (_ORDER[write.kind], place, write.node)

    return tuple(sorted(writes, key=rank))


def _holds(pod: Pod) -> bool:
    """Say whether the pod keeps its node from counting as empty, as the autoscaler sees it."""
    return (
        pod.node is not None
        and not pod.stays_with_node
        and pod.priority >= EXPENDABLE_BELOW_PRIORITY
    )


@dataclass(frozen=True, slots=True)
class _Rules:
    """What one node needs; the first rule that applies wins."""

    config: Config
    now_seconds: int
    owner: str

    def marked(self, node: Node, *, full: bool, feasible: bool) -> Write | None:
        """Judge a node that carries our mark."""
        details = decode_details(node.annotations)
        if reason := self._release_reason(node, details, feasible=feasible):
            return self._release(node, reason)
        if details is None:
            return self._adopt(node)
        if full and not guarded_by_us(node):
            return self._guard(node, GUARD_WHILE_MARKED, "a marked node holds pods")
        if not full and guarded_by_us(node):
            lifted = _guard_off()
            return Write(node.name, WriteKind.UNGUARD, "the node is empty", annotations=lifted)
        return self._repair(node)

    def unmarked(self, node: Node, removal: Removal | None) -> Write | None:
        """Judge a node without a mark."""
        if removal is not None and _guardable(node):
            return self._mark(node, removal)
        if GUARD_OURS_ANNOTATION in node.annotations:
            if not guarded_by_us(node):
                left = {GUARD_OURS_ANNOTATION: None}
                reason = "the guard is not ours any more"
                return Write(node.name, WriteKind.UNGUARD, reason, annotations=left)
            until = _guard_until(node)
            if until is None or until > self.now_seconds + GUARD_AFTER_RELEASE_SECONDS:
                return self._guard(node, self._stay(), "the mark went without a release")
            if until <= self.now_seconds:
                reason = "the time after the release is over"
                return Write(node.name, WriteKind.UNGUARD, reason, annotations=_guard_off())
        if DETAILS_ANNOTATION in node.annotations:
            left = {DETAILS_ANNOTATION: None}
            return Write(node.name, WriteKind.RELEASE, "details without a mark", annotations=left)
        return self._repair(node)

    def _release_reason(self, node: Node, details: Details | None, *, feasible: bool) -> str:
        if key := opted_out(node):
            return f"annotation {key} keeps the node"
        if not feasible:
            return "the cluster can not do without the node any more"
        if details is not None and self.now_seconds >= details.deadline:
            return f"the node did not empty before its deadline {details.deadline}"
        return ""

    def _release(self, node: Node, reason: str) -> Write:
        annotations: dict[str, str | None] = {DETAILS_ANNOTATION: None}
        if _guardable(node):
            annotations |= _guard_on(self._stay())
        elif GUARD_OURS_ANNOTATION in node.annotations:
            annotations[GUARD_OURS_ANNOTATION] = None
        return Write(node.name, WriteKind.RELEASE, reason, {MARK_LABEL: None}, annotations)

    def _mark(self, node: Node, removal: Removal) -> Write:
        moving = len(removal.placements)
        reason = f"number {removal.order} of the plan; {moving} pods have room elsewhere"
        annotations: dict[str, str | None] = {
            DETAILS_ANNOTATION: self._details(self.now_seconds, reason),
            **_guard_on(GUARD_WHILE_MARKED),
        }
        return Write(node.name, WriteKind.MARK, reason, {MARK_LABEL: Mark.SOFT.value}, annotations)

    def _adopt(self, node: Node) -> Write:
        """Give a mark without readable details a time, so that it has an end."""
        since = marked_since(node, self.config.taint_key)
        if not 0 < since <= self.now_seconds:
            since = self.now_seconds
        reason = "marked by somebody else"
        annotations: dict[str, str | None] = {DETAILS_ANNOTATION: self._details(since, reason)}
        if _guardable(node):
            annotations |= _guard_on(GUARD_WHILE_MARKED)
        return Write(node.name, WriteKind.REPAIR, reason, annotations=annotations)

    def _guard(self, node: Node, value: str, reason: str) -> Write | None:
        if not _guardable(node):
            return self._repair(node)
        return Write(node.name, WriteKind.GUARD, reason, annotations=_guard_on(value))

    def _repair(self, node: Node) -> Write | None:
        if desired_taints(node, self.config.taint_key) == node.taints:
            return None
        return Write(node.name, WriteKind.REPAIR, "the taint does not agree with the mark")

    def _details(self, since: int, reason: str) -> str:
        details = Details(
            since=since,
            deadline=since + self.config.deadline_seconds,
            owner=self.owner,
            policy=self.config.policy,
            reason=reason,
        )
        return encode_details(details)

    def _stay(self) -> str:
        return str(self.now_seconds + GUARD_AFTER_RELEASE_SECONDS)


def _guard_on(value: str) -> dict[str, str | None]:
    return {GUARD_ANNOTATION: "true", GUARD_OURS_ANNOTATION: value}


def _guard_off() -> dict[str, str | None]:
    return {GUARD_ANNOTATION: None, GUARD_OURS_ANNOTATION: None}


def _guardable(node: Node) -> bool:
    """Say whether the autoscaler's opt-out on the node is ours to set: a person's never is."""
    return GUARD_ANNOTATION not in node.annotations or guarded_by_us(node)


def _guard_until(node: Node) -> int | None:
    """Return until which unix second the guard of a released node stays; None: not said."""
    value = node.annotations.get(GUARD_OURS_ANNOTATION, "")
    return int(value) if value.isdecimal() and len(value) < 16 else None
