"""The process that makes plans has the objects of the feed."""

import pickle
from typing import Any

from hypothesis import given

from cli.page.changes import RecordingInventory
from core.cluster.read_options import READ_DEFAULTS
from kube.decode.kinds import NODES, PODS, AnyKind
from kube.inventory import Inventory
from tests.support.builders import node, pod
from tests.support.inventory_steps import carry_out, events


@given(events("sw"))
def test_copy_equals_inventory_after_any_events(steps: list[tuple[AnyKind, Any, str]]) -> None:
    """The steps s and w send the changes and all objects."""
    inventory, copy = RecordingInventory(), Inventory()
    for kind, one, step in [*steps, (NODES, node("n"), "s")]:
        if not carry_out(inventory, kind, one, step):
            sent = pickle.dumps(inventory.changes(whole=step == "w"))
            pickle.loads(sent).apply(copy)
    assert copy.snapshot(READ_DEFAULTS)() == inventory.snapshot(READ_DEFAULTS)()


def test_only_changed_objects_are_sent() -> None:
    inventory = RecordingInventory()
    inventory.replaced(PODS, [pod(name, "n", 1, 1) for name in "abc"])
    assert [len(objects) for objects in inventory.changes().replaced.values()] == [3]
    changed = pod("b", "n", 2, 1)
    inventory.changed(PODS, changed)
    inventory.deleted(PODS, "d/c")
    sent = inventory.changes()
    assert (sent.replaced, sent.changed) == ({}, {PODS.name: {"d/b": changed, "d/c": None}})
