"""Which pods have come, and when, as far as room is to be kept for others like them; pure.

A pod has come when a look sees it that the last one did not, whatever its creationTimestamp says:
one clock counts, and what a leader has not seen it does not guess from the pods that happen to be
left. A pod whose controller keeps a number of pods, and of which one has left a short time ago,
takes that one's place: a rollout or an eviction asks for no more room than its surge. So does a
Job's pod that asks for the same as one of its namespace which ended a short time ago: a stream of
Jobs that begin as others end needs the room of those that run. Bare pods count each, and none that
asks for a node by its name: no other comes there in its place.
"""

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
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
from core.model.pod import Pod
from core.model.resources import Resources
from core.model.volumes import CLAIMS_FIELD
from core.model.workload import JOB, KEEPERS, Workload, workload_of
from core.packing.node_order import dominant_share

STEPS: Final = 5
"""Into so many counted a length is cut: the busiest one begins at any of them."""
SLOTS_MAX: Final = 1024
"""So many are remembered at most; of a long time they are longer."""
DAYS: Final = 7
DAY_SECONDS: Final = 86_400
DAY_SLOT_SECONDS: Final = 300
"""What daily before are remembered by, at least: 2,016 of them."""
ONE: Final = "node: "
KINDS_MAX: Final = 64
"""Different pods that a number tells apart, of no namespace many more than of another that asks."""
TEMPLATE_CHARACTERS_MAX: Final = 2048
"""Of a shape's template, written out, some five times a usual one: it is remembered for daily."""
WORKLOADS_MAX: Final = 4096
"""Workloads of which it is remembered that pods have left; those that lost one last."""


class PodShape(NamedTuple):
    """What a pod that has come asks for; the next like it is packed by that."""

    reach: str
    """The key of its reach; of pods that a single node admits, that node's name behind ONE."""
    requests: Resources
    placing: NodeConstraints
    """Without its volumes."""


Counts = Mapping[PodShape, int]
Buckets = Mapping[int, Counts]
"""By number: the number's first second, over how long a number is."""


class LastBucket(NamedTuple):
    """The number that was counted in last."""

    number: int = 0
    namespace_of: Mapping[PodShape, str] = MappingProxyType({})
    """The namespace whose pod was the first of the shape there."""


NOTHING: Final = LastBucket()
Gone = Mapping[int, int]
"""By number: how many pods have left whose place no other has taken."""


