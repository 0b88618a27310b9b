"""Compare what Ebb has stored in `ebb-today` with what has happened."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from controller.historian import FIRST_SECONDS, STORE_SECONDS
from core.history.days import NOTHING, PoolDay, summed
from core.history.today import Today
from tests.e2e.api import Json
from tests.e2e.fleet import Event, Happened
from tests.e2e.plane import Plane
from tests.support.plan_cli import ebb

PRINTED: Final = {"marks": "marks", "unmarks": "unmarks", "removed": "removedNodes"}
"""Key in the JSON of `ebb history` of each figure that the watch of the Nodes counts too."""
FIGURES: Final = tuple(PRINTED)
REACTION_SECONDS: Final = 5.0
"""Time within which a leader has counted a change, and within which it does what is due."""
PERCENT_APART_MAX: Final = 5
"""Maximum difference of figures that grow with time, because a change counts a moment later."""


def printed_days(plane: Plane) -> list[Json]:
    """Return the sums of each day of the week that `ebb history` prints."""
    done = ebb("history", "week", "-o", "json", KUBECONFIG=str(plane.kubeconfig("person")))
    if done.returncode:
        raise AssertionError(done.stderr)
    return [one["total"] for one in json.loads(done.stdout)["days"]]


@dataclass(frozen=True)
class Version:
    """A version of `ebb-today`, and the Unix time at which it was seen."""

    at: float
    today: Today

    @property
    def total(self) -> PoolDay:
        """Return the sums over pools and days."""
        return summed((*self.today.earlier, self.today.day), 0).total


@dataclass(frozen=True)
class Kill:
    """A kill of the leader, with the last version before it and the first one after it."""

    at: float
    last: Version | None
    following: Version

    @property
    def since(self) -> float:
        """Return until when was counted before."""
        return self.last.today.counted_until if self.last else 0.0

    @property
    def until(self) -> float:
        """Return until when was counted in the first version afterwards."""
        return self.following.today.counted_until

    def counted(self, figure: str) -> int:
        """Return what was counted in between."""
        before = self.last.total if self.last else NOTHING
        return int(getattr(self.following.total, figure) - getattr(before, figure))


@dataclass
class Counted:
    """All versions of `ebb-today`, all kills, and what has happened."""

    happened: Happened
    versions: list[Version] = field(default_factory=list)
    killed: list[float] = field(default_factory=list)
    """Unix times of the kills."""

    @property
    def final(self) -> Version:
        """Return the last version."""
        return self.versions[-1]

    def kills(self) -> list[Kill]:
        """Return all kills; a leader must have stored something after the last one."""
        found = []
        for at in self.killed:
            before = [one for one in self.versions if one.at <= at]
            after = (one for one in self.versions if one.at > at)
            found.append(Kill(at, before[-1] if before else None, next(after)))
        return found

    def seen(self, figure: str, since: float = 0.0, until: float | None = None) -> int:
        """Return how often this has happened in this time, by default until the end."""
        events: list[Event] = getattr(self.happened, figure)
        end = self.final.at if until is None else until
        return sum(since < one.at <= end for one in events)

    def untraced(self, figure: str) -> int:
        """Return how many events came and went while nothing was stored, because of a kill."""
        events: list[Event] = getattr(self.happened, figure)
        spans = [(one.since - REACTION_SECONDS, one.until) for one in self.kills()]
        return sum(
            any(
                since <= begin and end <= until
                for begin, end in event.traces
                for since, until in spans
            )
            for event in events
        )

    def node_seconds(self) -> tuple[int, int]:
        """Return the counted and the expected time of nodes, from the first version on.

        Around a kill, the number of nodes counts that was stored before.
        """
        first, final = self.versions[0], self.final
        since, until = (float(one.today.counted_until) for one in (first, final))
        expected = self.happened.node_seconds(since, until)
        for one in self.kills():
            constant = self.happened.size(one.since) * (one.until - one.since)
            expected += constant - self.happened.node_seconds(one.since, one.until)
        return final.total.node_seconds - first.total.node_seconds, round(expected)

    def saved_seconds(self) -> tuple[int, int]:
        """Return the counted and the real time of removed nodes."""
        real = self.happened.saved_seconds(self.final.today.counted_until)
        return self.final.total.saved_seconds, round(real)

    def faults(self) -> Iterator[str]:
        """Yield what Ebb has counted twice, lost, or moved back."""
        yield from self._backwards()
        yield from self._too_many()
        yield from self._lost()
        counted, expected = self.node_seconds()
        if abs(counted - expected) * 100 > PERCENT_APART_MAX * expected:
            yield f"{counted} s of nodes counted, {expected} s expected"
        counted, real = self.saved_seconds()
        if counted * 100 > (100 + PERCENT_APART_MAX) * real:
            yield f"{counted} s saved, but only {real} s real"

    def _backwards(self) -> Iterator[str]:
        for one, following in pairwise(self.versions):
            if following.today.counted_until < one.today.counted_until:
                yield f"counted until {one.today.counted_until}, then {following}"
            for figure in (*FIGURES, "saved_seconds", "node_seconds"):
                if getattr(following.total, figure) < getattr(one.total, figure):
                    yield f"fewer {figure} than before: {following}"

    def _too_many(self) -> Iterator[str]:
        for version in self.versions:
            for figure in FIGURES:
                # The watches of Nodes and of the ConfigMap may differ by a moment.
                counted, seen = (
                    getattr(version.total, figure),
                    self.seen(figure, 0, version.at + 1),
                )
                if counted > seen:
                    yield f"{figure}: {counted} counted, {seen} seen until {version.at}"
        today = self.final.today
        rows = {
            "removed": [one.node for one in today.removed],
            "credits": [one.node for one in today.credits],
            "decisions": [str(one[:4]) for one in today.decisions],
        }
        for name, keys in rows.items():
            if twice := [key for key, many in Counter(keys).items() if many > 1]:
                yield f"{name} twice: {twice}"
        gone = {one.name for one in self.happened.removed}
        if forged := {*rows["removed"], *rows["credits"]} - gone:
            yield f"not removed: {forged}"

    def _lost(self) -> Iterator[str]:
        """Yield what is missing, except what came and went between the versions around a kill.

        That begins at most a minute before the kill.
        """
        kills = self.kills()
        for kill in kills:
            if kill.at - kill.since > STORE_SECONDS + FIRST_SECONDS + REACTION_SECONDS:
                yield f"nothing was stored in the {kill.at - kill.since:.0f} s before {kill.at}"
        for figure in FIGURES:
            counted, seen = getattr(self.final.total, figure), self.seen(figure)
            if counted < seen - self.untraced(figure):
                yield f"{figure}: {counted} counted, {seen} seen, {self.untraced(figure)} untraced"

    def report(self) -> Iterator[str]:
        """Yield lines: the time around each kill, and the sums."""
        yield "kill  last write    next write  counted of seen in between, but for a moment"
        for number, one in enumerate(self.kills(), 1):
            cells = ", ".join(
                f"{one.counted(figure)} of {self.seen(figure, one.since, one.until)} {figure}"
                for figure in FIGURES
            )
            before, after = one.at - one.since, one.following.at - one.at
            yield f"{number:>4}  {before:>4.0f} s before  {after:>3.0f} s after  {cells}"
        for figure in FIGURES:
            counted, seen = getattr(self.final.total, figure), self.seen(figure)
            untraced = self.untraced(figure)
            yield f"{figure}: {counted} of {seen}; {untraced} came and went around a kill"
        yield "nodes: {:,} s counted, {:,} s expected".format(*self.node_seconds())
        yield "removed nodes: {:,} s counted, {:,} s real".format(*self.saved_seconds())
        today = self.final.today
        rows = {"removed": today.removed, "credits": today.credits, "decisions": today.decisions}
        lists = ", ".join(f"{len(found)} {name}" for name, found in rows.items())
        yield f"{len(self.versions)} versions; the last one lists {lists}"
