"""What is said of when nodes will be empty, judged by what came."""

from fractions import Fraction

import pytest

from core.model.pod import Pod
from core.survival.left import Left
from sim.autoscaler import ScaleDown
from sim.foretold import NODES_MAX, Foretold, Judged, Onlooker, Sayings, occupants
from sim.replay import TOLD
from sim.report import CALIBRATION, ROWS
from sim.workload import DAY_MS, HOUR_MS, Arrival, Workload, amount, embedded
from sim.world import World

HOUR = 3600


def job(name: str, created: int, node: str | None = "n") -> Pod:
    return Pod(
        namespace="work",
        name=name,
        node=node,
        owner_kind="Job",
        owner_name="x",
        created_seconds=created,
    )


A, B = job("a", 0), job("b", 0)
SAID = Left(10, 20, 30)


@pytest.mark.parametrize(
    ("ends", "left", "until", "found"),
    [
        ({"a": 105, "b": 110}, SAID, 200, (1, 1, 1)),
        ({"a": 105, "b": 111}, SAID, 200, (0, 1, 1)),
        ({"a": 105, "b": 125}, SAID, 200, (0, 0, 1)),
        ({"a": 105, "b": 131}, SAID, 200, (0, 0, 0)),
        ({"a": 105}, SAID, 200, (0, 0, 0)),
        ({"a": 105, "b": 110}, SAID, 129, (1, 1, None)),
        ({"a": 105, "b": 110}, SAID, 130, (1, 1, 1)),
        ({"a": 105, "b": 110}, Left(10, None, None), 200, (1, None, None)),
        ({}, SAID, 105, (None, None, None)),
    ],
    ids=range(9),
)
def test_a_time_is_judged_that_lies_within_the_run(
    ends: dict[str, int], left: Left, until: int, found: tuple[int | None, ...]
) -> None:
    sayings = Sayings()
    sayings.say(100, [A, B], left)
    for pod in (A, B):
        if pod.name in ends:
            sayings.ended(pod, ends[pod.name])
    sayings.ended(job("other", 0), 101)
    sayings.ended(job("a", 120), 199)  # it was evicted, and another one has its name
    came = Foretold()
    sayings.judge(until, came)
    assert [came.early, came.expected, came.late] == [
        Judged() if one is None else Judged(1, one) for one in found
    ]


def test_a_look_says_what_finished_pods_tell_and_of_no_more_nodes_than_it_may() -> None:
    onlooker = Onlooker()
    for number in range(20):
        onlooker.finished(job(f"e{number}", 60 * number), (60 * number + HOUR) * 1000)
    begin = 2 * HOUR - 60
    pods = [job(f"p{number}", begin, f"n{number:03}") for number in range(3 * NODES_MAX)]
    everything = {one.key: one for one in pods}
    onlooker.look(everything, 2 * HOUR_MS)
    for one in pods:
        onlooker.gone(one, 2 * HOUR_MS)
    came = onlooker.judged(DAY_MS)
    assert came.early.nodes == came.early.empty == NODES_MAX


def test_nothing_is_said_where_nothing_has_finished() -> None:
    onlooker = Onlooker()
    onlooker.look({A.key: A}, HOUR_MS)
    assert onlooker.judged(DAY_MS) == Foretold()


def test_who_keeps_no_node_from_being_empty_is_no_occupant() -> None:
    assert occupants([A, job("waits", 0, None)]) == {"n": [A]}


def test_every_run_tells_how_often_it_came_true() -> None:
    result = World(embedded(1, 1), ScaleDown.NEVER, None, seed=1).run()
    shares, nodes = CALIBRATION[0::2], CALIBRATION[1::2]
    assert (*ROWS, *CALIBRATION) == TOLD
    assert len({row.label for row in TOLD}) == len(TOLD)
    for share, of in zip(shares, nodes, strict=True):
        assert (of.value(result) or 0) > 0
        assert 0 <= (share.value(result) or 0) <= 100
    said = [of.value(result) or Fraction() for of in nodes]
    assert said == sorted(said, reverse=True), "later times lie more often beyond the end"


def test_where_nothing_could_be_judged_there_is_no_share() -> None:
    load = Workload("made", (amount(4000, 100, 0, 110),), (), HOUR_MS, None)
    result = World(load, ScaleDown.NEVER, None, seed=1).run()
    assert [row.cell(result) for row in CALIBRATION] == ["-", "0"] * 3


def test_who_was_there_at_the_beginning_is_as_old_as_it_is() -> None:
    arrivals = (
        Arrival(0, "old", amount(100, 1, 0), DAY_MS, age_ms=5 * HOUR_MS),
        Arrival(HOUR_MS, "new", amount(100, 1, 0), DAY_MS),
    )
    load = Workload("made", (amount(4000, 100, 0, 110),), arrivals, 2 * HOUR_MS, None)
    world = World(load, ScaleDown.NEVER, None, seed=1)
    world.run()
    found = {one.name: one.created_seconds for one in world.state.pods.values() if not one.daemon}
    assert found == {"old": -5 * HOUR, "new": HOUR}


def test_the_drawn_ones_lives_are_whole() -> None:
    """Those that are there at the beginning began as long before as they had lived."""
    load = embedded(1, 1)
    first = [one for one in load.arrivals if not one.at_ms]
    assert len(first) > 50
    assert all(one.age_ms > 0 for one in first)
    assert not any(one.age_ms for one in load.arrivals if one.at_ms)
    lives = sorted(one.age_ms + one.life_ms for one in first)
    assert lives[len(lives) // 2] > HOUR_MS, "who lives long is more often there"
