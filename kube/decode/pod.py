"""Decode Pods into core.model.pod; errors name the field only."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, make_dataclass, replace
from sys import intern
from typing import Any, Final

import msgspec

from core.cluster.read_options import KNOWN_SCHEDULERS, SCHEDULER_FIELD
from core.model.constraints import (
    HOST_USERS,
    NO_DISRUPTION_FACTS,
    NO_NODE_CONSTRAINTS,
    OS_LABEL,
    DisruptionFacts,
    HostPort,
    NodeConstraints,
)
from core.model.errors import InvalidInputError
from core.model.pod import (
    CLAIMS_FIELD,
    DAEMON_SET,
    DEFAULT_SCHEDULER,
    DETACHED_LABEL,
    DEVICES_FIELD,
    REPLICA_SET,
    SCHEDULER_CHARS_MAX,
    TEMPLATE_LABEL,
    TOPOLOGY_FIELD,
    VOLUMES_FIELD,
    Pod,
)
from kube.decode import pod_limits, templates
from kube.decode.byte_lru import ByteBoundedCache
from kube.decode.disruption_facts import disruption_facts_of
from kube.decode.field_decoding import (
    NULL,
    NULL_BYTES,
    check_memory,
    checked_name,
    shared_name,
    unix_seconds,
)
from kube.decode.objects import (
    CONDITIONS,
    FINISHED,
    NO_ANNOTATIONS,
    NO_STATUS,
    OWNERS,
    PRESENT_LIST,
    VOLUMES,
    Condition,
    OwnerReference,
    PodAnnotations,
    PodMeta,
    PodObject,
    PodSpec,
    ready_as_sent,
)
from kube.decode.requests import Containers, amounts_of, containers_of, pending_resizes

COST_CHARS_MAX: Final = 32
KUEUE_LABEL: Final = "kueue.x-k8s.io/tas"
"""Label of pods that Kueue admits with topology-aware scheduling, set until 0.16."""
NO_SPREAD: Final = (NULL_BYTES, b"[]")
KEPT_BYTES_MAX: Final = 64_000
"""Maximum memory that a pod takes; a pod that would take more is unreadable."""
SMALL_BYTES: Final = 2 * 1024
SMALL_ITEMS: Final = 16
"""A pod always takes less memory than KEPT_BYTES_MAX if the JSON of its constraints and labels has
at most SMALL_BYTES, and if it has at most SMALL_ITEMS claims, disks, local volumes and extended
resources together."""
MADE_OF_BYTE: Final = 12
MADE_OF_KEY: Final = 82
"""Bytes of memory for each byte and each key of larger JSON, at most.

