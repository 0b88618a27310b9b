"""Count the pods that are created over time, so that Ebb can reserve room for as many again.

A pod has arrived when a reconciliation sees it for the first time, by the leader's clock. Its
creationTimestamp is ignored, because the pods that still exist say little about the pods that were
created and have ended before. A new leader continues what the previous one has stored
(core.engine.stored_arrivals).

A pod that replaces a departed pod of the same workload is not counted, because a rollout or an
eviction needs no room beyond its surge. A pod of a Job replaces a departed pod of any Job with
equal requests and constraints in its namespace, because a stream of Jobs needs only the room of
the running ones. Bare pods are always counted. Pods that select a node by name are never counted.

Arrivals are counted by reach (a set of nodes that some pods can use) and in time buckets.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from types import MappingProxyType
from typing import Final, NamedTuple

from core.engine.pod_index import changes
from core.engine.reach_keys import RenamedKeys
from core.engine.snapshot import ClusterSnapshot
from core.engine.unschedulable import by_namespace_in_turns
from core.model.constraints import NodeConstraints, names_node, without_volumes
from core.model.now import Now
from core.model.pod import CLAIMS_FIELD, JOB, KEEPERS, Pod, Workload, workload_of
from core.model.resources import Resources
from core.placement.node_order import dominant_share

LOOKBACK_SECONDS: Final = 3600
"""Length of the recent past whose windows are compared."""
BUCKETS_PER_WINDOW: Final = 5
"""Number of buckets per window. A window may begin with any bucket."""
BUCKETS_MAX: Final = 1024
"""Maximum number of buckets in LOOKBACK_SECONDS."""
SINGLE_NODE: Final = "node: "
"""Prefix of the key of a reach that is a single node."""
SHAPES_MAX: Final = 64
"""Pod shapes counted per bucket, shared fairly between namespaces."""
TEMPLATE_CHARACTERS_MAX: Final = 2048
"""Maximum length of the text of a counted pod's node constraints, about five times the usual
length."""
ONE_BURST_PERCENTILE_MAX: Final = Fraction(1, 2)
"""Maximum percentile at which pods are not expected that came within a single window: it selects
the smaller one of two windows, here an empty one.

