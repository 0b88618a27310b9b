"""Pods that wait: whose waiting counts for what."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.config.budgets import Reserve
from core.config.settings import Config
from core.engine.leader_state import LeaderState
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
    """A node that is marked hard, and one that a DaemonSet's pod takes a part of."""
    hard = marked(node("hard"), Mark.HARD, 1)
    return Cluster.of([hard, node("full")], [pod("agent", "full", 100, 100, daemon=True), *pods])


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
def test_who_waits(one: Pod, counts: bool) -> None:
    assert is_unschedulable(one) is counts


@pytest.mark.parametrize(
    ("one", "counts", "urgent"),
    [
        (waiting("fits"), True, True),
        (waiting("fits-where-there-is-a-mark", 4000), True, True),
        (waiting("larger-than-any-node", 4001), False, False),
        (waiting("wants-what-no-node-has", placing=GREEN), False, False),
        (waiting("cannot-be-judged", unsupported=(CLAIM,)), True, True),
        (waiting("neither", 4001, unsupported=(CLAIM,)), False, False),
        (waiting("asks-too-much", too_much="terms"), False, True),
        (Pod(namespace="d", name="p", unreadable="spec: bad"), False, True),
    ],
    ids=lambda one: getattr(one, "name", ""),
)
def test_what_no_node_could_hold_holds_nobody_up(one: Pod, counts: bool, urgent: bool) -> None:
    found = cluster(one)
    assert [pod.key for pod in feasible_unschedulable(found, TAINT_KEY)] == (
        [one.key] if counts else []
    )
    assert cannot_wait(found, [one], TAINT_KEY) is urgent
    memory = reconcile(found, Config(budgets=UNLIMITED), LeaderState(), NOW).state
    assert (memory.pod_pending_at is not None) is counts


def test_the_pods_that_go_with_a_node_take_their_part_of_it() -> None:
    one = waiting("p", 3950)
    nodes = [node("n")]
    agent = pod("agent", "n", 100, 100, daemon=True)
    assert not list(feasible_unschedulable(Cluster.of(nodes, [agent, one]), TAINT_KEY))
    assert list(
        feasible_unschedulable(Cluster.of(nodes, [replace(agent, daemon=False), one]), TAINT_KEY)
    )


def test_what_cannot_be_judged_is_not_urgent_without_a_hard_mark() -> None:
    one = waiting("p", unsupported=(CLAIM,))
    for mark in (None, Mark.SOFT):
        nodes = [node("a") if mark is None else marked(node("a"), mark, 1)]
        assert not cannot_wait(Cluster.of(nodes, [one]), [one], TAINT_KEY)


def test_a_thousand_different_pods_of_one_namespace_hide_none_of_another() -> None:
    flood = [
        waiting(f"p{n:04}", namespace="a", requests=Resources(5000 + n, MB, 0, 1))
        for n in range(IMPOSSIBLE_MAX * 4)
    ]
    one = waiting("p", namespace="z")
    found = cluster(*flood, one)
    assert [pod.key for pod in feasible_unschedulable(found, TAINT_KEY)] == ["z/p"]
    assert cannot_wait(found, [*flood, one], TAINT_KEY)
    assert not cannot_wait(found, flood, TAINT_KEY)


STANDING = [pod(f"p{n}", f"n{n}", 500, 100) for n in range(4)]
BURSTS = NodeConstraints(node_selector=(("type", "virtual"),))
BURST = [waiting(f"b{n}", 4000, placing=BURSTS) for n in range(20)]


@pytest.mark.parametrize(
    ("there", "then"),
    [
        ([waiting("huge", 10**9)], []),
        ([waiting("of-no-pool", placing=GREEN)], []),
        (
            [
                waiting(
                    "huge-of-a-pool", 10**9, placing=NodeConstraints(node_selector=(("a", "b"),))
                )
            ],
            [],
        ),
        (BURST, [replace(one, node="v", unschedulable=False) for one in BURST]),
    ],
    ids=["too large", "of no pool", "too large for a pool", "a burst to a virtual node"],
)
def test_what_no_node_can_hold_is_in_no_sum(there: list[Pod], then: list[Pod]) -> None:
    """Neither while it waits nor later: in the peak, the headroom, the reserve, or a reach."""
    nodes = [node(f"n{n}", labels={"a": "b"} if n < 2 else None) for n in range(4)]
    nodes.append(replace(node("v", 10**6, 10**6, labels={"type": "virtual"}), virtual=True))
    budgets = replace(UNLIMITED, headroom=1, stabilization_window_seconds=600, reserve=Reserve())
    config = Config(budgets=budgets, unneeded_time_seconds=0)

    def looked(*more: list[Pod]) -> Plan:
        memory, plans = LeaderState(first_pass_at=0), []
        for second, pods in enumerate(more):
            found = reconcile(Cluster.of(nodes, [*STANDING, *pods]), config, memory, NOW + second)
            memory = found.state
            plans.append(found.plan)
        return plans[-1]

    assert looked([], [], []).removals
    assert looked([], there) == looked([], [])
    assert looked([], there, then) == looked([], [], then)


@pytest.mark.parametrize("ready", [True, False])
def test_what_is_bound_by_force_fills_its_own_node_alone(ready: bool) -> None:
    """A tenant may write `spec.nodeName`, and a kubelet what its pods were given."""
    nodes = [replace(node("n0"), ready=ready), *(node(f"n{n}") for n in range(1, 8))]
    there = [pod(f"p{n}", f"n{n}", 500, 100) for n in range(8)]
    config = Config(
        budgets=replace(UNLIMITED, stabilization_window_seconds=600), unneeded_time_seconds=0
    )
    memory = LeaderState(first_pass_at=0)
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


