"""Answers of Prometheus about the metrics of kube-state-metrics, as a past.

Each file is the body of one `/api/v1/query_range` for one metric by its plain name; a long time
may be cut into several files. Labels and units are those of kube-state-metrics 2. Where Prometheus
has put labels of its own in their place, `exported_pod` counts, and so on.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple

import msgspec

from core.edge import files
from core.edge.decode.fields import read_amounts, strictly
from core.engine.zones import ZONE_LABEL
from core.errors import InvalidInputError
from core.guards.nodes import CONTROL_PLANE_LABELS
from core.model.constraints import Placing, Toleration
from core.model.node import Node, Taint
from core.model.pod import Pod
from core.model.requests import Asking, Container, pod_requests, resources
from sim.history.dumps import Tell, listed
from sim.history.past import Life, Past, Stay, check, check_sizes

FILE_BYTES_MAX: Final = 1024**3
SERIES_MAX: Final = 10_000_000
REQUESTS: Final = "kube_pod_container_resource_requests"
INFO: Final = "kube_pod_info"
ALLOCATABLE: Final = "kube_node_status_allocatable"
NEEDED: Final = (ALLOCATABLE, INFO, REQUESTS)
PHASE: Final = "kube_pod_status_phase"
LIVE_PHASES: Final = ("Pending", "Running")
ROLE_LABEL: Final = "node-role.kubernetes.io/"
KNOWN_LABELS: Final = (ZONE_LABEL, "node.kubernetes.io/instance-type", *CONTROL_PLANE_LABELS)
NOT_ASKED: Final = "attachable_volumes"
"""Resources that count volumes."""
NONE: Final = ("", "<none>", "<nil>")
"""What the metrics write for nobody."""
HOW_TO: Final = "docs/replay.md has the queries"
_NO_LETTER: Final = re.compile(r"[^a-zA-Z0-9_]")

Labels = Mapping[str, str]


class _Series(msgspec.Struct):
    metric: dict[str, str]
    values: msgspec.Raw


class _Data(msgspec.Struct, rename="camel"):
    result_type: str = ""
    result: list[_Series] = msgspec.field(default_factory=list)


class _Body(msgspec.Struct):
    status: str = ""
    error: str = ""
    data: _Data | None = None


_BODY: Final = msgspec.json.Decoder(_Body)
_SAMPLES: Final = msgspec.json.Decoder(list[tuple[float, str]])


class _Run(NamedTuple):
    """A series: its first sample, and when the last was; unix ms."""

    labels: Labels
    first_ms: int
    last_ms: int
    value: str

    def pod(self) -> tuple[str, str, str]:
        """Return whose it is: namespace, name, uid."""
        return self.of("namespace"), self.of("pod"), self.of("uid")

    def of(self, name: str) -> str:
        """Return a label; where Prometheus has one of that name itself, the exporter's."""
        return self.labels.get(f"exported_{name}") or self.labels.get(name, "")


@dataclass(slots=True)
class _Pod:
    """What is known of a pod."""

    first_ms: int | None = None
    last_ms: int = 0
    """When it was seen alive, first and last."""
    info: Labels = field(default_factory=dict)
    owner: tuple[str, str] = ("", "")
    times: dict[str, int] = field(default_factory=dict)
    requests: dict[tuple[bool, str], dict[str, str]] = field(default_factory=dict)
    """By whether it is an init container's, and its name."""
    tolerations: set[Toleration] = field(default_factory=set)
    selector: tuple[tuple[str, str], ...] = ()

    def seen(self, run: _Run) -> None:
        """Note that it was alive."""
        self.first_ms = min(run.first_ms, run.first_ms if self.first_ms is None else self.first_ms)
        self.last_ms = max(self.last_ms, run.last_ms)


@dataclass(slots=True)
class _Node:
    """What is known of a node."""

    first_ms: int
    last_ms: int
    amounts: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    taints: set[Taint] = field(default_factory=set)


