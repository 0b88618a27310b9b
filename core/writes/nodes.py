"""What to write on which Node, given a cluster and the engine's plan; pure.

In mode observe marks are only told: what stands on Nodes from another mode is taken away.
Source: the marks' contract (core.marks) and what a real Cluster Autoscaler does with marked nodes:
the guard stands from the mark on, is lifted when the node is empty, is put back when a pod
arrives, stays a while after a release, and a node that is being deleted is left alone.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from core.config.budgets import CLOCKS_APART_SECONDS_MAX
from core.config.settings import Config, Mode, Scope
from core.engine import no_schedule
from core.engine.plan import Plan
from core.engine.snapshot import ClusterSnapshot
from core.guards.emptiness import busy, occupants
from core.marks.mark import (
    GUARD_WHILE_HELD,
    GUARD_WHILE_MARKED,
    RESERVE_CHARACTERS_MAX,
    Backoff,
    Details,
    Guard,
    Mark,
    backoff_of,
    decode_details,
    encode_details,
    guard_key,
    guard_of,
    is_released_to_autoscaler,
    mark_of,
    marked_since,
    seconds_of,
)
from core.marks.taints import desired_taints
from core.marks.wellknown import (
    BACKOFF_ANNOTATION,
    DETAILS_ANNOTATION,
    GUARD_OURS_ANNOTATION,
    MARK_LABEL,
    RESERVE_ANNOTATION,
)
from core.model.cluster import Cluster
from core.model.humanize import duration
from core.model.node import Node, Taint
from core.model.node_lifecycle import being_deleted, why_leaving
from core.model.now import Now
from core.model.reason import Blocker
from core.writes.cleanup import ours
from core.writes.life_cycle import LAST, TABLE, Event, Transition, states
from core.writes.write import PRESSING, Keys, Write, WriteKind

TIMES_MAX: Final = 1000
"""So that the count of a back-off stays small."""
MARKS_A_PASS_MAX: Final = 200
"""About ten milliseconds each; the next pass marks the others."""
HOLDS_A_PASS_MAX: Final = 200
"""The same of guards of nodes without a mark: a new leader holds all that are empty."""
WATCH_SECONDS: Final = 300
"""How long a leader looks on before it ends what another may have written by another clock."""


@dataclass(frozen=True, slots=True)
class LeaderObservations:
    """What this leader has seen itself, beyond the cluster as it stands."""

    seconds: int
    """How long it has been looking on."""
    against_hard: no_schedule.Against
    """By marked node: why its mark must not be hard."""
    hard: frozenset[str] = frozenset()
    """Nodes whose mark is to be hard whatever their age: they are drained."""
    failed: Mapping[str, Blocker] = field(default_factory=dict)
    """Nodes whose drain has failed, and why."""
    held: Mapping[str, int] = field(default_factory=dict)
    """When each node was last to be held without a mark, unix seconds."""
    reserved: Mapping[str, int] = field(default_factory=dict)
    """When each was last kept for pods to be expected."""

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
    watch: LeaderObservations | None = None,
) -> tuple[Write[Node], ...]:
    """Return the writes that bring the Nodes to where the plan wants them.

    First what keeps pods from waiting and from being evicted, hard marks before soft ones, then
    the rest; then nodes that are to be held, empty ones first; last the new marks, in the plan's
    order: any first part of a plan is one. These are so few that what cannot wait comes soon
    after. Without a *watch* the cluster alone counts.
    """
    if watch is None:
        watch = LeaderObservations(
            WATCH_SECONDS, no_schedule.reasons_against(ClusterSnapshot(cluster, config))
        )
    maker = _Maker(cluster, plan, config, _Moment(now_seconds, owner, watch))
    writes = [write for node in cluster.nodes for write in maker.of(node)]
    found = _of(WriteKind.MARK, writes, lambda write: maker.order[write.key])
    held = _of(WriteKind.HOLD, writes, lambda write: (write.key in maker.occupied, write.key))
    held += _of(WriteKind.TELL, writes, lambda write: write.key)
    few = (WriteKind.MARK, WriteKind.HOLD, WriteKind.TELL)
    others = sorted((write for write in writes if write.kind not in few), key=_place)
    return (*others, *held[:HOLDS_A_PASS_MAX], *found[:MARKS_A_PASS_MAX])


def _of(
    kind: WriteKind, writes: Iterable[Write[Node]], order: Callable[[Write[Node]], Any]
) -> list[Write[Node]]:
    return sorted((write for write in writes if write.kind is kind), key=order)


def _place(write: Write[Node]) -> tuple[int, bool, str]:
    pressing = write.kind in PRESSING
    place = PRESSING.index(write.kind) if pressing else len(PRESSING)
    return place, mark_of(write.before.labels) is not Mark.HARD, write.key


class _Moment(NamedTuple):
    """When, and by whom, a pass is made."""

    now_seconds: int
    owner: str
    watch: LeaderObservations


class _Maker:
    """What the writes of one pass rest on."""

    def __init__(self, cluster: Cluster, plan: Plan, config: Config, moment: _Moment) -> None:
        self._config, self._observe = config, config.mode is Mode.OBSERVE
        self._now, self._owner, self._watch = moment
        self._policy = plan.policy
        self.order = {removal.node: removal.order for removal in plan.removals}
        self._kept = {kept.node: kept.blockers for kept in plan.kept}
        self._reserve = {one.node: (one.why,) for one in plan.reserve}
        self._held = plan.held
        asked = {node.name for node in cluster.nodes if mark_of(node.labels) is not None}
        asked |= {n.name for n in cluster.nodes if GUARD_OURS_ANNOTATION in n.annotations}
        self.occupied = occupants(cluster, Now(self._now), asked | plan.held)
        self._busy = busy(cluster, config.hand_over.utilization, Now(self._now))

    def of(self, node: Node) -> Iterable[Write[Node]]:
        """Return the writes for one Node: of each event that of the first state it concerns."""
        found, told = tuple(states(node)), False
        for event in self._events(node):
            acts = TABLE[event]
            if event is Event.TOLD and told:
                return  # the other write has said it
            for state in found:
                if state in acts:
                    told = acts[state] is not Transition.REPAIR
                    yield self._write(acts[state], node, self._note(event, node))
                    if event in LAST:
                        return
                    break

    # What happens

    def _events(self, node: Node) -> Iterable[Event]:
        """Yield what is the case, in the order of Event."""
        if why_leaving(node) is not None:
            yield from self._farewell(node)
            return
        goes, details = node.name in self.order, decode_details(node.annotations)
        if self._observe:
            yield Event.OBSERVE
        if node.name in self._watch.failed:
            yield Event.DRAIN_FAILED
        if not goes:
            yield Event.STAYS
        if details is not None and self._overdue(details):
            yield Event.OVERDUE if node.name in self.occupied else Event.KEPT_LONG
        if goes:
            yield Event.WOULD_GO if self._observe else Event.GOES
        if self._taints(node) != node.taints:
            yield Event.TAINTS_WRONG
        unmarked = mark_of(node.labels) is None
        yield from self._left_over(node) if unmarked else self._marked(node, details)
        if self._told(node) and not self._may_be_kept_again(node):
            yield Event.TOLD

    def _farewell(self, node: Node) -> Iterable[Event]:
        """Whoever collects a node that leaves by itself may do so at once.

        If it comes back it is judged like any other.
        """
        if being_deleted(node):
            yield Event.DELETED
            return
        if MARK_LABEL in node.labels or _bared(node):
            yield Event.LEAVING
        if self._taints(node) != node.taints:
            yield Event.TAINTS_WRONG

    def _left_over(self, node: Node) -> Iterable[Event]:
        """Yield what is to become of what was left on a node without a mark."""
        if DETAILS_ANNOTATION in node.annotations:
            yield Event.OTHERS_RELEASE
        free = _place_of_guard(node) is not None
        if node.name in self._held and free and not self._observe:
            yield from self._hold(node)
        elif GUARD_OURS_ANNOTATION in node.annotations:
            yield from self._end_of_guard(node)
        if (backoff := backoff_of(node.annotations)) is not None:
            rules = self._config.budgets.backoff
            long_ago = self._now >= backoff.until + rules.max_seconds
            if self._observe or long_ago or not rules.possible(backoff.until, Now(self._now)):
                yield Event.BACKOFF_ENDS

    def _hold(self, node: Node) -> Iterable[Event]:
        """Yield whether the guard is to be set; one that a release has left may do for a while."""
        seconds, guard = self._config.hand_over.guard_seconds, guard_of(node)
        end = seconds_of(guard.until) if guard else None
        for_now = end is not None and seconds < 2 * (end - self._now) <= 2 * seconds
        if guard is None or not (for_now or guard.until == GUARD_WHILE_HELD):
            yield Event.HELD
        elif guard.key != _place_of_guard(node):
            yield Event.MISPLACED

    def _end_of_guard(self, node: Node) -> Iterable[Event]:
        hand_over, guard = self._config.hand_over, guard_of(node)
        seconds, end = hand_over.guard_seconds, seconds_of(guard.until) if guard else None
        if guard is None:
            yield Event.GUARD_GONE
        elif guard.until == GUARD_WHILE_MARKED:
            yield Event.GUARD_LEFT
        elif guard.until == GUARD_WHILE_HELD:
            yield from self._end_of_hold(node, guard)
        elif end is None or end - self._now > seconds:
            yield Event.GUARD_DISPLACED
        elif end <= self._now:
            if self._watch.long(seconds):
                yield Event.GUARD_ENDS
        elif node.name in self._busy and hand_over.scope is Scope.MARKED:
            yield Event.BUSY
        elif guard.key != _place_of_guard(node):
            yield Event.MISPLACED

    def _end_of_hold(self, node: Node, guard: Guard) -> Iterable[Event]:
        """Yield what becomes of a guard without a time; a node that has just filled keeps it.

        It is as long on the node as one that says until when, without a write for each pod that
        comes and goes. Who has not seen the node held does not know how long that is, and says it.
        """
        hand_over, since = self._config.hand_over, self._watch.held.get(node.name)
        lasting = not self._observe and hand_over.scope is not Scope.MARKED
        placed = guard.key == _place_of_guard(node)
        if since is None or not (lasting and placed and node.name in self.occupied):
            yield Event.HOLD_ENDS
        elif self._now - since >= hand_over.guard_seconds:
            yield Event.HOLD_OVER

    def _marked(self, node: Node, details: Details | None) -> Iterable[Event]:
        free, softened = self._is_free(node), False
        if not free and (guard := guard_of(node)) and guard.key != _place_of_guard(node):
            yield Event.MISPLACED
        after = 0 if node.name in self._watch.hard else self._config.hard_after_seconds
        if details is None or not self._dated(details):
            yield Event.DETAILS_LOST
        elif no_schedule.wanted(self._against(node), after, self._age(details)) is Mark.SOFT:
            softened = mark_of(node.labels) is Mark.HARD
            yield Event.HARD_REFUSED
        elif self._watch.long(after or 0):
            yield Event.HARD_ASKED
        if free:
            yield Event.EMPTY
        elif not softened:  # that takes the guard along
            yield Event.POD_THERE if node.name in self.occupied else Event.RESERVED

    def _is_free(self, node: Node) -> bool:
        """Say whether a marked node is the autoscaler's to take."""
        return node.name not in self.occupied and not self._is_kept(node)

    def _is_kept(self, node: Node) -> bool:
        """Say whether it is empty, and Ebb cannot do without it."""
        return node.name in self._reserve and node.name not in self.occupied

    def _against(self, node: Node) -> tuple[Blocker, ...]:
        return self._watch.against_hard.get(node.name, ())

    def _age(self, details: Details) -> int:
        return max(0, self._now - details.since)

    def _dated(self, details: Details) -> bool:
        """Say whether the times of a mark are such as a leader of about our time has written."""
        latest = self._now + CLOCKS_APART_SECONDS_MAX
        deadline_latest = latest + self._config.deadline_seconds
        return details.since <= latest and details.deadline <= deadline_latest

    def _overdue(self, details: Details) -> bool:
        long = self._watch.long(self._config.deadline_seconds)
        return self._now >= details.deadline and long

    def _told(self, node: Node) -> Keys:
        """Return what is to be written of the pods that it is kept for, when that begins or ends.

        Not when their number changes: that would be a write in almost every pass.
        """
        guarded = node.name in self.order or node.name in self._held
        kept = self._is_kept(node) and guarded and not self._observe
        if kept is (RESERVE_ANNOTATION in node.annotations):
            return {}
        told = self._reserve[node.name][0].message[:RESERVE_CHARACTERS_MAX] if kept else None
        return {RESERVE_ANNOTATION: told}

    def _may_be_kept_again(self, node: Node) -> bool:
        """Say whether it has just filled, or is held for another reason now.

        Each short pod may do that, and who reads what it was kept for looks for pods too.
        """
        since, seconds = self._watch.reserved.get(node.name), self._config.hand_over.guard_seconds
        recent = since is not None and self._now - since < seconds
        held = node.name in self.occupied or node.name in self._held
        return recent and held and not (self._observe or self._is_kept(node))

    # What is written then

    def _note(self, event: Event, node: Node) -> str:
        match event:
            case Event.LEAVING:
                return why_leaving(node) or ""
            case Event.STAYS | Event.RESERVED | Event.HELD | Event.TOLD:
                return self._why(event, node)
            case Event.DRAIN_FAILED:
                why = self._watch.failed[node.name]
                pod = f"{why.pod}: " if why.pod else ""
                return f"its drain failed: {pod}{_told([why])}"
            case Event.HARD_ASKED:
                since = marked_since(node, self._config.taint_key)
                drained = node.name in self._watch.hard
                return _DRAINED if drained else f"marked for {duration(max(0, self._now - since))}"
            case Event.HARD_REFUSED:
                return _told(self._against(node)) or "hardAfter: never"
            case _:
                return _SAME.get(event, event).meaning

    def _why(self, event: Event, node: Node) -> str:
        """Return why the node stays, or is kept from the autoscaler."""
        why = self._kept.get(node.name, ())
        if event is Event.STAYS:
            return _told(why)
        if event is Event.TOLD and not self._is_kept(node):
            return "it is kept for no pods any more"
        if event is Event.TOLD or node.name in self.occupied:
            why = ()  # they speak against its going, not for its guard
        return _told((*self._reserve.get(node.name, ()), *why)) or event.meaning

    def _write(self, act: Transition, node: Node, note: str) -> Write[Node]:
        """Return the write of an act: label, details, guard and back-off, or the taints."""
        if act is Transition.REPAIR:
            return Write(act.kind, node, {}, note, self._taints(node))
        annotations = self._annotations(act, node)
        if act not in (Transition.LET_GO, Transition.CLEAR):
            annotations = {**annotations, **self._told(node)}
        return Write.of(act.kind, node, _labels(act.kind, node), annotations, note)

    def _annotations(self, act: Transition, node: Node) -> Keys:
        annotations: Keys = {}
        match act:
            case Transition.MARK | Transition.DATE:
                details = self._details(node, renewed=False)
                annotations = details | _guarded(node, GUARD_WHILE_MARKED)
            case Transition.RENEW:  # a guard would only make the autoscaler begin to count anew
                guard = _guarded(node, GUARD_WHILE_MARKED) if self._is_kept(node) else {}
                annotations = self._details(node, renewed=True) | guard
            case Transition.RELEASE | Transition.BACK_OFF:
                backoff = self._backoff(node) if act is Transition.BACK_OFF else {}
                annotations = {DETAILS_ANNOTATION: None} | self._until(node) | backoff
            case Transition.LET_GO | Transition.CLEAR:
                annotations = _bared(node)
            case Transition.GUARD | Transition.SOFTEN:
                asked = act is Transition.GUARD or (
                    is_released_to_autoscaler(node) and not self._is_free(node)
                )
                annotations = _guarded(node, GUARD_WHILE_MARKED) if asked else {}
            case Transition.HOLD:
                annotations = _guarded(node, GUARD_WHILE_HELD)
            case Transition.PROLONG:
                annotations = self._until(node)
            case Transition.HAND_OVER | Transition.LIFT:
                annotations = _lifted(node)
            case Transition.FORGET:
                annotations = {BACKOFF_ANNOTATION: None}
            case _:  # the label alone, or what is told
                pass
        return annotations

    def _taints(self, node: Node) -> tuple[Taint, ...]:
        return desired_taints(node, self._config.taint_key)

    def _details(self, node: Node, *, renewed: bool) -> dict[str, str | None]:
        """Return the details of a new mark, of one that has lost them, or with a new deadline."""
        since = self._now
        if mark_of(node.labels) is not None:
            since = min(marked_since(node, self._config.taint_key) or since, since)
        details = Details(
            since=since,
            deadline=(self._now if renewed else since) + self._config.deadline_seconds,
            owner=self._owner,
            policy=self._policy,
            reason=Event.GOES.meaning,
            order=self.order[node.name],
        )
        return {DETAILS_ANNOTATION: encode_details(details)}

    def _until(self, node: Node) -> dict[str, str | None]:
        return _guarded(node, str(self._now + self._config.hand_over.guard_seconds))

    def _backoff(self, node: Node) -> dict[str, str | None]:
        """Return how long to leave a node alone that has failed once more."""
        before = backoff_of(node.annotations)
        times = min(before.times + 1 if before else 1, TIMES_MAX)
        until = self._now + self._config.budgets.backoff.seconds(times)
        why = self._watch.failed.get(node.name)
        return {BACKOFF_ANNOTATION: str(Backoff(times, until, why.code if why else ""))}


