"""What to write on which Node, given a cluster and the engine's plan; pure.

In mode observe marks are only told: what stands on Nodes from another mode is taken away.
Source: the marks' contract (core.marks) and what a real Cluster Autoscaler does with marked nodes:
the guard stands from the mark on, is lifted when the node is empty, is put back when a pod
arrives, stays a while after a release, and a node that is being deleted is left alone.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from core import harden, marks
from core.cleanup import cleanup
from core.config import Config, Mode
from core.leaving import being_deleted, why_leaving
from core.marks import BACKOFF_ANNOTATION, Backoff, Details, Mark, mark_of
from core.model import Cluster, Node
from core.plan import Plan
from webhook.emptiness import busy, occupied

TIMES_MAX: Final = 1000
"""So that the count of a back-off stays small."""
MARKS_A_PASS_MAX: Final = 200
"""About ten milliseconds each; the next pass marks the others."""
REASON: Final = "the cluster can do without it"
OTHERS_RELEASE: Final = "somebody else took the mark away"
"""It is a release like any other."""
GUARD_WHILE_MARKED: Final = "marked"
"""Value of the annotation that says the guard is ours; after a release: until which second."""


class WriteKind(StrEnum):
    """What a write is for; a metric's label."""

    MARK = "mark"
    HARDEN = "harden"
    SOFTEN = "soften"
    RELEASE = "release"
    GUARD = "guard"
    UNGUARD = "unguard"
    REPAIR = "repair"
    FORGET = "forget"
    """A node's back-off, long after it has ended."""


PRESSING: Final = (WriteKind.RELEASE, WriteKind.GUARD)


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
    """Return the writes that bring the Nodes to where the plan wants them.

    First, by node name, what keeps pods from waiting and from being evicted, then the rest; last
    the new marks, in the plan's order: any first part of a plan is one. They are so few that what
    cannot wait comes soon after.
    """
    maker = _Maker(cluster, plan, config, now_seconds, owner)
    writes = [write for node in cluster.nodes for write in maker.of(node)]
    found = sorted(
        (write for write in writes if write.kind is WriteKind.MARK),
        key=lambda write: maker.order[write.node],
    )
    others = sorted(
        (write for write in writes if write.kind is not WriteKind.MARK),
        key=lambda write: write.kind not in PRESSING,
    )
    return (*others, *found[:MARKS_A_PASS_MAX])


