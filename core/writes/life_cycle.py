"""Define the life cycle of a mark as a table: which write follows from a state and an event.

`docs/life-cycle.md` shows the table. A new transition needs an entry here and a line in the table
of `tests/core/writes/test_life_cycle.py`.
"""

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Final

from core.marks.mark import (
    PROTECTED_WHILE_UNMARKED,
    Mark,
    backoff_of,
    is_scale_down_allowed,
    mark_of,
    protection_of,
)
from core.marks.wellknown import MARK_LABEL, PROTECTION_ANNOTATION
from core.model.node import Node
from core.writes.write import WriteKind


class MarkState(Enum):
    """A state of a Node, with its title and meaning.

    Each Node is in UNMARKED, PREFER_NO_SCHEDULE or NO_SCHEDULE, and can be in further states too.
    """

    UNMARKED = "unmarked", "The node has no mark."
    PREFER_NO_SCHEDULE = (
        "PreferNoSchedule",
        "The node has a PreferNoSchedule mark: kube-scheduler avoids it.",
    )
    NO_SCHEDULE = (
        "NoSchedule",
        "The node has a NoSchedule mark: kube-scheduler places no pods on it.",
    )
    PROTECTED = (
        "protected",
        "Marked, and protected from scale-down until the node is empty and not reserved.",
    )
    SCALE_DOWN_ALLOWED = (
        "scale-down allowed",
        "Marked, and not protected: the autoscaler may remove the node.",
    )
    PROTECTION_ENDING = (
        "protection ending",
        (
            "Not marked, and protected from scale-down until a fixed time. Or someone else "
            "removed the mark or the protection, and Ebb has not corrected the remaining "
            "annotations yet."
        ),
    )
    PROTECTED_UNMARKED = (
        "protected without mark",
        "Not marked, and protected from scale-down without a fixed end.",
    )
    BACKING_OFF = (
        "backing off",
        (
            "The node missed its deadline or its evictions failed: Ebb does not mark it for some "
            "time. The annotation remains for another `backoff.max`, because it counts the "
            "failures: if the node fails again, the next backoff is longer."
        ),
    )
    INVALID = (
        "invalid mark",
        (
            "The label of the mark has a value that Ebb does not write. The node counts as "
            "unmarked. The label remains until Ebb overwrites it with a mark, or until the node "
            "is leaving."
        ),
    )

    def __init__(self, title: str, meaning: str) -> None:
        self.title, self.meaning = title, meaning


