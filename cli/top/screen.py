"""Lay out one screen of `ebb top` from the state of the page, and handle its keys; pure."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from core.model.humanize import plural

State = Mapping[str, Any]
"""The state of the page: `PageState.document`."""
Node = Mapping[str, Any]
BAR_CELLS: Final = 10
NODE_CELLS_MIN: Final = 12
GAP: Final = "  "
COLORS: Final = {
    "leaving": "magenta",
    "not-ready": "red",
    "scale-down-allowed": "bright_red",
    "no-schedule": "dark_orange",
    "prefer-no-schedule": "yellow",
    "removable": "green",
}
"""Color of a node by the key of its state. The state is also written out."""

QUIT: Final = frozenset("qQ\x03")
ESCAPE: Final = "\x1b"
DELETE: Final = frozenset("\x7f\x08")
SCROLL: Final = {"\x1b[A": -1, "\x1b[B": 1, "\x1b[5~": -10, "\x1b[6~": 10}
"""Nodes by which a key scrolls: arrows, PageUp, PageDown."""
FILTER_CHARS_MAX: Final = 63


def _share(name: str) -> Callable[[Node], tuple[int, str]]:
    return lambda node: (-(node[name] if node[name] is not None else -1), node["name"])


SORTS: Final[Mapping[str, Callable[[Node], tuple[int, str]]]] = {
    "state": lambda node: (node["rank"], node["name"]),
    "cpu": _share("cpu"),
    "memory": _share("memory"),
    "pods": _share("pods"),
    "pool": lambda node: (0, f"{node['pool']} {node['zone']} {node['name']}"),
    "name": lambda node: (0, node["name"]),
}
"""Sort keys of nodes, in the order in which the key `s` selects them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenState:
    """The sort order, filter and scroll position that the user has chosen."""

    sort: str = "state"
    filter: str = ""
    """Only nodes whose name, pool, zone or state contains this text are shown."""
    typing: bool = False
    """Whether keys are characters of the filter."""
    offset: int = 0
    """Number of nodes above the first row."""


def render(
    state: State, banners: Sequence[str], view: ScreenState, width: int, height: int | None
) -> Text:
    """Return the text of the screen: headline, warnings, nodes and surge moves.

    *state*: state of the cluster. *banners*: warnings about the connection to it. *view*: sort
    order, filter and scroll position. *width*: columns of the terminal. *height*: its lines; None
    shows every node, for a pipe.
    """
    head = [*_head(state, banners, view)]
    moves = [*_moves(state)]
    nodes = selected(state, view)
    footer = [] if height is None else [_footer(view)]
    room = None if height is None else max(1, height - len(head) - len(moves) - len(footer) - 1)
    shown = nodes[view.offset :][:room]
    rows = [*_rows(state, shown, width)]
    lines = [*(Text(line) for line in head), *rows, *(Text(line) for line in moves), *footer]
    for line in lines:
        line.truncate(width, overflow="ellipsis")
        line.no_wrap = True
    return Text("\n").join(lines)


def selected(state: State, view: ScreenState) -> Sequence[Node]:
    """Return the nodes that match the filter of *view*, in its sort order."""
    labels = _labels(state)
    ranks = {key: number for number, key in enumerate(labels)}
    wanted = view.filter.lower()

    def matches(node: Node) -> bool:
        texts = node["name"], node["pool"], node["zone"], labels[node["state"]]
        return any(wanted in text.lower() for text in texts)

    ranked = ({**node, "rank": ranks[node["state"]]} for node in state["nodes"])
    return sorted(filter(matches, ranked), key=SORTS[view.sort])


def _labels(state: State) -> Mapping[str, str]:
    """Return the labels of node states (such as removable) by key, in the order of the states."""
    return {state_of_node["key"]: state_of_node["label"] for state_of_node in state["states"]}


def _head(state: State, banners: Sequence[str], view: ScreenState) -> Iterator[str]:
    source = dict(state["origin"]).get("cluster") or dict(state["origin"]).get("source", "")
    yield f"ebb top - {source}"
    yield from (f"! {text}" for text in (*banners, *state["banners"]))
    yield from state["headline"]
    if cost := state["cost"]:
        yield f"Cost: {cost['hour']} an hour, {cost['month']} a month."
    leader = state["leader"] or {}
    yield from (f"{name}: {text}" for name, text in leader.get("savings", ()))
    counts = Counter(node["state"] for node in state["nodes"])
    labels = _labels(state)
    counted = ", ".join(f"{label} {counts[key]}" for key, label in labels.items() if counts[key])
    pending = len(state["pending"]["pods"]) + state["pending"]["more"]
    yield f"{plural(len(state['nodes']), 'node')}: {counted}. {plural(pending, 'Pending pod')}."
    yield f"filter: {view.filter}" if view.filter or view.typing else ""


def _rows(state: State, nodes: Sequence[Node], width: int) -> Iterator[Text]:
    labels = _labels(state)
    states = [cell_len(labels[node["state"]]) for node in state["nodes"]] or [0]
    bar = BAR_CELLS + len(" 100%")
    others = max(states) + 2 * bar + len("pods") + 4 * len(GAP)
    longest = max((cell_len(node["name"]) for node in nodes), default=0)
    name = max(NODE_CELLS_MIN, min(longest, width - others))
    headings = ("node", name), ("state", max(states)), ("cpu", bar), ("memory", bar), ("pods", 4)
    yield Text(
        GAP.join([*(set_cell_size(text, size) for text, size in headings), "pool, zone"]).rstrip(),
        style="bold",
    )
    for node in nodes:
        cells = (
            set_cell_size(node["name"], name),
            set_cell_size(labels[node["state"]], max(states)),
            _bar(node["cpu"]),
            _bar(node["memory"]),
            f"{node['pods']:>4}",
            ", ".join(filter(None, (node["pool"], node["zone"]))),
        )
        yield Text(GAP.join(cells).rstrip(), style=COLORS.get(node["state"], ""))


def _bar(percent: int | None) -> str:
    if percent is None:
        return " " * (BAR_CELLS + len(" 100%"))
    full = min(BAR_CELLS, (percent * BAR_CELLS + 50) // 100)
    return f"{'#' * full}{'.' * (BAR_CELLS - full)} {percent:>3}%"


def _moves(state: State) -> Iterator[str]:
    for move in (state["leader"] or {}).get("moves", ()):
        yield f"surge move of pod {move['pod']} from node {move['node']}"


def _footer(view: ScreenState) -> Text:
    if view.typing:
        return Text("type a filter; Enter keeps it, Esc removes it", style="reverse")
    return Text(f"q quit  s sort (by {view.sort})  / filter  arrows scroll", style="reverse")


def press(view: ScreenState, key: str, nodes: int) -> ScreenState | None:
    """Return the sort order, filter and scroll position after a key; None to quit.

    *key*: a character, or the escape sequence of a special key. *nodes*: number of nodes that
    match the filter.
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
