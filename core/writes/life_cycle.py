"""Define the life cycle of a mark as a table: which write follows from a state and an event.

The functions above the table are the conditions of its events. Each is called only for a Node in
one of the states of its event, and only if no earlier event has changed the same part of the Node.
`docs/design/life-cycle.md` shows the table.
"""

from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from functools import cache

from core.config.settings import Scope
from core.marks.mark import (
    BACKOFF_SECONDS_MAX,
    CLOCKS_APART_SECONDS_MAX,
    PROTECTED_WHILE_MARKED,
    PROTECTED_WHILE_UNMARKED,
    Mark,
    backoff_of,
)
from core.marks.taints import desired_taints
from core.marks.wellknown import (
    BACKOFF_ANNOTATION,
    DETAILS_ANNOTATION,
    MARK_LABEL,
    TAINT_KEY,
)
from core.model.now import Now
from core.writes.cleanup import annotation_keys_of_ebb
from core.writes.node_facts import NodeFacts
from core.writes.transitions import MARKED, MarkState, Part, Transition, states

# A leaving node. Ebb removes its fields, so that the autoscaler can remove the node at once. If
# the autoscaler gives up the removal, Ebb evaluates the node like any other.


def _leaving(facts: NodeFacts) -> bool:
    return MARK_LABEL in facts.node.labels


def _leaving_unmarked(facts: NodeFacts) -> bool:
    return not {BACKOFF_ANNOTATION}.issuperset(annotation_keys_of_ebb(facts.node))


# The mark


def _observe(facts: NodeFacts) -> bool:
    return facts.observe


def _eviction_failed(facts: NodeFacts) -> bool:
    return bool(facts.eviction_failure)


def _unremovable(facts: NodeFacts) -> bool:
    return facts.order is None


def _empty_at_deadline(facts: NodeFacts) -> bool:
    return facts.overdue and not facts.occupied


def _deadline_missed(facts: NodeFacts) -> bool:
    return facts.overdue and facts.occupied


def _removable(facts: NodeFacts) -> bool:
    return facts.order is not None and not facts.observe


def _removable_observed(facts: NodeFacts) -> bool:
    return facts.order is not None and facts.observe


def _wrong_taints(facts: NodeFacts) -> bool:
    return desired_taints(facts.node, TAINT_KEY) != facts.node.taints


def _mark_removed(facts: NodeFacts) -> bool:
    return DETAILS_ANNOTATION in facts.node.annotations


def _invalid_details(facts: NodeFacts) -> bool:
    # No leader with a roughly correct clock can have written a later time.
    latest, details = facts.now + CLOCKS_APART_SECONDS_MAX, facts.details
    return (
        details is None
        or details.since > latest
        or details.deadline > latest + facts.config.deadline_seconds
    )


def _no_schedule_due(facts: NodeFacts) -> bool:
    observed = facts.observed_for(facts.no_schedule_after_seconds or 0)
    return facts.may_begin and observed and not _no_schedule_blocked(facts)


def _no_schedule_blocked(facts: NodeFacts) -> bool:
    if facts.details is None or _invalid_details(facts):
        return False
    age, after = max(0, facts.now - facts.details.since), facts.no_schedule_after_seconds
    return bool(facts.no_schedule_blockers) or after is None or age < after


# The protection of a marked node


def _drifted(facts: NodeFacts) -> bool:
    return facts.drifted


def _empty(facts: NodeFacts) -> bool:
    return facts.free


def _occupied(facts: NodeFacts) -> bool:
    return facts.occupied and _protection_must_return(facts)


def _reserved(facts: NodeFacts) -> bool:
    return facts.reserved and _protection_must_return(facts)


def _protection_must_return(facts: NodeFacts) -> bool:
    # The write that changes a mark to PreferNoSchedule also restores the protection.
    restored = facts.mark is Mark.NO_SCHEDULE and _no_schedule_blocked(facts)
    return not facts.drifted and not restored


# The protection of an unmarked node


def _protection_wanted(facts: NodeFacts) -> bool:
    ends_in, seconds = facts.protection_ends_in, facts.after_unmark_seconds
    lasts = ends_in is not None and seconds < 2 * ends_in <= 2 * seconds
    enough = lasts or facts.protected_until == PROTECTED_WHILE_UNMARKED
    return facts.protection_needed and not enough


def _protection_removed(facts: NodeFacts) -> bool:
    return facts.protection is None


def _details_removed(facts: NodeFacts) -> bool:
    return facts.protected_until == PROTECTED_WHILE_MARKED


def _protection_unwanted(facts: NodeFacts) -> bool:
    # The protection of a node with pods lasts as long as one with an end. An end would be written
    # for each pod that arrives and terminates. A leader that has not observed the start of the
    # protection writes an end.
    begun = facts.occupied and facts.protected_at is not None and not _wrong_annotation(facts)
    scoped = facts.config.scale_down_protection.scope is not Scope.MARKED
    return not facts.protection_needed and not (begun and scoped and not facts.observe)


