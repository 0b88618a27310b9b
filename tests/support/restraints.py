"""Hypothesis strategies for budgets and rate limits."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Final

from hypothesis import strategies as st

from core.config.budgets import Budget, Budgets, LabelSelector, Limit, Pool
from core.engine.leader_state import RateLimits
from core.engine.maintenance_gate import ALWAYS, Beginning
from core.engine.mark_limits import (
    BACKOFF,
    BUDGET_NEW_MARKS,
    CLUSTER,
    COOLDOWN,
    MARK_REFUSED,
    OLD_JOB,
    PODS_PENDING,
    SPACING,
    End,
    Ends,
)
from core.model.reason import Reason
from core.placement.usable_capacity import Amount
from tests.support.builders import MB, UNLIMITED

LIMITS = st.sampled_from((None, Limit(1), Limit(3), Limit(None, Fraction(1, 2))))
BUDGET = st.builds(
    Budget, max_marked=LIMITS, max_new_marks=LIMITS, min_nodes=st.sampled_from((0, 0, 1, 3))
)
POOL_A = Pool(
    name="a", selector=LabelSelector(match_labels=(("zone", "a"),)), budget=Budget(min_nodes=1)
)
POOL_B = Pool(
    name="b",
    selector=LabelSelector(match_labels=(("zone", "b"),)),
    budget=Budget(max_marked=Limit(1)),
)
LIMITED = st.builds(
    Budgets,
    cluster=BUDGET,
    pools=st.sampled_from(((), (), (POOL_A,), (POOL_A, POOL_B))),
    balance_zones=st.booleans(),
    headroom=st.sampled_from((0, 1, 3)),
)
BUDGETS = st.one_of(st.just(UNLIMITED), st.just(Budgets()), LIMITED)


LIMITS_BY_NAME: Final = {
    "cooling_until": COOLDOWN,
    "pending_until": PODS_PENDING,
    "mark_interval_until": SPACING,
    "backing_off": BACKOFF,
    "failed_writes": MARK_REFUSED,
    "old_jobs": OLD_JOB,
    "new_marks": BUDGET_NEW_MARKS,
}
"""The limit of each argument of `paced`."""


def window(marks: Mapping[str, int], unreached: Mapping[str, int] | None = None) -> dict[str, Any]:
    """Return an argument of `paced` for a number of marks in the window by pool.

    *unreached* are the numbers of these marks on nodes in no reach.
    """
    away = unreached or {}
    return {
        "new_marks": {
            pool: tuple(End(9, reached=number >= away.get(pool, 0)) for number in range(many))
            for pool, many in marks.items()
        }
    }


ENDS = st.fixed_dictionaries({"": st.integers(0, 3)}, optional={"a": st.integers(0, 2)}).map(
    window
)
RESERVES = st.sampled_from((Amount(0, 0), Amount(1500, 0), Amount(500, 4000 * MB)))


def paced(
    beginning: Beginning = ALWAYS,
    peak_excess: Mapping[str, Amount] | None = None,
    **limits: Any,
) -> RateLimits:
    """Return rate limits; by default marks may begin.

    *limits*: by a name of LIMITS_BY_NAME, when the limit ends, also by node; None if it has ended.
    """
    ends = {LIMITS_BY_NAME[name].code: _ends(value) for name, value in limits.items()}
    return RateLimits(beginning=beginning, ends=ends, peak_excess=peak_excess or {})


def _ends(value: object) -> Ends:
    if isinstance(value, Mapping):
        return {scope: _one_end(end) for scope, end in value.items()}
    return {} if value is None else {CLUSTER: _one_end(value)}


def _one_end(end: Any) -> tuple[End, ...]:
    if isinstance(end, tuple):
        return end
    return (End(about=end),) if isinstance(end, str) else (End(end),)


def end_of(limits: RateLimits, reason: Reason) -> int | None:
    """Return when a limit on all nodes ends; None if it does not apply now."""
    ends = limits.of(reason)
    return ends[CLUSTER][0].until if ends else None


def ends_by_node(limits: RateLimits, reason: Reason) -> dict[str, int | str | None]:
    """Return by node when a limit on single nodes ends, or what it is about."""
    return {node: end.about or end.until for node, (end,) in limits.of(reason).items()}


def in_window(limits: RateLimits) -> dict[str, int]:
    """Return by pool the number of marks within the period; the empty text is the cluster."""
    ends = limits.of(BUDGET_NEW_MARKS)
    return {CLUSTER: 0} | {pool: len(of_pool) for pool, of_pool in ends.items()}


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
