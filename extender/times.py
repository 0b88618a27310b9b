"""When pods and nodes are expected to go, for the score `lifetime`.

A pod's event changes its own node's time at once; what passing time and new ends change is worked
out from time to time, in small steps between which calls are answered.
"""

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


class Times:
    """What has been seen of pods' lives, and what is expected of those that are there."""

    def __init__(self, clock: Clock, score: InTime) -> None:
        self._now, self._score = clock.unix_seconds, score
        self._seen: Seen | None = None
        self._learned = 0
        """When curves were worked out last, or seeing began."""
        self._curves = Curves({})
        self._on: dict[str, dict[str, Pod]] = {}
        """By node, the pods that keep it from being empty, by key."""
        self._spans: dict[str, int] = {}
        """Those that have been worked out since the last pod came or went."""

    def listed(self, pods: Mapping[str, Pod]) -> None:
        """Take a whole list; who is not in it any more has ended since, it is not known when."""
        before = [pod for ours in self._on.values() for pod in ours.values()]
        self._on = {}
        for key, pod in pods.items():
            if counts(pod) and pod.node is not None:
                self._on.setdefault(pod.node, {})[key] = pod
        if self._seen is None:
            self._learned = self._now()
            self._seen = Seen(self._learned)
        for pod in before:
            if not _same(pod, pods.get(pod.key)):
                self._seen.ended(pod, self._now())
        self._spans = {name: self._span(name) for name in self._on}

    def became(self, key: str, before: Pod | None, after: Pod | None) -> None:
        """Take one change; None: not there."""
        for pod in (before, after):
            if pod is not None and pod.node is not None and counts(pod):
                ours = self._on.setdefault(pod.node, {})
                if pod is after:
                    ours[key] = pod
                else:
                    ours.pop(key, None)
                    if not _same(pod, after) and self._seen is not None:
                        self._seen.ended(pod, self._now())
        for name in {pod.node for pod in (before, after) if pod and pod.node}:
            self._spans.pop(name, None)  # who asks works it out; nobody asks of what is no node
            if not self._on.get(name):
                self._on.pop(name, None)

    def score(self, ends: int, name: str | None) -> int:
        """Score a node for a pod that is expected to end so; None: one that is not known."""
        if name is None or name not in self._on:
            return self._score(ends, EMPTY)
        if name not in self._spans:
            self._spans[name] = self._span(name)
        return self._score(ends, self._spans[name])

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
        if name in self._on:
            self._spans[name] = self._span(name)

    def _span(self, name: str) -> int:
        now = self._now()
        return max(
            (
                FAR if pod.created_seconds is None
                else self._curves.span(pod, age(pod.created_seconds, now))
                for pod in self._on.get(name, {}).values()
            ),
            default=EMPTY,
        )  # fmt: skip


def _same(pod: Pod, now: Pod | None) -> bool:
    """Say whether it is the same life on the same node."""
    return now is not None and (now.uid, now.created_seconds, now.node) == (
        pod.uid,
        pod.created_seconds,
        pod.node,
    )
