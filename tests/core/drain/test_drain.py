"""What is evicted, and why the others are not: a row a rule, and the laws."""

from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.config.budgets import Backoff
from core.config.drain import DrainConfig, Eviction
from core.config.settings import Config, Mode, UsabilityMode
from core.config.thresholds import Thresholds
from core.drain import planner
from core.drain.budgets import Allowances
from core.drain.context import DrainInput
from core.drain.planner import DrainDecision, plan_drain
from core.drain.pods import Owner, why_never
from core.drain.state import LOOK_ON_SECONDS, DrainState
from core.engine import reconcile
from core.guards.drainability import DO_NOT_DISRUPT, PREFER_NO_EVICTION, SAFE_TO_EVICT
from core.marks.wellknown import KARPENTER_LABEL, TAINT_KEY
from core.model.cluster import Cluster, DisruptionBudget
from core.model.constraints import DisruptionFacts, NodeConstraints, Toleration
from core.model.node import Node, Taint
from core.model.node_lifecycle import DELETING_TAINTS
from core.model.now import Now
from core.model.pod import Pod
from core.model.reason import Blocker, Reason
from tests.core.fit.test_inter_pod import calls
from tests.support import builders
from tests.support.builders import UNLIMITED, node, pod, select

NOW = 1_767_225_600
OWN = "ebb-system"
CONFIG = Config(
    mode=Mode.ENFORCE,
    eviction=Eviction.ENABLED,
    thresholds=Thresholds(cpu=1, memory=1),  # type: ignore[arg-type]
    usability=UsabilityMode.NONE,
    budgets=UNLIMITED,
    drain=DrainConfig(
        after_seconds=60,
        timeout_seconds=100,
        max_on_node=5,
        max_in_namespace=3,
        max_in_cluster=10,
    ),
)
BEGAN = DrainState(node="m", left=frozenset({Owner("d", "ReplicaSet", "before")}), progress=NOW)
WHY = Blocker(Reason("x", "", "", ""), "speaks against it")


def marked_node(name: str, *, order: int = 1, value: str = "hard", age: int = 60) -> Node:
    return builders.marked(node(name), value, NOW - age, order, deadline=NOW + 10**6)


def a_pod(name: str, on: str | None = "m", *, of: str = "web", **changes: Any) -> Pod:
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
"""A hard-marked node, and one with room for all."""
BARE = replace(M, taints=())


def scene(
    *pods: Pod,
    nodes: tuple[Node, ...] = (M, OPEN),
    budgets: tuple[DisruptionBudget, ...] = (),
    config: Config = CONFIG,
    **changes: Any,
) -> DrainInput:
    cluster = Cluster.of(nodes, pods, budgets)
    made = DrainInput(
        cluster=cluster,
        plan=reconcile.plan(cluster, config, now_seconds=NOW),
        config=config,
        against_hard={},
        watched_seconds=LOOK_ON_SECONDS,
        now_seconds=NOW,
        own_namespace=OWN,
    )
    return replace(made, **changes)


def gone(found: DrainDecision) -> list[str]:
    return [one.pod.name for one in found.evict]


def codes(found: DrainDecision) -> set[str]:
    return {one.code for one in found.waits}


def failed(found: DrainDecision) -> dict[str, str]:
    return {name: why.code for name, why in found.memory.failed.items()}


# A pod alone on the node


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"owner_kind": "", "owner_name": ""}, "pod-bare"),
        ({"owner_kind": "Thing"}, "pod-custom-controller"),
        ({"namespace": "kube-system"}, "pod-system"),
        ({"priority": 2_000_000_000}, "pod-system"),
        ({"ties": noted(SAFE_TO_EVICT, "false")}, "pod-not-safe-to-evict"),
        ({"ties": noted(DO_NOT_DISRUPT, "true")}, "pod-do-not-disrupt"),
        ({"ties": noted(DO_NOT_DISRUPT, "1h")}, "pod-do-not-disrupt"),
        ({"ties": noted(PREFER_NO_EVICTION, "")}, "pod-prefer-no-eviction"),
        ({"ties": DisruptionFacts(local_volumes=("data",))}, "pod-local-storage"),
        ({"namespace": OWN}, "evict-own"),
        (
            {"placing": NodeConstraints(tolerations=(Toleration(operator="Exists"),))},
            "evict-comes-back",
        ),
        (
            {"placing": NodeConstraints(tolerations=(Toleration(TAINT_KEY, "Exists"),))},
            "evict-comes-back",
        ),
        # The owner's word for an eviction takes nothing of that back.
        (
            {"ties": replace(noted(SAFE_TO_EVICT, "true"), local_volumes=("data",))},
            "pod-local-storage",
        ),
        ({"ties": noted(SAFE_TO_EVICT, "true"), "owner_kind": ""}, "pod-bare"),
    ],
)
def test_a_pod_that_is_never_evicted_ends_the_drain_before_it_began(
    changes: dict[str, Any], code: str
) -> None:
    found = plan_drain(scene(a_pod("a"), replace(a_pod("b", of="other"), **changes)), DrainState())
    assert (gone(found), found.memory.node, failed(found)) == ([], "", {"m": code})


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"owner_kind": "StatefulSet"},
        {"owner_kind": "ReplicationController"},
        {"owner_kind": "Job", "ties": noted(SAFE_TO_EVICT, "true")},
        {"ties": noted(DO_NOT_DISRUPT, "nonsense")},
        {"ready": False},
    ],
)
def test_a_pod_that_may_be_evicted_is(changes: dict[str, Any]) -> None:
    assert gone(plan_drain(scene(replace(a_pod("a"), **changes)), DrainState())) == ["a"]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"daemon": True}, "pod-daemon"),
        ({"mirror": True}, "pod-mirror"),
        ({"priority": -11}, "pod-expendable"),
        ({"terminating": True, "owner_kind": ""}, None),
    ],
)
def test_what_goes_with_its_node_is_never_evicted_whoever_asks(
    changes: dict[str, Any], code: str | None
) -> None:
    why = why_never(replace(a_pod("a"), **changes), OWN, Now(NOW))
    assert (why.code if why else None) == code


