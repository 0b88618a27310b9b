"""What a pod asks for, as kube-scheduler counts it.

Source: k8s.io/component-helpers resource, PodRequests; KEP-753 (sidecars), KEP-2837 (pod level),
KEP-1287 (resize in place).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from core.model import Resources
from core.quantity import millis, whole

Amounts = Mapping[str, str | int | float]
"""A resource list as it stands in the API: name to quantity."""
POD_LEVEL: Final = ("cpu", "memory", "hugepages-")
"""Resources that `spec.resources` may set for the pod as a whole."""


@dataclass(frozen=True, slots=True)
class Container:
    """A container's requests; *restartable* init containers are sidecars."""

    requests: Amounts
    restartable: bool = False
    resized: tuple[Amounts, ...] = ()
    """What the status says that it has been given (allocated, or running with)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """The parts of a pod that ask for resources."""

    containers: Sequence[Container] = ()
    init_containers: Sequence[Container] = ()
    overhead: Amounts = field(default_factory=dict)
    pod_level: Amounts = field(default_factory=dict)


def pod_requests(asking: Asking) -> Resources:
    """Return what the scheduler takes off a node for the pod; `pods` is 1.

    Main containers and sidecars run together; an ordinary init container runs beside the
    sidecars that were started before it; the larger of the two counts, resource by resource.
    A resource that is set for the whole pod replaces that sum. Overhead is added to all.
    Raises: InvalidQuantityError.
    """
    running = _sum(_amounts(container) for container in asking.containers)
    sidecars: dict[str, int] = {}
    starting: dict[str, int] = {}
    for container in asking.init_containers:
        amounts = _amounts(container)
        if container.restartable:
            sidecars = _sum((sidecars, amounts))
            amounts = sidecars
        else:
            amounts = _sum((sidecars, amounts))
        starting = _max(starting, amounts)
    total = _max(_sum((running, sidecars)), starting)
    for name, quantity in asking.pod_level.items():
        if name.startswith(POD_LEVEL):
            total[name] = _units(name, quantity)
    return resources(_sum((total, _read(asking.overhead))), pods=1)


def resources(amounts: Mapping[str, int], *, pods: int) -> Resources:
    """Make Resources of whole units by name: cpu in millicores, everything else in ones."""
    known = ("cpu", "memory", "ephemeral-storage", "pods")
    extended = tuple(sorted((n, a) for n, a in amounts.items() if a and n not in known))
    return Resources(
        amounts.get("cpu", 0),
        amounts.get("memory", 0),
        amounts.get("ephemeral-storage", 0),
        pods,
        extended,
    )


def _amounts(container: Container) -> dict[str, int]:
    amounts = _read(container.requests)
    for resized in container.resized:
        amounts = _max(amounts, _read(resized))
    return amounts


def _read(amounts: Amounts) -> dict[str, int]:
    return {name: _units(name, quantity) for name, quantity in amounts.items()}


def _units(name: str, quantity: str | float) -> int:
    return millis(quantity) if name == "cpu" else whole(quantity)


def _sum(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total.get(name, 0) + amount
    return total


def _max(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in {**one, **other}}
