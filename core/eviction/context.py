"""Determine whether and in which order pods of marked nodes may be evicted now.

`Allowances` computes which evictions PodDisruptionBudgets allow now; the API server decides in the
end. Source: the eviction subresource of kube-apiserver, and k8s.io/api policy/v1.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

from core.config.settings import Config
from core.eligibility.drainability import disruption_cost
from core.eligibility.emptiness import occupying
from core.engine.maintenance_gate import Beginning, RefusedWrite, may_begin
from core.engine.no_schedule import NoScheduleBlockers
from core.engine.plan import Plan
from core.eviction.pods import Owner, leaves, owner_of, why_never, why_waited_for
from core.eviction.reasons import (
    BUDGET_TOO_LARGE,
    COMES_BACK,
    NEVER_ALLOWED,
    NOT_NO_SCHEDULE,
    NOT_NOW,
    TWO_BUDGETS,
    UNSETTLED,
)
from core.marks.mark import Mark, mark_of, marked_since
from core.marks.taints import desired_taints, no_schedule_taint
from core.marks.wellknown import TAINT_KEY
from core.model.cluster import Cluster, DisruptionBudget
from core.model.node import Effect, Taint
from core.model.node_lifecycle import why_leaving
from core.model.now import Now
from core.model.pod import Pod
from core.model.reason import Blocker
from core.placement.matching import Finder, tolerates

ON_NODE_MAX: Final = 5
"""Maximum number of pods of a node that are evicted and not yet replaced, or terminating."""
IN_NAMESPACE_MAX: Final = 3
"""Maximum number of pods of a namespace on marked nodes that are evicted or terminating."""
TIMEOUT_SECONDS: Final = 600
"""The evictions on a node have failed after this time without progress, in seconds."""
BUDGETS_NAMED_MAX: Final = 3
"""Maximum number of PodDisruptionBudgets in a message; users can create any number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionInput:
    """The input of a choice of pods to evict: the cluster, its plan, the settings and the time."""

    cluster: Cluster
    plan: Plan
    """The plan for this cluster."""
    config: Config
    no_schedule_blockers: NoScheduleBlockers
    """Reasons against a NoSchedule mark, by marked node."""
    watched_seconds: int
    """Time for which this leader has observed the cluster, in seconds."""
    now_seconds: int
    own_namespace: str
    """Namespace of Ebb's own pods."""
    refused_write: RefusedWrite | None = None
    """See core.engine.leader_state."""
    on_node_max: int = ON_NODE_MAX
    in_namespace_max: int = IN_NAMESPACE_MAX
    timeout_seconds: int = TIMEOUT_SECONDS


class TerminatingPods(NamedTuple):
    """The numbers of terminating pods on marked nodes: by node, by namespace, and in the cluster.

    A pod counts until its grace period has ended.
    """

    on_node: Counter[str]
    in_namespace: Counter[str]
    in_cluster: int


class Allowances:
    """The numbers of disruptions that PodDisruptionBudgets still allow in a reconciliation.

    Planned evictions reduce these numbers (`take`).
    """

    def __init__(self, budgets: Iterable[DisruptionBudget]) -> None:
        self._by_selector: Finder[DisruptionBudget] = Finder()
        self._budgets_of: dict[str, list[DisruptionBudget]] = {}
        """Budgets of each pod that was looked up, by the pod's key."""
        self._left: dict[str, int] = {}
        """Number of disruptions that each budget still allows, by the budget's key."""
        for budget in budgets:
            self._by_selector.add((budget.selector,), budget)
            self._left[budget.key] = budget.disruptions_allowed

    def why_never(self, pod: Pod) -> Blocker | None:
        """Return why PodDisruptionBudgets never allow an eviction of the pod; None if they can."""
        budgets = self._budgets(pod)
        for budget in budgets:
            if budget.too_much:
                message = f"{_name(budget)}: {budget.too_much}"
                return Blocker(BUDGET_TOO_LARGE, message, pod.key)
        if len(budgets) > 1:
            names = ", ".join(sorted(budget.name for budget in budgets)[:BUDGETS_NAMED_MAX])
            message = f"is selected by {len(budgets)} PodDisruptionBudgets, such as {names}"
            return Blocker(TWO_BUDGETS, message, pod.key)
        for budget in budgets:
            requires_all = not budget.outdated and budget.expected <= budget.healthy_min
            if requires_all and budget.disruptions_allowed <= 0 and not _is_free(budget, pod):
                return Blocker(NEVER_ALLOWED, _counts(budget), pod.key)
        return None

    def why_not(self, pod: Pod) -> Blocker | None:
        """Return why PodDisruptionBudgets allow no eviction of the pod now; None if they allow it.

        Evictions that are already planned in this reconciliation count as disruptions.
        """
        if (never := self.why_never(pod)) is not None:
            return never
        for budget in self._budgets(pod):
            if _is_free(budget, pod):
                continue
            if budget.outdated:
                message = f"the newest spec of {_name(budget)} has not been processed yet"
                return Blocker(NOT_NOW, message, pod.key)
            if self._left[budget.key] <= 0:
                message = (
                    f"other evictions use all disruptions that {_name(budget)} allows"
                    if budget.disruptions_allowed > 0
                    else _counts(budget)
                )
                return Blocker(NOT_NOW, message, pod.key)
        return None

    def take(self, pod: Pod) -> None:
        """Subtract a planned eviction of the pod from the disruptions that its budgets allow."""
        for budget in self._budgets(pod):
            if not _is_free(budget, pod):
                self._left[budget.key] -= 1

    def _budgets(self, pod: Pod) -> list[DisruptionBudget]:
        budgets = self._budgets_of.get(pod.key)
        if budgets is None:
            budgets = self._budgets_of[pod.key] = self._by_selector.matching(pod)
        return budgets