def test_a_pod_that_leaves_already_keeps_nobody_from_a_drain() -> None:
    leaving = a_pod("own", of="own", namespace=OWN, terminating=True)
    assert gone(plan_drain(scene(a_pod("a"), leaving), DrainState())) == ["a"]


@pytest.mark.parametrize(
    "changes",
    [
        {"daemon": True, "owner_kind": "DaemonSet"},
        {"mirror": True, "owner_kind": "Node"},
        {"priority": -11},
    ],
)
def test_a_pod_that_does_not_keep_the_node_from_being_empty_is_none_of_it(
    changes: dict[str, Any],
) -> None:
    beside = replace(a_pod("b", of="other"), **changes)
    assert gone(plan_drain(scene(a_pod("a"), beside), DrainState())) == ["a"]
    assert plan_drain(scene(beside), DrainState()).memory.node == ""


@pytest.mark.parametrize(
    "changes",
    [
        {"daemon": True, "owner_kind": "DaemonSet", "ties": noted(DO_NOT_DISRUPT, "true")},
        {"priority": -11},
        {
            "owner_kind": "StatefulSet",
            "terminating": True,
            "ties": DisruptionFacts(overdue_seconds=NOW - 1),
        },
    ],
)
def test_where_karpenter_never_calls_the_node_empty_nobody_is_evicted(
    changes: dict[str, Any],
) -> None:
    beside = replace(a_pod("b", of="other"), **changes)
    theirs = replace(M, labels={**M.labels, KARPENTER_LABEL: "default"})
    for where, evicted in ((M, ["a"]), (theirs, [])):
        found = plan_drain(scene(a_pod("a"), beside, nodes=(where, OPEN)), DrainState())
        assert gone(found) == evicted
        assert bool(failed(found)) is not bool(evicted)


def test_a_pod_that_is_stuck_on_a_node_of_karpenters_fails_the_drain() -> None:
    """When it should have ended; until then it is waited for."""
    theirs = replace(M, labels={**M.labels, KARPENTER_LABEL: "default"})
    ends = replace(
        A, owner_kind="StatefulSet", terminating=True, ties=DisruptionFacts(overdue_seconds=NOW)
    )
    asked = scene(ends, nodes=(theirs, OPEN))
    memory = DrainState(node="m", here=frozenset({ends.uid}), progress=NOW - 1000)
    assert failed(plan_drain(asked, memory)) == {}
    late = plan_drain(replace(asked, now_seconds=NOW + 1), memory)
    assert failed(late) == {"m": "pod-long-terminating"}


@pytest.mark.parametrize(
    "changes", [{"owner_kind": "Job"}, {"ties": noted(SAFE_TO_EVICT, "on-completion")}]
)
def test_where_a_pods_own_end_is_waited_for_no_drain_begins_and_the_next_node_has_its_turn(
    changes: dict[str, Any],
) -> None:
    ends = replace(a_pod("a", of="other"), **changes)
    alone = plan_drain(scene(ends, a_pod("b")), DrainState())
    assert (gone(alone), failed(alone), alone.memory.node) == ([], {}, "")
    nodes = (M, marked_node("n", order=2), OPEN)
    found = plan_drain(scene(ends, a_pod("b", "n"), nodes=nodes), DrainState())
    assert (gone(found), found.memory.node) == (["b"], "n")


# Budgets


