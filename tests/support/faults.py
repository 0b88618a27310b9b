"""Simulate a day with faults, and check invariants after each reconciliation without faults."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from controller.loop import STALE_SECONDS
from core.config.settings import Config, Mode, Scope
from core.marks.mark import decode_details, mark_of, protection_of
from core.marks.taints import desired_taints, without_our_taint
from core.marks.wellknown import (
    BACKOFF_ANNOTATION,
    DETAILS_ANNOTATION,
    DO_NOT_DISRUPT_ANNOTATION,
    KARPENTER_LABEL,
    MARK_LABEL,
    PROTECTION_ANNOTATION,
    RESERVE_ANNOTATION,
    SCALE_DOWN_DISABLED_ANNOTATION,
    TAINT_KEY,
)
from core.model.errors import UnavailableError
from core.model.node import Node
from core.model.node_lifecycle import is_terminating
from core.model.pod import Pod
from core.writes.node_facts import WATCH_SECONDS
from sim.autoscaler import ScaleDown
from sim.cluster import ClusterState
from sim.ebb import Ebb
from sim.scheduler import admits
from sim.simulated_load import SimulatedLoad
from sim.simulator import Simulator

OURS = (
    MARK_LABEL,
    TAINT_KEY,
    DETAILS_ANNOTATION,
    SCALE_DOWN_DISABLED_ANNOTATION,
    PROTECTION_ANNOTATION,
    DO_NOT_DISRUPT_ANNOTATION,
    BACKOFF_ANNOTATION,
    RESERVE_ANNOTATION,
)


class Fault(StrEnum):
    """Faults that last for some time."""

    STOPPED = "no controller runs"
    WEBHOOK_DOWN = "the webhook is unavailable"
    REFUSED = "writes of the controller fail"
    UNHEARD = "writes of the controller are stored, but the responses are lost"
    STALE = "watches are silent; after some time the controller skips reconciliations"
    UNSCORED = "the extender is unavailable"


HELD_IN_MS = 1_800_000
"""Time within which Ebb must protect an empty node; autoscalers wait for ten minutes."""
RETRIED_IN_MS = 60_000
"""Time after which Ebb tries again to remove a NoSchedule mark that it could not remove."""
HARMLESS = (Fault.WEBHOOK_DOWN, Fault.UNSCORED)
"""Faults without effect on the invariants: the controller writes the taints itself, and
scores must never make a pod Pending."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """A fault with start and duration; None is a change of leader."""

    fault: Fault | None
    at_ms: int
    for_ms: int


class Troubled:
    """Ebb under faults; implements sim.simulator.Compactor."""

    def __init__(self, ebb: Ebb) -> None:
        self.ebb = ebb
        self.faults: Counter[Fault] = Counter()
        self.sound = False
        """Whether the last reconciliation made all writes, and no fault has begun since."""
        self.looked_ms: int | None = None
        """Time of the first reconciliation of this leader, or None before it."""
        self._held_ms = 0
        self.taint_key = ebb.taint_key

    def begin(self, fault: Fault) -> None:
        self.faults[fault] += 1
        self.sound &= fault in HARMLESS

    def end(self, fault: Fault) -> None:
        self.faults[fault] -= 1
        if not self.faults[Fault.STALE]:
            self.ebb.outdated_cluster = None

    def scores(self, pod: Pod, names: Sequence[str]) -> Mapping[str, int]:
        return {} if self.faults[Fault.UNSCORED] else self.ebb.scores(pod, names)

    def node_changed(self, node: Node) -> None:
        self.ebb.node_changed(node)

    def node_deleted(self, name: str) -> None:
        self.ebb.node_deleted(name)

    def pod_changed(self, pod: Pod) -> None:
        self.ebb.pod_changed(pod)

    def pod_deleted(self, pod: Pod) -> None:
        self.ebb.pod_deleted(pod)

    def admit(self, before: Node, after: Node) -> Node:
        return after if self.faults[Fault.WEBHOOK_DOWN] else self.ebb.admit(before, after)

    def urgent(self) -> bool:
        silent = self.faults[Fault.STOPPED] or self.faults[Fault.STALE]
        return not silent and self.ebb.urgent()

    def reconcile(self, state: ClusterState, write: Callable[[Node], None], now_ms: int) -> None:
        if self.faults[Fault.STOPPED] or self._too_stale(state, now_ms):
            return

        def troubled(node: Node) -> None:
            if self.faults[Fault.REFUSED]:
                raise UnavailableError("the API server does not answer")
            write(node)
            if self.faults[Fault.UNHEARD]:
                raise UnavailableError("the answer got lost")

        self.looked_ms = now_ms if self.looked_ms is None else self.looked_ms
        self.ebb.reconcile(state, troubled, now_ms)
        self.sound = all(fault in HARMLESS for fault in +self.faults)

    def _too_stale(self, state: ClusterState, now_ms: int) -> bool:
        """Freeze the view while watches are silent; return whether it is too old to reconcile."""
        if not self.faults[Fault.STALE]:
            return False
        if self.ebb.outdated_cluster is None:
            self.ebb.outdated_cluster, self._held_ms = state.snapshot(), now_ms
        return now_ms - self._held_ms > 1000 * STALE_SECONDS


class Day(Simulator):
    """A simulator with faults that checks all nodes after each reconciliation without faults."""

    def __init__(
        self,
        load: SimulatedLoad,
        how: ScaleDown,
        ebb: Ebb,
        config: Config,
        troubles: Sequence[Trouble],
    ) -> None:
        self._troubled, self._config = Troubled(ebb), config
        super().__init__(load, how, self._troubled, seed=1)
        self._takes_empty = how is ScaleDown.EMPTY
        self._sound_ms: int | None = None
        """Time since which every reconciliation of this leader made all writes, or None."""
        self._failed_ms = -RETRIED_IN_MS
        """Time of the last reconciliation that may not have made all writes."""
        self.taken: list[str] = []
        """Empty nodes that an autoscaler removed although Ebb had not released them."""
        self.disturbed: list[str] = []
        """Pods evicted from a marked node, or too soon after its release."""
        self.released: dict[str, int] = {}
        """Time of the release of each node, while it needs scale-down protection: that is, while
        its utilization has been below the autoscaler's threshold in every reconciliation since."""
        self.kept_waiting: set[str] = set()
        """Pods that remained Pending although only Ebb's taint kept them off a marked node."""
        for trouble in troubles:
            self._play(trouble)

    def _play(self, trouble: Trouble) -> None:
        fault = trouble.fault
        if fault is None:
            self.after(trouble.at_ms, self._elect)
            return
        self.after(trouble.at_ms, lambda: self._troubled.begin(fault))
        self.after(trouble.at_ms + trouble.for_ms, lambda: self._troubled.end(fault))

    def end_node(self, name: str) -> None:
        """Record the removal of a node that Ebb should have protected."""
        node, long = self.state.places[name].node, self.now_ms() - HELD_IN_MS
        sound = self._sound_ms is not None and self._sound_ms < long
        pools = self._config.budgets.pools
        ours = not pools or self._config.budgets.pool_of(node.labels) is not None
        # With `reserved`, which `all` is on nodes of Karpenter, an autoscaler may remove an empty
        # node that Ebb has not marked.
        scope = self._config.scale_down_protection.scope
        everywhere = scope is Scope.ALL and KARPENTER_LABEL not in node.labels
        scoped = (scope is Scope.EMPTY or everywhere) and ours
        scoped &= self._config.mode is Mode.ENFORCE
        if self._takes_empty and sound and scoped and not _handed_over(node):
            self.taken.append(name)
        super().end_node(name)

    def _elect(self) -> None:
        self._sound_ms = None
        self._troubled.ebb.restart(self._config)
        self._troubled.looked_ms = None

    def configure(self, at_ms: int, config: Config) -> None:
        """Change the configuration at *at_ms*."""

        def act() -> None:
            self._config = config
            self._elect()

        self.after(at_ms, act)

    def write(self, node: Node) -> None:
        before = self.state.places[node.name].node
        super().write(node)
        if mark_of(before.labels) is not None and mark_of(node.labels) is None:
            self.released[node.name] = self.now_ms()
        elif protection_of(before) and PROTECTION_ANNOTATION not in node.annotations:
            self.released.pop(node.name, None)

    def evict(self, pod: Pod) -> None:
        name = pod.node or ""
        since = self.released.get(name, -self._guard_ms)
        marked = mark_of(self.state.places[name].node.labels) is not None
        if self._troubled.sound and (marked or self.now_ms() < since + self._guard_ms):
            self.disturbed.append(pod.key)
        super().evict(pod)

    @property
    def _guard_ms(self) -> int:
        return 1000 * self._config.scale_down_protection.after_unmark_seconds

    def _reconcile(self) -> None:
        super()._reconcile()
        if not self._troubled.sound:
            self._sound_ms, self._failed_ms = None, self.now_ms()
        elif self._sound_ms is None:
            self._sound_ms = self.now_ms()
        if self._troubled.sound:
            for place in self.state.places.values():
                if not is_terminating(place.node):
                    self._check(place.node, occupied=bool(place.pods))
            self._check_waiting()

    def _wait(self, pod: Pod) -> None:
        super()._wait(pod)
        if self._troubled.sound:
            self._check_waiting()

    def _check(self, node: Node, *, occupied: bool) -> None:
        assert node.taints == desired_taints(node, TAINT_KEY)
        if mark_of(node.labels) is None:
            return
        details = decode_details(node.annotations)
        assert details is not None
        since_ms = self._troubled.looked_ms
        assert since_ms is not None
        watched_ms = self.now_ms() - since_ms - self._interval_ms
        assert details.deadline > self.now_ms() // 1000 or watched_ms < WATCH_SECONDS * 1000
        # A pod that was bound because of this reconciliation triggers the next reconciliation at
        # once.
        assert protection_of(node) or not occupied or self._troubled.urgent()

    def _check_waiting(self) -> None:
        if self.now_ms() < self._failed_ms + RETRIED_IN_MS:
            return
        for key in self.state.pending:
            pod = self.state.pods[key]
            if not pod.unschedulable:
                continue  # just evicted, and not yet reported as unschedulable
            for place in self.state.marked():
                bare = replace(place, node=without_our_taint(place.node, TAINT_KEY))
                if admits(bare, pod) and not admits(place, pod):
                    self.kept_waiting.add(key)

    def traces(self) -> list[str]:
        """Return all keys of Ebb on nodes that are not terminating.

        In mode enforce without backoffs, which remain for a day after they have ended.
        """
        observes = self._config.mode is Mode.OBSERVE
        return [
            f"{node.name}: {key}"
            for node in (place.node for place in self.state.places.values())
            if not is_terminating(node)
            for key in (*node.labels, *node.annotations, *(taint.key for taint in node.taints))
            if key in OURS and (observes or key != BACKOFF_ANNOTATION)
        ]


def _handed_over(node: Node) -> bool:
    """Return whether Ebb has released the node to the autoscaler, or skips it."""
    return mark_of(node.labels) is not None or BACKOFF_ANNOTATION in node.annotations
