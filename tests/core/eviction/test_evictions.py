"""Which pods are evicted, and why others are not: one row per rule, and laws."""

from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.config.eviction import EvictionConfig, EvictionMode
from core.config.schedule import Window
from core.config.settings import Config, Mode, UsabilityMode
from core.config.thresholds import Thresholds
from core.eligibility.drainability import (
    DISRUPTION_COST,
    DO_NOT_DISRUPT,
    DO_NOT_DISRUPT_KEYS,
    PREFER_NO_EVICTION,
    SAFE_TO_EVICT,
)
from core.engine import reconcile
from core.engine.maintenance_gate import RefusedWrite
from core.engine.node_share import Placement
from core.eviction import planner
from core.eviction.context import (
    TIMEOUT_SECONDS,
    Allowances,
    EvictionContext,
    EvictionInput,
)
from core.eviction.planner import EvictionDecision, plan_evictions
from core.eviction.pods import Owner, why_never
from core.eviction.state import OBSERVE_SECONDS, EvictionState
from core.marks.mark import BACKOFF_SECONDS_MAX
from core.marks.wellknown import KARPENTER_LABEL, TAINT_KEY
from core.model.cluster import Cluster, DisruptionBudget
from core.model.constraints import DisruptionFacts, NodeConstraints, Toleration
from core.model.node import Node, Taint
from core.model.node_lifecycle import DELETING_TAINTS
from core.model.now import Now
from core.model.pod import Pod
from core.model.reason import Blocker, Reason
from tests.core.placement.test_inter_pod import count_calls
from tests.support import builders
from tests.support.builders import UNLIMITED, node, pod, select

NOW = 1_767_225_600
OWN = "ebb-system"
CONFIG = Config(
    mode=Mode.ENFORCE,
    eviction=EvictionConfig(mode=EvictionMode.ENABLED, after_seconds=60),
    thresholds=Thresholds(cpu=1, memory=1),  # type: ignore[arg-type]
    usable_capacity=UsabilityMode.ALL,
    budgets=UNLIMITED,
)
BEGAN = EvictionState(
    node="m", evicted_owners=frozenset({Owner("d", "ReplicaSet", "before")}), progress=NOW
)
BLOCKER = Blocker(Reason("x", "", "", ""), "speaks against it")


def marked_node(name: str, *, order: int = 1, value: str = "NoSchedule", age: int = 60) -> Node:
    return builders.marked(node(name), value, NOW - age, order, deadline=NOW + 10**6)


def make_pod(name: str, on: str | None = "m", *, of: str = "web", **changes: Any) -> Pod:
    made = pod(name, on, 100, 100, labels={"app": of})
    return replace(made, **{"uid": f"uid-{name}", "owner_name": of, "ready": True, **changes})


def noted(key: str, value: str) -> DisruptionFacts:
    return DisruptionFacts(notes=((key, value),), started_seconds=NOW)


def budget(allowed: int, name: str = "b", **changes: Any) -> DisruptionBudget:
    made = DisruptionBudget(
        namespace="d",
        name=name,
        disruptions_allowed=allowed,
        selector=select("web"),
        healthy=3,
        healthy_min=2,
        expected=3,
    )
    return replace(made, **changes)


M, OPEN = marked_node("m"), node("open", 16_000, 64_000)
"""A node with a NoSchedule mark, and one with room for all pods."""
BARE = replace(M, taints=())


def eviction_input(
    *pods: Pod,
    nodes: tuple[Node, ...] = (M, OPEN),
    budgets: tuple[DisruptionBudget, ...] = (),
    config: Config = CONFIG,
    **changes: Any,
) -> EvictionInput:
    cluster = Cluster.of(nodes, pods, budgets)
    made = EvictionInput(
        cluster=cluster,
        plan=reconcile.plan(cluster, config, now_seconds=NOW),
        config=config,
        no_schedule_blockers={},
        watched_seconds=OBSERVE_SECONDS,
        now_seconds=NOW,
        own_namespace=OWN,
        timeout_seconds=100,
    )
    return replace(made, **changes)


def at_once(pods: int, **changes: Any) -> Config:
    """Return the configuration with another *maxAtOnce*."""
    return replace(CONFIG, eviction=replace(CONFIG.eviction, max_at_once=pods, **changes))


def evicted_pods(found: EvictionDecision) -> list[str]:
    return [one.pod.name for one in found.evict]


def codes(found: EvictionDecision) -> set[str]:
    return {one.code for one in found.waits}


def failed(found: EvictionDecision) -> dict[str, str]:
    return {name: why.code for name, why in found.state.failed.items()}


# A pod alone on the node


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"owner_kind": "", "owner_name": ""}, "pod-bare"),
        ({"owner_kind": "Thing"}, "pod-custom-controller"),
        ({"disruption_facts": DisruptionFacts(gang="g")}, "pod-gang"),
        ({"namespace": "kube-system"}, "pod-system"),
        ({"priority": 2_000_000_000}, "pod-system"),
        ({"disruption_facts": noted(SAFE_TO_EVICT, "false")}, "pod-not-safe-to-evict"),
        ({"disruption_facts": noted(DO_NOT_DISRUPT, "true")}, "pod-do-not-disrupt"),
        ({"disruption_facts": noted(DO_NOT_DISRUPT, "1h")}, "pod-do-not-disrupt"),
        ({"disruption_facts": noted(DO_NOT_DISRUPT_KEYS[-1], "1h")}, "pod-do-not-disrupt"),
        ({"disruption_facts": noted(PREFER_NO_EVICTION, "")}, "pod-prefer-no-eviction"),
        ({"disruption_facts": DisruptionFacts(local_volumes=("data",))}, "pod-local-storage"),
        ({"namespace": OWN}, "evict-own"),
        (
            {"node_constraints": NodeConstraints(tolerations=(Toleration(operator="Exists"),))},
            "evict-comes-back",
        ),
        (
            {"node_constraints": NodeConstraints(tolerations=(Toleration(TAINT_KEY, "Exists"),))},
            "evict-comes-back",
        ),
        # The annotation safe-to-evict does not override other reasons.
        (
            {"disruption_facts": replace(noted(SAFE_TO_EVICT, "true"), local_volumes=("data",))},
            "pod-local-storage",
        ),
        ({"disruption_facts": noted(SAFE_TO_EVICT, "true"), "owner_kind": ""}, "pod-bare"),
    ],
)
def test_evictions_fail_before_they_begin_when_pod_is_never_evicted(
    changes: dict[str, Any], code: str
) -> None:
    found = plan_evictions(
        eviction_input(make_pod("a"), replace(make_pod("b", of="other"), **changes)),
        EvictionState(),
    )
    assert (evicted_pods(found), found.state.node, failed(found)) == ([], "", {"m": code})


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"owner_kind": "StatefulSet"},
        {"owner_kind": "ReplicationController"},
        {"owner_kind": "Job", "disruption_facts": noted(SAFE_TO_EVICT, "true")},
        {"disruption_facts": noted(DO_NOT_DISRUPT, "nonsense")},
        {"ready": False},
    ],
)
def test_evictable_pod_is_evicted(changes: dict[str, Any]) -> None:
    assert evicted_pods(
        plan_evictions(eviction_input(replace(make_pod("a"), **changes)), EvictionState())
    ) == ["a"]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"daemon": True}, "pod-daemon"),
        ({"mirror": True}, "pod-mirror"),
        ({"priority": -11}, "pod-expendable"),
        ({"terminating": True, "owner_kind": ""}, None),
    ],
)
def test_node_bound_pod_is_never_evicted(changes: dict[str, Any], code: str | None) -> None:
    why = why_never(replace(make_pod("a"), **changes), OWN, Now(NOW))
    assert (why.code if why else None) == code


