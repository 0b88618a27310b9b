"""The steady clock, while the wall clock is set back and forth."""

import pytest

from runtime.clock import RATE, STEP_SECONDS_MAX, SteadyClock
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
    ("jump", "immediate_offset", "offset_after_hour"),
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
def test_steady_clock_follows_jump_within_bounds(
    jump: int, immediate_offset: int, offset_after_hour: float
) -> None:
    machine = Machine()
    steady = SteadyClock(machine)
    machine.wall += jump
    assert steady.unix_seconds() == START + immediate_offset
    found = read_each_second(steady, machine, HOUR)
    assert found[-1] == pytest.approx(START + HOUR + offset_after_hour, abs=1)


def test_steady_clock_makes_up_one_hour_in_twelve_and_never_runs_backward() -> None:
    machine = Machine()
    steady = SteadyClock(machine)
    machine.wall -= HOUR
    steady.unix_seconds()
    found = read_each_second(steady, machine, 11 * HOUR)
    assert found == sorted(found)
    assert steady.offset_seconds() < -60
    read_each_second(steady, machine, HOUR + 60)
    assert abs(steady.offset_seconds()) <= 1


def test_steady_clock_limits_sum_of_small_steps() -> None:
    machine = Machine()
    steady = SteadyClock(machine)
    for _ in range(1000):
        machine.wall += 9
        steady.unix_seconds()
        machine.goes_on(1)
    gained = steady.unix_seconds() - START - 1000
    assert gained == pytest.approx(STEP_SECONDS_MAX + 1000 * RATE, abs=2)


@pytest.mark.parametrize("drift", [0.0005, -0.0005])
def test_steady_clock_follows_slewed_wall_clock(drift: float) -> None:
    machine = Machine()
    steady = SteadyClock(machine)
    for _ in range(DAY):
        machine.goes_on(1)
        machine.wall += drift
        steady.unix_seconds()
    assert abs(steady.offset_seconds()) <= 1


def test_jump_and_its_end_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    machine = Machine()
    steady = SteadyClock(machine)
    machine.wall += 100
    read_each_second(steady, machine, 2000)
    assert [record.getMessage()[:22] for record in caplog.records] == [
        "the wall clock jumped;",
        "the program has caught",
    ]
