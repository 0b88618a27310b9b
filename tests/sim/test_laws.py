"""Laws that hold for every cluster, every configuration and every fault."""

import random
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import NamedTuple

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from controller.metrics import Metrics
from controller.reconciler import Reconciler, ReconcileReport
from controller.view import ClusterView
from core.cluster.devices import Devices
from core.cluster.read_options import READ_DEFAULTS
from core.config.budgets import Budget, LabelSelector, Limit, Pool
from core.config.programs import SCORE_NAMES, ExtenderConfig
from core.config.settings import Config, Mode, ScaleDownProtection, Scope, UsabilityMode
from core.config.thresholds import Thresholds
from core.engine import reconcile
from core.engine.leader_state import RateLimits
from core.engine.mark_limits import BACKOFF, COOLDOWN, PODS_PENDING
from core.engine.planner import PlanOptions
from core.engine.snapshot import ClusterSnapshot
from core.engine.zones import ZONE_LABEL
from core.marks.mark import BACKOFF_SECONDS, BACKOFF_SECONDS_MAX, Mark, mark_of
from core.marks.wellknown import KEEP_ANNOTATION, MARK_LABEL, TAINT_KEY
from core.model.cluster import Cluster
from core.model.constraints import NodeConstraints, Toleration
from core.model.node import Effect, Taint
from core.writes.node_facts import WATCH_SECONDS
from core.writes.write import WriteKind
from extender.view import View
from kube.decode.kinds import NODES, PODS
from sim import simulated_load
from sim.autoscaler import TO_BE_DELETED, ScaleDown
from sim.ebb import Ebb, InProcessCalls
from sim.simulated_load import HOUR_MS, SimulatedLoad, amount
from tests.support.admission import Json, NodeApi, merge, node_json
from tests.support.builders import EIGHTY_PERCENT, UNLIMITED, marked, node, pod
from tests.support.examples import examples
from tests.support.faults import Day, Fault, Trouble
from tests.support.mixed_autoscalers import surrounded
from tests.support.replay import Replay
from tests.support.restraints import BUDGETS, PACE, paced
from tests.support.standing import Standing
from tests.support.strategies import clusters, unmarked

pytestmark = pytest.mark.law

SHARES = st.sampled_from([Fraction(1, 2), Fraction(4, 5), Fraction(1)])
GOING = Taint(TO_BE_DELETED, "1", Effect.NO_SCHEDULE)


@st.composite
def configs(draw: st.DrawFn) -> Config:
    cpu, memory = draw(SHARES), draw(SHARES)
    return Config(
        mode=Mode.ENFORCE,
        thresholds=Thresholds(cpu=cpu, memory=memory),
        hysteresis=draw(st.sampled_from((Fraction(1, 20), Fraction(1, 2)))),
        usable_capacity=draw(st.sampled_from((UsabilityMode.AUTO, UsabilityMode.ALL))),
        budgets=replace(draw(BUDGETS), period_seconds=120),
        unneeded_time_seconds=60,
        deadline_seconds=7 * 24 * 3600,
        no_schedule_after_seconds=draw(st.sampled_from((None, None, 0, 300))),
        scale_down_protection=ScaleDownProtection(after_unmark_seconds=300),
    )


def leader(config: Config, writer: Standing | NodeApi) -> Reconciler:
    return Reconciler(config, writer, owner="me", metrics=Metrics())


async def run_once(standing: Standing, controller: Reconciler, now: int) -> ReconcileReport:
    standing.now = now
    report = await controller.reconcile(standing.cluster, now)
    assert report.failed == 0
    return report


# A plan never exceeds a threshold or a budget.


@st.composite
def partly_leaving(draw: st.DrawFn) -> Cluster:
    """Draw a cluster in which an autoscaler already deletes some nodes."""
    found = draw(clusters())
    gone = draw(st.sets(st.sampled_from([one.name for one in found.nodes]), max_size=2))
    nodes = (
        replace(one, taints=(*one.taints, GOING)) if one.name in gone else one
        for one in found.nodes
    )
    return replace(found, nodes=tuple(nodes))


def zones_out_of_step() -> Cluster:
    """Return a cluster of two equal zones, of which one has no removable nodes."""
    keep = {KEEP_ANNOTATION: "true"}
    return Cluster.of(
        [
            node(f"{zone}{n}", labels={ZONE_LABEL: zone}, annotations=keep if zone == "b" else {})
            for n, zone in enumerate("aaaabbbb")
        ],
        [pod("tiny", None, 0, 0)],
    )