A short entry of matchLabels has 7 bytes and takes 166 bytes of memory. To measure a pod takes five
times as long as to decode it, so it is only done if this estimate exceeds KEPT_BYTES_MAX."""
NO_OWNER: Final = "", ""
NOT_READY: Final = False, ""
MOVE_CHARS_MAX: Final = 256
"""Maximum length of the annotation with a move; a longer one counts as invalid."""
_CONTROLLERS: Final = ByteBoundedCache[bytes, tuple[str, str]]()
"""Kind and name of the controller, by the JSON of the owner references."""
_RARE: Final = ByteBoundedCache[tuple[NodeConstraints, str, tuple[str, ...]], NodeConstraints]()
"""Shared node constraints of pods that require an operating system or node features."""
_READY: Final = b'"Ready"'
# The constructor of a frozen class sets each field by a call. That takes 2.6 times as long as to
# create a _Draft and change its class.
_Draft: Final[type[Pod]] = make_dataclass(
    "_Draft", [(one.name, Any) for one in fields(Pod)], kw_only=True, slots=True
)
"""A class like Pod, with the same slots, but not frozen and without defaults."""


def pod(obj: PodObject) -> Pod | None:
    """Convert a Pod; None if it has finished, or if scheduling gates keep it unscheduled.

    Raises: InvalidInputError with the invalid field.
    """
    meta, spec, status = obj.metadata, obj.spec, obj.status or NO_STATUS
    if status.phase in FINISHED or (obj.status is not None and _gated(spec)):
        return None
    # Most pods have no pending resize: their conditions are searched, not decoded.
    conditions = bytes(status.conditions)
    resizes = pending_resizes(conditions)
    namespace = shared_name(meta.namespace or "default", "metadata.namespace")
    labels = templates.labels(bytes(meta.labels))
    owner_kind, owner_name = _owner(meta, labels)
    annotations, containers = meta.annotations, containers_of(spec)
    if annotations is None or annotations == NO_ANNOTATIONS:
        annotations = NO_ANNOTATIONS  # most pods have no annotation that Ebb reads
    daemon = owner_kind == DAEMON_SET or annotations.daemon == "true"
    mirror = annotations.mirror is not None
    resident = (daemon or mirror) and bool(spec.node_name)
    nominated = None if spec.node_name else status.nominated_node_name
    ready, ready_seconds = _ready(conditions) if spec.node_name else (False, None)
    template, constraints, unsupported, disruption_facts = _all_constraints(
        obj, containers, annotations, namespace, labels, resizes, resident=resident
    )
    requests, quota_facts = amounts_of(
        *(spec, containers, status, resizes), crosses_namespaces=template.crosses_namespaces
    )
    made = _Draft(
        namespace=namespace,
        name=checked_name(meta.name, "metadata.name"),
        uid=meta.uid,
        node=shared_name(spec.node_name, "spec.nodeName") if spec.node_name else None,
        requests=requests,
        node_constraints=with_rare_constraints(
            NO_NODE_CONSTRAINTS if constraints.too_much else template.node_constraints,
            spec,
            containers.features,
        ),
        scheduler=_scheduler(spec.scheduler_name),
        labels=labels,
        owner_kind=owner_kind,
        owner_name=owner_name,
        priority=spec.priority or 0,
        mirror=mirror,
        daemon=daemon,
        unsupported=unsupported,
        too_much=constraints.too_much,
        unreadable="",
        pod_constraints=constraints.pod_constraints,
        own_spread=bytes(spec.topology_spread_constraints) not in NO_SPREAD,
        soft_spread=constraints.soft_spread,
        disruption_facts=disruption_facts,
        quota_facts=quota_facts,
        nominated_node=shared_name(nominated, "status.nominatedNodeName") if nominated else "",
        unschedulable=not spec.node_name and _unschedulable(conditions),
        ready=ready,
        ready_seconds=ready_seconds,
        terminating=meta.deletion_timestamp is not None,
        created_seconds=unix_seconds(meta.creation_timestamp),
        move=annotations.move and annotations.move[: MOVE_CHARS_MAX + 1],
        deletion_cost=_cost(annotations.cost),
        deletion_cost_ours=_cost(annotations.cost_ours),
    )
    made.__class__ = Pod  # frozen from here on
    made.__post_init__()
    return _checked_size(made, meta, spec)


def _checked_size(made: Pod, meta: PodMeta, spec: PodSpec) -> Pod:
    blocks = (
        *(meta.labels, spec.node_selector, spec.affinity),
        *(spec.tolerations, spec.topology_spread_constraints),
    )
    items, disruption_facts = len(made.requests.extended), made.disruption_facts
    if disruption_facts is not NO_DISRUPTION_FACTS:
        items += (
            len(disruption_facts.claims)
            + len(disruption_facts.disks)
            + len(disruption_facts.local_volumes)
        )
    if items > SMALL_ITEMS or (sum(map(len, blocks)) > SMALL_BYTES and _may_be_large(blocks)):
        check_memory(made, KEPT_BYTES_MAX)
    return made


def _may_be_large(blocks: Iterable[msgspec.Raw]) -> bool:
    estimates = (len(raw) * MADE_OF_BYTE + bytes(raw).count(b":") * MADE_OF_KEY for raw in blocks)
    return sum(estimates) > KEPT_BYTES_MAX


def _gated(spec: PodSpec) -> bool:
    # KEP-3521
    if spec.scheduling_gates is NULL or spec.node_name:
        return False
    return bool(PRESENT_LIST.decode(spec.scheduling_gates, "spec.schedulingGates"))


def _scheduler(name: str | None) -> str:
    # No configured name is longer than SCHEDULER_CHARS_MAX, so a cut name equals none of them.
    return intern(name[: SCHEDULER_CHARS_MAX + 1]) if name else DEFAULT_SCHEDULER


def head(meta: PodMeta) -> Pod:
    """Return a Pod with only its namespace, name, labels, and the kind and name of its controller.

    Raises: InvalidInputError with the invalid field.
    """
    labels = templates.labels(bytes(meta.labels))
    owner_kind, owner_name = _owner(meta, labels)
    return Pod(
        namespace=meta.namespace or "default",
        name=meta.name,
        labels=labels,
        owner_kind=owner_kind,
        owner_name=owner_name,
    )


def _owner(meta: PodMeta, labels: Mapping[str, str]) -> tuple[str, str]:
    """Return kind and name of the pod's controller; of its ReplicaSet if the pod is detached."""
    if meta.owner_references is NULL:
        return NO_OWNER
    raw = bytes(meta.owner_references)
    found = _CONTROLLERS[raw] or _CONTROLLERS.compute(raw, lambda: _first(raw, _is_controller))
    if found == NO_OWNER and labels.get(DETACHED_LABEL) and TEMPLATE_LABEL not in labels:
        return _first(raw, lambda owner: owner.kind == REPLICA_SET)
    return found


