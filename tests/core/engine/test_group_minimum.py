"""Node groups keep the minimum that Cluster Autoscaler publishes, whatever else a plan does."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from core.config.settings import Config, Scope
from core.engine import reconcile
from core.engine.leader_state import RateLimits
from core.engine.plan import Plan
from core.engine.planner import PlanOptions
from core.engine.protection import protected_unmarked
from core.engine.snapshot import ClusterSnapshot
from core.marks.mark import Mark
from core.marks.wellknown import KARPENTER_LABEL, KEEP_ANNOTATION
from core.model.cluster import Cluster
from core.model.node import Effect, Node, Taint
from core.model.node_groups import AutoscalerStatus, NodeGroup, NodePool
from tests.support.builders import config, marked, node, pod
from tests.support.restraints import paced

pytestmark = pytest.mark.mutate

LABEL = "kubernetes.azure.com/agentpool"
TINY = pod("tiny", None, 0, 0)
LEAVES = Taint("ToBeDeletedByClusterAutoscaler", "1", Effect.NO_SCHEDULE)
PLAIN = config()


def group(name: str, count: int, start: int = 0) -> list[Node]:
    return [node(f"{name}{n}", labels={LABEL: name}) for n in range(start, start + count)]


def there(nodes: Sequence[Node], **minimums: int) -> Cluster:
    groups = tuple(NodeGroup(f"aks-{name}-1-vmss", least) for name, least in minimums.items())
    status = AutoscalerStatus(
        namespace="kube-system", name="cluster-autoscaler-status", groups=groups
    )
    return replace(Cluster.of(nodes, [TINY]), autoscaler_statuses=(status,))


def plan(cluster: Cluster, asked: Config = PLAIN, rate_limits: RateLimits | None = None) -> Plan:
    return reconcile.plan(cluster, asked, PlanOptions(limits=rate_limits))


def gone(found: Plan) -> list[str]:
    return sorted(one.node for one in found.removals)


KEEPER = node("keeper", annotations={KEEP_ANNOTATION: "true"})


@pytest.mark.parametrize(("least", "goes"), [(0, 5), (1, 4), (2, 3), (4, 1), (5, 0), (9, 0)])
def test_so_many_of_a_group_stay(least: int, goes: int) -> None:
    found = plan(there([*group("a", 5), KEEPER], a=least))
    assert len(gone(found)) == goes
    if goes < 5:
        messages = {
            why.message
            for kept in found.kept
            for why in kept.blockers
            if why.code == "not-scalable"
        }
        (message,) = messages
        assert "node group aks-a-1-vmss would have" in message
        assert message.endswith(f"; its minimum is {least}")


def test_at_minimum_0_the_last_node_may_go() -> None:
    assert "a0" in gone(plan(there([*group("a", 1), KEEPER], a=0)))


def test_each_group_has_a_minimum_of_its_own() -> None:
    found = gone(plan(there([*group("a", 3), *group("b", 3), KEEPER], a=1, b=3)))
    assert len([one for one in found if one.startswith("a")]) == 2
    assert not [one for one in found if one.startswith("b")]


def test_unpublished_group_has_no_minimum() -> None:
    found = gone(plan(there([*group("a", 3), KEEPER], b=3)))
    assert [one for one in found if one.startswith("a")] == ["a0", "a1", "a2"]


@pytest.mark.parametrize("rate_limits", [None, paced()])
def test_marked_nodes_count_as_gone(rate_limits: RateLimits | None) -> None:
    first, second, *others = group("a", 5)
    nodes = [
        marked(first, Mark.PREFER_NO_SCHEDULE, 1),
        marked(second, Mark.NO_SCHEDULE, 2),
        *others,
        KEEPER,
    ]
    found = gone(plan(there(nodes, a=2), rate_limits=rate_limits))
    assert {first.name, second.name} < set(found)
    assert len([one for one in found if one.startswith("a")]) == 3


def test_newest_marks_below_group_minimum_are_removed_first() -> None:
    nodes = [marked(one, Mark.PREFER_NO_SCHEDULE, 1 + n) for n, one in enumerate(group("a", 3))]
    found = gone(plan(there([*nodes, KEEPER], a=2)))
    assert [one for one in found if one.startswith("a")] == ["a0"]


def test_leaving_nodes_count_as_gone() -> None:
    first, *others = group("a", 4)
    found = gone(plan(there([replace(first, taints=(LEAVES,)), *others, KEEPER], a=2)))
    assert len([one for one in found if one.startswith("a")]) == 1


def test_nodes_that_are_not_ready_count_as_their_autoscaler_counts_them() -> None:
    first, *others = group("a", 3)
    found = gone(plan(there([replace(first, ready=False), *others, KEEPER], a=2)))
    assert len([one for one in found if one.startswith("a")]) == 1


def test_not_scalable_node_gets_no_scale_down_protection() -> None:
    pools = (NodePool(name="s", fixed="keeps a fixed number of nodes"), NodePool(name="d"))
    nodes = [node(name, labels={KARPENTER_LABEL: name[0]}) for name in ("s1", "d1", "d2")]
    cluster = replace(Cluster.of(nodes, []), node_pools=pools)
    protection = replace(PLAIN.scale_down_protection, scope=Scope.EMPTY)
    asked = replace(PLAIN, scale_down_protection=protection)
    found = protected_unmarked(ClusterSnapshot(cluster, asked), (), paced())
    assert "s1" not in found
    assert "d1" in found