def test_terminating_pod_does_not_block_evictions() -> None:
    leaving = make_pod("own", of="own", namespace=OWN, terminating=True)
    assert evicted_pods(
        plan_evictions(eviction_input(make_pod("a"), leaving), EvictionState())
    ) == ["a"]


@pytest.mark.parametrize(
    "changes",
    [
        {"daemon": True, "owner_kind": "DaemonSet"},
        {"mirror": True, "owner_kind": "Node"},
        {"priority": -11},
    ],
)
def test_evictions_ignore_pods_that_do_not_occupy_node(
    changes: dict[str, Any],
) -> None:
    beside = replace(make_pod("b", of="other"), **changes)
    assert evicted_pods(
        plan_evictions(eviction_input(make_pod("a"), beside), EvictionState())
    ) == ["a"]
    assert plan_evictions(eviction_input(beside), EvictionState()).state.node == ""


@pytest.mark.parametrize(
    "changes",
    [
        {
            "daemon": True,
            "owner_kind": "DaemonSet",
            "disruption_facts": noted(DO_NOT_DISRUPT, "true"),
        },
        {"priority": -11},
        {
            "owner_kind": "StatefulSet",
            "terminating": True,
            "disruption_facts": DisruptionFacts(overdue_seconds=NOW - 1),
        },
    ],
)
def test_no_pod_is_evicted_when_karpenter_node_cannot_become_empty(
    changes: dict[str, Any],
) -> None:
    beside = replace(make_pod("b", of="other"), **changes)
    theirs = replace(M, labels={**M.labels, KARPENTER_LABEL: "default"})
    for where, evicted in ((M, ["a"]), (theirs, [])):
        found = plan_evictions(
            eviction_input(make_pod("a"), beside, nodes=(where, OPEN)), EvictionState()
        )
        assert evicted_pods(found) == evicted
        assert bool(failed(found)) is not bool(evicted)


def test_evictions_on_karpenter_node_fail_when_pod_is_stuck() -> None:
    """It fails when the pod is overdue; until then the drain waits."""
    theirs = replace(M, labels={**M.labels, KARPENTER_LABEL: "default"})
    ends = replace(
        A,
        owner_kind="StatefulSet",
        terminating=True,
        disruption_facts=DisruptionFacts(overdue_seconds=NOW),
    )
    inputs = eviction_input(ends, nodes=(theirs, OPEN))
    memory = EvictionState(node="m", initial_pods=frozenset({ends.uid}), progress=NOW - 1000)
    assert failed(plan_evictions(inputs, memory)) == {}
    late = plan_evictions(replace(inputs, now_seconds=NOW + 1), memory)
    assert failed(late) == {"m": "pod-long-terminating"}


@pytest.mark.parametrize(
    "changes",
    [
        {"owner_kind": "Job"},
        {"disruption_facts": noted(SAFE_TO_EVICT, "on-completion")},
        {"owner_kind": "", "disruption_facts": DisruptionFacts(completes=True)},
        {"owner_kind": "Workflow", "disruption_facts": DisruptionFacts(completes=True)},
        {
            "owner_kind": "",
            "disruption_facts": replace(noted(SAFE_TO_EVICT, "true"), completes=True),
        },
        {"owner_kind": "Job", "disruption_facts": DisruptionFacts(gang="g", completes=True)},
    ],
)
def test_next_node_is_emptied_when_pod_ends_by_itself(
    changes: dict[str, Any],
) -> None:
    ends = replace(make_pod("a", of="other"), **changes)
    alone = plan_evictions(eviction_input(ends, make_pod("b")), EvictionState())
    assert (evicted_pods(alone), failed(alone), alone.state.node) == ([], {}, "")
    nodes = (M, marked_node("n", order=2), OPEN)
    found = plan_evictions(eviction_input(ends, make_pod("b", "n"), nodes=nodes), EvictionState())
    assert (evicted_pods(found), found.state.node) == (["b"], "n")


def test_pods_go_by_what_their_eviction_costs_their_owners() -> None:
    costs = {"a": "10", "b": "-5", "c": "", "d": "no number"}
    pods = [
        replace(make_pod(name, of=name), disruption_facts=noted(DISRUPTION_COST, cost))
        for name, cost in costs.items()
    ]
    context = EvictionContext(eviction_input(*pods), [])
    assert [pod.name for pod in context.in_order("m")] == ["b", "c", "d", "a"]


# Budgets


@pytest.mark.parametrize(
    ("budgets", "evicted_now", "code"),
    [
        ([budget(1)], 1, ""),
        ([budget(2)], 2, ""),
        ([budget(1, healthy_min=3)], 1, ""),  # its status has not caught up
        ([budget(0)], 0, "evict-budget"),
        ([budget(-1)], 0, "evict-budget"),
        ([budget(3, outdated=True)], 0, "evict-budget"),
        ([budget(3, namespace="other", selector=select("web", "other"))], 2, ""),
    ],
)
def test_evictions_are_limited_by_disruption_budget(
    budgets: list[DisruptionBudget], evicted_now: int, code: str
) -> None:
    found = plan_evictions(
        eviction_input(make_pod("a"), make_pod("b"), budgets=tuple(budgets)), EvictionState()
    )
    assert len(found.evict) == evicted_now
    assert codes(found) == ({code} if code else {"evict-budget"} if evicted_now == 1 else set())
    assert failed(found) == {}


