"""How a share above its limit is reported."""

from fractions import Fraction

import pytest

from core.placement.reach_utilization import excess
from core.placement.usable_capacity import Amount, Share


@pytest.mark.parametrize(
    ("used", "limit", "message"),
    [
        (80_000, "4/5", ""),
        (80_001, "4/5", "cpu at 80.1%, over 80%"),
        (60_000, "5001/10000", "cpu at 60%, over 50.01%"),
        (50_011, "5001/10000", "cpu at 50.02%, over 50.01%"),
        (33_334, "1/3", "cpu at 33.334%, over 33.33333333333333333333333333%"),
    ],
)
def test_share_and_limit_are_reported_with_decimals_of_limit(
    used: int, limit: str, message: str
) -> None:
    thresholds = Share(Fraction(limit), Fraction(1))
    assert excess(Amount(used, 1), Amount(100_000, 1), thresholds) == message
