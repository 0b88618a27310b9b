"""Policy ExcessNodes: its table, and a plain plan of it that starts from the objects."""

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
from core.engine.snapshot import ClusterSnapshot
from core.marks.mark import Details, encode_details
from core.marks.wellknown import DETAILS_ANNOTATION, KEEP_ANNOTATION, MARK_LABEL
from core.model.cluster import Cluster
from core.model.node import Node, Taint
from core.model.now import Now
from core.model.pod import Pod
from core.policies.ported.excess_nodes import Settings, Weights
from core.writes.nodes import decide
from core.writes.write import WriteKind
from tests.support import builders, mixed, mixed_config
from tests.support.builders import UNLIMITED, marked, node, pod
from tests.support.reference_excess import Excess

pytestmark = pytest.mark.mutate

NOW = 1_000_000
HEAD = {"apiVersion": API_VERSION, "kind": KIND, "policy": "ExcessNodes"}
FREELY = {
    "budgets": {"minNodes": 0, "minUntaintedNodes": 0, "maxMarked": "100%", "maxInWindow": "100%"},
    "headroom": 0,
    "balanceZones": False,
}


def config(**said: Any) -> Config:
    return parse({**HEAD, **FREELY, **said}, "x")


def even(nodes: int, cpu: int, memory: int = 0, pods: int = 10) -> Cluster:
    """Return nodes of 4,000m and 8,000 MB, each with small pods that sum up to so many percent."""
    return Cluster.of(
        [node(f"n{number}") for number in range(nodes)],
        [
            pod(f"p{number}-{each}", f"n{number}", 40 * cpu // pods, 80 * memory // pods)
            for number in range(nodes)
            for each in range(pods)
        ],
    )


def goes(cluster: Cluster, one: Config) -> list[str]:
    return [removal.node for removal in reconcile.plan(cluster, one).removals]


def excess(cluster: Cluster, one: Config | None = None) -> Fraction | int:
    (figure,) = reconcile.plan(cluster, one or config()).figures
    assert figure.gauge == "ebb_excess_nodes"
    return figure.value


def test_the_excess_is_told_in_nodes_like_one_that_may_go() -> None:
    """A small idle one that somebody keeps is never the candidate."""
    kept = node("a", cpu=1000, annotations={KEEP_ANNOTATION: "true"})
    two = even(2, 50)
    assert excess(replace(two, nodes=(kept, *two.nodes))) == Fraction(5, 4)
    plan = reconcile.plan(replace(two, nodes=(kept,)), config())
    assert plan.figures == ()


def codes(cluster: Cluster, one: Config) -> Mapping[str, set[str]]:
    plan = reconcile.plan(cluster, one)
    return {kept.node: {blocker.code for blocker in kept.blockers} for kept in plan.kept}


@pytest.mark.parametrize(
    ("cluster", "worth", "gone"),
    [
        pytest.param(even(5, 55), "9/4", ["n0"], id="five at 55 %: one goes, then 1.25: stop"),
        pytest.param(even(4, 55), "9/5", [], id="four at 55 %"),
        pytest.param(even(5, 60), "2", [], id="exactly the threshold"),
        pytest.param(even(5, 30, 65), "7/4", [], id="memory is the scarcer"),
        pytest.param(even(5, 65, 30), "7/4", [], id="CPU is the scarcer"),
    ],
)
def test_nodes_go_while_the_excess_exceeds_the_threshold(
    cluster: Cluster, worth: str, gone: list[str]
) -> None:
    assert excess(cluster) == Fraction(worth)
    assert goes(cluster, config()) == gone


def test_four_nodes_at_what_is_left_are_worth_less() -> None:
    cluster = Cluster.of(
        [node(f"n{number}") for number in range(4)],
        [pod(f"p{number}", f"n{number}", 2750, 0) for number in range(4)],
    )
    assert excess(cluster) == Fraction(5, 4)


def test_the_least_utilized_goes_first_by_weighted_shares_then_by_name() -> None:
    nodes = [node(name) for name in "abcdef"]
    cluster = Cluster.of(nodes, [pod("c", "c", 100, 2000), pod("m", "b", 500, 0)])
    assert goes(cluster, config(excessNodes={"threshold": "4"})) == ["a", "d"]
    light = Cluster.of(nodes[1:3], [pod("c", "c", 400, 0), pod("m", "b", 0, 2400)])
    # 0.8 * 10 % is more than 0.2 * 30 %, and with equal weights it is less.
    some = {"threshold": "1"}
    assert goes(light, config(excessNodes=some)) == ["b"]
    assert goes(light, config(excessNodes={**some, "weights": {"cpu": 1, "memory": 1}})) == ["c"]


@pytest.mark.parametrize(
    ("share", "stays_marked"),
    [(62, True), (70, True), (71, False)],
)
def test_a_marked_node_stays_so_with_itself_counted_back_down_to_half_a_node_less(
    share: int, stays_marked: bool
) -> None:
    """Five nodes: free is worth 5 * (100 - share) / 100 of one, and 1.5 is enough."""
    plain = even(5, share)
    cluster = Cluster.of([marked(plain.nodes[0]), *plain.nodes[1:]], plain.pods)
    assert goes(plain, config()) == []
    assert goes(cluster, config()) == (["n0"] if stays_marked else [])


@pytest.mark.parametrize(
    ("odd", "code"),
    [
        pytest.param(node("x", cpu=0), "not-counted", id="without CPU"),
        pytest.param(node("x", memory=0), "not-counted", id="without memory"),
        pytest.param(node("x", unschedulable=True), "not-counted", id="cordoned"),
        pytest.param(node("x", ready=False), "not-counted", id="not Ready"),
        pytest.param(replace(node("x"), virtual=True), "not-counted", id="virtual"),
        pytest.param(replace(node("x"), deleting=True), "being-deleted", id="leaving"),
        pytest.param(replace(node("x"), unreadable="status"), "not-counted", id="not readable"),
        pytest.param(
            node("x", taints=(Taint("gpu", "", "NoSchedule"),)), "not-counted", id="of others"
        ),
    ],
)
def test_a_node_that_does_not_count_neither_goes_nor_is_worth_anything(
    odd: Node, code: str
) -> None:
    cluster = even(5, 60)
    with_it = Cluster.of([*cluster.nodes, odd], cluster.pods)
    assert excess(with_it) == 2
    assert goes(with_it, config()) == []
    assert code in codes(with_it, config())["x"]


def test_taints_that_pass_by_themselves_and_our_own_are_nobodys() -> None:
    cluster = even(5, 60)
    for key in ("node.kubernetes.io/memory-pressure", config().taint_key):
        empty = node("x", taints=(Taint(key, "", "PreferNoSchedule"),))
        assert excess(Cluster.of([*cluster.nodes, empty], cluster.pods)) == 3


def test_a_marked_node_is_not_counted_in_what_is_told() -> None:
    cluster = even(5, 55)
    with_it = Cluster.of([marked(cluster.nodes[0]), *cluster.nodes[1:]], cluster.pods)
    assert excess(with_it) == Fraction(9, 5)


def test_the_first_in_order_that_nothing_else_keeps_is_the_candidate() -> None:
    """What is free is worth 1.5 of the large node, the least utilized, and 3 of the others."""
    large, others = node("large", cpu=8000, memory=16000), [node(name) for name in "abc"]
    pods: list[Pod] = [pod(f"p-{name}", name, 2700, 0) for name in "abc"]
    assert goes(Cluster.of([large, *others], pods), config()) == []
    kept = node("large", 8000, 16000, annotations={"kube-ebb.io/keep": "true"})
    assert goes(Cluster.of([kept, *others], pods), config()) == ["a"]


# In the course of time.

OTHER = Config(budgets=UNLIMITED, unneeded_time_seconds=0)
"""ClusterThreshold, by which one of five nodes at 55 % or 62 % can go."""


@pytest.mark.parametrize(("share", "stays_marked"), [(60, True), (71, False)])
def test_marks_made_under_another_policy_are_judged_by_this_one(
    share: int, stays_marked: bool
) -> None:
    cluster = even(5, share)
    old = reconcile.reconcile(cluster, OTHER, LeaderState(candidates={"n0": 0}), NOW)
    (first,) = [one.node for one in old.plan.removals] or ["n0"]
    nodes = [marked(one, since=NOW) if one.name == first else one for one in cluster.nodes]
    found = reconcile.reconcile(
        Cluster.of(nodes, cluster.pods), config(), old.state, NOW + 1, last=old
    )
    assert found.plan.marked_infeasible == (() if stays_marked else (first,))
    assert [one.node for one in found.plan.removals] == ([first] if stays_marked else [])
    writes = decide(
        Cluster.of(nodes, cluster.pods),
        found.plan,
        replace(config(), mode=Mode.ENFORCE),
        now_seconds=NOW + 1,
        owner="me",
    )
    released = [one.key for one in writes if one.kind is WriteKind.RELEASE_MARK]
    assert released == ([] if stays_marked else [first])


def test_marks_made_under_this_policy_are_judged_by_another() -> None:
    full = even(5, 85)
    cluster = Cluster.of([marked(full.nodes[0]), *full.nodes[1:]], full.pods)
    assert reconcile.reconcile(cluster, OTHER, LeaderState(), NOW).plan.marked_infeasible == (
        "n0",
    )


def test_a_node_goes_in_the_second_in_which_its_delay_ends() -> None:
    asked = config(
        unneededTime="60s",
        cooldown={"delayAfterAdd": "0s"},
        markInterval="0s",
        reserve={"lookback": "0s"},
    )
    last = reconcile.reconcile(even(5, 55), asked, LeaderState(), NOW)
    assert last.requeue_at == NOW + 60
    for seconds, goes_now in ((59, False), (60, True)):
        last = reconcile.reconcile(even(5, 55), asked, last.state, NOW + seconds, last=last)
        assert last.skipped is not goes_now
        assert bool(last.plan.removals) is goes_now


def test_by_default_one_node_is_marked_then_none_for_ten_minutes_whoever_leads() -> None:
    asked = parse(HEAD, "x")
    nodes = [replace(node(f"n{n}"), created_seconds=NOW - 3600) for n in range(10)]
    first = reconcile.reconcile(Cluster.of(nodes, []), asked, LeaderState(), NOW)
    assert [one.node for one in first.plan.removals] == ["n0"]
    since = {DETAILS_ANNOTATION: encode_details(Details(
        since=NOW, deadline=NOW + 9999, owner="a", policy="ExcessNodes", reason="r"))}  # fmt: skip
    some = [replace(marked(nodes[0]), annotations=since), *nodes[1:]]
    for memory in (first.state, LeaderState()):
        for now, more in ((NOW + 599, []), (NOW + 600, ["n1"])):
            found = reconcile.reconcile(Cluster.of(some, []), asked, memory, now)
            assert [one.node for one in found.plan.removals] == ["n0", *more]
    young = [*some[:-1], replace(some[-1], created_seconds=NOW)]
    for now, more in ((NOW + 3599, []), (NOW + 3600, ["n1"])):
        found = reconcile.reconcile(Cluster.of(young, []), asked, LeaderState(), now)
        assert [one.node for one in found.plan.removals] == ["n0", *more]


def test_by_default_two_nodes_are_left() -> None:
    assert len(goes(Cluster.of([node(f"n{n}") for n in range(6)], []), parse(HEAD, "x"))) == 4
    low = parse({**HEAD, "excessNodes": {"threshold": 0}}, "x")
    assert len(goes(Cluster.of([node(f"n{n}") for n in range(6)], []), low)) == 4


def test_an_explanation_tells_how_much_excess_there_is() -> None:
    cluster = even(5, 55)
    survey = ClusterSnapshot(cluster, config(), Now(NOW))
    answer = Explainer(survey, reconcile.make_plan(survey), NOW).node("n1")
    assert answer is not None
    assert answer.policy_text == "cpu 55%, memory 0% requested, excess 2.25 nodes like it"
    assert [one.code for one in answer.blockers] == ["no-excess"]
    assert answer.blockers[0].message == "the excess is 1.25 nodes, not above 2"


# Beside a plain plan.


class Case(NamedTuple):
    """What a seed makes."""

    cluster: Cluster
    config: Config
    pace: RateLimits | None


@cache
def case(seed: int) -> Case:
    chance = random.Random(seed)
    cluster = mixed.cluster(chance)
    weights = chance.choice((Weights(), Weights(cpu=Fraction(0)), Weights(memory=Fraction(3))))
    threshold = Fraction(chance.choice((0, 1, 2, 3, 5)), chance.choice((1, 2)))
    drawn = replace(
        mixed_config.config(chance),
        policy="ExcessNodes",
        policies=PolicySettings(excess_nodes=Settings(threshold=threshold, weights=weights)),
    )
    return Case(cluster, drawn, mixed_config.pace(chance))


def plainly(made: Case, mutant: str = "") -> Excess:
    return Excess(made.cluster, made.config, mutant, made.pace)


def removals_of(made: Case) -> list[tuple[str, list[tuple[str, str]]]]:
    plan = reconcile.plan(made.cluster, made.config, limits=made.pace)
    return [(one.node, [(p.pod, p.node) for p in one.placements]) for one in plan.removals]


SEEDS = range(400)


def test_the_plan_is_the_plain_one() -> None:
    removed = 0
    for seed in SEEDS:
        found = removals_of(case(seed))
        assert found == plainly(case(seed)).run().removals, seed
        removed += len(found)
    assert removed > len(SEEDS) // 2


def test_a_plan_that_is_carried_out_is_planned_again() -> None:
    seen = 0
    for seed in SEEDS:
        made = case(seed)._replace(pace=None)
        bare = (replace(one, labels={**one.labels, MARK_LABEL: ""}) for one in made.cluster.nodes)
        cluster = replace(made.cluster, nodes=tuple(bare))
        goes = {removal.node: removal for removal in reconcile.plan(cluster, made.config).removals}
        nodes = (
            builders.marked(one, "soft", 1, goes[one.name].order) if one.name in goes else one
            for one in cluster.nodes
        )
        again = reconcile.plan(replace(cluster, nodes=tuple(nodes)), made.config)
        assert sorted(one.node for one in again.removals) == sorted(goes), seed
        seen += len(goes)
    assert seen > len(SEEDS) // 2


def test_what_is_told_is_what_is_plainly_there() -> None:
    for seed in SEEDS[:100]:
        made = case(seed)
        plan = reconcile.plan(made.cluster, made.config, limits=made.pace)
        told = [one.value for one in plan.figures]
        worth = plainly(made).told()
        assert told == ([] if worth is None else [worth]), seed


@pytest.mark.mutant
@pytest.mark.parametrize(
    "mutant",
    [
        "CPU alone",
        "by name",
        "each alone",
        "no slack",
        "order of the start",
        "taints are no matter",
    ],
)
def test_the_comparison_would_notice(mutant: str) -> None:
    """Some cluster tells a wrong rule from the right one, so the law above can fail."""
    for seed in range(5 * len(SEEDS)):
        if plainly(case(seed), mutant).run().removals != removals_of(case(seed)):
            return
    pytest.fail("no cluster tells the difference")