@pytest.mark.parametrize(
    ("budgets", "code"),
    [
        ([budget(1, too_much="its selector has 1 byte too many")], "evict-budget-too-large"),
        ([budget(1), budget(1, "c")], "evict-two-budgets"),
        ([budget(0, healthy_min=3)], "evict-budget-never"),
        ([budget(0, healthy=0, healthy_min=0, expected=0)], "evict-budget-never"),
    ],
)
def test_evictions_fail_at_once_when_budgets_never_allow_eviction(
    budgets: list[DisruptionBudget], code: str
) -> None:
    found = plan_evictions(eviction_input(make_pod("a"), budgets=tuple(budgets)), EvictionState())
    assert (evicted_pods(found), failed(found)) == ([], {"m": code})


@pytest.mark.parametrize(
    ("changes", "evictable"),
    [
        ({}, True),  # enough others are healthy
        ({"healthy": 1}, False),
        ({"healthy": 1, "unhealthy_free": True}, True),
        ({"healthy": 1, "unhealthy_free": True, "outdated": True}, True),
        ({"healthy": 0, "healthy_min": 0}, False),
    ],
)
def test_unready_pod_is_evicted_by_unhealthy_pod_policy(
    changes: dict[str, Any], evictable: bool
) -> None:
    found = plan_evictions(
        eviction_input(replace(make_pod("a"), ready=False), budgets=(budget(0, **changes),)),
        EvictionState(),
    )
    assert evicted_pods(found) == (["a"] if evictable else [])


def test_unready_pod_does_not_use_up_budget() -> None:
    unready = replace(make_pod("a"), owner_name="other", ready=False)
    assert evicted_pods(
        plan_evictions(
            eviction_input(unready, make_pod("b"), budgets=(budget(1),)), EvictionState()
        )
    ) == [
        "a",
        "b",
    ]


# Turns


@pytest.mark.parametrize(
    ("nodes", "draining"),
    [
        ((M, marked_node("n", order=2)), "m"),
        ((marked_node("m", order=2), marked_node("n")), "n"),
        ((marked_node("m", age=59), marked_node("n", age=60, order=2)), "n"),
        ((marked_node("m", age=0),), ""),
        ((replace(M, taints=(*M.taints, Taint(min(DELETING_TAINTS), "", "NoSchedule"))),), ""),
        ((node("m"),), ""),
    ],
)
def test_first_node_due_is_emptied(nodes: tuple[Node, ...], draining: str) -> None:
    pods = [make_pod(f"{name}-{one.name}", one.name) for one in nodes for name in "ab"]
    found = plan_evictions(eviction_input(*pods, nodes=(*nodes, OPEN)), EvictionState())
    assert found.state.node == draining
    assert {one.pod.node for one in found.evict} == ({draining} if draining else set())


def test_pod_is_not_evicted_when_plan_has_no_place() -> None:
    inputs = eviction_input(make_pod("a"), make_pod("b"))
    (removal,) = inputs.plan.removals
    known = replace(removal, placements=removal.placements[:1])
    found = plan_evictions(replace(inputs, plan=replace(inputs.plan, removals=(known,))), BEGAN)
    assert [f"d/{name}" for name in evicted_pods(found)] == [removal.placements[0].pod]
    assert codes(found) == {"evict-no-place"}


def test_node_with_evictions_keeps_its_turn() -> None:
    young = eviction_input(make_pod("a"), nodes=(marked_node("m", age=0), OPEN))
    assert evicted_pods(plan_evictions(young, BEGAN)) == ["a"], (
        "although `eviction.after` is longer now"
    )
    nodes = (M, marked_node("n", order=2), OPEN)
    found = plan_evictions(
        eviction_input(make_pod("a"), make_pod("b", "n"), nodes=nodes),
        EvictionState(node="n", progress=NOW),
    )
    assert (found.state.node, evicted_pods(found)) == ("n", ["b"])


def test_started_evictions_continue_beside_job() -> None:
    inputs = eviction_input(make_pod("a"), make_pod("job", of="job", owner_kind="Job"))
    assert plan_evictions(inputs, EvictionState(node="m")).state.node == ""
    found = plan_evictions(inputs, replace(BEGAN, progress=NOW - 99))
    assert (evicted_pods(found), codes(found)) == (["a"], {"evict-job"})


def test_eviction_state_restarts_for_next_node() -> None:
    found = plan_evictions(
        eviction_input(make_pod("a")), replace(BEGAN, node="gone", initial_pods=frozenset({"x"}))
    )
    assert (found.state.began, found.state.initial_pods) == (False, frozenset({"uid-a"}))
    assert found.state.progress == NOW


@pytest.mark.parametrize("value", ["PreferNoSchedule", "NoSchedule"])
def test_no_pod_is_evicted_before_mark_is_no_schedule(value: str) -> None:
    found = plan_evictions(
        eviction_input(make_pod("a"), nodes=(marked_node("m", value=value), OPEN)), EvictionState()
    )
    assert found.no_schedule == {"m"}
    assert evicted_pods(found) == (["a"] if value == "NoSchedule" else [])
    assert (
        evicted_pods(
            plan_evictions(eviction_input(make_pod("a"), nodes=(BARE, OPEN)), EvictionState())
        )
        == []
    )


def test_no_pod_is_evicted_when_no_schedule_is_blocked() -> None:
    found = plan_evictions(
        eviction_input(make_pod("a"), no_schedule_blockers={"m": (BLOCKER,)}),
        EvictionState(node="m"),
    )
    assert (found.state.node, evicted_pods(found), failed(found)) == ("", [], {})


@pytest.mark.parametrize(
    ("on", "against", "failure"),
    [
        (None, {"m": (BLOCKER,)}, {"m": "evict-not-replaced"}),
        ("open", {"m": (BLOCKER,)}, {}),
        (None, {}, {}),
    ],
)
def test_evictions_fail_when_no_schedule_is_blocked_for_its_own_pods(
    on: str | None, against: dict[str, tuple[Blocker, ...]], failure: dict[str, str]
) -> None:
    """Otherwise the pods would be evicted and return again and again."""
    before = replace(evicted(make_pod("a")), node="m")
    new = make_pod("b", on, ready=False, unschedulable=on is None)
    found = plan_evictions(
        eviction_input(new, make_pod("rest", of="other"), no_schedule_blockers=against), before
    )
    assert failed(found) == failure


def test_emptied_node_remains_no_schedule_until_deleted() -> None:
    assert plan_evictions(eviction_input(), BEGAN).no_schedule == {"m"}


@pytest.mark.parametrize(
    "config",
    [
        replace(CONFIG, eviction=EvictionConfig()),
        replace(CONFIG, mode=Mode.OBSERVE),
        Config(),
    ],
)
def test_no_pod_is_evicted_unless_enabled_and_enforced(config: Config) -> None:
    assert (
        plan_evictions(replace(eviction_input(make_pod("a")), config=config), EvictionState())
        == planner.NOTHING
    )