class _Reading:
    """What has been found so far."""

    def __init__(self, source: str, refused: list[str], keys: Iterable[str]) -> None:
        self.source, self.refused = source, refused
        self.names = {_NO_LETTER.sub("_", key): key for key in (*KNOWN_LABELS, *keys)}
        self.pods: dict[tuple[str, str, str], _Pod] = {}
        self.nodes: dict[str, _Node] = {}
        self.metrics: set[str] = set()
        self.infos: list[_Run] = []
        self.step_ms = self.series = 0

    def pod(self, run: _Run) -> _Pod:
        """Return whose series it is."""
        return self.pods.setdefault(run.pod(), _Pod())

    def node(self, run: _Run) -> _Node:
        """Return whose series it is."""
        found = self.nodes.setdefault(run.of("node"), _Node(run.first_ms, run.last_ms))
        found.first_ms = min(found.first_ms, run.first_ms)
        found.last_ms = max(found.last_ms, run.last_ms)
        return found

    def label(self, written: str, prefix: str) -> str:
        """Return a label's own name, where it is known; else as the metrics write it."""
        name = written.removeprefix(prefix)
        return self.names.get(name, name)


def read(
    folder: str, refused: list[str], keys: Iterable[str] = (), tell: Tell = lambda *_: None
) -> Past:
    """Read all answers of a folder. *keys*: names of labels that prices and pools go by.

    Raises: InvalidInputError that names the file.
    """
    reading = _Reading(folder, refused, keys)
    paths = listed(folder)
    for number, path in enumerate(paths, start=1):
        _take_file(reading, path)
        tell(number, len(paths))
    if missing := [name for name in NEEDED if name not in reading.metrics]:
        raise InvalidInputError(folder, f"holds no answer about {', '.join(missing)}; {HOW_TO}")
    return check(_whole(reading))


# Files


def _take_file(reading: _Reading, path: str) -> None:
    raw = files.read_dump(path, FILE_BYTES_MAX)
    body = strictly(_BODY.decode, raw, path, HOW_TO)
    if body.status != "success" or body.data is None:
        told = f"status: {body.status!r:.40}; allowed: 'success' {body.error:.200}".strip()
        raise InvalidInputError(path, told)
    if body.data.result_type != "matrix":
        told = f"{body.data.result_type!r:.40}; allowed: 'matrix', which query_range answers"
        raise InvalidInputError(f"{path}: data.resultType", told)
    reading.series += len(body.data.result)
    if reading.series > SERIES_MAX:
        raise InvalidInputError(reading.source, f"more than {SERIES_MAX:,} series")
    for number, series in enumerate(body.data.result):
        where = f"{path}: data.result[{number}]"
        name = series.metric.get("__name__", "")
        if not name:
            told = "missing; allowed: the answer about a metric by its plain name"
            raise InvalidInputError(f"{where}.metric.__name__", told)
        _take_series(reading, name, series, where)
    check_sizes(reading.source, nodes=len(reading.nodes), pods=len(reading.pods))


def _take_series(reading: _Reading, name: str, series: _Series, where: str) -> None:
    take = TAKEN.get(name)
    if take is None:
        return
    samples = strictly(_SAMPLES.decode, bytes(series.values), f"{where}.values")
    if not all(math.isfinite(at) and 0 <= at < 1e11 for at, _ in samples):
        raise InvalidInputError(f"{where}.values", "a time is none; allowed: unix seconds")
    reading.metrics.add(name)
    if name == PHASE:
        samples = [one for one in samples if one[1] == "1"]
    if not samples:
        return
    steps = [after - before for (before, _), (after, _) in pairwise(samples)]
    reading.step_ms = max(reading.step_ms, round(1000 * min(steps, default=0)))
    run = _Run(
        series.metric, round(1000 * samples[0][0]), round(1000 * samples[-1][0]), samples[0][1]
    )
    take(reading, run)


