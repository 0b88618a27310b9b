"""ClusterPods has all pods that the creation of a Cluster looks at."""

from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.cluster.assumptions import assume
from core.cluster.build import build_cluster
from core.cluster.default_spread import DefaultSpread, with_default_spread
from core.cluster.read_options import KNOWN_SCHEDULERS, judged_by
from core.cluster.tenant_limits import within_budget
from core.model.cluster import Cluster
from core.model.cluster_pods import ClusterPods, SortedPods, is_special
from core.model.node import Node
from core.model.pod import Pod
from kube.cluster_kinds import Lists, cluster_objects
from kube.decode.kinds import NODES, PODS
from tests.support.builders import node
from tests.support.cluster_pods import cluster_pods
from tests.support.inventory_steps import OBJECTS

POD_VERSIONS: Final[list[Pod]] = [one for kind, one in OBJECTS if kind is PODS]
SPREAD: Final = (DefaultSpread("zone", 1),)
PODS_BY_NAME: Final = st.lists(st.sampled_from(POD_VERSIONS), unique_by=lambda pod: pod.key)


@given(st.lists(st.sampled_from(POD_VERSIONS)), st.integers(0, 9))
def test_updated_pods_equal_listed_pods(changes: list[Pod], first: int) -> None:
    """The pods after the first few replace another version, or delete the pod if it is equal."""
    known = {pod.key: pod for pod in changes[:first]}
    updated = SortedPods(known.values())
    for after in changes[first:]:
        before = known.pop(after.key, None)
        if before is after:
            updated.update(before, None)
        else:
            updated.update(before, after)
            known[after.key] = after
    found, pods = updated.snapshot(), [*known.values()]
    assert found == SortedPods(pods).snapshot()
    assert list(found.all) == sorted(pods, key=lambda pod: (pod.namespace, pod.name))
    assert list(found.special) == [pod for pod in found.all if is_special(pod)]
    assert found.counts == Counter(pod.namespace for pod in pods)
    keys = {
        (pod.namespace, id(pod.node_constraints), id(pod.pod_constraints), pod.mirror)
        for pod in pods
    }
    assert found.shared.keys() == keys


def cluster_of(pods: ClusterPods, nodes: list[Node], schedulers: Collection[str]) -> Cluster:
    pods, _ = judged_by(schedulers, pods, {})
    pods, _ = assume(nodes, pods, {})
    objects = cluster_objects(Lists(lambda kind: [one for of, one in OBJECTS if of is kind]))
    return build_cluster(replace(objects, nodes=nodes, pods=pods))


@pytest.mark.parametrize(
    "schedulers", [KNOWN_SCHEDULERS, (*KNOWN_SCHEDULERS, "volcano"), KNOWN_SCHEDULERS[:1], ()]
)
@pytest.mark.parametrize("nodes", [[], [node("n")], [one for of, one in OBJECTS if of is NODES]])
@given(PODS_BY_NAME)
def test_cluster_is_the_same_when_all_pods_are_searched(
    schedulers: Collection[str], nodes: list[Node], pods: list[Pod]
) -> None:
    few = cluster_pods(*pods)
    every = replace(few, special=few.all)
    assert cluster_of(few, nodes, schedulers) == cluster_of(every, nodes, schedulers)


@given(PODS_BY_NAME)
def test_budget_is_the_same_when_pods_have_other_versions(pods: list[Pod]) -> None:
    replaced, _ = with_default_spread(SPREAD, cluster_pods(*pods), {})
    listed = cluster_pods(*replaced.all)
    for budget in range(90, 300, 10):
        assert within_budget(replaced, budget).all == within_budget(listed, budget).all