@pytest.mark.parametrize(
    ("memory", "failures"),
    [
        (EvictionState(node="m"), {}),
        (BEGAN, {"m": "evict-interrupted"}),
        (replace(BEGAN, node="x"), {}),
    ],
)
def test_evictions_are_interrupted_when_plan_keeps_node(
    memory: EvictionState, failures: dict[str, str]
) -> None:
    full = make_pod("full", "open", requests=replace(OPEN.allocatable, pods=1))
    found = plan_evictions(eviction_input(make_pod("a"), full), memory)
    assert (found.state.node, evicted_pods(found), failed(found)) == ("", [], failures)
    if failures:
        why = found.state.failed["m"].message
        assert why == "the cluster needs the node again: threshold, no-room"
    leaves = replace(M, taints=(*M.taints, Taint(min(DELETING_TAINTS), "", "NoSchedule")))
    assert (
        failed(plan_evictions(eviction_input(make_pod("a"), full, nodes=(leaves, OPEN)), memory))
        == {}
    )
    assert failed(plan_evictions(eviction_input(full), memory)) == {}, "empty"


def test_new_leader_observes_before_it_evicts() -> None:
    inputs = eviction_input(make_pod("a"), watched_seconds=OBSERVE_SECONDS - 1)
    found = plan_evictions(inputs, EvictionState())
    assert (found.state.node, evicted_pods(found)) == ("m", [])
    assert evicted_pods(
        plan_evictions(replace(inputs, watched_seconds=OBSERVE_SECONDS), found.state)
    ) == ["a"]


# Limits


def test_only_budgets_of_own_namespace_are_checked() -> None:
    """A tenant can create any number of budgets, for labels that other namespaces use too."""
    theirs = [
        budget(0, f"b{n}", namespace="other", selector=select("web", "other")) for n in range(99)
    ]
    none, many = Allowances([budget(1)]), Allowances([*theirs, budget(1)])
    assert none.why_not(B) is many.why_not(B) is None
    assert count_calls(partial(none.why_not, A)) == count_calls(partial(many.why_not, A))


def test_reason_says_that_planned_evictions_use_the_budget_when_it_allows_one() -> None:
    allowances = Allowances([budget(1)])
    allowances.take(A)
    assert (why := allowances.why_not(A)) is not None
    assert why.message == "other evictions use all disruptions that PodDisruptionBudget b allows"


@pytest.mark.parametrize(
    ("changes", "names", "evicted_now"),
    [
        ({}, {"d": 7}, 3),
        ({"in_namespace_max": 9}, {"d": 7}, 5),
        ({"in_namespace_max": 9, "on_node_max": 9}, {"d": 12}, 9),
        ({"in_namespace_max": 9, "on_node_max": 9, "config": at_once(2)}, {"d": 7}, 2),
        ({}, {"d": 7, "e": 1, "f": 7}, 5),
        ({"in_namespace_max": 1}, {"d": 7, "e": 1, "f": 7}, 3),
    ],
)
def test_concurrent_evictions_are_limited(
    changes: dict[str, Any], names: dict[str, int], evicted_now: int
) -> None:
    pods = [
        make_pod(f"p{number}", namespace=space)
        for space, n in names.items()
        for number in range(n)
    ]
    pods = [replace(one, uid=one.key) for one in pods]
    found = plan_evictions(eviction_input(*pods, **changes), EvictionState())
    assert len(found.evict) == evicted_now
    assert codes(found) == {"evict-turn"}


LIAR = node("liar", 1_000_000, 4_000_000)
"""A node whose kubelet reports 1,000 CPUs."""


def gone_to(on: str, many: int, **changes: Any) -> list[Pod]:
    """Return the replacements of the pods p0, p1, ..."""
    return [make_pod(f"new{number}", on, **changes) for number in range(many)]


def test_node_gets_its_share_of_evicted_pods_whatever_it_claims() -> None:
    inputs: dict[str, Any] = {
        "nodes": (M, LIAR, node("full", 100, 100)),
        "on_node_max": 9,
        "in_namespace_max": 9,
    }
    pods = [make_pod(f"p{number}") for number in range(9)]
    first = plan_evictions(eviction_input(*pods, **inputs), EvictionState())
    assert evicted_pods(first) == ["p0", "p1", "p2", "p3", "p4"], "half of 9 pods, rounded up"
    assert codes(first) == {"evict-node-share"}
    memory = first.state
    for one in first.evict:
        memory = memory.after(one, NOW)
    new = gone_to("liar", 5, created_seconds=NOW)
    later = eviction_input(*pods[5:], *new, **inputs)
    waiting = plan_evictions(replace(later, now_seconds=NOW + 1), memory)
    assert (waiting.evict, codes(waiting)) == ((), {"evict-node-share"})
    assert "liar has got 5" in waiting.waits[0].message
    assert {one.node for one in waiting.state.placed.values()} == {"liar"}
    late = plan_evictions(replace(later, now_seconds=NOW + 600), waiting.state)
    assert failed(late) == {}, "a wait is no failure"
    again = plan_evictions(replace(later, now_seconds=NOW + 601), late.state)
    assert len(again.evict) == 4


def test_placements_outlive_the_marks() -> None:
    known = replace(LONG_AGO, placed={"u": Placement("new", "open", NOW)})
    unmarked = eviction_input(make_pod("a", "open"), nodes=(OPEN,))
    assert plan_evictions(unmarked, known).state.placed == known.placed
    later = plan_evictions(replace(unmarked, now_seconds=NOW + 600), known)
    assert later.state.placed == {}


def test_pods_that_ebb_did_not_evict_do_not_count() -> None:
    new = gone_to("liar", 9, of="third", created_seconds=NOW)
    nodes = (M, LIAR, node("full", 100, 100))
    inputs = eviction_input(A, *new, make_pod("late", "liar", of="other"), nodes=nodes)
    found = plan_evictions(inputs, evicted(B))
    assert {uid: one.pod for uid, one in found.state.placed.items()} == {B.uid: "uid-late"}
    assert evicted_pods(found) == ["a"]


def test_node_of_20_pods_is_emptied_to_the_only_other_node_without_a_pause() -> None:
    left, new = [make_pod(f"p{number:02}") for number in range(20)], list[Pod]()
    memory, now = EvictionState(), NOW
    while left:
        inputs = eviction_input(*left, *new, now_seconds=now, on_node_max=4, in_namespace_max=10)
        found = plan_evictions(inputs, memory)
        assert len(found.evict) == 4
        memory = found.state
        for one in found.evict:
            memory = memory.after(one, now)
            left.remove(one.pod)
            new.append(make_pod(f"new-{one.pod.name}", "open", created_seconds=now))
        now += 3
    assert len(new) == 20