@pytest.mark.parametrize(
    ("budgets", "went", "code"),
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
def test_no_more_go_than_the_budget_allows(
    budgets: list[DisruptionBudget], went: int, code: str
) -> None:
    found = plan_drain(scene(a_pod("a"), a_pod("b"), budgets=tuple(budgets)), DrainState())
    assert len(found.evict) == went
    assert codes(found) == ({code} if code else {"evict-budget"} if went == 1 else set())
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
def test_budgets_that_never_let_it_go_end_the_drain_at_once(
    budgets: list[DisruptionBudget], code: str
) -> None:
    found = plan_drain(scene(a_pod("a"), budgets=tuple(budgets)), DrainState())
    assert (gone(found), failed(found)) == ([], {"m": code})


@pytest.mark.parametrize(
    ("changes", "goes"),
    [
        ({}, True),  # enough others are healthy
        ({"healthy": 1}, False),
        ({"healthy": 1, "unhealthy_free": True}, True),
        ({"healthy": 1, "unhealthy_free": True, "outdated": True}, True),
        ({"healthy": 0, "healthy_min": 0}, False),
    ],
)
def test_a_pod_that_serves_nobody_goes_by_its_own_rule(
    changes: dict[str, Any], goes: bool
) -> None:
    found = plan_drain(
        scene(replace(a_pod("a"), ready=False), budgets=(budget(0, **changes),)), DrainState()
    )
    assert gone(found) == (["a"] if goes else [])


def test_a_pod_that_goes_uncounted_takes_nothing_from_the_others() -> None:
    unready = replace(a_pod("a"), owner_name="other", ready=False)
    assert gone(plan_drain(scene(unready, a_pod("b"), budgets=(budget(1),)), DrainState())) == [
        "a",
        "b",
    ]


# Turns


@pytest.mark.parametrize(
    ("nodes", "at_work"),
    [
        ((M, marked_node("n", order=2)), "m"),
        ((marked_node("m", order=2), marked_node("n")), "n"),
        ((marked_node("m", age=59), marked_node("n", age=60, order=2)), "n"),
        ((marked_node("m", age=0),), ""),
        ((replace(M, taints=(*M.taints, Taint(min(DELETING_TAINTS), "", "NoSchedule"))),), ""),
        ((node("m"),), ""),
    ],
)
def test_whose_turn_it_is(nodes: tuple[Node, ...], at_work: str) -> None:
    pods = [a_pod(f"{name}-{one.name}", one.name) for one in nodes for name in "ab"]
    found = plan_drain(scene(*pods, nodes=(*nodes, OPEN)), DrainState())
    assert found.memory.node == at_work
    assert {one.pod.node for one in found.evict} == ({at_work} if at_work else set())


def test_a_pod_for_which_the_plan_has_no_place_stays() -> None:
    asked = scene(a_pod("a"), a_pod("b"))
    (removal,) = asked.plan.removals
    known = replace(removal, placements=removal.placements[:1])
    found = plan_drain(replace(asked, plan=replace(asked.plan, removals=(known,))), BEGAN)
    assert [f"d/{name}" for name in gone(found)] == [removal.placements[0].pod]
    assert codes(found) == {"evict-no-place"}


def test_the_node_at_work_keeps_its_turn() -> None:
    young = scene(a_pod("a"), nodes=(marked_node("m", age=0), OPEN))
    assert gone(plan_drain(young, BEGAN)) == ["a"], "although `drain.after` is longer now"
    nodes = (M, marked_node("n", order=2), OPEN)
    found = plan_drain(
        scene(a_pod("a"), a_pod("b", "n"), nodes=nodes), DrainState(node="n", progress=NOW)
    )
    assert (found.memory.node, gone(found)) == ("n", ["b"])


def test_a_drain_that_began_goes_on_beside_a_pod_whose_end_is_waited_for() -> None:
    asked = scene(a_pod("a"), a_pod("job", of="job", owner_kind="Job"))
    assert plan_drain(asked, DrainState(node="m")).memory.node == ""
    found = plan_drain(asked, replace(BEGAN, progress=NOW - 99))
    assert (gone(found), codes(found)) == (["a"], {"evict-job"})


def test_the_next_node_begins_anew() -> None:
    found = plan_drain(scene(a_pod("a")), replace(BEGAN, node="gone", here=frozenset({"x"})))
    assert (found.memory.began, found.memory.here) == (False, frozenset({"uid-a"}))
    assert found.memory.progress == NOW


@pytest.mark.parametrize("value", ["soft", "hard"])
def test_nothing_goes_before_the_mark_is_hard(value: str) -> None:
    found = plan_drain(
        scene(a_pod("a"), nodes=(marked_node("m", value=value), OPEN)), DrainState()
    )
    assert found.hard == {"m"}
    assert gone(found) == (["a"] if value == "hard" else [])
    assert gone(plan_drain(scene(a_pod("a"), nodes=(BARE, OPEN)), DrainState())) == []


def test_a_node_that_must_not_be_hard_has_no_turn() -> None:
    found = plan_drain(scene(a_pod("a"), against_hard={"m": (WHY,)}), DrainState(node="m"))
    assert (found.memory.node, gone(found), failed(found)) == ("", [], {})


@pytest.mark.parametrize(
    ("on", "against", "fails"),
    [
        (None, {"m": (WHY,)}, {"m": "evict-not-replaced"}),
        ("open", {"m": (WHY,)}, {}),
        (None, {}, {}),
    ],
)
def test_a_drain_ends_if_its_node_must_let_the_pods_come_back(
    on: str | None, against: dict[str, tuple[Blocker, ...]], fails: dict[str, str]
) -> None:
    """Else they would be evicted again as soon as the mark is hard again, and again come back."""
    before = replace(evicted(a_pod("a")), node="m")
    new = a_pod("b", on, ready=False, unschedulable=on is None)
    found = plan_drain(scene(new, a_pod("rest", of="other"), against_hard=against), before)
    assert failed(found) == fails


def test_a_node_that_was_emptied_stays_hard_until_it_is_gone() -> None:
    assert plan_drain(scene(), BEGAN).hard == {"m"}


@pytest.mark.parametrize(
    "config",
    [
        replace(CONFIG, eviction=Eviction.DISABLED),
        replace(CONFIG, mode=Mode.OBSERVE),
        Config(),
    ],
)
def test_nothing_is_evicted_unless_that_is_asked_for(config: Config) -> None:
    assert plan_drain(replace(scene(a_pod("a")), config=config), DrainState()) == planner.NOTHING


@pytest.mark.parametrize(
    ("memory", "failures"),
    [
        (DrainState(node="m"), {}),
        (BEGAN, {"m": "evict-interrupted"}),
        (replace(BEGAN, node="x"), {}),
    ],
)
def test_a_node_that_the_plan_keeps_is_not_drained_and_backs_off_if_that_broke_off_a_drain(
    memory: DrainState, failures: dict[str, str]
) -> None:
    full = a_pod("full", "open", requests=replace(OPEN.allocatable, pods=1))
    found = plan_drain(scene(a_pod("a"), full), memory)
    assert (found.memory.node, gone(found), failed(found)) == ("", [], failures)
    if failures:
        why = found.memory.failed["m"].message
        assert why == "the cluster needs the node again: threshold, no-room"
    leaves = replace(M, taints=(*M.taints, Taint(min(DELETING_TAINTS), "", "NoSchedule")))
    assert failed(plan_drain(scene(a_pod("a"), full, nodes=(leaves, OPEN)), memory)) == {}
    assert failed(plan_drain(scene(full), memory)) == {}, "empty"


def test_a_new_leader_looks_on_first() -> None:
    asked = scene(a_pod("a"), watched_seconds=LOOK_ON_SECONDS - 1)
    found = plan_drain(asked, DrainState())
    assert (found.memory.node, gone(found)) == ("m", [])
    assert gone(plan_drain(replace(asked, watched_seconds=LOOK_ON_SECONDS), found.memory)) == ["a"]


# How many


def test_a_pod_is_asked_about_by_budgets_of_its_own_namespace_alone() -> None:
    """Whoever may make budgets may make any number, for labels that others have too."""
    theirs = [
        budget(0, f"b{n}", namespace="other", selector=select("web", "other")) for n in range(99)
    ]
    none, many = Allowances([budget(1)]), Allowances([*theirs, budget(1)])
    assert none.why_not(B) is many.why_not(B) is None
    assert calls(partial(none.why_not, A)) == calls(partial(many.why_not, A))


@pytest.mark.parametrize(
    ("changes", "names", "went"),
    [
        ({}, {"d": 7}, 3),
        ({"max_in_namespace": 9}, {"d": 7}, 5),
        ({"max_in_namespace": 9, "max_on_node": 9}, {"d": 12}, 9),
        ({"max_in_namespace": 9, "max_on_node": 9, "max_in_cluster": 2}, {"d": 7}, 2),
        ({}, {"d": 7, "e": 1, "f": 7}, 5),
        ({"max_in_namespace": 1}, {"d": 7, "e": 1, "f": 7}, 3),
    ],
)
def test_so_many_go_at_once(changes: dict[str, int], names: dict[str, int], went: int) -> None:
    config = replace(CONFIG, drain=replace(CONFIG.drain, **changes))
    pods = [
        a_pod(f"p{number}", namespace=space) for space, n in names.items() for number in range(n)
    ]
    pods = [replace(one, uid=one.key) for one in pods]
    found = plan_drain(scene(*pods, config=config), DrainState())
    assert len(found.evict) == went
    assert codes(found) == {"evict-turn"}


@pytest.mark.parametrize("limit", ["max_on_node", "max_in_namespace", "max_in_cluster"])
def test_pods_that_leave_already_count_among_them_whoever_has_sent_them(limit: str) -> None:
    limits = {"max_on_node": 9, "max_in_namespace": 9, "max_in_cluster": 9, limit: 3}
    config = replace(CONFIG, drain=replace(CONFIG.drain, **limits))
    leaving = [a_pod(f"x{number}", of=f"x{number}", terminating=True) for number in range(2)]
    asked = scene(*leaving, *(a_pod(f"p{number}") for number in range(5)), config=config)
    assert len(plan_drain(asked, DrainState()).evict) == 1


@pytest.mark.parametrize(("where", "went"), [("m2", 3), ("m", 2)])
def test_pods_of_one_namespace_that_take_years_to_leave_take_no_turn_of_others(
    where: str, went: int
) -> None:
    """Else each drain would fail, one after the other, and its node be left alone."""
    years = DisruptionFacts(overdue_seconds=NOW + 10**9)
    leaving = [
        a_pod(f"x{number}", where, of="x", namespace="x", terminating=True, ties=years)
        for number in range(20)
    ]
    nodes = (M, marked_node("m2", order=2), OPEN)
    asked = scene(*leaving, *(a_pod(f"p{number}") for number in range(5)), nodes=nodes)
    assert len(plan_drain(asked, DrainState()).evict) == went


def test_of_a_stateful_set_one_goes_after_the_other() -> None:
    pods = [a_pod(f"db-{number}", of="db", owner_kind="StatefulSet") for number in range(3)]
    assert len(plan_drain(scene(*pods), DrainState()).evict) == 1


# After an eviction


def evicted(*pods: Pod) -> DrainState:
    """Return the memory after these were evicted, of two that are Ready."""
    memory = plan_drain(scene(*pods, a_pod("rest", "open")), DrainState()).memory
    for one in plan_drain(scene(*pods, a_pod("rest", "open")), DrainState()).evict:
        memory = memory.after(one, NOW)
    return memory


A, B = a_pod("a"), a_pod("b", of="other")


@pytest.mark.parametrize(
    ("pods", "after", "on"),
    [
        ((A,), 1, False),  # not seen yet
        ((replace(A, terminating=True),), 1, False),
        ((), 1, False),
        ((), 99, False),
        ((a_pod("new", None, ready=False),), 99, False),
        ((a_pod("new", "open"),), 1, True),
        ((a_pod("new", "open", terminating=True),), 1, False),
        ((replace(a_pod("new", "open"), ready=False),), 99, False),
        ((replace(A, uid="another", node="open"),), 1, True),  # a StatefulSet's next of that name
        ((a_pod("new", "open", of="strange"),), 1, False),
    ],
)
def test_the_next_pods_go_when_others_are_ready_in_place_of_the_last_ones(
    pods: tuple[Pod, ...], after: int, on: bool
) -> None:
    memory = evicted(A)
    assert memory.began
    found = plan_drain(scene(*pods, B, a_pod("rest", "open"), now_seconds=NOW + after), memory)
    assert ("b" in gone(found)) is on
    assert codes(found) == (set() if on else {"evict-not-replaced"})


@pytest.mark.parametrize(("after", "fails"), [(120, False), (599, False), (600, True)])
def test_where_no_new_pod_is_to_be_seen_no_other_is_evicted_and_in_the_end_the_drain_fails(
    after: int, fails: bool
) -> None:
    """As where they have scheduling gates, or where a quota or a webhook lets none be created."""
    config = replace(CONFIG, drain=replace(CONFIG.drain, timeout_seconds=600))
    asked = scene(B, a_pod("rest", "open"), config=config, now_seconds=NOW + after)
    found = plan_drain(asked, evicted(A))
    assert gone(found) == []
    assert failed(found) == ({"m": "evict-not-replaced"} if fails else {})


def test_who_has_not_made_a_pod_for_an_evicted_one_loses_none_on_other_nodes() -> None:
    """Or each drain would take some of those that are left."""
    config = replace(CONFIG, budgets=replace(UNLIMITED, backoff=Backoff(max_seconds=5000)))
    on_n, rest, again = a_pod("b", "n"), a_pod("rest", "open"), a_pod("again", "open")
    first = plan_drain(
        scene(A, on_n, rest, nodes=(M, node("n"), OPEN), config=config), DrainState()
    )
    (one,) = first.evict
    gated = scene(B, on_n, rest, nodes=(M, node("n"), OPEN), config=config, now_seconds=NOW + 100)
    late = plan_drain(gated, first.memory.after(one, NOW))
    assert failed(late) == {"m": "evict-not-replaced"}
    other = a_pod("c", "n", of="other")
    for pods, after, goes in (
        ((on_n, other, rest), 200, []),
        ((on_n, other, rest), 5099, []),
        ((on_n, other, rest, again), 200, ["b", "c"]),
        ((on_n, other, rest), 5100, ["b", "c"]),
    ):
        nodes = (marked_node("n"), OPEN)
        found = plan_drain(
            scene(*pods, nodes=nodes, config=config, now_seconds=NOW + after), late.memory
        )
        assert sorted(gone(found)) == goes
        assert failed(found) == ({} if goes else {"n": "evict-not-replaced"})
    nobody = scene(on_n, rest, nodes=(node("n"), OPEN), config=config, now_seconds=NOW + 200)
    assert plan_drain(nobody, late.memory).memory.missed, "a mark may come again"


@pytest.mark.parametrize(("left", "on"), [(("x", "y"), False), (("x",), True), ((), True)])
def test_where_others_have_gone_that_nobody_evicted_no_more_are_wanted(
    left: tuple[str, ...], on: bool
) -> None:
    """As when it is scaled in, or deleted."""
    first = plan_drain(scene(A, a_pod("x", "open"), a_pod("y", "open")), DrainState())
    (one,) = first.evict
    memory = first.memory.after(one, NOW)
    found = plan_drain(scene(B, *(a_pod(name, "open") for name in left)), memory)
    assert gone(found) == (["b"] if on else [])


def test_a_pod_goes_only_while_all_others_of_its_controller_are_ready() -> None:
    making = replace(a_pod("new", "open"), ready=False)
    found = plan_drain(scene(A, making), DrainState())
    assert (gone(found), codes(found)) == ([], {"evict-unsettled"})
    assert gone(plan_drain(scene(replace(A, ready=False), making), DrainState())) == ["a"]


def test_a_pod_that_should_have_gone_long_ago_holds_up_no_other() -> None:
    due = DisruptionFacts(overdue_seconds=NOW)
    late = replace(a_pod("late", "open", terminating=True, ties=due), ready=False)
    assert codes(plan_drain(scene(A, late), DrainState())) == {"evict-unsettled"}
    assert gone(plan_drain(scene(A, late, now_seconds=NOW + 1), DrainState())) == ["a"]


def test_as_long_as_one_cannot_go_no_drain_begins_and_one_that_began_goes_on() -> None:
    asked = scene(A, B, budgets=(budget(0),))
    assert gone(plan_drain(asked, DrainState())) == []
    began = BEGAN
    assert gone(plan_drain(asked, began)) == ["b"]


# Failure


@pytest.mark.parametrize(
    ("back", "code"),
    [
        (a_pod("new"), "evict-comes-back"),
        (a_pod("new", terminating=True), ""),
        (a_pod("new", of="strange"), ""),
        (a_pod("new", "open"), ""),
    ],
)
def test_where_pods_come_back_in_spite_of_the_mark_the_drain_fails(back: Pod, code: str) -> None:
    """As those of a template that names the node itself: evicted for ever."""
    found = plan_drain(scene(back, B, a_pod("rest", "open")), evicted(A))
    assert failed(found) == ({"m": code} if code else {})


def test_pods_that_were_there_before_are_none_that_came_back() -> None:
    beside = a_pod("beside")
    config = replace(CONFIG, drain=replace(CONFIG.drain, max_on_node=1))
    first = plan_drain(scene(A, beside, config=config), DrainState())
    (one,) = first.evict
    left = beside if one.pod is A else A
    found = plan_drain(
        scene(left, a_pod("new", "open"), config=config), first.memory.after(one, NOW)
    )
    assert (gone(found), failed(found)) == ([left.name], {})


def test_a_drain_that_does_not_go_on_fails_after_its_time_and_says_why() -> None:
    asked = scene(A, budgets=(budget(0),))
    memory = plan_drain(asked, DrainState()).memory
    assert (memory.node, memory.progress) == ("m", NOW)
    memory = plan_drain(replace(asked, now_seconds=NOW + 99), memory).memory
    assert memory.node == "m"
    found = plan_drain(replace(asked, now_seconds=NOW + 100), memory)
    assert (failed(found), found.memory.node) == ({"m": "evict-budget"}, "")
    assert "allows 0" in found.memory.failed["m"].message
    again = plan_drain(replace(asked, now_seconds=NOW + 101), found.memory)
    assert failed(again) == {"m": "evict-budget"}, "until it is released"
    released = scene(a_pod("a"), nodes=(node("m"), OPEN))
    assert failed(plan_drain(released, again.memory)) == {}


def test_a_pod_that_was_refused_is_asked_for_later_and_in_the_end_the_drain_fails() -> None:
    asked = scene(A)
    memory = plan_drain(asked, DrainState()).memory.refusing(A, "too many requests", until=NOW + 5)
    found = plan_drain(replace(asked, now_seconds=NOW + 4), memory)
    assert (gone(found), codes(found)) == ([], {"evict-refused"})
    assert gone(plan_drain(replace(asked, now_seconds=NOW + 5), memory)) == ["a"]
    found = plan_drain(replace(asked, now_seconds=NOW + 100), memory)
    assert (gone(found), failed(found)) == ([], {"m": "evict-refused"})
    assert "too many requests" in found.memory.failed["m"].message


def test_a_pod_that_can_go_and_was_not_asked_for_yet_goes_however_late_the_look_is() -> None:
    config = replace(CONFIG, drain=replace(CONFIG.drain, max_on_node=1))
    asked = scene(A, B, config=config)
    first = plan_drain(asked, LONG_AGO)
    assert (gone(first), failed(first)) == (["a"], {})
    memory = first.memory.refusing(A, "429", until=NOW)
    found = plan_drain(asked, memory)
    assert (gone(found), failed(found)) == ([], {"m": "evict-refused"})


def test_the_wait_after_a_refusal_doubles_up_to_a_bound() -> None:
    memory, waits = DrainState(), []
    for _ in range(6):
        waits.append(memory.pause_seconds(A))
        memory = memory.refusing(A, "", until=NOW)
    assert waits == [5, 10, 20, 40, 60, 60]


def test_an_eviction_gives_the_drain_its_time_anew() -> None:
    (one,) = plan_drain(scene(A), DrainState()).evict
    memory = DrainState(node="m", here=frozenset({A.uid}), progress=NOW).after(one, NOW + 50)
    asked = scene(replace(B, uid="uid-b"), a_pod("rest", "open"), budgets=(
        budget(0, selector=select("other")),
    ))  # fmt: skip
    for second, fails in ((149, False), (150, True)):
        found = plan_drain(replace(asked, now_seconds=NOW + second), replace(memory, evicted=()))
        assert ("m" in failed(found)) is fails


LONG_AGO = replace(BEGAN, here=frozenset({A.uid}), progress=NOW - 1000)
LEAVING = a_pod("x", of="x", terminating=True, ties=DisruptionFacts(overdue_seconds=NOW))


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (scene(A, budgets=(budget(0),)), "evict-budget"),
        (scene(A, LEAVING, budgets=(budget(0),)), ""),
        (scene(A, LEAVING, budgets=(budget(0),), now_seconds=NOW + 1), "evict-budget"),
        (scene(A, nodes=(marked_node("m", value="soft"), OPEN)), "evict-not-hard"),
        (scene(A, nodes=(BARE, OPEN)), "evict-not-hard"),
        (scene(A, LEAVING, nodes=(BARE, OPEN)), "evict-not-hard"),
        (scene(A, nodes=(BARE, OPEN), watched_seconds=LOOK_ON_SECONDS - 1), ""),
        (scene(A, budgets=(budget(0),), watched_seconds=0), ""),
    ],
)
def test_while_a_drain_waits_for_what_is_on_its_way_its_time_does_not_run(
    asked: DrainInput, code: str
) -> None:
    found = plan_drain(asked, LONG_AGO)
    assert failed(found) == ({"m": code} if code else {})
    assert code or found.memory.progress == NOW