Otherwise a single scale-out of a large Deployment would keep room for its pods a second time, for
an hour."""
WORKLOADS_MAX: Final = 4096
"""Maximum number of workloads with remembered departures; those with the latest departures are
kept."""


class PodShape(NamedTuple):
    """Reach, requests and node constraints that arrived pods share; they are counted by shape."""

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
    """The time bucket in which pods were last counted, with the namespace of each pod shape."""

    number: int = 0
    namespace_of: Mapping[PodShape, str] = MappingProxyType({})
    """Namespace, by shape, of the first pod in the bucket that has the shape."""


NOTHING: Final = LastBucket()
Departures = Mapping[int, int]
"""Number of departed pods that no new pod has replaced, by bucket number."""


@dataclass(frozen=True, slots=True)
class TimeBuckets:
    """Length of the time buckets in which arrived pods are counted, and how many are used."""

    bucket_seconds: int
    window_buckets: int
    """Number of buckets in a window."""

    @staticmethod
    def of(window_seconds: int) -> "TimeBuckets":
        """Return bucket lengths for the window, as short as the limits allow."""
        bucket_seconds = max(
            window_seconds // BUCKETS_PER_WINDOW, -(-LOOKBACK_SECONDS // BUCKETS_MAX)
        )
        return TimeBuckets(bucket_seconds, -(-window_seconds // bucket_seconds))

    def is_within(self, number: int, now_seconds: int) -> bool:
        """Report whether bucket *number* has begun and is at least partly within the lookback."""
        return (
            now_seconds - LOOKBACK_SECONDS < (number + 1) * self.bucket_seconds
            and number <= now_seconds // self.bucket_seconds
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """Numbers of created pods by time bucket and pod shape, which a leader keeps in its state."""

    buckets: TimeBuckets | None = None
    """Lengths of the buckets; None before the first reconciliation, or if no room is reserved."""
    pods: Sequence[Pod] = field(default=(), compare=False)
    """Pods of the last reconciliation, sorted by name. Comparisons ignore them, since only their
    identity matters."""
    recent: Buckets = field(default_factory=dict)
    """Arrivals within the lookback."""
    last_bucket: LastBucket = NOTHING
    departed: Mapping[Workload, Departures] = field(default_factory=dict)
    """Departures of the last window, by workload."""
    counting_since: int | None = None
    """Time of the reconciliation in which counting began, unix seconds; None before it."""

    def observe(self, snapshot: ClusterSnapshot, now: Now) -> "Arrivals":
        """Return the counts after a reconciliation, with the pods that arrived or departed.

        If the bucket lengths have changed, counting starts anew.
        """
        return _observed(self, snapshot, now)

    def unchanged(self, now: Now) -> "Arrivals":
        """Return the counts without expired buckets; called if the cluster has not changed."""
        return without_expired(self, now)

    def renamed(self, keys: RenamedKeys) -> "Arrivals":
        """Return the counts under the current keys of reaches; *keys*: current by previous key.

        A reach is a set of nodes that some pods can use.
        """
        return replace(
            self,
            recent={
                number: _renamed_counts(counts, keys) for number, counts in self.recent.items()
            },
            last_bucket=_renamed_last(self.last_bucket, keys),
        )


def _observed(before: Arrivals, snapshot: ClusterSnapshot, now: Now) -> Arrivals:
    window_seconds = snapshot.config.budgets.reserve.window_seconds
    if window_seconds is None:
        return Arrivals()
    buckets, pods = TimeBuckets.of(window_seconds), snapshot.cluster.pods
    if buckets != before.buckets:
        return Arrivals(buckets=buckets, pods=pods, counting_since=now.seconds)
    departed_pods, arrived_pods = _changes(before.pods, pods)
    if moving := snapshot.cluster.surge.moving:
        # The new pod of a surge move needs no further room. Its departed pod counts, because an
        # HPA may create another one in its place for some minutes.
        arrived_pods = [
            pod for pod in arrived_pods if (pod.namespace, pod.owner_name) not in moving
        ]
    known = without_expired(before, now)
    departed = {workload: dict(counted) for workload, counted in known.departed.items()}
    for pod in departed_pods:
        if workload := _workload(pod):
            departures = departed.setdefault(workload, {})
            number = now.seconds // buckets.bucket_seconds
            departures[number] = departures.get(number, 0) + 1
    new_pods = by_namespace_in_turns(
        pod for pod in arrived_pods if _needs_room(pod) and not _replaces_departed(pod, departed)
    )
    shapes = [
        (pod.namespace, shape) for pod in new_pods if (shape := _shape(pod, snapshot)) is not None
    ]
    recent, last_bucket = _count_in_bucket(
        known.recent, known.last_bucket, now.seconds // buckets.bucket_seconds, shapes
    )
    return Arrivals(
        buckets=buckets,
        pods=pods,
        recent=recent,
        last_bucket=last_bucket,
        departed=_with_latest_departures(departed),
        counting_since=known.counting_since,
    )


def without_expired(arrivals: Arrivals, now: Now) -> Arrivals:
    """Return the arrivals without the buckets and departures that are too old to be kept.

    No reconciliation is scheduled for the time at which a bucket expires. `expected_pods`
    schedules one for each bucket whose expiry changes its result.
    """
    buckets = arrivals.buckets
    if buckets is None:
        return arrivals
    return replace(
        arrivals,
        recent={
            number: counts
            for number, counts in arrivals.recent.items()
            if buckets.is_within(number, now.seconds)
        },
        departed=_recent_departures(arrivals.departed, buckets, now.seconds),
    )


def _renamed_last(last: LastBucket, keys: RenamedKeys) -> LastBucket:
    return LastBucket(
        last.number,
        {_renamed_shape(shape, keys): namespace for shape, namespace in last.namespace_of.items()},
    )


def _renamed_shape(shape: PodShape, keys: RenamedKeys) -> PodShape:
    return shape._replace(reach=keys.get(shape.reach, shape.reach))


def _renamed_counts(counts: Counts, keys: RenamedKeys) -> Counts:
    if not any(shape.reach in keys for shape in counts):
        return counts
    renamed: Counter[PodShape] = Counter()
    for shape, many in counts.items():
        renamed[_renamed_shape(shape, keys)] += many
    return renamed


def _changes(before: Sequence[Pod], now: Sequence[Pod]) -> tuple[list[Pod], list[Pod]]:
    """Return the departed pods, then the arrived pods; both are sorted by namespace and name.

    *before*, *now*: the pods of the last and of this reconciliation. A pod departs when it is
    deleted, or begins to terminate. A pod that otherwise changes is in neither list.
    """
    departed, arrived = changes(before, now)
    departed_by_key, arrived_by_key = (
        {pod.key: pod for pod in departed},
        {pod.key: pod for pod in arrived},
    )
    departed_pods = [
        pod
        for pod in departed
        if not pod.terminating and not _continues(pod, arrived_by_key.get(pod.key))
    ]
    arrived_pods = [
        pod
        for pod in arrived
        if (old := departed_by_key.get(pod.key)) is None or old.uid != pod.uid
    ]
    return departed_pods, arrived_pods


def _continues(pod: Pod, now: Pod | None) -> bool:
    return now is not None and now.uid == pod.uid and not now.terminating


def _needs_room(pod: Pod) -> bool:
    # A claim that waits for its first consumer is still unknown when its pod is first seen.
    # Volumes are not part of the shape, so such a pod counts.
    known = pod.evaluable or (
        pod.unsupported == (CLAIMS_FIELD,) and not (pod.too_much or pod.unreadable)
    )
    return known and pod.occupies and not pod.terminating


def _workload(pod: Pod) -> Workload | None:
    if pod.owner_kind == JOB:
        return Workload(
            pod.namespace, JOB, repr((pod.requests, without_volumes(pod.node_constraints)))
        )
    return workload_of(pod) if pod.owner_kind in KEEPERS else None


def _replaces_departed(pod: Pod, departed: dict[Workload, dict[int, int]]) -> bool:
    """Report whether the pod replaces a departed pod of its workload, and drop that departure.

    *departed*: by workload, the number of departed pods by time bucket. The oldest is replaced
    first.
    """
    workload = _workload(pod)
    departures = departed.get(workload) if workload else None
    if not workload or not departures:
        return False
    number = min(departures)
    departures[number] -= 1
    if not departures[number]:
        del departures[number]
    if not departures:
        del departed[workload]
    return True


def _shape(pod: Pod, snapshot: ClusterSnapshot) -> PodShape | None:
    """Return the shape (reach, requests, node constraints) of an arrived pod, or None.

    None means that Ebb reserves no room for pods like it: no node can hold the pod, the pod
    selects a node by name or runs on a virtual node, its node constraints are too long, or its
    reach (set of usable nodes) is not tracked.
    """
    node_constraints = without_volumes(pod.node_constraints)
    # Otherwise a user could have every empty node reserved, with a small pod for each name.
    if (pod.requests, pod.node_constraints) in snapshot.pods.unplaceable or names_node(
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


def _recent_departures(
    departed: Mapping[Workload, Departures], buckets: TimeBuckets, now_seconds: int
) -> Mapping[Workload, Departures]:
    now = now_seconds // buckets.bucket_seconds
    first = now - buckets.window_buckets
    kept = {
        workload: {number: many for number, many in counted.items() if first < number <= now}
        for workload, counted in departed.items()
    }
    return {workload: counted for workload, counted in kept.items() if counted}


def _with_latest_departures(
    departed: Mapping[Workload, Departures],
) -> Mapping[Workload, Departures]:
    if len(departed) <= WORKLOADS_MAX:
        return departed
    last = sorted(departed, key=lambda workload: (-max(departed[workload]), workload))
    return {workload: departed[workload] for workload in last[:WORKLOADS_MAX]}


def _count_in_bucket(
    counted: Buckets, last: LastBucket, number: int, shapes: Sequence[tuple[str, PodShape]]
) -> tuple[Buckets, LastBucket]:
    """Return *counted* with pods added to bucket *number*, and the new last bucket.

    *counted*: number of pods by time bucket and shape. *last*: the last bucket so far. *shapes*:
    namespace and shape of each pod to add. A bucket holds at most SHAPES_MAX different shapes. If
    it is full, a shape of a namespace with fewer shapes replaces the rarest shape of the namespace
    with the most shapes.
    """
    if not shapes:
        return counted, last
    counts = Counter(counted.get(number, {}))
    namespace_of = dict(last.namespace_of) if last.number == number else {}
    shapes_in = Counter(namespace_of.values())
    for namespace, shape in shapes:
        if shape not in counts:
            if len(counts) >= SHAPES_MAX:
                largest = max(sorted(shapes_in), key=lambda name: shapes_in[name], default="")
                if shapes_in[largest] <= shapes_in[namespace] + 1:
                    continue
                replaceable = [its for its, owner in namespace_of.items() if owner == largest]
                rarest = min(replaceable, key=lambda its: (counts[its], repr(its)))
                del counts[rarest], namespace_of[rarest]
                shapes_in[largest] -= 1
            namespace_of[shape] = namespace
            shapes_in[namespace] += 1
        counts[shape] += 1
    return {**counted, number: counts}, LastBucket(number, namespace_of)


def expected_pods(
    arrivals: Arrivals,
    total: Resources,
    now: Now,
    *,
    percentile: Fraction,
    at_least: Mapping[str, int],
) -> Counts:
    """Return the number of pods to reserve room for, by shape; empty if arrivals are not counted.

    These are the arrivals in one time window of each reach (a set of nodes that some pods can
    use). Each window ends with an arrival. It is the window at *percentile* of all, by requests,
    then by number of pods, then by end. Pods that came within a single window are expected only
    above ONE_BURST_PERCENTILE_MAX. *total*: allocatable resources of all nodes; requests are
    compared by their dominant share of it. *at_least*: minimum length of the window in seconds, by
    reach.
    """
    buckets = arrivals.buckets
    if buckets is None:
        return {}
    for number in arrivals.recent:
        now.before((number + 1) * buckets.bucket_seconds + LOOKBACK_SECONDS)
    current = {
        number: arrivals.recent[number]
        for number in sorted(arrivals.recent)
        if buckets.is_within(number, now.seconds)
    }
    shares, expected = _Shares(total), dict[PodShape, int]()
    for reach, counted in _by_reach(current).items():
        many = max(buckets.window_buckets, -(-at_least.get(reach, 0) // buckets.bucket_seconds))
        expected |= _window_at(percentile, counted, many, shares)
    return expected


def _window_at(
    percentile: Fraction, counted: Buckets, many: int, shares: "_Shares"
) -> Counter[PodShape]:
    """Return the arrivals in the window at *percentile*, by the nearest-rank method.

    *counted*: buckets in the order of time. A window ends with each of them, and has the last
    *many* buckets up to it; buckets without pods count too.
    """
    numbers, sizes = list(counted), [shares.of(counts) for counts in counted.values()]
    window = Counter[PodShape]()
    if percentile <= ONE_BURST_PERCENTILE_MAX and numbers[-1] - numbers[0] < many:
        return window
    windows: list[tuple[int, int, int, int]] = []
    share = pods = first = 0
    for last, number in enumerate(numbers):
        share, pods = share + sizes[last][0], pods + sizes[last][1]
        while numbers[first] <= number - many:
            share, pods = share - sizes[first][0], pods - sizes[first][1]
            first += 1
        windows.append((share, pods, last, first))
    windows.sort()
    _, _, last, first = windows[max(math.ceil(len(windows) * percentile), 1) - 1]
    for number in numbers[first : last + 1]:
        window.update(counted[number])
    return window


class _Shares:
    """Dominant shares of pods (largest share of any resource), computed once per size of a pod."""

    def __init__(self, total: Resources) -> None:
        self._total = total
        self._of: dict[Resources, int] = {}

    def of(self, counts: Counts) -> tuple[int, int]:
        """Return the sum of the pods' dominant shares, in 1 / SHARE_SCALE, and their number."""
        total = sum(count * self._share(shape) for shape, count in counts.items())
        return total, sum(counts.values())

    def _share(self, shape: PodShape) -> int:
        share = self._of.get(shape.requests)
        if share is None:
            share = self._of[shape.requests] = dominant_share(shape.requests, self._total)
        return share


def _by_reach(counted: Buckets) -> dict[str, dict[int, Counter[PodShape]]]:
    """Return the counts of each reach by time bucket; *counted*: buckets in the order of time.

    A reach changes when nodes are added, such as the second node of a pool. Earlier arrivals of
    pods with the same constraints count for the reach of the latest.
    """
    keys = {shape.node_constraints: shape.reach for counts in counted.values() for shape in counts}
    by_reach: dict[str, dict[int, Counter[PodShape]]] = {}
    for number, counts in counted.items():
        for shape, many in counts.items():
            reach = keys[shape.node_constraints]
            current_shape = shape if shape.reach == reach else shape._replace(reach=reach)
            by_reach.setdefault(reach, {}).setdefault(number, Counter())[current_shape] += many
    return by_reach