@pytest.mark.parametrize(
    "limit", [{"on_node_max": 3}, {"in_namespace_max": 3}, {"config": at_once(3)}]
)
def test_terminating_pods_count_in_limits_whoever_evicted_them(limit: dict[str, Any]) -> None:
    limits = {"on_node_max": 9, "in_namespace_max": 9} | limit
    leaving = [make_pod(f"x{number}", of=f"x{number}", terminating=True) for number in range(2)]
    inputs = eviction_input(*leaving, *(make_pod(f"p{number}") for number in range(5)), **limits)
    assert len(plan_evictions(inputs, EvictionState()).evict) == 1


@pytest.mark.parametrize(("where", "evicted_now"), [("m2", 3), ("m", 2)])
def test_long_grace_period_of_one_namespace_does_not_block_others(
    where: str, evicted_now: int
) -> None:
    """Otherwise every drain would fail, one after the other."""
    years = DisruptionFacts(overdue_seconds=NOW + 10**9)
    leaving = [
        make_pod(
            f"x{number}", where, of="x", namespace="x", terminating=True, disruption_facts=years
        )
        for number in range(20)
    ]
    nodes = (M, marked_node("m2", order=2), OPEN)
    inputs = eviction_input(
        *leaving, *(make_pod(f"p{number}") for number in range(5)), nodes=nodes
    )
    assert len(plan_evictions(inputs, EvictionState()).evict) == evicted_now


def test_stateful_set_pods_are_evicted_one_by_one() -> None:
    pods = [make_pod(f"db-{number}", of="db", owner_kind="StatefulSet") for number in range(3)]
    assert len(plan_evictions(eviction_input(*pods), EvictionState()).evict) == 1


# After an eviction


def evicted(*pods: Pod) -> EvictionState:
    """Return the state after these pods were evicted; one more pod is Ready elsewhere."""
    memory = plan_evictions(eviction_input(*pods, make_pod("rest", "open")), EvictionState()).state
    for one in plan_evictions(
        eviction_input(*pods, make_pod("rest", "open")), EvictionState()
    ).evict:
        memory = memory.after(one, NOW)
    return memory


A, B = make_pod("a"), make_pod("b", of="other")


@pytest.mark.parametrize(
    ("pods", "after", "on"),
    [
        ((A,), 1, False),  # not seen yet
        ((replace(A, terminating=True),), 1, False),
        ((), 1, False),
        ((), 99, False),
        ((make_pod("new", None, ready=False),), 99, False),
        ((make_pod("new", "open"),), 1, True),
        ((make_pod("new", "open", terminating=True),), 1, False),
        ((replace(make_pod("new", "open"), ready=False),), 99, False),
        # The next pod of a StatefulSet has the same name.
        ((replace(A, uid="another", node="open"),), 1, True),
        ((make_pod("new", "open", of="strange"),), 1, False),
    ],
)
def test_next_pods_are_evicted_when_replacements_are_ready(
    pods: tuple[Pod, ...], after: int, on: bool
) -> None:
    memory = evicted(A)
    assert memory.began
    found = plan_evictions(
        eviction_input(*pods, B, make_pod("rest", "open"), now_seconds=NOW + after), memory
    )
    assert ("b" in evicted_pods(found)) is on
    assert codes(found) == (set() if on else {"evict-not-replaced"})


@pytest.mark.parametrize(("after", "failure"), [(120, False), (599, False), (600, True)])
def test_evictions_fail_after_timeout_when_no_replacement_appears(
    after: int, failure: bool
) -> None:
    """For example the pods are gated, or a quota or webhook prevents them."""
    inputs = eviction_input(
        B, make_pod("rest", "open"), now_seconds=NOW + after, timeout_seconds=TIMEOUT_SECONDS
    )
    found = plan_evictions(inputs, evicted(A))
    assert evicted_pods(found) == []
    assert failed(found) == ({"m": "evict-not-replaced"} if failure else {})


def test_controller_without_replacement_loses_no_pods_on_other_nodes() -> None:
    """Otherwise each drain would evict some of the remaining pods."""
    on_n, rest, again = make_pod("b", "n"), make_pod("rest", "open"), make_pod("again", "open")
    first = plan_evictions(
        eviction_input(A, on_n, rest, nodes=(M, node("n"), OPEN)), EvictionState()
    )
    (one,) = first.evict
    gated = eviction_input(B, on_n, rest, nodes=(M, node("n"), OPEN), now_seconds=NOW + 100)
    late = plan_evictions(gated, first.state.after(one, NOW))
    assert failed(late) == {"m": "evict-not-replaced"}
    other = make_pod("c", "n", of="other")
    for pods, after, evictable in (
        ((on_n, other, rest), 200, []),
        ((on_n, other, rest), BACKOFF_SECONDS_MAX + 99, []),
        ((on_n, other, rest, again), 200, ["b", "c"]),
        ((on_n, other, rest), BACKOFF_SECONDS_MAX + 100, ["b", "c"]),
    ):
        nodes = (marked_node("n"), OPEN)
        found = plan_evictions(
            eviction_input(*pods, nodes=nodes, now_seconds=NOW + after), late.state
        )
        assert sorted(evicted_pods(found)) == evictable
        assert failed(found) == ({} if evictable else {"n": "evict-not-replaced"})
    nobody = eviction_input(on_n, rest, nodes=(node("n"), OPEN), now_seconds=NOW + 200)
    assert plan_evictions(nobody, late.state).state.missed, "the node may be marked again"


@pytest.mark.parametrize(("left", "on"), [(("x", "y"), False), (("x",), True), ((), True)])
def test_replacement_is_not_required_when_controller_scales_in(
    left: tuple[str, ...], on: bool
) -> None:
    """Or when the controller is deleted."""
    first = plan_evictions(
        eviction_input(A, make_pod("x", "open"), make_pod("y", "open")), EvictionState()
    )
    (one,) = first.evict
    memory = first.state.after(one, NOW)
    found = plan_evictions(eviction_input(B, *(make_pod(name, "open") for name in left)), memory)
    assert evicted_pods(found) == (["b"] if on else [])


def test_pod_is_evicted_only_when_its_siblings_are_ready() -> None:
    making = replace(make_pod("new", "open"), ready=False)
    found = plan_evictions(eviction_input(A, making), EvictionState())
    assert (evicted_pods(found), codes(found)) == ([], {"evict-unsettled"})
    assert evicted_pods(
        plan_evictions(eviction_input(replace(A, ready=False), making), EvictionState())
    ) == ["a"]


