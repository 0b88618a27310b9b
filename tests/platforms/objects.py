"""Kubernetes objects as API servers of real clusters hand them out, with all that Ebb must skip.

Names and ids follow from what they are of, so that the same dump comes out every time.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]
BORN = "2026-02-03T04:05:06Z"
HEARD = "2026-03-04T05:06:07Z"
SAFE = "bcdfghjklmnpqrstvwxz2456789"
"""The characters of the API server's generated names."""
WHOLE_DAY = 300
EVERYWHERE: list[Json] = [{"operator": "Exists"}]
OF_DAEMONS: list[Json] = [
    {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": effect}
    for key, effect in (
        ("not-ready", "NoExecute"),
        ("unreachable", "NoExecute"),
        ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
        ("pid-pressure", "NoSchedule"),
        ("unschedulable", "NoSchedule"),
    )
]
"""What the DaemonSet controller adds to each of its pods."""
BY_DEFAULT: list[Json] = [
    {
        "key": f"node.kubernetes.io/{key}",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": WHOLE_DAY,
    }
    for key in ("not-ready", "unreachable")
]
"""What admission adds to every pod that does not say otherwise."""


def digits(of: str, count: int, alphabet: str = "0123456789abcdef") -> str:
    """Return characters that follow from a text and look like chance."""
    number = int.from_bytes(hashlib.sha256(of.encode()).digest())
    found = []
    for _ in range(count):
        number, place = divmod(number, len(alphabet))
        found.append(alphabet[place])
    return "".join(found)


BOUND = {
    "pv.kubernetes.io/bind-completed": "yes",
    "pv.kubernetes.io/bound-by-controller": "yes",
}


def uid(of: str) -> str:
    """Return an object's UID."""
    one = digits(of, 32)
    return f"{one[:8]}-{one[8:12]}-4{one[13:16]}-a{one[17:20]}-{one[20:]}"


def _meta(kind: str, name: str, namespace: str | None, manager: str, **more: Any) -> Json:
    key = f"{kind}/{namespace}/{name}"
    of_labels: Json = {f"f:{label}": {} for label in more.get("labels", {})}
    managed = {
        "manager": manager,
        "operation": "Update",
        "apiVersion": "v1",
        "time": HEARD,
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:metadata": {"f:labels": {".": {}, **of_labels}}, "f:spec": {"f:x": {}}},
    }
    return {
        "name": name,
        **({"namespace": namespace} if namespace else {}),
        "uid": uid(key),
        "resourceVersion": str(int(digits(key, 7, "123456789"))),
        "creationTimestamp": BORN,
        **more,
        "managedFields": [managed],
    }


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What the nodes of a pool have in common."""

    cpu: str
    """Allocatable."""
    memory: str
    capacity_cpu: str
    capacity_memory: str
    pods: str = "110"
    disk: str = "47093746742"
    extended: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Json, ...] = ()
    os: str = "linux"
    image: str = "Ubuntu 24.04.2 LTS"
    kernel: str = "6.8.0-57-generic"
    kubelet: str = "v1.33.5"
    finalizers: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()
    """More types of conditions, all False, as node problem detectors write them."""


def taint(key: str, value: str = "", effect: str = "NoSchedule") -> Json:
    """Return a taint; an empty value is left out, as it is on the wire."""
    return {"key": key, **({"value": value} if value else {}), "effect": effect}


def node(
    name: str,
    machine: Machine,
    *,
    provider_id: str | None = None,
    zone: str | None = None,
    labels: Mapping[str, str] | None = None,
    taints: Iterable[Json] = (),
    ready: bool = True,
    cordoned: bool = False,
) -> Json:
    """Return a Node."""
    own: Json = {
        "beta.kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/os": machine.os,
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": machine.os,
        **machine.labels,
        **(_zone(zone) if zone else {}),
        **(labels or {}),
    }
    all_taints = [*machine.taints, *taints]
    if cordoned:
        all_taints.append(taint("node.kubernetes.io/unschedulable") | {"timeAdded": HEARD})
    more: Json = {"finalizers": list(machine.finalizers)} if machine.finalizers else {}
    notes = {"node.alpha.kubernetes.io/ttl": "0", **machine.annotations}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": _meta("Node", name, None, "kubelet", labels=own, annotations=notes, **more),
        "spec": {
            **({"providerID": provider_id} if provider_id else {}),
            **({"taints": all_taints} if all_taints else {}),
            **({"unschedulable": True} if cordoned else {}),
        },
        "status": _status(name, machine, ready=ready),
    }


def _zone(zone: str) -> dict[str, str]:
    region = zone.rstrip("abc").rstrip("-") if zone[-1] in "abc" else zone.rpartition("-")[0]
    old = "failure-domain.beta.kubernetes.io"
    return {
        "topology.kubernetes.io/zone": zone,
        "topology.kubernetes.io/region": region,
        f"{old}/zone": zone,
        f"{old}/region": region,
    }


def _status(name: str, machine: Machine, *, ready: bool) -> Json:
    common = {
        "ephemeral-storage": machine.disk,
        "hugepages-1Gi": "0",
        "hugepages-2Mi": "0",
        "pods": machine.pods,
        **machine.extended,
    }
    pressures = ("MemoryPressure", "DiskPressure", "PIDPressure", *machine.conditions)
    conditions = [_condition(kind, "False", f"KubeletHasNo{kind}") for kind in pressures]
    conditions.append(_condition("Ready", "True" if ready else "Unknown", "KubeletReady"))
    return {
        "addresses": [
            {"type": "InternalIP", "address": f"10.0.{len(name)}.{sum(name.encode()) % 250}"},
            {"type": "Hostname", "address": name},
        ],
        "allocatable": {"cpu": machine.cpu, "memory": machine.memory, **common},
        "capacity": {"cpu": machine.capacity_cpu, "memory": machine.capacity_memory, **common},
        "conditions": conditions,
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        "images": [
            {
                "names": [f"registry.example/{app}@sha256:{digits(app, 64)}", f"{app}:v1"],
                "sizeBytes": 31_234_567,
            }
            for app in ("pause", "proxy", "app")
        ],
        "nodeInfo": {
            "architecture": "amd64",
            "bootID": uid(f"boot {name}"),
            "containerRuntimeVersion": "containerd://2.0.5",
            "kernelVersion": machine.kernel,
            "kubeProxyVersion": machine.kubelet,
            "kubeletVersion": machine.kubelet,
            "machineID": digits(name, 32),
            "operatingSystem": machine.os,
            "osImage": machine.image,
            "systemUUID": uid(f"machine {name}"),
        },
    }


def _condition(kind: str, status: str, reason: str) -> Json:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": f"kubelet says {reason}",
        "lastHeartbeatTime": HEARD,
        "lastTransitionTime": BORN,
    }


@dataclass(frozen=True, kw_only=True)
class App:
    """What the pods of one owner have in common."""

    name: str
    namespace: str = "kube-system"
    asks: Sequence[tuple[str, str] | None] = (None,)
    """CPU and memory of each container; None: it asks for nothing. An empty text is left out."""
    more: Mapping[str, str] = field(default_factory=dict)
    """Other requests of the first container."""
    tolerations: Sequence[Json] = ()
    selector: Mapping[str, str] = field(default_factory=dict)
    affinity: Json = field(default_factory=dict)
    spreads: Sequence[Json] = ()
    host_network: bool = False
    priority: int = 0
    annotations: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    scheduler: str = "default-scheduler"
    claim: str = ""
    """Of a StatefulSet: the name of its claim template."""
    os: str = ""
    """spec.os.name, where it is said."""


def replicas(app: App, *on: str | None, owner: str = "ReplicaSet") -> Iterator[Json]:
    """Yield a pod for each node in *on*; None: it waits for one."""
    template = digits(f"{app.namespace}/{app.name}", 10, SAFE)
    for number, where in enumerate(on):
        one = f"{app.name}-{number}"
        if owner == "StatefulSet":
            name, by = one, app.name
        elif owner == "Job":
            name, by = f"{one}-{digits(one, 5, SAFE)}", one
        else:
            by = f"{app.name}-{template}"
            name = f"{by}-{digits(f'{by} {number}', 5, SAFE)}"
        yield _pod(
            app, name, where, owner=owner, by=by, tolerations=[*app.tolerations, *BY_DEFAULT]
        )


def everywhere(app: App, *on: str) -> Iterator[Json]:
    """Yield the pods of a DaemonSet."""
    for where in on:
        name = f"{app.name}-{digits(f'{app.name} {where}', 5, SAFE)}"
        tolerations = [*app.tolerations, *OF_DAEMONS]
        field_of_name = {"key": "metadata.name", "operator": "In", "values": [where]}
        terms = [{"matchFields": [field_of_name]}]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        pod = _pod(app, name, where, owner="DaemonSet", by=app.name, tolerations=tolerations)
        pod["spec"]["affinity"] = {"nodeAffinity": required}
        yield pod


def static(app: App, *on: str) -> Iterator[Json]:
    """Yield the mirrors of static pods."""
    for where in on:
        name = f"{app.name}-{where}"
        pod = _pod(app, name, where, owner="Node", by=where, tolerations=[
            {"operator": "Exists", "effect": "NoExecute"}
        ])  # fmt: skip
        notes = pod["metadata"].setdefault("annotations", {})
        notes["kubernetes.io/config.mirror"] = notes["kubernetes.io/config.hash"] = digits(
            name, 32
        )
        notes["kubernetes.io/config.source"] = "file"
        yield pod


def _pod(
    app: App, name: str, on: str | None, *, owner: str, by: str, tolerations: list[Json]
) -> Json:
    labels = {"app.kubernetes.io/name": app.name, **app.labels}
    reference = {
        "apiVersion": "v1" if owner == "Node" else "batch/v1" if owner == "Job" else "apps/v1",
        "kind": owner,
        "name": by,
        "uid": uid(f"{owner}/{app.namespace}/{by}"),
        "controller": True,
        **({} if owner == "Node" else {"blockOwnerDeletion": True}),
    }
    notes = {"annotations": dict(app.annotations)} if app.annotations else {}
    meta = _meta(
        "Pod", name, app.namespace, "kube-controller-manager",
        labels=labels, ownerReferences=[reference], **notes,
    )  # fmt: skip
    spec: Json = {
        "containers": list(_containers(app)),
        "dnsPolicy": "ClusterFirst",
        "enableServiceLinks": True,
        "preemptionPolicy": "PreemptLowerPriority",
        "priority": app.priority,
        "restartPolicy": "Never" if owner == "Job" else "Always",
        "schedulerName": app.scheduler,
        "securityContext": {},
        "serviceAccountName": "default",
        "terminationGracePeriodSeconds": 30,
        "tolerations": tolerations,
        "volumes": list(_volumes(app, name)),
        **({"nodeName": on} if on else {}),
        **({"nodeSelector": dict(app.selector)} if app.selector else {}),
        **({"affinity": app.affinity} if app.affinity else {}),
        **({"topologySpreadConstraints": list(app.spreads)} if app.spreads else {}),
        **({"hostNetwork": True} if app.host_network else {}),
        **({"os": {"name": app.os}} if app.os else {}),
    }
    status = _running(app) if on else _waiting()
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": status}


def _containers(app: App) -> Iterator[Json]:
    for number, asked in enumerate(app.asks):
        pairs = zip(("cpu", "memory"), asked or ("", ""), strict=True)
        requests = {resource: amount for resource, amount in pairs if amount}
        if not number:
            requests |= app.more
        limits = {resource: amount for resource, amount in requests.items() if "/" in resource}
        yield {
            "name": app.name if not number else f"side-{number}",
            "image": f"registry.example/{app.name}:v1",
            "imagePullPolicy": "IfNotPresent",
            "resources": {
                **({"requests": requests} if requests else {}),
                **({"limits": limits} if limits else {}),
            },
            "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
            "volumeMounts": [{"name": "token", "mountPath": "/var/run/secrets", "readOnly": True}],
        }


def _volumes(app: App, name: str) -> Iterator[Json]:
    sources = [{"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}}]
    yield {"name": "token", "projected": {"defaultMode": 420, "sources": sources}}
    if app.claim:
        claim = f"{app.claim}-{name}"
        yield {"name": app.claim, "persistentVolumeClaim": {"claimName": claim}}


def _running(app: App) -> Json:
    return {
        "phase": "Running",
        "qosClass": "Burstable" if any(app.asks) else "BestEffort",
        "startTime": BORN,
        "conditions": [
            {"type": kind, "status": "True", "lastTransitionTime": BORN}
            for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
        ],
        "containerStatuses": [
            {"name": app.name, "ready": True, "restartCount": 0, "state": {"running": {}}}
        ],
    }


def _waiting() -> Json:
    message = "0/9 nodes are available: 9 Insufficient cpu."
    told = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    return {"phase": "Pending", "conditions": [told | {"message": message}]}


def budget(app: App, allowed: int = 1) -> Json:
    """Return a PodDisruptionBudget about the pods of an owner."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": _meta("PodDisruptionBudget", app.name, app.namespace, "helm"),
        "spec": {
            "maxUnavailable": 1,
            "selector": {"matchLabels": {"app.kubernetes.io/name": app.name}},
        },
        "status": {"disruptionsAllowed": allowed, "currentHealthy": 2, "desiredHealthy": 1},
    }


