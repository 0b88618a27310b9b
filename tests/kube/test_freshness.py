"""When watches last reported, and when the view is too stale to decide on."""

import math

import pytest

from kube.decode.kinds import NODES, PODS
from kube.freshness import Freshness

NOT_LISTED = "pods have not been listed yet"
BROKEN = "the watch of pods was interrupted and has not caught up yet"
OLD = "the watch of pods has sent nothing for 181 s"


@pytest.mark.parametrize(
    ("listed", "lost", "later", "reason", "reason_despite_breaks"),
    [
        (False, False, 0, NOT_LISTED, NOT_LISTED),
        (False, True, 0, NOT_LISTED, NOT_LISTED),
        (True, False, 180, None, None),
        (True, False, 181, OLD, OLD),
        (True, True, 0, BROKEN, None),
        (True, True, 181, BROKEN, OLD),
    ],
)
def test_view_is_stale_when_watch_is_unlisted_broken_or_silent(
    listed: bool,
    lost: bool,
    later: float,
    reason: str | None,
    reason_despite_breaks: str | None,
) -> None:
    freshness = Freshness((NODES, PODS))
    now = 100.0 + later
    freshness.alive(NODES, now)
    if listed:
        freshness.alive(PODS, 100.0)
    if lost:
        freshness.lost(PODS)
    assert freshness.why_stale(now, 180) == reason
    assert freshness.why_stale(now, 180, unbroken=False) == reason_despite_breaks
    assert Freshness((NODES,)).why_stale(now, 180) == "nodes have not been listed yet"
    freshness.alive(PODS, now)
    assert freshness.why_stale(now, 180) is None


def test_age_is_infinite_before_first_report() -> None:
    freshness = Freshness()
    assert freshness.age_seconds(PODS, 5.0) == math.inf
    freshness.alive(PODS, 3.0)
    assert freshness.age_seconds(PODS, 5.0) == 2.0
