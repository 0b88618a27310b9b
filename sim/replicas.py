"""Order the pods of a Deployment as the ReplicaSet controller deletes them.

Source: kube-controller-manager's ActivePodsWithRanks and getPodsRankedByRelatedPodsOnSameNode,
1.36; tests/sim/recorded has recorded results. Pending and starting pods are not Ready. The rule
about container restarts is left out, because the simulation restarts no containers.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cmp_to_key
from typing import Final

from core.model.pod import Pod
from core.writes.costs import number_of

MS_PER_SECOND: Final = 1000


@dataclass(frozen=True, slots=True)
class Replica:
    """A pod with the times in ms that decide which pod the ReplicaSet controller deletes first.

    The controller compares the times in whole seconds.
    """

    pod: Pod
    created_ms: int
    ready_ms: int | None = None
    """Time at which the pod became Ready; None if it is not Ready."""


def first_deleted(
    replicas: Iterable[Replica], related: Iterable[Replica], now_ms: int
) -> list[Replica]:
    """Return the pods of a ReplicaSet in the order in which a scale-in deletes them.

    *related* are the pods of all ReplicaSets of the Deployment. Of two pods with equal readiness
    and equal pod deletion cost, the one with more related pods on its node is deleted first.
    """
    on_node = Counter(one.pod.node for one in related)

    def before(replica: Replica, other: Replica) -> int:
        ours, others = (
            _rank(compared, on_node[compared.pod.node]) for compared in (replica, other)
        )
        if ours != others:
            return -1 if ours < others else 1
        return _by_age(replica, other, now_ms)

    return sorted(replicas, key=cmp_to_key(before))


def _rank(replica: Replica, together: int) -> tuple[bool, bool, int, int]:
    cost = number_of(replica.pod.deletion_cost)
    return replica.pod.node is not None, replica.ready_ms is not None, cost, -together


def _by_age(replica: Replica, other: Replica, now_ms: int) -> int:
    """Return a negative number if *replica* is deleted before *other* by age, else a positive one.

    The time since readiness is compared first, then the time since creation, each by its binary
    logarithm. Pods of similar age are ordered by UID, which is random.
    """
    for ours_ms, others_ms in (
        (replica.ready_ms, other.ready_ms),
        (replica.created_ms, other.created_ms),
    ):
        ours, others = _second(ours_ms), _second(others_ms)
        if ours == others:
            continue
        difference = _magnitude(ours, now_ms) - _magnitude(others, now_ms)
        if difference:
            return difference
        break
    return -1 if replica.pod.uid < other.pod.uid else 1


def _second(at_ms: int | None) -> int:
    return -1 if at_ms is None else at_ms // MS_PER_SECOND


def _magnitude(second: int, now_ms: int) -> int:
    """Return the whole binary logarithm of the nanoseconds from *second* until *now_ms*.

    *second*: a time in seconds. -1 if no time has passed.
    """
    return (
        ((now_ms - second * MS_PER_SECOND) * 1_000_000).bit_length() - 1
        if (now_ms > second * MS_PER_SECOND)
        else -1
    )