class Event(Enum):
    """What happens to a Node in its life cycle, in the order in which Ebb checks it.

    Each member has a title and a meaning. These are not Events of the Kubernetes API.
    """

    DELETED = (
        "being deleted",
        "the Node has a deletionTimestamp, or an autoscaler is about to delete it",
    )
    LEAVING = (
        "leaving",
        "a taint of another program announces the removal of a node on which Ebb has written",
    )
    OBSERVE = "observe", "the configured mode is observe"
    EVICTION_FAILED = (
        "eviction failed",
        "a pod cannot be evicted, or the evictions were interrupted",
    )
    UNREMOVABLE = "not removable", "the cluster needs the node"
    EMPTY_AT_DEADLINE = (
        "empty at deadline",
        "the autoscaler has not removed the empty node before its deadline",
    )
    DEADLINE_MISSED = "deadline missed", "the node was not empty before its deadline"
    REMOVABLE = "removable", "the cluster does not need the node"
    REMOVABLE_OBSERVED = (
        "removable in observe",
        "the cluster does not need the node, and the mode is observe",
    )
    WRONG_TAINTS = "wrong taints", "the taints of the node do not match its mark"
    MARK_REMOVED = "mark removed", "someone else removed the mark"
    PROTECTION_WANTED = (
        "protection wanted",
        "the node needs protection until Ebb allows its scale-down",
    )
    WRONG_ANNOTATION = (
        "wrong annotation",
        "the protection uses an annotation that the autoscaler of the node does not read",
    )
    DETAILS_REMOVED = (
        "details removed",
        "someone else removed the mark and its details, but not the protection",
    )
    PROTECTION_UNWANTED = "protection unwanted", "the unmarked node needs no protection any more"
    LONG_OCCUPIED = (
        "occupied for long",
        "the unmarked node has had pods for `scaleDownProtection.afterRelease` or longer",
    )
    PROTECTION_REMOVED = "protection removed", "someone else removed the protection"
    INVALID_END = "invalid end", "the end of the protection is unreadable or too far in the future"
    PROTECTION_EXPIRED = "protection expired", "the protection has reached its end"
    BUSY = (
        "busy",
        (
            "the requests on the unmarked node are above `scaleDownProtection.utilization`, and "
            "`scaleDownProtection.scope` is `marked`"
        ),
    )
    DRIFTED = (
        "drifted",
        "Karpenter has reported the node as drifted for an hour, and may replace it",
    )
    BACKOFF_EXPIRED = (
        "backoff expired",
        (
            "the backoff ended at least `backoff.max` ago, its end is too far in the future, or "
            "the mode is observe"
        ),
    )
    INVALID_DETAILS = (
        "invalid details",
        "the details of the mark are missing or unreadable, or too far in the future",
    )
    NO_SCHEDULE_DUE = (
        "NoSchedule due",
        (
            "no reason with a code `no-schedule-...` applies to the node, a window of `schedule` "
            "is open, and either the node has been marked for `noScheduleAfter` or Ebb evicts its "
            "pods"
        ),
    )
    NO_SCHEDULE_BLOCKED = (
        "NoSchedule blocked",
        (
            "a reason with a code `no-schedule-...` applies to the node, or `noScheduleAfter` is "
            "`never` or longer than the age of the mark"
        ),
    )
    OCCUPIED = "occupied", "the marked node is not empty any more"
    RESERVED = "reserved", "the marked node is empty, but reserved for expected pods"
    EMPTY = (
        "empty",
        "the marked node is empty and not reserved, so the autoscaler may remove it",
    )
    RESERVE_CHANGED = (
        "reservation changed",
        "the reservation of the node for expected pods began or ended",
    )

    def __init__(self, title: str, meaning: str) -> None:
        self.title, self.meaning = title, meaning


class Transition(Enum):
    """A write to a Node that follows from its state and an Event.

    Each member has a title, the kind of the write, and the state after it (`then`), which is None
    if the state does not change.
    """

    MARK = "mark PreferNoSchedule", WriteKind.MARK, MarkState.PREFER_NO_SCHEDULE
    RESTORE_DETAILS = "restore the details", WriteKind.MARK, None
    EXTEND_DEADLINE = "extend the deadline", WriteKind.MARK, None
    SET_NO_SCHEDULE = (
        "change the mark to NoSchedule",
        WriteKind.SET_NO_SCHEDULE,
        MarkState.NO_SCHEDULE,
    )
    SET_PREFER_NO_SCHEDULE = (
        "change the mark to PreferNoSchedule",
        WriteKind.SET_PREFER_NO_SCHEDULE,
        MarkState.PREFER_NO_SCHEDULE,
    )
    UNMARK = "unmark", WriteKind.UNMARK, MarkState.PROTECTION_ENDING
    BACK_OFF = "unmark and back off", WriteKind.UNMARK, MarkState.BACKING_OFF
    REMOVE_ALL = "remove the mark and all annotations", WriteKind.UNMARK, MarkState.UNMARKED
    REMOVE_REST = "remove all annotations", WriteKind.REMOVE_PROTECTION, MarkState.UNMARKED
    PROTECT = "protect from scale-down", WriteKind.PROTECT, MarkState.PROTECTED
    PROTECT_UNTIL = (
        "set an end of the protection",
        WriteKind.PROTECT,
        MarkState.PROTECTION_ENDING,
    )
    PROTECT_UNMARKED = (
        "protect without mark",
        WriteKind.PROTECT_UNMARKED,
        MarkState.PROTECTED_UNMARKED,
    )
    ALLOW_SCALE_DOWN = (
        "allow scale-down",
        WriteKind.REMOVE_PROTECTION,
        MarkState.SCALE_DOWN_ALLOWED,
    )
    REMOVE_PROTECTION = "remove the protection", WriteKind.REMOVE_PROTECTION, MarkState.UNMARKED
    ALLOW_DRIFT = (
        "remove the protection, whether the node is empty or not",
        WriteKind.ALLOW_DRIFT,
        MarkState.SCALE_DOWN_ALLOWED,
    )
    UPDATE_RESERVE = "update the reserve annotation", WriteKind.UPDATE_RESERVE, None
    REMOVE_BACKOFF = "remove the backoff", WriteKind.REMOVE_BACKOFF, MarkState.UNMARKED
    REPAIR_TAINTS = "repair the taints", WriteKind.REPAIR_TAINTS, None

    def __init__(self, title: str, kind: WriteKind, then: MarkState | None) -> None:
        self.title, self.kind, self.then = title, kind, then


