"""What has come, and which empty nodes are kept for the next of its like."""

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import combinations
from typing import Any

import pytest

from core.config.budgets import Budget, CapacityBuffers, Pool, Reserve
from core.config.settings import Config, Mode, Price, ScaleDownProtection, Scope
from core.engine.arrivals import (
    BUCKETS_MAX,
    SHAPES_MAX,
    TEMPLATE_CHARACTERS_MAX,
    WORKLOADS_MAX,
    Arrivals,
    Buckets,
    Counts,
    LastBucket,
    PodShape,
    TimeBuckets,
    expected_pods,
    without_expired,
)
from core.engine.leader_state import LeaderState
from core.engine.reconcile import PassResult, reconcile
from core.engine.reserve import PODS_MAX, RESERVE
from core.engine.reserve import ReservePlanner as Room
from core.marks.wellknown import GUARD_ANNOTATION, GUARD_OURS_ANNOTATION, KEEP_ANNOTATION
from core.model.cluster import Cluster
from core.model.constraints import (
    EVERYWHERE,
    NO_NODE_CONSTRAINTS,
    HostPort,
    NodeConstraints,
    PodConstraints,
    Requirement,
    SelectorTerm,
)
from core.model.humanize import timestamp
from core.model.node import Node, Taint
from core.model.now import Now
from core.model.pod import Pod
from core.model.reason import Blocker
from core.model.resources import Resources
from core.model.startup_taints import START_SECONDS_MAX
from core.model.volumes import CLAIMS_FIELD
from core.writes.nodes import LeaderObservations, decide
from core.writes.write import WriteKind
from tests.support.builders import GREEN, UNLIMITED, marked, node, pod

pytestmark = pytest.mark.mutate

START = 1_000_000 * 300
HOUR = 3600
WHOLE = Resources(40_000, 80_000 * 10**6)
ASKED = Config(
    budgets=replace(UNLIMITED, reserve=Reserve(window_seconds=300, lookback_seconds=HOUR))
)


def job(name: str, on: str | None, cpu: int = 1000, **changes: object) -> Pod:
    made = replace(pod(name, on, cpu, 100), owner_kind="Job", owner_name=name, uid=name)
    return replace(made, **changes)  # type: ignore[arg-type]


def looks(
    nodes: Iterable[Node], *moments: tuple[int, Iterable[Pod]], config: Config = ASKED
) -> PassResult:
    """Look at these moments, so many seconds after the first one."""
    last: PassResult | None = None
    made = list(nodes)
    for seconds, pods in moments:
        memory = last.state if last else LeaderState()
        last = reconcile(Cluster.of(made, pods), config, memory, START + seconds, last=last)
    assert last is not None
    return last


def came(found: PassResult, now: int | None = None) -> dict[int, int]:
    """Return by millicores how many pods room is kept for."""
    counts = found.state.expected_pods(WHOLE, Now(found.at if now is None else START + now))
    return {kind.requests.cpu_millis: many for kind, many in counts.items()}


def kept(found: PassResult) -> list[str]:
    return [one.node for one in found.plan.reserve]


