"""Decide what to write on each Node, given the cluster and the plan for it; without I/O.

In mode observe new marks are only reported; marks and annotations of mode enforce are removed.
Scale-down protection starts with the mark. It ends when the node is empty, returns when a pod
arrives, and stays for some time after Ebb unmarks the node. Ebb writes nothing to a Node that is
being deleted. These rules follow from the behavior of Cluster Autoscaler. core.marks has the keys.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from core.config.settings import Config
from core.eligibility.drift import unprotectable
from core.eligibility.emptiness import occupants
from core.engine.maintenance_gate import MayBegin, RefusedWrite, may_begin
from core.engine.no_schedule import NoScheduleBlockers, blockers_by_node
from core.engine.plan import Plan
from core.engine.snapshot import ClusterSnapshot
from core.marks.mark import (
    PROTECTED_WHILE_MARKED,
    PROTECTED_WHILE_UNMARKED,
    RESERVE_CHARACTERS_MAX,
    Details,
    Mark,
    ProtectionRecord,
    encode_details,
    is_scale_down_allowed,
    mark_of,
    marked_since,
    next_backoff,
)
from core.marks.taints import desired_taints
from core.marks.wellknown import (
    BACKOFF_ANNOTATION,
    DETAILS_ANNOTATION,
    KEEP_ANNOTATION,
    MARK_LABEL,
    OLD_PROTECTION_ANNOTATION,
    OUR_ANNOTATIONS,
    PROTECTION_ANNOTATION,
    RESERVE_ANNOTATION,
    TAINT_KEY,
)
from core.model.cluster import Cluster
from core.model.humanize import duration
from core.model.node import Node
from core.model.node_lifecycle import why_leaving
from core.model.now import Now
from core.model.reason import Blocker
from core.writes.cleanup import annotation_keys_of_ebb
from core.writes.life_cycle import Event, due_transitions
from core.writes.node_facts import WATCH_SECONDS, NodeFacts
from core.writes.transitions import Transition
from core.writes.write import URGENT, Keys, Write, WriteKind

COMES_BACK: Final = (
    f"only the annotation {KEEP_ANNOTATION}=true keeps Ebb from marking the node again"
)
"""What a person who removes a mark must know."""
MARKS_PER_RECONCILIATION_MAX: Final = 200
"""Maximum number of new marks in one reconciliation; a mark takes about ten milliseconds."""
PROTECTIONS_PER_RECONCILIATION_MAX: Final = 200
"""Maximum number of protections of unmarked nodes in one reconciliation; a new leader protects all
empty nodes."""


@dataclass(frozen=True, slots=True)
class LeaderObservations:
    """What this leader has observed itself, such as failed evictions, beyond the cluster."""

    seconds: int
    """Time for which the leader has observed the cluster, in seconds."""
    no_schedule_blockers: NoScheduleBlockers
    """Reasons against a NoSchedule mark, by marked node."""
    no_schedule: frozenset[str] = frozenset()
    """Nodes whose pods Ebb evicts; their mark must be NoSchedule regardless of its age."""
    failed: Mapping[str, Blocker] = field(default_factory=dict)
    """Why evictions failed, by node."""
    protected: Mapping[str, int] = field(default_factory=dict)
    """Unix second of the last reconciliation in which each unmarked node was to be protected."""
    reserved: Mapping[str, int] = field(default_factory=dict)
    """Unix second of the last reconciliation in which each node was reserved for expected pods."""
    refused_write: RefusedWrite | None = None
    """See core.engine.leader_state."""


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
            WATCH_SECONDS, blockers_by_node(ClusterSnapshot(cluster, config))
        )
    shared = SharedFacts(cluster, plan, config, now_seconds=now_seconds, owner=owner, watch=watch)
    changing = (node for node in cluster.nodes if shared.may_change(node))
    writes = [write for node in changing for write in _writes(shared.about(node))]
    # In the plan's order, the marks written so far always form a valid plan.
    marks = _sorted_of_kind(WriteKind.MARK, writes, lambda write: shared.order[write.key])
    protections = _sorted_of_kind(
        WriteKind.PROTECT_UNMARKED,
        writes,
        lambda write: (write.key in shared.occupied, write.key),
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


class SharedFacts:
    """Collect what the decisions about all Nodes share in one reconciliation."""

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
        """Collect the facts.

        *now_seconds*: Unix time. *owner*: name of the leader, which the details of a mark contain.
        *watch*: what this leader has observed.
        """
        now = Now(now_seconds)
        self.order = {removal.node: removal.order for removal in plan.removals}
        written = {
            node.name
            for node in cluster.nodes
            if mark_of(node.labels) is not None or PROTECTION_ANNOTATION in node.annotations
        }
        self.occupied = occupants(cluster, now, written | plan.protected)
        self._kept = {kept.node: kept.blockers for kept in plan.kept}
        self._reserve = {reserved.node: (reserved.why,) for reserved in plan.reserve}
        self._protected = plan.protected
        self._drifted = unprotectable(cluster, now)
        self._watch = watch
        self._facts = partial(
            NodeFacts,
            config=config,
            now=now_seconds,
            observed_seconds=watch.seconds,
            may_begin=isinstance(may_begin(config, now, watch.refused_write), MayBegin),
            owner=owner,
            policy=plan.policy,
        )

    def may_change(self, node: Node) -> bool:
        """Return whether the plan names the Node, or it has a field of Ebb.

        No event leads to a write on any other Node. Most Nodes of a cluster are such Nodes.
        """
        return (
            node.name in self.order
            or node.name in self._protected
            or MARK_LABEL in node.labels
            or not node.annotations.keys().isdisjoint(OUR_ANNOTATIONS)
            or any(taint.key == TAINT_KEY for taint in node.taints)
        )

    def about(self, node: Node) -> NodeFacts:
        """Return the facts about one Node."""
        name, watch = node.name, self._watch
        return self._facts(
            node=node,
            order=self.order.get(name),
            kept=self._kept.get(name, ()),
            reserve=self._reserve.get(name, ()),
            protection_planned=name in self._protected,
            occupied=name in self.occupied,
            drifted=name in self._drifted,
            eviction_failure=(watch.failed[name],) if name in watch.failed else (),
            evicting=name in watch.no_schedule,
            no_schedule_blockers=watch.no_schedule_blockers.get(name, ()),
            protected_at=watch.protected.get(name),
            reserved_at=watch.reserved.get(name),
        )


def _writes(facts: NodeFacts) -> Iterator[Write[Node]]:
    reserve_written = False
    for event, transition in due_transitions(facts):
        if event is Event.RESERVE_CHANGED and reserve_written:
            return  # the write before includes the annotation
        reserve_written = transition is not Transition.REPAIR_TAINTS
        yield _write(transition, event, facts)


def _write(transition: Transition, event: Event, facts: NodeFacts) -> Write[Node]:
    node, note = facts.node, _note(event, facts)
    if transition is Transition.REPAIR_TAINTS:
        return Write(transition.kind, node, {}, note, desired_taints(node, TAINT_KEY))
    annotations = _ANNOTATIONS[transition](facts) if transition in _ANNOTATIONS else {}
    if transition not in (Transition.REMOVE_ALL, Transition.REMOVE_REST):
        annotations = {**annotations, **_reserve_annotation(facts)}
    write = Write.of(transition.kind, node, _labels(transition, facts), annotations, note)
    if transition.kind is WriteKind.UNMARK and facts.mark is not None:
        return replace(write, code=_unmark_code(event, facts))
    return write


def _note(event: Event, facts: NodeFacts) -> str:
    """Return why Ebb makes the write that follows from the event."""
    match event:
        case Event.LEAVING | Event.LEAVING_UNMARKED:
            return why_leaving(facts.node) or ""
        case Event.EVICTION_FAILED:
            return f"evictions failed: {_text(facts.eviction_failure)}"
        case Event.UNREMOVABLE:
            return _text(facts.kept)
        case Event.REMOVABLE_OBSERVED:
            return Event.REMOVABLE.meaning
        case Event.REMOVABLE | Event.MARK_REMOVED | Event.DETAILS_REMOVED:
            return _with_removed_mark(event, facts)
        case Event.NO_SCHEDULE_DUE:
            return _why_due(facts)
        case Event.NO_SCHEDULE_BLOCKED:
            return _text(facts.no_schedule_blockers) or _why_too_early(facts.config)
        case Event.RESERVED | Event.PROTECTION_WANTED | Event.RESERVE_CHANGED:
            return _why_reserved(event, facts)
        case _:
            return _with_consequence(event, facts)


def _with_consequence(event: Event, facts: NodeFacts) -> str:
    """Return the meaning of the event, and what Ebb writes if the kind of the write misleads."""
    notes = {
        Event.INVALID_DETAILS: f"{Event.REMOVABLE.meaning}; Ebb restores the details of the mark",
        Event.EMPTY_AT_DEADLINE: f"{event.meaning}; Ebb extends the deadline",
        Event.PROTECTION_UNWANTED: f"{event.meaning}; {_protection_ends(facts)}",
        Event.INVALID_END: "the former end of the scale-down protection was not valid; "
        f"{_protection_ends(facts)}",
        Event.WRONG_ANNOTATION: (
            "the autoscaler of the node did not read the annotation that protected it before"
        ),
    }
    return notes.get(event, event.meaning)


def _with_removed_mark(event: Event, facts: NodeFacts) -> str:
    """Return why Ebb marks a node, or that someone else removed the mark and it will come back."""
    removed = Event.MARK_REMOVED.meaning
    if event is Event.DETAILS_REMOVED:
        removed = f"{removed}; {_protection_ends(facts)}"
    if event is not Event.REMOVABLE:
        final = facts.observe or KEEP_ANNOTATION in facts.node.annotations
        return removed if final else f"{removed}; {COMES_BACK}"
    marked_before = DETAILS_ANNOTATION in facts.node.annotations
    return f"{event.meaning}; {removed}, and {COMES_BACK}" if marked_before else event.meaning


def _protection_ends(facts: NodeFacts) -> str:
    return f"the protection from scale-down ends in {duration(facts.after_unmark_seconds)}"


def _why_due(facts: NodeFacts) -> str:
    if facts.evicting:
        return "Ebb evicts the pods of the node, and no new pod may be placed on it"
    age = max(0, facts.now - marked_since(facts.node, TAINT_KEY))
    return f"the node has been marked for {duration(age)}"


def _why_reserved(event: Event, facts: NodeFacts) -> str:
    if event is Event.RESERVE_CHANGED and not facts.reserved:
        return "the node is no longer reserved for expected pods"
    # Reasons against the removal do not explain the reservation, or the protection of a node with
    # pods.
    explained = event is Event.RESERVE_CHANGED or facts.occupied
    return _text((*facts.reserve, *(() if explained else facts.kept))) or event.meaning


def _why_too_early(config: Config) -> str:
    after = config.no_schedule_after_seconds
    if after is None:
        return "NoSchedule marks are not configured (noScheduleAfter: never)"
    return f"the mark is younger than `noScheduleAfter` ({duration(after)})"


def _unmark_code(event: Event, facts: NodeFacts) -> str:
    """Return the code that says why Ebb unmarks the node, for metrics.

    It is the code of a reason, or the title of the event with hyphens.
    """
    reasons = {Event.EVICTION_FAILED: facts.eviction_failure, Event.UNREMOVABLE: facts.kept}
    why = reasons.get(event)
    return why[0].code if why else event.title.replace(" ", "-")


def _text(blockers: Iterable[Blocker]) -> str:
    return "; ".join(
        f"{blocker.code}: {_subject(blocker)}{blocker.message}" for blocker in blockers
    )


def _subject(blocker: Blocker) -> str:
    """Return the pod that the message is about, unless the message names it; empty for a node."""
    pod = blocker.pod
    return f"pod {pod}: " if pod and pod not in blocker.message else ""


def _labels(transition: Transition, facts: NodeFacts) -> Keys:
    marks: Keys = {
        WriteKind.MARK: (facts.mark or Mark.PREFER_NO_SCHEDULE).value,
        WriteKind.SET_NO_SCHEDULE: Mark.NO_SCHEDULE.value,
        WriteKind.SET_PREFER_NO_SCHEDULE: Mark.PREFER_NO_SCHEDULE.value,
        WriteKind.UNMARK: None,
    }
    return {MARK_LABEL: marks[transition.kind]} if transition.kind in marks else {}


def _marked(facts: NodeFacts) -> Keys:
    since = facts.now
    if facts.mark is not None:
        since = min(marked_since(facts.node, TAINT_KEY) or since, since)
    return {**_details(facts, since, since), **_protected_while_marked(facts)}


def _extended(facts: NodeFacts) -> Keys:
    since = min(marked_since(facts.node, TAINT_KEY) or facts.now, facts.now)
    # Protection of a node that is not reserved would restart the autoscaler's own delay.
    protection = _protected_while_marked(facts) if facts.reserved else {}
    return {**_details(facts, since, facts.now), **protection}


def _details(facts: NodeFacts, since: int, begin: int) -> Keys:
    """Return the details annotation of a mark that began at *since*.

    *begin*: Unix second from which the deadline counts.
    """
    details = Details(
        since=since,
        deadline=begin + facts.config.deadline_seconds,
        owner=facts.owner,
        policy=facts.policy,
        reason=Event.REMOVABLE.meaning,
        order=facts.order or 0,
    )
    return {DETAILS_ANNOTATION: encode_details(details)}


def _unmarked(facts: NodeFacts) -> Keys:
    return {DETAILS_ANNOTATION: None, **_protected_for_some_time(facts)}


def _backing_off(facts: NodeFacts) -> Keys:
    code = facts.eviction_failure[0].code if facts.eviction_failure else ""
    backoff = next_backoff(facts.node.annotations, facts.now, code)
    return {**_unmarked(facts), BACKOFF_ANNOTATION: str(backoff)}


def _without_ours(facts: NodeFacts) -> Keys:
    # Not the backoff, which still counts if the autoscaler gives up the removal.
    keys = annotation_keys_of_ebb(facts.node)
    return dict.fromkeys(key for key in keys if key != BACKOFF_ANNOTATION)


def _protected_again(facts: NodeFacts) -> Keys:
    lost = is_scale_down_allowed(facts.node) and not facts.free
    return _protected_while_marked(facts) if lost else {}


def _protected_for_some_time(facts: NodeFacts) -> Keys:
    return _protected(facts, str(facts.now + facts.after_unmark_seconds))


def _protected_while_marked(facts: NodeFacts) -> Keys:
    if not facts.drifted:
        return _protected(facts, PROTECTED_WHILE_MARKED)
    # Karpenter may replace the node.
    return _unprotected(facts) if PROTECTION_ANNOTATION in facts.node.annotations else {}


def _protected(facts: NodeFacts, until: str) -> Keys:
    """Return the annotations that protect the node from scale-down; empty if others use the key.

    *until*: Unix second of the end, or PROTECTED_WHILE_MARKED or PROTECTED_WHILE_UNMARKED.
    """
    key = facts.protection_key
    if key is None:
        return {}
    record = str(ProtectionRecord(until, key))
    return {**_unprotected(facts), key: "true", PROTECTION_ANNOTATION: record}


def _unprotected(facts: NodeFacts) -> Keys:
    # The record with the key that development versions used is removed too.
    old = {OLD_PROTECTION_ANNOTATION} & facts.node.annotations.keys()
    protection = (facts.protection.key,) if facts.protection else ()
    return dict.fromkeys((PROTECTION_ANNOTATION, *old, *protection))


def _reserve_annotation(facts: NodeFacts) -> Keys:
    """Return the annotation to write because a reservation for expected pods begins or ends.

    Its value is None at the end. The mapping is empty at any other time.
    """
    if not facts.reserve_outdated:
        return {}
    text = facts.reserve[0].message[:RESERVE_CHARACTERS_MAX] if facts.reserve_wanted else None
    return {RESERVE_ANNOTATION: text}


_ANNOTATIONS: Final[Mapping[Transition, Callable[[NodeFacts], Keys]]] = {
    Transition.MARK: _marked,
    Transition.REPORT_MARK: _marked,
    Transition.RESTORE_DETAILS: _marked,
    Transition.EXTEND_DEADLINE: _extended,
    Transition.SET_PREFER_NO_SCHEDULE: _protected_again,
    Transition.UNMARK: _unmarked,
    Transition.BACK_OFF: _backing_off,
    Transition.REMOVE_ALL: _without_ours,
    Transition.REMOVE_REST: _without_ours,
    Transition.PROTECT: _protected_while_marked,
    Transition.PROTECT_UNTIL: _protected_for_some_time,
    Transition.PROTECT_UNMARKED: lambda facts: _protected(facts, PROTECTED_WHILE_UNMARKED),
    Transition.ALLOW_SCALE_DOWN: _unprotected,
    Transition.REMOVE_PROTECTION: _unprotected,
    Transition.ALLOW_DRIFT: _unprotected,
    Transition.REMOVE_BACKOFF: lambda _: {BACKOFF_ANNOTATION: None},
}
"""The annotations that each write changes; other writes change none but the reserve annotation."""
