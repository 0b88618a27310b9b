"""Read a folder of dumps (files with the objects of a cluster at one time) as a history.

A pod starts at its `creationTimestamp` and runs from its `startTime`. A pod with scheduling gates
starts in the middle between the last dump with gates and the next. A pod ends at the time in its
container status. If it is missing in a dump, it ended in the middle between that dump and the one
before, or at its `deletionTimestamp` if that is between them.

A node has the labels, taints and resources of the first dump in which it was settled: Ready, and
older than SETTLES_MS. A node that never settled has those of the last dump that contains it.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import groupby, pairwise
from pathlib import Path
from typing import Final

from core.model.errors import InvalidInputError
from core.model.node import Node
from core.model.pod import Pod
from kube.decode.field_decoding import Bytes
from kube.decode.kinds import NODES, PODS
from kube.decode.pod_times import Times, pod_as_it_was, times
from kube.dump import items
from runtime import files
from sim.history.cluster_history import (
    FILES_MAX,
    ClusterHistory,
    NodeLifetime,
    PodLifetime,
    check,
    check_sizes,
)

SUFFIXES: Final = (".json", ".json.gz")
TIME_IN_NAME: Final = re.compile(
    r"(?<!\d)(\d{4})-?(\d\d)-?(\d\d)[T_-]?(\d\d)[:_-]?(\d\d)(?:[:_-]?(\d\d))?(?:\.\d+)?"
    r"(?:Z|([+-]\d\d):?(\d\d))?(?!\d)"
)
SECONDS_IN_NAME: Final = re.compile(r"(?<!\d)(1\d{9})(?!\d)")
ALLOWED: Final = (
    "a file name with the time, such as 2026-11-01T10-00-00Z.json (UTC, or with an offset such "
    "as +02:00) or 1793527200.json; or a dump of nodes with heartbeats"
)
SETTLES_MS: Final = 600_000
"""Age of a node until which devices and labels may still be added: device plugins and feature
discovery start after the kubelet."""

OnProgress = Callable[[int, int], None]
"""Called with the number of files read and the number of all files."""


@dataclass(slots=True)
class _PodTrack:
    """A pod that has not ended in the last dump read, with the timestamps of its JSON."""

    pod: Pod
    begins_ms: int
    times: Times


@dataclass(frozen=True, slots=True)
class _NodeTrack:
    """A node in the last dump read, with the time at which it began to exist (Unix ms)."""

    node: Node
    begins_ms: int
    settled: bool
    """True if later changes are ignored, such as a taint during maintenance."""


@dataclass(slots=True)
class _Reading:
    source: str
    unreadable: list[str]
    moments: list[int] = field(default_factory=list)
    pods: dict[str, _PodTrack] = field(default_factory=dict)
    nodes: dict[str, _NodeTrack] = field(default_factory=dict)
    pod_lifetimes: list[PodLifetime] = field(default_factory=list)
    node_lifetimes: list[NodeLifetime] = field(default_factory=list)
    finished: set[str] = field(default_factory=set)
    """Finished pods that still exist."""
    gated: set[str] = field(default_factory=set)
    """Pods that had scheduling gates in the last dump."""


def read(
    folder: str, unreadable: list[str], on_progress: OnProgress = lambda *_: None
) -> ClusterHistory:
    """Read all dumps of a folder, and return the history of their cluster.

    For each object that cannot be read, a message is appended to *unreadable*. Raises:
    InvalidInputError that names the file.
    """
    reading = _Reading(folder, unreadable)
    paths = listed(folder)
    number = 0
    for at_ms, group in groupby(sorted(_timed(paths)), key=lambda timed: timed[0]):
        dump = [(path, files.read_dump(path)) for _, path in group]
        _read_dump(reading, at_ms, dump)
        number += len(dump)
        on_progress(number, len(paths))
    return check(_history(reading))


def listed(folder: str) -> list[str]:
    """Return the sorted paths of all files in a folder that have a known suffix.

    Raises: InvalidInputError, also if there are no files or too many.
    """
    try:
        paths = sorted(
            str(path)
            for path in Path(folder).iterdir()
            if path.name.endswith(SUFFIXES) and path.is_file()
        )
    except OSError as fault:
        raise InvalidInputError(folder, fault.strerror or str(fault)) from fault
    if not paths:
        raise InvalidInputError(folder, f"holds no file that ends in {' or '.join(SUFFIXES)}")
    if len(paths) > FILES_MAX:
        raise InvalidInputError(
            folder, f"holds {len(paths):,} files; allowed: up to {FILES_MAX:,}"
        )
    return paths


def _timed(paths: Sequence[str]) -> Iterator[tuple[int, str]]:
    for path in paths:
        at_ms = time_of(path) or _newest(path)
        if at_ms is None:
            raise InvalidInputError(path, f"does not say when it was made; use {ALLOWED}")
        yield at_ms, path


def time_of(path: str) -> int | None:
    """Return the time in a file's name in Unix milliseconds; None if the name has no time.

    Raises: InvalidInputError if the name has an impossible date.
    """
    name = Path(path).name
    if (match := TIME_IN_NAME.search(name)) is not None:
        year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
        hours, minutes = match.groups()[6:]
        try:
            at = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
        except ValueError as fault:
            raise InvalidInputError(
                path, f"the file name has an invalid time, {match[0]!r}: {fault}"
            ) from fault
        sign = -1 if (hours or "").startswith("-") else 1
        ahead = timedelta(hours=int(hours or 0), minutes=sign * int(minutes or 0))
        return round((at - ahead).timestamp()) * 1000
    seconds = SECONDS_IN_NAME.search(name)
    return int(seconds[1]) * 1000 if seconds else None


def _newest(path: str) -> int | None:
    """Return the newest timestamp of all objects in a dump, in Unix ms; None if it has none.

    It is close to the time of the dump, because kubelets write a timestamp every few minutes.
    """
    newest = 0
    for name, raw, where in items(files.read_dump(path), path, []):
        if name in (NODES.name, PODS.name):
            try:
                newest = max(newest, times(raw, where).newest)
            except InvalidInputError:
                continue  # reported when the dump is read
    return newest * 1000 or None


def _read_dump(reading: _Reading, at_ms: int, dump: Sequence[tuple[str, bytes]]) -> None:
    keys: dict[str, set[str]] = {NODES.name: set(), PODS.name: set()}
    for path, raw in dump:
        for name, item, where in items(raw, path, reading.unreadable):
            if name not in keys:
                continue
            try:
                stamps = times(item, where)
                (_update_node if name == NODES.name else _update_pod)(
                    reading, at_ms, stamps, item, where
                )
            except InvalidInputError as fault:
                reading.unreadable.append(str(fault))
            else:
                keys[name].add(stamps.key)
    sources = ", ".join(path for path, _ in dump)
    for kind in (NODES, PODS):
        if not keys[kind.name]:
            raise InvalidInputError(sources, f"holds no {kind.resource} that can be read")
    _end_missing(reading, at_ms, keys[NODES.name], keys[PODS.name])
    reading.moments.append(at_ms)
    nodes = len(reading.nodes) + len(reading.node_lifetimes)
    check_sizes(reading.source, nodes=nodes, pods=len(reading.pods) + len(reading.pod_lifetimes))


def _update_node(reading: _Reading, at_ms: int, stamps: Times, raw: Bytes, where: str) -> None:
    known = reading.nodes.get(stamps.key)
    if known is not None and known.settled:
        return
    node = NODES.decode(raw, where)
    begins_ms = _begun(reading, at_ms, stamps) if known is None else known.begins_ms
    settled = node.ready and at_ms - begins_ms > SETTLES_MS
    reading.nodes[stamps.key] = _NodeTrack(node, begins_ms, settled)


def _update_pod(reading: _Reading, at_ms: int, stamps: Times, raw: Bytes, where: str) -> None:
    if stamps.key in reading.finished:
        return
    if stamps.gated:
        reading.gated.add(stamps.key)
        return
    track = reading.pods.get(stamps.key)
    if track is None:
        pod = pod_as_it_was(raw, where)
        begins_ms = _begun(reading, at_ms, stamps)
        track = reading.pods[stamps.key] = _PodTrack(pod, begins_ms, stamps)
    elif track.pod.node is None:
        track.pod = pod_as_it_was(raw, where)  # Pending in earlier dumps
    track.times = stamps
    if stamps.over:
        reading.finished.add(stamps.key)
        _end_pod(reading, reading.pods.pop(stamps.key), at_ms)


def _begun(reading: _Reading, at_ms: int, stamps: Times) -> int:
    """Return when an object that is new in the dump at *at_ms* began to exist, in Unix ms."""
    was_gated = stamps.key in reading.gated
    known = stamps.started if was_gated else stamps.created
    middle_ms = (reading.moments[-1] + at_ms) // 2 if reading.moments else at_ms
    if known is None:
        return middle_ms
    return min(1000 * known, middle_ms if was_gated else at_ms)


def _end_missing(reading: _Reading, at_ms: int, nodes: set[str], pods: set[str]) -> None:
    for key in [key for key in reading.pods if key not in pods]:
        _end_pod(reading, reading.pods.pop(key), at_ms)
    for key in [key for key in reading.nodes if key not in nodes]:
        track = reading.nodes.pop(key)
        ends_ms = max((reading.moments[-1] + at_ms) // 2, track.begins_ms)
        reading.node_lifetimes.append(
            NodeLifetime(node=track.node, begins_ms=track.begins_ms, ends_ms=ends_ms)
        )
    reading.finished &= pods
    reading.gated &= pods


def _end_pod(reading: _Reading, track: _PodTrack, at_ms: int) -> None:
    """Record the lifetime of a pod that ended between the dump before and the dump at *at_ms*."""
    stamps = track.times
    before_ms = max([track.begins_ms, *reading.moments[-1:]])
    known = stamps.finished if stamps.over else stamps.deleting
    if known is not None and (stamps.over or before_ms <= 1000 * known <= at_ms):
        ends_ms, slack_ms = min(1000 * known, at_ms), 0
    else:
        ends_ms, slack_ms = (before_ms + at_ms) // 2, (at_ms - before_ms + 1) // 2
    reading.pod_lifetimes.append(_pod_lifetime(track, max(ends_ms, track.begins_ms), slack_ms))


def _pod_lifetime(track: _PodTrack, ends_ms: int | None, slack_ms: int = 0) -> PodLifetime:
    started = track.times.started
    bound_ms = track.begins_ms if started is None else max(1000 * started, track.begins_ms)
    if ends_ms is not None:
        bound_ms = min(bound_ms, ends_ms)
    return PodLifetime(
        pod=track.pod,
        begins_ms=track.begins_ms,
        bound_ms=bound_ms,
        ends_ms=ends_ms,
        slack_ms=slack_ms,
    )


def _history(reading: _Reading) -> ClusterHistory:
    """Return the history of all dumps read; objects in the last dump exist until the end."""
    moments = reading.moments
    ends_ms = moments[-1]
    existing = [
        NodeLifetime(node=track.node, begins_ms=track.begins_ms, ends_ms=ends_ms)
        for track in reading.nodes.values()
    ]
    pod_lifetimes = [
        *reading.pod_lifetimes,
        *(_pod_lifetime(track, None) for track in reading.pods.values()),
    ]
    gap = max((after - before for before, after in pairwise(moments)), default=0) // 1000
    note = (
        f"{len(moments):,} dumps, up to {gap:,} s apart: objects that no dump contains are missing"
    )
    return ClusterHistory(
        source=reading.source,
        begins_ms=moments[0],
        ends_ms=ends_ms,
        node_lifetimes=(*reading.node_lifetimes, *existing),
        pod_lifetimes=tuple(pod_lifetimes),
        notes=(note,),
    )
