"""Pack pods: pending pods are committed, and the cost for many pod sizes is bounded."""

import random
from dataclasses import replace

import pytest

from core.config.settings import Config
from core.engine.planner_parts import headroom_pods, new_packer
from core.engine.snapshot import ClusterSnapshot
from core.model.cluster import Cluster
from core.model.constraints import (
    HOST_LABEL,
    Disk,
    PodAffinityTerm,
    PodConstraints,
    PodSelector,
    Requirement,
    SpreadConstraint,
)
from core.model.pod import Pod
from core.placement.bits import bits_of, set_bits
from core.placement.equivalence_groups import EquivalenceGroup, NodesForConstraints
from core.placement.free_space import BLOCK_NODES, FreeSpace
from core.placement.node_search import NodeSearch, Searches
from core.placement.packer import Attempt, Packer
from core.placement.vectors import LANE_BITS, LANE_MAX, lane_maximum, lane_minimum
from tests.support import mixed
from tests.support.builders import node, pod

LANES = 3
GUARD = sum(1 << lane * LANE_BITS + LANE_BITS - 1 for lane in range(LANES))


class Read(list[int]):
    """Numbers that count how often one of them is read."""

    reads = 0

    def __getitem__(self, place: object) -> int:  # type: ignore[override]
        self.reads += 1
        return super().__getitem__(place)  # type: ignore[call-overload, no-any-return]


def vector(lanes: list[int]) -> int:
    return sum(amount << lane * LANE_BITS for lane, amount in enumerate(lanes))


def some(chance: random.Random) -> list[int]:
    return [chance.choice((0, 1, 5, chance.randrange(LANE_MAX), LANE_MAX)) for _ in range(LANES)]


def packer_of(cluster: Cluster, headroom: int = 0) -> Packer:
    snapshot = ClusterSnapshot(cluster, Config())
    return new_packer(snapshot, headroom_pods(snapshot, headroom))


def sizes(many: int, least: int) -> list[Pod]:
    return [pod(f"w{number:04}", None, least + number, 1) for number in range(many)]


def test_lanes_are_compared_one_by_one() -> None:
    chance = random.Random(1)
    for _ in range(1000):
        one, other = some(chance), some(chance)
        most, least = map(max, one, other), map(min, one, other)
        assert lane_maximum(vector(one), vector(other), GUARD) == vector([*most])
        assert lane_minimum(vector(one), vector(other), GUARD) == vector([*least])
        guarded = lane_maximum(GUARD | vector(one), GUARD | vector(other), GUARD)
        assert guarded == GUARD | lane_maximum(vector(one), vector(other), GUARD)


def count_reads(space: FreeSpace) -> Read:
    """Return the vectors of *space*, which count from now on how often they are read."""
    space.free = space._free = found = Read(space.free)
    return found


def fits(free: int, request: int) -> bool:
    return (free - request) & GUARD == GUARD


def test_free_space_finds_same_nodes_as_plain_search() -> None:
    """Also while other pods take room and give it back."""
    chance = random.Random(2)
    for _ in range(20):
        space = FreeSpace([GUARD | vector(some(chance)) for _ in range(3 * BLOCK_NODES)], GUARD)
        plain, taken = [*space.free], []
        for _ in range(200):
            request, block = vector(some(chance)), chance.randrange(3) * BLOCK_NODES
            nodes = sorted(chance.sample(range(block, block + BLOCK_NODES), 40))
            found = [node for node in nodes if fits(plain[node], request)]
            assert space.with_room_in_block(nodes, request) == found
            if found:
                plain[found[0]] -= request
                space.take({found[0]: plain[found[0]]})
                taken.append((found[0], request))
            if taken and chance.random() < 0.3:
                node, request = taken.pop(chance.randrange(len(taken)))
                plain[node] += request
                space.give_back(node, request)
            assert space.free == plain


def test_full_block_is_skipped_eventually() -> None:
    space = FreeSpace([GUARD | vector([5, 5, 5])] * BLOCK_NODES, GUARD)
    space.take(dict.fromkeys(range(BLOCK_NODES), GUARD))
    free, before = count_reads(space), -1
    while before < free.reads:
        before = free.reads
        assert not space.with_room_in_block(range(BLOCK_NODES), vector([1, 1, 1]))


