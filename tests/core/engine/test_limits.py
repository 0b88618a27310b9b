"""What holds the engine back: one row a limit, and what a program remembers between its looks."""

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from core.capacity.usable import NOTHING, Amount, Usability
from core.config.budgets import Backoff, Budget, Budgets, Cooldown, Limit, Pool
from core.config.settings import Config, UsabilityMode
from core.config.thresholds import Thresholds
from core.engine import reconcile
from core.engine.leader_state import LeaderState, RateLimits, observe
from core.engine.limits import RemovalLimits
from core.engine.plan import Plan
from core.engine.planner import HEADROOM, LIMIT, NO_ROOM, TIME_BOX
from core.engine.snapshot import UNREACHED, ClusterSnapshot
from core.engine.zones import ZONE_LABEL
from core.marks.mark import Mark
from core.marks.wellknown import BACKOFF_ANNOTATION, MARK_LABEL
from core.model.buffers import Buffer
from core.model.cluster import Cluster
from core.model.constraints import HOST_LABEL, NodeConstraints, Requirement, SelectorTerm
from core.model.humanize import timestamp
from core.model.node import Effect, Node, Taint
from core.model.now import Now
from core.model.pod import Pod
from core.model.reason import Blocker
from core.packing.packer import NOT_ADMITTED
from tests.support.builders import (
    GREEN,
    MB,
    THESIS_USABILITY,
    UNLIMITED,
    config,
    marked,
    node,
    pod,
)
from tests.support.restraints import window

pytestmark = pytest.mark.mutate

NOW = 1000
FULL = Thresholds(cpu=Fraction(1), memory=Fraction(1))
A = Pool(name="a", node_selector=(("pool", "a"),), budget=Budget(min_nodes=2))
COOL = Cooldown(delay_after_add_seconds=600, delay_after_pending_seconds=300)


def empties(count: int, **labels: str) -> list[Node]:
    return [node(f"n{number}", labels=labels) for number in range(count)]


def in_zones(zones: str) -> list[Node]:
    return [node(f"{zone}{n}", labels={ZONE_LABEL: zone}) for n, zone in enumerate(zones)]


def gone(cluster: Cluster, asked: Config, held: RateLimits | None = None) -> list[str]:
    return [removal.node for removal in reconcile.plan(cluster, asked, limits=held).removals]


def codes(cluster: Cluster, asked: Config, held: RateLimits | None = None) -> set[str]:
    plan = reconcile.plan(cluster, asked, limits=held)
    return {blocker.code for kept in plan.kept for blocker in kept.blockers}


TINY = pod("tiny", None, 0, 0)
"""It makes a reach of all nodes."""
SIX = Cluster.of(empties(6, pool="a"), [])
TAINTED = (
    node("x", taints=(Taint("others", "", Effect.NO_SCHEDULE),)),
    node("y", unschedulable=True),
)
SOME_MARKED = Cluster.of([*(marked(one, Mark.SOFT, 1) for one in empties(2)), *empties(6)[2:]], [])


@pytest.mark.parametrize(
    ("cluster", "budgets", "held", "goes", "code"),
    [
        (SIX, {}, None, 5, "last-node"),
        (SIX, {"cluster": Budget(min_nodes=4)}, None, 2, "min-nodes"),
        (SIX, {"pools": (A,)}, None, 4, "min-nodes"),
        (Cluster.of([*empties(3, pool="a"), node("x")], []), {"pools": (A,)}, None, 1, "no-pool"),
        (SIX, {"cluster": Budget(max_marked=Limit(2))}, None, 5, "last-node"),
        (SIX, {"cluster": Budget(max_marked=Limit(2))}, RateLimits(), 2, "budget-marked"),
        (SOME_MARKED, {"cluster": Budget(max_marked=Limit(3))}, RateLimits(), 3, "budget-marked"),
        (SOME_MARKED, {"cluster": Budget(max_marked=Limit(1))}, RateLimits(), 2, "budget-marked"),
        (SIX, {"cluster": Budget(max_marked=Limit(0))}, RateLimits(), 0, "budget-marked"),
        (SIX, {"cluster": Budget(max_in_window=Limit(3))}, RateLimits(), 3, "budget-window"),
        (
            SIX,
            {"cluster": Budget(max_in_window=Limit(3))},
            RateLimits(**window({"": 2})),
            1,
            "budget-window",
        ),
        (
            SIX,
            {"pools": (replace(A, budget=Budget(max_in_window=Limit(None, Fraction(1, 2)))),)},
            RateLimits(**window({"": 2, "a": 2})),
            1,
            "budget-window",
        ),
        (SIX, {"cluster": Budget(min_untainted_nodes=4)}, None, 2, "min-untainted-nodes"),
        (SOME_MARKED, {"cluster": Budget(min_untainted_nodes=5)}, None, 1, "min-untainted-nodes"),
        (
            Cluster.of([*empties(4), *TAINTED], [TINY]),
            {"cluster": Budget(min_untainted_nodes=2)},
            None,
            2 + len(TAINTED) - 1,  # the cordoned one stays; theirs going leaves as many
            "min-untainted-nodes",
        ),
        (SIX, {"mark_interval_seconds": 600}, None, 5, "last-node"),
        (SIX, {"mark_interval_seconds": 600}, RateLimits(), 1, "mark-interval"),
        (
            SIX,
            {"mark_interval_seconds": 600},
            RateLimits(mark_interval_until=1),
            0,
            "mark-interval",
        ),
        (
            SOME_MARKED,
            {"mark_interval_seconds": 600},
            RateLimits(mark_interval_until=1),
            2,
            "mark-interval",
        ),
        (SIX, {}, RateLimits(cooling_until=1), 0, "cooldown"),
        (SOME_MARKED, {}, RateLimits(pending_until=1), 2, "pods-pending"),
        (SIX, {}, RateLimits(backing_off={"n0": 2000, "n1": 2000}), 4, "backoff"),
        (SIX, {}, RateLimits(failed_writes={"n0": 2000, "n1": 2000}), 4, "mark-refused"),
        (Cluster.of(in_zones("aabb"), [TINY]), {"balance_zones": True}, None, 3, "last-node"),
        (Cluster.of(in_zones("aaabbc"), [TINY]), {"balance_zones": True}, None, 5, "last-node"),
        (
            Cluster.of([*in_zones("aaa"), node("b9", unschedulable=True)], [TINY]),
            {"balance_zones": True},
            None,
            2,
            "cordoned",
        ),
    ],
)
def test_a_limit_stops_the_next_step_and_says_so(
    cluster: Cluster, budgets: dict[str, Any], held: RateLimits | None, goes: int, code: str
) -> None:
    asked = config(**budgets)
    assert len(gone(cluster, asked, held)) == goes
    assert code in codes(cluster, asked, held)


