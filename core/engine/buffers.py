"""The room that CapacityBuffers of others ask for, and how much of it is kept; pure.

An autoscaler that honours them takes no node that their pods need, so Ebb plans with them as with
headroom: they are packed last, on what is free now, and never load. Whoever may write a buffer, or
its status, may ask for anything: all of them together are kept a bounded share of the nodes that
they can use, and of all nodes; what there is goes to the namespace that has least.
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
from core.packing.node_order import SHARE_SCALE, share_of_room

BUFFERS_MAX: Final = 256
"""So many are looked at; every namespace's first comes before any namespace's second."""
PODS_MAX: Final = 2000
"""Of all buffers together."""
ALL: Final = None
"""Stands for all nodes, where others are counted by a number."""

BUFFERED: Final = Reason(
    "buffer",
    "Without the node there would be no room for pods of a CapacityBuffer, for which room must be "
    "left: an autoscaler that honours it would keep the node.",
    "ask for less in the CapacityBuffer, or set `reserve.buffers` lower in the configuration",
    "that many pods of it find a place on the nodes that stay, or none do now",
)


class RequestedRoom(NamedTuple):
    """A buffer, and for how many of its pods room is kept, as far as there is some."""

    buffer: Buffer
    pod: Pod
    """One of its pods."""
    kept: int


Offered = tuple[tuple[int, ...], Resources]
"""Nodes, and what they offer together."""


def requesting_buffers(buffers: Iterable[Buffer]) -> list[tuple[Buffer, Pod]]:
    """Return those that ask for room, as many as are looked at, each with a pod of it."""
    wanted = [one for one in buffers if one.pod is not None and one.replicas]
    found = ((one, one.pod) for one in by_namespace_in_turns(wanted)[:BUFFERS_MAX])
    return [(one, pod) for one, pod in found if pod is not None]


def buffer_of(pod: Pod) -> str | None:
    """Return the key of the buffer whose pod this is; None: of none."""
    return pod.owner_name if pod.owner_kind == BUFFER else None


def requested_rooms(
    asked: Sequence[tuple[Buffer, Pod]],
    offered: Callable[[NodeConstraints], Offered],
    whole: Resources,
    share: Fraction,
) -> tuple[RequestedRoom, ...]:
    """Return for how many pods of each room is kept; *whole* is what all nodes offer.

    *offered* names the nodes that admit a template.

    The next pod is of the namespace that has least with it, and of its buffer that has least with
    it, so that a large one comes late. One that is more than the share by itself is kept all the
    same, once, and takes nothing of what the others have.
    """
    most = int(share * SHARE_SCALE)
    kept = dict.fromkeys((one.key for one, _ in asked), 0)
    costs = [share_of_room(pod.requests, whole) for _, pod in asked]
    counts = [max(cost, SHARE_SCALE // PODS_MAX) for cost in costs]
    queues: dict[str, list[tuple[int, int]]] = {}
    for number, (one, _) in enumerate(asked):
        heappush(queues.setdefault(one.namespace, []), (counts[number], number))
    turns = [(queue[0][0], namespace) for namespace, queue in sorted(queues.items())]
    heapify(turns)
    spent: Counter[str] = Counter()
    areas = _areas(asked, offered)
    used: Counter[tuple[int | None, bool]] = Counter()
    while turns and sum(kept.values()) < PODS_MAX:
        _, namespace = heappop(turns)
        with_it, number = heappop(queues[namespace])
        buffer, _ = asked[number]
        area, own, cost = *areas[number], costs[number]
        added = {(area, own > most): own, (ALL, cost > most): cost}
        if area is not None and all(
            used[of] + more <= most or not used[of] for of, more in added.items()
        ):
            used.update(added)
            kept[buffer.key] += 1
            spent[namespace] += counts[number]
            if kept[buffer.key] < buffer.replicas:
                heappush(queues[namespace], (with_it + counts[number], number))
        if queues[namespace]:
            _, number = queues[namespace][0]
            heappush(turns, (spent[namespace] + counts[number], namespace))
    return tuple(RequestedRoom(one, pod, kept[one.key]) for one, pod in asked)


def _areas(
    asked: Sequence[tuple[Buffer, Pod]], offered: Callable[[NodeConstraints], Offered]
) -> list[tuple[int | None, int]]:
    """Return for each a number of the nodes that admit it, and a pod's share of what they offer.

    The same nodes have the same number; None: there are none. To hash thousands of them for each
    pod would take longer than all the rest.
    """
    numbers: dict[tuple[int, ...], int] = {}
    found: list[tuple[int | None, int]] = []
    for _, pod in asked:
        nodes, theirs = offered(pod.placing)
        area = numbers.setdefault(nodes, len(numbers)) if nodes else None
        found.append((area, share_of_room(pod.requests, theirs)))
    return found
