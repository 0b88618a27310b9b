"""Compare the filters with the plain rules, on mixed clusters."""

import random

import pytest

from core.marks.taints import without_our_taint
from core.marks.wellknown import TAINT_KEY
from core.model.constraints import NodeConstraints, Requirement, SelectorTerm
from core.model.node import Node
from core.model.resources import Resources
from core.placement.filters import first_failing_filter
from tests.support import mixed
from tests.support.reference_fit import admits

pytestmark = pytest.mark.law

SEEDS = 200


def test_filters_agree_with_plain_rules() -> None:
    yes = no = 0
    for seed in range(SEEDS):
        cluster = mixed.cluster(random.Random(seed))
        for pod in cluster.pods:
            for node in cluster.nodes:
                if node.unschedulable:
                    continue
                expected = admits(node, pod.node_constraints, TAINT_KEY)
                found = (
                    first_failing_filter(without_our_taint(node, TAINT_KEY), pod.node_constraints)
                    is None
                )
                assert found == expected, (seed, pod.key, node.name)
                yes, no = yes + expected, no + (not expected)
    assert min(yes, no) > 1000


def test_gt_parses_integers_like_kube_scheduler() -> None:
    """strconv.ParseInt: no underscores, 64 bits."""

    def more_than(bound: str, value: str) -> bool:
        term = SelectorTerm((Requirement("rank", "Gt", (bound,)),))
        node = Node(name="n", labels={"rank": value}, allocatable=Resources())
        return first_failing_filter(node, NodeConstraints(affinity=(term,))) is None

    assert more_than("1", "10")
    assert more_than("-1", "0")
    assert not more_than("1", "1_0")
    assert not more_than("1_0", "20")
    assert not more_than("1", "9223372036854775808")
    assert more_than("1", "9223372036854775807")
