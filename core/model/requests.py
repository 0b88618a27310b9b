"""What a pod asks for, as kube-scheduler counts it.

Source: k8s.io/component-helpers resource, PodRequests; KEP-753 (sidecars), KEP-2837 (pod level),
KEP-1287 and KEP-5419 (resize in place). Parts are rounded up before they are summed: the API
server keeps no finer parts than a millicore or a byte.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from core.model.resources import HUGE_PAGES, KNOWN, Resources

Amounts = Mapping[str, int]
"""By resource: CPU in millicores, everything else in ones."""
POD_LEVEL: Final = ("cpu", "memory")
"""Resources that `spec.resources` may set for the pod as a whole, besides huge pages."""


@dataclass(frozen=True, slots=True)
class Container:
    """A container's requests; *restartable* init containers are sidecars."""

    requests: Amounts
    restartable: bool = False
    held: tuple[Amounts, ...] = ()
    """What the status says that it runs with and has been allocated; empty: it says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """The parts of a pod that ask for resources."""

    containers: Sequence[Container] = ()
    init_containers: Sequence[Container] = ()
    overhead: Amounts = field(default_factory=dict)
    pod_level: Amounts = field(default_factory=dict)
    pod_level_held: tuple[Amounts, ...] = ()
    """As Container.held, for the pod as a whole."""
    infeasible: bool = False
    """The node has refused a resize for good: what is asked beyond what is held is a wish."""


def pod_requests(asking: Asking) -> Resources:
    """Return what the scheduler takes off a node for the pod; `pods` is 1.

    Main containers and sidecars run together; an ordinary init container runs beside the
    sidecars that were started before it; the larger of the two counts, resource by resource.
    A resource that is set for the whole pod replaces that sum. Overhead is added to all.
    """
    total = _containers(asking)
    if asking.pod_level:
        whole_pod = _larger(asking.pod_level, asking.pod_level_held, infeasible=asking.infeasible)
        for name in asking.pod_level:
            if name in POD_LEVEL or name.startswith(HUGE_PAGES):
                total[name] = whole_pod.get(name, 0)
    return resources(_sum((total, asking.overhead)), pods=1)


def _containers(asking: Asking) -> dict[str, int]:
    """Sum what runs at the same time; return the most that does."""
    infeasible = asking.infeasible
    running = _sum(
        _larger(one.requests, one.held, infeasible=infeasible) for one in asking.containers
    )
    if not asking.init_containers:
        return running
    sidecars: dict[str, int] = {}
    starting: dict[str, int] = {}
    for container in asking.init_containers:
        if container.restartable:
            held = _larger(container.requests, container.held, infeasible=infeasible)
            sidecars = _sum((sidecars, held))
            starting = _max(starting, sidecars)
        else:
            starting = _max(starting, _sum((sidecars, container.requests)))
    return _max(_sum((running, sidecars)), starting)


def resources(amounts: Mapping[str, int], *, pods: int) -> Resources:
    """Make Resources of whole units by name: cpu in millicores, everything else in ones."""
    extended = tuple(sorted((n, a) for n, a in amounts.items() if a and n not in KNOWN))
    return Resources(
        amounts.get("cpu", 0),
        amounts.get("memory", 0),
        amounts.get("ephemeral-storage", 0),
        pods,
        extended,
    )


def _larger(asked: Amounts, held: tuple[Amounts, ...], *, infeasible: bool) -> dict[str, int]:
    """Return the most that is asked or held, resource by resource."""
    largest: dict[str, int] = {}
    for part in held if held and infeasible else (asked, *held):
        largest = _max(largest, part)
    return largest


def _sum(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total.get(name, 0) + amount
    return total


def _max(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in {**one, **other}}
