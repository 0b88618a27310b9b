"""Measure scale-ins that keep their spread: `python -m tests.bench.bench_spread [NODES [STEPS]]`.

Half of the ReplicaSets spread their pods over three zones. First, each scales in by a tenth to a
half. Then follows a day in steps of half an hour: the cluster loses a third of its pods and gains
them again, and every ReplicaSet has one rollout. The tables compare no pod deletion costs, costs
that follow the nodes alone, and costs that keep the spread.

With --reconciler SECONDS it measures instead the writes on pods in a day in which the load changes
all the time, and the controller's Reconciler marks nodes and writes costs every SECONDS. Empty
marked nodes are removed at once.
"""

import argparse
import asyncio
import math
import random
import statistics
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from itertools import chain
from typing import Final

from controller.deletion_costs import WRITES_MAX, DeletionCosts
from controller.metrics import Metrics
from controller.reconciler import Reconciler
from core.config.programs import ControllerConfig
from core.config.settings import Config, Mode, PodDeletionCost
from core.engine.scale_in_targets import NODES_MAX
from core.marks.mark import mark_of
from core.marks.taints import desired_taints
from core.marks.wellknown import TAINT_KEY
from core.model.cluster import Cluster
from core.model.constraints import PodConstraints, PodSelector, Requirement, SpreadConstraint
from core.model.node import Node
from core.model.pod import Pod
from core.writes.costs import NO_ORDERS, CostDecision, decide_costs
from core.writes.write import CostKind, Write, applied
from kube.stores.access_review import AccessReview
from runtime.clock import SystemClock
from sim.ebb import annotated
from sim.replicas import Replica, first_deleted
from tests.bench.machine import factor, show
from tests.support.builders import marked, node, pod
from tests.support.replica_set import skews, violations

NODES: Final = 5000
STEPS: Final = 48
DAY_SECONDS: Final = 86_400
INTERVAL_SECONDS: Final = ControllerConfig().interval_seconds
DAY_PASSES: Final = DAY_SECONDS // INTERVAL_SECONDS
"""Reconciliations in a day; each writes at most WRITES_MAX pods."""
RESIZE_SECONDS: Final = 1800
"""Time between two changes of the size of a ReplicaSet."""
PODS_A_NODE: Final = 30
POD_MILLIS: Final = 100
NODE_MILLIS: Final = PODS_A_NODE * POD_MILLIS
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
        self.created, self.now = 0, EPOCH
        self.oldest_seconds = 10**6
        """Highest age of a new pod."""
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
        made = node(name, NODE_MILLIS, labels={ZONE: zone})
        self.nodes[name] = replace(made, created_seconds=self.now)
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
                pod(
                    f"{name}-{self.created}",
                    self.place(zone),
                    POD_MILLIS,
                    100,
                    labels={"app": name},
                ),
                uid=f"{self.chance.getrandbits(64):x}",
                owner_name=name,
                ready=True,
                created_seconds=self.now - self.chance.randrange(self.oldest_seconds),
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
        return [one.pod for one in first_deleted(replicas, replicas, self.now * 1000)]

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

    def resize(self, name: str, level: float) -> None:
        """Scale the ReplicaSet to about this share of its full size."""
        wanted = int(self.sizes[name] * level * self.chance.uniform(0.95, 1.05))
        change = wanted - len(self.of[name])
        if change > 0:
            self.scale_out(name, change)
        elif change < 0:
            self.scale_in(name, -change)

    def roll_out(self, name: str) -> None:
        many = len(self.of[name])
        for key in sorted(self.of[name]):
            self.delete(key)
        self.scale_out(name, many)

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
            self.pods[write.key] = annotated(self.pods[write.key], write.annotations)
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


class ReconciledTown(Town):
    """A town whose nodes a Reconciler marks, and on whose pods it writes costs."""

    def __init__(self, nodes: int, costs: Costs) -> None:
        super().__init__(nodes, costs)
        self.oldest_seconds = 1
        pods, metrics = PodStore(self), Metrics()
        access = AccessReview(pods.may, SystemClock(), "patch pods")
        self.deletion_costs = DeletionCosts(pods, metrics, access)
        self.reconciler = Reconciler(
            Config(mode=Mode.ENFORCE, pod_deletion_cost=PodDeletionCost.ENABLED),
            NodeStore(self),
            owner="bench",
            metrics=metrics,
            deletion_costs=self.deletion_costs,
        )

    def place(self, zone: str) -> str:
        """Return a node with room: an unmarked one, else a marked one, else a new one."""
        random_nodes = self.chance.choices(self.open[zone], k=20)
        in_zone = ((name, one) for name, one in self.nodes.items() if name[0] == zone)
        avoided = (name for name, one in in_zone if mark_of(one.labels) is not None)
        for name in chain(random_nodes, self.open[zone], avoided):
            if len(self.on[name]) < PODS_A_NODE:
                return name
        self.open[zone].append(self.add_node(zone))
        return self.open[zone][-1]

    async def reconcile(self, passes: int) -> None:
        """Reconcile, and write costs as in this many passes over an unchanged cluster."""
        start = time.process_time()
        cluster = Cluster.of(self.nodes.values(), self.pods.values())
        report = await self.reconciler.reconcile(cluster, self.now)
        for number in range(1, passes):
            left = report.costs.writes[number * WRITES_MAX :]
            await self.deletion_costs.carry_out(left, report.config.mode)
        self.seconds.append(time.process_time() - start)


