"""Which pods of CapacityBuffers room is kept for, plainly: one pod after the other."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from core.model.cluster import Cluster
from core.model.pod import Pod
from core.model.resources import Resources
from tests.support.reference_sums import dominant

if TYPE_CHECKING:
    from core.model.buffers import Buffer

Members = frozenset[str]
BUFFERS_MAX, PODS_MAX, SCALE = 256, 2000, 2**40


def wanted(
    cluster: Cluster, share: Fraction, reach_of: Callable[[Pod], Members], mutant: str = ""
) -> list[Pod]:
    """Return the pods, each with a name of its own."""
    if mutant == "buffers are nothing":
        return []
    machines = {node.name: node.allocatable for node in cluster.nodes if not node.virtual}
    whole = Resources.total(machines.values())
    most = SCALE if mutant == "all is for buffers" else int(share * SCALE)
    left = first(cluster.buffers)
    order = {one.key: place for place, one in enumerate(left)}
    reach = {one.key: reach_of(like(one)) for one in left}
    spent: Counter[str] = Counter()
    taken: Counter[Members | str] = Counter()
    counts: Counter[str] = Counter()
    made: list[Pod] = []
    while left and len(made) < PODS_MAX:
        by_name = mutant == "the first by name takes all"
        one = left[0] if by_name else min(left, key=lambda b: rank(b, spent, order[b.key]))
        pod, members = like(one), reach[one.key]
        own = dominant(pod.requests, Resources.total(machines[name] for name in members))
        cost = dominant(pod.requests, whole)
        over = [
            taken[of] and taken[of] + more > most for of, more in ((members, own), ("all", cost))
        ]
        if not members or any(over):
            left.remove(one)
            continue
        taken[members] += own
        taken["all"] += cost
        counts[one.key] += 1
        made.append(replace(pod, name=f"{one.key}#{counts[one.key]:06}"))
        for who in (one.namespace, one.key):
            spent[who] += max(cost, SCALE // PODS_MAX)
        if counts[one.key] == one.replicas:
            left.remove(one)
    return made


def rank(one: "Buffer", spent: Mapping[str, int], place: int) -> tuple[object, ...]:
    """Return what the next pod is chosen by: least first."""
    return spent[one.namespace], one.namespace, spent[one.key], place


def first(buffers: "Iterable[Buffer]") -> "list[Buffer]":
    """Return those that are looked at: the first of each namespace, then the second."""
    asking = sorted((one for one in buffers if one.pod and one.replicas), key=lambda b: b.key)
    turn = {one.key: sum(o.namespace == one.namespace and o.key < one.key for o in asking)
            for one in asking}  # fmt: skip
    return sorted(asking, key=lambda one: (turn[one.key], one.key))[:BUFFERS_MAX]


def like(one: "Buffer") -> Pod:
    """Return one of its pods."""
    assert one.pod is not None
    return one.pod
