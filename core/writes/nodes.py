"""Decide what to write on each Node, given the cluster and the plan for it; without I/O.

In mode observe new marks are only reported; marks and annotations of mode enforce are removed.
Scale-down protection starts with the mark. It ends when the node is empty, returns when a pod
arrives, and stays for some time after Ebb unmarks the node. Ebb writes nothing to a Node that is
being deleted. These rules follow from the behavior of Cluster Autoscaler. core.marks has the keys.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from core.config.budgets import CLOCKS_APART_SECONDS_MAX
from core.config.settings import Config, Mode, Scope
from core.eligibility.drift import unprotectable
from core.eligibility.emptiness import busy, occupants
from core.engine import no_schedule
from core.engine.maintenance_gate import Refusal, may_begin
from core.engine.plan import Plan
from core.engine.snapshot import ClusterSnapshot
from core.marks.mark import (
    PROTECTED_WHILE_MARKED,
    PROTECTED_WHILE_UNMARKED,
    RESERVE_CHARACTERS_MAX,
    Backoff,
    Details,
    Mark,
    ProtectionRecord,
    backoff_of,
    decode_details,
    encode_details,
    is_scale_down_allowed,
    mark_of,
    marked_since,
    protection_key,
    protection_of,
    seconds_of,
)
from core.marks.taints import desired_taints
from core.marks.wellknown import (
    BACKOFF_ANNOTATION,
    DETAILS_ANNOTATION,
    MARK_LABEL,
    OLD_PROTECTION_ANNOTATION,
    OUR_ANNOTATIONS,
    PROTECTION_ANNOTATION,
    RESERVE_ANNOTATION,
    TAINT_KEY,
)
from core.model.cluster import Cluster
from core.model.humanize import duration
from core.model.node import Node, Taint
from core.model.node_lifecycle import being_deleted, why_leaving
from core.model.now import Now
from core.model.reason import Blocker
from core.writes.cleanup import annotation_keys_of_ebb
from core.writes.life_cycle import LAST, TABLE, Event, Transition, states
from core.writes.write import URGENT, Keys, Write, WriteKind

TIMES_MAX: Final = 1000
"""Maximum count of missed deadlines and failed evictions in the backoff annotation."""
MARKS_PER_RECONCILIATION_MAX: Final = 200
"""Maximum number of new marks in one reconciliation; a mark takes about ten milliseconds."""
PROTECTIONS_PER_RECONCILIATION_MAX: Final = 200
"""Maximum number of protections of unmarked nodes in one reconciliation; a new leader protects all
empty nodes."""
WATCH_SECONDS: Final = 300
"""Maximum time for which a new leader observes before it ends something whose end another leader
may have set."""


@dataclass(frozen=True, slots=True)
class LeaderObservations:
    """What this leader has observed itself, such as failed evictions, beyond the cluster."""

    seconds: int
    """Time for which the leader has observed the cluster, in seconds."""
    no_schedule_blockers: no_schedule.NoScheduleBlockers
    """Reasons against a NoSchedule mark, by marked node."""
    no_schedule: frozenset[str] = frozenset()
    """Nodes whose pods Ebb evicts; their mark must be NoSchedule regardless of its age."""
    failed: Mapping[str, Blocker] = field(default_factory=dict)
    """Why evictions failed, by node."""
    protected: Mapping[str, int] = field(default_factory=dict)
    """Unix second of the last reconciliation in which each unmarked node was to be protected."""
    reserved: Mapping[str, int] = field(default_factory=dict)
    """Unix second of the last reconciliation in which each node was reserved for expected pods."""

    def long(self, seconds: int) -> bool:
        """Return whether the leader has observed for *seconds*; WATCH_SECONDS are always enough.

        Only then does it end, for example, a deadline of this length that another leader may have
        set.
        """
        # The clock of another leader may have set the end. A wrong clock must not end it early.
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
    """Return the writes that make the Nodes match the plan.

    Urgent writes come first, those on nodes with a NoSchedule mark before others. Then come other
    writes, then protection of unmarked nodes, empty nodes first. New marks come last, in the order
    of the plan. Marks and protections are limited in number; the next reconciliation continues.

    *now_seconds*: Unix time. *owner*: name of the leader. *watch*: what the leader has observed;
    None for commands, which know the cluster only.
    """
    if watch is None:
        watch = LeaderObservations(
            WATCH_SECONDS, no_schedule.blockers_by_node(ClusterSnapshot(cluster, config))
        )
    planner = NodePatchPlanner(
        cluster, plan, config, now_seconds=now_seconds, owner=owner, watch=watch
    )
    writes = [write for node in cluster.nodes for write in planner.of(node)]
    # In the plan's order, the marks written so far always form a valid plan.
    marks = _sorted_of_kind(WriteKind.MARK, writes, lambda write: planner.order[write.key])
    protections = _sorted_of_kind(
        WriteKind.PROTECT_UNMARKED,
        writes,
        lambda write: (write.key in planner.occupied, write.key),
    )
    protections += _sorted_of_kind(WriteKind.UPDATE_RESERVE, writes, lambda write: write.key)
    limited = (WriteKind.MARK, WriteKind.PROTECT_UNMARKED, WriteKind.UPDATE_RESERVE)
    others = sorted((write for write in writes if write.kind not in limited), key=_urgency)
    # Limit the writes that can wait, so that the next reconciliation with its urgent writes comes
    # soon.
    return (
        *others,
        *protections[:PROTECTIONS_PER_RECONCILIATION_MAX],
        *marks[:MARKS_PER_RECONCILIATION_MAX],
    )


def _sorted_of_kind(
    kind: WriteKind, writes: Iterable[Write[Node]], order: Callable[[Write[Node]], Any]
) -> list[Write[Node]]:
    return sorted((write for write in writes if write.kind is kind), key=order)


def _urgency(write: Write[Node]) -> tuple[int, bool, str]:
    position = URGENT.index(write.kind) if write.kind in URGENT else len(URGENT)
    return position, mark_of(write.before.labels) is not Mark.NO_SCHEDULE, write.key


class NodePatchPlanner:
    """Compute the writes to each Node in one reconciliation.

    They follow from the table of core.writes.life_cycle.
    """

    def __init__(
        self,
        cluster: Cluster,
        plan: Plan,
        config: Config,
        *,
        now_seconds: int,
        owner: str,
        watch: LeaderObservations,
    ) -> None:
        """Collect what the decisions about all Nodes share.

        *now_seconds*: Unix time. *owner*: name of the leader, which the details of a mark contain.
        *watch*: what this leader has observed.
        """
        self._config, self._observe = config, config.mode is Mode.OBSERVE
        self._now, self._owner, self._watch = now_seconds, owner, watch
        self._policy = plan.policy
        self._refused = isinstance(may_begin(config, Now(self._now)), Refusal)
        self.order = {removal.node: removal.order for removal in plan.removals}
        self._kept = {kept.node: kept.blockers for kept in plan.kept}
        self._reserve = {reserved.node: (reserved.why,) for reserved in plan.reserve}
        self._protected_names = plan.protected
        self._planned = self.order.keys() | plan.protected
        written = {
            node.name
            for node in cluster.nodes
            if mark_of(node.labels) is not None or PROTECTION_ANNOTATION in node.annotations
        }
        self.occupied = occupants(cluster, Now(self._now), written | plan.protected)
        self._unprotectable = unprotectable(cluster, Now(self._now))
        self._busy = busy(cluster, config.scale_down_protection.utilization, Now(self._now))

    def of(self, node: Node) -> Iterable[Write[Node]]:
        """Yield the writes to a Node, at most one for each event in its life cycle.

        If several states of the Node have a transition for an event, the first one counts. After
        some events, such as a removed mark, no further write follows (LAST).
        """
        if not self._may_change(node):
            return
        current, reserve_written = tuple(states(node)), False
        for event in self._events(node):
            transitions = TABLE[event]
            if event is Event.RESERVE_CHANGED and reserve_written:
                return  # an earlier write includes the annotation
            for state in current:
                if (transition := transitions.get(state)) is not None:
                    reserve_written = transition is not Transition.REPAIR_TAINTS
                    write = self._write(transition, node, self._note(event, node))
                    if write.kind is WriteKind.UNMARK and mark_of(node.labels) is not None:
                        write = replace(write, code=self._code(event, node))
                    yield write
                    if event in LAST:
                        return
                    break

    def _may_change(self, node: Node) -> bool:
        # No event has a transition for a Node that the plan does not name and that has no field of
        # Ebb. Most Nodes of a cluster are such Nodes.
        return (
            node.name in self._planned
            or MARK_LABEL in node.labels
            or not node.annotations.keys().isdisjoint(OUR_ANNOTATIONS)
            or any(taint.key == TAINT_KEY for taint in node.taints)
        )

    # Events

    def _events(self, node: Node) -> Iterable[Event]:
        """Yield the events of the Node's life cycle that apply now, in the order of Event."""
        if why_leaving(node) is not None:
            yield from self._leaving(node)
            return
        removable, details = node.name in self.order, decode_details(node.annotations)
        if self._observe:
            yield Event.OBSERVE
        if node.name in self._watch.failed:
            yield Event.EVICTION_FAILED
        if not removable:
            yield Event.UNREMOVABLE
        if details is not None and self._overdue(details):
            yield Event.DEADLINE_MISSED if node.name in self.occupied else Event.EMPTY_AT_DEADLINE
        if removable:
            yield Event.REMOVABLE_OBSERVED if self._observe else Event.REMOVABLE
        if self._taints(node) != node.taints:
            yield Event.WRONG_TAINTS
        unmarked = mark_of(node.labels) is None
        yield from self._unmarked(node) if unmarked else self._marked(node, details)
        if self._reserve_annotation(node) and not self._may_be_reserved_again(node):
            yield Event.RESERVE_CHANGED

    def _leaving(self, node: Node) -> Iterable[Event]:
        # Ebb removes its fields, so that the autoscaler can remove the node at once. If the
        # autoscaler gives up the removal, Ebb evaluates the node like any other.
        if being_deleted(node):
            yield Event.DELETED
            return
        if MARK_LABEL in node.labels or _without_ours(node):
            yield Event.LEAVING
        if self._taints(node) != node.taints:
            yield Event.WRONG_TAINTS

    def _unmarked(self, node: Node) -> Iterable[Event]:
        if DETAILS_ANNOTATION in node.annotations:
            yield Event.MARK_REMOVED
        free = _protection_key(node) is not None
        if node.name in self._unprotectable:
            if PROTECTION_ANNOTATION in node.annotations:
                yield Event.DRIFTED
        elif node.name in self._protected_names and free and not self._observe:
            yield from self._missing_protection(node)
        elif PROTECTION_ANNOTATION in node.annotations:
            yield from self._ended_protection(node)
        if (backoff := backoff_of(node.annotations)) is not None:
            rules = self._config.budgets.backoff
            long_ago = self._now >= backoff.until + rules.max_seconds
            if self._observe or long_ago or not rules.possible(backoff.until, Now(self._now)):
                yield Event.BACKOFF_EXPIRED

    def _missing_protection(self, node: Node) -> Iterable[Event]:
        """Yield the event that sets or corrects the protection of an unmarked node.

        Yields nothing if the node has a protection that lasts long enough, with the right key.
        """
        seconds = self._config.scale_down_protection.after_release_seconds
        protection = protection_of(node)
        end = seconds_of(protection.until) if protection else None
        lasts = end is not None and seconds < 2 * (end - self._now) <= 2 * seconds
        if protection is None or not (lasts or protection.until == PROTECTED_WHILE_UNMARKED):
            yield Event.PROTECTION_WANTED
        elif protection.key != _protection_key(node):
            yield Event.WRONG_ANNOTATION

    def _ended_protection(self, node: Node) -> Iterable[Event]:
        settings, protection = self._config.scale_down_protection, protection_of(node)
        seconds = settings.after_release_seconds
        end = seconds_of(protection.until) if protection else None
        if protection is None:
            yield Event.PROTECTION_REMOVED
        elif protection.until == PROTECTED_WHILE_MARKED:
            yield Event.DETAILS_REMOVED
        elif protection.until == PROTECTED_WHILE_UNMARKED:
            yield from self._ended_unmarked_protection(node, protection)
        elif end is None or end - self._now > seconds:
            yield Event.INVALID_END
        elif end <= self._now:
            if self._watch.long(seconds):
                yield Event.PROTECTION_EXPIRED
        elif node.name in self._busy and settings.scope is Scope.MARKED:
            yield Event.BUSY
        elif protection.key != _protection_key(node):
            yield Event.WRONG_ANNOTATION

    def _ended_unmarked_protection(
        self, node: Node, protection: ProtectionRecord
    ) -> Iterable[Event]:
        """Yield the event that ends a protection without an end time, if it is due.

        The node is unmarked and needs no protection now. *protection*: its present protection.
        """
        # The protection of a non-empty node lasts as long as one with an end time. An end time
        # would be written for each pod that arrives and terminates. A leader that has not observed
        # the start of the protection writes an end time.
        settings = self._config.scale_down_protection
        since = self._watch.protected.get(node.name)
        lasting = not self._observe and settings.scope is not Scope.MARKED
        right_key = protection.key == _protection_key(node)
        if since is None or not (lasting and right_key and node.name in self.occupied):
            yield Event.PROTECTION_UNWANTED
        elif self._now - since >= settings.after_release_seconds:
            yield Event.LONG_OCCUPIED

    def _marked(self, node: Node, details: Details | None) -> Iterable[Event]:
        free, no_schedule_ends = self._is_free(node), False
        drifted = node.name in self._unprotectable
        protection = None if free or drifted else protection_of(node)
        if protection is not None and protection.key != _protection_key(node):
            yield Event.WRONG_ANNOTATION
        if drifted:
            yield Event.DRIFTED
        after = (
            0 if node.name in self._watch.no_schedule else self._config.no_schedule_after_seconds
        )
        if details is None or not self._dated(details):
            yield Event.INVALID_DETAILS
        elif (
            no_schedule.wanted_mark(self._against(node), after, self._age(details))
            is Mark.PREFER_NO_SCHEDULE
        ):
            no_schedule_ends = mark_of(node.labels) is Mark.NO_SCHEDULE
            yield Event.NO_SCHEDULE_BLOCKED
        elif self._watch.long(after or 0) and not self._refused:
            yield Event.NO_SCHEDULE_DUE
        if drifted:
            return
        if free:
            yield Event.EMPTY
        elif not no_schedule_ends:  # SET_PREFER_NO_SCHEDULE also restores the protection
            yield Event.OCCUPIED if node.name in self.occupied else Event.RESERVED

    def _is_free(self, node: Node) -> bool:
        """Return whether the autoscaler may remove a marked node: it is empty and not reserved."""
        return node.name not in self.occupied and not self._is_reserved(node)

    def _is_reserved(self, node: Node) -> bool:
        """Return whether the node is empty, and the plan keeps it for expected pods."""
        return node.name in self._reserve and node.name not in self.occupied

    def _against(self, node: Node) -> tuple[Blocker, ...]:
        return self._watch.no_schedule_blockers.get(node.name, ())

    def _age(self, details: Details) -> int:
        return max(0, self._now - details.since)

    def _dated(self, details: Details) -> bool:
        """Return whether the times in the details of a mark are not too far in the future.

        They are too far if no leader with a roughly correct clock can have written them.
        """
        latest = self._now + CLOCKS_APART_SECONDS_MAX
        deadline_latest = latest + self._config.deadline_seconds
        return details.since <= latest and details.deadline <= deadline_latest

    def _overdue(self, details: Details) -> bool:
        long = self._watch.long(self._config.deadline_seconds)
        return self._now >= details.deadline and long

    def _reserve_annotation(self, node: Node) -> Keys:
        """Return the annotation to write because a reservation for expected pods begins or ends.

        Its value is None at the end. The mapping is empty at any other time.
        """
        # The number of pods changes in almost every reconciliation, so a change of it is not
        # written.
        protected = node.name in self.order or node.name in self._protected_names
        reserved = self._is_reserved(node) and protected and not self._observe
        if reserved is (RESERVE_ANNOTATION in node.annotations):
            return {}
        pods = self._reserve[node.name][0].message[:RESERVE_CHARACTERS_MAX] if reserved else None
        return {RESERVE_ANNOTATION: pods}

    def _may_be_reserved_again(self, node: Node) -> bool:
        """Return whether the node was reserved recently, so its reserve annotation must remain."""
        # The annotation remains then. A short-lived pod may occupy the node, or the node is
        # protected for another reason now. Readers of the annotation also check the pods of the
        # node.
        since = self._watch.reserved.get(node.name)
        seconds = self._config.scale_down_protection.after_release_seconds
        recent = since is not None and self._now - since < seconds
        protected = node.name in self.occupied or node.name in self._protected_names
        return recent and protected and not (self._observe or self._is_reserved(node))

    # Writes

    def _why_too_early(self) -> str:
        after = self._config.no_schedule_after_seconds
        if after is None:
            return "NoSchedule marks are not configured (noScheduleAfter: never)"
        return f"the mark is younger than noScheduleAfter ({duration(after)})"

    def _note(self, event: Event, node: Node) -> str:
        match event:
            case Event.LEAVING:
                return why_leaving(node) or ""
            case (
                Event.UNREMOVABLE
                | Event.RESERVED
                | Event.PROTECTION_WANTED
                | Event.RESERVE_CHANGED
            ):
                return self._why(event, node)
            case Event.EVICTION_FAILED:
                why = self._watch.failed[node.name]
                pod = f"{why.pod}: " if why.pod else ""
                return f"evictions failed: {pod}{_reasons([why])}"
            case Event.NO_SCHEDULE_DUE:
                since = marked_since(node, TAINT_KEY)
                evicted = node.name in self._watch.no_schedule
                return _EVICTED if evicted else f"marked for {duration(max(0, self._now - since))}"
            case Event.NO_SCHEDULE_BLOCKED:
                return _reasons(self._against(node)) or self._why_too_early()
            case _:
                return _SAME.get(event, event).meaning

    def _code(self, event: Event, node: Node) -> str:
        """Return the code that says why Ebb unmarks the node, for metrics.

        It is the code of a reason, or the title of the event with hyphens.
        """
        if event is Event.EVICTION_FAILED:
            return self._watch.failed[node.name].code
        if event is Event.UNREMOVABLE and (blockers := self._kept.get(node.name)):
            return blockers[0].code
        return event.title.replace(" ", "-")

    def _why(self, event: Event, node: Node) -> str:
        """Return the note of the write that follows from the event.

        It says why the node is not removable, protected or reserved; otherwise the event's
        meaning.
        """
        why = self._kept.get(node.name, ())
        if event is Event.UNREMOVABLE:
            return _reasons(why)
        if event is Event.RESERVE_CHANGED and not self._is_reserved(node):
            return "the node is no longer reserved for expected pods"
        if event is Event.RESERVE_CHANGED or node.name in self.occupied:
            why = ()  # reasons against the removal do not explain the protection
        return _reasons((*self._reserve.get(node.name, ()), *why)) or event.meaning

    def _write(self, transition: Transition, node: Node, note: str) -> Write[Node]:
        if transition is Transition.REPAIR_TAINTS:
            return Write(transition.kind, node, {}, note, self._taints(node))
        annotations = self._annotations(transition, node)
        if transition not in (Transition.REMOVE_ALL, Transition.REMOVE_REST):
            annotations = {**annotations, **self._reserve_annotation(node)}
        labels = _labels(transition.kind, node)
        return Write.of(transition.kind, node, labels, annotations, note)

    def _annotations(self, transition: Transition, node: Node) -> Keys:
        annotations: Keys = {}
        match transition:
            case Transition.MARK | Transition.RESTORE_DETAILS:
                details = self._details(node, renewed=False)
                annotations = details | self._protected(node, PROTECTED_WHILE_MARKED)
            case Transition.EXTEND_DEADLINE:  # protection would restart the autoscaler's own delay
                protection = (
                    self._protected(node, PROTECTED_WHILE_MARKED)
                    if self._is_reserved(node)
                    else {}
                )
                annotations = self._details(node, renewed=True) | protection
            case Transition.UNMARK | Transition.BACK_OFF:
                backoff = self._backoff(node) if transition is Transition.BACK_OFF else {}
                annotations = {DETAILS_ANNOTATION: None} | self._until(node) | backoff
            case Transition.REMOVE_ALL | Transition.REMOVE_REST:
                annotations = _without_ours(node)
            case Transition.PROTECT | Transition.SET_PREFER_NO_SCHEDULE:
                wanted = transition is Transition.PROTECT or (
                    is_scale_down_allowed(node) and not self._is_free(node)
                )
                annotations = self._protected(node, PROTECTED_WHILE_MARKED) if wanted else {}
            case Transition.PROTECT_UNMARKED:
                annotations = self._protected(node, PROTECTED_WHILE_UNMARKED)
            case Transition.PROTECT_UNTIL:
                annotations = self._until(node)
            case (
                Transition.ALLOW_SCALE_DOWN | Transition.REMOVE_PROTECTION | Transition.ALLOW_DRIFT
            ):
                annotations = _without_protection(node)
            case Transition.REMOVE_BACKOFF:
                annotations = {BACKOFF_ANNOTATION: None}
            case _:  # only the label or the reserve annotation
                pass
        return annotations

    def _taints(self, node: Node) -> tuple[Taint, ...]:
        return desired_taints(node, TAINT_KEY)

    def _details(self, node: Node, *, renewed: bool) -> dict[str, str | None]:
        """Return the details annotation for a new mark, or for a mark without valid details.

        *renewed*: the deadline counts from now instead of from the time of the mark.
        """
        since = self._now
        if mark_of(node.labels) is not None:
            since = min(marked_since(node, TAINT_KEY) or since, since)
        details = Details(
            since=since,
            deadline=(self._now if renewed else since) + self._config.deadline_seconds,
            owner=self._owner,
            policy=self._policy,
            reason=Event.REMOVABLE.meaning,
            order=self.order[node.name],
        )
        return {DETAILS_ANNOTATION: encode_details(details)}

    def _protected(self, node: Node, until: str) -> dict[str, str | None]:
        """Return the annotations that protect the node from scale-down.

        If Karpenter may replace the node, returns the removal of Ebb's protection instead.
        *until*: Unix second of the end, or PROTECTED_WHILE_MARKED or PROTECTED_WHILE_UNMARKED.
        """
        if node.name in self._unprotectable:
            return _without_protection(node) if PROTECTION_ANNOTATION in node.annotations else {}
        return _protected(node, until)

    def _until(self, node: Node) -> dict[str, str | None]:
        return _protected(
            node, str(self._now + self._config.scale_down_protection.after_release_seconds)
        )

    def _backoff(self, node: Node) -> dict[str, str | None]:
        """Return the annotation with the next backoff, after a missed deadline or failed eviction.

        During the backoff Ebb does not mark the node.
        """
        before = backoff_of(node.annotations)
        times = min(before.times + 1 if before else 1, TIMES_MAX)
        until = self._now + self._config.budgets.backoff.seconds(times)
        why = self._watch.failed.get(node.name)
        return {BACKOFF_ANNOTATION: str(Backoff(times, until, why.code if why else ""))}


