"""The life of a mark as a table: what stands on a Node, what happens, what is written then.

`docs/life-cycle.md` draws it. A new transition is an entry here and a line in the test's table.
"""

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Final

from core.marks.mark import (
    GUARD_WHILE_HELD,
    Mark,
    backoff_of,
    guard_of,
    is_released_to_autoscaler,
    mark_of,
)
from core.marks.wellknown import GUARD_OURS_ANNOTATION, MARK_LABEL
from core.model.node import Node
from core.writes.write import WriteKind


class State(Enum):
    """What stands on a Node: one of the first three, and what of the others is beside it."""

    UNMARKED = "unmarked", "it has no mark"
    SOFT = "soft", "marked: the scheduler is asked to keep pods away"
    HARD = "hard", "marked: the scheduler is forbidden to place pods there"
    GUARDED = "guarded", "marked, and kept from the autoscaler until it is empty"
    HANDED_OVER = "handed over", "marked, and nothing keeps the autoscaler from it"
    RELEASED = "released", "not marked any more, or not held; the guard stays until a second"
    HELD = "held", "not marked, and kept from the autoscaler: Ebb has not handed it over"
    BACKING_OFF = "backing off", "it did not empty in time, or its drain failed: it is left alone"
    ODD = "odd label", "its mark is none that Ebb writes: it counts as unmarked"

    def __init__(self, title: str, meaning: str) -> None:
        self.title, self.meaning = title, meaning


class Event(Enum):
    """What plan and cluster say of a Node; in the order in which it is looked at."""

    DELETED = "deleted", "an autoscaler is deleting it"
    LEAVING = "leaving", "it leaves by itself, and something of ours stands on it"
    OBSERVE = "observe", "mode: observe"
    DRAIN_FAILED = "drain failed", "a pod of it cannot be evicted, or its drain broke off"
    STAYS = "stays", "the plan keeps it"
    KEPT_LONG = "kept long", "empty, and still there when its deadline came"
    OVERDUE = "overdue", "it did not empty before its deadline"
    GOES = "goes", "the cluster can do without it"
    WOULD_GO = "would go", "the same in mode observe: the mark is only told"
    TAINTS_WRONG = "taints wrong", "its taints are not those of its mark"
    OTHERS_RELEASE = "others' release", "somebody else took the mark away"
    HELD = "held", "it is to be kept from the autoscaler until it is handed over"
    MISPLACED = "misplaced", "its autoscaler reads another annotation than that of the guard"
    GUARD_LEFT = "guard left", "somebody else took the mark away, and the details with it"
    HOLD_ENDS = "hold ends", "held, and not to be held any more"
    HOLD_OVER = "hold over", "held, and has held pods for as long as the guard of a released one"
    GUARD_GONE = "guard gone", "the guard itself is gone"
    GUARD_DISPLACED = "guard displaced", "its end was set by a wrong clock"
    GUARD_ENDS = "guard ends", "released long enough ago"
    BUSY = "busy", "released, and above the autoscaler's threshold"
    BACKOFF_ENDS = "back-off ends", "its back-off ended long ago"
    DETAILS_LOST = "details lost", "nothing says since when it is marked, or a wrong clock does"
    HARD_ASKED = "hard asked", "it has been marked for `hardAfter`, or is to be drained"
    HARD_REFUSED = "hard refused", "something speaks against a hard mark, or it is not configured"
    POD_THERE = "pod there", "marked, and not empty any more"
    RESERVED = "reserved", "marked and empty, but kept for pods that are to be expected"
    EMPTY = "empty", "marked and empty: the autoscaler may take it"
    TOLD = (
        "told",
        "what it says of the pods that it is kept for has begun, or ended; written beside",
    )

    def __init__(self, title: str, meaning: str) -> None:
        self.title, self.meaning = title, meaning


class Transition(Enum):
    """What is written: of which kind, and the state that it leads to; None: as it was."""

    MARK = "mark", WriteKind.MARK, State.SOFT
    DATE = "date the mark anew", WriteKind.MARK, None
    RENEW = "give it another deadline", WriteKind.MARK, None
    HARDEN = "harden", WriteKind.HARDEN, State.HARD
    SOFTEN = "soften", WriteKind.SOFTEN, State.SOFT
    RELEASE = "release", WriteKind.RELEASE, State.RELEASED
    BACK_OFF = "release and back off", WriteKind.RELEASE, State.BACKING_OFF
    LET_GO = "take all off", WriteKind.RELEASE, State.UNMARKED
    CLEAR = "take the rest off", WriteKind.UNGUARD, State.UNMARKED
    GUARD = "guard", WriteKind.GUARD, State.GUARDED
    PROLONG = "guard until a new end", WriteKind.GUARD, State.RELEASED
    HOLD = "hold", WriteKind.HOLD, State.HELD
    HAND_OVER = "hand over", WriteKind.UNGUARD, State.HANDED_OVER
    LIFT = "lift the guard", WriteKind.UNGUARD, State.UNMARKED
    TELL = "say for which pods it is kept", WriteKind.TELL, None
    FORGET = "forget", WriteKind.FORGET, State.UNMARKED
    REPAIR = "repair the taints", WriteKind.REPAIR, None

    def __init__(self, title: str, kind: WriteKind, then: State | None) -> None:
        self.title, self.kind, self.then = title, kind, then


