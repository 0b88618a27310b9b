"""The steady clock under a wall clock that is set back and forth."""

import pytest

from core.edge.clock import RATE, STEP_SECONDS_MAX, SteadyClock
from tests.support.clock import START, Machine

HOUR = 3600
DAY = 24 * HOUR
YEAR = 366 * DAY


def read_each_second(steady: SteadyClock, machine: Machine, seconds: int) -> list[int]:
    found = []
    for _ in range(seconds):
        machine.goes_on(1)
        found.append(steady.unix_seconds())
    return found


@pytest.mark.parametrize(
    ("jump", "at_once", "an_hour_later"),
    [
        (0, 0, 0),
        (3, 3, 3),
        (-3, -3, -3),
        (10, 10, 10),
        (-10, -10, -10),
        (11, 10, 11),
        (HOUR, 10, 10 + HOUR * RATE),
        (-HOUR, -10, -10 - HOUR * RATE),
        (30 * DAY, 10, 10 + HOUR * RATE),
        (-30 * DAY, -10, -10 - HOUR * RATE),
        (YEAR, YEAR, YEAR),
        (-YEAR, -YEAR, -YEAR),
    ],
)
def test_how_much_of_a_jump_is_taken(jump: int, at_once: int, an_hour_later: float) -> None:
    machine = Machine()
    steady = SteadyClock(machine)
    machine.wall += jump
    assert steady.unix_seconds() == START + at_once
    found = read_each_second(steady, machine, HOUR)
    assert found[-1] == pytest.approx(START + HOUR + an_hour_later, abs=1)


def test_an_hour_is_made_up_for_in_about_twelve_and_time_never_stands_still() -> None:
    machine = Machine()
    steady = SteadyClock(machine)
    machine.wall -= HOUR
    steady.unix_seconds()
    found = read_each_second(steady, machine, 11 * HOUR)
    assert found == sorted(found)
    assert steady.offset_seconds() < -60
    read_each_second(steady, machine, HOUR + 60)
    assert abs(steady.offset_seconds()) <= 1


def test_many_small_steps_are_not_a_way_around() -> None:
    machine = Machine()
    steady = SteadyClock(machine)
    for _ in range(1000):
        machine.wall += 9
        steady.unix_seconds()
        machine.goes_on(1)
    gained = steady.unix_seconds() - START - 1000
    assert gained == pytest.approx(STEP_SECONDS_MAX + 1000 * RATE, abs=2)


@pytest.mark.parametrize("drift", [0.0005, -0.0005])
def test_a_wall_clock_that_is_slewed_is_followed(drift: float) -> None:
    machine = Machine()
    steady = SteadyClock(machine)
    for _ in range(DAY):
        machine.goes_on(1)
        machine.wall += drift
        steady.unix_seconds()
    assert abs(steady.offset_seconds()) <= 1


def test_a_jump_is_said_once_and_its_end_too(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    machine = Machine()
    steady = SteadyClock(machine)
    machine.wall += 100
    read_each_second(steady, machine, 2000)
    assert [record.getMessage()[:22] for record in caplog.records] == [
        "the wall clock jumped;",
        "reached the time of th",
    ]
