"""Thresholds hold in every reach: small clusters, one for each guarantee."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from core.config.prices import Price
from core.config.settings import Config, UsabilityMode
from core.config.thresholds import Thresholds
from core.engine import reconcile
from core.engine.leader_state import LeaderState
from core.engine.plan import Plan
from core.engine.planner import PlanOptions
from core.engine.snapshot import ClusterSnapshot
from core.marks.mark import Mark
from core.marks.wellknown import KEEP_ANNOTATION
from core.model.cluster import Cluster
from core.model.constraints import (
    NodeConstraints,
    PodAffinityTerm,
    PodConstraints,
    Requirement,
    SelectorTerm,
    Toleration,
)
from core.model.node import Node, Taint
from core.model.now import Now
from core.model.pod import Pod
from core.placement.usable_capacity import Amount
from tests.support.builders import (
    MB,
    UNLIMITED,
    config,
    marked,
    node,
    pod,
    select,
    thesis_cluster,
    thesis_config,
)
from tests.support.compare import by_the_engine, plainly
from tests.support.reference import Reference
from tests.support.reference_fit import ZONE

pytestmark = pytest.mark.mutate

CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
GPU = Taint("gpu", "true", "NoSchedule")
TOLERATES_GPU = NodeConstraints(
    node_selector=(("pool", "gpu"),), tolerations=(Toleration("gpu", "Exists"),)
)


def make_plan(cluster: Cluster, settings: Config) -> Plan:
    """Return the plan of the engine; the plain plan must agree."""
    plan = reconcile.plan(cluster, settings)
    assert by_the_engine(plan) == plainly(cluster, Reference(cluster, settings).run())
    return plan


def removed_nodes(plan: Plan) -> list[str]:
    return [removal.node for removal in plan.removals]


def percent(plan: Plan, reach: str) -> tuple[int, int]:
    """Return requested CPU of the reach, before and after, in percent, rounded up."""
    (found,) = [one for one in plan.reaches if one.name == reach]
    sums = (
        (one.requests.cpu_millis, one.capacity.cpu_millis) for one in (found.before, found.after)
    )
    before, after = (-(-settings * 100 // whole) for settings, whole in sums)
    return before, after


def loaded(name: str, millis: int, cpu: int = 4000, **how: object) -> tuple[Node, list[Pod]]:
    """Return a node and pods of 250m that request *millis* of it."""
    constraints: Any = how.pop("node_constraints", NodeConstraints())
    pods = [
        pod(f"{name}-{n}", name, 250, 100, node_constraints=constraints)
        for n in range(millis // 250)
    ]
    return node(name, cpu, 64_000, **how), pods  # type: ignore[arg-type]


def cluster_of(*parts: tuple[Node, list[Pod]]) -> Cluster:
    return Cluster.of([one for one, _ in parts], [pod for _, pods in parts for pod in pods])


def devices(count: int, **how: object) -> list[tuple[Node, list[Pod]]]:
    """Return idle tainted nodes, and one pod that tolerates the taint."""
    parts = [
        loaded(f"gpu{n}", 0, 64_000, taints=(GPU,), labels={"pool": "gpu"}, **how)
        for n in range(count)
    ]
    trainer = pod("trainer", "gpu0", 1000, 1000, node_constraints=TOLERATES_GPU)
    return [(parts[0][0], [trainer]), *parts[1:]]


# Sums.


def test_idle_control_plane_nodes_give_no_room_to_workers() -> None:
    """Ten workers at 68.75 % beside three idle nodes; over all of them it would be 38.8 %."""
    masters = [
        loaded(f"m{n}", 0, 10_300, labels={CONTROL_PLANE: ""},
               taints=(Taint(CONTROL_PLANE, "", "NoSchedule"),))
        for n in range(3)
    ]  # fmt: skip
    workers = [loaded(f"w{n}", 2750) for n in range(10)]
    plan = make_plan(cluster_of(*workers, *masters), config("0.8"))
    assert len(removed_nodes(plan)) == 1
    assert percent(plan, "general") == (69, 77)
    assert (plan.before.nodes, plan.after.nodes) == (10, 9)


@pytest.mark.parametrize("tainted", [True, False])
def test_virtual_node_does_not_change_plan(*, tainted: bool) -> None:
    workers = [loaded(f"w{n}", 2750) for n in range(10)]
    taints = (Taint("virtual-kubelet.io/provider", "azure", "NoSchedule"),) if tainted else ()
    fake, _ = loaded("v", 0, 10_000_000, taints=taints)
    inside = pod("inside", "v", 500_000, 1000)
    alone = make_plan(cluster_of(*workers), config("0.8"))
    together = make_plan(
        cluster_of(*workers, (replace(fake, virtual=True), [inside])), config("0.8")
    )
    assert together.removals == alone.removals
    assert (together.before, together.after) == (alone.before, alone.after)
    assert together.reaches == alone.reaches
    (kept,) = [one for one in together.kept if one.node == "v"]
    assert [one.code for one in kept.blockers] == ["virtual-node"]


def test_idle_pool_does_not_change_threshold_and_headroom_of_general_pool() -> None:
    """27.5 of 40 cores: one node is removable, to 76.4 %; three would leave 27.5 of 28."""
    workers = [loaded(f"w{n}", 2750) for n in range(10)]
    plan = make_plan(cluster_of(*workers, *devices(4)), config("0.8", headroom=1))
    assert len([name for name in removed_nodes(plan) if name.startswith("w")]) == 1
    assert percent(plan, "general") == (69, 77)
    # Room for one more pod is kept among the others too, but they are idle.
    assert (
        {"gpu1", "gpu2", "gpu3"}
        >= {n for n in removed_nodes(plan) if n.startswith("gpu")}
        != set()
    )


def test_reach_of_one_node_has_no_threshold_but_its_node_counts() -> None:
    """A pod whose selector matches one node keeps that node, however full, and no other."""
    bound = NodeConstraints(node_selector=(("host", "w0"),))
    full = loaded("w0", 3750, node_constraints=bound, labels={"host": "w0"})
    rest = [loaded(f"w{n}", 1000) for n in range(1, 5)]
    plan = make_plan(cluster_of(full, *rest), config("0.8"))
    # 7.75 of 20 cores: three nodes would be below 80 %, but w0 uses 3.75 of its four.
    assert "w0" not in removed_nodes(plan)
    assert plan.before.requests.cpu_millis == 7750
    assert [one.name for one in plan.reaches] == ["general"]
    assert len(removed_nodes(plan)) == 2


def test_cordoned_and_unready_nodes_give_no_room_but_their_pods_count() -> None:
    unusable = [loaded("c0", 1000, unschedulable=True), loaded("c1", 1000, ready=False)]
    plan = make_plan(
        cluster_of(*unusable, *(loaded(f"w{n}", 1000) for n in range(3))), config("0.6")
    )
    # Five cores are requested of the twelve of schedulable nodes: 42 %, or 63 % of eight.
    assert removed_nodes(plan) == []
    assert percent(plan, "general") == (42, 42)


def test_full_reach_does_not_block_other_reaches() -> None:
    """The batch reach is at 94 % and has no room; general nodes are removable."""
    batch = NodeConstraints(node_selector=(("pool", "batch"),))
    full = [
        loaded(f"b{n}", 3750, 3999, node_constraints=batch, labels={"pool": "batch"})
        for n in range(2)
    ]
    rest = [loaded(f"w{n}", 500) for n in range(4)]
    plan = make_plan(cluster_of(*full, *rest), config("0.8"))
    assert len(removed_nodes(plan)) == 3
    assert {name[0] for name in removed_nodes(plan)} == {"w"}
    (found,) = [one for one in plan.reaches if one.name == "pool=batch"]
    assert found.after == found.before


def test_pods_avoid_full_reach_when_they_have_choice() -> None:
    """Plain first fit would place the general pods on the fuller batch nodes, at 87.5 %."""
    batch = NodeConstraints(node_selector=(("pool", "batch"),))
    full = [
        loaded(f"b{n}", 3500, node_constraints=batch, labels={"pool": "batch"}) for n in range(2)
    ]
    rest = [loaded(f"w{n}", 500) for n in range(4)]
    plan = make_plan(cluster_of(*full, *rest), config("0.8"))
    assert {name[0] for name in removed_nodes(plan)} == {"w"}
    (found,) = [one for one in plan.reaches if one.name == "pool=batch"]
    assert found.after == found.before


def test_node_is_kept_when_its_pods_fit_only_full_reach() -> None:
    """The other general nodes are idle but have no pod slots, so only batch nodes have room."""
    batch = NodeConstraints(node_selector=(("pool", "batch"),))
    full = [
        loaded(f"b{n}", 3500, node_constraints=batch, labels={"pool": "batch"}) for n in range(2)
    ]
    keep = {KEEP_ANNOTATION: "true"}
    idle = [loaded(f"i{n}", 250, pods=1, annotations=keep) for n in range(4)]
    plan = make_plan(cluster_of(*full, *idle, loaded("w0", 500)), config("0.8"))
    assert removed_nodes(plan) == []
    (why,) = [b for k in plan.kept if k.node == "w0" for b in k.blockers]
    assert why.code == "reach-threshold"
    assert why.message == "without the node, reach pool=batch would have cpu at 93.8%, over 80%"


def test_zone_balance_ignores_zones_of_another_pool() -> None:
    """Four GPU nodes in zone c do not keep the workers of zones a and b."""
    general = [loaded(f"w{n}", 500, labels={ZONE: "ab"[n % 2]}) for n in range(4)]
    far = [
        (replace(one, labels={**one.labels, ZONE: "c"}, annotations={KEEP_ANNOTATION: "true"}), p)
        for one, p in devices(4)
    ]
    budgets = replace(UNLIMITED, balance_zones=True)
    plan = make_plan(cluster_of(*general, *far), replace(config("0.8"), budgets=budgets))
    assert len([name for name in removed_nodes(plan) if name.startswith("w")]) == 3


# Regressions.


def test_one_node_of_chapter_3_is_removed_with_headroom() -> None:
    plan = make_plan(
        thesis_cluster(), replace(thesis_config(), budgets=replace(UNLIMITED, headroom=1))
    )
    (removed,) = removed_nodes(plan)
    assert removed != "4", "its pod admits no other node"
    assert plan.after.requests == Amount(7200, 12_000 * MB)
    assert plan.after.capacity == Amount(12_000, 24_000 * MB)


def test_pods_of_leaving_node_count_in_sums() -> None:
    """With the 3,900m of a leaving node, 8,400m are requested of 12,000m, or of 8,000m."""
    dying = Taint("ToBeDeletedByClusterAutoscaler", "1", "NoSchedule")
    parts = [(node(f"w{n}"), [pod(f"p{n}", f"w{n}", 1500, 100)]) for n in range(3)]
    parts.append((node("dying", taints=(dying,)), [pod("large", "dying", 3900, 100)]))
    whole = cluster_of(*parts)
    plan = make_plan(whole, config("0.7"))
    assert removed_nodes(plan) == []
    assert plan.before.requests.cpu_millis == 8400
    assert plan.before.capacity.cpu_millis == 12_000
    messages = [b.message for kept in plan.kept for b in kept.blockers if b.code == "threshold"]
    assert len(messages) == 3
    assert all("105%" in message for message in messages)
    assert reconcile.reconcile(whole, config("0.7"), LeaderState(), 0).state.candidates == {}


def test_pod_without_place_still_repels_pods_on_its_leaving_node() -> None:
    """Until the node is deleted, its zone is closed to pods that the pod repels."""
    dying = Taint("karpenter.sh/disrupted", "", "NoSchedule")
    aloof = PodConstraints(apart=(PodAffinityTerm(select("b"), ZONE),))
    whole = Cluster.of(
        [
            node("dying", taints=(dying,), labels={ZONE: "z", "host": "dying"}),
            node("near", labels={ZONE: "z"}, annotations={KEEP_ANNOTATION: "true"}),
            node("far", labels={ZONE: "y"}),
        ],
        [
            pod(
                "aloof", "dying", 100, 100, pod_constraints=aloof, node_constraints=one_of("dying")
            ),
            pod("resident", "near", 500, 100, daemon=True),
            pod("other", "far", 500, 100, labels={"app": "b"}),
        ],
    )
    assert removed_nodes(make_plan(whole, config("1"))) == []


def test_most_expensive_removable_node_is_next_after_each_removal() -> None:
    """X is removable only after D's pod has moved to T: X follows D, before the cheaper Y."""
    friend = PodConstraints(near=(PodAffinityTerm(select("friend"), "rack"),))
    labels = {"app": "friend"}
    whole = Cluster.of(
        [
            node("X", 2000, labels={"rack": "x", "price": "9"}),
            node("D", 4000, labels={"rack": "d", "price": "7"}),
            node("Y", 2000, labels={"rack": "y", "price": "5"}),
            node("T", 16_000, labels={"rack": "t"}, annotations={KEEP_ANNOTATION: "true"}),
        ],
        [
            pod("follower", "X", 1000, 100, pod_constraints=friend),
            pod("friend", "D", 3500, 100, labels=labels),
            pod("other", "Y", 500, 100),
        ],
    )
    prices = tuple(Price(node_selector=(("price", p),), price=Fraction(p)) for p in "975")
    assert removed_nodes(make_plan(whole, config("1", prices=prices))) == ["D", "X", "Y"]