@settings(max_examples=examples(200))
@given(partly_leaving(), configs(), PACE)
@example(zones_out_of_step(), Config(budgets=replace(UNLIMITED, balance_zones=True)), paced())
def test_plan_never_exceeds_threshold_or_budget(
    cluster: Cluster, config: Config, limits: RateLimits
) -> None:
    plan = reconcile.plan(cluster, config, PlanOptions(limits=limits))
    replay = Replay(cluster, config, limits)
    replay.where |= dict(plan.pending)
    for removal in plan.removals:
        one = replay.remove(removal.node, removal.placements)
        replay.check_counts(one)
        replay.check_sums(one, removal.placements)
        if one in replay.new:
            assert not limits.of(COOLDOWN)
            assert not limits.of(PODS_PENDING)
            assert one.name not in limits.of(BACKOFF)


@settings(max_examples=examples(50))
@given(clusters(), configs(), st.integers(1, 3), st.sets(st.integers(0, 24)))
async def test_marks_in_window_never_exceed_budget(
    cluster: Cluster, config: Config, limit: int, elections: set[int]
) -> None:
    """The law holds across leader changes: a new leader counts the marks that are set on nodes.

    A node in no reach does not count for other nodes; all nodes count for it.
    """
    budget = Budget(max_new_marks=Limit(limit), max_marked=Limit(2 * limit))
    config = replace(config, budgets=replace(UNLIMITED, cluster=budget, period_seconds=500))
    standing = Standing(replace(cluster, nodes=tuple(map(unmarked, cluster.nodes))))
    controller = leader(config, standing)
    for number in range(25):
        if number in elections:
            controller = leader(config, standing)
        await run_once(standing, controller, 120 * number)
    names = {one.name for one in cluster.nodes}
    reached = set(filter(ClusterSnapshot(cluster, config).reaches_node, names))
    marks: list[tuple[int, str]] = []
    carrying: set[str] = set()
    for when, name, came in standing.turns:
        if not came:
            carrying.remove(name)
            continue
        marks.append((when, name))
        carrying.add(name)
        judged = reached if name in reached else names
        assert sum(when - 500 < then and other in judged for then, other in marks) <= limit
        assert len(carrying & judged) <= 2 * limit


# An unmarked node has no metadata of Ebb.

FOREIGN_TAINTS = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.sampled_from(
                ("a", "a.example/b", "status-taint.cluster-autoscaler.kubernetes.io/x")
            ),
            "effect": st.sampled_from([one.value for one in Effect]),
        },
        optional={
            "value": st.just("v"),
            "timeAdded": st.just("2026-01-01T00:00:00Z"),
        },
    ),
    max_size=3,
    unique_by=lambda taint: (taint["key"], taint["effect"]),
)
FOREIGN_ANNOTATIONS = st.dictionaries(
    st.sampled_from(
        ("a", "kube-ebb.io/other", "cluster-autoscaler.kubernetes.io/x", "b.example/c")
    ),
    st.sampled_from(("", "true", "x")),
    max_size=3,
)
CAUSES = ("load", "observe", "pools", "keep", "cordon", "deadline", "label")
NOWHERE = Pool(
    name="none", selector=LabelSelector(match_labels=(("no", "where"),)), budget=Budget()
)
NO_MORE = replace(UNLIMITED, cluster=Budget(max_marked=Limit(0)))


class Fate(NamedTuple):
    """Events in the life of a node that is marked and unmarked, by number of reconciliation."""

    no_schedule_after: int | None
    empties: bool
    elections: set[int]
    """Reconciliations before which another replica becomes leader."""
    outages: set[int]
    """Reconciliations in which the webhook is unavailable."""


TOLERANT = NodeConstraints(tolerations=(Toleration(operator="Exists"),))


