"""Collect the facts for the decision which pods to evict.

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
from core.engine.maintenance_gate import Beginning, may_begin
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
from core.model.cluster import Cluster, DisruptionBudget
from core.model.node import Effect, Taint
from core.model.node_lifecycle import why_leaving
from core.model.now import Now
from core.model.pod import Pod
from core.model.reason import Blocker
from core.placement.matching import Finder, tolerates

BUDGETS_NAMED_MAX: Final = 3
"""Maximum number of PodDisruptionBudgets in a message; users can create any number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionInput:
    """Input of a decision about evictions: one reconciliation, and the leader that makes it."""

    cluster: Cluster
    plan: Plan
    """The plan for this cluster."""
    config: Config
    no_schedule_blockers: NoScheduleBlockers
    watched_seconds: int
    """Time for which this leader has observed the cluster, in seconds."""
    now_seconds: int
    own_namespace: str
    """Namespace of Ebb's own pods."""


class TerminatingPods(NamedTuple):
    """Numbers of pods on marked nodes that are terminating within their grace period."""

    on_node: Counter[str]
    in_namespace: Counter[str]
    in_cluster: int


class Allowances:
    """The disruptions that PodDisruptionBudgets still allow; each planned eviction uses one up."""

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
        """Return why the budgets can never allow an eviction of the pod, or None."""
        budgets = self._budgets(pod)
        for budget in budgets:
            if budget.too_much:
                message = f"budget {budget.name}: {budget.too_much}"
                return Blocker(BUDGET_TOO_LARGE, message, pod.key)
        if len(budgets) > 1:
            names = ", ".join(sorted(budget.name for budget in budgets)[:BUDGETS_NAMED_MAX])
            message = f"selected by {len(budgets)} budgets, such as {names}"
            return Blocker(TWO_BUDGETS, message, pod.key)
        for budget in budgets:
            requires_all = not budget.outdated and budget.expected <= budget.healthy_min
            if requires_all and budget.disruptions_allowed <= 0 and not _is_free(budget, pod):
                return Blocker(NEVER_ALLOWED, _counts(budget), pod.key)
        return None

    def why_not(self, pod: Pod) -> Blocker | None:
        """Return why the budgets allow no eviction of the pod now, or None.

        The evictions planned before in this reconciliation count.
        """
        if (never := self.why_never(pod)) is not None:
            return never
        for budget in self._budgets(pod):
            if _is_free(budget, pod):
                continue
            if budget.outdated:
                message = f"the status of budget {budget.name} describes an earlier spec"
                return Blocker(NOT_NOW, message, pod.key)
            if self._left[budget.key] <= 0:
                return Blocker(NOT_NOW, _counts(budget), pod.key)
        return None

    def take(self, pod: Pod) -> None:
        """Count the planned eviction of a pod."""
        for budget in self._budgets(pod):
            if not _is_free(budget, pod):
                self._left[budget.key] -= 1

    def _budgets(self, pod: Pod) -> list[DisruptionBudget]:
        budgets = self._budgets_of.get(pod.key)
        if budgets is None:
            budgets = self._budgets_of[pod.key] = self._by_selector.matching(pod)
        return budgets


def _is_free(budget: DisruptionBudget, pod: Pod) -> bool:
    """Return whether the pod is not Ready, and its eviction uses up none of the budget."""
    if pod.ready:
        return False
    return budget.unhealthy_free or 0 < budget.healthy_min <= budget.healthy


def _counts(budget: DisruptionBudget) -> str:
    return (
        f"budget {budget.name} allows {max(0, budget.disruptions_allowed)} disruptions: "
        f"{budget.healthy} of {budget.expected} pods are Ready, {budget.healthy_min} must be Ready"
    )


