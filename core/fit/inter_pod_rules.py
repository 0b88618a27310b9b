"""Who is asked about by whom: the tallies that there are, and the groups of pods alike in them."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain
from typing import Final

from core.fit.filters import LABEL_FILTERS, TAINT_TOLERATION, Filters
from core.fit.matching import Finder, selects
from core.fit.node_classes import NodeClasses
from core.fit.tallies import (
    Affinity,
    AntiAffinity,
    Attachments,
    DomainCount,
    Domains,
    Group,
    Rule,
    Spread,
    TopologySpread,
)
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

TOGETHER_MAX: Final = 16
"""Sets of anti-affinity terms that a term is counted in, before each is counted alone."""


class InterPodRules:
    """First `group` for all pods that may be placed, then `write_rules`, then the rest."""

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
        self._spreads: dict[object, Spread] = {}
        self._ports: dict[tuple[int, str, str | None], DomainCount] = {}
        """By number, protocol and address; None: whatever the address is. Who takes one address
        asks who has it or all of them, who takes all of them asks who has any."""
        self._holders: dict[PodAffinityTerm, list[DomainCount]] = {}
        """Tallies by the terms whose pods they count."""
        self._counted: Finder[tuple[DomainCount, bool]] = Finder()
        """Tallies by whom they count; True: terminating pods too."""
        self._repelled: Finder[PodAffinityTerm] = Finder()
        for term in dict.fromkeys(term for company in pod_constraints for term in company.apart):
            self._repelled.add((term.selector,), term)
        asked = chain.from_iterable((*one.near, *one.apart) for one in pod_constraints)
        spread = chain.from_iterable(one.spread for one in pod_constraints)
        selectors = {*(one.selector for one in asked), *(one.selector for one in spread)}
        self._read = frozenset(one.key for selector in selectors for one in selector.requirements)
        """The labels of pods that somebody asks about."""
        self._by_object: dict[object, Group] = {}
        self._by_value: dict[object, Group] = {}

    @cached_property
    def _each_node(self) -> Domains:
        return Domains(range(len(self._nodes)))

    def group(self, pod: Pod) -> Group:
        """Return the group of the pod; most pods share their objects with others.

        What nobody asks about tells none apart: each pod of a StatefulSet has labels of its own.
        """
        objects = (
            id(pod.labels), id(pod.company), id(pod.placing), pod.namespace, pod.terminating
        )  # fmt: skip
        found = self._by_object.get(objects)
        if found is None:
            placing = pod.placing if pod.company.spread else None
            labels = tuple(sorted((k, v) for k, v in pod.labels.items() if k in self._read))
            value = (labels, pod.company, placing, pod.namespace, pod.terminating)
            found = self._by_object[objects] = self._by_value.setdefault(value, Group(pod))
        return found

    def write_rules(self) -> None:
        """Write the rules of all groups that there are, and open the tallies that they ask."""
        groups = list(self._by_value.values())
        spread = {group.like.placing for group in groups if group.like.company.spread}
        classes = NodeClasses(self._nodes, spread)
        for group in groups:
            group.rules = tuple(self._rules(group.like, classes))
            group.by_node = all(
                isinstance(rule, AntiAffinity) and rule.tally.domains.by_node
                for rule in group.rules
            )

    def adds(self, group: Group) -> tuple[DomainCount, ...]:
        """Return the tallies in which the group's pods count."""
        if group.adds is None:
            pod = group.like
            found = self._counted.matching(pod)
            adds = [tally for tally, always in found if always or not pod.terminating]
            for term in pod.company.apart:
                adds += self._holders.get(term, ())
            ports = (
                (p.port, p.protocol, ip) for p in pod.company.host_ports for ip in (p.ip, None)
            )
            adds += [self._ports[port] for port in ports if port in self._ports]
            # Counted once where several terms are about it: what counts is whether any is there.
            group.adds = (*dict.fromkeys(adds), *self._attachments.adds(pod.company))
        return group.adds

    def _rules(self, pod: Pod, classes: NodeClasses) -> list[Rule]:
        company = pod.company
        rules: list[Rule] = []
        for port in company.host_ports:
            for ip in (None,) if port.ip == ANY_IP else (port.ip, ANY_IP):
                key = port.port, port.protocol, ip
                if key not in self._ports:
                    self._ports[key] = DomainCount(self._each_node)
                rules.append(
                    AntiAffinity(f"host port {port.port}/{port.protocol}", self._ports[key])
                )
        rules += self._attachments.rules(company)
        rules += (self._topology_spread(pod, one, classes) for one in company.spread)
        if company.near:
            selectors = tuple(term.selector for term in company.near)
            keys = [term.topology_key for term in company.near]
            own = all(selects(selector, pod) for selector in selectors)
            tallies = tuple(self._selected(selectors, key) for key in keys)
            rules.append(Affinity(f"pod affinity on {', '.join(keys)}", tallies, own))
        rules += [
            AntiAffinity(f"pod anti-affinity on {key}", self._selected((term.selector,), key))
            for key, terms in self._by_key(company.apart)
            for term in terms
        ]
        rules += [
            AntiAffinity(f"another pod's anti-affinity on {key}", tally)
            for key, terms in self._by_key(self._repelled.matching(pod))
            for tally in self._holding(terms, key)
        ]
        return rules

    def _topology_spread(
        self, pod: Pod, constraint: SpreadConstraint, classes: NodeClasses
    ) -> TopologySpread:
        return TopologySpread(
            name=f"topology spread over {constraint.topology_key}",
            tally=self._spread(pod, constraint, classes),
            own=int(selects(constraint.selector, pod)),
            max_skew=constraint.max_skew,
            min_domains=constraint.min_domains,
        )

    def _by_key(
        self, terms: Iterable[PodAffinityTerm]
    ) -> Iterable[tuple[str, tuple[PodAffinityTerm, ...]]]:
        """Put terms over one topology together; what no node has a label of refuses nobody."""
        found: dict[str, list[PodAffinityTerm]] = {}
        for term in terms:
            found.setdefault(term.topology_key, []).append(term)
        return [(key, tuple(same)) for key, same in found.items() if key in self._keys]

    def _holding(self, terms: tuple[PodAffinityTerm, ...], topology_key: str) -> list[DomainCount]:
        """Return what counts the pods that ask for any of the terms, together if that can be.

        Of ten terms there are a thousand sets: pods that hold all would count in each of them.
        """
        if any(len(self._holders.get(term, ())) >= TOGETHER_MAX for term in terms):
            return [self._any_holding((term,), topology_key) for term in terms]
        return [self._any_holding(terms, topology_key)]

    def _any_holding(self, terms: tuple[PodAffinityTerm, ...], topology_key: str) -> DomainCount:
        """Count the pods that ask for any of the terms."""
        key = ("any holding", *map(id, terms))  # each is one object, in `_repelled`
        found = self._tallies.get(key)
        if found is None:
            found = self._tallies[key] = DomainCount(self._labelled(topology_key))
            for term in terms:
                self._holders.setdefault(term, []).append(found)
        return found

    def _selected(self, selectors: tuple[PodSelector, ...], topology_key: str) -> DomainCount:
        key = ("selected", selectors, topology_key)
        found = self._tallies.get(key)
        if found is None:
            found = self._tallies[key] = DomainCount(self._labelled(topology_key))
            self._counted.add(selectors, (found, True))
        return found

    def _spread(self, pod: Pod, constraint: SpreadConstraint, classes: NodeClasses) -> Spread:
        """Count the pods of a constraint on the nodes that the scheduler takes into account.

        Those are the nodes with the labels of all the pod's constraints that match the pod's own
        node selectors (honor_affinity) and whose taints it tolerates (honor_taints).
        """
        placing = NodeConstraints()
        filters: Filters = ()
        if constraint.honor_affinity:
            placing = replace(placing, node_selector=pod.placing.node_selector,
                              affinity=pod.placing.affinity)  # fmt: skip
            filters += LABEL_FILTERS
        if constraint.honor_taints:
            placing = replace(placing, tolerations=pod.placing.tolerations)
            filters += (TAINT_TOLERATION,)
        labels = tuple(sorted({one.topology_key for one in pod.company.spread}))
        where = (constraint.topology_key, labels, placing, len(filters))
        domains = self._domains.get(where)
        if domains is None:
            allowed = set(classes.allowing_by(placing, filters))
            domains = self._domains[where] = Domains(
                [
                    node.labels[constraint.topology_key]
                    if number in allowed and all(label in node.labels for label in labels)
                    else None
                    for number, node in enumerate(self._nodes)
                ]
            )
        key = (constraint.selector, where)
        found = self._spreads.get(key)
        if found is None:
            found = self._spreads[key] = Spread(domains)
            self._counted.add((constraint.selector,), (found, False))
        return found

    def _labelled(self, topology_key: str) -> Domains:
        found = self._domains.get(topology_key)
        if found is None:
            found = Domains([node.labels.get(topology_key) for node in self._nodes])
            self._domains[topology_key] = found
        return found
