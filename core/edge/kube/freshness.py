"""What watches tell, brought to an inventory; and how old the news of each kind are."""

import logging
import math
from collections.abc import Sequence
from typing import Any

from core.edge.clock import Clock
from core.edge.decode.inventory import Inventory, Odd
from core.edge.decode.kinds import KINDS, AnyKind
from core.edge.logs import fields
from core.edge.metrics import WatchMetrics

log = logging.getLogger("ebb.view")


class Freshness:
    """When there was news of each kind that is needed; all times are monotonic seconds."""

    def __init__(self, needed: Sequence[AnyKind] = KINDS) -> None:
        """*needed*: as long as one of them is not up to date, nothing is decided."""
        self._needed = needed
        self._heard: dict[AnyKind, float] = {}
        self._lost: set[AnyKind] = set()

    def alive(self, kind: AnyKind, now: float) -> None:
        """Note that *kind* is up to date at *now*."""
        self._heard[kind] = now
        self._lost.discard(kind)

    def lost(self, kind: AnyKind) -> None:
        """Note that the watch of *kind* has broken off: what comes next is not known."""
        self._lost.add(kind)

    def age_seconds(self, kind: AnyKind, now: float) -> float:
        """Return how long ago there was news of *kind*; infinite before there was any."""
        return now - self._heard.get(kind, -math.inf)

    def why_stale(self, now: float, seconds_max: int, *, unbroken: bool = True) -> str | None:
        """Return why nothing must be decided now, or None.

        *unbroken*: a watch that has broken off is a reason too, however short the time.
        """
        for kind in self._needed:
            age = self.age_seconds(kind, now)
            if age == math.inf:
                return f"{kind.resource} have not been listed yet"
            if unbroken and kind in self._lost:
                return f"the watch of {kind.resource} broke off and has told nothing new yet"
            if age > seconds_max:
                return f"no news of {kind.resource} for {age:.0f} s"
        return None


class WatchSink:
    """One kind from its watch into an inventory; what cannot be read is logged once."""

    def __init__(
        self,
        inventory: Inventory,
        kind: AnyKind,
        news: Freshness,
        clock: Clock,
        metrics: WatchMetrics,
    ) -> None:
        self._inventory, self._kind, self._news = inventory, kind, news
        self._clock, self._metrics = clock, metrics
        self._unreadable = metrics.unreadable_objects.labels(kind.resource)
        self._counted = 0

    def replaced(self, objects: list[Any], refused: Sequence[Odd] = ()) -> None:
        """Take the whole list: what is not in it is gone."""
        self._tell(self._inventory.replaced(self._kind, objects, refused))

    def changed(self, obj: Any) -> None:  # noqa: ANN401 by kind
        """Take one."""
        self._tell(self._inventory.changed(self._kind, obj))

    def deleted(self, key: str) -> None:
        """Forget one."""
        self._inventory.deleted(self._kind, key)
        self._tell(())

    def refused(self, key: str, reason: str) -> None:
        """Forget one that could not be read, and that is judged as not known."""
        self._tell(self._inventory.refused(self._kind, key, reason))

    def knows_some(self) -> bool:
        """Say whether an object of the kind is known."""
        return bool(self._inventory.of(self._kind))

    def alive(self) -> None:
        """Note that the inventory is up to date."""
        self._news.alive(self._kind, self._clock.monotonic_seconds())

    def restarted(self, reason: str) -> None:
        """Note and count a watch that ended early."""
        self._news.lost(self._kind)
        self._metrics.watch_restarts.labels(self._kind.resource, reason).inc()

    def _tell(self, news: Sequence[Odd]) -> None:
        resource = self._kind.resource
        for key, reason in news:
            log.warning("cannot read", extra=fields(resource=resource, key=key, reason=reason))
            self._metrics.refused_objects.labels(resource).inc()
        count = len(self._inventory.unreadable[self._kind])
        if count != self._counted:
            self._counted = count
            self._unreadable.set(count)