def _is_free(budget: DisruptionBudget, pod: Pod) -> bool:
    """Return whether an eviction of the pod needs no disruption of the budget.

    Only pods that are not Ready can need none (unhealthyPodEvictionPolicy).
    """
    if pod.ready:
        return False
    return budget.unhealthy_free or 0 < budget.healthy_min <= budget.healthy


def _name(budget: DisruptionBudget) -> str:
    return f"PodDisruptionBudget {budget.name}"


def _counts(budget: DisruptionBudget) -> str:
    return (
        f"{_name(budget)} allows {max(0, budget.disruptions_allowed)} disruptions: "
        f"{budget.healthy} of {budget.expected} pods are Ready, {budget.healthy_min} must be Ready"
    )


class EvictionContext:
    """Answer questions about evictions in one reconciliation.

    It has the marked nodes, the pods on them, and all pods of these pods' controllers.
    """

    def __init__(self, eviction_input: EvictionInput, owners: Iterable[Owner]) -> None:
        """Collect the pods on marked nodes, and all pods of their controllers.

        *owners*: further controllers whose pods are needed, even without a pod on a marked node.
        """
        self.eviction_input, self.now = eviction_input, Now(eviction_input.now_seconds)
        cluster = eviction_input.cluster
        self.marked = {
            node.name: node for node in cluster.nodes if mark_of(node.labels) is not None
        }
        self.on: dict[str, list[Pod]] = {name: [] for name in self.marked}
        """Pods that keep each marked node from being empty, by node."""
        for name, pod in occupying(cluster, self.now, self.on):
            self.on[name].append(pod)
        self.of_owner: dict[Owner, list[Pod]] = {owner: [] for owner in owners}
        """All pods of these *owners* and of the controllers of the pods in `on`, on any node."""
        self.of_owner |= {owner_of(pod): [] for on in self.on.values() for pod in on}
        names = {owner.name for owner in self.of_owner}
        for pod in cluster.pods:
            if pod.owner_name in names and (pods := self.of_owner.get(owner_of(pod))) is not None:
                pods.append(pod)
        self.budgets = Allowances(cluster.budgets)

    @cached_property
    def beginning(self) -> Beginning:
        """Return the permission to evict now (MayBegin), or why nothing may begin (Refusal)."""
        given = self.eviction_input
        return may_begin(given.config, self.now, given.refused_write)

    @cached_property
    def places(self) -> dict[str, dict[str, int]]:
        """Return the order in which the plan places the pods of each marked node that it removes.

        The keys are names of nodes, in the order of the removals. Each value has the position of
        every pod (namespace/name). Pods with the same disruption cost are evicted in this order.
        """
        return {
            removal.node: {placed.pod: turn for turn, placed in enumerate(removal.placements)}
            for removal in sorted(
                self.eviction_input.plan.removals, key=lambda removal: removal.order
            )
            if removal.node in self.marked
        }

    def in_order(self, name: str) -> Sequence[Pod]:
        """Return the pods of the node in the order of evictions: the lowest disruption cost first.

        If the evictions have to stop, the pods with the highest disruption cost still run. *name*:
        a marked node that the plan removes.
        """
        places = self.places[name]
        return sorted(
            self.on[name],
            key=lambda pod: (disruption_cost(pod), places.get(pod.key, len(places)), pod.key),
        )

    def why_not_no_schedule(self, name: str) -> Blocker | None:
        """Return why kube-scheduler may still place pods on the marked node *name*, or None.

        None: the node has a NoSchedule mark and the taint that belongs to it.
        """
        node = self.marked[name]
        if mark_of(node.labels) is not Mark.NO_SCHEDULE:
            return Blocker(NOT_NO_SCHEDULE, "the mark of the node is PreferNoSchedule")
        if desired_taints(node, TAINT_KEY) != node.taints:
            return Blocker(NOT_NO_SCHEDULE, "the taint of the node does not match its mark")
        return None

    def allows_no_schedule(self, name: str) -> bool:
        """Return whether the marked node *name* may have a NoSchedule mark."""
        return not self.eviction_input.no_schedule_blockers.get(name)

    def was_interrupted(self, name: str) -> bool:
        """Return whether the cluster needs the marked node *name* again before it is empty.

        That is so if the plan no longer removes it, and it still has pods. False if the node is
        not marked, or if another program is removing it.
        """
        node = self.marked.get(name)
        if node is None or name in self.places or why_leaving(node) is not None:
            return False
        return bool(self.on[name])

    def prefer_no_schedule_period_over(self, name: str) -> bool:
        """Return whether the node *name* has been marked for at least `eviction.after`."""
        since = marked_since(self.marked[name], TAINT_KEY)
        return self.now.seconds - since >= self.eviction_input.config.eviction.after_seconds

    def why_never(self, name: str) -> Blocker | None:
        """Return why the first unevictable pod of the node *name* can never be evicted, or None.

        None: the node has no pod that can never be evicted. Pods that are terminating within their
        grace period do not count.
        """
        blockers = (self._never(pod) for pod in self.on[name] if not leaves(pod, self.now))
        return next((why for why in blockers if why is not None), None)

    def why_not_now(self, pod: Pod) -> Blocker | None:
        """Return why a pod, on any node, could not be evicted now; None if it could.

        None also if the pod is terminating, or does not keep its node from being empty. The
        eviction limits do not count. `of_owner` must contain the controller of the pod.
        """
        if not pod.occupies or pod.terminating:
            return None
        if (waited_for := why_waited_for(pod, self.now)) is not None:
            return waited_for
        return self._never(pod) or self.why_not_yet(pod)

    def why_not_yet(self, pod: Pod) -> Blocker | None:
        """Return why a pod must not be evicted now, but perhaps later; None if it may be now.

        The reason is another pod of its controller that is not Ready, or a PodDisruptionBudget.
        """
        # A Ready pod is evicted only while all other pods of its controller are Ready. Without a
        # PodDisruptionBudget, nothing else limits the disruptions of a workload.
        siblings = self.of_owner[owner_of(pod)] if pod.ready else ()
        if unsettled := next((other for other in siblings if self._is_unsettled(other)), None):
            message = f"pod {unsettled.name} of {pod.owner_kind} {pod.owner_name} is not Ready"
            return Blocker(UNSETTLED, message, pod.key)
        return self.budgets.why_not(pod)

    def _is_unsettled(self, pod: Pod) -> bool:
        return leaves(pod, self.now) if pod.terminating else not pod.ready

    def _never(self, pod: Pod) -> Blocker | None:
        own, taint_key = self.eviction_input.own_namespace, TAINT_KEY
        if (why := why_never(pod, own, self.now)) is not None:
            return why
        node = self.marked.get(pod.node or "")
        taint = (
            no_schedule_taint(node, taint_key)
            if node
            else Taint(taint_key, "", Effect.NO_SCHEDULE)
        )
        if any(tolerates(toleration, taint) for toleration in pod.node_constraints.tolerations):
            return Blocker(COMES_BACK, "tolerates the NoSchedule taint of Ebb", pod.key, taint_key)
        return self.budgets.why_never(pod)

    def returned_pod(
        self, name: str, initial_pods: Collection[str], evicted_owners: Collection[Owner]
    ) -> Blocker | None:
        """Return a Blocker for an evicted pod that was recreated on the node *name*, or None.

        *initial_pods*: UIDs of the pods that were on the node before. *evicted_owners*: the
        controllers of the pods that were evicted from the node.
        """
        taint_key = TAINT_KEY
        for pod in self.on[name]:
            if pod.uid in initial_pods or pod.terminating:
                continue
            if owner_of(pod) in evicted_owners:
                owner = f"{pod.owner_kind} {pod.owner_name}"
                message = f"{owner} created it on the node in spite of the NoSchedule mark"
                return Blocker(COMES_BACK, message, pod.key, taint_key)
        return None

    def ends_by_itself(self, name: str) -> bool:
        """Return whether Ebb waits until a pod of the node *name* terminates by itself."""
        return any(why_waited_for(pod, self.now) for pod in self.on[name])

    def terminating_pods(self) -> TerminatingPods:
        """Return the numbers of terminating pods on marked nodes, whoever deleted the pods.

        In the numbers of a node and of the cluster, at most IN_NAMESPACE_MAX pods of each
        namespace count.
        """
        # A user whose pods terminate very slowly must not block evictions in other namespaces.
        pods = [pod for on in self.on.values() for pod in on if leaves(pod, self.now)]
        most = self.eviction_input.in_namespace_max
        namespaces = Counter(pod.namespace for pod in pods)
        on_nodes = Counter((pod.node or "", pod.namespace) for pod in pods)
        nodes: Counter[str] = Counter()
        for (node, _), many in on_nodes.items():
            nodes[node] += min(many, most)
        in_cluster = sum(min(many, most) for many in namespaces.values())
        return TerminatingPods(nodes, namespaces, in_cluster)
