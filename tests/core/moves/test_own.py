"""When the leader hands its Lease over, so that its own pod can be moved."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from core.config.settings import Mode
from core.engine import reconcile
from core.model.cluster import Cluster
from core.model.constraints import NodeConstraints
from core.model.node import Node
from core.model.pod import Pod
from core.moves.objects import CONTROLLER, SurgeObjects
from core.moves.own import leader_to_replace
from core.moves.planner import MoveMemory, SurgeContext, SurgeInput
from tests.core.moves.test_planner import CONFIG, OURS, marked_node
from tests.manifests.kustomize import of_kind, render
from tests.support.builders import node
from tests.support.surge import NOW, deployment, detached, make_move, make_pod

DEPLOYMENT = deployment(
    CONTROLLER, namespace=OURS, replicas=2, pods=2, updated=2, available=2, replica_set="own-1"
)
LEADER = make_pod("leader", "m", of="own-1", namespace=OURS)
OTHER = make_pod("other", "n", of="own-1", namespace=OURS)
WEB = make_pod("web", "m")
NODES = marked_node("m"), node("n")
EXCLUDED = NodeConstraints(node_selector=(("here", "only"),))


def found(
    pods: Sequence[Pod] = (LEADER, OTHER),
    nodes: Sequence[Node] = NODES,
    config: Any = CONFIG,
    memory: MoveMemory = MoveMemory(),  # noqa: B008 it is immutable
    leader_pod: str = LEADER.key,
) -> Pod | None:
    cluster = Cluster.of(nodes, pods)
    surge_input = SurgeInput(
        cluster=cluster,
        plan=reconcile.plan(cluster, config),
        config=config,
        objects=SurgeObjects(
            deployments={DEPLOYMENT.key: DEPLOYMENT, "d/web": deployment()},
            owners={(OURS, "own-1"): DEPLOYMENT.key, ("d", "web-1"): "d/web"},
        ),
        memory=memory,
        own_namespace=OURS,
        leader_pod=leader_pod,
        now_seconds=NOW,
    )
    return leader_to_replace(SurgeContext(surge_input))


def test_name_of_controller_is_that_of_its_manifest() -> None:
    names = {one["metadata"]["name"] for one in of_kind(render(""), "Deployment")}
    assert CONTROLLER in names


def test_leader_hands_over_when_it_is_last_pod_on_marked_node() -> None:
    assert found() == LEADER


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"nodes": [node("m"), node("n")]}, id="its node is not marked"),
        pytest.param({"pods": [LEADER, OTHER, WEB]}, id="another pod is on the node"),
        pytest.param({"pods": [LEADER]}, id="no other replica"),
        pytest.param({"pods": [LEADER, replace(OTHER, ready=False)]}, id="the other is not Ready"),
        pytest.param(
            {"pods": [LEADER, replace(OTHER, node="o")], "nodes": [*NODES, marked_node("o")]},
            id="the other is on a marked node",
        ),
        pytest.param(
            {"nodes": [NODES[0], replace(node("n"), unschedulable=True), node("o")]},
            id="the other is on a cordoned node",
        ),
        pytest.param(
            {"pods": [replace(LEADER, node_constraints=EXCLUDED), OTHER]}, id="no other place"
        ),
        pytest.param(
            {"pods": [replace(LEADER, created_seconds=NOW - 1), OTHER]}, id="it has just started"
        ),
        pytest.param({"memory": MoveMemory(own={"u": make_move()})}, id="a move is in progress"),
        pytest.param(
            {"pods": [LEADER, OTHER, detached(make_pod("old", "n"))]}, id="a pod is detached"
        ),
        pytest.param({"pods": [LEADER, OTHER, make_pod("w", None, unschedulable=True)]},
                     id="pods are Pending"),
        pytest.param({"config": replace(CONFIG, mode=Mode.OBSERVE)}, id="mode observe"),
        pytest.param({"config": replace(CONFIG, pause_until_seconds=NOW + 1)}, id="paused"),
        pytest.param({"leader_pod": ""}, id="the leader is unknown"),
    ],
)  # fmt: skip
def test_leader_does_not_hand_over(changes: Mapping[str, Any]) -> None:
    assert found(**changes) is None
