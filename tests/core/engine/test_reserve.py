"""Count arriving pods, and reserve empty nodes for the next ones like them."""

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import combinations
from typing import Any

import pytest

from core.config.budgets import Budget, LabelSelector, Pool, Reserve
from core.config.prices import Price
from core.config.settings import Config, Mode, ScaleDownProtection, Scope
from core.engine.arrivals import (
    BUCKETS_MAX,
    LOOKBACK_SECONDS,
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
from core.engine.plan import ReserveCause
from core.engine.reconcile import ReconcileResult, reconcile
from core.engine.reserve import PODS_MAX, RESERVE
from core.engine.reserve import ReservePlanner as Room
from core.marks.wellknown import (
    KEEP_ANNOTATION,
    PROTECTION_ANNOTATION,
    SCALE_DOWN_DISABLED_ANNOTATION,
)
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
from core.model.node_lifecycle import START_SECONDS_MAX
from core.model.now import Now
from core.model.pod import CLAIMS_FIELD, Pod
from core.model.reason import Blocker
from core.model.resources import Resources
from core.writes.nodes import LeaderObservations, decide
from core.writes.write import WriteKind
from tests.support.builders import GREEN, UNLIMITED, marked, node, pod

pytestmark = pytest.mark.mutate

START = 1_000_000 * 300
HOUR = 3600
WHOLE = Resources(40_000, 80_000 * 10**6)
BUSIEST = Reserve(window_seconds=300, percentile=Fraction(1))
"""Most of these tests have one busy window, and only some are about the percentile."""
ASKED = Config(budgets=replace(UNLIMITED, reserve=BUSIEST))


BUDGETS_WITH_HEADROOM = replace(ASKED.budgets, headroom=1)
PROTECTED = {SCALE_DOWN_DISABLED_ANNOTATION: "true", PROTECTION_ANNOTATION: "unmarked"}


def job(name: str, on: str | None, cpu: int = 1000, **changes: object) -> Pod:
    made = replace(pod(name, on, cpu, 100), owner_kind="Job", owner_name=name, uid=name)
    return replace(made, **changes)  # type: ignore[arg-type]


def run_passes(
    nodes: Iterable[Node], *moments: tuple[int, Iterable[Pod]], config: Config = ASKED
) -> ReconcileResult:
    """Run a pass at each of these times, in seconds after START."""
    last: ReconcileResult | None = None
    made = list(nodes)
    for seconds, pods in moments:
        memory = last.state if last else LeaderState(may_publish=True)
        last = reconcile(Cluster.of(made, pods), config, memory, START + seconds, last=last)
    assert last is not None
    return last


def arrived(found: ReconcileResult, now: int | None = None) -> dict[int, int]:
    """Return the number of expected pods by millicores."""
    then = Now(found.at if now is None else START + now)
    counts = found.state.expected_pods(WHOLE, then, BUSIEST.percentile)
    return {kind.requests.cpu_millis: many for kind, many in counts.items()}


def reserved(found: ReconcileResult) -> list[str]:
    return [one.node for one in found.plan.reserve]


class TestArrivals:
    NODES = (node("n0"), node("n1"))

    def test_pods_of_first_pass_are_no_arrivals(self) -> None:
        assert arrived(run_passes(self.NODES, (0, [job("a", "n0")]), (10, [job("a", "n0")]))) == {}

    def test_new_pods_are_arrivals_whether_bound_or_not(self) -> None:
        pods = [job("a", "n0"), job("b", None, 700)]
        assert arrived(run_passes(self.NODES, (0, []), (10, pods))) == {1000: 1, 700: 1}

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
            {"node_constraints": NodeConstraints(node_selector=(("no", "where"),))},
        ],
    )
    def test_pods_that_are_never_placed_are_no_arrivals(self, changes: dict[str, Any]) -> None:
        assert (
            arrived(run_passes(self.NODES, (0, []), (10, [replace(job("a", "n0"), **changes)])))
            == {}
        )

    def test_pod_with_unbound_claims_is_arrival(self) -> None:
        """Most pods with volumes begin so: their claims wait for the first consumer."""
        waits = replace(job("a", None), unsupported=(CLAIMS_FIELD,))
        assert arrived(
            run_passes(self.NODES, (0, [job("b", "n1")]), (10, [waits, job("b", "n1")]))
        ) == {1000: 1}
        bound = job("a", "n0", node_constraints=NodeConstraints(volumes=(EVERYWHERE,)))
        assert arrived(run_passes(self.NODES, (0, [waits]), (10, [bound]))) == {}, (
            "the pod existed before"
        )

    @pytest.mark.parametrize("first", ["d", "g"])
    def test_pod_with_unbound_claims_counts_only_in_its_own_reach(self, first: str) -> None:
        """Independent of the order of nodes, and of other pods that select its label."""
        db = NodeConstraints(node_selector=(("pool", "db"),))
        nodes = [node(f"d{n}", labels={"pool": "db"}) for n in range(2)]
        nodes += [node(f"g{n}") for n in range(2)]
        there = [job("b", f"{first}0", 100), job("c", f"{first}1", 100)]
        waits = job("a", None, unsupported=(CLAIMS_FIELD,), node_constraints=db)
        for more in ([], [job("e", "d0", 200, node_constraints=db)]):
            found = run_passes(nodes, (0, [*there, *more]), (10, [*there, *more, waits]))
            (kind,) = found.state.expected_pods(WHOLE, Now(found.at), BUSIEST.percentile)
            assert kind.reach == "pool=db"

    def test_changed_pod_is_no_arrival_unless_its_uid_changes(self) -> None:
        one = job("a", None, owner_kind="")
        bound = replace(one, node="n0", labels={"x": "y"})
        assert arrived(run_passes(self.NODES, (0, [one]), (10, [bound]))) == {}
        assert arrived(run_passes(self.NODES, (0, [one]), (10, [replace(bound, uid="b")]))) == {
            1000: 1
        }

    def test_pod_on_virtual_node_is_no_arrival(self) -> None:
        nodes = [*self.NODES, replace(node("v"), virtual=True)]
        assert arrived(run_passes(nodes, (0, []), (10, [job("a", "v")]))) == {}

    @pytest.mark.parametrize(
        ("kind", "counted"),
        [("ReplicaSet", 0), ("StatefulSet", 0), ("ReplicationController", 0), ("Job", 0), ("", 1)],
    )
    @pytest.mark.parametrize("terminating", [True, False])
    def test_replacement_of_ended_pod_is_no_arrival(
        self, kind: str, counted: int, *, terminating: bool
    ) -> None:
        """An evicted pod may still be terminating beside its replacement."""
        one, two = (job(name, "n0", owner_kind=kind, owner_name="web") for name in "ab")
        then = [two, replace(one, terminating=True)] if terminating else [two]
        assert arrived(run_passes(self.NODES, (0, [one]), (10, then), (20, [two]))) == (
            {1000: counted} if counted else {}
        )

    @pytest.mark.parametrize(
        ("later_pod", "counted"),
        [
            (job("b", "n0"), {}),
            (job("b", "n0", 900), {900: 1}),
            (job("b", "n0", namespace="other"), {1000: 1}),
            (
                job("b", "n0", node_constraints=NodeConstraints(node_selector=(("disk", "ssd"),))),
                {1000: 1},
            ),
            (job("b", "n0", owner_kind="Workflow"), {1000: 1}),
        ],
    )
    def test_job_replaces_equal_job_of_same_namespace(
        self, later_pod: Pod, counted: dict[int, int]
    ) -> None:
        nodes = [replace(one, labels={**one.labels, "disk": "ssd"}) for one in self.NODES]
        assert (
            arrived(run_passes(nodes, (0, [job("a", "n0")]), (10, []), (20, [later_pod])))
            == counted
        )

    def test_rollout_counts_only_its_surge(self) -> None:
        def of(template: str, *numbers: int) -> list[Pod]:
            owner = {"owner_kind": "ReplicaSet", "owner_name": f"web-{template}"}
            labels = {"pod-template-hash": template}
            return [job(f"{template}-{n}", "n0", 100, **owner, labels=labels) for n in numbers]

        found = run_passes(
            self.NODES,
            (0, of("a", 0, 1, 2, 3)),
            (10, of("a", 0, 1, 2, 3) + of("b", 0)),
            (20, of("a", 1, 2, 3) + of("b", 0)),
            (30, of("a", 1, 2, 3) + of("b", 0, 1)),
            (40, of("a", 3) + of("b", 0, 1)),
            (50, of("a", 3) + of("b", 0, 1, 2, 3)),
        )
        assert arrived(found) == {100: 1}

    @pytest.mark.parametrize(("later", "counted"), [(239, {}), (301, {1000: 1})])
    def test_ended_pod_can_be_replaced_for_one_window(
        self, later: int, counted: dict[int, int]
    ) -> None:
        one, two = (job(name, "n0", owner_kind="ReplicaSet", owner_name="w") for name in "ab")
        assert (
            arrived(run_passes(self.NODES, (0, [one]), (10, []), (10 + later, [two]))) == counted
        )

    def test_pod_replaces_pod_that_ended_first(self) -> None:
        pods = [job(n, "n0", owner_kind="ReplicaSet", owner_name="w") for n in "abcd"]
        found = run_passes(
            self.NODES,
            (0, pods[:2]),
            (10, pods[1:2]),
            (200, []),
            (250, pods[2:3]),
            (350, pods[2:]),
        )
        assert arrived(found) == {}

    def test_last_window_counts_when_windows_are_equal(self) -> None:
        first, second = job("a", "n0"), replace(job("b", "n0"), requests=Resources(1000, 7, 0, 1))
        found = run_passes(self.NODES, (0, []), (10, [first]), (1000, [second]))
        counts = found.state.expected_pods(WHOLE, Now(found.at), BUSIEST.percentile)
        assert [kind.requests.memory_bytes for kind in counts] == [7]

    def test_busiest_window_counts(self) -> None:
        early = [job(f"a{n}", "n0") for n in range(3)]
        late = [job(f"b{n}", "n0", 2000) for n in range(1)]
        found = run_passes(
            self.NODES, (0, []), (60, early[:2]), (300, early), (900, [*early, *late])
        )
        assert arrived(found) == {1000: 3}
        assert arrived(found, 119 + HOUR) == {1000: 3}
        assert arrived(found, 120 + HOUR) == {2000: 1}
        assert arrived(found, 900 + 60 + HOUR) == {}

    def test_arrivals_of_different_windows_are_not_added(self) -> None:
        first, second = job("a", "n0"), job("b", "n0", 1001)
        assert arrived(run_passes(self.NODES, (0, []), (1, [first]), (299, [first, second]))) == {
            1000: 1,
            1001: 1,
        }
        assert arrived(run_passes(self.NODES, (0, []), (1, [first]), (301, [first, second]))) == {
            1001: 1
        }

    def test_busiest_window_is_found_per_reach(self) -> None:
        nodes = [*self.NODES, node("g0", labels={"green": "true"})]
        nodes.append(node("g1", labels={"green": "true"}))
        early = [job("a", "n0"), job("b", "n0")]
        late = job("c", "g0", 1500, node_constraints=GREEN)
        found = run_passes(nodes, (0, []), (10, early), (1000, [*early, late]))
        assert arrived(found) == {1000: 2, 1500: 1}

    @pytest.mark.parametrize(
        ("green", "pools"),
        [
            pytest.param("true", ("a", "b", "c"), id="its only node is replaced"),
            pytest.param("true", ("a", "ab", "b"), id="a node is added, then one removed"),
            pytest.param("false", ("", "a", ""), id="unusable nodes are added"),
        ],
    )
    def test_arrivals_are_not_added_when_reach_is_renamed(
        self, green: str, pools: Sequence[str]
    ) -> None:
        """Otherwise a pool with changing nodes would get its reserve several times."""
        node_constraints = NodeConstraints(node_selector=(("green", green),))
        others = [node(f"n{n}", labels={"green": "false"}) for n in range(2)]
        memory, second, stays = LeaderState(), START, job("s", "n0", 1)
        for number, names in enumerate(pools):
            nodes = [*others, *(node(name, labels={"green": "true"}) for name in names)]
            new = [
                job(f"j{number}-{n}", None, node_constraints=node_constraints) for n in range(2)
            ]
            for seconds, pods in ((0, []), (400, new)):
                second = START + number * 1000 + seconds
                memory = reconcile(Cluster.of(nodes, [stays, *pods]), ASKED, memory, second).state
        expected = memory.expected_pods(WHOLE, Now(second), BUSIEST.percentile)
        assert list(expected.values()) == [2]

    @pytest.mark.parametrize("pool", ["x", "g"])
    def test_pod_with_unbound_claims_is_not_counted_in_another_reach(self, pool: str) -> None:
        """No evaluable pod uses the same nodes, whichever node comes first."""
        labels = (pool, "g", "x", "x")
        nodes = [node(f"n{n}", labels={"pool": one}) for n, one in enumerate(labels)]
        node_constraints = NodeConstraints(node_selector=(("pool", "x"),))
        waits = replace(
            job("a", None, node_constraints=node_constraints), unsupported=(CLAIMS_FIELD,)
        )
        stays = job("s", "n0", 1)
        for there in (stays, job("j", "n3", 1, node_constraints=node_constraints)):
            assert arrived(run_passes(nodes, (0, [there]), (10, [there, waits]))) == {1000: 1}

    def test_arrivals_count_for_an_hour(self) -> None:
        found = run_passes(self.NODES, (0, []), (10, [job("a", "n0")]))
        for then, counts in ((START + HOUR + 59, {1000: 1}), (START + HOUR + 60, {})):
            later = reconcile(Cluster.of(self.NODES, []), ASKED, found.state, then)
            assert arrived(later) == counts

    def test_arrivals_restart_when_window_changes(self) -> None:
        found = run_passes(self.NODES, (0, []), (10, [job("a", "n0")]))
        other = replace(ASKED.budgets, reserve=Reserve(window_seconds=60))
        again = reconcile(
            Cluster.of(self.NODES, []), replace(ASKED, budgets=other), found.state, START + 20
        )
        assert arrived(again) == {}
        off = replace(ASKED, budgets=UNLIMITED)
        assert reconcile(Cluster.of(self.NODES, []), off, found.state, START).state.arrivals == (
            Arrivals()
        )


