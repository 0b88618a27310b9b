"""A `taintKey` that was changed: the taints of the keys before go from every node.

Which keys were used is written on the Lease, which Ebb's own account alone writes. Nothing on a
Node says so: kubelets write their Nodes, and could name an administrator's key.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final

from controller.election import Leases
from controller.periodic import run_every, until_some
from controller.view import ClusterView
from core.edge.clock import Clock
from core.edge.kube.stores.lease import Lease
from core.edge.kube.stores.objects import Objects, write_as_decided
from core.edge.logs import fields
from core.marks.taints import KEYS_ANNOTATION, KEYS_MAX, keys_before, keys_of, of_keys_before
from core.model.errors import ConflictError
from core.model.node import Node
from core.writes.cleanup import rekeyed

ROUND_SECONDS: Final = 10.0
BEGIN_SECONDS: Final = 1.0
NOTE_TRIES_MAX: Final = 3
"""The Lease is renewed all the time, and noted on by every replica: somebody may be faster."""
FORGET_SECONDS: Final = 3600.0
"""A key that no node has carried for so long is forgotten: no replica uses it any more."""
NODES_AT_ONCE: Final = 256
"""So many are looked at before others on the loop have their turn."""

log = logging.getLogger("ebb.taint-keys")


class TaintKeys:
    """Keeps the list of keys; on the leader takes the taints of the ones before away."""

    def __init__(
        self, leases: Leases, nodes: Objects[Node], view: ClusterView, clock: Clock, key: str
    ) -> None:
        self._leases, self._nodes, self._view = leases, nodes, view
        self._clock, self._key = clock, key
        self._before: frozenset[str] = frozenset()
        self._last_seen: dict[str, float] = {}
        self._refused: set[str] = set()

    async def keep(self) -> None:
        """See to it that the key in use is on the list, until cancelled; every replica does."""
        await run_every(ROUND_SECONDS, "taint keys", self.note)

    async def begin(self) -> None:
        """Wait until the key in use is on the list: no node may carry it before.

        Who is killed then has told the next leader whose taints are left.
        """
        await until_some(BEGIN_SECONDS, "taint keys", self.note)

    async def clean(self, stale: Callable[[], str | None]) -> None:
        """Take the taints of other keys away until cancelled; the leader does.

        *stale*: why the view cannot be trusted, or None.
        """
        self._last_seen, self._refused = {}, set()

        async def turn() -> None:
            if stale() is None:
                await self.sweep()

        await run_every(ROUND_SECONDS, "taint keys", turn)

    async def note(self) -> Lease | None:
        """Look once at the list, and return where it stands; None: whoever leads first makes it.

        Raises: UnavailableError; ConflictError: somebody was faster each time.
        """
        for _ in range(NOTE_TRIES_MAX - 1):
            with suppress(ConflictError):
                return await self._note()
        return await self._note()

    async def _note(self) -> Lease | None:
        lease = await self._leases.read()
        if lease is None:
            return None
        noted = lease.annotations.get(KEYS_ANNOTATION, "")
        self._before = keys_before(noted, self._key)
        if self._key not in keys_of(noted):
            lease = await self._write_keys(lease, [*keys_of(noted), self._key])
        return lease

    async def sweep(self) -> None:
        """Look once at all nodes; a write that fails ends it, and comes last in the next.

        Raises: UnavailableError, ConflictError.
        """
        lease, now = await self.note(), self._clock.monotonic_seconds()
        decide = partial(rekeyed, keys_before=self._before, taint_key=self._key)
        nodes = self._view.nodes.values() if self._before else ()
        for number, node in enumerate(sorted(nodes, key=lambda node: node.name in self._refused)):
            if number % NODES_AT_ONCE == 0:
                await asyncio.sleep(0)
            found = of_keys_before(node, self._before)
            self._last_seen |= dict.fromkeys((taint.key for taint in found), now)
            if decide(node) is not None:
                self._refused.add(node.name)
                if done := await write_as_decided(self._nodes, node.name, decide):
                    log.info(done.write.note, extra=fields(node=node.name))
                self._refused.discard(node.name)
        over = {
            key
            for key in self._before
            if now - self._last_seen.setdefault(key, now) >= FORGET_SECONDS
        }
        if lease is not None:
            noted = keys_of(lease.annotations.get(KEYS_ANNOTATION, ""))
            if not over.isdisjoint(noted):
                await self._write_keys(lease, [key for key in noted if key not in over])

    async def _write_keys(self, lease: Lease, keys: Sequence[str]) -> Lease:
        annotation = ",".join(keys[-KEYS_MAX:])
        log.info("noting the taint's keys", extra=fields(keys=annotation))
        annotations = {**lease.annotations, KEYS_ANNOTATION: annotation}
        return await self._leases.write(replace(lease, annotations=annotations))
