"""Random configurations and rate limits for mixed clusters."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from core.config.budgets import (
    Budget,
    Budgets,
    LabelSelector,
    Limit,
    NodeRequirement,
    Operator,
    Pool,
)
from core.config.prices import Price
from core.config.settings import Config, UsabilityMode
from core.config.thresholds import Thresholds
from core.engine.leader_state import RateLimits
from core.engine.maintenance_gate import ALWAYS, CLOSED, Refusal
from core.model.reason import Blocker
from core.placement.usable_capacity import Amount
from tests.support.builders import MB, THESIS_USABILITY, UNLIMITED
from tests.support.reference_fit import ZONE
from tests.support.restraints import paced, window

SHARES = (Fraction(1, 2), Fraction(7, 10), Fraction(4, 5), Fraction(4, 5), Fraction(1))

DEVICE_SHARES = (None, None, Fraction(1), Fraction(1, 2))


def config(chance: random.Random) -> Config:
    """Return a random configuration."""
    cpu, memory = chance.choice(SHARES), chance.choice(SHARES)
    return Config(
        thresholds=Thresholds(cpu=cpu, memory=memory, devices=chance.choice(DEVICE_SHARES)),
        hysteresis=chance.choice((Fraction(1, 20), Fraction(0), Fraction(1, 2))),
        usable_capacity=chance.choice(
            (UsabilityMode.AUTO, UsabilityMode.AUTO, UsabilityMode.ALL, THESIS_USABILITY)
        ),
        budgets=budgets(chance),
        prices=chance.choice(((), PRICES)),
        min_savings=chance.choice(SAVINGS),
    )


PRICES = (
    Price(node_selector=(("pool", "gpu"),), price=Fraction(9)),
    Price(node_selector=((ZONE, "a"),), price=Fraction(3)),
    Price(node_selector=(("pool", "batch"),), price=Fraction(7, 2)),
)


SAVINGS = (Fraction(0), Fraction(0), Fraction(3), Fraction(3 * 730 + 1, 730))


def budgets(chance: random.Random) -> Budgets:
    """Return random budgets."""
    if chance.random() < 0.5:
        return replace(UNLIMITED, headroom=chance.choice((0, 1)))
    return Budgets(
        cluster=budget(chance),
        min_untainted_nodes=chance.choice((0, 0, 2, 3)),
        pools=() if chance.random() < 0.7 else pools(chance),
        balance_zones=chance.random() < 0.6,
        headroom=chance.choice((0, 1, 1, 3)),
    )


def budget(chance: random.Random) -> Budget:
    """Return random limits of the cluster or of a pool."""
    some = (None, None, Limit(1), Limit(3), Limit(None, Fraction(1, 2)))
    return Budget(
        max_marked=chance.choice(some),
        max_new_marks=chance.choice(some),
        min_nodes=chance.choice((0, 0, 1, 3)),
    )


SELECTORS: Mapping[str, LabelSelector] = {
    "batch": LabelSelector(match_labels=(("pool", "batch"),)),
    "general": LabelSelector(
        match_expressions=(
            NodeRequirement(key="pool", operator=Operator.EXISTS),
            NodeRequirement(key="pool", operator=Operator.NOT_IN, values=("batch", "gpu")),
        )
    ),
    "gpu": LabelSelector(
        match_labels=(("pool", "gpu"),),
        match_expressions=(NodeRequirement(key="nobody", operator=Operator.DOES_NOT_EXIST),),
    ),
}
"""How pools select their nodes: by labels, by expressions, by both."""


def pools(chance: random.Random) -> tuple[Pool, ...]:
    """Return random pools, some with their own thresholds."""
    own = (None, None, Thresholds(cpu=Fraction(3, 5), memory=Fraction(9, 10)))
    return tuple(
        Pool(
            name=name,
            selector=SELECTORS[name],
            budget=budget(chance),
            thresholds=chance.choice(own),
        )
        for name in SELECTORS
    )


def rate_limits(chance: random.Random, keys: Sequence[str] = ()) -> RateLimits | None:
    """Return random rate limits, or None; *keys* are the keys of reaches."""
    if chance.random() < 0.6:
        return None
    return paced(
        beginning=REFUSED if chance.random() < 0.1 else ALWAYS,
        cooling_until=9 if chance.random() < 0.1 else None,
        **window({"": chance.randint(0, 2), "batch": chance.randint(0, 1)}),
        backing_off=chance.choice(({}, {"n00": 7})),
        peak_excess={key: chance.choice(RESERVES) for key in ("", *keys)},
        old_jobs=chance.choice(({}, {}, {"n01": "work/job", "n02": "work/job"})),
        failed_writes=chance.choice(({}, {f"n{n:02}": 9 for n in range(0, 30, 2)})),
    )


REFUSED = Refusal((Blocker(CLOSED, "the next window of `schedule` opens at 9", until=9),))
RESERVES = (Amount(0, 0), Amount(1500, 0), Amount(500, 2000 * MB))
