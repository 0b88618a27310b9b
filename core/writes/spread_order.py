"""Order the pods of a ReplicaSet by pod deletion costs so that scale-ins keep them spread.

The ReplicaSet controller compares the cost of Ready pods before anything else, so a cost on some
pods can break the topology spread that their template asks for. Here the costs of all Ready pods
together give the order in which scale-ins delete them: pods of marked nodes first, then those of
scale-in targets, as far as the spread admits.

The skew is the difference between the largest and the smallest number of Ready pods of the
ReplicaSet in a topology domain that has some. Domains without such pods are left out: a deletion
cannot raise a skew that counts them.

Source: PodTopologySpread of kube-scheduler; ActivePodsWithRanks of kube-controller-manager, 1.37.
"""

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

GAP: Final = 256
"""Difference between the costs of two pods in a new order, so that later pods fit in between."""

OTHERS: Final = 2
"""First part of the rank of pods on nodes that scale-ins should not empty."""


class SkewLimit(NamedTuple):
    """What a topology spread constraint allows."""

    max_skew: int
    hard: bool
    """whenUnsatisfiable: DoNotSchedule."""


class RankedPod(NamedTuple):
    """A Ready pod of the ReplicaSet."""

    name: str
    rank: tuple[int, int]
    """Wanted place in the order, lowest first: whether the node is marked (0), a scale-in target
    (1) or neither (2), then which of these nodes comes first."""
    domains: tuple[str | None, ...]
    """Topology domain of the node for each constraint; None: the node is in none."""
    cost: int | None
    """Pod deletion cost; None: the pod has none, which counts as 0."""
    fixed: bool = False
    """The cost is not Ebb's, so it stays as it is."""


class SpreadCosts(NamedTuple):
    """Pod deletion costs of a ReplicaSet."""

    by_name: Mapping[str, int] | None
    """Costs that Ebb sets or leaves; the other pods need none. None: the order does not depend on
    the spread, so costs may follow the nodes alone."""
    broken: bool
    """Some deletion may raise a skew above its limit."""


UNORDERED: Final = SpreadCosts(None, broken=True)


def spread_costs(
    pods: Sequence[RankedPod], limits: Sequence[SkewLimit], allowed: range, first: int
) -> SpreadCosts:
    """Return the costs in whose order scale-ins keep the pods spread.

    No deletion in this order raises a skew above its maxSkew. So this also holds for what is left
    after each scale-in. Several constraints, or fixed costs, may admit no such order: then hard
    constraints come before soft ones. The last pods need no cost if every order of them keeps to
    the limits. If the costs of others leave no room between them, the result has no costs.

    Costs that are already in order stay, and as few others as possible change. *allowed*: the
    costs that may be set, below 0. *first*: about the lowest cost in a new order.
    """
    if _is_always_spread(pods, limits):
        return SpreadCosts(None, broken=False)
    if _in_order(pods, limits):
        costs = {pod.name: pod.cost for pod in pods if pod.cost is not None and not pod.fixed}
        return SpreadCosts(costs, broken=False)
    order, broken = _ordered(pods, limits, allowed)
    named = order[: len(order) - _needless(order, limits)]
    inner = [pod for pod in named if not pod.fixed or pod.cost in allowed]
    costs_of_order = _numbered(inner, allowed, first)
    return UNORDERED if costs_of_order is None else SpreadCosts(costs_of_order, broken)


def _is_always_spread(pods: Iterable[RankedPod], limits: Sequence[SkewLimit]) -> bool:
    """Return whether every order of the pods keeps to the limits."""
    return all(
        len(counts) <= 1 or max(counts.values()) <= limit.max_skew
        for counts, limit in zip(_counted(pods, len(limits)), limits, strict=True)
    )


class _Skew:
    """The pods in each domain of one constraint, while pods are deleted."""

    def __init__(self, counts: Mapping[str, int], max_skew: int) -> None:
        self._counts, self._max_skew = dict(counts), max_skew
        self._high, self._low = max(counts.values(), default=0), min(counts.values(), default=0)

    def worsens(self, domain: str | None) -> bool:
        """Return whether the deletion of a pod in *domain* raises the skew above maxSkew."""
        # Only a deletion in the smallest domain raises the skew. If all are equal, it becomes 1.
        return (
            domain is not None
            and self._counts[domain] == self._low
            and self._high - self._low >= self._max_skew
        )

    def delete(self, domain: str | None) -> None:
        if domain is None:
            return
        count = self._counts[domain]
        self._counts[domain] = count - 1
        self._low = min(self._low, count - 1)
        if count == self._high:
            self._high = max(self._counts.values())


