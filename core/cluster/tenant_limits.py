"""Limit how much time the pods of one namespace can take in each reconciliation.

Node selectors, host ports, volume claims and terms about other pods (affinity, anti-affinity,
topology spread) cost time in every reconciliation, and anybody who may create pods can add them.
`kube.decode.pod_limits` limits the constraints of one pod. The evaluation budget limits those
of all pods of a namespace together, so that no tenant can slow down the controller.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from core.model.cluster_pods import ClusterPods, SharedConstraints
from core.model.constraints import (
    NO_NODE_CONSTRAINTS,
    NO_POD_CONSTRAINTS,
    NodeConstraints,
    PodAffinityTerm,
    PodConstraints,
    PodSelector,
    Requirement,
    without_volumes,
)
from core.model.pod import Pod

# The costs follow measured time and memory: tests/bench/bench_shapes.py, the shapes `spent_*`.
BUDGET: Final = 2**19
"""Units that the constraints of one namespace's pods may cost."""
# Counting pods takes most time, and the time grows faster than their number: with six times the
# number of pods that half of the budget pays for, a reconciliation took nine times as long.
COUNTED_POD_COST: Final = 1
"""Units for each pod that a term about other pods selects; equal terms are charged once."""
# Different node constraints can admit different nodes, so each needs a list of nodes in memory.
# The whole budget pays for 5,000 lists, which take more than one gigabyte with 15,000 nodes.
NODE_TEMPLATE_COST: Final = 96
"""Units for node constraints; equal node constraints are charged once."""
NODE_REQUIREMENT_COST: Final = 8
"""Units for each requirement of node constraints; equal node constraints are charged once."""
HOST_PORT_COST: Final = 8
"""Units for each host port; equal sets of ports are charged once."""
POD_REQUIREMENT_COST: Final = 32
"""Units for each requirement of a term about other pods; equal terms are charged once."""
FOREIGN_COST: Final = 512
"""Additional units for each requirement of a term that can select pods of other namespaces."""
CLAIM_COST: Final = 2
"""Units for each volume claim that a pod names, whether the claim exists or not."""
VALUES_PER_REQUIREMENT: Final = 16
"""Number of values, or of tolerations, that count as one more requirement."""
# Each selected pod is compared with each requirement. Without this surcharge, a term with hundreds
# of requirements would take ten times as long as its units suggest.
REQUIREMENTS_PER_COUNTED_POD: Final = 16
"""Number of requirements of a term after which each pod that it selects costs one more unit."""

Tenant = str | None
"""The namespace whose budget a pod is charged to. None: the budget of all mirror pods."""
Payer = tuple[int, str]
"""The stage in which pods are charged, and the node of mirror pods."""
PLACED: Final = 0
"""Stage of pods that need a place."""
UNBOUND: Final = 1
"""Stage of DaemonSet pods that are not bound yet."""
BOUND: Final = 2
"""Stage of pods that stay with the node that they are bound to."""


def within_budget(pods: ClusterPods, budget: int = BUDGET) -> ClusterPods:
    """Return the pods, with `too_much` set on each pod that its namespace's budget does not cover.

    These pods also lose the constraints that cost time.

    Pods that need a place are charged before pods that stay with their node. Constraints that more
    pods share are charged earlier; names decide between equal numbers. All mirror pods share one
    budget, in which the node whose mirror pods cost least is charged first.

    *budget*: units of cost for each namespace, by the costs in this module.
    """
    sizes = _Sizes(pods)
    suspects = _suspects(pods, sizes, budget)
    if not suspects:
        return pods
    charged: dict[Tenant, list[int]] = {}
    for number, pod in enumerate(pods.all):
        if (tenant := _tenant(pod)) in suspects:
            charged.setdefault(tenant, []).append(number)
    beyond: dict[int, Pod] = {}
    for numbers in charged.values():
        groups = _in_order(pods.all, numbers, sizes)
        beyond |= {id(pods.all[number]): pod for number, pod in _beyond(pods.all, groups, budget)}
    return pods.replacing(beyond)


def _tenant(pod: Pod | SharedConstraints) -> Tenant:
    # Kubelets create mirror pods in any namespace. They must not use up the budget of its tenant.
    # The tenant creates DaemonSet pods, and sets the annotation that declares a pod to be one.
    return None if pod.mirror else pod.namespace


def _suspects(pods: ClusterPods, sizes: "_Sizes", budget: int) -> set[Tenant]:
    """Return the namespaces that may exceed the budget, by an estimate that is never too low.

    None among them stands for the mirror pods of all nodes.
    """
    # In nearly all clusters no tenant is suspect, so this must be fast: pods that share their
    # constraints are charged once.
    spent: Counter[Tenant] = Counter()
    for shared in pods.shared.values():
        spent[_tenant(shared)] += sum(_costs(shared, PLACED, sizes.of_namespaces).values())
    for pod in pods.special:
        spent[_tenant(pod)] += _cost_of_claims(pod)
    return {tenant for tenant, cost in spent.items() if cost > budget}


