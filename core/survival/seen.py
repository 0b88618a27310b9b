"""What has been seen of pods' lives, by workload; what a new program knows is nothing.

A life begins with the Pod's creationTimestamp, which the API server alone writes, and ends when
the pod has finished or is gone. A workload of which too few have ended is judged with all of its
namespace whose owners are of the same kind; never with another namespace, whose people write what
happens there.
"""

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from core.model.pod import Pod
from core.model.workload import Workload, workload_of
from core.survival.ages import BOUNDS, age, step_of
from core.survival.curve import Curve, Lives
from core.survival.left import EXPECTED, Aged, within
from core.survival.spans import FAR, span

ENDED_MIN: Final = 9
"""With fewer ends, what happens to one pod of ten is not known (core.survival.curve)."""
ENDED_MAX: Final = 1024
"""Ends of one workload; then those of the time before the last half of them are forgotten."""
HALF: Final = ENDED_MAX // 2
WORKLOADS_MAX: Final = 4096
"""About 5 kB each, those with many ends twice as much. Beyond, the namespace with most of them
gives the one that ended first; before that one that has been left."""
LEFT_SECONDS: Final = 2 * 24 * 3600
"""A namespace without pods of which none has ended for so long has been left: what runs daily has
been seen since."""


@dataclass(slots=True)
class _Record:
    since_seconds: int
    """From when on all ends were seen."""
    lives: Lives = field(default_factory=Lives)
    last_seconds: int = 0
    """When it was asked for last: another had ended."""
    later: "_Record | None" = None
    """The same from a later time on; it takes the place of this one when it has enough."""

    def first(self, created_seconds: int) -> int:
        """Return the age from which on a pod was seen."""
        return age(created_seconds, self.since_seconds)

    def ends(self, created_seconds: int, now_seconds: int) -> None:
        """Count an end. When there are many, the time of the first half is forgotten as a whole.

        If its ends alone counted less, those who lived through it would seem to live longer.
        """
        if now_seconds <= self.since_seconds:
            return
        self.lives.ends_at(self.first(created_seconds), age(created_seconds, now_seconds))
        if self.later is not None:
            self.later.ends(created_seconds, now_seconds)
            if self.later.lives.ends == HALF:
                self.since_seconds, self.lives = self.later.since_seconds, self.later.lives
                self.later = _Record(now_seconds)
        elif self.lives.ends == HALF:
            self.later = _Record(now_seconds)


class Curves:
    """How long pods live, by workload, as far as that is known."""

    def __init__(self, curves: Mapping[Workload, Curve]) -> None:
        self._curves = curves
        self._spans: dict[tuple[Workload, int], int] = {}

    def span(self, pod: Pod, age_seconds: int) -> int:
        """Return when a pod of that age is expected to end; FAR where too little is known."""
        own = workload_of(pod)
        key = own if own in self._curves else _kind(own)
        step = step_of(age_seconds)
        found = self._spans.get((key, step))
        if found is None:
            curve = self._curves.get(key)
            aged = (Aged(curve, BOUNDS[step]),) if curve else ()
            found = span(within(aged, EXPECTED)) if aged else FAR
            self._spans[key, step] = found
        return found

    def known(self, pod: Pod) -> bool:
        """Say whether enough pods like it have ended."""
        return self.of(pod) is not None

    def of(self, pod: Pod) -> Curve | None:
        """Return the curve of the pod's workload, or of its kind; None: too little is known."""
        own = workload_of(pod)
        return self._curves.get(own) or self._curves.get(_kind(own))

    def aged(self, pod: Pod, now_seconds: int) -> Aged | None:
        """Return the pod as old as it is; None: too little is known."""
        curve = None if pod.created_seconds is None else self.of(pod)
        if curve is None or pod.created_seconds is None:
            return None
        return Aged(curve, age(pod.created_seconds, now_seconds))


