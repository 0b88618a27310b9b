"""How many pods moves and evictions may place on one node, whatever it claims."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.engine.node_share import (
    SHARE_MIN,
    WINDOW_SECONDS,
    NodeShares,
    Placement,
    first_placed,
    within_window,
)
from core.marks.wellknown import TAINT_KEY
from core.model.constraints import NodeConstraints, Toleration
from core.model.node import Node, Taint
from core.model.now import Now
from core.model.pod import DETACHED_LABEL, Pod
from tests.support.builders import marked, node, pod
from tests.support.examples import examples

NOW = 1_767_225_600
POD = pod("p", "a", 1, 1)
THEIRS = Taint("theirs", "", "NoSchedule")
TOLERANT = replace(POD, node_constraints=NodeConstraints(tolerations=(Toleration("theirs"),)))
NOT_READY = Taint("node.kubernetes.io/not-ready", "", "NoExecute")


def pods(on: str, many: int, owner_kind: str = "ReplicaSet") -> list[Pod]:
    made = (pod(f"{on}-{number}", on, 1, 1) for number in range(many))
    return [replace(one, owner_kind=owner_kind) for one in made]


def placed(on: str, many: int, at: int = NOW) -> list[Placement]:
    return [Placement(f"{on}-{number}", on, at) for number in range(many)]


def may_get(shares: NodeShares, one: Pod = POD) -> int | None:
    """Return how many pods may be replaced before any has a node; None if there is no bound."""
    for count in range(100):
        if shares.why_not(one) is not None:
            return count
        shares.take()
    return None


def shares(
    *held: int,
    got: list[Placement] | None = None,
    unplaced: int = 0,
    kind: str = "ReplicaSet",
    others: Iterable[Pod] = (),
    **changed: Any,
) -> NodeShares:
    """Return the shares of nodes a, b, ... that hold so many pods; *changed*: of node a."""
    nodes = [node(name) for name, _ in zip("abcdefgh", held, strict=False)]
    nodes[0] = changed.pop("first", nodes[0])
    nodes[0] = replace(nodes[0], **changed)
    on = [pods(one.name, many, kind) for one, many in zip(nodes, held, strict=True)]
    return NodeShares(
        nodes,
        [*others, *(one for some in on for one in some)],
        got or [],
        unplaced=unplaced,
        taint_key=TAINT_KEY,
    )


@pytest.mark.parametrize(
    ("held", "share"),
    [
        ((0, 0, 0), SHARE_MIN),
        ((2, 2, 2), SHARE_MIN),
        ((20, 0), 20),  # one of two nodes may take all pods of the other one
        ((20, 20), 40),
        ((30, 30, 30), 45),
        ((20, 0, 0), 10),
        ((10, 10, 10, 10, 10), 13),
    ],
)
def test_share_is_what_each_node_would_have_with_one_node_less(
    held: tuple[int, ...], share: int
) -> None:
    assert may_get(shares(*held)) == share


@pytest.mark.parametrize("kind", ["Job", "DaemonSet", "Node", ""])
def test_pods_that_no_controller_replaces_for_long_raise_no_share(kind: str) -> None:
    assert may_get(shares(30, 30, 30, kind=kind)) == SHARE_MIN


@pytest.mark.parametrize("leaves", [{"terminating": True}, {"labels": {DETACHED_LABEL: "1"}}])
def test_pods_that_are_being_replaced_raise_no_share(leaves: dict[str, Any]) -> None:
    others = [replace(one, **leaves) for one in pods("a", 20)]
    assert may_get(shares(4, 4, 4, others=others)) == 6


def test_share_depends_neither_on_capacity_nor_on_marks_nor_on_states_that_kubelets_write() -> (
    None
):
    usual = may_get(shares(9, 9, 9))
    assert usual == 14
    liar = node("a", 1_000_000_000, 4_000_000_000)
    assert may_get(shares(9, 9, 9, first=liar)) == usual
    for changed in (
        {"unschedulable": True},
        {"ready": False},
        {"taints": (NOT_READY,)},
        {"labels": {"pool": "x"}},
    ):
        assert may_get(shares(9, 9, 9, **changed)) == usual, changed
    assert may_get(shares(9, 9, 9, first=marked(node("a")))) == usual


def test_placements_and_pods_without_node_count_together() -> None:
    assert may_get(shares(2, 2, 2, got=placed("b", 3))) == 1
    assert may_get(shares(2, 2, 2, got=placed("b", 2), unplaced=1)) == 1
    full = shares(2, 2, 2, got=placed("b", 4))
    assert full.why_not(POD) == (
        "within 10 minutes a node may get 4 replacements of pods: node b has got 4, and 0 more "
        "have no node yet"
    )
    spread = [*placed("a", 3), *placed("b", 3), *placed("c", 3)]
    assert may_get(shares(2, 2, 2, got=spread)) == 1, "the sum of all nodes is not bounded"


def test_node_with_taint_stops_only_pods_that_tolerate_it() -> None:
    full = shares(2, 2, 2, got=placed("a", 4), taints=(THEIRS,))
    assert full.why_not(POD) is None
    assert full.why_not(TOLERANT) is not None


def test_nodes_with_taint_lower_no_share_of_pods_that_do_not_tolerate_it() -> None:
    """As with the nodes of a control plane."""
    assert may_get(shares(0, 20, 0, taints=(THEIRS,))) == 20
    assert may_get(shares(0, 20, 0, taints=(THEIRS,)), TOLERANT) == 10


def test_deleted_node_and_its_successor_of_same_name_stop_nothing() -> None:
    assert shares(2, 2, 2, got=placed("gone", 9)).why_not(POD) is None
    again = shares(2, 2, 2, got=placed("a", 9), created_seconds=NOW + 1)
    assert again.why_not(POD) is None
    same = shares(2, 2, 2, got=placed("a", 9), created_seconds=NOW)
    assert same.why_not(POD) is not None


def test_placements_are_forgotten_after_the_window() -> None:
    found = {"u": Placement("p", "a", NOW)}
    assert within_window(found, Now(NOW + WINDOW_SECONDS - 1)) == found
    assert within_window(found, Now(NOW + WINDOW_SECONDS)) == {}


def test_oldest_pod_with_a_node_is_the_replacement() -> None:
    new = [
        replace(pod("late", "b", 1, 1), uid="2", created_seconds=NOW - 1),
        replace(pod("soon", "c", 1, 1), uid="3", created_seconds=NOW - 2),
        replace(pod("waits", None, 1, 1), uid="1", created_seconds=NOW - 3),
    ]
    assert first_placed(new, Now(NOW)) == Placement("3", "c", NOW)
    assert first_placed(new[2:], Now(NOW)) is None


@given(
    held=st.lists(st.integers(0, 12), min_size=2, max_size=6),
    steps=st.lists(
        st.tuples(st.sampled_from(("replace", "bind", "wait")), st.integers(0, 300)), max_size=150
    ),
    greedy=st.booleans(),
)
@settings(max_examples=examples(200))
def test_no_node_gets_more_than_its_share_within_any_window(
    held: list[int], steps: list[tuple[str, int]], *, greedy: bool
) -> None:
    """Law: wherever kube-scheduler places the replaced pods, and however late."""
    nodes: list[Node] = [node(f"n{number}") for number in range(len(held))]
    running = [one for on, many in zip(nodes, held, strict=True) for one in pods(on.name, many)]
    share = max(SHARE_MIN, -(-sum(held) // (len(held) - 1)))
    now, unplaced, done = NOW, 0, list[Placement]()
    for step, number in steps:
        if step == "wait":
            now += number
        elif step == "bind" and unplaced:
            unplaced -= 1
            to = nodes[0 if greedy else number % len(nodes)].name
            done.append(Placement(str(len(done)), to, now))
        elif step == "replace":
            recent = within_window({one.pod: one for one in done}, Now(now))
            made = NodeShares(
                nodes, running, recent.values(), unplaced=unplaced, taint_key=TAINT_KEY
            )
            for _ in range(number):
                if made.why_not(POD) is not None:
                    break
                made.take()
                unplaced += 1
    for last in done:
        window = [one for one in done if last.at - WINDOW_SECONDS < one.at <= last.at]
        assert max(Counter(one.node for one in window).values()) <= share
