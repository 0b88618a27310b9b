"""Which nodes without a mark scale-ins are to empty next: tables, and the law."""

import random
from dataclasses import replace
from itertools import count

import pytest

from core.config.settings import Config
from core.engine.leader_state import LeaderState
from core.engine.reconcile import PassResult, reconcile
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
"""Nodes of the tables are too full for any of them to go."""


def looked(
    nodes: list[Node], *pods: Pod, config: Config = FULL, before: LeaderState | None = None
) -> PassResult:
    return reconcile(Cluster.of(nodes, pods), config, before or LeaderState(first_pass_at=0), NOW)


def replicas(on: str, cpu: int, owner: str = "ReplicaSet") -> Pod:
    return replace(pod(f"{owner.lower()}-{on}-{cpu}", on, cpu, 100), owner_kind=owner)


def chosen(found: PassResult) -> dict[str, int]:
    return dict(found.state.scale_in_targets)


def test_of_few_nodes_that_stay_the_one_is_next_of_which_least_is_asked_for() -> None:
    nodes = [node(name, 1000) for name in "abc"]
    found = looked(
        nodes, *(replicas(name, cpu) for name, cpu in zip("abc", (900, 850, 870), strict=True))
    )
    assert not found.plan.removals
    assert chosen(found) == {"b": 1}


def test_a_node_that_other_pods_keep_comes_behind_those_that_scale_ins_empty() -> None:
    nodes = [node(name, 1000) for name in "ab"]
    job = replicas("a", 100, "Job")
    found = looked(nodes, replicas("a", 700), job, replicas("b", 900))
    assert chosen(found) == {"b": 1}


def test_one_in_ten_is_next() -> None:
    nodes = [node(f"n{number:02}", 1000) for number in range(21)]
    found = looked(nodes, *(replicas(one.name, 900 + n) for n, one in enumerate(nodes)))
    assert chosen(found) == {"n00": 1, "n01": 2, "n02": 3}


def test_there_is_a_bound_to_how_many_are_next() -> None:
    nodes = [node(f"n{number:04}", 1000) for number in range(11 * NODES_MAX)]
    found = looked(nodes, *(replicas(one.name, 900) for one in nodes))
    assert len(found.state.scale_in_targets) == NODES_MAX


def test_pods_of_a_pool_of_their_own_have_a_next_node_there() -> None:
    """Nobody else can use those nodes, which are the fullest here."""
    taint = Taint("gpu", "", Effect.NO_SCHEDULE)
    own = NodeConstraints(
        node_selector=(("pool", "gpu"),), tolerations=(Toleration("gpu", "Exists"),)
    )
    cpu = dict(zip("abcgh", (900, 850, 870, 990, 980), strict=True))
    nodes = [node(name, 1000) for name in "abc"]
    nodes += (node(name, 1000, labels={"pool": "gpu"}, taints=(taint,)) for name in "gh")
    pods = [replicas(name, asked) for name, asked in cpu.items()]
    pods[3:] = (replace(one, placing=own) for one in pods[3:])
    assert chosen(looked(nodes, *pods)) == {"b": 1, "h": 2}


@pytest.mark.parametrize(
    "one",
    [
        pytest.param(replace(node("a", 1000), unschedulable=True), id="cordoned"),
        pytest.param(node("a", 1000, annotations={KEEP_ANNOTATION: "true"}), id="opted out"),
        pytest.param(node("a", 1000, labels={MARK_LABEL: "soft"}), id="marked"),
    ],
)
def test_a_node_that_stays_whatever_comes_or_goes_anyway_is_not_next(one: Node) -> None:
    found = looked([one, node("b", 1000)], replicas("a", 800), replicas("b", 900))
    assert chosen(found) == {"b": 1}


def test_where_a_budget_keeps_all_nodes_none_is_next() -> None:
    budgets = replace(UNLIMITED, cluster=replace(UNLIMITED.cluster, min_nodes=2))
    nodes = [node("a", 1000), node("b", 1000)]
    config = replace(FULL, budgets=budgets)
    found = looked(nodes, replicas("a", 800), replicas("b", 900), config=config)
    assert chosen(found) == {}


def test_what_was_chosen_stays_so_and_the_next_one_has_a_higher_number() -> None:
    nodes = [node(f"n{number:02}", 1000) for number in range(11)]
    pods = [replicas(one.name, 900 + n) for n, one in enumerate(nodes)]
    first = looked(nodes, *pods)
    assert chosen(first) == {"n00": 1, "n01": 2}
    pods[0], pods[10] = replicas("n00", 990), replicas("n10", 850)
    second = looked(nodes, *pods, before=first.state)
    assert chosen(second) == {"n00": 1, "n01": 2}
    third = looked(nodes[1:], *pods[1:], before=second.state)
    assert chosen(third) == {"n01": 2}  # of ten nodes one is enough
    last = looked(nodes[2:], *pods[2:], before=third.state)
    assert chosen(last) == {"n10": 3}


MUTANTS = (
    "marked ones too",
    "who stays too",
    "chosen anew",
    "budgets are no matter",
    "by name",
    "Jobs are no matter",
    "one set of nodes",
)


def played(seed: int, mutant: str = "") -> tuple[dict[str, int], dict[str, int]]:
    """Return what the engine chose in a mixed cluster, and what the plain rules choose."""
    chance = random.Random(seed)
    cluster = mixed.cluster(chance, social=False)
    config = mixed_config.config(chance)
    names = [one.name for one in cluster.nodes if chance.random() < 0.1]
    before = {name: number for number, name in enumerate([*names, "gone"], chance.randint(1, 9))}
    found = reconcile(cluster, config, LeaderState(first_pass_at=0, scale_in_targets=before), NOW)
    kept = {one.node: [why.code for why in one.blockers] for one in found.plan.kept}
    return chosen(found), following(cluster, config, before, kept, mutant, clock=NOW)


@pytest.mark.law(seeds_max=3000)
def test_the_next_ones_are_those_of_the_plain_rules(seeds: range) -> None:
    several = 0
    for seed in seeds:
        found, plain = played(seed)
        assert list(found.items()) == list(plain.items()), seed
        several += len(found) > 1
    assert several > len(seeds) // 20


@pytest.mark.mutant
@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_comparison_would_notice(mutant: str) -> None:
    assert any(found != plain for found, plain in (played(seed, mutant) for seed in count()))
