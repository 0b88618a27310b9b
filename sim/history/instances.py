"""Read a trace of instances with owners as a history: the instances of an app are a ReplicaSet.

The format is that of the DLRM trace of 2025 (alibaba/clusterdata, cluster-trace-gpu-v2025). The
trace has no nodes. The file instance_types.json beside it lists shapes of nodes with their prices,
in the format of Karpenter's provider for kwok.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from core.config.document import parse
from core.config.settings import API_VERSION, KIND, Config
from core.model.errors import InvalidInputError
from core.model.node import Node
from core.model.pod import REPLICA_SET, Pod
from core.model.quantity import parse_quantity, whole
from core.model.resources import Resources
from runtime.files import read_dump
from sim.history.cluster_history import ClusterHistory, NodeLifetime, PodLifetime, check
from sim.history.load import load_of
from sim.simulated_load import DAY_MS, TRACE_INTERVAL_MS, TYPE_LABEL, SimulatedLoad, amount
from sim.trace import rows

TYPES_FILE: Final = "instance_types.json"
TYPES_BYTES_MAX: Final = 16 * 1024**2
AMOUNT_MAX: Final = 10**6
"""Highest number of cores, GiB or GPUs of an instance."""
SECONDS_MAX: Final = 10**9
HEAD: Final = {"apiVersion": API_VERSION, "kind": KIND}
PRICE_PLACES: Final = 6
"""Decimal places of a price."""
SPARE: Final = Fraction(1, 10)
"""Nodes at the start beyond those that first-fit decreasing fills: kube-scheduler packs worse."""
MIB_PER_GIB: Final = 1024
NOTES: Final = (
    "the trace has no nodes: simulated nodes have types of instance_types.json that fit any pod",
    "instances with GPU fit on no node, because simulated nodes have no GPU",
    "max_instance_per_node of the trace and requests for network cards are ignored",
)


class NodeType(NamedTuple):
    """A node type that the simulated autoscaler can add."""

    name: str
    allocatable: Resources
    price: Fraction
    """Hourly price on demand."""


class Instance(NamedTuple):
    """A line of the trace: an instance, which becomes a pod of its app; times in milliseconds."""

    name: str
    app: str
    requests: Resources
    created_ms: int | None
    """Time at which the pod was created; None if before the start of the trace."""
    scheduled_ms: int | None
    deleted_ms: int | None
    """Time at which the pod was deleted; None if after the end of the trace."""


class _Requirement(msgspec.Struct):
    key: str
    values: list[str] = []


class _Offering(msgspec.Struct, rename="pascal"):
    price: float
    requirements: list[_Requirement] = []


class _Type(msgspec.Struct, rename="camel"):
    name: str
    offerings: list[_Offering]
    architecture: str
    operating_systems: list[str]
    resources: dict[str, str]


def is_trace(path: str) -> bool:
    """Return whether the path is a trace of instances: a file, as other histories are folders."""
    return Path(path).is_file()


def read(path: str) -> ClusterHistory:
    """Read a trace of instances, and the node types in the file beside it, as a history.

    The trace has no nodes. The history has nodes of the type with which the first instances cost
    least, ten percent more than they need. Raises: InvalidInputError with file and line.
    """
    instances = list(_instances(Path(path)))
    begins_ms = min(
        (instance.created_ms for instance in instances if instance.created_ms is not None),
        default=0,
    )
    times = (time for instance in instances for time in (instance.created_ms, instance.deleted_ms))
    ends_ms = max((time for time in times if time is not None), default=0)
    types = node_types(path, instances)
    first = [
        instance.requests
        for instance in instances
        if instance.created_ms is None and _needs_no_gpu(instance)
    ]
    chosen, count = min(
        ((node_type, _packed(first, node_type.allocatable)) for node_type in types),
        key=lambda choice: (choice[1] * choice[0].price, choice[0].name),
    )
    names = [chosen.name] * (count + -(-count * SPARE // 1)) + [
        node_type.name for node_type in types
    ]
    allocatable = {node_type.name: node_type.allocatable for node_type in types}
    lifetimes = (
        NodeLifetime(
            node=Node(
                name=f"node-{number:05}", allocatable=allocatable[name], labels={TYPE_LABEL: name}
            ),
            # The autoscaler can add nodes of every type, so a node of each type ends the history.
            begins_ms=ends_ms if number >= len(names) - len(types) else begins_ms,
            ends_ms=ends_ms,
        )
        for number, name in enumerate(names)
    )
    return check(
        ClusterHistory(
            source=path,
            begins_ms=begins_ms,
            ends_ms=ends_ms,
            node_lifetimes=tuple(lifetimes),
            pod_lifetimes=tuple(_lifetime(instance, begins_ms) for instance in instances),
            notes=NOTES,
            nodes_recorded=False,
        )
    )


def load_of_days(path: str, days: int, config: Config) -> SimulatedLoad:
    """Return the first *days* days of the trace at *path* as a simulated load.

    *config* determines the labels that distinguish node groups. Raises: InvalidInputError.
    """
    load = load_of(read(path), config).load
    return replace(
        load, duration_ms=min(load.duration_ms, days * DAY_MS), interval_ms=TRACE_INTERVAL_MS
    )


def with_prices(config: Config, path: str) -> Config:
    """Return the configuration with the prices of the node types beside the trace at *path*.

    If the configuration has prices, it is returned unchanged. Raises: InvalidInputError.
    """
    if config.prices:
        return config
    return replace(config, prices=parse({**HEAD, "prices": prices(path)}, path).prices)


def prices(path: str) -> list[dict[str, object]]:
    """Return entries of Ebb's setting `prices` for the node types beside the trace at *path*.

    Each entry has the keys `nodeSelector` and `price`. Raises: InvalidInputError.
    """
    types = node_types(path, list(_instances(Path(path))))
    return [
        {
            "nodeSelector": {TYPE_LABEL: node_type.name},
            "price": f"{float(node_type.price):.{PRICE_PLACES}f}",
        }
        for node_type in types
    ]


def node_types(path: str, instances: Iterable[Instance]) -> list[NodeType]:
    """Return the node types for Linux on amd64 that fit every instance without GPU, by name.

    *path*: path of the trace, beside which the file with the types lies. Types without an
    on-demand price are left out. Raises: InvalidInputError, also if no type remains.
    """
    file = str(Path(path).with_name(TYPES_FILE))
    try:
        listed = msgspec.json.decode(read_dump(file, TYPES_BYTES_MAX), type=list[_Type])
    except msgspec.MsgspecError as fault:
        raise InvalidInputError(file, str(fault)) from fault
    shapes = {instance.requests for instance in instances if _needs_no_gpu(instance)}
    fitting = [
        NodeType(node_type.name, allocatable, price)
        for node_type in listed
        if (node_type.architecture, node_type.operating_systems) == ("amd64", ["linux"])
        and all(shape.fits_in(allocatable := _allocatable(node_type, file)) for shape in shapes)
        and (price := _on_demand(node_type)) is not None
    ]
    if not fitting or not shapes:
        problem = "no node type for Linux on amd64 with an on-demand price fits every instance"
        raise InvalidInputError(file, problem)
    return sorted(fitting)


def _on_demand(node_type: _Type) -> Fraction | None:
    prices = [
        offering.price
        for offering in node_type.offerings
        if any(requirement.values == ["on-demand"] for requirement in offering.requirements)
        and offering.price > 0
    ]
    return Fraction(str(min(prices))) if prices else None


def _allocatable(node_type: _Type, file: str) -> Resources:
    try:
        cpu, memory, pods = (
            node_type.resources.get(name, "0") for name in ("cpu", "memory", "pods")
        )
        return Resources(round(1000 * parse_quantity(cpu)), whole(memory), 0, whole(pods))
    except InvalidInputError as fault:
        raise InvalidInputError(f"{file}: {node_type.name}", fault.problem) from fault


def _instances(path: Path) -> Iterator[Instance]:
    for at, row in rows(path, "instance_sn"):
        app = row.get("app_name") or ""
        if not app:
            raise InvalidInputError(f"{at}: app_name", "missing")
        cpu, memory, gpu = (
            _number(row, f"{name}_request", at, AMOUNT_MAX) or 0
            for name in ("cpu", "memory", "gpu")
        )
        created, scheduled, deleted = (
            _milliseconds(row, f"{name}_time", at)
            for name in ("creation", "scheduled", "deletion")
        )
        if created is not None and deleted is not None and deleted < created:
            raise InvalidInputError(f"{at}: deletion_time", "is before creation_time")
        requests = amount(round(1000 * cpu), round(MIB_PER_GIB * memory), round(1000 * gpu))
        yield Instance(row["instance_sn"], app, requests, created, scheduled, deleted)


def _milliseconds(row: Mapping[str, str], field: str, at: str) -> int | None:
    seconds = _number(row, field, at, SECONDS_MAX)
    return None if seconds is None else round(1000 * seconds)


def _number(row: Mapping[str, str], field: str, at: str, most: int) -> Fraction | None:
    text = row.get(field) or ""
    if not text:
        return None
    digits = text.replace(".", "", 1)
    if not (digits.isascii() and digits.isdecimal()) or Fraction(text) > most:
        problem = f"{text!r:.40}; allowed: a number from 0 to {most}"
        raise InvalidInputError(f"{at}: {field}", problem)
    return Fraction(text)


def _needs_no_gpu(instance: Instance) -> bool:
    return not instance.requests.extended


def _lifetime(instance: Instance, begins_ms: int) -> PodLifetime:
    created_ms = begins_ms if instance.created_ms is None else instance.created_ms
    scheduled_ms = created_ms if instance.scheduled_ms is None else instance.scheduled_ms
    pod = Pod(
        namespace="work",
        name=instance.name,
        requests=instance.requests,
        owner_kind=REPLICA_SET,
        owner_name=instance.app,
    )
    return PodLifetime(
        pod=pod,
        begins_ms=created_ms,
        bound_ms=max(scheduled_ms, created_ms),
        ends_ms=instance.deleted_ms,
    )


def _packed(pods: Sequence[Resources], shape: Resources) -> int:
    """Return how many nodes of a shape these pods need by first-fit decreasing, at least 1.

    *pods*: requests of the pods. *shape*: allocatable resources of a node.
    """
    least = min((pod.cpu_millis for pod in pods), default=0)
    full, open_nodes = 0, [shape]
    for pod in sorted(pods, key=lambda pod: (-pod.cpu_millis, -pod.memory_bytes)):
        index = next((i for i, free in enumerate(open_nodes) if pod.fits_in(free)), None)
        if index is None:
            open_nodes.append(shape)
            index = len(open_nodes) - 1
        open_nodes[index] -= pod
        if open_nodes[index].cpu_millis < least:
            del open_nodes[index]
            full += 1
    return full + sum(free != shape for free in open_nodes) or 1
