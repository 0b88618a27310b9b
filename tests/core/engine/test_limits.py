"""Limits on removals: one row per limit, and what a leader remembers between passes."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from core.config.budgets import (
    Budget,
    Budgets,
    Cooldown,
    LabelSelector,
    Limit,
    NodeRequirement,
    Operator,
    Pool,
)
from core.config.prices import Price
from core.config.settings import Config, UsabilityMode
from core.config.thresholds import Thresholds
from core.engine import reconcile
from core.engine.leader_state import LeaderState, RateLimits, observe, rate_limits
from core.engine.limits import RemovalLimits
from core.engine.maintenance_gate import CLOSED, PAUSED, Refusal
from core.engine.mark_limits import (
    BACKOFF,
    BUDGET_NEW_MARKS,
    COOLDOWN,
    OLD_JOB,
    PODS_PENDING,
    SPACING,
    MarkRefused,
)
from core.engine.plan import Plan
from core.engine.planner import HEADROOM, LIMIT, NO_ROOM, TIME_BOX, PlanOptions
from core.engine.planner_parts import headroom_pods
from core.engine.snapshot import UNREACHED, ClusterSnapshot
from core.engine.zones import ZONE_LABEL
from core.marks.mark import BACKOFF_SECONDS, BACKOFF_SECONDS_MAX, Mark, backoff_seconds
from core.marks.wellknown import BACKOFF_ANNOTATION, KEEP_ANNOTATION, MARK_LABEL, TAINT_KEY
from core.model.buffers import Buffer
from core.model.cluster import Cluster
from core.model.constraints import (
    HOST_LABEL,
    DisruptionFacts,
    NodeConstraints,
    Requirement,
    SelectorTerm,
)
from core.model.humanize import timestamp
from core.model.node import Effect, Node, Taint
from core.model.now import Now
from core.model.pod import Pod
from core.model.reason import Blocker
from core.placement.packer import NOT_ADMITTED
from core.placement.usable_capacity import NOTHING, Amount, Usability
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
from tests.support.restraints import end_of, ends_by_node, in_window, paced, window

pytestmark = pytest.mark.mutate

NOW = 1000
FULL = Thresholds(cpu=Fraction(1), memory=Fraction(1))
A = Pool(
    name="a", selector=LabelSelector(match_labels=(("pool", "a"),)), budget=Budget(min_nodes=2)
)
COOL = Cooldown(delay_after_add_seconds=600, delay_after_pending_seconds=300)


def empty_nodes(count: int, **labels: str) -> list[Node]:
    return [node(f"n{number}", labels=labels) for number in range(count)]


def in_zones(zones: str) -> list[Node]:
    return [node(f"{zone}{n}", labels={ZONE_LABEL: zone}) for n, zone in enumerate(zones)]


def removed_nodes(
    cluster: Cluster, settings: Config, rate_limits: RateLimits | None = None
) -> list[str]:
    return [
        removal.node
        for removal in reconcile.plan(cluster, settings, PlanOptions(limits=rate_limits)).removals
    ]


def codes(cluster: Cluster, settings: Config, rate_limits: RateLimits | None = None) -> set[str]:
    plan = reconcile.plan(cluster, settings, PlanOptions(limits=rate_limits))
    return {blocker.code for kept in plan.kept for blocker in kept.blockers}


TINY = pod("tiny", None, 0, 0)
"""A pod that makes all nodes one reach."""
SIX = Cluster.of(empty_nodes(6, pool="a"), [])
TAINTED = (
    node("x", taints=(Taint("others", "", Effect.NO_SCHEDULE),)),
    node("y", unschedulable=True),
)
SOME_MARKED = Cluster.of(
    [*(marked(one, Mark.PREFER_NO_SCHEDULE, 1) for one in empty_nodes(2)), *empty_nodes(6)[2:]], []
)


@pytest.mark.parametrize(
    ("cluster", "budgets", "rate_limits", "removals", "code"),
    [
        (SIX, {}, None, 5, "last-node"),
        (SIX, {"cluster": Budget(min_nodes=4)}, None, 2, "min-nodes"),
        (SIX, {"pools": (A,)}, None, 4, "min-nodes"),
        (
            Cluster.of([*empty_nodes(3, pool="a"), node("x")], []),
            {"pools": (A,)},
            None,
            1,
            "no-pool",
        ),
        (SIX, {"cluster": Budget(max_marked=Limit(2))}, None, 5, "last-node"),
        (SIX, {"cluster": Budget(max_marked=Limit(2))}, paced(), 2, "budget-marked"),
        (SOME_MARKED, {"cluster": Budget(max_marked=Limit(3))}, paced(), 3, "budget-marked"),
        (SOME_MARKED, {"cluster": Budget(max_marked=Limit(1))}, paced(), 2, "budget-marked"),
        (SIX, {"cluster": Budget(max_marked=Limit(0))}, paced(), 0, "budget-marked"),
        (SIX, {"cluster": Budget(max_new_marks=Limit(3))}, paced(), 3, "budget-new-marks"),
        (
            SIX,
            {"cluster": Budget(max_new_marks=Limit(3))},
            paced(**window({"": 2})),
            1,
            "budget-new-marks",
        ),
        (
            SIX,
            {"pools": (replace(A, budget=Budget(max_new_marks=Limit(None, Fraction(1, 2)))),)},
            paced(**window({"": 2, "a": 2})),
            1,
            "budget-new-marks",
        ),
        (SIX, {"min_untainted_nodes": 4}, None, 2, "min-untainted-nodes"),
        (SOME_MARKED, {"min_untainted_nodes": 5}, None, 1, "min-untainted-nodes"),
        (
            Cluster.of([*empty_nodes(4), *TAINTED], [TINY]),
            {"min_untainted_nodes": 2},
            None,
            # The cordoned node is kept; removing nodes with foreign taints changes no count.
            2 + len(TAINTED) - 1,
            "min-untainted-nodes",
        ),
        (SIX, {"mark_interval_seconds": 600}, None, 5, "last-node"),
        (SIX, {"mark_interval_seconds": 600}, paced(), 1, "mark-interval"),
        (
            SIX,
            {"mark_interval_seconds": 600},
            paced(mark_interval_until=1),
            0,
            "mark-interval",
        ),
        (
            SOME_MARKED,
            {"mark_interval_seconds": 600},
            paced(mark_interval_until=1),
            2,
            "mark-interval",
        ),
        (SIX, {}, paced(cooling_until=1), 0, "cooldown"),
        (SOME_MARKED, {}, paced(pending_until=1), 2, "pods-pending"),
        (SIX, {}, paced(backing_off={"n0": 2000, "n1": 2000}), 4, "backoff"),
        (SIX, {}, paced(failed_writes={"n0": 2000, "n1": 2000}), 4, "mark-refused"),
        (SIX, {}, paced(old_jobs={"n0": "d/job", "n1": "d/job"}), 4, "old-job"),
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
def test_limit_stops_next_removal_and_is_reported(
    cluster: Cluster,
    budgets: dict[str, Any],
    rate_limits: RateLimits | None,
    removals: int,
    code: str,
) -> None:
    settings = config(**budgets)
    assert len(removed_nodes(cluster, settings, rate_limits)) == removals
    assert code in codes(cluster, settings, rate_limits)


COSTS = {"a": 3, "b": 2}


@pytest.mark.parametrize(
    ("savings", "priced", "removed"),
    [
        ("0", COSTS, ["n0", "n1", "n2"]),
        ("2", COSTS, ["n0", "n1"]),
        ("2.01", COSTS, ["n0"]),
        ("4", COSTS, []),
        ("2", {}, ["n0", "n1", "n2"]),
    ],
)
def test_node_is_marked_when_its_price_reaches_minimum_savings(
    savings: str, priced: Mapping[str, int], removed: list[str]
) -> None:
    """Nodes without a price save nothing; without any price there is no limit."""
    shapes = ["a", "b", "c", "d"]
    nodes = [node(f"n{number}", labels={"type": name}) for number, name in enumerate(shapes)]
    kept = replace(nodes[3], annotations={KEEP_ANNOTATION: "true"})
    prices = tuple(
        Price(node_selector=(("type", name),), price=Fraction(price))
        for name, price in priced.items()
    )
    settings = replace(config(), prices=prices, min_savings=Fraction(savings))
    found = reconcile.plan(Cluster.of([*nodes[:3], kept], []), settings)
    assert sorted(one.node for one in found.removals) == removed
    for one in found.kept[:-1]:
        assert [why.code for why in one.blockers] == ["min-savings"]
        assert "`minSavings` is" in one.blockers[0].message
    marks = [marked(one, Mark.PREFER_NO_SCHEDULE, 1) for one in nodes[:3]]
    found = reconcile.plan(Cluster.of([*marks, kept], []), settings)
    assert len(found.removals) == 3, "marked nodes keep their marks"


def test_limits_are_reported_in_fixed_order() -> None:
    spent = Budget(max_marked=Limit(0), max_new_marks=Limit(0), min_nodes=6)
    settings = config(cluster=spent, pools=(replace(A, budget=spent),), min_untainted_nodes=7)
    rate_limits = paced(
        Refusal(
            (
                Blocker(PAUSED, "`pauseUntil` is 8", until=8),
                Blocker(CLOSED, "the next window of `schedule` opens at 7", until=7),
            )
        ),
        cooling_until=90,
        pending_until=3,
        mark_interval_until=4,
        backing_off={"n0": 9},
    )
    limits = RemovalLimits(ClusterSnapshot(SIX, settings), rate_limits)
    no_new_marks = "had 0 new marks in the last 10 min (`budgets.period`); `maxNewMarks` is 0"
    assert [(one.code, one.message) for one in limits.blockers(SIX.nodes[0])] == [
        (
            "min-untainted-nodes",
            (
                "without the node, the cluster would have 5 nodes without a taint; "
                "`minUntaintedNodes` is 7"
            ),
        ),
        (
            "min-nodes",
            "without the node, the cluster would have 5 schedulable nodes; `minNodes` is 6",
        ),
        ("min-nodes", "without the node, pool a would have 5 schedulable nodes; `minNodes` is 6"),
        ("paused", "`pauseUntil` is 8"),
        ("schedule", "the next window of `schedule` opens at 7"),
        ("cooldown", "a node was added: no node is marked until 1970-01-01 00:01:30 UTC"),
        (
            "pods-pending",
            "a pod became unschedulable: no node is marked until 1970-01-01 00:00:03 UTC",
        ),
        (
            "mark-interval",
            f"a node was marked, or did not empty in time: no node is marked until {timestamp(4)}",
        ),
        (
            "backoff",
            "the node did not empty in time: Ebb skips the node until 1970-01-01 00:00:09 UTC",
        ),
        ("budget-marked", "the cluster has 0 marked nodes; `maxMarked` is 0"),
        ("budget-new-marks", f"the cluster {no_new_marks}"),
        ("budget-marked", "pool a has 0 marked nodes; `maxMarked` is 0"),
        ("budget-new-marks", f"pool a {no_new_marks}"),
    ]
    nodes = [marked(SIX.nodes[0], Mark.PREFER_NO_SCHEDULE, 1), *SIX.nodes[1:]]
    limits = RemovalLimits(ClusterSnapshot(Cluster.of(nodes, []), settings), rate_limits)
    found = [one.code for one in limits.blockers(nodes[0])]
    assert found == ["min-untainted-nodes", "min-nodes", "min-nodes"]
    limits = RemovalLimits(ClusterSnapshot(Cluster.of([node("x")], []), config(pools=(A,))), None)
    (alone,) = limits.blockers(node("x"))
    assert (alone.code, alone.message) == (
        "no-pool",
        "the node is in none of the configured `pools`",
    )


@pytest.mark.parametrize(
    ("rate_limits", "reported"),
    [
        (paced(), []),
        (paced(**window({"": 1})), ["g0", "x"]),
        (paced(**window({"": 1}, unreached={"": 1})), ["x"]),
        (paced(**window({"": 2}, unreached={"": 1})), ["g0", "x"]),
    ],
)
def test_marks_on_unreached_nodes_do_not_limit_other_nodes(
    rate_limits: RateLimits, reported: list[str]
) -> None:
    settings = config(cluster=Budget(max_new_marks=Limit(1)))
    nodes = [node("g0", labels={"green": "true"}), node("g1", labels={"green": "true"}), node("x")]
    found = Cluster.of(nodes, [pod("p", "g0", 100, 100, node_constraints=GREEN)])
    limits = RemovalLimits(ClusterSnapshot(found, settings), rate_limits)
    codes = {one.name: [why.code for why in limits.blockers(one)] for one in (nodes[0], nodes[2])}
    assert [name for name, why in codes.items() if "budget-new-marks" in why] == reported


def test_min_nodes_ignores_leaving_and_virtual_nodes() -> None:
    going = Taint("ToBeDeletedByClusterAutoscaler", "1", "NoSchedule")
    others = [replace(node("cloud"), virtual=True), node("going", taints=(going,))]
    settings = config(cluster=Budget(min_nodes=2))
    limits = RemovalLimits(
        ClusterSnapshot(Cluster.of([*empty_nodes(2), *others], []), settings), None
    )
    reported = [one.message for one in limits.blockers(node("n0")) if one.code == "min-nodes"]
    assert reported == [
        "without the node, the cluster would have 1 schedulable node; `minNodes` is 2"
    ]


@pytest.mark.parametrize("unusable", [{"unschedulable": True}, {"ready": False}])
def test_min_nodes_ignores_unschedulable_nodes_for_new_marks(
    unusable: dict[str, bool],
) -> None:
    broken = [replace(one, **unusable) for one in in_zones("xy")]  # type: ignore[arg-type]
    settings = config(cluster=Budget(min_nodes=3))
    cluster = Cluster.of([*empty_nodes(4), *broken], [TINY])
    assert removed_nodes(cluster, settings) == ["n3"]
    reported = {
        kept.node: one.message
        for kept in reconcile.plan(cluster, settings).kept
        for one in kept.blockers
        if one.code == "min-nodes"
    }
    counted = "without the node, the cluster would have 2 schedulable nodes that pods can use"
    assert reported["n1"] == f"{counted}; `minNodes` is 3"
    assert not reported.keys() & {"x0", "y1"}, "removing them does not change the count"


@pytest.mark.parametrize("least", [{"cluster": Budget(min_nodes=3)}, {"min_untainted_nodes": 3}])
def test_mark_is_not_removed_when_another_node_is_not_ready(
    least: dict[str, Any],
) -> None:
    """Minimums count all existing nodes for marked nodes, so the mark does not flap."""
    settings = config(**least)
    nodes = [marked(node("n0"), Mark.PREFER_NO_SCHEDULE, 1), *empty_nodes(4)[1:]]
    assert removed_nodes(Cluster.of(nodes, [TINY]), settings) == ["n0"]
    nodes[3] = replace(nodes[3], ready=False)
    assert removed_nodes(Cluster.of(nodes, [TINY]), settings) == ["n0"]
    nodes[0] = node("n0")
    assert removed_nodes(Cluster.of(nodes, [TINY]), settings) == []


def test_zones_shrink_in_step_when_balanced() -> None:
    keep = {"kube-ebb.io/keep": "true"}
    stays = [replace(one, annotations=keep) for one in in_zones("bbb")]
    cluster = Cluster.of([*in_zones("aaa"), *stays], [TINY])
    settings = config(balance_zones=True)
    assert removed_nodes(cluster, settings) == ["a2"]
    assert "zone-balance" in codes(cluster, settings)
    assert removed_nodes(cluster, config(balance_zones=False)) == ["a2", "a1", "a0"]


@pytest.mark.parametrize(("limit", "nodes", "number"), [
    (Limit(3), 100, 3),
    (Limit(None, Fraction(1, 5)), 14, 2),
    (Limit(None, Fraction(1, 5)), 4, 1),
    (Limit(0), 4, 0),
])  # fmt: skip
def test_percentage_limit_is_rounded_down_to_at_least_one(
    limit: Limit, nodes: int, number: int
) -> None:
    assert limit.of(nodes) == number


def at_fill(millis: int, *more: Node) -> Cluster:
    pods = [pod(f"p{n}", f"n{n}", millis, 0) for n in range(3)]
    return Cluster.of([*empty_nodes(3), *more], pods)


def test_marked_node_remains_removable_below_threshold_plus_hysteresis() -> None:
    shares = Thresholds(cpu=Fraction(4, 5), memory=Fraction(1))
    settings = replace(config(), thresholds=shares)
    full = at_fill(2200)  # 6600 of 8000 without one node: 82.5 %
    assert removed_nodes(full, settings) == []
    nodes = [marked(full.nodes[0], Mark.PREFER_NO_SCHEDULE, 1), *full.nodes[1:]]
    already = Cluster.of(nodes, [replace(one, requests=pod("x", None, 1650, 0).requests)
                                 for one in full.pods] + [pod("y", "n1", 1650, 0)])  # fmt: skip
    assert removed_nodes(already, settings) == ["n0"]
    assert removed_nodes(already, replace(settings, hysteresis=Fraction(1, 40))) == ["n0"]
    assert removed_nodes(already, replace(settings, hysteresis=Fraction(24, 1000))) == []


def test_cluster_has_thresholds_outside_of_pools_when_pool_selects_nodes_without_labels() -> None:
    no_gpu = NodeRequirement(key="gpu", operator=Operator.DOES_NOT_EXIST)
    half = Thresholds(cpu=Fraction(1, 2), memory=Fraction(1))
    pools = (
        Pool(
            name="plain",
            selector=LabelSelector(match_expressions=(no_gpu,)),
            budget=Budget(),
            thresholds=half,
        ),
        Pool(name="gpu", selector=LabelSelector(match_labels=(("gpu", "a"),)), budget=Budget()),
    )
    cluster = Cluster.of(empty_nodes(3, gpu="a"), at_fill(2000).pods)
    assert len(removed_nodes(cluster, config(pools=pools))) == 1  # 6 of 8 cores without it


def test_peak_of_stabilization_window_blocks_new_marks() -> None:
    settings = replace(config(stabilization_window_seconds=60), thresholds=FULL)
    memory = reconcile.reconcile(at_fill(3000), settings, LeaderState(), NOW).state
    low = at_fill(1000)
    seen = reconcile.reconcile(low, settings, memory, NOW + 59)
    rate_limits = seen.rate_limits
    assert rate_limits.peak_excess == {"": Amount(6000, 0), "general": Amount(6000, 0)}
    assert removed_nodes(low, settings, rate_limits) == []
    assert "peak-demand" in codes(low, settings, rate_limits)
    rate_limits = reconcile.reconcile(low, settings, seen.state, NOW + 60).rate_limits
    assert rate_limits.peak_excess == {"": NOTHING, "general": NOTHING}
    assert len(removed_nodes(low, settings, rate_limits)) == 2


def test_peak_does_not_release_marks() -> None:
    """The pods of the peak may have left with their nodes, or may have been Pending in vain."""
    settings = replace(config(stabilization_window_seconds=60), thresholds=FULL)
    memory = reconcile.reconcile(at_fill(3000), settings, LeaderState(), NOW).state
    low = at_fill(1000)
    already = replace(
        low, nodes=(marked(low.nodes[0], Mark.PREFER_NO_SCHEDULE, 1), *low.nodes[1:])
    )
    rate_limits = reconcile.reconcile(already, settings, memory, NOW + 59).rate_limits
    assert rate_limits.peak_excess == {"": Amount(6000, 0), "general": Amount(6000, 0)}
    assert removed_nodes(already, settings, rate_limits) == ["n0"]
    assert "peak-demand" in codes(already, settings, rate_limits)


def test_headroom_is_kept_for_largest_pod() -> None:
    pods = [pod("big", "n0", 3000, 100), pod("small", "n1", 900, 100)]
    cluster = Cluster.of(empty_nodes(2), pods)
    assert [
        one.requests.cpu_millis for one in headroom_pods(ClusterSnapshot(cluster, config()), 2)
    ] == [
        3000,
        3000,
    ]
    assert removed_nodes(cluster, config()) == ["n1"]
    settings = config(headroom=1)
    assert removed_nodes(cluster, settings) == []
    assert "headroom" in codes(cluster, settings)
    third = Cluster.of([*cluster.nodes, node("n2")], pods)
    plan = reconcile.plan(third, settings)
    assert [removal.node for removal in plan.removals] == ["n2"]
    assert plan.pending == ()
    assert plan.before.requests == plan.after.requests


@pytest.mark.parametrize(
    ("cpu", "reported"),
    [(4000, [("headroom", None), ("no-room", "0/p")]), (8000, [("no-room", "0/p")])],
)
def test_placeholders_are_placed_before_equal_pods(
    cpu: int, reported: list[tuple[str, str | None]]
) -> None:
    """The order is by name, and buffers come before headroom, whatever the namespaces."""
    one = pod("p", "n0", 3000, 100, namespace="0")
    alike = replace(one, namespace="", name="a/b", node=None)
    alike = replace(alike, owner_kind="CapacityBuffer", owner_name="a/b")
    stays = node("n1", cpu=cpu, annotations={"kube-ebb.io/keep": "true"})
    cluster = Cluster.of([node("n0", cpu=12_000), stays], [one, pod("q", "n1", 0, 0)])
    buffers = (Buffer(namespace="a", name="b", replicas=1, pod=alike),)
    plan = reconcile.plan(replace(cluster, buffers=buffers), config(headroom=1))
    assert [(found.code, found.pod) for found in blockers_of(plan, "n0")] == reported


def test_cooldown_starts_when_node_is_added() -> None:
    settings = config(cooldown=COOL)
    seen = reconcile.reconcile(SIX, settings, LeaderState(), NOW)
    assert end_of(seen.rate_limits, COOLDOWN) is None
    more = Cluster.of([*SIX.nodes, node("new")], [])
    for seconds in (10, 20, 609):
        seen = reconcile.reconcile(more, settings, seen.state, NOW + seconds)
        assert end_of(seen.rate_limits, COOLDOWN) == NOW + 610
    assert (
        end_of(reconcile.reconcile(more, settings, seen.state, NOW + 610).rate_limits, COOLDOWN)
        is None
    )


def test_cooldown_starts_when_first_real_node_is_added() -> None:
    settings = config(cooldown=COOL)
    seen = reconcile.reconcile(
        Cluster.of([replace(node("v"), virtual=True)], []), settings, LeaderState(), NOW
    )
    assert (
        end_of(reconcile.reconcile(SIX, settings, seen.state, NOW + 10).rate_limits, COOLDOWN)
        == NOW + 610
    )


@pytest.mark.parametrize("policy", ["ClusterThreshold", "NodeUtilization"])
@pytest.mark.parametrize(
    ("uids", "recreated"),
    [("aab", True), ("aaa", False), ("a a", False), (" aa", False), ("a b", True)],
)
def test_recreated_node_counts_as_new_when_its_uid_changes(
    policy: str, uids: str, recreated: bool
) -> None:
    """Nodes may be recreated under the same name; the uid of an unreadable Node is unknown."""
    settings = replace(config(cooldown=COOL), policy=policy, unneeded_time_seconds=600)
    full = Cluster.of(
        SIX.nodes, [pod(f"p{n}", one.name, 100, 100) for n, one in enumerate(SIX.nodes)]
    )
    memory, found = LeaderState(), []
    for number, uid in enumerate(uids):
        nodes = [replace(SIX.nodes[0], uid=uid.strip()), *SIX.nodes[1:]]
        seen = reconcile.reconcile(
            Cluster.of(nodes, full.pods), settings, memory, NOW + 10 * number
        )
        memory = seen.state
        found.append((seen.state.candidates["n0"], end_of(seen.rate_limits, COOLDOWN)))
    assert found[-1] == ((NOW + 20, NOW + 620) if recreated else (NOW, None))
    assert memory.candidates["n1"] == NOW


@pytest.mark.parametrize(
    ("created", "left"),
    [
        (NOW - 600, 0),
        (NOW - 599, 1),
        (NOW, 600),
        pytest.param(NOW + 9999, 600, id="future time counts as now"),
        pytest.param(None, 0, id="unknown"),
    ],
)
def test_new_leader_reads_cooldown_from_creation_times(created: int | None, left: int) -> None:
    nodes = [replace(SIX.nodes[0], created_seconds=created), *SIX.nodes[1:]]
    settings, cluster = config(cooldown=COOL), Cluster.of(nodes, [])
    seen = reconcile.reconcile(cluster, settings, LeaderState(), NOW)
    assert end_of(seen.rate_limits, COOLDOWN) == (NOW + left if left else None)
    later = reconcile.reconcile(cluster, settings, seen.state, NOW + 600)
    assert end_of(later.rate_limits, COOLDOWN) is None


def test_virtual_node_starts_no_cooldown() -> None:
    """EKS on Fargate creates one per pod; frequent jobs would prevent all marks."""
    settings, virtual = (
        config(cooldown=COOL),
        replace(node("v"), virtual=True, created_seconds=NOW),
    )
    seen = reconcile.reconcile(SIX, settings, LeaderState(), NOW)
    with_it = Cluster.of([*SIX.nodes, virtual], [])
    assert (
        end_of(reconcile.reconcile(with_it, settings, seen.state, NOW + 10).rate_limits, COOLDOWN)
        is None
    )
    assert (
        end_of(reconcile.reconcile(with_it, settings, LeaderState(), NOW).rate_limits, COOLDOWN)
        is None
    )


INTERVAL: dict[str, Any] = {
    "mark_interval_seconds": 600,
}


def backed_off(one: Node, since: int) -> Node:
    return replace(one, annotations={BACKOFF_ANNOTATION: f"1 {since + BACKOFF_SECONDS}"})


@pytest.mark.parametrize(
    ("first", "left"),
    [
        pytest.param(SIX.nodes[0], 0, id="no mark"),
        pytest.param(marked(SIX.nodes[0], Mark.PREFER_NO_SCHEDULE, NOW - 599), 1, id="mark"),
        pytest.param(marked(SIX.nodes[0], Mark.PREFER_NO_SCHEDULE, NOW - 600), 0, id="old mark"),
        pytest.param(
            marked(SIX.nodes[0], Mark.PREFER_NO_SCHEDULE, NOW + 99), 600, id="mark of the future"
        ),
        pytest.param(backed_off(SIX.nodes[0], NOW - 500), 100, id="failed eviction"),
        pytest.param(
            backed_off(SIX.nodes[0], NOW + 9**9), 600, id="failed eviction of the future"
        ),
    ],
)
def test_new_leader_reads_mark_interval_from_nodes(first: Node, left: int) -> None:
    cluster = Cluster.of([first, *SIX.nodes[1:]], [])
    seen = reconcile.reconcile(cluster, config(**INTERVAL), LeaderState(), NOW)
    assert end_of(seen.rate_limits, SPACING) == (NOW + left if left else None)


def test_mark_interval_starts_with_mark_or_failed_drain() -> None:
    settings = replace(config(**INTERVAL), unneeded_time_seconds=0)
    *others, last = SIX.nodes
    seen = reconcile.reconcile(
        SIX, settings, LeaderState(candidates=dict.fromkeys(["n3", "n4", "n5"], 0)), NOW
    )
    assert [one.node for one in seen.plan.removals] == ["n5"]
    some = Cluster.of([*others, marked(last, Mark.PREFER_NO_SCHEDULE, NOW)], [])
    for seconds in (1, 599):
        seen = reconcile.reconcile(some, settings, seen.state, NOW + seconds, last=seen)
        assert (end_of(seen.rate_limits, SPACING), seen.skipped) == (NOW + 600, seconds > 1)
        assert [one.node for one in seen.plan.removals] == ["n5"]
    seen = reconcile.reconcile(some, settings, seen.state, NOW + 600, last=seen)
    assert len(seen.plan.removals) == 2
    failed = Cluster.of([*others, backed_off(last, NOW + 700)], [])
    seen = reconcile.reconcile(failed, settings, seen.state, NOW + 705, last=seen)
    assert end_of(seen.rate_limits, SPACING) == NOW + 1300


def test_mark_interval_applies_after_new_mark_in_same_pass() -> None:
    limits = RemovalLimits(ClusterSnapshot(SOME_MARKED, config(**INTERVAL)), paced())
    *_, new, other = SOME_MARKED.nodes
    for one in (new, SOME_MARKED.nodes[0]):
        limits.count_removal(one)
    assert [why.code for why in limits.blockers(other)] == ["mark-interval"]


def test_mark_interval_applies_after_mark_of_unreached_node() -> None:
    nodes = [node("g", labels={"green": "true"}), node("x")]
    cluster = Cluster.of(nodes, [pod("p", "g", 100, 100, node_constraints=GREEN)])
    limits = RemovalLimits(ClusterSnapshot(cluster, config(**INTERVAL)), paced())
    limits.count_removal(nodes[1])
    assert [why.code for why in limits.blockers(nodes[0])] == ["mark-interval"]


def test_kubelet_can_neither_start_nor_hide_mark_interval() -> None:
    """A kubelet can write annotations of its own node, including times, but not the mark."""
    settings = config(**INTERVAL)
    seen = reconcile.reconcile(SIX, settings, LeaderState(), NOW)
    for late in (700, 1400):  # a node that was never marked cannot have failed
        liar = Cluster.of([backed_off(SIX.nodes[0], NOW + late), *SIX.nodes[1:]], [])
        seen = reconcile.reconcile(liar, settings, seen.state, NOW + late)
        assert end_of(seen.rate_limits, SPACING) is None
    early = Cluster.of([marked(SIX.nodes[0], Mark.PREFER_NO_SCHEDULE, 1), *SIX.nodes[1:]], [])
    seen = reconcile.reconcile(early, settings, seen.state, NOW + 1410)
    # The mark did not exist at NOW + 1400.
    assert end_of(seen.rate_limits, SPACING) == NOW + 2000
    recreated = Cluster.of(
        [marked(SIX.nodes[0], Mark.PREFER_NO_SCHEDULE, NOW + 2000), *SIX.nodes[1:]], []
    )
    assert (
        end_of(
            reconcile.reconcile(recreated, settings, seen.state, NOW + 2000).rate_limits, SPACING
        )
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
def test_pending_pod_stops_marking_for_delay(waits: Pod, seconds: int) -> None:
    settings = config(cooldown=COOL)
    no_schedule_nodes = [marked(one, Mark.NO_SCHEDULE, 1) for one in SIX.nodes]
    cluster = Cluster.of(no_schedule_nodes, [replace(waits, unschedulable=waits.node is None)])
    seen = reconcile.reconcile(cluster, settings, LeaderState(), NOW)
    seen = reconcile.reconcile(cluster, settings, seen.state, NOW + 299)
    assert end_of(seen.rate_limits, PODS_PENDING) == (NOW + 300 if seconds else None)
    # The pod does not wait for a mark.
    assert (
        end_of(
            reconcile.reconcile(cluster, settings, seen.state, NOW + 300).rate_limits, PODS_PENDING
        )
        is None
    )


def test_pending_delay_does_not_restart_when_node_flaps() -> None:
    """Otherwise one Pending pod and one flapping node would stop all marks."""
    settings = config(cooldown=COOL)
    waits = replace(pod("p", None, 100, 100, node_constraints=GREEN), unschedulable=True)
    green = node("g", labels={"green": "true"})
    there, away = (
        Cluster.of([*SIX.nodes, replace(green, unschedulable=cordoned)], [waits])
        for cordoned in (False, True)
    )
    seen = reconcile.reconcile(there, settings, LeaderState(), NOW)
    for seconds, cluster in ((100, away), (200, there), (299, away), (300, there)):
        seen = reconcile.reconcile(cluster, settings, seen.state, NOW + seconds)
        assert end_of(seen.rate_limits, PODS_PENDING) == (NOW + 300 if seconds < 300 else None)
    seen = reconcile.reconcile(Cluster.of(there.nodes, []), settings, seen.state, NOW + 310)
    assert (
        end_of(
            reconcile.reconcile(there, settings, seen.state, NOW + 320).rate_limits, PODS_PENDING
        )
        == NOW + 620
    )


def test_marks_count_in_window_after_their_nodes_are_removed() -> None:
    settings = config(period_seconds=60, pools=(A,))
    nodes = [marked(one, Mark.PREFER_NO_SCHEDULE, NOW - 10) for one in SIX.nodes]
    seen = reconcile.reconcile(Cluster.of(nodes, []), settings, LeaderState(), NOW)
    left = Cluster.of(nodes[4:], [])
    seen = reconcile.reconcile(left, settings, seen.state, NOW + 49)
    assert in_window(seen.rate_limits) == {"": 6, "a": 6}
    assert in_window(reconcile.reconcile(left, settings, seen.state, NOW + 50).rate_limits) == {
        "": 0
    }


@pytest.mark.parametrize("shift", [-(9**9), -5, 0, 3 * 3600, 9**9])
def test_mark_counts_once_in_window_when_its_time_is_rewritten(shift: int) -> None:
    """A mark counts from its first observation; a kubelet or wrong clock may rewrite its time."""
    settings = config(period_seconds=60)
    seen = reconcile.reconcile(SIX, settings, LeaderState(), NOW)
    some = SIX
    for seconds, counted in ((10, 1), (30, 1), (59, 1), (70, 0), (130, 0)):
        since = NOW + (10 if seconds == 10 else seconds + shift)
        some = Cluster.of(
            [marked(SIX.nodes[0], Mark.PREFER_NO_SCHEDULE, since), *SIX.nodes[1:]], []
        )
        seen = reconcile.reconcile(some, settings, seen.state, NOW + seconds)
        assert in_window(seen.rate_limits) == {"": counted}, seconds
    longer = replace(settings, budgets=replace(settings.budgets, period_seconds=600))
    seen = reconcile.reconcile(some, longer, seen.state, NOW + 140)
    assert in_window(seen.rate_limits) == {"": 1}, "the age of an existing mark is known"


def test_mark_counts_from_its_return_when_it_was_removed() -> None:
    settings = config(period_seconds=60)
    seen = reconcile.reconcile(SIX, settings, LeaderState(), NOW)
    moments = (10, 10, 1), (20, None, 1), (40, 40, 1), (99, 40, 1), (100, 40, 0)
    for seconds, since, counted in moments:
        first = (
            SIX.nodes[0]
            if since is None
            else marked(SIX.nodes[0], Mark.PREFER_NO_SCHEDULE, NOW + since)
        )
        some = Cluster.of([first, *SIX.nodes[1:]], [])
        seen = reconcile.reconcile(some, settings, seen.state, NOW + seconds)
        assert in_window(seen.rate_limits) == {"": counted}, seconds


def test_new_leader_counts_future_mark_from_now() -> None:
    some = Cluster.of(
        [marked(SIX.nodes[0], Mark.PREFER_NO_SCHEDULE, NOW + 9000), *SIX.nodes[1:]], []
    )
    seen = reconcile.reconcile(some, config(period_seconds=60), LeaderState(), NOW)
    for seconds, counted in ((59, 1), (60, 0)):
        seen = reconcile.reconcile(some, config(period_seconds=60), seen.state, NOW + seconds)
        assert in_window(seen.rate_limits) == {"": counted}


def test_node_that_alternates_virtual_starts_no_cooldown() -> None:
    settings = config(cooldown=COOL)
    known = [replace(one, uid=one.name) for one in SIX.nodes]
    seen = reconcile.reconcile(Cluster.of(known, []), settings, LeaderState(), NOW)
    for seconds, virtual in ((700, True), (800, False), (900, True), (1000, False)):
        nodes = [replace(known[0], virtual=virtual), *known[1:]]
        seen = reconcile.reconcile(Cluster.of(nodes, []), settings, seen.state, NOW + seconds)
        assert end_of(seen.rate_limits, COOLDOWN) is None


def test_backoff_doubles_each_time_mark_fails() -> None:
    """Also for empty nodes: they are due at once and would be tried first in every pass."""
    settings = replace(config(), unneeded_time_seconds=100)
    *others, last = SIX.nodes
    memory, failed = LeaderState(), frozenset({last.name})
    now = NOW
    for wait in (100, 200, 400, 500, 500):
        memory = memory.with_failed_writes(
            failed, Now(now), unneeded_time_seconds=100, max_seconds=500
        )
        for seconds, removed in ((0, False), (wait - 1, False), (wait, True)):
            seen = reconcile.reconcile(SIX, settings, memory, now + seconds)
            memory = seen.state
            assert (last.name in {one.node for one in seen.plan.removals}) == removed
        now += wait
    assert (
        memory.with_failed_writes(failed, Now(now), unneeded_time_seconds=0, max_seconds=50)
        .limit(MarkRefused)
        .failures[last.name]
        .until
        == now + 50
    )
    assert (
        LeaderState()
        .with_failed_writes(failed, Now(NOW), unneeded_time_seconds=0, max_seconds=500)
        .limit(MarkRefused)
        .failures[last.name]
        .until
        == NOW + 60
    )
    standing = Cluster.of([*others, marked(last, Mark.PREFER_NO_SCHEDULE, now)], [])
    assert (
        not reconcile.reconcile(standing, settings, memory, now).state.limit(MarkRefused).failures
    ), "the mark was written"


def test_pods_get_room_of_no_schedule_mark_a_minute_after_its_removal_failed() -> None:
    """Pods may be Pending because of the mark, so the wait does not double."""
    nodes = [marked(node("n0", labels={"pool": "b"}), Mark.NO_SCHEDULE, NOW), *SIX.nodes[1:]]
    own = NodeConstraints(node_selector=(("pool", "b"),))
    waiting = replace(pod("p", None, 1, 1, node_constraints=own), unschedulable=True)
    cluster = Cluster.of(nodes, [waiting])
    settings, now = replace(config(), unneeded_time_seconds=100), NOW
    memory = reconcile.reconcile(cluster, settings, LeaderState(), now).state
    for _ in range(5):
        memory = memory.with_failed_writes(
            frozenset({"n0"}), Now(now), unneeded_time_seconds=100, max_seconds=500
        )
        assert not reconcile.reconcile(cluster, settings, memory, now + 59).plan.pending
        seen = reconcile.reconcile(cluster, settings, memory, now + 60)
        assert [placement.node for placement in seen.plan.pending] == ["n0"]
        memory, now = seen.state, now + 60


def test_marks_are_read_once_for_all_failed_writes() -> None:
    """Each read walks all nodes: 1,000 failed writes on 15,000 nodes took half a second."""
    settings = Counter[str]()

    class Counted(ClusterSnapshot):
        def __getattribute__(self, name: str) -> object:
            settings[name] += 1
            return super().__getattribute__(name)

    found = []
    for many in (1, 6):
        snapshot, refused = (
            Counted(SIX, config(), Now(NOW)),
            frozenset(f"n{one}" for one in range(many)),
        )
        memory = observe(LeaderState(), snapshot, Now(NOW))
        memory = memory.with_failed_writes(
            refused, Now(NOW), unneeded_time_seconds=100, max_seconds=500
        )
        settings.clear()
        assert (
            observe(memory, snapshot, Now(NOW + 1)).limit(MarkRefused).failures.keys() == refused
        )
        found.append(settings["marks"])
    assert found[0] == found[1]


@pytest.mark.parametrize("uid", ["n0", "another"])
def test_failed_write_is_forgotten_when_old_or_node_is_replaced(uid: str) -> None:
    settings = config()
    nodes = [replace(one, uid=one.name) for one in SIX.nodes]
    memory = reconcile.reconcile(Cluster.of(nodes, []), settings, LeaderState(), NOW).state
    memory = memory.with_failed_writes(frozenset({"n0"}), Now(NOW), unneeded_time_seconds=100)
    there = Cluster.of([replace(nodes[0], uid=uid), *nodes[1:]], [])
    seen = reconcile.reconcile(there, settings, memory, NOW + 99 + BACKOFF_SECONDS_MAX)
    assert bool(seen.state.limit(MarkRefused).failures) == (uid == "n0")
    end = NOW + 100 + BACKOFF_SECONDS_MAX
    assert (
        not reconcile.reconcile(there, settings, seen.state, end).state.limit(MarkRefused).failures
    )
    assert (
        not reconcile.reconcile(Cluster.of(nodes[1:], []), settings, memory, NOW + 1)
        .state.limit(MarkRefused)
        .failures
    )


def test_backoff_is_read_from_node_annotation() -> None:
    one = node("n0", annotations={BACKOFF_ANNOTATION: "3 2000"})
    cluster = Cluster.of([one, node("n1")], [])
    for now, backing_off in ((1999, {"n0": 2000}), (2000, {})):
        assert (
            ends_by_node(
                reconcile.reconcile(cluster, config(), LeaderState(), now).rate_limits, BACKOFF
            )
            == backing_off
        )


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("1 2000", "the node did not empty in time"),
        ("1 2000 bare", "evictions failed (bare)"),
        ("1 2000 unmarked", "`ebb unmark` removed the mark"),
    ],
)
def test_backoff_message_gives_reason(written: str, why: str) -> None:
    one = node("n0", annotations={BACKOFF_ANNOTATION: written})
    snapshot = ClusterSnapshot(Cluster.of([one, node("n1")], []), config())
    limits = rate_limits(LeaderState(), snapshot, Now(NOW))
    (found,) = RemovalLimits(snapshot, limits).blockers(one)
    assert found.message == f"{why}: Ebb skips the node until 1970-01-01 00:33:20 UTC"


def test_backoff_and_old_job_limit_only_their_own_nodes() -> None:
    rate_limits = paced(
        backing_off={"n1": NOW}, failed_writes={"n2": NOW}, old_jobs={"n3": "d/job"}
    )
    limits = RemovalLimits(ClusterSnapshot(SIX, config()), rate_limits)
    found = {one.name: [why.code for why in limits.blockers(one)] for one in SIX.nodes}
    own = {"n1": ["backoff"], "n2": ["mark-refused"], "n3": ["old-job"]}
    assert found == {one.name: own.get(one.name, []) for one in SIX.nodes}


def test_limits_apply_to_all_nodes_once_a_removal_is_counted() -> None:
    first, *others = SIX.nodes
    limits = RemovalLimits(ClusterSnapshot(SIX, config(cluster=Budget(min_nodes=5))), None)
    assert not any(limits.blockers(one) for one in SIX.nodes)
    limits.count_removal(first)
    found = {why.message for one in others for why in limits.blockers(one)}
    assert found == {
        "without the node, the cluster would have 4 schedulable nodes; `minNodes` is 5"
    }


def test_min_nodes_counts_all_existing_nodes_for_marked_node() -> None:
    one = marked(node("n0"), Mark.PREFER_NO_SCHEDULE, 1)
    cluster = Cluster.of([one, replace(node("n1"), ready=False)], [])
    limits = RemovalLimits(ClusterSnapshot(cluster, config(cluster=Budget(min_nodes=2))), None)
    (found,) = limits.blockers(one)
    assert found.message == "without the node, the cluster would have 1 node; `minNodes` is 2"


def test_not_ready_node_counts_as_untainted_only_for_its_own_mark() -> None:
    unusable = replace(node("n0"), ready=False)
    settings = config(min_untainted_nodes=2)
    reported = (
        "without the node, the cluster would have 1 node without a taint; `minUntaintedNodes` is 2"
    )
    for one, others, why in (
        (marked(unusable, Mark.PREFER_NO_SCHEDULE, 1), 1, [reported]),
        (unusable, 2, []),
    ):
        cluster = Cluster.of([one, *empty_nodes(3)[1 : 1 + others]], [])
        found = RemovalLimits(ClusterSnapshot(cluster, settings), None).blockers(one)
        assert [blocker.message for blocker in found] == why


def test_backoff_doubles_up_to_maximum() -> None:
    hours = [backoff_seconds(times) / 3600 for times in (1, 2, 3, 5, 6, 1000)]
    assert hours == [1, 2, 4, 16, 24, 24]


def test_no_schedule_marks_are_removed_for_pending_pods() -> None:
    """Only as many nodes are unmarked as the pods need; the others remain marked."""
    nodes = [marked(one, Mark.NO_SCHEDULE, number) for number, one in enumerate(empty_nodes(4))]
    pods = [pod(f"w{number}", None, 3000, 100) for number in range(2)]
    plan = reconcile.plan(Cluster.of(nodes, pods), config())
    assert len(plan.marked_infeasible) == 2
    assert len(plan.removals) == 2


def test_demand_ignores_daemon_and_filler_pods() -> None:
    pods = [pod("p", "n0", 100, 1), pod("w", None, 10, 1), pod("d", "n0", 1, 1, daemon=True)]
    pods += [replace(pod(f"x{n}", None, 10, 1), priority=-11) for n in range(5)]
    found = ClusterSnapshot(Cluster.of(empty_nodes(2), pods), config()).utilization.demand()
    assert found == {"": Amount(110, 2 * MB), "general": Amount(110, 2 * MB)}


def test_default_budgets_limit_marks_to_one_tenth_of_nodes() -> None:
    assert Budgets().cluster.max_marked is not None
    assert (
        len(removed_nodes(Cluster.of(empty_nodes(100), []), Config(budgets=Budgets()), paced()))
        == 10
    )


def zone_messages(cluster: Cluster, settings: Config) -> set[str]:
    plan = reconcile.plan(cluster, settings)
    return {
        blocker.message
        for kept in plan.kept
        for blocker in kept.blockers
        if blocker.code == "zone-balance"
    }


def test_zone_balance_counts_removals_of_same_plan() -> None:
    keep = {"kube-ebb.io/keep": "true"}
    stays = [replace(one, annotations=keep) for one in in_zones("bb")]
    cluster, settings = Cluster.of([*in_zones("aaa"), *stays], [TINY]), config(balance_zones=True)
    assert removed_nodes(cluster, settings) == ["a2", "a1"]
    assert zone_messages(cluster, settings) == {
        "without the node, zone a would have 0 schedulable nodes and another zone 2"
    }


@pytest.mark.parametrize("unusable", [{"unschedulable": True}, {"ready": False}])
def test_zone_keeps_its_last_schedulable_node(unusable: dict[str, bool]) -> None:
    """Unschedulable nodes do not count: pods of the zone could not use them."""
    own = [replace(one, **unusable) for one in in_zones("aaa")]  # type: ignore[arg-type]
    keep = {"kube-ebb.io/keep": "true"}
    stays = [replace(one, annotations=keep) for one in in_zones("bbb")]
    works = node("a9", labels={ZONE_LABEL: "a"})
    cluster, settings = Cluster.of([*own, works, *stays], [TINY]), config(balance_zones=True)
    assert removed_nodes(cluster, settings) == []
    assert zone_messages(cluster, settings) == {
        "without the node, zone a would have 0 schedulable nodes and another zone 3"
    }


def test_zone_without_schedulable_nodes_does_not_block_others() -> None:
    """The reach still spans both zones, although no node of zone b is Ready."""
    down = [replace(one, ready=False) for one in in_zones("bbb")]
    cluster, settings = Cluster.of([*in_zones("aaa"), *down], [TINY]), config(balance_zones=True)
    assert removed_nodes(cluster, settings) == ["a2", "a1"]
    assert zone_messages(cluster, settings) == set()


def test_zones_are_balanced_within_each_pool() -> None:
    """Nodes without a pool are balanced among themselves."""
    pools = tuple(
        Pool(name=name, selector=LabelSelector(match_labels=(("pool", name),)), budget=Budget())
        for name in "ab"
    )
    nodes = [
        replace(one, labels={**one.labels, "pool": pool})
        for pool, one in zip("aaabbb", in_zones("xxxyyy"), strict=True)
    ]
    cluster = Cluster.of(nodes, [TINY])
    assert removed_nodes(cluster, config(balance_zones=True, pools=pools)) == [
        "y5",
        "y4",
        "y3",
        "x2",
        "x1",
    ]
    assert removed_nodes(cluster, config(balance_zones=True)) == ["y5", "x2", "x1", "y4", "y3"]


def test_zones_are_balanced_in_narrowest_reach_that_spans_zones() -> None:
    """A zone may have many nodes, but few that these pods can use."""
    keep, green = {"kube-ebb.io/keep": "true"}, {"green": "true"}
    some = [replace(one, labels={**one.labels, **green}) for one in in_zones("xxyy")]
    others = [replace(one, name=f"o{one.name}", annotations=keep) for one in in_zones("xxxxx")]
    only = pod("only", None, 0, 0, node_constraints=GREEN)
    settings = config(balance_zones=True)
    assert removed_nodes(Cluster.of([*some, *others], [TINY, only]), settings) == [
        "y3",
        "x1",
        "x0",
    ]
    assert removed_nodes(Cluster.of([*some, *others], [TINY]), settings) == ["x1", "x0"]


def one_of(key: str, *values: str, **labels: str) -> NodeConstraints:
    """Return constraints that require one of the values, and these labels."""
    term = SelectorTerm((Requirement(key, "In", values),))
    return NodeConstraints(node_selector=tuple(labels.items()), affinity=(term,))


NAMED = SelectorTerm(fields=(Requirement("metadata.name", "In", ("a1",)),))


@pytest.mark.parametrize(
    "node_constraints",
    [
        one_of(HOST_LABEL, "a1", "c5"),
        one_of(HOST_LABEL, "a1", "c5", green="true"),
        one_of(ZONE_LABEL, "a", "b"),
        one_of(ZONE_LABEL, "a", "b", green="true"),
        NodeConstraints(affinity=(NAMED, SelectorTerm((Requirement(HOST_LABEL, "In", ("c5",)),)))),
        NodeConstraints(affinity=(SelectorTerm((Requirement(ZONE_LABEL, "In", ("b",)),)), NAMED)),
    ],
)
def test_selectors_by_node_or_zone_do_not_decide_zone_balance(
    node_constraints: NodeConstraints,
) -> None:
    """Two node names would mean one node per zone; two zone names would hide other zones."""
    keep = {"kube-ebb.io/keep": "true"}
    labels = {one.name: {HOST_LABEL: one.name, "green": "true"} for one in in_zones("aaabccc")}
    nodes = [
        replace(one, labels={**one.labels, **labels[one.name]}) for one in in_zones("aaabccc")
    ]
    nodes = [one if one.name[0] == "a" else replace(one, annotations=keep) for one in nodes]
    alone, settings = (
        pod("alone", None, 0, 0, node_constraints=node_constraints),
        config(balance_zones=True),
    )
    assert removed_nodes(Cluster.of(nodes, [TINY, alone]), settings) == ["a2"]


def test_unreached_zones_do_not_block_pods_that_name_zones() -> None:
    keep = {"kube-ebb.io/keep": "true"}
    stays = [replace(one, annotations=keep) for one in in_zones("bccc")]
    only = pod("only", None, 0, 0, node_constraints=one_of(ZONE_LABEL, "a", "b"))
    cluster = Cluster.of([*in_zones("aaa"), *stays], [only])
    assert removed_nodes(cluster, config(balance_zones=True)) == ["a2", "a1", "a0"]


def test_other_labels_count_when_selector_names_zones() -> None:
    """Zone x is the smaller one among green nodes, and the larger one among all nodes."""
    keep, green = {"kube-ebb.io/keep": "true"}, {"green": "true"}
    some = [replace(one, labels={**one.labels, **green}) for one in in_zones("xyyy")]
    others = [replace(one, name=f"o{one.name}") for one in in_zones("xxxx")]
    others = [replace(one, annotations=keep) for one in others]
    named = pod("named", None, 0, 0, node_constraints=one_of(ZONE_LABEL, "x", "y", green="true"))
    cluster = Cluster.of([*some, *others], [TINY, named])
    assert removed_nodes(cluster, config(balance_zones=True)) == ["y3", "y2", "y1"]


def test_marks_in_window_are_counted_by_pool_and_reached_nodes() -> None:
    """The time of a mark is read from the taint."""
    settings = config(period_seconds=60, pools=(A,))
    only = pod(
        "only", None, 0, 0, node_constraints=NodeConstraints(node_selector=(("pool", "a"),))
    )
    taint = Taint(TAINT_KEY, str(NOW - 60), Effect.PREFER_NO_SCHEDULE)
    nodes = [
        marked(node("reached", labels={"pool": "a"}), Mark.PREFER_NO_SCHEDULE, NOW - 59),
        marked(node("unreached"), Mark.PREFER_NO_SCHEDULE, NOW - 59),
        node("too-old", labels={MARK_LABEL: "PreferNoSchedule"}, taints=(taint,)),
        node("rest", labels={"pool": "a"}),
    ]
    rate_limits = reconcile.reconcile(
        Cluster.of(nodes, [only]), settings, LeaderState(), NOW
    ).rate_limits
    assert in_window(rate_limits) == {"": 2, "a": 1}
    reached = {
        pool: [end.until for end in ends if end.reached]
        for pool, ends in rate_limits.of(BUDGET_NEW_MARKS).items()
    }
    assert reached == {"": [NOW + 1], "a": [NOW + 1]}


def test_peak_excess_is_peak_minus_current_requests_per_resource() -> None:
    settings = config(stabilization_window_seconds=60)
    before = reconcile.reconcile(
        Cluster.of(empty_nodes(3), [pod("p", "n0", 300, 700)]), settings, LeaderState(), NOW
    )
    after = Cluster.of(empty_nodes(3), [pod("p", "n0", 100, 200)])
    rate_limits = reconcile.reconcile(after, settings, before.state, NOW + 1).rate_limits
    assert rate_limits.peak_excess[""] == Amount(200, 500 * MB)


def blockers_of(plan: Plan, name: str) -> list[Blocker]:
    (found,) = (kept.blockers for kept in plan.kept if kept.node == name)
    return list(found)


def test_threshold_is_not_reported_when_pods_find_no_room() -> None:
    """The sums would be without those pods."""
    nodes = [node(name, labels={"green": "true"}) for name in ("g0", "g1")]
    pods = [pod(f"p{n}", f"g{n}", 3000, 100, node_constraints=GREEN) for n in range(2)]
    stays = node("n0", annotations={"kube-ebb.io/keep": "true"})
    pods += [pod("q", "n0", 100, 100), pod("r", "g0", 900, 100, node_constraints=GREEN)]
    settings = replace(config(), thresholds=Thresholds(cpu=Fraction(9, 10), memory=Fraction(1)))
    plan = reconcile.plan(Cluster.of([*nodes, stays], pods), settings)
    kept = {one.node: one.blockers for one in plan.kept}
    assert [one.code for one in kept["g0"]] == ["no-room"]


def test_virtual_node_admits_no_pod() -> None:
    """The message then is that no node admits the pod, not that a node has no room."""
    nodes = [node("n0"), replace(node("v"), virtual=True)]
    plan = reconcile.plan(Cluster.of(nodes, [pod("p", "n0", 100, 100)]), config())
    assert Blocker(NO_ROOM, NOT_ADMITTED, "d/p") in blockers_of(plan, "n0")


def test_blockers_describe_state_after_last_removal() -> None:
    """N0 was tried before n5; pods of n5 then use the room where pods of n0 would fit."""
    sizes = (2000, 1000, 4000, 4000, 1000, 2000)
    green = {0: {"green": "true"}, 3: {"green": "true"}}
    nodes = [node(f"n{n}", cpu=cpu, labels=green.get(n)) for n, cpu in enumerate(sizes)]
    pods = [pod("p1", "n2", 1500, 100), pod("p3", "n2", 300, 100), pod("p4", "n5", 900, 100)]
    in_green = (("p0", "n3", 1500), ("p2", "n0", 890), ("p5", "n3", 900))
    pods += [pod(name, on, cpu, 100, node_constraints=GREEN) for name, on, cpu in in_green]
    settings = Config(
        budgets=UNLIMITED, thresholds=Thresholds(cpu=Fraction(4, 5), memory=Fraction(1))
    )
    plan = reconcile.plan(Cluster.of(nodes, pods), settings, PlanOptions(removals_max=3))
    assert [one.node for one in plan.removals] == ["n4", "n1", "n5"]
    assert [(one.code, one.pod) for one in blockers_of(plan, "n0")] == [("no-room", "d/p2")]


@pytest.mark.parametrize("web", [1000, 1], ids=["no room before", "room after a pod ended"])
@pytest.mark.parametrize(
    ("mark", "removed"), [(None, False), (Mark.PREFER_NO_SCHEDULE, True), (Mark.NO_SCHEDULE, True)]
)
def test_headroom_does_not_keep_marked_node(mark: Mark | None, removed: bool, web: int) -> None:
    """Headroom had no place when n1 was marked; now it has one on n1, or on n0."""
    nodes = [node("n0"), node("n1") if mark is None else marked(node("n1"), mark, 1)]
    pods = [pod("large", "n0", 1900, 100), pod("web", "n0", web, 100)]
    plan = reconcile.plan(
        Cluster.of(nodes, [*pods, pod("small", "n1", 500, 100)]), config(headroom=1)
    )
    assert [one.node for one in plan.removals] == ["n1"] * removed
    assert removed or [one.code for one in blockers_of(plan, "n1")] == ["headroom"]


def test_headroom_displaced_by_marked_node_blocks_new_marks() -> None:
    """Headroom for `large` is on n0 until `small` of n1 moves there; then it is kept on n2."""
    green = {"green": "true"}
    nodes = [
        node("n0", labels=green),
        marked(node("n1"), Mark.PREFER_NO_SCHEDULE, 1),
        node("n2"),
        node("n3"),
    ]
    pods = [pod("large", "n0", 1900, 100), pod("small", "n1", 500, 100, node_constraints=GREEN)]
    pods += [pod("a", "n2", 1800, 100), pod("b", "n3", 1700, 100)]
    plan = reconcile.plan(Cluster.of(nodes, pods), config(headroom=1))
    assert [one.node for one in plan.removals] == ["n1"]
    assert [one.code for one in blockers_of(plan, "n3")] == ["headroom"]


def test_headroom_is_not_reported_for_infeasible_marked_node() -> None:
    """Headroom would be displaced, but `b` still finds no room."""
    nodes = [node("n0"), marked(node("n1"), Mark.PREFER_NO_SCHEDULE, 1), node("n2")]
    pods = [pod("large", "n0", 2000, 100), pod("a", "n1", 1500, 100), pod("b", "n1", 1500, 100)]
    pods.append(pod("c", "n2", 3500, 100))
    plan = reconcile.plan(Cluster.of(nodes, pods), config(headroom=1))
    assert not plan.removals
    reported = [(one.code, one.pod) for one in blockers_of(plan, "n1")]
    assert reported == [("threshold", None), ("no-room", "d/b")]


def test_headroom_is_not_reported_when_threshold_keeps_marked_node() -> None:
    """Pods without room are reported in addition."""
    nodes = [marked(node("n0"), Mark.PREFER_NO_SCHEDULE, 1), node("n1", cpu=1500)]
    pods = [pod("a", "n0", 1000, 100), pod("b", "n0", 400, 100), pod("c", "n1", 1400, 100)]
    plan = reconcile.plan(Cluster.of(nodes, pods), config(headroom=1))
    reported = [(one.code, one.pod) for one in blockers_of(plan, "n0")]
    assert reported == [("threshold", None), ("no-room", "d/a"), ("no-room", "d/b")]


def test_blockers_name_headroom_room_time_and_limit() -> None:
    large = "as large as the largest (cpu 3, memory 95.4Mi)"
    small = Cluster.of(empty_nodes(2), [pod("big", "n0", 3000, 100), pod("small", "n1", 900, 100)])
    assert blockers_of(reconcile.plan(small, config(headroom=1)), "n1") == [
        Blocker(HEADROOM, f"there would be no headroom for one more pod {large}")
    ]
    pods = [pod("big", "n0", 3000, 100), pod("p", "n1", 2000, 100), pod("q", "n2", 1, 1)]
    spared = Cluster.of(empty_nodes(3), pods)
    reported = f"the only room for it is reserved for pods {large}"
    assert blockers_of(reconcile.plan(spared, config(headroom=1)), "n1") == [
        Blocker(HEADROOM, reported, "d/p")
    ]
    full = Cluster.of(empty_nodes(2), [pod("p", "n0", 3000, 100), pod("q", "n1", 3000, 100)])
    no_room = blockers_of(reconcile.plan(full, config()), "n0")[-1]
    assert no_room == Blocker(NO_ROOM, "no other remaining node admits it and has room", "d/p")
    late = reconcile.reconcile(SIX, config(), LeaderState(), NOW, in_time=lambda: False)
    assert Blocker(
        TIME_BOX, "the reconciliation ended before the node was checked"
    ) in blockers_of(late.plan, "n0")
    assert not late.plan.complete
    assert blockers_of(reconcile.plan(SIX, config(), PlanOptions(removals_max=2)), "n0") == [
        Blocker(LIMIT, "the plan already removes as many nodes as `--max-removals` allows")
    ]


@pytest.mark.parametrize(
    ("settings", "used", "derived"),
    [
        (UsabilityMode.AUTO, None, True),
        (UsabilityMode.ALL, None, False),
        (THESIS_USABILITY, THESIS_USABILITY, False),
    ],
)
def test_plan_reports_usability_and_whether_it_was_derived(
    settings: UsabilityMode | Usability, used: Usability | None, derived: bool
) -> None:
    plan = reconcile.plan(at_fill(1000), replace(config(), usable_capacity=settings))
    assert (plan.usability, plan.usability_derived, plan.complete) == (used, derived, True)


def test_node_is_kept_when_only_unevaluable_pods_can_use_it() -> None:
    """The reason is not added to a node that is kept for another reason."""
    labels = {"green": "true"}
    keep = {"kube-ebb.io/keep": "true"}
    only = NodeConstraints(node_selector=(("only", "c"),))
    nodes = [node("a", labels=labels), node("b", labels=labels, annotations=keep)]
    nodes.append(node("c", labels={"only": "c"}))
    odd = pod("odd", "c", 10, 10, node_constraints=GREEN, unsupported=("spec.volumes",))
    plan = reconcile.plan(
        Cluster.of(nodes, [odd, pod("p", "c", 10, 10, node_constraints=only)]), config()
    )
    reported = Blocker(UNREACHED, "only pods that Ebb cannot evaluate can use the node")
    assert reported in blockers_of(plan, "a")
    assert reported not in blockers_of(plan, "b")


@pytest.mark.parametrize("changed", [{"too_much": "tolerations"}, {"unreadable": "spec: bad"}])
def test_node_is_not_kept_for_unreadable_pod(changed: dict[str, str]) -> None:
    odd = replace(pod("odd", None, 10, 10, node_constraints=GREEN), **changed)  # type: ignore[arg-type]
    cluster = Cluster.of([node("a", labels={"green": "true"}), node("b")], [odd])
    assert "unreached" not in codes(cluster, config())


@pytest.mark.parametrize(
    ("changed", "removed"),
    [({"unsupported": ("spec.volumes",)}, ["n0"]), ({"unreadable": "spec: bad"}, [])],
)
def test_pods_move_beside_unevaluable_but_not_unreadable_pod(
    changed: dict[str, object], removed: list[str]
) -> None:
    odd = replace(pod("odd", "n1", 10, 10), **changed)  # type: ignore[arg-type]
    cluster = Cluster.of(empty_nodes(2), [odd, pod("p", "n0", 100, 100)])
    assert removed_nodes(cluster, config()) == removed


def test_daemon_pod_may_be_unevaluable() -> None:
    odd = replace(pod("odd", "n0", 10, 10, daemon=True), unsupported=("spec.volumes",))
    cluster = Cluster.of(empty_nodes(2), [odd, pod("p", "n1", 100, 100)])
    assert removed_nodes(cluster, config()) == ["n0"]


JOB: dict[str, Any] = {"owner_kind": "Job", "owner_name": "job", "created_seconds": NOW}
COMPLETES = DisruptionFacts(completes=True)


@pytest.mark.parametrize(
    ("changes", "age", "blocks"),
    [
        ({}, 1800, True),
        ({"owner_kind": "Workflow", "disruption_facts": COMPLETES}, 1800, True),
        ({}, None, False),
        ({"owner_kind": "ReplicaSet"}, 1800, False),
        ({"created_seconds": None}, 1800, False),
        ({"terminating": True}, 1800, False),
        ({"daemon": True}, 1800, False),
    ],
)
def test_node_is_not_marked_when_its_job_is_too_old(
    changes: dict[str, Any], age: int | None, blocks: bool
) -> None:
    settings = replace(config(), max_job_age_seconds=age)
    cluster = Cluster.of(empty_nodes(3), [replace(pod("job", "n0", 1, 1), **{**JOB, **changes})])
    young = reconcile.reconcile(cluster, settings, LeaderState(), NOW + 1799)
    assert not ends_by_node(young.rate_limits, OLD_JOB)
    old = reconcile.reconcile(cluster, settings, young.state, NOW + 1800)
    assert ends_by_node(old.rate_limits, OLD_JOB) == ({"n0": "d/job"} if blocks else {})
    found = {why.code for one in old.plan.kept if one.node == "n0" for why in one.blockers}
    assert ("old-job" in found) is blocks
    assert not blocks or (young.requeue_at is not None and young.requeue_at <= NOW + 1800)


def test_marked_node_stays_marked_when_its_jobs_are_old() -> None:
    settings = replace(config(), max_job_age_seconds=1800)
    nodes = [marked(node("n0"), Mark.PREFER_NO_SCHEDULE, NOW), *empty_nodes(3)[1:]]
    cluster = Cluster.of(nodes, [replace(pod("job", "n0", 1, 1), **JOB)])
    found = reconcile.reconcile(cluster, settings, LeaderState(), NOW + 1800)
    assert "n0" in {one.node for one in found.plan.removals}
