"""Unreadable objects and pods beyond limits keep their own node and no other."""

from dataclasses import replace

import pytest

from core.eligibility.unplaceable import ASKS_TOO_MUCH
from core.engine import reconcile
from core.engine.plan import Plan
from core.model.cluster import Cluster
from core.model.node import Node
from core.model.pod import Pod
from core.model.reason import Blocker
from core.model.resources import Resources
from tests.support.builders import node, pod, thesis_config

pytestmark = pytest.mark.mutate

CONFIG = thesis_config()
BLIND = Node(name="n1", allocatable=Resources(), unreadable="status.allocatable: missing")


def _plan(nodes: list[Node], pods: list[Pod]) -> Plan:
    return reconcile.plan(Cluster.of(nodes, pods), CONFIG)


def _codes(plan: Plan, name: str) -> list[str]:
    found = [kept.blockers for kept in plan.kept if kept.node == name]
    return [blocker.code for blocker in found[0]] if found else []


def _nodes(count: int) -> list[Node]:
    return [node(f"n{number}") for number in range(1, count + 1)]


def _unreadable(on: str | None) -> Pod:
    return Pod(namespace="d", name="x", node=on, unreadable="spec.containers: wrong")


def test_node_with_unreadable_pod_is_kept_and_gets_no_pods() -> None:
    pods = [pod("a", "n1", 100, 100), _unreadable("n2")]
    found = _plan(_nodes(3), pods)
    assert "pod-unreadable" in _codes(found, "n2")
    assert [removal.node for removal in found.removals]  # other nodes are evaluated as usual
    placed = {place.node for one in found.removals for place in one.placements}
    assert "n2" not in placed


def test_unreadable_pending_pod_changes_no_plan() -> None:
    pods = [pod("a", "n1", 100, 100)]
    assert _plan(_nodes(3), [*pods, _unreadable(None)]) == _plan(_nodes(3), pods)


def test_unreadable_node_is_kept_and_gets_no_pods() -> None:
    pods = [pod("a", "n2", 100, 100), pod("b", "n1", 50, 50)]
    found = _plan([BLIND, node("n2"), node("n3")], pods)
    assert "unreadable" in _codes(found, "n1")
    assert [removal.node for removal in found.removals] == ["n3"]


def test_pod_beyond_limit_keeps_its_node() -> None:
    greedy = replace(pod("a", "n1", 100, 100), too_much="5,000 terms, over 64")
    found = _plan(_nodes(3), [greedy])
    kept = next(kept for kept in found.kept if kept.node == "n1")
    assert (
        Blocker(ASKS_TOO_MUCH, "exceeds a limit of Ebb: 5,000 terms, over 64", "d/a")
        in kept.blockers
    )
    assert {removal.node for removal in found.removals} == {"n2", "n3"}


def test_daemon_pod_beyond_limit_does_not_keep_its_node() -> None:
    greedy = replace(pod("a", "n1", 100, 100, daemon=True), too_much="5,000 terms, over 64")
    found = _plan([*_nodes(2), node("n3")], [greedy, pod("b", "n2", 100, 100)])
    assert "n1" in {removal.node for removal in found.removals}