def test_a_pod_is_stuck_some_seconds_after_there_was_a_place() -> None:
    one = waiting("p")
    found = cluster(one)
    since = pending_since({}, found, {"d/p"}, Now(NOW))
    assert since == {"d/p": NOW}
    assert list(blocked_by_no_schedule(found, since, Now(NOW + WAIT_SECONDS - 1))) == []
    since = pending_since(since, found, {"d/p"}, Now(NOW + WAIT_SECONDS))
    assert [
        pod.key for pod, _ in blocked_by_no_schedule(found, since, Now(NOW + WAIT_SECONDS))
    ] == ["d/p"]
    assert pending_since(since, found, set(), Now(NOW + WAIT_SECONDS)) == {}
    bound = cluster(replace(one, node="full", unschedulable=False))
    assert pending_since(since, bound, {"d/p"}, Now(NOW + WAIT_SECONDS)) == {}


def test_a_pod_that_cannot_be_judged_is_stuck_at_once() -> None:
    found = cluster(waiting("p", unsupported=(CLAIM,)))
    assert [pod.key for pod, _ in blocked_by_no_schedule(found, {}, Now(NOW))] == ["d/p"]


def test_a_pod_beyond_those_that_are_told_apart_is_stuck_at_once() -> None:
    found = cluster(waiting("p", placing=GREEN))
    assert list(blocked_by_no_schedule(found, {}, Now(NOW))) == []
    assert [pod.key for pod, _ in blocked_by_no_schedule(found, {}, Now(NOW), {GREEN})] == ["d/p"]


@pytest.mark.parametrize("more", [-1, 0, 9])
@pytest.mark.parametrize(("cpu", "told"), [(3500, ["hard-waiting"]), (4001, [])])
def test_behind_too_many_that_no_node_could_hold_no_hard_mark_keeps_a_pod_waiting(
    more: int, cpu: int, told: list[str]
) -> None:
    flood = [
        waiting("p", namespace=f"a{n}", requests=Resources(5000 + n, MB, 0, 1))
        for n in range(IMPOSSIBLE_MAX + more)
    ]
    asked = Config(budgets=UNLIMITED, no_schedule_after_seconds=0)
    found = cluster(pod("busy", "full", 1500, 100), *flood, waiting("p", cpu, namespace="z"))
    first = reconcile(found, asked, LeaderState(), NOW)
    then = reconcile(found, asked, first.state, NOW + WAIT_SECONDS)
    assert [one.code for one in then.no_schedule_blockers["hard"]] == told


def test_what_is_remembered_is_bounded_and_every_namespace_has_its_part() -> None:
    flood = [waiting(f"p{n:05}", namespace="a") for n in range(WAITING_PODS_MAX + 10)]
    found = cluster(*flood, waiting("p", namespace="z"))
    since = pending_since({}, found, {one.key for one in found.pods}, Now(NOW))
    assert len(since) == WAITING_PODS_MAX
    assert "z/p" in since


def test_a_clock_that_was_ahead_is_not_believed() -> None:
    found = cluster(waiting("p"))
    assert pending_since({"d/p": NOW + 3600}, found, {"d/p"}, Now(NOW)) == {"d/p": NOW}


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
def test_what_takes_no_pods_holds_nothing(changed: dict[str, Any], holds: bool) -> None:
    """Of taints the one under the key in use is set aside, and no other."""
    one, odd = waiting("p"), waiting("odd", unsupported=(CLAIM,))
    found = Cluster.of([replace(node("n"), **changed)], [one])
    assert bool(list(feasible_unschedulable(found, "example.com/ours"))) is holds
    assert cannot_wait(found, [one], "example.com/ours") is holds
    hard = replace(found.nodes[0], labels={MARK_LABEL: "hard"})
    assert cannot_wait(Cluster.of([hard], [odd]), [odd], "example.com/ours") is holds


@pytest.mark.parametrize(
    ("different", "each", "seen"),
    [(IMPOSSIBLE_MAX - 1, 1, True), (IMPOSSIBLE_MAX - 1, 3, True), (IMPOSSIBLE_MAX, 1, False)],
)
def test_so_many_different_pods_that_fit_nowhere_are_looked_at(
    different: int, each: int, seen: bool
) -> None:
    """One that fits between them gives nobody a second chance; those alike are judged once."""
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


BEHIND = marked(node("hard", 3000), Mark.HARD, 1)
FAR = NodeConstraints(volumes=(VolumeTopology(affinity=()),))


@pytest.mark.parametrize(
    ("one", "urgent"),
    [
        (waiting("p", 3000, unsupported=(CLAIM,)), True),
        (waiting("has-room-elsewhere-alone", 3001, unsupported=(CLAIM,)), False),
        (waiting("its-volumes-are-not-judged", unsupported=(CLAIM,), placing=FAR), True),
    ],
    ids=lambda one: getattr(one, "name", ""),
)
def test_what_cannot_be_judged_is_urgent_if_it_were_alone_behind_a_hard_mark(
    one: Pod, urgent: bool
) -> None:
    """Whoever else is there may be gone by then: what it asks for is not known anyway."""
    agent = pod("agent", "hard", 100, 100, daemon=True)
    found = Cluster.of([BEHIND, node("open", 4000)], [agent, one])
    assert cannot_wait(found, [one], TAINT_KEY) is urgent