def volumes(
    app: App, count: int, driver: str, zone_label: str, zones: Sequence[str]
) -> Iterator[Json]:
    """Yield the claims of a StatefulSet and the volumes behind them, in these zones."""
    for number in range(count):
        claim = f"{app.claim}-{app.name}-{number}"
        volume = f"pvc-{uid(f'{app.namespace}/{claim}')}"
        asked = {"key": zone_label, "operator": "In", "values": [zones[number]]}
        yield {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": _meta(
                "PersistentVolumeClaim", claim, app.namespace, "kube-scheduler", annotations=BOUND
            ),
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "20Gi"}},
                "volumeMode": "Filesystem",
                "volumeName": volume,
            },
            "status": {"phase": "Bound", "accessModes": ["ReadWriteOnce"]},
        }
        yield {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": _meta("PersistentVolume", volume, None, "csi-provisioner"),
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "capacity": {"storage": "20Gi"},
                "claimRef": {"kind": "PersistentVolumeClaim", "name": claim},
                "csi": {"driver": driver, "volumeHandle": f"vol-{digits(claim, 17)}"},
                "nodeAffinity": {
                    "required": {"nodeSelectorTerms": [{"matchExpressions": [asked]}]}
                },
                "persistentVolumeReclaimPolicy": "Delete",
            },
            "status": {"phase": "Bound"},
        }