def nodes_found(search: NodeSearch) -> list[int]:
    """Return the nodes with room for the group; they do not depend on how they are searched."""
    while len(search.feasible) < search.extend():
        pass
    found = search.feasible[search.skip_full() :]
    assert [*search.with_room(search.open_nodes())] == found
    assert search.has_room_on(len(found))
    assert not search.has_room_on(len(found) + 1)
    return found


def test_nodes_are_found_again_when_room_is_given_back() -> None:
    request, nodes = vector([3, 3, 3]), [*range(2 * BLOCK_NODES)]
    space = FreeSpace([GUARD | vector([5, 5, 5]) for _ in nodes], GUARD)
    group = EquivalenceGroup(request, NodesForConstraints(nodes, nodes))
    searches = Searches(space)
    assert nodes_found(searches[group]) == nodes
    fork = space.fork()
    space.take({node: space.free[node] - request for node in nodes})
    assert searches.valid_in(space) is searches
    assert nodes_found(searches[group]) == []
    assert nodes_found(searches.valid_in(fork)[group]) == nodes
    space.give_back(70, request)
    searches = searches.valid_in(space)
    assert nodes_found(searches[group]) == [70]
    may_fit_beside = searches[group].may_fit_beside
    assert (may_fit_beside(70), may_fit_beside(1)) == (False, True)


def test_pod_is_tried_again_after_other_pod_uses_volume_that_was_attached_already() -> None:
    """The attached volume of nobody counts beside a new use of it: 1 + 2 at first, then 1 + 1."""
    shared, own = Disk("ebs", "shared"), Disk("ebs", "own")
    pods = [
        pod("large", None, 20, 20, pod_constraints=PodConstraints(disks=(own, shared))),
        pod("small", None, 10, 10, pod_constraints=PodConstraints(disks=(shared,))),
    ]
    cluster = replace(
        Cluster.of([node("n")], pods),
        attach_limits={"n": {"ebs": 2}},
        attachments={"n": frozenset({shared})},
    )
    packer = packer_of(cluster)
    found, _ = packer.place(packer.pending)
    assert [packer.pods[number].name for number, _ in found.assignments] == ["small", "large"]


@pytest.mark.parametrize("seed", range(100))
def test_place_equals_try_place_and_commit(seed: int) -> None:
    cluster = mixed.cluster(random.Random(seed))
    one, other = packer_of(cluster, 2), packer_of(cluster, 2)
    found, received = one.place(one.pending)
    tried = other.try_place(other.pending)
    assert received == other.load_added(tried)
    other.commit(tried)
    assert (found.assignments, found.unassigned) == (tried.assignments, tried.unassigned)
    assert (one.space.free, one.on) == (other.space.free, other.on)
    again, over = (packer.try_place(packer.on[0], 0) for packer in (one, other))
    assert again == over


def attempts(packer: Packer) -> list[Attempt]:
    """Return an attempt for every node, as if only that node were removed."""
    return [packer.try_place(packer.on[node], node) for node in range(len(packer.nodes))]


@pytest.mark.parametrize("seed", range(100))
def test_removed_placeholders_leave_no_trace(seed: int) -> None:
    cluster = mixed.cluster(random.Random(seed))
    one, other = packer_of(cluster, 2), packer_of(cluster, 2)
    for packer in (one, other):
        packer.place(sorted({*packer.pending} - packer.placeholders))
    without = attempts(other)
    one.place(sorted(one.placeholders))
    beside = attempts(one)
    back = one.remove_placeholders(sorted(one.placeholder_nodes))
    assert not one.placeholder_nodes
    assert (one.space.free, one.on) == (other.space.free, other.on)
    assert attempts(one) == without
    one.commit(back)
    assert attempts(one) == beside


@pytest.mark.law
def test_all_pods_are_placed_when_they_surely_fit(seeds: range) -> None:
    sure = 0
    for seed in seeds:
        chance = random.Random(seed)
        packer = packer_of(mixed.cluster(chance, social=chance.random() < 0.5), headroom=1)
        packer.place(packer.pending)
        for leaving in range(len(packer.nodes)):
            attempt = packer.try_place(packer.on[leaving], leaving)
            if packer.surely_fit(packer.on[leaving]):
                sure += bool(packer.on[leaving])
                assert not attempt.unassigned, seed
            if not attempt.unassigned and chance.random() < 0.3:
                packer.commit(attempt, leaving)
    assert sure > 0, "no node with pods was sure"


