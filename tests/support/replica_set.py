"""A plain model of how the ReplicaSet controller chooses the pods that a scale-in deletes.

tests/e2e/test_scalein.py compares it with a real controller manager.
"""

import random
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from core.model.pod import Pod

COSTS = range(-(2**31), 2**31)


def read_cost(cost: str | None) -> int:
    """Return a pod deletion cost as the controller reads it; 0 if it is absent or invalid."""
    digits = (cost or "").removeprefix("-")
    plain = cost is not None and digits.isascii() and digits.isdecimal()
    canonical = plain and str(int(digits)) == digits and cost != "-0"
    return int(cost) if cost and canonical and int(cost) in COSTS else 0


def place(*, assigned: bool, ready: bool, cost: int) -> tuple[bool, bool, int]:
    """Return the place of a Running pod among those that a scale-in deletes; the lowest first."""
    return assigned, ready, cost


def deletions(pods: Iterable[Pod], chance: random.Random) -> list[Pod]:
    """Return the Running pods of a ReplicaSet in an order in which scale-ins may delete them.

    Unassigned pods come first, then pods that are not Ready, then those of lower cost. The rules
    after these depend on other pods and on time, so *chance* decides among equal pods.
    """
    shuffled = sorted(pods, key=lambda pod: pod.key)
    chance.shuffle(shuffled)
    return sorted(
        shuffled,
        key=lambda pod: place(
            assigned=pod.node is not None, ready=pod.ready, cost=read_cost(pod.deletion_cost)
        ),
    )


def skews(order: Sequence[Pod], zones: Mapping[str, str], counted: Collection[str]) -> list[int]:
    """Return the skew of the pods before the first deletion, and after each one.

    *zones*: topology domain by node; others have none. *counted*: the domains that count.
    """
    found = []
    for deleted in range(len(order) + 1):
        there = Counter(zones.get(pod.node or "") for pod in order[deleted:])
        numbers = [there[zone] for zone in counted]
        found.append(max(numbers, default=0) - min(numbers, default=0))
    return found


def violations(found: Sequence[int], max_skew: int, scale_in: int) -> int:
    """Return how many of the first *scale_in* deletions leave more skew than allowed.

    Allowed is maxSkew, or the skew before the first deletion if that is larger.
    """
    return sum(skew > max(max_skew, found[0]) for skew in found[1 : scale_in + 1])
