"""Counting pods by class gives the same results as evaluating each pod."""

import random
from collections import Counter
from dataclasses import replace

import pytest

from core.eligibility.drainability import long_lived_reasons
from core.eligibility.emptiness import occupants
from core.eligibility.pod_classes import (
    TYPICAL,
    TYPICAL_POD,
    class_of,
    classes_of,
    count_long_lived_pods,
    is_typical,
    occupied_nodes,
    updated_classes,
)
from core.model.now import Now
from core.model.pod import Pod
from tests.support import mixed
from tests.support.histories import EPOCH


@pytest.mark.law
def test_classes_give_the_results_of_their_pods(seeds: range) -> None:
    for seed in seeds:
        cluster = mixed.cluster(random.Random(seed))
        classes = classes_of(cluster.pods)
        for now in (None, Now(EPOCH + 200)):
            names = {node.name for node in cluster.nodes}
            occupied = names & occupants(cluster, now).keys()
            assert occupied_nodes(cluster.nodes, classes, now) == occupied
            sticky = (pod for pod in cluster.pods if long_lived_reasons((pod,), now))
            assert count_long_lived_pods(classes, now) == Counter(
                pod.node for pod in sticky if pod.node is not None
            )


def test_updated_classes_equal_new_classes() -> None:
    pods = mixed.cluster(random.Random(1)).pods
    for cut in range(1, len(pods), 3):
        before, removed, added = classes_of(pods[:-cut]), classes_of(pods[:cut]), classes_of(pods)
        found = updated_classes(updated_classes(before, {}, added), removed, {})
        expected = classes_of((*pods[:-cut], *pods[cut:]))
        assert {key: one.by_node for key, one in found.items()} == {
            key: one.by_node for key, one in expected.items()
        }


@pytest.mark.parametrize(
    ("pod", "typical"),
    [
        (TYPICAL_POD, True),
        (replace(TYPICAL_POD, priority=-10), True),
        (replace(TYPICAL_POD, priority=-11), False),
        (replace(TYPICAL_POD, node=None), False),
        (replace(TYPICAL_POD, namespace="kube-system"), False),
        (replace(TYPICAL_POD, owner_kind="Job"), False),
        (replace(TYPICAL_POD, daemon=True), False),
        (replace(TYPICAL_POD, terminating=True), False),
        (replace(TYPICAL_POD, nominated_node="n"), False),
        (replace(TYPICAL_POD, unsupported=("spec.volumes",)), False),
    ],
)
def test_pod_is_typical_when_no_rule_concerns_it(pod: Pod, typical: bool) -> None:
    assert is_typical(pod) == typical
    assert (class_of(pod) == TYPICAL) == typical
