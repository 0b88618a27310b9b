"""Policy ExcessNodes: tables, and a comparison with a plain plan that starts from the objects."""

import random
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any, NamedTuple

import pytest

from cli.explain.explainer import Explainer
from core.config.document import parse
from core.config.settings import API_VERSION, KIND, Config, Mode, PolicySettings
from core.engine import reconcile
from core.engine.leader_state import LeaderState, RateLimits
from core.engine.planner import PlanOptions
from core.engine.snapshot import ClusterSnapshot
from core.marks.mark import Details, encode_details
from core.marks.wellknown import DETAILS_ANNOTATION, KEEP_ANNOTATION, MARK_LABEL, TAINT_KEY
from core.model.cluster import Cluster
from core.model.node import Node, Taint
from core.model.now import Now
from core.model.pod import Pod
from core.policies.ported.excess_nodes import Settings
from core.writes.nodes import decide
from core.writes.write import WriteKind
from tests.support import builders, mixed, mixed_config
from tests.support.builders import UNLIMITED, marked, node, pod
from tests.support.reference_excess import Excess

pytestmark = pytest.mark.mutate

NOW = 1_000_000
HEAD = {"apiVersion": API_VERSION, "kind": KIND, "policy": "ExcessNodes"}
FREELY = {
    "budgets": {"minNodes": 0, "minUntaintedNodes": 0, "maxMarked": "100%", "maxNewMarks": "100%"},
    "headroom": 0,
    "balanceZones": False,
}


def config(**fields: Any) -> Config:
    return parse({**HEAD, **FREELY, **fields}, "x")


