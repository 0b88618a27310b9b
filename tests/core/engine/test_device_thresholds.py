"""Extended resources: which nodes a pod can use, and how full their devices may become."""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import pytest

from core.engine import reconcile
from core.engine.plan import Plan
from core.model.cluster import Cluster
from core.model.constraints import NodeConstraints, Toleration
from core.model.node import Node, Taint
from core.model.pod import Pod
from tests.support.builders import EIGHTY_PERCENT, config, node, pod

GPU = "nvidia.com/gpu"
TAINT = Taint(GPU, "present", "NoSchedule")
TOLERATES = NodeConstraints(tolerations=(Toleration(GPU, "Exists"),))


def general(count: int) -> list[Node]:
    return [node(f"w{number}", 8000, 32_000) for number in range(count)]


def gpu_node(name: str, units: int = 8) -> Node:
    return node(name, 8000, 32_000, taints=(TAINT,), extended=((GPU, units),))


def training(name: str, on: str | None, units: int, cpu: int = 100) -> Pod:
    return pod(name, on, cpu, 100, node_constraints=TOLERATES, extended=((GPU, units),))


def removed(plan: Plan) -> set[str]:
    return {one.node for one in plan.removals}


def plan_of(nodes: Sequence[Node], pods: Sequence[Pod], **thresholds: Fraction) -> Plan:
    asked = replace(config(), thresholds=replace(EIGHTY_PERCENT, **thresholds))
    return reconcile.plan(Cluster.of(nodes, pods), asked)


def test_gpu_node_stays_when_others_of_its_pool_would_be_too_full() -> None:
    nodes = [*general(6), *(gpu_node(f"g{number}") for number in range(3))]
    load = [pod(f"web{number}", f"w{number}", 700, 100) for number in range(6)]
    load += [training(f"train{number}", f"g{number}", 5, cpu=4600) for number in range(3)]
    plan = plan_of(nodes, load)
    assert removed(plan)
    assert not removed(plan) & {"g0", "g1", "g2"}
    (reach,) = (one for one in plan.reaches if one.devices)
    assert reach.name.startswith(f"requests {GPU}, tolerates {GPU}")
    assert reach.before.nodes == 3


@pytest.mark.parametrize(
    ("thresholds", "goes"),
    [
        ({}, True),  # 80 % of CPU, and so of devices
        ({"devices": Fraction(1)}, True),
        ({"devices": Fraction(74, 100)}, False),
        ({"devices": Fraction(75, 100)}, True),
        ({"cpu": Fraction(75, 100)}, True),
        ({"cpu": Fraction(74, 100)}, False),
    ],
)
def test_device_threshold_defaults_to_that_of_cpu(
    thresholds: dict[str, Fraction], goes: bool
) -> None:
    """Three nodes with eight devices each; without one of them 12 of 16 would be requested."""
    nodes = [gpu_node(name) for name in ("g0", "g1", "g2")]
    load = [training(f"train{number}", f"g{number}", 4) for number in range(3)]
    plan = plan_of(nodes, load, **thresholds)
    assert bool(removed(plan)) is goes


def test_reason_names_the_device_when_its_threshold_is_exceeded() -> None:
    nodes = [gpu_node(name) for name in ("g0", "g1", "g2")]
    load = [training(f"train{number}", f"g{number}", 4) for number in range(3)]
    plan = plan_of(nodes, load, devices=Fraction(1, 2))
    (why,) = plan.kept[0].blockers
    assert why.code == "reach-threshold"
    assert why.message.endswith(f"would have {GPU} at 75%, over 50%")


def test_pods_without_devices_may_enter_nodes_whose_devices_are_all_in_use() -> None:
    nodes = [node("w0"), *(replace(gpu_node(name), taints=()) for name in ("g0", "g1"))]
    load = [training(f"train{number}", f"g{number}", 8) for number in range(2)]
    plan = plan_of(nodes, [*load, pod("web", "w0", 100, 100)])
    assert removed(plan) == {"w0"}


def test_node_without_devices_is_no_room_for_pods_that_only_tolerate_the_taint() -> None:
    plan = plan_of([*general(6), gpu_node("g0")], [training("train", "g0", 1)])
    assert "g0" not in removed(plan)
    kept = next(one for one in plan.kept if one.node == "g0")
    assert any("extended-resources" in why.message for why in kept.blockers)