def csi_nodes(names: Iterable[str], drivers: Mapping[str, int | None]) -> Iterator[Json]:
    """Yield the CSINodes; a driver with None tells no limit."""
    for name in names:
        yield {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "CSINode",
            "metadata": _meta("CSINode", name, None, "kubelet"),
            "spec": {
                "drivers": [
                    {
                        "name": driver,
                        "nodeID": f"id-{digits(name, 17)}",
                        "topologyKeys": ["topology.kubernetes.io/zone"],
                        **({"allocatable": {"count": count}} if count else {}),
                    }
                    for driver, count in drivers.items()
                ]
            },
        }


def autoscaler_status(minimums: Mapping[str, tuple[int, int]]) -> Json:
    """Return what Cluster Autoscaler publishes; by node group: its minimum and how many it has."""
    groups = "".join(_group(name, *sizes) for name, sizes in sorted(minimums.items()))
    total = sum(count for _, count in minimums.values())
    text = (
        f"time: {HEARD}\nautoscalerStatus: Running\nclusterWide:\n  health:\n"
        f"    status: Healthy\n    nodeCounts:\n      registered:\n        total: {total}\n"
        f'    lastProbeTime: "{HEARD}"\nnodeGroups:\n{groups}'
    )
    name = "cluster-autoscaler-status"
    meta = _meta("ConfigMap", name, "kube-system", "cluster-autoscaler")
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"status": text}}


