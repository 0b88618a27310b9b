"""Which nodes the reserve has taken back from their autoscaler, and how long they are kept; pure.

What the nodes that stay have room for changes with every pod. A node that is needed while a pod of
a CronJob runs would be handed over each time that it ends, and taken back before its autoscaler
could have it, which takes no node that has been empty for less than ten minutes. So a node that
has been taken back is kept longer than it is needed: for one length of the reserve, twice as long
each further time, and never longer than the reserve looks back.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from core.config.budgets import Reserve
from core.engine.memory import Memory, TakenBack, unseen_seconds
from core.engine.plan import Held
from core.engine.reserve import RESERVE
from core.engine.survey import Survey
from core.marks.mark import handed_over
from core.model.reason import Blocker
from core.model.telling import moment

DOUBLINGS_MAX: Final = 32
"""More are longer than any time that can be configured."""


def follow(
    memory: Memory, survey: Survey, needed: Collection[str], now_seconds: int
) -> dict[str, TakenBack]:
    """Return what is to be remembered after a look that has found these nodes *needed*.

    What a leader keeps because it has looked on for too short a time is not known to be needed.
    """
    settings = survey.config.budgets.reserve
    if unseen_seconds(memory, settings.length_seconds, now_seconds):
        needed = ()
    found: dict[str, TakenBack] = {}
    for node in survey.ground.nodes:
        known = memory.back.get(node.name)
        if known and known.needed + settings.over_seconds <= now_seconds:
            known = None
        if node.name in needed:
            again = handed_over(node) and not (known and now_seconds < _until(known, settings))
            times = (known.times if known else 0) + again
            known = TakenBack(times, now_seconds) if times else None
        if known:
            found[node.name] = known
    return found


def kept_longer(
    back: Mapping[str, TakenBack], survey: Survey, kept: Iterable[Held], now_seconds: int
) -> tuple[Held, ...]:
    """Return the nodes that are *kept*, and those that were needed lately, by name."""
    settings = survey.config.budgets.reserve
    found = {one.node: one for one in kept}
    for name, one in back.items():
        until = _until(one, settings)
        if now_seconds < until and name not in found and _is_empty_and_marked(survey, name):
            message = f"it was handed over, and needed again: it is kept until {moment(until)}"
            found[name] = Held(name, Blocker(RESERVE, message))
    return tuple(found[name] for name in sorted(found))


def turns(back: Mapping[str, TakenBack], settings: Reserve) -> list[int]:
    """Return the unix seconds in which time alone changes something of it."""
    ends = [_until(one, settings) for one in back.values()]
    return ends + [one.needed + settings.over_seconds for one in back.values()]


def _until(one: TakenBack, settings: Reserve) -> int:
    seconds: int = settings.length_seconds << min(one.times - 1, DOUBLINGS_MAX)
    return one.needed + min(seconds, settings.over_seconds)


def _is_empty_and_marked(survey: Survey, name: str) -> bool:
    empty = name not in survey.occupied and name not in survey.closed
    return empty and name in survey.marks and not survey.blockers[name]