def _long_occupied(facts: NodeFacts) -> bool:
    since = facts.now if facts.protected_at is None else facts.protected_at
    long = facts.now - since >= facts.after_unmark_seconds
    return long and facts.occupied and not facts.protection_needed


def _invalid_end(facts: NodeFacts) -> bool:
    ends_in = facts.protection_ends_in
    return ends_in is None or ends_in > facts.after_unmark_seconds


def _protection_expired(facts: NodeFacts) -> bool:
    return _at_end(facts) and facts.observed_for(facts.after_unmark_seconds)


def _wrong_annotation(facts: NodeFacts) -> bool:
    protection = facts.protection
    wrong = protection is not None and protection.key != facts.protection_key
    return wrong and not _at_end(facts)


def _at_end(facts: NodeFacts) -> bool:
    return facts.protection_ends_in is not None and facts.protection_ends_in <= 0


# The other annotations


def _backoff_expired(facts: NodeFacts) -> bool:
    backoff, now = backoff_of(facts.node.annotations), Now(facts.now)
    if backoff is None or facts.mark is not None:
        return False
    long_ago = now.reached(backoff.until + BACKOFF_SECONDS_MAX)
    return facts.observe or long_ago or not backoff.is_possible(now)


def _reserve_changed(facts: NodeFacts) -> bool:
    return facts.reserve_outdated and not _may_be_reserved_again(facts)


def _may_be_reserved_again(facts: NodeFacts) -> bool:
    # The annotation remains then. A short-lived pod may occupy the node, or the node is protected
    # for another reason now. Readers of the annotation also check the pods of the node.
    at = facts.reserved_at
    recent = at is not None and facts.now - at < facts.after_unmark_seconds
    protected = facts.occupied or facts.protection_planned
    return recent and protected and not (facts.observe or facts.reserved)


