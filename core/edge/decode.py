"""Kubernetes JSON to the model, straight from bytes; only what is used is decoded.

Typed decoding skips what is not named here, which makes a 5 kB pod cost microseconds. Repeated
values (requests, templates, label sets) become one object each, through bounded caches.
"""

from functools import lru_cache
from sys import intern
from typing import Any, Final

import msgspec

from core.edge.objects import (
    AFFINITY_DECODER,
    HEAD_DECODER,
    NO_AFFINITY,
    NODE_DECODER,
    POD_DECODER,
    Affinity,
    Expression,
    Meta,
    NodeObject,
    NodeTerm,
    PodObject,
    PodSpec,
    PodTerm,
)
from core.edge.objects import (
    Container as WireContainer,
)
from core.edge.objects import (
    Toleration as WireToleration,
)
from core.errors import InvalidInputError, InvalidQuantityError
from core.model import (
    Node,
    Placing,
    Pod,
    PodSelector,
    Requirement,
    Resources,
    SelectorTerm,
    Taint,
    Toleration,
)
from core.quantity import millis, whole
from core.requests import Amounts, Asking, Container, pod_requests, resources

CACHE_MAX: Final = 65_536
FINISHED: Final = ("Succeeded", "Failed")
DAEMON_ANNOTATION: Final = "cluster-autoscaler.kubernetes.io/daemonset-pod"
MIRROR_ANNOTATION: Final = "kubernetes.io/config.mirror"
DEFAULT_SCHEDULER: Final = "default-scheduler"


def node(raw: bytes | msgspec.Raw, source: str = "") -> Node:
    """Decode one v1 Node. Raises: InvalidInputError that names object and field."""
    return node_of(_decode(NODE_DECODER, raw, source), source)


def pod(raw: bytes | msgspec.Raw, source: str = "") -> Pod | None:
    """Decode one v1 Pod; None for a finished one. Raises: InvalidInputError."""
    return pod_of(_decode(POD_DECODER, raw, source), source)


def node_of(obj: NodeObject, source: str = "") -> Node:
    """Make a Node of its wire form."""
    where = _where(source, "Node", obj.metadata)
    status, spec = obj.status, obj.spec
    allocatable = (status.allocatable or status.capacity) if status else None
    if not allocatable:
        raise InvalidInputError(
            f"{where}: status.allocatable", "missing; allowed: a list of resources, such as cpu"
        )
    amounts = {}
    for name, quantity in allocatable.items():
        if not name.startswith("attachable-volumes-"):
            amounts[name] = _quantity(name, quantity, f"{where}: status.allocatable.{name}")
    conditions = (status.conditions if status else None) or []
    return Node(
        name=intern(obj.metadata.name),
        uid=obj.metadata.uid,
        labels=obj.metadata.labels or {},
        annotations=obj.metadata.annotations or {},
        taints=tuple(Taint(t.key, t.value or "", t.effect) for t in (spec and spec.taints) or ()),
        unschedulable=bool(spec and spec.unschedulable),
        allocatable=resources(amounts, pods=amounts.get("pods", 0)),
        ready=not conditions or any(c.type == "Ready" and c.status == "True" for c in conditions),
    )


def pod_of(obj: PodObject, source: str = "") -> Pod | None:
    """Make a Pod of its wire form; None for a finished one."""
    if obj.status is not None and obj.status.phase in FINISHED:
        return None
    meta, spec = obj.metadata, obj.spec
    namespace = intern(meta.namespace or "default")
    where = _where(source, "Pod", meta)
    owner = next((o for o in meta.owner_references or () if o.controller), None)
    annotations = meta.annotations or {}
    affinity = _affinity(bytes(spec.affinity), where)
    kind = intern(owner.kind) if owner else ""
    return Pod(
        namespace=namespace,
        name=meta.name,
        uid=meta.uid,
        node=intern(spec.node_name) if spec.node_name else None,
        requests=_requests(obj, where),
        placing=_placing(
            tuple(sorted((spec.node_selector or {}).items())),
            bytes(spec.affinity),
            tuple(_toleration(t) for t in spec.tolerations or ()),
        ),
        labels=meta.labels or {},
        owner_kind=kind,
        owner_name=owner.name if owner else "",
        priority=spec.priority or 0,
        mirror=MIRROR_ANNOTATION in annotations,
        daemon=kind == "DaemonSet" or annotations.get(DAEMON_ANNOTATION) == "true",
        unsupported=_unsupported(spec, affinity),
        repels=_repels(affinity, namespace),
    )


def _requests(obj: PodObject, where: str) -> Resources:
    spec, status = obj.spec, obj.status
    given: dict[str, tuple[Amounts, ...]] = {}
    for entry in (
        *((status and status.container_statuses) or ()),
        *((status and status.init_container_statuses) or ()),
    ):
        running = entry.resources.requests if entry.resources else None
        given[entry.name] = tuple(a for a in (entry.allocated_resources, running) if a)
    asking = Asking(
        containers=[_container(c, given) for c in spec.containers or ()],
        init_containers=[_container(c, given) for c in spec.init_containers or ()],
        overhead=spec.overhead or {},
        pod_level=(spec.resources and spec.resources.requests) or {},
    )
    try:
        return _same(pod_requests(asking))
    except InvalidQuantityError:
        raise _request_fault(spec, where) from None


