"""The table of reason codes is complete, and explanations agree with the plan of any cluster."""

import re
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import pytest
from hypothesis import given

import core
from cli.explain.explainer import Explainer, NodeAnswer, NodeVerdict
from cli.explain.reasons import (
    EVICTION,
    LIFETIME,
    MOVES,
    NOT_REMOVABLE,
    NOT_SET_TO_NO_SCHEDULE,
    REASONS,
    SCALE_DOWN_NOT_ALLOWED,
    advice,
    page,
    with_placeholders,
)
from core.config.budgets import Budget, Budgets, Cooldown, Limit
from core.config.settings import Config, UsabilityMode
from core.eligibility.node_eligibility import CORDONED
from core.eligibility.unplaceable import POD_UNSUPPORTED
from core.engine import reconcile
from core.engine.planner import PlanOptions
from core.engine.snapshot import ClusterSnapshot
from core.engine.zones import ZONE_LABEL
from core.marks.mark import Mark, mark_of
from core.marks.wellknown import MARK_LABEL, TAINT_KEY
from core.model.cluster import Cluster
from core.model.constraints import NodeConstraints
from core.model.node import Taint
from core.model.now import Now
from core.model.reason import Blocker, Reason
from tests.support.builders import UNLIMITED, marked, node, pod, thesis_config
from tests.support.strategies import clusters

pytestmark = pytest.mark.mutate

NOW = 1_767_225_600
ROOT = Path(__file__).parents[2]
NO_SCHEDULE = Taint(TAINT_KEY, "1", "NoSchedule")


def _defined() -> Iterator[Reason]:
    """Yield every Reason defined in a module of the core, alone or in nested tuples."""
    for found in walk_packages(core.__path__, "core."):
        yield from _reasons(tuple(vars(import_module(found.name)).values()))


def _reasons(value: object) -> Iterator[Reason]:
    if isinstance(value, Reason):
        yield value
    elif isinstance(value, tuple):
        for one in value:
            yield from _reasons(one)


class TestTable:
    def test_table_lists_exactly_reasons_of_core(self) -> None:
        assert {id(one) for one in _defined()} == {id(one) for one in REASONS.values()}

    def test_codes_are_unique(self) -> None:
        lists = (
            NOT_REMOVABLE,
            SCALE_DOWN_NOT_ALLOWED,
            NOT_SET_TO_NO_SCHEDULE,
            LIFETIME,
            EVICTION,
            MOVES,
        )
        assert len(REASONS) == sum(map(len, lists))

    @pytest.mark.parametrize("reason", REASONS.values(), ids=lambda reason: reason.code)
    def test_reason_has_code_meaning_and_fix(self, reason: Reason) -> None:
        told = with_placeholders(reason)
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", reason.code)
        assert re.fullmatch(r"[A-Z][^{}]*\.", told.meaning)
        for text in (told.fix, told.ends_when):
            assert re.fullmatch(r"[^{}]*[^{}.]", text)

    def test_advice_names_node_and_pod(self) -> None:
        assert advice(Blocker(CORDONED, "m"), "n1").fix == "uncordon the node: kubectl uncordon n1"
        assert (
            "-n shop delete pod web-0"
            in advice(Blocker(POD_UNSUPPORTED, "m", "shop/web-0"), "n1").fix
        )

    def test_reasons_page_is_up_to_date(self) -> None:
        found = (ROOT / "docs" / "reasons.md").read_text("utf-8")
        assert found == page(), "make fix writes it anew"
        assert all(f"### `{code}`" in found for code in REASONS)


