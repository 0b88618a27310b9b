"""A Lease in memory, and faulty connections to it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from core.model.errors import ConflictError
from kube.stores.lease import Lease

Trouble = Callable[[], Awaitable[None]]
"""Function that lets a call pass, delays it, or makes it fail."""


async def fine() -> None:
    """Let the call pass at once."""


@dataclass
class Store:
    """A Lease in memory with optimistic locking like the API server's."""

    lease: Lease | None = None
    writes: list[Lease] = field(default_factory=list)

    def delete(self) -> None:
        """Delete the Lease as another client."""
        self.lease = None


@dataclass
class Door:
    """The connection of one replica to the store, with faults of requests and responses."""

    store: Store
    before: Trouble = fine
    after: Trouble = fine

    async def read(self) -> Lease | None:
        await self.before()
        found = self.store.lease
        await self.after()
        return found

    async def write(self, lease: Lease) -> Lease:
        await self.before()
        store = self.store
        if lease.version != (store.lease.version if store.lease else ""):
            raise ConflictError("409")
        store.lease = replace(lease, version=str(int(lease.version or 0) + 1))
        store.writes.append(store.lease)
        written = store.lease
        await self.after()
        return written