class TestBuckets:
    """A bucket is 60 s, and a window has five of them."""

    BUCKETS = TimeBuckets.of(300)
    ONE, OTHER = (
        PodShape("general", Resources(1000, 100), NodeConstraints(node_selector=((name, ""),)))
        for name in ("a", "b")
    )
    NOW = START + 150

    def expected(self, slots: Buckets, percentile: Fraction = BUSIEST.percentile) -> Counts:
        seen = Arrivals(buckets=self.BUCKETS, recent=slots)
        return expected_pods(seen, WHOLE, Now(self.NOW), percentile=percentile, at_least={})

    def test_expired_buckets_are_removed(self) -> None:
        last = self.NOW // 60
        slots = {n: {self.ONE: 1} for n in (last - 61, last - 60, last, last + 1)}
        remaining = without_expired(
            Arrivals(buckets=self.BUCKETS, recent=slots), Now(self.NOW)
        ).recent
        assert remaining.keys() == {last - 60, last}
        assert self.expected(slots) == {self.ONE: 1}

    def test_window_has_five_buckets(self) -> None:
        last = self.NOW // 60
        assert self.expected({n: {self.ONE: 1} for n in (last - 5, last - 1, last)}) == {
            self.ONE: 2
        }

    @pytest.mark.parametrize(
        ("pods", "percentile", "chosen"),
        [
            *(([3], percentile, None) for percentile in ("0", "1/100", "1/2")),
            ([3], "51/100", 0),
            ([3], "1", 0),
            ([3, 1], "1/2", 1),
            ([3, 1], "51/100", 0),
            ([4, 3, 2, 1], "0", 3),
            ([4, 3, 2, 1], "1/4", 3),
            ([4, 3, 2, 1], "26/100", 2),
            ([4, 3, 2, 1], "1/2", 2),
            ([4, 3, 2, 1], "3/4", 1),
            ([4, 3, 2, 1], "76/100", 0),
            ([4, 3, 2, 1], "1", 0),
            ([9, 1, 2], "1/2", 2),
            pytest.param([2, 2, 2], "1/3", 0, id="the first of equal windows"),
            pytest.param([2, 2, 2], "1/2", 1, id="the second of equal windows"),
            pytest.param([2, 2, 2], "1", 2, id="the last of equal windows"),
            pytest.param([1, 9, 1, 1], "1/2", 2, id="equal windows around a large one"),
        ],
    )
    def test_window_at_percentile_counts(
        self, pods: Sequence[int], percentile: str, chosen: int | None
    ) -> None:
        """*pods*: number of pods in each window, in the order of time."""
        shapes = [
            self.ONE._replace(node_constraints=NodeConstraints(node_selector=((str(n), ""),)))
            for n in range(len(pods))
        ]
        slots = {
            self.NOW // 60 + 5 * (n + 1 - len(pods)): {shape: pods[n]}
            for n, shape in enumerate(shapes)
        }
        usual = {} if chosen is None else {shapes[chosen]: pods[chosen]}
        assert self.expected(slots, Fraction(percentile)) == usual

    def test_one_burst_over_many_buckets_is_not_usual(self) -> None:
        last = self.NOW // 60
        burst = {n: {self.ONE: 9} for n in range(last - 4, last + 1)}
        assert self.expected(burst, Fraction(1, 2)) == {}
        assert self.expected(burst) == {self.ONE: 45}

    def test_windows_are_compared_by_requests_before_number_of_pods(self) -> None:
        large = self.ONE._replace(requests=Resources(3000, 100))
        last = self.NOW // 60
        slots = {last - 5 * n: {self.ONE: 2} if n % 2 else {large: 1} for n in range(4)}
        assert self.expected(slots, Fraction(1, 2)) == {self.ONE: 2}
        assert self.expected(slots) == {large: 1}

    def test_percentile_is_applied_to_each_reach(self) -> None:
        """The windows of one do not change the rank of those of the other."""
        apart = self.OTHER._replace(reach="apart")
        last = self.NOW // 60
        slots = {last - 10 * n: {self.ONE: 3 - n, apart: 4 + n} for n in range(3)}
        assert self.expected(slots, Fraction(1, 2)) == {self.ONE: 2, apart: 5}

    @pytest.mark.parametrize("percentile", [Fraction(1, 10), Fraction(1)])
    @pytest.mark.parametrize("ago", [0, 300, 3600, 5000])
    def test_next_change_is_announced(self, ago: int, percentile: Fraction) -> None:
        last = (self.NOW - ago) // 60
        seen = Arrivals(
            buckets=self.BUCKETS, recent={last - 9: {self.OTHER: 2}, last: {self.ONE: 1}}
        )

        def found(now: Now) -> Counts:
            return expected_pods(seen, WHOLE, now, percentile=percentile, at_least={})

        now = Now(self.NOW)
        before = found(now)
        for second in range(self.NOW - self.NOW % 60, self.NOW + 2 * HOUR, 60):
            if second > self.NOW and found(Now(second)) != before:
                while now.next_change is not None and now.next_change < second:
                    now = Now(now.next_change)
                    assert found(now) == before
                assert now.next_change == second
                return
        assert before == {}

    def test_last_window_counts_in_any_order_of_buckets(self) -> None:
        last = self.NOW // 60
        slots = {last: {self.OTHER: 1}, last - 9: {self.ONE: 1}}
        assert self.expected(slots) == {self.OTHER: 1}

    def test_window_at_percentile_agrees_with_plain_sums(self) -> None:
        """Also if later windows have fewer or other pods; shares are eighths, never rounded."""
        sizes = {
            PodShape("general", Resources(n * 5000, 100), NO_NODE_CONSTRAINTS): n
            for n in (1, 2, 4, 8)
        }
        last = self.NOW // 60
        for seed in range(200):
            chance = random.Random(seed)
            many, percentile = chance.choice((5, 7, 20)), Fraction(chance.randrange(1, 11), 10)
            length = chance.choice((5, 50))
            slots = {
                n: {kind: chance.randrange(1, 4) for kind in sizes if chance.random() < 0.7}
                for n in range(last - length, last + 1)
                if n == last or chance.random() < 0.7
            }
            sums = [
                sum((Counter(slots.get(n, {})) for n in range(end - many + 1, end + 1)), Counter())
                for end in slots
                if slots[end]
            ]
            sums.sort(key=lambda one: (sum(sizes[kind] * one[kind] for kind in one), one.total()))
            usual = next(one for rank, one in enumerate(sums, 1) if rank >= percentile * len(sums))
            came = [n for n in slots if slots[n]]
            if max(came) < min(came) + many and percentile * 2 <= 1:
                usual = Counter()
            seen, now = Arrivals(buckets=self.BUCKETS, recent=slots), Now(self.NOW)
            least = {"general": many * 60}
            found = expected_pods(seen, WHOLE, now, percentile=percentile, at_least=least)
            assert found == usual, seed

    def test_arrivals_of_one_template_count_in_its_later_reach(self) -> None:
        last, before = self.NOW // 60, self.ONE._replace(reach="before")
        assert self.expected({last: {before: 2, self.ONE: 3}}) == {self.ONE: 5}
        assert self.expected({last: {self.ONE: 3, before: 2}}) == {before: 5}