@given(clusters())
def test_every_node_and_pod_is_explained_consistently_with_plan(cluster: Cluster) -> None:
    config = thesis_config()
    snapshot = ClusterSnapshot(cluster, config, Now(NOW))
    plan = reconcile.make_plan(snapshot)
    explainer = Explainer(snapshot, plan, NOW)
    kept = {one.node: one.blockers for one in plan.kept}
    for one in cluster.nodes:
        answer = explainer.node(one.name)
        assert answer is not None
        assert (answer.order is None) == bool(answer.blockers) == (one.name in kept)
        assert answer.blockers == kept.get(one.name, ())
        for blocker in answer.blockers:
            assert blocker.reason is REASONS[blocker.code]
            assert advice(blocker, one.name)
    for each in cluster.pods:
        told = explainer.pod(each.key)
        assert told is not None
        others = len(cluster.nodes) - (each.node is not None)
        if told.rejections or told.feasible or told.feasible_marked:
            able = len(told.feasible) + len(told.feasible_marked)
            assert sum(count for _, count in told.rejections) + able == others
            assert each.node not in (*told.feasible, *told.feasible_marked)
            assert not told.blockers
            assert not each.stays_with_node
        found = explainer.node(each.node) if each.node is not None else None
        if found is None:
            assert told.node_answer is None
        else:
            verdict = NodeVerdict(node=found.node, order=found.order, blockers=found.blockers)
            assert told.node_answer == verdict
            if found.order is None and each.node not in snapshot.leaving_nodes:
                assert told.target in (None, dict(found.placements).get(each.key))


class PodExplainer(Explainer):
    """An explainer of pods only."""

    def node(self, name: str) -> NodeAnswer | None:
        """Fail."""
        raise AssertionError(name)


def test_pod_is_explained_without_explaining_its_node() -> None:
    cluster = Cluster.of([node("a"), node("b")], [pod("p", "a", 100, 100)])
    snapshot = ClusterSnapshot(cluster, thesis_config(), Now(NOW))
    answer = PodExplainer(snapshot, reconcile.make_plan(snapshot), NOW).pod("d/p")
    assert answer is not None
    assert answer.target == "b"


@given(clusters())
def test_pending_pod_is_placed_on_feasible_node_if_there_is_any(cluster: Cluster) -> None:
    for one in cluster.pods:
        if one.node is None and not one.unsupported:
            others = tuple(p for p in cluster.pods if p.node is not None or p == one)
            alone = replace(cluster, pods=others)
            config = replace(Config(), budgets=replace(Config().budgets, headroom=0))
            snapshot = ClusterSnapshot(alone, config, Now(NOW))
            plan = reconcile.make_plan(snapshot, PlanOptions(removals_max=0))
            answer = Explainer(snapshot, plan, NOW).pod(one.key)
            assert answer is not None
            placed = [target.node for target in plan.pending if target.pod == one.key]
            able = {*answer.feasible, *answer.feasible_marked}
            assert able.issuperset(placed)
            assert bool(able) == bool(placed)
            assert answer.target == next(iter(placed), None)


def explainer_of(cluster: Cluster, config: Config) -> Explainer:
    snapshot = ClusterSnapshot(cluster, config, Now(NOW))
    return Explainer(snapshot, reconcile.make_plan(snapshot), NOW)


def explained(cluster: Cluster, name: str, config: Config | None = None) -> NodeAnswer:
    config = config or thesis_config()
    answer = explainer_of(cluster, config).node(name)
    assert answer is not None
    return answer