class Event(Enum):
    """What happens to a Node in its life cycle, in the order in which Ebb checks it.

    Each member has a title, its condition in words and as a function, and the write for each state
    of the Node; in other states the event has no effect. These are not Events of the Kubernetes
    API.
    """

    LEAVING = (
        "leaving",
        "the leaving node has the label of a mark",
        _leaving,
        {MarkState.LEAVING: Transition.REMOVE_ALL},
    )
    LEAVING_UNMARKED = (
        "leaving unmarked",
        "the leaving node has annotations of Ebb, not only that of a backoff",
        _leaving_unmarked,
        {MarkState.LEAVING: Transition.REMOVE_REST},
    )
    OBSERVE = (
        "observe",
        "the configured mode is observe",
        _observe,
        dict.fromkeys(MARKED, Transition.UNMARK),
    )
    EVICTION_FAILED = (
        "eviction failed",
        "a pod cannot be evicted, or the evictions were interrupted",
        _eviction_failed,
        dict.fromkeys(MARKED, Transition.BACK_OFF),
    )
    UNREMOVABLE = (
        "not removable",
        "the cluster needs the node",
        _unremovable,
        dict.fromkeys(MARKED, Transition.UNMARK),
    )
    EMPTY_AT_DEADLINE = (
        "empty at deadline",
        "the autoscaler has not removed the empty node before its deadline",
        _empty_at_deadline,
        dict.fromkeys(MARKED, Transition.EXTEND_DEADLINE),
    )
    DEADLINE_MISSED = (
        "deadline missed",
        "the node was not empty before its deadline",
        _deadline_missed,
        dict.fromkeys(MARKED, Transition.BACK_OFF),
    )
    REMOVABLE = (
        "removable",
        "the cluster does not need the node",
        _removable,
        {MarkState.UNMARKED: Transition.MARK},
    )
    REMOVABLE_OBSERVED = (
        "removable in observe",
        "the cluster does not need the node, and the mode is observe",
        _removable_observed,
        {MarkState.UNMARKED: Transition.REPORT_MARK},
    )
    WRONG_TAINTS = (
        "wrong taints",
        "the taints of the node do not match its mark",
        _wrong_taints,
        dict.fromkeys((MarkState.LEAVING, MarkState.UNMARKED, *MARKED), Transition.REPAIR_TAINTS),
    )
    MARK_REMOVED = (
        "mark removed",
        "someone else removed the mark",
        _mark_removed,
        {MarkState.UNMARKED: Transition.UNMARK},
    )
    DRIFTED = (
        "drifted",
        "Karpenter has reported the node as drifted for an hour, and may replace it",
        _drifted,
        {
            MarkState.PROTECTED: Transition.ALLOW_DRIFT,
            MarkState.PROTECTION_ENDING: Transition.REMOVE_PROTECTION,
            MarkState.PROTECTED_UNMARKED: Transition.REMOVE_PROTECTION,
        },
    )
    INVALID_DETAILS = (
        "invalid details",
        "the details of the mark are missing or unreadable, or too far in the future",
        _invalid_details,
        dict.fromkeys(MARKED, Transition.RESTORE_DETAILS),
    )
    NO_SCHEDULE_DUE = (
        "NoSchedule due",
        (
            "no reason with a code `no-schedule-...` applies to the node, a window of `schedule` "
            "is open, and either the node has been marked for `noScheduleAfter` or Ebb evicts its"
            " pods"
        ),
        _no_schedule_due,
        {MarkState.PREFER_NO_SCHEDULE: Transition.SET_NO_SCHEDULE},
    )
    NO_SCHEDULE_BLOCKED = (
        "NoSchedule blocked",
        (
            "a reason with a code `no-schedule-...` applies to the node, or `noScheduleAfter` is "
            "`never` or longer than the age of the mark"
        ),
        _no_schedule_blocked,
        {MarkState.NO_SCHEDULE: Transition.SET_PREFER_NO_SCHEDULE},
    )
    EMPTY = (
        "empty",
        "the marked node is empty and not reserved, so the autoscaler may remove it",
        _empty,
        {MarkState.PROTECTED: Transition.ALLOW_SCALE_DOWN},
    )
    OCCUPIED = (
        "occupied",
        "the marked node is not empty any more",
        _occupied,
        {MarkState.SCALE_DOWN_ALLOWED: Transition.PROTECT},
    )
    RESERVED = (
        "reserved",
        "the marked node is empty, but reserved for expected pods",
        _reserved,
        {MarkState.SCALE_DOWN_ALLOWED: Transition.PROTECT},
    )
    PROTECTION_WANTED = (
        "protection wanted",
        "the node needs protection until Ebb allows its scale-down",
        _protection_wanted,
        {MarkState.UNMARKED: Transition.PROTECT_UNMARKED},
    )
    PROTECTION_REMOVED = (
        "protection removed",
        "someone else removed the scale-down protection",
        _protection_removed,
        {MarkState.PROTECTION_ENDING: Transition.REMOVE_PROTECTION},
    )
    DETAILS_REMOVED = (
        "details removed",
        "someone else removed the mark and its details, but not the scale-down protection",
        _details_removed,
        {MarkState.PROTECTION_ENDING: Transition.PROTECT_UNTIL},
    )
    PROTECTION_UNWANTED = (
        "protection unwanted",
        "the unmarked node needs no protection any more",
        _protection_unwanted,
        {MarkState.PROTECTED_UNMARKED: Transition.PROTECT_UNTIL},
    )
    LONG_OCCUPIED = (
        "occupied for long",
        "the unmarked node has had pods for `scaleDownProtection.afterUnmark` or longer",
        _long_occupied,
        {MarkState.PROTECTED_UNMARKED: Transition.REMOVE_PROTECTION},
    )
    INVALID_END = (
        "invalid end",
        "the end of the scale-down protection is unreadable or too far in the future",
        _invalid_end,
        {MarkState.PROTECTION_ENDING: Transition.PROTECT_UNTIL},
    )
    PROTECTION_EXPIRED = (
        "protection expired",
        "the scale-down protection of the unmarked node has reached its end",
        _protection_expired,
        {MarkState.PROTECTION_ENDING: Transition.REMOVE_PROTECTION},
    )
    WRONG_ANNOTATION = (
        "wrong annotation",
        "the scale-down protection uses an annotation that the autoscaler does not read",
        _wrong_annotation,
        {
            MarkState.PROTECTED: Transition.PROTECT,
            MarkState.PROTECTION_ENDING: Transition.PROTECT_UNTIL,
            MarkState.PROTECTED_UNMARKED: Transition.PROTECT_UNMARKED,
        },
    )
    BACKOFF_EXPIRED = (
        "backoff expired",
        (
            "the backoff ended at least a day ago, its end is too far in the future, or "
            "the mode is observe"
        ),
        _backoff_expired,
        {MarkState.BACKING_OFF: Transition.REMOVE_BACKOFF},
    )
    RESERVE_CHANGED = (
        "reservation changed",
        "the reservation of the node for expected pods began or ended",
        _reserve_changed,
        dict.fromkeys((MarkState.UNMARKED, *MARKED), Transition.UPDATE_RESERVE),
    )

    def __init__(
        self,
        title: str,
        meaning: str,
        condition: Callable[[NodeFacts], bool],
        writes: Mapping[MarkState, Transition],
    ) -> None:
        self.title, self.meaning, self.condition, self.writes = title, meaning, condition, writes


def due_transitions(facts: NodeFacts) -> Iterator[tuple[Event, Transition]]:
    """Yield the writes to a Node, each with its event, in the order of Event.

    Of the events with a write to the same part of the Node, only the first counts. Nothing follows
    a write to all parts.
    """
    written: list[Part] = []
    for event, transition in _of_states(tuple(states(facts.node))):
        if transition.part not in written and event.condition(facts):
            yield event, transition
            written.append(transition.part)
            if transition.part is Part.ALL:
                return


@cache
def _of_states(current: tuple[MarkState, ...]) -> list[tuple[Event, Transition]]:
    """Return the events with a write for a Node in these states, in the order of Event."""
    return [
        (event, event.writes[state])
        for event in Event
        for state in current
        if state in event.writes
    ]
