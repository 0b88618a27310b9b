"""The simulated autoscaler behaves as Cluster Autoscaler was observed to behave."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import strategies as st

from core.marks.wellknown import SCALE_DOWN_DISABLED_ANNOTATION
from core.model.constraints import DisruptionFacts, NodeConstraints
from core.model.node import Effect, Node, Taint
from core.model.pod import Pod
from core.model.resources import Resources
from sim.autoscaler import (
    CANDIDATE,
    CANDIDATE_TAINTS_A_SCAN_MAX,
    DELETE_DELAY_MS,
    REACTION_MS,
    RECHECK_MS,
    SCAN_MS,
    STARTUP_MS,
    TO_BE_DELETED,
    UNNEEDED_MS,
    Autoscaler,
    ScaleDown,
    Timers,
    is_underutilized,
)
from sim.cluster import DAEMON_REQUESTS, ClusterState
from sim.simulated_load import amount
from tests.support.builders import node, pod, thesis_cluster

SHAPES = [amount(4000, 8192, 0, 110), amount(16_000, 16_384, 1000, 110)]


class Hands:
    """A simulator in which nothing happens unless the test does it."""

    def __init__(self, *nodes: Node) -> None:
        self.state = ClusterState()
        self.clock = 0
        self.later: list[tuple[int, Callable[[], None]]] = []
        for one in nodes:
            self.state.add_node(one, 0)

    def now_ms(self) -> int:
        return self.clock

    def write(self, node: Node) -> None:
        self.state.replace_node(node)

    def evict(self, pod: Pod) -> None:
        self.state.evict(pod.key, self.clock)

    def end_node(self, name: str) -> None:
        self.state.remove_node(name)

    def template(self, shape: Resources) -> Node:
        return Node(name="", allocatable=shape)

    def new_node(self, shape: Resources) -> str:
        name = f"new-{len(self.state.places)}"
        self.state.add_node(Node(name=name, allocatable=shape, ready=False), self.clock)
        return name

    def ready_node(self, name: str) -> None:
        self.state.replace_node(replace(self.state.places[name].node, ready=True))

    def after(self, delay_ms: int, act: Callable[[], None]) -> None:
        self.later.append((self.clock + delay_ms, act))

    def play(self, scaler: Autoscaler, until_ms: int) -> None:
        while self.clock < until_ms:
            self.clock += SCAN_MS // 2
            due = [entry for entry in self.later if entry[0] <= self.clock]
            self.later = [entry for entry in self.later if entry[0] > self.clock]
            for _, act in due:
                act()
            if self.clock % SCAN_MS == 0:
                scaler.scan()


def hands(how: ScaleDown, *nodes: Node) -> tuple[Hands, Autoscaler]:
    world = Hands(*nodes)
    return world, Autoscaler(world, how, SHAPES, seed=1)


def test_empty_node_is_removed_after_unneeded_time() -> None:
    world, scaler = hands(ScaleDown.EMPTY, node("a"))
    world.play(scaler, SCAN_MS + UNNEEDED_MS - SCAN_MS)
    assert not any(t.key == TO_BE_DELETED for t in world.state.places["a"].node.taints)
    world.play(scaler, SCAN_MS + UNNEEDED_MS)
    assert any(t.key == TO_BE_DELETED for t in world.state.places["a"].node.taints)
    world.play(scaler, SCAN_MS + UNNEEDED_MS + DELETE_DELAY_MS)
    assert "a" not in world.state.places


def test_unneeded_time_starts_when_protection_is_removed() -> None:
    world, scaler = hands(
        ScaleDown.EMPTY, node("a", annotations={SCALE_DOWN_DISABLED_ANNOTATION: "true"})
    )
    world.play(scaler, 3 * UNNEEDED_MS)
    assert "a" in world.state.places
    world.write(replace(world.state.places["a"].node, annotations={}))
    world.play(scaler, 4 * UNNEEDED_MS)
    assert "a" in world.state.places
    world.play(scaler, 4 * UNNEEDED_MS + 2 * SCAN_MS)
    assert "a" not in world.state.places


def test_removal_is_cancelled_when_pod_is_bound_in_last_seconds() -> None:
    world, scaler = hands(ScaleDown.EMPTY, node("a"))
    world.play(scaler, SCAN_MS + UNNEEDED_MS)
    run(world, "late", "a", 100)
    world.play(scaler, SCAN_MS + UNNEEDED_MS + SCAN_MS)
    assert world.state.places["a"].node.taints == ()


def test_underutilized_node_is_drained_only_when_its_pods_fit_elsewhere() -> None:
    for others, evicted in (([node("b")], True), ([], False)):
        world, scaler = hands(ScaleDown.UTILIZATION, node("a"), *others)
        for name, on in (("p", "a"), *((f"q{n}", "b") for n in range(2) if others)):
            run(world, name, on, 1000)
        world.play(scaler, UNNEEDED_MS + 2 * SCAN_MS)
        assert ("d/p" in world.state.pending) == evicted
        assert ("a" not in world.state.places) == evicted


def run(world: Hands, name: str, on: str, cpu: int) -> Pod:
    """Create a pod and bind it."""
    one = pod(name, None, cpu, 100)
    world.state.arrive(one, world.clock)
    world.state.bind(one, on)
    return one


def settle(world: Hands, **cpu_millis: int) -> None:
    """Run a pod on each named node, with these millicores."""
    for name, cpu in cpu_millis.items():
        run(world, f"on-{name}", name, cpu)


def test_nodes_are_unneeded_only_while_their_pods_fit_together() -> None:
    world, scaler = hands(ScaleDown.UTILIZATION, *(node(name) for name in "abcd"))
    settle(world, a=1500, b=1500, c=1500, d=2500)
    world.play(scaler, SCAN_MS)
    assert candidates(world) == {"a"}, "b and c have 2300m left each: a's pod takes 1500m of b's"


def test_pods_moved_to_unneeded_node_are_moved_again_with_it() -> None:
    world, scaler = hands(ScaleDown.UTILIZATION, *(node(name) for name in "abc"))
    settle(world, a=1200, b=1200, c=1200)
    world.play(scaler, SCAN_MS)
    assert candidates(world) == {"a", "b"}, "a's pod would go to b first, both then to c"


def test_empty_nodes_are_evaluated_first() -> None:
    world, scaler = hands(ScaleDown.UTILIZATION, *(node(name) for name in "abc"))
    settle(world, a=1500, c=2500)
    world.play(scaler, SCAN_MS)
    assert candidates(world) == {"b"}, "so a's pod has no place"


def test_nodes_unneeded_before_are_evaluated_before_others() -> None:
    world, scaler = hands(ScaleDown.UTILIZATION, *(node(name) for name in "abc"))
    settle(world, a=2500, b=1500, c=1500)
    world.play(scaler, SCAN_MS)
    assert candidates(world) == {"b"}
    world.state.finish("d/on-a")
    settle(world, a=1500)
    world.play(scaler, 2 * SCAN_MS)
    assert candidates(world) == {"b"}, "a comes before it by name only"


def test_unneeded_time_restarts_when_pods_of_node_no_longer_fit() -> None:
    world, scaler = hands(ScaleDown.UTILIZATION, node("a"), node("b"))
    settle(world, a=1500, b=2200)
    world.play(scaler, UNNEEDED_MS // 2)
    assert candidates(world) == {"a"}
    late = run(world, "late", "b", 500)
    world.play(scaler, UNNEEDED_MS // 2 + SCAN_MS)
    assert candidates(world) == set()
    world.state.finish(late.key)
    world.play(scaler, UNNEEDED_MS // 2 + RECHECK_MS + UNNEEDED_MS)
    assert not world.state.pending
    world.play(scaler, UNNEEDED_MS // 2 + RECHECK_MS + UNNEEDED_MS + 2 * SCAN_MS)
    assert "d/on-a" in world.state.pending


def test_empty_nodes_and_one_drained_node_are_removed_together() -> None:
    world, scaler = hands(ScaleDown.UTILIZATION, *(node(name) for name in "abcde"))
    settle(world, a=500, b=500, c=2500, d=2500)
    world.play(scaler, UNNEEDED_MS + SCAN_MS)
    assert tainted(world, TO_BE_DELETED) == {"a", "e"}
    assert set(world.state.pending) == {"d/on-a"}


def candidates(world: Hands) -> set[str]:
    return tainted(world, CANDIDATE)


def tainted(world: Hands, key: str) -> set[str]:
    places = world.state.places.items()
    return {name for name, one in places if any(t.key == key for t in one.node.taints)}


def test_unneeded_node_has_prefer_noschedule_taint_until_it_is_needed() -> None:
    foreign = Taint("somebody.example/else", "", Effect.NO_SCHEDULE)
    world, scaler = hands(ScaleDown.UTILIZATION, node("a", taints=(foreign,)), node("b"))
    settle(world, a=1200, b=2500)
    world.play(scaler, SCAN_MS)
    assert candidates(world) == {"a"}
    assert world.state.places["a"].node.taints[-1].effect == Effect.PREFER_NO_SCHEDULE
    run(world, "r", "a", 1500)
    world.play(scaler, 2 * SCAN_MS)
    assert world.state.places["a"].node.taints == (foreign,)


def test_protected_nodes_are_not_tainted() -> None:
    guarded = node("a", annotations={SCALE_DOWN_DISABLED_ANNOTATION: "true"})
    for how, found in ((ScaleDown.NEVER, set()), (ScaleDown.EMPTY, {"b"})):
        world, scaler = hands(how, guarded, node("b"))
        world.play(scaler, SCAN_MS)
        assert candidates(world) == found


def test_number_of_nodes_tainted_per_scan_is_limited() -> None:
    many = CANDIDATE_TAINTS_A_SCAN_MAX + 1
    world, scaler = hands(ScaleDown.EMPTY, *(node(f"n{number:02}") for number in range(many)))
    world.play(scaler, SCAN_MS)
    assert len(candidates(world)) == CANDIDATE_TAINTS_A_SCAN_MAX
    world.play(scaler, 2 * SCAN_MS)
    assert len(candidates(world)) == many


def test_timers_are_configurable() -> None:
    world = Hands(node("a"))
    quick = Timers(scan_ms=SCAN_MS, unneeded_ms=2 * SCAN_MS, delay_after_add_ms=0)
    world.play(Autoscaler(world, ScaleDown.EMPTY, SHAPES, 1, quick), 4 * SCAN_MS)
    assert "a" not in world.state.places


def test_node_is_added_when_pod_fits_on_no_node() -> None:
    world, scaler = hands(ScaleDown.EMPTY, node("a", cpu=1000))
    one = pod("p", None, 3000, 100)
    world.state.arrive(one, 0)
    scaler.unschedulable()
    world.play(scaler, 11_000)
    assert scaler.scale_ups == 1
    assert not world.state.places["new-1"].node.ready
    world.play(scaler, 140_000)
    assert world.state.places["new-1"].node.ready


def arrive(world: Hands, scaler: Autoscaler, name: str, cpu: int) -> Pod:
    one = pod(name, None, cpu, 100)
    world.state.arrive(one, world.clock)
    scaler.unschedulable()
    return one


def buffer(replicas: int, cpu: int) -> tuple[Pod, ...]:
    return tuple(pod(f"buffer-{n}", None, cpu, 1) for n in range(replicas))


def used_and_empty() -> tuple[Hands, Autoscaler]:
    """Return four nodes of four cores with a pod of 500m each, and an empty node."""
    world, scaler = hands(ScaleDown.EMPTY, *(node(name) for name in "abcde"))
    settle(world, a=500, b=500, c=500, d=500)
    return world, scaler


@pytest.mark.parametrize(("replicas", "left"), [(0, "abcd"), (4, "abcd"), (5, "abcde")])
def test_empty_node_is_not_removed_when_buffer_needs_it(replicas: int, left: str) -> None:
    world, scaler = used_and_empty()
    world.state.buffers = buffer(replicas, cpu=3000)
    world.play(scaler, 2 * UNNEEDED_MS)
    assert "".join(sorted(world.state.places)) == left
    assert scaler.scale_ups == 0
    world.state.buffers = ()
    world.play(scaler, 4 * UNNEEDED_MS)
    assert "".join(sorted(world.state.places)) == "abcd"


def test_nodes_are_added_for_buffer_before_any_pod_is_pending() -> None:
    world, scaler = used_and_empty()
    world.state.buffers = buffer(7, cpu=3000)
    world.play(scaler, SCAN_MS)
    assert (scaler.scale_ups, world.state.pending) == (2, {})
    world.play(scaler, 2 * UNNEEDED_MS)
    assert scaler.scale_ups == 2, "what is coming, or has come, is counted"


def test_pending_pods_are_placed_before_buffers() -> None:
    world, scaler = used_and_empty()
    world.state.buffers = buffer(5, cpu=3000)
    world.state.arrive(pod("late", None, 3300, 1), 0)
    world.play(scaler, SCAN_MS)
    assert scaler.scale_ups == 1


def test_nodes_are_added_for_buffers_when_scale_down_is_disabled() -> None:
    world, scaler = hands(ScaleDown.NEVER, node("a"))
    world.state.buffers = buffer(3, cpu=3000)
    world.play(scaler, 2 * SCAN_MS)
    assert scaler.scale_ups >= 1


def test_node_is_not_drained_when_buffer_needs_its_room() -> None:
    for replicas, stays in ((0, False), (2, True)):
        world, scaler = hands(ScaleDown.UTILIZATION, node("a"), node("b"))
        settle(world, a=500, b=500)
        world.state.buffers = buffer(replicas, cpu=3000)
        world.play(scaler, 3 * UNNEEDED_MS)
        assert (len(world.state.places) == 2) is stays


def test_node_is_skipped_after_failed_drain_simulation_even_when_empty() -> None:
    world, scaler = hands(ScaleDown.UTILIZATION, node("a"))
    one = run(world, "p", "a", 1000)
    failed = SCAN_MS
    world.play(scaler, failed)
    world.state.finish(one.key)
    world.play(scaler, failed + RECHECK_MS + UNNEEDED_MS - SCAN_MS)
    assert not any(t.key == TO_BE_DELETED for t in world.state.places["a"].node.taints)
    world.play(scaler, failed + RECHECK_MS + UNNEEDED_MS + SCAN_MS + DELETE_DELAY_MS)
    assert "a" not in world.state.places


def test_upcoming_node_counts_for_all_pods_that_fit() -> None:
    world, scaler = hands(ScaleDown.NEVER)
    for name in ("p", "q", "r"):
        arrive(world, scaler, name, 1800)
    world.play(scaler, REACTION_MS[1] + SCAN_MS)
    assert (
        scaler.scale_ups == 2
    )  # two pods of 1.8 cores fit on a node of 4, beside its DaemonSet pods


def test_node_is_added_again_when_another_pod_takes_the_room() -> None:
    world, scaler = hands(ScaleDown.NEVER)
    arrive(world, scaler, "p", 3000)
    world.play(scaler, REACTION_MS[1])
    other = pod("other", None, 3000, 100)
    world.state.arrive(other, world.clock)
    (new,) = world.state.places
    world.state.bind(other, new)
    world.play(scaler, REACTION_MS[1] + STARTUP_MS[1] + 2 * SCAN_MS)
    assert scaler.scale_ups == 2


def test_no_further_node_is_added_when_pod_is_bound() -> None:
    world, scaler = hands(ScaleDown.NEVER)
    one = arrive(world, scaler, "p", 3000)
    world.play(scaler, REACTION_MS[1])
    (new,) = world.state.places
    world.state.bind(one, new)
    world.play(scaler, REACTION_MS[1] + STARTUP_MS[1] + 2 * SCAN_MS)
    assert world.later == []
    assert scaler.scale_ups == 1


def test_new_node_has_room_for_its_daemonset_pods() -> None:
    small, large = SHAPES
    world, scaler = hands(ScaleDown.NEVER)
    arrive(world, scaler, "p", small.cpu_millis)
    arrive(world, scaler, "never", large.cpu_millis - DAEMON_REQUESTS.cpu_millis + 1)
    world.play(scaler, REACTION_MS[1] + SCAN_MS)
    assert [place.node.allocatable for place in world.state.places.values()] == [large]


@pytest.mark.parametrize(
    ("gpu", "asked", "is_considered"),
    [
        pytest.param(8000, (90_000, 4000), True, id="half of its GPUs, nearly all of its CPU"),
        pytest.param(8000, (100, 4001), False, id="more than half of its GPUs, hardly any CPU"),
        pytest.param(0, (48_000, 0), True, id="no GPUs, half of its CPU"),
        pytest.param(0, (48_001, 0), False, id="no GPUs, more than half of its CPU"),
    ],
)
def test_utilization_of_gpu_node_counts_only_gpus(
    gpu: int, asked: tuple[int, int], *, is_considered: bool
) -> None:
    one = Node(name="n", allocatable=amount(96_000, 393_216, gpu, 110))
    requests = amount(asked[0], 0, asked[1])
    assert is_underutilized(one, requests, Fraction(1, 2)) is is_considered


SIZES = st.sampled_from((0, 1, 499, 500, 501, 1000))


def test_node_is_drained_only_when_other_nodes_admit_its_pods() -> None:
    for zone in ("a", "b"):
        there = node("b", labels={"zone": zone})
        world, scaler = hands(ScaleDown.UTILIZATION, node("a", labels={"zone": "a"}), there)
        node_constraints = NodeConstraints((("zone", "a"),))
        for one, on in (
            (pod("p", None, 100, 100, node_constraints=node_constraints), "a"),
            (pod("q", None, 3000, 100), "b"),
        ):
            world.state.arrive(one, 0)
            world.state.bind(one, on)
        world.play(scaler, UNNEEDED_MS + 2 * SCAN_MS)
        assert ("d/p" in world.state.pending) is (zone == "a")


BARE = {"owner_kind": ""}
SAFE = "cluster-autoscaler.kubernetes.io/safe-to-evict"


@pytest.mark.parametrize(
    ("told", "is_drained"),
    [
        ({}, True),
        ({"owner_kind": "Job"}, True),
        (BARE, False),
        ({"owner_kind": "Workflow"}, False),
        ({"disruption_facts": DisruptionFacts(notes=((SAFE, "false"),))}, False),
        ({"disruption_facts": DisruptionFacts(local_volumes=("cache",))}, False),
        ({**BARE, "disruption_facts": DisruptionFacts(notes=((SAFE, "true"),))}, True),
    ],
)
def test_node_is_drained_only_when_its_pods_may_be_evicted(
    told: dict[str, Any], *, is_drained: bool
) -> None:
    world, scaler = hands(ScaleDown.UTILIZATION, node("a"), node("b"))
    for one, on in (
        (replace(pod("p", None, 100, 100), **told), "a"),
        (pod("q", None, 3000, 1), "b"),
    ):
        world.state.arrive(one, 0)
        world.state.bind(one, on)
    world.play(scaler, UNNEEDED_MS + 2 * SCAN_MS)
    assert ("d/p" in world.state.pending) is is_drained


def considered_at(threshold: str) -> set[str]:
    cluster = thesis_cluster()
    used = cluster.used()
    return {
        one.name
        for one in cluster.nodes
        if is_underutilized(one, used[one.name], Fraction(threshold))
    }


def test_c1_threshold_50_percent_considers_only_node_4() -> None:
    assert considered_at("0.5") == {"4"}


def test_c2_threshold_80_percent_does_not_consider_node_3() -> None:
    assert considered_at("0.8") == {"1", "2", "4"}
