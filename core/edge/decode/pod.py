"""Decode Pods into core.model.pod; errors name the field only."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain
from sys import intern
from typing import Final

from core.edge.decode import pod_limits, templates
from core.edge.decode.byte_lru import ByteBoundedCache
from core.edge.decode.disruption_facts import disruption_facts_of
from core.edge.decode.fields import FAULTS, checked, read_field, shared, unix_seconds
from core.edge.decode.objects import (
    CONDITIONS_DECODER,
    FINISHED,
    NULL_BYTES,
    Container,
    PodMeta,
    PodObject,
    PodSpec,
)
from core.edge.decode.requests import requests_of
from core.marks.wellknown import COST_ANNOTATION, COST_OURS_ANNOTATION, REMOVAL_DISABLED
from core.model.constraints import (
    ANY_IP,
    HOST_USERS,
    NO_NODE_CONSTRAINTS,
    OS_LABEL,
    RESTARTS_ALL,
    DisruptionFacts,
    HostPort,
    NodeConstraints,
    PodConstraints,
)
from core.model.pod import (
    DEFAULT_SCHEDULER,
    DEVICES_FIELD,
    SCHEDULER_CHARS_MAX,
    TOPOLOGY_FIELD,
    Pod,
)
from core.model.schedulers import KNOWN, SCHEDULER_FIELD
from core.model.volumes import CLAIMS_FIELD, VOLUMES_FIELD
from core.model.workload import DAEMON_SET

DAEMON_ANNOTATION: Final = "cluster-autoscaler.kubernetes.io/daemonset-pod"
MIRROR_ANNOTATION: Final = "kubernetes.io/config.mirror"
COST_CHARS_MAX: Final = 32
RESTART_ALL_ACTION: Final = "RestartAllContainers"
KUEUE_LABEL: Final = "kueue.x-k8s.io/tas"
"""Label of pods that Kueue admits with topology-aware scheduling, set until 0.16."""
KUEUE_ANNOTATIONS: Final = frozenset(
    f"kueue.x-k8s.io/podset-{request}-topology"
    for request in ("required", "preferred", "unconstrained", "slice-required")
)
"""Annotations that ask for topology-aware scheduling; Kueue adds one where its queue implies it.

Source: apis/kueue/v1beta1/topology_types.go of kubernetes-sigs/kueue."""
NO_SPREAD: Final = (NULL_BYTES, b"[]")
_OF_KUBELETS: Final = ByteBoundedCache[
    tuple[NodeConstraints, str, tuple[str, ...]], NodeConstraints
]()
"""Shared node constraints of pods that require an operating system or node features."""
_READY: Final = b'"Ready"'
_READY_AS_SENT: Final = re.compile(
    rb'"type":"Ready"(?:,"observedGeneration":\d+)?,"status":"(\w+)"'
)
"""The condition as API servers write it; inside a JSON string its quotes would be escaped."""


def pod(obj: PodObject) -> Pod | None:
    """Create a Pod; None for finished and gated pods. Raises: InvalidInputError with the field."""
    meta, spec = obj.metadata, obj.spec
    if obj.status is not None and (obj.status.phase in FINISHED or _gated(spec)):
        return None
    namespace = shared(meta.namespace or "default", "metadata.namespace")
    owner_kind, owner_name = _owner(meta)
    annotations = meta.annotations or {}
    daemon = owner_kind == DAEMON_SET or annotations.get(DAEMON_ANNOTATION) == "true"
    mirror = MIRROR_ANNOTATION in annotations
    resident = (daemon or mirror) and bool(spec.node_name)
    labels = templates.labels(bytes(meta.labels))
    placing, company, unsupported, ties, too_much = _wants(
        obj, namespace, labels, resident=resident
    )
    return Pod(
        namespace=namespace,
        name=checked(meta.name, "metadata.name"),
        uid=meta.uid,
        node=shared(spec.node_name, "spec.nodeName") if spec.node_name else None,
        requests=requests_of(spec, obj.status),
        placing=_for_kubelet(placing, spec),
        scheduler=_scheduler(spec.scheduler_name),
        labels=labels,
        owner_kind=owner_kind,
        owner_name=owner_name,
        priority=spec.priority or 0,
        mirror=mirror,
        daemon=daemon,
        unsupported=unsupported,
        too_much=too_much,
        company=company,
        own_spread=bytes(spec.topology_spread_constraints) not in NO_SPREAD,
        ties=ties,
        nominated_node=_nominated_node(obj),
        unschedulable=not spec.node_name and _unschedulable(obj),
        ready=bool(spec.node_name) and _ready(obj),
        terminating=meta.deletion_timestamp is not None,
        created_seconds=unix_seconds(meta.creation_timestamp),
        deletion_cost=_cost(annotations, COST_ANNOTATION),
        deletion_cost_ours=_cost(annotations, COST_OURS_ANNOTATION),
    )


def _nominated_node(obj: PodObject) -> str:
    """Return the node that the scheduler keeps for a pending pod; empty for most pods."""
    name = obj.status.nominated_node_name if obj.status is not None else None
    if not name or obj.spec.node_name:
        return ""
    return shared(name, "status.nominatedNodeName")


def _gated(spec: PodSpec) -> bool:
    """Return whether scheduling gates keep the scheduler from the pod (KEP-3521)."""
    return bool(spec.scheduling_gates) and not spec.node_name


def _scheduler(name: str | None) -> str:
    """Return one shared object for equal names; an excessive name stays too long to be known."""
    return intern(name[: SCHEDULER_CHARS_MAX + 1]) if name else DEFAULT_SCHEDULER


def head(meta: PodMeta) -> Pod:
    """Create a Pod with its identity and its owner only.

    Raises: InvalidInputError with the field.
    """
    owner_kind, owner_name = _owner(meta)
    return Pod(
        namespace=meta.namespace or "default",
        name=meta.name,
        labels=templates.labels(bytes(meta.labels)),
        owner_kind=owner_kind,
        owner_name=owner_name,
    )


def _owner(meta: PodMeta) -> tuple[str, str]:
    """Return kind and name of the controller; empty if there is none."""
    for owner in meta.owner_references or ():
        if owner.controller:
            return intern(pod_limits.of_owner(owner.kind)), intern(pod_limits.of_owner(owner.name))
    return "", ""


Wants = tuple[NodeConstraints, PodConstraints, tuple[str, ...], DisruptionFacts, str]
"""Node constraints, pod constraints, fields that cannot be evaluated, disruption facts, exceeded
limit.

