"""Evaluating several usability settings at once gives the result of each setting."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from core.placement.usable_capacity import (
    BYTES_PER_GB,
    Amount,
    Usability,
    UsabilityEvaluator,
    usable_capacity,
)

AMOUNTS = st.builds(Amount, st.integers(0, 8000), st.integers(0, 8 * BYTES_PER_GB))
RATIOS = st.fractions(Fraction(1, 8), 8, max_denominator=16)
SETTINGS = st.none() | st.builds(
    Usability,
    min_cpu_millis=st.integers(0, 2000),
    min_memory_bytes=st.integers(0, BYTES_PER_GB),
    max_cpu_per_gb=RATIOS,
    max_gb_per_cpu=RATIOS,
)


@given(st.lists(SETTINGS, min_size=1, max_size=4), AMOUNTS, AMOUNTS)
def test_evaluator_returns_the_usable_capacity_with_each_setting(
    settings: list[Usability | None], whole: Amount, used: Amount
) -> None:
    found = UsabilityEvaluator(settings).usable(whole, used)
    assert found == tuple(usable_capacity(whole, used, one) for one in settings)
