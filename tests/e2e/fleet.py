"""Nodes that become empty and are removed one after the other, and a watch that counts them."""

import math
import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Final, NamedTuple

from core.marks.wellknown import KEEP_ANNOTATION, MARK_LABEL, SCALE_DOWN_DISABLED_ANNOTATION
from sim.autoscaler import TO_BE_DELETED
from tests.e2e.api import Api, Json, RefusedError
from tests.e2e.objects import JOBS, LIFE, NODES, add_nodes, node

FIRST_NODES: Final = 100
FIRST_LIFE_SECONDS: Final = (5.0, 600.0)
"""Range of the times for which the first nodes have a pod: one becomes empty every few seconds."""
LATER_LIFE_SECONDS: Final = (2.0, 30.0)
"""The same for further nodes, which come and go within a minute."""
HOLD_SECONDS: Final = (8.0, 120.0)
"""Range of the times for which an autoscaler leaves a node whose scale-down is allowed."""
KEPT_SECONDS: Final = 15.0
"""Time for which a node has an opt-out, so that Ebb unmarks it."""
LEAVING_SECONDS: Final = 2.0
ADD_EVERY_SECONDS: Final = 6.0
KEEP_EVERY_SECONDS: Final = 10.0
TICK_SECONDS: Final = 0.25
STAYS: Final = ("stays-1", "stays-2")


class Event(NamedTuple):
    """Something that Ebb counts, and the times in which it leaves a trace on the Node.

    Who looks at no moment of one of these times cannot know of it.
    """

    name: str
    at: float
    traces: tuple[tuple[float, float], ...]


@dataclass
class Marking:
    """A mark of a Node, from one Unix time to another."""

    name: str
    begin: float
    end: float = math.inf
    unmarked: bool = False
    """Whether it was removed from a node that stayed."""


@dataclass
class Happened:
    """What a watch of the Nodes has shown, by Unix time: independent of anything that Ebb says."""

    markings: list[Marking] = field(default_factory=list)
    removed: list[Event] = field(default_factory=list)
    """Nodes whose scale-down Ebb had allowed."""
    sizes: list[tuple[float, int, bool]] = field(default_factory=list)
    """Time, number of nodes from then on, and whether the change was a counted removal."""
    nodes: dict[str, Json] = field(default_factory=dict)
    allowed: dict[str, float] = field(default_factory=dict)
    """Time since which the scale-down of a node has been allowed."""

    def take(self, kind: str, found: Json) -> None:
        """Take one event of the watch."""
        name, now = found["metadata"]["name"], time.time()
        before = self.nodes.pop(name, None)
        if kind == "DELETED":
            allowed = self.allowed.pop(name, None)
            if allowed is not None:
                self.removed.append(Event(name, now, ((allowed, now),)))
            self.sizes.append((now, len(self.nodes), allowed is not None))
            self._end_mark(name, now)
            return
        self.nodes[name] = found
        was = before is not None and is_marked(before)
        if is_marked(found) and not was:
            self.markings.append(Marking(name, now))
        if was and not is_marked(found):
            self._end_mark(name, now, unmarked=not is_leaving(found))
        if is_marked(found) and not is_protected(found):
            self.allowed.setdefault(name, now)
        elif not is_leaving(found):
            self.allowed.pop(name, None)
        if before is None:
            self.sizes.append((now, len(self.nodes), False))

    def _end_mark(self, name: str, at: float, *, unmarked: bool = False) -> None:
        for one in self.markings:
            if one.name == name and one.end == math.inf:
                one.end, one.unmarked = at, unmarked

    @property
    def marks(self) -> list[Event]:
        """Return the new marks."""
        return [Event(one.name, one.begin, ((one.begin, one.end),)) for one in self.markings]

    @property
    def unmarks(self) -> list[Event]:
        """Return the removed marks, without those of nodes that were being removed."""
        found = []
        for number, one in enumerate(self.markings):
            if one.unmarked:
                later = (m.begin for m in self.markings[number + 1 :] if m.name == one.name)
                traces = (one.begin, one.end), (one.end, next(later, math.inf))
                found.append(Event(one.name, one.end, traces))
        return found

    def size(self, at: float) -> int:
        """Return the number of nodes at a time."""
        return next((size for begin, size, _ in reversed(self.sizes) if begin <= at), 0)

    def node_seconds(self, since: float, until: float) -> float:
        """Return the time of all nodes in this time, summed over nodes."""
        return sum(
            size * max(min(end, until) - max(begin, since), 0.0)
            for (begin, size, _), (end, *_) in zip(
                self.sizes, [*self.sizes[1:], (until, 0, False)], strict=True
            )
        )

    def saved_seconds(self, until: float) -> float:
        """Return for how long removed nodes count: until as many nodes exist as before each."""
        total = 0.0
        for number, (begin, size, removed) in enumerate(self.sizes):
            if removed:
                later = (at for at, other, _ in self.sizes[number:] if other > size)
                total += max(min(next(later, until), until) - begin, 0.0)
        return total