def test_all_that_holds_a_node_back_is_told_in_one_order() -> None:
    spent = Budget(max_marked=Limit(0), max_in_window=Limit(0), min_nodes=6, min_untainted_nodes=7)
    asked = config(cluster=spent, pools=(replace(A, budget=spent),))
    held = RateLimits(
        cooling_until=90, pending_until=3, mark_interval_until=4, backing_off={"n0": 9}
    )
    brakes = RemovalLimits(ClusterSnapshot(SIX, asked), held)
    assert [(one.code, one.message) for one in brakes.blockers(SIX.nodes[0])] == [
        (
            "min-untainted-nodes",
            "the cluster would have 5 nodes without a taint, fewer than minUntaintedNodes: 7",
        ),
        ("min-nodes", "the cluster would have 5 schedulable nodes, fewer than minNodes: 6"),
        ("min-nodes", "pool a would have 5 schedulable nodes, fewer than minNodes: 6"),
        ("cooldown", "a node was added: no node is marked until 1970-01-01 00:01:30 UTC"),
        (
            "pods-pending",
            "a pod became unschedulable: no node is marked until 1970-01-01 00:00:03 UTC",
        ),
        (
            "mark-interval",
            f"a node was marked, or did not empty in time: no node is marked until {timestamp(4)}",
        ),
        ("backoff", "it did not empty in time: it is skipped until 1970-01-01 00:00:09 UTC"),
        ("budget-marked", "the cluster has 0 marked nodes, maxMarked is 0"),
        ("budget-window", "the cluster had 0 marks in the window, maxInWindow is 0"),
        ("budget-marked", "pool a has 0 marked nodes, maxMarked is 0"),
        ("budget-window", "pool a had 0 marks in the window, maxInWindow is 0"),
    ]
    nodes = [marked(SIX.nodes[0], Mark.SOFT, 1), *SIX.nodes[1:]]
    brakes = RemovalLimits(ClusterSnapshot(Cluster.of(nodes, []), asked), held)
    found = [one.code for one in brakes.blockers(nodes[0])]
    assert found == ["min-untainted-nodes", "min-nodes", "min-nodes"]
    brakes = RemovalLimits(ClusterSnapshot(Cluster.of([node("x")], []), config(pools=(A,))), None)
    (alone,) = brakes.blockers(node("x"))
    assert (alone.code, alone.message) == ("no-pool", "it is in none of the configured pools")


@pytest.mark.parametrize(
    ("held", "told"),
    [
        (RateLimits(), []),
        (RateLimits(**window({"": 1})), ["g0", "x"]),
        (RateLimits(**window({"": 1}, unreached={"": 1})), ["x"]),
        (RateLimits(**window({"": 2}, unreached={"": 1})), ["g0", "x"]),
    ],
)
def test_marks_on_nodes_that_nobody_reaches_hold_back_no_others(
    held: RateLimits, told: list[str]
) -> None:
    asked = config(cluster=Budget(max_in_window=Limit(1)))
    nodes = [node("g0", labels={"green": "true"}), node("g1", labels={"green": "true"}), node("x")]
    found = Cluster.of(nodes, [pod("p", "g0", 100, 100, placing=GREEN)])
    brakes = RemovalLimits(ClusterSnapshot(found, asked), held)
    codes = {one.name: [why.code for why in brakes.blockers(one)] for one in (nodes[0], nodes[2])}
    assert [name for name, why in codes.items() if "budget-window" in why] == told


def test_the_fewest_nodes_are_counted_without_those_that_leave_or_are_no_machines() -> None:
    going = Taint("ToBeDeletedByClusterAutoscaler", "1", "NoSchedule")
    others = [replace(node("cloud"), virtual=True), node("going", taints=(going,))]
    asked = config(cluster=Budget(min_nodes=2))
    brakes = RemovalLimits(ClusterSnapshot(Cluster.of([*empties(2), *others], []), asked), None)
    told = [one.message for one in brakes.blockers(node("n0")) if one.code == "min-nodes"]
    assert told == ["the cluster would have 1 schedulable node, fewer than minNodes: 2"]


@pytest.mark.parametrize("closed", [{"unschedulable": True}, {"ready": False}])
def test_what_takes_no_pods_is_none_of_the_nodes_that_a_new_mark_leaves(
    closed: dict[str, bool],
) -> None:
    broken = [replace(one, **closed) for one in in_zones("xy")]  # type: ignore[arg-type]
    asked = config(cluster=Budget(min_nodes=3))
    cluster = Cluster.of([*empties(4), *broken], [TINY])
    assert gone(cluster, asked) == ["n0"]
    told = {
        kept.node: one.message
        for kept in reconcile.plan(cluster, asked).kept
        for one in kept.blockers
        if one.code == "min-nodes"
    }
    assert told["n1"] == "the cluster would have 2 schedulable nodes, fewer than minNodes: 3"
    assert not told.keys() & {"x0", "y1"}, "as many stand without them"


@pytest.mark.parametrize("least", [{"min_nodes": 3}, {"min_untainted_nodes": 3}])
def test_no_mark_is_released_because_another_node_is_not_ready_for_a_while(
    least: dict[str, int],
) -> None:
    """Nor set anew after it: whoever was marked goes by all nodes that stand."""
    asked = config(cluster=Budget(**least))  # type: ignore[arg-type]
    nodes = [marked(node("n0"), Mark.SOFT, 1), *empties(4)[1:]]
    assert gone(Cluster.of(nodes, [TINY]), asked) == ["n0"]
    nodes[3] = replace(nodes[3], ready=False)
    assert gone(Cluster.of(nodes, [TINY]), asked) == ["n0"]
    nodes[0] = node("n0")
    assert gone(Cluster.of(nodes, [TINY]), asked) == []


def test_zones_fall_in_step() -> None:
    keep = {"kube-ebb.io/keep": "true"}
    stays = [replace(one, annotations=keep) for one in in_zones("bbb")]
    cluster = Cluster.of([*in_zones("aaa"), *stays], [TINY])
    asked = config(balance_zones=True)
    assert gone(cluster, asked) == ["a0"]
    assert "zone-balance" in codes(cluster, asked)
    assert gone(cluster, config(balance_zones=False)) == ["a0", "a1", "a2"]


@pytest.mark.parametrize(("limit", "nodes", "number"), [
    (Limit(3), 100, 3),
    (Limit(None, Fraction(1, 5)), 14, 2),
    (Limit(None, Fraction(1, 5)), 4, 1),
    (Limit(0), 4, 0),
])  # fmt: skip
def test_a_share_is_rounded_down_to_at_least_one(limit: Limit, nodes: int, number: int) -> None:
    assert limit.of(nodes) == number


def at_fill(millis: int, *more: Node) -> Cluster:
    pods = [pod(f"p{n}", f"n{n}", millis, 0) for n in range(3)]
    return Cluster.of([*empties(3), *more], pods)


def test_it_is_harder_to_enter_than_to_stay() -> None:
    shares = Thresholds(cpu=Fraction(4, 5), memory=Fraction(1))
    asked = replace(config(), thresholds=shares)
    full = at_fill(2200)  # 6600 of 8000 without one node: 82.5 %
    assert gone(full, asked) == []
    nodes = [marked(full.nodes[0], Mark.SOFT, 1), *full.nodes[1:]]
    already = Cluster.of(nodes, [replace(one, requests=pod("x", None, 1650, 0).requests)
                                 for one in full.pods] + [pod("y", "n1", 1650, 0)])  # fmt: skip
    assert gone(already, asked) == ["n0"]
    assert gone(already, replace(asked, release_thresholds=shares)) == []


