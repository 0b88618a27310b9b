"""Read responses of Prometheus with metrics of kube-state-metrics as a history.

Each file is the body of one response of `/api/v1/query_range` for one metric without functions; a
long time range may be split into several files.

A node that was added during the history has the taints of its first sample after SETTLES_MS. All
other nodes have the taints of their first sample. sim.history.dumps has a similar rule.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final

import msgspec

from core.model.constraints import NodeConstraints
from core.model.errors import InvalidInputError
from core.model.node import Node, Taint, is_virtual
from core.model.pod import DAEMON_SET, Pod
from core.model.requests import Container, PodParts, pod_requests, resources
from kube.decode.field_decoding import decode_json, read_amounts
from runtime import files
from sim.history.cluster_history import (
    ClusterHistory,
    NodeLifetime,
    PodLifetime,
    check,
    check_sizes,
)
from sim.history.dumps import SETTLES_MS, OnProgress, listed
from sim.history.metrics import (
    ABSENT,
    ALLOCATABLE,
    COMPLETED,
    CREATED,
    EXPORTED,
    INFO,
    PHASE,
    READERS,
    REQUESTS,
    STARTED,
    TAINT,
    NodeFacts,
    PodFacts,
    Reading,
    SeriesInterval,
    in_number,
    node_of,
)

FILE_BYTES_MAX: Final = 1024**3
SERIES_MAX: Final = 10_000_000
REQUIRED: Final = (ALLOCATABLE, INFO, REQUESTS)
HOW_TO: Final = "docs/replay.md has the queries"


class _MatrixSeries(msgspec.Struct):
    metric: dict[str, str]
    values: msgspec.Raw


class _Data(msgspec.Struct, rename="camel"):
    result_type: str = ""
    result: list[_MatrixSeries] = msgspec.field(default_factory=list)


class _Body(msgspec.Struct):
    status: str = ""
    error: str = ""
    data: _Data | None = None


_BODY: Final = msgspec.json.Decoder(_Body)
_SAMPLES: Final = msgspec.json.Decoder(list[tuple[float, str]])


def read(
    folder: str,
    unreadable: list[str],
    keys: Iterable[str] = (),
    on_progress: OnProgress = lambda *_: None,
) -> ClusterHistory:
    """Read all responses of Prometheus in a folder, and return the history of their cluster.

    *keys* are the node labels that a configuration uses. For each object that cannot be read, a
    message is appended to *unreadable*. Raises: InvalidInputError that names the file.
    """
    reading = Reading(folder, unreadable, keys)
    paths = listed(folder)
    for number, path in enumerate(paths, start=1):
        _take_file(reading, path)
        on_progress(number, len(paths))
    if missing := [name for name in REQUIRED if name not in reading.metrics]:
        raise InvalidInputError(folder, f"holds no response for {', '.join(missing)}; {HOW_TO}")
    return check(_history(reading))


# Files


def _take_file(reading: Reading, path: str) -> None:
    raw = files.read_dump(path, FILE_BYTES_MAX)
    body = decode_json(_BODY.decode, raw, path, HOW_TO)
    if body.status != "success" or body.data is None:
        error = f"{body.error:.200}" or f"status {body.status!r:.40}"
        problem = f"is a failed response of Prometheus: {error}"
        raise InvalidInputError(path, f"{problem}; {HOW_TO}")
    if body.data.result_type != "matrix":
        problem = f"{body.data.result_type!r:.40}; allowed: 'matrix', the type of query_range"
        raise InvalidInputError(f"{path}: data.resultType", problem)
    reading.series += len(body.data.result)
    if reading.series > SERIES_MAX:
        raise InvalidInputError(
            reading.source, f"has more than the {SERIES_MAX:,} series that are allowed"
        )
    steps = set[int]()
    for number, series in enumerate(body.data.result):
        where = f"{path}: data.result[{number}]"
        name = series.metric.get("__name__", "")
        if not name:
            problem = "missing; query the metric itself, without functions"
            raise InvalidInputError(f"{where}.metric.__name__", problem)
        steps.add(_take_series(reading, name, series, where))
    # Two samples may enclose a gap, so the smallest distance is the step.
    step_ms = min((one for one in steps if one > 0), default=0)
    reading.step_ms = max(reading.step_ms, step_ms)
    check_sizes(reading.source, nodes=len(reading.nodes), pods=len(reading.pods))


def _take_series(reading: Reading, name: str, series: _MatrixSeries, where: str) -> int:
    """Add a series to the data read; return the time between its samples in milliseconds.

    It is 0 for fewer than two samples, for taints, whose samples have no regular distance, and for
    metrics that are ignored. *name*: the metric. *where*: location of the series, for errors.
    """
    take = READERS.get(name)
    if take is None:
        return 0
    samples = decode_json(_SAMPLES.decode, bytes(series.values), f"{where}.values")
    if not all(math.isfinite(at) and 0 <= at < 1e11 for at, _ in samples):
        raise InvalidInputError(f"{where}.values", "invalid time; allowed: Unix seconds")
    reading.metrics.add(name)
    if name == PHASE:
        samples = [one for one in samples if one[1] == "1"]
    if not samples:
        return 0
    times = [round(1000 * at) for at, _ in samples]
    step_ms = min((after - before for before, after in pairwise(times)), default=0)
    intervals: Iterable[tuple[int, int]] = [(times[0], times[-1])]
    value = samples[0][1]
    if name == ALLOCATABLE:
        reading.moments.update(times)
        intervals = _parts(times, step_ms)
        value = max((one for _, one in samples), key=in_number)
    elif name == TAINT:
        # Samples of a taint that comes and goes have no regular distance.
        intervals, step_ms = _parts(times, min(step_ms, SETTLES_MS)), 0
    for first_ms, last_ms in intervals:
        take(reading, SeriesInterval(series.metric, first_ms, last_ms, value))
    return step_ms


def _parts(times: Sequence[int], step_ms: int) -> Iterator[tuple[int, int]]:
    """Yield (first, last) time of each interval in which every step has a sample.

    *times*: times of the samples in ms. *step_ms*: time between two samples.
    """
    first = times[0]
    for before, after in pairwise(times):
        if 2 * (after - before) > 3 * step_ms:
            yield first, before
            first = after
    yield first, times[-1]


# History


def _history(reading: Reading) -> ClusterHistory:
    if PHASE not in reading.metrics:
        for interval in reading.infos:
            reading.pod(interval).add_interval(interval)
    begins_ms, ends_ms = min(reading.moments, default=0), max(reading.moments, default=0)
    step = f"{reading.step_ms // 1000:,} s"
    note = f"a sample every {step}: objects that existed only between two samples are missing"
    return ClusterHistory(
        source=reading.source,
        begins_ms=begins_ms,
        ends_ms=ends_ms,
        node_lifetimes=tuple(_node_lifetimes(reading, begins_ms, ends_ms)),
        pod_lifetimes=tuple(_pod_lifetimes(reading, begins_ms, ends_ms)),
        notes=(note,),
    )


def _node_lifetimes(reading: Reading, begins_ms: int, ends_ms: int) -> Iterator[NodeLifetime]:
    half_ms, moments = reading.step_ms // 2, sorted(reading.moments)
    for name, facts in sorted(reading.nodes.items()):
        try:
            amounts = read_amounts(facts.amounts, ALLOCATABLE)
        except InvalidInputError as fault:
            reading.unreadable.append(f"{reading.source}: Node {name:.80}: {fault}")
            continue
        if not facts.amounts:
            continue  # only in other metrics
        allocatable = resources(amounts, pods=amounts.get("pods", 0))
        for first_ms, last_ms in _existence(facts.intervals, moments):
            taints = _taints(facts, _settled(moments, first_ms, last_ms), half_ms)
            yield NodeLifetime(
                node=Node(
                    name=name,
                    labels=facts.labels,
                    taints=taints,
                    allocatable=allocatable,
                    virtual=is_virtual(
                        facts.labels, [(taint.key, taint.value) for taint in taints], ""
                    ),
                ),
                begins_ms=max(first_ms - half_ms, begins_ms),
                ends_ms=min(last_ms + half_ms, ends_ms),
            )


def _settled(moments: Sequence[int], first_ms: int, last_ms: int) -> int:
    """Return the time whose taints are used for a node that existed in an interval, in Unix ms.

    It is the first sample, or for a node that was added during the history the first sample after
    SETTLES_MS. *moments*: times at which any node has a sample. *first_ms* and *last_ms*: first
    and last sample of the node.
    """
    if first_ms <= moments[0]:
        return first_ms
    at = bisect_right(moments, first_ms + SETTLES_MS)
    return min([last_ms, *moments[at : at + 1]])


def _taints(facts: NodeFacts, at_ms: int, half_ms: int) -> tuple[Taint, ...]:
    """Return the taints of a node at the time *at_ms*, sorted.

    *half_ms*: half the time between two samples; a taint also counts this long before its first
    sample and after its last one.
    """
    taints = (
        taint
        for taint, intervals in facts.taints.items()
        if any(first_ms - half_ms <= at_ms <= last_ms + half_ms for first_ms, last_ms in intervals)
    )
    return tuple(sorted(taints, key=lambda taint: (taint.key, taint.effect, taint.value)))


def _existence(
    intervals: Iterable[tuple[int, int]], moments: Sequence[int]
) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of each interval in which the node existed, in Unix ms.

    *intervals*: intervals with samples of the node. A gap between them counts only if other nodes
    have samples in the gap. *moments*: times at which any node has a sample.
    """
    first_ms, last_ms = min(intervals)
    for begins_ms, ends_ms in sorted(intervals):
        if begins_ms > last_ms and bisect_right(moments, last_ms) < bisect_left(
            moments, begins_ms
        ):
            yield first_ms, last_ms
            first_ms = begins_ms
        last_ms = max(last_ms, ends_ms)
    yield first_ms, last_ms


