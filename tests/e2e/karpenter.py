"""Run Karpenter; its nodes are Node objects, and kwok simulates their kubelets.

Karpenter adds nodes for unschedulable pods and removes empty nodes. Its state is in the API
server: a NodePool, and a NodeClaim for each node.
"""

import json
import signal
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.e2e import tools
from tests.e2e.api import Api, Json, RefusedError
from tests.e2e.objects import NODES, clear, ready
from tests.e2e.plane import LOOPBACK, Plane, free_port, until

POOLS: Final = "/apis/karpenter.sh/v1/nodepools"
CLAIMS: Final = "/apis/karpenter.sh/v1/nodeclaims"
CLASSES: Final = "/apis/karpenter.kwok.sh/v1alpha1/kwoknodeclasses"
DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
POOL: Final = "e2e"
POOL_LABEL: Final = "karpenter.sh/nodepool"
FINALIZER: Final = "karpenter.sh/termination"
TAKEN_SECONDS: Final = 90.0
"""An empty node is found within 10 s, validated after 15 s, and drained for at least 5 s."""
EMPTY: Final = "WhenEmpty"
BALANCED: Final = "Balanced"
"""Policy that also replaces or removes nodes with pods, if the savings justify the disruption."""
TYPE: Final = "m-4x"
KEPT: Final = {"cpu": "100m", "memory": "10Mi"}
"""Resources that Karpenter reserves on a node; with it nodes have the shape of the load."""
ROOM: Final = {"cpu": "4100m", "memory": "16394Mi", "pods": "110"}
NEVER: Final = "Never"
LATE: Final = "24h"
"""Longer than any test: with `Never` no node of the pool would be scalable."""


@contextmanager
def defined(plane: Plane) -> Iterator[None]:
    """Install the CRDs of Karpenter; remove them afterwards."""
    crds = str(plane.bin / tools.CRDS)
    plane.kubectl("apply", "-f", crds)
    plane.api.wait(DEFINITIONS, lambda found: found and all(map(_established, found.values())))
    try:
        yield
    finally:
        plane.kubectl("delete", "-f", crds)


@contextmanager
def karpenter(plane: Plane) -> Iterator[None]:
    """Install the CRDs, run Karpenter with a NodePool; remove everything afterwards."""
    with defined(plane):
        yield from _running(plane)


def _running(plane: Plane) -> Iterator[None]:
    reference = {"metadata": {"name": POOL}, "kind": "KWOKNodeClass", "spec": {}}
    plane.api.create(CLASSES, {"apiVersion": "karpenter.kwok.sh/v1alpha1", **reference})
    port = free_port()
    program = plane.run(
        "karpenter",
        [str(plane.bin / "karpenter")],
        KUBECONFIG=str(plane.kubeconfig("karpenter")),
        SYSTEM_NAMESPACE="kube-system",
        DISABLE_LEADER_ELECTION="true",
        METRICS_PORT=str(free_port()),
        HEALTH_PROBE_PORT=str(port),
        INSTANCE_TYPES_FILE_PATH=str(_types(plane.folder)),
        FEATURE_GATES="CapacityBuffer=true",
    )

    def answers() -> bool:
        if not program.running:
            raise AssertionError(f"karpenter ended:\n{program.tail()}")
        try:
            with urllib.request.urlopen(f"http://{LOOPBACK}:{port}/readyz", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    until(answers, "karpenter /readyz")
    set_pool(plane.api)
    try:
        yield
    finally:
        drop_pool(plane.api)
        plane.end(program, signal.SIGKILL)


def set_pool(api: Api, after: str = LATE, policy: str = EMPTY) -> None:
    """Create the NodePool, or change after which time and by which policy it removes nodes."""
    disruption = {
        "consolidationPolicy": policy,
        "consolidateAfter": after,
        "budgets": [{"nodes": "100%"}],
    }
    try:
        api.merge(f"{POOLS}/{POOL}", {"spec": {"disruption": disruption}})
    except RefusedError as fault:
        if fault.status != 404:
            raise
        template = {"spec": {**_shape(), "expireAfter": NEVER}}
        spec = {"template": template, "disruption": disruption}
        api.create(POOLS, {**_head("NodePool"), "metadata": {"name": POOL}, "spec": spec})


def add_empty(api: Api, count: int) -> list[str]:
    """Create NodeClaims without pods that need them; return the names of their nodes."""
    before = {one["metadata"]["name"] for one in api.get(NODES)["items"]}
    labels = {POOL_LABEL: POOL}
    spec = {**_shape(), "resources": {"requests": ROOM}, "expireAfter": NEVER}
    for _ in range(count):
        metadata = {"generateName": f"{POOL}-", "labels": labels}
        api.create(CLAIMS, {**_head("NodeClaim"), "metadata": metadata, "spec": spec})
    api.wait(
        CLAIMS,
        lambda found: len(found) >= len(before) + count and all(map(_initialized, found.values())),
    )
    found = api.wait(NODES, lambda found: len(found) == len(before) + count and _ready(found))
    return sorted(found.keys() - before)


def drop_pool(api: Api) -> None:
    """Delete the NodePool with its nodes and all pods."""
    api.delete(f"{POOLS}/{POOL}")
    clear(api)
    api.delete(CLAIMS)
    for path in (CLAIMS, POOLS):
        api.wait(path, lambda found: not found, TAKEN_SECONDS)


def _head(kind: str) -> Json:
    return {"apiVersion": "karpenter.sh/v1", "kind": kind}


def _shape() -> Json:
    """Return the fields that a NodeClaim and the template of the NodePool share."""
    reference = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": POOL}
    chosen = {"node.kubernetes.io/instance-type": TYPE, "karpenter.sh/capacity-type": "on-demand"}
    requirements = [{"key": k, "operator": "In", "values": [v]} for k, v in chosen.items()]
    return {"nodeClassRef": reference, "requirements": requirements}


def _types(folder: Path) -> Path:
    """Write the only instance type."""
    offered = {"karpenter.sh/capacity-type": "on-demand", "topology.kubernetes.io/zone": "zone-a"}
    requirements = [{"key": k, "operator": "In", "values": [v]} for k, v in offered.items()]
    offering = {"Price": 0.2, "Available": True, "Requirements": requirements}
    one = {
        "name": TYPE,
        "offerings": [offering],
        "architecture": "amd64",
        "operatingSystems": ["linux"],
        "resources": ROOM,
    }
    path = folder / "instance-types.json"
    path.write_text(json.dumps([one]))
    return path


def _established(found: Json) -> bool:
    return _is(found, "Established")


def _initialized(found: Json) -> bool:
    return _is(found, "Initialized")


def _is(found: Json, condition: str) -> bool:
    conditions: Sequence[Json] = found.get("status", {}).get("conditions") or ()
    return any(one["type"] == condition and one["status"] == "True" for one in conditions)


def _ready(found: Mapping[str, Json]) -> bool:
    return all(map(ready, found.values()))
