"""How often the range of the expected time to empty holds: `python -m tests.bench.bench_survival`.

With a folder it plays the openb trace in it, else the demo's load and the mixed one. A program
looks on that knows nothing at first; every two hours it says of each node by when the pods that
are there will have ended, and afterwards it is seen when they did. A time beyond the run's end
is not judged, whatever came. Figures, no times: the machine does not matter.
"""

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cli.playing import PODS_AT_ONCE_TRACE
from core.marks.keys import TAINT_KEY
from core.model.node import Node
from core.model.pod import Pod
from core.survival.left import Left, left
from core.survival.seen import Seen, counts
from sim import trace, workload
from sim.autoscaler import ScaleDown
from sim.cluster import State
from sim.scoring import PACKED
from sim.statistics import WAVE_PERCENT
from sim.waves import mixed
from sim.workload import Workload
from sim.world import Setting, World
from tests.bench.machine import show

EVERY_MS: Final = 2 * 3_600_000
DAYS: Final = 2


@dataclass(frozen=True, slots=True)
class Said:
    """What was said of a node, and when (seconds)."""

    at: int
    pods: tuple[str, ...]
    left: Left


@dataclass
class Onlooker:
    """Sees pods come and go, and says when nodes will be empty; implements sim.world.Compactor."""

    taint_key: str = TAINT_KEY
    said: list[Said] = field(default_factory=list)
    unknown: int = 0
    """Nodes of which nothing could be said, each time."""
    ended: dict[str, int] = field(default_factory=dict)
    _seen: Seen = field(default_factory=lambda: Seen(0))
    _pods: dict[str, Pod] = field(default_factory=dict)
    _now: int = 0
    _last_ms: int = 0

    def at(self, now_ms: int) -> None:
        self._now = now_ms // 1000
        if now_ms - self._last_ms >= EVERY_MS:
            self._last_ms = now_ms
            self._say()

    def _say(self) -> None:
        curves = self._seen.curves(self._pods.values(), self._now)
        on: dict[str, list[Pod]] = {}
        for pod in self._pods.values():
            if counts(pod):
                on.setdefault(pod.node or "", []).append(pod)
        for pods in on.values():
            aged = [one for pod in pods if (one := curves.aged(pod, self._now))]
            if len(aged) < len(pods):
                self.unknown += 1
            else:
                self.said.append(Said(self._now, tuple(pod.key for pod in pods), left(aged)))

    def pod_changed(self, pod: Pod) -> None:
        self._pods[pod.key] = pod

    def pod_gone(self, pod: Pod) -> None:
        self._pods.pop(pod.key, None)
        self._seen.ended(pod, self._now)
        self.ended[pod.key] = self._now

    def scores(self, pod: Pod, names: Sequence[str]) -> Mapping[str, int]:  # noqa: ARG002
        return {}

    def admit(self, before: Node, after: Node) -> Node:  # noqa: ARG002
        return after

    def urgent(self) -> bool:
        return False

    def node_changed(self, node: Node) -> None: ...
    def node_gone(self, name: str) -> None: ...
    def tick(self, state: State, write: Callable[[Node], None], now_ms: int) -> None: ...


@dataclass
class Judged:
    """How often all were gone by a time that was said."""

    judged: int = 0
    gone: int = 0

    @property
    def cells(self) -> list[str]:
        """Return the share, and of how many."""
        share = f"{100 * self.gone / self.judged:.1f} %" if self.judged else "-"
        return [share, f"{self.judged:,}"]


@dataclass
class Coverage:
    """How often what was said came true, of each of the three times."""

    times: tuple[Judged, Judged, Judged] = field(
        default_factory=lambda: (Judged(), Judged(), Judged())
    )
    unknown: int = 0


def judged(looked: Onlooker, end: int, found: Coverage) -> None:
    """Compare what was said with what came, as far as the run goes."""
    found.unknown += looked.unknown
    for said in looked.said:
        gone = max(looked.ended.get(key, end + 1) for key in said.pods)
        for held, seconds in zip(found.times, said.left, strict=True):
            if seconds is not None and said.at + seconds <= end:
                held.judged += 1
                held.gone += gone <= said.at + seconds


def loads(folder: Path | None, seed: int) -> Iterator[Workload]:
    """Yield what is played."""
    if folder is None:
        yield workload.embedded(seed, DAYS)
        yield mixed(seed, DAYS)
        return
    rows = [(requests, life) for _, requests, life in trace.pods(folder)]
    yield workload.bootstrap(
        [shape for _, shape in trace.nodes(folder)],
        rows,
        seed=seed,
        days=DAYS,
        at_once=PODS_AT_ONCE_TRACE,
        wave=WAVE_PERCENT,
    )


def play(load: Workload, seed: int, found: Coverage) -> None:
    """Play a load once, with somebody who looks on."""
    looked = Onlooker()
    World(load, ScaleDown.EMPTY, looked, seed, Setting(PACKED)).run()
    judged(looked, load.duration_ms // 1000, found)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="?", type=Path, help="of the openb trace")
    parser.add_argument("--seeds", type=int, default=3, help="1 to so many; default 3")
    given = parser.parse_args()
    found: dict[str, Coverage] = {}
    for seed in range(1, given.seeds + 1):
        for load in loads(given.folder, seed):
            play(load, seed, found.setdefault(load.name, Coverage()))
    columns = ["load", "by early", "of", "by expected", "of", "by late", "of", "unknown"]
    rows = [
        [name, *(cell for held in one.times for cell in held.cells), f"{one.unknown:,}"]
        for name, one in found.items()
    ]
    title = "pods gone by the times said: 10 % are to be by early, 50 % by expected, 90 % by late"
    show(title, columns, rows)


if __name__ == "__main__":
    main()
