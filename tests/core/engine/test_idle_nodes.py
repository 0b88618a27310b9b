"""Empty nodes that no pod needs: the autoscaler may remove them, as it would without Ebb."""

from dataclasses import replace
from fractions import Fraction

import pytest

from core.config.budgets import Reserve
from core.config.settings import Config, Mode, ScaleDownProtection, Scope
from core.config.thresholds import Thresholds
from core.engine.leader_state import LeaderState
from core.engine.plan import ReserveCause
from core.engine.planner_parts import headroom_pods
from core.engine.protection import kept_empty_nodes
from core.engine.reconcile import ReconcileResult, reconcile
from core.marks.wellknown import KARPENTER_LABEL
from core.model.cluster import Cluster
from core.model.node import Node
from core.model.pod import Pod
from tests.support.builders import UNLIMITED, node, pod

NOW = 1_767_225_600
GPUS = (("nvidia.com/gpu", 8),)
TIGHT = Thresholds(cpu=Fraction(1, 100), memory=Fraction(1, 100))
"""Forbids every mark."""
POOL = {KARPENTER_LABEL: "default"}


def training(requested: int = 1) -> Pod:
    return pod("training", "g0", 1000, 1000, extended=(("nvidia.com/gpu", requested),))


def gpu_nodes() -> list[Node]:
    return [node(f"g{n}", cpu=16_000, extended=GPUS) for n in range(3)]


def leader(config: Config, *pods: Pod, nodes: list[Node] | None = None) -> ReconcileResult:
    """Return the reconciliation of a leader that has observed no arrival for a day."""
    cluster = Cluster.of(nodes or gpu_nodes(), pods)
    first = reconcile(cluster, config, LeaderState(), NOW)
    return reconcile(cluster, config, first.state, NOW + 86_400, last=first)


def config(scope: Scope, *, headroom: int = 1, thresholds: Thresholds = TIGHT) -> Config:
    return Config(
        mode=Mode.ENFORCE,
        thresholds=thresholds,
        budgets=replace(UNLIMITED, headroom=headroom, reserve=Reserve()),
        scale_down_protection=ScaleDownProtection(scope=scope),
    )


@pytest.mark.parametrize("headroom", [0, 1])
def test_empty_gpu_node_is_not_kept_when_only_threshold_or_headroom_is_against_its_mark(
    headroom: int,
) -> None:
    """Each costs 32.77 an hour; the autoscaler alone would remove both."""
    found = leader(config(Scope.RESERVED, headroom=headroom), training())
    assert [kept.node for kept in found.plan.kept] == ["g0", "g1", "g2"]
    assert found.plan.protected == frozenset()
    assert kept_empty_nodes(found.snapshot, found.plan) == {}


def test_scope_empty_keeps_idle_nodes_and_says_so() -> None:
    found = leader(config(Scope.EMPTY), training())
    scope = ReserveCause.SCOPE
    assert kept_empty_nodes(found.snapshot, found.plan) == {"g1": scope, "g2": scope}


def test_scope_all_protects_no_node_of_karpenter_that_nothing_needs() -> None:
    nodes = [node("busy"), node("idle"), node("k-busy", labels=POOL), node("k-idle", labels=POOL)]
    pods = pod("p", "busy", 1000, 100), pod("k", "k-busy", 1000, 100)
    found = leader(config(Scope.ALL), *pods, nodes=nodes)
    assert found.plan.protected == {"busy", "idle"}


def test_headroom_neither_asks_for_devices_nor_keeps_an_empty_node() -> None:
    """A second training pod would fit on an empty node only."""
    found = leader(config(Scope.RESERVED, thresholds=Thresholds()), training(5))
    assert [removal.node for removal in found.plan.removals] == ["g2", "g1"]
    (headroom,) = headroom_pods(found.snapshot, 1)
    assert not headroom.requests.extended
    assert not headroom.node_constraints.extended


def test_headroom_is_kept_on_empty_node_that_stays_anyway() -> None:
    """A user keeps the node, so the pod of the other one can move there."""
    kept = node("kept", annotations={"kube-ebb.io/keep": "true"})
    loose = config(Scope.RESERVED, thresholds=Thresholds())
    found = leader(loose, pod("p", "n", 1000, 100), nodes=[kept, node("n")])
    assert [removal.node for removal in found.plan.removals] == ["n"]


def test_mode_observe_keeps_no_node() -> None:
    found = leader(replace(config(Scope.EMPTY), mode=Mode.OBSERVE), training())
    assert kept_empty_nodes(found.snapshot, found.plan) == {}
