"""Configurations of UnderutilizedCount in few words."""

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

from core.config.settings import Config
from core.policies.ported.underutilized_count import CountedPool, CountedPools
from tests.support.builders import UNLIMITED

POOL = "pool"
"""The label whose value is a node's pool, unless another is said."""


def counting(pools: Mapping[str, CountedPool], *, label: str = POOL, **changes: object) -> Config:
    """Return a configuration of the policy and nothing else that holds back."""
    bare = Config(policy="UnderutilizedCount", budgets=UNLIMITED, unneeded_time_seconds=300)
    asked = CountedPools(pool_label=label, pools=pools)
    policies = replace(bare.policies, underutilized_count=asked)
    return replace(bare, policies=policies, **changes)  # type: ignore[arg-type]


def counted(limit: str = "3/4", required: int = 5, *, enabled: bool = True) -> CountedPool:
    """Return a pool's settings."""
    return CountedPool(enabled=enabled, limit=Fraction(limit), required=required)
