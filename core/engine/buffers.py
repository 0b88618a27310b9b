"""Plan room for the pods of CapacityBuffers that Ebb did not create.

An autoscaler that honors a CapacityBuffer keeps the nodes that the buffer's pods need. So Ebb
packs these pods last, like headroom, and never counts them as load. Users who may write a buffer
or its status can request any amount. So all buffers together get a bounded share of the nodes that
they can use, and of all nodes. The namespace that has been given the least room comes first.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple

from core.engine.unschedulable import by_namespace_in_turns
from core.model.buffers import BUFFER, Buffer
from core.model.constraints import NodeConstraints
from core.model.pod import Pod
from core.model.reason import Reason
from core.model.resources import Resources
from core.placement.node_order import SHARE_SCALE, share_of_room

BUFFERS_MAX: Final = 256
"""Maximum number of CapacityBuffers in a reconciliation; namespaces take turns."""
SHARE_MAX: Final = Fraction(1, 2)
"""Maximum share of the nodes that all buffers together may use, in the cluster and in each set of
nodes that pods of a CapacityBuffer can use. It limits Ebb's own CapacityBuffers too."""
PODS_MAX: Final = 2000
"""Maximum number of pods of all CapacityBuffers."""
ALL: Final = None
"""Key for all nodes in mappings whose keys are numbers of node sets."""

BUFFERED: Final = Reason(
    "buffer",
    "Without the node there would be no room for pods of a CapacityBuffer, so an autoscaler that "
    "honors the buffer would keep the node.",
    "lower the replicas of the CapacityBuffer in the message, or delete it",
    "the remaining nodes have room for the pods of the buffer, or even with the node there is no "
    "room for them",
)


class RequestedRoom(NamedTuple):
    """A CapacityBuffer and the number of its pods to keep room for, as far as there is room."""

    buffer: Buffer
    pod: Pod
    """One of its pods."""
    kept: int


Offered = tuple[tuple[int, ...], Resources]
"""A set of nodes, and their total allocatable resources."""


def requesting_buffers(buffers: Iterable[Buffer]) -> list[tuple[Buffer, Pod]]:
    """Return up to BUFFERS_MAX CapacityBuffers that request room, each with one of its pods.

    All pods of a buffer are equal. Namespaces take turns.
    """
    requesting = [buffer for buffer in buffers if buffer.pod is not None and buffer.replicas]
    with_pod = ((buffer, buffer.pod) for buffer in by_namespace_in_turns(requesting)[:BUFFERS_MAX])
    return [(buffer, pod) for buffer, pod in with_pod if pod is not None]


def buffer_of(pod: Pod) -> str | None:
    """Return namespace/name of the CapacityBuffer that a placeholder pod belongs to.

    None for placeholder pods of other kinds, and for pods that exist.
    """
    return pod.owner_name if pod.owner_kind == BUFFER else None


def requested_rooms(
    requesting: Sequence[tuple[Buffer, Pod]],
    offered: Callable[[NodeConstraints], Offered],
    whole: Resources,
    share: Fraction = SHARE_MAX,
) -> tuple[RequestedRoom, ...]:
    """Return for each CapacityBuffer how many of its pods to keep room for; the number may be 0.

    *requesting*: result of `requesting_buffers`. *offered*: returns the nodes that admit pods with
    given constraints. *whole*: total allocatable resources of all nodes. *share*: share of the
    nodes that all buffers together may use.

    Pods are added one by one. The next pod comes from the namespace that would then have the least
    room, and there from the buffer that would have the least. So large pods come late. A single
    pod that exceeds the share is allowed once, and does not reduce the share of the others.
    """
    most = int(share * SHARE_SCALE)
    kept = dict.fromkeys((buffer.key for buffer, _ in requesting), 0)
    costs = [share_of_room(pod.requests, whole) for _, pod in requesting]
    counts = [max(cost, SHARE_SCALE // PODS_MAX) for cost in costs]
    queues: dict[str, list[tuple[int, int]]] = {}
    for number, (buffer, _) in enumerate(requesting):
        heappush(queues.setdefault(buffer.namespace, []), (counts[number], number))
    turns = [(queue[0][0], namespace) for namespace, queue in sorted(queues.items())]
    heapify(turns)
    spent: Counter[str] = Counter()
    areas = _areas(requesting, offered)
    used: Counter[tuple[int | None, bool]] = Counter()
    while turns and sum(kept.values()) < PODS_MAX:
        _, namespace = heappop(turns)
        count_with_pod, number = heappop(queues[namespace])
        buffer, _ = requesting[number]
        area, own, cost = *areas[number], costs[number]
        added = {(area, own > most): own, (ALL, cost > most): cost}
        if area is not None and all(
            used[of] + more <= most or not used[of] for of, more in added.items()
        ):
            used.update(added)
            kept[buffer.key] += 1
            spent[namespace] += counts[number]
            if kept[buffer.key] < buffer.replicas:
                heappush(queues[namespace], (count_with_pod + counts[number], number))
        if queues[namespace]:
            _, number = queues[namespace][0]
            heappush(turns, (spent[namespace] + counts[number], namespace))
    return tuple(RequestedRoom(buffer, pod, kept[buffer.key]) for buffer, pod in requesting)


def _areas(
    requesting: Sequence[tuple[Buffer, Pod]], offered: Callable[[NodeConstraints], Offered]
) -> list[tuple[int | None, int]]:
    """Return for each CapacityBuffer the number of its set of nodes, and a pod's share of the set.

    Buffers whose pods can use the same nodes have the same number; None means that no node admits
    the pods. The share is the largest requested share of any resource, in 1 / SHARE_SCALE.
    """
    # Hashing a set of thousands of nodes once per pod would take longer than all other steps.
    numbers: dict[tuple[int, ...], int] = {}
    areas: list[tuple[int | None, int]] = []
    for _, pod in requesting:
        nodes, allocatable = offered(pod.node_constraints)
        area = numbers.setdefault(nodes, len(numbers)) if nodes else None
        areas.append((area, share_of_room(pod.requests, allocatable)))
    return areas
