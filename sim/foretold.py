"""How often it comes true what is said of when nodes will be empty.

Every two hours somebody looks at the cluster as `ebb status` does, and says of some nodes by when
the pods that are there will have ended (core.survival.look); afterwards it is seen when they did.
Finished pods stand there as long as the command would count them. A time that lies beyond the end
of the run is not judged, whatever came: that depends on nothing but what was said.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from core.edge.decode.aside import FINISHED_MAX
from core.model.pod import Pod
from core.survival.left import Left
from core.survival.look import End, emptying
from core.survival.seen import counts

EVERY_MS: Final = 2 * 3_600_000
NODES_MAX: Final = 20
"""Of a look, evenly among all by name."""
Life = tuple[str, int | None]
"""A pod's key, and when it was created: evicted ones begin again."""


@dataclass(slots=True)
class Judged:
    """Of a time that was said: of how many nodes it can be judged, and how many were empty."""

    nodes: int = 0
    empty: int = 0


@dataclass(frozen=True, slots=True)
class Foretold:
    """What came of all that was said."""

    early: Judged = field(default_factory=Judged)
    expected: Judged = field(default_factory=Judged)
    late: Judged = field(default_factory=Judged)


@dataclass(frozen=True, slots=True)
class Said:
    """What was said of a node."""

    at_seconds: int
    lives: tuple[Life, ...]
    left: Left


class Sayings:
    """What was said of nodes, and when the pods that were on them ended."""

    def __init__(self) -> None:
        self._said: list[Said] = []
        self._ended: dict[Life, int | None] = {}

    def say(self, at_seconds: int, pods: Iterable[Pod], left: Left) -> None:
        """Note what is said of a node with these pods."""
        lives = tuple(map(life, pods))
        self._said.append(Said(at_seconds, lives, left))
        self._ended.update((one, self._ended.get(one)) for one in lives)

    def ended(self, pod: Pod, now_seconds: int) -> None:
        """Note that a pod has ended."""
        if life(pod) in self._ended:
            self._ended[life(pod)] = now_seconds

    def judge(self, end_seconds: int, found: Foretold) -> None:
        """Count what came true until a time."""
        for said in self._said:
            ends = [self._ended[one] for one in said.lives]
            gone = max((end_seconds + 1 if one is None else one for one in ends), default=0)
            three = (found.early, found.expected, found.late)
            for judged, seconds in zip(three, said.left, strict=True):
                if seconds is not None and said.at_seconds + seconds <= end_seconds:
                    judged.nodes += 1
                    judged.empty += gone <= said.at_seconds + seconds


def life(pod: Pod) -> Life:
    """Return what tells a pod from all that were and will be."""
    return pod.key, pod.created_seconds


def occupants(pods: Iterable[Pod]) -> dict[str, list[Pod]]:
    """Return by node the pods that keep it from being empty."""
    found: dict[str, list[Pod]] = {}
    for pod in pods:
        if pod.node is not None and counts(pod):
            found.setdefault(pod.node, []).append(pod)
    return found


class Onlooker:
    """Looks at a cluster from time to time."""

    def __init__(self) -> None:
        self._ends: deque[End] = deque(maxlen=FINISHED_MAX)
        self._sayings = Sayings()

    def finished(self, pod: Pod, now_ms: int) -> None:
        """Hear of a pod that has done its work, and stands there for a while."""
        self._ends.append(End(pod, now_ms // 1000))

    def gone(self, pod: Pod, now_ms: int) -> None:
        """Hear of a pod that has left its node, however."""
        self._sayings.ended(pod, now_ms // 1000)

    def look(self, pods: Mapping[str, Pod], now_ms: int) -> None:
        """Say of some nodes when they will be empty."""
        now, living = now_ms // 1000, tuple(pods.values())
        on = occupants(living)
        names = sorted(on)[:: max(1, len(on) // NODES_MAX)][:NODES_MAX]
        for name, found in emptying(names, living, self._ends, now).items():
            if found.left is not None:
                self._sayings.say(now, on[name], found.left)

    def judged(self, end_ms: int) -> Foretold:
        """Return what came true."""
        found = Foretold()
        self._sayings.judge(end_ms // 1000, found)
        return found
