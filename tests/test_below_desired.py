"""Tests of the figure `below` of the live loop (tests/e2e/below_desired.py)."""

from core.moves.objects import HPA_MANAGER, MANAGER
from tests.e2e.api import Json
from tests.e2e.below_desired import WATCHED_SECONDS, BelowDesired


def deployment(replicas: int, writer: str) -> Json:
    written = {"manager": writer, "fieldsV1": {"f:spec": {"f:replicas": {}}}}
    return {
        "metadata": {"name": "web", "managedFields": [written]},
        "spec": {"replicas": replicas},
    }


def pod(name: str, *, ready: bool = True) -> Json:
    condition = {"type": "Ready", "status": "True" if ready else "False"}
    return {
        "metadata": {"name": name, "labels": {"app": "web"}},
        "status": {"conditions": [condition]},
    }


def after_move() -> BelowDesired:
    """Return the figure at second 0, when Ebb has lowered 3 replicas to 2, and 3 are Ready."""
    below = BelowDesired()
    below.deployment_seen(deployment(2, HPA_MANAGER), -20)
    for name in ("a", "b", "c"):
        below.pod_seen(pod(name), -10, deleted=False)
    below.deployment_seen(deployment(3, MANAGER), -10)
    below.deployment_seen(deployment(2, MANAGER), 0)
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


def test_below_desired_counts_nothing_when_hpa_wrote_scale_last() -> None:
    below = after_move()
    below.deployment_seen(deployment(5, HPA_MANAGER), 2)
    below.deployment_seen(deployment(4, HPA_MANAGER), 3)
    below.end(60)
    assert below.pod_seconds == 0


def test_below_desired_counts_nothing_when_load_deletes_pod() -> None:
    below = after_move()
    below.interrupted("web", 2)
    for name in ("a", "b", "c"):
        below.pod_seen(pod(name), 3, deleted=True)
    below.end(60)
    assert below.pod_seconds == 0
