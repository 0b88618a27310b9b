"""Compare the evaluation budget with the plain one, on random pods with a small budget."""

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import pytest

from core.model.constraints import (
    NO_NODE_CONSTRAINTS,
    NO_POD,
    NO_POD_CONSTRAINTS,
    ClaimUse,
    DisruptionFacts,
    HostPort,
    NodeConstraints,
    PodAffinityTerm,
    PodConstraints,
    PodSelector,
    Requirement,
    SelectorTerm,
    SpreadConstraint,
    Toleration,
    VolumeTopology,
)
from core.model.pod import Pod
from tests.support.builders import pod
from tests.support.cluster_pods import within_budget
from tests.support.reference_budget import MUTANTS, ReferenceBudget

SEEDS: Final = 600
NAMESPACES: Final = ("d", "e", "kube-system")


def _requirement(chance: random.Random) -> Requirement:
    operator = chance.choice(("In", "In", "NotIn", "Exists"))
    values = tuple(sorted(chance.sample("abcde", chance.randint(1, 2))))
    if chance.random() < 0.1:
        values = tuple(f"v{number:02}" for number in range(chance.choice((15, 16, 40))))
    return Requirement(chance.choice("kl"), operator, () if operator == "Exists" else values)


def _selector(chance: random.Random, own: str) -> PodSelector:
    if chance.random() < 0.05:
        return NO_POD
    namespaces = chance.choice(((own,), (own,), (own,), None, ("d", "e"), ("e",)))
    found = [_requirement(chance) for _ in range(chance.choice((0, 1, 1, 2)))]
    if chance.random() < 0.2:
        found += [Requirement(f"x{number}", "DoesNotExist") for number in range(50)]
    return PodSelector(namespaces, tuple(found))


def _term(chance: random.Random, own: str) -> PodAffinityTerm:
    return PodAffinityTerm(_selector(chance, own), chance.choice(("zone", "host")))


def _pod_constraints(chance: random.Random, own: str) -> PodConstraints:
    def some(share: float) -> range:
        return range(chance.randint(1, 3) if chance.random() < share else 0)

    found = PodConstraints(
        near=tuple(_term(chance, own) for _ in some(0.2)),
        apart=tuple(_term(chance, own) for _ in some(0.3)),
        spread=tuple(SpreadConstraint(_selector(chance, own), "zone", 1) for _ in some(0.2)),
        host_ports=tuple(HostPort(chance.randint(1, 9)) for _ in some(0.3)),
    )
    return NO_POD_CONSTRAINTS if found == NO_POD_CONSTRAINTS else found


def _node_constraints(chance: random.Random) -> NodeConstraints:
    requirements = tuple(_requirement(chance) for _ in range(chance.randint(0, 3)))
    found = NodeConstraints(
        node_selector=(("pool", chance.choice("ab")),) if chance.random() < 0.3 else (),
        affinity=(SelectorTerm(requirements, requirements[:1]),) if requirements else None,
        tolerations=(Toleration("k"),) * chance.choice((0, 0, 1, 16)),
        system=(("os", "windows"),) if chance.random() < 0.1 else (),
    )
    return NO_NODE_CONSTRAINTS if found == NO_NODE_CONSTRAINTS else found


def _pods(chance: random.Random) -> list[Pod]:
    known: dict[str, list[PodConstraints]] = {
        own: [_pod_constraints(chance, own) for _ in range(2)] for own in NAMESPACES
    }
    all_constraints = [_node_constraints(chance) for _ in range(2)]
    pods = []
    for number in range(chance.randint(1, 36)):
        own, drawn = chance.choice(NAMESPACES), chance.random()
        made = pod(
            f"p{chance.randint(0, 99):02}-{number}",
            chance.choice(("n1", "n2", "n3", None)),
            1,
            1,
            namespace=own,
            node_constraints=chance.choice(all_constraints),
            pod_constraints=chance.choice(known[own]),
            labels={key: chance.choice("abc") for key in "kl" if chance.random() < 0.7},
            daemon=drawn < 0.15,
        )
        if chance.random() < 0.2:
            reach = VolumeTopology(zones=(("zone", (chance.choice("ab"),)),))
            made = replace(made, node_constraints=replace(made.node_constraints, volumes=(reach,)))
        if chance.random() < 0.3:
            claims = tuple(ClaimUse(f"c{n}") for n in range(chance.randint(1, 40)))
            made = replace(made, disruption_facts=DisruptionFacts(claims=claims))
        # Equal constraints may be different objects.
        if chance.random() < 0.3 and made.pod_constraints is not NO_POD_CONSTRAINTS:
            made = replace(made, pod_constraints=replace(made.pod_constraints))
        pods.append(replace(made, mirror=0.15 <= drawn < 0.4))
    return pods


def _budget(chance: random.Random) -> int:
    return chance.randint(100, chance.choice((1000, 6000)))


def _beyond_budget(pods: Sequence[Pod], budget: int) -> dict[str, bool]:
    """Return the pods beyond the budget, with whether their claims are looked up."""
    found = within_budget(pods, budget)
    both = zip(pods, found, strict=True)
    return {
        one.key: left.disruption_facts == one.disruption_facts
        for one, left in both
        if left.too_much
    }


def _beyond_plain_budget(pods: Sequence[Pod], budget: int, mutant: str = "") -> dict[str, bool]:
    """Return the same from the plain budget; a pod without claims has none to leave out."""
    found = ReferenceBudget(pods, budget, mutant).beyond()
    claims = {one.key: bool(one.disruption_facts.claims) for one in pods}
    return {key: known or not claims[key] for key, known in found.items()}


@pytest.mark.parametrize("first", range(0, SEEDS, 100))
def test_budget_agrees_with_plain_budget(first: int) -> None:
    for seed in range(first, first + 100):
        chance = random.Random(seed)
        pods, budget = _pods(chance), _budget(chance)
        expected = _beyond_plain_budget(pods, budget)
        assert _beyond_budget(pods, budget) == expected, seed
        chance.shuffle(pods)
        assert _beyond_budget(pods, budget) == expected, f"{seed}, in another order"


@pytest.mark.parametrize("seed", range(50))
def test_namespace_does_not_spend_budget_of_another(seed: int) -> None:
    """Terms are left out: what they cost depends on the pods of the namespaces that they name."""
    chance = random.Random(seed)
    pods, budget = _pods(chance), _budget(chance)
    at_home = [
        replace(one, pod_constraints=replace(one.pod_constraints, near=(), apart=(), spread=()))
        for one in pods
    ]
    for own in NAMESPACES:
        alone = [one for one in at_home if one.namespace == own and not one.mirror]
        mine = {one.key for one in alone}
        found = {
            key: known for key, known in _beyond_budget(at_home, budget).items() if key in mine
        }
        assert found == _beyond_budget(alone, budget)


@pytest.mark.parametrize("mutant", MUTANTS)
def test_comparison_notices_mutant_of_budget(mutant: str) -> None:
    for seed in range(SEEDS):
        chance = random.Random(seed)
        pods, budget = _pods(chance), _budget(chance)
        if _beyond_plain_budget(pods, budget, mutant) != _beyond_plain_budget(pods, budget):
            return
    pytest.fail("no seed tells them apart")
