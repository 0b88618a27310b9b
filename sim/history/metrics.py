"""Collect properties of pods and nodes from metrics of kube-state-metrics (version 2).

If Prometheus sets a label of the exporter itself, the exporter's value is read from the label with
the prefix `exported_`, such as `exported_pod`.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from core.eligibility.node_eligibility import CONTROL_PLANE_LABELS
from core.engine.zones import ZONE_LABEL
from core.model.constraints import HOST_LABEL, Toleration
from core.model.node import VIRTUAL_LABELS, VIRTUAL_ROLE_LABEL, Taint

REQUESTS: Final = "kube_pod_container_resource_requests"
INFO: Final = "kube_pod_info"
ALLOCATABLE: Final = "kube_node_status_allocatable"
TAINT: Final = "kube_node_spec_taint"
PHASE: Final = "kube_pod_status_phase"
LIVE_PHASES: Final = ("Pending", "Running")
ROLE_LABEL: Final = "node-role.kubernetes.io/"
KNOWN_LABELS: Final = (
    ZONE_LABEL,
    HOST_LABEL,
    "node.kubernetes.io/instance-type",
    *CONTROL_PLANE_LABELS,
    *(key for key, _ in VIRTUAL_LABELS),
    VIRTUAL_ROLE_LABEL,
)
EXPORTED: Final = "exported_"
"""Prefix that Prometheus adds to a label of the exporter if it sets the same label itself."""
VOLUMES: Final = "attachable_volumes"
"""Prefix of resources that count volumes."""
ABSENT: Final = ("", "<none>", "<nil>")
"""Values for an absent owner or node."""
CREATED: Final = "kube_pod_created"
STARTED: Final = "kube_pod_start_time"
COMPLETED: Final = "kube_pod_completion_time"
_NO_LETTER: Final = re.compile(r"[^a-zA-Z0-9_]")
_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

Labels = Mapping[str, str]


class SeriesInterval(NamedTuple):
    """A Prometheus series in an interval in which it has samples; times in Unix milliseconds."""

    labels: Labels
    first_ms: int
    last_ms: int
    value: str
    """Value of the first sample; the largest one for allocatable resources."""

    def pod(self) -> tuple[str, str, str]:
        """Return (namespace, name, uid) of the pod that the series describes."""
        return self.of("namespace"), self.of("pod"), self.of("uid")

    def of(self, name: str) -> str:
        """Return the value that the exporter has set for a label; empty if the label is absent."""
        return self.labels.get(EXPORTED + name) or self.labels.get(name, "")


@dataclass(slots=True)
class PodFacts:
    """Data of one pod, collected from the series of several metrics; times in Unix milliseconds.

    `owner` is (kind, name). `times` has the start and end of the pod by the name of their metric.
    """

    first_ms: int | None = None
    last_ms: int = 0
    """Times of the first and last sample in which the pod was alive."""
    info: Labels = field(default_factory=dict)
    """Labels of the last info series: by then a scheduled pod has its node."""
    info_ms: int = 0
    owner: tuple[str, str] = ("", "")
    times: dict[str, int] = field(default_factory=dict)
    requests: dict[tuple[bool, str], dict[str, str]] = field(default_factory=dict)
    """Requests by (is an init container, container name)."""
    sidecars: set[str] = field(default_factory=set)
    """Names of init containers that are sidecars."""
    tolerations: set[Toleration] = field(default_factory=set)
    selector: tuple[tuple[str, str], ...] = ()

    def add_interval(self, interval: SeriesInterval) -> None:
        """Extend the time in which the pod was alive by an interval with samples."""
        self.first_ms = min(
            interval.first_ms, interval.first_ms if self.first_ms is None else self.first_ms
        )
        self.last_ms = max(self.last_ms, interval.last_ms)


@dataclass(slots=True)
class NodeFacts:
    """Data of one node, collected from the series of several metrics; times in Unix milliseconds.

    `amounts` has the allocatable amount of each resource as text.
    """

    intervals: list[tuple[int, int]] = field(default_factory=list)
    """Intervals with samples of its allocatable resources."""
    amounts: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    taints: dict[Taint, list[tuple[int, int]]] = field(default_factory=dict)
    """Intervals in which each taint existed."""


class Reading:
    """Data of all pods and nodes that were read so far."""

    def __init__(self, source: str, unreadable: list[str], keys: Iterable[str]) -> None:
        self.source, self.unreadable = source, unreadable
        self.names = {_as_exported(key): key for key in (*KNOWN_LABELS, *keys)}
        self.pods: dict[tuple[str, str, str], PodFacts] = {}
        self.nodes: dict[str, NodeFacts] = {}
        self.metrics: set[str] = set()
        self.moments: set[int] = set()
        """Times with a sample of any node."""
        self.infos: list[SeriesInterval] = []
        self.step_ms = self.series = 0

    def pod(self, interval: SeriesInterval) -> PodFacts:
        """Return the data of the pod that a series describes; add a new pod without data."""
        return self.pods.setdefault(interval.pod(), PodFacts())

    def node(self, interval: SeriesInterval) -> NodeFacts:
        """Return the data of the node that a series describes; add a new node without data."""
        return self.nodes.setdefault(interval.of("node"), NodeFacts())

    def label(self, written: str, prefix: str) -> str:
        """Return the original key of a label, or its exported name if the key is unknown.

        *written*: name of the label in the series. *prefix*: its part before the exported name.
        """
        name = written.removeprefix(prefix)
        return self.names.get(name, name)


def _as_exported(key: str) -> str:
    """Return a label's key as a metric has it: nodePool/Name becomes node_pool_name."""
    return _HUMP.sub("_", _NO_LETTER.sub("_", key)).lower()