class NodeStore:
    """The Nodes of a town, as the webhook admits them."""

    def __init__(self, town: Town) -> None:
        self._town = town

    async def get(self, key: str) -> tuple[Node, str] | None:
        found = self._town.nodes.get(key)
        return None if found is None else (found, "1")

    async def write(self, write: Write[Node], version: str) -> tuple[Node, str]:
        before = self._town.nodes[write.key]
        after = applied(write, before)
        after = replace(after, taints=desired_taints(after, TAINT_KEY))
        self._town.nodes[write.key] = after
        schedulable = self._town.open[write.key[0]]
        if mark_of(before.labels) is None and mark_of(after.labels) is not None:
            schedulable.remove(write.key)
        if mark_of(before.labels) is not None and mark_of(after.labels) is None:
            schedulable.append(write.key)
        return after, version


class PodStore:
    """The pods of a town, on which Ebb may write."""

    def __init__(self, town: Town) -> None:
        self._town = town

    async def get(self, key: str) -> tuple[Pod, str] | None:
        found = self._town.pods.get(key)
        return None if found is None else (found, "1")

    async def write(self, write: Write[Pod], version: str) -> tuple[Pod, str]:
        self._town.write([write])
        return self._town.pods[write.key], version

    async def may(self) -> bool:
        return True


def level_at(share_of_day: float) -> float:
    """Return the load at this time of the day, as a share of the highest load."""
    return 1 - math.sin(math.pi * share_of_day) / 3


async def reconciled_day(nodes: int, interval_seconds: int, costs: Costs) -> None:
    """Show the writes on pods in each hour of a day with a reconciliation each *interval_seconds*.

    Each ReplicaSet is resized every half hour, one after the other, and has one rollout.
    """
    town, rows = ReconciledTown(nodes, costs), list[list[str]]()
    steps, passes = DAY_SECONDS // interval_seconds, max(1, interval_seconds // INTERVAL_SECONDS)
    turns = RESIZE_SECONDS // interval_seconds
    for step in range(steps):
        town.now = EPOCH + step * interval_seconds
        town.remove_empty()
        for name in list(town.sizes)[step % turns :: turns]:
            town.resize(name, level_at(step / steps))
        for name in town.sizes:
            if town.chance.randrange(steps) == 0:
                town.roll_out(name)
        await town.reconcile(passes)
        if (step + 1) * interval_seconds // 3600 > len(rows):
            rows.append(
                [
                    costs,
                    f"{len(rows) + 1}",
                    f"{len(town.nodes):,}",
                    f"{len(town.marks()):,}",
                    f"{len(town.pods):,}",
                    *(f"{town.writes[kind]:,}" for kind in CostKind),
                    f"{town.broken['broken']:,} of {town.broken['scale-ins']:,}",
                    f"{statistics.median(town.seconds):.2f} s",
                ]
            )
            print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    columns = ["costs", "hours", "nodes", "marked", "pods", "costs set", "costs removed",
               "broken scale-ins", "reconciliation"]  # fmt: skip
    show(f"A day with a reconciliation each {interval_seconds} s", columns, rows)


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
            wanted = level_at(step / steps)
            falling, level = wanted < level, wanted
            if falling:
                town.remove_empty()
                town.mark(max(0, nodes // MARKED_ONE_IN - len(town.marks())))
            else:
                town.unmark()
                town.mark(0)
            town.refresh(most)
            for name in town.sizes:
                town.resize(name, level)
                if town.chance.randrange(steps) == 0:
                    town.roll_out(name)
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("nodes", nargs="?", type=int, default=NODES, metavar="NODES")
    parser.add_argument("steps", nargs="?", type=int, default=STEPS, metavar="STEPS")
    parser.add_argument("--reconciler", type=int, metavar="SECONDS")
    given = parser.parse_args()
    print(f"K = {factor():.1f}")
    if given.reconciler:
        for costs in (Costs.SPREAD, Costs.NODES):
            asyncio.run(reconciled_day(given.nodes, given.reconciler, costs))
        return
    once(given.nodes)
    day(given.nodes, given.steps)


if __name__ == "__main__":
    main()