class TestArrivals:
    NODES = (node("n0"), node("n1"))

    def test_what_was_there_at_the_first_look_has_not_come(self) -> None:
        assert came(looks(self.NODES, (0, [job("a", "n0")]), (10, [job("a", "n0")]))) == {}

    def test_what_a_look_sees_anew_has_come_bound_or_not(self) -> None:
        pods = [job("a", "n0"), job("b", None, 700)]
        assert came(looks(self.NODES, (0, []), (10, pods))) == {1000: 1, 700: 1}

    @pytest.mark.parametrize(
        "changes",
        [
            {"daemon": True},
            {"mirror": True},
            {"priority": -11},
            {"terminating": True},
            {"unsupported": ("spec.x",)},
            {"unsupported": (CLAIMS_FIELD, "spec.x")},
            {"unsupported": (CLAIMS_FIELD,), "unreadable": "x"},
            {"unsupported": (CLAIMS_FIELD,), "too_much": "labels"},
            {"too_much": "labels"},
            {"placing": NodeConstraints(node_selector=(("no", "where"),))},
        ],
    )
    def test_for_what_no_room_is_looked_for_none_is_kept(self, changes: dict[str, Any]) -> None:
        assert came(looks(self.NODES, (0, []), (10, [replace(job("a", "n0"), **changes)]))) == {}

    def test_a_pod_whose_claims_are_bound_with_it_has_come(self) -> None:
        """So most pods with volumes begin: their claims wait for a first consumer."""
        waits = replace(job("a", None), unsupported=(CLAIMS_FIELD,))
        assert came(looks(self.NODES, (0, [job("b", "n1")]), (10, [waits, job("b", "n1")]))) == {
            1000: 1
        }
        bound = job("a", "n0", placing=NodeConstraints(volumes=(EVERYWHERE,)))
        assert came(looks(self.NODES, (0, [waits]), (10, [bound]))) == {}, "it was there"

    @pytest.mark.parametrize("first", ["d", "g"])
    def test_a_pod_whose_claims_wait_stands_for_pods_of_its_own_nodes_alone(
        self, first: str
    ) -> None:
        """Whatever node is looked at first, and whether or not others ask for its label."""
        db = NodeConstraints(node_selector=(("pool", "db"),))
        nodes = [node(f"d{n}", labels={"pool": "db"}) for n in range(2)]
        nodes += [node(f"g{n}") for n in range(2)]
        there = [job("b", f"{first}0", 100), job("c", f"{first}1", 100)]
        waits = job("a", None, unsupported=(CLAIMS_FIELD,), placing=db)
        for more in ([], [job("e", "d0", 200, placing=db)]):
            found = looks(nodes, (0, [*there, *more]), (10, [*there, *more, waits]))
            (kind,) = found.state.expected_pods(WHOLE, Now(found.at))
            assert kind.reach == "pool=db"

    def test_a_pod_that_changes_has_not_come_again_and_one_of_its_name_has(self) -> None:
        one = job("a", None, owner_kind="")
        bound = replace(one, node="n0", labels={"x": "y"})
        assert came(looks(self.NODES, (0, [one]), (10, [bound]))) == {}
        assert came(looks(self.NODES, (0, [one]), (10, [replace(bound, uid="b")]))) == {1000: 1}

    def test_what_runs_on_a_virtual_node_needs_no_other(self) -> None:
        nodes = [*self.NODES, replace(node("v"), virtual=True)]
        assert came(looks(nodes, (0, []), (10, [job("a", "v")]))) == {}

    @pytest.mark.parametrize(
        ("kind", "counted"),
        [("ReplicaSet", 0), ("StatefulSet", 0), ("ReplicationController", 0), ("Job", 0), ("", 1)],
    )
    @pytest.mark.parametrize("terminating", [True, False])
    def test_who_takes_the_place_of_one_that_left_asks_for_no_more(
        self, kind: str, counted: int, *, terminating: bool
    ) -> None:
        """An evicted pod terminates for a while, beside the one that takes its place, or not."""
        one, two = (job(name, "n0", owner_kind=kind, owner_name="web") for name in "ab")
        then = [two, replace(one, terminating=True)] if terminating else [two]
        assert came(looks(self.NODES, (0, [one]), (10, then), (20, [two]))) == (
            {1000: counted} if counted else {}
        )

    @pytest.mark.parametrize(
        ("next_one", "counted"),
        [
            (job("b", "n0"), {}),
            (job("b", "n0", 900), {900: 1}),
            (job("b", "n0", namespace="other"), {1000: 1}),
            (job("b", "n0", placing=NodeConstraints(node_selector=(("disk", "ssd"),))), {1000: 1}),
            (job("b", "n0", owner_kind="Workflow"), {1000: 1}),
        ],
    )
    def test_a_job_takes_the_place_of_one_that_asked_for_the_same(
        self, next_one: Pod, counted: dict[int, int]
    ) -> None:
        nodes = [replace(one, labels={**one.labels, "disk": "ssd"}) for one in self.NODES]
        assert came(looks(nodes, (0, [job("a", "n0")]), (10, []), (20, [next_one]))) == counted

    def test_a_rollout_asks_for_its_surge(self) -> None:
        def of(template: str, *numbers: int) -> list[Pod]:
            owner = {"owner_kind": "ReplicaSet", "owner_name": f"web-{template}"}
            labels = {"pod-template-hash": template}
            return [job(f"{template}-{n}", "n0", 100, **owner, labels=labels) for n in numbers]

        found = looks(
            self.NODES,
            (0, of("a", 0, 1, 2, 3)),
            (10, of("a", 0, 1, 2, 3) + of("b", 0)),
            (20, of("a", 1, 2, 3) + of("b", 0)),
            (30, of("a", 1, 2, 3) + of("b", 0, 1)),
            (40, of("a", 3) + of("b", 0, 1)),
            (50, of("a", 3) + of("b", 0, 1, 2, 3)),
        )
        assert came(found) == {100: 1}

    @pytest.mark.parametrize(("later", "counted"), [(239, {}), (301, {1000: 1})])
    def test_a_place_is_another_s_for_one_length(
        self, later: int, counted: dict[int, int]
    ) -> None:
        one, two = (job(name, "n0", owner_kind="ReplicaSet", owner_name="w") for name in "ab")
        assert came(looks(self.NODES, (0, [one]), (10, []), (10 + later, [two]))) == counted

    def test_whose_place_was_free_first_is_taken_first(self) -> None:
        pods = [job(n, "n0", owner_kind="ReplicaSet", owner_name="w") for n in "abcd"]
        found = looks(
            self.NODES,
            (0, pods[:2]),
            (10, pods[1:2]),
            (200, []),
            (250, pods[2:3]),
            (350, pods[2:]),
        )
        assert came(found) == {}

    def test_of_lengths_that_ask_for_as_much_the_last_counts(self) -> None:
        first, second = job("a", "n0"), replace(job("b", "n0"), requests=Resources(1000, 7, 0, 1))
        found = looks(self.NODES, (0, []), (10, [first]), (1000, [second]))
        counts = found.state.expected_pods(WHOLE, Now(found.at))
        assert [kind.requests.memory_bytes for kind in counts] == [7]

    def test_the_busiest_length_counts_and_not_the_last(self) -> None:
        early = [job(f"a{n}", "n0") for n in range(3)]
        late = [job(f"b{n}", "n0", 2000) for n in range(1)]
        found = looks(self.NODES, (0, []), (60, early[:2]), (300, early), (900, [*early, *late]))
        assert came(found) == {1000: 3}
        assert came(found, 119 + HOUR) == {1000: 3}
        assert came(found, 120 + HOUR) == {2000: 1}
        assert came(found, 900 + 60 + HOUR) == {}

    def test_what_came_apart_by_more_than_one_length_is_not_added(self) -> None:
        first, second = job("a", "n0"), job("b", "n0", 1001)
        assert came(looks(self.NODES, (0, []), (1, [first]), (299, [first, second]))) == {
            1000: 1,
            1001: 1,
        }
        assert came(looks(self.NODES, (0, []), (1, [first]), (301, [first, second]))) == {1001: 1}

    def test_each_reach_has_its_own_busiest_length(self) -> None:
        nodes = [*self.NODES, node("g0", labels={"green": "true"})]
        nodes.append(node("g1", labels={"green": "true"}))
        early = [job("a", "n0"), job("b", "n0")]
        late = job("c", "g0", 1500, placing=GREEN)
        found = looks(nodes, (0, []), (10, early), (1000, [*early, late]))
        assert came(found) == {1000: 2, 1500: 1}

    @pytest.mark.parametrize(
        ("green", "pools"),
        [
            pytest.param("true", ("a", "b", "c"), id="its only node is another one"),
            pytest.param("true", ("a", "ab", "b"), id="a second node comes and the first goes"),
            pytest.param("false", ("", "a", ""), id="nodes come that it cannot use"),
        ],
    )
    @pytest.mark.parametrize("between", [1000, 86_400 - 300])
    def test_what_came_before_its_reach_was_another_is_not_added(
        self, green: str, pools: Sequence[str], between: int
    ) -> None:
        """Or a pool whose nodes come and go would be kept room, and bought some, many times."""
        placing = NodeConstraints(node_selector=(("green", green),))
        others = [node(f"n{n}", labels={"green": "false"}) for n in range(2)]
        memory, second, stays = LeaderState(), START, job("s", "n0", 1)
        for number, names in enumerate(pools):
            nodes = [*others, *(node(name, labels={"green": "true"}) for name in names)]
            new = [job(f"j{number}-{n}", None, placing=placing) for n in range(2)]
            for seconds, pods in ((0, []), (400, new)):
                second = START + number * between + seconds
                memory = reconcile(Cluster.of(nodes, [stays, *pods]), ASKED, memory, second).state
        assert list(memory.expected_pods(WHOLE, Now(second)).values()) == [2]

    @pytest.mark.parametrize("pool", ["x", "g"])
    def test_nobody_is_taken_for_one_of_other_nodes_because_his_claims_wait(
        self, pool: str
    ) -> None:
        """Where nobody who can be judged uses the same nodes, whatever the first one is."""
        labels = (pool, "g", "x", "x")
        nodes = [node(f"n{n}", labels={"pool": one}) for n, one in enumerate(labels)]
        placing = NodeConstraints(node_selector=(("pool", "x"),))
        waits = replace(job("a", None, placing=placing), unsupported=(CLAIMS_FIELD,))
        stays = job("s", "n0", 1)
        for there in (stays, job("j", "n3", 1, placing=placing)):
            assert came(looks(nodes, (0, [there]), (10, [there, waits]))) == {1000: 1}

    def test_the_same_time_of_the_day_before_counts(self) -> None:
        day = 86_400
        pods = [job("a", "n0")]
        found = looks(self.NODES, (0, []), (7200, pods), (12_000, []))
        assert came(found) == {}
        assert came(found, day + 7200 - HOUR - 300) == {}
        assert came(found, day + 7200 - HOUR + 300) == {1000: 1}
        assert came(found, day + 7200 + 299) == {1000: 1}
        assert came(found, day + 7200 + 300) == {}
        assert came(found, 7 * day + 7200) == {1000: 1}
        assert came(found, 8 * day + 7200) == {}

    def test_what_came_counts_for_as_long_as_the_settings_say_now(self) -> None:
        found = looks(self.NODES, (0, []), (10, [job("a", "n0")]))
        longer = Reserve(window_seconds=300, lookback_seconds=2 * HOUR)
        asked = replace(ASKED, budgets=replace(ASKED.budgets, reserve=longer))
        then = START + HOUR + 60
        assert came(reconcile(Cluster.of(self.NODES, []), asked, found.state, then)) == {1000: 1}
        assert came(reconcile(Cluster.of(self.NODES, []), ASKED, found.state, then)) == {}

    def test_other_settings_begin_anew(self) -> None:
        found = looks(self.NODES, (0, []), (10, [job("a", "n0")]))
        other = replace(ASKED.budgets, reserve=Reserve(window_seconds=60))
        again = reconcile(
            Cluster.of(self.NODES, []), replace(ASKED, budgets=other), found.state, START + 20
        )
        assert came(again) == {}
        off = replace(ASKED, budgets=UNLIMITED)
        assert reconcile(Cluster.of(self.NODES, []), off, found.state, START).state.arrivals == (
            Arrivals()
        )


