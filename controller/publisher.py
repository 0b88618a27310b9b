"""Publish CapacityBuffers for expected pods, so that the autoscaler adds nodes early.

The leader compares the buffers in the cluster with the expected pods after each reconciliation,
and at least every ten seconds, and writes material differences, if RBAC allows it (component
capacity-buffers). In mode observe it deletes all buffers of Ebb.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from fractions import Fraction
from typing import Final, NamedTuple, Protocol

from controller.publishing import Publishing
from core.config.settings import Config, Mode
from core.engine.arrivals import LOOKBACK_SECONDS, Counts
from core.engine.buffers import SHARE_MAX
from core.engine.reconcile import ReconcileResult
from core.model.errors import ConflictError, EbbError, UnavailableError
from core.model.resources import Resources
from core.writes.capacity_buffers import BufferChange, BufferShape, Found, Wanted, changes, wanted
from kube.client import ApiError
from kube.stores.access_review import AccessReview
from runtime.logs import fields

ROUND_SECONDS: Final = 10.0
"""Maximum time from one update of the buffers to the next."""
PAUSE_SECONDS: Final = 1.0
"""Minimum pause between two updates, however often Ebb reconciles."""
NO_KIND: Final = (
    "cannot publish CapacityBuffers: the cluster does not have this kind, or RBAC does not allow "
    "reading it; see manifests/components/capacity-buffers"
)
ALLOWED: Final = "RBAC allows writing CapacityBuffers, so Ebb publishes the expected pods"
FORBIDDEN: Final = (
    "RBAC does not allow writing CapacityBuffers, so Ebb publishes none; "
    "manifests/components/capacity-buffers grants the permission"
)

log = logging.getLogger("ebb.publisher")


class PublishedObjects(Protocol):
    """Reads and writes Ebb's CapacityBuffers and PodTemplates."""

    async def found(self) -> Found:
        """Return the CapacityBuffers and PodTemplates of Ebb. Raises: UnavailableError."""

    async def carry_out(self, change: BufferChange) -> None:
        """Create, resize or delete one object. Raises: ConflictError, UnavailableError."""


class ReconcileSource(Protocol):
    """Provides the configuration in use and the result of the last reconciliation."""

    config: Config
    evaluated: asyncio.Event
    """Set after each evaluation, before its writes."""

    @property
    def last(self) -> ReconcileResult | None:
        """Return the result of the last reconciliation since this replica leads, or None."""


class _LastReconciliation(NamedTuple):
    # The publisher does not keep a reference to the whole result, so that its snapshot, which can
    # be large, is freed while the publisher waits for the API server.
    may_publish: bool
    counting_since: int | None
    """Time since which the leader counts arriving pods, in Unix seconds."""
    allocatable: Resources
    """Allocatable resources of all nodes."""
    missing: Counts
    """Expected pods in the reaches that lack room for them, by shape."""
    at: int
    """Time of the reconciliation in Unix seconds."""


