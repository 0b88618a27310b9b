"""A snapshot of an inventory has the objects known at that time."""

from dataclasses import replace
from itertools import cycle
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from core.cluster.default_spread import DefaultSpread
from core.cluster.read_options import READ_DEFAULTS, ReadOptions
from core.cluster.volumes import Claim
from core.model.constraints import ClaimUse, DisruptionFacts
from core.model.node import NodeCondition, Taint
from core.model.node_groups import NodeClaim
from core.model.node_lifecycle import LEAVING_SECONDS_MAX
from core.model.pod import CLAIMS_FIELD, Pod
from kube.cluster_kinds import KINDS
from kube.decode.kinds import CLAIMS, NODE_CLAIMS, NODES, PODS, AnyKind
from kube.inventory import Inventory
from tests.support.builders import node, pod
from tests.support.inventory_steps import carry_out, events

OPTIONS = (
    READ_DEFAULTS,
    ReadOptions(schedulers=("volcano",)),
    ReadOptions(default_spread=(DefaultSpread("zone", 1),)),
    ReadOptions(default_spread=(DefaultSpread("host", 2),)),
)


@given(events("r"), st.lists(st.sampled_from(OPTIONS), min_size=1))
def test_snapshot_has_known_objects_after_any_events(
    steps: list[tuple[AnyKind, Any, str]], configured: list[ReadOptions]
) -> None:
    inventory, listed = Inventory(), Inventory()
    for (kind, one, step), options in zip(steps, cycle(configured), strict=False):
        if not carry_out(inventory, kind, one, step):
            inventory.snapshot(options)()
    options = configured[-1]
    snapshot = inventory.snapshot(options)
    for kind in KINDS:
        listed.replaced(kind, [*inventory.of(kind).values()][::-1])
    inventory.changed(NODES, node("later"))
    inventory.changed(PODS, pod("later", "n", 1, 1))
    assert snapshot() == listed.snapshot(options)()
    assert snapshot() is snapshot()


def test_snapshot_follows_changed_options() -> None:
    taints = tuple(Taint(key, "", "NoSchedule") for key in "ab")
    deployed = replace(pod("p", "n", 1, 1), owner_kind="ReplicaSet", labels={"app": "p"})
    inventory = Inventory()
    inventory.replaced(NODES, [replace(node("n"), taints=taints)])
    inventory.replaced(PODS, [deployed])
    for keys in (("a",), ("a", "b"), ("b",), ()):
        spread = tuple(DefaultSpread(key, 1) for key in keys)
        found = inventory.snapshot(ReadOptions(leaving_taints=keys, default_spread=spread))()
        assert found.nodes[0].leaving_taints == keys
        assert [one.topology_key for one in found.pods[0].pod_constraints.spread] == [*keys]


def test_snapshot_follows_the_time_when_a_condition_grows_old() -> None:
    now = [100]
    inventory = Inventory(lambda: now[0])
    going = NodeCondition("Terminating", "True", "", 100)
    inventory.replaced(NODES, [replace(node("n"), conditions=(going,)), node("m")])

    def leaving() -> list[str]:
        return [one.name for one in inventory.snapshot(READ_DEFAULTS)().nodes if one.leaving]

    first = inventory.snapshot(READ_DEFAULTS)()
    assert leaving() == ["n"]
    now[0] = 100 + LEAVING_SECONDS_MAX - 1
    assert inventory.snapshot(READ_DEFAULTS)() is first
    now[0] += 1
    assert leaving() == []


def test_snapshot_follows_node_claims() -> None:
    inventory = Inventory()
    inventory.replaced(NODES, [node("n")])
    inventory.changed(NODE_CLAIMS, NodeClaim(name="c", node="n", leaving="is being deleted"))
    (found,) = inventory.snapshot(READ_DEFAULTS)().nodes
    assert found.leaving == "its NodeClaim c is being deleted"
    inventory.changed(PODS, pod("p", "n", 1, 1))
    assert inventory.snapshot(READ_DEFAULTS)().nodes[0] is found
    inventory.changed(NODE_CLAIMS, NodeClaim(name="c", node="n"))
    assert inventory.snapshot(READ_DEFAULTS)().nodes[0].leaving == ""


def test_unchanged_pods_are_the_same_objects_in_next_snapshot() -> None:
    inventory = Inventory()
    inventory.replaced(PODS, [pod(name, "n", 1, 1) for name in "cab"])
    before = inventory.snapshot(READ_DEFAULTS)().pods
    inventory.changed(PODS, pod("b", "n", 2, 1))
    inventory.deleted(PODS, "d/c")
    inventory.changed(PODS, pod("d", "n", 1, 1))
    after = inventory.snapshot(READ_DEFAULTS)().pods
    assert [one.name for one in after] == ["a", "b", "d"]
    assert [one in before for one in after] == [True, False, False]
    assert after[0] is before[0]


def test_looked_up_pod_is_the_same_object_until_its_volume_changes() -> None:
    def looked_up(volume: str) -> Pod:
        inventory.changed(CLAIMS, Claim(namespace="d", name="c", volume=volume))
        inventory.changed(PODS, pod("other", "n", len(volume), 1))
        return inventory.snapshot(READ_DEFAULTS)().pods[0]

    inventory = Inventory()
    asking = DisruptionFacts(claims=(ClaimUse("c"),))
    inventory.changed(
        PODS, replace(pod("a", "n", 1, 1, unsupported=(CLAIMS_FIELD,)), disruption_facts=asking)
    )
    first = looked_up("v")
    assert first.disruption_facts.faults
    assert looked_up("v") is first
    assert looked_up("") != first
