"""Define what a leader stores of the arrivals, and how the next leader continues them.

The counts are stored, and the time that new nodes take. The pods are not: a pod that was created
while nobody led counts for nobody. Nor are the departures: a pod whose predecessor departed under
the previous leader counts. So for one window the counts may be too high or too low by the pods of
a handover, as they are whenever counting starts.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from core.engine.arrivals import (
    SHAPES_MAX,
    Arrivals,
    Buckets,
    Counts,
    LastBucket,
    TimeBuckets,
)
from core.model.now import Now


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredArrivals:
    """Numbers of created pods as a leader has counted them, for the next one."""

    at: int
    """Time of the leader's last reconciliation, unix seconds."""
    counting_since: int
    """Time since which all arrivals are counted, unix seconds."""
    buckets: TimeBuckets
    recent: Buckets
    """Arrivals within the lookback."""
    provisioning: Mapping[str, tuple[int, ...]]
    """Times in seconds that pods waited for new nodes, by reach, as in ProvisioningTimes."""


def continued(arrivals: Arrivals, stored: StoredArrivals, now: Now) -> Arrivals:
    """Return the arrivals of a new leader with those that the previous one has stored.

    *arrivals*: those that the new leader has counted itself. The stored counts are dropped if the
    buckets have another length now, and each bucket that is too old or lies in the future. If
    nobody counted for longer than a window, those pods are unknown, not zero. The new leader then
    watches for a whole window, as if nothing was stored.
    """
    buckets, own_since = arrivals.buckets, arrivals.counting_since
    if buckets is None or own_since is None or buckets != stored.buckets:
        return arrivals
    gap_seconds_max = buckets.window_buckets * buckets.bucket_seconds
    # Longer than a window ahead of the own clock, the stored time is as useless as a gap.
    continues = abs(own_since - stored.at) <= gap_seconds_max
    recent = dict(arrivals.recent)
    for number, counts in stored.recent.items():
        if buckets.is_within(number, now.seconds):
            recent[number] = _sum(recent.get(number, {}), counts)
    return replace(
        arrivals,
        recent=recent,
        last_bucket=_last_bucket(arrivals, recent, now.seconds // buckets.bucket_seconds),
        counting_since=min(own_since, stored.counting_since) if continues else own_since,
    )


def _sum(own: Counts, stored: Counts) -> Counts:
    """Return the sum of both counts, without the rarest stored shapes beyond SHAPES_MAX."""
    summed = Counter(own)
    for shape in sorted(stored, key=lambda its: (-stored[its], repr(its))):
        if shape in summed or len(summed) < SHAPES_MAX:
            summed[shape] += stored[shape]
    return summed


def _last_bucket(arrivals: Arrivals, recent: Buckets, number: int) -> LastBucket:
    """Return the last bucket; *number*: the bucket of the current time.

    Namespaces are not stored. Shapes without one share an empty one, so that the shapes of pods
    that arrive in the rest of the bucket can replace them.
    """
    if number not in recent:
        return arrivals.last_bucket
    last = arrivals.last_bucket
    known = last.namespace_of if last.number == number else {}
    return LastBucket(number, {shape: known.get(shape, "") for shape in recent[number]})
