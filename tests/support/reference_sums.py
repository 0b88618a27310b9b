"""Reference implementation of totals: capacity, requests and usable capacity."""

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

from core.model.node import Node
from core.model.pod import Pod
from core.model.resources import Resources

if TYPE_CHECKING:
    from core.placement.usable_capacity import Usability

Pair = tuple[int, int]
"""CPU in millicores and memory in bytes."""
NONE: Pair = (0, 0)


class Useful(NamedTuple):
    """The minimum free amounts and ratios at which free capacity is usable."""

    least: Pair
    cpu_per_memory: Fraction
    """Ratio of cores to 10^9 bytes."""
    memory_per_cpu: Fraction


class Sums(NamedTuple):
    """Totals of a set of nodes."""

    nodes: int
    capacity: Pair
    requests: Pair
    usable: Pair


def plus(one: Pair, other: Pair) -> Pair:
    """Return the sum of two pairs."""
    return one[0] + other[0], one[1] + other[1]


def asked(pods: Iterable[Pod]) -> Pair:
    """Return the requests of the pods."""
    total = NONE
    for pod in pods:
        total = plus(total, (pod.requests.cpu_millis, pod.requests.memory_bytes))
    return total


def minus(one: Pair, other: Pair) -> Pair:
    """Return the difference of two pairs."""
    return one[0] - other[0], one[1] - other[1]


def held(node: Node, pods: Iterable[Pod]) -> Pair:
    """Return the requests of the pods, limited to the allocatable resources of the node."""
    cpu, memory = asked(pods)
    return min(cpu, offered(node)[0]), min(memory, offered(node)[1])


def offered(node: Node) -> Pair:
    """Return the allocatable resources of the node."""
    return node.allocatable.cpu_millis, node.allocatable.memory_bytes


def within(used: Pair, shares: tuple[Fraction, Fraction], whole: Pair) -> bool:
    """Return whether the used amounts are within the shares; 0 capacity allows only 0 requests."""
    return all(
        have > 0 and Fraction(part, have) <= share
        for part, share, have in zip(used, shares, whole, strict=True)
    )


def usable_of(whole: Pair, used: Pair, useful: Useful | None) -> Pair:
    """Return used plus usable free capacity; on an overcommitted node, the used amounts."""
    cpu, memory = whole[0] - used[0], whole[1] - used[1]
    if cpu < 0 or memory < 0:
        return used
    if useful is None:
        return whole
    if cpu < useful.least[0] or memory < useful.least[1]:
        return used
    cpu_bound = Fraction(memory, 10**9) * useful.cpu_per_memory * 1000
    memory_bound = Fraction(cpu, 1000) * useful.memory_per_cpu * 10**9
    return plus(used, (min(cpu, int(cpu_bound)), min(memory, int(memory_bound))))


def derived(
    pods: Sequence[Pod], beside: Sequence[Pod], *, smallest: bool = False
) -> Useful | None:
    """Return the usability numbers derived from pods with both requests, or None.

    The minimum is just under the 5th percentile of the requests, with *smallest* under the lowest.
    The ratios are those of *beside*, the pods that share nodes of the reach.
    """
    pairs, others = _both(pods), _both(beside)
    if not pairs:
        return None
    place = 0 if smallest or len(pairs) < 3 else max(1, -(-len(pairs) * 5 // 100) - 1)
    cpu = sorted(cpu for cpu, _ in pairs)[place]
    memory = sorted(memory for _, memory in pairs)[place]
    return Useful(
        least=(cpu * 9 // 10, memory * 9 // 10),
        cpu_per_memory=max(Fraction(c, 1000) / Fraction(m, 10**9) for c, m in others),
        memory_per_cpu=max(Fraction(m, 10**9) / Fraction(c, 1000) for c, m in others),
    )


def _both(pods: Sequence[Pod]) -> list[Pair]:
    """Return the requests of the pods that request both resources."""
    pairs = [asked([pod]) for pod in pods]
    return [(cpu, memory) for cpu, memory in pairs if cpu > 0 and memory > 0]


def given(usability: "Usability") -> Useful:
    """Return the usability numbers of the configuration."""
    return Useful(
        least=(usability.min_cpu_millis, usability.min_memory_bytes),
        cpu_per_memory=usability.max_cpu_per_gb,
        memory_per_cpu=usability.max_gb_per_cpu,
    )


def worth(amount: Resources) -> Fraction:
    """Return the cost of resources in millicores, with 130 per GiB and 11,000 per GPU."""
    gpus = dict(amount.extended).get("gpu", 0)
    return amount.cpu_millis + Fraction(amount.memory_bytes, 2**30) * 130 + gpus * 11_000


def worth_share(requests: Resources, whole: Resources) -> int:
    """Return the share of the cost that is requested, in units of 2^-40, rounded down."""
    return int(worth(requests) / worth(whole) * 2**40) if worth(whole) else 0


def dominant(requests: Resources, whole: Resources) -> int:
    """Return the dominant share of CPU, memory or a device, in units of 2^-40, rounded down."""
    have = {"cpu": whole.cpu_millis, "memory": whole.memory_bytes, **dict(whole.extended)}
    want = {"cpu": requests.cpu_millis, "memory": requests.memory_bytes, **dict(requests.extended)}
    shares = [
        amount * 2**40 // max(have[name], 1)
        for name, amount in want.items()
        if have.get(name) or name in ("cpu", "memory")
    ]
    return max(shares)
