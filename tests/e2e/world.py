"""A drawn cluster on the API server, whose pods kube-scheduler places, and Ebb's model of it."""

import json
import random
from collections.abc import Iterable
from dataclasses import replace

from core.marks.wellknown import TAINT_KEY
from core.model.cluster import Cluster
from core.placement.filters import first_failing_filter
from core.placement.node_order import NodeOrder
from core.placement.packer import Packer
from tests.e2e.api import Api, Json
from tests.e2e.drawn import Drawn, name_of
from tests.e2e.objects import NODES, TAINT, mark
from tests.e2e.oracle import ALL_PODS, Choice, Oracle, Verdict, key_of, nowhere, only, pods_of
from tests.e2e.random_terms import NAMESPACES
from tests.support.kube_json import cluster_from_dumps

CLAIMS = "/api/v1/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"
CSI_NODES = "/apis/storage.k8s.io/v1/csinodes"
ATTACHMENTS = "/apis/storage.k8s.io/v1/volumeattachments"
CORDON = "node.kubernetes.io/unschedulable"


class DifferenceError(AssertionError):
    """Ebb would place a pod on a node that kube-scheduler rejects."""


class World:
    """A cluster on the API server, and the same cluster in Ebb's model."""

    def __init__(self, api: Api, oracle: Oracle, drawn: Drawn) -> None:
        self._api, self._oracle, self._seed = api, oracle, drawn.seed
        self._pods = {key_of(pod): pod for pod in drawn.pods}
        """Pods by their key in the model; a recreated pod has another name on the API server."""
        self._lives = dict.fromkeys(self._pods, 0)
        self._drawn = drawn
        self.cluster = Cluster((), ())
        self.closed: set[str] = set()
        """Unschedulable nodes: cordoned, or removed by the plan."""
        self.asked = 0
        """Number of comparisons, each for one pod and all nodes."""
        self.pairs = 0
        """Number of pairs of pod and node that both accept."""
        self.stricter: list[str] = []
        """Descriptions of pairs that only Ebb rejects."""

    def build(self) -> None:
        """Create all objects, and read the cluster."""
        self._create_nodes()
        self._create_volumes()
        self._oracle.follow()
        for key, pod in self._pods.items():
            if "nodeName" in pod["spec"]:
                self._bind(key, pod["spec"]["nodeName"])
                if key in self._drawn.leaving:
                    self._api.delete(self._path(key), gracePeriodSeconds=0)
            else:
                waits = key in self._drawn.waiting
                self._oracle.place(pod, nowhere if waits else self._any_of(key))
        self.cluster = self.read()
        self.closed = {node.name for node in self.cluster.nodes if node.unschedulable}

    def _any_of(self, key: str) -> Choice:
        def choose(left: list[str]) -> str:
            return random.Random(f"{self._seed} {key}").choice(left)

        return choose

    def _create_nodes(self) -> None:
        for one in self._drawn.csi_nodes:
            self._api.create(CSI_NODES, one)
        for one in self._drawn.nodes:
            self._api.create(NODES, one)
        names = [name_of(one) for one in self._drawn.nodes]
        self._api.wait(NODES, lambda found: all(n in found and _settled(found[n]) for n in names))

    def _create_volumes(self) -> None:
        for one in self._drawn.volumes:
            self._api.create(VOLUMES, one)
        for one in self._drawn.attachments:
            self._api.create(ATTACHMENTS, one)
        for one in self._drawn.claims:
            path = f"/api/v1/namespaces/{one['metadata']['namespace']}/persistentvolumeclaims"
            self._api.create(path, one)
        names = [name_of(one) for one in self._drawn.claims]
        self._api.wait(
            CLAIMS,
            lambda found: all(
                n in found and found[n]["status"].get("phase") == "Bound" for n in names
            ),
        )

    def read(self) -> Cluster:
        """Read the cluster as `ebb plan` does."""
        paths = (NODES, ALL_PODS, CLAIMS, VOLUMES, CSI_NODES)
        found = {path: self._api.get(path) for path in (*paths, ATTACHMENTS)}
        # The attach-detach controller also creates VolumeAttachments for pods. They follow the
        # pods, so the model counts the volumes of the pods instead.
        drawn = {name_of(one) for one in self._drawn.attachments}
        found[ATTACHMENTS]["items"] = [
            one for one in found[ATTACHMENTS]["items"] if name_of(one) in drawn
        ]
        return cluster_from_dumps([(p, json.dumps(one).encode()) for p, one in found.items()])

    def lift(self, keys: Iterable[str]) -> None:
        """Delete pods, to recreate them."""
        gone = set(keys)
        for key in sorted(gone):
            self._api.delete(self._path(key), gracePeriodSeconds=0)
            self._lives[key] += 1
        self._set(dict.fromkeys(gone))

    def _now(self, key: str) -> Json:
        """Return the pod with its current name."""
        pod, life = self._pods[key], self._lives[key]
        name = f"{name_of(pod)}-{life}" if life else name_of(pod)
        return {**pod, "metadata": {**pod["metadata"], "name": name}}

    def _path(self, key: str) -> str:
        pod = self._now(key)
        return f"{pods_of(pod['metadata']['namespace'])}/{name_of(pod)}"

    def _bind(self, key: str, node: str) -> None:
        """Create the pod on a node, without the scheduler."""
        pod = self._now(key)
        bound = {**pod, "spec": {**pod["spec"], "nodeName": node}}
        self._api.create(pods_of(pod["metadata"]["namespace"]), bound)

    def _set(self, nodes: dict[str, str | None]) -> None:
        pods = (
            replace(pod, node=nodes[pod.key]) if pod.key in nodes else pod
            for pod in self.cluster.pods
        )
        self.cluster = replace(self.cluster, pods=tuple(pods))

    def move(self, key: str, node: str) -> None:
        """Place a deleted pod on a node through the scheduler. Raises: DifferenceError."""
        verdict = self.ask(key, only(node))
        if verdict.node != node:
            raise DifferenceError(
                f"seed {self._seed}: Ebb places {key} on {node}, kube-scheduler reports:"
                f" {verdict.message}; it allows {sorted(verdict.allowed)}"
            )
        self._set({key: node})

    def look(self, key: str) -> None:
        """Compare both for a pod in the current state, and restore the pod."""
        was = next(pod.node for pod in self.cluster.pods if pod.key == key)
        self.lift([key])
        verdict = self.ask(key, nowhere if was is None else only(was))
        if was is not None and verdict.node is None:
            self.lift([key])
            self._bind(key, was)
        self._set({key: was})

    def ask(self, key: str, choice: Choice) -> Verdict:
        """Compare both for a deleted pod and every node. Raises: DifferenceError."""
        expected = self.expected(key)
        verdict = self._oracle.place(self._now(key), choice)
        if expected - verdict.allowed:
            # The scheduler may have received changes late; by now it has them.
            self.lift([key])
            verdict = self._oracle.place(self._now(key), choice)
        self.asked += 1
        self.pairs += len(expected)
        if wrong := expected - verdict.allowed:
            raise DifferenceError(
                f"seed {self._seed}: Ebb would place {key} on {sorted(wrong)},"
                f" kube-scheduler only on {sorted(verdict.allowed)} {verdict.message}"
            )
        for node in sorted(verdict.allowed - expected - self.closed):
            self.stricter.append(f"{key} on {node}: {self._why_not(key, node)}")
        return verdict

    def _why_not(self, key: str, node: str) -> str:
        names = {other.name for other in self.cluster.nodes}
        pod = next(pod for pod in self.cluster.pods if pod.key == key)
        found = next(other for other in self.cluster.nodes if other.name == node)
        packer = Packer(
            self.cluster, NodeOrder(self.cluster, TAINT_KEY, names - {node}), movable=[[pod]]
        )
        attempt = packer.try_place([0])
        return first_failing_filter(found, pod.node_constraints) or packer.explain(0, -1, attempt)

    def expected(self, key: str) -> frozenset[str]:
        """Return the nodes on which Ebb would place the pod in the current state."""
        pod = next(pod for pod in self.cluster.pods if pod.key == key)
        found: set[str] = set()
        while True:
            ground = NodeOrder(self.cluster, TAINT_KEY, self.closed | found)
            packer = Packer(self.cluster, ground, movable=[[pod]])
            attempt = packer.try_place([0])
            if not attempt.assignments:
                return frozenset(found)
            found.add(packer.nodes[attempt.assignments[0][1]].name)

    def check(self) -> None:
        """Check that all pods are on the nodes of the model. Raises: AssertionError."""
        found = self._api.get(ALL_PODS)["items"]
        stand = {key_of(pod): pod["spec"].get("nodeName") for pod in found}
        meant = {key_of(self._now(pod.key)): pod.node for pod in self.cluster.pods}
        assert stand == meant, sorted(stand.items() ^ meant.items(), key=repr)

    def leave(self, node: str) -> None:
        """Mark and taint a node as Ebb does, and treat it as unschedulable."""
        found = mark(self._api, node)
        taints = [*(found["spec"].get("taints") or ()), TAINT]
        self._api.merge(f"{NODES}/{node}", {"spec": {"taints": taints}})
        self.closed.add(node)

    def clear(self) -> None:
        """Delete everything that could affect the next cluster."""
        for key in sorted(self._drawn.leaving):
            self._api.merge(self._path(key), {"metadata": {"finalizers": None}})
        for namespace in NAMESPACES:
            self._api.delete(pods_of(namespace), gracePeriodSeconds=0)
            self._api.delete(f"/api/v1/namespaces/{namespace}/persistentvolumeclaims")
        for path in (NODES, CSI_NODES, ATTACHMENTS, VOLUMES):
            self._api.delete(path)
        for path in (ALL_PODS, NODES):
            self._api.wait(path, lambda found: not found)


def _settled(node: Json) -> bool:
    """Return whether the controller manager has set all taints of the node."""
    keys = {taint["key"] for taint in node["spec"].get("taints") or ()}
    cordoned = bool(node["spec"].get("unschedulable"))
    return (CORDON in keys) == cordoned and not any(
        key.startswith("node.kubernetes.io/") for key in keys - {CORDON}
    )
