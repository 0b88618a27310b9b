"""The table of reaches: names are not broken at any width, the tightest reaches are shown."""

from fractions import Fraction

import pytest

from cli.formats.text import reaches
from cli.terminal import render
from core.engine.plan import REACHES_SHOWN, ReachSums, tightest
from core.placement.usable_capacity import Amount, Share, Totals

pytestmark = pytest.mark.mutate

GB = 10**9
LONG = "nvidia.com/gpu.present=true, tolerates nvidia.com/gpu=pre... #2"


def totals(nodes: int, cpu: int, of_cpu: int, memory: int = 1, of_memory: int = 8) -> Totals:
    usable = Amount(of_cpu, of_memory * GB)
    return Totals(nodes=nodes, capacity=usable, requests=Amount(cpu, memory * GB), usable=usable)


def reach(name: str, before: Totals, after: Totals | None = None, limit: str = "4/5") -> ReachSums:
    share = Fraction(limit)
    return ReachSums(
        name=name,
        key=name,
        usability=None,
        enter=Share(share, Fraction(4, 5)),
        unmark=Share(share, share),
        before=before,
        after=after or before,
    )


TWO = [
    reach("general", totals(6, 6000, 12_000), totals(4, 6000, 8000)),
    reach(LONG, totals(12, 123, 24_000, 3, 9), limit="3/4"),
]


def test_reach_is_one_row_when_table_is_wide() -> None:
    assert list(reaches.table(TWO).lines(200)) == [
        f"{'reach':<63}   nodes         cpu  memory  threshold",
        f"{'general':<63}  6 -> 4  50% -> 75%   12.5%        80%",
        f"{LONG}      12        0.6%   33.4%   75%, 80%",
    ]


def test_reach_name_is_not_broken_when_table_is_narrow() -> None:
    found = list(reaches.table(TWO).lines(80))
    assert found == [
        "reach   nodes         cpu  memory  threshold",
        "general",
        "       6 -> 4  50% -> 75%   12.5%        80%",
        LONG,
        "           12        0.6%   33.4%   75%, 80%",
    ]
    assert max(map(len, found)) <= 80


def test_reach_without_capacity_shows_dash() -> None:
    empty = reach("gone", totals(0, 0, 0, 0, 0))
    assert list(reaches.table([empty]).lines(80))[1].split() == ["gone", "0", "-", "-", "80%"]


@pytest.mark.parametrize("count", [REACHES_SHOWN, REACHES_SHOWN + 3])
def test_tightest_reaches_are_shown_in_order_of_plan(count: int) -> None:
    loose = [reach(f"r{n:02}", totals(2, 100 * n, 8000, 0)) for n in range(count)]
    shown = tightest(loose)
    assert shown == loose[-REACHES_SHOWN:]
    told = render(lambda out: reaches.write(loose, out)).splitlines()
    assert len(told) == 1 + REACHES_SHOWN + (count > REACHES_SHOWN)
    assert (told[-1] == "and 3 more reaches; -o json lists all of them") == (count > REACHES_SHOWN)


def test_reach_with_requests_and_no_capacity_is_tightest() -> None:
    closed = reach("closed", totals(0, 500, 0))
    full = reach("full", totals(2, 8000, 8000))
    assert tightest([full, closed], 1) == [closed]


def test_tightness_is_distance_to_threshold_and_reach_without_requests_is_loose() -> None:
    """A reach without requests needs no capacity."""
    loose = reach("loose", totals(2, 4000, 8000))
    tight = reach("tight", totals(2, 3000, 4000))
    over = reach("over", totals(2, 3600, 4000))
    assert tightest([loose, tight, over], 2) == [tight, over]
    assert tightest([over, reach("idle", totals(0, 0, 0, 0, 0))], 1) == [over]
    closed = reach("closed", totals(0, 1, 0, 0, 0))
    assert tightest([over, closed], 1) == [closed]
