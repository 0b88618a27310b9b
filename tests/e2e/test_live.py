"""Ebb shrinks a cluster whose load falls, without evictions and without Pending pods.

`make bench` runs both whole loads, and compares with clusters without Ebb.
"""

from typing import Final

import pytest

from core.config.settings import Mode
from tests.e2e.api import Api, Json
from tests.e2e.install import installed
from tests.e2e.karpenter import add_empty, karpenter
from tests.e2e.live import Load, karpenter_takes, play
from tests.e2e.observer import HEAD
from tests.e2e.plane import Plane
from tests.e2e.scheduling import port_of, scheduling, shipped_profile, stanza, start_extender

BUILDING: Final = {
    "mode": Mode.OBSERVE,
    "reserve": {"window": "never"},
    "controller": {"interval": "1s"},
}
"""Settings until the load begins, as initial nodes are empty and initial pods are no arrivals."""
RESERVE: Final = {"window": "10s", "percentile": "100%"}
"""Room for the busiest ten seconds: a thirtieth of a window of five minutes."""
EVENTS = "/apis/events.k8s.io/v1/events"
DISTURBING = {"Evicted", "TaintManagerEviction", "DeletingNode", "Preempted"}
SPARED = "Cancelling deletion"
"""Note of a TaintManagerEviction Event when the node is Ready again and no pod is evicted."""


def test_cluster_shrinks_without_evictions_when_load_falls(
    plane: Plane, api: Api, capsys: pytest.CaptureFixture[str]
) -> None:
    load = Load.named("ramp").part(2, faster=4)
    how = {
        "usableCapacity": "all",
        # With the defaults some Jobs wait for a new node: docs/results.md has the figures.
        "thresholds": {"cpu": "80%", "memory": "80%"},
        "unneededTime": "1s",
        "stabilizationWindow": "15s",
        "budgets": {"maxMarked": 6, "maxNewMarks": 6, "period": "10s", "minNodes": 6},
        "cooldown": {"delayAfterAdd": "5s", "delayAfterPending": "15s"},
    }
    folder = "manifests/examples/self-managed"

    def begin() -> None:
        programs.controller.configure(mode=Mode.ENFORCE.value, reserve=RESERVE)

    with karpenter(plane), installed(plane, folder=folder, **how, **BUILDING) as programs:
        extender = start_extender(plane, score="pack").wait_ready()
        with scheduling(plane, stanza(port_of(extender)), profile=shipped_profile()):
            begun = int(api.get(EVENTS)["metadata"]["resourceVersion"])
            outcome = play(api, load, karpenter_takes(), begin=begin, add=add_empty)
        with capsys.disabled():
            print(f"\n{HEAD}\n{outcome.line()}")
        extender.stop()
        # Earlier tests have left Events on the control plane.
        told = [
            event
            for event in api.get(EVENTS)["items"]
            if int(event["metadata"]["resourceVersion"]) > begun
        ]
        reasons = {event["reason"] for event in told}
        assert outcome.faults == []
        assert outcome.emptied >= 1
        assert (outcome.killed, outcome.evicted) == (0, 0)
        assert [event for event in told if _disturbs(event)] == []
        assert outcome.waited == {}
        written = programs.controller.metric(
            'ebb_node_writes_total{operation="mark",result="success"}'
        )
        assert written >= outcome.emptied
        assert {"NodeMarked", "ScaleDownAllowed"} <= reasons


def _disturbs(event: Json) -> bool:
    return event["reason"] in DISTURBING and not event.get("note", "").startswith(SPARED)
