"""Evict the pods that core.eviction chooses, and report evictions and their failures.

Only `carry_out`, in the event loop, changes the state of evictions. A decision that another thread
makes is based on one state, and is discarded if the state has changed meanwhile.
"""

import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from controller.metrics import Metrics
from controller.pause_log import PauseLog
from controller.writers import RecordEvent, for_each
from core.config.settings import Config
from core.eviction.context import EvictionInput
from core.eviction.planner import NOTHING, EvictionDecision, keep_marks, plan_evictions
from core.eviction.reasons import NODE_SHARE
from core.eviction.state import REFUSED_SECONDS_MAX, EvictionState, PlannedEviction
from core.model.node import Node
from core.model.now import Now
from kube.stores.access_review import AccessReview
from kube.stores.evictions import EvictionAnswer, EvictionResult, Evictions
from runtime.clock import Clock
from runtime.logs import fields

CALLS_MAX: Final = 4
"""Maximum number of concurrent eviction calls."""
EVICTED: Final = "PodEvicted"
REFUSED: Final = "PodEvictionRefused"
FORBIDDEN: Final = "EvictionForbidden"
FORBIDDEN_NOTE: Final = (
    "`eviction.mode` is enabled, but RBAC does not allow creating pods/eviction, or listing "
    "poddisruptionbudgets, so no pod is evicted; manifests/components/eviction grants both "
    "permissions"
)

log = logging.getLogger("ebb.evictor")


class PlannedEvictions(NamedTuple):
    """A decision about evictions, and the state on which it is based (core.eviction.state)."""

    before: EvictionState
    decision: EvictionDecision
    node: Node | None
    """The node whose pods are evicted; None if there is none."""


class Evictor:
    """Evict the pods that core.eviction chooses, while this replica leads."""

    def __init__(
        self,
        evictions: Evictions,
        clock: Clock,
        metrics: Metrics,
        *,
        own_namespace: str,
        jitter: Callable[[], float],
        report_forbidden: Callable[[str, str], None] = lambda *_: None,
    ) -> None:
        """Take the clients and callbacks.

        *own_namespace*: Ebb's namespace, whose pods are never evicted. *jitter*: returns 0 to 1.
        *report_forbidden*: writes an Event with a reason and a note.
        """
        self._evictions, self._clock, self._metrics = evictions, clock, metrics
        self._jitter, self._report_forbidden = jitter, report_forbidden
        self.own_namespace = own_namespace
        self._access = AccessReview(evictions.allowed, clock, "evict pods")
        metrics.eviction_forbidden.set_function(
            lambda: metrics.is_leading() and self._access.allowed is False
        )
        self.begin()

    def begin(self) -> None:
        """Forget all evictions when this replica starts leading."""
        # Another leader may have evicted pods since.
        self._state, self._busy = EvictionState(), False
        self._pauses = PauseLog(log, "further evictions wait", NODE_SHARE)

    def restart_evictions(self) -> None:
        """Stop the evictions on the current node; the next decision chooses a node anew.

        New pods may have been scheduled to the current node.
        """
        self._state = self._state.stopped(self._state.failed)

    def plan(self, eviction_input: EvictionInput) -> PlannedEvictions:
        """Choose the pods to evict now, without evicting them. Any thread may call this.

        While the permission to evict is not known, no pod is chosen, and NoSchedule marks stay.
        """
        before, decision, allowed = self._state, NOTHING, self._access.allowed
        if allowed:
            decision = plan_evictions(eviction_input, before)
        elif allowed is None:
            # Until the access review is answered, NoSchedule marks of the previous leader stay.
            # Otherwise the pods that it evicted could return to their node.
            decision = keep_marks(eviction_input, before)
        name = decision.state.node
        nodes = (node for node in eviction_input.cluster.nodes if node.name == name)
        return PlannedEvictions(before, decision, next(nodes, None))

    async def carry_out(
        self,
        planned: PlannedEvictions,
        config: Config,
        halted: Callable[[], str | None],
        record_event: RecordEvent,
    ) -> None:
        """Evict the planned pods until *halted* returns a reason to stop.

        No pod is evicted if the state has changed since the plan, or without permission.
        *record_event*: writes an Event about the Node of a pod.
        """
        if not config.evicts:
            self._state = EvictionState()
            self._access.forget()
            return
        await self._review_access()
        node, decision = planned.node, planned.decision
        if self._busy or planned.before is not self._state or not self._access.allowed:
            return
        self._state, self._busy = decision.state, True
        self._report_failed(planned)
        self._pauses.decided(decision.waits)

        async def evict(eviction: PlannedEviction) -> None:
            permitted = eviction.permit.is_valid(Now(self._clock.unix_seconds()))
            if node is not None and permitted and halted() is None:
                await self._evict(eviction, node, record_event)

        try:
            await for_each(decision.evict, CALLS_MAX, evict)
        finally:
            self._busy = False

    async def _evict(
        self, eviction: PlannedEviction, node: Node, record_event: RecordEvent
    ) -> None:
        pod = eviction.pod
        answer = await self._evictions.evict(pod)
        self._metrics.evictions.labels(answer.result).inc()
        log.info(
            "evicted a pod" if answer.result is EvictionResult.EVICTED else "cannot evict a pod",
            extra=fields(
                pod=pod.key, node=node.name, result=answer.result.value, reason=answer.why
            ),
        )
        match answer.result:
            case EvictionResult.EVICTED:
                self._state = self._state.after(eviction, self._clock.unix_seconds())
                record_event(node, EVICTED, f"evicted {pod.key}")
            case EvictionResult.REFUSED | EvictionResult.ERROR:
                if pod.uid not in self._state.refused:
                    record_event(node, REFUSED, f"cannot evict {pod.key}: {answer.why}")
                self._back_off(eviction, answer)
            # A webhook can deny an eviction with the same status. If the pod no longer exists, the
            # next reconciliation sees that.
            case EvictionResult.GONE:
                self._back_off(eviction, answer)

    def _back_off(self, eviction: PlannedEviction, answer: EvictionAnswer) -> None:
        required = min(answer.retry_after_seconds, REFUSED_SECONDS_MAX)
        pause = max(self._state.pause_seconds(eviction.pod), required)
        until = self._clock.unix_seconds() + round(pause * (1 + self._jitter()))
        self._state = self._state.refusing(eviction.pod, answer.why, until=until)

    def _report_failed(self, planned: PlannedEvictions) -> None:
        """Count and log the nodes on which evictions have failed since the previous decision."""
        # The Event about the failure is written when Ebb unmarks the node.
        for name, why in planned.decision.state.failed.items():
            if name not in planned.before.failed:
                self._metrics.drain_failures.labels(why.code).inc()
                log.warning(
                    "evictions failed; Ebb unmarks the node and skips it for its backoff",
                    extra=fields(node=name, pod=why.pod, reason=f"{why.code}: {why.message}"),
                )

    async def _review_access(self) -> None:
        if await self._access.refresh() and not self._access.allowed:
            log.error(FORBIDDEN_NOTE)
            self._report_forbidden(FORBIDDEN, FORBIDDEN_NOTE)