# What each metric tells


def _allocatable(reading: _Reading, run: _Run) -> None:
    resource = run.labels.get("resource", "").replace("ephemeral_storage", "ephemeral-storage")
    node = reading.node(run)
    if not resource.startswith(NOT_ASKED):
        node.amounts.setdefault(resource, run.value)


def _taint(reading: _Reading, run: _Run) -> None:
    taint = Taint(*(run.labels.get(name, "") for name in ("key", "value", "effect")))
    reading.node(run).taints.add(taint)


def _labels(reading: _Reading, run: _Run) -> None:
    node = reading.node(run)
    for name, value in run.labels.items():
        if name.startswith("label_"):
            node.labels[reading.label(name, "label_")] = value


def _role(reading: _Reading, run: _Run) -> None:
    reading.node(run).labels[ROLE_LABEL + run.labels.get("role", "")] = ""


def _info(reading: _Reading, run: _Run) -> None:
    pod = reading.pod(run)
    if run.labels.get("node", "") not in NONE or not pod.info:
        pod.info = run.labels
    reading.infos.append(run)


def _phase(reading: _Reading, run: _Run) -> None:
    if run.labels.get("phase") in LIVE_PHASES:
        reading.pod(run).seen(run)


def _owner(reading: _Reading, run: _Run) -> None:
    if run.labels.get("owner_is_controller", "true") == "true":
        labels = run.labels
        reading.pod(run).owner = labels.get("owner_kind", ""), labels.get("owner_name", "")


def _requests(reading: _Reading, run: _Run, *, init: bool = False) -> None:
    resource = run.labels.get("resource", "").replace("ephemeral_storage", "ephemeral-storage")
    container = reading.pod(run).requests.setdefault((init, run.of("container")), {})
    container.setdefault(resource, run.value)


def _time(name: str) -> Callable[[_Reading, _Run], None]:
    def take(reading: _Reading, run: _Run) -> None:
        try:
            seconds = float(run.value)
        except ValueError:
            seconds = math.nan
        if math.isfinite(seconds):
            reading.pod(run).times[name] = round(1000 * seconds)

    return take


def _toleration(reading: _Reading, run: _Run) -> None:
    key, operator, value, effect = (
        run.labels.get(name, "") for name in ("key", "operator", "value", "effect")
    )
    found = Toleration(key, operator or "Equal", value, effect)
    reading.pod(run).tolerations.add(found)


def _selector(reading: _Reading, run: _Run) -> None:
    prefix = "nodeselector_"
    asked = {
        reading.label(name, prefix): value
        for name, value in run.labels.items()
        if name.startswith(prefix)
    }
    reading.pod(run).selector = tuple(sorted(asked.items()))


CREATED: Final = "kube_pod_created"
STARTED: Final = "kube_pod_start_time"
COMPLETED: Final = "kube_pod_completion_time"
TAKEN: Final[Mapping[str, Callable[[_Reading, _Run], None]]] = {
    ALLOCATABLE: _allocatable,
    INFO: _info,
    REQUESTS: _requests,
    PHASE: _phase,
    "kube_pod_owner": _owner,
    CREATED: _time(CREATED),
    STARTED: _time(STARTED),
    COMPLETED: _time(COMPLETED),
    "kube_pod_init_container_resource_requests": lambda reading, run: _requests(
        reading, run, init=True
    ),
    "kube_pod_tolerations": _toleration,
    "kube_pod_nodeselectors": _selector,
    "kube_node_spec_taint": _taint,
    "kube_node_labels": _labels,
    "kube_node_role": _role,
}
"""The metrics that are read; answers about others are passed over."""


# All of it