TABLE: Final[Mapping[Event, Mapping[State, Transition]]] = {
    Event.DELETED: {},
    Event.LEAVING: {
        State.ODD: Transition.LET_GO,
        State.UNMARKED: Transition.CLEAR,
        State.SOFT: Transition.LET_GO,
        State.HARD: Transition.LET_GO,
    },
    Event.OBSERVE: {State.SOFT: Transition.RELEASE, State.HARD: Transition.RELEASE},
    Event.DRAIN_FAILED: {State.SOFT: Transition.BACK_OFF, State.HARD: Transition.BACK_OFF},
    Event.STAYS: {State.SOFT: Transition.RELEASE, State.HARD: Transition.RELEASE},
    Event.KEPT_LONG: {State.SOFT: Transition.RENEW, State.HARD: Transition.RENEW},
    Event.OVERDUE: {State.SOFT: Transition.BACK_OFF, State.HARD: Transition.BACK_OFF},
    Event.GOES: {State.UNMARKED: Transition.MARK},
    Event.WOULD_GO: {State.UNMARKED: Transition.MARK},
    Event.TAINTS_WRONG: {
        State.UNMARKED: Transition.REPAIR,
        State.SOFT: Transition.REPAIR,
        State.HARD: Transition.REPAIR,
    },
    Event.OTHERS_RELEASE: {State.UNMARKED: Transition.RELEASE},
    Event.HELD: {State.UNMARKED: Transition.HOLD},
    Event.MISPLACED: {
        State.GUARDED: Transition.GUARD,
        State.RELEASED: Transition.PROLONG,
        State.HELD: Transition.HOLD,
    },
    Event.GUARD_LEFT: {State.RELEASED: Transition.PROLONG},
    Event.HOLD_ENDS: {State.HELD: Transition.PROLONG},
    Event.HOLD_OVER: {State.HELD: Transition.LIFT},
    Event.GUARD_GONE: {State.RELEASED: Transition.LIFT},
    Event.GUARD_DISPLACED: {State.RELEASED: Transition.PROLONG},
    Event.GUARD_ENDS: {State.RELEASED: Transition.LIFT},
    Event.BUSY: {State.RELEASED: Transition.LIFT},
    Event.BACKOFF_ENDS: {State.BACKING_OFF: Transition.FORGET},
    Event.DETAILS_LOST: {State.SOFT: Transition.DATE, State.HARD: Transition.DATE},
    Event.HARD_ASKED: {State.SOFT: Transition.HARDEN},
    Event.HARD_REFUSED: {State.HARD: Transition.SOFTEN},
    Event.POD_THERE: {State.HANDED_OVER: Transition.GUARD},
    Event.RESERVED: {State.HANDED_OVER: Transition.GUARD},
    Event.EMPTY: {State.GUARDED: Transition.HAND_OVER},
    Event.TOLD: {
        State.UNMARKED: Transition.TELL,
        State.SOFT: Transition.TELL,
        State.HARD: Transition.TELL,
    },
}
"""What is written in which state; a state that an event does not name is none of its concern."""
LAST: Final = {
    Event.LEAVING,
    Event.OBSERVE,
    Event.DRAIN_FAILED,
    Event.STAYS,
    Event.KEPT_LONG,
    Event.OVERDUE,
    Event.GOES,
    Event.OTHERS_RELEASE,
}
"""If something is written for one of these, nothing more is: it takes the rest along."""


def states(node: Node) -> Iterator[State]:
    """Yield the states that a Node is in."""
    mark, annotations, guard = mark_of(node.labels), node.annotations, guard_of(node)
    if mark is None:
        if MARK_LABEL in node.labels:
            yield State.ODD
        yield State.UNMARKED
        if GUARD_OURS_ANNOTATION in annotations:
            held = guard is not None and guard.until == GUARD_WHILE_HELD
            yield State.HELD if held else State.RELEASED
    else:
        yield State.HARD if mark is Mark.HARD else State.SOFT
        if guard is not None:
            yield State.GUARDED
        elif is_released_to_autoscaler(node):
            yield State.HANDED_OVER
    if backoff_of(annotations):
        yield State.BACKING_OFF
