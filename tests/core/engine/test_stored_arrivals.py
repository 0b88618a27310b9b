"""A new leader continues the arrivals that the previous one has stored."""

from dataclasses import replace

import pytest

from core.engine.arrivals import (
    LOOKBACK_SECONDS,
    SHAPES_MAX,
    Counts,
    PodShape,
    TimeBuckets,
)
from core.engine.leader_state import LeaderState, arrivals_to_store, watched_until
from core.engine.plan import ReserveCause, ReservedNode
from core.engine.reconcile import ReconcileResult, reconcile
from core.engine.stored_arrivals import StoredArrivals
from core.history.days import Day
from core.history.packing import pack_today, read_today
from core.history.today import Today
from core.model.cluster import Cluster
from core.model.constraints import NO_NODE_CONSTRAINTS
from core.model.node import Node
from core.model.pod import Pod
from core.model.resources import Resources
from tests.core.engine.test_reserve import ASKED, PROTECTED, START, job, run_passes
from tests.core.engine.test_reserve_laws import history
from tests.support.builders import node, pod

pytestmark = pytest.mark.mutate

WINDOW = 300
BUCKETS = TimeBuckets.of(WINDOW)
BUSY = pod("p", "n0", 3000, 100)
NODES = (node("n0"), *(node(name, annotations=PROTECTED) for name in ("p0", "p1")))
SHAPE = PodShape("general", Resources(2000, 100 * 10**6, 0, 1), NO_NODE_CONSTRAINTS)


def stored(at: int, counts: Counts | None = None, seconds: int | None = None) -> StoredArrivals:
    """Return what a leader has stored that had counted for a day; times are after START.

    The pods of *counts* arrived at *seconds*, or else when it was stored.
    """
    number = (START + (at if seconds is None else seconds)) // BUCKETS.bucket_seconds
    return StoredArrivals(
        at=START + at,
        counting_since=START + at - 86_400,
        buckets=BUCKETS,
        recent={number: {SHAPE: 1} if counts is None else counts},
        provisioning={},
    )


def lead(
    one: StoredArrivals | None, *pods: Pod, at: int = 0, nodes: tuple[Node, ...] = NODES
) -> ReconcileResult:
    """Run the first reconciliation of a new leader, *at* seconds after START."""
    state = LeaderState(may_publish=True, stored_arrivals=one)
    return reconcile(Cluster.of(nodes, [BUSY, *pods]), ASKED, state, START + at)


def reserved(found: ReconcileResult) -> list[str]:
    return [one.node for one in found.plan.reserve]


def expected(found: ReconcileResult) -> int:
    return sum(found.expected_pods.values())


def is_watching(found: ReconcileResult) -> bool:
    until = watched_until(found.state, WINDOW)
    return until is not None and found.at < until


@pytest.mark.parametrize(
    ("one", "many", "watches"),
    [
        pytest.param(None, 0, True, id="nothing is stored"),
        pytest.param(stored(-5), 1, False, id="a rollout"),
        pytest.param(stored(-WINDOW), 1, False, id="nobody counted for a window"),
        pytest.param(stored(-WINDOW - 1), 1, True, id="nobody counted for longer"),
        pytest.param(stored(-LOOKBACK_SECONDS - WINDOW), 0, True, id="all windows are over"),
        pytest.param(stored(20), 1, False, id="a clock that is ahead a little"),
        pytest.param(stored(86_400), 0, True, id="from the future"),
        pytest.param(stored(-5, seconds=86_400), 0, False, id="bucket from the future"),
        pytest.param(
            replace(stored(-5), buckets=TimeBuckets.of(60)), 0, True, id="another window"
        ),
    ],
)
def test_leader_continues_stored_arrivals_that_are_recent(
    one: StoredArrivals | None, many: int, watches: bool
) -> None:
    found = lead(one)
    assert (expected(found), is_watching(found)) == (many, watches)
    # While it watches, it does not know which of the protected nodes are needed.
    assert reserved(found) == (["p0", "p1"] if watches else ["p0"] * many)
    assert found.state.stored_arrivals is None


