"""The test vectors of the thesis, each with its id."""

from fractions import Fraction

import pytest

from core.config.prices import Price
from core.config.settings import Config
from core.engine import reconcile
from core.engine.leader_state import LeaderState
from core.engine.planner import PlanOptions
from core.engine.planner_parts import new_policy
from core.engine.snapshot import ClusterSnapshot
from core.model.cluster import Cluster
from core.placement.usable_capacity import Amount, Usability, usable_capacity
from tests.support.builders import MB, THESIS_USABILITY, node, thesis_cluster, thesis_config

pytestmark = pytest.mark.mutate


def usability(min_memory_mb: int = 90) -> Usability:
    return Usability(
        min_cpu_millis=100,
        min_memory_bytes=min_memory_mb * MB,
        max_cpu_per_gb=Fraction("3.6"),
        max_gb_per_cpu=Fraction(20),
    )


@pytest.mark.parametrize(
    ("free", "min_memory_mb", "expected"),
    [
        pytest.param((200, 6500), 90, (200, 4000), id="U1"),
        pytest.param((200, 6500), 900, (200, 4000), id="U1 with the minimum as printed"),
        pytest.param((2400, 0), 90, (0, 0), id="U2"),
        pytest.param((100, 90), 90, (100, 90), id="U5"),
        pytest.param((99, 5000), 90, (0, 0), id="U6"),
        pytest.param((4000, 500), 90, (1800, 500), id="U7"),
        pytest.param((4000, 8000), 90, (4000, 8000), id="U8"),
    ],
)
def test_usable_free_capacity(
    free: tuple[int, int], min_memory_mb: int, expected: tuple[int, int]
) -> None:
    found = usability(min_memory_mb).usable_free(Amount(free[0], free[1] * MB))
    assert found == Amount(expected[0], expected[1] * MB)


def test_u9_overcommitted_node_counts_with_its_requests() -> None:
    used = Amount(4200, 7000 * MB)
    assert usable_capacity(Amount(4000, 8000 * MB), used, THESIS_USABILITY) == used


def test_u10_swapped_ratios_change_result() -> None:
    swapped = Usability(
        min_cpu_millis=100,
        min_memory_bytes=90 * MB,
        max_cpu_per_gb=Fraction(20),
        max_gb_per_cpu=Fraction("3.6"),
    )
    assert swapped.usable_free(Amount(200, 6500 * MB)).memory_bytes == 720 * MB


def test_c1_node_of_per_node_rule_is_not_removable() -> None:
    assert "4" not in removable(thesis_config("1", "1"))


def test_c3_two_nodes_remain_without_threshold() -> None:
    """The thesis leaves the order of equally expensive nodes open, as in c12."""
    cluster, config = thesis_cluster(), thesis_config("1", "1")
    plan = reconcile.plan(cluster, config)
    removed = {removal.node for removal in plan.removals}
    assert len(removed) == 2
    assert "4" not in removed
    where = {p.key.removeprefix("d/"): p.node for p in cluster.pods}
    for removal in plan.removals:
        where |= {one.pod.removeprefix("d/"): one.node for one in removal.placements}
    assert set(where.values()) == {"1", "2", "3", "4"} - removed
    assert where["F"] == "4"
    assert plan.after.requests == Amount(7200, 12_000 * MB)
    assert plan.after.capacity == Amount(8000, 16_000 * MB)


def checks(cpu: str, memory: str) -> list[bool]:
    snapshot = ClusterSnapshot(thesis_cluster(), thesis_config(cpu, memory))
    policy = new_policy(snapshot, snapshot.utilization.new_ledger())
    return [policy.nominates(node, marked=False) for node in range(len(snapshot.node_order.nodes))]


NEW = LeaderState()


def run_pass(
    config: Config, memory: LeaderState = NEW, now: int = 0, cluster: Cluster | None = None
) -> reconcile.ReconcileResult:
    return reconcile.reconcile(cluster or thesis_cluster(), config, memory, now)


