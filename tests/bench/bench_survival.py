"""How often the range of the expected time to empty holds: `python -m tests.bench.bench_survival`.

With a folder it plays the openb trace in it, else the demo's load and the mixed one. Two look on
that know nothing at first: one watches all the time, as `extender.score: lifetime` does, and says
of each node every two hours by when the pods that are there will have ended; the other looks as
`ebb status` does (sim.foretold). Figures, no times: the machine does not matter.
"""

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from core.marks.keys import TAINT_KEY
from core.model.node import Node
from core.model.pod import Pod
from core.survival.left import left
from core.survival.seen import Seen
from sim import trace, workload
from sim.autoscaler import ScaleDown
from sim.cluster import State
from sim.foretold import EVERY_MS, Foretold, Sayings, occupants
from sim.scoring import PACKED
from sim.waves import mixed
from sim.workload import Workload
from sim.world import Setting, World
from tests.bench.machine import show

DAYS: Final = 2


@dataclass
class Watching:
    """Sees pods come and go, and says when nodes will be empty; implements sim.world.Compactor."""

    taint_key: str = TAINT_KEY
    sayings: Sayings = field(default_factory=Sayings)
    unknown: int = 0
    """Nodes of which nothing could be said, each time."""
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
        for pods in occupants(self._pods.values()).values():
            aged = [one for pod in pods if (one := curves.aged(pod, self._now))]
            if len(aged) < len(pods):
                self.unknown += 1
            else:
                self.sayings.say(self._now, pods, left(aged))

    def pod_changed(self, pod: Pod) -> None:
        self._pods[pod.key] = pod

    def pod_gone(self, pod: Pod) -> None:
        self._pods.pop(pod.key, None)
        self._seen.ended(pod, self._now)
        self.sayings.ended(pod, self._now)

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
class Found:
    """How often what was said came true, over all seeds."""

    foretold: Foretold = field(default_factory=Foretold)
    unknown: int = 0

    @property
    def cells(self) -> list[str]:
        """Return shares, each with of how many."""
        three = (self.foretold.early, self.foretold.expected, self.foretold.late)
        parts = (
            (f"{100 * one.empty / max(one.nodes, 1):.1f} %", f"{one.nodes:,}") for one in three
        )
        return [*(cell for part in parts for cell in part), f"{self.unknown:,}"]


def loads(folder: Path | None, seed: int) -> Iterator[Workload]:
    """Yield what is played."""
    if folder is None:
        yield workload.embedded(seed, DAYS)
        yield mixed(seed, DAYS)
        return
    yield trace.drawn(folder, seed=seed, days=DAYS)


def play(load: Workload, seed: int, watched: Found, looked: Found) -> None:
    """Play a load once, with somebody who watches all the time; the world has one who looks."""
    watching = Watching()
    world = World(load, ScaleDown.EMPTY, watching, seed, Setting(PACKED))
    came = world.run().foretold
    watching.sayings.judge(load.duration_ms // 1000, watched.foretold)
    watched.unknown += watching.unknown
    for name in ("early", "expected", "late"):
        total, one = getattr(looked.foretold, name), getattr(came, name)
        total.nodes += one.nodes
        total.empty += one.empty


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="?", type=Path, help="of the openb trace")
    parser.add_argument("--seeds", type=int, default=3, help="1 to so many; default 3")
    given = parser.parse_args()
    found: dict[str, Found] = {}
    for seed in range(1, given.seeds + 1):
        for load in loads(given.folder, seed):
            watched, looked = (
                found.setdefault(f"{load.name}, {how}", Found())
                for how in ("watched", "by a look")
            )
            play(load, seed, watched, looked)
    columns = ["load", "by early", "of", "by expected", "of", "by late", "of", "unknown"]
    rows = [[name, *one.cells] for name, one in found.items()]
    title = "pods gone by the times said: 10 % are to be by early, 50 % by expected, 90 % by late"
    show(title, columns, rows)


if __name__ == "__main__":
    main()
