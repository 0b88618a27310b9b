"""Change the view of `ebb top` by a key."""

from dataclasses import replace
from typing import Final

from cli.top.screen import SORTS, ScreenState

QUIT: Final = frozenset("qQ\x03")
ESCAPE: Final = "\x1b"
DELETE: Final = frozenset("\x7f\x08")
SCROLL: Final = {"\x1b[A": -1, "\x1b[B": 1, "\x1b[5~": -10, "\x1b[6~": 10}
"""Nodes by which a key scrolls: arrows, PageUp, PageDown."""
FILTER_CHARS_MAX: Final = 63


def press(view: ScreenState, key: str, nodes: int) -> ScreenState | None:
    """Return the view after a key; None to quit. *nodes*: number of nodes that match the filter.

    A key is a character, or the escape sequence of a special key.
    """
    if view.typing:
        return _type(view, key)
    if key in QUIT:
        return None
    if key == "s":
        names = list(SORTS)
        after = names[(names.index(view.sort) + 1) % len(names)]
        return replace(view, sort=after, offset=0)
    if key in ("/", ESCAPE):
        return replace(view, typing=key == "/", filter="", offset=0)
    moved = view.offset + SCROLL.get(key, 0)
    return replace(view, offset=max(0, min(moved, nodes - 1)))


def _type(view: ScreenState, key: str) -> ScreenState:
    if key in "\r\n":
        return replace(view, typing=False)
    if key == ESCAPE:
        return replace(view, typing=False, filter="")
    if key in DELETE:
        return replace(view, filter=view.filter[:-1])
    if key.isprintable() and len(view.filter) < FILTER_CHARS_MAX:
        return replace(view, filter=view.filter + key)
    return view
