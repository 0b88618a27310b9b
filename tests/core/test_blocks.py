"""A moment is what a plain dict held then, and what has not changed is not made anew."""

from hypothesis import given
from hypothesis import strategies as st

from core.edge.decode.blocks import BLOCK_MAX, Blocks, Moment, in_order
from core.edge.decode.inventory import Inventory
from core.edge.decode.kinds import NODES, PODS
from core.model.cluster import Cluster
from core.model.schedulers import KNOWN
from tests.support.builders import node, pod

Thing = tuple[str, int]
KEYS = [f"{number:04}" for number in range(3 * BLOCK_MAX)]
WORDS = st.lists(st.tuples(st.sampled_from(KEYS), st.none() | st.integers(0, 3)), max_size=200)
"""What happens to which key; None: it goes."""


def name(thing: Thing) -> str:
    return thing[0]


def after(plain: dict[str, Thing], blocks: Blocks, words: list[tuple[str, int | None]]) -> None:
    for key, value in words:
        if value is None:
            blocks.drop(key)
            plain.pop(key, None)
        else:
            blocks.put((key, value))
            plain[key] = key, value


def bounded(moment: Moment) -> bool:
    return all(0 < len(block) <= BLOCK_MAX for block in moment)


@given(st.sets(st.sampled_from(KEYS)), WORDS, WORDS)
def test_a_moment_stays_what_it_was(
    first: set[str], words: list[tuple[str, int | None]], later: list[tuple[str, int | None]]
) -> None:
    plain = {key: (key, 0) for key in first}
    blocks = Blocks(plain, name)
    after(plain, blocks, words)
    moment, expected = blocks.moment(), sorted(plain.values())
    after(plain, blocks, later)
    assert in_order(moment) == expected
    assert in_order(blocks.moment()) == sorted(plain.values())
    assert bounded(moment)
    assert bounded(blocks.moment())


def test_blocks_that_grow_are_cut_and_those_that_are_empty_go() -> None:
    blocks = Blocks({}, name)
    for key in KEYS:
        blocks.put((key, 0))
    assert bounded(blocks.moment())
    assert len(blocks.moment()) >= len(KEYS) // BLOCK_MAX
    for key in KEYS:
        blocks.drop(key)
    assert blocks.moment() == ()


def test_one_change_makes_one_block_anew() -> None:
    blocks = Blocks({key: (key, 0) for key in KEYS}, name)
    before = blocks.moment()
    blocks.put((KEYS[400], 1))
    new = [block for block in blocks.moment() if all(block is not one for one in before)]
    assert len(new) == 1
    assert (KEYS[400], 1) in new[0]


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
                inventory.snapshot(KNOWN)()
    held = inventory.snapshot(KNOWN)
    expected = Cluster.of([node("n")], inventory.pods.values())
    inventory.changed(PODS, pod("later", "n", 1, 1))
    assert held() == expected
    assert held() is held()
