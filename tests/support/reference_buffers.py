"""Reference implementation of the room for CapacityBuffers: one pod after the other."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from core.model.cluster import Cluster
from core.model.pod import Pod
from core.model.resources import Resources

if TYPE_CHECKING:
    from core.model.buffers import Buffer

Members = frozenset[str]
BUFFERS_MAX, PODS_MAX, SCALE = 256, 2000, 2**40


def wanted(
    cluster: Cluster, share: Fraction, reach_of: Callable[[Pod], Members], mutant: str = ""
) -> list[Pod]:
    """Return the buffer pods to reserve, with unique names."""
    if mutant == "buffers are ignored":
        return []
    machines = {node.name: node.allocatable for node in cluster.nodes if not node.virtual}
    whole = Resources.total(machines.values())
    most = SCALE if mutant == "buffers have no limit" else int(share * SCALE)
    left = first(cluster.buffers)
    order = {one.key: place for place, one in enumerate(left)}
    reach = {one.key: reach_of(like(one)) for one in left}
    price = {one.key: largest(like(one).requests, whole) for one in left}
    counted = dict.fromkeys(price, 0) if mutant == "the order ignores sizes" else price
    spent: Counter[str] = Counter()
    taken: Counter[tuple[Members | str, bool]] = Counter()
    counts: Counter[str] = Counter()
    made: list[Pod] = []
    while left and len(made) < PODS_MAX:
        by_name = mutant == "the first buffer by name takes all"
        one = left[0] if by_name else next_of(left, spent, counted, order)
        pod, members = like(one), reach[one.key]
        own = largest(pod.requests, Resources.total(machines[name] for name in members))
        cost = price[one.key]
        shares: list[tuple[Members | str, int]] = [("all", cost), (members, own)]
        apart = mutant != "the largest buffer takes all"
        pots = [((of, apart and more > most), more) for of, more in shares]
        if not members or any(taken[pot] and taken[pot] + more > most for pot, more in pots):
            left.remove(one)
            continue
        for pot, more in pots:
            taken[pot] += more
        counts[one.key] += 1
        made.append(replace(pod, name=f"{one.key}#{counts[one.key]:06}"))
        for who in (one.namespace, one.key):
            spent[who] += at_least(cost)
        if counts[one.key] == one.replicas:
            left.remove(one)
    return made


def next_of(
    left: "list[Buffer]",
    spent: Mapping[str, int],
    price: Mapping[str, int],
    order: Mapping[str, int],
) -> "Buffer":
    """Return the buffer of the next pod.

    Each namespace offers the buffer with the smallest share after the pod; the namespace with the
    smallest share is next.
    """

    def then(one: "Buffer", who: str) -> int:
        return spent[who] + at_least(price[one.key])

    offers = [
        min(
            (one for one in left if one.namespace == namespace),
            key=lambda one: (then(one, one.key), order[one.key]),
        )
        for namespace in {one.namespace for one in left}
    ]
    return min(offers, key=lambda one: (then(one, one.namespace), one.namespace))


def largest(requests: Resources, whole: Resources) -> int:
    """Return the dominant share of the requests, in units of 1/SCALE, rounded down."""
    pairs = [
        (requests.cpu_millis, max(whole.cpu_millis, 1)),
        (requests.memory_bytes, max(whole.memory_bytes, 1)),
        (requests.ephemeral_bytes, whole.ephemeral_bytes),
        (requests.pods, whole.pods),
        *((many, dict(whole.extended).get(name, 0)) for name, many in requests.extended),
    ]
    return max(asked * SCALE // have for asked, have in pairs if have)


def at_least(cost: int) -> int:
    """Return the cost of a pod for the order of turns."""
    return max(cost, SCALE // PODS_MAX)


def first(buffers: "Iterable[Buffer]") -> "list[Buffer]":
    """Return the considered buffers: the first of each namespace, then the second, and so on."""
    asking = sorted((one for one in buffers if one.pod and one.replicas), key=lambda b: b.key)
    turn = {one.key: sum(o.namespace == one.namespace and o.key < one.key for o in asking)
            for one in asking}  # fmt: skip
    return sorted(asking, key=lambda one: (turn[one.key], one.key))[:BUFFERS_MAX]


def like(one: "Buffer") -> Pod:
    """Return a pod of the buffer."""
    assert one.pod is not None
    return one.pod
