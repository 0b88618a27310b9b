"""Count the pods that are created, so that room can be reserved for similar pods.

A pod has arrived when a reconciliation sees it for the first time, by the leader's clock. Its
creationTimestamp is ignored. A new leader starts without arrivals: the pods that still exist say
little about the pods that were created and have ended before.

A pod that replaces a departed pod of the same workload is not counted, because a rollout or an
eviction needs no room beyond its surge. A pod of a Job replaces a departed pod of any Job with
equal requests and constraints in its namespace, because a stream of Jobs needs only the room of
the running ones. Bare pods are always counted. Pods that select a node by name are never counted.
"""

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, NamedTuple

from core.config.budgets import Reserve
from core.engine.pod_index import changes
from core.engine.reach_keys import RenamedKeys
from core.engine.snapshot import ClusterSnapshot
from core.engine.unschedulable import by_namespace_in_turns
from core.model.constraints import NodeConstraints, names_node, without_volumes
from core.model.now import Now
from core.model.pod import CLAIMS_FIELD, JOB, KEEPERS, Pod, Workload, workload_of
from core.model.resources import Resources
from core.placement.node_order import dominant_share

BUCKETS_PER_WINDOW: Final = 5
"""Number of buckets per window. A window may begin with any bucket."""
BUCKETS_MAX: Final = 1024
"""Maximum number of buckets in `reserve.lookback`; a long lookback has longer buckets."""
DAYS: Final = 7
"""Number of earlier days on which arrivals at the current time of the day count."""
DAY_SECONDS: Final = 86_400
DAILY_BUCKET_SECONDS_MIN: Final = 300
"""Minimum bucket length for earlier days (2,016 buckets a week)."""
SINGLE_NODE: Final = "node: "
"""Prefix of the key of a reach that is a single node."""
SHAPES_MAX: Final = 64
"""Pod shapes counted per bucket, shared fairly between namespaces."""
TEMPLATE_CHARACTERS_MAX: Final = 2048
"""Maximum length of the text of a counted pod's node constraints, about five times the usual
length. The constraints are kept for days."""
WORKLOADS_MAX: Final = 4096
"""Maximum number of workloads with remembered departures; those with the latest departures are
kept."""


class PodShape(NamedTuple):
    """Requests and constraints of arrived pods; placeholders are made from it."""

    reach: str
    """Key of the reach; for pods that a single node admits, SINGLE_NODE and the name of this
    node."""
    requests: Resources
    node_constraints: NodeConstraints
    """Node constraints without volumes."""


Counts = Mapping[PodShape, int]
"""Number of pods by shape."""
Buckets = Mapping[int, Counts]
"""Counts by bucket number, which is the start of the bucket divided by the bucket length."""


class LastBucket(NamedTuple):
    """The bucket in which pods were last counted."""

    number: int = 0
    namespace_of: Mapping[PodShape, str] = MappingProxyType({})
    """Namespace, by shape, of the first pod in the bucket that has the shape."""


NOTHING: Final = LastBucket()
Departures = Mapping[int, int]
"""Number of departed pods that no new pod has replaced, by bucket number."""


