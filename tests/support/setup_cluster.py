"""A cluster whose setup around Ebb is right, as objects that tests break one by one."""

from base64 import b64encode
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import orjson

from cli.doctor.finding import Facts
from cli.input import reader
from cli.input.cluster_input import ClusterInput, Leader, Running
from cli.input.setup import ApiTime, ExtenderCalls, Read, viewer_rights
from controller.leader_report import LeaderFacts, RefusedWrites, Report
from core.config.document import parse
from core.config.settings import API_VERSION, KIND
from kube.dump import from_dumps
from kube.target import NAMESPACE
from serving import tls
from tests.manifests.kustomize import MANIFESTS, documents, with_components
from tests.platforms.objects import autoscaler_status

Json = dict[str, Any]
NOW = 1_767_225_600
STARTED, LATER = "2025-12-31T23:00:00Z", "2025-12-31T23:30:00Z"
SETTINGS: Json = {
    "mode": "enforce",
    "noScheduleAfter": "1h",
    "eviction": {"mode": "enabled"},
    "surge": {"mode": "enabled"},
}
"""Settings with which every check matters."""
COMPONENTS = ("extender", "eviction", "pod-deletion-cost", "capacity-buffers", "surge")
AUTOSCALER = "Deployment kube-system/cluster-autoscaler"
FLAGS = (
    "./cluster-autoscaler",
    "--max-drain-parallelism=0",
    "--scale-down-unneeded-time=1m",
    "--scale-down-delay-after-add=2m",
)
SCHEDULER = "Pod kube-system/kube-scheduler-cp-1"
REGISTRATION = "MutatingWebhookConfiguration ebb-webhook"
FILE = "kube-scheduler-config.yaml"
NOT_SERVED = ("MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding")
"""Kinds that an API server before Kubernetes 1.36 does not serve, so that it has no objects."""


def key_of(one: Json) -> str:
    """Return the name of an object as findings show it."""
    meta = one["metadata"]
    namespace = f"{meta['namespace']}/" if "namespace" in meta else ""
    return f"{one['kind']} {namespace}{meta['name']}"


def of_kind(kind: str, name: str, namespace: str | None = None, **more: Any) -> Json:
    """Return an object."""
    where = {"namespace": namespace} if namespace else {}
    labels = {"labels": more.pop("labels")} if "labels" in more else {}
    metadata = {"name": name, **where, **labels, **more.pop("metadata", {})}
    return {"kind": kind, "metadata": metadata, **more}


def container(image: str, *command: str) -> Json:
    requests = {"cpu": "100m", "memory": "64Mi"}
    resources = {"requests": requests}
    return {"name": "main", "image": image, "command": list(command), "resources": resources}


def pod(name: str, namespace: str, *command: str, image: str = "app", **metadata: Any) -> Json:
    """Return a running Pod."""
    metadata = {"creationTimestamp": STARTED, **metadata}
    spec = {"nodeName": "n1", "containers": [container(image, *command)]}
    status = {"phase": "Running"}
    return of_kind("Pod", name, namespace, metadata=metadata, spec=spec, status=status)


def deployment(name: str, namespace: str, image: str, *command: str) -> Json:
    template = {"spec": {"containers": [container(image, *command)]}}
    return of_kind("Deployment", name, namespace, spec={"replicas": 1, "template": template})


def daemon_set(name: str, *tolerations: Json) -> Json:
    spec = {"tolerations": list(tolerations), "containers": [container("agent")]}
    return of_kind("DaemonSet", name, "kube-system", spec={"template": {"spec": spec}})


def node_pool(name: str, **disruption: Any) -> Json:
    spec = {"disruption": disruption}
    return {"apiVersion": "karpenter.sh/v1", **of_kind("NodePool", name, spec=spec)}


def endpoint_slice(*, ready: bool = True) -> Json:
    labels = {"kubernetes.io/service-name": "ebb-webhook"}
    endpoints = [{"addresses": ["10.0.0.1"], "conditions": {"ready": ready}}]
    return of_kind("EndpointSlice", "ebb-webhook-1", NAMESPACE, labels=labels, endpoints=endpoints)


def budget(name: str, *, desired: int, allowed: int) -> Json:
    status = {"disruptionsAllowed": allowed, "desiredHealthy": desired, "expectedPods": 3}
    return of_kind("PodDisruptionBudget", name, "shop", spec={}, status=status)


@cache
def bundle(at: int) -> str:
    """Return a caBundle with a CA that begins at a time."""
    return b64encode(tls.make_ca(at).certificate).decode()