def test_a_node_that_does_not_become_hard_leaves_its_turn_to_the_next() -> None:
    nodes = (marked_node("m", value="soft"), marked_node("n", order=2), OPEN)
    asked = scene(A, a_pod("b", "n"), nodes=nodes)
    memory = plan_drain(asked, DrainState()).memory
    memory = plan_drain(replace(asked, now_seconds=NOW + 99), memory).memory
    assert memory.node == "m"
    memory = plan_drain(replace(asked, now_seconds=NOW + 100), memory).memory
    found = plan_drain(replace(asked, now_seconds=NOW + 101), memory)
    assert (found.memory.node, gone(found)) == ("n", ["b"])
    assert failed(found) == {"m": "evict-not-hard"}, "though its release may be refused as well"


def test_when_the_mark_becomes_hard_the_drain_has_its_time_anew() -> None:
    soft = scene(A, budgets=(budget(0),), nodes=(marked_node("m", value="soft"), OPEN))
    memory = plan_drain(soft, DrainState()).memory
    hard = scene(A, budgets=(budget(0),))
    for second, fails in ((99, False), (198, False), (199, True)):
        found = plan_drain(replace(hard, now_seconds=NOW + second), memory)
        assert ("m" in failed(found)) is fails
        memory = found.memory


def test_a_pod_that_nobody_replaces_fails_the_drain() -> None:
    waiting = a_pod("new", None, ready=False)
    asked = scene(B, waiting, a_pod("rest", "open"), now_seconds=NOW + 100)
    found = plan_drain(asked, evicted(A))
    assert (gone(found), failed(found)) == ([], {"m": "evict-not-replaced"})
    assert found.memory.evicted == ()