def test_the_busiest_moment_of_the_window_counts() -> None:
    asked = replace(config(stabilization_window_seconds=60), thresholds=FULL)
    memory = reconcile.reconcile(at_fill(3000), asked, LeaderState(), NOW).state
    low = at_fill(1000)
    seen = reconcile.reconcile(low, asked, memory, NOW + 59)
    held = seen.rate_limits
    assert held.peak_excess == {"": Amount(6000, 0), "general": Amount(6000, 0)}
    assert gone(low, asked, held) == []
    assert "peak-demand" in codes(low, asked, held)
    held = reconcile.reconcile(low, asked, seen.state, NOW + 60).rate_limits
    assert held.peak_excess == {"": NOTHING, "general": NOTHING}
    assert len(gone(low, asked, held)) == 2


def test_the_busiest_moment_releases_no_mark() -> None:
    """What was asked for then may have gone together with its nodes, or have waited in vain."""
    asked = replace(config(stabilization_window_seconds=60), thresholds=FULL)
    memory = reconcile.reconcile(at_fill(3000), asked, LeaderState(), NOW).state
    low = at_fill(1000)
    already = replace(low, nodes=(marked(low.nodes[0], Mark.SOFT, 1), *low.nodes[1:]))
    held = reconcile.reconcile(already, asked, memory, NOW + 59).rate_limits
    assert held.peak_excess == {"": Amount(6000, 0), "general": Amount(6000, 0)}
    assert gone(already, asked, held) == ["n0"]
    assert "peak-demand" in codes(already, asked, held)


def test_room_is_left_for_the_largest() -> None:
    pods = [pod("big", "n0", 3000, 100), pod("small", "n1", 900, 100)]
    cluster = Cluster.of(empties(2), pods)
    assert [one.requests.cpu_millis for one in ClusterSnapshot(cluster, config()).headroom(2)] == [
        3000,
        3000,
    ]
    assert gone(cluster, config()) == ["n1"]
    asked = config(headroom=1)
    assert gone(cluster, asked) == []
    assert "headroom" in codes(cluster, asked)
    third = Cluster.of([*cluster.nodes, node("n2")], pods)
    plan = reconcile.plan(third, asked)
    assert [removal.node for removal in plan.removals] == ["n2"]
    assert plan.pending == ()
    assert plan.before.requests == plan.after.requests


@pytest.mark.parametrize(
    ("cpu", "told"),
    [(4000, [("headroom", None), ("no-room", "0/p")]), (8000, [("no-room", "0/p")])],
)
def test_of_pods_alike_those_come_first_that_do_not_exist(
    cpu: int, told: list[tuple[str, str | None]]
) -> None:
    """By name, a buffer's before the headroom, whatever namespaces there are."""
    one = pod("p", "n0", 3000, 100, namespace="0")
    alike = replace(one, namespace="", name="a/b", node=None)
    alike = replace(alike, owner_kind="CapacityBuffer", owner_name="a/b")
    stays = node("n1", cpu=cpu, annotations={"kube-ebb.io/keep": "true"})
    cluster = Cluster.of([node("n0", cpu=12_000), stays], [one])
    buffers = (Buffer(namespace="a", name="b", replicas=1, pod=alike),)
    plan = reconcile.plan(replace(cluster, buffers=buffers), config(headroom=1))
    assert [(found.code, found.pod) for found in why(plan, "n0")] == told


def test_a_node_that_was_added_cools_down() -> None:
    asked = config(cooldown=COOL)
    seen = reconcile.reconcile(SIX, asked, LeaderState(), NOW)
    assert seen.rate_limits.cooling_until is None
    more = Cluster.of([*SIX.nodes, node("new")], [])
    for seconds in (10, 20, 609):
        seen = reconcile.reconcile(more, asked, seen.state, NOW + seconds)
        assert seen.rate_limits.cooling_until == NOW + 610
    assert (
        reconcile.reconcile(more, asked, seen.state, NOW + 610).rate_limits.cooling_until is None
    )


def test_a_node_that_comes_where_there_was_no_machine_cools_down() -> None:
    asked = config(cooldown=COOL)
    seen = reconcile.reconcile(
        Cluster.of([replace(node("v"), virtual=True)], []), asked, LeaderState(), NOW
    )
    assert (
        reconcile.reconcile(SIX, asked, seen.state, NOW + 10).rate_limits.cooling_until
        == NOW + 610
    )


@pytest.mark.parametrize("policy", ["ClusterThreshold", "NodeUtilization"])
@pytest.mark.parametrize(
    ("uids", "anew"),
    [("aab", True), ("aaa", False), ("a a", False), (" aa", False), ("a b", True)],
)
def test_a_node_that_is_made_anew_under_its_name_is_another(
    policy: str, uids: str, anew: bool
) -> None:
    """Machines come back under their names; of a Node that cannot be read no uid is known."""
    asked = replace(config(cooldown=COOL), policy=policy, unneeded_time_seconds=600)
    full = Cluster.of(
        SIX.nodes, [pod(f"p{n}", one.name, 100, 100) for n, one in enumerate(SIX.nodes)]
    )
    memory, found = LeaderState(), []
    for number, uid in enumerate(uids):
        nodes = [replace(SIX.nodes[0], uid=uid.strip()), *SIX.nodes[1:]]
        seen = reconcile.reconcile(Cluster.of(nodes, full.pods), asked, memory, NOW + 10 * number)
        memory = seen.state
        found.append((seen.state.candidates["n0"], seen.rate_limits.cooling_until))
    assert found[-1] == ((NOW + 20, NOW + 620) if anew else (NOW, None))
    assert memory.candidates["n1"] == NOW


@pytest.mark.parametrize(
    ("created", "left"),
    [
        (NOW - 600, 0),
        (NOW - 599, 1),
        (NOW, 600),
        pytest.param(NOW + 9999, 600, id="a future one counts as now"),
        pytest.param(None, 0, id="not known"),
    ],
)
def test_a_new_leader_knows_from_the_nodes_themselves_when_one_was_added(
    created: int | None, left: int
) -> None:
    nodes = [replace(SIX.nodes[0], created_seconds=created), *SIX.nodes[1:]]
    asked, cluster = config(cooldown=COOL), Cluster.of(nodes, [])
    seen = reconcile.reconcile(cluster, asked, LeaderState(), NOW)
    assert seen.rate_limits.cooling_until == (NOW + left if left else None)
    later = reconcile.reconcile(cluster, asked, seen.state, NOW + 600)
    assert later.rate_limits.cooling_until is None


