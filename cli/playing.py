"""The demo: the same load four times in virtual time, as a table and a picture."""

import queue
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing import active_children, get_context, resource_tracker
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from cli.terminal import Table, console, say
from core.errors import UnavailableError
from sim import picture, report, scenario, trace, workload
from sim.scenario import SCENARIOS, Scenario
from sim.workload import HOUR_MS, Workload
from sim.world import Result

SIDE_BY_SIDE: Final = 2
"""Runs at a time; each has one thread that works, so two cores are busy."""
POLL_SECONDS: Final = 0.2
PLAIN_LINE_HOURS: Final = 12
PODS_AT_ONCE_TRACE: Final = 5000
SPAWN: Final = get_context("spawn")
ENDED: Final = "one of the demo's processes was ended from outside"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the command line says."""

    trace: str | None
    """The folder of a trace; None: the load that is embedded."""
    days: int
    seed: int
    wire: bool
    """Whether the programs are asked over the wire, or by call."""
    picture: str
    """The file to draw."""


def play(asked: Asked) -> None:
    """Play the four runs, print the table, draw the picture."""
    out = console()
    picture.check(asked.picture)
    load = _load(asked)
    title = (
        f"{load.name} workload, {asked.days} days, seed {asked.seed}: "
        f"{len(load.nodes):,} nodes, {len(load.arrivals):,} pods"
    )
    say(out, title)
    began = time.perf_counter()
    results = _play_all(load, asked, out)
    say(out, _table(report.table(results)))
    picture.draw(results, title, asked.picture)
    how = "over HTTP and HTTPS" if asked.wire else "by call"
    took = time.perf_counter() - began
    say(out, f"Ebb was asked {how}. {took:.0f} s. Picture: {asked.picture}")


def _load(asked: Asked) -> Workload:
    if asked.trace is None:
        return workload.embedded(asked.seed, asked.days)
    folder = Path(asked.trace)
    nodes = [shape for _, shape in trace.nodes(folder)]
    rows = [(requests, life) for _, requests, life in trace.pods(folder)]
    return workload.bootstrap(
        nodes, rows, seed=asked.seed, days=asked.days, at_once=PODS_AT_ONCE_TRACE
    )


def _play_all(load: Workload, asked: Asked, out: Console) -> Mapping[str, Result]:
    with ExitStack() as stack:
        with _ctrl_c_later():
            manager = stack.enter_context(SPAWN.Manager())
            hours = manager.Queue()
            pool = stack.enter_context(_pool())
            runs: dict[str, Future[Result]] = {
                one.name: pool.submit(_play, one, load, asked.seed, asked.wire, hours)
                for one in SCENARIOS
            }
        total = load.duration_ms // HOUR_MS
        tell, close = _bars(out, total) if out.is_terminal else _lines(out, total)
        try:
            while not all(one.done() for one in runs.values()):
                _tell_news(hours, tell)
        finally:
            close()
        try:
            return {name: one.result() for name, one in runs.items()}
        except BrokenProcessPool as fault:
            raise UnavailableError(ENDED) from fault


@contextmanager
def _pool() -> Iterator[Executor]:
    """Open a pool of processes; they end at once when what is done with them fails."""
    others = set(active_children())
    with ProcessPoolExecutor(SIDE_BY_SIDE, SPAWN, _leave_at_ctrl_c) as pool:
        try:
            yield pool
        except BaseException:
            for ours in set(active_children()) - others:
                ours.terminate()  # or the pool would wait for the runs' ends
            raise


@contextmanager
def _ctrl_c_later() -> Iterator[None]:
    """Hold Ctrl-C back; processes started meanwhile hold it back until they are ready for it."""
    pressed: list[int] = []
    resource_tracker.ensure_running()  # its start, at the first process's, lets Ctrl-C through
    handler = signal.signal(signal.SIGINT, lambda number, _: pressed.append(number))
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # this is what they inherit
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        signal.signal(signal.SIGINT, handler)
    if pressed:
        raise KeyboardInterrupt


def _leave_at_ctrl_c() -> None:
    """End a run quietly: the process that started it has the last word."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def _play(one: Scenario, load: Workload, seed: int, wire: bool, hours: Any) -> Result:  # noqa: ANN401, FBT001 sent to another process
    return scenario.run(
        one, load, seed=seed, wire=wire, progress=lambda hour: hours.put((one.name, hour))
    )


def _tell_news(hours: Any, tell: Callable[[str, int], None]) -> None:  # noqa: ANN401 a manager's proxy
    try:
        news = hours.get(timeout=POLL_SECONDS)
    except queue.Empty:
        return
    except (EOFError, OSError) as fault:
        raise UnavailableError(ENDED) from fault
    tell(*news)


def _bars(out: Console, total: int) -> tuple[Callable[[str, int], None], Callable[[], None]]:
    progress = Progress(
        TextColumn("{task.description:>16}"), BarColumn(), TextColumn("{task.completed:>3} h"),
        TimeElapsedColumn(), console=out,
    )  # fmt: skip
    tasks = {one.name: progress.add_task(one.name, total=total) for one in SCENARIOS}
    progress.start()
    return lambda name, hour: progress.update(tasks[name], completed=hour), progress.stop


def _lines(out: Console, total: int) -> tuple[Callable[[str, int], None], Callable[[], None]]:
    def tell(name: str, hour: int) -> None:
        if hour % PLAIN_LINE_HOURS == 0:
            say(out, f"{name}: {hour} of {total} h")

    return tell, lambda: None


def _table(rows: list[list[str]]) -> Table:
    made = Table(*rows[0])
    for row in rows[1:]:
        made.add_row(*row)
    return made