class TestExplainer:
    def test_unknown_node_and_pod_have_no_answer(self) -> None:
        cluster = Cluster.of([node("a")], [])
        explainer = explainer_of(cluster, Config())
        assert explainer.node("b") is None
        assert explainer.pod("d/p") is None

    def test_node_is_explained_with_pod_that_no_node_admits(self) -> None:
        pinned = NodeConstraints(node_selector=(("only", "here"),))
        cluster = Cluster.of(
            [node("a", labels={"only": "here"}), node("b")],
            [pod("p", "a", 100, 100, node_constraints=pinned), pod("q", "a", 100, 100)],
        )
        answer = explained(cluster, "a")
        assert [key for key, _ in answer.unassigned] == ["d/p"]
        assert [tuple(target) for target in answer.placements] == [("d/q", "b")]
        assert {blocker.code for blocker in answer.blockers} >= {"no-room"}

    def test_noschedule_marked_node_is_feasible_if_unmarked(self) -> None:
        marked = node("m", labels={MARK_LABEL: Mark.NO_SCHEDULE.value}, taints=(NO_SCHEDULE,))
        cluster = Cluster.of([marked, node("a", 100)], [pod("p", None, 500, 100)])
        config = thesis_config()
        explainer = explainer_of(cluster, config)
        answer = explainer.pod("d/p")
        assert answer is not None
        assert mark_of(marked.labels) is Mark.NO_SCHEDULE
        assert (answer.feasible, answer.feasible_marked) == ((), ("m",))
        assert answer.rejections == (("insufficient cpu", 1),)

    @pytest.mark.parametrize(("after", "found"), [(None, []), (0, ["no-schedule-daemonset"])])
    def test_node_is_explained_with_reasons_against_noschedule(
        self, after: int | None, found: list[str]
    ) -> None:
        marked = node("m", labels={MARK_LABEL: Mark.PREFER_NO_SCHEDULE.value})
        agent = pod("agent", "m", 100, 100, daemon=True)
        cluster = Cluster.of([marked, node("a")], [agent])
        answer = explained(cluster, "m", thesis_config(no_schedule_after_seconds=after))
        assert [blocker.code for blocker in answer.no_schedule_blockers] == found


def test_removable_node_is_explained_with_exhausted_budget() -> None:
    budgets = replace(UNLIMITED, cluster=Budget(max_marked=Limit(1)))
    config = Config(usable_capacity=UsabilityMode.ALL, budgets=budgets)
    cluster = Cluster.of([marked(node("a"), Mark.PREFER_NO_SCHEDULE, 1), node("b"), node("c")], [])
    explainer = explainer_of(cluster, config)
    rate_limits = {name: explainer.node(name) for name in "abc"}
    assert {
        n: [one.code for one in found.rate_limits] for n, found in rate_limits.items() if found
    } == {
        "a": [],
        "b": [],
        "c": ["budget-marked"],
    }


@pytest.mark.parametrize(
    ("budgets", "later"),
    [
        (replace(UNLIMITED, cluster=Budget(max_marked=Limit(2))), "budget-marked"),
        (replace(UNLIMITED, cluster=Budget(max_new_marks=Limit(2))), "budget-new-marks"),
    ],
)
def test_budget_counts_removable_nodes_earlier_in_plan(budgets: Budgets, later: str) -> None:
    cluster = Cluster.of([node(name) for name in "abcde"], [])
    assert waits(cluster, budgets) == [[], [], [later], [later]]


def test_further_nodes_wait_for_mark_interval() -> None:
    cluster = Cluster.of([node(name) for name in "abc"], [])
    budgets = replace(UNLIMITED, mark_interval_seconds=60)
    assert waits(cluster, budgets) == [[], ["mark-interval"]]


def test_node_does_not_wait_for_zone_balance_when_earlier_removal_restores_it() -> None:
    nodes = [node(f"{zone}{n}", labels={ZONE_LABEL: zone}) for n, zone in enumerate("aaabb")]
    cluster = Cluster.of(nodes, [pod("p", "a0", 100, 100)])
    assert waits(cluster, replace(UNLIMITED, balance_zones=True)) == [[], [], [], []]


def test_pending_delay_is_not_applied_when_pod_pending_time_is_unknown() -> None:
    """One snapshot does not show since when a pod is Pending; the leader knows it."""
    waiting = replace(pod("p", None, 100, 100), unschedulable=True)
    cluster = Cluster.of([node(name) for name in "abc"], [waiting])
    budgets = replace(UNLIMITED, cooldown=Cooldown(delay_after_pending_seconds=600))
    assert waits(cluster, budgets) == [[], []]


def waits(cluster: Cluster, budgets: Budgets) -> list[list[str]]:
    """Return the codes of the rate limits of each removable node, in the order of the plan."""
    config = Config(usable_capacity=UsabilityMode.ALL, budgets=budgets)
    explainer = explainer_of(cluster, config)
    answers = [found for one in cluster.nodes if (found := explainer.node(one.name))]
    gone = sorted((one for one in answers if one.order), key=lambda one: one.order or 0)
    return [[blocker.code for blocker in one.rate_limits] for one in gone]
