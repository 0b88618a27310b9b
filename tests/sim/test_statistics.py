"""The demo's load: its tables match the trace, and drawn loads match the tables."""

import csv
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

import pytest

from sim import simulated_load, trace
from sim.simulated_load import DAY_MS, HOUR_MS, PODS_AT_ONCE, SimulatedLoad
from sim.statistics import LIFE_SECONDS, NODE_SHAPES, POD_SHAPES, WAVE_PERCENT

TRACES = Path(__file__).parents[3] / "shared" / "traces"
needs_traces = pytest.mark.skipif(not TRACES.is_dir(), reason="no openb trace beside the tree")
DAYS = 20
Row = dict[str, str]
Table = Sequence[tuple[int, int, int, int]]


def rows(name: str) -> list[Row]:
    with (TRACES / name).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def scaled(counts: Sequence[int], total: int) -> list[int]:
    """Scale counts to add up to *total*, by largest remainders."""
    exact = [count * total / sum(counts) for count in counts]
    whole = [int(one) for one in exact]
    by_rest = sorted(range(len(exact)), key=lambda place: whole[place] - exact[place])
    for place in by_rest[: total - sum(whole)]:
        whole[place] += 1
    return whole


def assert_commonest(table: Table, counts: Counter[tuple[int, int, int]], total: int) -> None:
    commonest = counts.most_common(len(table))
    assert sorted(row[:3] for row in table) == sorted(shape for shape, _ in commonest)
    expected = scaled([counts[cpu, memory, gpu] for cpu, memory, gpu, _ in table], total)
    assert [count for *_, count in table] == expected


@needs_traces
class TestTrace:
    def test_node_shapes_are_most_common_of_trace(self) -> None:
        counts = Counter(
            (int(row["cpu_milli"]), int(row["memory_mib"]), 1000 * int(row["gpu"]))
            for row in rows(trace.NODES_FILE)
        )
        assert_commonest(NODE_SHAPES, counts, 64)

    def test_pod_shapes_are_most_common_of_trace(self) -> None:
        counts = Counter(
            (
                int(row["cpu_milli"]),
                int(row["memory_mib"]),
                int(row["num_gpu"]) * int(row["gpu_milli"]),
            )
            for row in rows(trace.PODS_FILE)
        )
        assert_commonest(POD_SHAPES, counts, 1000)

    def test_life_seconds_are_quantiles_of_trace(self) -> None:
        lives = sorted(
            int(row["deletion_time"]) - int(row["creation_time"]) for row in rows(trace.PODS_FILE)
        )
        percents = (*range(0, 100, 5), 99)
        assert [lives[len(lives) * percent // 100] for percent in percents[1:]] == list(
            LIFE_SECONDS[1:]
        )
        assert lives[0] == 0

    def test_wave_matches_arrivals_of_trace(self) -> None:
        found = rows(trace.PODS_FILE)
        hours = Counter(int(row["creation_time"]) // 3600 % 24 for row in found)
        assert [round(2400 * hours[hour] / len(found)) for hour in range(24)] == list(WAVE_PERCENT)


@pytest.fixture(scope="module")
def load() -> SimulatedLoad:
    return simulated_load.embedded(seed=1, days=DAYS)


class TestEmbeddedWorkload:
    def test_workload_is_reproducible_and_ordered(self) -> None:
        first = simulated_load.embedded(seed=1, days=2)
        assert first == simulated_load.embedded(seed=1, days=2)
        assert first != simulated_load.embedded(seed=2, days=2)
        assert len(first.nodes) == 64
        assert [a.at_ms for a in first.arrivals] == sorted(a.at_ms for a in first.arrivals)
        assert all(a.life_ms > 0 for a in first.arrivals)
        assert len({a.name for a in first.arrivals}) == len(first.arrivals)

    def test_pod_lifetimes_have_mean_of_table(self, load: SimulatedLoad) -> None:
        lives = [a.life_ms for a in load.arrivals if a.at_ms > 0]
        assert sum(lives) / len(lives) == pytest.approx(simulated_load.mean_life_ms(), rel=0.03)

    def test_average_number_of_running_pods_matches_setting(self, load: SimulatedLoad) -> None:
        came = [a for a in load.arrivals if a.at_ms > 0]
        running = sum(a.life_ms for a in came) / (DAYS * DAY_MS)
        assert running == pytest.approx(PODS_AT_ONCE, rel=0.05)

    def test_arrivals_follow_wave(self, load: SimulatedLoad) -> None:
        hours = Counter(a.at_ms // HOUR_MS % 24 for a in load.arrivals if a.at_ms > 0)
        mean = hours.total() / 24
        wave = [percent * 24 / sum(WAVE_PERCENT) for percent in WAVE_PERCENT]
        assert [hours[hour] / mean for hour in range(24)] == pytest.approx(wave, rel=0.1)

    def test_start_has_as_many_pods_as_any_midnight(self, load: SimulatedLoad) -> None:
        at_start = [
            sum(a.at_ms == 0 for a in simulated_load.embedded(seed, 1).arrivals)
            for seed in range(20)
        ]
        changes = sorted(
            change for a in load.arrivals for change in ((a.at_ms, 1), (a.at_ms + a.life_ms, -1))
        )
        levels = list(accumulate(change for _, change in changes))
        at_midnights = [
            levels[sum(at < day * DAY_MS for at, _ in changes) - 1] for day in range(2, DAYS)
        ]
        assert sum(at_start) / len(at_start) == pytest.approx(
            sum(at_midnights) / len(at_midnights), rel=0.1
        )
