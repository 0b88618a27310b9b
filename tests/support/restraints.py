"""Generated budgets, and what may hold the engine back at a moment."""

from fractions import Fraction

from hypothesis import strategies as st

from core.capacity.usable import Amount
from core.config.budgets import Budget, Budgets, Limit, Pool
from core.engine.memory import Pace
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
RESERVES = st.sampled_from((Amount(0, 0), Amount(1500, 0), Amount(500, 4000 * MB)))
PACE = st.builds(
    Pace,
    cooling_seconds=st.sampled_from((0, 0, 0, 9)),
    in_window=st.fixed_dictionaries({"": st.integers(0, 3)}, optional={"a": st.integers(0, 2)}),
    backing_off=st.sampled_from(({}, {}, {"n00": 7, "n01": 9})),
    reserve=st.fixed_dictionaries(
        {}, optional={"": RESERVES, "general": RESERVES, "zone=a": RESERVES}
    ),
)
PACES = st.one_of(st.none(), PACE)
