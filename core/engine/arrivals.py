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
"""Into so many slots a length is cut: the busiest one begins at any of them."""
SLOTS_MAX: Final = 1024
"""So many are remembered at most; of a long time they are longer."""
DAYS: Final = 7
DAY_SECONDS: Final = 86_400
DAY_SLOT_SECONDS: Final = 300
"""What days before are remembered by, at least: 2,016 of them."""
ONE: Final = "node: "
KINDS_MAX: Final = 64
"""Different pods that a slot tells apart, of no namespace many more than of another that asks."""
TEMPLATE_CHARACTERS_MAX: Final = 2048
"""Of a kind's template, written out, some five times a usual one: it is remembered for days."""
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
Slots = Mapping[int, Counts]
"""By number: the slot's first second, over how long a slot is."""


class LastBucket(NamedTuple):
    """The slot that was counted in last."""

    slot: int = 0
    whose: Mapping[PodShape, str] = MappingProxyType({})
    """The namespace whose pod was the first of the kind there."""


NOTHING: Final = LastBucket()
Gone = Mapping[int, int]
"""By slot: how many pods have left whose place no other has taken."""


@dataclass(frozen=True, slots=True)
class TimeBuckets:
    """How time is cut, seconds."""

    slot: int
    length: int
    """How many slots a length is."""
    over: int
    """For how long a slot is remembered."""
    day: int
    """How long the slots are by which days before are remembered."""

    @staticmethod
    def of(reserve: Reserve) -> "TimeBuckets":
        """Cut as the settings ask, as finely as the bounds allow."""
        length, over = reserve.length_seconds, reserve.over_seconds
        slot = max(1, length // STEPS, -(-over // SLOTS_MAX))
        return TimeBuckets(slot, -(-length // slot), over, max(length, DAY_SLOT_SECONDS))

    def counts_as(self, other: "TimeBuckets") -> bool:
        """Say whether what was counted by the other one is counted alike, for however long."""
        return replace(self, over=other.over) == other

    def remembers(self, slot: int, now_seconds: int) -> bool:
        """Say whether something of the slot is still within the time that counts."""
        return (
            now_seconds - self.over < (slot + 1) * self.slot and slot <= now_seconds // self.slot
        )

    def days_before(self, now_seconds: int) -> list[range]:
        """Return, for each day before, the slots that began as the next time that counts does."""
        many = -(-self.over // self.day)
        begins = ((now_seconds - back * DAY_SECONDS) // self.day for back in range(1, DAYS + 1))
        return [range(first, first + many) for first in begins]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """What is remembered."""

    grain: TimeBuckets | None = None
    """By what it was counted; None: there was no look, or no room is kept."""
    pods: Sequence[Pod] = field(default=(), compare=False)
    """Those of the last look, sorted by name, the cluster's own tuple; of them it matters who was
    there, not what else they are."""
    slots: Slots = field(default_factory=dict)
    slot_of: LastBucket = NOTHING
    days: Slots = field(default_factory=dict)
    day_of: LastBucket = NOTHING
    gone: Mapping[Workload, Gone] = field(default_factory=dict)
    since: int | None = None
    """Unix seconds of the look at which counting began; None: there was none."""

    def observe(self, seen: ClusterSnapshot, now: Now) -> "Arrivals":
        """Return the state after a look; it starts anew when the reserve counts differently."""
        return _followed(self, seen, now)

    def unchanged(self, now: Now) -> "Arrivals":
        """Return the state after the same cluster was seen again: what has expired is dropped."""
        return without_expired(self, now)

    def renamed(self, keys: RenamedKeys) -> "Arrivals":
        """Return the state under the keys that the reaches have now."""
        return replace(
            self,
            slots={slot: _under(counts, keys) for slot, counts in self.slots.items()},
            slot_of=_latest_under(self.slot_of, keys),
            days={slot: _under(counts, keys) for slot, counts in self.days.items()},
            day_of=_latest_under(self.day_of, keys),
        )


def _followed(before: Arrivals, survey: ClusterSnapshot, now: Now) -> Arrivals:
    reserve = survey.config.budgets.reserve
    if not reserve.over_seconds:
        return Arrivals()
    grain, pods = TimeBuckets.of(reserve), survey.cluster.pods
    if before.grain is None or not grain.counts_as(before.grain):
        return Arrivals(grain=grain, pods=pods, since=now.seconds)
    left, came = _news(before.pods, pods)
    known = without_expired(replace(before, grain=grain), now)
    gone = {workload: dict(slots) for workload, slots in known.gone.items()}
    for pod in left:
        if workload := _workload(pod):
            found = gone.setdefault(workload, {})
            slot = now.seconds // grain.slot
            found[slot] = found.get(slot, 0) + 1
    new = [pod for pod in came if _asks_for_room(pod) and not _takes_a_place(pod, gone)]
    found_kinds = ((pod.namespace, _kind(pod, survey)) for pod in by_namespace_in_turns(new))
    kinds = [(namespace, kind) for namespace, kind in found_kinds if kind is not None]
    slots, slot_of = _counted(known.slots, known.slot_of, now.seconds // grain.slot, kinds)
    days, day_of = _counted(known.days, known.day_of, now.seconds // grain.day, kinds)
    return Arrivals(
        grain=grain,
        pods=pods,
        slots=slots,
        slot_of=slot_of,
        days=days,
        day_of=day_of,
        gone=_bounded(gone),
        since=known.since,
    )


def without_expired(arrivals: Arrivals, now: Now) -> Arrivals:
    """Return the arrivals without the slots that have expired.

    Nothing here registers a moment: `expected` does so for the slots that decide, and the rest is
    read only when pods come or leave.
    """
    grain = arrivals.grain
    if grain is None:
        return arrivals
    seconds = now.seconds
    oldest = (seconds - DAYS * DAY_SECONDS) // grain.day
    today = seconds // grain.day
    return replace(
        arrivals,
        slots={n: one for n, one in arrivals.slots.items() if grain.remembers(n, seconds)},
        days={n: one for n, one in arrivals.days.items() if oldest <= n <= today},
        gone=_recent(arrivals.gone, grain, seconds),
    )


def _latest_under(latest: LastBucket, keys: RenamedKeys) -> LastBucket:
    return LastBucket(latest.slot, {_named(kind, keys): its for kind, its in latest.whose.items()})


def _named(kind: PodShape, keys: RenamedKeys) -> PodShape:
    return kind._replace(reach=keys.get(kind.reach, kind.reach))


def _under(counts: Counts, keys: RenamedKeys) -> Counts:
    if not any(kind.reach in keys for kind in counts):
        return counts
    found: Counter[PodShape] = Counter()
    for kind, many in counts.items():
        found[_named(kind, keys)] += many
    return found


def _news(before: Sequence[Pod], now: Sequence[Pod]) -> tuple[list[Pod], list[Pod]]:
    """Return who has left or is leaving since, and who has come, both by name."""
    gone, came = changes(before, now)
    was, stands = {pod.key: pod for pod in gone}, {pod.key: pod for pod in came}
    left = [pod for pod in gone if not pod.terminating and not _goes_on(pod, stands.get(pod.key))]
    new = [pod for pod in came if (old := was.get(pod.key)) is None or old.uid != pod.uid]
    return left, new


def _goes_on(pod: Pod, now: Pod | None) -> bool:
    return now is not None and now.uid == pod.uid and not now.terminating


def _asks_for_room(pod: Pod) -> bool:
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


def _takes_a_place(pod: Pod, gone: dict[Workload, dict[int, int]]) -> bool:
    """Say whether another of its workload has left for it, the first of whom it stands for now."""
    workload = _workload(pod)
    left = gone.get(workload) if workload else None
    if not workload or not left:
        return False
    slot = min(left)
    left[slot] -= 1
    if not left[slot]:
        del left[slot]
    if not left:
        del gone[workload]
    return True


def _kind(pod: Pod, survey: ClusterSnapshot) -> PodShape | None:
    """Return what the pod stands for; None: no node of this cluster is one for it, or one by name.

    By names who may create pods could have every empty node kept, with a small pod for each; nor
    does a pod stand for others whose template is too long to be remembered.
    """
    placing = without_volumes(pod.placing)
    if (pod.requests, pod.placing) in survey.unplaceable or names_node(placing):
        return None
    members = survey.reaches.members(placing)
    if survey.pod_index.virtual.get(pod.node or "") or not members:
        return None
    if len(repr(placing)) > TEMPLATE_CHARACTERS_MAX:
        return None
    reach = survey.reaches.of_placing(placing)
    if reach is None and len(members) > 1:
        return None  # beyond those that are told apart, or nobody who can be judged goes there yet
    key = reach.key if reach else f"{ONE}{survey.node_order.nodes[members[0]].name}"
    return PodShape(key, pod.requests, placing)


def _recent(
    gone: Mapping[Workload, Gone], grain: TimeBuckets, now_seconds: int
) -> Mapping[Workload, Gone]:
    """Return those that have left within one length."""
    now = now_seconds // grain.slot
    first = now - grain.length
    kept = {
        workload: {slot: many for slot, many in slots.items() if first < slot <= now}
        for workload, slots in gone.items()
    }
    return {workload: slots for workload, slots in kept.items() if slots}


def _bounded(gone: Mapping[Workload, Gone]) -> Mapping[Workload, Gone]:
    if len(gone) <= WORKLOADS_MAX:
        return gone
    latest = sorted(gone, key=lambda workload: (-max(gone[workload]), workload))
    return {workload: gone[workload] for workload in latest[:WORKLOADS_MAX]}


def _counted(
    slots: Slots, latest: LastBucket, slot: int, kinds: Sequence[tuple[str, PodShape]]
) -> tuple[Slots, LastBucket]:
    """Count the kinds, each with its namespace, in the slot, as far as it tells them apart.

    Once it is full, a kind of a namespace that has fewer takes the place of the rarest of the one
    that has most.
    """
    if not kinds:
        return slots, latest
    counts = Counter(slots.get(slot, {}))
    whose = dict(latest.whose) if latest.slot == slot else {}
    had = Counter(whose.values())
    for namespace, kind in kinds:
        if kind not in counts:
            if len(counts) >= KINDS_MAX:
                most = max(sorted(had), key=lambda one: had[one], default="")
                if had[most] <= had[namespace] + 1:
                    continue
                own = [one for one, its in whose.items() if its == most]
                gone = min(own, key=lambda one: (counts[one], repr(one)))
                del counts[gone], whose[gone]
                had[most] -= 1
            whose[kind] = namespace
            had[namespace] += 1
        counts[kind] += 1
    return {**slots, slot: counts}, LastBucket(slot, whose)


def expected_pods(
    arrivals: Arrivals, whole: Resources, now: Now, at_least: Mapping[str, int]
) -> Counts:
    """Return the pods that room is kept for: of each reach those of its busiest length.

    That asks for most, by dominant share of *whole*, then has most pods, then came last; the
    same time of the days before counts like the time that has passed. *at_least*: so many seconds
    is the length of a reach, where that is more than the setting.
    """
    grain = arrivals.grain
    if grain is None:
        return {}
    for moment in _turns(arrivals, now.seconds):
        now.before(moment)
    shares = _Shares(whole)
    best: dict[str, tuple[tuple[int, int], Counts]] = {}
    for reach, counts in _windows(arrivals, grain, now.seconds, at_least):
        asked = shares.of(counts)
        if reach not in best or asked >= best[reach][0]:
            best[reach] = asked, dict(counts)
    return {kind: many for _, counts in best.values() for kind, many in counts.items()}


class _Shares:
    """How much kinds ask for, of one whole; each is divided once."""

    def __init__(self, whole: Resources) -> None:
        self._whole = whole
        self._of: dict[Resources, int] = {}

    def of(self, counts: Counts) -> tuple[int, int]:
        """Return the share that all of them ask for, and how many they are."""
        return sum(many * self._one(kind) for kind, many in counts.items()), sum(counts.values())

    def _one(self, kind: PodShape) -> int:
        found = self._of.get(kind.requests)
        if found is None:
            found = self._of[kind.requests] = dominant_share(kind.requests, self._whole)
        return found


def _windows(
    arrivals: Arrivals, grain: TimeBuckets, now_seconds: int, at_least: Mapping[str, int]
) -> Iterable[tuple[str, Counter[PodShape]]]:
    """Yield what came to each reach in each stretch of one length; the days before first."""
    days = grain.days_before(now_seconds)
    before = [_known(arrivals.days, day) for day in days]
    near = _known(
        arrivals.slots, (n for n in sorted(arrivals.slots) if grain.remembers(n, now_seconds))
    )
    keys = _latest_keys((*reversed(before), near))
    for day, known in zip(days, before, strict=True):
        for reach, slots in _by_reach(known, keys).items():
            many = -(-at_least.get(reach, 0) // grain.day) or 1
            yield from ((reach, _sum(slots, range(first, first + many))) for first in day)
    for reach, slots in _by_reach(near, keys).items():
        many = max(grain.length, -(-at_least.get(reach, 0) // grain.slot))
        yield from ((reach, counts) for counts in _sliding(slots, many))


def _known(slots: Slots, asked: Iterable[int]) -> Slots:
    """Return those that are there, in the order in which they are asked for."""
    return {slot: slots[slot] for slot in asked if slot in slots}


def _latest_keys(times: Iterable[Slots]) -> dict[NodeConstraints, str]:
    """Return by template the reach that its pods came to last; *times*: the oldest first.

    A template has one reach at a time, and another one when a second node of its pool comes, say,
    or nodes that it cannot use: what came to the one before are pods of the one that it has.
    """
    return {
        kind.placing: kind.reach for slots in times for counts in slots.values() for kind in counts
    }


def _by_reach(
    slots: Slots, keys: Mapping[NodeConstraints, str]
) -> dict[str, dict[int, Counter[PodShape]]]:
    """Return what came to each reach in each slot, those in order."""
    found: dict[str, dict[int, Counter[PodShape]]] = {}
    for slot, counts in slots.items():
        for kind, many in counts.items():
            reach = keys[kind.placing]
            one = kind if kind.reach == reach else kind._replace(reach=reach)
            found.setdefault(reach, {}).setdefault(slot, Counter())[one] += many
    return found


def _sum(slots: Slots, asked: range) -> Counter[PodShape]:
    total: Counter[PodShape] = Counter()
    for slot in asked:
        total.update(slots.get(slot, {}))
    return total


def _sliding(slots: Slots, many: int) -> Iterable[Counter[PodShape]]:
    """Yield what came in so many slots up to each: a long time may be many short ones.

    It is the same counter each time: who keeps what it says copies it.
    """
    total: Counter[PodShape] = Counter()
    behind = deque(slots)
    for last, counts in slots.items():
        total.update(counts)
        while behind[0] <= last - many:
            for kind, gone in slots[behind.popleft()].items():
                total[kind] -= gone
                if not total[kind]:
                    del total[kind]
        yield total


def _turns(arrivals: Arrivals, now_seconds: int) -> Iterable[int]:
    """Yield the unix seconds, past ones too, at which time alone changes the expected pods."""
    grain = arrivals.grain
    if grain is None:
        return
    for slot in arrivals.slots:
        yield (slot + 1) * grain.slot + grain.over
    known = sorted(arrivals.days)
    for back, day in enumerate(grain.days_before(now_seconds), 1):
        for slot in known[bisect_left(known, day.start) :][:1]:
            yield (slot + 1) * grain.day + back * DAY_SECONDS
        for slot in known[bisect_left(known, day.stop) :][:1]:
            yield (slot - len(day) + 1) * grain.day + back * DAY_SECONDS
