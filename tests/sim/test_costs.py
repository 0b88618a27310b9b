"""Cost, lost work and pending time of simulated runs, compared with computed examples."""

from fractions import Fraction

import pytest

from core.config.document import parse
from core.model.errors import ConfigError
from core.model.node import Node
from sim import report, scenario
from sim.autoscaler import REACTION_MS, STARTUP_MS, ScaleDown
from sim.costs import check_prices, in_cores, price_of
from sim.simulated_load import HOUR_MS, Arrival, SimulatedLoad, amount
from sim.simulator import Result, Simulator
from tests.support.configurations import HEAD

SHAPE = amount(4000, 8192, 0, 110)
CHEAP, DEAR = amount(4000, 4096, 0, 110), amount(4000, 8192, 0, 110)


def test_default_price_is_11_cores_per_gpu_and_0_13_per_gib() -> None:
    whole = amount(96_000, 100 * 1024, 8000, 110)
    assert in_cores(Node(name="n", allocatable=whole)) == 96 + 88 + 13


def test_configured_prices_replace_default_price() -> None:
    found = parse({**HEAD, "prices": [{"nodeSelector": {"a": "b"}, "price": "0.25"}]}, "x")
    prices = price_of(found)
    assert prices(Node(name="n", labels={"a": "b"}, allocatable=SHAPE)) == Fraction(1, 4)
    assert prices(Node(name="n", allocatable=SHAPE)) == 0
    none = price_of(parse(HEAD, "x"))
    assert none is price_of(None) is in_cores


def test_prices_are_rejected_when_they_match_no_node() -> None:
    entry = {"nodeSelector": {"a": "b"}, "price": "0.25"}
    template = Node(name="", labels={"a": "b"}, allocatable=SHAPE)
    other = Node(name="", allocatable=SHAPE)
    config = parse({**HEAD, "prices": [entry]}, "x")
    check_prices(config, "x", [other, template])
    check_prices(parse(HEAD, "x"), "x", [other])
    free = parse({**HEAD, "prices": [{**entry, "price": "0"}]}, "x")
    for prices, nodes in ((config, [other]), (free, [template])):
        with pytest.raises(ConfigError, match="x: prices: every simulated node costs 0"):
            check_prices(prices, "x", nodes)


def test_cost_is_price_times_lifetime_of_node() -> None:
    load = SimulatedLoad("made", (CHEAP, CHEAP), (), 2 * HOUR_MS, 60_000)
    found = Simulator(load, ScaleDown.NEVER, None, 1).run()
    assert found.cost_ms == 2 * 2 * HOUR_MS * (4 + Fraction(52, 100))
    fewer = Simulator(load, ScaleDown.EMPTY, None, 1).run()
    share = Fraction(fewer.node_ms, found.node_ms)
    assert 0 < fewer.cost_ms == share * found.cost_ms < found.cost_ms


def test_configured_prices_apply_to_every_scenario() -> None:
    label = {"a": "b"}
    group = Node(name="", labels=label, allocatable=SHAPE)
    load = SimulatedLoad("made", (SHAPE,), (), HOUR_MS, 60_000, {SHAPE: group})
    config = parse({**HEAD, "prices": [{"nodeSelector": label, "price": "0.5"}]}, "x")
    for one in (scenario.SCENARIOS[0], scenario.WHOLE):
        found = scenario.run(one, load, seed=1, wire=False, given=config)
        assert found.cost_ms == found.node_ms * Fraction(1, 2) > 0


class Evicting(Simulator):
    """A simulator in which each pod is evicted once."""

    done: tuple[str, ...] = ()

    def _sample(self) -> None:
        super()._sample()
        for pod in list(self.state.pods.values()):
            if pod.node and not pod.daemon and pod.key not in self.done:
                self.done = (*self.done, pod.key)
                self.evict(pod)


def test_lost_work_is_work_done_by_evicted_job() -> None:
    arrivals = (Arrival(100_000, "p", amount(1500, 64, 0), HOUR_MS),)
    load = SimulatedLoad("made", (SHAPE,), arrivals, 2 * HOUR_MS, 60_000)
    world = Evicting(load, ScaleDown.NEVER, None, 1)
    found = world.run()
    assert found.evicted == 1
    assert found.lost_millis_ms == 1500 * 200_000  # evicted at the first sample, at 300 s
    assert [one for one in world.state.pods.values() if not one.daemon] == []


def test_longest_wait_is_of_one_pod_and_includes_pods_still_pending() -> None:
    arrivals = tuple(Arrival(0, f"p{n}", amount(3000, 64, 0), HOUR_MS) for n in range(3))
    load = SimulatedLoad("made", (SHAPE,), arrivals, HOUR_MS, 60_000)
    found = Simulator(load, ScaleDown.NEVER, None, 1).run()
    longest = REACTION_MS[1] + STARTUP_MS[1]
    assert found.longest_wait_ms <= longest
    assert found.longest_wait_ms < found.pending_ms <= 2 * found.longest_wait_ms
    never = Arrival(HOUR_MS // 2, "never", amount(9000, 64, 0), HOUR_MS)
    load = SimulatedLoad("made", (SHAPE,), (never,), HOUR_MS, 60_000)
    assert Simulator(load, ScaleDown.NEVER, None, 1).run().longest_wait_ms == HOUR_MS // 2


def test_report_contains_cost_lost_work_and_longest_wait() -> None:
    result = Result(
        cost_ms=Fraction(7 * HOUR_MS),
        lost_millis_ms=3000 * HOUR_MS,
        longest_wait_ms=9000,
        node_ms=3 * HOUR_MS,
    )
    rows: dict[str, str] = {row[0]: row[1] for row in report.table({"x": result})}
    assert rows["cost"] == "7"
    assert rows["core-hours of work lost"] == "3"
    assert rows["longest Pending time, s"] == "9"
    assert rows["node-hours"] == "3"