def test_overdue_pod_does_not_block_its_siblings() -> None:
    due = DisruptionFacts(overdue_seconds=NOW)
    late = replace(make_pod("late", "open", terminating=True, disruption_facts=due), ready=False)
    assert codes(plan_evictions(eviction_input(A, late), EvictionState())) == {"evict-unsettled"}
    assert evicted_pods(
        plan_evictions(eviction_input(A, late, now_seconds=NOW + 1), EvictionState())
    ) == ["a"]


def test_evictions_begin_only_when_all_pods_are_evictable() -> None:
    inputs = eviction_input(A, B, budgets=(budget(0),))
    assert evicted_pods(plan_evictions(inputs, EvictionState())) == []
    began = BEGAN
    assert evicted_pods(plan_evictions(inputs, began)) == ["b"]


# Failure


@pytest.mark.parametrize(
    ("back", "code"),
    [
        (make_pod("new"), "evict-comes-back"),
        (make_pod("new", terminating=True), ""),
        (make_pod("new", of="strange"), ""),
        (make_pod("new", "open"), ""),
    ],
)
def test_evictions_fail_when_evicted_pods_return(back: Pod, code: str) -> None:
    """Pods whose template names the node would be evicted forever."""
    found = plan_evictions(eviction_input(back, B, make_pod("rest", "open")), evicted(A))
    assert failed(found) == ({"m": code} if code else {})


def test_pods_that_existed_before_do_not_count_as_returned() -> None:
    beside = make_pod("beside")
    first = plan_evictions(eviction_input(A, beside, on_node_max=1), EvictionState())
    (one,) = first.evict
    left = beside if one.pod is A else A
    found = plan_evictions(
        eviction_input(left, make_pod("new", "open"), on_node_max=1), first.state.after(one, NOW)
    )
    assert (evicted_pods(found), failed(found)) == ([left.name], {})


def test_evictions_without_progress_fail_after_timeout_with_reason() -> None:
    inputs = eviction_input(A, budgets=(budget(0),))
    memory = plan_evictions(inputs, EvictionState()).state
    assert (memory.node, memory.progress) == ("m", NOW)
    memory = plan_evictions(replace(inputs, now_seconds=NOW + 99), memory).state
    assert memory.node == "m"
    found = plan_evictions(replace(inputs, now_seconds=NOW + 100), memory)
    assert (failed(found), found.state.node) == ({"m": "evict-budget"}, "")
    assert "allows 0" in found.state.failed["m"].message
    again = plan_evictions(replace(inputs, now_seconds=NOW + 101), found.state)
    assert failed(again) == {"m": "evict-budget"}, "until it is unmarked"
    released = eviction_input(make_pod("a"), nodes=(node("m"), OPEN))
    assert failed(plan_evictions(released, again.state)) == {}


def test_refused_eviction_is_retried_until_timeout() -> None:
    inputs = eviction_input(A)
    memory = plan_evictions(inputs, EvictionState()).state.refusing(
        A, "too many requests", until=NOW + 5
    )
    found = plan_evictions(replace(inputs, now_seconds=NOW + 4), memory)
    assert (evicted_pods(found), codes(found)) == ([], {"evict-refused"})
    assert evicted_pods(plan_evictions(replace(inputs, now_seconds=NOW + 5), memory)) == ["a"]
    found = plan_evictions(replace(inputs, now_seconds=NOW + 100), memory)
    assert (evicted_pods(found), failed(found)) == ([], {"m": "evict-refused"})
    assert "too many requests" in found.state.failed["m"].message


def test_evictable_pod_is_evicted_even_after_timeout() -> None:
    inputs = eviction_input(A, B, on_node_max=1)
    first = plan_evictions(inputs, LONG_AGO)
    assert (evicted_pods(first), failed(first)) == (["a"], {})
    memory = first.state.refusing(A, "429", until=NOW)
    found = plan_evictions(inputs, memory)
    assert (evicted_pods(found), failed(found)) == ([], {"m": "evict-refused"})


def test_pause_after_refusal_doubles_up_to_bound() -> None:
    memory, waits = EvictionState(), []
    for _ in range(6):
        waits.append(memory.pause_seconds(A))
        memory = memory.refusing(A, "", until=NOW)
    assert waits == [5, 10, 20, 40, 60, 60]


def test_eviction_restarts_timeout() -> None:
    (one,) = plan_evictions(eviction_input(A), EvictionState()).evict
    memory = EvictionState(node="m", initial_pods=frozenset({A.uid}), progress=NOW).after(
        one, NOW + 50
    )
    inputs = eviction_input(replace(B, uid="uid-b"), make_pod("rest", "open"), budgets=(
        budget(0, selector=select("other")),
    ))  # fmt: skip
    for second, failure in ((149, False), (150, True)):
        found = plan_evictions(
            replace(inputs, now_seconds=NOW + second), replace(memory, evicted=())
        )
        assert ("m" in failed(found)) is failure


LONG_AGO = replace(BEGAN, initial_pods=frozenset({A.uid}), progress=NOW - 1000)
LEAVING = make_pod(
    "x", of="x", terminating=True, disruption_facts=DisruptionFacts(overdue_seconds=NOW)
)


@pytest.mark.parametrize(
    ("inputs", "code"),
    [
        (eviction_input(A, budgets=(budget(0),)), "evict-budget"),
        (eviction_input(A, LEAVING, budgets=(budget(0),)), ""),
        (eviction_input(A, LEAVING, budgets=(budget(0),), now_seconds=NOW + 1), "evict-budget"),
        (
            eviction_input(A, nodes=(marked_node("m", value="PreferNoSchedule"), OPEN)),
            "evict-needs-no-schedule",
        ),
        (eviction_input(A, nodes=(BARE, OPEN)), "evict-needs-no-schedule"),
        (eviction_input(A, LEAVING, nodes=(BARE, OPEN)), "evict-needs-no-schedule"),
        (eviction_input(A, nodes=(BARE, OPEN), watched_seconds=OBSERVE_SECONDS - 1), ""),
        (eviction_input(A, budgets=(budget(0),), watched_seconds=0), ""),
    ],
)
def test_timeout_does_not_run_while_pods_terminate_or_leader_observes(
    inputs: EvictionInput, code: str
) -> None:
    found = plan_evictions(inputs, LONG_AGO)
    assert failed(found) == ({"m": code} if code else {})
    assert code or found.state.progress == NOW


def test_next_node_is_emptied_when_mark_does_not_become_no_schedule() -> None:
    nodes = (marked_node("m", value="PreferNoSchedule"), marked_node("n", order=2), OPEN)
    inputs = eviction_input(A, make_pod("b", "n"), nodes=nodes)
    memory = plan_evictions(inputs, EvictionState()).state
    memory = plan_evictions(replace(inputs, now_seconds=NOW + 99), memory).state
    assert memory.node == "m"
    memory = plan_evictions(replace(inputs, now_seconds=NOW + 100), memory).state
    found = plan_evictions(replace(inputs, now_seconds=NOW + 101), memory)
    assert (found.state.node, evicted_pods(found)) == ("n", ["b"])
    assert failed(found) == {"m": "evict-needs-no-schedule"}, (
        "although its release may fail as well"
    )