def test_value_just_over_its_limit_is_not_printed_as_limit() -> None:
    """50 % over 49.99 %."""
    whole = Cluster.of([node(f"w{n}") for n in range(3)], [pod("p", "w0", 4000, 1)])
    odd = Thresholds(cpu=Fraction(4999, 10_000), memory=Fraction(1))
    plan = make_plan(whole, replace(config("0.8"), thresholds=odd))
    messages = [b.message for kept in plan.kept for b in kept.blockers if ", over " in b.message]
    assert messages
    for message in messages:
        value, limit = message.split(" at ")[1].split(", over ")[:2]
        assert value != limit


# Usability, headroom, peaks.


@pytest.mark.parametrize("others", [2, 19, 20, 49])
def test_one_tiny_pod_does_not_set_minimum_usable_size(others: int) -> None:
    """`auto` uses the 5th percentile, or the second smallest pod: 450m of 500m, not 9m."""
    pods = [pod(f"p{n:02}", f"w{n % 10}", 500, 500) for n in range(others)]
    whole = Cluster.of([node(f"w{n}") for n in range(10)], [*pods, pod("tiny", "w0", 10, 10)])
    settings = replace(config("0.8"), usable_capacity=UsabilityMode.AUTO)
    (found,) = make_plan(whole, settings).reaches
    assert found.usability is not None
    assert found.usability.min_cpu_millis == 450
    (mutated,) = Reference(whole, settings, "the one smallest pod").run().reaches
    assert mutated.usability is not None
    assert mutated.usability.least[0] == 9