@cache
def _healthy() -> Mapping[str, Json]:
    status = autoscaler_status({})
    extender: Json = {"labels": {"app.kubernetes.io/component": "extender"}}
    allocatable = {"cpu": "4", "memory": "16Gi", "pods": "110"}
    ready = [{"type": "Ready", "status": "True"}]
    objects = [
        *with_components(*COMPONENTS),
        of_kind("Node", "n1", status={"allocatable": allocatable, "conditions": ready}),
        pod("ebb-extender-1", NAMESPACE, **extender),
        pod("web-1", "shop", creationTimestamp=LATER),
        pod("kube-scheduler-cp-1", "kube-system", "kube-scheduler", "--config=/etc/kubernetes/x"),
        deployment("cluster-autoscaler", "kube-system", "k8s/cluster-autoscaler:v1.36.1", *FLAGS),
        {"kind": "ConfigMap", **status},
        daemon_set("agent", {"operator": "Exists"}),
        budget("web", desired=2, allowed=1),
        node_pool("default", consolidationPolicy="WhenEmpty", consolidateAfter="30s"),
        endpoint_slice(),
        {"kind": "CapacityBuffer", "metadata": {"name": "b", "namespace": NAMESPACE}},
    ]
    found = {key_of(one): one for one in objects}
    webhook = found[REGISTRATION]["webhooks"][0]
    webhook["clientConfig"]["caBundle"] = bundle(NOW)
    return found


@dataclass
class SetupCluster:
    """Objects by name, settings, and what only a live cluster has; by default all is right."""

    objects: dict[str, Json] = field(default_factory=lambda: deepcopy(dict(_healthy())))
    settings: Json = field(default_factory=lambda: dict(SETTINGS))
    scored: int = 7
    refused: int = 0
    local_seconds: int = NOW
    renewed_seconds: int = NOW - 2
    lease_problem: str | None = None
    refused_moves: dict[str, int] = field(default_factory=dict)
    refused_writes: list[RefusedWrites] = field(default_factory=list)
    denied: str = ""
    """Resource that the user may not list."""
    scheduler: Json | None = field(
        default_factory=lambda: documents(MANIFESTS / "scheduler" / FILE)[0]
    )
    where: str = "d.json"
    none: tuple[str, ...] = ()
    """Further kinds than NOT_SERVED of which a live cluster has no object."""
    absent: dict[str, str] = field(default_factory=dict)
    """Kinds that a live cluster does not serve, with the error."""
    live: bool = True
    """The facts are those of a live cluster; False: those of a dump."""

    def put(self, *objects: Json) -> None:
        """Create or replace objects."""
        self.objects |= {key_of(one): one for one in objects}

    def flags(self, *flags: str) -> None:
        """Set the flags of Cluster Autoscaler."""
        image = "k8s/cluster-autoscaler:v1.36.1"
        self.put(deployment("cluster-autoscaler", "kube-system", image, FLAGS[0], *flags))

    def without(self, *kinds: str) -> None:
        """Remove all objects of these kinds."""
        self.objects = {key: one for key, one in self.objects.items() if one["kind"] not in kinds}

    def dump(self) -> bytes:
        """Return the objects as a dump."""
        return orjson.dumps({"kind": "List", "items": list(self.objects.values())})

    def facts(self) -> Facts:
        """Return the facts of this cluster."""
        head = {"apiVersion": API_VERSION, "kind": KIND}
        config = parse({**head, **self.settings}, "c.yaml")
        dumps = [("d.json", self.dump())]
        cluster, kinds, surge_objects = from_dumps(dumps, config.read_options, [])
        setup = reader.setup_in(dumps)
        rights = viewer_rights(config, NAMESPACE)
        if self.live:
            served = {one["kind"] for one in self.objects.values()}
            none = (*self.none, *(NOT_SERVED if served.isdisjoint(NOT_SERVED) else ()))
            calls = ExtenderCalls({"scored": self.scored, "refused": self.refused}, 1)
            setup = replace(
                setup,
                objects={**setup.objects, **{kind: Read(()) for kind in none}},
                access=Read({one: one.resource != self.denied for one in rights}),
                extender=Read(calls),
                api_time=Read(ApiTime(NOW, self.local_seconds)),
            )
        leader = Leader(
            lease="l",
            holder="a",
            renewed_seconds=self.renewed_seconds,
            duration_seconds=15,
            problem=self.lease_problem,
            unread=self.lease_problem is not None,
        )
        leader_facts = LeaderFacts(
            refused_moves=self.refused_moves, refused_writes=self.refused_writes
        )
        report = Report(facts=leader_facts)
        cluster_input = ClusterInput(
            cluster=cluster,
            config=config,
            where=self.where,
            kinds=None if self.absent else kinds,
            absent=self.absent,
            running=Running(leader, report) if self.live else None,
            setup=setup,
            surge_objects=surge_objects,
        )
        return Facts(
            cluster_input=cluster_input,
            now_seconds=NOW,
            scheduler_file=FILE if self.scheduler else "",
            scheduler=self.scheduler,
        )


Break = Callable[[SetupCluster], object]
"""Breaks one thing of a cluster."""
