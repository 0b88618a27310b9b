"""Packing beside other pods: chains of them, and what each costs as the nodes grow."""

import gc
import random
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial

import pytest

from core.config.settings import Config
from core.engine.snapshot import ClusterSnapshot
from core.fit.bits import set_bits
from core.fit.tallies import Domains, Spread
from core.model.cluster import Cluster
from core.model.constraints import (
    HOST_LABEL,
    HostPort,
    PodAffinityTerm,
    PodConstraints,
    PodSelector,
    Requirement,
    SpreadConstraint,
)
from core.model.node import Node
from core.packing.packer import SWEEPS_MAX, Attempt, Packer
from tests.support.builders import node, pod, select


def hosts(size: int) -> list[Node]:
    return [node(f"n{number}", labels={HOST_LABEL: f"n{number}"}) for number in range(size)]


def tried(cluster: Cluster, leaving: str) -> tuple[Packer, Attempt]:
    packer = ClusterSnapshot(cluster, Config()).packer()
    number = packer.node_ids[leaving]
    return packer, packer.try_place(packer.on[number], number)


@pytest.mark.parametrize("length", [2, SWEEPS_MAX, SWEEPS_MAX + 1, SWEEPS_MAX + 2])
def test_who_is_refused_in_the_last_sweep_has_no_place(length: int) -> None:
    """Each pod of a chain must be near the next one, so a sweep places one, the first two."""
    chain = [
        pod(
            f"p{number:02}",
            "n0",
            10,
            10,
            labels={"app": f"a{number}"},
            company=PodConstraints(near=(PodAffinityTerm(select(f"a{number + 1}"), HOST_LABEL),)),
        )
        for number in range(length - 1)
    ]
    chain.append(pod("last", "n0", 10, 10, labels={"app": f"a{length - 1}"}))
    port = PodConstraints(host_ports=(HostPort(80),))
    theirs = [pod(f"ingress-{on}", on, 10, 10, company=port) for on in ("n0", "n1")]
    packer, found = tried(Cluster.of(hosts(2), [*chain, *theirs]), "n0")
    unplaced = {packer.pods[one].name for one in found.unassigned}
    assert "ingress-n0" in unplaced
    assert len(found.assignments) + len(unplaced) == length + 1
    assert len(found.assignments) == min(length, SWEEPS_MAX + 1)


APART = PodConstraints(apart=(PodAffinityTerm(select("a"), HOST_LABEL),))
SPREAD = PodConstraints(spread=(SpreadConstraint(select("a"), HOST_LABEL, 1),))


def one_on_each(size: int, company: PodConstraints, own: str) -> Cluster:
    """Return a cluster with a pod on each node; *own*: a label of which each has another value."""
    pods = [
        pod(f"p{n}", f"n{n}", 10, 10, labels={own: f"p{n}", "app": "a"}, company=company)
        for n in range(size)
    ]
    return Cluster.of(hosts(size), pods)


def calls(work: Callable[[], object]) -> int:
    """Return how many functions were called; those that a collection of cycles calls are none.

    Some library may have it call back, and when it begins depends on all that was made before.
    """
    found, collects = 0, gc.isenabled()

    def note(_frame: object, event: str, _arg: object) -> None:
        nonlocal found
        found += event == "call"

    gc.disable()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
        if collects:
            gc.enable()
    return found


def test_what_a_collection_of_cycles_calls_is_not_counted() -> None:
    def back(phase: str, info: object) -> None:
        """Be called, as by hypothesis, which measures how long it takes."""

    def work(many: int) -> None:
        assert [[] for _ in range(many)]

    gc.callbacks.append(back)
    try:
        assert calls(partial(work, 10 * gc.get_threshold()[0])) == calls(partial(work, 1))
    finally:
        gc.callbacks.remove(back)


@pytest.mark.parametrize("company", [APART, SPREAD])
@pytest.mark.parametrize("own", ["app", "apps.kubernetes.io/pod-index"])
def test_a_pod_that_is_refused_everywhere_costs_no_question_a_node(
    company: PodConstraints, own: str
) -> None:
    """Nor do a StatefulSet's pods, each of which has labels of its own that nobody asks about."""
    asked = []
    for size in (20, 40):
        packer, first = tried(one_on_each(size, company, own), "n0")
        assert (first.assignments, len(first.unassigned)) == ([], 1)
        asked.append(calls(partial(packer.try_place, packer.on[1], 1)))
    assert asked[0] == asked[1]


def test_a_port_of_many_addresses_costs_no_question_an_address_and_pod() -> None:
    asked = []
    for size in (100, 200):
        ips = ["0.0.0.0" if number % 2 else f"10.0.0.{number}" for number in range(size)]
        pods = [
            pod(
                f"p{number}",
                "n0",
                1,
                1,
                company=PodConstraints(host_ports=(HostPort(80, ip=ip), more)),
            )
            for number, ip in enumerate(ips)
            for more in [HostPort(1000 + number)]
        ]
        asked.append(calls(ClusterSnapshot(Cluster.of(hosts(2), pods), Config()).packer))
    assert asked[1] < 2.5 * asked[0]


def test_pods_that_many_sets_of_terms_repel_cost_no_question_a_set_and_pod() -> None:
    """As many sets as pods, of a few terms that all of them ask for."""
    asked = []
    for many in (6, 8):
        terms = tuple(
            PodAffinityTerm(PodSelector(("d",), (Requirement(f"k{n}", "In", ("1",)),)), HOST_LABEL)
            for n in range(many)
        )
        pods = [
            pod(
                f"p{number}",
                "n0",
                1,
                1,
                labels={f"k{n}": str(number >> n & 1) for n in range(many)},
                company=PodConstraints(apart=terms),
            )
            for number in range(2**many)
        ]
        asked.append(calls(ClusterSnapshot(Cluster.of(hosts(2), pods), Config()).packer))
    assert asked[1] < 7 * asked[0]


DOMAINS = [None, "a", "b", "b", "c"]


def among(domains: set[str]) -> list[int]:
    return [place for place, domain in enumerate(DOMAINS) if domain in domains]


@pytest.mark.law
def test_which_domains_have_how_many_is_what_a_walk_finds(seeds: range) -> None:
    for seed in seeds:
        chance = random.Random(seed)
        tally, plain = Spread(Domains(DOMAINS)), Counter({"a": 0, "b": 0, "c": 0})
        on = [0] * len(DOMAINS)
        for _ in range(20):
            number = chance.randrange(len(DOMAINS))
            by = -1 if on[number] and chance.random() < 0.5 else 1
            on[number] += by
            tally.add(number, by)
            if (domain := DOMAINS[number]) is not None:
                plain[domain] += by
            assert tally.least(0) == tally.least(3) == min(plain.values())
            assert tally.least(4) == 0
            for most in range(-1, 5):
                few = {domain for domain, count in plain.items() if count <= most}
                assert [*set_bits(tally.having(most))] == among(few)
            assert [*set_bits(tally.there)] == among({key for key in plain if plain[key]})
