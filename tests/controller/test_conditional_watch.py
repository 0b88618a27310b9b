"""Watch a kind only if the configuration needs it and RBAC allows it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from controller.conditional_watch import ConditionalWatch
from controller.metrics import Metrics
from controller.view import ClusterView
from core.model.cluster import DisruptionBudget
from core.model.errors import UnavailableError
from kube.cluster_kinds import KINDS
from kube.decode.kinds import BUDGETS
from kube.freshness import WatchSink
from kube.stores.access_review import ANSWER_SECONDS, AccessReview
from kube.target import NAMESPACE
from tests.support.clock import FakeClock, in_virtual_time, virtual_clock

BUDGET = DisruptionBudget(namespace="d", name="b", disruptions_allowed=1)


class Made:
    """A budget watch whose configuration and permission the test sets."""

    def __init__(self, clock: FakeClock | None = None, *, empty_if_forbidden: bool = True) -> None:
        self.evicts = self.allowed = True
        self.answers = True
        self.asked = self.follows = 0
        self.listed = asyncio.Event()
        self.clock = clock or virtual_clock()
        self.view = ClusterView()
        for kind in KINDS:
            if kind is not BUDGETS:
                self.view.freshness.alive(kind, 0.0)
        metrics = Metrics(NAMESPACE)
        self.sink = WatchSink(self.view, BUDGETS, self.view.freshness, self.clock, metrics)
        access = AccessReview(self._ask, self.clock, "list poddisruptionbudgets")
        self.watch = ConditionalWatch(
            self.sink,
            self._follow,
            lambda: self.evicts,
            access,
            forbidden="forbidden",
            empty_if_forbidden=empty_if_forbidden,
        )

    async def _ask(self) -> bool:
        self.asked += 1
        if not self.answers:
            raise UnavailableError("no answer")
        return self.allowed

    async def _follow(self) -> None:
        self.follows += 1
        try:
            await self.listed.wait()
            self.sink.replaced([BUDGET])
            self.sink.alive()
            await asyncio.Event().wait()
        finally:
            self.follows -= 1

    def why_stale(self) -> str | None:
        return self.view.freshness.why_stale(self.clock.monotonic_seconds(), 180)

    @property
    def known(self) -> list[str]:
        return sorted(self.view.of(BUDGETS))


@asynccontextmanager
async def kept(made: Made) -> AsyncIterator[Callable[[], Any]]:
    """Keep the watch; the yielded function waits for its next two steps."""
    task = asyncio.create_task(made.watch.run())

    async def looked() -> None:
        await asyncio.sleep(2.5)

    yield looked
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@in_virtual_time
async def test_budgets_are_neither_watched_nor_stale_when_eviction_is_disabled() -> None:
    made = Made()
    made.evicts = False
    async with kept(made) as looked:
        await looked()
        assert (made.asked, made.follows, made.why_stale()) == (0, 0, None)


@in_virtual_time
async def test_budgets_are_neither_watched_nor_stale_when_rbac_forbids_it() -> None:
    made = Made()
    made.allowed = False
    async with kept(made) as looked:
        await looked()
        assert (made.asked, made.follows, made.why_stale()) == (1, 0, None)


@in_virtual_time
async def test_view_is_stale_until_the_budgets_are_known() -> None:
    made = Made()
    made.answers = False
    async with kept(made) as looked:
        await looked()
        assert made.why_stale() == "poddisruptionbudgets have not been listed yet"
        made.answers = True
        await looked()
        assert made.follows == 1
        assert made.why_stale() == "poddisruptionbudgets have not been listed yet"
        made.listed.set()
        await looked()
        assert (made.known, made.why_stale()) == (["d/b"], None)


@in_virtual_time
async def test_watch_starts_and_ends_when_the_configuration_changes() -> None:
    made = Made()
    made.evicts = False
    async with kept(made) as looked:
        await looked()
        made.evicts = True
        await looked()
        assert made.follows == 1
        assert "poddisruptionbudgets was interrupted" in str(made.why_stale())
        made.listed.set()
        await looked()
        assert (made.known, made.why_stale()) == (["d/b"], None)
        made.evicts = False
        await looked()
        assert (made.known, made.follows, made.why_stale()) == ([], 0, None)


@in_virtual_time
async def test_watch_ends_when_the_permission_is_removed() -> None:
    made = Made()
    made.listed.set()
    async with kept(made) as looked:
        await looked()
        assert made.known == ["d/b"]
        made.allowed = False
        await asyncio.sleep(ANSWER_SECONDS)
        for kind in KINDS:
            made.view.freshness.alive(kind, made.clock.seconds)
        await looked()
        assert (made.known, made.follows, made.why_stale()) == ([], 0, None)


async def test_program_ends_when_the_watch_has_an_unexpected_fault() -> None:
    made = Made(FakeClock())

    async def broken() -> None:
        raise AssertionError("a bug")

    access = AccessReview(made._ask, made.clock, "")
    watch = ConditionalWatch(made.sink, broken, lambda: True, access, forbidden="forbidden")
    with pytest.raises(ExceptionGroup):
        async with asyncio.timeout(20):
            await watch.run()


@in_virtual_time
async def test_kind_counts_as_unknown_when_it_is_required_and_forbidden() -> None:
    made = Made(empty_if_forbidden=False)
    made.allowed = False
    async with kept(made) as looked:
        await looked()
        assert (made.follows, made.why_stale()) == (
            0,
            "poddisruptionbudgets have not been listed yet",
        )
        made.evicts = False
        await looked()
        assert made.why_stale() is None