def test_a_virtual_node_that_comes_is_no_scale_up() -> None:
    """EKS on Fargate makes one for every pod: a job every few minutes would stop all marks."""
    asked, virtual = config(cooldown=COOL), replace(node("v"), virtual=True, created_seconds=NOW)
    seen = reconcile.reconcile(SIX, asked, LeaderState(), NOW)
    with_it = Cluster.of([*SIX.nodes, virtual], [])
    assert (
        reconcile.reconcile(with_it, asked, seen.state, NOW + 10).rate_limits.cooling_until is None
    )
    assert (
        reconcile.reconcile(with_it, asked, LeaderState(), NOW).rate_limits.cooling_until is None
    )


SPACED: dict[str, Any] = {
    "mark_interval_seconds": 600,
    "backoff": Backoff(first_seconds=1000, max_seconds=1000),
}


def backed_off(one: Node, since: int) -> Node:
    return replace(one, annotations={BACKOFF_ANNOTATION: f"1 {since + 1000}"})


@pytest.mark.parametrize(
    ("first", "left"),
    [
        pytest.param(SIX.nodes[0], 0, id="nothing"),
        pytest.param(marked(SIX.nodes[0], Mark.SOFT, NOW - 599), 1, id="a mark"),
        pytest.param(marked(SIX.nodes[0], Mark.SOFT, NOW - 600), 0, id="an old mark"),
        pytest.param(marked(SIX.nodes[0], Mark.SOFT, NOW + 99), 600, id="a mark of the future"),
        pytest.param(backed_off(SIX.nodes[0], NOW - 500), 100, id="a failed drain"),
        pytest.param(backed_off(SIX.nodes[0], NOW + 9**9), 600, id="one of the future"),
    ],
)
def test_a_new_leader_reads_off_the_nodes_how_long_nothing_is_marked(
    first: Node, left: int
) -> None:
    cluster = Cluster.of([first, *SIX.nodes[1:]], [])
    seen = reconcile.reconcile(cluster, config(**SPACED), LeaderState(), NOW)
    assert seen.rate_limits.mark_interval_until == (NOW + left if left else None)


def test_marks_are_set_apart_and_so_is_one_from_a_node_that_did_not_empty() -> None:
    asked = replace(config(**SPACED), unneeded_time_seconds=0)
    seen = reconcile.reconcile(
        SIX, asked, LeaderState(candidates=dict.fromkeys(["n0", "n1", "n2"], 0)), NOW
    )
    assert [one.node for one in seen.plan.removals] == ["n0"]
    some = Cluster.of([marked(SIX.nodes[0], Mark.SOFT, NOW), *SIX.nodes[1:]], [])
    for seconds in (1, 599):
        seen = reconcile.reconcile(some, asked, seen.state, NOW + seconds, last=seen)
        assert (seen.rate_limits.mark_interval_until, seen.skipped) == (NOW + 600, seconds > 1)
        assert [one.node for one in seen.plan.removals] == ["n0"]
    seen = reconcile.reconcile(some, asked, seen.state, NOW + 600, last=seen)
    assert len(seen.plan.removals) == 2
    failed = Cluster.of([backed_off(SIX.nodes[0], NOW + 700), *SIX.nodes[1:]], [])
    seen = reconcile.reconcile(failed, asked, seen.state, NOW + 705, last=seen)
    assert seen.rate_limits.mark_interval_until == NOW + 1300


def test_whoever_goes_after_it_the_next_mark_is_set_apart_from_a_new_one() -> None:
    brakes = RemovalLimits(ClusterSnapshot(SOME_MARKED, config(**SPACED)), RateLimits())
    *_, new, other = SOME_MARKED.nodes
    for one in (new, SOME_MARKED.nodes[0]):
        brakes.count_removal(one)
    assert [why.code for why in brakes.blockers(other)] == ["mark-interval"]


def test_no_kubelet_holds_the_others_back_or_hides_the_mark_of_its_node() -> None:
    """It may write annotations of its own node, those that say when too, but not the mark."""
    asked = config(**SPACED)
    seen = reconcile.reconcile(SIX, asked, LeaderState(), NOW)
    for late in (700, 1400):  # one that was never marked did not fail
        liar = Cluster.of([backed_off(SIX.nodes[0], NOW + late), *SIX.nodes[1:]], [])
        seen = reconcile.reconcile(liar, asked, seen.state, NOW + late)
        assert seen.rate_limits.mark_interval_until is None
    early = Cluster.of([marked(SIX.nodes[0], Mark.SOFT, 1), *SIX.nodes[1:]], [])
    seen = reconcile.reconcile(early, asked, seen.state, NOW + 1410)
    assert seen.rate_limits.mark_interval_until == NOW + 2000  # it was not there at NOW + 1400
    anew = Cluster.of([marked(SIX.nodes[0], Mark.SOFT, NOW + 2000), *SIX.nodes[1:]], [])
    assert (
        reconcile.reconcile(anew, asked, seen.state, NOW + 2000).rate_limits.mark_interval_until
        is None
    )


@pytest.mark.parametrize(
    ("waits", "seconds"),
    [
        (pod("p", None, 100, 100), 1),
        (pod("p", None, 9000, 100), 0),  # no node could ever take it
        (pod("p", "n1", 100, 100), 0),
    ],
)
def test_a_pod_that_pends_stops_marking_for_a_while(waits: Pod, seconds: int) -> None:
    asked = config(cooldown=COOL)
    hard = [marked(one, Mark.HARD, 1) for one in SIX.nodes]
    cluster = Cluster.of(hard, [replace(waits, unschedulable=waits.node is None)])
    seen = reconcile.reconcile(cluster, asked, LeaderState(), NOW)
    seen = reconcile.reconcile(cluster, asked, seen.state, NOW + 299)
    assert seen.rate_limits.pending_until == (NOW + 300 if seconds else None)
    # A mark is not what it waits for.
    assert (
        reconcile.reconcile(cluster, asked, seen.state, NOW + 300).rate_limits.pending_until
        is None
    )


def test_a_node_that_comes_and_goes_makes_no_pod_wait_anew() -> None:
    """Or one pod that waits, and one node that is not Ready now and then, would stop all marks."""
    asked = config(cooldown=COOL)
    waits = replace(pod("p", None, 100, 100, placing=GREEN), unschedulable=True)
    green = node("g", labels={"green": "true"})
    there, away = (
        Cluster.of([*SIX.nodes, replace(green, unschedulable=cordoned)], [waits])
        for cordoned in (False, True)
    )
    seen = reconcile.reconcile(there, asked, LeaderState(), NOW)
    for seconds, cluster in ((100, away), (200, there), (299, away), (300, there)):
        seen = reconcile.reconcile(cluster, asked, seen.state, NOW + seconds)
        assert seen.rate_limits.pending_until == (NOW + 300 if seconds < 300 else None)
    seen = reconcile.reconcile(Cluster.of(there.nodes, []), asked, seen.state, NOW + 310)
    assert (
        reconcile.reconcile(there, asked, seen.state, NOW + 320).rate_limits.pending_until
        == NOW + 620
    )


