"""Reference implementation of the evaluation budget of tenants: slow, without estimates.

It shares the values of core.model with the product, but nothing of core.cluster.tenant_limits.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from core.model.constraints import PodSelector, Requirement
from core.model.pod import Pod

MUTANTS: Final = (
    "each pod pays", "foreign like own", "no counting", "values cost nothing", "long terms",
    "bound ports", "static pods count by namespace", "DaemonSet pods first", "by name",
    "all or nothing", "claims are free", "few claims last", "expensive nodes first",
    "labels ignored",
)  # fmt: skip
"""Mutants, one per part of the rule; without the part another pod exceeds the budget."""


class ReferenceBudget:
    """Determines the pods that exceed a budget."""

    def __init__(self, pods: Sequence[Pod], budget: int, mutant: str = "") -> None:
        self._pods, self._budget, self._mutant = pods, budget, mutant

    def beyond(self) -> dict[str, bool]:
        """Return the keys of pods beyond the budget, with whether their claims are resolved."""
        found: dict[str, bool] = {}
        for account in sorted({self._account(pod) for pod in self._pods}):
            mine = [pod for pod in self._pods if self._account(pod) == account]
            found |= self._of_account(mine)
        return found

    def _account(self, pod: Pod) -> str:
        apart = pod.mirror and self._mutant != "static pods count by namespace"
        return "static pods" if apart else f"namespace {pod.namespace}"

    def _of_account(self, mine: Sequence[Pod]) -> dict[str, bool]:
        groups: list[list[Pod]] = []
        for pod in mine:
            like = [group for group in groups if self._alike(group[0], pod)]
            if like:
                like[0].append(pod)
            else:
                groups.append([pod])
        by_claims = -1 if self._mutant == "few claims last" else 1
        for group in groups:
            group.sort(key=lambda one: (by_claims * len(one.disruption_facts.claims), one.key))
        left, paid, found = self._budget, list[object](), dict[str, bool]()
        for group in sorted(groups, key=lambda one: self._turn(one, groups)):
            bill = [(what, cost) for what, cost in self._bill(group[0]) if what not in paid]
            cost = sum(cost for _, cost in bill)
            covered = cost <= left
            if covered:
                left -= cost
                paid += [what for what, _ in bill] if self._mutant != "each pod pays" else []
            elif self._mutant == "all or nothing":
                left = 0
            for pod in group:
                claims = self._claims(pod)
                known = claims <= left
                left -= claims if known else 0
                if not (covered and known):
                    found[pod.key] = known
        return found

    def _alike(self, one: Pod, other: Pod) -> bool:
        node = not one.mirror or one.node == other.node
        return node and (
            (_stage(one), replace(one.node_constraints, volumes=()), one.pod_constraints)
            == (_stage(other), replace(other.node_constraints, volumes=()), other.pod_constraints)
        )

    def _turn(self, group: Sequence[Pod], groups: Sequence[Sequence[Pod]]) -> tuple[object, ...]:
        first = group[0]
        stage = _stage(first) * (-1 if self._mutant == "DaemonSet pods first" else 1)
        many = 0 if self._mutant == "by name" else -len(group)
        if self._account(first) != "static pods":
            return stage, many, first.namespace, first.name
        where = _stage(first), first.node or ""
        same = [one for one in groups if (_stage(one[0]), one[0].node or "") == where]
        cost = sum(cost for one in same for _, cost in self._bill(one[0]))
        cost += sum(self._claims(pod) for one in same for pod in one)
        if first.node is None:
            cost = 0
        sign = -1 if self._mutant == "expensive nodes first" else 1
        return sign * cost, *where, many, first.namespace, first.name

    def _claims(self, pod: Pod) -> int:
        return 0 if self._mutant == "claims are free" else 2 * len(pod.disruption_facts.claims)

    def _bill(self, pod: Pod) -> list[tuple[object, int]]:
        """Return the constraints of the pod that are evaluated once for all pods, and costs."""
        pod_constraints, found = pod.pod_constraints, list[tuple[object, int]]()
        if _stage(pod) < 2:
            asked = replace(pod.node_constraints, volumes=())
            wanted = [one for term in asked.affinity or () for one in (*term.labels, *term.fields)]
            number = self._requirements(wanted) + len(asked.node_selector) + len(asked.system)
            found.append((asked, 96 + 8 * (number + len(asked.tolerations) // 16)))
        if pod_constraints.host_ports and (_stage(pod) < 2 or self._mutant == "bound ports"):
            found.append((pod_constraints.host_ports, 8 * len(pod_constraints.host_ports)))
        for term in dict.fromkeys(pod_constraints.apart):
            found.append((term, self._term(pod, [term.selector])))
        for key in sorted({term.topology_key for term in pod_constraints.near}):
            selectors = [term.selector for term in pod_constraints.near]
            found.append(((key, pod_constraints.near), self._term(pod, selectors)))
        for one in dict.fromkeys(pod_constraints.spread):
            where = replace(pod.node_constraints, volumes=())
            found.append(((where, one), self._term(pod, [one.selector])))
        return found

    def _term(self, pod: Pod, selectors: Sequence[PodSelector]) -> int:
        number = sum(max(1, self._requirements(one.requirements)) for one in selectors)
        foreign = any(
            one.namespaces is None or set(one.namespaces) - {pod.namespace} for one in selectors
        )
        each = 32 + 512 if foreign and self._mutant != "foreign like own" else 32
        times = 1 if self._mutant == "long terms" else 1 + number // 16
        counted = min(map(self._counted, selectors))
        return each * number + (0 if self._mutant == "no counting" else times * counted)

    def _requirements(self, found: Iterable[Requirement]) -> int:
        if self._mutant == "values cost nothing":
            return len(list(found))
        return sum(1 + len(one.values) // 16 for one in found)

    def _counted(self, selector: PodSelector) -> int:
        named = selector.namespaces
        there = [pod for pod in self._pods if named is None or pod.namespace in named]
        # Labels are counted in one namespace or in all namespaces.
        among = there if named is not None and len(named) == 1 else self._pods
        most = len(there)
        for asked in selector.requirements:
            if asked.operator == "In" and self._mutant != "labels ignored":
                having = [pod for pod in among if pod.labels.get(asked.key) in asked.values]
                most = min(most, len(having))
        return most


def _stage(pod: Pod) -> int:
    """Return 0 for an unschedulable pod, 1 for another Pending pod, 2 for a bound pod."""
    if not (pod.daemon or pod.mirror):
        return 0
    return 1 if pod.node is None else 2
