"""Devices that no node offers: a DeviceClass may, and Ebb does not guess."""

from dataclasses import replace

import pytest

from core.config.settings import Config
from core.engine import reconcile
from core.engine.unschedulable import cannot_wait
from core.guards.unplaceable import POD_UNSUPPORTED, pod_blockers
from core.marks.mark import Mark
from core.marks.wellknown import TAINT_KEY
from core.model.constraints import Toleration
from core.model.node import Node, Taint
from core.model.pod import Pod
from core.model.volumes import build_cluster
from tests.support.builders import GREEN, UNLIMITED, marked, node, pod

GPU, CLASS = "example.com/gpu", "deviceclass.resource.kubernetes.io/gpu.example.com"
CONFIG = Config(budgets=UNLIMITED)
THERE = replace(GREEN, tolerations=(Toleration("gpu", "Exists"),))


def asking(on: str | None, *devices: tuple[str, int]) -> Pod:
    return pod("train", on, 100, 100, extended=devices, placing=THERE)


def judged(one: Pod, *nodes: Node) -> Pod:
    (found,) = build_cluster(nodes or (node("a"),), (one,)).pods
    return found


@pytest.mark.parametrize("name", [GPU, CLASS])
@pytest.mark.parametrize("there", [(), ((GPU, 0), (CLASS, 0))])
def test_who_asks_for_what_no_node_offers_cannot_be_judged(
    name: str, there: tuple[tuple[str, int], ...]
) -> None:
    found = judged(asking(None, ("a.com/b", 1), (name, 1)), node("a", extended=there))
    assert not found.evaluable
    assert found.requests == pod("train", None, 100, 100).requests, "the rest can still be told"
    found = judged(asking(None, (name, 1)), node("a", extended=there))
    (why,) = pod_blockers(found)
    assert why.code == POD_UNSUPPORTED.code
    assert why.message == f"uses fields that Ebb cannot evaluate: {name}, which no node offers"


@pytest.mark.parametrize(
    ("one", "there"),
    [
        (asking(None, (GPU, 1)), node("a", extended=((GPU, 1),))),
        (asking(None, (GPU, 9)), node("a", extended=((GPU, 1),))),
        (asking(None, (GPU, 0)), node("a")),
        (asking(None, ("hugepages-2Mi", 1)), node("a")),
        (asking(None), node("a")),
    ],
)
def test_all_others_are_left_as_they_are(one: Pod, there: Node) -> None:
    assert judged(one, there) is one


def test_a_tainted_node_stays_for_a_pod_whose_devices_are_claimed() -> None:
    """As for a pod with resource claims: nobody else goes there."""
    gpu = node("gpu", labels={"green": "true"}, taints=(Taint("gpu", "", "NoSchedule"),))
    nodes = (gpu, node("b"), node("c"))
    for one in (asking(None, (GPU, 1)), pod("x", None, 1, 1, placing=THERE, unsupported=("x",))):
        plan = reconcile.plan(build_cluster(nodes, (pod("w", "b", 3000, 100), one)), CONFIG)
        assert "gpu" not in {removal.node for removal in plan.removals}, one.name


def test_while_it_waits_for_a_hard_mark_a_pass_is_made_at_once() -> None:
    hard = marked(node("gpu", labels={"green": "true"}), Mark.HARD, 1)
    cluster = build_cluster((hard, node("b")), (asking(None, (GPU, 1)),))
    assert cannot_wait(cluster, cluster.pods, TAINT_KEY)