def test_smaller_of_two_pods_sets_minimum_usable_size() -> None:
    two = [pod("large", "w0", 500, 500), pod("tiny", "w0", 10, 10)]
    whole = Cluster.of([node("w0"), node("w1")], two)
    (found,) = make_plan(whole, replace(config("0.8"), usable_capacity=UsabilityMode.AUTO)).reaches
    assert found.usability is not None
    assert found.usability.min_cpu_millis == 9


def test_headroom_is_kept_per_reach_and_is_no_load() -> None:
    batch = NodeConstraints(node_selector=(("pool", "batch"),))
    parts = [loaded(f"b{n}", 0, labels={"pool": "batch"}) for n in range(2)]
    parts += [loaded(f"w{n}", 0) for n in range(2)]
    small, tiny, large = (
        pod("small", "w0", 500, 100),
        pod("tiny", "b1", 0, 100, node_constraints=batch),
        pod("large", "b0", 3000, 100, node_constraints=batch),
    )
    whole = Cluster.of([one for one, _ in parts], [small, tiny, large])
    plan = make_plan(whole, config("1", headroom=1))
    # 3,000m more must fit on a batch node beside the 3,000m, so neither is removable.
    assert {name for name in removed_nodes(plan) if name.startswith("b")} == set()
    assert plan.before.requests.cpu_millis == 3500
    codes = {k.node: [b.code for b in k.blockers] for k in plan.kept}
    assert "headroom" in codes["b1"]