def _group(name: str, least: int, count: int) -> str:
    probed = f'lastProbeTime: "{HEARD}"\n    lastTransitionTime: "{BORN}"\n'
    return (
        f"- name: {name}\n  health:\n    status: Healthy\n    nodeCounts:\n      registered:\n"
        f"        total: {count}\n        ready: {count}\n        notStarted: 0\n"
        "        unready:\n          total: 0\n          resourceUnready: 0\n"
        f"      longUnregistered: 0\n      unregistered: 0\n    cloudProviderTarget: {count}\n"
        f"    minSize: {least}\n    maxSize: 9\n    {probed}  scaleUp:\n"
        f"    status: NoActivity\n    backoffInfo: {{}}\n    {probed}  scaleDown:\n"
        f"    status: NoCandidates\n    {probed}"
    )


def node_pool(name: str, **disruption: Any) -> Json:
    """Return a NodePool of Karpenter."""
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": _meta("NodePool", name, None, "karpenter"),
        "spec": {
            "disruption": {
                "budgets": [{"nodes": "10%"}],
                "consolidateAfter": "1m",
                "consolidationPolicy": "WhenEmptyOrUnderutilized",
                **disruption,
            },
            "template": {"spec": {"expireAfter": "720h"}},
        },
    }


def node_claim(pool: str, on: str) -> Json:
    """Return the NodeClaim of a node of Karpenter."""
    conditions = [
        {"type": kind, "status": "True", "reason": kind, "lastTransitionTime": BORN, "message": ""}
        for kind in ("Launched", "Registered", "Initialized", "Ready")
    ]
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": _meta("NodeClaim", f"{pool}-{digits(on, 5)}", None, "karpenter"),
        "spec": {"expireAfter": "720h"},
        "status": {"nodeName": on, "conditions": conditions},
    }


def attachments(driver: str, on: Mapping[str, str]) -> Iterator[Json]:
    """Yield the VolumeAttachments of volumes, by name of the volume the node."""
    for volume, name in on.items():
        yield {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "VolumeAttachment",
            "metadata": _meta("VolumeAttachment", f"csi-{digits(volume, 64)}", None, "kcm"),
            "spec": {
                "attacher": driver,
                "nodeName": name,
                "source": {"persistentVolumeName": volume},
            },
            "status": {"attached": True},
        }
