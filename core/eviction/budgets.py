"""Compute which evictions PodDisruptionBudgets allow now; the API server decides in the end.

Source: the eviction subresource of kube-apiserver, and k8s.io/api policy/v1.
"""

from collections.abc import Iterable
from typing import Final

from core.eviction.reasons import BUDGET_TOO_LARGE, NEVER_ALLOWED, NOT_NOW, TWO_BUDGETS
from core.model.cluster import DisruptionBudget
from core.model.pod import Pod
from core.model.reason import Blocker
from core.placement.matching import Finder

NAMED_MAX: Final = 3
"""Maximum number of budgets in a message; users can create any number."""


class Allowances:
    """The disruptions that budgets still allow; they decrease as evictions are planned."""

    def __init__(self, budgets: Iterable[DisruptionBudget]) -> None:
        self._by_selector: Finder[DisruptionBudget] = Finder()
        self._of: dict[str, list[DisruptionBudget]] = {}
        """Budgets of each pod that was looked up, by the pod's key."""
        self._left: dict[str, int] = {}
        for budget in budgets:
            self._by_selector.add((budget.selector,), budget)
            self._left[budget.key] = budget.disruptions_allowed

    def why_never(self, pod: Pod) -> Blocker | None:
        """Return why the budgets can never allow an eviction of the pod, or None."""
        budgets = self._protecting(pod)
        for one in budgets:
            if one.too_much:
                return Blocker(BUDGET_TOO_LARGE, f"budget {one.name}: {one.too_much}", pod.key)
        if len(budgets) > 1:
            names = ", ".join(sorted(one.name for one in budgets)[:NAMED_MAX])
            message = f"selected by {len(budgets)} budgets, such as {names}"
            return Blocker(TWO_BUDGETS, message, pod.key)
        for one in budgets:
            requires_all = not one.outdated and one.expected <= one.healthy_min
            if requires_all and one.disruptions_allowed <= 0 and not _free(one, pod):
                return Blocker(NEVER_ALLOWED, _counts(one), pod.key)
        return None

    def why_not(self, pod: Pod) -> Blocker | None:
        """Return why the budgets allow no eviction now, after the planned evictions, or None."""
        if (never := self.why_never(pod)) is not None:
            return never
        for one in self._protecting(pod):
            if _free(one, pod):
                continue
            if one.outdated:
                message = f"the status of budget {one.name} describes an earlier spec"
                return Blocker(NOT_NOW, message, pod.key)
            if self._left[one.key] <= 0:
                return Blocker(NOT_NOW, _counts(one), pod.key)
        return None

    def take(self, pod: Pod) -> None:
        """Count a planned eviction."""
        for one in self._protecting(pod):
            if not _free(one, pod):
                self._left[one.key] -= 1

    def _protecting(self, pod: Pod) -> list[DisruptionBudget]:
        budgets = self._of.get(pod.key)
        if budgets is None:
            budgets = self._of[pod.key] = self._by_selector.matching(pod)
        return budgets


def _free(budget: DisruptionBudget, pod: Pod) -> bool:
    """Return whether the pod is not Ready and may be evicted without using up the budget."""
    if pod.ready:
        return False
    return budget.unhealthy_free or 0 < budget.healthy_min <= budget.healthy


def _counts(budget: DisruptionBudget) -> str:
    return (
        f"budget {budget.name} allows {max(0, budget.disruptions_allowed)} disruptions: "
        f"{budget.healthy} of {budget.expected} pods are Ready, {budget.healthy_min} must be Ready"
    )
