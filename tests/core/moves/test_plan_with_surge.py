"""What plans, deletion costs and the reserve do differently when surge moves are enabled."""

from collections.abc import Sequence
from dataclasses import replace
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
from core.marks.wellknown import COST_ANNOTATION, COST_OURS_ANNOTATION, TAINT_KEY
from core.model.cluster import Cluster, SurgeFacts
from core.model.constraints import (
    ClaimUse,
    DisruptionFacts,
    PodAffinityTerm,
    PodConstraints,
)
from core.model.errors import ConfigError
from core.model.now import Now
from core.model.pod import CLAIMS_FIELD, Pod
from core.model.resources import Resources
from core.moves.facts import with_moves
from core.moves.objects import SurgeObjects
from core.moves.records import MoveRecords, MoveStep
from core.writes.costs import COST_MIN, MOVE_COST, UNDO_COST, cost_of, cost_write, decide_costs
from tests.support.builders import UNLIMITED, marked, node, select
from tests.support.cluster_pods import build_cluster
from tests.support.configurations import HEAD
from tests.support.surge import NOW, deployment, make_pod, make_record

OFF = Config(
    thresholds=Thresholds(cpu=1, memory=1),  # type: ignore[arg-type]
    usability=UsabilityMode.NONE,
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
    """Node a has a pod whose zone is full of its kind; b has a free pod with higher requests."""
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
    assert next(one.node for one in plans[OFF].removals) == "a"
    assert next(one.node for one in plans[ON].removals) == "b"


NO_RECORDS = MoveRecords()


def facts(
    objects: SurgeObjects, records: MoveRecords = NO_RECORDS, before: MoveRecords = NO_RECORDS
) -> SurgeFacts:
    return with_moves(Cluster.of((), ()), objects, records, before, own_namespace="ours").surge


@pytest.mark.parametrize(
    ("changes", "allowed"),
    [({}, True), ({"strategy": "Recreate"}, False), ({"max_surge": 0}, False),
     ({"paused": True}, False), ({"keep": True}, False), ({"available": 0}, True),
     ({"namespace": "ours"}, False), ({"min_ready_seconds": 600}, False),
     ({"min_ready_seconds": 599}, True)],
)  # fmt: skip
def test_replica_set_allows_moves_when_its_deployment_consents(
    changes: dict[str, Any], *, allowed: bool
) -> None:
    objects = SurgeObjects(deployments={"d/web": deployment(**changes)})
    found = facts(objects)
    assert found.allowed == ({("d", "web-1")} if allowed else set())


def test_facts_have_moves_of_this_and_the_last_reconciliation() -> None:
    objects = SurgeObjects(deployments={"d/web": deployment()})
    move = MoveRecords().with_move(make_record(step=MoveStep.RAISED))
    during = facts(objects, move)
    assert during.moving == {("d", "web-1")}
    assert during.replaced == {"d/old"}
    after = facts(objects, before=move)
    assert after.moving == {("d", "web-1")}
    assert not after.replaced


@pytest.mark.parametrize(
    ("pending", "without"),
    [
        pytest.param({}, ["new"], id="new pod"),
        pytest.param({"unschedulable": False}, [], id="not tried yet"),
        pytest.param({"owner_name": "other-1"}, [], id="of others"),
        pytest.param({"terminating": True}, [], id="terminating"),
        pytest.param({"created_seconds": NOW - 7200}, [], id="older than another pod"),
    ],
)
def test_plan_does_not_see_new_pod_of_a_move_when_it_is_unschedulable(
    pending: dict[str, Any], without: list[str]
) -> None:
    new = {"ready": False, "unschedulable": True, "created_seconds": NOW, **pending}
    pods = [make_pod(name) for name in ("a", "b", "old")] + [make_pod("new", None, **new)]
    of = SurgeObjects(deployments={"d/web": deployment()}, owners={("d", "web-1"): "d/web"})
    records = MoveRecords().with_move(make_record(step=MoveStep.RAISED))
    cluster = Cluster.of([node("m"), node("n")], pods)
    found = with_moves(cluster, of, records, NO_RECORDS, "ours")
    assert {pod.name for pod in cluster.pods if pod not in found.pods} == set(without)
    assert found.surge.replaced == (set() if without else {"d/old"})
    assert len(with_moves(cluster, of, NO_RECORDS, records, "ours").pods) == 4, "no move"


def test_new_pod_that_is_unschedulable_starts_no_cooldown() -> None:
    nodes, old = [node("m", 1000), node("n", 1000)], make_pod("old", "m")
    new = make_pod("new", None, ready=False, unschedulable=True)
    of = SurgeObjects(
        deployments={"d/web": deployment(replicas=2)}, owners={("d", "web-1"): "d/web"}
    )
    move = make_record(step=MoveStep.RAISED, original=1, raised=2)
    first = reconcile.reconcile(Cluster.of(nodes, [old]), ON, LeaderState(), NOW)
    for records, pending_at in ((MoveRecords().with_move(move), None), (NO_RECORDS, NOW + 10)):
        cluster = with_moves(Cluster.of(nodes, [old, new]), of, records, NO_RECORDS, "ours")
        second = reconcile.reconcile(cluster, ON, first.state, NOW + 10, last=first)
        assert second.state.pod_pending_at == pending_at


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


@pytest.mark.parametrize(
    ("on", "moving", "written"),
    [("m", {"uid-old"}, None), ("m", set(), USUAL), ("n", {"uid-old"}, "removed")],
    ids=["moving", "move has ended", "unmarked"],
)
@pytest.mark.parametrize("cost", [LOWEST, str(UNDO_COST)])
def test_cost_of_move_is_replaced_when_pod_is_not_moved(
    on: str, moving: set[str], written: str | None, cost: str
) -> None:
    pod = make_pod("old", on, deletion_cost=cost, deletion_cost_ours=cost)
    cluster = Cluster.of((MARKED, node("n")), (pod,))
    writes = decide_costs(cluster, TAINT_KEY, moving=moving, enabled=True)
    costs = [write.annotations[COST_ANNOTATION] or "removed" for write in writes]
    assert costs == ([] if written is None else [written])


@pytest.mark.parametrize(
    ("moving", "expected"), [(frozenset({("d", "web-1")}), 0), (frozenset(), 1)]
)
def test_pod_of_a_move_is_no_arrival(moving: frozenset[tuple[str, str]], expected: int) -> None:
    budgets = replace(UNLIMITED, reserve=Reserve(lookback_seconds=3600))
    config, nodes = replace(ON, budgets=budgets), [node("n")]
    old, new = make_pod("old", "n"), make_pod("new", "n")
    first = reconcile.reconcile(Cluster.of(nodes, [old]), config, LeaderState(), NOW)
    cluster = replace(Cluster.of(nodes, [old, new]), surge=SurgeFacts(moving=moving))
    second = reconcile.reconcile(cluster, config, first.state, NOW + 10, last=first)
    pods = second.state.expected_pods(Resources(4000, 8000), Now(NOW + 10))
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