def test_timeout_restarts_when_mark_becomes_no_schedule() -> None:
    soft = eviction_input(
        A, budgets=(budget(0),), nodes=(marked_node("m", value="PreferNoSchedule"), OPEN)
    )
    memory = plan_evictions(soft, EvictionState()).state
    hard = eviction_input(A, budgets=(budget(0),))
    for second, failure in ((99, False), (198, False), (199, True)):
        found = plan_evictions(replace(hard, now_seconds=NOW + second), memory)
        assert ("m" in failed(found)) is failure
        memory = found.state


def test_evictions_fail_when_replacement_does_not_become_ready() -> None:
    waiting = make_pod("new", None, ready=False)
    inputs = eviction_input(B, waiting, make_pod("rest", "open"), now_seconds=NOW + 100)
    found = plan_evictions(inputs, evicted(A))
    assert (evicted_pods(found), failed(found)) == ([], {"m": "evict-not-replaced"})
    assert found.state.evicted == ()


def test_missing_replacement_of_one_node_does_not_fail_evictions_on_next_node() -> None:
    memory = replace(evicted(A), node="n", evicted_owners=frozenset(), initial_pods=frozenset())
    nodes = (M, marked_node("n", order=2), OPEN)
    waiting = make_pod("new", None, ready=False)
    inputs = eviction_input(
        make_pod("c", "n", of="other"), waiting, nodes=nodes, now_seconds=NOW + 99
    )
    assert codes(plan_evictions(inputs, memory)) == {"evict-not-replaced"}
    found = plan_evictions(replace(inputs, now_seconds=NOW + 100), memory)
    assert (evicted_pods(found), failed(found)) == (["c"], {})


def test_evictions_wait_for_grace_period() -> None:
    due = replace(
        A, terminating=True, disruption_facts=DisruptionFacts(overdue_seconds=NOW + 5000)
    )
    inputs = eviction_input(due, make_pod("rest", "open"), now_seconds=NOW + 5000)
    found = plan_evictions(inputs, evicted(A))
    assert (found.state.node, failed(found)) == ("m", {})
    late = plan_evictions(replace(inputs, now_seconds=NOW + 5100), found.state)
    assert failed(late) == {"m": "evict-not-replaced"}
    memory = EvictionState(node="m", initial_pods=frozenset({A.uid}), progress=NOW)
    stuck = plan_evictions(replace(inputs, now_seconds=NOW + 5101), memory)
    assert (stuck.state.node, failed(stuck)) == ("", {}), "the node is empty for autoscalers"


@pytest.mark.parametrize(
    ("new", "after", "on"),
    [
        ((make_pod("new", "open"),), 0, False),  # it may still need the time
        ((make_pod("new", "open"),), 1, True),
        ((replace(make_pod("new", "open"), ready=False),), 1, False),
        ((), 99, False),  # a StatefulSet creates no other pod while it exists
    ],
)
def test_stuck_pod_blocks_evictions_until_its_replacement_is_ready(
    new: tuple[Pod, ...], after: int, on: bool
) -> None:
    """For example it has a finalizer that is never removed, or files on a dead server."""
    stuck = replace(A, terminating=True, disruption_facts=DisruptionFacts(overdue_seconds=NOW))
    inputs = eviction_input(stuck, *new, B, make_pod("rest", "open"), now_seconds=NOW + after)
    assert evicted_pods(plan_evictions(inputs, evicted(A))) == (["b"] if on else [])


# Laws

OWNERS = ("web", "db", "batch")


ODD = (
    {"owner_kind": "", "owner_name": ""},
    {"owner_kind": "Job"},
    {"disruption_facts": noted(SAFE_TO_EVICT, "false")},
    {"disruption_facts": noted(DO_NOT_DISRUPT, "true")},
    {"disruption_facts": DisruptionFacts(local_volumes=("data",))},
    {"disruption_facts": DisruptionFacts(gang="g")},
    {"disruption_facts": DisruptionFacts(completes=True), "owner_kind": "Workflow"},
    {"namespace": OWN},
    {"namespace": "kube-system"},
    {"ready": False},
    {"ready": False},
    {"terminating": True},
    {"terminating": True},
)


@st.composite
def pods_(draw: st.DrawFn) -> list[Pod]:
    """Return random pods; most are evictable, otherwise few drains would begin."""
    found = []
    for number in range(draw(st.integers(1, 14))):
        of = draw(st.sampled_from(("web", "web", "db", "batch")))
        made = make_pod(
            f"p{number:02}",
            draw(st.sampled_from(["m", "m", "m", "n", "open"])),
            of=of,
            owner_kind="StatefulSet" if of == "db" else "ReplicaSet",
            namespace=draw(st.sampled_from(["d", "d", "d", "e"])),
            disruption_facts=draw(
                st.sampled_from(
                    [DisruptionFacts(), DisruptionFacts(), noted(SAFE_TO_EVICT, "true")]
                )
            ),
        )
        odd = draw(st.sampled_from([*([{}] * 80), *ODD]))
        found.append(replace(made, **odd))  # type: ignore[arg-type]
    return found


BUDGETS = st.lists(
    st.builds(
        lambda allowed, app, space, free, name: replace(
            budget(allowed, f"b{name}", namespace=space, selector=select(app, space)),
            unhealthy_free=free,
        ),
        st.sampled_from([-1, 0, 1, 1, 2, 2, 3]),
        st.sampled_from(OWNERS),
        st.sampled_from(["d", "e"]),
        st.booleans(),
        st.integers(0, 10**6),
    ),
    max_size=3,
    unique_by=lambda one: one.name,
)
MEMORIES = st.sampled_from([EvictionState(), BEGAN, EvictionState(node="n", progress=NOW)])
LIMITS = st.tuples(st.integers(1, 6), st.integers(1, 6), st.integers(1, 6))


