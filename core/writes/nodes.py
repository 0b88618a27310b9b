"""What to write on which Node, given a cluster and the engine's plan; pure.

In mode observe marks are only told: what stands on Nodes from another mode is taken away.
Source: the marks' contract (core.marks) and what a real Cluster Autoscaler does with marked nodes:
the guard stands from the mark on, is lifted when the node is empty, is put back when a pod
arrives, stays a while after a release, and a node that is being deleted is left alone.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from core.config.budgets import CLOCKS_APART_SECONDS_MAX
from core.config.settings import Config, Mode
from core.engine import harden
from core.engine.plan import Plan
from core.marks.keys import (
    BACKOFF_ANNOTATION,
    DETAILS_ANNOTATION,
    GUARD_ANNOTATION,
    GUARD_OURS_ANNOTATION,
    MARK_LABEL,
)
from core.marks.mark import (
    Backoff,
    Details,
    Mark,
    backoff_of,
    decode_details,
    encode_details,
    mark_of,
    marked_since,
    seconds_of,
)
from core.marks.optouts import guarded_by_us
from core.model.cluster import Cluster
from core.model.leaving import being_deleted, why_leaving
from core.model.node import Node
from core.writes.cleanup import cleanup
from core.writes.emptiness import busy, occupied
from core.writes.write import PRESSING, Write, WriteKind, repair

TIMES_MAX: Final = 1000
"""So that the count of a back-off stays small."""
MARKS_A_PASS_MAX: Final = 200
"""About ten milliseconds each; the next pass marks the others."""
WATCH_SECONDS: Final = 300
"""How long a leader looks on before it ends what another may have written by another clock."""
REASON: Final = "the cluster can do without it"
OTHERS_RELEASE: Final = "somebody else took the mark away"
"""It is a release like any other."""
GUARD_WHILE_MARKED: Final = "marked"
"""Value of the annotation that says the guard is ours; after a release: until which second."""


@dataclass(frozen=True, slots=True)
class Watch:
    """What this leader has seen itself, beyond the cluster as it stands."""

    seconds: int
    """How long it has been looking on."""
    against_hard: harden.Against
    """By marked node: why its mark must not be hard."""

    def long(self, seconds: int) -> bool:
        """Say whether it may end something that was to last so long.

        The end was written by another clock perhaps; nothing ends because one of the two is wrong.
        """
        return self.seconds >= min(seconds, WATCH_SECONDS)


def decide(
    cluster: Cluster,
    plan: Plan,
    config: Config,
    *,
    now_seconds: int,
    owner: str,
    watch: Watch | None = None,
) -> tuple[Write[Node], ...]:
    """Return the writes that bring the Nodes to where the plan wants them.

    First what keeps pods from waiting and from being evicted, hard marks before soft ones, then
    the rest; last the new marks, in the plan's order: any first part of a plan is one. They are so
    few that what cannot wait comes soon after. Without a *watch* the cluster alone counts.
    """
    if watch is None:
        watch = Watch(WATCH_SECONDS, harden.refusals(cluster, config.taint_key))
    maker = _Maker(cluster, plan, config, _Moment(now_seconds, owner, watch))
    writes = [write for node in cluster.nodes for write in maker.of(node)]
    found = sorted(
        (write for write in writes if write.kind is WriteKind.MARK),
        key=lambda write: maker.order[write.key],
    )
    others = sorted((write for write in writes if write.kind is not WriteKind.MARK), key=_place)
    return (*others, *found[:MARKS_A_PASS_MAX])


def _place(write: Write[Node]) -> tuple[int, bool, str]:
    pressing = write.kind in PRESSING
    place = PRESSING.index(write.kind) if pressing else len(PRESSING)
    return place, mark_of(write.before.labels) is not Mark.HARD, write.key


class _Moment(NamedTuple):
    """When, and by whom, a pass is made."""

    now_seconds: int
    owner: str
    watch: Watch


class _Maker:
    """What the writes of one pass rest on."""

    def __init__(self, cluster: Cluster, plan: Plan, config: Config, moment: _Moment) -> None:
        self._config = config
        self._now, self._owner, self._watch = moment
        self._policy = plan.policy
        self.order = {removal.node: removal.order for removal in plan.removals}
        self._why = {kept.node: kept.blockers for kept in plan.kept}
        self._occupied = occupied(cluster.pods)
        self._busy = busy(cluster, config.hand_over.utilization)

    def of(self, node: Node) -> Iterable[Write[Node]]:
        """Return the writes for one Node; none on one that an autoscaler is deleting."""
        why = why_leaving(node)
        if why is None:
            return self._judged(node)
        return () if being_deleted(node) else self._let_go(node, why)

    def _judged(self, node: Node) -> Iterable[Write[Node]]:
        mark = mark_of(node.labels)
        wanted = node.name in self.order
        if mark is None:
            if wanted:
                yield self._mark(node, Mark.SOFT)
            # In mode observe a mark is only told: it takes nothing over that a release has left.
            if not wanted or self._config.mode is Mode.OBSERVE:
                yield from self._expire(node)
                yield from self._repair(node)
        elif self._config.mode is Mode.OBSERVE:
            yield self._release(node, "mode: observe")
        elif not wanted:
            found = (f"{one.code}: {one.message}" for one in self._why.get(node.name, ()))
            yield self._release(node, "; ".join(found))
        elif self._overdue(node):
            yield self._release(node, "it did not empty before its deadline", self._next(node))
        else:
            if not self._dated(node):
                yield self._mark(node, mark)
            else:
                yield from self._change(node, mark)
            yield from _hand_over(node, occupied=node.name in self._occupied)
            yield from self._repair(node)

    def _mark(self, node: Node, mark: Mark) -> Write[Node]:
        since = self._now
        if mark_of(node.labels) is not None:  # adopt a mark whose details are lost, or no times
            since = min(marked_since(node, self._config.taint_key) or since, since)
        details = Details(
            since=since,
            deadline=since + self._config.deadline_seconds,
            owner=self._owner,
            policy=self._policy,
            reason=REASON,
            order=self.order[node.name],
        )
        annotations: dict[str, str | None] = {DETAILS_ANNOTATION: encode_details(details)}
        if _may_guard(node):
            annotations |= _GUARDED
        return Write.of(WriteKind.MARK, node, {MARK_LABEL: mark.value}, annotations, REASON)

    def _change(self, node: Node, mark: Mark) -> Iterable[Write[Node]]:
        """Make a soft mark hard, or a hard one soft again."""
        age = max(0, self._now - marked_since(node, self._config.taint_key))
        against = self._watch.against_hard.get(node.name, ())
        after = self._config.hard_after_seconds
        wanted = harden.wanted(against, after, age)
        if wanted is mark or (wanted is Mark.HARD and not self._watch.long(after or 0)):
            return
        labels = {MARK_LABEL: wanted.value}
        if wanted is Mark.HARD:
            yield Write.of(WriteKind.HARDEN, node, labels, {}, f"marked for {age} s")
        else:
            why = "; ".join(f"{one.code}: {one.message}" for one in against)
            yield Write.of(WriteKind.SOFTEN, node, labels, {}, why or "hardAfter: never")

    def _release(self, node: Node, why: str, backoff: Backoff | None = None) -> Write[Node]:
        annotations: dict[str, str | None] = {DETAILS_ANNOTATION: None}
        if _may_guard(node):
            until = str(self._now + self._config.hand_over.guard_seconds)
            annotations |= {GUARD_ANNOTATION: "true", GUARD_OURS_ANNOTATION: until}
        if backoff is not None:
            annotations[BACKOFF_ANNOTATION] = str(backoff)
        return Write.of(WriteKind.RELEASE, node, {MARK_LABEL: None}, annotations, why)

    def _dated(self, node: Node) -> bool:
        """Say whether the times of a mark are such as a leader of about our time has written."""
        details = decode_details(node.annotations)
        latest = self._now + CLOCKS_APART_SECONDS_MAX
        return (
            details is not None
            and details.since <= latest
            and details.deadline <= latest + self._config.deadline_seconds
        )

    def _let_go(self, node: Node, why: str) -> Iterable[Write[Node]]:
        """Take mark and guard off a node that leaves by itself: whoever collects it may at once.

        If it comes back it is judged like any other.
        """
        found = cleanup(node, self._config.taint_key)
        if found is None:
            return
        annotations = dict.fromkeys(one for one in found.annotations if one != BACKOFF_ANNOTATION)
        if found.labels:
            yield Write.of(WriteKind.RELEASE, node, dict.fromkeys(found.labels), annotations, why)
        elif annotations:
            yield Write.of(WriteKind.UNGUARD, node, {}, annotations, why)
        else:
            yield from self._repair(node)

    def _overdue(self, node: Node) -> bool:
        details = decode_details(node.annotations)
        return (
            details is not None
            and self._now >= details.deadline
            and self._watch.long(self._config.deadline_seconds)
        )

    def _next(self, node: Node) -> Backoff:
        """Return how long to leave a node alone that has failed once more."""
        before = backoff_of(node.annotations)
        times = min(before.times + 1 if before else 1, TIMES_MAX)
        return Backoff(times, self._now + self._config.budgets.backoff.seconds(times))

    def _repair(self, node: Node) -> Iterable[Write[Node]]:
        """Ask for the taint where the webhook has not set it."""
        write = repair(node, self._config.taint_key, "its taints are not those of its mark")
        return () if write is None else (write,)

    def _expire(self, node: Node) -> Iterable[Write[Node]]:
        """Take away what was left on a node without a mark, when its time has come."""
        if DETAILS_ANNOTATION in node.annotations:
            yield self._release(node, OTHERS_RELEASE)
            return
        yield from self._expire_guard(node)
        backoff = backoff_of(node.annotations)
        if backoff is not None:
            rules = self._config.budgets.backoff
            ended = self._now >= backoff.until + rules.max_seconds
            ended = ended or not rules.possible(backoff.until, self._now)
            if ended or self._config.mode is Mode.OBSERVE:
                gone = {BACKOFF_ANNOTATION: None}
                yield Write.of(WriteKind.FORGET, node, {}, gone, "its back-off ended long ago")

    def _expire_guard(self, node: Node) -> Iterable[Write[Node]]:
        until = node.annotations.get(GUARD_OURS_ANNOTATION)
        if until is None:
            return
        seconds = self._config.hand_over.guard_seconds
        if until == GUARD_WHILE_MARKED and guarded_by_us(node):
            later = _GUARDED | {GUARD_OURS_ANNOTATION: str(self._now + seconds)}
            yield Write.of(WriteKind.GUARD, node, {}, later, OTHERS_RELEASE)
            return
        end = seconds_of(until)
        left = end - self._now if end is not None else None
        if not guarded_by_us(node):
            yield _unguard(node, "the guard itself is gone")
        elif left is None or left > seconds:
            anew = _GUARDED | {GUARD_OURS_ANNOTATION: str(self._now + seconds)}
            yield Write.of(WriteKind.GUARD, node, {}, anew, "its end was set by a wrong clock")
        elif left <= 0:
            if self._watch.long(seconds):
                yield _unguard(node, "released long enough ago")
        elif node.name in self._busy:
            yield _unguard(node, "released, and above the autoscaler's threshold")


_GUARDED: Final = {
    GUARD_ANNOTATION: "true",
    GUARD_OURS_ANNOTATION: GUARD_WHILE_MARKED,
}


def _may_guard(node: Node) -> bool:
    """Say whether writing the guard takes nothing away that somebody else has written."""
    return GUARD_ANNOTATION not in node.annotations or guarded_by_us(node)


def _hand_over(node: Node, *, occupied: bool) -> Iterable[Write[Node]]:
    """Lift the guard of an empty node; put it on one that is not."""
    if occupied and not guarded_by_us(node) and _may_guard(node):
        yield Write.of(WriteKind.GUARD, node, {}, _GUARDED, "marked, and not empty any more")
    if not occupied and guarded_by_us(node):
        yield _unguard(node, "marked and empty: the autoscaler may take it")


def _unguard(node: Node, why: str) -> Write[Node]:
    lifted: dict[str, str | None] = {GUARD_OURS_ANNOTATION: None}
    if guarded_by_us(node):
        lifted[GUARD_ANNOTATION] = None
    return Write.of(WriteKind.UNGUARD, node, {}, lifted, why)
