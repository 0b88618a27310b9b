"""A kubelet that reports 1,000 CPUs draws few pods of other tenants by surge moves.

kube-scheduler prefers the emptiest node, as by default, so it chooses the greedy one for each pod.
"""

import time
from collections import Counter
from collections.abc import Mapping

import pytest

from core.engine.node_share import SHARE_MIN
from core.marks.wellknown import KEEP_ANNOTATION
from tests.e2e.api import MERGE, Api, Json
from tests.e2e.attacks import ROGUE
from tests.e2e.moves import (
    MOVED_SECONDS,
    NEW,
    OLD,
    App,
    deploy,
    is_detached,
    outlast_reconciliations,
)
from tests.e2e.objects import NODES, PODS, THEIRS, node
from tests.e2e.objects import ready as is_ready
from tests.e2e.plane import Ebb, Plane

pytestmark = pytest.mark.usefixtures("leader")

TENANTS = 6
CLAIM = {"cpu": "1000", "memory": "4Ti", "pods": "1000"}
"""What the kubelet of the greedy node reports."""


def deploy_tenants(api: Api, prefix: str) -> None:
    """Run a Deployment of each tenant on node a, with pods of half a CPU."""
    apps = []
    for name in (f"{prefix}-{number}" for number in range(TENANTS)):
        template = App(name=name, start="1s").manifest()["spec"]["template"]
        template["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "500m"
        apps.append(App(name=name, start="1s", spec={"template": template}))
    deploy(api, *apps)


def open_both(plane: Plane, api: Api, claim: Json | None) -> None:
    """Offer room on node b and on the rogue node, whose kubelet reports *claim*."""
    for name in (NEW, ROGUE):
        made = node(name, annotations={KEEP_ANNOTATION: "true"})
        api.create(NODES, {**made, "spec": {"taints": [THEIRS]}})
    api.wait(NODES, lambda found: all(is_ready(found[name]) for name in (NEW, ROGUE)))
    if claim is not None:
        kubelet = plane.api_as(plane.user(f"system:node:{ROGUE}", group="system:nodes"))
        status = {"status": {"capacity": claim, "allocatable": claim}}
        kubelet.call("PATCH", f"{NODES}/{ROGUE}/status", status, content=MERGE)
    for name in (ROGUE, NEW):
        api.merge(f"{NODES}/{name}", {"spec": {"taints": None}})


def by_node(found: Mapping[str, Json]) -> Counter[str]:
    return Counter(one["spec"].get("nodeName", "") for one in found.values())


def test_greedy_node_draws_its_share_of_moved_pods_and_no_more(
    plane: Plane, cluster: Api, leader: Ebb, capsys: pytest.CaptureFixture[str]
) -> None:
    deploy_tenants(cluster, "drawn")
    most = 0

    def full(found: Mapping[str, Json]) -> bool:
        nonlocal most
        most = max(most, by_node(found)[ROGUE])
        return most >= SHARE_MIN and not any(map(is_detached, found.values()))

    began = time.monotonic()
    open_both(plane, cluster, CLAIM)
    cluster.wait(PODS, full, MOVED_SECONDS)
    seconds = time.monotonic() - began
    outlast_reconciliations(leader)
    found = {one["metadata"]["name"]: one for one in cluster.get(PODS)["items"]}
    with capsys.disabled():
        print(f"\n{by_node(found)[ROGUE]} of {TENANTS} pods on the greedy node in {seconds:.0f} s")
    assert full(found)
    assert by_node(found) == {ROGUE: SHARE_MIN, OLD: TENANTS - SHARE_MIN}
    assert "further surge moves wait" in leader.program.log.read_text()


def test_honest_nodes_get_all_moved_pods(plane: Plane, cluster: Api) -> None:
    deploy_tenants(cluster, "moved")
    open_both(plane, cluster, None)
    cluster.wait(PODS, lambda found: OLD not in by_node(found), MOVED_SECONDS)
