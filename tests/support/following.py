"""A follower of the fake API server, its view, and how to wait for it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from kubernetes.aio import client as package

from core.edge.decode.kinds import KINDS
from core.edge.kube.client import Client
from core.edge.kube.watch import follow
from core.model.node import Node
from core.model.pod import Pod
from tests.support.fake_api import PODS, FakeApi
from tests.support.fake_objects import pod_object


class Seen:
    """A handler that keeps a view and every call, and can be waited for."""

    def __init__(self) -> None:
        self.view: dict[str, Node | Pod] = {}
        self.calls: list[tuple[str, str]] = []
        self.lives = 0
        self._news = asyncio.Event()

    def replaced(self, objects: list[Any], refused: list[tuple[str, str]]) -> None:
        self.view = {self._key(found): found for found in objects}
        assert len(self.view) == len(objects), "an object was listed twice"
        self._note("replaced", str(len(objects)))
        for key, reason in refused:
            self.refused(key, reason)

    def changed(self, obj: Any) -> None:
        self.view[self._key(obj)] = obj
        self._note("changed", self._key(obj))

    def deleted(self, key: str) -> None:
        self.view.pop(key, None)
        self._note("deleted", key)

    def alive(self) -> None:
        self.lives += 1
        self._news.set()

    def refused(self, key: str, reason: str) -> None:
        self.view.pop(key, None)
        self._note("refused", reason)

    def restarted(self, reason: str) -> None:
        self._note("restarted", reason)

    def count(self, kind: str, what: str | None = None) -> int:
        return sum(k == kind and what in (None, w) for k, w in self.calls)

    async def until(self, reached: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not reached():
                self._news.clear()
                await self._news.wait()

    def _key(self, obj: Node | Pod) -> str:
        return obj.name if isinstance(obj, Node) else obj.key

    def _note(self, kind: str, what: str) -> None:
        self.calls.append((kind, what))
        self._news.set()


class Waits:
    """A sleep that notes how long, and returns."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)
        await asyncio.sleep(0)


class Bench:
    """One fake API server, one client, and one follower of one resource."""

    def __init__(self, api: FakeApi, client: Client, resource: str, waits: Waits) -> None:
        self.api, self.client, self.resource, self.waits = api, client, resource, waits
        self.seen = Seen()

    async def settled(self) -> None:
        """Wait until the view is what the server holds, and it is being watched."""
        await self.api.watched(self.resource)
        await self.seen.until(lambda: set(self.seen.view) == set(self.api.objects[self.resource]))

    def put_pods(self, *names: str) -> None:
        for name in names:
            self.api.put(PODS, pod_object(name))


def settings_of(api: FakeApi) -> package.Configuration:
    return package.Configuration(host=api.url)


@asynccontextmanager
async def opened(
    api: FakeApi, *, silence_seconds_max: float = 20, waits: Waits | None = None
) -> AsyncIterator[Client]:
    made = Client(
        package.ApiClient(settings_of(api)),
        sleep=waits or Waits(),
        silence_seconds_max=silence_seconds_max,
    )
    async with made as client:
        yield client


@asynccontextmanager
async def following(
    api: FakeApi,
    resource: str = PODS,
    *,
    label_selector: str | None = None,
    silence_seconds_max: float = 20,
) -> AsyncIterator[Bench]:
    waits = Waits()
    async with opened(api, silence_seconds_max=silence_seconds_max) as client:
        bench = Bench(api, client, resource, waits)
        following = follow(
            client,
            next(kind for kind in KINDS if kind.resource == resource),
            bench.seen,
            label_selector=label_selector,
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
