"""Run a watch on the fake API server, and wait for its view."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager

from kubernetes.aio import client as package

from kube.client import ANSWER_BYTES_MAX, Client
from kube.cluster_kinds import KINDS
from kube.decode.kinds import AnyKind, Object
from kube.freshness import Freshness, WatchSink
from kube.inventory import Inventory, Undecodable
from kube.listing import WHOLE, Part
from kube.watch import watch_objects
from runtime.clock import SystemClock
from runtime.metrics import WatchMetrics
from tests.support.fake_api import PODS, FakeApi
from tests.support.fake_objects import pod_object


class Seen(WatchSink):
    """A WatchSink that records every call, and that tests can wait for."""

    def __init__(self, kind: AnyKind) -> None:
        inventory = Inventory()
        super().__init__(inventory, kind, Freshness(), SystemClock(), WatchMetrics())
        self.view = inventory.of(kind)
        self.calls: list[tuple[str, str]] = []
        self.lives = 0
        self._news_came = asyncio.Event()
        self._key = kind.key

    def replaced(self, objects: Collection[Object], refused: Sequence[Undecodable] = ()) -> None:
        super().replaced(objects, refused)
        assert len(self.view) == len(objects), "an object was listed twice"
        self._note("replaced", str(len(objects)))
        for _, reason in refused:
            self._note("refused", reason)

    def changed(self, obj: Object) -> None:
        super().changed(obj)
        self._note("changed", self._key(obj))

    def deleted(self, key: str) -> None:
        super().deleted(key)
        self._note("deleted", key)

    def alive(self) -> None:
        super().alive()
        self.lives += 1
        self._news_came.set()

    def refused(self, key: str, reason: str) -> None:
        super().refused(key, reason)
        self._note("refused", reason)

    def restarted(self, reason: str) -> None:
        super().restarted(reason)
        self._note("restarted", reason)

    def count(self, kind: str, what: str | None = None) -> int:
        return sum(k == kind and what in (None, w) for k, w in self.calls)

    async def until(self, reached: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not reached():
                self._news_came.clear()
                await self._news_came.wait()

    def _note(self, kind: str, what: str) -> None:
        self.calls.append((kind, what))
        self._news_came.set()


class Waits:
    """A sleep function that records the duration and returns at once."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)
        await asyncio.sleep(0)


class Bench:
    """A fake API server, a client, and a watch of one resource."""

    def __init__(self, api: FakeApi, client: Client, kind: AnyKind, waits: Waits) -> None:
        self.api, self.client, self.resource, self.waits = api, client, kind.resource, waits
        self.seen = Seen(kind)

    async def settled(self) -> None:
        """Wait until the view equals the objects of the server and the watch is open."""
        await self.api.watched(self.resource)
        await self.seen.until(lambda: set(self.seen.view) == set(self.api.objects[self.resource]))

    def put_pods(self, *names: str) -> None:
        for name in names:
            self.api.put(PODS, pod_object(name))


def settings_of(api: FakeApi) -> package.Configuration:
    return package.Configuration(host=api.url)


@asynccontextmanager
async def opened(
    api: FakeApi,
    *,
    silence_seconds_max: float = 20,
    answer_bytes_max: int = ANSWER_BYTES_MAX,
    waits: Waits | None = None,
) -> AsyncIterator[Client]:
    made = Client(
        package.ApiClient(settings_of(api)),
        sleep=waits or Waits(),
        silence_seconds_max=silence_seconds_max,
        answer_bytes_max=answer_bytes_max,
    )
    async with made as client:
        yield client


@asynccontextmanager
async def following(
    api: FakeApi,
    resource: str = PODS,
    part: Part = WHOLE,
    *,
    silence_seconds_max: float = 20,
) -> AsyncIterator[Bench]:
    waits = Waits()
    async with opened(api, silence_seconds_max=silence_seconds_max, waits=waits) as client:
        kind = next(kind for kind in KINDS if kind.resource == resource)
        bench = Bench(api, client, kind, waits)
        following = watch_objects(
            client,
            kind,
            bench.seen,
            part,
            sleep=waits,
            jitter=lambda: 0.0,
        )
        task = asyncio.create_task(following)
        try:
            yield bench
            assert not task.done(), task.exception()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