def test_a_pod_of_one_node_that_nobody_replaces_is_no_fault_of_the_next() -> None:
    memory = replace(evicted(A), node="n", left=frozenset(), here=frozenset())
    nodes = (M, marked_node("n", order=2), OPEN)
    waiting = a_pod("new", None, ready=False)
    asked = scene(a_pod("c", "n", of="other"), waiting, nodes=nodes, now_seconds=NOW + 99)
    assert codes(plan_drain(asked, memory)) == {"evict-not-replaced"}
    found = plan_drain(replace(asked, now_seconds=NOW + 100), memory)
    assert (gone(found), failed(found)) == (["c"], {})


def test_a_pod_that_takes_its_time_to_end_has_it() -> None:
    due = replace(A, terminating=True, ties=DisruptionFacts(overdue_seconds=NOW + 5000))
    asked = scene(due, a_pod("rest", "open"), now_seconds=NOW + 5000)
    found = plan_drain(asked, evicted(A))
    assert (found.memory.node, failed(found)) == ("m", {})
    late = plan_drain(replace(asked, now_seconds=NOW + 5100), found.memory)
    assert failed(late) == {"m": "evict-not-replaced"}
    memory = DrainState(node="m", here=frozenset({A.uid}), progress=NOW)
    stuck = plan_drain(replace(asked, now_seconds=NOW + 5101), memory)
    assert (stuck.memory.node, failed(stuck)) == ("", {}), "for autoscalers the node is empty"