@dataclass(slots=True)
class _ChargedGroup:
    """Pods with equal constraints on nodes and on other pods, which are charged together."""

    payer: Payer
    members: list[int]
    """Numbers of the pods, those with the fewest claims first, then by name."""
    costs: Mapping[object, int]
    """Units by constraint, without claims."""


def _in_order(pods: Sequence[Pod], numbers: Iterable[int], sizes: "_Sizes") -> list[_ChargedGroup]:
    """Return the groups of pods with equal constraints, in the order in which they are charged.

    *numbers*: indices in *pods* of the pods that share one budget.
    """
    # Group by object first, then by value: most equal constraints are one object, and hashing
    # values is slow.
    same: dict[object, list[int]] = {}
    for number in numbers:
        pod = pods[number]
        same.setdefault(
            (_payer(pod), id(pod.node_constraints), id(pod.pod_constraints)), []
        ).append(number)
    equal: dict[tuple[Payer, NodeConstraints, PodConstraints], list[int]] = {}
    for sharing in same.values():
        pod = pods[sharing[0]]
        equal.setdefault(
            (_payer(pod), without_volumes(pod.node_constraints), pod.pod_constraints), []
        ).extend(sharing)
    groups: list[_ChargedGroup] = []
    of_node: Counter[Payer] = Counter()
    for (payer, _, _), members in equal.items():
        members.sort(key=lambda number: (_cost_of_claims(pods[number]), _name(pods[number])))
        costs = _costs(pods[members[0]], payer[0], sizes.of_labels)
        groups.append(_ChargedGroup(payer, members, costs))
        if payer[1]:
            of_node[payer] += sum(costs.values())
            of_node[payer] += sum(_cost_of_claims(pods[number]) for number in members)
    groups.sort(
        key=lambda group: (
            of_node[group.payer], group.payer, -len(group.members), _name(pods[group.members[0]])
        )
    )  # fmt: skip
    return groups


def _payer(pod: Pod) -> Payer:
    if not pod.stays_with_node:
        return PLACED, ""
    if pod.node is None:
        return UNBOUND, ""
    return BOUND, pod.node if pod.mirror else ""


def _name(pod: Pod) -> tuple[str, str]:
    return pod.namespace, pod.name


def _beyond(
    pods: Sequence[Pod], groups: Iterable[_ChargedGroup], budget: int
) -> Iterator[tuple[int, Pod]]:
    """Charge one budget; yield the index of each pod that it does not cover, and the changed pod.

    The changed pod lacks the constraints that cost time. A group that costs too much is skipped,
    because a later, cheaper group may be covered.
    """
    left, paid = budget, set[object]()
    for group in groups:
        new = group.costs.keys() - paid
        cost = sum(group.costs[constraint] for constraint in new)
        covered = cost <= left
        if covered:
            left -= cost
            paid |= new
        for number in group.members:
            # The volumes of a pod that is not covered still count on its node. So its claims are
            # charged and looked up as well.
            claims = _cost_of_claims(pods[number])
            known = claims <= left
            left -= claims if known else 0
            if not (covered and known):
                yield number, _asking_too_much(pods[number], claims_known=known)


def _asking_too_much(pod: Pod, *, claims_known: bool) -> Pod:
    """Return the pod with `too_much`, without the constraints that cost time.

    Host ports remain, and with *claims_known* also volume claims and disks.
    """
    # The tolerations of a bound DaemonSet pod cost nothing, and NoSchedule marks depend on them.
    node_constraints = pod.node_constraints if _payer(pod)[0] == BOUND else NO_NODE_CONSTRAINTS
    pod_constraints = pod.pod_constraints
    if pod_constraints is not NO_POD_CONSTRAINTS:
        pod_constraints = replace(pod_constraints, near=(), apart=(), spread=())
    disruption_facts = (
        pod.disruption_facts
        if claims_known
        else replace(pod.disruption_facts, claims=(), disks=())
    )
    return replace(
        pod,
        node_constraints=node_constraints,
        pod_constraints=pod_constraints,
        soft_spread=(),
        disruption_facts=disruption_facts,
        too_much=_message(pod),
    )


def _message(pod: Pod) -> str:
    budget = f"the evaluation budget of {BUDGET:,} units"
    if pod.mirror:
        return (
            f"{budget} that the static pods of all nodes share; remove constraints or volume "
            f"claims from the static pods of node {pod.node}"
        )
    return (
        f"{budget} for the constraints and volume claims of namespace {pod.namespace}; remove "
        "some of them, or give more pods equal constraints"
    )


def _cost_of_claims(pod: Pod) -> int:
    return CLAIM_COST * (len(pod.disruption_facts.claims) + len(pod.disruption_facts.disks))


