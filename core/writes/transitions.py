"""Define the states of a Node in the life cycle of a mark, and the writes that change them.

`core/writes/life_cycle.py` says which write follows from a state and an event.
"""

from collections.abc import Iterator
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
from core.marks.wellknown import PROTECTION_ANNOTATION
from core.model.node import Node
from core.model.node_lifecycle import being_deleted, why_leaving
from core.writes.write import WriteKind


class MarkState(Enum):
    """A state of a Node, with its title and meaning.

    A Node that is being deleted or leaving has no other state. Each other Node is in UNMARKED,
    PREFER_NO_SCHEDULE or NO_SCHEDULE, and can be in further states too.
    """

    DELETED = (
        "being deleted",
        (
            "The Node has a deletionTimestamp, or an autoscaler is about to delete it: Ebb writes "
            "nothing."
        ),
    )
    LEAVING = (
        "leaving",
        (
            "A taint, a condition or the NodeClaim of the node announces that it will be removed: "
            "Ebb removes what it has written."
        ),
    )
    UNMARKED = (
        "unmarked",
        (
            "The node has no mark. A label with a value that Ebb does not write is no mark. It "
            "remains until Ebb overwrites it with a mark, or until the node is leaving."
        ),
    )
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
            "The node missed its deadline, its evictions failed, or `ebb unmark` removed its "
            "mark: Ebb does not mark it for some time. The annotation remains for another day, "
            "because it counts the failures: if the node fails again, the next backoff is longer."
        ),
    )

    def __init__(self, title: str, meaning: str) -> None:
        self.title, self.meaning = title, meaning


MARKED: Final = MarkState.PREFER_NO_SCHEDULE, MarkState.NO_SCHEDULE


class Part(Enum):
    """A part of the fields of a Node that Ebb writes."""

    ALL = "all"
    MARK = "mark"
    TAINTS = "taints"
    PROTECTION = "protection"
    BACKOFF = "backoff"
    RESERVE = "reservation"


class Transition(Enum):
    """A write to a Node that follows from its state and an Event.

    Each member has a title, the kind of the write, the part of the Node that it changes, and the
    state after it (`then`), which is None if the state does not change.
    """

    MARK = "mark PreferNoSchedule", WriteKind.MARK, Part.ALL, MarkState.PREFER_NO_SCHEDULE
    REPORT_MARK = "log the mark that it would set", WriteKind.MARK, Part.MARK, None
    RESTORE_DETAILS = "restore the details", WriteKind.MARK, Part.MARK, None
    EXTEND_DEADLINE = "extend the deadline", WriteKind.MARK, Part.ALL, None
    SET_NO_SCHEDULE = (
        "change the mark to NoSchedule",
        WriteKind.SET_NO_SCHEDULE,
        Part.MARK,
        MarkState.NO_SCHEDULE,
    )
    SET_PREFER_NO_SCHEDULE = (
        "change the mark to PreferNoSchedule",
        WriteKind.SET_PREFER_NO_SCHEDULE,
        Part.MARK,
        MarkState.PREFER_NO_SCHEDULE,
    )
    UNMARK = "unmark", WriteKind.UNMARK, Part.ALL, MarkState.PROTECTION_ENDING
    BACK_OFF = "unmark and back off", WriteKind.UNMARK, Part.ALL, MarkState.BACKING_OFF
    REMOVE_ALL = "remove the mark and all annotations", WriteKind.UNMARK, Part.ALL, None
    REMOVE_REST = "remove all annotations", WriteKind.REMOVE_PROTECTION, Part.ALL, None
    PROTECT = "protect from scale-down", WriteKind.PROTECT, Part.PROTECTION, MarkState.PROTECTED
    PROTECT_UNTIL = (
        "set an end of the protection",
        WriteKind.PROTECT,
        Part.PROTECTION,
        MarkState.PROTECTION_ENDING,
    )
    PROTECT_UNMARKED = (
        "protect without mark",
        WriteKind.PROTECT_UNMARKED,
        Part.PROTECTION,
        MarkState.PROTECTED_UNMARKED,
    )
    ALLOW_SCALE_DOWN = (
        "allow scale-down",
        WriteKind.REMOVE_PROTECTION,
        Part.PROTECTION,
        MarkState.SCALE_DOWN_ALLOWED,
    )
    REMOVE_PROTECTION = (
        "remove the protection",
        WriteKind.REMOVE_PROTECTION,
        Part.PROTECTION,
        MarkState.UNMARKED,
    )
    ALLOW_DRIFT = (
        "remove the protection, whether the node is empty or not",
        WriteKind.ALLOW_DRIFT,
        Part.PROTECTION,
        MarkState.SCALE_DOWN_ALLOWED,
    )
    UPDATE_RESERVE = "update the reserve annotation", WriteKind.UPDATE_RESERVE, Part.RESERVE, None
    REMOVE_BACKOFF = (
        "remove the backoff",
        WriteKind.REMOVE_BACKOFF,
        Part.BACKOFF,
        MarkState.UNMARKED,
    )
    REPAIR_TAINTS = "repair the taints", WriteKind.REPAIR_TAINTS, Part.TAINTS, None

    def __init__(self, title: str, kind: WriteKind, part: Part, then: MarkState | None) -> None:
        self.title, self.kind, self.part, self.then = title, kind, part, then


def states(node: Node) -> Iterator[MarkState]:
    """Yield every state of the Node, according to its fields."""
    if why_leaving(node) is not None:
        yield MarkState.DELETED if being_deleted(node) else MarkState.LEAVING
        return
    mark, protection = mark_of(node.labels), protection_of(node)
    if mark is None:
        yield MarkState.UNMARKED
        if PROTECTION_ANNOTATION in node.annotations:
            protected = protection is not None and protection.until == PROTECTED_WHILE_UNMARKED
            yield MarkState.PROTECTED_UNMARKED if protected else MarkState.PROTECTION_ENDING
    else:
        yield MarkState.NO_SCHEDULE if mark is Mark.NO_SCHEDULE else MarkState.PREFER_NO_SCHEDULE
        if protection is not None:
            yield MarkState.PROTECTED
        elif is_scale_down_allowed(node):
            yield MarkState.SCALE_DOWN_ALLOWED
    if backoff_of(node.annotations):
        yield MarkState.BACKING_OFF
