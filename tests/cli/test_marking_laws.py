"""Law: the marks that are due now, taken from a plan, are those of a plan with rate limits."""

import random
from dataclasses import replace

import pytest

from cli.explain.marking import LIMITS, Limited, limited_part, limited_plan
from core.engine.leader_state import LeaderState, observe, rate_limits
from core.engine.reconcile import make_plan
from core.engine.snapshot import ClusterSnapshot
from core.model.now import Now
from core.placement.usable_capacity import NOTHING
from tests.support import mixed, mixed_config

pytestmark = pytest.mark.law(seeds_min=200)


def test_limits_leave_the_beginning_of_a_plan(seeds: range) -> None:
    derived = shortened = 0
    for seed in seeds:
        chance = random.Random(seed)
        cluster, config = mixed.cluster(chance), mixed_config.config(chance)
        now = Now(mixed.NOW)
        snapshot = ClusterSnapshot(cluster, config, now)
        limits = mixed_config.rate_limits(chance)
        if limits is None:
            limits = rate_limits(observe(LeaderState(), snapshot, now), snapshot, now)
        limits = replace(limits, peak_excess=dict.fromkeys(limits.peak_excess, NOTHING))
        removals_max = chance.choice((None, None, 1, 2))
        due = frozenset(node.name for node in cluster.nodes if chance.random() < 0.9)
        plan = make_plan(snapshot, removals_max=removals_max)
        removable = [one.node for one in plan.removals]
        found = limited_part(snapshot, plan, removable, due, limits)
        if found is not None:
            expected = limited_plan(snapshot, removable, due, limits)
            assert _told(found, removable) == _told(expected, removable), seed
            derived += 1
            shortened += 0 < len(found.removals) < len(removable)
    assert derived > len(seeds) // 2
    assert shortened > len(seeds) // 200


def _told(found: Limited, removable: list[str]) -> tuple[list[str], dict[str, set[str]]]:
    """Return the removals, and the codes for which the other nodes wait."""
    waiting = set(removable).difference(found.removals)
    return list(found.removals), {
        name: {one.code for one in found.blockers[name] if one.reason in LIMITS}
        for name in waiting
    }
