"""Estimate the time at which a dump was made."""

from datetime import UTC, datetime
from typing import Any

import pytest

from core.cluster.read_options import READ_DEFAULTS
from core.model.pod import Pod
from kube.dump import from_dumps
from kube.dump_time import DumpTime
from tests.support.kube_json import NODE, POD, changed, dump

NOW = 1_800_000_000
HOUR = 3600


def written(unix_seconds: int) -> str:
    return f"{datetime.fromtimestamp(unix_seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"


def finished_pod(created: int, **status: Any) -> bytes:
    """Return a pod that has finished."""
    status = {"phase": "Succeeded", **status}
    times = {"metadata__name": "e", "metadata__creationTimestamp": written(created)}
    return changed(POD, **times, status=status)


def dump_time_of(*items: bytes) -> DumpTime:
    found = DumpTime()
    from_dumps([("f", dump(NODE, POD, *items))], READ_DEFAULTS, [], found)
    return found


def node_json(name: str, *beats: int) -> bytes:
    conditions = [{"type": "Ready", "lastHeartbeatTime": written(one)} for one in beats]
    return changed(NODE, metadata__name=name, status__conditions=conditions)


def pod_created(at: int) -> Pod:
    return Pod(namespace="d", name="p", created_seconds=at)


@pytest.mark.parametrize(
    ("items", "pods", "at"),
    [
        ([], [], NOW),
        ([node_json("a", NOW - HOUR, NOW - 70)], [], NOW - 70),
        ([node_json("a", NOW - 70)], [pod_created(NOW - 60)], NOW - 60),
        ([node_json("a", NOW - 70)], [pod_created(NOW - 80)], NOW - 70),
        ([finished_pod(NOW - 5)], [pod_created(NOW - 80)], NOW - 5),
        ([finished_pod(NOW - 5, startTime=written(NOW))], [], NOW - 5),
        (
            [node_json("a", NOW - 70), node_json("b", NOW + HOUR), node_json("c", NOW - 60)],
            [],
            NOW - 60,
        ),
        ([node_json("a", NOW - 70), node_json("b", NOW + HOUR)], [], NOW - 70),
        ([node_json("a", NOW + HOUR)], [], NOW),
        ([], [pod_created(NOW + HOUR)], NOW),
    ],
    ids=range(10),
)
def test_dump_time_is_latest_plausible_time_in_dump(
    items: list[bytes], pods: list[Pod], at: int
) -> None:
    found = dump_time_of(*items)
    assert found.estimate(pods, NOW) == at


def test_objects_are_ignored_when_their_times_are_undecodable() -> None:
    found = DumpTime()
    found.add_node("a", b'{"metadata":7}')
    found.add_finished(b'{"metadata":7}')
    assert found.estimate([pod_created(NOW - 5)], NOW) == NOW - 5
