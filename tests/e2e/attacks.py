"""Table of hostile writes by a tenant and by a kubelet.

The tenant may only create pods and claims in one namespace; the kubelet is that of the marked node
`rogue`. An attack may change the verdict of `rogue`, and of no other node.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from core.marks.wellknown import (
    BACKOFF_ANNOTATION,
    DETAILS_ANNOTATION,
    MARK_LABEL,
    PROTECTION_ANNOTATION,
    SCALE_DOWN_DISABLED_ANNOTATION,
)
from tests.e2e.api import MERGE, Json
from tests.e2e.objects import NODES, pod

TENANT: Final = "tenant"
KUBELET: Final = "kubelet"
ROGUE: Final = "rogue"
FIRST_CONSUMER: Final = "e2e-first-consumer"
THEIR_PODS: Final = f"/api/v1/namespaces/{TENANT}/pods"
THEIR_CLAIMS: Final = f"/api/v1/namespaces/{TENANT}/persistentvolumeclaims"
OWN_NODE: Final = f"{NODES}/{ROGUE}"
HOSTNAME: Final = "kubernetes.io/hostname"
DEPTH_MAX: Final = 9000
"""Nesting depth; the API server decodes up to 10,000 levels."""
ZONE: Final = "topology.kubernetes.io/zone"
COST: Final = "controller.kubernetes.io/pod-deletion-cost"
WORST: Final = "\x00\x1b[31m\u202e\ufeff\ud7ff%s{}'\"\\\n\r\t\U0001f4a3" * 8
"""A text with control characters, line breaks, format specifiers and quotes."""


@dataclass(frozen=True)
class Call:
    """One write."""

    method: str
    path: str
    body: Json
    content: str = "application/json"


@dataclass(frozen=True)
class Attack:
    """The writes of an attacker, and whether the API server rejects all of them."""

    name: str
    who: str
    calls: Callable[[], Iterable[Call]]
    refused: bool = False

    def words(self) -> list[str]:
        """Return the annotations that it writes on the rogue node, if it writes nothing else."""
        bodies = [call.body for call in self.calls() if call.path == OWN_NODE]
        only = [body["metadata"].get("annotations", {}) for body in bodies]
        alone = all(list(body["metadata"]) == ["annotations"] for body in bodies)
        return [key for words in only for key in words] if alone else []


def _nested(depth: int) -> list[Json]:
    fields: Json = {}
    for _ in range(depth):
        fields = {"f:a": fields}
    entry = {"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1"}
    return [{**entry, "fieldsV1": fields}]


def _pod(name: str, *, on: str = ROGUE, **how: Any) -> Call:
    """Return the creation of a pod without requests."""
    metadata = how.pop("metadata", {})
    made = pod(name, cpu="0", node_name=on, **how)
    made["metadata"] = {**made["metadata"], "namespace": TENANT, **metadata}
    return Call("POST", THEIR_PODS, made)


def _everywhere(name: str, **how: Any) -> Iterable[Call]:
    """Yield the creation of a pod on the rogue node, and of a Pending copy."""
    yield _pod(name, **how)
    yield _pod(f"{name}-waits", on="", **how)


def _claim(name: str, **how: Any) -> Call:
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": FIRST_CONSUMER,
    }
    metadata = {"name": name, "namespace": TENANT, **how}
    kind = {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
    return Call("POST", THEIR_CLAIMS, {**kind, "metadata": metadata, "spec": spec})


def _volumes(*claims: str) -> list[Json]:
    return [{"name": f"v{n}", "persistentVolumeClaim": {"claimName": claim}}
            for n, claim in enumerate(claims)]  # fmt: skip


def _apart(count: int) -> Json:
    terms = [
        {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {f"k{n}": "v"}}}
        for n in range(count)
    ]
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def _near(count: int) -> Json:
    terms = [{"matchExpressions": [{"key": f"k{n}", "operator": "Exists"}]} for n in range(count)]
    return {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}
        }
    }


def _spread(count: int) -> list[Json]:
    return [
        {
            "maxSkew": 1,
            "topologyKey": f"example.org/k{n}",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {},
        }
        for n in range(count)
    ]


def _padded(count: int, size: int) -> Iterable[Call]:
    for n in range(count):
        containers = [{"name": "main", "image": "none", "args": ["x" * size]}]
        call = _pod(f"padded-{n:03}")
        yield Call("POST", call.path, {**call.body, "spec": {**call.body["spec"],
                   "containers": containers}})  # fmt: skip


def _asks(quantity: str) -> Iterable[Call]:
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": quantity,
                 "memory": quantity}}}  # fmt: skip
    yield _pod("asks", on="", containers=[container])


def _own(**metadata: Any) -> Iterable[Call]:
    """Yield a change of the kubelet's own Node."""
    yield Call("PATCH", OWN_NODE, {"metadata": metadata}, MERGE)


