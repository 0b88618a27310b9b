"""What plans, deletion costs and the reserve do differently when surge moves are enabled."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from core.config.budgets import Reserve
from core.config.document import parse
from core.config.settings import Config, UsabilityMode
from core.config.surge import SurgeConfig, SurgeMode
from core.config.thresholds import Thresholds
from core.engine import reconcile
from core.engine.leader_state import LeaderState
from core.guards.surge import VOLUME, why_not_replaced
from core.marks.wellknown import COST_ANNOTATION, COST_OURS_ANNOTATION, TAINT_KEY
from core.model.cluster import Cluster, SurgeFacts
from core.model.constraints import ClaimUse, DisruptionFacts
from core.model.errors import ConfigError
from core.model.now import Now
from core.model.pod import Pod
from core.model.resources import Resources
from core.model.volumes import CLAIMS_FIELD, Claim, Volume, build_cluster
from core.surge.facts import surge_facts
from core.surge.objects import SurgeObjects
from core.surge.records import MoveRecords, MoveStep
from core.writes.costs import COST_MIN, MOVE_COST, UNDO_COST, cost_of, cost_write, decide_costs
from tests.support.builders import UNLIMITED, marked, node
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


@pytest.mark.parametrize(
    ("changes", "allowed"),
    [({}, True), ({"strategy": "Recreate"}, False), ({"max_surge": 0}, False),
     ({"paused": True}, False), ({"keep": True}, False), ({"available": 0}, True)],
)  # fmt: skip
def test_replica_set_allows_moves_when_its_deployment_consents(
    changes: dict[str, Any], *, allowed: bool
) -> None:
    objects = SurgeObjects(deployments={"d/web": deployment(**changes)})
    found = surge_facts(objects, MoveRecords(), MoveRecords())
    assert found.allowed == ({("d", "web-1")} if allowed else set())


def test_facts_have_moves_of_this_and_the_last_pass() -> None:
    objects = SurgeObjects(deployments={"d/web": deployment()})
    move = MoveRecords().with_move(make_record(step=MoveStep.RAISED))
    during = surge_facts(objects, move, MoveRecords())
    assert during.moving == {("d", "web-1")}
    assert during.replaced == {"d/old"}
    after = surge_facts(objects, MoveRecords(), move)
    assert after.moving == {("d", "web-1")}
    assert not after.replaced


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
    ids=["moving", "move has ended", "mark released"],
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
    ties = DisruptionFacts(claims=(ClaimUse("data"),))
    pod = make_pod("old", "n", ties=ties, unsupported=(CLAIMS_FIELD,))
    claim = Claim(namespace="d", name="data", volume="pv", modes=(mode,))
    cluster = build_cluster([node("n")], [pod], claims=[claim], volumes=[Volume(name="pv")])
    why = why_not_replaced(cluster.pods[0], Now(NOW), keep_local_storage=True)
    assert (why is not None and why.reason is VOLUME) is refused
