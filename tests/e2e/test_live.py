"""The pair shrinks a cluster whose load falls: nobody is evicted, nobody waits.

`make bench` runs the whole load, with `marks` and with `pack`.
"""

import pytest

from core.config.settings import Mode
from tests.e2e.api import Api
from tests.e2e.install import installed
from tests.e2e.live import HEAD, Load, play
from tests.e2e.plane import Plane
from tests.e2e.test_scheduling import port_of, scheduling, stanza, start_extender

EVENTS = "/apis/events.k8s.io/v1/events"
EVICTIONS = "apiserver_request_total{"


def evictions(plane: Plane) -> float:
    """Return how many evictions the API server has been asked for, by other tests too."""
    lines = plane.api.text("/metrics").splitlines()
    return sum(
        float(line.rsplit(" ", 1)[1])
        for line in lines
        if line.startswith(EVICTIONS) and 'subresource="eviction"' in line
    )


def test_marked_nodes_empty_and_go_without_an_eviction(
    plane: Plane, api: Api, capsys: pytest.CaptureFixture[str]
) -> None:
    load, before = Load.ramp().part(2, faster=4), evictions(plane)
    how = {
        "mode": Mode.ENFORCE,
        "usability": "none",
        "delay": "1s",
        "peakWindow": "15s",
        "budgets": {"maxMarked": 6, "maxInWindow": 6, "window": "10s", "minNodes": 6},
        "cooldown": {"afterNodeAdd": "5s", "afterPending": "15s"},
    }
    with installed(plane, folder="manifests/examples/self-managed", **how) as webhook:
        extender = start_extender(plane, score="pack").wait_ready()
        with scheduling(plane, stanza(port_of(extender))):
            outcome = play(api, load)
        with capsys.disabled():
            print(f"\n{HEAD}\n{outcome.line()}")
        extender.stop()
        events = api.get(EVENTS)["items"]
        reasons = {event["reason"] for event in events}
        assert outcome.faults == []
        assert outcome.emptied >= 1
        assert outcome.killed == 0
        assert evictions(plane) == before
        assert not reasons & {"Evicted", "TaintManagerEviction", "DeletingNode", "Preempted"}
        assert outcome.long_waits == 0
        written = webhook.metric('ebb_engine_writes_total{kind="mark"}')
        assert written >= outcome.emptied
        assert {"DrainMarked", "ScaleDownAllowed"} <= reasons