@pytest.mark.parametrize(
    ("new", "after", "on"),
    [
        ((a_pod("new", "open"),), 0, False),  # it may still need the time
        ((a_pod("new", "open"),), 1, True),
        ((replace(a_pod("new", "open"), ready=False),), 1, False),
        ((), 99, False),  # a StatefulSet makes no other while it is there
    ],
)
def test_a_pod_that_never_ends_is_waited_for_until_another_is_ready_in_its_place(
    new: tuple[Pod, ...], after: int, on: bool
) -> None:
    """As with a finalizer that nobody takes off, or with files on a server that is dead."""
    stuck = replace(A, terminating=True, ties=DisruptionFacts(overdue_seconds=NOW))
    asked = scene(stuck, *new, B, a_pod("rest", "open"), now_seconds=NOW + after)
    assert gone(plan_drain(asked, evicted(A))) == (["b"] if on else [])


# Laws

OWNERS = ("web", "db", "batch")


ODD = (
    {"owner_kind": "", "owner_name": ""},
    {"owner_kind": "Job"},
    {"ties": noted(SAFE_TO_EVICT, "false")},
    {"ties": noted(DO_NOT_DISRUPT, "true")},
    {"ties": DisruptionFacts(local_volumes=("data",))},
    {"namespace": OWN},
    {"namespace": "kube-system"},
    {"ready": False},
    {"ready": False},
    {"terminating": True},
    {"terminating": True},
)


