"""What a pod on the wire asks for. Pods of one template ask the same: counted once for all.

The key is the resource blocks as they were sent, so most pods cost a look-up.
"""

from collections.abc import Iterable
from typing import Final

from core.edge.decode import pod_limits
from core.edge.decode.byte_lru import ByteBoundedCache, bytes_in
from core.edge.decode.fields import read_amounts, read_field
from core.edge.decode.objects import (
    AMOUNTS_DECODER,
    CONDITIONS_DECODER,
    NULL_BYTES,
    REQUESTS_DECODER,
    ContainerStatus,
    PodSpec,
    PodStatus,
)
from core.edge.decode.objects import Container as WireContainer
from core.model.requests import Amounts, Container, PodParts, pod_requests
from core.model.resources import KNOWN, Resources

RESIZE_PENDING: Final = "PodResizePending"
INFEASIBLE: Final = "Infeasible"
_NO_STATUS: Final = PodStatus()

Block = tuple[str, str | None, bytes]
"""A container's name, restart policy and resources."""
Held = tuple[str, bytes, bytes]
"""A container's name, what it runs with, what it has been allocated."""
Shape = tuple[
    tuple[tuple[Block, ...], tuple[Block, ...]],
    tuple[tuple[Held, ...], tuple[Held, ...]],
    tuple[bytes, bytes],
    tuple[bytes, bytes],
    bool,
]
"""What `_counted` takes."""
_SHAPES: Final = ByteBoundedCache[Shape, Resources]()
_SAME_AMOUNTS: Final = ByteBoundedCache[Resources, Resources]()


def requests_of(spec: PodSpec, status: PodStatus | None) -> Resources:
    """Count the pod's requests. Raises: InvalidInputError with the field."""
    status = status or _NO_STATUS
    key = (
        (_blocks(spec.containers or ()), _blocks(spec.init_containers or ())),
        (_held(status.container_statuses or ()), _held(status.init_container_statuses or ())),
        (bytes(spec.overhead), bytes(spec.resources)),
        (bytes(status.resources), bytes(status.allocated_resources)),
        _infeasible(bytes(status.conditions)),
    )
    return _SHAPES[key] or _SHAPES.made(key, lambda: _made(key))


def _made(key: Shape) -> Resources:
    size = bytes_in(key)
    pod_limits.few("bytes of resources", size, pod_limits.RESOURCE_BYTES_MAX, "spec.containers")
    return _SAME_AMOUNTS.same(_counted(*key), size)


def _blocks(containers: Iterable[WireContainer]) -> tuple[Block, ...]:
    return tuple([(one.name, one.restart_policy, bytes(one.resources)) for one in containers])


def _held(statuses: Iterable[ContainerStatus]) -> tuple[Held, ...]:
    return tuple(
        [(one.name, bytes(one.resources), bytes(one.allocated_resources)) for one in statuses]
    )


def _infeasible(conditions: bytes) -> bool:
    """Say whether the node has refused a resize for good; hardly any pod has the condition."""
    if RESIZE_PENDING.encode() not in conditions:
        return False
    found = read_field(CONDITIONS_DECODER.decode, conditions, "status.conditions") or ()
    return any(one.type == RESIZE_PENDING and one.reason == INFEASIBLE for one in found)


def _counted(
    containers: tuple[tuple[Block, ...], tuple[Block, ...]],
    held: tuple[tuple[Held, ...], tuple[Held, ...]],
    pod: tuple[bytes, bytes],
    pod_held: tuple[bytes, bytes],
    infeasible: bool,  # noqa: FBT001 a part of the key
) -> Resources:
    statuses = {
        **_statuses(held[0], "status.containerStatuses"),
        **_statuses(held[1], "status.initContainerStatuses"),
    }
    overhead, pod_level = pod
    parts = PodParts(
        containers=_containers(containers[0], statuses, "spec.containers"),
        init_containers=_containers(containers[1], statuses, "spec.initContainers"),
        overhead=_amounts(overhead, "spec.overhead"),
        pod_level=_requests(pod_level, "spec.resources"),
        pod_level_allocated=_both(*pod_held, "status"),
        infeasible=infeasible,
    )
    # Before they are summed: each of many sidecars is summed with all before it.
    pod_limits.few("resources", _named(parts), pod_limits.RESOURCES_MAX, "spec.containers")
    return pod_requests(parts)


def _named(parts: PodParts) -> int:
    """Return how many different resources are named beside those that every node has."""
    containers = (*parts.containers, *parts.init_containers)
    amounts = [part for one in containers for part in (one.requests, *one.allocated)]
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
        )
        for number, (name, policy, raw) in enumerate(blocks)
    ]


def _statuses(held: tuple[Held, ...], field: str) -> dict[str, tuple[Amounts, ...]]:
    return {
        name: _both(running, allocated, f"{field}[{number}]")
        for number, (name, running, allocated) in enumerate(held)
    }


def _both(running: bytes, allocated: bytes, field: str) -> tuple[Amounts, ...]:
    """Return what runs and what is allocated; as the scheduler: nothing unless resources are."""
    if running == NULL_BYTES:
        return ()
    return (
        _requests(running, f"{field}.resources"),
        _amounts(allocated, f"{field}.allocatedResources"),
    )


def _requests(raw: bytes, field: str) -> Amounts:
    found = read_field(REQUESTS_DECODER.decode, raw, field)
    return read_amounts((found and found.requests) or {}, f"{field}.requests")


def _amounts(raw: bytes, field: str) -> Amounts:
    return read_amounts(read_field(AMOUNTS_DECODER.decode, raw, field) or {}, field)