class Seen:
    """Lives that have ended, within bounds."""

    def __init__(self, since_seconds: int | None = None) -> None:
        """*since_seconds*: from then on all ends are told; None: of each workload, from its first.

        What defines from when on ends were seen is no sample of them: that first one is not
        counted. Ends are told in the order of their times.
        """
        self._since = since_seconds
        self._records: dict[str, dict[Workload, _Record]] = {}
        """By namespace, and there by workload; both in the order of the last ends."""
        self.workloads = 0
        """How many are told apart."""
        self.inhabited: Container[str] | None = None
        """The namespaces that have pods; None: nobody knows."""

    def ended(self, pod: Pod, now_seconds: int) -> None:
        """Take the end of a pod; of one that was never bound, or goes with its node, nothing."""
        if not counts(pod) or pod.created_seconds is None:
            return
        own = workload_of(pod)
        for workload in {own: None, _kind(own): None}:
            record = self._record(workload, now_seconds)
            record.ends(pod.created_seconds, now_seconds)

    def _record(self, workload: Workload, now_seconds: int) -> _Record:
        """Return the workload's record, which is the one of its namespace that ended last now."""
        ours = self._records[workload.namespace] = self._records.pop(workload.namespace, {})
        record = ours.pop(workload, None)
        if record is None:
            record = _Record(now_seconds if self._since is None else self._since)
            self.workloads += 1
        ours[workload] = record
        record.last_seconds = now_seconds
        if self.workloads > WORKLOADS_MAX:
            self._forget(now_seconds)
            self._since = None  # what is forgotten may come again: its first end begins it
        return record

    def _forget(self, now_seconds: int) -> None:
        namespace = self._left(now_seconds) or max(
            self._records, key=lambda name: (len(self._records[name]), name)
        )
        ours = self._records[namespace]
        del ours[next(iter(ours))]
        self.workloads -= 1
        if not ours:
            del self._records[namespace]

    def _left(self, now_seconds: int) -> str | None:
        """Return the namespace that was left first; None: there is none."""
        if self.inhabited is not None:
            for name, ours in self._records.items():
                if now_seconds - next(reversed(ours.values())).last_seconds <= LEFT_SECONDS:
                    return None
                if name not in self.inhabited:
                    return name
        return None

    def counting(self, now_seconds: int) -> "Counting":
        """Begin to count who lives."""
        return Counting(
            {one: record for ours in self._records.values() for one, record in ours.items()},
            now_seconds,
        )

    def curves(self, living: Iterable[Pod], now_seconds: int) -> Curves:
        """Return what is known, with who lives now."""
        counting = self.counting(now_seconds)
        for pod in living:
            counting.take(pod)
        return Curves(dict(counting.curves()))


class Counting:
    """Counts who lives beside who has ended; in as many steps as the caller likes."""

    def __init__(self, records: Mapping[Workload, _Record], now_seconds: int) -> None:
        self._records, self._now = records, now_seconds
        self._living: dict[Workload, Lives] = {}

    def take(self, pod: Pod) -> None:
        """Count one that lives."""
        if not counts(pod) or pod.created_seconds is None:
            return
        own = workload_of(pod)
        for workload in {own: None, _kind(own): None}:
            record = self._records.get(workload)
            if record is not None:
                lives = self._living.setdefault(workload, Lives())
                first = record.first(pod.created_seconds)
                # A clock that was corrected may be behind what it told when the record began.
                lives.lives(first, max(first, age(pod.created_seconds, self._now)))

    def curves(self) -> Iterator[tuple[Workload, Curve]]:
        """Yield the curves of workloads of which enough have ended."""
        for workload, record in self._records.items():
            if record.lives.ends >= ENDED_MIN:
                living = self._living.get(workload)
                lives = record.lives.with_living(living) if living else record.lives
                yield workload, lives.curve()


def counts(pod: Pod) -> bool:
    """Say whether the pod's life matters: it is bound, and keeps its node from being empty."""
    return pod.node is not None and pod.occupies


def _kind(workload: Workload) -> Workload:
    """Return what stands for all of the same kind in the namespace."""
    return workload._replace(owner_name="")