If a limit is exceeded, the constraints are empty, except for host ports and disks."""


def _wants(obj: PodObject, namespace: str, labels: Mapping[str, str], *, resident: bool) -> Wants:
    spec = obj.spec
    selector, affinity = bytes(spec.node_selector), bytes(spec.affinity)
    if (
        resident
    ):  # only the tolerations matter: whether a replacement can run in spite of a NoSchedule mark
        selector = affinity = NULL_BYTES
    template = templates.template(selector, affinity, bytes(spec.tolerations))
    too_much = template.too_much
    if labels is templates.TOO_MANY_LABELS:
        too_much = f"more than {pod_limits.LABELS_MAX} labels, or very long labels"
    if spec.volumes and len(spec.volumes) > pod_limits.VOLUMES_MAX:
        too_much = pod_limits.over("volumes", len(spec.volumes), pod_limits.VOLUMES_MAX)
    ports = _host_ports(spec)
    if too_much:
        asked = templates.ports_only(ports, too_much)
    else:
        asked = _pod_constraints(obj, namespace, template, ports, resident=resident)
    annotations = obj.metadata.annotations or {}
    if REMOVAL_DISABLED in labels:
        annotations = {REMOVAL_DISABLED: labels[REMOVAL_DISABLED], **annotations}
    ties = disruption_facts_of(obj, annotations)
    unsupported = _unsupported(spec, asked.unsupported, ties)
    if KUEUE_LABEL in labels or not KUEUE_ANNOTATIONS.isdisjoint(annotations):
        unsupported = (*unsupported, TOPOLOGY_FIELD)
    placing = NO_NODE_CONSTRAINTS if asked.too_much else template.placing
    return placing, asked.company, unsupported, ties, asked.too_much


def _cost(annotations: Mapping[str, str], key: str) -> str | None:
    """Return a deletion cost, cut to a length above that of any valid cost (32-bit numbers)."""
    written = annotations.get(key) if annotations else None
    return written if written is None else written[:COST_CHARS_MAX]


def _unschedulable(obj: PodObject) -> bool:
    """Return whether the scheduler reported the pod as unschedulable."""
    if obj.status is None:
        return False
    raw = obj.status.conditions
    conditions = read_field(CONDITIONS_DECODER.decode, raw, "status.conditions") or ()
    return any(
        one.type == "PodScheduled" and one.status == "False" and one.reason == "Unschedulable"
        for one in conditions
    )


def _ready(obj: PodObject) -> bool:
    """Return whether the kubelet reported the pod as Ready; False for invalid conditions."""
    raw = bytes(obj.status.conditions) if obj.status is not None else NULL_BYTES
    if _READY not in raw:
        return False
    if (sent := _READY_AS_SENT.search(raw)) is not None:
        return sent[1] == b"True"
    try:
        conditions = CONDITIONS_DECODER.decode(raw) or ()
    except FAULTS:
        return False
    return any(one.type == "Ready" and one.status == "True" for one in conditions)


def _for_kubelet(placing: NodeConstraints, spec: PodSpec) -> NodeConstraints:
    """Return shared node constraints with requirements on the kubelet; most pods have none."""
    features = _features(spec)
    if not spec.os and not features:
        return placing
    system = spec.os.name if spec.os else ""
    key = placing, system, features
    size = len(spec.node_selector) + len(spec.affinity) + len(spec.tolerations) + len(system)
    return _OF_KUBELETS[key] or _OF_KUBELETS.made(
        key, lambda: replace(_on_system(placing, system), features=features), size
    )


def _features(spec: PodSpec) -> tuple[str, ...]:
    """Return the features that the kubelet must declare, as NodeDeclaredFeatures infers them."""
    found: tuple[str, ...] = ()
    for one in chain(spec.containers or (), spec.init_containers or ()):
        rules = one.restart_policy_rules
        if rules and any(rule.action == RESTART_ALL_ACTION for rule in rules):
            found = (RESTARTS_ALL,)
    return (*found, HOST_USERS) if spec.host_network and spec.host_users is False else found


def _on_system(placing: NodeConstraints, name: str) -> NodeConstraints:
    """Return the constraints with the label that kubelets of this operating system set."""
    # kube-scheduler ignores spec.os.name, but a kubelet of another system rejects the pod.
    asked = OS_LABEL, name
    known = not name or asked in placing.node_selector
    return placing if known else replace(placing, system=(asked,))


def _pod_constraints(
    obj: PodObject,
    namespace: str,
    template: templates.Template,
    ports: tuple[HostPort, ...],
    *,
    resident: bool,
) -> templates.Constraints:
    """Return the pod's constraints on other pods; most pods have none."""
    spec = obj.spec
    too_much = pod_limits.over("host ports", len(ports), pod_limits.HOST_PORTS_MAX)
    if too_much:
        return templates.ports_only(ports, too_much)
    affinity, spreads = bytes(spec.affinity), bytes(spec.topology_spread_constraints)
    if resident:
        if not ports and b"podAntiAffinity" not in affinity:
            return templates.NO_CONSTRAINTS
        company = templates.company_of_resident(affinity, ports, namespace)
        return templates.Constraints(company, ())
    if not ports and not template.constrains_pods and spreads == NULL_BYTES:
        return templates.NO_CONSTRAINTS
    return templates.company(affinity, spreads, ports, namespace, bytes(obj.metadata.labels))