def is_marked(found: Json) -> bool:
    """Return whether a Node has the mark."""
    return MARK_LABEL in found["metadata"].get("labels", {})


def is_protected(found: Json) -> bool:
    """Return whether Cluster Autoscaler must not remove a Node."""
    annotations: Json = found["metadata"].get("annotations", {})
    return bool(annotations.get(SCALE_DOWN_DISABLED_ANNOTATION) == "true")


def is_leaving(found: Json) -> bool:
    """Return whether Cluster Autoscaler removes a Node."""
    return any(one["key"] == TO_BE_DELETED for one in found["spec"].get("taints") or ())


class Fleet:
    """Adds nodes with a Job, and removes them as Cluster Autoscaler does when Ebb allows it."""

    def __init__(self, api: Api, seed: int) -> None:
        self._api, self._chance, self._numbers = api, random.Random(seed), count()
        self.happened = Happened()
        self._holds: dict[str, float] = {}
        """Time for which the autoscaler leaves each node."""
        self._kept: dict[str, float] = {}
        """Nodes with an opt-out, and the time at which it ends."""
        self._resting, self._ended = threading.Event(), threading.Event()
        self._player = threading.Thread(target=self._play, daemon=True)

    def begin(self) -> None:
        """Add the first nodes; from then on nodes come and go."""
        self._api.follow(NODES, self.happened.take, self._ended)
        add_nodes(self._api, *STAYS, cpu="32", annotations={KEEP_ANNOTATION: "true"})
        for _ in range(FIRST_NODES):
            self._add(FIRST_LIFE_SECONDS)
        self._player.start()

    def rest(self) -> None:
        """Change nothing any more."""
        self._resting.set()
        self._player.join()

    def end(self) -> None:
        """End the watch too."""
        self._ended.set()

    def _play(self) -> None:
        steps: dict[Callable[[], None], float] = {
            lambda: self._add(LATER_LIFE_SECONDS): ADD_EVERY_SECONDS,
            self._keep_one: KEEP_EVERY_SECONDS,
            self._release: TICK_SECONDS,
            self._remove: TICK_SECONDS,
        }
        due = dict.fromkeys(steps, time.monotonic())
        while not self._resting.wait(TICK_SECONDS):
            for step, seconds in steps.items():
                if time.monotonic() >= due[step]:
                    due[step] += seconds
                    with suppress(RefusedError):  # changed meanwhile
                        step()

    def _add(self, life_seconds: tuple[float, float]) -> None:
        name = f"n-{next(self._numbers):03}"
        self._holds[name] = self._chance.uniform(*HOLD_SECONDS)
        self._api.create(NODES, node(name))
        life = self._chance.uniform(*life_seconds)
        container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "10m"}}}
        template = {
            "metadata": {"annotations": {LIFE: f"{life:.3f}s"}},
            "spec": {"restartPolicy": "Never", "nodeName": name, "containers": [container]},
        }
        spec = {"template": template, "ttlSecondsAfterFinished": 0}
        self._api.create(JOBS, {"metadata": {"name": name}, "spec": spec})

    def _keep_one(self) -> None:
        """Give a marked node that is not empty an opt-out, so that Ebb unmarks it."""
        nodes = sorted(dict(self.happened.nodes).items())
        marked = [name for name, one in nodes if is_marked(one) and is_protected(one)]
        if marked:
            name = self._chance.choice(marked)
            self._kept[name] = time.time() + KEPT_SECONDS
            self._annotate(name, "true")

    def _release(self) -> None:
        for name in [one for one, until in self._kept.items() if until <= time.time()]:
            del self._kept[name]
            self._annotate(name, None)

    def _annotate(self, name: str, value: str | None) -> None:
        body = {"metadata": {"annotations": {KEEP_ANNOTATION: value}}}
        self._api.merge(f"{NODES}/{name}", body)

    def _remove(self) -> None:
        now, nodes = time.time(), dict(self.happened.nodes)
        for name, since in sorted(dict(self.happened.allowed).items()):
            left = since + self._holds.get(name, HOLD_SECONDS[1]) - now
            taints = nodes[name]["spec"].get("taints") or [] if name in nodes else None
            if taints is None or left > LEAVING_SECONDS:
                continue
            if left <= 0:
                self._api.delete(f"{NODES}/{name}")
            elif not is_leaving(nodes[name]) and int(name[-1]) % 2:  # the others go at once
                leaving = {"key": TO_BE_DELETED, "value": str(int(now)), "effect": "NoSchedule"}
                self._api.merge(f"{NODES}/{name}", {"spec": {"taints": [*taints, leaving]}})
