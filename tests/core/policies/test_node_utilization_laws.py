"""Compare policy NodeUtilization with the plain one, pass by pass, while nodes change."""

import random
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import pytest

from core.config.settings import Config, PolicySettings
from core.engine.leader_state import LeaderState
from core.engine.reconcile import ReconcileResult, reconcile
from core.model.cluster import Cluster
from core.model.constraints import DisruptionFacts, PodAffinityTerm, PodConstraints
from core.model.node import Node
from core.model.pod import Pod
from core.policies.ported.node_utilization import NodeUtilization, Settings
from tests.support import builders, mixed, mixed_config
from tests.support.builders import UNLIMITED, node, pod, select
from tests.support.mixed_autoscalers import surrounded
from tests.support.reference_rules import is_marked
from tests.support.reference_utilization import EVICT, VOLUMES, Remembered, Utilization
from tests.support.strategies import keys

pytestmark = [pytest.mark.law(seeds_max=3000), pytest.mark.mutate]

LOOKS = 6
SECONDS = (1, 10, 50, 100)
SHARES = (Fraction(3, 10), Fraction(1, 2), Fraction(1, 2), Fraction(4, 5), Fraction(1))
NOTES = (
    (),
    ((EVICT, "true"),),
    ((EVICT, "on-completion"),),
    ((EVICT, "false"),),
    ((VOLUMES, "a"),),
)


def config(chance: random.Random) -> Config:
    found = mixed_config.config(chance)
    own = Settings(
        utilization=chance.choice(SHARES),
        keep_system=chance.random() < 0.7,
        keep_local_storage=chance.random() < 0.7,
    )
    return replace(
        found,
        policy=NodeUtilization.name,
        policies=PolicySettings(node_utilization=own),
        unneeded_time_seconds=chance.choice((0, 20, 100)),
        # The plain one does not remember templates of earlier passes (test_recent_templates.py).
        budgets=replace(found.budgets, period_seconds=0, stabilization_window_seconds=0),
    )


def cluster(chance: random.Random) -> Cluster:
    """Return a mixed cluster with fewer marks, and with pods that may keep their nodes."""
    found = mixed.cluster(chance, social=chance.random() < 0.5)
    pods = [annotated(chance, one) for one in found.pods]
    return surrounded(Cluster.of(found.nodes, pods), found)


def annotated(chance: random.Random, one: Pod) -> Pod:
    if chance.random() < 0.85:
        return one
    volumes = chance.choice(((), ("a",), ("a", "b")))
    namespace = chance.choice((one.namespace, "kube-system"))
    disruption_facts = DisruptionFacts(notes=chance.choice(NOTES), local_volumes=volumes)
    priority = chance.choice((one.priority, 2_000_000_000))
    return replace(one, disruption_facts=disruption_facts, namespace=namespace, priority=priority)


def later(chance: random.Random, was: Cluster, found: ReconcileResult) -> Cluster:
    """Return the cluster some time after a pass: with written marks, other pods and nodes."""
    going = {one.node: one for one in found.plan.removals}
    unmarked = set(found.plan.marked_infeasible)
    nodes = [node_later(chance, one, going.keys(), unmarked, found.at) for one in was.nodes]
    left = [one for one in nodes if chance.random() > (0.3 if one.name in going else 0.02)]
    names = {one.name for one in left}
    places = {p.pod: p.node for one in found.plan.removals for p in one.placements}
    places |= {one.pod: one.node for one in found.plan.pending}
    pods = {one.key: one for one in pods_later(chance, was.pods, names, places)}
    limits = {name: limit for name, limit in was.attach_limits.items() if name in names}
    return replace(Cluster.of(left, pods.values()), attach_limits=limits)


def node_later(
    chance: random.Random, one: Node, going: object, unmarked: set[str], now: int
) -> Node:
    if one.name in going and not is_marked(one) and chance.random() < 0.8:  # type: ignore[operator]
        return builders.marked(one, "PreferNoSchedule", now, chance.randrange(3))
    if one.name in unmarked or chance.random() < 0.02:
        return replace(one, labels={"zone": "a"}, annotations={}, taints=())
    if chance.random() < 0.03:
        return replace(one, unschedulable=not one.unschedulable)
    return one


def pods_later(
    chance: random.Random, pods: tuple[Pod, ...], names: set[str], places: dict[str, str]
) -> Iterator[Pod]:
    for one in pods:
        if one.node is not None and one.node not in names and one.stays_with_node:
            continue
        to = places.get(one.key)
        moves = one.node is None or one.node not in names or chance.random() < 0.05
        if moves and to in names and chance.random() < 0.8:
            yield replace(one, nominated_node="", node=to, unschedulable=False)
        elif one.node is not None and one.node not in names:
            yield replace(one, nominated_node="", node=None)
        elif chance.random() > 0.02:
            yield one
        if chance.random() < 0.02 and not one.stays_with_node:
            yield replace(
                one,
                nominated_node="",
                name=f"{one.name}-more",
                node=chance.choice([*sorted(names), None]),
            )