class Unmarking:
    """Three nodes; n1 is marked, other clients write to it too, and then it is unmarked."""

    def __init__(self, given: Json, fate: Fate) -> None:
        self.api = NodeApi(merge(node_json("n1"), given), node_json("n2"), node_json("n3"))
        self.fate, self.reconciliations, self.now = fate, 0, 1_767_225_600
        self.config = Config(
            mode=Mode.ENFORCE,
            thresholds=EIGHTY_PERCENT,
            unneeded_time_seconds=600,
            deadline_seconds=3600,
            no_schedule_after_seconds=fate.no_schedule_after,
            usable_capacity=UsabilityMode.ALL,
            budgets=UNLIMITED,
            # An empty node would be protected, which other tests cover.
            scale_down_protection=ScaleDownProtection(
                scope=Scope.MARKED if fate.empties else Scope.EMPTY
            ),
        )
        asked = (("p1", "n1", 500), ("p2", "n2", 2000), ("p3", "n3", 2000))
        # The pods tolerate all taints of other clients, so that the node is in their reach.
        self.pods = [
            pod(name, on, cpu, 1000, node_constraints=TOLERANT) for name, on, cpu in asked
        ]
        self.controller = leader(self.config, self.api)

    async def reconcile(self, seconds: int) -> ReconcileReport:
        self.now += seconds
        self.api.webhook_up = self.reconciliations not in self.fate.outages
        if self.reconciliations in self.fate.elections:
            self.controller = leader(self.config, self.api)
        self.reconciliations += 1
        nodes = [self.api.node(name) for name in self.api.nodes]
        report = await self.controller.reconcile(Cluster.of(nodes, self.pods), self.now)
        assert report.failed == 0
        return report

    def change(self, patch: Json) -> None:
        self.api.store("n1", merge(self.api.nodes["n1"], patch))

    def carried(self) -> tuple[Json, Json, list[Json], bool]:
        found = self.api.nodes["n1"]
        metadata, spec = found["metadata"], found["spec"]
        cordoned = spec.get("unschedulable", False)
        return metadata["labels"], metadata["annotations"], spec.get("taints") or [], cordoned

    def unmark(self, cause: str) -> None:
        """Create the cause of the unmarking; allow new marks unless n1 could be marked again."""
        budgets = {
            "deadline": NO_MORE,
            "label": NO_MORE,
            "pools": replace(UNLIMITED, pools=(NOWHERE,)),
        }
        self.config = replace(self.config, budgets=budgets.get(cause, UNLIMITED))
        if cause == "observe":
            self.config = replace(self.config, mode=Mode.OBSERVE)
        if cause == "load":
            self.pods += [pod(f"more-{on}", on, 1900, 1000) for on in ("n2", "n3")]
        if cause == "keep":
            self.change({"metadata": {"annotations": {KEEP_ANNOTATION: "true"}}})
        if cause == "label":
            self.change({"metadata": {"labels": {MARK_LABEL: None}}})
        if cause == "cordon":
            self.change({"spec": {"unschedulable": True}})
        self.controller.config = self.config


