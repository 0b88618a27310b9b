"""Measure the pods per second that a real kube-scheduler binds, with different extenders.

`python -m tests.bench.bench_scheduler [--turns N] [--pods N] [--nodes N]`; needs `make e2e-tools`.
All programs share the cores of the machine. Each turn has its own nodes, and pods that are Pending
before the scheduler starts. A watch measures the time from the first binding to the last.
"""

import argparse
import contextlib
import itertools
import json
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.marks.mark import Mark
from core.marks.wellknown import MARK_LABEL
from extender import wire
from extender.formulas import SCORE_MAX, score_marked
from tests.bench import serving
from tests.bench.machine import factor, show
from tests.e2e import tools
from tests.e2e.api import Api, Json
from tests.e2e.install import REGISTRATION, apply
from tests.e2e.objects import NODES, PODS, clear, node, pod
from tests.e2e.plane import LOOPBACK, Plane, free_port, until
from tests.e2e.scheduling import port_of, scheduling, stanza, start_extender

PATH = "/prioritize"
SENDERS = 16
LIMIT_SECONDS = 120.0
ASTRAY_PERCENT_MAX = 1
"""Maximum percentage of pods on marked nodes; more shows that the extender was not called."""
BUDGET_RATIO = 0.95
"""Goal for Ebb's rate relative to Go's."""
EBB, GO, NONE = "Ebb", "Go", "none"
OTHERS = ("kwok", "kube-controller-manager")
READY = {"type": "Ready", "status": "True", "reason": "KubeletReady"}

Contender = Callable[[], contextlib.AbstractContextManager[int | None]]
"""Type of a context that runs an extender and yields its port, or None without an extender."""


@dataclass(frozen=True, slots=True)
class Turn:
    """The result of a turn."""

    pods_per_second: float
    on_marked: int


Results = dict[str, list[Turn]]


class Field:
    """The nodes and their expected scores: every tenth is marked, every fiftieth NoSchedule."""

    def __init__(self, count: int) -> None:
        names = [f"node-{number:05}" for number in range(count)]
        self.marks = {
            name: Mark.NO_SCHEDULE if at % 50 == 0 else Mark.PREFER_NO_SCHEDULE
            for at, name in enumerate(names)
            if at % 10 == 0
        }
        ranked = enumerate(self.marks.items())
        self.marked = {n: score_marked(mark, rank, len(self.marks)) for rank, (n, mark) in ranked}
        self.scores = {name: self.marked.get(name, SCORE_MAX) for name in names}

    def objects(self) -> Iterator[Json]:
        """Yield the Nodes to create."""
        for name in self.scores:
            mark = self.marks.get(name)
            found = node(name, labels={MARK_LABEL: mark.value} if mark else {})
            found["status"]["conditions"] = [READY]
            yield found

    def check(self, port: int) -> None:
        """Check that the extender returns the expected scores."""
        body = wire.names_body(list(self.scores))
        assert wire.scores(serving.call(port, PATH, body)) == self.scores


def contenders(plane: Plane, field: Field, peer: serving.Peer | None) -> dict[str, Contender]:
    """Return the compared extenders by name."""

    @contextlib.contextmanager
    def ebb() -> Iterator[int]:
        extender = start_extender(plane, score="marks").wait_ready()
        field.check(port_of(extender))
        yield port_of(extender)
        extender.stop()

    @contextlib.contextmanager
    def go(program: Path) -> Iterator[int]:
        names = plane.folder / "names.json"
        names.write_text(json.dumps(field.marked))
        port = free_port()
        command = [str(program), "-extender", f"{LOOPBACK}:{port}", "-names", str(names)]
        started = plane.run("peer", command)
        until(lambda: _listens(port), "the peer listens")
        field.check(port)
        yield port
        plane.end(started)

    found: dict[str, Contender] = {EBB: ebb}
    if peer:
        found[GO] = lambda: go(peer.program)
    found[NONE] = contextlib.nullcontext
    return found


def _listens(port: int) -> bool:
    try:
        return bool(serving.call(port, PATH, wire.names_body([])))
    except OSError:
        return False


def at_once(call: Callable[[Json], object], objects: Iterable[Json]) -> None:
    """Call the function for each object, over several connections."""
    with ThreadPoolExecutor(SENDERS) as senders:
        list(senders.map(call, objects))


def set_up(api: Api, field: Field, pods: int) -> None:
    """Create ready nodes and pending pods."""

    def add(found: Json) -> None:
        api.create(NODES, found)
        # The API server taints a new Node until a controller has seen it Ready.
        api.merge(f"{NODES}/{found['metadata']['name']}", {"spec": {"taints": None}})

    at_once(add, field.objects())
    wanted = (pod(f"pod-{number:05}", cpu="100m") for number in range(pods))
    at_once(lambda one: api.create(PODS, one), wanted)


