"""The Deployment controller, kube-scheduler and kubelets of the fake API server, step by step."""

import itertools
from collections.abc import Iterable
from copy import deepcopy
from typing import Any, Final

from core.marks.wellknown import COST_ANNOTATION
from tests.support.fake_api import FakeApi
from tests.support.fake_objects import Json

NAMESPACE: Final = "shop"
OLD: Final = "2020-01-01T00:00:00Z"


def deployment_object(name: str, replicas: int, **spec: Any) -> Json:
    """Return a Deployment whose replicas kubectl has set."""
    owned: Json = {"f:spec": {"f:replicas": {}}}
    return {
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "uid": f"uid-{name}",
            "generation": 1,
            "annotations": {"deployment.kubernetes.io/revision": "1"},
            "managedFields": [{"manager": "kubectl", "fieldsV1": owned}],
        },
        "spec": {"replicas": replicas, "strategy": {"type": "RollingUpdate"}, **spec},
        "status": {},
    }


class FakeDeployments:
    """Replicas that start at once on a node, in the order of the ReplicaSet controller."""

    def __init__(self, api: FakeApi) -> None:
        self.api = api
        self.node = "n2"
        """Node of new pods; empty: they are unschedulable."""
        self.start_ready = True
        self.start_available = True
        """False: new pods are Ready, but not for `minReadySeconds`."""
        self.quota = ""
        """Message with which the API server rejects new pods; empty if it accepts them."""
        self.ready: list[int] = []
        """Number of Ready pods of all Deployments after each step."""
        self._numbers = itertools.count(1)
        self._unavailable: set[str] = set()

    def create(self, name: str, *nodes: str, **spec: Any) -> None:
        """Create a Deployment with one Ready pod on each of the nodes."""
        found = self.api.put("deployments", deployment_object(name, len(nodes), **spec))
        owner = {"kind": "Deployment", "name": name, "uid": f"uid-{name}", "controller": True}
        meta = {
            "name": f"{name}-1",
            "namespace": NAMESPACE,
            "annotations": {"deployment.kubernetes.io/revision": "1"},
            "ownerReferences": [owner],
        }
        self.api.put("replicasets", {"metadata": meta})
        for node in nodes:
            self._add_pod(name, node, ready=True)
        self._update(found)

    def pods(self, name: str) -> list[Json]:
        """Return the pods of a Deployment."""
        return [
            one
            for one in self.api.objects["pods"].values()
            if any(of["name"] == f"{name}-1" for of in one["metadata"].get("ownerReferences", ()))
        ]

    def deployment(self, name: str) -> Json:
        return self.api.objects["deployments"][f"{NAMESPACE}/{name}"]

    def replicas(self, name: str) -> int:
        found: int = self.deployment(name)["spec"]["replicas"]
        return found

    def set_replicas(self, name: str, replicas: int, manager: str) -> None:
        """Set the replicas as another client does."""
        self.api.set_replicas(self.deployment(name), replicas, manager)

    def step(self) -> None:
        """Create and delete pods as the Deployments want, and write their status."""
        for found in [*self.api.objects["deployments"].values()]:
            self._scale(found)
            self._update(found)
        pods = self.api.objects["pods"].values()
        self.ready.append(sum(map(_is_ready, pods)))

    def _scale(self, found: Json) -> None:
        name, wanted = found["metadata"]["name"], found["spec"]["replicas"]
        pods = self.pods(name)
        for _ in range(0 if self.quota else wanted - len(pods)):
            made = self._add_pod(name, self.node, ready=self.start_ready and bool(self.node))
            if not self.start_available:
                self._unavailable.add(made)
        for one in sorted(pods, key=_rank)[: max(len(pods) - wanted, 0)]:
            self.api.remove("pods", f"{NAMESPACE}/{one['metadata']['name']}")

    def _add_pod(self, name: str, node: str, *, ready: bool) -> str:
        number = next(self._numbers)
        owner = {"kind": "ReplicaSet", "name": f"{name}-1", "controller": True}
        unschedulable = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
        conditions = [{"type": "Ready", "status": str(ready)}]
        pod: Json = {
            "metadata": {
                "name": f"{name}-1-{number}",
                "namespace": NAMESPACE,
                "uid": f"uid-pod-{number}",
                "creationTimestamp": OLD if ready else "2030-01-01T00:00:00Z",
                "ownerReferences": [owner],
            },
            "spec": {
                "containers": [{"name": "c", "resources": {"requests": {"cpu": "100m"}}}],
                **({"nodeName": node} if node else {}),
            },
            "status": {
                "phase": "Running" if node else "Pending",
                "conditions": conditions if node else unschedulable,
            },
        }
        self.api.put("pods", pod)
        made: str = pod["metadata"]["name"]
        return made

    def _update(self, found: Json) -> None:
        changed = deepcopy(found)
        pods = self.pods(found["metadata"]["name"])
        missing = len(pods) < found["spec"]["replicas"]
        failure = {"type": "ReplicaFailure", "status": "True", "message": self.quota}
        changed["status"] = {
            "observedGeneration": found["metadata"]["generation"],
            "replicas": len(pods),
            "updatedReplicas": len(pods),
            "availableReplicas": sum(map(self._is_available, pods)),
            "conditions": [failure] if self.quota and missing else [],
        }
        if changed != found:
            self.api.put("deployments", changed)

    def let_be_available(self) -> None:
        """Let the time `minReadySeconds` pass."""
        self.start_available = True
        self._unavailable.clear()

    def _is_available(self, pod: Json) -> bool:
        return _is_ready(pod) and pod["metadata"]["name"] not in self._unavailable


def _is_ready(pod: Json) -> bool:
    return any(
        one["type"] == "Ready" and one["status"] == "True"
        for one in pod["status"].get("conditions", ())
    )


def _rank(pod: Json) -> tuple[bool, bool, int, str]:
    """Return the rank of a pod when pods are deleted; the lowest is deleted first."""
    cost = (pod["metadata"].get("annotations") or {}).get(COST_ANNOTATION, "0")
    return "nodeName" in pod["spec"], _is_ready(pod), int(cost), pod["metadata"]["name"]


def nodes_of(pods: Iterable[Json]) -> list[str]:
    """Return the nodes of pods, sorted."""
    return sorted(one["spec"].get("nodeName", "") for one in pods)
