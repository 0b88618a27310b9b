"""Until when a pass need not be made again if nothing changes but the time."""

from dataclasses import replace

from core.engine import taken_back
from core.engine.arrivals import aged, turns
from core.engine.memory import Memory, Pace, unseen_seconds
from core.engine.survey import Survey
from core.guards.disruption import turns_at
from core.marks.mark import backoff_of
from core.model.constraints import UNTIED
from core.model.starting import START_SECONDS_MAX


def idle_until(memory: Memory, survey: Survey, held: Pace, now_seconds: int) -> int | None:
    """Return the first second in which time alone may change a verdict, or a word of one.

    It is *now_seconds* as long as something is told by how long ago it was, or how long it takes
    still; None: time alone changes nothing. *memory* has seen the cluster last.
    """
    if _is_counting(memory, survey, held, now_seconds):
        return now_seconds
    config, budgets = survey.config, survey.config.budgets
    delay = config.delay_seconds + (
        not survey.rule.waited(config.delay_seconds, config.delay_seconds)
    )
    moments = [since + delay for since in memory.candidates.values()]
    moments += (one.since + budgets.window_seconds for one in memory.marked.values())
    moments += held.backing_off.values()
    for refused in memory.refused.values():
        moments += (refused.until, refused.until + budgets.backoff.max_seconds)
    moments += (
        node.created_seconds + START_SECONDS_MAX
        for node in survey.starting.values()
        if node.created_seconds is not None
    )
    moments += turns(memory.arrivals, now_seconds)
    moments += taken_back.turns(memory.back, budgets.reserve)
    for looks in memory.demand.values():
        moments += (second + budgets.peak_window_seconds for second, _ in looks[:-1])
    lately = budgets.peak_window_seconds
    at_once = now_seconds + 1 - lately  # who is beyond the bound is not there at the next look
    moments += (memory.asked.get(one, at_once) + lately for one in survey.reaches.left)
    for pod in survey.cluster.pods:
        if pod.ties is not UNTIED:
            moments += turns_at(pod)
    return min((moment for moment in moments if moment > now_seconds), default=None)


def _is_counting(memory: Memory, survey: Survey, held: Pace, now_seconds: int) -> bool:
    """Say whether something counts seconds, or stands on a node from a clock that is ahead."""
    possible = survey.config.budgets.backoff.possible
    backoffs = (backoff_of(node.annotations) for node in survey.cluster.nodes)
    return (
        bool(held.cooling_seconds or held.pending_seconds or held.spacing_seconds or memory.placed)
        or _is_new(memory, survey, now_seconds)
        or any(one.since > now_seconds for one in survey.marks.values())
        or any(one and not possible(one.until, now_seconds) for one in backoffs)
    )


def _is_new(memory: Memory, survey: Survey, now_seconds: int) -> bool:
    """Say whether the leader has looked on for too short a time to know what comes."""
    reserve = survey.config.budgets.reserve
    if not reserve.over_seconds:
        return False
    return unseen_seconds(memory, reserve.length_seconds, now_seconds) > 0


def looked_again(memory: Memory, survey: Survey, now_seconds: int) -> Memory:
    """Return the memory after one more look at the same cluster, in idle time."""
    there = frozenset(survey.reaches.templates)
    return replace(
        memory,
        looked=now_seconds,
        arrivals=aged(memory.arrivals, now_seconds),
        demand={
            key: (*looks[:-1], (now_seconds, looks[-1][1])) for key, looks in memory.demand.items()
        },
        asked={one: now_seconds if one in there else at for one, at in memory.asked.items()},
        spoken={name: (now_seconds, why) for name, (_, why) in memory.spoken.items()},
        back={
            name: one._replace(needed=now_seconds) if one.needed == memory.looked else one
            for name, one in memory.back.items()
        },
    )