def test_arrivals_are_added_when_reaches_are_renamed_to_one_key() -> None:
    """In both fields that have reaches as keys."""
    old, new, other = (
        PodShape(reach, WHOLE, NO_NODE_CONSTRAINTS) for reach in ("old", "new", "other")
    )
    counts = {old: 2, new: 3, other: 5}
    latest = LastBucket(7, {old: "a", other: "b"})
    found = Arrivals(recent={7: counts}, last_bucket=latest).renamed({"old": "new"})
    assert found.recent == {7: {new: 5, other: 5}}
    assert found.last_bucket == LastBucket(7, {new: "a", other: "b"})


class TestBounds:
    @pytest.mark.parametrize(
        ("length", "slot"), [(300, 60), (60, 12), (1, 4), (7, 4), (2_592_000, 518_400)]
    )
    def test_number_of_buckets_is_bounded(self, length: int, slot: int) -> None:
        grain, over = TimeBuckets.of(length), LOOKBACK_SECONDS
        assert grain.bucket_seconds == slot
        assert (grain.window_buckets - 1) * slot < length <= grain.window_buckets * slot
        remembered = [n for n in range(over // slot + 9) if grain.is_within(n, over + 3)]
        assert len(remembered) <= BUCKETS_MAX + 2

    def test_shapes_in_bucket_are_bounded_fairly_between_namespaces(self) -> None:
        many = [job(f"a{n:03}", "n0", 1 + n) for n in range(2 * SHAPES_MAX)]
        other = job("z", "n0", 999, namespace="other")
        found = arrived(run_passes([node("n0"), node("n1")], (0, []), (10, [*many, other])))
        assert len(found) == SHAPES_MAX
        assert 999 in found

    @pytest.mark.parametrize(("more", "counts"), [(0, True), (1, False)])
    def test_template_is_not_counted_when_it_is_too_long(self, more: int, counts: bool) -> None:
        def node_constraints(value: str) -> NodeConstraints:
            return NodeConstraints(
                affinity=(SelectorTerm((Requirement("a", "NotIn", (value,)),)),)
            )

        long = "x" * (TEMPLATE_CHARACTERS_MAX + more - len(repr(node_constraints(""))))
        one = job("a", "n0", node_constraints=node_constraints(long))
        assert bool(arrived(run_passes([node("n0"), node("n1")], (0, []), (10, [one])))) is counts

    def test_full_bucket_is_tolerated_when_clock_goes_back(self) -> None:
        nodes = [node("n0"), node("n1")]
        many = [job(f"a{n:03}", "n0", 1 + n) for n in range(SHAPES_MAX)]
        later = [*many, job("b", "n0", 800)]
        found = run_passes(nodes, (0, []), (60, many), (120, later))
        cluster = Cluster.of(nodes, [*later, job("c", "n0", 900)])
        back = reconcile(cluster, ASKED, found.state, START + 61)
        assert 900 not in arrived(back)

    def test_namespace_share_is_counted_per_bucket(self) -> None:
        """Otherwise the largest namespace of one bucket would lose places in the next one."""
        nodes = [node("n0"), node("n1")]
        many = [job(f"a{n:03}", "n0", 1 + n, namespace="late") for n in range(SHAPES_MAX)]
        theirs = [job(f"b{n:03}", "n0", 1 + n) for n in range(SHAPES_MAX)]
        one = job("z", "n0", 990, namespace="late")
        found = run_passes(nodes, (0, []), (60, many), (120, [*many, *theirs, one]))
        assert 990 in arrived(found)
        assert {len(slot) for slot in found.state.arrivals.recent.values()} == {SHAPES_MAX}

    def test_namespace_that_came_first_keeps_no_more_than_its_share(self) -> None:
        nodes = [node("n0"), node("n1")]
        many = [job(f"a{n:03}", "n0", 1 + n) for n in range(SHAPES_MAX)]
        others = [job(f"z{n}", "n0", 900 + n, namespace=f"other-{n}") for n in range(40)]
        late = [job("late", "n0", 990, namespace="other-0")]
        moments = [(0, []), (60, many), (70, [*many, *others]), (80, [*many, *others, *late])]
        found = run_passes(nodes, *moments)
        assert {900 + n for n in range(40)} <= arrived(found).keys()
        assert 990 in arrived(found), "another namespace has more"
        assert len(arrived(found)) == SHAPES_MAX
        assert arrived(run_passes(nodes, *moments, (90, [*many, *others, *late]))) == arrived(
            found
        )
        for slot in found.state.arrivals.recent.values():
            assert len(slot) == SHAPES_MAX
        one = [*many, *others, *late, job("one", "n0", 995)]
        assert arrived(run_passes(nodes, *moments, (130, one))) == {
            **arrived(found),
            995: 1,
        }, "the next bucket"

    def test_namespace_keeps_its_most_frequent_shapes_in_full_bucket(
        self,
    ) -> None:
        nodes = [node("n0"), node("n1")]
        many = [job(f"a{n:03}", "n0", 1 + n) for n in range(SHAPES_MAX)]
        often = [job(f"b{n}", "n0", 1) for n in range(3)]
        more = [job("c", "n0", 800)]
        theirs = [job("z", "n0", 900, namespace="other")]
        found = arrived(run_passes(nodes, (0, []), (60, [*many, *often]), (70, [*more, *theirs])))
        assert 800 not in found
        assert found[900] == 1
        assert found[1] == 4

    @pytest.mark.parametrize(("third", "first", "second"), [(0, 32, 32), (1, 32, 31)])
    def test_full_bucket_is_shared_equally_between_namespaces(
        self, third: int, first: int, second: int
    ) -> None:
        nodes = [node("n0"), node("n1")]
        full = [job(f"a{n:03}", "n0", 100 + n) for n in range(SHAPES_MAX - 4 - third)]
        full += [job(f"b{n:03}", "n0", 200 + n, namespace="second") for n in range(4)]
        full += [job(f"c{n:03}", "n0", 400 + n, namespace="third") for n in range(third)]
        more = [job(f"d{n:03}", "n0", 300 + n, namespace="second") for n in range(SHAPES_MAX)]
        found = arrived(run_passes(nodes, (0, []), (60, full), (70, [*full, *more])))
        assert Counter(cpu // 200 for cpu in found) == Counter(
            {0: first, 1: second, **({2: third} if third else {})}
        )

    def test_displaced_shape_is_deterministic_when_counts_are_equal(self) -> None:
        nodes = [node("n0"), node("n1")]
        many = [job(f"a{n:03}", "n0", 2 + n) for n in range(SHAPES_MAX)]
        one = job("z", "n0", 900, namespace="other")
        found = arrived(run_passes(nodes, (0, []), (60, many), (70, [*many, one])))
        assert set(range(2, 2 + SHAPES_MAX)) - found.keys() == {10}, "the first one in text order"

    def test_pods_that_select_one_node_reserve_none(self) -> None:
        """Otherwise a small pod per node would reserve all nodes."""
        nodes = [node(f"n{n}", labels={"kubernetes.io/hostname": f"n{n}"}) for n in range(5)]
        pinned = [
            job(
                f"p{n}",
                None,
                1,
                node_constraints=NodeConstraints(
                    node_selector=(("kubernetes.io/hostname", f"n{n}"),)
                ),
            )
            for n in range(5)
        ]
        found = run_passes(nodes, (0, []), (1, pinned), (2, []), (400, []))
        assert arrived(found) == {}
        assert reserved(found) == []

    def test_number_of_departed_workloads_is_bounded(self) -> None:
        owned = [
            job(f"p{n:04}", "n0", 0, owner_kind="ReplicaSet", owner_name=f"w{n:04}")
            for n in range(WORKLOADS_MAX + 5)
        ]
        nodes = [node("n0", pods=10_000)]
        remembered = run_passes(
            nodes, (0, owned), (10, owned[1:]), (70, [])
        ).state.arrivals.departed
        assert len(remembered) == WORKLOADS_MAX
        assert "w0000" not in {one.owner_name for one in remembered}

    def test_number_of_reserved_pods_is_bounded(self) -> None:
        nodes = [node("n0", cpu=100_000, memory=10**7, pods=20_000), node("n1", pods=0)]
        many = [job(f"a{n:05}", None, 1) for n in range(PODS_MAX + 1)]
        (protected,) = run_passes(nodes, (0, []), (10, many), (400, [])).plan.reserve
        assert protected.why.message.startswith(
            f"the node is reserved for {PODS_MAX} pods: {PODS_MAX} of 1m"
        )

    @pytest.mark.parametrize(
        ("first", "second"),
        [
            (Resources(2, 0), Resources(1, 0)),
            (Resources(1, 2), Resources(1, 1)),
            (Resources(1, 1, 0, 0, (("gpu", 1),)), Resources(1, 1, 0, 0, (("gpu", 2),))),
        ],
    )
    def test_largest_pods_are_reserved_for_when_there_are_too_many(
        self, first: Resources, second: Resources
    ) -> None:
        snapshot = run_passes([node("n0")], (0, [])).snapshot
        kinds = [PodShape("general", one, NO_NODE_CONSTRAINTS) for one in (first, second)]
        for counts in (dict.fromkeys(kinds, PODS_MAX), dict.fromkeys(kinds[::-1], PODS_MAX)):
            ((one, many),) = Room(snapshot, counts).placeholders
            assert (one.requests, many) == (first, PODS_MAX)

    @pytest.mark.parametrize(
        ("wanted", "has"),
        [
            ([PODS_MAX, 1], [PODS_MAX - 1, 1]),
            ([PODS_MAX, *[1] * 99], [PODS_MAX - 99, *[1] * 99]),
            ([PODS_MAX] * 4, [PODS_MAX // 4] * 4),
            ([10, PODS_MAX, PODS_MAX], [10, PODS_MAX // 2 - 5, PODS_MAX // 2 - 5]),
            ([10, 20], [10, 20]),
        ],
    )
    def test_unused_share_of_reach_is_given_to_others(
        self, wanted: list[int], has: list[int]
    ) -> None:
        snapshot = run_passes([node("n0")], (0, [])).snapshot
        kinds = [
            PodShape(f"{n:03}", Resources(1, 1), NO_NODE_CONSTRAINTS) for n in range(len(wanted))
        ]
        made = Room(snapshot, dict(zip(kinds, wanted, strict=True))).placeholders
        assert [many for _, many in made] == has

    def test_reserved_shape_is_deterministic_when_requests_are_equal(self) -> None:
        snapshot = run_passes([node("n0")], (0, [])).snapshot
        places = [NodeConstraints(node_selector=(("disk", name),)) for name in "ba"]
        kinds = [PodShape("general", Resources(1, 1), one) for one in places]
        for counts in (dict.fromkeys(kinds, PODS_MAX), dict.fromkeys(kinds[::-1], PODS_MAX)):
            ((one, many),) = Room(snapshot, counts).placeholders
            assert (one.node_constraints, many) == (places[1], PODS_MAX)

    def test_pod_of_untracked_reach_is_no_arrival(self) -> None:
        pairs = list(combinations(range(24), 2))
        labels = [{f"p{a}-{b}": "" for a, b in pairs if n in (a, b)} for n in range(24)]
        nodes = [node(f"n{n:02}", labels=one) for n, one in enumerate(labels)]
        there = [
            job(
                f"p{a}-{b}",
                f"n{a:02}",
                1,
                node_constraints=NodeConstraints(node_selector=((f"p{a}-{b}", ""),)),
            )
            for a, b in pairs
        ]
        beyond = run_passes(nodes, (0, there)).snapshot.reaches.untracked
        tracked = [pod for pod in there if pod.node_constraints not in beyond]
        there += [replace(pod, name=f"{pod.name}-{n}") for pod in tracked for n in range(2)]
        for node_constraints, counted in (
            (tracked[0].node_constraints, {7: 1}),
            (min(beyond, key=repr), {}),
        ):
            more = [*there, job("new", None, 7, node_constraints=node_constraints)]
            assert arrived(run_passes(nodes, (0, there), (10, more))) == counted


class TestReservedNodes:
    BUSY = (node("n0"), [pod("p", "n0", 3000, 100)])
    EMPTY = (node("e0"), node("e1"), node("e2"))
    PROTECTED = tuple(node(name, annotations=PROTECTED) for name in ("p0", "p1"))

    def found(
        self, *pods: Pod, nodes: Iterable[Node] = (), config: Config = ASKED
    ) -> ReconcileResult:
        """Let these pods arrive and end, and run a pass one window later."""
        busy, standing = self.BUSY
        made = [busy, *(nodes or self.EMPTY)]
        return run_passes(
            made, (0, standing), (10, [*standing, *pods]), (400, standing), config=config
        )

    def test_new_leader_keeps_protected_empty_nodes_for_one_window(self) -> None:
        """It does not know which pods to expect, so it protects no other node either."""
        nodes = [self.BUSY[0], *self.EMPTY, *self.PROTECTED]
        moments = [(seconds, self.BUSY[1]) for seconds in (0, 299, 300)]
        assert reserved(run_passes(nodes, *moments[:1])) == ["p0", "p1"]
        late = run_passes(nodes, *moments[:2]).plan.reserve
        message = f"a new leader observes pod arrivals until {timestamp(START + 300)}"
        assert {one.why for one in late} == {Blocker(RESERVE, message, until=START + 300)}
        assert {one.cause for one in late} == {ReserveCause.NEW_LEADER}
        assert reserved(run_passes(nodes, *moments)) == []

    def test_new_leader_reserves_nodes_for_arrivals_that_it_has_seen(self) -> None:
        (found,) = run_passes(
            [self.BUSY[0], *self.EMPTY],
            (0, self.BUSY[1]),
            (10, [*self.BUSY[1], job("a", None, 2000)]),
        ).plan.reserve
        assert (found.node, found.cause) == ("e0", ReserveCause.PENDING)

    @pytest.mark.parametrize(
        ("window_seconds", "names", "later"),
        [
            (300, ["e0"], ["e0"]),
            (600, ["p0", "p1"], []),
        ],
    )
    def test_changed_window_releases_no_node_early(
        self, window_seconds: int, names: list[str], later: list[str]
    ) -> None:
        """Counts remain valid if the bucket length is the same; otherwise observation restarts."""
        before = self.found(job("a", None), job("b", None), nodes=[node("e0"), *self.PROTECTED])
        reserve = replace(BUSIEST, window_seconds=window_seconds)
        other = replace(ASKED, budgets=replace(ASKED.budgets, reserve=reserve))
        cluster = before.snapshot.cluster
        found = reconcile(cluster, other, before.state, START + 700, last=before)
        assert reserved(found) == names
        seen = reconcile(cluster, other, found.state, START + 700 + window_seconds)
        assert reserved(seen) == later

    def test_enabled_reserve_starts_with_observation(self) -> None:
        never = replace(
            ASKED, budgets=replace(ASKED.budgets, reserve=Reserve(window_seconds=None))
        )
        before = self.found(config=never, nodes=[node("e0"), *self.PROTECTED])
        assert reserved(before) == []
        found = reconcile(before.snapshot.cluster, ASKED, before.state, START + 700, last=before)
        assert reserved(found) == ["p0", "p1"]

    def test_no_node_is_reserved_when_expected_pod_fits_elsewhere(self) -> None:
        assert reserved(self.found(job("a", None))) == []

    def test_node_is_reserved_when_expected_pod_fits_nowhere_else(self) -> None:
        (protected,) = self.found(job("a", None), job("b", None)).plan.reserve
        assert protected.node == "e0"
        assert protected.why == (
            RESERVE,
            "the node is reserved for 1 pod: 1 of 1 + 95.4Mi",
            None,
            "",
            None,
        )

    @pytest.mark.parametrize(("percentile", "names"), [("1/2", ["e0"]), ("1", ["e0", "e1"])])
    def test_setting_selects_window_that_nodes_are_reserved_for(
        self, percentile: str, names: list[str]
    ) -> None:
        """Windows with one pod, three pods and one pod."""
        busy, standing = self.BUSY
        moments = [(0, standing)]
        for second, pods in ((10, 1), (410, 3), (810, 1)):
            new = [job(f"a{n}", None, 2000, uid=f"{second}-{n}") for n in range(pods)]
            moments += (second, [*standing, *new]), (second + 10, standing)
        reserve = replace(BUSIEST, percentile=Fraction(percentile))
        config = replace(ASKED, budgets=replace(ASKED.budgets, reserve=reserve))
        found = run_passes([busy, *self.EMPTY], *moments, (1210, standing), config=config)
        assert reserved(found) == names

    def test_only_needed_nodes_are_reserved(self) -> None:
        pods = [job(f"a{n}", None, 2000) for n in range(3)]
        assert reserved(self.found(*pods)) == ["e0", "e1"]

    def test_cheapest_node_is_reserved_by_price_size_and_name(self) -> None:
        nodes = [node("e0", cpu=8000), node("e1"), node("e2", labels={"dear": ""})]
        assert reserved(self.found(job("a", None, 2000), nodes=nodes)) == ["e1"]
        priced = replace(
            ASKED,
            prices=(
                Price(node_selector=(("dear", ""),), price=Fraction(1)),
                Price(node_selector=(), price=Fraction(2)),
            ),
        )
        assert reserved(self.found(job("a", None, 2000), nodes=nodes, config=priced)) == ["e2"]

    def test_unmarked_nodes_are_reserved_first_and_unprotected_ones_last(self) -> None:
        """Otherwise room is kept twice, and the protection of a node changes in turns."""
        free, prefer_no_schedule = (
            node("z"),
            [marked(node(name), "PreferNoSchedule", START) for name in ("a", "b")],
        )
        protection = {SCALE_DOWN_DISABLED_ANNOTATION: "true", PROTECTION_ANNOTATION: "marked"}
        protected = replace(
            prefer_no_schedule[1], annotations={**prefer_no_schedule[1].annotations, **protection}
        )
        assert reserved(
            self.found(job("x", None, 2000), nodes=[prefer_no_schedule[0], protected, free])
        ) == ["z"]
        assert reserved(
            self.found(job("x", None, 2000), nodes=[prefer_no_schedule[0], protected])
        ) == ["b"]
        assert reserved(self.found(job("x", None, 2000), nodes=[prefer_no_schedule[0]])) == ["a"]

    def test_unprotected_node_is_reserved_last(self) -> None:
        """Its autoscaler may remove it at any time."""
        prefer_no_schedule = marked(node("m", labels={"pool": "a"}), "PreferNoSchedule", START)
        pools = (
            Pool(name="a", selector=LabelSelector(match_labels=(("pool", "a"),)), budget=Budget()),
        )
        apart = replace(ASKED, budgets=replace(ASKED.budgets, pools=pools))
        by_hand = replace(ASKED, scale_down_protection=ScaleDownProtection(scope=Scope.MARKED))
        for config in (apart, by_hand):
            found = self.found(
                job("x", None, 2000), nodes=[node("free"), prefer_no_schedule], config=config
            )
            assert reserved(found) == ["m"]
            found = self.found(job("x", None, 2000), nodes=[node("free")], config=config)
            assert reserved(found) == ["free"]

    def test_node_with_only_filler_pods_is_reserved_last(self) -> None:
        """It is empty for its autoscaler, and not protected."""
        prefer_no_schedule = marked(node("m"), "PreferNoSchedule", START)
        standing = [*self.BUSY[1], replace(pod("low", "e0", 100, 1), priority=-11)]
        moments = (0, standing), (10, [*standing, job("x", None, 2000)]), (400, standing)
        for others, name in (([prefer_no_schedule], "m"), ([], "e0")):
            found = run_passes([self.BUSY[0], self.EMPTY[0], *others], *moments)
            assert "e0" not in found.plan.protected
            assert reserved(found) == [name]

    def test_occupied_node_gives_room_when_its_mark_is_prefer_no_schedule(self) -> None:
        prefer_no_schedule = marked(node("m"), "PreferNoSchedule", START)
        standing = [pod("p", "m", 1000, 100)]
        for made, names in (
            (prefer_no_schedule, []),
            (marked(node("m"), "NoSchedule", START), ["e0"]),
        ):
            found = run_passes(
                [made, *self.EMPTY],
                (0, standing),
                (10, [*standing, job("a", None, 2000)]),
                (400, standing),
            )
            assert reserved(found) == names

    def test_reserved_node_keeps_its_prefer_no_schedule_mark(self) -> None:
        nodes = [marked(one, "PreferNoSchedule", START) for one in self.EMPTY]
        no_schedule_config = replace(ASKED, no_schedule_after_seconds=0)
        found = self.found(job("a", None, 2000), nodes=nodes, config=no_schedule_config)
        assert reserved(found) == ["e0"]
        assert [one.code for one in found.no_schedule_blockers["e0"]] == ["reserve"]
        assert [one.node for one in found.plan.removals][:1] == ["e0"]

    def test_mark_remains_prefer_no_schedule_for_pause_after_reservation(self) -> None:
        """Single pods change which nodes are reserved."""
        no_schedule_config = replace(ASKED, no_schedule_after_seconds=0)
        protection = {SCALE_DOWN_DISABLED_ANNOTATION: "true", PROTECTION_ANNOTATION: "marked"}
        nodes = [
            marked(replace(one, annotations=protection), "PreferNoSchedule", START)
            for one in self.EMPTY
        ]
        last = self.found(job("a", None, 2000), nodes=nodes, config=no_schedule_config)
        cluster = last.snapshot.cluster
        more = replace(cluster, nodes=(*cluster.nodes, node("more")))
        for seconds, against in ((401, ["reserve"]), (699, ["reserve"]), (700, [])):
            last = reconcile(more, no_schedule_config, last.state, START + seconds, last=last)
            assert reserved(last) == ["more"]
            assert [one.code for one in last.no_schedule_blockers["e0"]] == against

    def test_empty_node_with_no_schedule_mark_is_reserved_and_its_mark_weakened(self) -> None:
        """With `noScheduleAfter` most empty nodes have a NoSchedule mark."""
        nodes = [marked(one, "NoSchedule", START) for one in self.EMPTY]
        no_schedule_config = replace(ASKED, mode=Mode.ENFORCE, no_schedule_after_seconds=0)
        found = self.found(job("a", None, 2000), nodes=nodes, config=no_schedule_config)
        assert reserved(found) == ["e0"]
        watch = LeaderObservations(HOUR, found.no_schedule_blockers)
        writes = decide(
            found.snapshot.cluster,
            found.plan,
            no_schedule_config,
            now_seconds=found.at,
            owner="me",
            watch=watch,
        )
        (own,) = (one for one in writes if one.key == "e0")
        assert own.kind is WriteKind.SET_PREFER_NO_SCHEDULE
        assert own.annotations[SCALE_DOWN_DISABLED_ANNOTATION] == "true"
        assert "the node is reserved for 1 pod" in own.note

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
    def test_node_is_not_reserved_when_it_does_not_admit_pod(
        self, changes: dict[str, object]
    ) -> None:
        nodes = [replace(node("e0"), **changes), node("e1")]  # type: ignore[arg-type]
        assert reserved(self.found(job("a", None, 2000), nodes=nodes)) == ["e1"]

    def test_ineligible_node_gives_room(self) -> None:
        label = {"node-role.kubernetes.io/control-plane": ""}
        nodes = [node("c", labels=label), node("e1")]
        assert reserved(self.found(job("a", None, 2000), nodes=nodes)) == []

    def test_pending_pods_are_placed_before_expected_ones(self) -> None:
        busy, standing = self.BUSY
        waits = job("w", None)
        found = run_passes(
            [busy, *self.EMPTY], (0, standing), (10, [*standing, waits]), (400, [*standing, waits])
        )
        assert [one.why.message for one in found.plan.reserve] == [
            "the node is reserved for 1 pod: 1 of 1 + 95.4Mi"
        ]

    def test_pending_pod_is_placed_with_its_inter_pod_constraints(self) -> None:
        """The pending pod needs the port of the running pod, so the expected pod fits there."""
        busy, (there,) = self.BUSY
        port = PodConstraints(host_ports=(HostPort(80),))
        standing = [replace(there, pod_constraints=port), job("w", None, pod_constraints=port)]
        found = run_passes(
            [busy, *self.EMPTY], (0, standing), (10, [*standing, job("a", None)]), (400, standing)
        )
        assert [one.why.message for one in found.plan.reserve] == [
            "the node is reserved for 1 pod: 1 pending"
        ]

    @pytest.mark.parametrize(
        ("least", "pods", "rest"), [([200, 100], 10, "2 others"), ([100], 9, "1 other")]
    )
    def test_reserve_message_names_pending_and_most_frequent_pods(
        self, least: list[int], pods: int, rest: str
    ) -> None:
        full, large = node("n0"), node("e0", cpu=8000)
        standing = [pod("p", "n0", 4000, 100), job("w0", None), job("w1", None)]
        sizes = [500, 500, 500, 400, 400, 300, *least]
        come = [job(f"a{number}", None, cpu) for number, cpu in enumerate(sizes)]
        (protected,) = run_passes(
            [full, large], (0, standing), (10, [*standing, *come]), (400, standing)
        ).plan.reserve
        assert protected.why.message == (
            f"the node is reserved for {pods} pods: 2 pending, 3 of 500m + 95.4Mi, "
            f"2 of 400m + 95.4Mi, 1 of 100m + 95.4Mi, {rest}"
        )

    def test_no_empty_node_is_reserved_for_headroom(self) -> None:
        """Issue "idle GPU nodes": an empty node of eight GPUs stayed for as long as a pod ran."""
        assert reserved(self.found(config=replace(ASKED, budgets=BUDGETS_WITH_HEADROOM))) == []

    def test_node_with_device_is_reserved_when_no_pod_uses_it_now(self) -> None:
        gpus = (("gpu", 2),)
        nodes = [node("e0"), node("g0", extended=gpus), node("g1", extended=gpus)]
        pods = [
            replace(job(f"a{n}", None, 100), requests=Resources(100, 0, 0, 1, (("gpu", 1),)))
            for n in range(3)
        ]
        assert reserved(self.found(*pods, nodes=nodes)) == ["g0", "g1"]

    def test_reservation_ends_when_arrivals_expire(self) -> None:
        """All passes before are skipped."""
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
            assert (found.skipped, reserved(found)) == (skipped, names)

    def test_no_node_is_reserved_when_window_is_never(self) -> None:
        assert reserved(self.found(job("a", None, 2000), config=Config(budgets=UNLIMITED))) == []

    def test_expected_pods_do_not_count_as_load(self) -> None:
        off = self.found(job("a", None, 2000), config=Config(budgets=UNLIMITED)).plan
        found = self.found(job("a", None, 2000)).plan
        assert found.reserve
        assert found.protected == {"e0"}
        assert replace(found, reserve=(), protected=frozenset()) == off

    def test_unreached_node_does_not_change_reserve(self) -> None:
        pods = [job(f"a{n}", None, 2000) for n in range(3)]
        aside = node("a", cpu=10**6, taints=(Taint("other", "", "NoSchedule"),))
        assert reserved(self.found(*pods, nodes=[aside, *self.EMPTY])) == reserved(
            self.found(*pods)
        )
        memory = replace(job("b", None), requests=Resources(1900, 3000 * 10**6))
        found = self.found(*pods[:2], memory)
        assert [one.node for one in found.plan.reserve] == ["e0", "e1"]
        assert self.found(*pods[:2], memory, nodes=[aside, *self.EMPTY]).plan.reserve == (
            found.plan.reserve
        ), "the larger of two shapes comes first, measured by reachable capacity"


class TestStartingNodes:
    """Room for expected pods on new nodes that are not Ready yet."""

    ENABLED = replace(ASKED, mode=Mode.ENFORCE)
    FULL = (pod("full-0", "n0", 4000, 100), pod("full-1", "n1", 4000, 100))
    HERE = (node("n0"), node("n1"))
    NEW = replace(node("new"), created_seconds=START + 10, ready=False)
    NOT_READY = "node.kubernetes.io/not-ready"

    def found(self, *nodes: Node, pods: Iterable[Pod] = (), at: int = 20) -> ReconcileResult:
        """Let pods with 4,000m arrive while all nodes are full; run a pass with more nodes."""
        here, arriving = [*self.FULL, *pods], [job(f"a{n}", None, 2000) for n in range(2)]
        state = LeaderState(may_publish=True)
        first = reconcile(Cluster.of(self.HERE, self.FULL), self.ENABLED, state, START)
        then = reconcile(
            Cluster.of([*self.HERE, *nodes], here), self.ENABLED, first.state, START + 1
        )
        then = reconcile(
            Cluster.of([*self.HERE, *nodes], [*here, *arriving]),
            self.ENABLED,
            then.state,
            START + 10,
        )
        return reconcile(
            Cluster.of([*self.HERE, *nodes], here), self.ENABLED, then.state, START + at, last=then
        )

    def test_reach_is_short_when_there_is_no_room(self) -> None:
        assert self.found().short_reaches == {"general"}

    def test_no_reach_is_short_in_mode_observe(self) -> None:
        nodes, come = list(self.HERE), [job(f"a{n}", None, 2000) for n in range(2)]
        moments = (0, self.FULL), (10, [*self.FULL, *come]), (20, self.FULL)
        assert run_passes(nodes, *moments, config=self.ENABLED).short_reaches == {"general"}
        observed = replace(self.ENABLED, mode=Mode.OBSERVE)
        assert run_passes(nodes, *moments, config=observed).short_reaches == frozenset()

    def test_no_reach_is_short_when_buffers_may_not_be_written(self) -> None:
        known = self.found()
        assert known.short_reaches == {"general"}
        state = replace(known.state, may_publish=False)
        later = reconcile(known.snapshot.cluster, self.ENABLED, state, START + 21, last=known)
        assert later.short_reaches == frozenset()

    def test_reach_is_not_short_when_all_but_smallest_pod_find_room(self) -> None:
        """All but the smallest find room on the node that is there."""
        come = [job(f"a{n}", None, cpu) for n, cpu in enumerate((2000, 2000, 100))]
        nodes = [*self.HERE, node("e0")]
        moments = (0, self.FULL), (10, [*self.FULL, *come]), (20, self.FULL)
        assert run_passes(nodes, *moments, config=self.ENABLED).short_reaches == frozenset()

    @pytest.mark.parametrize(
        ("there", "pods", "short"),
        [
            pytest.param(node("e0"), (), {"general"}, id="unprotected"),
            pytest.param(node("e0"), (pod("p", "e0", 100, 1),), set(), id="in use"),
            pytest.param(marked(node("e0"), "PreferNoSchedule", START), (), set(), id="marked"),
            pytest.param(
                node("e0", annotations={KEEP_ANNOTATION: "true"}), (), set(), id="opted out"
            ),
            pytest.param(NEW, (), {"general"}, id="starting"),
        ],
    )
    def test_unprotected_empty_node_gives_no_room(
        self, there: Node, pods: tuple[Pod, ...], short: set[str]
    ) -> None:
        config = replace(
            self.ENABLED, scale_down_protection=ScaleDownProtection(scope=Scope.MARKED)
        )
        here, come = [*self.FULL, *pods], [job(f"a{n}", None, 1900) for n in range(2)]
        moments = (0, here), (10, [*here, *come]), (20, here)
        assert run_passes([*self.HERE, there], *moments, config=config).short_reaches == short

    def test_node_with_only_filler_pods_gives_no_room_unless_marked(self) -> None:
        low, large = replace(pod("p", "e0", 100, 1), priority=-11), node("e0", cpu=8000)
        assert self.found(large, pods=[low]).short_reaches == {"general"}
        assert (
            self.found(marked(large, "PreferNoSchedule", START), pods=[low]).short_reaches
            == frozenset()
        )

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
    def test_starting_node_gives_room(self, changes: dict[str, Any]) -> None:
        found = self.found(replace(self.NEW, **changes))
        assert found.short_reaches == frozenset()
        assert reserved(found) == []

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
    def test_node_gives_no_room_when_it_is_not_starting(self, changes: dict[str, Any]) -> None:
        assert self.found(replace(self.NEW, **changes)).short_reaches == {"general"}

    def test_starting_node_gives_no_room_when_daemon_pod_uses_it(self) -> None:
        agent = pod("agent", "new", 1000, 100, daemon=True)
        assert self.found(self.NEW, pods=[agent]).short_reaches == {"general"}
        odd = replace(agent, unreadable="spec")
        assert self.found(self.NEW, pods=[odd]).short_reaches == {"general"}

    def test_pending_pod_uses_room_of_starting_node_first(self) -> None:
        assert self.found(self.NEW, pods=[job("w", None, 2000)]).short_reaches == {"general"}

    def test_empty_node_is_reserved_beside_starting_node(self) -> None:
        found = self.found(self.NEW, node("e0"))
        assert reserved(found) == ["e0"]

    def test_starting_node_gives_no_room_after_start_limit(self) -> None:
        found, ends = self.found(self.NEW), START + 10 + START_SECONDS_MAX
        cluster = found.snapshot.cluster
        while found.requeue_at is not None and found.requeue_at < ends:
            later = max(found.requeue_at, found.at + 1)
            found = reconcile(cluster, self.ENABLED, found.state, later, last=found)
            assert found.short_reaches == frozenset()
        assert found.requeue_at == ends
        assert reconcile(cluster, self.ENABLED, found.state, ends, last=found).short_reaches == {
            "general"
        }


class TestReserveHysteresis:
    """An empty marked node that is needed only while a pod of a CronJob runs."""

    NODES = (node("n0"), marked(node("n1"), "PreferNoSchedule", START))
    BASE = job("base", "n0", 3000)
    RUN, NEXT = job("cron-1", "n0"), job("cron-2", "n0")

    def reserved_after(self, *moments: tuple[int, Iterable[Pod]]) -> list[str]:
        return reserved(run_passes(self.NODES, (0, [self.BASE]), *moments))

    def test_node_remains_reserved_one_window_longer(self) -> None:
        needed = (400, [self.BASE, self.RUN])
        assert self.reserved_after((390, [self.BASE])) == []
        assert self.reserved_after(needed) == ["n1"]
        assert self.reserved_after(needed, (500, [self.BASE]), (699, [self.BASE])) == ["n1"]
        assert self.reserved_after(needed, (500, [self.BASE]), (700, [self.BASE])) == []

    def test_reservation_doubles_each_further_time(self) -> None:
        before = ((400, [self.BASE, self.RUN]), (700, [self.BASE]), (800, [self.BASE, self.NEXT]))
        assert self.reserved_after(*before, (900, [self.BASE]), (1399, [self.BASE])) == ["n1"]
        assert self.reserved_after(*before, (900, [self.BASE]), (1400, [self.BASE])) == []

    def test_need_during_reservation_is_not_counted_again(self) -> None:
        before = ((400, [self.BASE, self.RUN]), (500, [self.BASE]), (600, [self.BASE, self.NEXT]))
        assert self.reserved_after(*before, (899, [self.BASE])) == ["n1"]
        assert self.reserved_after(*before, (900, [self.BASE])) == []

    def test_skipped_passes_extend_need(self) -> None:
        same = [(second, [self.BASE, self.RUN]) for second in (400, 500, 600)]
        assert self.reserved_after(*same, (899, [self.BASE])) == ["n1"]
        assert self.reserved_after(*same, (900, [self.BASE])) == []

    def test_skipped_passes_do_not_create_need(self) -> None:
        same = [(second, [self.BASE]) for second in (500, 600, 650)]
        assert self.reserved_after((400, [self.BASE, self.RUN]), *same, (700, [self.BASE])) == []

    @pytest.mark.parametrize(("second", "until"), [(699, 999), (700, 1300)])
    def test_need_at_end_of_reservation_counts_again(self, second: int, until: int) -> None:
        """A need one second earlier does not count again."""
        before = (400, [self.BASE, self.RUN]), (500, [self.BASE])
        again = (second, [self.BASE, self.NEXT]), (second + 1, [self.BASE])
        assert self.reserved_after(*before, *again, (until - 1, [self.BASE])) == ["n1"]
        assert self.reserved_after(*before, *again, (until, [self.BASE])) == []

    @pytest.mark.parametrize(("second", "longer"), [(3999, 600), (4000, 300)])
    def test_need_is_forgotten_after_one_hour(self, second: int, longer: int) -> None:
        """A pass is due at that time."""
        before = (400, [self.BASE, self.RUN]), (500, [self.BASE]), (700, [self.BASE])
        assert run_passes(self.NODES, (0, [self.BASE]), *before).requeue_at == START + 4000
        again = (second, [self.BASE, self.NEXT]), (second + 1, [self.BASE])
        assert self.reserved_after(*before, *again, (second + longer - 1, [self.BASE])) == ["n1"]
        assert self.reserved_after(*before, *again, (second + longer, [self.BASE])) == []

    def test_reservation_by_new_leader_does_not_count(self) -> None:
        protected = replace(self.NODES[1], annotations={**self.NODES[1].annotations, **PROTECTED})
        nodes = [self.NODES[0], protected]
        moments = [(seconds, [self.BASE]) for seconds in (0, 299, 300)]
        assert reserved(run_passes(nodes, *moments[:2])) == ["n1"]
        assert reserved(run_passes(nodes, *moments)) == []

    def test_reserve_message_names_end_of_reservation(self) -> None:
        moments = (0, [self.BASE]), (400, [self.BASE, self.RUN]), (500, [self.BASE])
        found = run_passes(self.NODES, *moments)
        [why] = [one.why for one in found.plan.reserve]
        assert (
            why.code,
            "needed again after its scale-down was allowed, and is reserved until" in why.message,
        ) == ("reserve", True)
        assert found.requeue_at is not None
        assert found.requeue_at <= START + 700
