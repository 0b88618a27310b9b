"""When there was news, and what must not be decided without."""

import math

import pytest

from core.edge.decode.kinds import NODES, PODS
from core.edge.kube.freshness import Freshness

UNHEARD = "pods have not been listed yet"
BROKEN = "the watch of pods was interrupted and has not caught up yet"
OLD = "the watch of pods has sent nothing for 181 s"


@pytest.mark.parametrize(
    ("heard", "lost", "later", "reason", "where_breaks_do_not_count"),
    [
        (False, False, 0, UNHEARD, UNHEARD),
        (False, True, 0, UNHEARD, UNHEARD),
        (True, False, 180, None, None),
        (True, False, 181, OLD, OLD),
        (True, True, 0, BROKEN, None),
        (True, True, 181, BROKEN, OLD),
    ],
)
def test_why_nothing_is_decided(
    heard: bool,
    lost: bool,
    later: float,
    reason: str | None,
    where_breaks_do_not_count: str | None,
) -> None:
    news = Freshness((NODES, PODS))
    now = 100.0 + later
    news.alive(NODES, now)
    if heard:
        news.alive(PODS, 100.0)
    if lost:
        news.lost(PODS)
    assert news.why_stale(now, 180) == reason
    assert news.why_stale(now, 180, unbroken=False) == where_breaks_do_not_count
    assert Freshness((NODES,)).why_stale(now, 180) == "nodes have not been listed yet"
    news.alive(PODS, now)
    assert news.why_stale(now, 180) is None


def test_before_any_news_they_are_infinitely_old() -> None:
    news = Freshness()
    assert news.age_seconds(PODS, 5.0) == math.inf
    news.alive(PODS, 3.0)
    assert news.age_seconds(PODS, 5.0) == 2.0
