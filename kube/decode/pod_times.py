"""Read the times of pods and nodes from their objects, including finished pods.

Only API servers write `creationTimestamp` and `deletionTimestamp`. Kubelets write `startTime` and
`finishedAt` of their own pods.
"""

from typing import Annotated, Final, NamedTuple

import msgspec

from core.model.pod import Pod
from kube.decode.field_decoding import NULL, BoundedField, Bytes, decode_json, unix_seconds
from kube.decode.kinds import PODS, Kind
from kube.decode.objects import FINISHED, PRESENT_LIST, PodObject, Struct
from kube.decode.pod import pod


class Ended(Struct):
    finished_at: str | None = None


class ContainerState(Struct):
    terminated: Ended | None = None


class Status(Struct):
    state: ContainerState | None = None


STATES: Final = BoundedField[list[Status]](list[Status], items_max=65_536)


class NodeHeartbeat(Struct):
    last_heartbeat_time: str | None = None


BEATS: Final = BoundedField[list[NodeHeartbeat]](list[NodeHeartbeat], items_max=4096)


class TimesMeta(Struct):
    name: str = ""
    namespace: str | None = None
    uid: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None


class TimesSpec(Struct):
    node_name: str | None = None
    scheduling_gates: Annotated[msgspec.Raw, PRESENT_LIST] = NULL


class TimesStatus(Struct):
    phase: str = ""
    start_time: str | None = None
    container_statuses: Annotated[msgspec.Raw, STATES] = NULL
    conditions: Annotated[msgspec.Raw, BEATS] = NULL


class TimesObject(Struct):
    metadata: TimesMeta
    spec: TimesSpec | None = None
    status: TimesStatus | None = None


class Times(NamedTuple):
    """Times of a Pod or Node, such as its creation, start and end, in Unix seconds.

    A time is None if it is unknown.
    """

    key: str
    """The uid; for objects without uid, namespace and name."""
    created: int | None
    deleting: int | None
    """Time by which a terminating object is to be deleted."""
    started: int | None
    """Time when the kubelet accepted the pod."""
    finished: int | None
    """Time when the last container of the pod ended."""
    over: bool
    """The pod has finished and uses no resources any more."""
    gated: bool
    """The pod has scheduling gates, so that the scheduler ignores it (KEP-3521)."""
    newest: int
    """Latest of all times, including heartbeats of nodes; 0 if there is none."""


_DECODER: Final = msgspec.json.Decoder(TimesObject)


def times(raw: Bytes, where: str) -> Times:
    """Read the times of a Pod or Node from its JSON.

    *where*: place of the object, for errors. Raises: InvalidInputError if the object is invalid.
    """
    obj = decode_json(_DECODER.decode, bytes(raw), where)
    meta, status = obj.metadata, obj.status or TimesStatus()
    spec = obj.spec or TimesSpec()
    statuses = STATES.decode(status.container_statuses, f"{where}: status.containerStatuses") or ()
    states = [entry.state for entry in statuses]
    ends = [
        unix_seconds(entry.terminated.finished_at)
        for entry in states
        if entry and entry.terminated
    ]
    finished = max((entry for entry in ends if entry is not None), default=None)
    conditions = BEATS.decode(status.conditions, f"{where}: status.conditions") or ()
    beats = [unix_seconds(entry.last_heartbeat_time) for entry in conditions]
    gates = PRESENT_LIST.decode(spec.scheduling_gates, f"{where}: spec.schedulingGates")
    created, started = unix_seconds(meta.creation_timestamp), unix_seconds(status.start_time)
    return Times(
        key=meta.uid or f"{meta.namespace or ''}/{meta.name}",
        created=created,
        deleting=unix_seconds(meta.deletion_timestamp),
        started=started,
        finished=finished,
        over=status.phase in FINISHED,
        gated=bool(gates) and not spec.node_name,
        newest=max(entry or 0 for entry in (created, started, finished, *beats)),
    )


def pod_as_it_was(raw: Bytes, where: str) -> Pod:
    """Decode the JSON of a pod without its status, so that a finished pod counts as running.

    *where*: place of the pod, for errors. Raises: InvalidInputError if the pod is invalid.
    """
    return FINISHED_TOO.model_of(decode_json(PODS.decoder.decode, bytes(raw), where), where)


def _without_status(whole: PodObject) -> Pod:
    whole.status = None
    decoded_pod = pod(whole)
    if decoded_pod is None:  # a pod without a status has not finished
        raise AssertionError(whole.metadata.name)
    return decoded_pod


FINISHED_TOO: Final[Kind[PodObject, Pod]] = Kind(
    name=PODS.name,
    path=PODS.path,
    namespaced=PODS.namespaced,
    wire=PODS.wire,
    make=_without_status,
)
"""Pods including finished pods, decoded as if they were running."""
