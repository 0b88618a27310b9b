"""A node that claims too much capacity draws few pods of others by surge moves."""

from dataclasses import replace

from core.moves.planner import MoveMemory, MovePlan
from tests.core.moves.test_planner import chosen, marked_node, objects
from tests.support.builders import node
from tests.support.surge import NOW, deployment, make_move, make_pod

MANY = 8
OF_MANY = objects(
    *(deployment(name=f"d{n}", replica_set=f"d{n}-1", replicas=1, pods=1, updated=1, available=1)
      for n in range(MANY))
)  # fmt: skip
NODES = [marked_node("m"), marked_node("k"), node("liar", 1_000_000, 4_000_000)]
PODS = [make_pod(f"p{n}", "mk"[n % 2], of=f"d{n}-1") for n in range(MANY)]


def waits(found: MovePlan) -> set[str]:
    return {blocker.code for blocker in found.waits}


def test_node_gets_its_share_whatever_it_claims() -> None:
    found = chosen(PODS, OF_MANY, nodes=NODES)
    assert len(found.begin) == 4
    assert waits(found) == {"surge-node-share"}
    assert found.waits[0].message == "node liar has got 4 pods within 10 minutes"


def test_moves_in_progress_count() -> None:
    own = {
        pod.uid: make_move(pod=pod.name, uid=pod.uid, node=pod.node, replica_set=pod.owner_name,
                           deployment_uid=f"other-{pod.name}")
        for pod in PODS[:3]
    }  # fmt: skip
    found = chosen(PODS, OF_MANY, nodes=NODES, memory=MoveMemory(own=own))
    assert len(found.begin) == 1


def test_pods_that_arrived_count_for_ten_minutes() -> None:
    new = [
        replace(make_pod(f"new{n}", "liar", of="web-0"), created_seconds=NOW - 599)
        for n in range(4)
    ]
    found = chosen([*PODS, *new], OF_MANY, nodes=NODES)
    assert (found.begin, waits(found)) == ((), {"surge-node-share"})
    assert chosen([*PODS, *new], OF_MANY, nodes=NODES, now_seconds=NOW + 1).begin


def test_share_does_not_depend_on_the_pods_of_the_node_itself() -> None:
    old = [
        replace(make_pod(f"old{n}", "liar", of="web-0"), created_seconds=NOW - 10**6)
        for n in range(40)
    ]
    found = chosen([*PODS, *old], OF_MANY, nodes=NODES)
    assert len(found.begin) == 4
