"""Carries out what core.drain decides: evicts, remembers, tells.

What is remembered is changed here alone, by the loop; a look in a thread rests on one state of it,
and is carried out on that state or not at all.
"""

import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from controller.access_review import AccessReview
from controller.metrics import Metrics
from controller.stores.evictions import Answer, EvictionResult, Evictions
from controller.writers import Tell, for_each
from core.config.settings import Config
from core.drain.context import DrainInput
from core.drain.planner import NOTHING, DrainDecision, plan_drain, standing
from core.drain.state import REFUSED_SECONDS_MAX, DrainState, Eviction
from core.edge.clock import Clock
from core.edge.logs import fields
from core.model.node import Node

CALLS_MAX: Final = 4
"""Evictions that are asked for at once."""
EVICTED: Final = "PodEvicted"
REFUSED: Final = "PodEvictionRefused"
FORBIDDEN: Final = "EvictionForbidden"
FORBIDDEN_NOTE: Final = (
    "eviction: enabled, but the program has no right to create pods/eviction, so nothing is "
    "evicted; manifests/components/eviction grants it"
)

log = logging.getLogger("ebb.evictor")


class PlannedDrain(NamedTuple):
    """A look, and what it rests on."""

    before: DrainState
    drain: DrainDecision
    node: Node | None
    """The one at work."""


class Evictor:
    """Evicts pods while its replica leads."""

    def __init__(
        self,
        evictions: Evictions,
        clock: Clock,
        metrics: Metrics,
        *,
        own_namespace: str,
        jitter: Callable[[], float],
        tell_forbidden: Callable[[str, str], None] = lambda *_: None,
    ) -> None:
        """*jitter*: from 0 to 1. *tell_forbidden* takes an Event's reason and note."""
        self._evictions, self._clock, self._metrics = evictions, clock, metrics
        self._jitter, self._tell_forbidden = jitter, tell_forbidden
        self.own_namespace = own_namespace
        self._right = AccessReview(evictions.allowed, clock, "evict pods")
        metrics.eviction_forbidden.set_function(
            lambda: metrics.is_leading() and self._right.held is False
        )
        self.begin()

    def begin(self) -> None:
        """Lead anew: others may have evicted meanwhile."""
        self._memory, self._busy = DrainState(), False

    def begin_drain(self) -> None:
        """Begin the drain anew that is at work: pods may have come to its node meanwhile."""
        self._memory = self._memory.released(self._memory.failed)

    def look(self, scene: DrainInput) -> PlannedDrain:
        """Decide, in any thread."""
        before, drain, held = self._memory, NOTHING, self._right.held
        if held:
            drain = plan_drain(scene, before)
        elif held is None:  # what the leader before it has evicted must not come back meanwhile
            drain = standing(scene, before)
        name = drain.memory.node
        return PlannedDrain(
            before, drain, next((n for n in scene.cluster.nodes if n.name == name), None)
        )

    async def carry_out(
        self, looked: PlannedDrain, config: Config, why_not: Callable[[], str | None], tell: Tell
    ) -> None:
        """Evict what was decided on what is remembered now, until *why_not* says to look again."""
        if not config.evicts:
            self._memory = DrainState()
            self._right.forget()
            return
        await self._ask_for_the_right()
        node, drain = looked.node, looked.drain
        if self._busy or looked.before is not self._memory or not self._right.held:
            return
        self._memory, self._busy = drain.memory, True
        self._tell_failed(looked)

        async def evict(one: Eviction) -> None:
            if node is not None and why_not() is None:
                await self._evict(one, node, tell)

        try:
            await for_each(drain.evict, CALLS_MAX, evict)
        finally:
            self._busy = False

    async def _evict(self, one: Eviction, node: Node, tell: Tell) -> None:
        answer = await self._evictions.evict(one.pod)
        self._metrics.evictions.labels(answer.result.value).inc()
        result = answer.result.value
        told = fields(pod=one.pod.key, node=node.name, result=result, reason=answer.why)
        log.info("eviction", extra=told)
        match answer.result:
            case EvictionResult.EVICTED:
                self._memory = self._memory.after(one, self._clock.unix_seconds())
                tell(node, EVICTED, f"{one.pod.key} was evicted")
            case EvictionResult.REFUSED | EvictionResult.ERROR:
                if one.pod.uid not in self._memory.refused:
                    tell(node, REFUSED, f"{one.pod.key}: {answer.why}")
                self._wait(one, answer)
            # A webhook can deny an eviction with the same status. If the pod has gone, the next
            # pass sees it.
            case EvictionResult.GONE:
                self._wait(one, answer)

    def _wait(self, one: Eviction, answer: Answer) -> None:
        """Back off from a pod whose eviction failed, longer each time and with jitter."""
        asked = min(answer.retry_after_seconds, REFUSED_SECONDS_MAX)
        least = max(self._memory.pause_seconds(one.pod), asked)
        pause = round(least * (1 + self._jitter()))
        until = self._clock.unix_seconds() + pause
        self._memory = self._memory.refusing(one.pod, answer.why, until=until)

    def _tell_failed(self, looked: PlannedDrain) -> None:
        """Tell whose drain has failed; the release of the node says it in an Event."""
        for name, why in looked.drain.memory.failed.items():
            if name not in looked.before.failed:
                self._metrics.drain_failures.labels(why.code).inc()
                told = fields(node=name, pod=why.pod, reason=f"{why.code}: {why.message}")
                log.warning("a drain failed", extra=told)

    async def _ask_for_the_right(self) -> None:
        """Ask whether this program may evict; tell once that it may not."""
        if await self._right.look_up() and not self._right.held:
            log.error(FORBIDDEN_NOTE)
            self._tell_forbidden(FORBIDDEN, FORBIDDEN_NOTE)
