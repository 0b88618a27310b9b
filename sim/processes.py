"""Run simulations in parallel processes; Ctrl-C ends all of them at once."""

import queue
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from multiprocessing import active_children, get_context, resource_tracker
from typing import Any, Final, NamedTuple

from core.config.settings import Config
from core.model.errors import UnavailableError
from sim import scenario
from sim.scenario import SCENARIOS, Scenario
from sim.simulator import Result
from sim.workload import Workload

SIDE_BY_SIDE: Final = 2
"""Number of parallel runs; each uses one core."""
POLL_SECONDS: Final = 0.2
SPAWN: Final = get_context("spawn")
ENDED: Final = "one of the runs' processes was ended from outside"

Tell = Callable[[str, int], None]
"""Called with the name of a run and its simulated hours."""


class Run(NamedTuple):
    """One run; its name is unique among the runs of a call."""

    name: str
    scenario: Scenario
    load: Workload
    seed: int
    given: Config | None = None
    """Configuration of Ebb; None: the demo's own."""
    wire: bool = False


def run_all(
    load: Workload, *, seed: int, wire: bool, tell: Tell, given: Config | None = None
) -> Mapping[str, Result]:
    """Run all scenarios with one load.

    *given* is the configuration of Ebb; None: the demo's own.
    Raises: UnavailableError when a process is ended.
    """
    longest_first = reversed(SCENARIOS)
    runs = [Run(one.name, one, load, seed, given, wire) for one in longest_first]
    found = run_each(runs, tell)
    return {one.name: found[one.name] for one in SCENARIOS}


def run_each(runs: Iterable[Run], tell: Tell) -> Mapping[str, Result]:
    """Run all simulations. Raises: UnavailableError when a process is ended."""
    with ExitStack() as stack:
        with _ctrl_c_later():
            manager = stack.enter_context(SPAWN.Manager())
            hours = manager.Queue()
            pool = stack.enter_context(_pool())
            found: dict[str, Future[Result]] = {
                one.name: pool.submit(_play, one, hours) for one in runs
            }
        while not all(one.done() for one in found.values()):
            _tell_news(hours, tell)
        try:
            return {name: one.result() for name, one in found.items()}
        except BrokenProcessPool as fault:
            raise UnavailableError(ENDED) from fault


@contextmanager
def _pool() -> Iterator[Executor]:
    """Open a pool of processes that are terminated if the body of the context fails."""
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
    """Defer Ctrl-C; processes that start meanwhile defer it until they are ready for it."""
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
    """Let Ctrl-C end the process without a traceback; the parent process reports it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def _play(one: Run, hours: Any) -> Result:  # noqa: ANN401 a manager's proxy
    return scenario.run(
        one.scenario,
        one.load,
        seed=one.seed,
        wire=one.wire,
        given=one.given,
        progress=lambda hour: hours.put((one.name, hour)),
    )


def _tell_news(hours: Any, tell: Tell) -> None:  # noqa: ANN401 a manager's proxy
    try:
        news = hours.get(timeout=POLL_SECONDS)
    except queue.Empty:
        return
    except (EOFError, OSError) as fault:
        raise UnavailableError(ENDED) from fault
    tell(*news)