def test_reaches_with_equal_text_are_different() -> None:
    """Otherwise pods of one reach would set usable capacity and peaks of the other."""
    not_n0 = (Requirement("metadata.name", "NotIn", ("n0",)),)
    by_name, by_label = SelectorTerm((), not_n0), SelectorTerm(not_n0)
    nodes = [node(f"n{n}", labels={"metadata.name": f"n{n // 4}"}) for n in range(6)]
    pods = [
        pod("one", "n1", 1000, 1000, node_constraints=NodeConstraints(affinity=(by_name,))),
        pod("other", "n5", 10, 10, node_constraints=NodeConstraints(affinity=(by_label,))),
        pod("any", "n2", 500, 500),
    ]
    settings = replace(config("0.8"), usable_capacity=UsabilityMode.AUTO)
    plan = make_plan(Cluster.of(nodes, pods), settings)
    assert [one.before.nodes for one in plan.reaches] == [6, 5, 2]
    assert len({one.key for one in plan.reaches}) == 3
    assert len({one.usability for one in plan.reaches}) == 3


# Too many reaches.


def test_many_reaches_of_one_namespace_displace_none_of_another() -> None:
    """300 pods select two nodes each; one pod of another namespace selects none."""
    nodes = [node(f"n{n:03}", labels={"host": f"n{n:03}"}) for n in range(301)]
    pods = [
        pod(f"p{n:03}", f"n{n:03}", 100, 100, node_constraints=one_of(f"n{n:03}", f"n{n + 1:03}"))
        for n in range(300)
    ]
    whole = Cluster.of(nodes, [*pods, pod("calm", "n000", 100, 100, namespace="calm")])
    plan = reconcile.plan(whole, config("0.8"), PlanOptions(due=frozenset()))
    plain = Reference(whole, config("0.8"), due=frozenset()).run()
    assert len(plan.reaches) == len(plain.reaches) == 256
    assert max(one.before.nodes for one in plan.reaches) == 301
    found = [
        blocker
        for kept in plan.kept
        for blocker in kept.blockers
        if blocker.code == "asks-too-much"
    ]
    message = "its reach (the nodes it can use) is not among the 256 reaches that Ebb tracks"
    assert {one.message for one in found} == {message}
    too_much = [one.pod for one in found]
    assert len(set(too_much)) == len(too_much) == 300 - 255
    assert "calm/calm" not in too_much
    moving = {
        one.key for members in ClusterSnapshot(whole, config("0.8")).movable for one in members
    }
    assert moving == {one.key for one in whole.pods} - set(too_much)


def test_pending_pod_of_untracked_reach_blocks_no_schedule() -> None:
    """No place is searched for such a pod, so it counts as stuck."""
    nodes = [node(f"n{n:03}", labels={"host": f"n{n:03}"}) for n in range(301)]
    first, *others, last = nodes
    pods = [
        replace(
            pod(f"p{n:03}", None, 100, 100, node_constraints=one_of(f"n{n:03}", f"n{n + 1:03}")),
            unschedulable=True,
        )
        for n in range(300)
    ]
    marks = [marked(first, Mark.PREFER_NO_SCHEDULE, 1), marked(last, Mark.PREFER_NO_SCHEDULE, 1)]
    snapshot = ClusterSnapshot(Cluster.of([*others, *marks], pods), config("0.8"))
    found = reconcile.no_schedule_blockers(snapshot, {}, Now(1000))
    assert {name: [one.code for one in why] for name, why in found.items()} == {
        "n000": [],
        "n300": ["no-schedule-waiting"],
    }


def one_of(*hosts: str) -> NodeConstraints:
    return NodeConstraints(affinity=(SelectorTerm((Requirement("host", "In", hosts),)),))
