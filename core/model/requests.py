"""Compute the resource requests of a pod as kube-scheduler counts them, and its limits.

Sources: k8s.io/component-helpers resource, PodRequests and PodLimits; GetPodQOS of Kubernetes;
KEP-753 (sidecars), KEP-2837 (pod level), KEP-1287 and KEP-5419 (in-place resize). Amounts are
rounded up before they are summed: the API server stores no finer amounts than a millicore or a
byte.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from core.model.resources import HUGE_PAGES, KNOWN, Resources

Amounts = Mapping[str, int]
"""Amounts by resource name: CPU in millicores, other resources in whole units."""
POD_LEVEL: Final = ("cpu", "memory")
"""Resources besides huge pages that `spec.resources` may set for the pod as a whole."""
QOS: Final = ("cpu", "memory")
"""Resources that decide the QoS class, and that each container must set if a quota limits them."""


@dataclass(frozen=True, slots=True)
class Container:
    """A container with its requests; an init container with *restartable* is a sidecar."""

    requests: Amounts
    restartable: bool = False
    allocated: tuple[Amounts, ...] = ()
    """Amounts from the container's status: running and allocated; empty if the status has none."""
    limits: Amounts = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodParts:
    """Everything in a pod that requests resources: containers, overhead, the pod as a whole."""

    containers: Sequence[Container] = ()
    init_containers: Sequence[Container] = ()
    overhead: Amounts = field(default_factory=dict)
    pod_level: Amounts = field(default_factory=dict)
    pod_level_allocated: tuple[Amounts, ...] = ()
    """Amounts from the pod's status for the pod as a whole, as in Container.allocated."""
    pod_level_limits: Amounts = field(default_factory=dict)
    infeasible: bool = False
    """The kubelet rejected a resize as infeasible: only the allocated amounts count."""

    @property
    def has_pod_level(self) -> bool:
        """Return whether the pod as a whole sets a request or limit that may be set there."""
        return any(map(_may_be_pod_level, (*self.pod_level, *self.pod_level_limits)))


def pod_requests(parts: PodParts) -> Resources:
    """Return the requests that the scheduler subtracts from a node for the pod; `pods` is 1.

    Main containers and sidecars run together. An ordinary init container runs together with the
    sidecars started before it. The larger of both sums counts for each resource. A request of the
    pod as a whole replaces the sum of its containers. The overhead is added to the result.
    """
    total = _without_overhead(parts)
    return resources(_sum((total, parts.overhead)), pods=1)


def limits_of(parts: PodParts) -> Resources:
    """Return the limits of the pod as a ResourceQuota counts them; `pods` is 0.

    They are summed like requests. Containers without a limit add nothing, and the overhead counts
    only where there is a limit.
    """
    limits = PodParts(
        containers=list(map(_limited, parts.containers)),
        init_containers=list(map(_limited, parts.init_containers)),
        pod_level=parts.pod_level_limits,
    )
    total = _without_overhead(limits)
    overhead = {name: amount for name, amount in parts.overhead.items() if total.get(name)}
    return resources(_sum((total, overhead)), pods=0)


def is_best_effort(parts: PodParts) -> bool:
    """Return whether the QoS class is BestEffort: nothing requests or limits CPU or memory."""
    amounts: tuple[Amounts, ...] = (parts.pod_level, parts.pod_level_limits)
    if not parts.has_pod_level:
        containers = (*parts.containers, *parts.init_containers)
        amounts = tuple(part for one in containers for part in (one.requests, one.limits))
    return not any(part.get(name) for part in amounts for name in QOS)


def unset_amounts(parts: PodParts) -> tuple[str, ...]:
    """Return the requests and limits of CPU and memory that some container does not set, sorted.

    The API server rejects such a pod if a ResourceQuota limits one of them, for example
    `limits.cpu`. The result is empty if the pod as a whole sets its resources.
    """
    if parts.has_pod_level:
        return ()
    containers = (*parts.containers, *parts.init_containers)
    unset = {f"requests.{name}" for name in QOS for one in containers if name not in one.requests}
    unset |= {f"limits.{name}" for name in QOS for one in containers if name not in one.limits}
    return tuple(sorted(unset))


def _limited(container: Container) -> Container:
    return Container(container.limits, restartable=container.restartable)


def _may_be_pod_level(name: str) -> bool:
    return name in POD_LEVEL or name.startswith(HUGE_PAGES)


def _without_overhead(parts: PodParts) -> dict[str, int]:
    total = _containers(parts)
    if parts.pod_level:
        whole_pod = _larger(
            parts.pod_level, parts.pod_level_allocated, infeasible=parts.infeasible
        )
        for name in parts.pod_level:
            if _may_be_pod_level(name):
                total[name] = whole_pod.get(name, 0)
    return total


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
