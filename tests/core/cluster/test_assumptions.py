"""Facts about pods that follow from a node: operating system and nominated node."""

import random
from dataclasses import replace

import pytest

from core.cluster.assumptions import assume
from core.eligibility.unplaceable import pod_blockers
from core.model.constraints import OS_LABEL, NodeConstraints, Toleration
from core.model.node import Effect, Node, Taint
from core.model.pod import Pod
from tests.support import mixed
from tests.support.builders import node, pod
from tests.support.cluster_pods import cluster_pods
from tests.support.reference_assumed import assumed

LINUX, WINDOWS = (node(name, labels={OS_LABEL: name}) for name in ("linux", "windows"))
SYSTEM = ((OS_LABEL, "linux"),)
OF_LINUX = NodeConstraints(system=SYSTEM)
TOLERATES_Y = NodeConstraints(tolerations=(Toleration("y", "Exists"),))


def completed(one: Pod, *nodes: Node) -> Pod:
    found, _ = assume(nodes, cluster_pods(one), {})
    return found.all[0]


def test_pod_needs_the_system_of_its_node_when_the_cluster_has_several() -> None:
    found = completed(pod("p", "linux", 100, 100), LINUX, WINDOWS)
    assert found.node_constraints.system == SYSTEM


@pytest.mark.parametrize(
    "one",
    [
        pytest.param(pod("p", None, 100, 100), id="Pending: the scheduler may use any system"),
        pytest.param(pod("p", "linux", 100, 100, daemon=True), id="DaemonSet"),
        pytest.param(pod("p", "gone", 100, 100), id="node is gone"),
        pytest.param(
            pod("p", "linux", 1, 1, node_constraints=NodeConstraints(node_selector=SYSTEM)),
            id="selector",
        ),
        pytest.param(
            pod("p", "linux", 1, 1, node_constraints=NodeConstraints(system=SYSTEM)), id="spec.os"
        ),
    ],
)
def test_pod_is_unchanged_when_its_system_is_known_or_open(one: Pod) -> None:
    assert completed(one, LINUX, WINDOWS) is one


def test_pods_are_unchanged_when_all_nodes_have_one_system() -> None:
    one = pod("p", "linux", 100, 100)
    assert completed(one, LINUX, node("unlabeled")) is one


NOMINATED = replace(pod("urgent", None, 100, 100), nominated_node="n")


def test_nominated_pod_counts_on_its_node_and_keeps_it() -> None:
    found = completed(NOMINATED, node("n"))
    assert (found.node, found.nominated, found.movable) == ("n", True, False)
    assert [why.code for why in pod_blockers(found)] == ["pod-nominated"]


@pytest.mark.parametrize(
    "there",
    [
        pytest.param(node("other"), id="node is gone"),
        pytest.param(node("n", ready=False), id="not Ready"),
        pytest.param(node("n", unschedulable=True), id="cordoned"),
        pytest.param(node("n", taints=(Taint("x", "", Effect.NO_SCHEDULE),)), id="new taint"),
        pytest.param(
            node("n", taints=(Taint("ToBeDeletedByClusterAutoscaler", "1", Effect.NO_SCHEDULE),)),
            id="being deleted",
        ),
        pytest.param(replace(node("n"), virtual=True), id="virtual"),
        pytest.param(replace(node("n"), unreadable="status"), id="unreadable"),
    ],
)
def test_stale_nomination_leaves_an_ordinary_pending_pod(there: Node) -> None:
    tolerant = replace(
        NOMINATED, node_constraints=NodeConstraints(tolerations=(Toleration("y", "Exists"),))
    )
    assert completed(tolerant, there) is tolerant


def test_result_is_the_same_object_when_nothing_has_changed() -> None:
    pods = cluster_pods(NOMINATED, pod("p", "linux", 100, 100))
    first, known = assume((LINUX, WINDOWS, node("n")), pods, {})
    second, known = assume((LINUX, WINDOWS, node("n")), pods, known)
    assert all(one is other for one, other in zip(first.all, second.all, strict=True))
    third, _ = assume((WINDOWS, node("linux", labels={OS_LABEL: "other"})), pods, known)
    assert [one.node_constraints.system for one in third.all] == [((OS_LABEL, "other"),), ()]
    assert third.all[1].node is None


@pytest.mark.law
def test_pods_are_completed_as_by_the_plain_reference(seeds: range) -> None:
    for seed in seeds:
        cluster = mixed.as_decoded(random.Random(seed))
        pods, _ = assume(cluster.nodes, cluster_pods(*cluster.pods), {})
        assert tuple(pods.all) == assumed(cluster).pods, seed
