"""Derive inter-pod rules, such as pod affinity and topology spread, from the pods of a cluster.

The result is groups of pods that all rules treat alike, and the pod counts that the rules read.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain
from typing import Final

from core.model.constraints import (
    ANY_IP,
    NodeConstraints,
    PodAffinityTerm,
    PodConstraints,
    PodSelector,
    SpreadConstraint,
)
from core.model.node import Node
from core.model.pod import Pod
from core.placement.filters import LABEL_FILTERS, TAINT_TOLERATION, Filters
from core.placement.matching import Finder, selects
from core.placement.node_classes import NodeClasses
from core.placement.tallies import (
    AffinityRule,
    AntiAffinityRule,
    Attachments,
    DomainCount,
    Domains,
    Group,
    Rule,
    SpreadCount,
    TopologySpreadRule,
)

TOGETHER_MAX: Final = 16
"""Maximum number of combined counts that include one anti-affinity term. Beyond it, each term has
a count of its own."""


class InterPodRules:
    """Groups of pods that inter-pod rules treat alike, with the rules of each group.

    Call `group` for all movable pods, then `write_rules`, then `adds`.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        pod_constraints: Collection[PodConstraints],
        attachments: Attachments,
    ) -> None:
        self._nodes, self._attachments = nodes, attachments
        self._domains: dict[object, Domains] = {}
        self._keys = {key for node in nodes for key in node.labels}
        self._tallies: dict[object, DomainCount] = {}
        self._spread_counts: dict[object, SpreadCount] = {}
        self._ports: dict[tuple[int, str, str | None], DomainCount] = {}
        """Counts by port number, protocol and address. The address None stands for the sum
        over all addresses. A pod with one address reads the counts of this address and of 0.0.0.0;
        a pod with 0.0.0.0 reads the sum."""
        self._holders: dict[PodAffinityTerm, list[DomainCount]] = {}
        """Counts by anti-affinity term; a count includes the pods that have the term."""
        self._counted: Finder[tuple[DomainCount, bool]] = Finder()
        """Counts by the pods that they count; True: terminating pods count too."""
        self._repelled: Finder[PodAffinityTerm] = Finder()
        """Anti-affinity terms by the pods that they select."""
        for term in dict.fromkeys(
            term for pod_constraints in pod_constraints for term in pod_constraints.apart
        ):
            self._repelled.add((term.selector,), term)
        terms = chain.from_iterable(
            (*constraints.near, *constraints.apart) for constraints in pod_constraints
        )
        spread = chain.from_iterable(constraints.spread for constraints in pod_constraints)
        selectors = {
            *(term.selector for term in terms),
            *(constraint.selector for constraint in spread),
        }
        self._read = frozenset(
            requirement.key for selector in selectors for requirement in selector.requirements
        )
        """Pod labels that some selector reads."""
        self._by_object: dict[object, Group] = {}
        self._by_value: dict[object, Group] = {}

    @cached_property
    def _each_node(self) -> Domains:
        return Domains(range(len(self._nodes)))

    def group(self, pod: Pod) -> Group:
        """Return the group of the pod: all pods that every inter-pod rule treats like this pod."""
        objects = (
            id(pod.labels), id(pod.pod_constraints), id(pod.node_constraints),
            pod.namespace, pod.terminating,
        )  # fmt: skip
        # Most pods share these objects with others, so objects are compared first.
        group = self._by_object.get(objects)
        if group is None:
            group = self._by_object[objects] = self._group_of_equal(pod)
        return group

    def without(self, group: Group, label: str) -> Group:
        """Return the group of a pod like those of *group* that lacks a label.

        The same group if no selector reads the label, or if the pods do not have it.
        """
        like = group.like
        if label not in self._read or label not in like.labels:
            return group
        labels = {key: value for key, value in like.labels.items() if key != label}
        # Not `group`: the object ids of this pod may soon belong to others.
        return self._group_of_equal(replace(like, labels=labels))

    def _group_of_equal(self, pod: Pod) -> Group:
        node_constraints = pod.node_constraints if pod.pod_constraints.spread else None
        # Labels that no selector reads do not distinguish pods. Each pod of a StatefulSet has a
        # label of its own.
        labels = tuple(sorted((k, v) for k, v in pod.labels.items() if k in self._read))
        value = (labels, pod.pod_constraints, node_constraints, pod.namespace, pod.terminating)
        return self._by_value.setdefault(value, Group(pod))

    def write_rules(self) -> None:
        """Give each group of pods (Group) its rules about other pods: affinity, spread, volumes.

        Call it when all pods are grouped. It also creates the counts of pods that the rules read.
        """
        groups = list(self._by_value.values())
        spread = {
            group.like.node_constraints for group in groups if group.like.pod_constraints.spread
        }
        classes = NodeClasses(self._nodes, spread)
        for group in groups:
            group.rules = tuple(self._rules(group.like, classes))
            group.by_node = all(
                isinstance(rule, AntiAffinityRule) and rule.tally.domains.by_node
                for rule in group.rules
            )

    def adds(self, group: Group) -> tuple[DomainCount, ...]:
        """Return the pod counts that change by 1 when a pod of the group is placed or removed."""
        if group.adds is None:
            pod = group.like
            tallies = self._counted.matching(pod)
            adds = [tally for tally, always in tallies if always or not pod.terminating]
            for term in pod.pod_constraints.apart:
                adds += self._holders.get(term, ())
            ports = (
                (p.port, p.protocol, ip)
                for p in pod.pod_constraints.host_ports
                for ip in (p.ip, None)
            )
            adds += [self._ports[port] for port in ports if port in self._ports]
            # A pod that several terms select counts once: a rule reads only whether there is any.
            group.adds = (*dict.fromkeys(adds), *self._attachments.adds(pod.pod_constraints))
        return group.adds

    def _rules(self, pod: Pod, classes: NodeClasses) -> list[Rule]:
        pod_constraints = pod.pod_constraints
        rules: list[Rule] = []
        for port in pod_constraints.host_ports:
            for ip in (None,) if port.ip == ANY_IP else (port.ip, ANY_IP):
                key = port.port, port.protocol, ip
                if key not in self._ports:
                    self._ports[key] = DomainCount(self._each_node)
                rules.append(
                    AntiAffinityRule(f"host port {port.port}/{port.protocol}", self._ports[key])
                )
        rules += self._attachments.rules(pod_constraints)
        rules += (
            TopologySpreadRule(
                name=f"topology spread over {constraint.topology_key}",
                tally=self._spread_count(pod, constraint, classes),
                own=int(selects(constraint.selector, pod)),
                max_skew=constraint.max_skew,
                min_domains=constraint.min_domains,
            )
            for constraint in pod_constraints.spread
        )
        if pod_constraints.near:
            selectors = tuple(term.selector for term in pod_constraints.near)
            keys = [term.topology_key for term in pod_constraints.near]
            own = all(selects(selector, pod) for selector in selectors)
            tallies = tuple(self._selected(selectors, key) for key in keys)
            rules.append(AffinityRule(f"pod affinity on {', '.join(keys)}", tallies, own))
        rules += [
            AntiAffinityRule(f"pod anti-affinity on {key}", self._selected((term.selector,), key))
            for key, terms in self._by_key(pod_constraints.apart)
            for term in terms
        ]
        rules += [
            AntiAffinityRule(f"another pod's anti-affinity on {key}", tally)
            for key, terms in self._by_key(self._repelled.matching(pod))
            for tally in self._holding(terms, key)
        ]
        return rules

    def _by_key(
        self, terms: Iterable[PodAffinityTerm]
    ) -> Iterable[tuple[str, tuple[PodAffinityTerm, ...]]]:
        """Return pairs of a topology key and the terms with this key.

        Keys that no node has as a label are omitted.
        """
        terms_of: dict[str, list[PodAffinityTerm]] = {}
        for term in terms:
            terms_of.setdefault(term.topology_key, []).append(term)
        return [(key, tuple(same)) for key, same in terms_of.items() if key in self._keys]

    def _holding(self, terms: tuple[PodAffinityTerm, ...], topology_key: str) -> list[DomainCount]:
        # Ten terms have a thousand combinations, and a pod with all terms would count in each of
        # them.
        if any(len(self._holders.get(term, ())) >= TOGETHER_MAX for term in terms):
            return [self._any_holding((term,), topology_key) for term in terms]
        return [self._any_holding(terms, topology_key)]

    def _any_holding(self, terms: tuple[PodAffinityTerm, ...], topology_key: str) -> DomainCount:
        key = ("any holding", *map(id, terms))  # `_repelled` contains one object for each term
        tally = self._tallies.get(key)
        if tally is None:
            tally = self._tallies[key] = DomainCount(self._labelled(topology_key))
            for term in terms:
                self._holders.setdefault(term, []).append(tally)
        return tally

    def _selected(self, selectors: tuple[PodSelector, ...], topology_key: str) -> DomainCount:
        key = ("selected", selectors, topology_key)
        tally = self._tallies.get(key)
        if tally is None:
            tally = self._tallies[key] = DomainCount(self._labelled(topology_key))
            self._counted.add(selectors, (tally, True))
        return tally

    def _spread_count(
        self, pod: Pod, constraint: SpreadConstraint, classes: NodeClasses
    ) -> SpreadCount:
        """Return the pods that the topology spread constraint of *pod* selects, counted by domain.

        Only nodes with the topology keys of all constraints of the pod count. With
        `honor_affinity` the nodes must also match the pod's node selector and affinity. With
        `honor_taints` the pod must tolerate their taints.
        """
        node_constraints = NodeConstraints()
        filters: Filters = ()
        if constraint.honor_affinity:
            node_constraints = replace(
                node_constraints,
                node_selector=pod.node_constraints.node_selector,
                affinity=pod.node_constraints.affinity,
            )
            filters += LABEL_FILTERS
        if constraint.honor_taints:
            node_constraints = replace(
                node_constraints, tolerations=pod.node_constraints.tolerations
            )
            filters += (TAINT_TOLERATION,)
        labels = tuple(sorted({other.topology_key for other in pod.pod_constraints.spread}))
        where = (constraint.topology_key, labels, node_constraints, len(filters))
        domains = self._domains.get(where)
        if domains is None:
            allowed = set(classes.allowing_by(node_constraints, filters))
            domains = self._domains[where] = Domains(
                [
                    node.labels[constraint.topology_key]
                    if number in allowed and all(label in node.labels for label in labels)
                    else None
                    for number, node in enumerate(self._nodes)
                ]
            )
        key = (constraint.selector, where)
        tally = self._spread_counts.get(key)
        if tally is None:
            tally = self._spread_counts[key] = SpreadCount(domains)
            self._counted.add((constraint.selector,), (tally, False))
        return tally

    def _labelled(self, topology_key: str) -> Domains:
        domains = self._domains.get(topology_key)
        if domains is None:
            domains = Domains([node.labels.get(topology_key) for node in self._nodes])
            self._domains[topology_key] = domains
        return domains
