"""Pod deletion costs keep the spread that ReplicaSets ask for: examples, and laws."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.marks.wellknown import COST_ANNOTATION, COST_OURS_ANNOTATION, TAINT_KEY
from core.model.cluster import Cluster
from core.model.constraints import (
    HOST_LABEL,
    DisruptionFacts,
    PodConstraints,
    PodSelector,
    Requirement,
    SpreadConstraint,
)
from core.model.node import Node
from core.model.pod import DETACHED_LABEL, Pod
from core.writes.costs import COST_MIN, DOMAINS_MAX, MOVE_COST, ORDERED_MAX, decide_costs
from core.writes.write import CostKind, Write
from tests.support.builders import marked, node, pod
from tests.support.examples import examples
from tests.support.replica_set import deletions, skews, violations

pytestmark = pytest.mark.mutate

NOW = 1_767_225_600
ZONE, RACK = "topology.kubernetes.io/zone", "rack"
WEB: Final = PodSelector(("d",), (Requirement("app", "In", ("web",)),))
TARGETS: Final = {f"{zone}-next": number for number, zone in enumerate("abcde", 7)}


def spread(key: str = ZONE, max_skew: int = 1, selector: PodSelector = WEB) -> SpreadConstraint:
    return SpreadConstraint(selector, key, max_skew)


def in_zone(zone: str, name: str, rack: str = "1") -> Node:
    """Return a node in a zone: marked, a scale-in target, or neither, as its name says."""
    made = node(name, labels={ZONE: zone, RACK: rack})
    return marked(made, since=NOW) if "marked" in name else made


def replica(
    name: str,
    on: str | None,
    *hard: SpreadConstraint,
    soft: Sequence[SpreadConstraint] = (),
    own: int | None = None,
) -> Pod:
    """Return a Ready pod of the ReplicaSet web; *own*: the cost that Ebb has given it."""
    made = pod(name, on, 10, 10, labels={"app": "web"})
    text = None if own is None else str(own)
    return replace(
        made,
        owner_name="web",
        ready=True,
        pod_constraints=PodConstraints(spread=hard),
        soft_spread=tuple(soft),
        deletion_cost=text,
        deletion_cost_ours=text,
    )


def decided(cluster: Cluster) -> list[Write[Pod]]:
    return list(decide_costs(cluster, TAINT_KEY, TARGETS, enabled=True).writes)


def applied(cluster: Cluster, writes: Iterable[Write[Pod]]) -> Cluster:
    pods = {pod.key: pod for pod in cluster.pods}
    for write in writes:
        before, new = pods[write.key], write.annotations
        pods[write.key] = replace(
            before,
            deletion_cost=new.get(COST_ANNOTATION, before.deletion_cost),
            deletion_cost_ours=new.get(COST_OURS_ANNOTATION, before.deletion_cost_ours),
        )
    return Cluster.of(cluster.nodes, pods.values())


def order(cluster: Cluster) -> list[str]:
    """Return the names of the nodes whose pods scale-ins delete, in this order."""
    pods = applied(cluster, decided(cluster)).pods
    return [one.node or "" for one in deletions(pods, random.Random(0))]


NODES: Final = [in_zone(name[0], name) for name in ("a-marked", "a", "b-marked", "b", "b-next")]


class TestOrder:
    def test_zones_take_turns_while_only_one_has_marked_nodes(self) -> None:
        nodes = [in_zone("a", "a-marked"), in_zone("b", "b"), in_zone("b", "b-next")]
        places = ["a-marked"] * 3 + ["b", "b", "b-next"]
        pods = [replica(f"p{n}", at, spread()) for n, at in enumerate(places)]
        found = order(Cluster.of(nodes, pods))
        assert found[:4] == ["a-marked", "b-next", "a-marked", "b"]

    def test_marked_nodes_go_first_when_all_zones_have_some(self) -> None:
        places = ["a-marked", "b-marked", "a", "a", "b", "b"]
        pods = [replica(f"p{n}", at, spread()) for n, at in enumerate(places)]
        assert sorted(order(Cluster.of(NODES, pods))[:2]) == ["a-marked", "b-marked"]

    def test_larger_skew_lets_more_pods_of_marked_nodes_go_first(self) -> None:
        places = ["a-marked"] * 4 + ["b"] * 4
        pods = [replica(f"p{n}", at, spread(max_skew=3)) for n, at in enumerate(places)]
        assert order(Cluster.of(NODES, pods))[:4] == ["a-marked"] * 3 + ["b"]

    def test_hard_constraints_come_before_soft_ones(self) -> None:
        nodes = [in_zone("a", "a-marked", "1"), in_zone("b", "b", "2"), in_zone("a", "a", "2")]
        places = ["a-marked"] * 3 + ["b"] * 2 + ["a"] * 3
        zones, racks = [spread()], [spread(RACK)]
        cluster = Cluster.of(
            nodes, (replica(f"p{n}", at, *zones, soft=racks) for n, at in enumerate(places))
        )
        after = applied(cluster, decided(cluster))
        found = deletions(after.pods, random.Random(0))
        by_node = {one.name: one.labels[ZONE] for one in nodes}
        assert violations(skews(found, by_node, "ab"), 1, 8) == 0

    def test_cost_of_a_user_stays_and_counts(self) -> None:
        """Zone a loses a pod by the user's cost, so zone b comes next, not the marked node."""
        places = ["a", "a-marked", "a", "b", "b", "b"]
        pods = [replica(f"p{n}", at, spread()) for n, at in enumerate(places)]
        pods[0] = replace(pods[0], deletion_cost="-200000000")
        cluster = Cluster.of(NODES, pods)
        assert "d/p0" not in {write.key for write in decided(cluster)}
        assert order(cluster)[:3] == ["a", "b", "a-marked"]

    def test_last_pods_need_no_cost(self) -> None:
        places = ["a-marked", "a", "b", "b"]
        pods = [replica(f"p{n}", at, spread()) for n, at in enumerate(places)]
        assert [write.key for write in decided(Cluster.of(NODES, pods))] == ["d/p0", "d/p2"]

    def test_unspread_replica_set_is_counted(self) -> None:
        """The costs of a user delete two pods of zone a first."""
        nodes = [in_zone("a", "a-marked", "1"), in_zone("b", "b", "2")]
        pods = [replica(f"p{n}", "a-marked", spread()) for n in range(3)]
        pods += [replica(f"q{n}", "b", spread()) for n in range(3)]
        for number in (0, 1):
            pods[number] = replace(pods[number], deletion_cost=str(2 * COST_MIN + number))
        cluster = Cluster.of(nodes, pods)
        assert decide_costs(cluster, TAINT_KEY, TARGETS, enabled=True).unspread == 1
        spread_out = Cluster.of(nodes, [replace(one, deletion_cost=None) for one in pods])
        assert decide_costs(spread_out, TAINT_KEY, TARGETS, enabled=True).unspread == 0