def _pod_lifetimes(reading: Reading, begins_ms: int, ends_ms: int) -> Iterator[PodLifetime]:
    half_ms = reading.step_ms // 2
    exported = any(f"{EXPORTED}node" in interval.labels for interval in reading.infos)
    for key, facts in sorted(reading.pods.items()):
        if facts.first_ms is None:
            continue  # finished before
        try:
            pod = _pod(key, facts, exported=exported)
        except InvalidInputError as fault:
            reading.unreadable.append(f"{reading.source}: Pod {key[0]}/{key[1]:.80}: {fault}")
            continue
        times = facts.times
        created_ms = min(
            times.get(CREATED, max(facts.first_ms - half_ms, begins_ms)), facts.first_ms
        )
        finished_ms, slack_ms = times.get(COMPLETED), 0
        if finished_ms is None and facts.last_ms < ends_ms - reading.step_ms:
            finished_ms, slack_ms = facts.last_ms + half_ms, half_ms
        if finished_ms is not None:
            finished_ms = max(finished_ms, created_ms)
        bound_ms = max(times.get(STARTED, created_ms), created_ms)
        yield PodLifetime(
            pod=pod,
            begins_ms=created_ms,
            bound_ms=bound_ms if finished_ms is None else min(bound_ms, finished_ms),
            ends_ms=finished_ms,
            slack_ms=slack_ms,
        )