def _counted(pods: Iterable[RankedPod], many: int) -> list[Counter[str]]:
    """Return the number of pods in each domain, for each of *many* constraints."""
    counted = [Counter[str]() for _ in range(many)]
    for pod in pods:
        for counts, domain in zip(counted, pod.domains, strict=True):
            if domain is not None:
                counts[domain] += 1
    return counted


def _skews(pods: Iterable[RankedPod], limits: Sequence[SkewLimit]) -> list[_Skew]:
    counted = _counted(pods, len(limits))
    return [_Skew(counts, limit.max_skew) for counts, limit in zip(counted, limits, strict=True)]


def _delete(skews: Iterable[_Skew], pod: RankedPod) -> None:
    for skew, domain in zip(skews, pod.domains, strict=True):
        skew.delete(domain)


def _breaks(
    skews: Iterable[_Skew], limits: Iterable[SkewLimit], pod: RankedPod
) -> tuple[int, int]:
    """Return how many hard and how many soft constraints the deletion of the pod breaks."""
    hard = soft = 0
    for skew, limit, domain in zip(skews, limits, pod.domains, strict=True):
        if skew.worsens(domain):
            hard += limit.hard
            soft += not limit.hard
    return hard, soft


def _place(pod: RankedPod) -> tuple[tuple[int, int], bool, int, str]:
    """Return the place of the pod among others: by rank, then where its cost already puts it."""
    return pod.rank, pod.cost is None, pod.cost or 0, pod.name


def _by_cost(pod: RankedPod) -> tuple[int, str]:
    return pod.cost or 0, pod.name


def _is_late(pod: RankedPod) -> bool:
    """Return whether the cost of another writer puts the pod behind all costs of Ebb."""
    return pod.fixed and (pod.cost or 0) >= 0


def _in_order(pods: Sequence[RankedPod], limits: Sequence[SkewLimit]) -> bool:
    """Return whether the present costs of the pods are an order that needs no change."""
    late = [pod for pod in pods if pod.cost is None or _is_late(pod)]
    unnamed = [pod for pod in late if not pod.fixed]
    if any(pod.rank[0] != OTHERS for pod in unnamed):
        return False
    if unnamed and not _all_within(_counted(late, len(limits)), limits):
        return False
    early = sorted(
        (pod for pod in pods if pod.cost is not None and not _is_late(pod)), key=_by_cost
    )
    skews, last = _skews(pods, limits), dict[tuple[str | None, ...], int]()
    before: RankedPod | None = None
    for pod in early:
        if before and before.cost == pod.cost and before.domains != pod.domains:
            return False  # the controller may delete either one first
        if any(_breaks(skews, limits, pod)):
            return False
        _delete(skews, pod)
        before = pod
        if not pod.fixed:
            if pod.rank[0] < last.get(pod.domains, pod.rank[0]):
                return False
            last[pod.domains] = pod.rank[0]
    return True


def _ordered(
    pods: Iterable[RankedPod], limits: Sequence[SkewLimit], allowed: range
) -> tuple[list[RankedPod], bool]:
    """Return the order of deletion, and whether some deletion in it breaks a constraint."""
    pods = sorted(pods, key=_place)
    skews, order, broken = _skews(pods, limits), list[RankedPod](), False
    fixed = deque(sorted((pod for pod in pods if pod.fixed), key=_by_cost))
    queues: dict[tuple[str | None, ...], deque[RankedPod]] = {}
    for pod in pods:
        if not pod.fixed:
            queues.setdefault(pod.domains, deque()).append(pod)
    while queues or fixed:
        first = fixed[0] if fixed else None
        heads = [queue[0] for queue in queues.values()]
        if first is not None and (not heads or (first.cost or 0) < allowed.start):
            heads = [first]
        elif first is not None and first.cost in allowed:
            heads.append(first)
        pod = min(heads, key=lambda head: (_breaks(skews, limits, head), _place(head)))
        broken = broken or (not _is_late(pod) and any(_breaks(skews, limits, pod)))
        _delete(skews, pod)
        order.append(pod)
        if pod.fixed:
            fixed.popleft()
        else:
            queue = queues[pod.domains]
            queue.popleft()
            if not queue:
                del queues[pod.domains]
    return order, broken


