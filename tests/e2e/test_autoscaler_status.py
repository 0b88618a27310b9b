"""The minimum of a node group, read from Cluster Autoscaler's ConfigMap with the shipped Role."""

import time
from collections.abc import Iterator, Mapping
from functools import partial

import pytest

from core.config.settings import Mode
from core.marks.wellknown import MARK_LABEL
from tests.e2e.api import Api, Json
from tests.e2e.install import installed
from tests.e2e.objects import NODES, PODS, add_nodes, pod
from tests.e2e.plane import Plane
from tests.platforms.objects import autoscaler_status

STATUSES = "/api/v1/namespaces/kube-system/configmaps"
NAME = "cluster-autoscaler-status"
GROUP, LABEL = "aks-pool1-12345678-vmss", "kubernetes.azure.com/agentpool"
STILL_SECONDS = 5.0
"""Time in which at least one more reconciliation runs here."""


@pytest.fixture(scope="module", autouse=True)
def programs(plane: Plane) -> Iterator[None]:
    with installed(plane, mode=Mode.ENFORCE, usability="none"):
        yield


def text(least: int) -> Json:
    return dict(autoscaler_status({GROUP: (least, 3)})["data"])


def marks(found: Mapping[str, Json]) -> int:
    return sum(MARK_LABEL in one["metadata"].get("labels", {}) for one in found.values())


def has_marks(many: int, found: Mapping[str, Json]) -> bool:
    return marks(found) == many


def test_node_group_keeps_its_minimum_size(api: Api) -> None:
    api.create(STATUSES, {"metadata": {"name": NAME}, "data": text(3)})
    try:
        add_nodes(api, "a", "b", "c")
        for name in "abc":
            api.merge(f"{NODES}/{name}", {"metadata": {"labels": {LABEL: "pool1"}}})
        api.create(PODS, pod("p", node_name="a"))
        # Nodes that were marked before the label was set are unmarked; then no node is marked.
        api.wait(NODES, lambda found: not marks(found))
        time.sleep(STILL_SECONDS)
        assert marks({one["metadata"]["name"]: one for one in api.get(NODES)["items"]}) == 0
        for least, many in ((2, 1), (1, 2), (3, 0)):
            api.merge(f"{STATUSES}/{NAME}", {"data": text(least)})
            api.wait(NODES, partial(has_marks, many))
    finally:
        api.delete(f"{STATUSES}/{NAME}")