def _is_controller(owner: OwnerReference) -> bool:
    return bool(owner.controller)


def _first(owners: bytes, is_wanted: Callable[[OwnerReference], bool]) -> tuple[str, str]:
    """Return kind and name of the first wanted owner, or NO_OWNER."""
    for owner in OWNERS.decode(owners, "metadata.ownerReferences") or ():
        if is_wanted(owner):
            kind, name = pod_limits.short_owner(owner.kind), pod_limits.short_owner(owner.name)
            return intern(kind), intern(name)
    return NO_OWNER


AllConstraints = tuple[templates.Template, templates.Constraints, tuple[str, ...], DisruptionFacts]
"""Template, constraints on other pods, fields that cannot be evaluated, disruption facts.

If a limit is exceeded, the constraints are empty, except for host ports and disks."""


def _all_constraints(
    obj: PodObject,
    containers: Containers,
    annotations: PodAnnotations,
    namespace: str,
    labels: Mapping[str, str],
    resizes: Sequence[Condition],
    *,
    resident: bool,
) -> AllConstraints:
    spec = obj.spec
    selector, affinity = bytes(spec.node_selector), bytes(spec.affinity)
    if resident:
        # Only the tolerations matter: whether a replacement can run in spite of a NoSchedule mark.
        selector = affinity = NULL_BYTES
    template = templates.template(selector, affinity, bytes(spec.tolerations))
    too_much = template.too_much
    if labels is templates.TOO_MANY_LABELS:
        too_much = f"more than {pod_limits.LABELS_MAX} labels, or very long labels"
    volumes = VOLUMES.decode(spec.volumes, "spec.volumes") or ()
    if len(volumes) > pod_limits.VOLUMES_MAX:
        too_much = pod_limits.why_too_many("volumes", len(volumes), pod_limits.VOLUMES_MAX)
    ports = containers.ports
    if too_much:
        constraints = templates.ports_only(ports, too_much)
    else:
        constraints = _pod_constraints(obj, namespace, template, ports, resident=resident)
    disruption_facts = disruption_facts_of(obj, containers, volumes, annotations, labels, resizes)
    unsupported = _unsupported(spec, constraints.unsupported, disruption_facts)
    if KUEUE_LABEL in labels or (annotations is not NO_ANNOTATIONS and annotations.needs_topology):
        unsupported = (*unsupported, TOPOLOGY_FIELD)
    return template, constraints, unsupported, disruption_facts


def _cost(written: str | None) -> str | None:
    # Every valid cost, a 32-bit number, is shorter.
    return written if written is None else written[:COST_CHARS_MAX]