def _costs(
    pod: Pod | SharedConstraints, stage: int, counted: Callable[[Sequence[PodSelector]], int]
) -> dict[object, int]:
    """Return the units that each constraint of a pod costs, by a key that equal constraints share.

    A namespace pays once for equal constraints.

    *stage*: PLACED, UNBOUND or BOUND. *counted*: returns how many pods match all given selectors.
    """
    costs: dict[object, int] = {}
    pod_constraints = pod.pod_constraints
    if stage != BOUND:  # a pod that is bound to its node is not placed elsewhere
        on_nodes = without_volumes(pod.node_constraints)
        requirements = NODE_REQUIREMENT_COST * _requirements_of_nodes(on_nodes)
        costs[on_nodes] = NODE_TEMPLATE_COST + requirements
        if pod_constraints.host_ports:
            costs[pod_constraints.host_ports] = HOST_PORT_COST * len(pod_constraints.host_ports)
    for term, selectors, of_namespaces in (
        _terms(pod) if pod_constraints is not NO_POD_CONSTRAINTS else ()
    ):
        requirements = sum(max(1, _number_of(selector.requirements)) for selector in selectors)
        requirements += of_namespaces
        foreign = any(selector.namespaces not in ((), (pod.namespace,)) for selector in selectors)
        each = POD_REQUIREMENT_COST + (FOREIGN_COST if foreign else 0)
        per_pod = COUNTED_POD_COST * (1 + requirements // REQUIREMENTS_PER_COUNTED_POD)
        costs[term] = each * requirements + per_pod * counted(selectors)
    return costs


def _terms(pod: Pod | SharedConstraints) -> Iterator[tuple[object, Sequence[PodSelector], int]]:
    """Yield for each term about other pods: its key, its selectors, and a number of requirements.

    The key is equal for terms that are charged once. The selectors select the pods that the term
    counts. The number is that of the requirements on namespaces.
    """
    pod_constraints = pod.pod_constraints
    for term in pod_constraints.apart:
        yield term, (term.selector,), _of_namespaces(term)
    # A pod must match all affinity terms together, and is counted in the topology of each.
    near = tuple(term.selector for term in pod_constraints.near)
    for term in pod_constraints.near:
        yield (pod_constraints.near, term.topology_key), near, _of_namespaces(term)
    for constraint in pod_constraints.spread:
        # Only nodes that the pod's own node constraints admit are counted.
        yield (constraint, without_volumes(pod.node_constraints)), (constraint.selector,), 0


def _of_namespaces(term: PodAffinityTerm) -> int:
    return _number_of(term.chosen.requirements) if term.chosen else 0


def _requirements_of_nodes(node_constraints: NodeConstraints) -> int:
    terms = node_constraints.affinity or ()
    in_terms = sum(_number_of(term.labels) + _number_of(term.fields) for term in terms)
    tolerations = len(node_constraints.tolerations) // VALUES_PER_REQUIREMENT
    return in_terms + len(node_constraints.labels) + tolerations


def _number_of(requirements: Iterable[Requirement]) -> int:
    return sum(
        1 + len(requirement.values) // VALUES_PER_REQUIREMENT for requirement in requirements
    )


class _Sizes:
    """Returns upper bounds for the number of pods that match selectors."""

    def __init__(self, pods: ClusterPods) -> None:
        self._pods, self._counts = pods.all, pods.counts
        self._labelled: dict[str | None, Counter[tuple[str, str]]] = {}

    def of_namespaces(self, selectors: Sequence[PodSelector]) -> int:
        """Return the most pods that can match all selectors, by their namespaces alone.

        That is the number of pods in the namespaces of the selector with the fewest; 0 without
        selectors.
        """
        return min(map(self._pods_in, selectors), default=0)

    def of_labels(self, selectors: Sequence[PodSelector]) -> int:
        """Return the most pods that can match all selectors, by their namespaces and labels.

        At most `of_namespaces`; less if few pods have a label that an `In` requires.
        """
        bounds = [self.of_namespaces(selectors)]
        for selector in selectors:
            named = selector.namespaces or ()
            labelled = self._labels_in(named[0] if len(named) == 1 else None)
            bounds += (
                sum(labelled[requirement.key, value] for value in requirement.values)
                for requirement in selector.requirements
                if requirement.operator == "In"
            )
        return min(bounds)

    def _pods_in(self, selector: PodSelector) -> int:
        if selector.namespaces is None:
            return len(self._pods)
        return sum(self._counts.get(name, 0) for name in selector.namespaces)

    @cached_property
    def _members(self) -> Mapping[str, Sequence[Pod]]:
        pods: dict[str, list[Pod]] = {}
        for pod in self._pods:
            pods.setdefault(pod.namespace, []).append(pod)
        return pods

    def _labels_in(self, namespace: str | None) -> Counter[tuple[str, str]]:
        """Return the number of pods that have each label, by its key and value.

        *namespace*: count only pods in this namespace; None counts all.
        """
        if namespace not in self._labelled:
            pods = self._pods if namespace is None else self._members.get(namespace, ())
            labels = {id(pod.labels): pod.labels for pod in pods}
            counts: Counter[tuple[str, str]] = Counter()
            for which, many in Counter(id(pod.labels) for pod in pods).items():
                for label in labels[which].items():
                    counts[label] += many
            self._labelled[namespace] = counts
        return self._labelled[namespace]
