"""Run simulations in parallel processes; Ctrl-C ends all of them at once."""

import queue
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from multiprocessing import active_children, get_context, resource_tracker
from typing import Any, Final, NamedTuple

from core.config.settings import Config
from core.model.errors import UnavailableError
from sim import scenario
from sim.scenario import Scenario
from sim.simulated_load import SimulatedLoad
from sim.simulator import Result

PARALLEL_RUNS: Final = 2
"""Number of parallel runs by default; each uses one core."""
POLL_SECONDS: Final = 0.2
SPAWN: Final = get_context("spawn")
ENDED: Final = "a process of the simulation was ended from outside, perhaps for lack of memory"

OnProgress = Callable[[str, int], None]
"""Called with the name of a run and its simulated hours."""


class Run(NamedTuple):
    """A simulation to run; its name is unique among the runs of a call.

    `wire`: call Ebb's webhook and extender over HTTP.
    """

    name: str
    scenario: Scenario
    load: SimulatedLoad
    seed: int
    given: Config | None = None
    """Configuration of Ebb; None: the demo's own."""
    wire: bool = False


def run_all(
    scenarios: Sequence[Scenario],
    load: SimulatedLoad,
    *,
    seed: int,
    wire: bool,
    on_progress: OnProgress,
    given: Config | None = None,
) -> Mapping[str, Result]:
    """Simulate one load in each scenario in parallel; return the results by name of the scenario.

    *given*: configuration of Ebb; None: the demo's own. *wire*: call Ebb's webhook and extender
    over HTTP. *on_progress* is called with the name of a run and its simulated hours. Raises:
    UnavailableError when a process ends early.
    """
    longest_first = reversed(scenarios)
    runs = [Run(one.name, one, load, seed, given, wire) for one in longest_first]
    results = run_each(runs, on_progress)
    return {one.name: results[one.name] for one in scenarios}


def run_each(
    runs: Iterable[Run], on_progress: OnProgress, *, processes: int = PARALLEL_RUNS
) -> Mapping[str, Result]:
    """Run all simulations in parallel *processes*; return each result by the name of its run.

    *on_progress* is called with the name of a run and its simulated hours. Raises:
    UnavailableError when a process ends early.
    """
    with ExitStack() as stack:
        with _ctrl_c_later():
            manager = stack.enter_context(SPAWN.Manager())
            hours = manager.Queue()
            pool = stack.enter_context(_pool(processes))
            futures: dict[str, Future[Result]] = {
                run.name: pool.submit(_run, run, hours) for run in runs
            }
        while not all(future.done() for future in futures.values()):
            _report_progress(hours, on_progress)
        try:
            return {name: future.result() for name, future in futures.items()}
        except BrokenProcessPool as fault:
            raise UnavailableError(ENDED) from fault


@contextmanager
def _pool(processes: int) -> Iterator[Executor]:
    """Context manager: open a pool of processes, and terminate them if the body fails."""
    others = set(active_children())
    with ProcessPoolExecutor(processes, SPAWN, _leave_at_ctrl_c) as pool:
        try:
            yield pool
        except BaseException:
            for process in set(active_children()) - others:
                process.terminate()  # otherwise the pool waits for the end of the runs
            raise


@contextmanager
def _ctrl_c_later() -> Iterator[None]:
    """Context manager: defer Ctrl-C until the end of the body.

    Processes that the body starts defer Ctrl-C until they are ready for it.
    """
    pressed: list[int] = []
    resource_tracker.ensure_running()  # started later, it would let Ctrl-C through
    handler = signal.signal(signal.SIGINT, lambda number, _: pressed.append(number))
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # inherited by the processes
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        signal.signal(signal.SIGINT, handler)
    if pressed:
        raise KeyboardInterrupt


def _leave_at_ctrl_c() -> None:
    """Let Ctrl-C end the process without a traceback; the parent process reports the end."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def _run(run: Run, hours: Any) -> Result:  # noqa: ANN401 a manager's proxy
    return scenario.run(
        run.scenario,
        run.load,
        seed=run.seed,
        wire=run.wire,
        given=run.given,
        progress=lambda hour: hours.put((run.name, hour)),
    )


def _report_progress(hours: Any, on_progress: OnProgress) -> None:  # noqa: ANN401 a manager's proxy
    try:
        update = hours.get(timeout=POLL_SECONDS)
    except queue.Empty:
        return
    except (EOFError, OSError) as fault:
        raise UnavailableError(ENDED) from fault
    on_progress(*update)