def _unschedulable(conditions: bytes) -> bool:
    return any(
        condition.type == "PodScheduled"
        and condition.status == "False"
        and condition.reason == "Unschedulable"
        for condition in CONDITIONS.decode(conditions, "status.conditions") or ()
    )


def _ready(conditions: bytes) -> tuple[bool, int | None]:
    """Return whether the pod is Ready, and the Unix second since which it is; None: unknown."""
    sent = ready_as_sent(conditions)
    if sent is None:
        sent = _ready_decoded(conditions) if _READY in conditions else NOT_READY
    ready, since = sent
    if ready and not since:
        _, since = _ready_decoded(conditions)
    return ready, unix_seconds(since) if ready else None


def _ready_decoded(conditions: bytes) -> tuple[bool, str]:
    try:
        decoded = CONDITIONS.decode(conditions, "") or ()
    except InvalidInputError:
        return NOT_READY
    return next(
        (
            (True, condition.last_transition_time or "")
            for condition in decoded
            if condition.type == "Ready" and condition.status == "True"
        ),
        NOT_READY,
    )


def with_rare_constraints(
    node_constraints: NodeConstraints, spec: PodSpec, features: tuple[str, ...] = ()
) -> NodeConstraints:
    """Return the node constraints with those that few pods have: operating system and features.

    Decode a new field of NodeConstraints here: pods and DaemonSets both get it. *features*: those
    that the containers need. Equal constraints share one object.
    """
    shares_users = spec.host_network and spec.host_users is False
    if not (spec.os or features or shares_users):
        return node_constraints
    # kube-scheduler's plugin NodeDeclaredFeatures derives the same features.
    features += (HOST_USERS,) if shares_users else ()
    system = spec.os.name if spec.os else ""
    key = node_constraints, system, features
    size = len(spec.node_selector) + len(spec.affinity) + len(spec.tolerations) + len(system)
    return _RARE[key] or _RARE.compute(
        key, lambda: replace(_on_system(node_constraints, system), features=features), size
    )


def _on_system(node_constraints: NodeConstraints, name: str) -> NodeConstraints:
    # kube-scheduler ignores spec.os.name, but a kubelet of another system rejects the pod.
    label = OS_LABEL, name
    known = not name or label in node_constraints.node_selector
    return node_constraints if known else replace(node_constraints, system=(label,))


def _pod_constraints(
    obj: PodObject,
    namespace: str,
    template: templates.Template,
    ports: tuple[HostPort, ...],
    *,
    resident: bool,
) -> templates.Constraints:
    spec = obj.spec
    if ports and (
        too_much := pod_limits.why_too_many("host ports", len(ports), pod_limits.HOST_PORTS_MAX)
    ):
        return templates.ports_only(ports, too_much)
    affinity, spreads = bytes(spec.affinity), bytes(spec.topology_spread_constraints)
    if resident:
        if not ports and b"podAntiAffinity" not in affinity:
            return templates.NO_CONSTRAINTS
        pod_constraints = templates.pod_constraints_of_resident(affinity, ports, namespace)
        return templates.Constraints(pod_constraints, ())
    if not ports and not template.constrains_pods and spreads == NULL_BYTES:
        return templates.NO_CONSTRAINTS
    return templates.pod_constraints(
        affinity, spreads, ports, namespace, bytes(obj.metadata.labels)
    )


def _unsupported(
    spec: PodSpec, unsupported: tuple[str, ...], disruption_facts: DisruptionFacts
) -> tuple[str, ...]:
    if disruption_facts.disks:
        unsupported += (VOLUMES_FIELD,)
    if disruption_facts.claims:
        unsupported += (CLAIMS_FIELD,)
    if PRESENT_LIST.decode(spec.resource_claims, "spec.resourceClaims"):
        unsupported += (DEVICES_FIELD,)
    if spec.scheduler_name and spec.scheduler_name not in KNOWN_SCHEDULERS:
        unsupported += (SCHEDULER_FIELD,)
    return unsupported
