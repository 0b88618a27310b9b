"""The empty nodes that Ebb keeps, for people."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Final

from rich.console import Console

from cli.formats.text.headline import money
from cli.input.kept_empty import KeptEmpty
from cli.terminal import Table, say
from core.model.humanize import left, plural

NODES_SHOWN: Final = 12
NONE: Final = "-"


def write(kept: Sequence[KeptEmpty], now_seconds: int, out: Console) -> None:
    """Write how many empty nodes Ebb keeps, why, for how long and at what price; or nothing."""
    if not kept:
        return
    say(out, "", sentence(kept))
    rows = (
        (
            node.node,
            NONE if node.until is None else left(node.until - now_seconds),
            NONE if node.price is None else money(node.price),
            node.why,
        )
        for node in kept[:NODES_SHOWN]
    )
    headings = "empty node", "kept for", "price an hour", "kept because"
    say(out, Table(*headings, rows=rows, left=(0, 3)))
    if (more := len(kept) - NODES_SHOWN) > 0:
        say(out, f"and {more:,} more empty nodes; -o json lists all of them")


def sentence(kept: Sequence[KeptEmpty]) -> str:
    """Return a sentence with the number of empty nodes that Ebb keeps, and their price."""
    prices = [node.price for node in kept if node.price is not None]
    price = f", at {money(sum(prices, Fraction()))} an hour" if prices else ""
    return f"Ebb keeps {plural(len(kept), 'empty node')} from scale-down{price}."