def in_number(value: str) -> float:
    """Return the value of a sample as a number; -inf for a value that is not a finite number."""
    try:
        number = float(value)
    except ValueError:
        return -math.inf
    return number if math.isfinite(number) else -math.inf


def _resource(interval: SeriesInterval) -> str:
    """Return the resource that a series describes, by its name in Pods and Nodes."""
    return interval.labels.get("resource", "").replace("ephemeral_storage", "ephemeral-storage")


def _allocatable(reading: Reading, interval: SeriesInterval) -> None:
    resource = _resource(interval)
    node = reading.node(interval)
    node.intervals.append((interval.first_ms, interval.last_ms))
    if not resource.startswith(VOLUMES):
        # A starting kubelet reports no devices until their plugins have registered.
        known = node.amounts.get(resource, interval.value)
        node.amounts[resource] = max(known, interval.value, key=in_number)


def _taint(reading: Reading, interval: SeriesInterval) -> None:
    taint = Taint(*(interval.labels.get(name, "") for name in ("key", "value", "effect")))
    intervals = reading.node(interval).taints.setdefault(taint, [])
    intervals.append((interval.first_ms, interval.last_ms))


def _labels(reading: Reading, interval: SeriesInterval) -> None:
    node = reading.node(interval)
    for name, value in interval.labels.items():
        if name.startswith("label_"):
            node.labels[reading.label(name, "label_")] = value


def _role(reading: Reading, interval: SeriesInterval) -> None:
    reading.node(interval).labels[ROLE_LABEL + interval.labels.get("role", "")] = ""


def _info(reading: Reading, interval: SeriesInterval) -> None:
    pod = reading.pod(interval)
    if interval.last_ms >= pod.info_ms:
        pod.info, pod.info_ms = interval.labels, interval.last_ms
    reading.infos.append(interval)


def node_of(info: Labels, *, exported: bool) -> str | None:
    """Return the name of a pod's node; None if the pod is Pending.

    *info*: labels of the series kube_pod_info. *exported*: Prometheus sets a label `node` itself,
    so the pod's node is in `exported_node`. A Pending pod then has no `exported_node`, as
    Prometheus drops empty labels.
    """
    own = exported and any(name.startswith(EXPORTED) for name in info)
    node = info.get(f"{EXPORTED}node" if own else "node", "")
    return None if node in ABSENT else node


def _phase(reading: Reading, interval: SeriesInterval) -> None:
    if interval.labels.get("phase") in LIVE_PHASES:
        reading.pod(interval).add_interval(interval)


def _owner(reading: Reading, interval: SeriesInterval) -> None:
    if interval.labels.get("owner_is_controller", "true") == "true":
        labels = interval.labels
        reading.pod(interval).owner = labels.get("owner_kind", ""), labels.get("owner_name", "")


def _requests(reading: Reading, interval: SeriesInterval, *, init: bool = False) -> None:
    resource = _resource(interval)
    container = reading.pod(interval).requests.setdefault((init, interval.of("container")), {})
    container.setdefault(resource, interval.value)


def _init_info(reading: Reading, interval: SeriesInterval) -> None:
    if interval.labels.get("restart_policy") == "Always":
        reading.pod(interval).sidecars.add(interval.of("container"))


def _time(name: str) -> Callable[[Reading, SeriesInterval], None]:
    def take(reading: Reading, interval: SeriesInterval) -> None:
        seconds = in_number(interval.value)
        if math.isfinite(seconds):
            reading.pod(interval).times[name] = round(1000 * seconds)

    return take


def _toleration(reading: Reading, interval: SeriesInterval) -> None:
    key, operator, value, effect = (
        interval.labels.get(name, "") for name in ("key", "operator", "value", "effect")
    )
    toleration = Toleration(key, operator or "Equal", value, effect)
    reading.pod(interval).tolerations.add(toleration)


def _selector(reading: Reading, interval: SeriesInterval) -> None:
    prefix = "nodeselector_"
    selector = {
        reading.label(name, prefix): value
        for name, value in interval.labels.items()
        if name.startswith(prefix)
    }
    reading.pod(interval).selector = tuple(sorted(selector.items()))


READERS: Final[Mapping[str, Callable[[Reading, SeriesInterval], None]]] = {
    ALLOCATABLE: _allocatable,
    INFO: _info,
    REQUESTS: _requests,
    PHASE: _phase,
    "kube_pod_owner": _owner,
    CREATED: _time(CREATED),
    STARTED: _time(STARTED),
    COMPLETED: _time(COMPLETED),
    "kube_pod_init_container_resource_requests": lambda reading, interval: _requests(
        reading, interval, init=True
    ),
    "kube_pod_init_container_info": _init_info,
    "kube_pod_tolerations": _toleration,
    "kube_pod_nodeselectors": _selector,
    TAINT: _taint,
    "kube_node_labels": _labels,
    "kube_node_role": _role,
}
"""Metrics that are read; all others are ignored."""
