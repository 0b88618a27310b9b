"""The Deployment controller, kube-scheduler and kubelets of the fake API server, step by step."""

import itertools
from collections.abc import Iterable
from copy import deepcopy
from datetime import UTC, datetime
from typing import Any, Final

from core.marks.wellknown import COST_ANNOTATION
from core.model.pod import TEMPLATE_LABEL
from tests.support.fake_api import FakeApi
from tests.support.fake_objects import Json

NAMESPACE: Final = "shop"
HASH: Final = "1"
OLD: Final = "2020-01-01T00:00:00Z"
NEW: Final = "2030-01-01T00:00:00Z"


def deployment_object(name: str, replicas: int, **spec: Any) -> Json:
    """Return a Deployment whose ReplicaSet has the hash HASH."""
    return {
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "uid": f"uid-{name}",
            "generation": 1,
            "annotations": {"deployment.kubernetes.io/revision": "1"},
        },
        "spec": {"replicas": replicas, "strategy": {"type": "RollingUpdate"}, **spec},
        "status": {},
    }


def replica_set_object(name: str) -> Json:
    """Return the ReplicaSet of a Deployment."""
    owner = {"kind": "Deployment", "name": name, "uid": f"uid-{name}", "controller": True}
    return {
        "metadata": {
            "name": f"{name}-{HASH}",
            "namespace": NAMESPACE,
            "uid": f"uid-{name}-{HASH}",
            "annotations": {"deployment.kubernetes.io/revision": "1"},
            "ownerReferences": [owner],
        },
        "spec": {"selector": {"matchLabels": {"app": name, TEMPLATE_LABEL: HASH}}},
    }


class FakeDeployments:
    """Replicas that start at once on a node, in the order of the ReplicaSet controller."""

    def __init__(self, api: FakeApi) -> None:
        self.api = api
        self.node = "n2"
        """Node of new pods; empty: they are unschedulable."""
        self.start_ready = True
        self.ready_seconds = 0
        """Unix second since which new pods are Ready; 0: since OLD."""
        self.run = True
        """The controller manager runs."""
        self.quota = ""
        """Message with which the API server rejects new pods; empty if it accepts them."""
        self.ready: list[int] = []
        """Number of Ready pods of all Deployments after each step."""
        self._numbers = itertools.count(1)

    def create(self, name: str, *nodes: str, **spec: Any) -> None:
        """Create a Deployment with one Ready pod on each of the nodes."""
        found = self.api.put("deployments", deployment_object(name, len(nodes), **spec))
        self.api.put("replicasets", replica_set_object(name))
        for node in nodes:
            self._add_pod(name, node, since=OLD)
        self._update(found)

    def pods(self, name: str) -> list[Json]:
        """Return the pods of a Deployment, detached ones too."""
        return [one for one in self.api.objects["pods"].values() if _owner(one, name) is not None]

    def deployment(self, name: str) -> Json:
        return self.api.objects["deployments"][f"{NAMESPACE}/{name}"]

    def change_spec(self, name: str, **spec: Any) -> None:
        """Change the spec of a Deployment as another client does."""
        changed = deepcopy(self.deployment(name))
        changed["metadata"]["generation"] += 1
        changed["spec"] |= spec
        self.api.put("deployments", changed)

    def step(self) -> None:
        """Adopt, create and delete pods as the Deployments want, and write their status."""
        if self.run:
            for found in [*self.api.objects["deployments"].values()]:
                self._scale(found)
                self._update(found)
        pods = self.api.objects["pods"].values()
        self.ready.append(sum(map(_is_ready, pods)))

    def _scale(self, found: Json) -> None:
        name, wanted = found["metadata"]["name"], found["spec"]["replicas"]
        pods = [self._adopted(one, name) for one in self.pods(name) if _has_hash(one)]
        pods = [one for one in pods if one["status"]["phase"] in ("Running", "Pending")]
        for _ in range(0 if self.quota else wanted - len(pods)):
            self._add_pod(name, self.node, since=self._since() if self.start_ready else "")
        for one in sorted(pods, key=_rank)[: max(len(pods) - wanted, 0)]:
            self.api.remove("pods", f"{NAMESPACE}/{one['metadata']['name']}")

    def _adopted(self, pod: Json, name: str) -> Json:
        owner = _owner(pod, name)
        if owner is None or owner["controller"] or pod["status"]["phase"] == "Failed":
            return pod
        changed = deepcopy(pod)
        changed["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
        return self.api.put("pods", changed)

    def _since(self) -> str:
        return _time(self.ready_seconds) if self.ready_seconds else OLD

    def _add_pod(self, name: str, node: str, *, since: str) -> None:
        """Create a pod that is Ready *since* a time; empty: it is not Ready."""
        number = next(self._numbers)
        owner = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "name": f"{name}-{HASH}",
            "uid": f"uid-{name}-{HASH}",
            "controller": True,
            "blockOwnerDeletion": True,
        }
        unschedulable = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
        ready = [{"type": "Ready", "status": str(bool(since)), "lastTransitionTime": since or NEW}]
        pod: Json = {
            "metadata": {
                "name": f"{name}-1-{number}",
                "namespace": NAMESPACE,
                "uid": f"uid-pod-{number}",
                "creationTimestamp": OLD if self._is_first(name) else NEW,
                "labels": {"app": name, TEMPLATE_LABEL: HASH},
                "ownerReferences": [owner],
            },
            "spec": {
                "containers": [{"name": "c", "resources": {"requests": {"cpu": "100m"}}}],
                **({"nodeName": node} if node else {}),
            },
            "status": {
                "phase": "Running" if node else "Pending",
                "conditions": ready if node else unschedulable,
            },
        }
        self.api.put("pods", pod)

    def _is_first(self, name: str) -> bool:
        return not self.deployment(name)["status"]

    def _update(self, found: Json) -> None:
        changed = deepcopy(found)
        pods = [one for one in self.pods(found["metadata"]["name"]) if _is_controlled(one)]
        missing = len(pods) < found["spec"]["replicas"]
        failure = {"type": "ReplicaFailure", "status": "True", "message": self.quota}
        changed["status"] = {
            "observedGeneration": found["metadata"]["generation"],
            "replicas": len(pods),
            "updatedReplicas": len(pods),
            "availableReplicas": sum(map(_is_ready, pods)),
            "conditions": [failure] if self.quota and missing else [],
        }
        if changed != found:
            self.api.put("deployments", changed)

    def let_be_ready(self, *, since_seconds: int = 0) -> None:
        """Let all pods on nodes become Ready; they have been since this Unix second."""
        for pod in [*self.api.objects["pods"].values()]:
            if not _is_ready(pod) and "nodeName" in pod["spec"]:
                changed = deepcopy(pod)
                since = _time(since_seconds) if since_seconds else OLD
                (condition,) = changed["status"]["conditions"]
                condition |= {"status": "True", "lastTransitionTime": since}
                self.api.put("pods", changed)


def _time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _owner(pod: Json, name: str) -> Json | None:
    """Return the owner reference of a pod to the ReplicaSet of a Deployment."""
    owners = pod["metadata"].get("ownerReferences", ())
    return next((one for one in owners if one["name"] == f"{name}-{HASH}"), None)


def _has_hash(pod: Json) -> bool:
    return bool(pod["metadata"]["labels"].get(TEMPLATE_LABEL) == HASH)


def _is_controlled(pod: Json) -> bool:
    return any(one["controller"] for one in pod["metadata"]["ownerReferences"])


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
