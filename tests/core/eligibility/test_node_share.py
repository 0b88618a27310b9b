"""How many pods moves and evictions may place on one node, whatever it claims."""

from dataclasses import replace
from typing import Any

import pytest

from core.eligibility.node_share import NODE_SHARE_MIN, WINDOW_SECONDS, NodeShares
from core.model.cluster import Cluster
from core.model.node import Node
from core.model.now import Now
from core.model.pod import Pod
from tests.support.builders import marked, node, pod

NOW = 1_767_225_600
NODES = [node(name) for name in "abc"]


def pods(on: str, many: int, age: int = 10**6, **changes: Any) -> list[Pod]:
    made = (pod(f"{on}-{age}-{number}", on, 1, 1) for number in range(many))
    return [
        replace(one, **{"owner_kind": "ReplicaSet", "created_seconds": NOW - age, **changes})
        for one in made
    ]


def shares(*held: list[Pod], nodes: list[Node] = NODES) -> NodeShares:
    return NodeShares(Cluster.of(nodes, [one for some in held for one in some]), Now(NOW))


@pytest.mark.parametrize(
    ("held", "share"),
    [
        ((), NODE_SHARE_MIN),
        ((2, 2, 2), NODE_SHARE_MIN),
        ((30, 30, 30), 15),
        ((29, 29, 29), 15),
        ((20, 30, 30), 15),
        ((30, 30, 1000), 15),
    ],
)
def test_share_is_half_of_what_the_typical_node_has(held: tuple[int, ...], share: int) -> None:
    made = shares(*(pods(name, many) for name, many in zip("abc", held, strict=False)))
    assert made.share == share


def test_no_pod_is_moved_once_a_node_has_got_its_share() -> None:
    """kube-scheduler could choose this node for any pod."""
    below = shares(pods("a", 3, age=1))
    assert below.why_not("a") is below.why_not("b") is None
    full = shares(pods("a", 4, age=WINDOW_SECONDS - 1))
    assert full.why_not("a") == full.why_not("b") == "node a has got 4 pods within 10 minutes"
    assert shares(pods("a", 4, age=WINDOW_SECONDS)).why_not("a") is None


def test_place_gets_no_more_than_its_share() -> None:
    made = shares(pods("a", 2, age=1))
    for _ in range(2):
        assert made.why_not("a") is None
        made.take("a")
    assert made.why_not("a") == "node a has got 4 pods within 10 minutes"
    assert made.why_not("b") is None


@pytest.mark.parametrize(
    "other",
    [
        replace(NODES[0], created_seconds=NOW - 2 * WINDOW_SECONDS + 1),
        replace(NODES[0], unschedulable=True),
        replace(NODES[0], deleting=True),
        marked(NODES[0]),
    ],
    ids=["new", "cordoned", "leaving", "marked"],
)
def test_node_that_gets_no_replacements_holds_back_no_move(other: Node) -> None:
    made = shares(pods("a", 9, age=1), nodes=[other, *NODES[1:]])
    assert made.why_not("b") is None


@pytest.mark.parametrize("kind", ["Job", "DaemonSet", "Node", ""])
def test_other_pods_do_not_count(kind: str) -> None:
    assert shares(pods("a", 9, age=1, owner_kind=kind)).why_not("a") is None
