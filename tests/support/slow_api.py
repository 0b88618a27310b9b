"""An in-memory API server whose responses the test can delay."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from core.model.errors import ConflictError
from core.model.node import Node
from core.writes.write import Write
from tests.support.admission import Json, NodeApi


class SlowApi(NodeApi):
    """Nodes in memory; calls wait while the gate is closed; implements objects.Objects."""

    def __init__(self, *nodes: Json) -> None:
        super().__init__(*nodes)
        self.gate = asyncio.Event()
        self.gate.set()
        self.calls = 0
        """Number of calls in progress."""
        self.most = 0
        """Maximum number of concurrent calls so far."""
        self._news = asyncio.Condition()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep the gate closed inside of the context."""
        self.gate.clear()
        yield
        self.gate.set()

    def node(self, name: str) -> Node:
        return replace(super().node(name), version=str(self.versions[name]))

    async def under_way(self, calls: int) -> None:
        """Wait until *calls* calls are in progress."""
        async with self._news:
            await self._news.wait_for(lambda: self.calls == calls)

    async def _through(self) -> None:
        await self._count(1)
        try:
            await self.gate.wait()
        finally:
            await self._count(-1)

    async def _count(self, more: int) -> None:
        async with self._news:
            self.calls += more
            self.most = max(self.most, self.calls)
            self._news.notify_all()

    async def get(self, key: str) -> tuple[Node, str]:
        self.log.append(("get", key))
        await self._through()
        return await super().get(key)

    async def write(self, write: Write[Node], version: str) -> tuple[Node, str]:
        await self._through()
        if version != str(self.versions[write.key]):
            raise ConflictError("the object has been modified")
        return await super().write(write, version)
