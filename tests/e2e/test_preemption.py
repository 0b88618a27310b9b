"""Ebb does not set NoSchedule where this would make kube-scheduler preempt pods."""

import signal
from collections.abc import Iterator
from typing import Any

import pytest

from core.config.settings import Mode
from tests.e2e.api import Api, Json
from tests.e2e.install import installed
from tests.e2e.objects import NODES, PODS, add_nodes, pod
from tests.e2e.plane import START_SECONDS, Plane, until
from tests.e2e.test_safety import NO_SCHEDULE, bound, mark

PRIORITIES = "/apis/scheduling.k8s.io/v1/priorityclasses"
RECONCILIATIONS = "ebb_reconcile_duration_seconds_count"


@pytest.fixture
def full(api: Api) -> Iterator[Api]:
    """Create an almost full node, an empty node, and a higher priority class."""
    api.create(PRIORITIES, {"metadata": {"name": "high"}, "value": 1000})
    add_nodes(api, "a", "b")
    api.create(PODS, pod("low", node_name="a", cpu="2500m"))
    api.create(PODS, pod("first", node_name="a", priorityClassName="high"))
    api.wait(PODS, lambda found: all(
        one["status"].get("phase") == "Running" for one in found.values()
    ))  # fmt: skip
    yield api
    api.delete(f"{PRIORITIES}/high")


def second(api: Api) -> dict[str, Json]:
    """Create a pod of high priority; return the pods when it is bound."""
    api.create(PODS, pod("second", priorityClassName="high"))
    return api.wait(PODS, lambda found: bound(found["second"]), START_SECONDS)


def test_noschedule_taint_causes_preemption_without_ebb(plane: Plane, full: Api) -> None:
    """Ebb does not run; the test sets the NoSchedule taint itself."""
    taint = dict(zip(("key", "effect"), NO_SCHEDULE, strict=True))
    full.merge(f"{NODES}/b", {"spec": {"taints": [taint]}})
    scheduler = plane.scheduler()
    try:
        found = second(full)
    finally:
        plane.end(scheduler, signal.SIGKILL)
    assert bound(found["second"]) == "a"
    assert "low" not in found


def test_mark_remains_prefer_noschedule_when_noschedule_would_cause_preemption(
    plane: Plane, full: Api
) -> None:
    whole = {"cpu": "100%", "memory": "100%"}
    how: dict[str, Any] = {"usableCapacity": "all", "thresholds": whole, "noScheduleAfter": "1s"}
    with installed(plane, mode=Mode.ENFORCE, **how) as programs:
        full.wait(NODES, lambda found: mark(found["b"]))
        reconciliations = programs.controller.metric(RECONCILIATIONS)
        until(
            lambda: programs.controller.metric(RECONCILIATIONS) >= reconciliations + 5,
            "reconciliations follow",
        )
        assert mark(full.get(f"{NODES}/b")) == "PreferNoSchedule"
        scheduler = plane.scheduler()
        try:
            found = second(full)
        finally:
            plane.end(scheduler, signal.SIGKILL)
        assert bound(found["second"]) == "b"
        assert "low" in found