class _Maker:
    """What the writes of one pass rest on."""

    def __init__(
        self, cluster: Cluster, plan: Plan, config: Config, now_seconds: int, owner: str
    ) -> None:
        self._config, self._now, self._owner = config, now_seconds, owner
        self._policy = plan.policy
        self.order = {removal.node: removal.order for removal in plan.removals}
        self._why = {kept.node: kept.blockers for kept in plan.kept}
        self._occupied = occupied(cluster.pods)
        self._busy = busy(cluster, config.hand_over.utilization)
        asked = config.hard_after_seconds is not None
        self._against_hard = harden.refusals(cluster, config.taint_key) if asked else {}

    def of(self, node: Node) -> Iterable[Write]:
        """Return the writes for one Node; none on one that an autoscaler is deleting."""
        why = why_leaving(node)
        if why is None:
            return self._judged(node)
        return () if being_deleted(node) else self._let_go(node, why)

    def _judged(self, node: Node) -> Iterable[Write]:
        mark = mark_of(node.labels)
        wanted = node.name in self.order
        if mark is None:
            if wanted:
                yield self._mark(node, Mark.SOFT)
            # In mode observe a mark is only told: it takes nothing over that a release has left.
            if not wanted or self._config.mode is Mode.OBSERVE:
                yield from self._expire(node)
                yield from _repair(node, self._config)
        elif self._config.mode is Mode.OBSERVE:
            yield self._release(node, "mode: observe")
        elif not wanted:
            found = (f"{one.code}: {one.message}" for one in self._why.get(node.name, ()))
            yield self._release(node, "; ".join(found))
        elif self._overdue(node):
            yield self._release(node, "it did not empty before its deadline", self._next(node))
        else:
            if marks.decode_details(node.annotations) is None:
                yield self._mark(node, mark)
            else:
                yield from self._change(node, mark)
            yield from _hand_over(node, occupied=node.name in self._occupied)
            yield from _repair(node, self._config)

    def _mark(self, node: Node, mark: Mark) -> Write:
        since = self._now
        if mark_of(node.labels) is not None:  # adopt a mark whose details are lost
            since = marks.marked_since(node, self._config.taint_key) or self._now
        details = Details(
            since=since,
            deadline=since + self._config.deadline_seconds,
            owner=self._owner,
            policy=self._policy,
            reason=REASON,
            order=self.order[node.name],
        )
        annotations: dict[str, str | None] = {
            marks.DETAILS_ANNOTATION: marks.encode_details(details)
        }
        if _may_guard(node):
            annotations |= _GUARDED
        return _write(WriteKind.MARK, node, {marks.MARK_LABEL: mark.value}, annotations, REASON)

    def _change(self, node: Node, mark: Mark) -> Iterable[Write]:
        """Make a soft mark hard, or a hard one soft again."""
        age = self._now - marks.marked_since(node, self._config.taint_key)
        against = self._against_hard.get(node.name, ())
        wanted = harden.wanted(against, self._config.hard_after_seconds, age)
        if wanted is mark:
            return
        labels = {marks.MARK_LABEL: wanted.value}
        if wanted is Mark.HARD:
            yield _write(WriteKind.HARDEN, node, labels, {}, f"marked for {age} s")
        else:
            why = "; ".join(f"{one.code}: {one.message}" for one in against)
            yield _write(WriteKind.SOFTEN, node, labels, {}, why or "hardAfter: never")

    def _release(self, node: Node, why: str, backoff: Backoff | None = None) -> Write:
        annotations: dict[str, str | None] = {marks.DETAILS_ANNOTATION: None}
        if _may_guard(node):
            until = str(self._now + self._config.hand_over.guard_seconds)
            annotations |= {marks.GUARD_ANNOTATION: "true", marks.GUARD_OURS_ANNOTATION: until}
        if backoff is not None:
            annotations[marks.BACKOFF_ANNOTATION] = str(backoff)
        return _write(WriteKind.RELEASE, node, {marks.MARK_LABEL: None}, annotations, why)

    def _let_go(self, node: Node, why: str) -> Iterable[Write]:
        """Take mark and guard off a node that leaves by itself: whoever collects it may at once.

        If it comes back it is judged like any other.
        """
        found = cleanup(node, self._config.taint_key)
        if found is None:
            return
        annotations = dict.fromkeys(one for one in found.annotations if one != BACKOFF_ANNOTATION)
        if found.labels:
            yield _write(WriteKind.RELEASE, node, dict.fromkeys(found.labels), annotations, why)
        elif annotations:
            yield _write(WriteKind.UNGUARD, node, {}, annotations, why)
        else:
            yield from _repair(node, self._config)

    def _overdue(self, node: Node) -> bool:
        details = marks.decode_details(node.annotations)
        return details is not None and self._now >= details.deadline

    def _next(self, node: Node) -> Backoff:
        """Return how long to leave a node alone that has failed once more."""
        before = marks.backoff_of(node.annotations)
        times = min(before.times + 1 if before else 1, TIMES_MAX)
        return Backoff(times, self._now + self._config.budgets.backoff.seconds(times))

    def _expire(self, node: Node) -> Iterable[Write]:
        """Take away what was left on a node without a mark, when its time has come."""
        if marks.DETAILS_ANNOTATION in node.annotations:
            yield self._release(node, OTHERS_RELEASE)
            return
        yield from self._expire_guard(node)
        backoff = marks.backoff_of(node.annotations)
        if backoff is not None:
            forget = backoff.until + self._config.budgets.backoff.max_seconds
            if self._now >= forget or self._config.mode is Mode.OBSERVE:
                gone = {marks.BACKOFF_ANNOTATION: None}
                yield _write(WriteKind.FORGET, node, {}, gone, "its back-off ended long ago")

    def _expire_guard(self, node: Node) -> Iterable[Write]:
        until = node.annotations.get(marks.GUARD_OURS_ANNOTATION)
        if until is None:
            return
        seconds = self._config.hand_over.guard_seconds
        if until == GUARD_WHILE_MARKED and marks.guarded_by_us(node):
            later = _GUARDED | {marks.GUARD_OURS_ANNOTATION: str(self._now + seconds)}
            yield _write(WriteKind.GUARD, node, {}, later, OTHERS_RELEASE)
            return
        left = int(until) - self._now if until.isdecimal() and len(until) < 16 else 0
        if not 0 < left <= seconds:
            yield _unguard(node, "released long enough ago")
        elif node.name in self._busy:
            yield _unguard(node, "released, and above the autoscaler's threshold")


_GUARDED: Final = {
    marks.GUARD_ANNOTATION: "true",
    marks.GUARD_OURS_ANNOTATION: GUARD_WHILE_MARKED,
}


def _may_guard(node: Node) -> bool:
    """Say whether writing the guard takes nothing away that somebody else has written."""
    return marks.GUARD_ANNOTATION not in node.annotations or marks.guarded_by_us(node)


def _hand_over(node: Node, *, occupied: bool) -> Iterable[Write]:
    """Lift the guard of an empty node; put it on one that is not."""
    if occupied and not marks.guarded_by_us(node) and _may_guard(node):
        yield _write(WriteKind.GUARD, node, {}, _GUARDED, "marked, and not empty any more")
    if not occupied and marks.guarded_by_us(node):
        yield _unguard(node, "marked and empty: the autoscaler may take it")


def _unguard(node: Node, why: str) -> Write:
    lifted: dict[str, str | None] = {marks.GUARD_OURS_ANNOTATION: None}
    if marks.guarded_by_us(node):
        lifted[marks.GUARD_ANNOTATION] = None
    return _write(WriteKind.UNGUARD, node, {}, lifted, why)


def _repair(node: Node, config: Config) -> Iterable[Write]:
    """Ask for the taint where the webhook has not set it."""
    if marks.desired_taints(node, config.taint_key) != node.taints:
        yield _write(WriteKind.REPAIR, node, {}, {}, "its taints are not those of its mark")