def test_marks_in_the_window_count_after_their_nodes_have_gone() -> None:
    asked = config(window_seconds=60, pools=(A,))
    nodes = [marked(one, Mark.SOFT, NOW - 10) for one in SIX.nodes]
    seen = reconcile.reconcile(Cluster.of(nodes, []), asked, LeaderState(), NOW)
    left = Cluster.of(nodes[4:], [])
    seen = reconcile.reconcile(left, asked, seen.state, NOW + 49)
    assert seen.rate_limits.in_window == {"": 6, "a": 6}
    assert reconcile.reconcile(left, asked, seen.state, NOW + 50).rate_limits.in_window == {"": 0}


@pytest.mark.parametrize("shift", [-(9**9), -5, 0, 3 * 3600, 9**9])
def test_what_a_kubelet_or_a_wrong_clock_writes_uses_up_the_window_once(shift: int) -> None:
    """A mark counts from when it was seen first, whatever its annotation says afterwards."""
    asked = config(window_seconds=60)
    seen = reconcile.reconcile(SIX, asked, LeaderState(), NOW)
    some = SIX
    for seconds, counted in ((10, 1), (30, 1), (59, 1), (70, 0), (130, 0)):
        since = NOW + (10 if seconds == 10 else seconds + shift)
        some = Cluster.of([marked(SIX.nodes[0], Mark.SOFT, since), *SIX.nodes[1:]], [])
        seen = reconcile.reconcile(some, asked, seen.state, NOW + seconds)
        assert seen.rate_limits.in_window == {"": counted}, seconds
    longer = replace(asked, budgets=replace(asked.budgets, window_seconds=600))
    seen = reconcile.reconcile(some, longer, seen.state, NOW + 140)
    assert seen.rate_limits.in_window == {"": 1}, "of one that stands it is known for how long"


def test_a_mark_that_comes_back_counts_from_then_on() -> None:
    asked = config(window_seconds=60)
    seen = reconcile.reconcile(SIX, asked, LeaderState(), NOW)
    moments = (10, 10, 1), (20, None, 1), (40, 40, 1), (99, 40, 1), (100, 40, 0)
    for seconds, since, counted in moments:
        first = SIX.nodes[0] if since is None else marked(SIX.nodes[0], Mark.SOFT, NOW + since)
        some = Cluster.of([first, *SIX.nodes[1:]], [])
        seen = reconcile.reconcile(some, asked, seen.state, NOW + seconds)
        assert seen.rate_limits.in_window == {"": counted}, seconds


def test_a_new_leader_counts_a_mark_of_the_future_as_one_of_now() -> None:
    some = Cluster.of([marked(SIX.nodes[0], Mark.SOFT, NOW + 9000), *SIX.nodes[1:]], [])
    seen = reconcile.reconcile(some, config(window_seconds=60), LeaderState(), NOW)
    for seconds, counted in ((59, 1), (60, 0)):
        seen = reconcile.reconcile(some, config(window_seconds=60), seen.state, NOW + seconds)
        assert seen.rate_limits.in_window == {"": counted}


def test_a_node_that_says_in_turns_that_it_is_virtual_is_no_scale_up() -> None:
    asked = config(cooldown=COOL)
    known = [replace(one, uid=one.name) for one in SIX.nodes]
    seen = reconcile.reconcile(Cluster.of(known, []), asked, LeaderState(), NOW)
    for seconds, virtual in ((700, True), (800, False), (900, True), (1000, False)):
        nodes = [replace(known[0], virtual=virtual), *known[1:]]
        seen = reconcile.reconcile(Cluster.of(nodes, []), asked, seen.state, NOW + seconds)
        assert seen.rate_limits.cooling_until is None


def test_a_node_whose_mark_is_refused_is_left_alone_twice_as_long_each_time() -> None:
    """An empty one too: it is due at once, and would be tried first in each pass, for ever."""
    asked = replace(config(), unneeded_time_seconds=100)
    memory, n0 = LeaderState(), frozenset({"n0"})
    now = NOW
    for wait in (100, 200, 400, 500, 500):
        memory = memory.with_failed_writes(
            n0, Now(now), unneeded_time_seconds=100, max_seconds=500
        )
        for seconds, goes in ((0, False), (wait - 1, False), (wait, True)):
            seen = reconcile.reconcile(SIX, asked, memory, now + seconds)
            memory = seen.state
            assert ("n0" in {one.node for one in seen.plan.removals}) == goes
        now += wait
    assert (
        memory.with_failed_writes(n0, Now(now), unneeded_time_seconds=0, max_seconds=50)
        .failed_writes["n0"]
        .until
        == now + 50
    )
    assert (
        LeaderState()
        .with_failed_writes(n0, Now(NOW), unneeded_time_seconds=0, max_seconds=500)
        .failed_writes["n0"]
        .until
        == NOW + 60
    )
    standing = Cluster.of([marked(SIX.nodes[0], Mark.SOFT, now), *SIX.nodes[1:]], [])
    assert not reconcile.reconcile(standing, asked, memory, now).state.failed_writes, (
        "it was written"
    )


def test_who_is_marked_is_asked_as_often_however_many_were_refused() -> None:
    """All nodes are walked each time: with 1,000 refused of 15,000 that took half a second."""
    asked = Counter[str]()

    class Counted(ClusterSnapshot):
        def __getattribute__(self, name: str) -> object:
            asked[name] += 1
            return super().__getattribute__(name)

    found = []
    for many in (1, 6):
        survey, refused = (
            Counted(SIX, config(), Now(NOW)),
            frozenset(f"n{one}" for one in range(many)),
        )
        memory = observe(LeaderState(), survey, Now(NOW))
        memory = memory.with_failed_writes(
            refused, Now(NOW), unneeded_time_seconds=100, max_seconds=500
        )
        asked.clear()
        assert observe(memory, survey, Now(NOW + 1)).failed_writes.keys() == refused
        found.append(asked["marks"])
    assert found[0] == found[1]


@pytest.mark.parametrize("uid", ["n0", "another"])
def test_what_was_refused_is_forgotten_in_the_end_and_with_its_machine(uid: str) -> None:
    asked = config(backoff=Backoff(first_seconds=10, max_seconds=500))
    nodes = [replace(one, uid=one.name) for one in SIX.nodes]
    memory = reconcile.reconcile(Cluster.of(nodes, []), asked, LeaderState(), NOW).state
    memory = memory.with_failed_writes(
        frozenset({"n0"}), Now(NOW), unneeded_time_seconds=100, max_seconds=500
    )
    there = Cluster.of([replace(nodes[0], uid=uid), *nodes[1:]], [])
    seen = reconcile.reconcile(there, asked, memory, NOW + 599)
    assert bool(seen.state.failed_writes) == (uid == "n0")
    assert not reconcile.reconcile(there, asked, seen.state, NOW + 600).state.failed_writes
    assert not reconcile.reconcile(
        Cluster.of(nodes[1:], []), asked, memory, NOW + 1
    ).state.failed_writes


def test_back_off_is_read_from_the_node() -> None:
    one = node("n0", annotations={BACKOFF_ANNOTATION: "3 2000"})
    cluster = Cluster.of([one, node("n1")], [])
    for now, backing_off in ((1999, {"n0": 2000}), (2000, {})):
        assert (
            reconcile.reconcile(cluster, config(), LeaderState(), now).rate_limits.backing_off
            == backing_off
        )