_DRAINED: Final = "it is to be drained: no pod may come back"
_SAME: Final = {
    Event.WOULD_GO: Event.GOES,
    Event.DETAILS_LOST: Event.GOES,
    Event.GUARD_LEFT: Event.OTHERS_RELEASE,
}
"""Events of which people are told the same as of others."""


def _labels(kind: WriteKind, node: Node) -> Keys:
    marks: Keys = {
        WriteKind.MARK: (mark_of(node.labels) or Mark.SOFT).value,
        WriteKind.HARDEN: Mark.HARD.value,
        WriteKind.SOFTEN: Mark.SOFT.value,
        WriteKind.RELEASE: None,
    }
    return {MARK_LABEL: marks[kind]} if kind in marks else {}


def _guarded(node: Node, until: str) -> dict[str, str | None]:
    """Return the guard, unless that takes something away that somebody else has written."""
    key, guard = _place_of_guard(node), guard_of(node)
    if key is None:
        return {}
    old = {guard.key: None} if guard else {}
    return {**old, key: "true", GUARD_OURS_ANNOTATION: str(Guard(until, key))}


def _place_of_guard(node: Node) -> str | None:
    """Return the annotation that our guard is to be; None: somebody else has taken it."""
    key, guard = guard_key(node), guard_of(node)
    if key not in node.annotations or (guard and guard.key == key):
        return key
    return guard.key if guard else None


def _lifted(node: Node) -> dict[str, str | None]:
    guard = guard_of(node)
    return dict.fromkeys((GUARD_OURS_ANNOTATION, *((guard.key,) if guard else ())))


def _bared(node: Node) -> dict[str, str | None]:
    """Return what of ours goes with a node that leaves; its back-off outlives that."""
    return dict.fromkeys(one for one in ours(node) if one != BACKOFF_ANNOTATION)


def _told(blockers: Iterable[Blocker]) -> str:
    return "; ".join(f"{one.code}: {one.message}" for one in blockers)
