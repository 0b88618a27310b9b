"""Compare the reserve with a plain one that knows all passes from the start."""

import random
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import pytest

from core.config.budgets import Reserve
from core.config.settings import Config, Mode, ScaleDownProtection, Scope
from core.engine.arrivals import SHAPES_MAX, Arrivals
from core.engine.leader_state import LeaderState
from core.engine.reconcile import ReconcileResult, reconcile
from core.model.cluster import Cluster
from core.model.constraints import Requirement, SelectorTerm
from core.model.node import Node, Taint
from core.model.pod import Pod
from tests.support import mixed, mixed_config
from tests.support.builders import UNLIMITED
from tests.support.mixed_autoscalers import surrounded
from tests.support.reference_reserve import UNBOUND, lacking, protected

pytestmark = [pytest.mark.law(seeds_max=3000), pytest.mark.mutate]

LOOKS = 10
SECONDS = (1, 7, 20, 60, 100, 299, 300, 1000, 3000, 43_200)
PERCENTILES = (Fraction(1, 10), Fraction(1, 2), Fraction(7, 10), Fraction(1), Fraction(1))
EPOCH = 1_000_000 * 300
STARTS = (
    "node.kubernetes.io/not-ready",
    "karpenter.sh/unregistered",
    "startup-taint.cluster-autoscaler.kubernetes.io/x",
)
MUTANTS = (
    "replacements count",
    "no provisioning time",
    "busiest window",
    "one burst is usual",
    "windows without arrivals count",
    "most expensive first",
    "marks are ignored",
    "marked nodes have no room",
    "Pending pods are ignored",
    "pods that select a node by name count",
    "scale-down protection is ignored",
    "a new leader keeps all",
)


def config(chance: random.Random, lengths: Sequence[int]) -> Config:
    reserve = Reserve(
        window_seconds=chance.choice(lengths),
        percentile=chance.choice(PERCENTILES),
    )
    prices = mixed_config.config(chance).prices
    budgets = replace(UNLIMITED, reserve=reserve, headroom=chance.choice((0, 0, 0, 1)))
    mode = chance.choice((Mode.ENFORCE, Mode.ENFORCE, Mode.ENFORCE, Mode.OBSERVE))
    scope = chance.choice((Scope.RESERVED, Scope.MARKED))
    return Config(
        mode=mode,
        budgets=budgets,
        prices=prices,
        unneeded_time_seconds=0,
        scale_down_protection=ScaleDownProtection(scope=scope),
    )


def history(seed: int) -> tuple[Config, list[tuple[int, Cluster]]]:
    """Return clusters over time with constant nodes and changing pods.

    The first pods remain, and new pods are like them, so the reaches keep their names. Pods on
    virtual nodes make no reaches.
    """
    chance, aside = random.Random(seed), random.Random(f"aside {seed}")
    first = mixed.cluster(chance, 8, social=chance.random() < 0.3)
    first = young(chance, first)
    left = [p for p in first.pods if p.stays_with_node or chance.random() < 0.3]
    first = replace(first, pods=tuple(left))
    new = twins(chance, first) if chance.random() < 0.3 else []
    first = with_twin(first, new) if new else first
    second, found, extra = EPOCH, [(EPOCH, first)], list[Pod]()
    for number in range(chance.randrange(2, LOOKS)):
        second += chance.choice(SECONDS[:5] if new else SECONDS)
        extra = [one for one in extra if chance.random() < 0.5]
        extra = [replace(p, terminating=True) if chance.random() < 0.1 else p for p in extra]
        for place in range(chance.randrange(4)):
            some = arriving_pods(chance, first, f"x{number}-{place}")
            extra += some if new or aside.random() < 0.9 else pinned(aside, first, some)
        there = new[1 : 1 + number]
        extra = [pend_or_bind(chance, one, there) if new else one for one in extra]
        nodes = [*first.nodes, *there]
        cluster = replace(Cluster.of(nodes, [*first.pods, *extra], first.budgets))
        found.append((second, surrounded(cluster, first)))
    if aside.random() < 0.2:  # later none of the new pods is left
        nodes = [*found[-1][1].nodes]
        cluster = surrounded(Cluster.of(nodes, first.pods), first)
        found.append((second + aside.choice((60, 300, 1800, 3599, 3600)), cluster))
    return config(chance, (1, 7, 100) if new else (1, 7, 100, 300)), found


def young(chance: random.Random, first: Cluster) -> Cluster:
    """Return the cluster with some nodes created shortly before or after the first pass."""
    nodes = []
    for one in first.nodes:
        made = EPOCH + chance.choice(SECONDS) - chance.choice((0, 1, 899, 900, 901))
        made_one = replace(one, created_seconds=made) if chance.random() < 0.5 else one
        key = chance.choice((*STARTS, "gpu"))
        states = (
            (5, made_one),
            (2, replace(made_one, ready=False)),
            (3, mixed.tainted(made_one, Taint(key, "", "NoSchedule"))),
        )
        nodes.append(mixed.weighed(chance, states))
    cluster = Cluster.of(nodes, first.pods, first.budgets)
    return surrounded(cluster, first)


def twins(chance: random.Random, first: Cluster) -> list[Node]:
    """Return copies of one node that are added later; the first exists from the start."""
    like = chance.choice(first.nodes)
    return [replace(like, name=f"t{number}") for number in range(LOOKS)]


def with_twin(first: Cluster, new: Sequence[Node]) -> Cluster:
    """Return the cluster with the first copy, and without pods that select nodes by name.

    So the added nodes belong to existing reaches of several nodes only.
    """
    pods = [
        p for p in first.pods if not any(term.fields for term in p.node_constraints.affinity or ())
    ]
    cluster = Cluster.of([*first.nodes, new[0]], pods, first.budgets)
    return surrounded(cluster, first)