def due(found: reconcile.ReconcileResult) -> frozenset[str]:
    """Return the nodes whose unneeded time is over."""
    waiting = {
        one.node
        for one in found.plan.kept
        if "unneeded-time" in {why.code for why in one.blockers}
    }
    return frozenset({one.name for one in thesis_cluster().nodes} - waiting)


@pytest.mark.parametrize(
    ("cpu", "memory", "passes"),
    [
        pytest.param("0.5", "0.5", False, id="C5"),
        pytest.param("0.6", "0.5", True, id="C4 and C6: 60 and 50 % exactly"),
        pytest.param("0.5999", "0.5", False, id="C7"),
        pytest.param("0.6", "0.4999", False, id="C7 for memory"),
    ],
)
def test_candidate_check_compares_thresholds(cpu: str, memory: str, passes: bool) -> None:
    assert checks(cpu, memory) == [passes] * 4
    listed = run_pass(thesis_config(cpu, memory)).state.candidates
    assert set(listed) == ({"1", "2", "3", "4"} if passes else set())


def removable(config: object, cluster: Cluster | None = None) -> dict[str, dict[str, str]]:
    """Return the nodes that are removable alone, with the targets of their pods."""
    whole = cluster or thesis_cluster()
    found = {}
    for one in whole.nodes:
        plan = reconcile.plan(whole, config, PlanOptions(due=frozenset({one.name})))  # type: ignore[arg-type]
        for removal in plan.removals:
            found[removal.node] = {p.pod.removeprefix("d/"): p.node for p in removal.placements}
    return found


def test_c8_packing_of_round_one() -> None:
    assert removable(thesis_config()) == {
        "1": {"A": "4"},
        "2": {"B": "3", "C": "1"},
        "3": {"D": "1", "E": "2"},
    }


def test_c10_final_candidates_include_nodes_unknown_to_per_node_rule() -> None:
    assert set(removable(thesis_config())) == {"1", "2", "3"}


def test_c12_three_nodes_remain_with_thresholds() -> None:
    plan = reconcile.plan(thesis_cluster(), thesis_config())
    assert plan.after.nodes == 3
    codes = {kept.node: {b.code for b in kept.blockers} for kept in plan.kept}
    assert len(codes) == 3
    assert "4" in codes
    assert all("threshold" in found for found in codes.values())


def test_c14_most_expensive_candidate_is_removed_first() -> None:
    whole = thesis_cluster()
    nodes = [node(n.name, labels={**n.labels, "name": n.name}) for n in whole.nodes]
    costs = {"1": 1, "2": 3, "3": 2, "4": 9}
    prices = tuple(
        Price(node_selector=(("name", name),), price=Fraction(cost))
        for name, cost in costs.items()
    )
    plan = reconcile.plan(Cluster.of(nodes, whole.pods), thesis_config(prices=prices))
    assert plan.removals[0].node == "2"


def test_c17_single_node_is_not_removable() -> None:
    plan = reconcile.plan(Cluster.of([node("1")], []), thesis_config())
    assert [b.code for b in plan.kept[0].blockers] == ["last-node"]
    assert run_pass(thesis_config(), cluster=Cluster.of([node("1")], [])).state.candidates == {}


def test_c18_unneeded_time_is_strict_and_restarts_after_failure() -> None:
    free, full = thesis_config(), thesis_config("0.1", "0.1")
    first = run_pass(free).state
    assert due(run_pass(free, first, 600)) == frozenset()
    assert due(run_pass(free, first, 601)) == {"1", "2", "3", "4"}
    failed = run_pass(full, first, 300).state
    assert failed.candidates == {}
    again = run_pass(free, run_pass(free, failed, 400).state, 900).state
    assert due(run_pass(free, again, 1000)) == frozenset()
    assert due(run_pass(free, again, 1001)) == {"1", "2", "3", "4"}


def test_c19_candidate_is_removed_when_its_node_is_deleted() -> None:
    found = run_pass(thesis_config(), LeaderState(candidates={"1": 0, "gone": 0}), 10).state
    assert found.candidates == {"1": 0, "2": 10, "3": 10, "4": 10}