@dataclass(frozen=True, slots=True)
class TimeBuckets:
    """Lengths of the buckets that arrivals are counted in, seconds."""

    bucket_seconds: int
    window_buckets: int
    """Number of buckets in a window."""
    lookback_seconds: int
    """Time for which a bucket is kept."""
    daily_bucket_seconds: int
    """Length of the buckets for earlier days."""

    @staticmethod
    def of(reserve: Reserve) -> "TimeBuckets":
        """Return the finest buckets that the settings and the limits allow."""
        length, over = reserve.window_seconds, reserve.lookback_seconds
        number = max(1, length // BUCKETS_PER_WINDOW, -(-over // BUCKETS_MAX))
        return TimeBuckets(
            number, -(-length // number), over, max(length, DAILY_BUCKET_SECONDS_MIN)
        )

    def is_compatible(self, other: "TimeBuckets") -> bool:
        """Report whether the bucket lengths equal those of *other*; the lookback may differ."""
        return replace(self, lookback_seconds=other.lookback_seconds) == other

    def is_within(self, number: int, now_seconds: int) -> bool:
        """Report whether a part of the bucket is within the lookback."""
        return (
            now_seconds - self.lookback_seconds < (number + 1) * self.bucket_seconds
            and number <= now_seconds // self.bucket_seconds
        )

    def same_time_on_earlier_days(self, now_seconds: int) -> list[range]:
        """Return for each earlier day the buckets of one lookback from this time of day on."""
        many = -(-self.lookback_seconds // self.daily_bucket_seconds)
        begins = (
            (now_seconds - back * DAY_SECONDS) // self.daily_bucket_seconds
            for back in range(1, DAYS + 1)
        )
        return [range(first, first + many) for first in begins]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """Counted arrivals."""

    buckets: TimeBuckets | None = None
    """Lengths of the buckets; None before the first reconciliation, or if no room is reserved."""
    pods: Sequence[Pod] = field(default=(), compare=False)
    """Pods of the last reconciliation, sorted by name. Comparisons ignore them, since only their
    identity matters."""
    recent: Buckets = field(default_factory=dict)
    """Arrivals within the lookback."""
    last_recent: LastBucket = NOTHING
    daily: Buckets = field(default_factory=dict)
    """Arrivals of today and of the last DAYS days, in longer buckets."""
    last_daily: LastBucket = NOTHING
    departed: Mapping[Workload, Departures] = field(default_factory=dict)
    """Departures of the last window, by workload."""
    counting_since: int | None = None
    """Time of the reconciliation in which counting began, unix seconds; None before it."""

    def observe(self, seen: ClusterSnapshot, now: Now) -> "Arrivals":
        """Return the state after a reconciliation; new bucket lengths restart the counting."""
        return _observed(self, seen, now)

    def unchanged(self, now: Now) -> "Arrivals":
        """Return the state after a skipped reconciliation, without expired buckets."""
        return without_expired(self, now)

    def renamed(self, keys: RenamedKeys) -> "Arrivals":
        """Return the state with the previous keys of reaches replaced by the current ones."""
        return replace(
            self,
            recent={
                number: _renamed_counts(counts, keys) for number, counts in self.recent.items()
            },
            last_recent=_renamed_last(self.last_recent, keys),
            daily={number: _renamed_counts(counts, keys) for number, counts in self.daily.items()},
            last_daily=_renamed_last(self.last_daily, keys),
        )


def _observed(before: Arrivals, snapshot: ClusterSnapshot, now: Now) -> Arrivals:
    reserve = snapshot.config.budgets.reserve
    if not reserve.lookback_seconds:
        return Arrivals()
    buckets, pods = TimeBuckets.of(reserve), snapshot.cluster.pods
    if before.buckets is None or not buckets.is_compatible(before.buckets):
        return Arrivals(buckets=buckets, pods=pods, counting_since=now.seconds)
    left, arrived = _changes(before.pods, pods)
    if moving := snapshot.cluster.surge.moving:
        # The new pod of a surge move needs no further room. Its departed pod counts, because an
        # HPA may create another one in its place for some minutes.
        arrived = _not_owned_by(moving, arrived)
    known = without_expired(replace(before, buckets=buckets), now)
    departed = {workload: dict(counted) for workload, counted in known.departed.items()}
    for pod in left:
        if workload := _workload(pod):
            found = departed.setdefault(workload, {})
            number = now.seconds // buckets.bucket_seconds
            found[number] = found.get(number, 0) + 1
    new = [pod for pod in arrived if _needs_room(pod) and not _replaces_departed(pod, departed)]
    found_shapes = ((pod.namespace, _shape(pod, snapshot)) for pod in by_namespace_in_turns(new))
    shapes = [(namespace, shape) for namespace, shape in found_shapes if shape is not None]
    counted, last_recent = _count_in_bucket(
        known.recent, known.last_recent, now.seconds // buckets.bucket_seconds, shapes
    )
    daily, last_daily = _count_in_bucket(
        known.daily, known.last_daily, now.seconds // buckets.daily_bucket_seconds, shapes
    )
    return Arrivals(
        buckets=buckets,
        pods=pods,
        recent=counted,
        last_recent=last_recent,
        daily=daily,
        last_daily=last_daily,
        departed=_bounded(departed),
        counting_since=known.counting_since,
    )


def without_expired(arrivals: Arrivals, now: Now) -> Arrivals:
    """Return the arrivals without expired buckets.

    The expiry times are not recorded in Now here. `expected_pods` records those that change its
    result. The other buckets are read only when pods arrive or depart.
    """
    buckets = arrivals.buckets
    if buckets is None:
        return arrivals
    seconds = now.seconds
    oldest = (seconds - DAYS * DAY_SECONDS) // buckets.daily_bucket_seconds
    today = seconds // buckets.daily_bucket_seconds
    return replace(
        arrivals,
        recent={n: one for n, one in arrivals.recent.items() if buckets.is_within(n, seconds)},
        daily={n: one for n, one in arrivals.daily.items() if oldest <= n <= today},
        departed=_recent(arrivals.departed, buckets, seconds),
    )


def _renamed_last(last: LastBucket, keys: RenamedKeys) -> LastBucket:
    return LastBucket(
        last.number, {_renamed_shape(shape, keys): its for shape, its in last.namespace_of.items()}
    )


def _renamed_shape(shape: PodShape, keys: RenamedKeys) -> PodShape:
    return shape._replace(reach=keys.get(shape.reach, shape.reach))


def _renamed_counts(counts: Counts, keys: RenamedKeys) -> Counts:
    if not any(shape.reach in keys for shape in counts):
        return counts
    found: Counter[PodShape] = Counter()
    for shape, many in counts.items():
        found[_renamed_shape(shape, keys)] += many
    return found


def _changes(before: Sequence[Pod], now: Sequence[Pod]) -> tuple[list[Pod], list[Pod]]:
    """Return the pods that have left or begun to terminate, and the arrived pods, by name."""
    departed, arrived = changes(before, now)
    was, stands = {pod.key: pod for pod in departed}, {pod.key: pod for pod in arrived}
    left = [
        pod for pod in departed if not pod.terminating and not _continues(pod, stands.get(pod.key))
    ]
    new = [pod for pod in arrived if (old := was.get(pod.key)) is None or old.uid != pod.uid]
    return left, new


def _not_owned_by(owners: Collection[tuple[str, str]], pods: Iterable[Pod]) -> list[Pod]:
    return [pod for pod in pods if (pod.namespace, pod.owner_name) not in owners]


def _continues(pod: Pod, now: Pod | None) -> bool:
    return now is not None and now.uid == pod.uid and not now.terminating


def _needs_room(pod: Pod) -> bool:
    """Report whether room should be reserved for similar pods."""
    # A claim that waits for its first consumer is still unknown when its pod is first seen.
    # Volumes are not part of the shape, so such a pod counts.
    known = pod.evaluable or (
        pod.unsupported == (CLAIMS_FIELD,) and not (pod.too_much or pod.unreadable)
    )
    return known and pod.occupies and not pod.terminating


def _workload(pod: Pod) -> Workload | None:
    """Return the workload whose pods replace each other, or None."""
    if pod.owner_kind == JOB:
        return Workload(
            pod.namespace, JOB, repr((pod.requests, without_volumes(pod.node_constraints)))
        )
    return workload_of(pod) if pod.owner_kind in KEEPERS else None


def _replaces_departed(pod: Pod, departed: dict[Workload, dict[int, int]]) -> bool:
    """Remove the oldest departure of the pod's workload; report whether there was any."""
    workload = _workload(pod)
    left = departed.get(workload) if workload else None
    if not workload or not left:
        return False
    number = min(left)
    left[number] -= 1
    if not left[number]:
        del left[number]
    if not left:
        del departed[workload]
    return True


def _shape(pod: Pod, snapshot: ClusterSnapshot) -> PodShape | None:
    """Return the shape of the pod, or None if no room is to be reserved for such pods.

    No room is reserved for pods that no node can hold, that select a node by name, that run on a
    virtual node, or whose node constraints are too long.
    """
    node_constraints = without_volumes(pod.node_constraints)
    # Otherwise a user could have every empty node reserved, with a small pod for each name.
    if (pod.requests, pod.node_constraints) in snapshot.unplaceable or names_node(
        node_constraints
    ):
        return None
    members = snapshot.reaches.members(node_constraints)
    if snapshot.pod_index.virtual.get(pod.node or "") or not members:
        return None
    if len(repr(node_constraints)) > TEMPLATE_CHARACTERS_MAX:
        return None
    reach = snapshot.reaches.reach_of(node_constraints)
    if reach is None and len(members) > 1:
        return None  # the reach is untracked, or no pod that Ebb can evaluate uses it yet
    key = reach.key if reach else f"{SINGLE_NODE}{snapshot.node_order.nodes[members[0]].name}"
    return PodShape(key, pod.requests, node_constraints)


def _recent(
    departed: Mapping[Workload, Departures], buckets: TimeBuckets, now_seconds: int
) -> Mapping[Workload, Departures]:
    """Return the departures of the last window."""
    now = now_seconds // buckets.bucket_seconds
    first = now - buckets.window_buckets
    kept = {
        workload: {number: many for number, many in counted.items() if first < number <= now}
        for workload, counted in departed.items()
    }
    return {workload: counted for workload, counted in kept.items() if counted}


def _bounded(departed: Mapping[Workload, Departures]) -> Mapping[Workload, Departures]:
    """Return at most WORKLOADS_MAX workloads, those with the latest departures."""
    if len(departed) <= WORKLOADS_MAX:
        return departed
    last = sorted(departed, key=lambda workload: (-max(departed[workload]), workload))
    return {workload: departed[workload] for workload in last[:WORKLOADS_MAX]}


def _count_in_bucket(
    counted: Buckets, last: LastBucket, number: int, shapes: Sequence[tuple[str, PodShape]]
) -> tuple[Buckets, LastBucket]:
    """Count shapes, each with its namespace, in the bucket, up to SHAPES_MAX different ones.

    If the bucket is full, a shape of a namespace with fewer shapes replaces the rarest shape of
    the namespace with the most shapes.
    """
    if not shapes:
        return counted, last
    counts = Counter(counted.get(number, {}))
    whose = dict(last.namespace_of) if last.number == number else {}
    had = Counter(whose.values())
    for namespace, shape in shapes:
        if shape not in counts:
            if len(counts) >= SHAPES_MAX:
                most = max(sorted(had), key=lambda one: had[one], default="")
                if had[most] <= had[namespace] + 1:
                    continue
                own = [one for one, its in whose.items() if its == most]
                departed = min(own, key=lambda one: (counts[one], repr(one)))
                del counts[departed], whose[departed]
                had[most] -= 1
            whose[shape] = namespace
            had[namespace] += 1
        counts[shape] += 1
    return {**counted, number: counts}, LastBucket(number, whose)


def expected_pods(
    arrivals: Arrivals, total: Resources, now: Now, at_least: Mapping[str, int]
) -> Counts:
    """Return the pods to reserve room for: for each reach, the arrivals of its busiest window.

    The busiest window has the largest requests by dominant share of *total*, then the most pods,
    then the latest end. Windows at the same time on earlier days are compared too. *at_least*:
    minimum length of the window by reach, seconds.
    """
    buckets = arrivals.buckets
    if buckets is None:
        return {}
    for moment in _change_times(arrivals, now.seconds):
        now.before(moment)
    shares = _Shares(total)
    best: dict[str, tuple[tuple[int, int], Counts]] = {}
    for reach, counts in _count_windows(arrivals, buckets, now.seconds, at_least):
        asked = shares.of(counts)
        if reach not in best or asked >= best[reach][0]:
            best[reach] = asked, dict(counts)
    return {shape: many for _, counts in best.values() for shape, many in counts.items()}


class _Shares:
    """Dominant shares of the requests of pod shapes; each is computed once."""

    def __init__(self, total: Resources) -> None:
        self._whole = total
        self._of: dict[Resources, int] = {}

    def of(self, counts: Counts) -> tuple[int, int]:
        """Return the total share of the pods, and their number."""
        return sum(many * self._one(shape) for shape, many in counts.items()), sum(counts.values())

    def _one(self, shape: PodShape) -> int:
        found = self._of.get(shape.requests)
        if found is None:
            found = self._of[shape.requests] = dominant_share(shape.requests, self._whole)
        return found


def _count_windows(
    arrivals: Arrivals, buckets: TimeBuckets, now_seconds: int, at_least: Mapping[str, int]
) -> Iterable[tuple[str, Counter[PodShape]]]:
    """Yield the arrivals of each reach in each window; earlier days come first."""
    daily = buckets.same_time_on_earlier_days(now_seconds)
    before = [_select(arrivals.daily, day) for day in daily]
    near = _select(
        arrivals.recent, (n for n in sorted(arrivals.recent) if buckets.is_within(n, now_seconds))
    )
    keys = _current_reaches((*reversed(before), near))
    for day, known in zip(daily, before, strict=True):
        for reach, counted in _by_reach(known, keys).items():
            many = -(-at_least.get(reach, 0) // buckets.daily_bucket_seconds) or 1
            yield from ((reach, _sum(counted, range(first, first + many))) for first in day)
    for reach, counted in _by_reach(near, keys).items():
        many = max(buckets.window_buckets, -(-at_least.get(reach, 0) // buckets.bucket_seconds))
        yield from ((reach, counts) for counts in _sliding(counted, many))


def _select(counted: Buckets, asked: Iterable[int]) -> Buckets:
    """Return the existing buckets among *asked*, in that order."""
    return {number: counted[number] for number in asked if number in counted}


def _current_reaches(times: Iterable[Buckets]) -> dict[NodeConstraints, str]:
    """Return the current reach of node constraints: that of the latest pods that have them.

    *times*: oldest first. A reach changes when nodes are added, such as the second node of a pool.
    Earlier arrivals of pods with the same constraints count for the current reach.
    """
    return {
        shape.node_constraints: shape.reach
        for counted in times
        for counts in counted.values()
        for shape in counts
    }


def _by_reach(
    counted: Buckets, keys: Mapping[NodeConstraints, str]
) -> dict[str, dict[int, Counter[PodShape]]]:
    """Return the arrivals by reach and bucket."""
    found: dict[str, dict[int, Counter[PodShape]]] = {}
    for number, counts in counted.items():
        for shape, many in counts.items():
            reach = keys[shape.node_constraints]
            one = shape if shape.reach == reach else shape._replace(reach=reach)
            found.setdefault(reach, {}).setdefault(number, Counter())[one] += many
    return found


def _sum(counted: Buckets, asked: range) -> Counter[PodShape]:
    total: Counter[PodShape] = Counter()
    for number in asked:
        total.update(counted.get(number, {}))
    return total


def _sliding(counted: Buckets, many: int) -> Iterable[Counter[PodShape]]:
    """Yield for each bucket the sum of the *many* buckets that end with it.

    It yields the same Counter every time; copy it to keep it.
    """
    total: Counter[PodShape] = Counter()
    behind = deque(counted)
    for last, counts in counted.items():
        total.update(counts)
        while behind[0] <= last - many:
            for shape, departed in counted[behind.popleft()].items():
                total[shape] -= departed
                if not total[shape]:
                    del total[shape]
        yield total


def _change_times(arrivals: Arrivals, now_seconds: int) -> Iterable[int]:
    """Yield the times, some in the past, at which time alone changes the expected pods."""
    buckets = arrivals.buckets
    if buckets is None:
        return
    for number in arrivals.recent:
        yield (number + 1) * buckets.bucket_seconds + buckets.lookback_seconds
    known = sorted(arrivals.daily)
    for back, day in enumerate(buckets.same_time_on_earlier_days(now_seconds), 1):
        for number in known[bisect_left(known, day.start) :][:1]:
            yield (number + 1) * buckets.daily_bucket_seconds + back * DAY_SECONDS
        for number in known[bisect_left(known, day.stop) :][:1]:
            yield (number - len(day) + 1) * buckets.daily_bucket_seconds + back * DAY_SECONDS