def _needless(order: Sequence[RankedPod], limits: Sequence[SkewLimit]) -> int:
    """Return the number of pods at the end of the order that need no cost.

    They have none, no rank, and are so few that every order of them keeps to the limits.
    """
    late = [pod for pod in order if _is_late(pod)]
    counted = _counted(late, len(limits))
    unnamed = 0
    for pod in reversed(order[: len(order) - len(late)]):
        if pod.fixed or pod.cost is not None or pod.rank[0] != OTHERS:
            break
        for counts, domain in zip(counted, pod.domains, strict=True):
            if domain is not None:
                counts[domain] += 1
        if not _all_within(counted, limits):
            break
        unnamed += 1
    return unnamed + len(late)


def _all_within(counted: Iterable[Counter[str]], limits: Iterable[SkewLimit]) -> bool:
    return all(
        max(counts.values(), default=0) <= limit.max_skew
        for counts, limit in zip(counted, limits, strict=True)
    )


def _numbered(order: Iterable[RankedPod], allowed: range, first: int) -> dict[str, int] | None:
    """Return an ascending cost for each pod of the order, around those that are fixed.

    None if there is no room.
    """
    costs: dict[str, int] = {}
    edges = range(allowed.start - 1, allowed.stop)
    low, between = edges.start, list[RankedPod]()
    for pod in [*order, None]:
        if pod is not None and not pod.fixed:
            between.append(pod)
            continue
        high = edges.stop if pod is None or pod.cost is None else pod.cost
        present = [one.cost for one in between]
        filled = _filled(present, _kept(present, low, high), (low, high), edges, first)
        filled = filled or _filled(present, [], (low, high), edges, first)
        if filled is None:
            return None
        costs |= zip((one.name for one in between), filled, strict=True)
        low, between = high, []
    return costs


def _kept(costs: Sequence[int | None], low: int, high: int) -> list[int]:
    """Return the places of a longest ascending sequence of costs between *low* and *high*."""
    ends: list[int] = []  # lowest last cost of a sequence of each length
    places: list[int] = []  # the place of that cost
    previous: dict[int, int | None] = {}
    for place, cost in enumerate(costs):
        if cost is not None and low < cost < high:
            length = bisect_left(ends, cost)
            previous[place] = places[length - 1] if length else None
            ends[length:] = [cost, *ends[length + 1 :]]
            places[length:] = [place, *places[length + 1 :]]
    kept: list[int] = []
    last = places[-1] if places else None
    while last is not None:
        kept.append(last)
        last = previous[last]
    return kept[::-1]


def _filled(
    costs: Sequence[int | None],
    kept: Iterable[int],
    bounds: tuple[int, int],
    edges: range,
    first: int,
) -> list[int] | None:
    """Return ascending costs between *bounds*, those at the places *kept* as they are.

    None if there is no room.
    """
    filled: list[int] = []
    low, high_of_all = bounds
    for place in [*kept, len(costs)]:
        cost = costs[place] if place < len(costs) else None
        high = high_of_all if cost is None else cost
        many = place - len(filled)
        between = _between(low, high, many, edges, first)
        if between is None:
            return None
        filled += between
        if cost is not None:
            filled.append(cost)
        low = high
    return filled


def _between(low: int, high: int, many: int, edges: range, first: int) -> Sequence[int] | None:
    """Return *many* ascending costs between *low* and *high*; None if there is no room.

    They keep a distance to other pods, and lie near them if one of the bounds is an edge.
    """
    if low == edges.start and high == edges.stop:
        low = first
    step = (high - low) // (many + 1)
    if low == edges.start:
        step = min(step, GAP)
        low = high - step * (many + 1)
    elif high == edges.stop:
        step = min(step, GAP)
    return range(low + step, low + step * (many + 1), step)[:many] if step else None
