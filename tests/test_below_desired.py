"""Tests of the figure `below` of the live loop (tests/e2e/below_desired.py)."""

from core.model.pod import DETACHED_LABEL
from tests.e2e.api import Json
from tests.e2e.below_desired import WATCHED_SECONDS, BelowDesired


def deployment(replicas: int) -> Json:
    return {"metadata": {"name": "web"}, "spec": {"replicas": replicas}}


def pod(name: str, *, ready: bool = True, detached: bool = False) -> Json:
    condition = {"type": "Ready", "status": "True" if ready else "False"}
    labels = {"app": "web"} | ({DETACHED_LABEL: "hash"} if detached else {})
    return {
        "metadata": {"name": name, "labels": labels},
        "status": {"conditions": [condition]},
    }


def after_move() -> BelowDesired:
    """Return the figure at second 0, when Ebb has given a pod back, and 3 pods of 2 are Ready."""
    below = BelowDesired()
    below.deployment_seen(deployment(2), -20)
    for name in ("a", "b"):
        below.pod_seen(pod(name), -20, deleted=False)
    below.pod_seen(pod("a", detached=True), -10, deleted=False)
    below.pod_seen(pod("c"), -5, deleted=False)
    below.pod_seen(pod("a"), 0, deleted=False)
    return below


def test_below_desired_is_zero_when_one_of_three_pods_ends() -> None:
    below = after_move()
    below.pod_seen(pod("a"), 1, deleted=True)
    below.end(60)
    assert (below.moves, below.pod_seconds) == (1, 0)


def test_below_desired_counts_seconds_when_second_pod_is_not_ready() -> None:
    below = after_move()
    below.pod_seen(pod("a"), 1, deleted=True)
    below.pod_seen(pod("b", ready=False), 5, deleted=False)
    below.pod_seen(pod("b"), 12, deleted=False)
    assert below.pod_seconds == 7


def test_below_desired_stops_counting_when_watched_time_ends() -> None:
    below = after_move()
    for name in ("a", "b"):
        below.pod_seen(pod(name), 10, deleted=True)
    below.end(1000)
    assert below.pod_seconds == WATCHED_SECONDS - 10


def test_below_desired_counts_nothing_after_somebody_set_the_replicas() -> None:
    below = after_move()
    below.deployment_seen(deployment(5), 2)
    below.deployment_seen(deployment(4), 3)
    below.end(60)
    assert below.pod_seconds == 0


def test_below_desired_counts_nothing_when_load_deletes_pod() -> None:
    below = after_move()
    below.interrupted("web", 2)
    for name in ("a", "b", "c"):
        below.pod_seen(pod(name), 3, deleted=True)
    below.end(60)
    assert below.pod_seconds == 0