@pytest.mark.parametrize(
    ("written", "why"),
    [("1 2000", "it did not empty in time"), ("1 2000 bare", "its drain failed (bare)")],
)
def test_back_off_says_why(written: str, why: str) -> None:
    one = node("n0", annotations={BACKOFF_ANNOTATION: written})
    survey = ClusterSnapshot(Cluster.of([one, node("n1")], []), config())
    (found,) = RemovalLimits(survey, RateLimits(backing_off={"n0": 2000})).blockers(one)
    assert found.message == f"{why}: it is skipped until 1970-01-01 00:33:20 UTC"


def test_of_a_marked_node_all_that_stand_are_counted_and_told() -> None:
    one = marked(node("n0"), Mark.SOFT, 1)
    cluster = Cluster.of([one, replace(node("n1"), ready=False)], [])
    brakes = RemovalLimits(ClusterSnapshot(cluster, config(cluster=Budget(min_nodes=2))), None)
    (found,) = brakes.blockers(one)
    assert found.message == "the cluster would have 1 node, fewer than minNodes: 2"


def test_a_node_that_takes_no_pods_is_one_without_a_taint_for_its_own_mark_alone() -> None:
    closed = replace(node("n0"), ready=False)
    asked = config(cluster=Budget(min_untainted_nodes=2))
    told = "the cluster would have 1 node without a taint, fewer than minUntaintedNodes: 2"
    for one, others, why in ((marked(closed, Mark.SOFT, 1), 1, [told]), (closed, 2, [])):
        cluster = Cluster.of([one, *empties(3)[1 : 1 + others]], [])
        found = RemovalLimits(ClusterSnapshot(cluster, asked), None).blockers(one)
        assert [blocker.message for blocker in found] == why


def test_back_off_grows_to_its_maximum() -> None:
    backoff = Backoff(first_seconds=10, max_seconds=60)
    assert [backoff.seconds(times) for times in (1, 2, 3, 4, 1000)] == [10, 20, 40, 60, 60]


def test_a_hard_mark_takes_no_room_from_pods_that_wait() -> None:
    """Just as many nodes are released as the pods need: the others stay marked."""
    nodes = [marked(one, Mark.HARD, number) for number, one in enumerate(empties(4))]
    pods = [pod(f"w{number}", None, 3000, 100) for number in range(2)]
    plan = reconcile.plan(Cluster.of(nodes, pods), config())
    assert len(plan.marked_infeasible) == 2
    assert len(plan.removals) == 2


def test_demand_is_what_would_be_asked_elsewhere_too() -> None:
    pods = [pod("p", "n0", 100, 1), pod("w", None, 10, 1), pod("d", "n0", 1, 1, daemon=True)]
    pods += [replace(pod(f"x{n}", None, 10, 1), priority=-11) for n in range(5)]
    found = ClusterSnapshot(Cluster.of(empties(2), pods), config()).demand()
    assert found == {"": Amount(110, 2 * MB), "general": Amount(110, 2 * MB)}


def test_the_defaults_are_gradual() -> None:
    assert Budgets().cluster.max_marked is not None
    assert len(gone(Cluster.of(empties(100), []), Config(budgets=Budgets()), RateLimits())) == 10


def zone_refusals(cluster: Cluster, asked: Config) -> set[str]:
    plan = reconcile.plan(cluster, asked)
    return {
        blocker.message
        for kept in plan.kept
        for blocker in kept.blockers
        if blocker.code == "zone-balance"
    }


def test_each_node_that_goes_counts_in_its_zone() -> None:
    keep = {"kube-ebb.io/keep": "true"}
    stays = [replace(one, annotations=keep) for one in in_zones("bb")]
    cluster, asked = Cluster.of([*in_zones("aaa"), *stays], [TINY]), config(balance_zones=True)
    assert gone(cluster, asked) == ["a0", "a1"]
    assert zone_refusals(cluster, asked) == {
        "zone a would have 0 schedulable nodes and another zone 2"
    }


@pytest.mark.parametrize("closed", [{"unschedulable": True}, {"ready": False}])
def test_a_zone_keeps_the_last_node_that_takes_pods(closed: dict[str, bool]) -> None:
    """Whatever stands beside it: its pods would have no node of their zone."""
    own = [replace(one, **closed) for one in in_zones("aaa")]  # type: ignore[arg-type]
    keep = {"kube-ebb.io/keep": "true"}
    stays = [replace(one, annotations=keep) for one in in_zones("bbb")]
    works = node("a9", labels={ZONE_LABEL: "a"})
    cluster, asked = Cluster.of([*own, works, *stays], [TINY]), config(balance_zones=True)
    assert gone(cluster, asked) == []
    assert zone_refusals(cluster, asked) == {
        "zone a would have 0 schedulable nodes and another zone 3"
    }


def test_nodes_that_take_no_pods_keep_no_others_and_their_zone_stays_one() -> None:
    """So it is still this reach that decides, be it that all nodes of a zone are not ready."""
    down = [replace(one, ready=False) for one in in_zones("bbb")]
    cluster, asked = Cluster.of([*in_zones("aaa"), *down], [TINY]), config(balance_zones=True)
    assert gone(cluster, asked) == ["a0", "a1"]
    assert zone_refusals(cluster, asked) == set()


def test_zones_are_balanced_within_each_pool() -> None:
    """And nodes that are in none are balanced among themselves."""
    pools = tuple(
        Pool(name=name, node_selector=(("pool", name),), budget=Budget()) for name in "ab"
    )
    nodes = [
        replace(one, labels={**one.labels, "pool": pool})
        for pool, one in zip("aaabbb", in_zones("xxxyyy"), strict=True)
    ]
    cluster = Cluster.of(nodes, [TINY])
    assert gone(cluster, config(balance_zones=True, pools=pools)) == ["x0", "x1", "x2", "y3", "y4"]
    assert gone(cluster, config(balance_zones=True)) == ["x0", "y3", "y4", "x1", "x2"]


def test_the_narrowest_reach_that_spans_zones_decides() -> None:
    """A zone may have many nodes, and few of those that these pods can use."""
    keep, green = {"kube-ebb.io/keep": "true"}, {"green": "true"}
    some = [replace(one, labels={**one.labels, **green}) for one in in_zones("xxyy")]
    others = [replace(one, name=f"o{one.name}", annotations=keep) for one in in_zones("xxxxx")]
    only = pod("only", None, 0, 0, placing=GREEN)
    asked = config(balance_zones=True)
    assert gone(Cluster.of([*some, *others], [TINY, only]), asked) == ["x0", "y2", "y3"]
    assert gone(Cluster.of([*some, *others], [TINY]), asked) == ["x0", "x1"]


def asking(key: str, *values: str, **labels: str) -> NodeConstraints:
    """Return a template that asks for one of the values, and for labels beside it."""
    term = SelectorTerm((Requirement(key, "In", values),))
    return NodeConstraints(node_selector=tuple(labels.items()), affinity=(term,))


NAMED = SelectorTerm(fields=(Requirement("metadata.name", "In", ("a1",)),))