PLACES: Final = ["a-marked", "a", "a", "a", "b", "b", "b", "b"]


def keyed(*constraints: SpreadConstraint) -> list[Pod]:
    return [replica(f"p{n}", at, *constraints) for n, at in enumerate(PLACES)]


@pytest.mark.parametrize(
    "pods",
    [
        pytest.param(keyed(), id="no constraint"),
        pytest.param(keyed(spread(HOST_LABEL)), id="over hostnames"),
        pytest.param(keyed(spread("unknown")), id="over a label of no node"),
        pytest.param(keyed(spread(max_skew=4)), id="never broken"),
        pytest.param(
            keyed(spread(selector=PodSelector(("d",), (Requirement("app", "In", ("api",)),)))),
            id="of other pods",
        ),
        pytest.param([replace(one, ready=False) for one in keyed(spread())], id="not Ready"),
        pytest.param([replace(one, owner_kind="Job") for one in keyed(spread())], id="of a Job"),
        pytest.param(
            [replace(one, disruption_facts=DisruptionFacts(gang="g")) for one in keyed(spread())],
            id="of a gang",
        ),
    ],
)
def test_costs_follow_nodes_alone_when_no_spread_can_break(pods: list[Pod]) -> None:
    plain = [replace(one, pod_constraints=PodConstraints()) for one in pods]
    wanted, found = (decided(Cluster.of(NODES, each)) for each in (plain, pods))
    assert [(one.key, one.annotations) for one in found] == [
        (one.key, one.annotations) for one in wanted
    ]


