"""The lower bound of the cost, compared with examples and with all possible clusters."""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.model.constraints import NodeConstraints, Toleration
from core.model.node import Effect, Node, Taint
from core.model.pod import Pod
from core.model.resources import Resources
from sim import scenario, waves
from sim.bound import Demand, Division, PricedGroup, lp_lower_bound
from sim.cluster import DAEMON_REQUESTS
from sim.costs import in_cores
from sim.simulated_load import HOUR_MS, PODS_PER_NODE, amount
from sim.simulator import BOUND_MS
from tests.support.examples import examples

GROUP = Taint("group", "x", Effect.NO_SCHEDULE)
TOLERANT = NodeConstraints(tolerations=(Toleration("group", "Equal", "x"),))


def node(cores: int, gib: int, gpus: int = 0, *taints: Taint) -> Node:
    """Return a node with this free capacity beside its DaemonSet pods."""
    room = amount(1000 * cores, 1024 * gib, 1000 * gpus, PODS_PER_NODE)
    return Node(name="", allocatable=room + DAEMON_REQUESTS, taints=taints)


def pods(*asked: tuple[Resources, NodeConstraints], many: int = 1) -> list[Pod]:
    return [
        Pod(namespace="d", name=f"p{at}-{n}", requests=requests, node_constraints=node_constraints)
        for at, (requests, node_constraints) in enumerate(asked)
        for n in range(many)
    ]


def plain(
    cores: Fraction | int, gib: Fraction | int, gpu_millis: int = 0
) -> tuple[Resources, NodeConstraints]:
    return amount(int(1000 * cores), int(1024 * gib), gpu_millis), NodeConstraints()


class TestExamples:
    def test_bound_counts_fractional_nodes_of_scarcer_resource(self) -> None:
        least = lp_lower_bound([node(4, 8)], lambda _: Fraction(6))
        assert least(pods(plain(1, 1), many=10)) == pytest.approx(Fraction(15))
        assert least(pods(plain(1, 4), many=10)) == pytest.approx(Fraction(30))
        assert least([]) == 0

    def test_bound_uses_cheapest_group_that_admits_pod(self) -> None:
        groups = [node(4, 8, 0, GROUP), node(4, 8), node(4, 8, 1)]
        prices = dict(zip(groups, map(Fraction, (1, 2, 9)), strict=True))
        least = lp_lower_bound(groups, prices.__getitem__)
        assert least(pods(plain(4, 8))) == pytest.approx(2)
        assert least(pods((plain(4, 8)[0], TOLERANT))) == pytest.approx(1)
        assert least(pods(plain(1, 1, 500))) == pytest.approx(4.5)

    def test_bound_combines_complementary_pods_on_same_nodes(self) -> None:
        """Both kinds of pods share nodes; a price by the scarcer resource would be too high."""
        least = lp_lower_bound([node(4, 4)], lambda _: Fraction(1))
        asked = pods(plain(3, 1), plain(1, 3), many=20)
        assert least(asked) == pytest.approx(20)
        assert least(asked[:20]) == pytest.approx(15)

    def test_bound_ignores_groups_too_small_for_pod(self) -> None:
        groups = [node(2, 4), node(8, 16)]
        prices = dict(zip(groups, map(Fraction, (1, 40)), strict=True))
        least = lp_lower_bound(groups, prices.__getitem__)
        assert least(pods(plain(2, 1))) == pytest.approx(1)
        assert least(pods(plain(3, 1))) == pytest.approx(15)
        assert least(pods(plain(9, 1))) == 0, "it cannot run here, so it does not"

    def test_bound_is_correct_for_tiny_and_zero_prices(self) -> None:
        tiny = Fraction(1, 10**12)
        least = lp_lower_bound([node(4, 8)], lambda _: tiny)
        assert least(pods(plain(4, 8))) / tiny == pytest.approx(1)
        assert lp_lower_bound([node(4, 8)], lambda _: Fraction())(pods(plain(4, 8))) == 0
        assert lp_lower_bound([], in_cores)(pods(plain(4, 8))) == 0

    def test_bound_subtracts_daemonset_requests(self) -> None:
        whole = amount(4200, 8192, 0, 110)
        least = lp_lower_bound([Node(name="", allocatable=whole)], lambda _: Fraction(1))
        assert DAEMON_REQUESTS.cpu_millis == 200
        assert least(pods(plain(1, 0), many=4)) == pytest.approx(1)


# Compared with every way to place a few pods on whole nodes


