"""The minimum of a node group, read from Cluster Autoscaler's ConfigMap with the shipped Role."""

from collections.abc import Iterator, Mapping
from functools import partial

import pytest

from core.config.settings import Mode
from core.marks.wellknown import MARK_LABEL
from tests.e2e.api import Api, Json
from tests.e2e.install import Programs, installed
from tests.e2e.objects import NODES, PODS, add_nodes, pod
from tests.e2e.plane import Plane, until
from tests.platforms.objects import autoscaler_status

STATUSES = "/api/v1/namespaces/kube-system/configmaps"
NAME = "cluster-autoscaler-status"
GROUP, LABEL = "aks-pool1-12345678-vmss", "kubernetes.azure.com/agentpool"
RECONCILIATIONS = "ebb_reconcile_duration_seconds_count"


@pytest.fixture(scope="module", autouse=True)
def programs(plane: Plane) -> Iterator[Programs]:
    with installed(plane, mode=Mode.ENFORCE, usableCapacity="all") as started:
        yield started


def text(least: int) -> Json:
    return dict(autoscaler_status({GROUP: (least, 3)})["data"])


def marks(found: Mapping[str, Json]) -> int:
    return sum(MARK_LABEL in one["metadata"].get("labels", {}) for one in found.values())


def has_marks(many: int, found: Mapping[str, Json]) -> bool:
    return marks(found) == many


def test_node_group_keeps_its_minimum_size(api: Api, programs: Programs) -> None:
    api.create(STATUSES, {"metadata": {"name": NAME}, "data": text(3)})
    try:
        add_nodes(api, "a", "b", "c", labels={LABEL: "pool1"})
        api.create(PODS, pod("p", node_name="a"))
        reconciled = programs.controller.metric(RECONCILIATIONS)
        until(
            lambda: programs.controller.metric(RECONCILIATIONS) > reconciled + 2,
            "three more reconciliations",
        )
        assert marks({one["metadata"]["name"]: one for one in api.get(NODES)["items"]}) == 0
        for least, many in ((2, 1), (1, 2), (3, 0)):
            api.merge(f"{STATUSES}/{NAME}", {"data": text(least)})
            api.wait(NODES, partial(has_marks, many))
    finally:
        api.delete(f"{STATUSES}/{NAME}")