@given(pods_(), BUDGETS, MEMORIES, LIMITS)
def test_evictions_respect_budgets_blockers_and_limits(
    pods: list[Pod],
    budgets: list[DisruptionBudget],
    memory: EvictionState,
    limits: tuple[int, int, int],
) -> None:
    """Pods of one node at a time, no blocked pod, and no more than budgets and limits allow."""
    nodes = (M, marked_node("n", order=2), OPEN)
    on_node_max, in_namespace_max, in_cluster_max = limits
    inputs = eviction_input(
        *pods,
        nodes=nodes,
        budgets=tuple(budgets),
        config=at_once(in_cluster_max, after_seconds=0),
        on_node_max=on_node_max,
        in_namespace_max=in_namespace_max,
    )
    found = plan_evictions(inputs, memory)
    evicted_now = [one.pod for one in found.evict]
    assert {one.node for one in evicted_now} <= {found.state.node}
    assert len({one.uid for one in evicted_now}) == len(evicted_now)
    for one in evicted_now:
        notes = dict(one.disruption_facts.notes)
        assert one.node in ("m", "n")
        assert one.namespace not in (OWN, "kube-system")
        assert one.owner_kind not in ("", "DaemonSet", "Node")
        assert one.owner_kind != "Job" or notes == {SAFE_TO_EVICT: "true"}
        assert not one.terminating
        assert (one.disruption_facts.local_volumes, one.disruption_facts.gang) == ((), "")
        assert notes in ({}, {SAFE_TO_EVICT: "true"})
    for limit in budgets:
        mine = [pod for pod in evicted_now if _protects(limit, pod)]
        free = limit.unhealthy_free or 0 < limit.healthy_min <= limit.healthy
        counted = [pod for pod in mine if pod.ready or not free]
        assert len(counted) <= max(0, limit.disruptions_allowed)
        assert all(sum(_protects(other, pod) for other in budgets) == 1 for pod in mine)
    leaving = [one for one in pods if one.node in ("m", "n") and one.terminating]
    together = [*evicted_now, *leaving]
    if evicted_now:
        on_node = sum(one.node == found.state.node for one in together)
        assert on_node <= max(on_node_max, len(leaving))
        assert len(together) <= max(in_cluster_max, len(leaving))
        spaces, before = (Counter(one.namespace for one in many) for many in (together, leaving))
        for space in {one.namespace for one in evicted_now}:
            assert spaces[space] <= max(in_namespace_max, before[space])
    assert found.state.node not in found.state.failed


def _protects(one: DisruptionBudget, pod: Pod) -> bool:
    (app,) = one.selector.requirements[0].values
    return pod.namespace == one.namespace and pod.labels["app"] == app


@given(st.integers(1, 8), st.integers(0, 3), st.integers(1, 3), st.booleans())
def test_evictions_empty_node_when_nothing_blocks_them(
    count: int, slow: int, batch: int, killed: bool
) -> None:
    """Evicted pods end in each round and others become Ready, some later. No round evicts more
    than allowed, and a leader that takes over half-way has the same result."""
    pods = {f"p{number}": make_pod(f"p{number}") for number in range(count)}
    memory, watched, now, made = EvictionState(), OBSERVE_SECONDS, NOW, 0
    for number in range(400):
        found = plan_evictions(
            eviction_input(
                *pods.values(),
                now_seconds=now,
                watched_seconds=watched,
                on_node_max=batch,
                in_namespace_max=9,
            ),
            memory,
        )
        assert len(found.evict) <= batch
        assert failed(found) == {}
        memory = found.state
        for name, one in list(pods.items()):
            if not one.ready:
                pods[name] = replace(one, ready=number % (slow + 1) == 0)
        for evicted_now in found.evict:
            memory = memory.after(evicted_now, now)
            del pods[evicted_now.pod.name]
            made += 1
            pods[f"new{made}"] = replace(make_pod(f"new{made}", "open"), ready=False)
        if all(one.node == "open" and one.ready for one in pods.values()):
            break
        now, watched = now + 5, watched + 5
        if killed and number == 1:
            memory, watched = EvictionState(), 0
    assert len(pods) == count
    assert all(one.node == "open" for one in pods.values())


# Times at which nothing may begin

PAUSED = replace(CONFIG, pause_until_seconds=NOW + 1000)
PREFER_NO_SCHEDULE = marked_node("m", value="PreferNoSchedule", age=100)


def test_no_evictions_start_while_nothing_may_begin() -> None:
    for nodes in ((M, OPEN), (PREFER_NO_SCHEDULE, OPEN)):
        inputs = eviction_input(A, nodes=nodes, config=PAUSED)
        found = plan_evictions(inputs, EvictionState())
        assert (found.state.node, found.evict, failed(found)) == ("", (), {})
        assert found.no_schedule == ({"m"} if nodes[0] is M else frozenset()), (
            "marks stay as they are"
        )
        found = plan_evictions(replace(inputs, now_seconds=NOW + 1000), EvictionState())
        assert found.state.node == "m"
        assert found.no_schedule == {"m"}


def test_no_pod_is_evicted_while_nothing_may_begin() -> None:
    """The drain neither fails meanwhile nor ends; it continues afterwards."""
    memory = replace(BEGAN, evicted_owners=frozenset({Owner("d", "ReplicaSet", "before")}))
    inputs = eviction_input(A, B, config=PAUSED)
    for second in (0, 99, 999):
        found = plan_evictions(replace(inputs, now_seconds=NOW + second), memory)
        assert (evicted_pods(found), codes(found), failed(found)) == ([], {"paused"}, {})
        assert {one.until for one in found.waits} == {NOW + 1000}
        memory = found.state
    found = plan_evictions(replace(inputs, now_seconds=NOW + 1000), memory)
    assert evicted_pods(found) == ["a", "b"]
    assert all(one.permit.is_valid(Now(NOW + 1000)) for one in found.evict)


def test_no_pod_is_evicted_until_refused_write_may_be_tried_again() -> None:
    refused = RefusedWrite("a-policy", "metadata.labels: a", NOW + 60)
    found = plan_evictions(eviction_input(A, B, refused_write=refused), BEGAN)
    assert (evicted_pods(found), codes(found)) == ([], {"writes-refused"})
    after = eviction_input(A, B, refused_write=refused, now_seconds=NOW + 60)
    assert evicted_pods(plan_evictions(after, BEGAN)) == ["a", "b"]


def test_evictions_fail_while_nothing_may_begin_when_evicted_pod_is_not_replaced() -> None:
    inputs = eviction_input(B, make_pod("rest", "open"), config=PAUSED)
    assert failed(plan_evictions(replace(inputs, now_seconds=NOW + 99), evicted(A))) == {}
    found = plan_evictions(replace(inputs, now_seconds=NOW + 100), evicted(A))
    assert failed(found) == {"m": "evict-not-replaced"}


def test_permit_of_eviction_ends_with_its_window() -> None:
    window = Window(start="0 0 * * *", duration_seconds=60)
    (one,) = plan_evictions(
        eviction_input(A, config=replace(CONFIG, schedule=(window,))), EvictionState()
    ).evict
    assert one.permit.until == NOW + 60