@settings(max_examples=examples(150))
@given(
    FOREIGN_TAINTS,
    FOREIGN_ANNOTATIONS,
    FOREIGN_ANNOTATIONS,
    st.sampled_from(CAUSES),
    st.builds(
        Fate,
        no_schedule_after=st.sampled_from((None, 60)),
        empties=st.booleans(),
        elections=st.sets(st.integers(2, 18), max_size=2),
        outages=st.sets(st.integers(0, 18)),
    ),
)
async def test_unmarked_node_has_no_metadata_of_ebb(
    taints: list[Json], labels: Json, annotations: Json, cause: str, fate: Fate
) -> None:
    """Changes of other clients remain, whenever they were written, across leader changes."""
    found = {"labels": labels, "annotations": annotations}
    world = Unmarking({"metadata": found, "spec": {"taints": taints}}, fate)
    await world.reconcile(0)
    await world.reconcile(601)
    assert MARK_LABEL in world.carried()[0]
    await world.reconcile(61)
    if fate.empties and cause != "deadline":  # a deadline does not end the mark of an empty node
        world.pods.pop(0)
        await world.reconcile(1)
    late: Json = {"key": "late", "effect": "NoSchedule"}
    world.change({"spec": {"taints": [late, *world.carried()[2]]}})
    world.change({"metadata": {"annotations": {"late": "yes"}}})
    world.unmark(cause)
    await world.reconcile(3600 if cause == "deadline" else 1)
    assert cause == "deadline" or MARK_LABEL not in world.carried()[0]
    for _ in range(WATCH_SECONDS // 100 * 3):  # two successive leaders first only observe
        await world.reconcile(100)
    assert MARK_LABEL not in world.carried()[0]
    if cause == "deadline":
        await world.reconcile(BACKOFF_SECONDS + BACKOFF_SECONDS_MAX)
    for _ in range(18):
        await world.reconcile(100)
    words = annotations | {"late": "yes"} | ({KEEP_ANNOTATION: "true"} if cause == "keep" else {})
    assert world.carried() == (labels, words, [late, *taints], cause == "cordon")
    writes = (await world.reconcile(100)).writes
    assert all(write.key != "n1" or write.kind is WriteKind.MARK for write in writes)


# Marks do not oscillate.


def packed_two_ways() -> Cluster:
    """Return a cluster in which n0 is removable after n1, but n1 is not removable after n0."""
    asked = ("n0", 1000), ("n0", 1000), ("n1", 1500), ("n2", 2500), ("n3", 1000), ("n3", 1000)
    return Cluster.of(
        [node(f"n{number}") for number in range(4)],
        [pod(f"p{number}", on, cpu, 100) for number, (on, cpu) in enumerate(asked)],
    )


FULL = Thresholds(cpu=Fraction(1), memory=Fraction(1))


@settings(max_examples=examples(200))
@given(clusters(), configs(), st.sampled_from(Mark))
@example(
    packed_two_ways(),
    Config(thresholds=FULL, usable_capacity=UsabilityMode.ALL, budgets=UNLIMITED),
    Mark.PREFER_NO_SCHEDULE,
)
def test_plan_is_same_after_its_nodes_are_marked(
    cluster: Cluster, config: Config, mark: Mark
) -> None:
    """All marks are set in the same second, so their order must be stored with them."""
    cluster = replace(cluster, nodes=tuple(map(unmarked, cluster.nodes)))
    plan = reconcile.plan(cluster, config)
    orders = {removal.node: removal.order for removal in plan.removals}
    nodes = (
        marked(one, mark, since=7, order=orders[one.name]) if one.name in orders else one
        for one in cluster.nodes
    )
    again = reconcile.plan(replace(cluster, nodes=tuple(nodes)), config)
    assert again.removals == plan.removals


@settings(max_examples=examples(60))
@given(clusters(), configs(), st.booleans(), st.booleans())
async def test_writes_stop_when_load_is_constant(
    cluster: Cluster, config: Config, inherited: bool, webhook_up: bool
) -> None:
    """A node is marked once and remains marked; an existing mark may be removed before."""
    if not inherited:
        cluster = replace(cluster, nodes=tuple(map(unmarked, cluster.nodes)))
    standing = Standing(cluster, webhook_up=webhook_up)
    controller = leader(config, standing)
    # Existing marks of the generated clusters end after an hour.
    step, end = (120, 3500) if inherited else (1800, 12 * 3600)
    for now in range(10, end, step):
        report = await run_once(standing, controller, now)
        assert now < end // 3 * 2 or report.writes == ()
    for one in cluster.nodes:
        turns = [became for _, name, became in standing.turns if name == one.name]
        if mark_of(one.labels) is None:
            assert turns in ([], [True])
        else:
            assert turns in ([], [False], [False, True])


# Reconciliations do not depend on the order of events.


def told(cluster: Cluster, chance: random.Random) -> Cluster:
    """Return the cluster that a view builds from the objects in random order."""
    view = ClusterView()
    takes = [
        *(partial(view.changed, NODES, one) for one in cluster.nodes),
        *(partial(view.changed, PODS, one) for one in cluster.pods),
    ]
    chance.shuffle(takes)
    for take in takes:
        take()
    return surrounded(view.snapshot(READ_DEFAULTS)(), cluster)


@settings(max_examples=examples(100))
@given(clusters(), configs(), st.randoms(use_true_random=False))
async def test_reconciliations_do_not_depend_on_order_of_events(
    cluster: Cluster, config: Config, chance: random.Random
) -> None:
    """The plan, the remembered state, the limits and the writes are the same."""
    there = Devices(cluster.nodes, ())
    pods = (replace(one, unschedulable=one.node is None) for one in cluster.pods)
    cluster = replace(cluster, pods=tuple(map(there.without_claimed, pods)))
    both = Standing(cluster), Standing(cluster)
    leaders = [leader(config, standing) for standing in both]
    for now in range(10, 1000, 150):
        reports = []
        for standing, controller in zip(both, leaders, strict=True):
            cluster = standing.cluster if standing is both[0] else told(standing.cluster, chance)
            reports.append(await controller.reconcile(cluster, now))
        assert reports[0] == reports[1]
    assert both[0].cluster == both[1].cluster


# Hours of random load, faults and restarts; tests/soak plays days.

HOURS, QUIET_HOURS = 8, 2
"""Length of a run, and of its end without faults."""

SHAPES = (amount(4000, 8192, 0, 110), amount(8000, 16_384, 0, 110))
ROWS = st.tuples(
    st.builds(
        amount,
        st.sampled_from((250, 500, 1000, 2000)),
        st.sampled_from((256, 1024, 4096)),
        st.just(0),
    ),
    st.sampled_from((600_000, 3_600_000, 14_400_000)),
)
TROUBLES = st.builds(
    Trouble,
    st.sampled_from([None, *Fault]),
    at_ms=st.integers(0, (HOURS - 2 * QUIET_HOURS) * HOUR_MS),
    for_ms=st.integers(0, QUIET_HOURS * HOUR_MS),
)
UNSHRUNK = [phase for phase in Phase if phase not in (Phase.shrink, Phase.explain)]
"""Shrinking takes minutes and rarely yields a clearer example."""


@st.composite
def loads(draw: st.DrawFn) -> SimulatedLoad:
    """Draw small nodes, and arrivals whose number differs between hours."""
    nodes = draw(st.lists(st.sampled_from(SHAPES), min_size=10, max_size=16))
    rows = draw(st.lists(ROWS, min_size=2, max_size=5))
    percents = draw(st.lists(st.sampled_from((0, 30, 100, 100)), min_size=HOURS, max_size=HOURS))
    seed = draw(st.integers(0, 2**16))
    at_once = draw(st.sampled_from((12, 24)))
    whole = simulated_load.bootstrap(nodes, rows, seed=seed, days=1, at_once=at_once, wave=(1,))
    chance = random.Random(seed)
    arrivals = tuple(
        one
        for one in whole.arrivals[:600]
        if one.at_ms < HOURS * HOUR_MS and chance.randrange(100) < percents[one.at_ms // HOUR_MS]
    )
    return replace(whole, arrivals=arrivals, duration_ms=HOURS * HOUR_MS, interval_ms=120_000)


def played(
    load: SimulatedLoad, how: ScaleDown, config: Config, troubles: list[Trouble], last: Config
) -> Day:
    """Run the load; in its last hours nothing fails, and the last configuration applies.

    Then no pods are expected either: an empty node stays marked while it is reserved for them.
    """
    expecting_none = replace(last.budgets.reserve, window_seconds=None)
    last = replace(last, budgets=replace(last.budgets, reserve=expecting_none))
    view = View(config.extender, TAINT_KEY)
    ebb = Ebb(config, view, InProcessCalls(view, config))
    world = Day(load, how, ebb, config, troubles)
    world.configure((HOURS - QUIET_HOURS) * HOUR_MS + 1, last)
    try:
        world.run()
    finally:
        ebb.close()
    return world


@pytest.mark.parametrize("no_schedule_after", [None, 300])
@pytest.mark.parametrize("how", ScaleDown)
@settings(max_examples=examples(10), phases=UNSHRUNK)
@given(loads(), st.lists(TROUBLES, max_size=6), st.sampled_from(SCORE_NAMES), st.booleans())
def test_run_with_faults_ends_without_disruption_or_leftovers(
    how: ScaleDown,
    no_schedule_after: int | None,
    load: SimulatedLoad,
    troubles: list[Trouble],
    score: str,
    observed: bool,
) -> None:
    config = Config(
        mode=Mode.ENFORCE,
        deadline_seconds=3600,
        no_schedule_after_seconds=no_schedule_after,
        extender=ExtenderConfig(score=score),
    )
    none = replace(config.budgets, cluster=Budget(max_marked=Limit(0)))
    marked_only = ScaleDownProtection(scope=Scope.MARKED)
    last = (
        replace(config, mode=Mode.OBSERVE)
        if observed or how is ScaleDown.NEVER  # otherwise the mark of an empty node would not end
        else replace(config, budgets=none, scale_down_protection=marked_only)
    )
    world = played(load, how, config, troubles, last)
    assert how is ScaleDown.UTILIZATION or world.result.evicted == 0
    assert world.disturbed == []
    assert world.kept_waiting == set()
    assert no_schedule_after is not None or world.result.pending_by_mark == 0
    assert world.traces() == []