@dataclass(frozen=True, slots=True)
class TimeBuckets:
    """How time is cut, seconds."""

    bucket_seconds: int
    window_buckets: int
    """How many counted a length is."""
    lookback_seconds: int
    """For how long a number is remembered."""
    daily_bucket_seconds: int
    """How long the counted are by which daily before are remembered."""

    @staticmethod
    def of(reserve: Reserve) -> "TimeBuckets":
        """Cut as the settings ask, as finely as the bounds allow."""
        length, over = reserve.length_seconds, reserve.over_seconds
        number = max(1, length // STEPS, -(-over // SLOTS_MAX))
        return TimeBuckets(number, -(-length // number), over, max(length, DAY_SLOT_SECONDS))

    def is_compatible(self, other: "TimeBuckets") -> bool:
        """Say whether what was counted by the other one is counted alike, for however long."""
        return replace(self, lookback_seconds=other.lookback_seconds) == other

    def is_within(self, number: int, now_seconds: int) -> bool:
        """Say whether something of the number is still within the time that counts."""
        return (
            now_seconds - self.lookback_seconds < (number + 1) * self.bucket_seconds
            and number <= now_seconds // self.bucket_seconds
        )

    def same_time_on_earlier_days(self, now_seconds: int) -> list[range]:
        """Return, for each day before, the counted that began as the next time that counts does."""
        many = -(-self.lookback_seconds // self.daily_bucket_seconds)
        begins = (
            (now_seconds - back * DAY_SECONDS) // self.daily_bucket_seconds
            for back in range(1, DAYS + 1)
        )
        return [range(first, first + many) for first in begins]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """What is remembered."""

    buckets: TimeBuckets | None = None
    """By what it was counted; None: there was no look, or no room is kept."""
    pods: Sequence[Pod] = field(default=(), compare=False)
    """Those of the last look, sorted by name, the cluster's own tuple; of them it matters who was
    there, not what else they are."""
    recent: Buckets = field(default_factory=dict)
    last_recent: LastBucket = NOTHING
    daily: Buckets = field(default_factory=dict)
    last_daily: LastBucket = NOTHING
    departed: Mapping[Workload, Gone] = field(default_factory=dict)
    counting_since: int | None = None
    """Unix seconds of the look at which counting began; None: there was none."""

    def observe(self, seen: ClusterSnapshot, now: Now) -> "Arrivals":
        """Return the state after a look; it starts anew when the reserve counts differently."""
        return _observed(self, seen, now)

    def unchanged(self, now: Now) -> "Arrivals":
        """Return the state after the same cluster was seen again: what has expired is dropped."""
        return without_expired(self, now)

    def renamed(self, keys: RenamedKeys) -> "Arrivals":
        """Return the state under the keys that the reaches have now."""
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
    if not reserve.over_seconds:
        return Arrivals()
    buckets, pods = TimeBuckets.of(reserve), snapshot.cluster.pods
    if before.buckets is None or not buckets.is_compatible(before.buckets):
        return Arrivals(buckets=buckets, pods=pods, counting_since=now.seconds)
    left, arrived = _changes(before.pods, pods)
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
    """Return the arrivals without the counted that have expired.

    Nothing here registers a moment: `expected` does so for the counted that decide, and the rest is
    read only when pods come or leave.
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
    """Return who has left or is leaving since, and who has come, both by name."""
    departed, arrived = changes(before, now)
    was, stands = {pod.key: pod for pod in departed}, {pod.key: pod for pod in arrived}
    left = [
        pod for pod in departed if not pod.terminating and not _continues(pod, stands.get(pod.key))
    ]
    new = [pod for pod in arrived if (old := was.get(pod.key)) is None or old.uid != pod.uid]
    return left, new


def _continues(pod: Pod, now: Pod | None) -> bool:
    return now is not None and now.uid == pod.uid and not now.terminating


def _needs_room(pod: Pod) -> bool:
    """Say whether room is to be kept for others like it; for whom others go, there is room.

    A claim that waits for its first consumer is not known yet when its pod is seen first, and
    volumes are no part of what is asked for others.
    """
    known = pod.evaluable or (
        pod.unsupported == (CLAIMS_FIELD,) and not (pod.too_much or pod.unreadable)
    )
    return known and pod.occupies and not pod.terminating


def _workload(pod: Pod) -> Workload | None:
    """Return whose pods take each other's places; of Jobs, those that ask for the same."""
    if pod.owner_kind == JOB:
        return Workload(pod.namespace, JOB, repr((pod.requests, without_volumes(pod.placing))))
    return workload_of(pod) if pod.owner_kind in KEEPERS else None


def _replaces_departed(pod: Pod, departed: dict[Workload, dict[int, int]]) -> bool:
    """Say whether another of its workload has left for it, the first of whom it stands for now."""
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
    """Return what the pod stands for; None: no node of this cluster is one for it, or one by name.

    By names who may create pods could have every empty node kept, with a small pod for each; nor
    does a pod stand for others whose template is too long to be remembered.
    """
    placing = without_volumes(pod.placing)
    if (pod.requests, pod.placing) in snapshot.unplaceable or names_node(placing):
        return None
    members = snapshot.reaches.members(placing)
    if snapshot.pod_index.virtual.get(pod.node or "") or not members:
        return None
    if len(repr(placing)) > TEMPLATE_CHARACTERS_MAX:
        return None
    reach = snapshot.reaches.reach_of(placing)
    if reach is None and len(members) > 1:
        return None  # beyond those that are told apart, or nobody who can be judged goes there yet
    key = reach.key if reach else f"{ONE}{snapshot.node_order.nodes[members[0]].name}"
    return PodShape(key, pod.requests, placing)


def _recent(
    departed: Mapping[Workload, Gone], buckets: TimeBuckets, now_seconds: int
) -> Mapping[Workload, Gone]:
    """Return those that have left within one length."""
    now = now_seconds // buckets.bucket_seconds
    first = now - buckets.window_buckets
    kept = {
        workload: {number: many for number, many in counted.items() if first < number <= now}
        for workload, counted in departed.items()
    }
    return {workload: counted for workload, counted in kept.items() if counted}


def _bounded(departed: Mapping[Workload, Gone]) -> Mapping[Workload, Gone]:
    if len(departed) <= WORKLOADS_MAX:
        return departed
    last = sorted(departed, key=lambda workload: (-max(departed[workload]), workload))
    return {workload: departed[workload] for workload in last[:WORKLOADS_MAX]}


def _count_in_bucket(
    counted: Buckets, last: LastBucket, number: int, shapes: Sequence[tuple[str, PodShape]]
) -> tuple[Buckets, LastBucket]:
    """Count the shapes, each with its namespace, in the number, as far as it tells them apart.

    Once it is full, a shape of a namespace that has fewer takes the place of the rarest of the one
    that has most.
    """
    if not shapes:
        return counted, last
    counts = Counter(counted.get(number, {}))
    whose = dict(last.namespace_of) if last.number == number else {}
    had = Counter(whose.values())
    for namespace, shape in shapes:
        if shape not in counts:
            if len(counts) >= KINDS_MAX:
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
    """Return the pods that room is kept for: of each reach those of its busiest length.

    That asks for most, by dominant share of *total*, then has most pods, then arrived last; the
    same time of the daily before counts like the time that has passed. *at_least*: so many seconds
    is the length of a reach, where that is more than the setting.
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
    """How much shapes ask for, of one total; each is divided once."""

    def __init__(self, total: Resources) -> None:
        self._whole = total
        self._of: dict[Resources, int] = {}

    def of(self, counts: Counts) -> tuple[int, int]:
        """Return the share that all of them ask for, and how many they are."""
        return sum(many * self._one(shape) for shape, many in counts.items()), sum(counts.values())

    def _one(self, shape: PodShape) -> int:
        found = self._of.get(shape.requests)
        if found is None:
            found = self._of[shape.requests] = dominant_share(shape.requests, self._whole)
        return found


def _count_windows(
    arrivals: Arrivals, buckets: TimeBuckets, now_seconds: int, at_least: Mapping[str, int]
) -> Iterable[tuple[str, Counter[PodShape]]]:
    """Yield what arrived to each reach in each stretch of one length; the daily before first."""
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
    """Return those that are there, in the order in which they are asked for."""
    return {number: counted[number] for number in asked if number in counted}


def _current_reaches(times: Iterable[Buckets]) -> dict[NodeConstraints, str]:
    """Return by template the reach that its pods arrived to last; *times*: the oldest first.

    A template has one reach at a time, and another one when a second node of its pool comes, say,
    or nodes that it cannot use: what arrived to the one before are pods of the one that it has.
    """
    return {
        shape.placing: shape.reach
        for counted in times
        for counts in counted.values()
        for shape in counts
    }


def _by_reach(
    counted: Buckets, keys: Mapping[NodeConstraints, str]
) -> dict[str, dict[int, Counter[PodShape]]]:
    """Return what arrived to each reach in each number, those in order."""
    found: dict[str, dict[int, Counter[PodShape]]] = {}
    for number, counts in counted.items():
        for shape, many in counts.items():
            reach = keys[shape.placing]
            one = shape if shape.reach == reach else shape._replace(reach=reach)
            found.setdefault(reach, {}).setdefault(number, Counter())[one] += many
    return found


def _sum(counted: Buckets, asked: range) -> Counter[PodShape]:
    total: Counter[PodShape] = Counter()
    for number in asked:
        total.update(counted.get(number, {}))
    return total


def _sliding(counted: Buckets, many: int) -> Iterable[Counter[PodShape]]:
    """Yield what arrived in so many counted up to each: a long time may be many short ones.

    It is the same counter each time: who keeps what it says copies it.
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
    """Yield the unix seconds, past ones too, at which time alone changes the expected pods."""
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
