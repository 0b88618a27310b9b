"""Apply watch events to an inventory, and track how old the information about each kind is."""

import logging
import math
from collections.abc import Collection, Sequence

from kube.cluster_kinds import CLUSTER_KINDS
from kube.decode.kinds import AnyKind, Object
from kube.inventory import Inventory, Undecodable
from runtime.clock import Clock
from runtime.logs import fields
from runtime.metrics import WatchMetrics

log = logging.getLogger("ebb.view")


class Freshness:
    """Track the age of the information about each required kind, in monotonic seconds."""

    def __init__(self, needed: Sequence[AnyKind] = CLUSTER_KINDS) -> None:
        """Start without information; *needed*: kinds that must be up to date for a decision."""
        self._needed = needed
        self._updated: dict[AnyKind, float] = {}
        self._lost: set[AnyKind] = set()

    def alive(self, kind: AnyKind, now: float) -> None:
        """Record that *kind* is up to date at *now*, in monotonic seconds."""
        self._updated[kind] = now
        self._lost.discard(kind)

    def lost(self, kind: AnyKind) -> None:
        """Record that the watch of *kind* ended, so that later changes are unknown."""
        self._lost.add(kind)

    def age_seconds(self, kind: AnyKind, now: float) -> float:
        """Return the seconds since *kind* was last up to date; infinite if it never was.

        *now*: the current time in monotonic seconds.
        """
        return now - self._updated.get(kind, -math.inf)

    def why_stale(self, now: float, seconds_max: int, *, unbroken: bool = True) -> str | None:
        """Return why the known objects are too old for decisions, or None if they are not.

        *now*: the current time in monotonic seconds. *seconds_max*: maximum age of a required
        kind. *unbroken*: also require that no watch is interrupted, however recent the objects
        are.
        """
        for kind in self._needed:
            age = self.age_seconds(kind, now)
            if age == math.inf:
                return f"{kind.resource} have not been listed yet"
            if unbroken and kind in self._lost:
                return f"the watch of {kind.resource} was interrupted and has not caught up yet"
            if age > seconds_max:
                return f"the watch of {kind.resource} has sent nothing for {age:.0f} s"
        return None


class WatchSink:
    """Apply the lists and watch events of a kind to an inventory; log undecodable objects once."""

    def __init__(
        self,
        inventory: Inventory,
        kind: AnyKind,
        freshness: Freshness,
        clock: Clock,
        metrics: WatchMetrics,
    ) -> None:
        self._inventory, self._kind, self._freshness = inventory, kind, freshness
        self._clock, self._metrics = clock, metrics
        self._unreadable = metrics.unreadable_objects.labels(kind.resource)
        self._counted = 0

    def replaced(self, objects: Collection[Object], refused: Sequence[Undecodable] = ()) -> None:
        """Replace all objects of the kind by the objects of a list.

        *refused*: keys and reasons of objects that cannot be decoded and have no placeholder.
        """
        self._report(self._inventory.replaced(self._kind, objects, refused))

    def changed(self, obj: Object) -> None:
        """Add a new object to the inventory, or replace the previous version of it."""
        self._report(self._inventory.changed(self._kind, obj))

    def deleted(self, key: str) -> None:
        """Remove the object with this key from the inventory."""
        self._inventory.deleted(self._kind, key)
        self._report(())

    def refused(self, key: str, reason: str) -> None:
        """Remove an object that cannot be decoded and has no placeholder; record the reason."""
        self._report(self._inventory.refused(self._kind, key, reason))

    def knows_some(self) -> bool:
        """Return whether the inventory has at least one object of the kind."""
        return bool(self._inventory.of(self._kind))

    def alive(self) -> None:
        """Record that the objects of the kind are up to date."""
        self._freshness.alive(self._kind, self._clock.monotonic_seconds())

    def lost(self) -> None:
        """Record that changes may be missing until the objects are up to date again."""
        self._freshness.lost(self._kind)

    def restarted(self, reason: str) -> None:
        """Record and count a watch that ended early.

        *reason*: "restored", "expired", "throttled", "timeout" or "error"; a label of the metric.
        """
        self._freshness.lost(self._kind)
        self._metrics.watch_restarts.labels(self._kind.resource, reason).inc()

    def _report(self, unreadable: Sequence[Undecodable]) -> None:
        resource = self._kind.resource
        for key, reason in unreadable:
            log.warning(
                "cannot decode an object", extra=fields(resource=resource, key=key, reason=reason)
            )
            self._metrics.decode_errors.labels(resource).inc()
        count = len(self._inventory.unreadable[self._kind])
        if count != self._counted:
            self._counted = count
            self._unreadable.set(count)
