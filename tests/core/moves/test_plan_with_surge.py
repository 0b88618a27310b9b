"""What plans, deletion costs and the reserve do differently when surge moves are enabled."""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from core.cluster.volumes import Claim, Volume
from core.config.budgets import Reserve
from core.config.document import parse
from core.config.settings import Config, UsabilityMode
from core.config.surge import SurgeConfig, SurgeMode
from core.config.thresholds import Thresholds
from core.eligibility.surge import VOLUME, why_not_replaced
from core.engine import reconcile
from core.engine.leader_state import LeaderState
from core.engine.mark_limits import DelayAfterPending
from core.marks.wellknown import (
    COST_ANNOTATION,
    COST_OURS_ANNOTATION,
    MOVE_ANNOTATION,
    TAINT_KEY,
)
from core.model.cluster import Cluster, SurgeFacts
from core.model.constraints import (
    ClaimUse,
    DisruptionFacts,
    PodAffinityTerm,
    PodConstraints,
)
from core.model.errors import ConfigError
from core.model.now import Now
from core.model.pod import CLAIMS_FIELD, DETACHED_LABEL, Pod, workload_of
from core.model.resources import Resources
from core.moves.facts import with_moves
from core.moves.objects import CONTROLLER, SurgeObjects
from core.writes.costs import COST_MIN, MOVE_COST, UNDO_COST, cost_of, cost_write, decide_costs
from tests.support.builders import UNLIMITED, marked, node, select
from tests.support.cluster_pods import build_cluster
from tests.support.configurations import HEAD
from tests.support.surge import NOTE, NOW, cost, deployment, detached, make_pod

OFF = Config(
    thresholds=Thresholds(cpu=1, memory=1),  # type: ignore[arg-type]
    usable_capacity=UsabilityMode.ALL,
    budgets=UNLIMITED,
)
ON = replace(OFF, surge=SurgeConfig(mode=SurgeMode.ENABLED))
WEB = SurgeFacts(allowed=frozenset({("d", "web-1")}))


def job(name: str, on: str) -> Pod:
    return make_pod(name, on, of=name, owner_kind="Job")


def removed(config: Config, pods: Sequence[Pod]) -> list[str]:
    """Return the nodes that a plan removes from nodes a to d, in order."""
    cluster = replace(Cluster.of(map(node, "abcd"), pods), surge=WEB)
    return [removal.node for removal in reconcile.plan(cluster, config).removals]


def test_nodes_whose_pods_can_all_be_moved_come_first_when_surge_is_enabled() -> None:
    """Node a has one pod of a Job, b two pods that can be moved, c one of each."""
    pods = [job("j", "a"), *(make_pod(f"w{n}", on) for n, on in enumerate("bbcc")), job("k", "c")]
    pods += [make_pod(f"x{n}", "d") for n in range(9)]
    assert removed(OFF, pods)[:3] == ["a", "b", "c"]
    assert removed(ON, pods)[:3] == ["b", "d", "a"]


def test_nodes_whose_pods_cannot_be_moved_beside_old_ones_come_later() -> None:
    """Node c has a pod whose zone is full of its kind; b has free pods with higher requests."""
    zone = "topology.kubernetes.io/zone"
    nodes = [node(name, labels={zone: z}) for name, z in zip("abcd", "xxyy", strict=True)]
    apart = PodConstraints(apart=(PodAffinityTerm(select("web"), zone),))
    pods = [
        replace(make_pod(f"w{on}", on), labels={"app": "web"}, pod_constraints=apart)
        for on in "ac"
    ]
    pods += [make_pod(f"v{n}", "b", of="web-1") for n in range(2)]
    pods += [make_pod(f"x{n}", "d") for n in range(9)]
    cluster = replace(Cluster.of(nodes, pods), surge=WEB)
    plans = {one: reconcile.plan(cluster, one) for one in (OFF, ON)}
    assert next(one.node for one in plans[OFF].removals) == "c"
    assert next(one.node for one in plans[ON].removals) == "b"


