"""Controllers that are killed during surge moves: the next leader leaves nothing behind."""

import random
import signal
import time
from contextlib import ExitStack

import pytest

from tests.e2e.api import Api
from tests.e2e.endpoints import never_below
from tests.e2e.install import LEASE, Start, leader_of
from tests.e2e.line import Line
from tests.e2e.moves import (
    HELD,
    OLD,
    App,
    Write,
    begin,
    deploy,
    detached,
    hold,
    is_detached,
    is_marked,
    let_go,
    make_ready,
    settled,
    without_traces,
    write_of,
    written,
)
from tests.e2e.objects import PODS
from tests.e2e.plane import Plane, until

KILLS = 30
KILLED_SECONDS_MAX = 2.5
"""A move takes about as long, from its permission to its end."""
HITS_MIN = 3
"""So many leaders at least are killed while a pod is detached; usually about half of them are."""
SURE_EVERY = 5
"""Of so many leaders one is killed as soon as it has detached a pod: on a busy machine the others
may all be killed before."""


def test_nothing_is_left_behind_by_30_kills_at_random_moments(
    plane: Plane, cluster: Api, start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each leader may move a fresh Deployment, as none is moved twice within a minute."""
    apps = [App(name=f"app-{n}", start="700ms", annotations=HELD) for n in range(KILLS)]
    counts, before = {app.name: app.replicas for app in apps}, {}
    moments, hits = random.Random(), 0
    deploy(cluster, *apps)
    running = [start(), start()]
    begin(cluster)
    until(lambda: is_marked(cluster), "node a is marked")
    with never_below(plane, counts) as samples:
        for number, app in enumerate(apps):
            leader = leader_of(cluster, running)
            let_go(cluster, app)
            before[app.name] = written(cluster, app.name)
            if number % SURE_EVERY:
                time.sleep(moments.uniform(0, KILLED_SECONDS_MAX))  # the moment of the kill
            else:
                detached(cluster, app.name)
            leader.stop(signal.SIGKILL)
            hits += any(map(is_detached, cluster.get(PODS)["items"]))
            # Otherwise the next leader waits until the Lease has expired.
            cluster.delete(LEASE)
            running.remove(leader)
            running.append(start())
        pods = settled(cluster, counts)
    without_traces(pods)
    assert {name: written(cluster, name) for name in counts} == before
    with capsys.disabled():
        print(f"\n{len(samples.detached)} moves began, {hits} of {KILLS} kills were during a move")
    assert hits >= HITS_MIN


READY = {"minReadySeconds": 60}
"""A new pod of such a Deployment is Ready for a minute before it is available."""
CASES = (
    (Write.BEGUN, App(name="begun", replicas=2, start="1s", annotations=HELD)),
    (Write.DETACHED, App(name="detached", replicas=2, start="1s", annotations=HELD)),
    (Write.ATTACHED, App(name="attached", replicas=2, start="1s", annotations=HELD)),
    (Write.LOWERED, App(name="lowered", replicas=2, annotations=HELD, spec=READY)),
    (Write.ATTACHED, App(name="undone", replicas=2, annotations=HELD, spec=READY)),
)
"""Writes of moves that succeed, and of moves that are undone, with the Deployment of each."""


class Doomed:
    """A controller that is killed when the API server has made one of its writes."""

    def __init__(self, plane: Plane, start: Start) -> None:
        self._write: Write | None = None
        self.line = Line(plane, "doomed")
        self.line.loses = self._loses
        self.ebb = start(url=self.line.url)

    def die_after(self, write: Write) -> None:
        """Kill it by SIGKILL after its next such write, of which it gets no answer."""
        self._write = write

    def _loses(self, method: str, path: str, body: bytes) -> bool:
        if self._write is None or write_of(method, path, body) is not self._write:
            return False
        self.ebb.program.send(signal.SIGKILL)
        return True


def test_nothing_is_left_behind_by_a_kill_after_each_write_of_a_move(
    plane: Plane, cluster: Api, start: Start
) -> None:
    apps = [app for _, app in CASES]
    deploy(cluster, *apps)
    begin(cluster)
    with ExitStack() as at_end, never_below(plane, {app.name: 2 for app in apps}):
        leader = Doomed(plane, start)
        at_end.callback(leader.line.end)
        for write, app in CASES:
            leader_of(cluster, [leader.ebb])
            follower = Doomed(plane, start)
            at_end.callback(follower.line.end)
            until(lambda: is_marked(cluster), "node a is marked")
            leader.die_after(write)
            let_go(cluster, app)
            before = written(cluster, app.name)
            if app.spec == READY:
                detached(cluster, app.name)
                make_ready(cluster, {app.name: 1})
                plane.kubectl("cordon", OLD)
            until(lambda: not leader.ebb.program.running, f"it is killed: {write}")  # noqa: B023
            # Otherwise the next leader waits until the Lease has expired.
            cluster.delete(LEASE)
            without_traces(settled(cluster, {app.name: 2}))
            assert written(cluster, app.name) == before
            hold(cluster, app)
            plane.kubectl("uncordon", OLD)
            leader = follower
