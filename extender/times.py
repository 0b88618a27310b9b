"""When pods and nodes are expected to go, for the score `lifetime`.

A pod's event changes its own node's time at once, and costs the same however many are there. What
passing time and new ends change is worked out from time to time, in small steps between which
calls are answered.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from core.edge.clock import UNSET_SECONDS_MIN, Clock
from core.model.pod import Pod
from core.model.workload import Workload
from core.scores import InTime
from core.survival.ages import age
from core.survival.curve import Curve
from core.survival.seen import Curves, Seen, counts
from core.survival.spans import EMPTY, FAR
from extender.wire import New

REPREDICT_SECONDS: Final = 60
"""How often; the nearest times change most, and those matter least."""
PODS_A_STEP: Final = 500
NODES_A_STEP: Final = 20
CURVES_A_STEP: Final = 10
"""Each takes one to two milliseconds."""


class Stay:
    """How long a node is kept from being empty, by each of the pods that do."""

    def __init__(self) -> None:
        self._pods: dict[str, tuple[Pod, int]] = {}
        """By key, each with the span that it was counted with."""
        self._spans = Counter[int]()
        """How many pods have which: of doublings there are few."""

    def __bool__(self) -> bool:
        return bool(self._pods)

    @property
    def pods(self) -> Iterator[Pod]:
        """Return those pods."""
        return (pod for pod, _ in self._pods.values())

    @property
    def span(self) -> int:
        """Return that of the last one to end."""
        return max(self._spans, default=EMPTY)

    def put(self, pod: Pod, span: int) -> None:
        """Count a pod, anew where it is there."""
        self.drop(pod.key)
        self._pods[pod.key] = pod, span
        self._spans[span] += 1

    def drop(self, key: str) -> None:
        """Forget a pod, if it is there."""
        found = self._pods.pop(key, None)
        if found is None:
            return
        _, span = found
        self._spans[span] -= 1
        if not self._spans[span]:
            del self._spans[span]


class Times:
    """What has been seen of pods' lives, and what is expected of those that are there."""

    def __init__(self, clock: Clock, score: InTime) -> None:
        self._now, self._score = clock.unix_seconds, score
        self._seen: Seen | None = None
        self._learned = 0
        """When curves were worked out last, or seeing began."""
        self._curves = Curves({})
        self._on: dict[str, Stay] = {}
        """By node, of those that have pods."""

    def listed(self, pods: Mapping[str, Pod]) -> None:
        """Take a whole list; who is not in it any more has ended since, it is not known when."""
        before = [pod for stay in self._on.values() for pod in stay.pods]
        self._on, now = {}, self._now()
        for pod in pods.values():
            self._comes(pod, now)
        if self._seen is None:
            self._learned = now
            self._seen = Seen(now)
        for pod in before:
            if not _same(pod, pods.get(pod.key)):
                self._seen.ended(pod, now)

    def became(self, before: Pod | None, after: Pod | None) -> None:
        """Take one change; None: not there."""
        now = self._now()
        if before is not None:
            self._goes(before)
            if not _same(before, after) and self._seen is not None:
                self._seen.ended(before, now)
        if after is not None:
            self._comes(after, now)

    def score(self, ends: int, name: str | None) -> int:
        """Score a node for a pod that is expected to end so; None: one that is not known."""
        stay = self._on.get(name) if name is not None else None
        return self._score(ends, stay.span if stay else EMPTY)

    def of_pod(self, new: New) -> int | None:
        """Return when a pod is expected to end that begins now; None: nobody knows."""
        return self._curves.span(new.pod, 0) if self._curves.known(new.pod) else None

    def learn(self, pods: Sequence[Pod]) -> Iterator[None]:
        """Work out the curves anew; the caller may do something else at each yield."""
        if self._seen is None:
            return
        now = self._now()
        if abs(now - self._learned) >= UNSET_SECONDS_MIN:
            self._seen = Seen(now)  # by a clock that had not been set, lives had no length
        self._learned = now
        counting, inhabited = self._seen.counting(now), set[str]()
        for number, pod in enumerate(pods):
            counting.take(pod)
            inhabited.add(pod.namespace)
            if number % PODS_A_STEP == 0:
                yield
        self._seen.inhabited = inhabited
        curves: dict[Workload, Curve] = {}
        for number, (workload, curve) in enumerate(counting.curves()):
            curves[workload] = curve
            if number % CURVES_A_STEP == 0:
                yield
        self._curves = Curves(curves)

    def again(self, name: str) -> None:
        """Work out anew when a node is expected to be empty."""
        stay, now = self._on.pop(name, None), self._now()
        for pod in stay.pods if stay else ():
            self._comes(pod, now)

    def _comes(self, pod: Pod, now: int) -> None:
        if pod.node is not None and counts(pod):
            self._on.setdefault(pod.node, Stay()).put(pod, self._span(pod, now))

    def _goes(self, pod: Pod) -> None:
        if pod.node is not None and (stay := self._on.get(pod.node)):
            stay.drop(pod.key)
            if not stay:
                del self._on[pod.node]

    def _span(self, pod: Pod, now: int) -> int:
        if pod.created_seconds is None:
            return FAR
        return self._curves.span(pod, age(pod.created_seconds, now))


def _same(pod: Pod, now: Pod | None) -> bool:
    """Say whether it is the same life on the same node."""
    return now is not None and (now.uid, now.created_seconds, now.node) == (
        pod.uid,
        pod.created_seconds,
        pod.node,
    )
