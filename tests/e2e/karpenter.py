"""Karpenter, a real autoscaler: its nodes are Node objects, and kwok plays their kubelets.

It makes nodes for pods that nothing has room for, and takes those that are empty. What it knows
is the API server's: a pool (NodePool), and a claim (NodeClaim) for each node.
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
"""An empty node is found within 10 s, looked at again after 15 s, and drained for at least 5 s."""
TYPE: Final = "m-4x"
KEPT: Final = {"cpu": "100m", "memory": "10Mi"}
"""What a node has less than its type; so nodes are of the load's shape."""
ROOM: Final = {"cpu": "4100m", "memory": "16394Mi", "pods": "110"}
NEVER: Final = "Never"
LATE: Final = "24h"
"""Longer than any test: with `Never` no node of the pool would be scalable."""


@contextmanager
def karpenter(plane: Plane) -> Iterator[None]:
    """Install its CRDs and run it, with a pool; afterwards take everything of its away."""
    crds = plane.bin / tools.CRDS
    plane.kubectl("apply", "-f", str(crds))
    plane.api.wait(DEFINITIONS, lambda found: found and all(map(_established, found.values())))
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
        plane.kubectl("delete", "-f", str(crds))


def set_pool(api: Api, after: str = LATE) -> None:
    """Make the pool, or change how long a node must have been empty before it is taken."""
    disruption = {
        "consolidationPolicy": "WhenEmpty",
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
    """Claim so many nodes of the pool without a pod that needs them; return their names."""
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
    """Take the pool away, and its nodes with all pods."""
    api.delete(f"{POOLS}/{POOL}")
    clear(api)
    api.delete(CLAIMS)
    for path in (CLAIMS, POOLS):
        api.wait(path, lambda found: not found, TAKEN_SECONDS)


def _head(kind: str) -> Json:
    return {"apiVersion": "karpenter.sh/v1", "kind": kind}


def _shape() -> Json:
    """Return what a claim and the pool's template say alike."""
    reference = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": POOL}
    chosen = {"node.kubernetes.io/instance-type": TYPE, "karpenter.sh/capacity-type": "on-demand"}
    requirements = [{"key": k, "operator": "In", "values": [v]} for k, v in chosen.items()]
    return {"nodeClassRef": reference, "requirements": requirements}


def _types(folder: Path) -> Path:
    """Write the one type of node that there is."""
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
