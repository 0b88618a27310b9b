"""A node that claims too much capacity draws few pods of others by surge moves."""

from core.engine.node_share import Placement
from core.moves.planner import MoveMemory, MovePlan
from core.writes.costs import MOVE_COST
from tests.core.moves.test_planner import chosen, marked_node, objects
from tests.support.builders import node
from tests.support.surge import NOW, cost, deployment, make_move, make_pod

MANY = 8
OF_MANY = objects(
    *(deployment(name=f"d{n}", replica_set=f"d{n}-1", replicas=1, pods=1, updated=1, available=1)
      for n in range(MANY))
)  # fmt: skip
NODES = [marked_node("m"), marked_node("k"), node("liar", 1_000_000, 4_000_000)]
PODS = [make_pod(f"p{n}", "mk"[n % 2], of=f"d{n}-1") for n in range(MANY)]


def placed(*at: int) -> dict[str, Placement]:
    return {f"uid-{n}": Placement(f"new-{n}", "liar", second) for n, second in enumerate(at)}


def waits(found: MovePlan) -> set[str]:
    return {blocker.code for blocker in found.waits}


def test_node_gets_its_share_whatever_it_claims() -> None:
    found = chosen(PODS, OF_MANY, nodes=NODES)
    assert len(found.begin) == 4
    assert waits(found) == {"surge-node-share"}
    assert found.waits[0].message == (
        "within 10 minutes a node may get 4 replacements of pods: "
        "node m has got 0, and 4 more have no node yet"
    )


def test_moves_in_progress_count_once() -> None:
    own = {
        pod.uid: make_move(pod=pod.name, uid=pod.uid, node=pod.node, replica_set=pod.owner_name,
                           deployment_uid=f"other-{pod.name}")
        for pod in PODS[:3]
    }  # fmt: skip
    assert len(chosen(PODS, OF_MANY, nodes=NODES, memory=MoveMemory(own=own)).begin) == 1
    seen = {PODS[0].uid: Placement("new", "liar", NOW)}
    memory = MoveMemory(own=own, placed=seen)
    assert len(chosen(PODS, OF_MANY, nodes=NODES, memory=memory).begin) == 1
    elsewhere = {PODS[0].uid: Placement("new", "m", NOW)}
    memory = MoveMemory(own=own, placed=elsewhere | placed(NOW))
    assert len(chosen(PODS, OF_MANY, nodes=NODES, memory=memory).begin) == 1


def test_new_pods_count_for_ten_minutes() -> None:
    memory = MoveMemory(placed=placed(NOW - 599, NOW - 599, NOW, NOW))
    found = chosen(PODS, OF_MANY, nodes=NODES, memory=memory)
    assert (found.begin, waits(found)) == ((), {"surge-node-share"})
    assert len(chosen(PODS, OF_MANY, nodes=NODES, memory=memory, now_seconds=NOW + 1).begin) == 2


def test_pods_of_rollouts_and_scale_outs_do_not_count() -> None:
    new = [make_pod(f"new{n}", "liar", of="web-0", created_seconds=NOW - 1) for n in range(4)]
    assert len(chosen([*PODS, *new], OF_MANY, nodes=NODES).begin) == 6, "half of 12 pods"


def test_old_pods_of_moves_do_not_count_twice() -> None:
    old = [make_pod(f"old{n}", "m", of="web-0", **cost(MOVE_COST)) for n in range(8)]
    assert len(chosen([*PODS, *old], OF_MANY, nodes=NODES).begin) == 4


def test_one_of_two_nodes_may_get_all_pods_of_the_other() -> None:
    found = chosen(
        [make_pod(f"p{n}", "m", of=f"d{n}-1") for n in range(MANY)],
        OF_MANY,
        nodes=[NODES[0], node("n", 1_000_000, 4_000_000)],
    )
    assert len(found.begin) == MANY
