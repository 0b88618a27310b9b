"""Hypothesis strategies for budgets and rate limits."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from hypothesis import strategies as st

from core.config.budgets import Budget, Budgets, Limit, Pool
from core.engine.leader_state import RateLimits
from core.engine.maintenance_gate import ALWAYS
from core.placement.usable_capacity import Amount
from tests.support.builders import MB, UNLIMITED

LIMITS = st.sampled_from((None, Limit(1), Limit(3), Limit(None, Fraction(1, 2))))
BUDGET = st.builds(
    Budget, max_marked=LIMITS, max_in_window=LIMITS, min_nodes=st.sampled_from((0, 0, 1, 3))
)
POOL_A = Pool(name="a", node_selector=(("zone", "a"),), budget=Budget(min_nodes=1))
POOL_B = Pool(name="b", node_selector=(("zone", "b"),), budget=Budget(max_marked=Limit(1)))
LIMITED = st.builds(
    Budgets,
    cluster=BUDGET,
    pools=st.sampled_from(((), (), (POOL_A,), (POOL_A, POOL_B))),
    balance_zones=st.booleans(),
    headroom=st.sampled_from((0, 1, 3)),
)
BUDGETS = st.one_of(st.just(UNLIMITED), st.just(Budgets()), LIMITED)


def window(marks: Mapping[str, int], unreached: Mapping[str, int] | None = None) -> dict[str, Any]:
    """Return fields of RateLimits for a number of marks in the window by pool.

    *unreached* are the numbers of these marks on nodes in no reach.
    """
    away = unreached or {}
    reached = {pool: (9,) * (many - away.get(pool, 0)) for pool, many in marks.items()}
    return {
        "window_ends": {pool: (9,) * many for pool, many in marks.items()},
        "reached_ends": reached,
    }


ENDS = st.fixed_dictionaries({"": st.integers(0, 3)}, optional={"a": st.integers(0, 2)}).map(
    window
)
RESERVES = st.sampled_from((Amount(0, 0), Amount(1500, 0), Amount(500, 4000 * MB)))


def paced(**limits: Any) -> RateLimits:
    """Return rate limits at a time at which marks may begin."""
    return RateLimits(beginning=ALWAYS, **limits)


def _pace(marks: dict[str, Any], **rest: Any) -> RateLimits:
    return paced(**marks, **rest)


PACE = st.builds(
    _pace,
    cooling_until=st.sampled_from((None, None, None, 9)),
    marks=ENDS,
    backing_off=st.sampled_from(({}, {}, {"n00": 7, "n01": 9})),
    peak_excess=st.fixed_dictionaries(
        {}, optional={"": RESERVES, "general": RESERVES, "zone=a": RESERVES}
    ),
)
PACES = st.one_of(st.none(), PACE)