WEB_ONE = ("d", "web-1")
OBJECTS = SurgeObjects(deployments={"d/web": deployment()}, owners={WEB_ONE: "d/web"})
OLD = detached(make_pod("old"))


def facts(objects: SurgeObjects, *pods: Pod, **given: Any) -> SurgeFacts:
    return with_moves(Cluster.of((), pods), objects, "ours", **given).surge


@pytest.mark.parametrize(
    ("changes", "allowed"),
    [({}, True), ({"strategy": "Recreate"}, False), ({"max_surge": 0}, False),
     ({"paused": True}, False), ({"keep": True}, False), ({"available": 0}, True),
     ({"namespace": "ours"}, True), ({"namespace": "ours", "name": CONTROLLER}, False),
     ({"min_ready_seconds": 600}, False), ({"min_ready_seconds": 599}, True)],
)  # fmt: skip
def test_replica_set_allows_moves_when_its_deployment_consents(
    changes: dict[str, Any], *, allowed: bool
) -> None:
    one = deployment(**changes)
    found = facts(SurgeObjects(deployments={one.key: one}))
    assert found.allowed == ({(one.namespace, one.replica_set)} if allowed else set())


def test_replica_set_allows_no_moves_when_its_pods_cannot_be_detached() -> None:
    assert facts(OBJECTS, refused={WEB_ONE}).allowed == set()
    assert facts(OBJECTS, refused={("d", "db-1")}).allowed == {WEB_ONE}


def test_facts_have_moves_of_this_and_the_last_reconciliation() -> None:
    assert facts(OBJECTS, OLD).moving == {WEB_ONE}
    assert facts(OBJECTS, make_pod("old"), moving_before={WEB_ONE}).moving == {WEB_ONE}
    assert facts(OBJECTS, make_pod("old")).moving == set()


NEW = make_pod("new", "n", created_seconds=NOW)


@pytest.mark.parametrize(
    ("new", "replaced"),
    [
        pytest.param([], False, id="none yet"),
        pytest.param([NEW], True, id="runs"),
        pytest.param([replace(NEW, node=None, ready=False)], True, id="not tried yet"),
        pytest.param([replace(NEW, node=None, unschedulable=True)], False, id="unschedulable"),
        pytest.param([replace(NEW, terminating=True)], False, id="terminates"),
        pytest.param([replace(NEW, created_seconds=NOW - 1)], False, id="existed before"),
        pytest.param([replace(NEW, owner_name="web-2")], False, id="of another ReplicaSet"),
        pytest.param([replace(NEW, owner_kind="StatefulSet")], False, id="of another kind"),
        pytest.param([detached(NEW)], False, id="detached itself"),
    ],
)
def test_detached_pod_is_replaced_when_its_new_pod_exists(
    new: list[Pod], *, replaced: bool
) -> None:
    assert facts(OBJECTS, OLD, make_pod("a", "n"), *new).replaced == (
        {"d/old"} if replaced else set()
    )


@pytest.mark.parametrize(
    ("pending", "without"),
    [
        pytest.param({}, ["new"], id="new pod"),
        pytest.param({"unschedulable": False}, [], id="not tried yet"),
        pytest.param({"owner_name": "other-1"}, [], id="of others"),
        pytest.param({"terminating": True}, [], id="terminating"),
        pytest.param({"created_seconds": NOW - 7200}, [], id="existed before"),
    ],
)
def test_plan_does_not_see_new_pod_of_a_move_when_it_is_unschedulable(
    pending: dict[str, Any], without: list[str]
) -> None:
    new = {"ready": False, "unschedulable": True, "created_seconds": NOW, **pending}
    others = [make_pod(name) for name in ("a", "b")] + [make_pod("new", None, **new)]
    nodes = [node("m"), node("n")]
    cluster = Cluster.of(nodes, [*others, OLD])
    found = with_moves(cluster, OBJECTS, "ours")
    assert {pod.name for pod in cluster.pods if pod not in found.pods} == set(without)
    settled = Cluster.of(nodes, [*others, make_pod("old")])
    assert len(with_moves(settled, OBJECTS, "ours").pods) == 4, "no move"


