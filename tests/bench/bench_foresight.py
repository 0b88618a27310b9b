"""What scores could gain that know to the millisecond when each Job ends.

`python -m tests.bench.bench_foresight [SEED ...] [--days N] [--tick SECONDS]`: the demo's load
with Ebb as it is, and with a scheduler that knows the future, beside an autoscaler at 50 % and the
lower bound. A pod goes where it and its node cost least: the hours that it keeps the node longer,
what it takes of the node as long as it runs, and how much longer the node stays than it. What is
left between that and an autoscaler that evicts is the price of leaving pods where they are.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Final

from core.config.settings import Config
from core.marks.mark import mark_of
from core.model.node import Node
from core.model.pod import Pod
from core.model.resources import Resources
from core.packing.ground import SHARE_SCALE, dominant_share
from extender.view import View
from sim import scenario, waves
from sim.clock import VirtualClock
from sim.costs import in_cores
from sim.ebb import Direct, Ebb
from sim.scenario import OWN, WHOLE, Parts
from sim.workload import HOUR_MS, Workload
from sim.world import Result, World
from tests.bench.bench_ratios import AUTOSCALER

REPLICA_MS: Final = 8 * HOUR_MS
"""So long, it is assumed, a pod of a Deployment runs on: nobody knows what an HPA will do."""
MARKED: Final = 10**9
"""What a mark weighs: more than all else."""


class Foreseeing(Ebb):
    """Ebb with scores of somebody who knows the workload."""

    def __init__(self, config: Config, workload: Workload) -> None:
        clock = VirtualClock()
        view = View(config.extender, config.taint_key, clock)
        self._lives = {f"work/{one.name}": one.life_ms for one in workload.arrivals}
        self._until_ms = workload.duration_ms
        self._now_ms = 0
        self._seen: dict[str, Node] = {}
        self._on: dict[str, dict[str, Pod]] = {}
        self._ends: dict[str, int] = {}
        super().__init__(config, view, Direct(view, config), clock)

    def at(self, now_ms: int) -> None:
        """Hear what time it is."""
        self._now_ms = now_ms
        super().at(now_ms)

    def node_changed(self, node: Node) -> None:
        """Hear of a new or changed node."""
        self._seen[node.name] = node
        super().node_changed(node)

    def pod_changed(self, pod: Pod) -> None:
        """Hear of a pod; when it is bound its end is known."""
        if pod.node is not None:
            self._on.setdefault(pod.node, {})[pod.key] = pod
            if pod.key in self._lives:
                self._ends.setdefault(pod.key, self._now_ms + self._lives[pod.key])
        super().pod_changed(pod)

    def pod_gone(self, pod: Pod) -> None:
        """Hear of a pod that ended."""
        self._on.get(pod.node or "", {}).pop(pod.key, None)
        super().pod_gone(pod)

    def scores(self, pod: Pod, names: Sequence[str]) -> Mapping[str, int]:
        """Put the nodes in order: the cheapest has most."""
        order = sorted(names, key=lambda name: (self._costs(pod, name), name), reverse=True)
        return {name: place for place, name in enumerate(order)}

    def _costs(self, pod: Pod, name: str) -> Fraction:
        """Return what it costs to have the pod there, in cores for so many milliseconds."""
        node, there = self._seen[name], self._on[name].values()
        whole, price = node.allocatable, in_cores(node)
        its_end = self._end_of(pod)
        exits = max((self._end_of(one) for one in there if not one.daemon), default=self._now_ms)
        takes = Fraction(dominant_share(pod.requests, whole), SHARE_SCALE)
        used = Resources.total(one.requests for one in there)
        full = Fraction(dominant_share(used, whole), SHARE_SCALE)
        longer, sooner = max(its_end - exits, 0), max(exits - its_end, 0)
        runs = its_end - self._now_ms
        cost = price * (longer + takes * (runs + Fraction(sooner, 2)) - full * runs / 2)
        return cost + (MARKED * HOUR_MS if mark_of(node.labels) is not None else 0)

    def _end_of(self, pod: Pod) -> int:
        """Return when the pod ends, as far as anybody will see it."""
        lives = self._lives.get(pod.key, REPLICA_MS)
        bound = self._ends.get(pod.key, self._now_ms + lives)
        return min(bound, self._until_ms)


def foreseen(load: Workload, seed: int) -> Result:
    """Play it with Ebb and a scheduler that knows the future."""
    ebb = Foreseeing(scenario.configuration(Parts.WHOLE, OWN), load)
    try:
        return World(load, WHOLE.scale_down, ebb, seed, WHOLE.setting).run()
    finally:
        ebb.close()


def main() -> None:
    """Print a line a seed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seeds", nargs="*", type=int, default=[1, 2, 3, 4, 5])
    parser.add_argument("--days", type=int, default=1)
    parser.add_argument("--tick", type=int, default=10, help="seconds between passes")
    asked = parser.parse_args()
    heads = ("seed", "bound", AUTOSCALER.name, "Ebb", "foreseeing", "to Ebb", "to autoscaler")
    print(" ".join(f"{head:>15}" for head in heads), flush=True)
    for seed in asked.seeds:
        load = replace(waves.mixed(seed, asked.days), tick_ms=1000 * asked.tick)
        evicting, ebb = (
            scenario.run(one, load, seed=seed, wire=False, given=OWN)
            for one in (AUTOSCALER, WHOLE)
        )
        knows = foreseen(load, seed).cost_ms
        least = [one.least for one in ebb.samples if one.least is not None]
        bound = sum(least) / len(least) * asked.days * 24
        costs = [one / HOUR_MS for one in (evicting.cost_ms, ebb.cost_ms, knows)]
        row = [f"{float(one):,.0f}" for one in (bound, *costs)]
        row += [f"{float(knows / one.cost_ms):.2f}" for one in (ebb, evicting)]
        print(" ".join(f"{cell:>15}" for cell in (str(seed), *row)), flush=True)


if __name__ == "__main__":
    main()