@pytest.mark.parametrize(
    "placing",
    [
        asking(HOST_LABEL, "a1", "c5"),
        asking(HOST_LABEL, "a1", "c5", green="true"),
        asking(ZONE_LABEL, "a", "b"),
        asking(ZONE_LABEL, "a", "b", green="true"),
        NodeConstraints(affinity=(NAMED, SelectorTerm((Requirement(HOST_LABEL, "In", ("c5",)),)))),
        NodeConstraints(affinity=(SelectorTerm((Requirement(ZONE_LABEL, "In", ("b",)),)), NAMED)),
    ],
)
def test_who_names_nodes_or_zones_does_not_decide_for_others(placing: NodeConstraints) -> None:
    """Two names say that each zone has one node, two zones that there are no others."""
    keep = {"kube-ebb.io/keep": "true"}
    labels = {one.name: {HOST_LABEL: one.name, "green": "true"} for one in in_zones("aaabccc")}
    nodes = [
        replace(one, labels={**one.labels, **labels[one.name]}) for one in in_zones("aaabccc")
    ]
    nodes = [one if one.name[0] == "a" else replace(one, annotations=keep) for one in nodes]
    alone, asked = pod("alone", None, 0, 0, placing=placing), config(balance_zones=True)
    assert gone(Cluster.of(nodes, [TINY, alone]), asked) == ["a0"]


def test_zones_that_nobody_reaches_hold_back_nobody_who_names_others() -> None:
    keep = {"kube-ebb.io/keep": "true"}
    stays = [replace(one, annotations=keep) for one in in_zones("bccc")]
    only = pod("only", None, 0, 0, placing=asking(ZONE_LABEL, "a", "b"))
    cluster = Cluster.of([*in_zones("aaa"), *stays], [only])
    assert gone(cluster, config(balance_zones=True)) == ["a0", "a1", "a2"]


def test_what_who_names_nodes_asks_beside_it_counts() -> None:
    """Of the green nodes zone x is the smaller one; of all it is the larger."""
    keep, green = {"kube-ebb.io/keep": "true"}, {"green": "true"}
    some = [replace(one, labels={**one.labels, **green}) for one in in_zones("xyyy")]
    others = [replace(one, name=f"o{one.name}") for one in in_zones("xxxx")]
    others = [replace(one, annotations=keep) for one in others]
    named = pod("named", None, 0, 0, placing=asking(ZONE_LABEL, "x", "y", green="true"))
    cluster = Cluster.of([*some, *others], [TINY, named])
    assert gone(cluster, config(balance_zones=True)) == ["y1", "y2", "y3"]


def test_marks_are_counted_by_pool_and_by_whether_pods_reach_their_nodes() -> None:
    """The time of a mark is read under the key in use."""
    asked = replace(config(window_seconds=60, pools=(A,)), taint_key="example.com/ours")
    only = pod("only", None, 0, 0, placing=NodeConstraints(node_selector=(("pool", "a"),)))
    taint = Taint("example.com/ours", str(NOW - 60), Effect.PREFER_NO_SCHEDULE)
    nodes = [
        marked(node("reached", labels={"pool": "a"}), Mark.SOFT, NOW - 59),
        marked(node("unreached"), Mark.SOFT, NOW - 59),
        node("too-old", labels={MARK_LABEL: "soft"}, taints=(taint,)),
        node("rest", labels={"pool": "a"}),
    ]
    held = reconcile.reconcile(Cluster.of(nodes, [only]), asked, LeaderState(), NOW).rate_limits
    assert held.in_window == {"": 2, "a": 1}
    assert held.reached_ends == {"": (NOW + 1,), "a": (NOW + 1,)}


def test_the_peak_is_what_was_asked_for_beyond_now_of_each_resource() -> None:
    asked = config(stabilization_window_seconds=60)
    before = reconcile.reconcile(
        Cluster.of(empties(3), [pod("p", "n0", 300, 700)]), asked, LeaderState(), NOW
    )
    after = Cluster.of(empties(3), [pod("p", "n0", 100, 200)])
    held = reconcile.reconcile(after, asked, before.state, NOW + 1).rate_limits
    assert held.peak_excess[""] == Amount(200, 500 * MB)


def why(plan: Plan, name: str) -> list[Blocker]:
    (found,) = (kept.blockers for kept in plan.kept if kept.node == name)
    return list(found)


def test_of_a_node_whose_pods_find_no_room_no_sums_are_told() -> None:
    """They would be without those pods."""
    nodes = [node(name, labels={"green": "true"}) for name in ("g0", "g1")]
    pods = [pod(f"p{n}", f"g{n}", 3000, 100, placing=GREEN) for n in range(2)]
    stays = node("n0", annotations={"kube-ebb.io/keep": "true"})
    pods += [pod("q", "n0", 100, 100), pod("r", "g0", 900, 100, placing=GREEN)]
    asked = replace(config(), thresholds=Thresholds(cpu=Fraction(9, 10), memory=Fraction(1)))
    plan = reconcile.plan(Cluster.of([*nodes, stays], pods), asked)
    kept = {one.node: one.blockers for one in plan.kept}
    assert [one.code for one in kept["g0"]] == ["no-room"]


def test_a_virtual_node_admits_nothing() -> None:
    """So of a pod that only such a node would take it is not told that the node has no room."""
    nodes = [node("n0"), replace(node("v"), virtual=True)]
    plan = reconcile.plan(Cluster.of(nodes, [pod("p", "n0", 100, 100)]), config())
    assert Blocker(NO_ROOM, NOT_ADMITTED, "d/p") in why(plan, "n0")


def test_what_is_told_is_of_the_state_after_the_last_node_that_goes() -> None:
    """N0 was refused before N5 went, for which pods went where its own could have gone."""
    sizes = (2000, 1000, 4000, 4000, 1000, 2000)
    green = {0: {"green": "true"}, 3: {"green": "true"}}
    nodes = [node(f"n{n}", cpu=cpu, labels=green.get(n)) for n, cpu in enumerate(sizes)]
    pods = [pod("p1", "n2", 1500, 100), pod("p3", "n2", 300, 100), pod("p4", "n5", 900, 100)]
    in_green = (("p0", "n3", 1500), ("p2", "n0", 900), ("p5", "n3", 900))
    pods += [pod(name, on, cpu, 100, placing=GREEN) for name, on, cpu in in_green]
    asked = Config(
        budgets=UNLIMITED, thresholds=Thresholds(cpu=Fraction(4, 5), memory=Fraction(1))
    )
    plan = reconcile.plan(Cluster.of(nodes, pods), asked, removals_max=3)
    assert [one.node for one in plan.removals] == ["n1", "n4", "n5"]
    assert [(one.code, one.pod) for one in why(plan, "n0")] == [("no-room", "d/p2")]