def even(nodes: int, cpu: int, memory: int = 0, pods: int = 10) -> Cluster:
    """Return nodes of 4,000m and 8,000 MB, filled with small pods to these percentages."""
    return Cluster.of(
        [node(f"n{number}") for number in range(nodes)],
        [
            pod(f"p{number}-{each}", f"n{number}", 40 * cpu // pods, 80 * memory // pods)
            for number in range(nodes)
            for each in range(pods)
        ],
    )


def removed_nodes(cluster: Cluster, one: Config) -> list[str]:
    return [removal.node for removal in reconcile.plan(cluster, one).removals]


def excess(cluster: Cluster, one: Config | None = None) -> Fraction | int:
    (figure,) = reconcile.plan(cluster, one or config()).figures
    assert figure.gauge == "ebb_excess_nodes"
    return figure.value


def test_excess_is_measured_in_nodes_like_next_candidate() -> None:
    """A small idle node that is opted out is never the candidate."""
    kept = node("a", cpu=1000, annotations={KEEP_ANNOTATION: "true"})
    two = even(2, 50)
    assert excess(replace(two, nodes=(kept, *two.nodes))) == Fraction(5, 4)
    plan = reconcile.plan(replace(two, nodes=(kept,)), config())
    assert plan.figures == ()


def codes(cluster: Cluster, one: Config) -> Mapping[str, set[str]]:
    plan = reconcile.plan(cluster, one)
    return {kept.node: {blocker.code for blocker in kept.blockers} for kept in plan.kept}


@pytest.mark.parametrize(
    ("cluster", "worth", "removed"),
    [
        pytest.param(even(5, 55), "9/4", ["n0"], id="five at 55 %: one removed, then 1.25"),
        pytest.param(even(4, 55), "9/5", [], id="four at 55 %"),
        pytest.param(even(5, 60), "2", [], id="exactly the threshold"),
        pytest.param(even(5, 30, 65), "7/4", [], id="memory is scarcer"),
        pytest.param(even(5, 65, 30), "7/4", [], id="CPU is scarcer"),
    ],
)
def test_nodes_are_removed_while_excess_exceeds_threshold(
    cluster: Cluster, worth: str, removed: list[str]
) -> None:
    assert excess(cluster) == Fraction(worth)
    assert removed_nodes(cluster, config()) == removed


def test_excess_falls_with_higher_utilization() -> None:
    cluster = Cluster.of(
        [node(f"n{number}") for number in range(4)],
        [pod(f"p{number}", f"n{number}", 2750, 0) for number in range(4)],
    )
    assert excess(cluster) == Fraction(5, 4)


def test_least_utilized_node_is_removed_first_by_weighted_shares() -> None:
    nodes = [node(name) for name in "abcdef"]
    cluster = Cluster.of(nodes, [pod("c", "c", 100, 2000), pod("m", "b", 500, 0)])
    assert removed_nodes(cluster, config(excessNodes={"threshold": "4"})) == ["a", "d"]
    light = Cluster.of(nodes[1:3], [pod("c", "c", 400, 0), pod("m", "b", 0, 2400)])
    # 0.8 * 10 % is more than 0.2 * 30 %, although 10 % is less.
    assert removed_nodes(light, config(excessNodes={"threshold": "1"})) == ["b"]


@pytest.mark.parametrize(
    ("share", "remains_marked"),
    [(62, True), (70, True), (71, False)],
)
def test_marked_node_remains_marked_down_to_half_node_below_threshold(
    share: int, remains_marked: bool
) -> None:
    """Five nodes have an excess of 5 * (100 - share) / 100 nodes; 1.5 is enough for a mark."""
    plain = even(5, share)
    cluster = Cluster.of([marked(plain.nodes[0]), *plain.nodes[1:]], plain.pods)
    assert removed_nodes(plain, config()) == []
    assert removed_nodes(cluster, config()) == (["n0"] if remains_marked else [])


@pytest.mark.parametrize(
    ("odd", "code"),
    [
        pytest.param(node("x", cpu=0), "not-counted", id="without CPU"),
        pytest.param(node("x", memory=0), "not-counted", id="without memory"),
        pytest.param(node("x", unschedulable=True), "not-counted", id="cordoned"),
        pytest.param(node("x", ready=False), "not-counted", id="not Ready"),
        pytest.param(replace(node("x"), virtual=True), "not-counted", id="virtual"),
        pytest.param(replace(node("x"), deleting=True), "being-deleted", id="leaving"),
        pytest.param(replace(node("x"), unreadable="status"), "not-counted", id="unreadable"),
        pytest.param(
            node("x", taints=(Taint("gpu", "", "NoSchedule"),)), "not-counted", id="foreign taint"
        ),
    ],
)
def test_uncounted_node_is_not_removed_and_adds_no_excess(odd: Node, code: str) -> None:
    cluster = even(5, 60)
    with_it = Cluster.of([*cluster.nodes, odd], cluster.pods)
    assert excess(with_it) == 2
    assert removed_nodes(with_it, config()) == []
    assert code in codes(with_it, config())["x"]


def test_node_counts_when_its_taint_is_transient_or_own() -> None:
    cluster = even(5, 60)
    for key in ("node.kubernetes.io/memory-pressure", TAINT_KEY):
        empty = node("x", taints=(Taint(key, "", "PreferNoSchedule"),))
        assert excess(Cluster.of([*cluster.nodes, empty], cluster.pods)) == 3


def test_marked_node_adds_no_excess() -> None:
    cluster = even(5, 55)
    with_it = Cluster.of([marked(cluster.nodes[0]), *cluster.nodes[1:]], cluster.pods)
    assert excess(with_it) == Fraction(9, 5)


def test_candidate_is_first_node_without_other_blockers() -> None:
    """The free capacity equals 1.5 nodes like the large, least utilized one, or 3 like others."""
    large, others = node("large", cpu=8000, memory=16000), [node(name) for name in "abc"]
    pods: list[Pod] = [pod(f"p-{name}", name, 2700, 0) for name in "abc"]
    assert removed_nodes(Cluster.of([large, *others], pods), config()) == []
    kept = node("large", 8000, 16000, annotations={"kube-ebb.io/keep": "true"})
    assert removed_nodes(Cluster.of([kept, *others], pods), config()) == ["a"]


# Over time.

OTHER = Config(budgets=UNLIMITED, unneeded_time_seconds=0)
"""ClusterThreshold, under which one of five nodes at 55 % or 62 % is removable."""


@pytest.mark.parametrize(("share", "remains_marked"), [(60, True), (71, False)])
def test_mark_of_another_policy_is_evaluated_by_this_one(share: int, remains_marked: bool) -> None:
    cluster = even(5, share)
    old = reconcile.reconcile(cluster, OTHER, LeaderState(candidates={"n0": 0}), NOW)
    (first,) = [one.node for one in old.plan.removals] or ["n0"]
    nodes = [marked(one, since=NOW) if one.name == first else one for one in cluster.nodes]
    found = reconcile.reconcile(
        Cluster.of(nodes, cluster.pods), config(), old.state, NOW + 1, last=old
    )
    assert found.plan.marked_infeasible == (() if remains_marked else (first,))
    assert [one.node for one in found.plan.removals] == ([first] if remains_marked else [])
    writes = decide(
        Cluster.of(nodes, cluster.pods),
        found.plan,
        replace(config(), mode=Mode.ENFORCE),
        now_seconds=NOW + 1,
        owner="me",
    )
    unmarked = [one.key for one in writes if one.kind is WriteKind.UNMARK]
    assert unmarked == ([] if remains_marked else [first])


def test_mark_of_this_policy_is_evaluated_by_another() -> None:
    full = even(5, 85)
    cluster = Cluster.of([marked(full.nodes[0]), *full.nodes[1:]], full.pods)
    assert reconcile.reconcile(cluster, OTHER, LeaderState(), NOW).plan.marked_infeasible == (
        "n0",
    )


def test_node_is_removed_when_unneeded_time_ends() -> None:
    settings = config(
        unneededTime="60s",
        cooldown={"delayAfterAdd": "0s"},
        markInterval="0s",
        reserve={"window": "never"},
    )
    last = reconcile.reconcile(even(5, 55), settings, LeaderState(), NOW)
    assert last.requeue_at == NOW + 60
    for seconds, is_due in ((59, False), (60, True)):
        last = reconcile.reconcile(even(5, 55), settings, last.state, NOW + seconds, last=last)
        assert last.skipped is not is_due
        assert bool(last.plan.removals) is is_due


def test_default_mark_interval_is_ten_minutes_for_any_leader() -> None:
    settings = parse(HEAD, "x")
    nodes = [replace(node(f"n{n}"), created_seconds=NOW - 3600) for n in range(10)]
    first = reconcile.reconcile(Cluster.of(nodes, []), settings, LeaderState(), NOW)
    assert [one.node for one in first.plan.removals] == ["n0"]
    since = {DETAILS_ANNOTATION: encode_details(Details(
        since=NOW, deadline=NOW + 9999, owner="a", policy="ExcessNodes", reason="r"))}  # fmt: skip
    some = [replace(marked(nodes[0]), annotations=since), *nodes[1:]]
    for memory in (first.state, LeaderState()):
        for now, more in ((NOW + 599, []), (NOW + 600, ["n1"])):
            found = reconcile.reconcile(Cluster.of(some, []), settings, memory, now)
            assert [one.node for one in found.plan.removals] == ["n0", *more]
    young = [*some[:-1], replace(some[-1], created_seconds=NOW)]
    for now, more in ((NOW + 3599, []), (NOW + 3600, ["n1"])):
        found = reconcile.reconcile(Cluster.of(young, []), settings, LeaderState(), now)
        assert [one.node for one in found.plan.removals] == ["n0", *more]


def test_default_budgets_keep_two_nodes() -> None:
    assert (
        len(removed_nodes(Cluster.of([node(f"n{n}") for n in range(6)], []), parse(HEAD, "x")))
        == 4
    )
    low = parse({**HEAD, "excessNodes": {"threshold": 0}}, "x")
    assert len(removed_nodes(Cluster.of([node(f"n{n}") for n in range(6)], []), low)) == 4


def test_explanation_reports_excess() -> None:
    cluster = even(5, 55)
    snapshot = ClusterSnapshot(cluster, config(), Now(NOW))
    answer = Explainer(snapshot, reconcile.make_plan(snapshot), NOW).node("n1")
    assert answer is not None
    assert answer.policy_text == "cpu 55%, memory 0% requested, excess 2.25 nodes like this one"
    assert [one.code for one in answer.blockers] == ["no-excess"]
    assert (
        answer.blockers[0].message
        == "the excess (free capacity) is 1.25 nodes, not above `excessNodes.threshold` (2)"
    )


def test_explanation_names_earlier_node_without_excess() -> None:
    """The idle large node is first in the order of removal, but the excess is 1.45 such nodes."""
    small = even(2, 10)
    cluster = replace(small, nodes=(node("large", cpu=16_000), *small.nodes))
    kept = {one.node: one.blockers for one in reconcile.plan(cluster, config()).kept}
    assert [one.message for one in kept["large"]] == [
        "the excess (free capacity) is 1.45 nodes, not above `excessNodes.threshold` (2)"
    ]
    assert [one.message for one in kept["n0"]] == [
        "the policy would first remove node large, and the excess is too small for large"
    ]


# Comparison with a plain plan.


class Case(NamedTuple):
    """The cluster, configuration and rate limits of a seed."""

    cluster: Cluster
    config: Config
    rate_limits: RateLimits | None


@cache
def case(seed: int) -> Case:
    chance = random.Random(seed)
    cluster = mixed.cluster(chance)
    threshold = Fraction(chance.choice((0, 1, 2, 3, 5)), chance.choice((1, 2)))
    drawn = replace(
        mixed_config.config(chance),
        policy="ExcessNodes",
        policies=PolicySettings(excess_nodes=Settings(threshold=threshold)),
    )
    return Case(cluster, drawn, mixed_config.rate_limits(chance))


def plainly(made: Case, mutant: str = "") -> Excess:
    return Excess(made.cluster, made.config, mutant, made.rate_limits)


def removals_of(made: Case) -> list[tuple[str, list[tuple[str, str]]]]:
    plan = reconcile.plan(made.cluster, made.config, PlanOptions(limits=made.rate_limits))
    return [(one.node, [(p.pod, p.node) for p in one.placements]) for one in plan.removals]


SEEDS = range(400)


@pytest.mark.law
def test_plan_agrees_with_plain_plan(seeds: range) -> None:
    removed = 0
    for seed in seeds:
        found = removals_of(case(seed))
        assert found == plainly(case(seed)).run().removals, seed
        removed += len(found)
    assert removed > len(seeds) // 6


@pytest.mark.law
def test_plan_is_unchanged_when_its_marks_are_written(seeds: range) -> None:
    seen = 0
    for seed in seeds:
        made = case(seed)._replace(rate_limits=None)
        bare = (replace(one, labels={**one.labels, MARK_LABEL: ""}) for one in made.cluster.nodes)
        cluster = replace(made.cluster, nodes=tuple(bare))
        removed_nodes = {
            removal.node: removal for removal in reconcile.plan(cluster, made.config).removals
        }
        nodes = (
            builders.marked(one, "PreferNoSchedule", 1, removed_nodes[one.name].order)
            if one.name in removed_nodes
            else one
            for one in cluster.nodes
        )
        again = reconcile.plan(replace(cluster, nodes=tuple(nodes)), made.config)
        assert sorted(one.node for one in again.removals) == sorted(removed_nodes), seed
        seen += len(removed_nodes)
    assert seen > len(seeds) // 6


def test_reported_excess_agrees_with_plain_plan() -> None:
    for seed in SEEDS[:100]:
        made = case(seed)
        plan = reconcile.plan(made.cluster, made.config, PlanOptions(limits=made.rate_limits))
        reported = [one.value for one in plan.figures]
        worth = plainly(made).told()
        assert reported == ([] if worth is None else [worth]), seed


@pytest.mark.mutant
@pytest.mark.parametrize(
    "mutant",
    [
        "only CPU",
        "by name",
        "only the excess of the node itself",
        "no slack",
        "initial order",
        "taints are ignored",
    ],
)
def test_comparison_notices_mutant(mutant: str) -> None:
    """Some cluster has different plans under the wrong rule, so the law above can fail."""
    for seed in range(5 * len(SEEDS)):
        if plainly(case(seed), mutant).run().removals != removals_of(case(seed)):
            return
    pytest.fail("no cluster tells the difference")
