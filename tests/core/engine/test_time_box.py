"""Plans that run out of time."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.config.settings import Config
from core.engine import reconcile
from core.engine.planner import PlanOptions
from core.engine.snapshot import ClusterSnapshot
from core.marks.mark import Mark
from core.marks.wellknown import KEEP_ANNOTATION
from core.model.cluster import Cluster
from tests.support.builders import UNLIMITED, marked, node, pod, thesis_config
from tests.support.strategies import clusters, unmarked

pytestmark = pytest.mark.mutate


def times(calls_max: int) -> Callable[[], bool]:
    """Return a function that returns True *calls_max* times, then False."""
    left = iter(range(calls_max))
    return lambda: next(left, None) is not None


@pytest.mark.parametrize("calls", range(8))
def test_plan_is_first_part_of_whole_plan_when_time_runs_out(calls: int) -> None:
    cluster = Cluster.of([node(f"n{n}") for n in range(6)], [pod("p", "n0", 500, 500)])
    config = Config(budgets=UNLIMITED)
    whole = reconcile.plan(cluster, config)
    part = reconcile.make_plan(ClusterSnapshot(cluster, config), PlanOptions(in_time=times(calls)))
    assert len(whole.removals) == 5
    assert len(part.removals) == min(calls, 5)
    assert part.removals == whole.removals[: len(part.removals)]
    late = {one.node for one in part.kept if [why.code for why in one.blockers] == ["time-box"]}
    assert late >= {removal.node for removal in whole.removals[len(part.removals) :]}


def test_marked_nodes_are_evaluated_when_there_is_no_time() -> None:
    goes, stays = (
        marked(node("goes"), Mark.PREFER_NO_SCHEDULE, 1),
        marked(node("stays"), Mark.PREFER_NO_SCHEDULE, 2),
    )
    kept = node("opted", annotations={KEEP_ANNOTATION: "true"})
    full = [pod(name, name, 4000, 100) for name in ("stays", "opted", "other")]
    cluster = Cluster.of([goes, stays, kept, node("other")], full)
    plan = reconcile.make_plan(
        ClusterSnapshot(cluster, thesis_config("1", "1")), PlanOptions(in_time=lambda: False)
    )
    assert [removal.node for removal in plan.removals] == ["goes"]
    codes = {one.node: [why.code for why in one.blockers] for one in plan.kept}
    assert "time-box" not in codes["stays"]
    assert codes["opted"] == ["opted-out", "threshold", "time-box"]


@given(clusters(), st.integers(0, 20))
def test_every_node_has_verdict_when_time_runs_out(cluster: Cluster, calls: int) -> None:
    bare = replace(cluster, nodes=tuple(unmarked(one) for one in cluster.nodes))
    plan = reconcile.make_plan(
        ClusterSnapshot(bare, Config(budgets=UNLIMITED)), PlanOptions(in_time=times(calls))
    )
    reported = [removal.node for removal in plan.removals]
    reported += [kept.node for kept in plan.kept if kept.blockers]
    assert sorted(reported) == [one.name for one in bare.nodes]
