"""The load of a general pool rises beside an idle tainted pool, and no pod is Pending."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from core.config.settings import Mode
from core.marks.wellknown import KEEP_ANNOTATION, MARK_LABEL
from tests.e2e.api import Api, Json
from tests.e2e.install import installed
from tests.e2e.objects import NODES, PODS, add_nodes, node, pod, ready
from tests.e2e.plane import Plane
from tests.e2e.scheduling import scheduling

GENERAL = ("g0", "g1", "g2", "g3", "g4", "g5")
DEVICES = ("gpu0", "gpu1", "gpu2", "gpu3")
TAINT = {"key": "example.org/gpu", "value": "true", "effect": "NoSchedule"}
GENERAL_MILLIS, POD_MILLIS = 4000, 500
LEAVE_PERCENT = 85
START, END = 12, 40
"""First and last number of pods: six, then twenty of the pool's twenty-four cores."""


@pytest.fixture(scope="module", autouse=True)
def programs(plane: Plane) -> Iterator[None]:
    thresholds = {"cpu": "80%", "memory": "80%"}
    how: dict[str, Any] = {
        "usableCapacity": "all",
        "noScheduleAfter": "1s",
        "thresholds": thresholds,
    }
    with installed(plane, mode=Mode.ENFORCE, **how):
        yield


def add_devices(api: Api) -> None:
    """Create large tainted, opted-out nodes, and a pod that tolerates the taint."""
    for name in DEVICES:
        made = node(name, cpu="64", memory="256Gi", annotations={KEEP_ANNOTATION: "true"})
        made["spec"] = {"taints": [TAINT]}
        api.create(NODES, made)
    api.wait(NODES, lambda found: all(n in found and ready(found[n]) for n in DEVICES))
    tolerations = [{"key": TAINT["key"], "operator": "Exists"}]
    api.create(PODS, pod("trainer", node_name="gpu0", cpu="1", tolerations=tolerations))


def share(nodes: Mapping[str, Json], pods: int) -> int:
    """Return the utilization of the general pool's unmarked nodes in percent, rounded up."""
    unmarked = [n for n in GENERAL if MARK_LABEL not in nodes[n]["metadata"]["labels"]]
    whole = len(unmarked) * GENERAL_MILLIS
    return -(-pods * POD_MILLIS * 100 // whole) if whole else 1000


def is_hard(nodes: Mapping[str, Json], name: str) -> bool:
    return bool(nodes[name]["metadata"]["labels"].get(MARK_LABEL) == "NoSchedule")


def refused(found: Json) -> bool:
    """Return whether the scheduler has found no node for the pod."""
    conditions = found["status"].get("conditions") or ()
    return any(one.get("reason") == "Unschedulable" for one in conditions)


def grow(api: Api, count: int, waited: set[str]) -> dict[str, Json]:
    """Create the next pod; return the nodes when it is bound and enough nodes are unmarked.

    *waited* collects the names of all pods that the scheduler has rejected meanwhile.
    """
    name = f"p{count - 1:02}"

    def note(_: str, found: Json) -> None:
        if refused(found):
            waited.add(found["metadata"]["name"])

    def bound(found: Mapping[str, Json]) -> bool:
        return bool(found[name]["spec"].get("nodeName"))

    def settled(found: Mapping[str, Json]) -> bool:
        return share(found, count) <= LEAVE_PERCENT

    api.create(PODS, pod(name, cpu=f"{POD_MILLIS}m"))
    pods = api.wait(PODS, bound, told=note)
    assert pods[name]["spec"]["nodeName"] in GENERAL
    return api.wait(NODES, settled)


def test_no_pod_is_pending_when_load_rises_beside_idle_tainted_pool(
    plane: Plane, api: Api, capsys: pytest.CaptureFixture[str]
) -> None:
    add_devices(api)
    add_nodes(api, *GENERAL)
    for number in range(START):
        name = GENERAL[number % len(GENERAL)]
        api.create(PODS, pod(f"p{number:02}", node_name=name, cpu=f"{POD_MILLIS}m"))
    nodes = api.wait(NODES, lambda found: sum(is_hard(found, n) for n in GENERAL) == 4)
    waited: set[str] = set()
    shares: list[int] = []
    with scheduling(plane):
        for count in range(START + 1, END + 1):
            nodes = grow(api, count, waited)
            shares.append(share(nodes, count))
    with capsys.disabled():
        print(f"\nthe general pool's unmarked nodes, in percent, pod by pod: {shares}")
    assert waited == set()
    assert not any(MARK_LABEL in nodes[n]["metadata"]["labels"] for n in GENERAL)
