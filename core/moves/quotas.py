"""Decide whether a ResourceQuota has room for another pod like a given one.

Source: pkg/quota/v1/evaluator/core/pods.go of Kubernetes, and CheckRequest of the admission plugin
ResourceQuota.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from core.model.constraints import QuotaFacts, Requirement
from core.model.pod import Pod
from core.model.resources import HUGE_PAGES
from core.placement.matching import matches_requirement

PRIORITY_CLASS: Final = "PriorityClass"
"""Scope that selects pods by the name of their PriorityClass."""
SHORT_NAMES: Final = {"cpu": "requests.cpu", "memory": "requests.memory"}
"""Names that a quota can give to a request, in place of the full names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceQuota:
    """The limits, the usage and the scopes of a ResourceQuota.

    Amounts are by the name of the resource, in millicores, bytes or units.
    """

    namespace: str
    name: str
    hard: Mapping[str, int]
    used: Mapping[str, int]
    scopes: tuple[Requirement, ...] = ()
    """Requirements on the scopes of a pod; the quota counts the pods that meet all of them."""

    def why_refused(self, pod: Pod) -> str:
        """Return why the API server would reject another pod like this one.

        Empty if the quota has room for it, or does not count it.
        """
        if not all(_in_scope(pod.quota_facts, scope) for scope in self.scopes):
            return ""
        for name in sorted(self.hard):
            if SHORT_NAMES.get(name, name) in pod.quota_facts.unset:
                unset = f"pods that do not set {name} in all containers"
                return f"ResourceQuota {self.name} rejects {unset}"
        for name, amount in sorted(_counted(pod).items()):
            if amount and name in self.hard and self.used.get(name, 0) + amount > self.hard[name]:
                return f"ResourceQuota {self.name} has no room for {name}"
        return ""


def _in_scope(facts: QuotaFacts, scope: Requirement) -> bool:
    """Return whether a pod is in a scope. No pod is in a scope for other objects."""
    match scope.key:
        case "Terminating":
            return facts.has_deadline
        case "NotTerminating":
            return not facts.has_deadline
        case "BestEffort":
            return facts.best_effort
        case "NotBestEffort":
            return not facts.best_effort
        case "CrossNamespacePodAffinity":
            return facts.crosses_namespaces
        case scope_name if scope_name == PRIORITY_CLASS:
            name = facts.priority_class
            return matches_requirement(scope, {PRIORITY_CLASS: name} if name else {})
        case _:
            return False


def _counted(pod: Pod) -> dict[str, int]:
    """Return how much of each resource of a ResourceQuota the pod uses.

    A resource has an entry for each name that a quota can give it, such as `cpu` and
    `requests.cpu`. In millicores, bytes or units.
    """
    requests, limits = pod.requests, pod.quota_facts.limits
    amounts = {"pods": 1, "count/pods": 1}
    for name, requested, limit in (
        ("cpu", requests.cpu_millis, limits.cpu_millis),
        ("memory", requests.memory_bytes, limits.memory_bytes),
        ("ephemeral-storage", requests.ephemeral_bytes, limits.ephemeral_bytes),
    ):
        amounts |= {name: requested, f"requests.{name}": requested, f"limits.{name}": limit}
    for name, units in requests.extended:
        amounts[f"requests.{name}"] = units
        if name.startswith(HUGE_PAGES):
            amounts[name] = units
    return amounts
