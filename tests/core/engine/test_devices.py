"""Devices that no node offers: a DeviceClass may offer them, and Ebb does not guess."""

from dataclasses import replace

import pytest

from core.cluster.devices import DeviceClass
from core.config.settings import Config
from core.eligibility.unplaceable import POD_UNSUPPORTED, pod_blockers
from core.engine import reconcile
from core.engine.unschedulable import cannot_wait
from core.marks.mark import Mark
from core.marks.wellknown import TAINT_KEY
from core.model.constraints import Toleration
from core.model.node import Node, Taint
from core.model.pod import Pod
from tests.support.builders import GREEN, UNLIMITED, marked, node, pod
from tests.support.cluster_pods import build_cluster

GPU, CLASS = "example.com/gpu", "deviceclass.resource.kubernetes.io/gpu.example.com"
CONFIG = Config(budgets=UNLIMITED)
THERE = replace(GREEN, tolerations=(Toleration("gpu", "Exists"),))


def requesting(on: str | None, *devices: tuple[str, int]) -> Pod:
    return pod("train", on, 100, 100, extended=devices, node_constraints=THERE)


def evaluate(one: Pod, *nodes: Node) -> Pod:
    (found,) = build_cluster(nodes or (node("a"),), (one,)).pods
    return found


@pytest.mark.parametrize("name", [GPU, CLASS])
@pytest.mark.parametrize("there", [(), ((GPU, 0), (CLASS, 0))])
def test_pod_is_unevaluable_when_no_node_offers_its_device(
    name: str, there: tuple[tuple[str, int], ...]
) -> None:
    found = evaluate(requesting(None, ("a.com/b", 1), (name, 1)), node("a", extended=there))
    assert not found.evaluable
    assert found.requests == pod("train", None, 100, 100).requests, (
        "other requests are still known"
    )
    found = evaluate(requesting(None, (name, 1)), node("a", extended=there))
    (why,) = pod_blockers(found)
    assert why.code == POD_UNSUPPORTED.code
    assert (
        why.message
        == f"uses fields that Ebb cannot evaluate: requests for {name} (no node offers it)"
    )


@pytest.mark.parametrize(
    ("one", "there"),
    [
        (requesting(None, (GPU, 1)), node("a", extended=((GPU, 1),))),
        (requesting(None, (GPU, 9)), node("a", extended=((GPU, 1),))),
        (requesting(None, (GPU, 0)), node("a")),
        (requesting(None, ("hugepages-2Mi", 1)), node("a")),
        (requesting(None), node("a")),
    ],
)
def test_pod_is_unchanged_when_its_devices_are_offered(one: Pod, there: Node) -> None:
    assert evaluate(one, there) is one


@pytest.mark.parametrize(
    ("on", "classes", "evaluable"),
    [
        (None, (GPU,), False),
        (None, ("other.com/gpu",), True),
        (None, ("",), True),
        (None, (), True),
        ("plugin", (GPU,), True),
        ("dra", (GPU,), False),
        ("gone", (GPU,), False),
        ("dra", (), True),
    ],
)
def test_pod_may_get_its_device_by_dra_when_a_device_class_maps_it(
    on: str | None, classes: tuple[str, ...], evaluable: bool
) -> None:
    """One node offers the device by a plugin; another one may offer it by DRA."""
    nodes = (node("dra"), node("plugin", extended=((GPU, 1),)))
    known = [DeviceClass(name=f"c{number}", resource=one) for number, one in enumerate(classes)]
    (found,) = build_cluster(nodes, (requesting(on, (GPU, 1)),), device_classes=known).pods
    assert found.evaluable is evaluable
    assert bool(found.requests.extended) is evaluable
    if not evaluable:
        (why,) = pod_blockers(found)
        assert why.message.endswith(
            f"requests for {GPU} (some nodes may offer it by DRA: a DeviceClass maps it)"
        )


def test_pod_is_evaluable_when_each_node_offers_its_device_by_a_plugin() -> None:
    nodes = [node(name, extended=((GPU, 1),)) for name in "ab"]
    one = requesting(None, (GPU, 1))
    known = (DeviceClass(name="gpu", resource=GPU),)
    assert build_cluster(nodes, (one,), device_classes=known).pods == (one,)


def test_tainted_node_is_kept_for_pod_with_unknown_devices() -> None:
    """As for a pod with resource claims: no other pod can use the node."""
    gpu = node("gpu", labels={"green": "true"}, taints=(Taint("gpu", "", "NoSchedule"),))
    nodes = (gpu, node("b"), node("c"))
    for one in (
        requesting(None, (GPU, 1)),
        pod("x", None, 1, 1, node_constraints=THERE, unsupported=("x",)),
    ):
        plan = reconcile.plan(build_cluster(nodes, (pod("w", "b", 3000, 100), one)), CONFIG)
        assert "gpu" not in {removal.node for removal in plan.removals}, one.name


def test_pass_starts_at_once_when_pod_waits_for_no_schedule_mark() -> None:
    no_schedule_node = marked(node("gpu", labels={"green": "true"}), Mark.NO_SCHEDULE, 1)
    cluster = build_cluster((no_schedule_node, node("b")), (requesting(None, (GPU, 1)),))
    assert cannot_wait(cluster, cluster.pods, TAINT_KEY)
