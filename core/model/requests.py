"""Compute the resource requests of a pod as kube-scheduler counts them.

Source: k8s.io/component-helpers resource, PodRequests; KEP-753 (sidecars), KEP-2837 (pod level),
KEP-1287 and KEP-5419 (in-place resize). Amounts are rounded up before they are summed: the API
server stores no finer amounts than a millicore or a byte.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from core.model.resources import HUGE_PAGES, KNOWN, Resources

Amounts = Mapping[str, int]
"""Amounts by resource name: CPU in millicores, other resources in whole units."""
POD_LEVEL: Final = ("cpu", "memory")
"""Resources besides huge pages that `spec.resources` may set for the pod as a whole."""


@dataclass(frozen=True, slots=True)
class Container:
    """A container with its requests; an init container with *restartable* is a sidecar."""

    requests: Amounts
    restartable: bool = False
    allocated: tuple[Amounts, ...] = ()
    """Amounts from the container's status: running and allocated; empty if the status has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodParts:
    """Everything in a pod that requests resources: containers, overhead, the pod as a whole."""

    containers: Sequence[Container] = ()
    init_containers: Sequence[Container] = ()
    overhead: Amounts = field(default_factory=dict)
    pod_level: Amounts = field(default_factory=dict)
    pod_level_allocated: tuple[Amounts, ...] = ()
    """Amounts from the pod's status for the pod as a whole, as in Container.allocated."""
    infeasible: bool = False
    """The kubelet rejected a resize as infeasible: only the allocated amounts count."""


def pod_requests(parts: PodParts) -> Resources:
    """Return the requests that the scheduler subtracts from a node for the pod; `pods` is 1.

    Main containers and sidecars run together. An ordinary init container runs together with the
    sidecars started before it. The larger of both sums counts for each resource. A request of the
    pod as a whole replaces the sum of its containers. The overhead is added to the result.
    """
    total = _containers(parts)
    if parts.pod_level:
        whole_pod = _larger(
            parts.pod_level, parts.pod_level_allocated, infeasible=parts.infeasible
        )
        for name in parts.pod_level:
            if name in POD_LEVEL or name.startswith(HUGE_PAGES):
                total[name] = whole_pod.get(name, 0)
    return resources(_sum((total, parts.overhead)), pods=1)


def _containers(parts: PodParts) -> dict[str, int]:
    """Return the largest sum of requests of containers that run at the same time, by resource."""
    infeasible = parts.infeasible
    # During a resize, kube-scheduler 1.37 sums the containers in each state (requested, allocated,
    # running) and takes the largest sum. Until 1.36 it summed the largest value of each container,
    # as here. That is never less, so Ebb expects no room that a scheduler of any version lacks.
    running = _sum(
        _larger(container.requests, container.allocated, infeasible=infeasible)
        for container in parts.containers
    )
    if not parts.init_containers:
        return running
    sidecars: dict[str, int] = {}
    starting: dict[str, int] = {}
    for container in parts.init_containers:
        if container.restartable:
            allocated = _larger(container.requests, container.allocated, infeasible=infeasible)
            sidecars = _sum((sidecars, allocated))
            starting = _max(starting, sidecars)
        else:
            starting = _max(starting, _sum((sidecars, container.requests)))
    return _max(_sum((running, sidecars)), starting)


def resources(amounts: Mapping[str, int], *, pods: int) -> Resources:
    """Return *amounts* as Resources with the given number of pods.

    *amounts*: CPU in millicores and other resources in whole units, by resource name.
    """
    extended = tuple(sorted((n, a) for n, a in amounts.items() if a and n not in KNOWN))
    return Resources(
        amounts.get("cpu", 0),
        amounts.get("memory", 0),
        amounts.get("ephemeral-storage", 0),
        pods,
        extended,
    )


def _larger(
    requested: Amounts, allocated: tuple[Amounts, ...], *, infeasible: bool
) -> dict[str, int]:
    """Return the largest of the requested and allocated amounts of each resource.

    If *infeasible*, only allocated amounts count, unless there are none.
    """
    largest: dict[str, int] = {}
    for part in allocated if allocated and infeasible else (requested, *allocated):
        largest = _max(largest, part)
    return largest


def _sum(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total.get(name, 0) + amount
    return total


def _max(left: Mapping[str, int], right: Mapping[str, int]) -> dict[str, int]:
    return {name: max(left.get(name, 0), right.get(name, 0)) for name in {**left, **right}}
