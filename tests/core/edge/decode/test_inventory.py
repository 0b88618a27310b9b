"""The cluster that an inventory makes is what is known then."""

from hypothesis import given
from hypothesis import strategies as st

from core.edge.decode.inventory import Inventory
from core.edge.decode.kinds import NODES, PODS
from core.model.cluster import Cluster
from core.model.read_options import READ_DEFAULTS
from tests.support.builders import node, pod

NAMES = st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from("cgdlr")), max_size=40)
"""Pods by name, and what happens: they come, go, are deleted, a list comes, somebody looks."""


@given(NAMES)
def test_the_cluster_is_what_is_known_whatever_came_before(words: list[tuple[str, str]]) -> None:
    inventory = Inventory()
    inventory.changed(NODES, node("n"))
    for number, (key, word) in enumerate(words):
        match word:
            case "c":
                inventory.changed(PODS, pod(key, "n", number, 1))
            case "g":
                inventory.refused(PODS, f"d/{key}", "odd")
            case "d":
                inventory.deleted(PODS, f"d/{key}")
            case "l":
                inventory.replaced(PODS, [pod(key, None, number, 1)])
            case _:
                inventory.snapshot(READ_DEFAULTS)()
    held = inventory.snapshot(READ_DEFAULTS)
    expected = Cluster.of([node("n")], inventory.pods.values())
    inventory.changed(PODS, pod("later", "n", 1, 1))
    assert held() == expected
    assert held() is held()
