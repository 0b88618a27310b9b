"""Policy NodeUtilization: unneeded nodes, pods that keep a node, and placement hints."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from core.config.document import parse
from core.config.settings import Config
from core.engine import reconcile
from core.engine.leader_state import LeaderState
from core.engine.placement_hints import PLACES_MAX, Hints, UnneededNodes
from core.engine.plan import Placement
from core.engine.planner import PLACE_TAKEN, Planner, PlanOptions
from core.engine.reconcile import ReconcileResult
from core.engine.snapshot import ClusterSnapshot
from core.marks.mark import Mark
from core.model.cluster import Cluster
from core.model.constraints import DisruptionFacts
from core.model.errors import ConfigError
from core.model.node import Node
from core.model.now import Now
from core.model.pod import Pod
from core.policies.ported.node_utilization import KEEPING_POD, UTILIZED
from tests.support.builders import UNLIMITED, marked, node, pod

pytestmark = pytest.mark.mutate

SAFE = "cluster-autoscaler.kubernetes.io/safe-to-evict"
VOLUMES = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"
DELAY = 600


def settings(**own: Any) -> Config:
    """Return the defaults of the policy with these changes, without limits."""
    document = {
        "apiVersion": "kube-ebb.io/v1alpha1",
        "kind": "EbbConfiguration",
        "policy": "NodeUtilization",
        "nodeUtilization": own,
    }
    return replace(parse(document, "test"), budgets=UNLIMITED)


def kept_nodes(cluster: Cluster, config: Config) -> dict[str, list[str]]:
    """Return the reasons of the nodes that are never removable."""
    found = reconcile.plan(cluster, config)
    return {one.node: [blocker.code for blocker in one.blockers] for one in found.kept}


# Underutilized nodes.


@pytest.mark.parametrize(
    ("cpu", "memory", "removed"),
    [
        (1999, 3999, True),
        (2000, 100, False),
        (100, 4000, False),
        (2000, 4000, False),
        (0, 0, True),
        (2001, 0, False),
    ],
)
def test_node_is_kept_when_exactly_at_limit(cpu: int, memory: int, removed: bool) -> None:
    cluster = Cluster.of(
        [node("a"), node("z")], [pod("p", "a", cpu, memory), pod("q", "z", 2000, 0)]
    )
    assert ("a" not in kept_nodes(cluster, settings())) is removed


def test_daemon_and_static_pods_count_but_need_no_place() -> None:
    daemon = pod("d", "a", 1900, 0, daemon=True)
    static = replace(pod("s", "a", 99, 0), mirror=True, owner_kind="Node", namespace="kube-system")
    full = pod("q", "z", 3999, 0)
    more = pod("p", "a", 1, 0)
    assert "a" not in kept_nodes(
        Cluster.of([node("a"), node("z")], [daemon, static, full]), settings()
    )
    kept = kept_nodes(Cluster.of([node("a"), node("z")], [daemon, static, full, more]), settings())
    assert kept["a"] == ["utilized"]


def test_node_is_fully_utilized_when_it_lacks_resource() -> None:
    cluster = Cluster.of([node("a", cpu=0), node("b", memory=0), node("z")], [])
    kept = kept_nodes(cluster, settings(utilization="100%"))
    assert (kept["a"], kept["b"]) == (["utilized"], ["utilized"])


def test_moved_pods_count_on_their_target_node() -> None:
    """Each node is at 40%; the second gets the pods of the first and is kept."""
    nodes = [node("a"), node("b")]
    cluster = Cluster.of(nodes, [pod("p", "a", 1600, 0), pod("q", "b", 1600, 0)])
    assert kept_nodes(cluster, settings()) == {"b": ["utilized", "no-room", "no-room"]}


def test_message_names_resources_over_limit() -> None:
    cluster = Cluster.of([node("a")], [pod("p", "a", 2000, 4001)])
    [kept] = reconcile.plan(cluster, settings()).kept
    assert kept.blockers[0].reason is UTILIZED
    assert (
        kept.blockers[0].message
        == "requests: cpu at 50% and memory at 50.1%, not under the limit of 50%"
    )


@pytest.mark.parametrize(
    ("cpu", "message"),
    [
        (5001, "requests: cpu at 50.01%, not under the limit of 50.01%"),
        (5002, "requests: cpu at 50.02%, not under the limit of 50.01%"),
        (7000, "requests: cpu at 70%, not under the limit of 50.01%"),
    ],
)
def test_message_has_as_many_decimals_as_limit(cpu: int, message: str) -> None:
    cluster = Cluster.of([node("a", cpu=10_000)], [pod("p", "a", cpu, 0)])
    [kept] = reconcile.plan(cluster, settings(utilization="50.01%")).kept
    assert kept.blockers[0].message == message


# Pods that keep a node.

PLAIN = pod("p", "a", 100, 100)
LOCAL = DisruptionFacts(local_volumes=("cache", "data"))


def noted(found: Pod, **notes: str) -> Pod:
    keys = {"evict": SAFE, "volumes": VOLUMES}
    disruption_facts = replace(
        found.disruption_facts, notes=tuple(sorted((keys[k], v) for k, v in notes.items()))
    )
    return replace(found, disruption_facts=disruption_facts)


TWO = (node("a"), node("z"))
BARE = replace(PLAIN, owner_kind="")
SYSTEM = replace(PLAIN, namespace="kube-system")
STORED = replace(PLAIN, disruption_facts=LOCAL)


@pytest.mark.parametrize(
    ("found", "own", "keeps"),
    [
        (PLAIN, {}, False),
        (replace(PLAIN, owner_kind="StatefulSet"), {}, False),
        (replace(PLAIN, owner_kind="Job"), {}, False),
        (replace(PLAIN, owner_kind="SomebodysOwn"), {}, False),
        (BARE, {}, True),
        (BARE, {"keepSystem": False, "keepLocalStorage": False}, True),
        (SYSTEM, {}, True),
        (SYSTEM, {"keepSystem": False}, False),
        (replace(PLAIN, priority=2_000_000_000), {}, False),
        (replace(SYSTEM, priority=2_000_000_000), {}, True),
        (replace(SYSTEM, owner_kind=""), {"keepSystem": False}, True),
        (replace(SYSTEM, owner_kind="DaemonSet", daemon=True), {}, False),
        (replace(SYSTEM, owner_kind="Node", mirror=True), {}, False),
        (STORED, {}, True),
        (STORED, {"keepLocalStorage": False}, False),
        (noted(STORED, volumes="cache"), {}, True),
        (noted(STORED, volumes="cache,data"), {}, False),
        (noted(STORED, volumes="cache, data"), {}, True),
        (replace(STORED, owner_kind="DaemonSet", daemon=True), {}, False),
        (noted(PLAIN, evict="false"), {}, True),
        (noted(PLAIN, evict="no"), {}, False),
        (noted(BARE, evict="true"), {}, False),
        (noted(SYSTEM, evict="true"), {}, False),
        (noted(STORED, evict="true"), {}, False),
        (noted(BARE, evict="on-completion"), {}, False),
        (replace(BARE, terminating=True), {}, False),
        (replace(BARE, priority=-11), {}, False),
        (replace(BARE, priority=-10), {}, True),
    ],
)
def test_pod_keeps_its_node(found: Pod, own: dict[str, Any], keeps: bool) -> None:
    cluster = Cluster.of([node("a"), node("z")], [found, pod("q", "z", 2500, 0)])
    assert kept_nodes(cluster, settings(**own)).get("a", []) == ["keeping-pod"] * keeps


def test_all_reasons_are_reported() -> None:
    pods = [replace(BARE, name="b"), SYSTEM, pod("c", "a", 2000, 0), pod("q", "z", 2500, 0)]
    kept = {
        one.node: one.blockers for one in reconcile.plan(Cluster.of(TWO, pods), settings()).kept
    }
    assert [(one.reason, one.pod) for one in kept["a"][:3]] == [
        (UTILIZED, None), (KEEPING_POD, "d/b"), (KEEPING_POD, "kube-system/p")
    ]  # fmt: skip
    assert kept["a"][1].message == "has no controller that would recreate it"


def test_explanation_reports_utilization() -> None:
    snapshot = ClusterSnapshot(Cluster.of(TWO, [pod("p", "a", 1000, 100)]), settings())
    assert Planner(snapshot).describe("a") == "cpu 25%, memory 1.3% requested, 1 pod to move"


def test_pending_pod_keeps_no_node() -> None:
    cluster = Cluster.of(
        [node("a"), node("z")], [replace(BARE, node=None), pod("q", "z", 3990, 0)]
    )
    assert "a" in kept_nodes(cluster, settings())  # the pod needs it
    assert kept_nodes(cluster, settings())["a"] == ["no-room"]


# Settings.


def test_defaults_equal_those_of_cluster_autoscaler() -> None:
    found = parse({"apiVersion": "kube-ebb.io/v1alpha1", "kind": "EbbConfiguration",
                   "policy": "NodeUtilization"}, "test")  # fmt: skip
    own = found.policies.node_utilization
    assert (own.utilization, found.hysteresis) == (Fraction(1, 2), Fraction(1, 20))
    assert (own.keep_system, own.keep_local_storage) == (True, True)
    assert found.unneeded_time_seconds == DELAY
    assert found.budgets.cooldown.delay_after_add_seconds == DELAY
    assert found.controller.interval_seconds == 10


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"utilization": "0%"}, "nodeUtilization.utilization"),
        ({"utilization": "101%"}, "nodeUtilization.utilization"),
        ({"utilization": 0.5}, "nodeUtilization.utilization"),
        ({"keepSystem": "no"}, "nodeUtilization.keepSystem"),
        ({"keepDaemons": True}, "nodeUtilization.keepDaemons"),
    ],
)
def test_invalid_setting_is_rejected_by_name(given: dict[str, Any], fault: str) -> None:
    with pytest.raises(ConfigError) as rejected:
        settings(**given)
    assert fault in str(rejected.value)


# Marked nodes.


@pytest.mark.parametrize(
    ("utilization", "hysteresis", "cpu", "removed"),
    [
        ("50%", 5, 2000, False),
        ("50%", 5, 2199, False),
        ("50%", 5, 2200, True),
        ("50%", 0, 1999, False),
        ("50%", 0, 2000, True),
        ("50%", 40, 3599, False),
        ("50%", 40, 3600, True),
        ("98%", 5, 3999, False),
        ("98%", 5, 4000, True),
    ],
)
def test_mark_is_removed_when_node_exceeds_limit_plus_hysteresis(
    utilization: str, hysteresis: int, cpu: int, removed: bool
) -> None:
    nodes = [marked(node("a"), Mark.PREFER_NO_SCHEDULE, since=1), node("z", cpu=8000)]
    cluster = Cluster.of(nodes, [pod("p", "a", cpu, 0), pod("q", "z", 4000, 0)])
    config = replace(settings(utilization=utilization), hysteresis=Fraction(hysteresis) / 100)
    assert bool(reconcile.plan(cluster, config).marked_infeasible) is removed


def test_mark_is_removed_when_pod_keeps_node() -> None:
    """Also for marks of other policies, under which such a pod may not keep a node."""
    nodes = [marked(node("a"), Mark.PREFER_NO_SCHEDULE, since=1), node("z")]
    cluster = Cluster.of(nodes, [BARE, pod("q", "z", 2500, 0)])
    assert reconcile.plan(cluster, settings()).marked_infeasible == ("a",)


# Placement hints.


def run_passes(
    config: Config, *shown: tuple[int, Cluster], memory: LeaderState | None = None
) -> list[ReconcileResult]:
    """Return a pass for each second and cluster, one after the other."""
    found: list[ReconcileResult] = []
    seen = memory or LeaderState()
    for now, cluster in shown:
        found.append(reconcile.reconcile(cluster, config, seen, now))
        seen = found[-1].state
    return found


def removed_nodes(one: ReconcileResult) -> list[str]:
    return [removal.node for removal in one.plan.removals]


def changed(
    cluster: Cluster, *pods: Pod, without: str = "", nodes: tuple[Node, ...] = ()
) -> Cluster:
    """Return the cluster with these pods and nodes instead of those of the same names."""
    kept = {one.name: one for one in (*cluster.nodes, *nodes) if one.name != without}
    there = {one.key: one for one in (*cluster.pods, *pods)}
    return Cluster.of(list(kept.values()), [one for one in there.values() if one.node != without])


def vector(free: int) -> Cluster:
    """Return nodes A (400m) and B (350m), whose pods fit X, and C (900m), whose pod fits Y.

    X has *free* millicores, Y 1000m. A is first in order, B second.
    """
    return Cluster.of(
        [node("a", cpu=8000), *(node(name) for name in ("b", "c", "x", "y"))],
        [
            pod("a", "a", 400, 0),
            pod("b", "b", 350, 0),
            pod("c", "c", 900, 0),
            pod("x", "x", 4000 - free, 0),
            pod("y", "y", 3000, 0),
        ],
    )


def places(one: ReconcileResult, name: str) -> dict[str, str]:
    return dict(one.state.hints.placements[name])


def test_node_restarts_unneeded_time_when_its_place_is_taken() -> None:
    made = vector(450)
    first, early, due = run_passes(settings(), (0, made), (DELAY, made), (DELAY + 1, made))
    assert first.state.candidates == {"a": 0, "b": 0, "c": 0}
    assert [places(first, name) for name in "abc"] == [{"d/a": "x"}, {"d/b": "x"}, {"d/c": "y"}]
    assert removed_nodes(early) == []
    assert removed_nodes(due) == ["a", "c"]
    _, why = next(one.blockers for one in due.plan.kept if one.node == "b")  # and: no room
    assert (why.reason, why.pod) == (PLACE_TAKEN, "d/b")
    assert why.message == "its place on node x is taken by another pod"

    marks = tuple(
        marked(one, Mark.PREFER_NO_SCHEDULE, 601) for one in made.nodes if one.name in "ac"
    )
    going = changed(made, nodes=marks)
    after, last = run_passes(settings(), (610, going), (611 + DELAY, going), memory=due.state)
    assert removed_nodes(after) == ["a", "c"]
    assert "b" not in after.state.candidates  # nothing is left of Y either
    assert removed_nodes(last) == ["a", "c"]


def test_node_whose_place_is_taken_finds_another_and_waits_again() -> None:
    made = vector(450)
    due = run_passes(settings(), (0, made), (DELAY + 1, made))[-1]
    smaller = changed(
        made, nodes=(marked(node("a", cpu=8000), Mark.PREFER_NO_SCHEDULE, 601),), without="c"
    )
    after, early, late = run_passes(
        settings(),
        (610, smaller),
        (610 + DELAY, smaller),
        (611 + DELAY, smaller),
        memory=due.state,
    )
    assert after.state.candidates == {"b": 610}
    assert places(after, "b") == {"d/b": "y"}
    assert [removed_nodes(one) for one in (after, early, late)] == [["a"], ["a"], ["a", "b"]]


def test_removal_limit_applies_to_marked_nodes() -> None:
    nodes = [
        marked(node(name), Mark.PREFER_NO_SCHEDULE, number) for number, name in enumerate("abc")
    ]
    cluster = Cluster.of([*nodes, node("z")], [pod("q", "z", 2000, 0)])
    assert len(reconcile.plan(cluster, settings(), PlanOptions(removals_max=2)).removals) == 2


def test_another_policy_forgets_placement_hints() -> None:
    made = vector(450)
    first = run_passes(settings(), (0, made))[0]
    other = replace(Config(), budgets=UNLIMITED)
    assert reconcile.reconcile(made, other, first.state, 60).state.hints == Hints()


def test_nodes_keep_unneeded_time_when_both_fit() -> None:
    made = vector(800)
    first, due = run_passes(settings(), (0, made), (DELAY + 1, made))
    assert [places(first, name) for name in "ab"] == [{"d/a": "x"}, {"d/b": "x"}]
    assert removed_nodes(due) == ["a", "b", "c"]
    with_a = changed(made, nodes=(marked(node("a", cpu=8000), Mark.PREFER_NO_SCHEDULE, 601),))
    after = run_passes(settings(), (610, with_a), memory=due.state)[0]
    assert after.state.candidates == {"b": 0, "c": 0}


def test_unneeded_time_restarts_when_node_of_place_is_deleted() -> None:
    made = vector(450)
    smaller = changed(made, without="x")
    seen = run_passes(settings(), (0, made), (60, smaller))[-1]
    assert seen.state.candidates == {"a": 60, "b": 60, "c": 0}


def test_unneeded_time_restarts_when_pods_of_deleted_node_occupy_place() -> None:
    made = vector(450)
    moved = changed(made, pod("a", "x", 400, 0))
    smaller = replace(moved, nodes=tuple(one for one in moved.nodes if one.name != "a"))
    assert run_passes(settings(), (0, made), (60, smaller))[-1].state.candidates == {
        "b": 60,
        "c": 0,
    }


def test_place_is_replaced_without_restart_when_new_pod_takes_it() -> None:
    """The pods of the node always fitted elsewhere, and no node was removed."""
    made = vector(450)
    fuller = changed(made, pod("new", "x", 200, 0))
    seen = run_passes(settings(), (0, made), (60, fuller))[-1]
    assert seen.state.candidates == {"a": 0, "b": 0, "c": 0}
    assert places(seen, "b") == {"d/b": "y"}


def test_valid_place_is_retained_when_another_would_be_better() -> None:
    made = vector(450)
    roomier = changed(made, pod("x", "x", 3000, 0), pod("y", "y", 3500, 0))
    seen = run_passes(settings(), (0, made), (60, roomier))[-1]
    assert places(seen, "b") == {"d/b": "x"}
    assert places(run_passes(settings(), (60, roomier))[0], "b") == {"d/b": "y"}


def test_new_pod_of_node_gets_place_without_restart() -> None:
    made = vector(450)
    with_more = changed(made, pod("more", "b", 200, 0))
    seen = run_passes(settings(), (0, made), (60, with_more))[-1]
    assert seen.state.candidates == {"a": 0, "b": 0, "c": 0}
    assert places(seen, "b") == {"d/b": "x", "d/more": "y"}


def test_pods_are_placed_again_when_known_place_takes_room_of_new_pod() -> None:
    """The new pod fits on x alone, and the old pod, known to go to x, fits on y as well."""
    nodes = [node("a"), node("x"), node("y")]
    made = Cluster.of(
        nodes, [pod("old", "a", 500, 0), pod("x", "x", 2600, 0), pod("y", "y", 3900, 0)]
    )
    later = changed(made, pod("new", "a", 1000, 0), pod("y", "y", 3200, 0))
    seen = run_passes(settings(), (0, made), (60, later))
    assert places(seen[0], "a") == {"d/old": "x"}
    assert places(seen[1], "a") == {"d/new": "x", "d/old": "y"}
    assert seen[1].state.candidates == {"a": 0}


def test_pod_avoids_room_of_others_unless_no_other_room_exists() -> None:
    """X has 450m for A or B; the pod of D (200m) uses Y, and X only if Y is full."""
    made = changed(vector(450), pod("d", "d", 200, 0), nodes=(node("d"),))
    roomy = changed(made, pod("y", "y", 2800, 0))
    found = run_passes(settings(), (0, roomy))[0]
    assert [places(found, name) for name in "abcd"] == [
        {"d/a": "x"}, {"d/b": "x"}, {"d/c": "y"}, {"d/d": "y"}
    ]  # fmt: skip
    fuller = changed(roomy, pod("d", "d", 420, 0))  # than A and B, which are first only by name
    found = run_passes(settings(), (0, fuller))[0]
    assert [places(found, name) for name in "abd"] == [{"d/a": "x"}, {"d/b": "x"}, {"d/d": "y"}]
    full = changed(made, pod("y", "y", 4000, 0), without="c")
    unusable = tuple(replace(one, unschedulable=True) for one in full.nodes if one.name in "abd")
    found = run_passes(settings(), (0, changed(full, nodes=unusable)))[0]
    assert [places(found, name) for name in "abd"] == [{"d/a": "x"}, {"d/b": "x"}, {"d/d": "x"}]


def test_other_nodes_avoid_retained_places() -> None:
    """A and B have places on X; the pod of the new node, first by name, avoids them."""
    made = vector(450)
    first = run_passes(settings(), (0, made))[0]
    with_more = changed(made, pod("d", "0", 300, 0), nodes=(node("0"),))
    assert places(run_passes(settings(), (60, with_more))[0], "0") == {"d/d": "x"}
    later = run_passes(settings(), (60, with_more), memory=first.state)[0]
    assert [places(later, name) for name in "0ab"] == [{"d/d": "y"}, {"d/a": "x"}, {"d/b": "x"}]


def test_unneeded_time_is_retained_when_pass_runs_out_of_time() -> None:
    made = vector(450)
    first = run_passes(settings(), (0, made))[0]
    with_a = changed(
        made, nodes=(marked(node("a", cpu=8000), Mark.PREFER_NO_SCHEDULE, 30),), without="c"
    )
    late = reconcile.reconcile(with_a, settings(), first.state, 60, in_time=lambda: False)
    assert late.state.candidates == {"b": 0}
    assert places(late, "b") == {"d/b": "x"}
    assert run_passes(settings(), (70, with_a), memory=late.state)[0].state.candidates == {"b": 70}


@pytest.mark.parametrize("times", range(9))
def test_no_unneeded_time_is_lost_wherever_pass_runs_out_of_time(times: int) -> None:
    """A and B still have places, C has lost its place, D has none yet."""
    made = vector(800)
    first = run_passes(settings(), (0, made))[0]
    other = changed(made, pod("y", "y", 3900, 0), pod("d", "d", 100, 0), nodes=(node("d"),))
    left = iter(range(times))
    late = reconcile.reconcile(
        other, settings(), first.state, 60, in_time=lambda: next(left, None) is not None
    )
    kept = {name: at for name, at in late.state.candidates.items() if name != "d"}
    assert kept == {"a": 0, "b": 0, "c": 0}
    assert late.requeue_at == 60 or late.plan.complete
    again = run_passes(settings(), (70, other), memory=late.state)[0]
    assert {name: again.state.candidates[name] for name in "abc"} == kept


def test_number_of_placement_hints_is_bounded() -> None:
    made = vector(450)
    listing = UnneededNodes(Hints(), {}, ClusterSnapshot(made, settings()), Now(0))
    assert listing.remember("a", (Placement("d/a", "x"),) * PLACES_MAX)
    assert not listing.remember("b", (Placement("d/b", "x"),))
    assert listing.remember("a", ())
    assert listing.remember("b", (Placement("d/b", "x"),))
    assert listing.hints().placements.keys() == {"a", "b"}


def test_node_is_no_candidate_when_its_pods_do_not_fit() -> None:
    made = Cluster.of([node("a"), node("z")], [pod("a", "a", 400, 0), pod("z", "z", 3700, 0)])
    assert run_passes(settings(), (0, made))[0].state.candidates == {}


def test_unneeded_time_restarts_after_interruption() -> None:
    made = vector(800)
    used = changed(made, pod("more", "a", 3600, 0))
    seen = run_passes(settings(), (0, made), (60, used), (120, made))
    assert [one.state.candidates.get("a") for one in seen] == [0, None, 120]


@pytest.mark.parametrize(
    "unusable",
    [
        node("x", unschedulable=True),
        node("x", ready=False),
        replace(node("x"), deleting=True),
        replace(node("x"), virtual=True),
        marked(node("x", cpu=40_000), Mark.PREFER_NO_SCHEDULE, since=1),
    ],
)
def test_unschedulable_node_is_no_place(unusable: Node) -> None:
    made = changed(vector(450), nodes=(unusable,))
    found = run_passes(settings(), (0, made))[0].state.hints.placements
    assert not any(place.node == "x" for name in "abc" for place in found.get(name, ()))


def test_unneeded_time_restarts_when_policy_changes() -> None:
    made, plain = vector(800), Config(budgets=UNLIMITED)
    seen = run_passes(plain, (0, made), (1, made))[-1]
    assert set(seen.state.candidates.values()) == {0}
    under_this = run_passes(settings(), (601, made), (602, made), memory=seen.state)[-1]
    assert under_this.state.candidates == {"a": 601, "b": 601, "c": 601}
    back = run_passes(plain, (700, made), memory=under_this.state)[0]
    assert set(back.state.candidates.values()) == {700}
    assert not back.plan.removals


def test_plan_without_state_ignores_placement_hints() -> None:
    assert [one.node for one in reconcile.plan(vector(450), settings()).removals] == ["a", "b"]


def test_other_policies_remember_no_places() -> None:
    seen = run_passes(Config(budgets=UNLIMITED), (0, vector(450)), (60, vector(450)))
    assert all(
        not one.state.hints.placements and not one.state.hints.unmarked_nodes for one in seen
    )