class Publisher:
    """Update the CapacityBuffers of Ebb while this replica leads."""

    def __init__(
        self,
        store: PublishedObjects,
        source: ReconcileSource,
        access: AccessReview,
        *,
        share: Fraction = SHARE_MAX,
    ) -> None:
        """Take the source of reconciliations, and the access review about writing buffers.

        *share*: maximum share of the cluster's capacity that the buffers may ask for.
        """
        self._store, self._source, self._access, self._share = store, source, access, share
        self.state = Publishing.UNKNOWN
        """Whether Ebb publishes CapacityBuffers, as of the last update."""
        self._cleared = False
        self._counting_since: int | None = None
        """Time since which this leader counts arriving pods, in Unix seconds."""
        self._inherited: Mapping[BufferShape, int] = {}
        """Pods in the buffers that existed when this leader started to count."""

    async def run(self, why_stale: Callable[[], str | None]) -> None:
        """Update the buffers after each reconciliation, until cancelled.

        *why_stale*: returns why the information about the cluster is outdated, or None.
        """
        self._cleared, self.state = False, Publishing.UNKNOWN
        while True:
            self._source.evaluated.clear()
            try:
                await self.turn(why_stale)
            except EbbError as fault:
                log.warning(
                    "cannot update CapacityBuffers; retrying after the next reconciliation",
                    extra=fields(reason=str(fault)),
                )
            await asyncio.sleep(PAUSE_SECONDS)
            with suppress(TimeoutError):
                await asyncio.wait_for(
                    self._source.evaluated.wait(), ROUND_SECONDS - PAUSE_SECONDS
                )

    async def turn(self, why_stale: Callable[[], str | None] = lambda: None) -> None:
        """Update the buffers once, unless the information about the cluster is outdated.

        *why_stale*: returns why it is, or None. Raises: EbbError if a write failed; the next call
        retries.
        """
        config = self._source.config
        if config.mode is Mode.OBSERVE:
            self.state = Publishing.OBSERVE
            await self._clear()
            return
        self._cleared = False
        if await self._access.refresh():
            log.info(ALLOWED if self._access.allowed else FORBIDDEN)
        if not self._access.allowed:
            known = self._access.allowed is not None
            self.state = Publishing.FORBIDDEN if known else Publishing.UNKNOWN
            return
        last = _last_reconciliation(self._source.last)
        if last is None or not last.may_publish or why_stale() is not None:
            return
        existing = await self._store.found()
        if existing.absent:
            if self.state is not Publishing.ABSENT:
                log.warning(NO_KIND)
            self.state = Publishing.ABSENT
            return
        self.state = Publishing.PUBLISHED
        # A leader that has just started to count, or counts again because the settings have
        # changed, knows less than the leader that wrote these buffers.
        if last.counting_since != self._counting_since:
            self._counting_since, self._inherited = last.counting_since, existing.published
        buffers = await asyncio.to_thread(_wanted, last, self._inherited, self._share)
        await self._write(existing, buffers)

    async def _clear(self) -> None:
        # A call of the previous leader can create a buffer after the first deletion.
        if self._cleared and not self._last_reconciliation_saw_buffers():
            return
        self._counting_since = None
        existing = await self._store.found()
        await self._write(existing, {})
        self._cleared = existing.empty

    def _last_reconciliation_saw_buffers(self) -> bool:
        last = self._source.last
        buffers = last.snapshot.cluster.buffers if last else ()
        return any(buffer.published is not None for buffer in buffers)

    async def _write(self, existing: Found, buffers: dict[str, Wanted]) -> None:
        """Replace the *existing* objects by these *buffers*, which are given by name.

        Raises: UnavailableError, after all writes if the API server refused some of them, at once
        if it does not answer.
        """
        refused: dict[str, str] = {}
        for change in changes(buffers, existing):
            if change.name in refused:
                continue  # a buffer without its template has no effect
            try:
                await self._store.carry_out(change)
            except (ApiError, ConflictError) as fault:
                # A quota or a policy may refuse one object and accept others.
                refused[change.name] = f"{change.operation.value} {change.name}: {fault}"
                continue
            log.info(
                "changed a CapacityBuffer or its PodTemplate",
                extra=fields(
                    operation=change.operation.value, name=change.name, pods=change.replicas
                ),
            )
        if refused:
            raise UnavailableError("; ".join(refused.values()))


def _last_reconciliation(last: ReconcileResult | None) -> _LastReconciliation | None:
    if last is None:
        return None
    # Reaches that lack room get buffers for all expected pods, other reaches get none. An
    # autoscaler that sees all missing room at once adds few large nodes. If the buffers grew
    # with each pod that arrives, it would add a small node for each of them.
    missing = {
        shape: pods
        for shape, pods in last.expected_pods.items()
        if shape.reach in last.short_reaches
    }
    state, allocatable = last.state, last.snapshot.total_allocatable
    return _LastReconciliation(
        state.may_publish, state.arrivals.counting_since, allocatable, missing, last.at
    )


def _wanted(
    last: _LastReconciliation, inherited: Mapping[BufferShape, int], share: Fraction
) -> dict[str, Wanted]:
    since = last.counting_since
    if since is None or last.at - since >= LOOKBACK_SECONDS:
        inherited = {}  # this leader has counted for long enough to know better
    return wanted(last.missing, last.allocatable, share, inherited)