def test_leader_that_counts_already_adds_stored_arrivals() -> None:
    """The store is read while the first reconciliation runs, or later."""
    moments = [(0, [BUSY]), (70, [BUSY, job("a", None, 2000)]), (80, [BUSY])]
    found = run_passes(NODES, *moments)
    state = replace(found.state, stored_arrivals=stored(-5, {SHAPE: 2}, seconds=70))
    later = reconcile(found.snapshot.cluster, ASKED, state, START + 90, last=found)
    assert not later.skipped
    assert (expected(found), expected(later)) == (1, 3)
    assert not is_watching(later)


def test_pods_of_first_reconciliation_do_not_count() -> None:
    assert expected(lead(stored(-5), job("a", None), job("b", None))) == 1


def test_time_that_new_nodes_take_is_continued() -> None:
    one = replace(stored(-5), provisioning={"general": (900,) * 5})
    found = lead(one)
    assert found.state.provisioning_times.seconds == {"general": 900}
    again = replace(found.state, stored_arrivals=replace(one, provisioning={"general": (1,) * 9}))
    last = reconcile(found.snapshot.cluster, ASKED, again, START + 1)
    assert last.state.provisioning_times.durations == {"general": (1,) * 4 + (900,) * 5}


def test_bucket_of_handover_keeps_its_limit_and_takes_new_shapes() -> None:
    """Shapes of the previous leader have no namespace, and so count as those of one."""
    shapes = {SHAPE._replace(requests=Resources(n, 0, 0, 1)): 100 - n for n in range(1, 70)}
    found = lead(stored(0, shapes))
    (counts,) = found.state.arrivals.recent.values()
    assert sorted(counts.values()) == sorted(shapes.values())[-SHAPES_MAX:]
    new = job("a", None, 2000)
    cluster = Cluster.of(NODES, [BUSY, new])
    later = reconcile(cluster, ASKED, found.state, START + 1, last=found)
    (counts,) = later.state.arrivals.recent.values()
    assert len(counts) == SHAPES_MAX
    assert new.requests in {shape.requests for shape in counts}


def test_nothing_is_stored_while_no_room_is_reserved() -> None:
    budgets = replace(ASKED.budgets, reserve=replace(ASKED.budgets.reserve, window_seconds=None))
    config, state = replace(ASKED, budgets=budgets), LeaderState(stored_arrivals=stored(-5))
    found = reconcile(Cluster.of(NODES, []), config, state, START)
    assert arrivals_to_store(found.state) is None
    assert arrivals_to_store(LeaderState()) is None
    assert not found.state.arrivals.recent


@pytest.mark.law(seeds_max=1000)
def test_new_leader_reserves_what_previous_one_reserves_at_same_second(seeds: range) -> None:
    """Also if it has read that from the store, and if its next reconciliation is skipped."""
    busy = 0
    for seed in seeds:
        config, clusters = history(seed)
        last: ReconcileResult | None = None
        for second, cluster in clusters:
            state = last.state if last else LeaderState(may_publish=True)
            last = reconcile(cluster, config, state, second, last=last)
            one = read_back(arrivals_to_store(last.state), second)
            fresh = LeaderState(may_publish=True, stored_arrivals=one)
            new = reconcile(cluster, config, fresh, second)
            assert new.expected_pods == last.expected_pods, seed
            assert new.short_reaches == last.short_reaches, seed
            assert without_repeated(new) == without_repeated(last), seed
            skipped = reconcile(cluster, config, new.state, second + 1, last=new)
            executed = reconcile(cluster, config, new.state, second + 1)
            assert skipped.plan.reserve == executed.plan.reserve, seed
            assert skipped.state.arrivals == executed.state.arrivals, seed
            busy += bool(last.expected_pods and last.plan.reserve)
    assert busy > len(seeds) // 10


def read_back(one: StoredArrivals | None, second: int) -> StoredArrivals | None:
    found = read_today(pack_today(Today(counted_until=second, day=Day(number=0), arrivals=one)))
    assert found
    return found.arrivals


def without_repeated(found: ReconcileResult) -> list[ReservedNode]:
    """Return the reserved nodes, except those that were needed repeatedly; that is not stored."""
    return [one for one in found.plan.reserve if one.cause is not ReserveCause.REPEATED]