_EVICTED: Final = "Ebb evicts the pods of the node, and no new pod may be placed on it"
_SAME: Final = {
    Event.REMOVABLE_OBSERVED: Event.REMOVABLE,
    Event.INVALID_DETAILS: Event.REMOVABLE,
    Event.DETAILS_REMOVED: Event.MARK_REMOVED,
}
"""Events whose message is that of another event."""


def _labels(kind: WriteKind, node: Node) -> Keys:
    marks: Keys = {
        WriteKind.MARK: (mark_of(node.labels) or Mark.PREFER_NO_SCHEDULE).value,
        WriteKind.SET_NO_SCHEDULE: Mark.NO_SCHEDULE.value,
        WriteKind.SET_PREFER_NO_SCHEDULE: Mark.PREFER_NO_SCHEDULE.value,
        WriteKind.UNMARK: None,
    }
    return {MARK_LABEL: marks[kind]} if kind in marks else {}


def _protected(node: Node, until: str) -> dict[str, str | None]:
    """Return the annotations that protect the node from scale-down; empty if others use the key.

    *until*: Unix second of the end, or PROTECTED_WHILE_MARKED or PROTECTED_WHILE_UNMARKED.
    """
    key = _protection_key(node)
    if key is None:
        return {}
    record = str(ProtectionRecord(until, key))
    return {**_without_protection(node), key: "true", PROTECTION_ANNOTATION: record}


def _protection_key(node: Node) -> str | None:
    """Return the key of the annotation with which Ebb protects the node from scale-down.

    None if someone else has set the annotation with this key, and Ebb has set no other.
    """
    key, protection = protection_key(node), protection_of(node)
    if key not in node.annotations or (protection and protection.key == key):
        return key
    return protection.key if protection else None


def _without_protection(node: Node) -> dict[str, str | None]:
    """Return the annotation keys of Ebb's scale-down protection, with None, to remove them.

    The record with the key that development versions used is among them.
    """
    protection = protection_of(node)
    old = {OLD_PROTECTION_ANNOTATION} & node.annotations.keys()
    keys = (PROTECTION_ANNOTATION, *old, *((protection.key,) if protection else ()))
    return dict.fromkeys(keys)


def _without_ours(node: Node) -> dict[str, str | None]:
    # Not its backoff, which still counts if the autoscaler gives up the removal.
    return dict.fromkeys(key for key in annotation_keys_of_ebb(node) if key != BACKOFF_ANNOTATION)


def _reasons(blockers: Iterable[Blocker]) -> str:
    return "; ".join(f"{blocker.code}: {blocker.message}" for blocker in blockers)
