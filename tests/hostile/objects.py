"""Hostile objects as data, and the small well-formed cluster ("tame") to which tests add them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from core.marks.wellknown import MARK_LABEL

Json = dict[str, Any]
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
HOME: Final = "aside"
"""The node of hostile pods. It is cordoned and has no capacity, so that its verdict does not
change the totals of the cluster."""
DEEP: Final = b'{"f:a":' * 9000 + b"{}" + b"}" * 9000
LISTS: Final = b"[" * 9000 + b"]" * 9000


def node(name: str, /, **parts: Any) -> Json:
    metadata = {"name": name, "labels": {"topology.kubernetes.io/zone": "a", "n": name}}
    return {
        "kind": "Node",
        "metadata": metadata | parts.get("metadata", {}),
        "spec": parts.get("spec", {}),
        "status": {
            "allocatable": {"cpu": "4", "memory": "16Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        | parts.get("status", {}),
    }


def pod(name: str, on: str | None, cpu: str = "500m", /, **parts: Any) -> Json:
    amounts = {"cpu": cpu, "memory": "1Gi"} if cpu else {}
    return {
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "tame",
            "uid": f"u-{name}",
            "labels": {"app": "web"},
            "ownerReferences": [{"kind": "ReplicaSet", "name": "web", "controller": True}],
        }
        | parts.get("metadata", {}),
        "spec": {
            "containers": [{"name": "main", "resources": {"requests": amounts}}],
            **({"nodeName": on} if on else {}),
        }
        | parts.get("spec", {}),
        "status": {"phase": "Running"} | parts.get("status", {}),
    }


def of(kind: str, name: str, namespace: str | None = None, /, **parts: Any) -> Json:
    metadata: Json = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"kind": kind, "metadata": metadata | parts.pop("metadata", {}), **parts}


NOTHING: Final = {"cpu": "0", "memory": "0", "pods": "0"}
TAME: Final[tuple[Json, ...]] = (
    *(node(f"n{number}") for number in range(5)),
    node("marked", metadata={"labels": {MARK_LABEL: "PreferNoSchedule", "n": "marked"}}),
    node(HOME, spec={"unschedulable": True}, status={"allocatable": NOTHING}),
    *(pod(f"p{number}", f"n{number % 3}") for number in range(6)),
    pod("waits", None),
    pod("daemon", "n1", metadata={"annotations": {"kubernetes.io/config.mirror": "x"}}),
    pod(
        "claims",
        "n2",
        spec={
            "nodeName": "n2",
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}],
        },
    ),
    of(
        "PersistentVolumeClaim",
        "data",
        "tame",
        metadata={"annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
        spec={"volumeName": "pv", "accessModes": ["ReadWriteOnce"]},
        status={"phase": "Bound"},
    ),
    of("PersistentVolume", "pv", spec={"csi": {"driver": "d", "volumeHandle": "h"}}),
    *(
        of("CSINode", f"n{number}", spec={"drivers": [{"name": "d", "allocatable": {"count": 8}}]})
        for number in range(5)
    ),
    of(
        "PodDisruptionBudget",
        "web",
        "tame",
        spec={"selector": {"matchLabels": {"app": "web"}}},
        status={"disruptionsAllowed": 1},
    ),
    of(
        "PodTemplate",
        "room",
        "tame",
        template={"spec": {"containers": [{"resources": {"requests": {"cpu": "1"}}}]}},
    ),
    of(
        "CapacityBuffer",
        "room",
        "tame",
        spec={"replicas": 2, "podTemplateRef": {"name": "room"}},
        status={
            "replicas": 2,
            "podTemplateRef": {"name": "room"},
            "conditions": [{"type": "ReadyForProvisioning", "status": "True", "reason": "x"}],
        },
    ),
    of("Namespace", "tame", metadata={"labels": {"team": "a"}}),
    of(
        "VolumeAttachment",
        "va",
        spec={"attacher": "d", "nodeName": "n2", "source": {"persistentVolumeName": "pv"}},
    ),
    of("StorageClass", "fast", provisioner="ebs.csi.aws.com"),
    of("DeviceClass", "gpu", spec={"extendedResourceName": "example.com/gpu"}),
    of("NodePool", "general", spec={"disruption": {"consolidateAfter": "1m"}}),
    of(
        "NodeClaim",
        "claim",
        status={"nodeName": "n4", "conditions": [{"type": "Drifted", "status": "False"}]},
    ),
    of(
        "ConfigMap",
        "cluster-autoscaler-status",
        "kube-system",
        data={"status": "nodeGroups:\n- name: g\n  health:\n    minSize: 1\n"},
    ),
)


@dataclass(frozen=True)
class Hostile:
    """One hostile object, and whether it must not change the verdicts of other nodes."""

    name: str
    kind: str
    raw: bytes
    alone: bool = True


def _with(document: Json, **raw: bytes) -> bytes:
    """Return the encoded object; a text "@name" in it is replaced with raw bytes."""
    written = orjson.dumps(document)
    for name, found in raw.items():
        written = written.replace(b'"@%b"' % name.encode(), found)
    return written


def _evil(name: str = "evil", on: str | None = HOME, /, **parts: Any) -> Json:
    metadata = {"namespace": "evil", "labels": {"evil": "yes"}} | parts.pop("metadata", {})
    return pod(name, on, "", metadata=metadata, **parts)


def _affinity(kind: str, count: int, **more: Any) -> Json:
    terms = [
        {
            "topologyKey": "n",
            "namespaceSelector": {},
            "labelSelector": {"matchExpressions": [{"key": f"k{n}", "operator": "DoesNotExist"}]},
        }
        | more
        for n in range(count)
    ]
    return {"nodeName": HOME, "affinity": {kind: {REQUIRED: terms}}}


def _container(amounts: Any) -> Json:
    return {"nodeName": HOME, "containers": [{"name": "c", "resources": amounts}]}


WRONG: Final[Mapping[str, bytes]] = {
    "null": b"null",
    "true": b"true",
    "a number": b"7",
    "less than nothing": b"-1",
    "10^70": b"1" + b"0" * 70,
    "5,000 digits": b"9" * 5000,
    "1e999": b"1e999",
    "a text": b'"x"',
    "no text": b'""',
    "a name with a space": b'"a b"',
    "lines": rb'"a\nb\u001b[31m"',
    "a lone surrogate": rb'"\ud800"',
    "no UTF-8": b'"\xff\xfe"',
    "nothing in a list": b"[null]",
    "a list": b'["x",7,{}]',
    "an object": b'{"a":{"b":[1]}}',
    "no texts": b'{"a":1,"b":null,"c":[]}',
    "deep": DEEP,
    "deep lists": LISTS,
}
"""Values that replace the value of a field."""
POD_FIELDS: Final = (
    "labels", "annotations", "ownerReferences", "deletionTimestamp", "uid", "managedFields",
)  # fmt: skip
SPEC_FIELDS: Final = (
    "containers", "initContainers", "overhead", "resources", "nodeSelector", "affinity",
    "tolerations", "topologySpreadConstraints", "volumes", "resourceClaims", "hostNetwork",
    "schedulerName", "priority", "terminationGracePeriodSeconds", "os",
)  # fmt: skip
STATUS_FIELDS: Final = (
    "phase", "startTime", "conditions", "containerStatuses", "allocatedResources", "resources",
)  # fmt: skip


def _pods() -> Iterator[tuple[str, bytes]]:
    for wrong, raw in WRONG.items():
        for where, names in (
            ("metadata", POD_FIELDS),
            ("spec", SPEC_FIELDS),
            ("status", STATUS_FIELDS),
        ):
            for name in names:
                yield f"{where}.{name}: {wrong}", _with(_evil(**{where: {name: "@it"}}), it=raw)
    for kind in ("podAffinity", "podAntiAffinity"):
        yield f"5,000 terms of {kind}", _with(_evil(spec=_affinity(kind, 5000)))
        yield f"60 terms of {kind}", _with(_evil(spec=_affinity(kind, 60, topologyKey="nowhere")))
    yield (
        "5,000 node terms",
        _with(
            _evil(
                spec={
                    "nodeName": HOME,
                    "affinity": {
                        "nodeAffinity": {
                            REQUIRED: {
                                "nodeSelectorTerms": [
                                    {"matchExpressions": [{"key": f"k{n}", "operator": "Gt"}]}
                                    for n in range(5000)
                                ]
                            }
                        }
                    },
                }
            )
        ),
    )
    yield "5,000 labels", _with(_evil(metadata={"labels": {f"k{n}": "v" for n in range(5000)}}))
    yield (
        "extended resources",
        _with(_evil(spec=_container({"requests": {f"x.y/{n}": "1" for n in range(5000)}}))),
    )
    yield "of no node", _with(_evil("evil", "nowhere"))
    yield "finished", _with(_evil(status={"phase": "Failed", "conditions": "x"}))
    yield "of a long name", _with(_evil("x" * 300))
    yield (
        "a claim with a name of 1.3 MB",
        _with(
            _evil(
                spec={
                    "nodeName": HOME,
                    "volumes": [
                        {"name": "v", "persistentVolumeClaim": {"claimName": "c" * 1_300_000}}
                    ],
                }
            )
        ),
    )
    yield (
        "two of one volume",
        _with(_evil(spec={"nodeName": HOME, "volumes": [{"name": "v", "emptyDir": {}}] * 2})),
    )
    yield (
        "the claim of another",
        _with(
            _evil(
                spec={
                    "nodeName": HOME,
                    "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}],
                }
            )
        ),
    )


FILLING: Final = ("requests: a number", "requests of 10^70")
"""Objects that may change verdicts of other nodes, because their requests fill the node."""


def _amounts() -> Iterator[tuple[str, bytes]]:
    for wrong, raw in WRONG.items():
        found = _evil(spec=_container({"requests": {"cpu": "@it", "memory": "@it"}}))
        yield f"requests: {wrong}", _with(found, it=raw)
    yield "requests of 10^70", _with(_evil(spec=_container({"requests": {"cpu": "9" * 60}})))


def _leaving(name: str = "evil", /, **parts: Any) -> Json:
    """Return a node that an autoscaler deletes, which no total includes."""
    taints = [{"key": "ToBeDeletedByClusterAutoscaler", "value": "1", "effect": "NoSchedule"}]
    return node(name, **{"spec": {"taints": taints}} | parts)


NODE_FIELDS: Final = {
    "metadata": ("labels", "annotations", "uid", "deletionTimestamp", "managedFields"),
    "spec": ("unschedulable", "providerID"),
    "status": ("capacity", "conditions"),
}


def _nodes() -> Iterator[tuple[str, bytes]]:
    for wrong, raw in WRONG.items():
        for where, names in NODE_FIELDS.items():
            for name in names:
                spec = _leaving()["spec"]
                parts: dict[str, Json] = {"spec": spec}
                parts[where] = {**parts.get(where, {}), name: "@it"}
                yield f"{where}.{name}: {wrong}", _with(_leaving(**parts), it=raw)
        allocatable = {"status": {"allocatable": {"cpu": "@it", "x.y/z": "@it"}}}
        yield f"allocatable: {wrong}", _with(_leaving(**allocatable), it=raw)
    empty = node("evil")
    empty["status"] = {}
    yield "an emptied status", _with(empty)
    yield "no status", _with({**empty, "status": None})
    yield "no zone", _with(_leaving(metadata={"labels": {"topology.kubernetes.io/zone": ""}}))
    taints = [
        {"key": f"k{n % 7}", "effect": effect}
        for n in range(300)
        for effect in ("NoSchedule", "", "Evil")
    ]
    spec = {"taints": [*_leaving()["spec"]["taints"], *taints]}
    yield "900 taints", _with(_leaving(spec=spec))
    yield "taints null", _with(node("evil", spec={"taints": None}, status={"allocatable": {}}))


def _others() -> Iterator[tuple[str, str, bytes]]:
    """Yield claims, volumes, CSINodes and budgets that no other object refers to."""
    kinds: Mapping[str, tuple[str | None, tuple[str, ...]]] = {
        "PersistentVolumeClaim": ("evil", ("spec", "status")),
        "PersistentVolume": (None, ("spec",)),
        "CSINode": (None, ("spec",)),
        "PodDisruptionBudget": ("evil", ("spec", "status")),
        "PodTemplate": ("evil", ("template",)),
        "CapacityBuffer": ("evil", ("spec", "status")),
        "DaemonSet": ("evil", ("spec",)),
        "Namespace": (None, ("spec", "status")),
        "VolumeAttachment": (None, ("spec", "status")),
        "NodePool": (None, ("spec",)),
        "StorageClass": (None, ("allowedTopologies", "provisioner")),
        "DeviceClass": (None, ("spec",)),
        "NodeClaim": (None, ("status",)),
        "ConfigMap": ("evil", ("data",)),
    }
    for kind, (namespace, fields) in kinds.items():
        for wrong, raw in WRONG.items():
            for field in fields:
                yield (
                    f"{field}: {wrong}",
                    kind,
                    _with(of(kind, "evil", namespace, **{field: "@it"}), it=raw),
                )
            meta = of(kind, "evil", namespace, metadata={"managedFields": "@it", "labels": "@it"})
            yield f"metadata: {wrong}", kind, _with(meta, it=raw)


def _buffers() -> Iterator[tuple[str, str, bytes]]:
    """Yield accepted buffers with invalid requests, and their templates."""
    ready = [{"type": "ReadyForProvisioning", "status": "True"}]
    for wrong, raw in WRONG.items():
        for field in ("replicas", "podTemplateRef", "conditions", "provisioningStrategy"):
            status = {"podTemplateRef": {"name": "room"}, "replicas": 1, "conditions": ready}
            found = of("CapacityBuffer", "evil", "evil", status=status | {field: "@it"})
            yield f"status.{field}: {wrong}", "CapacityBuffer", _with(found, it=raw)
        found = of("CapacityBuffer", "evil", "evil", spec={"scalableRef": {"kind": "@it"}})
        yield f"scalableRef: {wrong}", "CapacityBuffer", _with(found, it=raw)
        spec = {"containers": [{"resources": {"requests": {"cpu": "@it"}}}]}
        found = of("PodTemplate", "evil", "evil", template={"spec": spec})
        yield f"requests: {wrong}", "PodTemplate", _with(found, it=raw)
        for field in SPEC_FIELDS:
            found = of("PodTemplate", "evil", "evil", template={"spec": {field: "@it"}})
            yield f"spec.{field}: {wrong}", "PodTemplate", _with(found, it=raw)


HOSTILE: Final[tuple[Hostile, ...]] = (
    *(Hostile(name, kind, raw) for name, kind, raw in _buffers()),
    *(Hostile(name, "Pod", raw) for name, raw in _pods()),
    *(Hostile(name, "Pod", raw, alone=name not in FILLING) for name, raw in _amounts()),
    *(Hostile(name, "Node", raw) for name, raw in _nodes()),
    # A DaemonSet without a toleration rightly keeps all marks PreferNoSchedule.
    *(Hostile(name, kind, raw, alone=kind != "DaemonSet") for name, kind, raw in _others()),
)
