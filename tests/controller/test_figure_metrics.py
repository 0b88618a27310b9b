"""Metrics of the account of a leader, and the number of series of the controller."""

from dataclasses import replace
from fractions import Fraction

import pytest

from controller.figures.figures import Figures
from controller.metrics import Metrics
from controller.reconciler import Reconciler
from core.config.budgets import Budget, Budgets, LabelSelector, Pool
from core.config.prices import Price
from core.config.settings import Config
from core.eligibility.scalability import GROUPS_SHOWN, OTHER
from core.engine.leader_state import LeaderState
from core.engine.reconcile import reconcile
from core.history.days import DAY_SECONDS, PoolDay
from core.marks.wellknown import KARPENTER_LABEL
from core.model.cluster import Cluster
from core.model.constraints import NodeConstraints
from core.model.node import Node
from core.model.pod import Pod
from core.policies.all import POLICIES
from kube.cluster_kinds import KINDS
from tests.support.builders import config, marked, node, pod

T = 10**9
SERIES_MAX = 700
SERIES_PER_POOL_MAX = 25
REACHES = 12


class Nodes:
    """A store that nothing is written to."""

    async def get(self, key: str) -> None:
        raise AssertionError(key)

    async def write(self, write: object, version: str) -> tuple[Node, str]:
        raise AssertionError(write, version)


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


