"""The condition of each event of the life cycle alone, and which event counts if several do."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from core.config.settings import Config, Mode, ScaleDownProtection, Scope
from core.eligibility.drainability import BARE
from core.engine.no_schedule import NO_SCHEDULE_DAEMONSET
from core.engine.reserve import RESERVE
from core.marks.mark import (
    BACKOFF_SECONDS_MAX,
    CLOCKS_APART_SECONDS_MAX,
    Details,
    encode_details,
)
from core.marks.wellknown import (
    BACKOFF_ANNOTATION,
    DETAILS_ANNOTATION,
    DO_NOT_DISRUPT_ANNOTATION,
    KARPENTER_LABEL,
    KEEP_ANNOTATION,
    MARK_LABEL,
    OLD_PROTECTION_ANNOTATION,
    PROTECTION_ANNOTATION,
    RESERVE_ANNOTATION,
    SCALE_DOWN_DISABLED_ANNOTATION,
    TAINT_KEY,
)
from core.model.node import Effect, Taint
from core.model.reason import Blocker
from core.writes.life_cycle import Event, due_transitions
from core.writes.node_facts import WATCH_SECONDS, NodeFacts
from tests.support.builders import node

pytestmark = pytest.mark.mutate

NOW = 1_767_225_600
AFTER_RELEASE = 900
CONFIG = Config(
    mode=Mode.ENFORCE,
    deadline_seconds=3600,
    no_schedule_after_seconds=60,
    scale_down_protection=ScaleDownProtection(after_unmark_seconds=AFTER_RELEASE),
)
OBSERVE = replace(CONFIG, mode=Mode.OBSERVE)
MARKED_ONLY = replace(
    CONFIG,
    scale_down_protection=replace(CONFIG.scale_down_protection, scope=Scope.MARKED),
)
NEVER = replace(CONFIG, no_schedule_after_seconds=None)
AFTER_A_SECOND = replace(CONFIG, no_schedule_after_seconds=1)
AT_ONCE = replace(CONFIG, no_schedule_after_seconds=0)
SKEW = CLOCKS_APART_SECONDS_MAX
WHY_NOT = (Blocker(NO_SCHEDULE_DAEMONSET, "a DaemonSet"),)
EXPECTED = (Blocker(RESERVE, "for p"),)
OURS = Taint(TAINT_KEY, str(NOW - 60), Effect.PREFER_NO_SCHEDULE)
SHUT_DOWN = Taint("node.cloudprovider.kubernetes.io/shutdown", "", Effect.NO_SCHEDULE)

Annotations = dict[str, str]


def unmarked(annotations: Annotations | None = None, *taints: Taint, **facts: Any) -> NodeFacts:
    defaults: dict[str, Any] = {
        "node": node("n", annotations=annotations, taints=taints),
        "config": CONFIG,
        "now": NOW,
        "observed_seconds": WATCH_SECONDS,
        "may_begin": True,
        "owner": "me",
        "policy": "p",
    }
    return NodeFacts(**defaults | facts)


def marked(
    annotations: Annotations | None = None,
    mark: str = "PreferNoSchedule",
    **facts: Any,
) -> NodeFacts:
    found = unmarked(annotations, OURS, **{"order": 1} | facts)
    return labeled(found, MARK_LABEL, mark)


def labeled(facts: NodeFacts, key: str, value: str = "x") -> NodeFacts:
    labels = {**facts.node.labels, key: value}
    return replace(facts, node=replace(facts.node, labels=labels))


def details(since: int = NOW - 60, deadline: int = NOW + 3540) -> Annotations:
    found = Details(since=since, deadline=deadline, owner="me", policy="p", reason="r")
    return {DETAILS_ANNOTATION: encode_details(found)}


def protection(until: str | int) -> Annotations:
    return {PROTECTION_ANNOTATION: str(until), SCALE_DOWN_DISABLED_ANNOTATION: "true"}


def backoff(until: int) -> Annotations:
    return {BACKOFF_ANNOTATION: f"1 {until}"}


def karpenters(facts: NodeFacts) -> NodeFacts:
    """Return the facts about a node that needs another annotation as its protection."""
    return labeled(facts, KARPENTER_LABEL)


def planned(annotations: Annotations | None = None, **facts: Any) -> NodeFacts:
    return unmarked(annotations, **facts, protection_planned=True)


FOREIGN = {SCALE_DOWN_DISABLED_ANNOTATION: "true"}
RESERVE_WRITTEN = {RESERVE_ANNOTATION: "for p"}
EVICTING = marked(details(NOW), config=NEVER, evicting=True)
FULL = marked(details(), "NoSchedule", occupied=True)
LASTING = unmarked(protection("unmarked"), occupied=True, protected_at=NOW)
LONG = replace(LASTING, protected_at=NOW - AFTER_RELEASE)
CASES: Mapping[Event, Sequence[tuple[str, NodeFacts, bool]]] = {
    Event.LEAVING: [
        ("mark", marked(), True),
        ("invalid mark", labeled(unmarked(), MARK_LABEL), True),
        ("no mark", unmarked(details()), False),
    ],
    Event.LEAVING_UNMARKED: [
        ("details", unmarked(details()), True),
        ("protection", unmarked(protection(NOW) | backoff(NOW)), True),
        ("reserve annotation", unmarked(RESERVE_WRITTEN), True),
        ("backoff alone", unmarked(backoff(NOW)), False),
        ("annotations of others", unmarked(FOREIGN | {KEEP_ANNOTATION: "true"}), False),
    ],
    Event.OBSERVE: [
        ("observe", marked(config=OBSERVE), True),
        ("enforce", marked(), False),
    ],
    Event.EVICTION_FAILED: [
        ("failed", marked(eviction_failure=(Blocker(BARE, "why"),)), True),
        ("none failed", marked(), False),
    ],
    Event.UNREMOVABLE: [
        ("needed", marked(order=None), True),
        ("first in the plan", marked(order=0), False),
    ],
    Event.EMPTY_AT_DEADLINE: [
        ("at the deadline", marked(details(deadline=NOW)), True),
        ("one second before", marked(details(deadline=NOW + 1)), False),
        ("new leader", marked(details(deadline=NOW), observed_seconds=WATCH_SECONDS - 1), False),
        ("occupied", marked(details(deadline=NOW), occupied=True), False),
        ("no details", marked(), False),
    ],
    Event.DEADLINE_MISSED: [
        ("occupied", marked(details(deadline=NOW), occupied=True), True),
        ("one second before", marked(details(deadline=NOW + 1), occupied=True), False),
        ("empty", marked(details(deadline=NOW)), False),
    ],
    Event.REMOVABLE: [
        ("not needed", unmarked(order=1), True),
        ("observe", unmarked(order=1, config=OBSERVE), False),
        ("needed", unmarked(), False),
    ],
    Event.REMOVABLE_OBSERVED: [
        ("observe", unmarked(order=1, config=OBSERVE), True),
        ("enforce", unmarked(order=1), False),
        ("needed", unmarked(config=OBSERVE), False),
    ],
    Event.WRONG_TAINTS: [
        ("taint without mark", unmarked({}, OURS), True),
        ("NoSchedule mark", marked(details(), "NoSchedule"), True),
        ("taint of the mark", marked(details()), False),
        ("taint of others", unmarked({}, SHUT_DOWN), False),
    ],
    Event.MARK_REMOVED: [
        ("details", unmarked(details()), True),
        ("unreadable details", unmarked({DETAILS_ANNOTATION: "x"}), True),
        ("no details", unmarked(protection("marked")), False),
    ],
    Event.DRIFTED: [
        ("drifted", marked(drifted=True), True),
        ("not drifted", marked(), False),
    ],
    Event.INVALID_DETAILS: [
        ("missing", marked(), True),
        ("unreadable", marked({DETAILS_ANNOTATION: "x"}), True),
        ("begins too late", marked(details(NOW + SKEW + 1)), True),
        ("ends too late", marked(details(NOW, NOW + SKEW + 3601)), True),
        ("just possible", marked(details(NOW + SKEW, NOW + SKEW + 3600)), False),
    ],
    Event.NO_SCHEDULE_DUE: [
        ("old enough", marked(details(NOW - 60)), True),
        ("at once", marked(details(NOW + 60), config=AT_ONCE, observed_seconds=0), True),
        ("evicting", replace(EVICTING, observed_seconds=0), True),
        ("one second too young", marked(details(NOW - 59)), False),
        ("new leader", marked(details(), observed_seconds=59), False),
        ("no window open", marked(details(), may_begin=False), False),
        ("reason against it", replace(EVICTING, no_schedule_blockers=WHY_NOT), False),
    ],
    Event.NO_SCHEDULE_BLOCKED: [
        ("reason", marked(details(), no_schedule_blockers=WHY_NOT), True),
        ("never", marked(details(), config=NEVER), True),
        ("one second too young", marked(details(NOW - 59)), True),
        ("begins in the future", marked(details(NOW + 60), config=AFTER_A_SECOND), True),
        ("old enough", marked(details(NOW - 60)), False),
        ("evicting", EVICTING, False),
        ("no details", marked(no_schedule_blockers=WHY_NOT), False),
        ("invalid details", marked(details(NOW + SKEW + 1)), False),
    ],
    Event.EMPTY: [
        ("empty", marked(), True),
        ("occupied", marked(occupied=True), False),
        ("reserved", marked(reserve=EXPECTED), False),
    ],
    Event.OCCUPIED: [
        ("occupied", marked(details(), occupied=True), True),
        ("NoSchedule that stays", FULL, True),
        ("NoSchedule that ends", replace(FULL, config=NEVER), False),
        ("PreferNoSchedule that stays", marked(details(), occupied=True, config=NEVER), True),
        ("drifted", marked(details(), occupied=True, drifted=True), False),
        ("empty", marked(details(), reserve=EXPECTED), False),
    ],
    Event.RESERVED: [
        ("reserved", marked(details(), reserve=EXPECTED), True),
        (
            "NoSchedule that ends",
            replace(FULL, occupied=False, reserve=EXPECTED, config=NEVER),
            False,
        ),
        ("drifted", marked(details(), reserve=EXPECTED, drifted=True), False),
        ("occupied", marked(details(), reserve=EXPECTED, occupied=True), False),
    ],
    Event.PROTECTION_WANTED: [
        ("planned", planned(), True),
        ("while marked", planned(protection("marked")), True),
        ("half expired", planned(protection(NOW + 450)), True),
        ("too far in the future", planned(protection(NOW + 901)), True),
        ("not half expired", planned(protection(NOW + 451)), False),
        ("just begun", planned(protection(NOW + 900)), False),
        ("without end", replace(LASTING, occupied=False, protection_planned=True), False),
        (
            "key of development versions",
            planned(FOREIGN | {OLD_PROTECTION_ANNOTATION: "unmarked"}),
            False,
        ),
        ("foreign annotation", planned(FOREIGN), False),
        ("drifted", planned(drifted=True), False),
        ("observe", planned(config=OBSERVE), False),
        ("not planned", unmarked(), False),
    ],
    Event.PROTECTION_REMOVED: [
        ("record alone", unmarked({PROTECTION_ANNOTATION: "marked"}), True),
        ("protected", unmarked(protection("marked")), False),
    ],
    Event.DETAILS_REMOVED: [
        ("while marked", unmarked(protection("marked")), True),
        ("with end", unmarked(protection(NOW + 60)), False),
        ("protection removed", unmarked({PROTECTION_ANNOTATION: "marked"}), False),
    ],
    Event.PROTECTION_UNWANTED: [
        ("empty", replace(LASTING, occupied=False), True),
        ("new leader", unmarked(protection("unmarked"), occupied=True), True),
        ("occupied", LASTING, False),
        ("since 1970", replace(LASTING, protected_at=0), False),
        ("observe", replace(LASTING, config=OBSERVE), True),
        ("scope", replace(LASTING, config=MARKED_ONLY), True),
        ("wrong annotation", karpenters(LASTING), True),
        ("planned", replace(LASTING, occupied=False, protection_planned=True), False),
    ],
    Event.LONG_OCCUPIED: [
        ("long", LONG, True),
        ("one second less", replace(LONG, protected_at=NOW - 899), False),
        ("new leader", unmarked(protection("unmarked"), occupied=True), False),
        ("empty", replace(LONG, occupied=False), False),
        ("planned", replace(LONG, protection_planned=True), False),
    ],
    Event.INVALID_END: [
        ("unreadable", unmarked(protection("x")), True),
        ("too far in the future", unmarked(protection(NOW + 901)), True),
        ("just possible", unmarked(protection(NOW + 900)), False),
    ],
    Event.PROTECTION_EXPIRED: [
        ("at its end", unmarked(protection(NOW)), True),
        ("one second before", unmarked(protection(NOW + 1)), False),
        ("unreadable", unmarked(protection("x")), False),
        ("new leader", unmarked(protection(NOW), observed_seconds=WATCH_SECONDS - 1), False),
    ],
    Event.WRONG_ANNOTATION: [
        ("unmarked", karpenters(unmarked(protection(NOW + 1))), True),
        ("unmarked, at its end", karpenters(unmarked(protection(NOW))), False),
        ("marked, whatever its end", karpenters(marked(protection(NOW))), True),
        (
            "the right one is foreign",
            karpenters(marked(protection("marked") | {DO_NOT_DISRUPT_ANNOTATION: "true"})),
            False,
        ),
        ("right", marked(protection("marked")), False),
        ("none", karpenters(marked()), False),
    ],
    Event.BACKOFF_EXPIRED: [
        ("long ago", unmarked(backoff(NOW - BACKOFF_SECONDS_MAX)), True),
        ("one second less", unmarked(backoff(NOW - BACKOFF_SECONDS_MAX + 1)), False),
        ("impossible", unmarked(backoff(NOW + BACKOFF_SECONDS_MAX + SKEW + 1)), True),
        ("just possible", unmarked(backoff(NOW + BACKOFF_SECONDS_MAX + SKEW)), False),
        ("observe", unmarked(backoff(NOW), config=OBSERVE), True),
        ("marked", marked(backoff(NOW - BACKOFF_SECONDS_MAX)), False),
        ("none", unmarked(config=OBSERVE), False),
    ],
    Event.RESERVE_CHANGED: [
        ("begins for a removable node", unmarked(reserve=EXPECTED, order=0), True),
        ("begins for a protected node", planned(reserve=EXPECTED), True),
        ("node of neither kind", unmarked(reserve=EXPECTED), False),
        ("begins in observe", unmarked(reserve=EXPECTED, order=1, config=OBSERVE), False),
        ("continues", unmarked(RESERVE_WRITTEN, reserve=EXPECTED, order=1), False),
        ("ends", unmarked(RESERVE_WRITTEN), True),
        ("ended long ago", unmarked(RESERVE_WRITTEN, occupied=True, reserved_at=NOW - 900), True),
        (
            "occupied for now",
            unmarked(RESERVE_WRITTEN, occupied=True, reserved_at=NOW - 899),
            False,
        ),
        (
            "protected for now",
            unmarked(RESERVE_WRITTEN, protection_planned=True, reserved_at=NOW),
            False,
        ),
        ("empty now", unmarked(RESERVE_WRITTEN, reserved_at=NOW), True),
        (
            "ends in observe",
            unmarked(RESERVE_WRITTEN, occupied=True, reserved_at=NOW, config=OBSERVE),
            True,
        ),
    ],
}


@pytest.mark.parametrize(
    ("event", "facts", "expected"),
    [
        pytest.param(event, facts, yes, id=f"{event.name}: {name}")
        for event, cases in CASES.items()
        for name, facts, yes in cases
    ],
)
def test_condition_is_true_for_these_facts(event: Event, facts: NodeFacts, expected: bool) -> None:
    assert event.condition(facts) is expected


def test_each_condition_has_name_of_its_event_and_examples_of_both_answers() -> None:
    for event in Event:
        assert event.condition.__name__ == f"_{event.name.lower()}"
        assert {expected for _, _, expected in CASES[event]} == {True, False}


FAILED = (Blocker(BARE, "why"),)
ORDERS: list[tuple[NodeFacts, list[Event], list[Event]]] = [
    (marked(order=None, config=OBSERVE), [Event.OBSERVE], [Event.UNREMOVABLE]),
    (marked(order=None, eviction_failure=FAILED), [Event.EVICTION_FAILED], [Event.UNREMOVABLE]),
    (
        marked(details(deadline=NOW), order=None, occupied=True),
        [Event.UNREMOVABLE],
        [Event.DEADLINE_MISSED],
    ),
    (marked(details(deadline=NOW)), [Event.EMPTY_AT_DEADLINE], [Event.EMPTY]),
    (
        unmarked(details(), OURS, order=1),
        [Event.REMOVABLE],
        [Event.WRONG_TAINTS, Event.MARK_REMOVED],
    ),
    (
        unmarked(details(), order=1, config=OBSERVE),
        [Event.REMOVABLE_OBSERVED, Event.MARK_REMOVED],
        [],
    ),
    (
        unmarked(details() | backoff(NOW), OURS, config=OBSERVE),
        [Event.WRONG_TAINTS, Event.MARK_REMOVED],
        [Event.BACKOFF_EXPIRED],
    ),
    (
        labeled(unmarked(details(), SHUT_DOWN), MARK_LABEL),
        [Event.LEAVING],
        [Event.LEAVING_UNMARKED],
    ),
    (
        unmarked(backoff(NOW), OURS, SHUT_DOWN, config=OBSERVE, order=1),
        [Event.WRONG_TAINTS],
        [Event.BACKOFF_EXPIRED, Event.REMOVABLE_OBSERVED],
    ),
    (
        marked(details() | protection("marked"), drifted=True),
        [Event.DRIFTED, Event.NO_SCHEDULE_DUE],
        [Event.EMPTY],
    ),
    (
        marked(protection("marked"), config=AT_ONCE),
        [Event.INVALID_DETAILS, Event.EMPTY],
        [Event.NO_SCHEDULE_DUE],
    ),
    (
        karpenters(marked(details() | protection("marked"), config=NEVER)),
        [Event.EMPTY],
        [Event.WRONG_ANNOTATION],
    ),
    (planned(protection(NOW)), [Event.PROTECTION_WANTED], [Event.PROTECTION_EXPIRED]),
    (unmarked({PROTECTION_ANNOTATION: "x"}), [Event.PROTECTION_REMOVED], [Event.INVALID_END]),
    (unmarked(protection("marked")), [Event.DETAILS_REMOVED], [Event.INVALID_END]),
    (unmarked(protection("marked"), drifted=True), [Event.DRIFTED], [Event.DETAILS_REMOVED]),
    (
        karpenters(unmarked(protection("unmarked"))),
        [Event.PROTECTION_UNWANTED],
        [Event.WRONG_ANNOTATION],
    ),
    (replace(LONG, config=MARKED_ONLY), [Event.PROTECTION_UNWANTED], [Event.LONG_OCCUPIED]),
    (karpenters(unmarked(protection("x"))), [Event.INVALID_END], [Event.WRONG_ANNOTATION]),
    (
        unmarked(protection(NOW) | backoff(0)),
        [Event.PROTECTION_EXPIRED, Event.BACKOFF_EXPIRED],
        [],
    ),
]
"""Facts, the events that lead to writes, and other events whose condition is true."""


@pytest.mark.parametrize(("facts", "written", "others"), ORDERS)
def test_only_first_event_of_each_part_is_written(
    facts: NodeFacts, written: list[Event], others: list[Event]
) -> None:
    assert all(event.condition(facts) for event in (*written, *others))
    assert [event for event, _ in due_transitions(facts)] == written
