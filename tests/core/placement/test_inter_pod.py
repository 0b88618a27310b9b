"""Pack pods with inter-pod constraints: chains of pods, and the cost as nodes grow."""

import gc
import random
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial

import pytest

from core.config.settings import Config
from core.engine.planner_parts import new_packer
from core.engine.snapshot import ClusterSnapshot
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
from core.placement.bits import set_bits
from core.placement.packer import SWEEPS_MAX, Attempt, Packer
from core.placement.tallies import Domains, SpreadCount
from tests.support.builders import node, pod, select


def hosts(size: int) -> list[Node]:
    return [node(f"n{number}", labels={HOST_LABEL: f"n{number}"}) for number in range(size)]


def try_removal(cluster: Cluster, leaving: str) -> tuple[Packer, Attempt]:
    packer = new_packer(ClusterSnapshot(cluster, Config()))
    number = packer.node_ids[leaving]
    return packer, packer.try_place(packer.on[number], number)


@pytest.mark.parametrize("length", [2, SWEEPS_MAX, SWEEPS_MAX + 1, SWEEPS_MAX + 2])
def test_pod_is_unassigned_when_last_sweep_rejects_it(length: int) -> None:
    """Each pod must be near the next one: a sweep places one pod, the first sweep two."""
    chain = [
        pod(
            f"p{number:02}",
            "n0",
            10,
            10,
            labels={"app": f"a{number}"},
            pod_constraints=PodConstraints(
                near=(PodAffinityTerm(select(f"a{number + 1}"), HOST_LABEL),)
            ),
        )
        for number in range(length - 1)
    ]
    chain.append(pod("last", "n0", 10, 10, labels={"app": f"a{length - 1}"}))
    port = PodConstraints(host_ports=(HostPort(80),))
    theirs = [pod(f"ingress-{on}", on, 10, 10, pod_constraints=port) for on in ("n0", "n1")]
    packer, found = try_removal(Cluster.of(hosts(2), [*chain, *theirs]), "n0")
    unplaced = {packer.pods[one].name for one in found.unassigned}
    assert "ingress-n0" in unplaced
    assert len(found.assignments) + len(unplaced) == length + 1
    assert len(found.assignments) == min(length, SWEEPS_MAX + 1)


APART = PodConstraints(apart=(PodAffinityTerm(select("a"), HOST_LABEL),))
SPREAD = PodConstraints(spread=(SpreadConstraint(select("a"), HOST_LABEL, 1),))


def one_pod_per_node(size: int, pod_constraints: PodConstraints, own: str) -> Cluster:
    """Return a cluster with one pod per node; label *own* has another value on each pod."""
    pods = [
        pod(
            f"p{n}",
            f"n{n}",
            10,
            10,
            labels={own: f"p{n}", "app": "a"},
            pod_constraints=pod_constraints,
        )
        for n in range(size)
    ]
    return Cluster.of(hosts(size), pods)


def count_calls(work: Callable[[], object]) -> int:
    """Return how many functions were called, without those called by the garbage collector.

    Libraries may register callbacks for it, and the time of a collection is unpredictable.
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


def test_count_ignores_calls_by_garbage_collector() -> None:
    def back(phase: str, info: object) -> None:
        """Do nothing; hypothesis registers such a callback to measure collections."""

    def work(many: int) -> None:
        assert [[] for _ in range(many)]

    gc.callbacks.append(back)
    try:
        assert count_calls(partial(work, 10 * gc.get_threshold()[0])) == count_calls(
            partial(work, 1)
        )
    finally:
        gc.callbacks.remove(back)


@pytest.mark.parametrize("pod_constraints", [APART, SPREAD])
@pytest.mark.parametrize("own", ["app", "apps.kubernetes.io/pod-index"])
def test_cost_does_not_grow_with_nodes_when_all_reject_pod(
    pod_constraints: PodConstraints, own: str
) -> None:
    """Also for pods of a StatefulSet: each has its own label, which no selector uses."""
    counts = []
    for size in (20, 40):
        packer, first = try_removal(one_pod_per_node(size, pod_constraints, own), "n0")
        assert (first.assignments, len(first.unassigned)) == ([], 1)
        counts.append(count_calls(partial(packer.try_place, packer.on[1], 1)))
    assert counts[0] == counts[1]


def test_cost_is_linear_when_host_port_has_many_addresses() -> None:
    counts = []
    for size in (100, 200):
        ips = ["0.0.0.0" if number % 2 else f"10.0.0.{number}" for number in range(size)]
        pods = [
            pod(
                f"p{number}",
                "n0",
                1,
                1,
                pod_constraints=PodConstraints(host_ports=(HostPort(80, ip=ip), more)),
            )
            for number, ip in enumerate(ips)
            for more in [HostPort(1000 + number)]
        ]
        snapshot = ClusterSnapshot(Cluster.of(hosts(2), pods), Config())
        counts.append(count_calls(partial(new_packer, snapshot)))
    assert counts[1] < 2.5 * counts[0]


def test_cost_is_linear_when_many_sets_of_terms_repel_pods() -> None:
    """There are as many sets as pods; all sets consist of the same few terms."""
    counts = []
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
                pod_constraints=PodConstraints(apart=terms),
            )
            for number in range(2**many)
        ]
        snapshot = ClusterSnapshot(Cluster.of(hosts(2), pods), Config())
        counts.append(count_calls(partial(new_packer, snapshot)))
    assert counts[1] < 7 * counts[0]


DOMAINS = [None, "a", "b", "b", "c"]


def places_in(domains: set[str]) -> list[int]:
    return [place for place, domain in enumerate(DOMAINS) if domain in domains]


@pytest.mark.law
def test_domain_counts_agree_with_plain_count(seeds: range) -> None:
    for seed in seeds:
        chance = random.Random(seed)
        tally, plain = SpreadCount(Domains(DOMAINS)), Counter({"a": 0, "b": 0, "c": 0})
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
                assert [*set_bits(tally.having(most))] == places_in(few)
            assert [*set_bits(tally.occupied)] == places_in({key for key in plain if plain[key]})
