"""Generate docs/life-cycle.md from the table: `python -m tests.support.life_cycle`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from core.writes.life_cycle import LAST, TABLE, Event, MarkState, Transition

PAGE: Final = Path(__file__).parents[2] / "docs" / "life-cycle.md"
HEAD: Final = """# The life cycle of a mark

`make fix` generates this page from the table in `core/writes/life_cycle.py`.

A Node is unmarked, marked PreferNoSchedule, or marked NoSchedule. In addition it can be protected
from scale-down or released to the autoscaler, and it can be backing off. The
[glossary](glossary.md) explains these terms.

The first table lists the states of a Node, and the second the events on it. In each
reconciliation, Ebb checks the conditions of all events in the order of the table. The column
*write* says what Ebb writes if the event occurs, for each state. If the Node has several of these
states, Ebb makes the write of the first one only. In states that are not listed, the event has no
effect. After the write of an event in **bold**, Ebb writes nothing else on the Node in this
reconciliation. If a Node is *being deleted*, no other event occurs.

- *Release the mark* means: remove the mark and its details from the Node, and protect the node
  from scale-down for `scaleDownProtection.afterRelease`. If someone else has removed the mark, Ebb
  does the rest.
- *Set an end of the protection* means: the protection ends `scaleDownProtection.afterRelease` from
  now.
- *Release to the autoscaler* means: remove the protection, so that the autoscaler may remove the
  node.
- *Someone else* is any user or program except Ebb.
- The *details* are the annotation with the times and the reason of the mark.
- The reasons with a code `hard-...` are in [reasons.md](reasons.md), which says how long each one
  applies.

Each arrow of the diagram shows how an event changes one state, with the write in parentheses. The
other states of the Node remain, with one exception: when the mark is removed, the states
*protected* and *released to the autoscaler* end too.
"""


def page() -> str:
    """Return the page as Markdown."""
    parts = (["```mermaid", *_picture(), "```"], _states(), _events())
    return "\n".join([HEAD, *(line for part in parts for line in (*part, ""))]).rstrip() + "\n"


def _picture() -> Iterator[str]:
    """Yield a state diagram, with one arrow for all events between two states."""
    yield "stateDiagram-v2"
    for state in MarkState:
        yield f'    state "{state.title}" as {state.name}'
    arrows: dict[tuple[MarkState, MarkState, Transition], list[str]] = {}
    for event, acts in TABLE.items():
        if event is not Event.REMOVABLE_OBSERVED:
            for state, act in acts.items():
                arrows.setdefault((state, act.then or state, act), []).append(event.title)
    for (before, after, act), titles in arrows.items():
        yield f"    {before.name} --> {after.name} : {', '.join(titles)} ({act.title})"


def _states() -> Iterator[str]:
    yield from ("| state | meaning |", "|---|---|")
    yield from (f"| {state.title} | {state.meaning} |" for state in MarkState)


def _events() -> Iterator[str]:
    yield from ("| event | condition | write |", "|---|---|---|")
    for event in Event:
        title = f"**{event.title}**" if event in LAST else event.title
        yield f"| {title} | {event.meaning} | {_written(event) or 'none'} |"


def _written(event: Event) -> str:
    if event is Event.REMOVABLE_OBSERVED:  # the controller logs the write, and does not send it
        return "none; Ebb logs the mark that it would set"
    where: dict[Transition, list[str]] = {}
    for state, act in TABLE[event].items():
        where.setdefault(act, []).append(state.title)
    return "; ".join(f"{', '.join(titles)}: {act.title}" for act, titles in where.items())


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