@pytest.mark.parametrize("web", [1000, 1], ids=["no hole was there", "a pod has ended"])
@pytest.mark.parametrize(("mark", "goes"), [(None, False), (Mark.SOFT, True), (Mark.HARD, True)])
def test_headroom_keeps_no_marked_node(mark: Mark | None, goes: bool, web: int) -> None:
    """It had no place as n1 was marked; on n1, which empties, or on n0 it has one now."""
    nodes = [node("n0"), node("n1") if mark is None else marked(node("n1"), mark, 1)]
    pods = [pod("large", "n0", 1900, 100), pod("web", "n0", web, 100)]
    plan = reconcile.plan(
        Cluster.of(nodes, [*pods, pod("small", "n1", 500, 100)]), config(headroom=1)
    )
    assert [one.node for one in plan.removals] == ["n1"] * goes
    assert goes or [one.code for one in why(plan, "n1")] == ["headroom"]


def test_headroom_that_gave_way_to_a_marked_node_is_kept_elsewhere_from_new_marks() -> None:
    """Room for `large` is on n0; there goes `small` of n1 alone, so it is kept on n2 then."""
    green = {"green": "true"}
    nodes = [node("n0", labels=green), marked(node("n1"), Mark.SOFT, 1), node("n2"), node("n3")]
    pods = [pod("large", "n0", 1900, 100), pod("small", "n1", 500, 100, placing=GREEN)]
    pods += [pod("a", "n2", 1800, 100), pod("b", "n3", 1700, 100)]
    plan = reconcile.plan(Cluster.of(nodes, pods), config(headroom=1))
    assert [one.node for one in plan.removals] == ["n1"]
    assert [one.code for one in why(plan, "n3")] == ["headroom"]


def test_a_marked_node_that_must_stay_is_told_nothing_of_headroom() -> None:
    """It would give way, and `b` finds no room for all that."""
    nodes = [node("n0"), marked(node("n1"), Mark.SOFT, 1), node("n2")]
    pods = [pod("large", "n0", 2000, 100), pod("a", "n1", 1500, 100), pod("b", "n1", 1500, 100)]
    pods.append(pod("c", "n2", 3500, 100))
    plan = reconcile.plan(Cluster.of(nodes, pods), config(headroom=1))
    assert not plan.removals
    told = [(one.code, one.pod) for one in why(plan, "n1")]
    assert told == [("threshold", None), ("no-room", "d/b")]


def test_of_headroom_nothing_is_told_where_thresholds_keep_a_marked_node() -> None:
    """Nor of headroom that would find no other place; `b` is told of beside it."""
    nodes = [marked(node("n0"), Mark.SOFT, 1), node("n1", cpu=1500)]
    pods = [pod("a", "n0", 1000, 100), pod("b", "n0", 400, 100), pod("c", "n1", 1400, 100)]
    plan = reconcile.plan(Cluster.of(nodes, pods), config(headroom=1))
    told = [(one.code, one.pod) for one in why(plan, "n0")]
    assert told == [("threshold", None), ("no-room", "d/a"), ("no-room", "d/b")]


def test_what_stays_for_want_of_room_or_time_says_so() -> None:
    large = "as large as the largest (cpu 3, memory 95.4Mi)"
    small = Cluster.of(empties(2), [pod("big", "n0", 3000, 100), pod("small", "n1", 900, 100)])
    assert why(reconcile.plan(small, config(headroom=1)), "n1") == [
        Blocker(HEADROOM, f"there would be no headroom for one more pod {large}")
    ]
    spared = Cluster.of(empties(3), [pod("big", "n0", 3000, 100), pod("p", "n1", 2000, 100)])
    told = f"the only room for it is reserved for pods {large}"
    assert why(reconcile.plan(spared, config(headroom=1)), "n1") == [
        Blocker(HEADROOM, told, "d/p")
    ]
    full = Cluster.of(empties(2), [pod("p", "n0", 3000, 100), pod("q", "n1", 3000, 100)])
    no_room = why(reconcile.plan(full, config()), "n0")[-1]
    assert no_room == Blocker(NO_ROOM, "no other remaining node admits it and has room", "d/p")
    late = reconcile.reconcile(SIX, config(), LeaderState(), NOW, in_time=lambda: False)
    assert Blocker(TIME_BOX, "the reconciliation ended before the node was checked") in why(
        late.plan, "n0"
    )
    assert not late.plan.complete
    assert why(reconcile.plan(SIX, config(), removals_max=2), "n5") == [
        Blocker(LIMIT, "the plan already removes as many nodes as allowed")
    ]


@pytest.mark.parametrize(
    ("asked", "used", "derived"),
    [
        (UsabilityMode.AUTO, None, True),
        (UsabilityMode.NONE, None, False),
        (THESIS_USABILITY, THESIS_USABILITY, False),
    ],
)
def test_a_plan_says_by_which_usability_and_whether_it_was_derived(
    asked: UsabilityMode | Usability, used: Usability | None, derived: bool
) -> None:
    plan = reconcile.plan(at_fill(1000), replace(config(), usability=asked))
    assert (plan.usability, plan.usability_derived, plan.complete) == (used, derived, True)


def test_what_only_pods_could_use_that_cannot_be_judged_stays() -> None:
    """A node that stays for another reason is not told of this one too."""
    labels = {"green": "true"}
    keep = {"kube-ebb.io/keep": "true"}
    only = NodeConstraints(node_selector=(("only", "c"),))
    nodes = [node("a", labels=labels), node("b", labels=labels, annotations=keep)]
    nodes.append(node("c", labels={"only": "c"}))
    odd = pod("odd", None, 10, 10, placing=GREEN, unsupported=("spec.volumes",))
    plan = reconcile.plan(Cluster.of(nodes, [odd, pod("p", "c", 10, 10, placing=only)]), config())
    told = Blocker(UNREACHED, "only pods that Ebb cannot evaluate can use it")
    assert told in why(plan, "a")
    assert told not in why(plan, "b")


@pytest.mark.parametrize("changed", [{"too_much": "tolerations"}, {"unreadable": "spec: bad"}])
def test_a_pod_of_which_nothing_is_judged_keeps_no_node_to_itself(changed: dict[str, str]) -> None:
    odd = replace(pod("odd", None, 10, 10, placing=GREEN), **changed)  # type: ignore[arg-type]
    cluster = Cluster.of([node("a", labels={"green": "true"}), node("b")], [odd])
    assert "unreached" not in codes(cluster, config())


@pytest.mark.parametrize(
    ("changed", "goes"),
    [({"unsupported": ("spec.volumes",)}, ["n0"]), ({"unreadable": "spec: bad"}, [])],
)
def test_a_node_takes_pods_beside_one_that_could_be_read(
    changed: dict[str, object], goes: list[str]
) -> None:
    odd = replace(pod("odd", "n1", 10, 10), **changed)  # type: ignore[arg-type]
    cluster = Cluster.of(empties(2), [odd, pod("p", "n0", 100, 100)])
    assert gone(cluster, config()) == goes


def test_a_pod_that_goes_with_its_node_may_ask_what_nobody_can_judge() -> None:
    odd = replace(pod("odd", "n0", 10, 10, daemon=True), unsupported=("spec.volumes",))
    cluster = Cluster.of(empties(2), [odd, pod("p", "n1", 100, 100)])
    assert gone(cluster, config()) == ["n0"]