def end_others(plane: Plane) -> None:
    """Stop programs that are not needed for scheduling and would use the cores."""
    for program in list(plane.programs):
        if program.name in OTHERS:
            plane.end(program, signal.SIGKILL)


def bindings(api: Api, pods: int, watching: threading.Event) -> dict[str, tuple[float, str]]:
    """Watch until all pods are bound; return time and node of each binding."""
    bound: dict[str, tuple[float, str]] = {}

    def told(_: str, found: Json) -> None:
        if where := found["spec"].get("nodeName"):
            bound.setdefault(found["metadata"]["name"], (time.perf_counter(), where))

    def reached(_: Mapping[str, Json]) -> bool:
        watching.set()
        return len(bound) == pods

    api.wait(PODS, reached, LIMIT_SECONDS, told)
    return bound


def turn(
    plane: Plane,
    field: Field,
    pods: int,
    contender: Contender,
    finish: Callable[[], None] = lambda: None,
    **how: Any,
) -> Turn:
    """Run one turn: let the scheduler bind all pods.

    Call *finish* before kube-scheduler stops. The other arguments are those of Plane.scheduler.
    """
    set_up(plane.api, field, pods)
    watching = threading.Event()
    try:
        with contender() as port, ThreadPoolExecutor(1) as beside:
            seen = beside.submit(bindings, plane.api, pods, watching)
            assert watching.wait(LIMIT_SECONDS), "the pods cannot be watched"
            with scheduling(plane, *(() if port is None else (stanza(port),)), **how):
                bound = seen.result()
                finish()
    finally:
        clear(plane.api)
    moments = sorted(moment for moment, _ in bound.values())
    on_marked = sum(where in field.marks for _, where in bound.values())
    assert port is None or on_marked * 100 <= pods * ASTRAY_PERCENT_MAX, f"{on_marked} astray"
    return Turn((pods - 1) / (moments[-1] - moments[0]), on_marked)


def prepare(plane: Plane) -> None:
    """Install the permissions of the extender, and stop what is not needed."""
    apply(plane, "manifests/examples/self-managed")
    plane.api.delete(REGISTRATION)  # without taints, so that only scores count
    end_others(plane)


def play(plane: Plane, field: Field, peer: serving.Peer | None, turns: int, pods: int) -> Results:
    """Run all turns; each round begins with another extender."""
    prepare(plane)
    found = contenders(plane, field, peer)
    results: Results = {name: [] for name in found}
    for number in range(turns):
        start = number % len(found)
        for name in itertools.islice(itertools.cycle(found), start, start + len(found)):
            result = turn(plane, field, pods, found[name])
            say(f"turn {number + 1}, {name}: {result.pods_per_second:.1f} pods/s")
            results[name].append(result)
    return results


def rows(results: Results) -> list[list[str]]:
    """Return the rows: minimum, median and maximum, and ratios of medians."""
    medians = {name: statistics.median(rates(turns)) for name, turns in results.items()}
    found = []
    for name, turns in results.items():
        cells = [name, ""]
        cells += [f"{one:.1f}" for one in (min(rates(turns)), medians[name], max(rates(turns)))]
        cells.append(f"{medians[name] / medians[GO]:.2f}" if GO in medians else "")
        cells.append(f"{BUDGET_RATIO}" if name == EBB else "")
        cells.append(f"{medians[name] / medians[NONE]:.2f}")
        cells.append(f"{max(one.on_marked for one in turns)}")
        found.append(cells)
    return found


def rates(turns: Sequence[Turn]) -> list[float]:
    return [one.pods_per_second for one in turns]


def say(text: str) -> None:
    """Show progress."""
    print(f"  {text}", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--pods", type=int, default=1500)
    parser.add_argument("--nodes", type=int, default=1000)
    asked = parser.parse_args()
    try:
        tools.find()
    except tools.MissingError as fault:
        sys.exit(f"bench_scheduler: {fault}")
    k = factor()
    with tempfile.TemporaryDirectory(prefix="ebb-scheduler-") as name:
        folder = Path(name)
        peer = serving.build_peer(folder)
        plane = Plane(folder)
        try:
            results = play(plane.start(), Field(asked.nodes), peer, asked.turns, asked.pods)
        finally:
            plane.stop()
    against = peer.version if peer else "no Go"
    title = f"kube-scheduler, pods/s: {asked.pods:,} pods, {asked.nodes:,} nodes, 10% marked"
    columns = ["extender", "", "min", "median", "max", "to Go", "budget", "to none", "on marked"]
    show(f"{title}; {asked.turns} turns; {against}; K = {k:.2f}", columns, rows(results))


if __name__ == "__main__":
    main()