class TestWhatIsRemembered:
    """A slot is 60 s, a length five of them; of the days before, 300 s."""

    GRAIN = TimeBuckets.of(ASKED.budgets.reserve)
    ONE, OTHER = (
        PodShape("general", Resources(1000, 100), NodeConstraints(node_selector=((name, ""),)))
        for name in ("a", "b")
    )
    NOW = START + 150

    def expected(self, slots: Buckets | None = None, days: Buckets | None = None) -> Counts:
        seen = Arrivals(buckets=self.GRAIN, recent=slots or {}, daily=days or {})
        return expected_pods(seen, WHOLE, Now(self.NOW), {})

    def test_what_counts_no_more_is_forgotten(self) -> None:
        oldest, today = (START - 7 * 86_400) // 300, START // 300
        days = {n: {self.ONE: 1} for n in (oldest - 1, oldest, today, today + 1)}
        kept = without_expired(Arrivals(buckets=self.GRAIN, daily=days), Now(self.NOW)).daily
        assert kept.keys() == {oldest, today}

    def test_a_length_is_five_slots_and_no_more(self) -> None:
        last = self.NOW // 60
        assert self.expected(slots={n: {self.ONE: 1} for n in (last - 5, last - 1, last)}) == {
            self.ONE: 2
        }

    def test_of_a_day_before_one_slot_is_a_length(self) -> None:
        first = (self.NOW - 86_400) // 300
        assert self.expected(days={n: {self.ONE: 1} for n in (first, first + 1)}) == {self.ONE: 1}

    @pytest.mark.parametrize("ago", [0, 300, 3600, 5000, 86_400 - 3900, 86_400 + 300])
    def test_what_time_alone_changes_is_foretold(self, ago: int) -> None:
        then = self.NOW - ago
        seen = Arrivals(
            buckets=self.GRAIN,
            recent={then // 60: {self.ONE: 1}},
            daily={then // 300: {self.ONE: 1}, then // 300 + 9: {self.OTHER: 2}},
        )
        now = Now(self.NOW)
        before = expected_pods(seen, WHOLE, now, {})
        for second in range(self.NOW - self.NOW % 60, self.NOW + 86_400, 60):
            if second > self.NOW and expected_pods(seen, WHOLE, Now(second), {}) != before:
                while now.next_change is not None and now.next_change < second:
                    now = Now(now.next_change)
                    assert expected_pods(seen, WHOLE, now, {}) == before
                assert now.next_change == second
                return
        assert before == {}

    def test_of_lengths_that_ask_for_as_much_the_last_counts_in_whatever_order(self) -> None:
        last = self.NOW // 60
        slots = {last: {self.OTHER: 1}, last - 9: {self.ONE: 1}}
        assert self.expected(slots=slots) == {self.OTHER: 1}

    def test_the_busiest_stretch_is_that_of_all_stretches_summed_up_plainly(self) -> None:
        """Also where later ones ask for less, or for others; of eighths no share is rounded."""
        asked = {
            PodShape("general", Resources(n * 5000, 100), NO_NODE_CONSTRAINTS): n
            for n in (1, 2, 4, 8)
        }
        last = self.NOW // 60
        for seed in range(200):
            chance = random.Random(seed)
            many = chance.choice((5, 7, 20))
            slots = {
                n: {kind: chance.randrange(1, 4) for kind in asked if chance.random() < 0.5}
                for n in range(last - 50, last + 1)
                if chance.random() < 0.7
            }
            sums = [
                sum((Counter(slots.get(n, {})) for n in range(end - many + 1, end + 1)), Counter())
                for end in slots
            ]
            most = max(
                reversed(sums),
                key=lambda one: (sum(asked[kind] * one[kind] for kind in one), one.total()),
            )
            seen = Arrivals(buckets=self.GRAIN, recent=slots)
            assert expected_pods(seen, WHOLE, Now(self.NOW), {"general": many * 60}) == most, seed

    @pytest.mark.parametrize("when", ["slots", "days"])
    def test_what_came_to_two_reaches_of_one_template_is_of_the_later(self, when: str) -> None:
        one = self.NOW // 60 if when == "slots" else (self.NOW - 86_400) // 300
        before = self.ONE._replace(reach="before")
        assert self.expected(**{when: {one: {before: 2, self.ONE: 3}}}) == {self.ONE: 5}
        assert self.expected(**{when: {one: {self.ONE: 3, before: 2}}}) == {before: 5}


def test_what_came_to_reaches_that_have_one_name_now_is_added_up() -> None:
    """Under all four of what it is remembered under."""
    old, new, other = (
        PodShape(reach, WHOLE, NO_NODE_CONSTRAINTS) for reach in ("old", "new", "other")
    )
    counts = {old: 2, new: 3, other: 5}
    latest = LastBucket(7, {old: "a", other: "b"})
    before = Arrivals(recent={7: counts}, last_recent=latest, daily={1: counts}, last_daily=latest)
    found = before.renamed({"old": "new"})
    assert found.recent == {7: {new: 5, other: 5}}
    assert found.daily == {1: {new: 5, other: 5}}
    assert found.last_recent == found.last_daily == LastBucket(7, {new: "a", other: "b"})


class TestBounds:
    @pytest.mark.parametrize(
        ("length", "over", "slot"),
        [(300, 3600, 60), (1, 0, 1), (7, 50, 1), (300, 2_592_000, 2532), (2_592_000, 1, 518_400)],
    )
    def test_time_is_cut_into_so_many_slots(self, length: int, over: int, slot: int) -> None:
        grain = TimeBuckets.of(Reserve(window_seconds=length, lookback_seconds=over))
        assert grain.bucket_seconds == slot
        assert (grain.window_buckets - 1) * slot < length <= grain.window_buckets * slot
        remembered = [n for n in range(over // slot + 9) if grain.is_within(n, over + 3)]
        assert len(remembered) <= BUCKETS_MAX + 2

    def test_a_slot_tells_so_many_kinds_apart_and_no_namespace_hides_another_s(self) -> None:
        many = [job(f"a{n:03}", "n0", 1 + n) for n in range(2 * SHAPES_MAX)]
        other = job("z", "n0", 999, namespace="other")
        found = came(looks([node("n0"), node("n1")], (0, []), (10, [*many, other])))
        assert len(found) == SHAPES_MAX
        assert 999 in found

    @pytest.mark.parametrize(("more", "counts"), [(0, True), (1, False)])
    def test_a_template_that_is_too_long_is_not_remembered(self, more: int, counts: bool) -> None:
        def placing(value: str) -> NodeConstraints:
            return NodeConstraints(
                affinity=(SelectorTerm((Requirement("a", "NotIn", (value,)),)),)
            )

        long = "x" * (TEMPLATE_CHARACTERS_MAX + more - len(repr(placing(""))))
        one = job("a", "n0", placing=placing(long))
        assert bool(came(looks([node("n0"), node("n1")], (0, []), (10, [one])))) is counts

    def test_a_clock_that_goes_back_to_a_full_slot_stops_nothing(self) -> None:
        nodes = [node("n0"), node("n1")]
        many = [job(f"a{n:03}", "n0", 1 + n) for n in range(SHAPES_MAX)]
        later = [*many, job("b", "n0", 800)]
        found = looks(nodes, (0, []), (60, many), (120, later))
        cluster = Cluster.of(nodes, [*later, job("c", "n0", 900)])
        back = reconcile(cluster, ASKED, found.state, START + 61)
        assert 900 not in came(back)

    def test_whose_a_kind_is_counts_for_its_own_slot_alone(self) -> None:
        """Or who had most in the one before would give places in the next that it has not."""
        nodes = [node("n0"), node("n1")]
        many = [job(f"a{n:03}", "n0", 1 + n, namespace="late") for n in range(SHAPES_MAX)]
        theirs = [job(f"b{n:03}", "n0", 1 + n) for n in range(SHAPES_MAX)]
        one = job("z", "n0", 990, namespace="late")
        found = looks(nodes, (0, []), (60, many), (120, [*many, *theirs, one]))
        assert 990 in came(found)
        assert {len(slot) for slot in found.state.arrivals.recent.values()} == {SHAPES_MAX}

    def test_nor_does_it_when_it_has_come_first(self) -> None:
        nodes = [node("n0"), node("n1")]
        many = [job(f"a{n:03}", "n0", 1 + n) for n in range(SHAPES_MAX)]
        others = [job(f"z{n}", "n0", 900 + n, namespace=f"other-{n}") for n in range(40)]
        late = [job("late", "n0", 990, namespace="other-0")]
        moments = [(0, []), (60, many), (70, [*many, *others]), (80, [*many, *others, *late])]
        found = looks(nodes, *moments)
        assert {900 + n for n in range(40)} <= came(found).keys()
        assert 990 in came(found), "others have more"
        assert len(came(found)) == SHAPES_MAX
        assert came(looks(nodes, *moments, (90, [*many, *others, *late]))) == came(found)
        for slot in (*found.state.arrivals.recent.values(), *found.state.arrivals.daily.values()):
            assert len(slot) == SHAPES_MAX
        one = [*many, *others, *late, job("one", "n0", 995)]
        assert came(looks(nodes, *moments, (130, one))) == {**came(found), 995: 1}, "the next slot"

    def test_of_the_days_before_no_namespace_hides_what_came_to_another_later(self) -> None:
        """Whose the kinds of a full slot are is known at the next look too."""
        many = [job(f"a{n:03}", "n0", 1 + n) for n in range(SHAPES_MAX)]
        one = job("z", "n0", 900, namespace="other")
        found = looks([node("n0"), node("n1")], (0, []), (60, many), (130, [*many, one]))
        assert 900 in came(found, 86_400 + 60)

    def test_in_a_full_slot_a_namespace_takes_no_place_of_its_own_and_keeps_what_came_most(
        self,
    ) -> None:
        nodes = [node("n0"), node("n1")]
        many = [job(f"a{n:03}", "n0", 1 + n) for n in range(SHAPES_MAX)]
        often = [job(f"b{n}", "n0", 1) for n in range(3)]
        more = [job("c", "n0", 800)]
        theirs = [job("z", "n0", 900, namespace="other")]
        found = came(looks(nodes, (0, []), (60, [*many, *often]), (70, [*more, *theirs])))
        assert 800 not in found
        assert found[900] == 1
        assert found[1] == 4

    @pytest.mark.parametrize(("third", "first", "second"), [(0, 32, 32), (1, 32, 31)])
    def test_in_a_full_slot_namespaces_come_to_have_as_much_of_it(
        self, third: int, first: int, second: int
    ) -> None:
        nodes = [node("n0"), node("n1")]
        full = [job(f"a{n:03}", "n0", 100 + n) for n in range(SHAPES_MAX - 4 - third)]
        full += [job(f"b{n:03}", "n0", 200 + n, namespace="second") for n in range(4)]
        full += [job(f"c{n:03}", "n0", 400 + n, namespace="third") for n in range(third)]
        more = [job(f"d{n:03}", "n0", 300 + n, namespace="second") for n in range(SHAPES_MAX)]
        found = came(looks(nodes, (0, []), (60, full), (70, [*full, *more])))
        assert Counter(cpu // 200 for cpu in found) == Counter(
            {0: first, 1: second, **({2: third} if third else {})}
        )

    def test_of_kinds_that_came_as_often_it_is_always_the_same_that_goes(self) -> None:
        nodes = [node("n0"), node("n1")]
        many = [job(f"a{n:03}", "n0", 2 + n) for n in range(SHAPES_MAX)]
        one = job("z", "n0", 900, namespace="other")
        found = came(looks(nodes, (0, []), (60, many), (70, [*many, one])))
        assert set(range(2, 2 + SHAPES_MAX)) - found.keys() == {10}, "the first as it is written"

    def test_who_asks_for_nodes_by_name_keeps_none(self) -> None:
        """Or a small pod for each node would keep them all."""
        nodes = [node(f"n{n}", labels={"kubernetes.io/hostname": f"n{n}"}) for n in range(5)]
        pinned = [
            job(
                f"p{n}",
                None,
                1,
                placing=NodeConstraints(node_selector=(("kubernetes.io/hostname", f"n{n}"),)),
            )
            for n in range(5)
        ]
        found = looks(nodes, (0, []), (1, pinned), (2, []), (400, []))
        assert came(found) == {}
        assert kept(found) == []

    def test_of_so_many_workloads_it_is_remembered_that_pods_have_left(self) -> None:
        owned = [
            job(f"p{n:04}", "n0", 0, owner_kind="ReplicaSet", owner_name=f"w{n:04}")
            for n in range(WORKLOADS_MAX + 5)
        ]
        nodes = [node("n0", pods=10_000)]
        gone = looks(nodes, (0, owned), (10, owned[1:]), (70, [])).state.arrivals.departed
        assert len(gone) == WORKLOADS_MAX
        assert "w0000" not in {one.owner_name for one in gone}

    def test_room_is_kept_for_so_many_pods(self) -> None:
        nodes = [node("n0", cpu=100_000, memory=10**7, pods=20_000), node("n1", pods=0)]
        many = [job(f"a{n:05}", None, 1) for n in range(PODS_MAX + 1)]
        (held,) = looks(nodes, (0, []), (10, many), (400, [])).plan.reserve
        assert held.why.message.startswith(f"it is reserved for {PODS_MAX} pods: {PODS_MAX} of 1m")

    @pytest.mark.parametrize(
        ("first", "second"),
        [
            (Resources(2, 0), Resources(1, 0)),
            (Resources(1, 2), Resources(1, 1)),
            (Resources(1, 1, 0, 0, (("gpu", 1),)), Resources(1, 1, 0, 0, (("gpu", 2),))),
        ],
    )
    def test_of_too_many_those_that_ask_for_most_are_kept_for(
        self, first: Resources, second: Resources
    ) -> None:
        survey = looks([node("n0")], (0, [])).snapshot
        kinds = [PodShape("general", one, NO_NODE_CONSTRAINTS) for one in (first, second)]
        for counts in (dict.fromkeys(kinds, PODS_MAX), dict.fromkeys(kinds[::-1], PODS_MAX)):
            ((one, many),) = Room(survey, counts).placeholders
            assert (one.requests, many) == (first, PODS_MAX)

    @pytest.mark.parametrize(
        ("asked", "has"),
        [
            ([PODS_MAX, 1], [PODS_MAX - 1, 1]),
            ([PODS_MAX, *[1] * 99], [PODS_MAX - 99, *[1] * 99]),
            ([PODS_MAX] * 4, [PODS_MAX // 4] * 4),
            ([10, PODS_MAX, PODS_MAX], [10, PODS_MAX // 2 - 5, PODS_MAX // 2 - 5]),
            ([10, 20], [10, 20]),
        ],
    )
    def test_what_one_reach_leaves_of_its_part_the_others_have(
        self, asked: list[int], has: list[int]
    ) -> None:
        survey = looks([node("n0")], (0, [])).snapshot
        kinds = [
            PodShape(f"{n:03}", Resources(1, 1), NO_NODE_CONSTRAINTS) for n in range(len(asked))
        ]
        made = Room(survey, dict(zip(kinds, asked, strict=True))).placeholders
        assert [many for _, many in made] == has

    def test_of_as_many_that_ask_for_the_same_it_is_the_same_always(self) -> None:
        survey = looks([node("n0")], (0, [])).snapshot
        places = [NodeConstraints(node_selector=(("disk", name),)) for name in "ba"]
        kinds = [PodShape("general", Resources(1, 1), one) for one in places]
        for counts in (dict.fromkeys(kinds, PODS_MAX), dict.fromkeys(kinds[::-1], PODS_MAX)):
            ((one, many),) = Room(survey, counts).placeholders
            assert (one.placing, many) == (places[1], PODS_MAX)

    def test_what_may_go_to_two_nodes_beyond_the_reaches_is_not_counted(self) -> None:
        pairs = list(combinations(range(24), 2))
        labels = [{f"p{a}-{b}": "" for a, b in pairs if n in (a, b)} for n in range(24)]
        nodes = [node(f"n{n:02}", labels=one) for n, one in enumerate(labels)]
        there = [
            job(
                f"p{a}-{b}",
                f"n{a:02}",
                1,
                placing=NodeConstraints(node_selector=((f"p{a}-{b}", ""),)),
            )
            for a, b in pairs
        ]
        beyond = looks(nodes, (0, there)).snapshot.reaches.untracked
        told_apart = [pod for pod in there if pod.placing not in beyond]
        there += [replace(pod, name=f"{pod.name}-{n}") for pod in told_apart for n in range(2)]
        for placing, counted in ((told_apart[0].placing, {7: 1}), (min(beyond, key=repr), {})):
            more = [*there, job("new", None, 7, placing=placing)]
            assert came(looks(nodes, (0, there), (10, more))) == counted


class TestHeld:
    BUSY = (node("n0"), [pod("p", "n0", 3000, 100)])
    EMPTY = (node("e0"), node("e1"), node("e2"))

    def found(self, *pods: Pod, nodes: Iterable[Node] = (), config: Config = ASKED) -> PassResult:
        """Let these come and go, and look one length later."""
        busy, standing = self.BUSY
        made = [busy, *(nodes or self.EMPTY)]
        return looks(made, (0, standing), (10, [*standing, *pods]), (400, standing), config=config)

    def test_until_the_leader_has_seen_one_length_all_are_kept(self) -> None:
        nodes = [self.BUSY[0], *self.EMPTY]
        moments = [(seconds, self.BUSY[1]) for seconds in (0, 299, 300)]
        assert kept(looks(nodes, *moments[:1])) == ["e0", "e1", "e2"]
        late = looks(nodes, *moments[:2]).plan.reserve
        told = f"a new leader observes pod arrivals until {timestamp(START + 300)}"
        assert {one.why for one in late} == {Blocker(RESERVE, told, until=START + 300)}
        assert kept(looks(nodes, *moments)) == []

    @pytest.mark.parametrize(
        ("reserve", "names", "later"),
        [
            (Reserve(window_seconds=300, lookback_seconds=2 * HOUR), ["e0"], ["e0"]),
            (Reserve(window_seconds=300, lookback_seconds=100), [], []),
            (Reserve(window_seconds=600, lookback_seconds=HOUR), ["e0", "e1", "e2"], []),
            (Reserve(window_seconds=300, lookback_seconds=1024 * 61), ["e0", "e1", "e2"], []),
        ],
    )
    def test_other_settings_let_no_node_go_for_want_of_what_was_seen(
        self, reserve: Reserve, names: list[str], later: list[str]
    ) -> None:
        """What was counted stays true as long as time is cut alike; else nobody knows any more."""
        before = self.found(job("a", None), job("b", None))
        other = replace(ASKED, budgets=replace(ASKED.budgets, reserve=reserve))
        cluster = before.snapshot.cluster
        found = reconcile(cluster, other, before.state, START + 700, last=before)
        assert kept(found) == names
        seen = reconcile(cluster, other, found.state, START + 700 + reserve.window_seconds)
        assert kept(seen) == later

    def test_room_that_was_not_kept_before_is_learned_of_first(self) -> None:
        never = replace(ASKED, budgets=replace(ASKED.budgets, reserve=Reserve(lookback_seconds=0)))
        before = self.found(config=never)
        assert kept(before) == []
        found = reconcile(before.snapshot.cluster, ASKED, before.state, START + 700, last=before)
        assert kept(found) == ["e0", "e1", "e2"]

    def test_what_finds_room_beside_others_keeps_no_node(self) -> None:
        assert kept(self.found(job("a", None))) == []

    def test_what_does_not_keeps_the_node_that_takes_it(self) -> None:
        (held,) = self.found(job("a", None), job("b", None)).plan.reserve
        assert held.node == "e0"
        assert held.why == (RESERVE, "it is reserved for 1 pod: 1 of 1 + 95.4Mi", None, "", None)

    def test_as_many_are_kept_as_are_needed(self) -> None:
        pods = [job(f"a{n}", None, 2000) for n in range(3)]
        assert kept(self.found(*pods)) == ["e0", "e1"]

    def test_the_cheapest_is_kept_by_price_then_by_size_then_by_name(self) -> None:
        nodes = [node("e0", cpu=8000), node("e1"), node("e2", labels={"dear": ""})]
        assert kept(self.found(job("a", None, 2000), nodes=nodes)) == ["e1"]
        priced = replace(
            ASKED,
            prices=(
                Price(node_selector=(("dear", ""),), price=Fraction(1)),
                Price(node_selector=(), price=Fraction(2)),
            ),
        )
        assert kept(self.found(job("a", None, 2000), nodes=nodes, config=priced)) == ["e2"]

    def test_what_stays_anyway_is_used_first_and_what_was_handed_over_last(self) -> None:
        """Or room would be kept twice, and a node handed over and taken back in turns."""
        free, soft = node("z"), [marked(node(name), "soft", START) for name in ("a", "b")]
        guard = {GUARD_ANNOTATION: "true", GUARD_OURS_ANNOTATION: "marked"}
        held = replace(soft[1], annotations={**soft[1].annotations, **guard})
        assert kept(self.found(job("x", None, 2000), nodes=[soft[0], held, free])) == ["z"]
        assert kept(self.found(job("x", None, 2000), nodes=[soft[0], held])) == ["b"]
        assert kept(self.found(job("x", None, 2000), nodes=[soft[0]])) == ["a"]

    def test_what_nobody_holds_is_used_behind_all_others(self) -> None:
        """Its autoscaler may take it at any moment."""
        soft = marked(node("m", labels={"pool": "a"}), "soft", START)
        pools = (Pool(name="a", node_selector=(("pool", "a"),), budget=Budget()),)
        apart = replace(ASKED, budgets=replace(ASKED.budgets, pools=pools))
        by_hand = replace(ASKED, scale_down_protection=ScaleDownProtection(scope=Scope.MARKED))
        for config in (apart, by_hand):
            found = self.found(job("x", None, 2000), nodes=[node("free"), soft], config=config)
            assert kept(found) == ["m"]
            found = self.found(job("x", None, 2000), nodes=[node("free")], config=config)
            assert kept(found) == ["free"]

    def test_one_that_is_empty_for_its_autoscaler_alone_is_used_behind_all_others(self) -> None:
        """Nobody holds it either: its pod may find no other place."""
        soft = marked(node("m"), "soft", START)
        standing = [*self.BUSY[1], replace(pod("low", "e0", 100, 1), priority=-11)]
        moments = (0, standing), (10, [*standing, job("x", None, 2000)]), (400, standing)
        for others, name in (([soft], "m"), ([], "e0")):
            found = looks([self.BUSY[0], self.EMPTY[0], *others], *moments)
            assert "e0" not in found.plan.held
            assert kept(found) == [name]

    def test_a_node_with_a_soft_mark_and_pods_is_room(self) -> None:
        soft = marked(node("m"), "soft", START)
        standing = [pod("p", "m", 1000, 100)]
        for made, names in ((soft, []), (marked(node("m"), "hard", START), ["e0"])):
            found = looks(
                [made, *self.EMPTY],
                (0, standing),
                (10, [*standing, job("a", None, 2000)]),
                (400, standing),
            )
            assert kept(found) == names

    def test_an_empty_node_is_kept_with_its_soft_mark_that_does_not_become_hard(self) -> None:
        nodes = [marked(one, "soft", START) for one in self.EMPTY]
        hard = replace(ASKED, no_schedule_after_seconds=0)
        found = self.found(job("a", None, 2000), nodes=nodes, config=hard)
        assert kept(found) == ["e0"]
        assert [one.code for one in found.no_schedule_blockers["e0"]] == ["reserve"]
        assert [one.node for one in found.plan.removals][:1] == ["e0"]

    def test_its_mark_stays_soft_for_five_minutes_longer_than_it_is_kept(self) -> None:
        """Room for one pod more or less comes and goes with single pods."""
        hard = replace(ASKED, no_schedule_after_seconds=0)
        guard = {GUARD_ANNOTATION: "true", GUARD_OURS_ANNOTATION: "marked"}
        nodes = [marked(replace(one, annotations=guard), "soft", START) for one in self.EMPTY]
        last = self.found(job("a", None, 2000), nodes=nodes, config=hard)
        cluster = last.snapshot.cluster
        more = replace(cluster, nodes=(*cluster.nodes, node("more")))
        for seconds, against in ((401, ["reserve"]), (699, ["reserve"]), (700, [])):
            last = reconcile(more, hard, last.state, START + seconds, last=last)
            assert kept(last) == ["more"]
            assert [one.code for one in last.no_schedule_blockers["e0"]] == against

    def test_an_empty_node_with_a_hard_mark_is_kept_and_softened(self) -> None:
        """Marks become hard while nodes empty: with `noScheduleAfter` most empty ones have one."""
        nodes = [marked(one, "hard", START) for one in self.EMPTY]
        hard = replace(ASKED, mode=Mode.ENFORCE, no_schedule_after_seconds=0)
        found = self.found(job("a", None, 2000), nodes=nodes, config=hard)
        assert kept(found) == ["e0"]
        watch = LeaderObservations(HOUR, found.no_schedule_blockers)
        writes = decide(
            found.snapshot.cluster, found.plan, hard, now_seconds=found.at, owner="me", watch=watch
        )
        (own,) = (one for one in writes if one.key == "e0")
        assert own.kind is WriteKind.SET_PREFER_NO_SCHEDULE
        assert own.annotations[GUARD_ANNOTATION] == "true"
        assert "it is reserved for 1 pod" in own.note

    @pytest.mark.parametrize(
        "changes",
        [
            {"unschedulable": True},
            {"ready": False},
            {"deleting": True},
            {"virtual": True},
            {"unreadable": "x"},
            {"taints": (Taint("other", "", "NoSchedule"),)},
        ],
    )
    def test_what_takes_no_such_pod_is_not_kept_for_it(self, changes: dict[str, object]) -> None:
        nodes = [replace(node("e0"), **changes), node("e1")]  # type: ignore[arg-type]
        assert kept(self.found(job("a", None, 2000), nodes=nodes)) == ["e1"]

    def test_a_node_that_stays_anyway_is_room(self) -> None:
        label = {"node-role.kubernetes.io/control-plane": ""}
        nodes = [node("c", labels=label), node("e1")]
        assert kept(self.found(job("a", None, 2000), nodes=nodes)) == []

    def test_pods_that_wait_come_first(self) -> None:
        busy, standing = self.BUSY
        waits = job("w", None)
        found = looks(
            [busy, *self.EMPTY], (0, standing), (10, [*standing, waits]), (400, [*standing, waits])
        )
        assert [one.why.message for one in found.plan.reserve] == [
            "it is reserved for 1 pod: 1 of 1 + 95.4Mi"
        ]

    def test_who_waits_is_placed_beside_the_pods_that_are_there(self) -> None:
        """It may not join the pod that has its port, so the other kind may."""
        busy, (there,) = self.BUSY
        port = PodConstraints(host_ports=(HostPort(80),))
        standing = [replace(there, company=port), job("w", None, company=port)]
        found = looks(
            [busy, *self.EMPTY], (0, standing), (10, [*standing, job("a", None)]), (400, standing)
        )
        assert [one.why.message for one in found.plan.reserve] == [
            "it is reserved for 1 pod: 1 pending"
        ]

    @pytest.mark.parametrize(
        ("least", "pods", "rest"), [([200, 100], 10, "2 others"), ([100], 9, "1 other")]
    )
    def test_it_is_told_who_waits_and_what_there_is_most_of(
        self, least: list[int], pods: int, rest: str
    ) -> None:
        full, large = node("n0"), node("e0", cpu=8000)
        standing = [pod("p", "n0", 4000, 100), job("w0", None), job("w1", None)]
        sizes = [500, 500, 500, 400, 400, 300, *least]
        come = [job(f"a{number}", None, cpu) for number, cpu in enumerate(sizes)]
        (held,) = looks(
            [full, large], (0, standing), (10, [*standing, *come]), (400, standing)
        ).plan.reserve
        assert held.why.message == (
            f"it is reserved for {pods} pods: 2 pending, 3 of 500m + 95.4Mi, 2 of 400m + 95.4Mi, "
            f"1 of 100m + 95.4Mi, {rest}"
        )

    def test_the_headroom_is_the_least_and_no_more_where_as_much_came(self) -> None:
        least = replace(ASKED, budgets=replace(ASKED.budgets, headroom=1))
        assert kept(self.found(config=least)) == ["e0"]
        (held,) = self.found(job("a", None, 3000), config=least).plan.reserve
        assert held.why.message == "it is reserved for 1 pod: 1 of 3 + 95.4Mi"

    def test_what_came_to_one_reach_is_no_headroom_of_another(self) -> None:
        """Nor are more that are smaller."""
        least = replace(ASKED, budgets=replace(ASKED.budgets, headroom=1))
        nodes = [*self.EMPTY, *(node(name, labels={"green": "true"}) for name in ("g0", "g1"))]
        come = [job("a", None, 3500, placing=GREEN), job("b", None, 2000)]
        found = self.found(*come, nodes=nodes, config=least)
        assert {one.node: one.why.message.split(": ")[1] for one in found.plan.reserve} == {
            "e0": "1 of 3 + 95.4Mi",
            "e1": "1 of 2 + 95.4Mi",
            "g0": "1 of 3500m + 95.4Mi",
        }

    def test_a_device_that_no_pod_asks_for_any_more_is_room_for_those_that_do(self) -> None:
        gpus = (("gpu", 2),)
        nodes = [node("e0"), node("g0", extended=gpus), node("g1", extended=gpus)]
        pods = [
            replace(job(f"a{n}", None, 100), requests=Resources(100, 0, 0, 1, (("gpu", 1),)))
            for n in range(3)
        ]
        assert kept(self.found(*pods, nodes=nodes)) == ["g0", "g1"]

    def test_a_node_is_let_go_in_the_second_in_which_what_came_counts_no_more(self) -> None:
        """And no pass is made before, where nothing else changes."""
        found = self.found(job("a", None, 2000))
        cluster = found.snapshot.cluster
        for seconds, skipped, names in (
            (900, True, ["e0"]),
            (HOUR + 59, True, ["e0"]),
            (HOUR + 60, False, []),
        ):
            while found.requeue_at is not None and found.requeue_at < START + seconds:
                found = reconcile(cluster, ASKED, found.state, found.requeue_at, last=found)
            found = reconcile(cluster, ASKED, found.state, START + seconds, last=found)
            assert (found.skipped, kept(found)) == (skipped, names)

    def test_a_node_is_kept_again_in_the_second_in_which_the_day_before_begins_to_count(
        self,
    ) -> None:
        found = self.found(job("a", None, 2000))
        cluster, begins = found.snapshot.cluster, 86_400 - HOUR + 300
        let_go = reconcile(cluster, ASKED, found.state, START + begins - 1, last=found)
        assert kept(let_go) == []
        assert let_go.requeue_at == START + begins
        again = reconcile(cluster, ASKED, let_go.state, START + begins, last=let_go)
        assert kept(again) == ["e0"]
        assert again.requeue_at == START + 86_400 + 300
        late = reconcile(cluster, ASKED, again.state, START + 86_400 + 300, last=again)
        assert kept(late) == []

    def test_without_a_time_nothing_is_kept(self) -> None:
        assert kept(self.found(job("a", None, 2000), config=Config(budgets=UNLIMITED))) == []

    def test_a_pod_to_be_expected_is_no_load(self) -> None:
        off = self.found(job("a", None, 2000), config=Config(budgets=UNLIMITED)).plan
        found = self.found(job("a", None, 2000)).plan
        assert found.reserve
        assert replace(found, reserve=()) == off

    def test_a_node_that_nobody_reaches_changes_nothing(self) -> None:
        pods = [job(f"a{n}", None, 2000) for n in range(3)]
        aside = node("a", cpu=10**6, taints=(Taint("other", "", "NoSchedule"),))
        assert kept(self.found(*pods, nodes=[aside, *self.EMPTY])) == kept(self.found(*pods))
        memory = replace(job("b", None), requests=Resources(1900, 3000 * 10**6))
        found = self.found(*pods[:2], memory)
        assert [one.node for one in found.plan.reserve] == ["e0", "e1"]
        assert self.found(*pods[:2], memory, nodes=[aside, *self.EMPTY]).plan.reserve == (
            found.plan.reserve
        ), "of two kinds the larger comes first, by what pods reach"


class TestStarting:
    """Room for what comes on nodes that an autoscaler has made and that no pod may enter yet."""

    TOLD = replace(
        ASKED,
        mode=Mode.ENFORCE,
        budgets=replace(
            UNLIMITED,
            reserve=replace(ASKED.budgets.reserve, capacity_buffers=CapacityBuffers.ENABLED),
        ),
    )
    FULL = (pod("full-0", "n0", 4000, 100), pod("full-1", "n1", 4000, 100))
    HERE = (node("n0"), node("n1"))
    NEW = replace(node("new"), created_seconds=START + 10, ready=False)
    NOT_READY = "node.kubernetes.io/not-ready"

    def found(self, *nodes: Node, pods: Iterable[Pod] = (), at: int = 20) -> PassResult:
        """Let 4,000m come where all is full; look again when the other nodes have come."""
        here, came = [*self.FULL, *pods], [job(f"a{n}", None, 2000) for n in range(2)]
        first = reconcile(Cluster.of(self.HERE, self.FULL), self.TOLD, LeaderState(), START)
        then = reconcile(Cluster.of([*self.HERE, *nodes], here), self.TOLD, first.state, START + 1)
        then = reconcile(
            Cluster.of([*self.HERE, *nodes], [*here, *came]), self.TOLD, then.state, START + 10
        )
        return reconcile(
            Cluster.of([*self.HERE, *nodes], here), self.TOLD, then.state, START + at, last=then
        )

    def test_without_any_the_reach_is_short(self) -> None:
        assert self.found().short_reaches == {"general"}

    def test_in_mode_observe_nobody_is_told_and_nothing_is_looked_for(self) -> None:
        nodes, come = list(self.HERE), [job(f"a{n}", None, 2000) for n in range(2)]
        moments = (0, self.FULL), (10, [*self.FULL, *come]), (20, self.FULL)
        assert looks(nodes, *moments, config=self.TOLD).short_reaches == {"general"}
        observed = replace(self.TOLD, mode=Mode.OBSERVE)
        assert looks(nodes, *moments, config=observed).short_reaches == frozenset()

    def test_a_reach_is_short_by_what_all_of_its_pods_ask_for(self) -> None:
        """All but the smallest find room on the node that is there."""
        come = [job(f"a{n}", None, cpu) for n, cpu in enumerate((2000, 2000, 100))]
        nodes = [*self.HERE, node("e0")]
        moments = (0, self.FULL), (10, [*self.FULL, *come]), (20, self.FULL)
        assert looks(nodes, *moments, config=self.TOLD).short_reaches == frozenset()

    @pytest.mark.parametrize(
        ("there", "pods", "short"),
        [
            pytest.param(node("e0"), (), {"general"}, id="it goes if nobody asks for it"),
            pytest.param(node("e0"), (pod("p", "e0", 100, 1),), set(), id="in use"),
            pytest.param(marked(node("e0"), "soft", START), (), set(), id="marked"),
            pytest.param(node("e0", annotations={KEEP_ANNOTATION: "true"}), (), set(), id="stays"),
            pytest.param(NEW, (), {"general"}, id="on its way"),
        ],
    )
    def test_an_empty_node_that_ebb_does_not_hold_is_no_room(
        self, there: Node, pods: tuple[Pod, ...], short: set[str]
    ) -> None:
        config = replace(self.TOLD, scale_down_protection=ScaleDownProtection(scope=Scope.MARKED))
        here, come = [*self.FULL, *pods], [job(f"a{n}", None, 1900) for n in range(2)]
        moments = (0, here), (10, [*here, *come]), (20, here)
        assert looks([*self.HERE, there], *moments, config=config).short_reaches == short

    def test_nor_is_one_that_is_empty_for_its_autoscaler_alone(self) -> None:
        low, large = replace(pod("p", "e0", 100, 1), priority=-11), node("e0", cpu=8000)
        assert self.found(large, pods=[low]).short_reaches == {"general"}
        assert self.found(marked(large, "soft", START), pods=[low]).short_reaches == frozenset()

    @pytest.mark.parametrize(
        "changes",
        [
            {},
            {"taints": (Taint(NOT_READY, "", "NoSchedule"), Taint(NOT_READY, "", "NoExecute"))},
            {"ready": True, "taints": (Taint("node.cilium.io/agent-not-ready", "", "NoExecute"),)},
            {
                "taints": (
                    Taint("ignore-taint.cluster-autoscaler.kubernetes.io/x", "", "NoExecute"),
                )
            },
            {"taints": (Taint("mine", "", "PreferNoSchedule"),)},
        ],
    )
    def test_what_starts_is_room(self, changes: dict[str, Any]) -> None:
        found = self.found(replace(self.NEW, **changes))
        assert found.short_reaches == frozenset()
        assert kept(found) == []

    @pytest.mark.parametrize(
        "changes",
        [
            {"created_seconds": None},
            {"created_seconds": START + 20 - START_SECONDS_MAX},
            {"unschedulable": True},
            {"unreadable": "status"},
            {"virtual": True},
            {"deleting": True},
            {"taints": (Taint("ToBeDeletedByClusterAutoscaler", "1", "NoSchedule"),)},
            {"taints": (Taint("node.kubernetes.io/unreachable", "", "NoExecute"),)},
            {"taints": (Taint("gpu", "", "NoSchedule"),)},
        ],
    )
    def test_what_does_not_is_none(self, changes: dict[str, Any]) -> None:
        assert self.found(replace(self.NEW, **changes)).short_reaches == {"general"}

    def test_what_is_taken_there_is_no_room(self) -> None:
        agent = pod("agent", "new", 1000, 100, daemon=True)
        assert self.found(self.NEW, pods=[agent]).short_reaches == {"general"}
        odd = replace(agent, unreadable="spec")
        assert self.found(self.NEW, pods=[odd]).short_reaches == {"general"}

    def test_who_waits_comes_before_those_that_are_expected(self) -> None:
        assert self.found(self.NEW, pods=[job("w", None, 2000)]).short_reaches == {"general"}

    def test_an_empty_node_that_is_there_is_kept_all_the_same(self) -> None:
        found = self.found(self.NEW, node("e0"))
        assert kept(found) == ["e0"]

    def test_it_ends_in_the_second_in_which_nothing_starts_for_so_long(self) -> None:
        found, ends = self.found(self.NEW), START + 10 + START_SECONDS_MAX
        cluster = found.snapshot.cluster
        while found.requeue_at is not None and found.requeue_at < ends:
            later = max(found.requeue_at, found.at + 1)
            found = reconcile(cluster, self.TOLD, found.state, later, last=found)
            assert found.short_reaches == frozenset()
        assert found.requeue_at == ends
        assert reconcile(cluster, self.TOLD, found.state, ends, last=found).short_reaches == {
            "general"
        }


class TestTakenBack:
    """A marked node on which nothing stands, and that is needed while a pod of a CronJob runs."""

    NODES = (node("n0"), marked(node("n1"), "soft", START))
    BASE = job("base", "n0", 3000)
    RUN, NEXT = job("cron-1", "n0"), job("cron-2", "n0")

    def at(self, *moments: tuple[int, Iterable[Pod]]) -> list[str]:
        return kept(looks(self.NODES, (0, [self.BASE]), *moments))

    def test_it_is_kept_one_length_longer_than_it_was_needed(self) -> None:
        needed = (400, [self.BASE, self.RUN])
        assert self.at((390, [self.BASE])) == []
        assert self.at(needed) == ["n1"]
        assert self.at(needed, (500, [self.BASE]), (699, [self.BASE])) == ["n1"]
        assert self.at(needed, (500, [self.BASE]), (700, [self.BASE])) == []

    def test_it_is_kept_twice_as_long_each_further_time(self) -> None:
        before = ((400, [self.BASE, self.RUN]), (700, [self.BASE]), (800, [self.BASE, self.NEXT]))
        assert self.at(*before, (900, [self.BASE]), (1399, [self.BASE])) == ["n1"]
        assert self.at(*before, (900, [self.BASE]), (1400, [self.BASE])) == []

    def test_while_it_is_kept_no_further_time_counts(self) -> None:
        before = ((400, [self.BASE, self.RUN]), (500, [self.BASE]), (600, [self.BASE, self.NEXT]))
        assert self.at(*before, (899, [self.BASE])) == ["n1"]
        assert self.at(*before, (900, [self.BASE])) == []

    def test_it_counts_as_needed_up_to_the_end_of_looks_that_bring_no_news(self) -> None:
        same = [(second, [self.BASE, self.RUN]) for second in (400, 500, 600)]
        assert self.at(*same, (899, [self.BASE])) == ["n1"]
        assert self.at(*same, (900, [self.BASE])) == []

    def test_looks_that_bring_no_news_do_not_make_it_needed(self) -> None:
        same = [(second, [self.BASE]) for second in (500, 600, 650)]
        assert self.at((400, [self.BASE, self.RUN]), *same, (700, [self.BASE])) == []

    @pytest.mark.parametrize(("second", "until"), [(699, 999), (700, 1300)])
    def test_needed_as_that_ends_is_once_more(self, second: int, until: int) -> None:
        """Not earlier: it is kept then as it was."""
        before = (400, [self.BASE, self.RUN]), (500, [self.BASE])
        again = (second, [self.BASE, self.NEXT]), (second + 1, [self.BASE])
        assert self.at(*before, *again, (until - 1, [self.BASE])) == ["n1"]
        assert self.at(*before, *again, (until, [self.BASE])) == []

    @pytest.mark.parametrize(("second", "longer"), [(3999, 600), (4000, 300)])
    def test_after_an_hour_it_is_forgotten(self, second: int, longer: int) -> None:
        """And a look is made then."""
        before = (400, [self.BASE, self.RUN]), (500, [self.BASE]), (700, [self.BASE])
        assert looks(self.NODES, (0, [self.BASE]), *before).requeue_at == START + 4000
        again = (second, [self.BASE, self.NEXT]), (second + 1, [self.BASE])
        assert self.at(*before, *again, (second + longer - 1, [self.BASE])) == ["n1"]
        assert self.at(*before, *again, (second + longer, [self.BASE])) == []

    def test_what_a_leader_keeps_that_is_new_was_not_taken_back(self) -> None:
        assert self.at((299, [self.BASE])) == ["n1"]
        assert self.at((299, [self.BASE]), (300, [self.BASE])) == []

    def test_it_says_until_when_it_is_kept(self) -> None:
        moments = (0, [self.BASE]), (400, [self.BASE, self.RUN]), (500, [self.BASE])
        found = looks(self.NODES, *moments)
        [why] = [one.why for one in found.plan.reserve]
        assert (
            why.code,
            "needed again after its release to the autoscaler, and is reserved until"
            in why.message,
        ) == ("reserve", True)
        assert found.requeue_at is not None
        assert found.requeue_at <= START + 700