HALF, FEW = 0.5, 0.1
THEIRS: Final = (5, 0, -7, COST_MIN // 2, 10 * COST_MIN)
"""Costs that a user writes."""


class Case(NamedTuple):
    """A ReplicaSet in a cluster."""

    cluster: Cluster
    max_skew: int
    zones: dict[str, str]
    chance: random.Random


@st.composite
def replica_sets(draw: st.DrawFn, *, others: bool = False) -> Case:
    """Draw a ReplicaSet with one constraint over zones, of which Ebb gives some pod a cost.

    *others*: a user wrote some costs.
    """
    chance = random.Random(draw(st.integers(0, 2**32)))
    names = [
        f"{zone}-{kind}"
        for zone in "abcd"[: draw(st.integers(2, 4))]
        for kind in chance.sample(("marked", "next", "n", "o", "p"), chance.randint(1, 5))
    ]
    names.append("e-" + chance.choice(("marked", "next")))
    nodes = [in_zone(chance.choice("ab") if name[0] == "e" else name[0], name) for name in names]
    max_skew = chance.choice((1, 1, 1, 2, 3))
    constraints = [spread(max_skew=max_skew)]
    hard = constraints if chance.random() < HALF else []
    pods = [replica("first", names[-1], *hard, soft=[] if hard else constraints)]
    for number in range(draw(st.integers(0, 40))):
        made = replace(pods[0], name=f"p{number:02}", node=chance.choice(names))
        if others and chance.random() < FEW:
            made = replace(made, deletion_cost=str(chance.choice(THEIRS)))
        elif chance.random() < FEW:
            made = replace(made, ready=False)
        pods.append(made)
    zones = {one.name: one.labels[ZONE] for one in nodes}
    return Case(Cluster.of(nodes, pods), max_skew, zones, chance)


def follow(case: Case, cluster: Cluster, some: int) -> list[int]:
    """Delete *some* Ready pods as a scale-in does; check each step; return the skews."""
    found = [one for one in deletions(cluster.pods, case.chance) if one.ready]
    populated = {case.zones[one.node or ""] for one in found}
    for counted in (populated, set(case.zones.values())):
        values = skews(found, case.zones, counted)
        for before, after in pairwise(values[: some + 1]):
            assert after <= max(case.max_skew, before)
    return skews(found, case.zones, populated)


@settings(max_examples=examples(500))
@given(replica_sets(), st.integers(0, 40))
def test_scale_ins_never_raise_skew_above_limit(case: Case, some: int) -> None:
    after = applied(case.cluster, decided(case.cluster))
    values = follow(case, after, some)
    assert violations(values, case.max_skew, some) == 0
    left = [one for one in deletions(after.pods, case.chance) if one.ready][some:]
    rest = Cluster.of(after.nodes, left)
    # Ebb has not looked at the rest yet, and the next scale-in still finds it in order.
    assert decide_costs(rest, TAINT_KEY, TARGETS, enabled=True).unspread == 0
    follow(case, rest, len(left))


@settings(max_examples=examples(200))
@given(replica_sets(others=True))
def test_costs_are_in_bounds_and_those_of_users_stay(case: Case) -> None:
    writes = decided(case.cluster)
    for write in writes:
        assert write.before.deletion_cost is None
        assert COST_MIN <= int(write.annotations[COST_ANNOTATION] or 0) < 0
    after = applied(case.cluster, writes)
    assert decided(after) == [], "it is idempotent"


@settings(max_examples=examples(200))
@given(replica_sets(), st.data())
def test_scale_ins_keep_spread_when_pods_were_added(case: Case, data: st.DataObject) -> None:
    before = applied(case.cluster, decided(case.cluster))
    like = before.pods[0]
    places = st.sampled_from(sorted(case.zones))
    new = [
        replace(
            like,
            name=f"q{number}",
            node=data.draw(places),
            ready=True,
            deletion_cost=None,
            deletion_cost_ours=None,
        )
        for number in range(data.draw(st.integers(1, 10)))
    ]
    cluster = Cluster.of(before.nodes, (*before.pods, *new))
    writes = decided(cluster)
    after = applied(cluster, writes)
    values = follow(case, after, len(after.pods))
    assert violations(values, case.max_skew, len(after.pods)) == 0
    assert decided(after) == []


def test_pods_of_a_move_keep_their_costs() -> None:
    pods = keyed(spread())
    labels = {"app": "web", DETACHED_LABEL: "1"}
    moved = replace(
        pods[0], labels=labels, deletion_cost=str(MOVE_COST), deletion_cost_ours=str(MOVE_COST)
    )
    assert decided(Cluster.of(NODES, [moved, *pods[1:]])) == []


def test_replica_set_in_many_domains_is_left_out_and_counted() -> None:
    many = DOMAINS_MAX + 1
    nodes = [in_zone(f"z{number:03}", f"n-{number:03}") for number in range(many)]
    nodes[0] = marked(nodes[0], since=NOW)
    pods = [
        replica(f"p{n}-{number}", f"n-{number:03}", spread())
        for number in range(many)
        for n in "ab"
    ]
    found = decide_costs(Cluster.of(nodes, pods), TAINT_KEY, TARGETS, enabled=True)
    assert ({write.before.node for write in found.writes}, found.unspread) == ({"n-000"}, 1)


def test_costs_stay_until_the_leader_forgets_the_order() -> None:
    pods = keyed(spread())
    there = Cluster.of(NODES, pods)
    first = decide_costs(there, TAINT_KEY, TARGETS, enabled=True)
    unmarked = [node(one.name, labels={ZONE: one.name[0]}) for one in NODES]
    after = Cluster.of(unmarked, applied(there, first.writes).pods)
    kept = decide_costs(after, TAINT_KEY, {}, first.orders, enabled=True, keep_orders=True)
    assert kept.writes == ()
    for how in ({"enabled": True}, {"enabled": False, "keep_orders": True}):
        decision = decide_costs(after, TAINT_KEY, {}, kept.orders, **how)
        assert {one.key for one in decision.writes} == {one.key for one in first.writes}
        assert {one.kind for one in decision.writes} == {CostKind.REMOVE}


def test_decision_orders_few_replica_sets_and_the_next_one_goes_on() -> None:
    each = len(PLACES)
    many = ORDERED_MAX // each + 2
    pods = [
        replace(one, name=f"{one.name}-{number}", owner_name=f"web-{number}")
        for number in range(many)
        for one in keyed(spread())
    ]
    cluster = Cluster.of(NODES, pods)
    first = decide_costs(cluster, TAINT_KEY, TARGETS, enabled=True)
    second = decide_costs(cluster, TAINT_KEY, TARGETS, first.orders, enabled=True)
    assert (len(first.orders), len(second.orders)) == (many - 2, many)
    assert {one.key for one in first.writes} < {one.key for one in second.writes}


@settings(max_examples=examples(200))
@given(replica_sets(others=True), st.data())
def test_remembered_orders_do_not_change_the_decision(case: Case, data: st.DataObject) -> None:
    before = decide_costs(case.cluster, TAINT_KEY, TARGETS, enabled=True)
    after = applied(case.cluster, before.writes[: data.draw(st.integers(0, 20))])
    pods = [
        replace(one, ready=not one.ready) if data.draw(st.integers(0, 9)) == 0 else one
        for one in after.pods
    ]
    cluster = Cluster.of(after.nodes[data.draw(st.integers(0, 1)) :], pods)
    found = decide_costs(cluster, TAINT_KEY, TARGETS, before.orders, enabled=True)
    assert found == decide_costs(cluster, TAINT_KEY, TARGETS, enabled=True)


def test_orders_stay_when_decision_does_not_reorder() -> None:
    there = Cluster.of(NODES, keyed(spread()))
    first = decide_costs(there, TAINT_KEY, TARGETS, enabled=True)
    later = [*applied(there, first.writes).pods, replica("late", "a-marked", spread())]
    cluster = Cluster.of(NODES, later)
    same = decide_costs(cluster, TAINT_KEY, TARGETS, first.orders, enabled=True, reorder=False)
    assert (same.writes, same.orders) == ((), first.orders)
    then = decide_costs(cluster, TAINT_KEY, TARGETS, same.orders, enabled=True)
    assert "d/late" in {write.key for write in then.writes}
