"""Unschedulable pods: which of them start passes, delay marks, or block NoSchedule."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.config.budgets import Reserve
from core.config.settings import Config
from core.engine.leader_state import LeaderState
from core.engine.mark_limits import DelayAfterPending
from core.engine.plan import Plan
from core.engine.reconcile import reconcile
from core.engine.unschedulable import (
    IMPOSSIBLE_MAX,
    WAIT_SECONDS,
    WAITING_PODS_MAX,
    blocked_by_no_schedule,
    by_namespace_in_turns,
    cannot_wait,
    feasible_unschedulable,
    is_unschedulable,
    pending_since,
)
from core.marks.mark import Mark
from core.marks.wellknown import MARK_LABEL, TAINT_KEY
from core.model.cluster import Cluster
from core.model.constraints import NodeConstraints, VolumeTopology
from core.model.node import Effect, Taint
from core.model.now import Now
from core.model.pod import Pod
from core.model.resources import Resources
from tests.support.builders import GREEN, MB, UNLIMITED, marked, node, pod

pytestmark = pytest.mark.mutate

NOW = 1000
CLAIM = "spec.volumes.persistentVolumeClaim"


def waiting(name: str, cpu: int = 1000, **more: object) -> Pod:
    found = replace(pod(name, None, cpu, 100), unschedulable=True)
    return replace(found, **more)  # type: ignore[arg-type]


def cluster(*pods: Pod) -> Cluster:
    """Return a cluster with a NoSchedule node, and a node with a pod of a DaemonSet."""
    closed = marked(node("closed"), Mark.NO_SCHEDULE, 1)
    return Cluster.of([closed, node("full")], [pod("agent", "full", 100, 100, daemon=True), *pods])


@pytest.mark.parametrize(
    ("one", "counts"),
    [
        (waiting("p"), True),
        (waiting("p", unschedulable=False), False),
        (waiting("p", node="full"), False),
        (waiting("p", terminating=True), False),
        (Pod(namespace="d", name="p", unreadable="spec: bad"), True),
    ],
)
def test_pod_is_unschedulable_when_reported_or_unreadable(one: Pod, counts: bool) -> None:
    assert is_unschedulable(one) is counts


@pytest.mark.parametrize(
    ("one", "counts", "urgent"),
    [
        (waiting("fits"), True, True),
        (waiting("fits-where-there-is-a-mark", 4000), True, True),
        (waiting("larger-than-any-node", 4001), False, False),
        (waiting("wants-what-no-node-has", node_constraints=GREEN), False, False),
        (waiting("cannot-be-judged", unsupported=(CLAIM,)), True, True),
        (waiting("neither", 4001, unsupported=(CLAIM,)), False, False),
        (waiting("asks-too-much", too_much="terms"), False, True),
        (Pod(namespace="d", name="p", unreadable="spec: bad"), False, True),
    ],
    ids=lambda one: getattr(one, "name", ""),
)
def test_pod_delays_marks_only_when_some_node_could_hold_it(
    one: Pod, counts: bool, urgent: bool
) -> None:
    found = cluster(one)
    assert [pod.key for pod in feasible_unschedulable(found, TAINT_KEY)] == (
        [one.key] if counts else []
    )
    assert cannot_wait(found, [one], TAINT_KEY) is urgent
    memory = reconcile(found, Config(budgets=UNLIMITED), LeaderState(), NOW).state
    assert (memory.limit(DelayAfterPending).pending_at is not None) is counts


def test_daemon_pods_reduce_room_for_unschedulable_pod() -> None:
    one = waiting("p", 3950)
    nodes = [node("n")]
    agent = pod("agent", "n", 100, 100, daemon=True)
    assert not list(feasible_unschedulable(Cluster.of(nodes, [agent, one]), TAINT_KEY))
    assert list(
        feasible_unschedulable(Cluster.of(nodes, [replace(agent, daemon=False), one]), TAINT_KEY)
    )


def test_unevaluable_pod_is_not_urgent_without_no_schedule_mark() -> None:
    one = waiting("p", unsupported=(CLAIM,))
    for mark in (None, Mark.PREFER_NO_SCHEDULE):
        nodes = [node("a") if mark is None else marked(node("a"), mark, 1)]
        assert not cannot_wait(Cluster.of(nodes, [one]), [one], TAINT_KEY)


def test_impossible_pods_of_one_namespace_hide_none_of_another() -> None:
    flood = [
        waiting(f"p{n:04}", namespace="a", requests=Resources(5000 + n, MB, 0, 1))
        for n in range(IMPOSSIBLE_MAX * 4)
    ]
    one = waiting("p", namespace="z")
    found = cluster(*flood, one)
    assert [pod.key for pod in feasible_unschedulable(found, TAINT_KEY)] == ["z/p"]
    assert cannot_wait(found, [*flood, one], TAINT_KEY)
    assert not cannot_wait(found, flood, TAINT_KEY)


RUNNING = [pod(f"p{n}", f"n{n}", 500, 100) for n in range(4)]
BURSTS = NodeConstraints(node_selector=(("type", "virtual"),))
BURST = [waiting(f"b{n}", 4000, node_constraints=BURSTS) for n in range(20)]


@pytest.mark.parametrize(
    ("there", "then"),
    [
        ([waiting("huge", 10**9)], []),
        ([waiting("of-no-pool", node_constraints=GREEN)], []),
        (
            [
                waiting(
                    "huge-of-a-pool",
                    10**9,
                    node_constraints=NodeConstraints(node_selector=(("a", "b"),)),
                )
            ],
            [],
        ),
        (BURST, [replace(one, node="v", unschedulable=False) for one in BURST]),
    ],
    ids=["too large", "of no pool", "too large for a pool", "a burst to a virtual node"],
)
def test_impossible_pod_changes_no_plan(there: list[Pod], then: list[Pod]) -> None:
    """It counts in no peak, headroom, reserve or reach, now or later."""
    nodes = [node(f"n{n}", labels={"a": "b"} if n < 2 else None) for n in range(4)]
    nodes.append(replace(node("v", 10**6, 10**6, labels={"type": "virtual"}), virtual=True))
    budgets = replace(UNLIMITED, headroom=1, stabilization_window_seconds=600, reserve=Reserve())
    config = Config(budgets=budgets, unneeded_time_seconds=0)

    def last_plan(*more: list[Pod]) -> Plan:
        memory, plans = LeaderState(first_reconciliation_at=0), []
        for second, pods in enumerate(more):
            found = reconcile(Cluster.of(nodes, [*RUNNING, *pods]), config, memory, NOW + second)
            memory = found.state
            plans.append(found.plan)
        return plans[-1]

    assert last_plan([], [], []).removals
    assert last_plan([], there) == last_plan([], [])
    assert last_plan([], there, then) == last_plan([], [], then)


@pytest.mark.parametrize("ready", [True, False])
def test_forced_pod_fills_only_its_own_node(ready: bool) -> None:
    """A tenant can set `spec.nodeName`, and a kubelet can report any allocated resources."""
    nodes = [replace(node("n0"), ready=ready), *(node(f"n{n}") for n in range(1, 8))]
    there = [pod(f"p{n}", f"n{n}", 500, 100) for n in range(8)]
    config = Config(
        budgets=replace(UNLIMITED, stabilization_window_seconds=600), unneeded_time_seconds=0
    )
    memory = LeaderState(first_reconciliation_at=0)
    for second, pods in enumerate(([], [pod("huge", "n0", 10**9, 100)], [])):
        found = reconcile(Cluster.of(nodes, [*there, *pods]), config, memory, NOW + second)
        memory = found.state
        assert found.plan.before.requests.cpu_millis == (7500 if pods else 4000)
        assert len(found.plan.removals) >= 3 or not second


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9)), unique=True))
def test_namespaces_take_turns(names: list[tuple[str, int]]) -> None:
    pods = [Pod(namespace=namespace, name=str(name)) for namespace, name in names]
    found = by_namespace_in_turns(pods)
    assert sorted(pod.key for pod in found) == sorted(pod.key for pod in pods)
    ranks: dict[str, int] = {}
    order = []
    for one in found:
        ranks[one.namespace] = ranks.get(one.namespace, 0) + 1
        order.append((ranks[one.namespace], one.namespace))
    assert order == sorted(order)


def test_pod_is_stuck_when_it_remains_pending_although_it_fits() -> None:
    pods = [waiting("p")]
    since = pending_since({}, pods, {"d/p"}, Now(NOW))
    assert since == {"d/p": NOW}
    assert list(blocked_by_no_schedule(pods, since, Now(NOW + WAIT_SECONDS - 1))) == []
    since = pending_since(since, pods, {"d/p"}, Now(NOW + WAIT_SECONDS))
    found = blocked_by_no_schedule(pods, since, Now(NOW + WAIT_SECONDS))
    assert [pod.key for pod, _ in found] == ["d/p"]
    assert pending_since(since, pods, set(), Now(NOW + WAIT_SECONDS)) == {}
    assert pending_since(since, [], {"d/p"}, Now(NOW + WAIT_SECONDS)) == {}


def test_unevaluable_pod_is_stuck_at_once() -> None:
    pods = [waiting("p", unsupported=(CLAIM,))]
    assert [pod.key for pod, _ in blocked_by_no_schedule(pods, {}, Now(NOW))] == ["d/p"]


def test_pod_of_untracked_template_is_stuck_at_once() -> None:
    pods = [waiting("p", node_constraints=GREEN)]
    assert list(blocked_by_no_schedule(pods, {}, Now(NOW))) == []
    assert [pod.key for pod, _ in blocked_by_no_schedule(pods, {}, Now(NOW), {GREEN})] == ["d/p"]


@pytest.mark.parametrize("more", [-1, 0, 9])
@pytest.mark.parametrize(("cpu", "codes"), [(3500, ["no-schedule-waiting"]), (4001, [])])
def test_pod_blocks_no_schedule_when_there_are_too_many_impossible_pods(
    more: int, cpu: int, codes: list[str]
) -> None:
    flood = [
        waiting("p", namespace=f"a{n}", requests=Resources(5000 + n, MB, 0, 1))
        for n in range(IMPOSSIBLE_MAX + more)
    ]
    settings = Config(budgets=UNLIMITED, no_schedule_after_seconds=0)
    found = cluster(pod("busy", "full", 1500, 100), *flood, waiting("p", cpu, namespace="z"))
    first = reconcile(found, settings, LeaderState(), NOW)
    then = reconcile(found, settings, first.state, NOW + WAIT_SECONDS)
    assert [one.code for one in then.no_schedule_blockers["closed"]] == codes


def test_pending_pods_are_bounded_fairly_between_namespaces() -> None:
    flood = [waiting(f"p{n:05}", namespace="a") for n in range(WAITING_PODS_MAX + 10)]
    pods = [*flood, waiting("p", namespace="z")]
    since = pending_since({}, pods, {one.key for one in pods}, Now(NOW))
    assert len(since) == WAITING_PODS_MAX
    assert "z/p" in since


def test_pending_time_from_future_is_corrected() -> None:
    pods = [waiting("p")]
    assert pending_since({"d/p": NOW + 3600}, pods, {"d/p"}, Now(NOW)) == {"d/p": NOW}


@pytest.mark.parametrize(
    ("changed", "holds"),
    [
        ({}, True),
        ({"virtual": True}, False),
        ({"unreadable": "spec: bad"}, False),
        ({"unschedulable": True}, False),
        ({"taints": (Taint("ToBeDeletedByClusterAutoscaler", "1", Effect.NO_SCHEDULE),)}, False),
        ({"taints": (Taint(TAINT_KEY, "1", Effect.NO_SCHEDULE),)}, False),
        ({"taints": (Taint("example.com/ours", "1", Effect.NO_SCHEDULE),)}, True),
    ],
)
def test_unschedulable_node_holds_no_pod(changed: dict[str, Any], holds: bool) -> None:
    """Only the taint with the configured key is ignored."""
    one, odd = waiting("p"), waiting("odd", unsupported=(CLAIM,))
    found = Cluster.of([replace(node("n"), **changed)], [one])
    assert bool(list(feasible_unschedulable(found, "example.com/ours"))) is holds
    assert cannot_wait(found, [one], "example.com/ours") is holds
    no_schedule_node = replace(found.nodes[0], labels={MARK_LABEL: "NoSchedule"})
    assert cannot_wait(Cluster.of([no_schedule_node], [odd]), [odd], "example.com/ours") is holds


@pytest.mark.parametrize(
    ("different", "each", "seen"),
    [(IMPOSSIBLE_MAX - 1, 1, True), (IMPOSSIBLE_MAX - 1, 3, True), (IMPOSSIBLE_MAX, 1, False)],
)
def test_number_of_impossible_pod_shapes_is_bounded(different: int, each: int, seen: bool) -> None:
    """A pod that fits does not reset the count; equal pods count once."""
    flood = [
        waiting(f"p{shape:03}-{number}", requests=Resources(5000 + shape, MB, 0, 1))
        for shape in range(different)
        for number in range(each)
    ]
    found = [
        one.key
        for one in feasible_unschedulable(
            cluster(waiting("a"), *flood, waiting("z", 7)), TAINT_KEY
        )
    ]
    assert found == (["d/a", "d/z"] if seen else ["d/a"])


CLOSED_NODE = marked(node("closed", 3000), Mark.NO_SCHEDULE, 1)
FAR = NodeConstraints(volumes=(VolumeTopology(affinity=()),))


@pytest.mark.parametrize(
    ("one", "urgent"),
    [
        (waiting("p", 3000, unsupported=(CLAIM,)), True),
        (waiting("has-room-elsewhere-alone", 3001, unsupported=(CLAIM,)), False),
        (waiting("its-volumes-are-not-judged", unsupported=(CLAIM,), node_constraints=FAR), True),
    ],
    ids=lambda one: getattr(one, "name", ""),
)
def test_unevaluable_pod_is_urgent_when_it_fits_empty_no_schedule_node(
    one: Pod, urgent: bool
) -> None:
    """Other pods of the node may have ended by then; the constraints are unknown anyway."""
    agent = pod("agent", "closed", 100, 100, daemon=True)
    found = Cluster.of([CLOSED_NODE, node("open", 4000)], [agent, one])
    assert cannot_wait(found, [one], TAINT_KEY) is urgent
