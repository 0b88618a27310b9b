"""When a dump of a cluster was made."""

from datetime import UTC, datetime
from typing import Any

import pytest

from core.edge.decode.dump import from_dumps
from core.edge.decode.dump_time import DumpTime
from core.model.pod import Pod
from core.model.read_options import READ_DEFAULTS
from tests.support.kube_json import NODE, POD, changed, dump

NOW = 1_800_000_000
HOUR = 3600


def written(unix_seconds: int) -> str:
    return f"{datetime.fromtimestamp(unix_seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"


def over(created: int, **status: Any) -> bytes:
    """Return a pod that has finished."""
    status = {"phase": "Succeeded", **status}
    times = {"metadata__name": "e", "metadata__creationTimestamp": written(created)}
    return changed(POD, **times, status=status)


def of_dump(*items: bytes) -> DumpTime:
    found = DumpTime()
    from_dumps([("f", dump(NODE, POD, *items))], READ_DEFAULTS, [], found)
    return found


def node(name: str, *beats: int) -> bytes:
    conditions = [{"type": "Ready", "lastHeartbeatTime": written(one)} for one in beats]
    return changed(NODE, metadata__name=name, status__conditions=conditions)


def created(at: int) -> Pod:
    return Pod(namespace="d", name="p", created_seconds=at)


@pytest.mark.parametrize(
    ("items", "pods", "at"),
    [
        ([], [], NOW),
        ([node("a", NOW - HOUR, NOW - 70)], [], NOW - 70),
        ([node("a", NOW - 70)], [created(NOW - 60)], NOW - 60),
        ([node("a", NOW - 70)], [created(NOW - 80)], NOW - 70),
        ([over(NOW - 5)], [created(NOW - 80)], NOW - 5),
        ([over(NOW - 5, startTime=written(NOW))], [], NOW - 5),
        ([node("a", NOW - 70), node("b", NOW + HOUR), node("c", NOW - 60)], [], NOW - 60),
        ([node("a", NOW - 70), node("b", NOW + HOUR)], [], NOW - 70),
        ([node("a", NOW + HOUR)], [], NOW),
        ([], [created(NOW + HOUR)], NOW),
    ],
    ids=range(10),
)
def test_when_a_dump_was_made(items: list[bytes], pods: list[Pod], at: int) -> None:
    found = of_dump(*items)
    assert found.estimate(pods, NOW) == at


def test_objects_whose_times_cannot_be_read_are_ignored() -> None:
    found = DumpTime()
    found.add_node("a", b'{"metadata":7}')
    found.add_finished(b'{"metadata":7}')
    assert found.estimate([created(NOW - 5)], NOW) == NOW - 5
