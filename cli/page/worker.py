"""Make plans in another process, so that the server answers while a plan is made.

A plan of 5,000 nodes takes about a second. The module's functions run in the other process, which
keeps the last plan.
"""

import asyncio
import multiprocessing
import os
import signal
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import orjson

from cli.answers import Planned, RowOptions
from cli.formats.page.details import Since
from cli.formats.page.state import PageState, printable_json
from cli.input.cluster_input import ClusterInput
from cli.page.changes import Changes
from cli.page.what_if import Change, answer
from cli.plan import Limits, planned
from core.model.errors import InvalidInputError, UnavailableError
from core.moves.facts import with_moves
from kube.inventory import Inventory
from runtime.clock import SystemClock


@dataclass
class _WorkerState:
    """The state that the other process keeps between calls."""

    inventory: Inventory = field(default_factory=lambda: Inventory(SystemClock().unix_seconds))
    """Copy of the inventory of the feed."""
    planned: Planned | None = None
    state: PageState | None = None
    since: Since = field(default_factory=dict)


_STATE = _WorkerState()


def _begin() -> None:
    # Ctrl-C reaches the whole process group of a terminal; only the server handles it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _state(cluster_input: ClusterInput, changes: Changes | None) -> bytes:
    if changes is not None:
        changes.apply(_STATE.inventory)
        cluster_input = with_objects(cluster_input, _STATE.inventory)
    planned_now = planned(cluster_input, Limits(), RowOptions())
    before = None if cluster_input.target is None else _STATE.since
    state = PageState(planned_now, before, live=True)
    document = orjson.dumps(state.document(details=False))
    _STATE.planned, _STATE.state, _STATE.since = planned_now, state, state.since
    return document


def with_objects(cluster_input: ClusterInput, inventory: Inventory) -> ClusterInput:
    """Return the input of a command with the objects of an inventory."""
    cluster = inventory.snapshot(cluster_input.config.read_options)()
    if cluster_input.surge_objects is None:
        return replace(cluster_input, cluster=cluster)
    surge = inventory.surge_snapshot()()
    cluster = with_moves(cluster, surge, cluster_input.namespace)
    return replace(cluster_input, cluster=cluster, surge_objects=surge)


def _detail(name: str) -> bytes:
    return orjson.dumps(_STATE.state.detail(name) if _STATE.state else None)


def _what_if(change: Change) -> bytes:
    if _STATE.planned is None:
        raise InvalidInputError("what-if", "there is no plan yet")
    return orjson.dumps(printable_json(answer(_STATE.planned, change)._asdict()))


class _Invalid(NamedTuple):
    """The content of an InvalidInputError, which cannot be pickled itself."""

    where: str
    problem: str


def _call(function: Callable[..., bytes], *args: object) -> bytes | _Invalid:
    try:
        return function(*args)
    except InvalidInputError as fault:
        return _Invalid(fault.where, fault.problem)


class Worker:
    """The process that makes plans; if it ends unexpectedly, the next call starts it again."""

    def __init__(self) -> None:
        self._pool = _pool()
        self.has_plan = False
        """Whether the process keeps a plan."""

    async def state(self, cluster_input: ClusterInput, changes: Changes | None = None) -> bytes:
        """Make a plan and return the state of the page, as JSON. Raises: EbbError.

        *changes*: changes of the objects since the previous call, which replace the objects of
        *cluster_input*. None: use the objects of *cluster_input*.
        """
        made = await self._run(_state, cluster_input, changes)
        self.has_plan = True
        return made

    async def detail(self, name: str) -> bytes:
        """Return the details of the node *name* in the last plan, as JSON.

        The JSON is `null` if there is no plan or no such node. Raises: UnavailableError if the
        process has ended.
        """
        return await self._run(_detail, name)

    async def what_if(self, change: Change) -> bytes:
        """Return the answer to a what-if about the last plan, as JSON.

        Raises: InvalidInputError; UnavailableError if the process has ended.
        """
        return await self._run(_what_if, change)

    async def _run(self, function: Callable[..., bytes], *args: object) -> bytes:
        loop = asyncio.get_running_loop()
        try:
            result = await loop.run_in_executor(self._pool, _call, function, *args)
        except BrokenProcessPool as fault:
            self._pool.shutdown(wait=False)
            self._pool, self.has_plan = _pool(), False
            problem = "the process that makes plans has ended, perhaps for lack of memory"
            raise UnavailableError(problem) from fault
        if isinstance(result, _Invalid):
            raise InvalidInputError(result.where, result.problem)
        return result

    def stop(self) -> None:
        """End the process, even while it makes a plan."""
        # ProcessPoolExecutor waits for the running call, and Python 3.11 has no method to end it.
        for pid in self.pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        self._pool.shutdown(wait=True, cancel_futures=True)

    @property
    def pids(self) -> list[int]:
        """Return the process id in a list, which is empty if the process has not been started."""
        return list(self._pool._processes or ())  # noqa: SLF001 it has no public name


def _pool() -> ProcessPoolExecutor:
    # A forked process would inherit the connections and threads of the server.
    spawning = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(1, mp_context=spawning, initializer=_begin)
