"""Node shapes: the share of a node's value that a pod takes, compared between nodes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.model.resources import Resources
from extender.node_shapes import NodeShapes

GIB = 2**30
MIB = 2**20
GPU = "nvidia.com/gpu"


def machine(cores: int, gib: int, gpus: int = 0, mib: int = 0) -> Resources:
    extended = ((GPU, gpus),) if gpus else ()
    return Resources(1000 * cores, gib * GIB + mib * MIB, 0, 110, extended)


def asks(cores: int, gib: int, gpus: int = 0) -> Resources:
    return machine(cores, gib, gpus)


def shapes(nodes: dict[str, Resources]) -> NodeShapes:
    found = NodeShapes()
    for name, allocatable in nodes.items():
        found.put(name, allocatable)
    return found


def steps(
    nodes: dict[str, Resources], asked: Resources, names: list[str] | None = None
) -> dict[str, int]:
    known, names = shapes(nodes), list(nodes) if names is None else names
    there = known.of_nodes(names)
    found = known.steps(asked, there)
    return {name: found[one] for name, one in zip(names, there, strict=True)}


LARGE = {
    "cpu": machine(96, 512),
    "few": machine(104, 512, gpus=2),
    "many": machine(96, 384, gpus=8),
}


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        pytest.param(asks(12, 56), {"cpu": 0, "few": 0, "many": 2}, id="no GPU"),
        pytest.param(asks(11, 48, gpus=1), {"cpu": 0, "few": 5, "many": 0}, id="one GPU"),
        pytest.param(asks(11, 48, gpus=4), {"cpu": 0, "few": 0, "many": 0}, id="four GPUs"),
        pytest.param(asks(2, 96), {"cpu": 0, "few": 1, "many": 3}, id="memory"),
        pytest.param(asks(0, 0), {"cpu": 0, "few": 0, "many": 0}, id="no requests"),
        pytest.param(asks(900, 1), {"cpu": 0, "few": 0, "many": 0}, id="more than any node"),
    ],
)
def test_steps_are_lost_on_nodes_where_pod_wastes_other_resources(
    asked: Resources, found: dict[str, int]
) -> None:
    assert steps(LARGE, asked) == found


def test_nodes_are_compared_only_within_call() -> None:
    """kube-scheduler asks only about feasible nodes, so other nodes do not matter."""
    assert steps(LARGE, asks(12, 56), ["few", "many"]) == {"few": 0, "many": 2}
    assert steps(LARGE, asks(12, 56), ["many", "not known"]) == {"many": 0, "not known": 0}
    assert steps(LARGE, asks(12, 56), []) == {}


def test_deleted_node_is_not_compared() -> None:
    known = shapes(LARGE)
    known.forget("cpu")
    known.forget("never there")
    there = known.of_nodes(LARGE)
    assert there[0] is None
    assert known.steps(asks(12, 56), there) == {None: 0, there[1]: 0, there[2]: 2}


def test_shapes_are_bounded_when_kubelet_keeps_changing_devices() -> None:
    known = shapes(LARGE)
    for many in range(1000):
        known.put("few", machine(104, 512, gpus=2 + many))
        assert len(known._shapes) == len(known._numbers) == len(known._nodes) == 3
    known.put("few", LARGE["few"])
    there = known.of_nodes(LARGE)
    assert known.steps(asks(12, 56), there) == {there[0]: 0, there[1]: 0, there[2]: 2}


AMOUNTS = st.tuples(st.integers(1, 8), st.integers(1, 64), st.integers(0, 2))


@given(AMOUNTS, st.integers(1, 4))
def test_steps_do_not_depend_on_size_of_pod(amounts: tuple[int, int, int], times: int) -> None:
    cores, gib, gpus = amounts
    nodes = {"a": machine(64, 512, gpus=8), "b": machine(128, 512, gpus=8)}
    more = asks(times * cores, times * gib, times * gpus)
    assert steps(nodes, asks(*amounts)) == steps(nodes, more)


@given(AMOUNTS, st.lists(st.integers(0, 200), min_size=1, max_size=5))
def test_nodes_of_same_machine_type_lose_no_steps(
    amounts: tuple[int, int, int], differ: list[int]
) -> None:
    nodes = {str(at): machine(16, 60, gpus=2, mib=-mib) for at, mib in enumerate(differ)}
    assert set(steps(nodes, asks(*amounts)).values()) == {0}


@given(AMOUNTS, st.lists(AMOUNTS, min_size=1, max_size=5))
def test_cheapest_node_loses_no_step(
    amounts: tuple[int, int, int], shapes_there: list[tuple[int, int, int]]
) -> None:
    nodes = {
        str(at): machine(8 * cores, 8 * gib, gpus=gpus)
        for at, (cores, gib, gpus) in enumerate(shapes_there)
    }
    assert min(steps(nodes, asks(*amounts)).values()) == 0