def pend_or_bind(chance: random.Random, pod: Pod, there: Sequence[Node]) -> Pod:
    """Make a pod without a node unschedulable, or bind an unschedulable one to an added node."""
    if pod.node is not None or pod.terminating:
        return pod
    if pod.unschedulable and there and chance.random() < 0.7:
        return replace(
            pod, nominated_node="", node=chance.choice(there[-2:]).name, unschedulable=False
        )
    return replace(pod, unschedulable=True)


def arriving_pods(chance: random.Random, first: Cluster, name: str) -> list[Pod]:
    machines = {one.name for one in first.nodes if not one.virtual}
    likes = [one for one in first.pods if one.node is None or one.node in machines]
    if not likes:
        return []
    like = chance.choice(likes)
    at = chance.choice((None, None, chance.choice(first.nodes).name))
    pods = [
        replace(
            like,
            nominated_node="",
            name=f"{name}-{n}",
            uid=f"{name}-{n}",
            node=at,
            unschedulable=False,
        )
        for n in range(chance.choice((1, 1, 2, 6)))
    ]
    return [*pods[:1], *(replace(p, unsupported=(*p.unsupported, UNBOUND)) for p in pods[1:])]


def pinned(chance: random.Random, first: Cluster, pods: Sequence[Pod]) -> list[Pod]:
    """Return the pods with affinity to one node only."""
    name = chance.choice(first.nodes).name if pods else ""
    term = SelectorTerm((), (Requirement("metadata.name", "In", (name,)),))
    return [
        replace(
            p,
            node_constraints=replace(p.node_constraints, affinity=(term,)),
            node=None,
            nominated_node="",
        )
        for p in pods
    ]


def run_history(seed: int) -> tuple[Config, list[tuple[int, Cluster]], ReconcileResult]:
    settings, states = history(seed)
    last: ReconcileResult | None = None
    for second, cluster in states:
        last = reconcile(
            cluster,
            settings,
            last.state if last else LeaderState(may_publish=True),
            second,
            last=last,
        )
    assert last is not None
    return settings, states, last


def names(found: ReconcileResult) -> set[str]:
    return {one.node for one in found.plan.reserve}


def short(found: ReconcileResult) -> set[frozenset[str]]:
    """Return the reaches without room for expected pods, as sets of node names.

    Arrived pods may not exist any more, so the nodes come from their constraints.
    """
    snapshot = found.snapshot
    return {
        frozenset(
            snapshot.node_order.nodes[n].name
            for n in snapshot.reaches.members(kind.node_constraints)
        )
        for kind in found.expected_pods
        if kind.reach in found.short_reaches
    }


def test_reserve_agrees_with_plain_reserve(seeds: range) -> None:
    kept = 0
    for seed in seeds:
        settings, states, found = run_history(seed)
        assert names(found) == protected(states, settings), seed
        assert short(found) == lacking(states, settings), seed
        kept += bool(names(found)) and found.state.arrivals.recent != {}
    assert kept > len(seeds) // 100


SEARCHED = 500
"""Number of seeds at which a mutant must have been noticed."""
SELDOM = {"no provisioning time": 584}
"""Mutants of rules that decide seldom, with the first seed at which to search for them."""


@pytest.mark.mutant
@pytest.mark.parametrize("mutant", MUTANTS)
def test_comparison_notices_mutant(mutant: str) -> None:
    first = SELDOM.get(mutant, 0)
    assert any(
        names(found) != protected(states, settings, mutant)
        for settings, states, found in map(run_history, range(first, first + SEARCHED))
    )


@pytest.mark.mutant
@pytest.mark.parametrize(
    "mutant",
    ["half", "starting nodes have no room", "nodes start forever", "unprotected nodes have room"],
)
def test_comparison_of_short_reaches_notices_mutant(mutant: str) -> None:
    assert any(
        short(found) != lacking(states, settings, mutant)
        for settings, states, found in map(run_history, range(SEARCHED))
    )


def test_reserve_does_not_depend_on_order_of_objects(seeds: range) -> None:
    for seed in seeds[::4]:
        settings, states, found = run_history(seed)
        chance, last = random.Random(seed), None
        for second, cluster in states:
            nodes = chance.sample(cluster.nodes, len(cluster.nodes))
            pods = chance.sample(cluster.pods, len(cluster.pods))
            one = surrounded(Cluster.of(nodes, pods), cluster)
            last = reconcile(
                one, settings, last.state if last else LeaderState(may_publish=True), second
            )
        assert last is not None
        assert last.plan.reserve == found.plan.reserve, seed


def test_number_of_entries_is_bounded() -> None:
    """For any number of pods and any time."""
    settings = Config(
        budgets=replace(UNLIMITED, reserve=Reserve(window_seconds=300, percentile=Fraction(1)))
    )
    last: ReconcileResult | None = None
    most = 0
    chance = random.Random(1)
    first = mixed.cluster(chance, 4)
    for number in range(400):
        pods = [pod for n in range(3) for pod in arriving_pods(chance, first, f"y{number}-{n}")]
        cluster = Cluster.of(first.nodes, [*first.pods, *pods])
        second = EPOCH + number * 2000
        last = reconcile(
            cluster,
            settings,
            last.state if last else LeaderState(may_publish=True),
            second,
            last=last,
        )
        most = max(most, entries(last.state.arrivals))
    assert last is not None
    assert most <= (3600 // 60 + 2) * SHAPES_MAX
    assert len(last.state.arrivals.recent) <= 3600 // 2000 + 2


def entries(arrivals: Arrivals) -> int:
    return sum(map(len, arrivals.recent.values()))
