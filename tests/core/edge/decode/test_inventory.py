"""A snapshot of an inventory has the objects known at that time."""

from hypothesis import given
from hypothesis import strategies as st

from core.edge.decode.inventory import Inventory
from core.edge.decode.kinds import NODES, PODS
from core.model.cluster import Cluster
from core.model.read_options import READ_DEFAULTS
from tests.support.builders import node, pod
from tests.support.inventory_steps import carry_out

STEPS = st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from("cgdlr")), max_size=40)
"""Pod names and steps: (c)hange, (g)arbled object, (d)elete, (l)ist, (r)ead a snapshot."""


@given(STEPS)
def test_snapshot_has_known_objects_after_any_events(steps: list[tuple[str, str]]) -> None:
    inventory = Inventory()
    inventory.changed(NODES, node("n"))
    for number, (key, step) in enumerate(steps):
        if not carry_out(inventory, step, key, number):
            inventory.snapshot(READ_DEFAULTS)()
    snapshot = inventory.snapshot(READ_DEFAULTS)
    expected = Cluster.of([node("n")], inventory.pods.values())
    inventory.changed(PODS, pod("later", "n", 1, 1))
    assert snapshot() == expected
    assert snapshot() is snapshot()
