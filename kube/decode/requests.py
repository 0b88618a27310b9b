"""Decode the containers of pods, and compute the resource requests and limits of the pods.

Pods of one template usually share the result. The cache key consists of the resource blocks as
sent, so that most pods cost a lookup.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from core.model.constraints import ANY_IP, MOUNT_OPTIONS, RESTARTS_ALL, HostPort, QuotaFacts
from core.model.requests import (
    Amounts,
    Container,
    PodParts,
    is_best_effort,
    limits_of,
    pod_requests,
    unset_amounts,
)
from core.model.resources import KNOWN, Resources
from kube.decode import objects, pod_limits
from kube.decode.byte_lru import ByteBoundedCache, bytes_in
from kube.decode.field_decoding import NULL, NULL_BYTES, read_amounts
from kube.decode.objects import (
    AMOUNTS,
    CONDITIONS,
    CONTAINER_RESOURCES,
    CONTAINERS,
    MOUNTING_CONTAINERS,
    NO_STATUS,
    RESOURCE_BYTES_MAX,
    STATUSES,
    Condition,
    PodSpec,
    PodStatus,
)

RESTART_ALL_ACTION: Final = "RestartAllContainers"
_MOUNT_OPTIONS: Final = b'"bindMountOptions"'
RESIZE_PENDING: Final = "PodResizePending"
_RESIZE_PENDING: Final = RESIZE_PENDING.encode()
INFEASIBLE: Final = "Infeasible"
_RESOURCES: Final = b'esources":'
"""End of the keys `resources` and `allocatedResources`."""
_NO_PAIR: Final = NULL_BYTES, NULL_BYTES

Block = tuple[str, str | None, bytes]
"""Name, restart policy and resources (JSON) of a container."""
Allocation = tuple[str, bytes, bytes]
"""Name of a container, its actual resources, and its allocated resources, from the status."""
QuotaFields = tuple[str, bool, bool]
"""Fields of QuotaFacts that do not come from containers: priority_class, has_deadline,
crosses_namespaces."""
Shape = tuple[
    tuple[tuple[Block, ...], tuple[Block, ...]],
    tuple[tuple[Allocation, ...], tuple[Allocation, ...]],
    tuple[bytes, bytes],
    tuple[bytes, bytes],
    bool,
    QuotaFields,
]
"""Key of the cache: the arguments of `_summed`."""
_NO_QUOTA_FIELDS: Final[QuotaFields] = ("", False, False)


class PodAmounts(NamedTuple):
    """The resource requests of a pod, and what else ResourceQuotas read of it."""

    requests: Resources
    quota_facts: QuotaFacts


_SHAPES: Final = ByteBoundedCache[Shape, PodAmounts]()
_SAME_AMOUNTS: Final = ByteBoundedCache[Resources, Resources]()
_SAME_FACTS: Final = ByteBoundedCache[QuotaFacts, QuotaFacts]()


class Containers(NamedTuple):
    """The containers of a pod: resources, host ports, and features that the kubelet must have."""

    main: tuple[Block, ...]
    init: tuple[Block, ...]
    ports: tuple[HostPort, ...]
    """Host ports of the pod; most pods have none."""
    features: tuple[str, ...]
    """Names of the features of ASKED_FEATURES that the containers need, in this order."""


def containers_of(spec: PodSpec) -> Containers:
    """Decode the containers of a pod. Raises: InvalidInputError with the invalid field."""
    containers = main = _read_containers(spec.containers, "spec.containers")
    blocks = tuple(
        [
            (container.name, container.restart_policy, bytes(container.resources))
            for container in main
        ]
    )
    init_blocks: tuple[Block, ...] = ()
    if spec.init_containers is not NULL:
        init = _read_containers(spec.init_containers, "spec.initContainers")
        init_blocks = tuple(
            [
                (container.name, container.restart_policy, bytes(container.resources))
                for container in init
            ]
        )
        containers = [*main, *init]
    ports: list[HostPort] = []
    features: list[str] = []
    on_host = spec.host_network
    for number, container in enumerate(containers):
        # kube-scheduler's NodePorts ignores the ports of ordinary init containers.
        if container.ports and (number < len(main) or container.restart_policy == "Always"):
            for port in container.ports:
                # With hostNetwork the API server defaults hostPort to containerPort.
                taken = port.host_port or (on_host and port.container_port)
                if taken:
                    ports.append(HostPort(taken, port.protocol or "TCP", port.host_ip or ANY_IP))
        if (
            container.restart_policy_rules
            and not features
            and any(rule.action == RESTART_ALL_ACTION for rule in container.restart_policy_rules)
        ):
            features.append(RESTARTS_ALL)
    if _sets_mount_options(spec.containers, "spec.containers") or _sets_mount_options(
        spec.init_containers, "spec.initContainers"
    ):
        features.append(MOUNT_OPTIONS)
    return Containers(blocks, init_blocks, tuple(ports), tuple(features))


def _sets_mount_options(raw: msgspec.Raw, field: str) -> bool:
    """Return whether a volume mount has bindMountOptions (KEP-5855)."""
    # All pods have volume mounts, and hardly any has options: the JSON is searched first.
    if raw is NULL or _MOUNT_OPTIONS not in bytes(raw):
        return False
    containers = MOUNTING_CONTAINERS.decode(raw, field) or ()
    return any(
        mount.bind_mount_options
        for container in containers
        for mount in container.volume_mounts or ()
    )


def _read_containers(raw: msgspec.Raw, field: str) -> Sequence[objects.Container]:
    containers = CONTAINERS.decode(raw, field) or ()
    if len(containers) > pod_limits.CONTAINERS_MAX:
        pod_limits.check_count("containers", len(containers), pod_limits.CONTAINERS_MAX, field)
    return containers


def amounts_of(
    spec: PodSpec,
    containers: Containers,
    status: PodStatus = NO_STATUS,
    resizes: Sequence[Condition] = (),
    *,
    crosses_namespaces: bool = False,
) -> PodAmounts:
    """Return the resource requests of a pod, as kube-scheduler computes them, and quota facts.

    *containers*: the decoded containers of *spec*. *resizes*: the pod's conditions
    PodResizePending. *crosses_namespaces*: as in QuotaFacts. Raises: InvalidInputError with the
    invalid field.
    """
    quota_fields = _NO_QUOTA_FIELDS
    deadline = spec.active_deadline_seconds
    if spec.priority_class_name or deadline is not None or crosses_namespaces:
        has_deadline = deadline is not None and deadline >= 0
        quota_fields = spec.priority_class_name or "", has_deadline, crosses_namespaces
    key = (
        (containers.main, containers.init),
        (
            _allocations(status.container_statuses, "status.containerStatuses"),
            _allocations(status.init_container_statuses, "status.initContainerStatuses"),
        ),
        _pair(spec.overhead, spec.resources),
        _pair(status.resources, status.allocated_resources),
        bool(resizes) and any(condition.reason == INFEASIBLE for condition in resizes),
        quota_fields,
    )
    return _SHAPES[key] or _compute(key)


def _pair(first: msgspec.Raw, second: msgspec.Raw) -> tuple[bytes, bytes]:
    return _NO_PAIR if first is NULL and second is NULL else (bytes(first), bytes(second))


def _compute(key: Shape) -> PodAmounts:
    size = bytes_in(key)
    pod_limits.check_count("bytes of resources", size, RESOURCE_BYTES_MAX, "spec.containers")

    def summed() -> PodAmounts:
        requests, quota_facts = _summed(*key)
        return PodAmounts(_SAME_AMOUNTS.same(requests, size), _SAME_FACTS.same(quota_facts, size))

    return _SHAPES.compute(key, summed, size)


def _allocations(raw: msgspec.Raw, field: str) -> tuple[Allocation, ...]:
    if raw is NULL or _RESOURCES not in bytes(raw):
        return ()
    return tuple(
        [
            (status.name, bytes(status.resources), bytes(status.allocated_resources))
            for status in STATUSES.decode(raw, field) or ()
        ]
    )


def pending_resizes(conditions: bytes) -> Sequence[Condition]:
    """Return the conditions PodResizePending of a pod; most pods have none.

    The condition means that the kubelet has not begun a resize. *conditions*: the JSON of all
    conditions. Raises: InvalidInputError with the invalid field.
    """
    if _RESIZE_PENDING not in conditions:
        return ()
    decoded = CONDITIONS.decode(conditions, "status.conditions") or ()
    return [condition for condition in decoded if condition.type == RESIZE_PENDING]


def _summed(
    containers: tuple[tuple[Block, ...], tuple[Block, ...]],
    allocated: tuple[tuple[Allocation, ...], tuple[Allocation, ...]],
    pod: tuple[bytes, bytes],
    pod_status: tuple[bytes, bytes],
    infeasible: bool,  # noqa: FBT001 a part of the key
    quota_fields: QuotaFields,
) -> PodAmounts:
    statuses = {
        **_statuses(allocated[0], "status.containerStatuses"),
        **_statuses(allocated[1], "status.initContainerStatuses"),
    }
    overhead, pod_level = pod
    parts = PodParts(
        containers=_containers(containers[0], statuses, "spec.containers"),
        init_containers=_containers(containers[1], statuses, "spec.initContainers"),
        overhead=_amounts(overhead, "spec.overhead"),
        pod_level=_requests(pod_level, "spec.resources"),
        pod_level_limits=_limits(pod_level, "spec.resources"),
        pod_level_allocated=_actual_and_allocated(*pod_status, "status"),
        infeasible=infeasible,
    )
    # Check before summing: the sum over sidecars is quadratic in their number.
    pod_limits.check_count(
        "resources", _extended_count(parts), pod_limits.RESOURCES_MAX, "spec.containers"
    )
    priority_class, has_deadline, crosses_namespaces = quota_fields
    quota_facts = QuotaFacts(
        limits=limits_of(parts),
        unset=unset_amounts(parts),
        priority_class=priority_class,
        best_effort=is_best_effort(parts),
        has_deadline=has_deadline,
        crosses_namespaces=crosses_namespaces,
    )
    return PodAmounts(pod_requests(parts), quota_facts)


def _extended_count(parts: PodParts) -> int:
    """Return the number of resource names besides CPU, memory, ephemeral storage and pods."""
    containers = (*parts.containers, *parts.init_containers)
    amounts = [
        part for container in containers for part in (container.requests, *container.allocated)
    ]
    amounts += (parts.overhead, parts.pod_level, *parts.pod_level_allocated)
    return len(set().union(*amounts).difference(KNOWN))


def _containers(
    blocks: tuple[Block, ...], statuses: dict[str, tuple[Amounts, ...]], field: str
) -> list[Container]:
    return [
        Container(
            _requests(raw, f"{field}[{number}].resources"),
            restartable=policy == "Always",
            allocated=statuses.get(name, ()),
            limits=_limits(raw, f"{field}[{number}].resources"),
        )
        for number, (name, policy, raw) in enumerate(blocks)
    ]


def _statuses(allocations: tuple[Allocation, ...], field: str) -> dict[str, tuple[Amounts, ...]]:
    return {
        name: _actual_and_allocated(running, allocated, f"{field}[{number}]")
        for number, (name, running, allocated) in enumerate(allocations)
    }


def _actual_and_allocated(running: bytes, allocated: bytes, field: str) -> tuple[Amounts, ...]:
    """Return the actual and the allocated amounts, decoded from the status of a pod or container.

    As in kube-scheduler, the result is empty without actual resources. *running*: JSON of the
    actual resources. *field*: path for errors.
    """
    if running == NULL_BYTES:
        return ()
    return (
        _requests(running, f"{field}.resources"),
        _amounts(allocated, f"{field}.allocatedResources"),
    )


def _requests(raw: bytes, field: str) -> Amounts:
    block = CONTAINER_RESOURCES.decode(raw, field)
    return read_amounts((block and block.requests) or {}, f"{field}.requests")


def _limits(raw: bytes, field: str) -> Amounts:
    block = CONTAINER_RESOURCES.decode(raw, field)
    if block is None or block.limits is None:
        return {}
    written = {
        "cpu": block.limits.cpu,
        "memory": block.limits.memory,
        "ephemeral-storage": block.limits.ephemeral_storage,
    }
    amounts = {name: amount for name, amount in written.items() if amount is not None}
    return read_amounts(amounts, f"{field}.limits")


def _amounts(raw: bytes, field: str) -> Amounts:
    return read_amounts(AMOUNTS.decode(raw, field) or {}, field)