class EvictionContext:
    """The marked nodes, the pods on them, and all pods of these pods' controllers."""

    def __init__(self, eviction_input: EvictionInput, owners: Iterable[Owner]) -> None:
        """Collect the facts; *owners*: further controllers whose pods matter."""
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
        """All pods of the relevant controllers, on any node."""
        self.of_owner |= {owner_of(pod): [] for on in self.on.values() for pod in on}
        names = {owner.name for owner in self.of_owner}
        for pod in cluster.pods:
            if pod.owner_name in names and (alike := self.of_owner.get(owner_of(pod))) is not None:
                alike.append(pod)
        self.budgets = Allowances(cluster.budgets)

    @cached_property
    def beginning(self) -> Beginning:
        """Return whether an eviction may begin now."""
        return may_begin(self.eviction_input.config, self.now)

    @cached_property
    def places(self) -> dict[str, dict[str, int]]:
        """Return the pods for which the plan has another node, by marked node in plan order.

        The value of a pod is its position in the packing order, which is the order of evictions.
        """
        return {
            removal.node: {placed.pod: turn for turn, placed in enumerate(removal.placements)}
            for removal in sorted(
                self.eviction_input.plan.removals, key=lambda removal: removal.order
            )
            if removal.node in self.marked
        }

    def in_order(self, name: str) -> Sequence[Pod]:
        """Return the pods of a node in the order of evictions, by disruption cost first.

        If the drain has to stop, the pods with the highest disruption cost have not been evicted.
        """
        places = self.places[name]
        return sorted(
            self.on[name],
            key=lambda pod: (disruption_cost(pod), places.get(pod.key, len(places)), pod.key),
        )

    def why_not_no_schedule(self, name: str) -> Blocker | None:
        """Return why pods may still be scheduled to the node, or None."""
        node = self.marked[name]
        if mark_of(node.labels) is not Mark.NO_SCHEDULE:
            return Blocker(NOT_NO_SCHEDULE, "the mark of the node is PreferNoSchedule")
        if desired_taints(node, self.eviction_input.config.taint_key) != node.taints:
            return Blocker(NOT_NO_SCHEDULE, "the taint of the node does not match its mark")
        return None

    def allows_no_schedule(self, name: str) -> bool:
        """Return whether nothing prevents a NoSchedule mark."""
        return not self.eviction_input.no_schedule_blockers.get(name)

    def was_interrupted(self, name: str) -> bool:
        """Return whether the plan no longer removes a marked node that has pods and stays."""
        node = self.marked.get(name)
        if node is None or name in self.places or why_leaving(node) is not None:
            return False
        return bool(self.on[name])

    def prefer_no_schedule_period_over(self, name: str) -> bool:
        """Return whether the node has been marked for at least `drain.after`."""
        since = marked_since(self.marked[name], self.eviction_input.config.taint_key)
        return self.now.seconds - since >= self.eviction_input.config.drain.after_seconds

    def why_never(self, name: str) -> Blocker | None:
        """Return why the node can never be drained: the first such pod, or None."""
        found = (self._never(pod) for pod in self.on[name] if not leaves(pod, self.now))
        return next((why for why in found if why is not None), None)

    def why_not_now(self, pod: Pod) -> Blocker | None:
        """Return why a pod on any node would not be evicted if it were next, or None.

        `of_owner` must contain the pod's controller.
        """
        if not pod.occupies or pod.terminating:
            return None
        if (waited_for := why_waited_for(pod, self.now)) is not None:
            return waited_for
        return self._never(pod) or self.why_not_yet(pod)

    def why_not_yet(self, pod: Pod) -> Blocker | None:
        """Return why a pod that may be evicted must wait, or None."""
        # A Ready pod is evicted only while all other pods of its controller are Ready. Without a
        # PodDisruptionBudget, nothing else limits the disruptions of a workload.
        alike = self.of_owner[owner_of(pod)] if pod.ready else ()
        if unsettled := next((other for other in alike if self._is_unsettled(other)), None):
            message = f"pod {unsettled.name} of {pod.owner_kind} {pod.owner_name} is not Ready"
            return Blocker(UNSETTLED, message, pod.key)
        return self.budgets.why_not(pod)

    def _is_unsettled(self, pod: Pod) -> bool:
        """Return whether a pod is starting or terminating."""
        return leaves(pod, self.now) if pod.terminating else not pod.ready

    def _never(self, pod: Pod) -> Blocker | None:
        own, taint_key = self.eviction_input.own_namespace, self.eviction_input.config.taint_key
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
        self, name: str, here: Collection[str], left: Collection[Owner]
    ) -> Blocker | None:
        """Return a new pod on the node, from a controller whose pods were evicted there, or None.

        *here*: UIDs of the pods that were on the node before. *left*: these controllers.
        """
        taint_key = self.eviction_input.config.taint_key
        for pod in self.on[name]:
            if owner_of(pod) in left and pod.uid not in here and not pod.terminating:
                owner = f"{pod.owner_kind} {pod.owner_name}"
                message = f"{owner} created it on the node in spite of the NoSchedule mark"
                return Blocker(COMES_BACK, message, pod.key, taint_key)
        return None

    def ends_by_itself(self, name: str) -> bool:
        """Return whether Ebb waits for a pod of the node to complete by itself."""
        return any(why_waited_for(pod, self.now) for pod in self.on[name])

    def terminating_pods(self) -> TerminatingPods:
        """Count the terminating pods, whoever deleted them.

        In the numbers of nodes and of the cluster, at most `maxInNamespace` of a namespace count.
        """
        # A user whose pods terminate very slowly must not block evictions in other namespaces.
        found = [pod for on in self.on.values() for pod in on if leaves(pod, self.now)]
        most = self.eviction_input.config.drain.max_in_namespace
        spaces = Counter(pod.namespace for pod in found)
        on_nodes = Counter((pod.node or "", pod.namespace) for pod in found)
        nodes: Counter[str] = Counter()
        for (node, _), many in on_nodes.items():
            nodes[node] += min(many, most)
        return TerminatingPods(nodes, spaces, sum(min(many, most) for many in spaces.values()))