def test_figures_of_reconciler_are_exported_and_counters_survive_the_loss_of_the_lease() -> None:
    leading = True
    metrics = Metrics(is_leading=lambda: leading)
    prices = (Price(node_selector=(), price=Fraction(3)),)
    settings = config(prices=prices)
    reconciler = Reconciler(settings, Nodes(), owner="me", metrics=metrics)
    full = pod("p", "a", 3900, 7900)
    released = marked(node("z"), since=T)
    for nodes, at in ((["a"], T + 10), (["a"], T + 3610 // 10)):
        if at == T + 10:
            reconciler.evaluate(Cluster.of([node("a"), released], [full]), T)
        reconciler.evaluate(Cluster.of([node(name) for name in nodes], [full]), at)
    saved = "ebb_estimated_savings_node_seconds_total"
    assert value(metrics, saved) == 351
    assert value(metrics, "ebb_estimated_savings_cost_total") == pytest.approx(3 * 351 / 3600)
    assert value(metrics, "ebb_nodes", pool="", state="needed") == 1
    assert value(metrics, "ebb_nodes", pool="", state="leaving") == 0
    reconciler.begin()
    reconciler.evaluate(Cluster.of([node("a")], [full]), T + 1000)
    assert value(metrics, saved) == 351
    leading = False
    assert value(metrics, saved) == 351
    assert value(metrics, "ebb_nodes", pool="", state="needed") is None


def test_next_reconciler_continues_the_day_and_metrics_do_not_jump() -> None:
    first = Reconciler(config(), Nodes(), owner="me", metrics=Metrics())
    full, released = pod("p", "a", 3900, 7900), marked(node("z"), since=T)
    before = first.to_store
    assert before is None
    first.evaluate(Cluster.of([node("a"), released], [full]), T)
    first.count_moved_pod("z")
    first.evaluate(Cluster.of([node("a"), released], [full]), T + 10)
    past = {T // DAY_SECONDS - 1: PoolDay(removed=5), T // DAY_SECONDS - 30: PoolDay(removed=9)}
    stored, metrics = first.to_store, Metrics(past=lambda: past)
    assert stored
    second = Reconciler(config(), Nodes(), owner="other", metrics=metrics)
    second.restore(stored)
    before = second.to_store
    assert before is None, "nobody may store figures that do not continue yet"
    second.evaluate(Cluster.of([node("a")], [full]), T + 30)
    second.evaluate(Cluster.of([node("a")], [full]), T + 50)
    today = second.to_store
    assert today
    (removed,) = today.removed
    assert (removed.node, removed.moved, removed.removed_at) == ("z", 1, T + 30)
    total = today.day.total
    assert (total.marks, total.removed, total.moved, total.saved_seconds) == (1, 1, 1, 20)
    assert value(metrics, "ebb_estimated_savings_node_seconds_total") == 20
    assert value(metrics, "ebb_today_removed_nodes", pool="") == 1
    assert value(metrics, "ebb_today_estimated_savings_node_seconds", pool="") == 20
    assert value(metrics, "ebb_today_removed_nodes_moved_pods", pool="") == 1
    assert value(metrics, "ebb_last_30_days_removed_nodes") == 6


def test_figures_of_30_days_are_absent_unless_the_leader_knows_past_days() -> None:
    leading, known = True, True
    metrics = Metrics(is_leading=lambda: leading, past=lambda: {} if known else None)
    reconciler = Reconciler(config(), Nodes(), owner="me", metrics=metrics)
    name = "ebb_last_30_days_moved_pods"
    assert value(metrics, name) is None
    reconciler.evaluate(Cluster.of([node("a")], []), T)
    assert value(metrics, name) == 0
    leading = False
    assert value(metrics, name) is None, "a sum counts the figures of one leader only"
    leading, known = True, False
    reconciler.evaluate(Cluster.of([node("a")], []), T + 10)
    assert value(metrics, name) is None


@pytest.mark.parametrize("policy", POLICIES)
def test_groups_of_plan_are_exported_under_every_policy(policy: str) -> None:
    spot = {"type": "spot"}
    nodes = [
        node("named", 4000, 4000, labels={**spot, KARPENTER_LABEL: "general"}),
        node("spot", 4000, 4000, labels=spot),
        node("plain", 4000, 4000),
        node("cordoned", unschedulable=True),
    ]
    pods = [pod(of, of, 1000, 1000) for of in ("named", "spot", "plain")]
    pools = (
        Pool(
            name="spot", selector=LabelSelector(match_labels=tuple(spot.items())), budget=Budget()
        ),
        Pool(
            name="empty",
            selector=LabelSelector(match_labels=(("type", "other"),)),
            budget=Budget(),
        ),
    )
    asked = Config(policy=policy, budgets=Budgets(pools=pools))
    metrics, result = Metrics(), reconcile(Cluster.of(nodes, pods), asked, LeaderState(), T)
    metrics.report_figures(Figures(), Figures().observe(result), changed=True)
    cpu = {"resource": "cpu", "unit": "core"}
    found = {
        name: (
            value(metrics, "ebb_pool_nodes", pool=name),
            value(metrics, "ebb_pool_pods", pool=name),
            value(metrics, "ebb_pool_requests", pool=name, **cpu),
            value(metrics, "ebb_pool_allocatable", pool=name, **cpu),
        )
        for name in ("", "spot", "general", "empty")
    }
    whole, absent = (1, 1, 1, 4), (None,) * 4
    assert found == {"": whole, "spot": whole, "general": whole, "empty": absent}


def test_small_groups_beyond_the_limit_share_their_series() -> None:
    nodes = [
        node(f"n{n}", labels={KARPENTER_LABEL: f"g{n % (GROUPS_SHOWN + 9)}"}) for n in range(209)
    ]
    metrics, result = Metrics(), reconcile(Cluster.of(nodes, []), config(), LeaderState(), T)
    metrics.report_figures(Figures(), Figures().observe(result), changed=True)
    found = {
        sample.labels["pool"]: sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == "ebb_pool_nodes"
    }
    assert len(found) == GROUPS_SHOWN + 1
    assert (found["g0"], found[OTHER]) == (2, 9)


def large(pools: int) -> Metrics:
    """Return the metrics of a leader of 5,000 nodes with as many reaches as metrics show."""
    labels = [
        {"pool": f"p{n % max(pools, 1)}", "reach": f"r{n % (2 * REACHES)}"} for n in range(5000)
    ]
    nodes = [
        node(f"n{n}", labels=labels[n], extended=(("nvidia.com/gpu", 8),)) for n in range(5000)
    ]
    pods: list[Pod] = []
    for n in range(2 * REACHES):
        node_constraints = NodeConstraints(
            node_selector=(("reach", f"r{n}"),), extended=("nvidia.com/gpu",)
        )
        pods.append(
            pod(
                f"w{n}",
                f"n{n}",
                100,
                100,
                node_constraints=node_constraints,
                extended=(("nvidia.com/gpu", 1),),
            )
        )
    found = tuple(
        Pool(
            name=f"p{n}",
            selector=LabelSelector(match_labels=(("pool", f"p{n}"),)),
            budget=Budget(),
        )
        for n in range(pools)
    )
    metrics = Metrics(past=dict)
    result = reconcile(
        Cluster.of(nodes, pods), Config(budgets=Budgets(pools=found)), LeaderState(), T
    )
    metrics.reconciliation_gauges.report(result)
    later = replace(result, at=T + 10)
    metrics.report_figures(Figures(), Figures().observe(result).observe(later), changed=True)
    for kind in KINDS:
        metrics.watch_age.labels(kind.resource).set(1)
        metrics.unreadable_objects.labels(kind.resource).set(0)
        for verb in ("list", "watch"):
            metrics.count_request(verb, "200")
    for code in ("200", "201", "404", "409", "429", "500", "error"):
        for verb in ("get", "create", "patch", "update", "delete"):
            metrics.count_request(verb, code)
    return metrics


def series(metrics: Metrics) -> int:
    return sum(not line.startswith("#") for line in metrics.text().decode().splitlines())


def test_number_of_series_is_bounded() -> None:
    """The label values that are rare, such as codes, are counted as if all had been seen."""
    three, four = series(large(3)), series(large(4))
    codes = 40
    """Reason codes of a real cluster at one time; each has a series in two metrics."""
    assert three + 2 * codes < SERIES_MAX, three
    assert four - three <= SERIES_PER_POOL_MAX