TABLE: Final[Mapping[Event, Mapping[MarkState, Transition]]] = {
    Event.DELETED: {},
    Event.LEAVING: {
        MarkState.INVALID: Transition.REMOVE_ALL,
        MarkState.UNMARKED: Transition.REMOVE_REST,
        MarkState.PREFER_NO_SCHEDULE: Transition.REMOVE_ALL,
        MarkState.NO_SCHEDULE: Transition.REMOVE_ALL,
    },
    Event.OBSERVE: {
        MarkState.PREFER_NO_SCHEDULE: Transition.UNMARK,
        MarkState.NO_SCHEDULE: Transition.UNMARK,
    },
    Event.EVICTION_FAILED: {
        MarkState.PREFER_NO_SCHEDULE: Transition.BACK_OFF,
        MarkState.NO_SCHEDULE: Transition.BACK_OFF,
    },
    Event.UNREMOVABLE: {
        MarkState.PREFER_NO_SCHEDULE: Transition.UNMARK,
        MarkState.NO_SCHEDULE: Transition.UNMARK,
    },
    Event.EMPTY_AT_DEADLINE: {
        MarkState.PREFER_NO_SCHEDULE: Transition.EXTEND_DEADLINE,
        MarkState.NO_SCHEDULE: Transition.EXTEND_DEADLINE,
    },
    Event.DEADLINE_MISSED: {
        MarkState.PREFER_NO_SCHEDULE: Transition.BACK_OFF,
        MarkState.NO_SCHEDULE: Transition.BACK_OFF,
    },
    Event.REMOVABLE: {MarkState.UNMARKED: Transition.MARK},
    Event.REMOVABLE_OBSERVED: {MarkState.UNMARKED: Transition.MARK},
    Event.WRONG_TAINTS: {
        MarkState.UNMARKED: Transition.REPAIR_TAINTS,
        MarkState.PREFER_NO_SCHEDULE: Transition.REPAIR_TAINTS,
        MarkState.NO_SCHEDULE: Transition.REPAIR_TAINTS,
    },
    Event.MARK_REMOVED: {MarkState.UNMARKED: Transition.UNMARK},
    Event.PROTECTION_WANTED: {MarkState.UNMARKED: Transition.PROTECT_UNMARKED},
    Event.WRONG_ANNOTATION: {
        MarkState.PROTECTED: Transition.PROTECT,
        MarkState.PROTECTION_ENDING: Transition.PROTECT_UNTIL,
        MarkState.PROTECTED_UNMARKED: Transition.PROTECT_UNMARKED,
    },
    Event.DETAILS_REMOVED: {MarkState.PROTECTION_ENDING: Transition.PROTECT_UNTIL},
    Event.PROTECTION_UNWANTED: {MarkState.PROTECTED_UNMARKED: Transition.PROTECT_UNTIL},
    Event.LONG_OCCUPIED: {MarkState.PROTECTED_UNMARKED: Transition.REMOVE_PROTECTION},
    Event.PROTECTION_REMOVED: {MarkState.PROTECTION_ENDING: Transition.REMOVE_PROTECTION},
    Event.INVALID_END: {MarkState.PROTECTION_ENDING: Transition.PROTECT_UNTIL},
    Event.PROTECTION_EXPIRED: {MarkState.PROTECTION_ENDING: Transition.REMOVE_PROTECTION},
    Event.BUSY: {MarkState.PROTECTION_ENDING: Transition.REMOVE_PROTECTION},
    Event.DRIFTED: {
        MarkState.PROTECTED: Transition.ALLOW_DRIFT,
        MarkState.PROTECTION_ENDING: Transition.REMOVE_PROTECTION,
        MarkState.PROTECTED_UNMARKED: Transition.REMOVE_PROTECTION,
    },
    Event.BACKOFF_EXPIRED: {MarkState.BACKING_OFF: Transition.REMOVE_BACKOFF},
    Event.INVALID_DETAILS: {
        MarkState.PREFER_NO_SCHEDULE: Transition.RESTORE_DETAILS,
        MarkState.NO_SCHEDULE: Transition.RESTORE_DETAILS,
    },
    Event.NO_SCHEDULE_DUE: {MarkState.PREFER_NO_SCHEDULE: Transition.SET_NO_SCHEDULE},
    Event.NO_SCHEDULE_BLOCKED: {MarkState.NO_SCHEDULE: Transition.SET_PREFER_NO_SCHEDULE},
    Event.OCCUPIED: {MarkState.SCALE_DOWN_ALLOWED: Transition.PROTECT},
    Event.RESERVED: {MarkState.SCALE_DOWN_ALLOWED: Transition.PROTECT},
    Event.EMPTY: {MarkState.PROTECTED: Transition.ALLOW_SCALE_DOWN},
    Event.RESERVE_CHANGED: {
        MarkState.UNMARKED: Transition.UPDATE_RESERVE,
        MarkState.PREFER_NO_SCHEDULE: Transition.UPDATE_RESERVE,
        MarkState.NO_SCHEDULE: Transition.UPDATE_RESERVE,
    },
}
"""Transition for each event and state; in a state without an entry, the event has no effect."""
LAST: Final = {
    Event.LEAVING,
    Event.OBSERVE,
    Event.EVICTION_FAILED,
    Event.UNREMOVABLE,
    Event.EMPTY_AT_DEADLINE,
    Event.DEADLINE_MISSED,
    Event.REMOVABLE,
    Event.MARK_REMOVED,
}
"""If one of these events leads to a write, Ebb writes nothing else to the Node in the same
reconciliation."""


def states(node: Node) -> Iterator[MarkState]:
    """Yield every state of the Node, according to its labels and annotations."""
    mark, annotations, protection = mark_of(node.labels), node.annotations, protection_of(node)
    if mark is None:
        if MARK_LABEL in node.labels:
            yield MarkState.INVALID
        yield MarkState.UNMARKED
        if PROTECTION_ANNOTATION in annotations:
            protected = protection is not None and protection.until == PROTECTED_WHILE_UNMARKED
            yield MarkState.PROTECTED_UNMARKED if protected else MarkState.PROTECTION_ENDING
    else:
        yield MarkState.NO_SCHEDULE if mark is Mark.NO_SCHEDULE else MarkState.PREFER_NO_SCHEDULE
        if protection is not None:
            yield MarkState.PROTECTED
        elif is_scale_down_allowed(node):
            yield MarkState.SCALE_DOWN_ALLOWED
    if backoff_of(annotations):
        yield MarkState.BACKING_OFF