FORGED = replace(make_pod("forged"), owner_kind="", owner_name="", labels={DETACHED_LABEL: "1"})


@pytest.mark.parametrize(
    "forged",
    [FORGED, replace(FORGED, owner_kind="StatefulSet", owner_name="db")],
    ids=["bare", "of a StatefulSet"],
)
def test_pod_labeled_by_others_hides_no_pod_that_is_pending(forged: Pod) -> None:
    """Otherwise whoever may label one pod would keep Ebb from adding room for others."""
    pending = replace(NEW, node=None, ready=False, unschedulable=True)
    pending = replace(pending, owner_kind=forged.owner_kind, owner_name=forged.owner_name)
    assert forged.detached
    cluster = Cluster.of([node("m")], [forged, pending])
    assert with_moves(cluster, OBJECTS, "ours").pods == cluster.pods


def test_new_pod_that_is_unschedulable_starts_no_cooldown() -> None:
    nodes, old = [node("m", 1000), node("n", 1000)], make_pod("old", "m")
    new = make_pod("new", None, ready=False, unschedulable=True, created_seconds=NOW)
    first = reconcile.reconcile(Cluster.of(nodes, [old]), ON, LeaderState(), NOW)
    for before, pending_at in ((OLD, None), (old, NOW + 10)):
        cluster = with_moves(Cluster.of(nodes, [before, new]), OBJECTS, "ours")
        second = reconcile.reconcile(cluster, ON, first.state, NOW + 10, last=first)
        assert second.state.limit(DelayAfterPending).pending_at == pending_at


def test_replaced_pod_needs_no_room_when_its_new_pod_exists() -> None:
    """Nodes m and n have room for one pod each."""
    nodes = [marked(node("m", 1000), since=NOW), node("n", 1000)]
    big = Resources(900, 100, 0, 1)
    pods = [make_pod("old", "m", requests=big), make_pod("new", "n", requests=big)]
    cluster = Cluster.of(nodes, pods)
    assert not reconcile.plan(cluster, ON).removals
    cluster = replace(cluster, surge=SurgeFacts(replaced=frozenset({"d/old"})))
    assert [removal.node for removal in reconcile.plan(cluster, ON).removals] == ["m"]


def test_config_is_rejected_when_surge_has_no_deletion_costs() -> None:
    surge = {"surge": {"mode": "enabled"}}
    assert parse({**HEAD, **surge}, "x").surges
    with pytest.raises(ConfigError, match=r"surge\.mode: 'enabled'; allowed: disabled"):
        parse({**HEAD, **surge, "podDeletionCost": "disabled"}, "x")


MARKED = marked(node("m"), since=NOW)
USUAL, LOWEST = str(cost_of(MARKED, TAINT_KEY)), str(MOVE_COST)


def test_cost_of_move_is_below_all_others() -> None:
    assert UNDO_COST < MOVE_COST < COST_MIN
    write = cost_write(make_pod("old"), MOVE_COST)
    assert write.annotations == dict.fromkeys((COST_ANNOTATION, COST_OURS_ANNOTATION), LOWEST)


PLAIN = make_pod("old")
AT_MOVE_COST = replace(PLAIN, **cost(MOVE_COST))
MOVED_NOTE = NOTE._replace(outcome="moved").encode()
SIBLING = make_pod("a", "n", **cost(-7))