def _request_fault(spec: PodSpec, where: str) -> InvalidInputError:
    """Find which field holds the bad quantity; only faults pay for the search."""
    lists = [("spec.overhead", spec.overhead or {})]
    for group, containers in (
        ("containers", spec.containers),
        ("initContainers", spec.init_containers),
    ):
        for number, container in enumerate(containers or ()):
            amounts = (container.resources and container.resources.requests) or {}
            lists.append((f"spec.{group}[{number}].resources.requests", amounts))
    lists.append(("spec.resources.requests", (spec.resources and spec.resources.requests) or {}))
    for path, amounts in lists:
        for name, quantity in amounts.items():
            try:
                _quantity(name, quantity, f"{where}: {path}.{name}")
            except InvalidInputError as fault:
                return fault
    return InvalidInputError(f"{where}: status.containerStatuses", "holds a bad quantity")


def _container(container: WireContainer, given: dict[str, tuple[Amounts, ...]]) -> Container:
    return Container(
        (container.resources and container.resources.requests) or {},
        restartable=container.restart_policy == "Always",
        resized=given.get(container.name, ()) if given else (),
    )


@lru_cache(maxsize=CACHE_MAX)
def _same(amount: Resources) -> Resources:
    """Return one object for equal requests."""
    return amount


@lru_cache(maxsize=CACHE_MAX)
def _placing(
    selector: tuple[tuple[str, str], ...], affinity: bytes, tolerations: tuple[Toleration, ...]
) -> Placing:
    """Make the template once for all pods that share it."""
    required = _affinity(affinity, "").node_affinity
    terms = required.required if required else None
    return Placing(
        node_selector=selector,
        affinity=None
        if terms is None
        else tuple(_term(term) for term in terms.node_selector_terms or ()),
        tolerations=tolerations,
    )


@lru_cache(maxsize=CACHE_MAX)
def _affinity(raw: bytes, where: str) -> Affinity:
    if raw == b"null":
        return NO_AFFINITY
    try:
        return AFFINITY_DECODER.decode(raw) or NO_AFFINITY
    except msgspec.DecodeError as fault:
        raise InvalidInputError(f"{where}: spec.affinity", str(fault)) from fault


def _term(term: NodeTerm) -> SelectorTerm:
    return SelectorTerm(
        tuple(_requirement(e) for e in term.match_expressions or ()),
        tuple(_requirement(e) for e in term.match_fields or ()),
    )


def _requirement(expression: Expression) -> Requirement:
    return Requirement(expression.key, expression.operator, tuple(expression.values or ()))


def _toleration(found: WireToleration) -> Toleration:
    return Toleration(
        found.key or "", found.operator or "Equal", found.value or "", found.effect or ""
    )


def _unsupported(spec: PodSpec, affinity: Affinity) -> tuple[str, ...]:
    """Name the fields that ask what the engine cannot evaluate."""
    containers = spec.containers or ()
    asked = {
        "spec.affinity.podAffinity": affinity.pod_affinity and affinity.pod_affinity.required,
        "spec.affinity.podAntiAffinity": affinity.pod_anti_affinity
        and affinity.pod_anti_affinity.required,
        "spec.topologySpreadConstraints": any(
            s.when_unsatisfiable == "DoNotSchedule" for s in spec.topology_spread_constraints or ()
        ),
        "spec.containers.ports.hostPort": any(
            port.host_port for container in containers for port in container.ports or ()
        ),
        "spec.hostNetwork": spec.host_network and any(c.ports for c in containers),
        "spec.volumes": any(v.persistent_volume_claim or v.ephemeral for v in spec.volumes or ()),
        "spec.resourceClaims": spec.resource_claims,
        "spec.schedulerName": spec.scheduler_name not in (None, "", DEFAULT_SCHEDULER),
    }
    return tuple(path for path, present in asked.items() if present)


def _repels(affinity: Affinity, namespace: str) -> tuple[PodSelector, ...]:
    terms = (affinity.pod_anti_affinity and affinity.pod_anti_affinity.required) or ()
    return tuple(_pod_selector(term, namespace) for term in terms)


def _pod_selector(term: PodTerm, namespace: str) -> PodSelector:
    selector = term.label_selector
    labels = (selector and selector.match_labels) or {}
    expressions = (selector and selector.match_expressions) or ()
    namespaces = tuple(term.namespaces) if term.namespaces else (namespace,)
    return PodSelector(
        None if term.namespace_selector else namespaces,
        (
            *(Requirement(key, "In", (value,)) for key, value in sorted(labels.items())),
            *(_requirement(expression) for expression in expressions),
        ),
    )


def _quantity(name: str, quantity: str | float, where: str) -> int:
    try:
        return millis(quantity) if name == "cpu" else whole(quantity)
    except InvalidQuantityError as fault:
        raise InvalidInputError(where, fault.problem) from fault


def _where(source: str, kind: str, meta: Meta) -> str:
    name = f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name
    return f"{source}: {kind} {name}" if source else f"{kind} {name}"


def _decode(decoder: Any, raw: bytes | msgspec.Raw, source: str) -> Any:  # noqa: ANN401 typed by its decoder
    try:
        return decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as fault:
        where = _name_of(raw, source)
        raise InvalidInputError(where, f"not what Kubernetes writes: {fault}") from fault


def _name_of(raw: bytes | msgspec.Raw, source: str) -> str:
    """Name the object that cannot be decoded, if at least its head can."""
    try:
        head = HEAD_DECODER.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return source or "input"
    return _where(source, head.kind or "object", head.metadata) if head.metadata else source
