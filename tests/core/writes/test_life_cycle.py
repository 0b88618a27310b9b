"""The life cycle of a mark: an example of each entry of its table, and random walks."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.config.settings import Config, Mode
from core.eligibility import drainability
from core.eligibility.drift import DRIFT_PROTECTION_SECONDS
from core.engine.plan import Plan, Removal, ReserveCause, ReservedNode
from core.engine.reserve import RESERVE
from core.marks.mark import (
    BACKOFF_SECONDS,
    Backoff,
    Details,
    backoff_of,
    encode_details,
)
from core.marks.taints import desired_taints
from core.marks.wellknown import (
    BACKOFF_ANNOTATION,
    DETAILS_ANNOTATION,
    DO_NOT_DISRUPT_ANNOTATION,
    KARPENTER_LABEL,
    MARK_LABEL,
    PROTECTION_ANNOTATION,
    RESERVE_ANNOTATION,
    SCALE_DOWN_DISABLED_ANNOTATION,
    TAINT_KEY,
)
from core.model.cluster import Cluster
from core.model.node import Effect, Node, Taint
from core.model.node_groups import NodeClaim
from core.model.pod import Pod
from core.model.reason import Blocker
from core.placement.usable_capacity import NOTHING, Totals
from core.writes.life_cycle import Event, due_transitions
from core.writes.node_facts import WATCH_SECONDS
from core.writes.nodes import COMES_BACK, LeaderObservations, SharedFacts, decide
from core.writes.transitions import MarkState, Transition, states
from core.writes.write import Write, WriteKind, applied, split
from tests.support.builders import node
from tests.support.life_cycle import PAGE, PICTURE, page, picture

pytestmark = pytest.mark.mutate

NOW = 1_767_225_600
CONFIG = Config(mode=Mode.ENFORCE, deadline_seconds=3600, no_schedule_after_seconds=120)
POD = Pod(namespace="a", name="p", node="n")
OURS = Taint(TAINT_KEY, str(NOW), Effect.PREFER_NO_SCHEDULE)
TO_BE_DELETED = Taint("ToBeDeletedByClusterAutoscaler", "1", Effect.NO_SCHEDULE)
SHUT_DOWN = Taint("node.cloudprovider.kubernetes.io/shutdown", "", Effect.NO_SCHEDULE)

DETAILS = Details(since=NOW - 60, deadline=NOW + 60, owner="me", policy="p", reason="r")
DETAILED = {DETAILS_ANNOTATION: encode_details(DETAILS)}
WATCH = LeaderObservations(WATCH_SECONDS, {})
BARE = Blocker(drainability.BARE, "nobody owns it", "a/p")
PROTECTION = {SCALE_DOWN_DISABLED_ANNOTATION: "true", PROTECTION_ANNOTATION: "marked"}
PROTECTED_ANNOTATIONS = {SCALE_DOWN_DISABLED_ANNOTATION: "true", PROTECTION_ANNOTATION: "unmarked"}


def test_life_cycle_page_is_up_to_date() -> None:
    assert PAGE.read_text("utf-8") == page(), "make fix"
    assert PICTURE.read_text("utf-8") == picture(), "make fix"


@dataclass(frozen=True)
class World:
    """A node and everything that decides its writes; the plan says only if it is removable."""

    node: Node
    removable: bool = False
    pods: tuple[Pod, ...] = ()
    config: Config = CONFIG
    now: int = NOW
    watch: LeaderObservations = WATCH
    reserve: tuple[ReservedNode, ...] = ()
    protected: bool = False
    drifted: int | None = None

    @property
    def cluster(self) -> Cluster:
        claim = NodeClaim(name="c", node="n", drifted_seconds=self.drifted)
        return replace(Cluster.of([self.node], self.pods), node_claims=(claim,))

    def changed(self, **annotations: str | None) -> "World":
        merged = {**self.node.annotations, **annotations}
        kept = {key: value for key, value in merged.items() if value is not None}
        return replace(self, node=replace(self.node, annotations=kept))

    def tainted(self, *taints: Taint) -> "World":
        return replace(self, node=replace(self.node, taints=taints))

    def labeled(self, key: str) -> "World":
        return replace(self, node=replace(self.node, labels={**self.node.labels, key: "x"}))

    @property
    def plan(self) -> Plan:
        none = Totals(nodes=0, capacity=NOTHING, requests=NOTHING, usable=NOTHING)
        return Plan(
            policy="ClusterThreshold",
            usability=None,
            usability_derived=True,
            before=none,
            after=none,
            reaches=(),
            removals=(Removal("n", 1, ()),) if self.removable else (),
            kept=(),
            pending=(),
            marked_infeasible=(),
            reserve=self.reserve,
            protected=frozenset("n" if self.protected else ""),
        )

    def decided(self) -> tuple[Write[Node], ...]:
        return decide(
            self.cluster,
            self.plan,
            self.config,
            now_seconds=self.now,
            owner="me",
            watch=self.watch,
        )

    def events(self) -> list[Event]:
        shared = SharedFacts(
            self.cluster,
            self.plan,
            self.config,
            now_seconds=self.now,
            owner="me",
            watch=self.watch,
        )
        return [event for event, _ in due_transitions(shared.about(self.node))]

    def apply_writes(self) -> "World":
        """Apply the decided writes as webhook and writer do, except those that became outdated."""
        done = self.node
        for write in split(self.decided(), self.config.mode)[0]:
            if write.if_unchanged(done) is not None:
                done = applied(write, done)
                done = replace(done, taints=desired_taints(done, TAINT_KEY))
        return replace(self, node=done)


def marked(value: str = "PreferNoSchedule", **annotations: str) -> World:
    bare = node("n", labels={MARK_LABEL: value}, annotations=DETAILED | annotations)
    return World(
        replace(bare, taints=desired_taints(bare, TAINT_KEY)), removable=True, pods=(POD,)
    )


def unmarked(**annotations: str) -> World:
    return World(node("n", annotations=annotations))


QUIET: Mapping[MarkState, World] = {
    MarkState.DELETED: World(node("n", annotations=DETAILED, taints=(TO_BE_DELETED,))),
    MarkState.LEAVING: World(node("n", taints=(SHUT_DOWN,))),
    MarkState.UNMARKED: unmarked(),
    MarkState.PREFER_NO_SCHEDULE: marked(**PROTECTION),
    MarkState.NO_SCHEDULE: replace(
        marked("NoSchedule", **PROTECTION), config=replace(CONFIG, no_schedule_after_seconds=60)
    ),
    MarkState.PROTECTED: marked(**PROTECTION),
    MarkState.SCALE_DOWN_ALLOWED: replace(marked(), pods=()),
    MarkState.PROTECTION_ENDING: unmarked(**PROTECTION | {PROTECTION_ANNOTATION: str(NOW + 60)}),
    MarkState.PROTECTED_UNMARKED: replace(unmarked(**PROTECTED_ANNOTATIONS), protected=True),
    MarkState.BACKING_OFF: unmarked(**{BACKOFF_ANNOTATION: f"1 {NOW + 60}"}),
}
"""For each state a node without events."""
OBSERVE = replace(CONFIG, mode=Mode.OBSERVE)
EXAMPLES: Mapping[Event, Callable[[World], World]] = {
    Event.LEAVING: lambda one: one.labeled(MARK_LABEL),
    Event.LEAVING_UNMARKED: lambda one: one.changed(**DETAILED),
    Event.OBSERVE: lambda one: replace(one, config=OBSERVE),
    Event.UNREMOVABLE: lambda one: replace(one, removable=False),
    Event.EMPTY_AT_DEADLINE: lambda one: replace(
        one.changed(**{DETAILS_ANNOTATION: encode_details(replace(DETAILS, deadline=NOW))}),
        pods=(),
        reserve=(ReservedNode("n", ReserveCause.EXPECTED, Blocker(RESERVE, "for p")),),
    ),
    Event.DEADLINE_MISSED: lambda one: replace(one, now=DETAILS.deadline),
    Event.EVICTION_FAILED: lambda one: replace(one, watch=replace(WATCH, failed={"n": BARE})),
    Event.REMOVABLE: lambda one: replace(one, removable=True),
    Event.REMOVABLE_OBSERVED: lambda one: replace(one, removable=True, config=OBSERVE),
    Event.WRONG_TAINTS: lambda one: one.tainted(
        *(taint for taint in one.node.taints if taint.key != TAINT_KEY),
        *(() if MARK_LABEL in one.node.labels else (OURS,)),
    ),
    Event.MARK_REMOVED: lambda one: one.changed(**DETAILED),
    Event.PROTECTION_WANTED: lambda one: replace(one, protected=True),
    Event.WRONG_ANNOTATION: lambda one: one.labeled(KARPENTER_LABEL),
    Event.DETAILS_REMOVED: lambda one: one.changed(**PROTECTION),
    Event.PROTECTION_UNWANTED: lambda one: replace(one, protected=False),
    Event.LONG_OCCUPIED: lambda one: replace(
        one, protected=False, pods=(POD,), watch=replace(WATCH, protected={"n": NOW - 900})
    ),
    Event.PROTECTION_REMOVED: lambda one: one.changed(**{SCALE_DOWN_DISABLED_ANNOTATION: None}),
    Event.INVALID_END: lambda one: one.changed(**{PROTECTION_ANNOTATION: "9" * 9 + "0" * 9}),
    Event.PROTECTION_EXPIRED: lambda one: replace(one, now=NOW + 60),
    Event.BACKOFF_EXPIRED: lambda one: replace(one, now=NOW + 60 + 24 * 3600),
    Event.DRIFTED: lambda one: replace(one, drifted=NOW - DRIFT_PROTECTION_SECONDS),
    Event.INVALID_DETAILS: lambda one: one.changed(**{DETAILS_ANNOTATION: None}),
    Event.NO_SCHEDULE_DUE: lambda one: replace(
        one, config=replace(CONFIG, no_schedule_after_seconds=60)
    ),
    Event.NO_SCHEDULE_BLOCKED: lambda one: replace(
        one, config=replace(CONFIG, no_schedule_after_seconds=None)
    ),
    Event.OCCUPIED: lambda one: replace(one, pods=(POD,)),
    Event.RESERVED: lambda one: replace(
        one, reserve=(ReservedNode("n", ReserveCause.EXPECTED, Blocker(RESERVE, "for p")),)
    ),
    Event.EMPTY: lambda one: replace(one, pods=()),
    Event.RESERVE_CHANGED: lambda one: one.changed(**{RESERVE_ANNOTATION: "for p"}),
}
"""For each event with a write: how to cause it."""
LEAVING = f"taint {SHUT_DOWN.key} announces that the node will be removed"
ENDS = "the protection from scale-down ends in 15 min"
NOTES = {
    Event.LEAVING: LEAVING,
    Event.LEAVING_UNMARKED: LEAVING,
    Event.UNREMOVABLE: "",
    Event.EVICTION_FAILED: "evictions failed: pod-bare: pod a/p: nobody owns it",
    Event.REMOVABLE_OBSERVED: "the cluster does not need the node",
    Event.MARK_REMOVED: f"someone else removed the mark; {COMES_BACK}",
    Event.DETAILS_REMOVED: f"someone else removed the mark; {ENDS}; {COMES_BACK}",
    Event.PROTECTION_UNWANTED: f"the unmarked node needs no protection any more; {ENDS}",
    Event.INVALID_END: f"the former end of the scale-down protection was not valid; {ENDS}",
    Event.WRONG_ANNOTATION: (
        "the autoscaler of the node did not read the annotation that protected it before"
    ),
    Event.INVALID_DETAILS: "the cluster does not need the node; Ebb restores the details of the "
    "mark",
    Event.EMPTY_AT_DEADLINE: f"{Event.EMPTY_AT_DEADLINE.meaning}; Ebb extends the deadline",
    Event.NO_SCHEDULE_DUE: "the node has been marked for 1 min",
    Event.RESERVED: "reserve: for p",
    Event.NO_SCHEDULE_BLOCKED: "NoSchedule marks are not configured (noScheduleAfter: never)",
    Event.RESERVE_CHANGED: "the node is no longer reserved for expected pods",
}
"""The note of a write, where it differs from the meaning of the event."""


@pytest.mark.parametrize("state", MarkState)
def test_nothing_is_written_when_no_event_occurs(state: MarkState) -> None:
    assert state in states(QUIET[state].node)
    assert QUIET[state].decided() == ()
    assert QUIET[state].tainted(*QUIET[state].node.taints, TO_BE_DELETED).decided() == ()


@pytest.mark.parametrize(
    ("event", "state"), [(event, state) for event in Event for state in event.writes]
)
def test_entry_of_table_is_written_and_leads_to_its_state(event: Event, state: MarkState) -> None:
    act = event.writes[state]
    world = EXAMPLES[event](QUIET[state])
    (write,) = world.decided()
    assert event in world.events()
    assert (write.kind, write.note) == (act.kind, NOTES.get(event, event.meaning))
    assert write.taints is None or act is Transition.REPAIR_TAINTS
    assert (act.then or state) in states(world.apply_writes().node)


@pytest.mark.parametrize("state", [MarkState.PREFER_NO_SCHEDULE, MarkState.NO_SCHEDULE])
def test_reserved_node_gets_protection_with_new_deadline(state: MarkState) -> None:
    bare = {SCALE_DOWN_DISABLED_ANNOTATION: None, PROTECTION_ANNOTATION: None}
    (write,) = EXAMPLES[Event.EMPTY_AT_DEADLINE](QUIET[state].changed(**bare)).decided()
    assert PROTECTION.items() <= write.annotations.items()


def later(seconds: int, world: World) -> World:
    return replace(world, now=world.now + seconds)


TIMED = (
    *(Event.EMPTY_AT_DEADLINE, Event.DEADLINE_MISSED, Event.EVICTION_FAILED),
    *(Event.PROTECTION_EXPIRED, Event.BACKOFF_EXPIRED),
)
CHANGES: Mapping[str, Callable[[World], World]] = {
    "mark removed": lambda one: replace(one, node=replace(one.node, labels={})),
    "invalid mark": lambda one: replace(one, node=replace(one.node, labels={MARK_LABEL: "x"})),
    "mark added": lambda one: replace(
        one, node=replace(one.node, labels={MARK_LABEL: "NoSchedule"})
    ),
    "foreign protection": lambda one: one.changed(
        **{SCALE_DOWN_DISABLED_ANNOTATION: "true", PROTECTION_ANNOTATION: None}
    ),
    "backoff": lambda one: one.changed(**{BACKOFF_ANNOTATION: f"3 {one.now + 9}"}),
    "no longer a Karpenter node": lambda one: replace(
        one,
        node=replace(
            one.node,
            labels={
                key: value for key, value in one.node.labels.items() if key != KARPENTER_LABEL
            },
        ),
    ),
    "Karpenter opt-out": lambda one: one.changed(**{DO_NOT_DISRUPT_ANNOTATION: "true"}),
    "leaving": lambda one: one.tainted(*one.node.taints, SHUT_DOWN),
    "no longer leaving": lambda one: one.tainted(*(t for t in one.node.taints if t != SHUT_DOWN)),
    "enforce": lambda one: replace(one, config=CONFIG),
    **{f"{seconds} s pass": partial(later, seconds) for seconds in (10, 120, 3600, 10**6)},
    **{event.name: change for event, change in EXAMPLES.items() if event not in TIMED},
}
COMPATIBLE: Mapping[MarkState, set[MarkState]] = {
    MarkState.DELETED: set(),
    MarkState.LEAVING: set(),
    MarkState.UNMARKED: {
        MarkState.PROTECTION_ENDING,
        MarkState.PROTECTED_UNMARKED,
        MarkState.BACKING_OFF,
    },
    MarkState.PREFER_NO_SCHEDULE: {
        MarkState.PROTECTED,
        MarkState.SCALE_DOWN_ALLOWED,
        MarkState.BACKING_OFF,
    },
    MarkState.NO_SCHEDULE: {
        MarkState.PROTECTED,
        MarkState.SCALE_DOWN_ALLOWED,
        MarkState.BACKING_OFF,
    },
}
SETTLED_MAX = 4
"""Passes after which nothing is left to write, whatever happened before."""


@given(
    st.sampled_from(list(QUIET.values())),
    st.lists(st.sampled_from(list(CHANGES.values())), max_size=12),
)
def test_random_walk_stays_within_states_of_table(
    world: World, way: list[Callable[[World], World]]
) -> None:
    """After a few more reconciliations nothing is left to write."""
    for change in way:
        world = change(world)
        world = world.apply_writes()
        found = {*states(world.node)}
        (mark,) = found & set(COMPATIBLE)
        assert found - {mark} <= COMPATIBLE[mark]
    for _ in range(SETTLED_MAX):
        world = world.apply_writes()
    assert split(world.decided(), world.config.mode)[0] == []


def test_failed_eviction_is_noted_and_node_with_evictions_is_no_schedule() -> None:
    failed = replace(marked(**PROTECTION), watch=replace(WATCH, failed={"n": BARE}))
    (write,) = failed.decided()
    found = backoff_of({BACKOFF_ANNOTATION: write.annotations[BACKOFF_ANNOTATION] or ""})
    assert found == Backoff(1, NOW + BACKOFF_SECONDS, "pod-bare")
    of_node = replace(
        failed, watch=replace(WATCH, failed={"n": Blocker(drainability.BARE, "why")})
    )
    assert [write.note for write in of_node.decided()] == ["evictions failed: pod-bare: why"]
    never = replace(CONFIG, no_schedule_after_seconds=None)
    drained = replace(
        marked(**PROTECTION), config=never, watch=replace(WATCH, no_schedule=frozenset("n"))
    )
    (write,) = drained.decided()
    assert (write.kind, write.labels) == (WriteKind.SET_NO_SCHEDULE, {MARK_LABEL: "NoSchedule"})
    assert write.note == "Ebb evicts the pods of the node, and no new pod may be placed on it"
    assert drained.apply_writes().decided() == (), "it remains NoSchedule"
    refused = replace(WATCH, no_schedule=frozenset("n"), no_schedule_blockers={"n": (BARE,)})
    (write,) = replace(drained.apply_writes(), watch=refused).decided()
    assert write.kind is WriteKind.SET_PREFER_NO_SCHEDULE


@pytest.mark.parametrize(
    ("message", "note"),
    [("nobody owns it", "pod a/p: nobody owns it"), ("pod a/p is alone", "pod a/p is alone")],
)
def test_note_names_the_pod_of_a_reason_once(message: str, note: str) -> None:
    """The Event is about the Node, so without the pod its text would seem to be about the node."""
    failed = {"n": Blocker(drainability.BARE, message, "a/p")}
    (write,) = replace(marked(**PROTECTION), watch=replace(WATCH, failed=failed)).decided()
    assert write.note == f"evictions failed: pod-bare: {note}"
