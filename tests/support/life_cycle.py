"""Generate docs/design/life-cycle.md and its picture: `python -m tests.support.life_cycle`."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from core.writes.life_cycle import Event
from core.writes.transitions import MarkState, Part, Transition
from tests.support.drawing import GREEN, ORANGE, PALE, YELLOW, Box, numbered, rect, svg, text

PAGE: Final = Path(__file__).parents[2] / "docs" / "design" / "life-cycle.md"
PICTURE: Final = PAGE.with_suffix(".svg")
UNMARK: Final = Transition.UNMARK.title.capitalize()
ALLOW: Final = Transition.ALLOW_SCALE_DOWN.title.capitalize()
HEAD: Final = f"""# The life cycle of a mark

`make fix` generates this page from the table in `core/writes/life_cycle.py`. Beside the table is
the condition of each event as a function.

A Node is unmarked, marked PreferNoSchedule, or marked NoSchedule. In addition it can be protected
from scale-down, or its scale-down can be allowed, and it can be backing off. The
[glossary](../glossary.md) explains these terms.

The second table lists the states of a Node, and the third the events on it. In each
reconciliation, Ebb checks the conditions of the events in the order of the table. The column
*write* says what Ebb writes if the condition is true, for each state. In states that are not
listed, the event has no effect. The column *part* says which part of the Node the write changes.
Ebb writes each part once in a reconciliation, for the first event whose condition is true. After a
write of *{Part.ALL.value}* parts, it writes nothing else on the Node. A write of another part than
the taints also brings the reserve annotation up to date.

- *{UNMARK}* means: remove the mark and its details from the Node, and protect the node
  from scale-down for `scaleDownProtection.afterUnmark`. If someone else has removed the mark, Ebb
  does the rest.
- *Set an end of the protection* means: the protection ends `scaleDownProtection.afterUnmark` from
  now.
- *{ALLOW}* means: remove the protection, so that the autoscaler may remove the node.
- *Someone else* is any user or program except Ebb.
- The *details* are the annotation with the times and the reason of the mark.
- The reasons with a code `no-schedule-...` are in [reasons.md](../reasons.md), which says how long
  each one applies.

Each arrow of the picture shows how events change one state. The first table has the events of each
arrow, with the write in parentheses. The other states of the Node remain, with one exception: when
the mark is removed, the states *{MarkState.PROTECTED.title}* and
*{MarkState.SCALE_DOWN_ALLOWED.title}* end too. Events that do not change the state have no arrow.
The picture omits the states *{MarkState.DELETED.title}* and *{MarkState.LEAVING.title}*, which
other programs begin.
In green states the node is protected from scale-down.

![The states as boxes, and the numbered arrows of the first table](life-cycle.svg)
"""
SIZE: Final = 880, 384
WIDTH: Final = 200
HEIGHT: Final = 44
ASIDE: Final = 11
"""Half of the distance between the two arrows of a pair of states."""
PLACES: Final = {
    MarkState.PROTECTED_UNMARKED: (20, 40, GREEN),
    MarkState.UNMARKED: (340, 40, PALE),
    MarkState.BACKING_OFF: (660, 40, PALE),
    MarkState.PROTECTION_ENDING: (20, 170, GREEN),
    MarkState.PREFER_NO_SCHEDULE: (340, 170, YELLOW),
    MarkState.PROTECTED: (660, 170, GREEN),
    MarkState.NO_SCHEDULE: (340, 300, ORANGE),
    MarkState.SCALE_DOWN_ALLOWED: (660, 300, PALE),
}
"""Left, top and color of the box of each state."""


def page() -> str:
    """Return the page as Markdown."""
    parts = (_changes(), _states(), _events())
    return "\n".join([HEAD, *(line for part in parts for line in (*part, ""))]).rstrip() + "\n"


def picture() -> str:
    """Return the picture of the page as SVG."""
    boxes = {state: Box(x, y, WIDTH, HEIGHT) for state, (x, y, _) in PLACES.items()}
    parts = []
    for state, box in boxes.items():
        middle, base = box.middle[0], box.middle[1] + 5
        parts.append(rect(box, PLACES[state][2], radius=6))
        parts.append(text(middle, base, state.title, anchor="middle"))
    pairs = _arrows()
    for number, (before, after) in enumerate(pairs, 1):
        aside = ASIDE if (after, before) in pairs else 0
        parts += numbered(boxes[before], boxes[after], number, aside)
    return svg(*SIZE, parts, "The states of a Node, and how events change them")


def _arrows() -> Mapping[tuple[MarkState, MarkState], Mapping[Transition, Sequence[str]]]:
    """Return the events between each two states, by their write."""
    arrows: dict[tuple[MarkState, MarkState], dict[Transition, list[str]]] = {}
    for event in Event:
        for before, write in event.writes.items():
            if write.then not in (None, before):
                writes_between = arrows.setdefault((before, write.then), {})
                writes_between.setdefault(write, []).append(event.title)
    return arrows


def _changes() -> Iterator[str]:
    yield from ("| arrow | from | to | events (write) |", "|---|---|---|---|")
    for number, ((before, after), writes) in enumerate(_arrows().items(), 1):
        told = "; ".join(f"{', '.join(events)} ({one.title})" for one, events in writes.items())
        yield f"| {number} | {before.title} | {after.title} | {told} |"


def _states() -> Iterator[str]:
    yield from ("| state | meaning |", "|---|---|")
    yield from (f"| {state.title} | {state.meaning} |" for state in MarkState)


def _events() -> Iterator[str]:
    yield from ("| event | condition | write | part |", "|---|---|---|---|")
    for event in Event:
        where: dict[Transition, list[str]] = {}
        for state, write in event.writes.items():
            where.setdefault(write, []).append(state.title)
        writes = "; ".join(f"{', '.join(titles)}: {one.title}" for one, titles in where.items())
        (part,) = {write.part for write in where}
        yield f"| {event.title} | {event.meaning} | {writes} | {part.value} |"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
    PICTURE.write_text(picture(), "utf-8")