def test_bits_round_trip_places_of_nodes() -> None:
    chance = random.Random(3)
    for size in (0, 1, 8, 65, 1000):
        places = sorted(chance.sample(range(size), size // 2))
        assert [*set_bits(bits_of(size, places))] == places
        assert bits_of(size, places) == sum(1 << place for place in places)


@pytest.mark.parametrize("least", [3000, 100], ids=["none fits", "all fit"])
def test_pending_pods_of_many_sizes_do_not_read_every_node(least: int) -> None:
    """Full blocks are skipped as a whole; only blocks with room are searched."""
    many, nodes = 512, 4 * BLOCK_NODES
    running = [pod(f"p{number}", f"n{number:03}", 2000, 1) for number in range(nodes)]
    named = [node(f"n{number:03}") for number in range(nodes)]
    packer = packer_of(Cluster.of(named, [*running, *sizes(many, least)]))
    free = count_reads(packer.space)
    found, _ = packer.place(packer.pending)
    assert len(found.assignments) == (0 if least == 3000 else many)
    assert free.reads < many * nodes / 2


OWN = PodSelector(("d",), (Requirement("app", "In", ("own",)),))
IN_ZONE = PodAffinityTerm(OWN, "zone")
APART = PodConstraints(apart=(PodAffinityTerm(OWN, HOST_LABEL),))
TOGETHER = PodConstraints(near=(IN_ZONE,))
SPREAD = PodConstraints(spread=(SpreadConstraint(OWN, "zone", 1),))


@pytest.mark.parametrize(
    "pod_constraints", [APART, TOGETHER, SPREAD], ids=["apart", "near", "spread"]
)
@pytest.mark.parametrize("others", [True, False], ids=["beside others", "alone"])
def test_rejections_by_inter_pod_rules_do_not_read_every_node(
    pod_constraints: PodConstraints, *, others: bool
) -> None:
    """Nodes that inter-pod rules reject are skipped at once, for thousands of sizes too."""
    many, size = 512, 4 * BLOCK_NODES
    nodes = [
        node(name, labels={HOST_LABEL: name, "zone": "ab"[number // BLOCK_NODES % 2]})
        for number, name in enumerate(f"n{number:03}" for number in range(size))
    ]
    running = [
        pod(
            f"p{number}",
            f"n{number:03}",
            2000,
            1,
            pod_constraints=pod_constraints,
            labels={"app": "own"},
        )
        for number in range(0, size, 2 if pod_constraints is SPREAD else 1)
        if others
    ]
    waiting = [
        replace(one, pod_constraints=pod_constraints, labels={"app": "own"})
        for one in sizes(many, least=2001)
    ]
    packer = packer_of(Cluster.of(nodes, [*running, *waiting]))
    free = count_reads(packer.space)
    found, _ = packer.place(packer.pending)
    assert found.unassigned
    assert not found.refused_by, "the reason is not computed"
    assert free.reads < many * size / 8


def test_pods_with_many_sets_of_terms_do_not_read_every_node() -> None:
    """There are as many groups as pods, so no answer can be reused."""
    chance, size = random.Random(4), 4 * BLOCK_NODES
    terms = [
        PodAffinityTerm(
            PodSelector(("d",), (Requirement(f"l{number}", "In", ("x",)),)), HOST_LABEL
        )
        for number in range(16)
    ]
    nodes = [node(f"n{number:03}", labels={HOST_LABEL: f"n{number:03}"}) for number in range(size)]
    waiting = [
        pod(
            f"w{number}",
            None,
            10,
            1,
            pod_constraints=PodConstraints(
                apart=tuple(terms[one] for one in sorted(chance.sample(range(16), 8)))
            ),
            labels={f"l{one}": "x" for one in chance.sample(range(16), 8)},
        )
        for number in range(512)
    ]
    packer = packer_of(Cluster.of(nodes, waiting))
    free = count_reads(packer.space)
    found, _ = packer.place(packer.pending)
    assert len(found.unassigned) > 100
    assert free.reads < 512 * size / 8