Look = tuple[ReconcileResult, Cluster, Config, Remembered]


def run_both(seed: int, mutant: str = "") -> Iterator[tuple[ReconcileResult, Utilization]]:
    """Yield each pass with the plain one; both use their own state."""
    chance = random.Random(seed)
    settings, made, now = config(chance), cluster(chance), 1000
    memory, plain = LeaderState(), Remembered()
    for _ in range(LOOKS):
        found = reconcile(made, settings, memory, now)
        other = Utilization(
            made,
            settings,
            mutant,
            found.rate_limits,
            before=plain,
            now=now,
            key=keys(made, settings),
        )
        yield found, other
        memory, plain = found.state, other.remembered()
        made = later(chance, made, found)
        now += chance.choice(SECONDS)


def by_the_engine(found: ReconcileResult) -> tuple[object, ...]:
    removals = found.plan.removals
    return (
        [(one.node, [(p.pod, p.node) for p in one.placements]) for one in removals],
        found.state.candidates,
        {
            name: [(p.pod, p.node) for p in one]
            for name, one in found.state.hints.placements.items()
        },
    )


def plainly(other: Utilization) -> tuple[object, ...]:
    other.settle()
    removals = other.remove_all(None)
    left = other.remembered()
    return removals, left.since, left.places


@pytest.mark.law(seeds_max=3000, seeds_min=100)
def test_each_pass_agrees_with_plain_pass(seeds: range) -> None:
    """Nodes are removed, others remain candidates, and some lose their places."""
    removed = kept = restarted = 0
    for seed in seeds:
        before: ReconcileResult | None = None
        for found, other in run_both(seed):
            assert by_the_engine(found) == plainly(other), seed
            removed += len(found.plan.removals)
            was = before.state.candidates if before else {}
            for name, since in found.state.candidates.items():
                kept += was.get(name) == since
                restarted += name in was and since != was[name]
            before = found
    assert min(removed, kept) > len(seeds) // 3
    assert restarted > 0


SELDOM = {
    "promised capacity is ignored": 280,
    "nodes with known places are not first": 329,
    "the configured hysteresis is ignored": 174,
    "safe-to-evict-local-volumes is ignored": 3005,
}
"""Mutants of rules that decide seldom, with the first seed at which to search for them."""


@pytest.mark.mutant
@pytest.mark.parametrize(
    "mutant",
    [
        "promised capacity is ignored",
        "all pods block",
        "pods do not move",
        "at the unneeded time",
        "empty nodes wait",
        "at the limit counts as below",
        "marks have the stricter limit",
        "DaemonSet pods are ignored",
        "local storage does not block",
        "safe-to-evict-local-volumes is ignored",
        "safe-to-evict: true is ignored",
        "bare pods do not block",
        "no stickiness",
        "kube-system pods do not block",
        "safe-to-evict: false is ignored",
        "nodes with known places are not first",
        "one resource",
        "known places block new pods",
        "known places are ignored",
        "unneeded times restart without removals",
        "the unneeded time never restarts",
        "the configured hysteresis is ignored",
    ],
)
def test_comparison_notices_mutant(mutant: str) -> None:
    """Some cluster has different plans under the wrong rule, so the law above can fail."""
    first = SELDOM.get(mutant, 0)
    for seed in range(first, first + 3000):
        for found, other in run_both(seed, mutant):
            if by_the_engine(found) != plainly(other):
                return
    pytest.fail("no cluster tells the difference")


@pytest.mark.parametrize(("mutant", "agrees"), [("", True), ("pods are tried once", False)])
def test_comparison_notices_mutant_that_tries_pods_once(mutant: str, *, agrees: bool) -> None:
    """A large pod must be near a small pod of its node, which is placed after it."""
    near = PodConstraints(near=(PodAffinityTerm(select("b"), "zone"),))
    made = Cluster.of(
        [node("a", labels={"zone": "1"}), node("x", labels={"zone": "2"})],
        [
            pod("large", "a", 500, 100, pod_constraints=near),
            pod("small", "a", 100, 100, labels={"app": "b"}),
            pod("other", "x", 1000, 100),
        ],
    )
    settings = Config(policy="NodeUtilization", budgets=UNLIMITED)
    found = reconcile(made, settings, LeaderState(), 1000)
    other = Utilization(made, settings, mutant, found.rate_limits, before=Remembered(), now=1000)
    assert (by_the_engine(found) == plainly(other)) is agrees
    assert "a" in found.state.candidates
