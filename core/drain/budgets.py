"""What PodDisruptionBudgets let go now, as the eviction API would answer; it has the last word.

Source: the eviction subresource of kube-apiserver, and k8s.io/api policy/v1.
"""

from collections.abc import Iterable
from typing import Final

from core.drain.reasons import NEVER_ALLOWED, NOT_NOW, TWO_BUDGETS
from core.fit.matching import Finder
from core.model.cluster import DisruptionBudget
from core.model.pod import Pod
from core.model.reason import Blocker

NAMED_MAX: Final = 3
"""Budgets that a message names: a tenant may have made any number."""


class Allowances:
    """The budgets' allowances, which shrink as evictions are planned."""

    def __init__(self, budgets: Iterable[DisruptionBudget]) -> None:
        self._about: Finder[DisruptionBudget] = Finder()
        self._of: dict[str, list[DisruptionBudget]] = {}
        """By the pods' key, of those that were asked for: their budgets."""
        self._left: dict[str, int] = {}
        for one in budgets:
            self._about.add((one.selector,), one)
            self._left[one.key] = one.disruptions_allowed

    def why_never(self, pod: Pod) -> Blocker | None:
        """Say why the pod cannot be evicted as its budgets are written, or None."""
        found = self._protecting(pod)
        if len(found) > 1:
            names = ", ".join(sorted(one.name for one in found)[:NAMED_MAX])
            told = f"{len(found)} budgets protect it, {names} among them"
            return Blocker(TWO_BUDGETS, told, pod.key)
        for one in found:
            asks_all = not one.outdated and one.expected <= one.healthy_min
            if asks_all and one.disruptions_allowed <= 0 and not _free(one, pod):
                return Blocker(NEVER_ALLOWED, _told(one), pod.key)
        return None

    def why_not(self, pod: Pod) -> Blocker | None:
        """Say why the pod cannot be evicted now, after what has been taken, or None."""
        if (never := self.why_never(pod)) is not None:
            return never
        for one in self._protecting(pod):
            if _free(one, pod):
                continue
            if one.outdated:
                told = f"budget {one.name}: its status is not about its present spec yet"
                return Blocker(NOT_NOW, told, pod.key)
            if self._left[one.key] <= 0:
                return Blocker(NOT_NOW, _told(one), pod.key)
        return None

    def take(self, pod: Pod) -> None:
        """Count an eviction."""
        for one in self._protecting(pod):
            if not _free(one, pod):
                self._left[one.key] -= 1

    def _protecting(self, pod: Pod) -> list[DisruptionBudget]:
        found = self._of.get(pod.key)
        if found is None:
            found = self._of[pod.key] = self._about.matching(pod)
        return found


def _free(budget: DisruptionBudget, pod: Pod) -> bool:
    """Say whether the pod, as it serves nobody, goes without being counted."""
    if pod.ready:
        return False
    return budget.unhealthy_free or 0 < budget.healthy_min <= budget.healthy


def _told(budget: DisruptionBudget) -> str:
    return (
        f"budget {budget.name} allows {max(0, budget.disruptions_allowed)}: {budget.healthy} of "
        f"{budget.expected} pods are Ready, and {budget.healthy_min} must be"
    )