def cheapest(groups: Sequence[tuple[Node, int]], asked: Sequence[Pod]) -> int | None:
    """Return the lowest cost over all placements on new nodes, or None if a pod fits nowhere."""
    best: list[int] = []
    _placed(groups, list(asked), [], best)
    return min(best, default=None)


def _placed(
    groups: Sequence[tuple[Node, int]],
    left: list[Pod],
    there: list[tuple[Node, int, Resources]],
    best: list[int],
) -> None:
    if not left:
        best.append(sum(price for _, price, _ in there))
        return
    pod, *others = left
    new = [(one, price, one.allocatable - DAEMON_REQUESTS) for one, price in groups]
    for at, (one, price, room) in enumerate([*there, *new]):
        tolerated = not one.taints or pod.node_constraints == TOLERANT
        if tolerated and pod.requests.fits_in(room):
            with_it = (one, price, room - pod.requests)
            if at < len(there):
                _placed(groups, others, [*there[:at], with_it, *there[at + 1 :]], best)
            else:
                _placed(groups, others, [*there, with_it], best)


NODES = st.builds(
    lambda cores, gib, gpus, taints: node(cores, gib, gpus, *taints),
    st.integers(1, 6), st.integers(1, 12), st.integers(0, 2), st.sampled_from([(), (GROUP,)]),
)  # fmt: skip
PODS = st.builds(
    lambda cpu, mib, gpu, node_constraints: (amount(cpu, mib, gpu), node_constraints),
    st.integers(0, 4000), st.integers(0, 8192), st.sampled_from([0, 0, 500, 1000]),
    st.sampled_from([NodeConstraints(), TOLERANT]),
)  # fmt: skip


@settings(max_examples=examples(150))
@given(
    st.lists(st.tuples(NODES, st.integers(0, 20)), min_size=1, max_size=3),
    st.lists(PODS, min_size=1, max_size=5),
)
def test_bound_is_at_most_cost_of_best_cluster_of_whole_nodes(
    groups: list[tuple[Node, int]], asked: list[tuple[Resources, NodeConstraints]]
) -> None:
    named = [
        (replace(one, labels={"g": str(at)}), price) for at, (one, price) in enumerate(groups)
    ]
    runs = [one for one in pods(*asked) if cheapest(named, [one]) is not None]
    prices = {one.labels["g"]: Fraction(price) for one, price in named}
    least = lp_lower_bound([one for one, _ in named], lambda one: prices[one.labels["g"]])
    whole = cheapest(named, runs)
    assert whole is not None
    assert 0 <= least(runs) <= whole
    assert least(runs) == least(runs[::-1])


@settings(max_examples=examples(60))
@given(
    st.lists(st.tuples(NODES, st.integers(0, 20)), min_size=1, max_size=2),
    st.lists(PODS, min_size=1, max_size=4),
    st.lists(st.fractions(0, 10, max_denominator=9), min_size=5, max_size=5),
)
def test_bound_remains_valid_when_solver_errs(
    groups: list[tuple[Node, int]],
    asked: list[tuple[Resources, NodeConstraints]],
    said: list[Fraction],
) -> None:
    def divide(_: Demand, among: Sequence[PricedGroup]) -> Division:
        places = [(at, name) for at, one in enumerate(among) for name in one.usable]
        return {place: said[number % 5] for number, place in enumerate(places)}

    named = [
        (replace(one, labels={"g": f"{at}"}), price) for at, (one, price) in enumerate(groups)
    ]
    runs = [one for one in pods(*asked) if cheapest(named, [one]) is not None]
    prices = {one.labels["g"]: Fraction(price) for one, price in named}
    templates = [one for one, _ in named]
    found = lp_lower_bound(templates, lambda one: prices[one.labels["g"]], divide=divide)(runs)
    whole = cheapest(named, runs)
    assert whole is not None
    assert 0 <= found <= whole


# In a simulated run


def test_simulated_cost_is_at_least_bound_at_every_sample() -> None:
    load = waves.mixed(1, 1)
    load = replace(
        load,
        duration_ms=3 * HOUR_MS,
        arrivals=tuple(a for a in load.arrivals if a.at_ms < 3 * HOUR_MS),
        deployments=load.deployments[:5],
    )
    found = scenario.run(scenario.MOST_ALLOCATED, load, seed=1, wire=False)
    told = [one for one in found.samples if one.least is not None]
    assert [one.at_ms for one in told] == list(range(BOUND_MS, 3 * HOUR_MS + 1, BOUND_MS))
    assert len(found.samples) == 3 * len(told)
    assert all(0 < (one.least or 0) <= one.cost for one in told)
