"""What is large is freed for itself."""

import weakref

import pytest

from core.config.settings import Config
from core.engine.memory import Memory
from core.engine.pieces import let_go
from core.engine.step import step, trial
from core.engine.survey import Survey
from core.model.cluster import Cluster
from tests.support.builders import UNLIMITED, node, pod

pytestmark = pytest.mark.mutate

CONFIG = Config(budgets=UNLIMITED)
LARGE = 40


class Piece:
    """Something that is known to be freed."""


def crowded() -> Cluster:
    """Return a cluster on whose first node more pods are than there are nodes."""
    pods = [pod(f"p{number}", "n0", 10, 10) for number in range(LARGE)]
    return Cluster.of([node("n0"), node("n1")], pods)


def test_each_is_freed_before_the_next() -> None:
    one, other = Piece(), Piece()
    left: list[object] = [one, other]
    alive: list[int] = []
    weakref.finalize(one, lambda: alive.append(len(left)))
    weakref.finalize(other, lambda: alive.append(len(left)))
    del one, other
    let_go(left)
    assert alive == [1, 0]


def test_the_pods_of_each_node_are_a_piece_of_a_plan() -> None:
    work, _ = trial(Survey(crowded(), CONFIG))
    pieces = work.pieces()
    assert any(one is work.packer.pods for one in pieces)
    for on in work.packer.on:
        assert any(one is on for one in pieces)


def test_all_pods_and_each_group_of_them_are_pieces_of_a_pass() -> None:
    found = step(crowded(), CONFIG, Memory(), 0)
    pieces = found.pieces()
    census = found.survey.census
    for large in (found.plan.kept, census.pods, *census.groups.values()):
        assert any(one is large for one in pieces)
