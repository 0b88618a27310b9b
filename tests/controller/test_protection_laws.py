"""Laws of the protection of unmarked nodes, in a pool that empties and fills."""

import random
from collections import Counter
from fractions import Fraction

import pytest

from controller.metrics import Metrics
from controller.reconciler import Reconciler
from core.config.budgets import Budgets, Reserve
from core.config.settings import Config, Mode, ScaleDownProtection, Scope
from core.eligibility.emptiness import occupants
from core.marks.mark import mark_of, protection_of
from core.model.cluster import Cluster
from core.model.now import Now
from core.model.pod import Pod
from core.writes.node_facts import WATCH_SECONDS
from tests.support.builders import EIGHTY_PERCENT, node, pod
from tests.support.standing import Standing

pytestmark = pytest.mark.law

START = 1_000_000
TICK_SECONDS = 20
PERIOD_SECONDS = 600
POOL = 6
BUSY = [pod(f"b{number}", f"b{number}", 3000, 1000) for number in range(4)]


class Pool:
    """Nodes that have pods at times, and nodes that always have pods, under one leader."""

    def __init__(self, scope: Scope) -> None:
        names = [*(f"w{number}" for number in range(POOL)), *(str(one.node) for one in BUSY)]
        self.standing = Standing(Cluster.of([node(name) for name in names], []))
        # The reserve and the peak cover a whole period, so no node of the pool is marked.
        budgets = Budgets(
            reserve=Reserve(window_seconds=300, percentile=Fraction(1)),
            stabilization_window_seconds=PERIOD_SECONDS,
        )
        self.config = Config(
            mode=Mode.ENFORCE,
            thresholds=EIGHTY_PERCENT,
            budgets=budgets,
            scale_down_protection=ScaleDownProtection(scope=scope),
        )
        self.writes: Counter[str] = Counter()
        self.lead()

    def lead(self) -> None:
        """Start a new leader."""
        self._leader = Reconciler(self.config, self.standing, owner="me", metrics=Metrics())

    async def look(self, now: int, pods: list[Pod]) -> frozenset[str]:
        """Run a reconciliation and return the nodes to be protected."""
        nodes = self.standing.cluster.nodes
        self.standing.cluster = Cluster.of(nodes, [*BUSY, *pods])
        report = await self._leader.reconcile(self.standing.cluster, now)
        self.writes.update(write.kind.value for write in report.writes)
        return report.result.plan.protected


def jobs(second: int, busy: int, *, together: bool) -> list[Pod]:
    """Return the pods that run at this time: one per node, with a new one each period."""
    found = []
    for number in range(POOL):
        shifted = second + (0 if together else number * PERIOD_SECONDS // POOL)
        if shifted % PERIOD_SECONDS < busy:
            name = f"j{number}-{shifted // PERIOD_SECONDS}"
            found.append(pod(name, f"w{number}", 3000, 1000))
    return found


@pytest.mark.parametrize("scope", [Scope.EMPTY, Scope.ALL])
@pytest.mark.parametrize(("busy", "together"), [(120, True), (300, True), (540, False)])
async def test_pool_that_empties_and_fills_causes_no_writes(
    scope: Scope, busy: int, *, together: bool
) -> None:
    pool = Pool(scope)
    for second in range(0, 2 * 3600, TICK_SECONDS):
        if second == 3600:
            pool.writes.clear()
        await pool.look(START + second, jobs(second, busy, together=together))
    assert not pool.writes


@pytest.mark.law(seeds_max=200)
async def test_protected_nodes_are_annotated_and_occupied_ones_only_temporarily(
    seeds: range,
) -> None:
    """For any leader: a new leader keeps existing protection once for the same time again."""
    for seed in seeds[::10]:
        await follow_protection(seed)


async def follow_protection(seed: int) -> None:
    """Fail at the first pass after which a node is protected wrongly."""
    chance, pool = random.Random(seed), Pool(Scope.EMPTY)
    protection_seconds = pool.config.scale_down_protection.after_unmark_seconds
    filled: dict[str, int] = {}
    """Since when each unmarked node has pods."""
    pods: list[Pod] = []
    longest, changes = (
        2 * protection_seconds + WATCH_SECONDS + TICK_SECONDS,
        chance.choice((0, 0.01)),
    )
    for look in range(400):
        now = START + look * TICK_SECONDS
        if chance.random() < 0.2:
            pods = [one for one in pods if chance.random() < chance.choice((0.5, 0.98))]
            free = {f"w{number}" for number in range(POOL)} - {one.node for one in pods}
            come = [name for name in sorted(free) if chance.random() < 0.3]
            pods += [pod(f"j{look}-{name}", name, 3000, 1000) for name in come]
        if chance.random() < changes:
            pool.lead()
        held = await pool.look(now, pods)
        nodes = {one.name: one for one in pool.standing.cluster.nodes}
        occupied = occupants(pool.standing.cluster, Now(now))
        assert all(protection_of(nodes[name]) for name in held), (
            f"{seed}: no autoscaler removes it"
        )
        unmarked = (name for name in occupied if mark_of(nodes[name].labels) is None)
        filled = {name: filled.get(name, now) for name in unmarked}
        for name, since in filled.items():
            if now - since >= (longest if changes else protection_seconds + TICK_SECONDS):
                assert protection_of(nodes[name]) is None, (
                    f"{seed}: an autoscaler that evicts may remove it"
                )