def _said(field: str, value: str) -> Callable[[], Iterable[Call]]:
    """Return an attack that writes the details of the mark with this number."""
    numbers = {"since": "1700000000", "deadline": "4000000000", "order": "0", field: value}
    said = ",".join(f'"{name}":{number}' for name, number in numbers.items())
    text = f'{{{said},"owner":"o","policy":"p","reason":"r"}}'
    return lambda: _own(annotations={DETAILS_ANNOTATION: text})


def _status(**status: Any) -> Iterable[Call]:
    yield Call("PATCH", f"{OWN_NODE}/status", {"status": status}, MERGE)


def _room(**room: str) -> Iterable[Call]:
    return _status(capacity=room, allocatable=room)


NUMBERS: Final = (
    *(("since", value) for value in ("1" + "0" * 70, '"٣"')),
    *(("deadline", value) for value in ("-1", "NaN", "1.5")),
    *(("order", value) for value in ("1" + "0" * 5000, "[]")),
)
"""One value of each class; tests/core/marks/test_marks.py covers all values and fields."""

ATTACKS: Final = (
    Attack("pod whose managedFields nest 1,000 deep", TENANT,
           lambda: _everywhere("deep", metadata={"managedFields": _nested(1000)})),
    Attack("pod whose managedFields nest 9,000 deep", TENANT,
           lambda: _everywhere("deeper", metadata={"managedFields": _nested(DEPTH_MAX)})),
    Attack("claim whose managedFields nest 9,000 deep", TENANT,
           lambda: [_claim("deep", managedFields=_nested(DEPTH_MAX)),
                    *_everywhere("uses", volumes=_volumes("deep"))]),
    Attack("Node whose managedFields nest 9,000 deep", KUBELET,
           lambda: _own(managedFields=_nested(DEPTH_MAX))),
    Attack("900 anti-affinity terms", TENANT,
           lambda: _everywhere("apart", affinity=_apart(900))),
    Attack("5,000 anti-affinity terms", TENANT,
           lambda: _everywhere("further", affinity=_apart(5000))),
    Attack("5,000 node selector terms", TENANT,
           lambda: _everywhere("near", affinity=_near(5000))),
    Attack("500 spread constraints", TENANT,
           lambda: _everywhere("spread", topologySpreadConstraints=_spread(500))),
    Attack("2,000 tolerations", TENANT,
           lambda: _everywhere("tolerates", tolerations=[
               {"key": f"k{n}", "operator": "Exists"} for n in range(2000)])),
    Attack("5,000 node selector labels", TENANT,
           lambda: [_pod("selects", on="", nodeSelector={f"k{n}": "v" for n in range(5000)})]),
    Attack("2,000 missing claims of one pod", TENANT,
           lambda: _everywhere("claims", volumes=_volumes(*(f"c{n}" for n in range(2000))))),
    Attack("a claim that waits for its first consumer", TENANT,
           lambda: [_claim("later"), *_everywhere("consumer", volumes=_volumes("later"))]),
    Attack("40 pods with claim names of 1.3 MB", TENANT, lambda: [
        _pod(f"named-{n}", volumes=_volumes("c" * 1_300_000)) for n in range(40)]),
    Attack("100 pods of 600 kB", TENANT, lambda: _padded(100, 600_000)),
    Attack("2,000 host ports", TENANT, lambda: [_pod("ports", containers=[
        {"name": "main", "image": "none", "ports": [
            {"containerPort": n, "hostPort": n, "name": f"p{n}"} for n in range(1, 2000)]}])]),
    Attack("300 containers", TENANT, lambda: [_pod("containers", containers=[
        {"name": f"c{n}", "image": "none"} for n in range(300)])]),
    Attack("requests of 2^63 - 1", TENANT, lambda: _asks("9223372036854775807")),
    Attack("requests of 10^40, rejected or truncated", TENANT, lambda: _asks("1e40")),
    Attack("requests of a nano", TENANT, lambda: _asks("1n")),
    Attack("the worst annotations", TENANT,
           lambda: _everywhere("worst", metadata={"annotations": {"worst": WORST}})),
    Attack("the longest name", TENANT, lambda: [_pod("x" * 63 + ".x" * 95)]),
    Attack("meaningless annotations for autoscalers and Ebb", TENANT,
           lambda: _everywhere("words", metadata={"annotations": {
               "cluster-autoscaler.kubernetes.io/safe-to-evict": WORST,
               "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes": "," * 5000,
               "karpenter.sh/do-not-disrupt": WORST, "kube-ebb.io/keep": WORST}})),
    Attack("forged deletion costs of Ebb", TENANT,
           lambda: _everywhere("costs", metadata={"annotations": {
               COST: "-2147483648", "kube-ebb.io/deletion-cost": "-2147483648"}})),
    Attack("deletion costs that are no numbers", TENANT,
           lambda: _everywhere("costly", metadata={"annotations": {
               "kube-ebb.io/deletion-cost": "٣" + "9" * 5000}})),
    Attack("the mark itself", KUBELET, lambda: _own(labels={MARK_LABEL: "NoSchedule"}),
           refused=True),
    Attack("another node", KUBELET, lambda: [
        Call("PATCH", f"{NODES}/going", {"metadata": {"annotations": {"a": "b"}}}, MERGE)],
        refused=True),
    Attack("zone empty", KUBELET, lambda: _own(labels={ZONE: ""})),
    *(Attack(f"{field} {value:.12}", KUBELET, _said(field, value)) for field, value in NUMBERS),
    Attack("details of 250 kB", KUBELET,
           lambda: _own(annotations={DETAILS_ANNOTATION: "[" * 250_000})),
    Attack("details nested in an object", KUBELET,
           lambda: _own(annotations={DETAILS_ANNOTATION: '{"since":' * 20_000})),
    Attack("backoff in the far future", KUBELET,
           lambda: _own(annotations={BACKOFF_ANNOTATION: "1 9999999999999999999999"})),
    Attack("backoff that is no number", KUBELET,
           lambda: _own(annotations={BACKOFF_ANNOTATION: "٣ Infinity"})),
    Attack("forged protection of Ebb", KUBELET, lambda: _own(annotations={
        SCALE_DOWN_DISABLED_ANNOTATION: "true", PROTECTION_ANNOTATION: "9" * 100})),
    Attack("protection with the worst text", KUBELET, lambda: _own(annotations={
        SCALE_DOWN_DISABLED_ANNOTATION: WORST, PROTECTION_ANNOTATION: WORST})),
    Attack("status emptied", KUBELET, lambda: _status(capacity=None, allocatable=None)),
    Attack("capacity of 0", KUBELET, lambda: _room(cpu="0", memory="0", pods="0")),
    Attack("capacity of 2^63 - 1", KUBELET, lambda: _room(
        cpu="9223372036854775807", memory="9223372036854775807", pods="9223372036854775807")),
    Attack("2,000 extended resources", KUBELET, lambda: _room(
        cpu="4", memory="16Gi", pods="110", **{f"example.org/r{n}": "1" for n in range(2000)})),
    Attack("1,000 labels and annotations", KUBELET, lambda: _own(
        labels={f"k{n}": "v" for n in range(1000)},
        annotations={f"k{n}": WORST for n in range(1000)})),
)  # fmt: skip