def _unsupported(spec: PodSpec, asked: tuple[str, ...], ties: DisruptionFacts) -> tuple[str, ...]:
    """Return the fields with constraints that the engine cannot evaluate."""
    found = list(asked)
    if ties.disks:
        found.append(VOLUMES_FIELD)
    if ties.claims:
        found.append(CLAIMS_FIELD)
    if spec.resource_claims:
        found.append(DEVICES_FIELD)
    if spec.scheduler_name and spec.scheduler_name not in KNOWN:
        found.append(SCHEDULER_FIELD)
    return tuple(found)


def _host_ports(spec: PodSpec) -> tuple[HostPort, ...]:
    """Return the host ports of the pod; most pods have none."""
    found: list[HostPort] = []
    for one in spec.containers or ():
        if one.ports:
            found += _ports_of(one, spec)
    # kube-scheduler's NodePorts ignores the ports of ordinary init containers.
    for one in spec.init_containers or ():
        if one.ports and one.restart_policy == "Always":
            found += _ports_of(one, spec)
    return tuple(found)


def _ports_of(container: Container, spec: PodSpec) -> Iterator[HostPort]:
    for port in container.ports or ():
        # With hostNetwork the API server defaults hostPort to containerPort.
        taken = port.host_port or (port.container_port if spec.host_network else 0)
        if taken:
            yield HostPort(taken, port.protocol or "TCP", port.host_ip or ANY_IP)
