"""Scale-in targets, the unmarked nodes that scale-ins empty next: tables and laws."""

import random
from dataclasses import replace
from itertools import count

import pytest

from core.config.settings import Config
from core.engine.leader_state import LeaderState
from core.engine.reconcile import ReconcileResult, reconcile
from core.engine.scale_in_targets import NODES_MAX
from core.marks.wellknown import KEEP_ANNOTATION, MARK_LABEL
from core.model.cluster import Cluster
from core.model.constraints import NodeConstraints, Toleration
from core.model.node import Effect, Node, Taint
from core.model.pod import Pod
from tests.support import mixed, mixed_config
from tests.support.builders import UNLIMITED, node, pod
from tests.support.reference_next import following

pytestmark = pytest.mark.mutate

NOW = 1_767_225_600
FULL = Config(budgets=UNLIMITED)
"""The nodes of the tables are too full to be removable."""


def run_pass(
    nodes: list[Node], *pods: Pod, config: Config = FULL, before: LeaderState | None = None
) -> ReconcileResult:
    return reconcile(
        Cluster.of(nodes, pods), config, before or LeaderState(first_reconciliation_at=0), NOW
    )


def replicas(on: str, cpu: int, owner: str = "ReplicaSet") -> Pod:
    return replace(pod(f"{owner.lower()}-{on}-{cpu}", on, cpu, 100), owner_kind=owner)


def targets(found: ReconcileResult) -> dict[str, int]:
    return dict(found.state.scale_in_targets)


def test_target_is_node_with_least_requests() -> None:
    nodes = [node(name, 1000) for name in "abc"]
    found = run_pass(
        nodes, *(replicas(name, cpu) for name, cpu in zip("abc", (900, 850, 870), strict=True))
    )
    assert not found.plan.removals
    assert targets(found) == {"b": 1}


def test_node_with_other_pods_is_target_after_those_with_replicas_only() -> None:
    nodes = [node(name, 1000) for name in "ab"]
    job = replicas("a", 100, "Job")
    found = run_pass(nodes, replicas("a", 700), job, replicas("b", 900))
    assert targets(found) == {"b": 1}


def test_one_in_ten_nodes_is_target() -> None:
    nodes = [node(f"n{number:02}", 1000) for number in range(21)]
    found = run_pass(nodes, *(replicas(one.name, 900 + n) for n, one in enumerate(nodes)))
    assert targets(found) == {"n00": 1, "n01": 2, "n02": 3}


def test_number_of_targets_is_bounded() -> None:
    nodes = [node(f"n{number:04}", 1000) for number in range(11 * NODES_MAX)]
    found = run_pass(nodes, *(replicas(one.name, 900) for one in nodes))
    assert len(found.state.scale_in_targets) == NODES_MAX


def test_each_reach_has_its_own_target() -> None:
    """Only these pods can use the nodes of the pool, and those nodes are the fullest."""
    taint = Taint("gpu", "", Effect.NO_SCHEDULE)
    own = NodeConstraints(
        node_selector=(("pool", "gpu"),), tolerations=(Toleration("gpu", "Exists"),)
    )
    cpu = dict(zip("abcgh", (900, 850, 870, 990, 980), strict=True))
    nodes = [node(name, 1000) for name in "abc"]
    nodes += (node(name, 1000, labels={"pool": "gpu"}, taints=(taint,)) for name in "gh")
    pods = [replicas(name, millis) for name, millis in cpu.items()]
    pods[3:] = (replace(one, node_constraints=own) for one in pods[3:])
    assert targets(run_pass(nodes, *pods)) == {"b": 1, "h": 2}


@pytest.mark.parametrize(
    "one",
    [
        pytest.param(replace(node("a", 1000), unschedulable=True), id="cordoned"),
        pytest.param(node("a", 1000, annotations={KEEP_ANNOTATION: "true"}), id="opted out"),
        pytest.param(node("a", 1000, labels={MARK_LABEL: "PreferNoSchedule"}), id="marked"),
    ],
)
def test_node_is_no_target_when_ineligible_or_marked(one: Node) -> None:
    found = run_pass([one, node("b", 1000)], replicas("a", 800), replicas("b", 900))
    assert targets(found) == {"b": 1}


def test_no_node_is_target_when_budget_keeps_all() -> None:
    budgets = replace(UNLIMITED, cluster=replace(UNLIMITED.cluster, min_nodes=2))
    nodes = [node("a", 1000), node("b", 1000)]
    config = replace(FULL, budgets=budgets)
    found = run_pass(nodes, replicas("a", 800), replicas("b", 900), config=config)
    assert targets(found) == {}


def test_targets_are_retained_and_new_ones_get_higher_numbers() -> None:
    nodes = [node(f"n{number:02}", 1000) for number in range(11)]
    pods = [replicas(one.name, 900 + n) for n, one in enumerate(nodes)]
    first = run_pass(nodes, *pods)
    assert targets(first) == {"n00": 1, "n01": 2}
    pods[0], pods[10] = replicas("n00", 990), replicas("n10", 850)
    second = run_pass(nodes, *pods, before=first.state)
    assert targets(second) == {"n00": 1, "n01": 2}
    third = run_pass(nodes[1:], *pods[1:], before=second.state)
    assert targets(third) == {"n01": 2}  # of ten nodes one is enough
    last = run_pass(nodes[2:], *pods[2:], before=third.state)
    assert targets(last) == {"n10": 3}


MUTANTS = (
    "marked nodes too",
    "unremovable nodes too",
    "targets are chosen again",
    "budgets are ignored",
    "by name",
    "pods of Jobs are ignored",
    "reaches are ignored",
)


def run_both(seed: int, mutant: str = "") -> tuple[dict[str, int], dict[str, int]]:
    """Return the targets of the engine and those of the plain rules, on a mixed cluster."""
    chance = random.Random(seed)
    cluster = mixed.cluster(chance, social=False)
    config = mixed_config.config(chance)
    names = [one.name for one in cluster.nodes if chance.random() < 0.1]
    before = {name: number for number, name in enumerate([*names, "gone"], chance.randint(1, 9))}
    found = reconcile(
        cluster, config, LeaderState(first_reconciliation_at=0, scale_in_targets=before), NOW
    )
    kept = {one.node: [why.code for why in one.blockers] for one in found.plan.kept}
    return targets(found), following(cluster, config, before, kept, mutant, clock=NOW)


@pytest.mark.law(seeds_max=3000)
def test_targets_agree_with_plain_rules(seeds: range) -> None:
    several = 0
    for seed in seeds:
        found, plain = run_both(seed)
        assert list(found.items()) == list(plain.items()), seed
        several += len(found) > 1
    assert several > len(seeds) // 200


@pytest.mark.mutant
@pytest.mark.parametrize("mutant", MUTANTS)
def test_comparison_notices_mutant(mutant: str) -> None:
    assert any(found != plain for found, plain in (run_both(seed, mutant) for seed in count()))
