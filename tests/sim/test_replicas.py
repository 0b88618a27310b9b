"""The order in which a scale-in deletes pods, compared with the real ReplicaSet controller."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from core.model.pod import Pod
from core.writes.costs import number_of
from sim.replicas import Replica, first_deleted

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


def test_deletion_order_matches_replicaset_controller() -> None:
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
def test_invalid_deletion_cost_counts_as_0(written: str | None, counts: int) -> None:
    assert number_of(written) == counts


def on(node: str, number: int, of_cost: str | None = None) -> Replica:
    name = f"{node}-{number}"
    one = Pod(namespace="d", name=name, uid=name, node=node, deletion_cost=of_cost)
    return Replica(one, 0, 1000 + number)


def left(pods: list[Replica]) -> Counter[str | None]:
    return Counter(one.pod.node for one in first_deleted(pods, pods, 10**7)[len(pods) // 2 :])


def test_scale_in_empties_nodes_whose_pods_have_low_deletion_cost() -> None:
    """A scale-in deletes ten of twenty pods on four nodes, as observed on a real cluster."""
    nodes = ("a", "b", "c", "d")
    low = [on(node, n, "-1000" if node in "ab" else None) for node in nodes for n in range(5)]
    assert left(low) == {"c": 5, "d": 5}


def test_scale_in_counts_pods_of_all_replicasets_of_deployment() -> None:
    rolling = [on("a", 0), on("b", 0)]
    others = [on("b", 1)]
    assert first_deleted(rolling, rolling + others, 10**7)[0].pod.node == "b"
