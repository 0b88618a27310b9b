"""The process that makes plans has the objects of the feed."""

import pickle

from hypothesis import given
from hypothesis import strategies as st

from cli.page.changes import RecordingInventory
from core.edge.decode.inventory import Inventory
from core.edge.decode.kinds import NODES, PODS
from core.model.read_options import READ_DEFAULTS
from tests.support.builders import node, pod
from tests.support.inventory_steps import carry_out

STEPS = st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from("cgdlsw")), max_size=40)
"""Pod names and steps: (c)hange, (g)arbled object, (d)elete, (l)ist, (s)end, send the (w)hole."""


@given(STEPS)
def test_copy_equals_inventory_after_any_events(steps: list[tuple[str, str]]) -> None:
    inventory, copy = RecordingInventory(), Inventory()
    inventory.changed(NODES, node("n"))
    for number, (key, step) in enumerate([*steps, ("", "s")]):
        if not carry_out(inventory, step, key, number):
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