def _whole(reading: _Reading) -> Past:
    if PHASE not in reading.metrics:
        for run in reading.infos:
            reading.pod(run).seen(run)
    nodes = reading.nodes.values()
    begins_ms = min((node.first_ms for node in nodes), default=0)
    ends_ms = max((node.last_ms for node in nodes), default=0)
    step = f"{reading.step_ms // 1000:,} s"
    note = f"a sample every {step}: what came and went between two of them is unknown"
    return Past(
        source=reading.source,
        begins_ms=begins_ms,
        ends_ms=ends_ms,
        stays=tuple(_stays(reading, begins_ms, ends_ms)),
        lives=tuple(_lives(reading, begins_ms, ends_ms)),
        notes=(note,),
    )


def _stays(reading: _Reading, begins_ms: int, ends_ms: int) -> Iterator[Stay]:
    half_ms = reading.step_ms // 2
    for name, found in sorted(reading.nodes.items()):
        try:
            amounts = read_amounts(found.amounts, ALLOCATABLE)
        except InvalidInputError as fault:
            reading.refused.append(f"{reading.source}: Node {name:.80}: {fault}")
            continue
        if not found.amounts:
            continue  # told of by other metrics alone
        node = Node(
            name=name,
            labels=found.labels,
            taints=tuple(sorted(found.taints, key=lambda one: (one.key, one.effect, one.value))),
            allocatable=resources(amounts, pods=amounts.get("pods", 0)),
        )
        last_ms = found.last_ms + half_ms
        yield Stay(
            node=node,
            begins_ms=max(found.first_ms - half_ms, begins_ms),
            ends_ms=min(last_ms, ends_ms),
        )


def _lives(reading: _Reading, begins_ms: int, ends_ms: int) -> Iterator[Life]:
    half_ms = reading.step_ms // 2
    for key, found in sorted(reading.pods.items()):
        if found.first_ms is None:
            continue  # it had finished
        try:
            pod = _pod(key, found)
        except InvalidInputError as fault:
            reading.refused.append(f"{reading.source}: Pod {key[0]}/{key[1]:.80}: {fault}")
            continue
        times = found.times
        begun_ms = min(
            times.get(CREATED, max(found.first_ms - half_ms, begins_ms)), found.first_ms
        )
        done_ms, slack_ms = times.get(COMPLETED), 0
        if done_ms is None and found.last_ms < ends_ms - reading.step_ms:
            done_ms, slack_ms = found.last_ms + half_ms, half_ms
        if done_ms is not None:
            done_ms = max(done_ms, begun_ms)
        bound_ms = max(times.get(STARTED, begun_ms), begun_ms)
        yield Life(
            pod=pod,
            begins_ms=begun_ms,
            bound_ms=bound_ms if done_ms is None else min(bound_ms, done_ms),
            ends_ms=done_ms,
            slack_ms=slack_ms,
        )


def _pod(key: tuple[str, str, str], found: _Pod) -> Pod:
    """Make the pod. Raises: InvalidInputError with the metric."""
    kind, owner = found.owner
    if kind in NONE:
        kind, owner = (found.info.get(name, "") for name in ("created_by_kind", "created_by_name"))
    kind, owner = ("", "") if kind in NONE else (kind, owner)
    node = found.info.get("exported_node") or found.info.get("node", "")
    parts = {True: [], False: []}  # type: dict[bool, list[Container]]
    for (init, _), amounts in sorted(found.requests.items()):
        parts[init].append(Container(read_amounts(amounts, REQUESTS)))
    tolerations = tuple(
        sorted(found.tolerations, key=lambda one: (one.key, one.effect, one.value))
    )
    return Pod(
        namespace=key[0],
        name=key[1],
        uid=key[2],
        node=None if node in NONE else node,
        requests=pod_requests(Asking(containers=parts[False], init_containers=parts[True])),
        placing=Placing(node_selector=found.selector, tolerations=tolerations),
        owner_kind=kind,
        owner_name=owner,
        daemon=kind == "DaemonSet",
        mirror=kind == "Node",
    )
