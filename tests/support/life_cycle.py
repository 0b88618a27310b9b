"""Draws docs/life-cycle.md from the table: `python -m tests.support.life_cycle`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from core.writes.life_cycle import LAST, TABLE, Event, State, Transition

PAGE: Final = Path(__file__).parents[2] / "docs" / "life-cycle.md"
HEAD: Final = """# The life of a mark

Drawn from the table in `core/writes/life_cycle.py`; `make fix` draws it anew.

A Node is unmarked, soft or hard, and beside that guarded or handed over, held or released,
backing off.
In each pass the events are looked at from the top of the second table down, and for each that is
the case something is written in the first of the Node's states that it concerns. After one in
**bold** nothing more is: it takes the rest along. States that are not named with an event are none
of its concern.
"""


def page() -> str:
    """Return the page as Markdown."""
    parts = (["```mermaid", *_picture(), "```"], _states(), _events())
    return "\n".join([HEAD, *(line for part in parts for line in (*part, ""))]).rstrip() + "\n"


def _picture() -> Iterator[str]:
    """Yield a state diagram: an arrow for all events that lead from one state to another."""
    yield "stateDiagram-v2"
    for state in State:
        yield f'    state "{state.title}" as {state.name}'
    arrows: dict[tuple[State, State, Transition], list[str]] = {}
    for event, acts in TABLE.items():
        for state, act in acts.items():
            arrows.setdefault((state, act.then or state, act), []).append(event.title)
    for (before, after, act), titles in arrows.items():
        yield f"    {before.name} --> {after.name} : {', '.join(titles)} ({act.title})"


def _states() -> Iterator[str]:
    yield from ("| state | what it says of a Node |", "|---|---|")
    yield from (f"| {state.title} | {state.meaning} |" for state in State)


def _events() -> Iterator[str]:
    yield from ("| event | when | what is written |", "|---|---|---|")
    for event in Event:
        title = f"**{event.title}**" if event in LAST else event.title
        yield f"| {title} | {event.meaning} | {_written(event) or 'nothing'} |"


def _written(event: Event) -> str:
    where: dict[Transition, list[str]] = {}
    for state, act in TABLE[event].items():
        where.setdefault(act, []).append(state.title)
    return "; ".join(f"{', '.join(titles)}: {act.title}" for act, titles in where.items())


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
