"""Whom a scale-in deletes first, against answers of the real ReplicaSet controller."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from core.model.pod import Pod
from sim.replicas import Replica, cost, first_deleted

RECORDED = json.loads((Path(__file__).parent / "recorded" / "kubernetes.json").read_bytes())
HALF_A_SECOND_MS = 500


def replica(case: dict[str, Any]) -> Replica:
    one = Pod(
        namespace="work",
        name=case["uid"],
        uid=case["uid"],
        node=case["node"] or None,
        owner_kind="ReplicaSet",
        deletion_cost=case["cost"] or None,
    )
    ready = None if case["ready"] < 0 else 1000 * case["ready"]
    return Replica(one, 1000 * case["created"], ready)


def test_the_order_is_the_real_ones() -> None:
    for case in RECORDED["orders"]:
        pods = [replica(one) for one in case["pods"]]
        found = first_deleted(pods, pods, 1000 * case["now"] + HALF_A_SECOND_MS)
        assert [one.pod.uid for one in found] == case["order"], case


@pytest.mark.parametrize(
    ("written", "counts"),
    [
        (None, 0), ("-5", -5), ("5", 5), ("0", 0), ("+5", 0), ("05", 0), ("-0", 0), ("-05", -5),
        ("-", 0), ("x", 0),
        ("2147483647", 2**31 - 1), ("2147483648", 0), ("-2147483648", -(2**31)), ("9" * 99, 0),
    ],
)  # fmt: skip
def test_a_cost_that_the_api_does_not_allow_counts_as_none(
    written: str | None, counts: int
) -> None:
    assert cost(Pod(namespace="a", name="b", deletion_cost=written)) == counts


def on(node: str, number: int, of_cost: str | None = None) -> Replica:
    name = f"{node}-{number}"
    one = Pod(namespace="d", name=name, uid=name, node=node, deletion_cost=of_cost)
    return Replica(one, 0, 1000 + number)


def left(pods: list[Replica]) -> Counter[str | None]:
    return Counter(one.pod.node for one in first_deleted(pods, pods, 10**7)[len(pods) // 2 :])


def test_two_nodes_empty_where_their_pods_have_a_low_cost_and_none_without() -> None:
    """Twenty pods on four nodes, of which a scale-in takes ten, as it was seen on a real one."""
    nodes = ("a", "b", "c", "d")
    low = [on(node, n, "-1000" if node in "ab" else None) for node in nodes for n in range(5)]
    assert left(low) == {"c": 5, "d": 5}


def test_nodes_with_more_of_a_deployment_give_first_whichever_replicaset_they_are_of() -> None:
    rolling = [on("a", 0), on("b", 0)]
    others = [on("b", 1)]
    assert first_deleted(rolling, rolling + others, 10**7)[0].pod.node == "b"