@pytest.mark.parametrize(
    ("pods", "written"),
    [
        pytest.param([OLD], {}, id="detached"),
        pytest.param([replace(OLD, node="n")], {}, id="detached, its node is unmarked"),
        pytest.param([OLD, SIBLING], {}, id="pod of its ReplicaSet"),
        pytest.param([PLAIN, SIBLING], {"old": USUAL, "a": None}, id="no move"),
        pytest.param([replace(AT_MOVE_COST, move=MOVED_NOTE)], {}, id="is about to be deleted"),
        pytest.param([AT_MOVE_COST], {"old": USUAL}, id="left over on a marked node"),
        pytest.param([replace(AT_MOVE_COST, node="n")], {"old": None}, id="left over"),
        pytest.param(
            [replace(make_pod("new", "n"), **cost(UNDO_COST))], {"new": None}, id="left of an undo"
        ),
        pytest.param(
            [replace(OLD, namespace="e"), SIBLING], {"a": None}, id="move in another namespace"
        ),
    ],
)
def test_costs_stay_while_a_pod_of_the_replica_set_is_detached(
    pods: list[Pod], written: dict[str, str | None]
) -> None:
    """They decide which pod is deleted when the detached one is given back."""
    cluster = Cluster.of((MARKED, node("n")), pods)
    writes = decide_costs(cluster, TAINT_KEY, enabled=True).writes
    assert {one.before.name: one.annotations[COST_ANNOTATION] for one in writes} == written


def test_notes_of_ended_moves_are_removed_with_the_costs() -> None:
    failed = replace(PLAIN, move=NOTE._replace(failures=1, outcome="timed_out").encode())
    cluster = Cluster.of((MARKED,), (failed,))
    (write,) = decide_costs(cluster, TAINT_KEY, enabled=False).writes
    assert write.annotations == {COST_OURS_ANNOTATION: None, MOVE_ANNOTATION: None}
    moving = Cluster.of((MARKED,), (OLD,))
    assert decide_costs(moving, TAINT_KEY, enabled=False).writes == (), (
        "it has the state of the move"
    )


def test_detached_pod_is_one_of_its_workload() -> None:
    """Arrivals of new pods are counted by workload."""
    assert workload_of(OLD) == workload_of(PLAIN) == ("d", "ReplicaSet", "web")


@pytest.mark.parametrize(
    ("moving", "expected"), [(frozenset({("d", "web-1")}), 0), (frozenset(), 1)]
)
def test_pod_of_a_move_is_no_arrival(moving: frozenset[tuple[str, str]], expected: int) -> None:
    budgets = replace(UNLIMITED, reserve=Reserve(percentile=Fraction(1)))
    config, nodes = replace(ON, budgets=budgets), [node("n")]
    old, new = make_pod("old", "n"), make_pod("new", "n")
    first = reconcile.reconcile(Cluster.of(nodes, [old]), config, LeaderState(), NOW)
    cluster = replace(Cluster.of(nodes, [old, new]), surge=SurgeFacts(moving=moving))
    second = reconcile.reconcile(cluster, config, first.state, NOW + 10, last=first)
    percentile = budgets.reserve.percentile
    pods = second.state.expected_pods(Resources(4000, 8000), Now(NOW + 10), percentile)
    assert sum(pods.values()) == expected


@pytest.mark.parametrize(
    ("mode", "refused"),
    [("ReadWriteOnce", True), ("ReadWriteOncePod", True), ("ReadWriteMany", False)],
)
def test_pod_is_not_replaced_when_one_node_alone_can_use_its_volume(
    mode: str, *, refused: bool
) -> None:
    disruption_facts = DisruptionFacts(claims=(ClaimUse("data"),))
    pod = make_pod("old", "n", disruption_facts=disruption_facts, unsupported=(CLAIMS_FIELD,))
    claim = Claim(namespace="d", name="data", volume="pv", modes=(mode,))
    cluster = build_cluster([node("n")], [pod], claims=[claim], volumes=[Volume(name="pv")])
    why = why_not_replaced(cluster.pods[0], Now(NOW), keep_local_storage=True)
    assert (why is not None and why.reason is VOLUME) is refused
