"""Build configurations of the policy UnderutilizedCount."""

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

from core.config.settings import Config
from core.policies.ported.underutilized_count import CountedPool, CountedPools
from tests.support.builders import UNLIMITED

POOL = "pool"
"""Default label whose value is the pool of a node."""


def counting(pools: Mapping[str, CountedPool], *, label: str = POOL, **changes: object) -> Config:
    """Return a configuration of the policy without other limits."""
    bare = Config(policy="UnderutilizedCount", budgets=UNLIMITED, unneeded_time_seconds=300)
    asked = CountedPools(pool_label=label, pools=pools)
    policies = replace(bare.policies, underutilized_count=asked)
    return replace(bare, policies=policies, **changes)  # type: ignore[arg-type]


def counted(limit: str = "3/4", required: int = 5, *, enabled: bool = True) -> CountedPool:
    """Return the settings of a pool."""
    return CountedPool(enabled=enabled, limit=Fraction(limit), required=required)
