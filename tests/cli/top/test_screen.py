"""The screen of `ebb top`, and its keys: pure functions."""

from dataclasses import replace
from typing import Any

import pytest

from cli.formats.page.state import PageState
from cli.top.screen import SORTS, ScreenState, press, render, selected
from tests.support.page import plan_of, showcase

STATE: dict[str, Any] = PageState(plan_of(showcase())).document(details=False)


def names(view: ScreenState) -> list[str]:
    return [node["name"] for node in selected(STATE, view)]


@pytest.mark.parametrize(("width", "height"), [(60, 24), (80, 24), (200, 60), (20, 5)])
def test_screen_fits_terminal(width: int, height: int) -> None:
    lines = render(STATE, (), ScreenState(), width, height).plain.split("\n")
    assert max(map(len, lines)) <= width
    assert height < 20 or len(lines) <= height
    assert "q quit" in lines[-1]


def test_screen_shows_savings_cost_states_and_leader() -> None:
    shown = render(STATE, ("the page may be out of date",), ScreenState(), 200, None).plain
    for text in (
        "! the page may be out of date",
        "nodes can be removed",
        "Savings: ",
        "an hour, ",
        "savings estimated: ",
        "Pending pod",
    ):
        assert text in shown, text
    assert all(node["name"] in shown for node in STATE["nodes"])


def test_screen_shows_surge_moves() -> None:
    move = {
        "deployment": "shop/web",
        "pod": "shop/web-1",
        "node": "n1",
        "deadline": 9,
    }
    state = {**STATE, "leader": {**STATE["leader"], "moves": [move]}}
    shown = render(state, (), ScreenState(), 80, 40).plain
    assert "surge move of pod shop/web-1 from node n1" in shown


def test_leaving_and_marked_nodes_are_first_by_default() -> None:
    keys = [node["state"] for node in selected(STATE, ScreenState())]
    order = [one["key"] for one in STATE["states"]]
    assert keys == sorted(keys, key=order.index)


@pytest.mark.parametrize("name", ["cpu", "memory", "pods"])
def test_fullest_node_is_first_when_sorted_by_share(name: str) -> None:
    values = [node[name] for node in selected(STATE, ScreenState(sort=name))]
    assert values == sorted(values, reverse=True)


@pytest.mark.parametrize("text", ["general-a", "BATCH", "removable", "eu-central-1b"])
def test_filter_matches_name_pool_zone_and_state(text: str) -> None:
    found = names(ScreenState(filter=text))
    assert 0 < len(found) < len(STATE["nodes"])


def test_keys_sort_filter_scroll_and_quit() -> None:
    view: ScreenState | None = ScreenState()
    for _ in SORTS:
        assert view is not None
        view = press(view, "s", 60)
    assert view == ScreenState(), "the sort keys are a cycle"
    typed = ScreenState()
    for key in ("/", "g", "x", "\x7f", "q"):
        found = press(typed, key, 60)
        assert found is not None, "q is a character of the filter"
        typed = found
    assert typed == ScreenState(typing=True, filter="gq")
    assert press(typed, "\r", 60) == ScreenState(filter="gq")
    assert press(typed, "\x1b", 60) == ScreenState()
    assert press(ScreenState(), "q", 60) is None


@pytest.mark.parametrize(
    ("key", "offset", "after"),
    [("\x1b[B", 0, 1), ("\x1b[A", 0, 0), ("\x1b[6~", 55, 59), ("\x1b[5~", 12, 2), ("x", 3, 3)],
)
def test_scrolling_stays_within_nodes(key: str, offset: int, after: int) -> None:
    assert press(ScreenState(offset=offset), key, 60) == replace(ScreenState(), offset=after)