@st.composite
def pods_(draw: st.DrawFn) -> list[Pod]:
    """Most of them may be evicted; or hardly a drain would begin."""
    found = []
    for number in range(draw(st.integers(1, 14))):
        of = draw(st.sampled_from(("web", "web", "db", "batch")))
        made = a_pod(
            f"p{number:02}",
            draw(st.sampled_from(["m", "m", "m", "n", "open"])),
            of=of,
            owner_kind="StatefulSet" if of == "db" else "ReplicaSet",
            namespace=draw(st.sampled_from(["d", "d", "d", "e"])),
            ties=draw(
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
MEMORIES = st.sampled_from([DrainState(), BEGAN, DrainState(node="n", progress=NOW)])
LIMITS = st.builds(
    DrainConfig,
    after_seconds=st.just(0),
    timeout_seconds=st.just(100),
    max_on_node=st.integers(1, 6),
    max_in_namespace=st.integers(1, 6),
    max_in_cluster=st.integers(1, 6),
)


@given(pods_(), BUDGETS, MEMORIES, LIMITS)
def test_no_look_oversteps_budgets_guards_or_limits(
    pods: list[Pod], budgets: list[DisruptionBudget], memory: DrainState, limits: DrainConfig
) -> None:
    """No budget is overdrawn, no forbidden pod goes, one node at a time, the limits hold."""
    nodes = (M, marked_node("n", order=2), OPEN)
    config = replace(CONFIG, drain=limits)
    found = plan_drain(scene(*pods, nodes=nodes, budgets=tuple(budgets), config=config), memory)
    went = [one.pod for one in found.evict]
    assert {one.node for one in went} <= {found.memory.node}
    assert len({one.uid for one in went}) == len(went)
    for one in went:
        notes = dict(one.ties.notes)
        assert one.node in ("m", "n")
        assert one.namespace not in (OWN, "kube-system")
        assert one.owner_kind not in ("", "DaemonSet", "Node")
        assert one.owner_kind != "Job" or notes == {SAFE_TO_EVICT: "true"}
        assert not one.terminating
        assert not one.ties.local_volumes
        assert notes in ({}, {SAFE_TO_EVICT: "true"})
    for limit in budgets:
        mine = [pod for pod in went if _protects(limit, pod)]
        free = limit.unhealthy_free or 0 < limit.healthy_min <= limit.healthy
        counted = [pod for pod in mine if pod.ready or not free]
        assert len(counted) <= max(0, limit.disruptions_allowed)
        assert all(sum(_protects(other, pod) for other in budgets) == 1 for pod in mine)
    leaving = [one for one in pods if one.node in ("m", "n") and one.terminating]
    together = [*went, *leaving]
    if went:
        on_node = sum(one.node == found.memory.node for one in together)
        assert on_node <= max(limits.max_on_node, len(leaving))
        assert len(together) <= max(limits.max_in_cluster, len(leaving))
        spaces, before = (Counter(one.namespace for one in many) for many in (together, leaving))
        for space in {one.namespace for one in went}:
            assert spaces[space] <= max(limits.max_in_namespace, before[space])
    assert found.memory.node not in found.memory.failed


def _protects(one: DisruptionBudget, pod: Pod) -> bool:
    (app,) = one.selector.requirements[0].values
    return pod.namespace == one.namespace and pod.labels["app"] == app


@given(st.integers(1, 8), st.integers(0, 3), st.integers(1, 3), st.booleans())
def test_a_drain_that_nothing_speaks_against_empties_the_node(
    count: int, slow: int, batch: int, killed: bool
) -> None:
    """Each round the evicted pods end and others become Ready, some a while later; no round has
    more than may go, and a leader that takes over half-way ends with the same."""
    config = replace(CONFIG, drain=replace(CONFIG.drain, max_on_node=batch, max_in_namespace=9))
    pods = {f"p{number}": a_pod(f"p{number}") for number in range(count)}
    memory, watched, now, made = DrainState(), LOOK_ON_SECONDS, NOW, 0
    for number in range(400):
        found = plan_drain(
            scene(*pods.values(), config=config, now_seconds=now, watched_seconds=watched),
            memory,
        )
        assert len(found.evict) <= batch
        assert failed(found) == {}
        memory = found.memory
        for name, one in list(pods.items()):
            if not one.ready:
                pods[name] = replace(one, ready=number % (slow + 1) == 0)
        for went in found.evict:
            memory = memory.after(went, now)
            del pods[went.pod.name]
            made += 1
            pods[f"new{made}"] = replace(a_pod(f"new{made}", "open"), ready=False)
        if all(one.node == "open" and one.ready for one in pods.values()):
            break
        now, watched = now + 5, watched + 5
        if killed and number == 1:
            memory, watched = DrainState(), 0
    assert len(pods) == count
    assert all(one.node == "open" for one in pods.values())