def _pod(key: tuple[str, str, str], facts: PodFacts, *, exported: bool) -> Pod:
    kind, owner = facts.owner
    if kind in ABSENT:
        kind, owner = (facts.info.get(name, "") for name in ("created_by_kind", "created_by_name"))
    kind, owner = ("", "") if kind in ABSENT else (kind, owner)
    parts = {True: [], False: []}  # type: dict[bool, list[Container]]
    for (init, name), amounts in sorted(facts.requests.items()):
        sidecar = init and name in facts.sidecars
        parts[init].append(Container(read_amounts(amounts, REQUESTS), sidecar))
    # No metric has the order of init containers. With sidecars first, the requests of the pod are
    # highest, so they are never too low.
    parts[True].sort(key=lambda container: not container.restartable)
    tolerations = tuple(
        sorted(
            facts.tolerations,
            key=lambda toleration: (toleration.key, toleration.effect, toleration.value),
        )
    )
    return Pod(
        namespace=key[0],
        name=key[1],
        uid=key[2],
        node=node_of(facts.info, exported=exported),
        requests=pod_requests(PodParts(containers=parts[False], init_containers=parts[True])),
        node_constraints=NodeConstraints(node_selector=facts.selector, tolerations=tolerations),
        owner_kind=kind,
        owner_name=owner,
        daemon=kind == DAEMON_SET,
        mirror=kind == "Node",
    )
