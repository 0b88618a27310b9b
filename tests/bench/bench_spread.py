"""Measure scale-ins that keep their spread: `python -m tests.bench.bench_spread [NODES [STEPS]]`.

Half of the ReplicaSets spread their pods over three zones. First, each scales in by a tenth to a
half. Then follows a day in steps of half an hour: the cluster loses a third of its pods and gains
them again, and every ReplicaSet has one rollout. The tables compare no pod deletion costs, costs
that follow the nodes alone, and costs that keep the spread.
"""

import math
import random
import statistics
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Final

from controller.deletion_costs import WRITES_MAX
from core.engine.scale_in_targets import NODES_MAX
from core.marks.mark import mark_of
from core.marks.wellknown import COST_ANNOTATION, COST_OURS_ANNOTATION, TAINT_KEY
from core.model.cluster import Cluster
from core.model.constraints import PodConstraints, PodSelector, Requirement, SpreadConstraint
from core.model.node import Node
from core.model.pod import Pod
from core.writes.costs import NO_ORDERS, CostDecision, decide_costs
from core.writes.write import Write
from sim.replicas import Replica, first_deleted
from tests.bench.machine import factor, show
from tests.support.builders import marked, node, pod
from tests.support.replica_set import skews, violations

NODES: Final = 5000
STEPS: Final = 48
DAY_PASSES: Final = 8640
"""Reconciliations in a day; each writes at most WRITES_MAX pods."""
PODS_A_NODE: Final = 30
ZONE: Final = "topology.kubernetes.io/zone"
ZONES: Final = "abc"
MARKED_ONE_IN: Final = 10
EPOCH: Final = 1_767_225_600


class Costs(StrEnum):
    NONE = "no costs"
    NODES = "by nodes"
    SPREAD = "by nodes and spread"


