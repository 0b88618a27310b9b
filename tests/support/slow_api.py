"""Nodes behind an API server whose every answer the test lets through."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from core.model.errors import ConflictError
from core.model.node import Node
from core.writes.write import Write
from tests.support.admission import Json, NodeApi


class SlowApi(NodeApi):
    """Calls begin at once, and end when the gate is open; implements objects.Objects."""

    def __init__(self, *nodes: Json) -> None:
        super().__init__(*nodes)
        self.gate = asyncio.Event()
        self.gate.set()
        self.calls = 0
        """Under way now."""
        self.most = 0
        """That ever were under way at once."""
        self._news = asyncio.Condition()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let no call end meanwhile."""
        self.gate.clear()
        yield
        self.gate.set()

    def node(self, name: str) -> Node:
        return replace(super().node(name), version=str(self.versions[name]))

    async def under_way(self, calls: int) -> None:
        """Wait until so many calls have begun and not ended."""
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