class Town:
    """Nodes in three zones and ReplicaSets, whose pods come and go."""

    def __init__(self, nodes: int, costs: Costs, seed: int = 1) -> None:
        self.costs, self.chance = costs, random.Random(seed)
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, Pod] = {}
        self.on: defaultdict[str, set[str]] = defaultdict(set)
        self.of: defaultdict[str, set[str]] = defaultdict(set)
        self.targets: dict[str, int] = {}
        self.sizes: dict[str, int] = {}
        self.writes: Counter[str] = Counter()
        self.broken: Counter[str] = Counter()
        self.seconds: list[float] = []
        self.orders = NO_ORDERS
        self.created = 0
        for _ in range(nodes):
            self.add_node(ZONES[self.created % len(ZONES)])
        self.open = {zone: [n for n in self.nodes if n[0] == zone] for zone in ZONES}
        left = nodes * PODS_A_NODE * 3 // 4
        while left > 0:
            size = min(left, max(2, int(self.chance.lognormvariate(2.3, 0.9))))
            self.sizes[f"rs-{len(self.sizes)}"] = size
            left -= size
        for name, size in self.sizes.items():
            self.scale_out(name, size)

    def add_node(self, zone: str) -> str:
        self.created += 1
        name = f"{zone}{self.created}"
        self.nodes[name] = node(name, labels={ZONE: zone})
        return name

    def constraint(self, name: str) -> tuple[SpreadConstraint, bool] | None:
        """Return the constraint of a ReplicaSet, and whether it is hard; None for half of them."""
        number = int(name.partition("-")[2].partition(".")[0])
        if number % 2:
            return None
        selector = PodSelector(("d",), (Requirement("app", "In", (name,)),))
        return SpreadConstraint(selector, ZONE, 1 if number % 8 else 2), number % 4 == 0

    def scale_out(self, name: str, many: int) -> None:
        constraint = self.constraint(name) if self.costs is not Costs.NODES else None
        hard = (constraint[0],) if constraint and constraint[1] else ()
        soft = (constraint[0],) if constraint and not constraint[1] else ()
        zones = Counter(dict.fromkeys(ZONES, 0))
        zones.update((self.pods[key].node or "")[0] for key in self.of[name])
        for _ in range(many):
            self.created += 1
            zone = min(ZONES, key=lambda one: (zones[one], self.chance.random()))
            zones[zone] += 1
            made = replace(
                pod(f"{name}-{self.created}", self.place(zone), 100, 100, labels={"app": name}),
                uid=f"{self.chance.getrandbits(64):x}",
                owner_name=name,
                ready=True,
                created_seconds=EPOCH - self.chance.randrange(10**6),
                pod_constraints=PodConstraints(spread=hard),
                soft_spread=soft,
            )
            self.pods[made.key] = made
            self.of[name].add(made.key)
            self.on[made.node or ""].add(made.key)

    def place(self, zone: str) -> str:
        for _ in range(20):
            name = self.chance.choice(self.open[zone])
            if len(self.on[name]) < PODS_A_NODE:
                return name
        self.open[zone].append(self.add_node(zone))
        return self.open[zone][-1]

    def order(self, name: str) -> list[Pod]:
        replicas = [
            Replica(one, (one.created_seconds or 0) * 1000, (one.created_seconds or 0) * 1000)
            for one in (self.pods[key] for key in sorted(self.of[name]))
        ]
        return [one.pod for one in first_deleted(replicas, replicas, EPOCH * 1000)]

    def scale_in(self, name: str, many: int) -> int:
        """Delete pods as the ReplicaSet controller does; return how many were on marked nodes."""
        order = self.order(name)
        if (constraint := self.constraint(name)) and any(self.chosen(one) for one in order):
            zones = {one.node or "": (one.node or "")[0] for one in order}
            found = skews(order, zones, set(zones.values()))
            self.broken["scale-ins"] += 1
            self.broken["broken"] += violations(found, constraint[0].max_skew, many) > 0
        for one in order[:many]:
            self.delete(one.key)
        return sum(mark_of(self.nodes[one.node or ""].labels) is not None for one in order[:many])

    def chosen(self, one: Pod) -> bool:
        """Return whether the pod is on a marked node or on a scale-in target."""
        name = one.node or ""
        return name in self.targets or mark_of(self.nodes[name].labels) is not None

    def delete(self, key: str) -> None:
        gone = self.pods.pop(key)
        self.of[gone.owner_name].discard(key)
        self.on[gone.node or ""].discard(key)

    def decide(self) -> CostDecision:
        cluster = Cluster.of(self.nodes.values(), self.pods.values())
        start = time.process_time()
        made = decide_costs(
            cluster, TAINT_KEY, self.targets, self.orders, enabled=True, keep_orders=True
        )
        self.orders = made.orders
        self.seconds.append(time.process_time() - start)
        return made

    def refresh(self, most: int = 10**9) -> None:
        """Write costs until none is missing, at most *most* pods."""
        while self.costs is not Costs.NONE and most > 0:
            writes = self.decide().writes[:most]
            if not writes:
                break
            self.write(writes)
            most -= len(writes)

    def write(self, writes: Sequence[Write[Pod]]) -> None:
        for write in writes:
            new = write.annotations
            self.pods[write.key] = replace(
                self.pods[write.key],
                deletion_cost=new[COST_ANNOTATION],
                deletion_cost_ours=new[COST_OURS_ANNOTATION],
            )
            self.writes[write.kind] += 1

    def mark(self, many: int) -> None:
        """Mark the emptiest nodes, as many in each zone, and choose scale-in targets."""
        free = [n for n, one in self.nodes.items() if mark_of(one.labels) is None]
        free.sort(key=lambda name: (len(self.on[name]), name))
        for zone in ZONES:
            for name in [one for one in free if one[0] == zone][: many // len(ZONES)]:
                self.nodes[name] = marked(
                    self.nodes[name], since=EPOCH - 1000 + self.created % 999
                )
                self.open[zone].remove(name)
                self.targets.pop(name, None)
        rest = [name for name in free if mark_of(self.nodes[name].labels) is None]
        self.targets = {n: at for n, at in self.targets.items() if n in self.nodes and self.on[n]}
        number = max(self.targets.values(), default=0)
        for name in rest:
            if len(self.targets) < min(NODES_MAX, len(self.nodes) // 10) and self.on[name]:
                number += 1
                self.targets.setdefault(name, number)

    def marks(self) -> list[str]:
        return [name for name, one in self.nodes.items() if mark_of(one.labels) is not None]

    def remove_empty(self) -> None:
        for name in self.marks():
            if not self.on[name]:
                del self.nodes[name]

    def unmark(self) -> None:
        for name in self.marks():
            self.nodes[name] = node(name, labels={ZONE: name[0]})
            self.open[name[0]].append(name)


def once(nodes: int) -> None:
    """Show what one scale-in of each ReplicaSet does, with fresh and with outdated costs."""
    rows = []
    for outdated in (False, True):
        towns = {costs: Town(nodes, costs) for costs in Costs}
        removed = {costs: scaled_in(town, outdated=outdated) for costs, town in towns.items()}
        for costs, town in towns.items():
            shares = (removed[costs][kind] / removed[Costs.NODES][kind] for kind in (True, False))
            rows.append(
                [
                    f"{costs}{', a quarter is new' if outdated else ''}",
                    f"{town.broken['broken']:,} of {town.broken['scale-ins']:,}",
                    f"{town.writes.total():,}",
                    *(f"{share:.3f}" for share in shares),
                ]
            )
    columns = ["costs", "broken scale-ins", "writes", "off marked nodes, spread", "others"]
    show("One scale-in", columns, rows)


def scaled_in(town: Town, *, outdated: bool) -> Counter[bool]:
    """Let each ReplicaSet scale in; return how many pods left marked nodes, by having a spread.

    *outdated*: each has a quarter more pods than when the costs were written.
    """
    town.mark(len(town.nodes) // MARKED_ONE_IN)
    town.refresh()
    removed = Counter[bool]()
    for name in town.sizes:
        if outdated:
            town.scale_out(name, -(-len(town.of[name]) // 4))
        many = math.ceil(len(town.of[name]) * town.chance.uniform(0, 0.5))
        removed[town.constraint(name) is not None] += town.scale_in(name, many)
    return removed


def day(nodes: int, steps: int) -> None:
    rows = []
    for costs in (Costs.NODES, Costs.SPREAD):
        town = Town(nodes, costs)
        town.mark(nodes // MARKED_ONE_IN)
        town.refresh()
        first, town.broken = town.writes.total(), Counter()
        town.writes.clear()
        level, most = 1.0, DAY_PASSES * WRITES_MAX // steps // 2
        for step in range(steps):
            wanted = 1 - math.sin(math.pi * step / steps) / 3
            falling, level = wanted < level, wanted
            if falling:
                town.remove_empty()
                town.mark(max(0, nodes // MARKED_ONE_IN - len(town.marks())))
            else:
                town.unmark()
                town.mark(0)
            town.refresh(most)
            for name, size in town.sizes.items():
                change = int(size * level * town.chance.uniform(0.95, 1.05)) - len(town.of[name])
                if change > 0:
                    town.scale_out(name, change)
                elif change < 0:
                    town.scale_in(name, -change)
                if town.chance.randrange(steps) == 0:
                    many = len(town.of[name])
                    for key in sorted(town.of[name]):
                        town.delete(key)
                    town.scale_out(name, many)
            town.refresh(most)
        rows.append(
            [
                costs,
                f"{first:,}",
                f"{town.writes.total():,}",
                f"{town.broken['broken']:,} of {town.broken['scale-ins']:,}",
                f"{statistics.median(town.seconds) * 1000:.0f} ms",
                f"{max(town.seconds) * 1000:.0f} ms",
            ]
        )
    show(
        "A day",
        ["costs", "first writes", "writes a day", "broken scale-ins", "decision", "longest"],
        rows,
    )


def main(argv: Sequence[str]) -> None:
    nodes, steps = (int(text) for text in (*argv, *(str(NODES), str(STEPS))[len(argv) :]))
    print(f"K = {factor():.1f}")
    once(nodes)
    day(nodes, steps)


if __name__ == "__main__":
    main(sys.argv[1:])
