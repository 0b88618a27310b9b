"""May a pod run beside those pods: ports, claims, attached volumes, pod affinity, spread.

Every rule here is a question about a count: how many pods of one description stand in the node's
domain (its value of a topology label; for a port, the node itself). So all the state is Tallies,
which change by one when a pod comes or goes. Pods that ask nothing of others and are asked about
by nobody belong to no Group and cost nothing; where all pods are such, there is no Topology.

All nodes of the cluster count with the pods on them: cordoned ones, and those that have been
chosen to go, as empty of the pods that moved, because they stand in the cluster, marked, for a
long time. Their DaemonSets' pods count too while they stand.
Source: kube-scheduler plugins NodePorts, VolumeRestrictions, NodeVolumeLimits, PodTopologySpread
and InterPodAffinity, their filters.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from core.fit import LABEL_RULES, TAINT_RULE, Finder, Rules, selects
from core.kinds import NodeKinds
from core.model import (
    ALONE,
    Cluster,
    Company,
    HostPort,
    Node,
    Placing,
    Pod,
    PodAffinityTerm,
    PodSelector,
    SpreadConstraint,
)
from core.tallies import Attachments, Clear, Domains, Even, Group, Near, Rule, Tally, conflicts

_NO_DRIVER: Final[Mapping[str, int | None]] = {}


class Topology:
    """Where the pods stand that somebody's rules are about, and what that allows.

    Pods are known by the Packer's ids, nodes too. What `lift` and `put` change is on trial until
    `undo`; `move` is for good.
    """

    def __init__(self, cluster: Cluster, nodes: Sequence[Node], movable: Sequence[Pod]) -> None:
        """Count all pods of *cluster*; *movable* are those that may be placed."""
        companies = {id(pod.company): pod.company for pod in cluster.pods}
        limits = [cluster.attach_limits.get(node.name, _NO_DRIVER) for node in nodes]
        book = _Book(nodes, companies.values(), Attachments(limits))
        groups = [book.group(pod) for pod in movable]
        book.write_rules()
        node_ids = {node.name: number for number, node in enumerate(nodes)}
        for pod in cluster.pods:
            if pod.node in node_ids:
                for tally in book.adds(book.group(pod)):
                    tally.add(node_ids[pod.node], 1)
        self._groups: dict[int, Group] = {}
        self._at: dict[int, int] = {}
        for number, (pod, group) in enumerate(zip(movable, groups, strict=True)):
            if book.adds(group) or group.rules:
                self._groups[number] = group
                if pod.node is not None:
                    self._at[number] = node_ids[pod.node]
        self._trial: list[tuple[Group, int, int]] = []

    def group(self, pod: int) -> Group | None:
        """Return the pod's group; None: it asks nothing here and is asked about by nobody."""
        return self._groups.get(pod)

    def involves(self, pods: Iterable[int]) -> bool:
        """Say whether any of the pods has a group."""
        return not self._groups.keys().isdisjoint(pods)

    def lift(self, pods: Iterable[int]) -> None:
        """Try without the pods where they stand."""
        for pod in pods:
            if pod in self._at:
                self._try(self._groups[pod], self._at[pod], -1)

    def put(self, pod: int, node: int) -> None:
        """Try with a lifted or pending pod on the node."""
        if pod in self._groups:
            self._try(self._groups[pod], node, 1)

    def undo(self) -> None:
        """Forget what was tried."""
        for group, node, by in reversed(self._trial):
            _count(group, node, -by)
        self._trial.clear()

    def move(self, placements: Iterable[tuple[int, int]], unplaced: Iterable[int]) -> None:
        """Let pods change their place; *unplaced* ones lose theirs."""
        for pod, node in placements:
            if pod in self._groups:
                self._leave(pod)
                self._at[pod] = node
                _count(self._groups[pod], node, 1)
        for pod in unplaced:
            self._leave(pod)

    def _leave(self, pod: int) -> None:
        if pod in self._at:
            _count(self._groups[pod], self._at.pop(pod), -1)

    def _try(self, group: Group, node: int, by: int) -> None:
        self._trial.append((group, node, by))
        _count(group, node, by)


def topology(cluster: Cluster, nodes: Sequence[Node], movable: Sequence[Pod]) -> Topology | None:
    """Return the Topology of a cluster; None where no pod asks anything of other pods."""
    asked = {id(pod.company): pod.company for pod in cluster.pods}
    if all(company == ALONE for company in asked.values()):
        return None
    return Topology(cluster, nodes, movable)


def _count(group: Group, node: int, by: int) -> None:
    for tally in group.adds or ():
        tally.add(node, by)


class _Book:
    """Who is asked about by whom: the tallies that there are, and the pods' groups.

    First `group` for all pods that may be placed, then `write_rules`, then the rest.
    """

    def __init__(
        self, nodes: Sequence[Node], companies: Iterable[Company], attachments: Attachments
    ) -> None:
        self._nodes, self._attachments = nodes, attachments
        self._domains: dict[object, Domains] = {}
        self._tallies: dict[object, Tally] = {}
        self._ports: dict[HostPort, Tally] = {}
        self._counted: Finder[tuple[Tally, bool]] = Finder()
        """Tallies by whom they count; True: terminating pods too."""
        self._repelled: Finder[PodAffinityTerm] = Finder()
        for term in dict.fromkeys(term for company in companies for term in company.apart):
            self._repelled.add((term.selector,), term)
        self._by_object: dict[object, Group] = {}
        self._by_value: dict[object, Group] = {}

    def group(self, pod: Pod) -> Group:
        """Return the group of the pod; most pods share their objects with others."""
        objects = (
            id(pod.labels), id(pod.company), id(pod.placing), pod.namespace, pod.terminating
        )  # fmt: skip
        found = self._by_object.get(objects)
        if found is None:
            placing = pod.placing if pod.company.spread else None
            labels = tuple(sorted(pod.labels.items()))
            value = (labels, pod.company, placing, pod.namespace, pod.terminating)
            found = self._by_object[objects] = self._by_value.setdefault(value, Group(pod))
        return found

    def write_rules(self) -> None:
        """Write the rules of all groups that there are, and open the tallies that they ask."""
        groups = list(self._by_value.values())
        spread = {group.like.placing for group in groups if group.like.company.spread}
        kinds = NodeKinds(self._nodes, spread)
        for group in groups:
            group.rules = tuple(self._rules(group.like, kinds))

    def adds(self, group: Group) -> tuple[Tally, ...]:
        """Return the tallies in which the group's pods count."""
        if group.adds is None:
            pod = group.like
            found = self._counted.matching(pod)
            adds = [tally for tally, always in found if always or not pod.terminating]
            held = (self._tallies.get(("holds", term)) for term in pod.company.apart)
            adds += [tally for tally in held if tally is not None]
            adds += [
                tally
                for port, tally in self._ports.items()
                if any(conflicts(port, own) for own in pod.company.host_ports)
            ]
            group.adds = (*adds, *self._attachments.adds(pod.company))
        return group.adds

    def _rules(self, pod: Pod, kinds: NodeKinds) -> list[Rule]:
        company = pod.company
        rules: list[Rule] = []
        for port in company.host_ports:
            tally = self._ports.setdefault(port, Tally(range(len(self._nodes))))
            rules.append(Clear(f"host port {port.port}/{port.protocol}", tally))
        rules += self._attachments.rules(company)
        rules += [
            Even(
                name=f"topology spread over {one.topology_key}",
                tally=self._spread(pod, one, kinds),
                own=int(selects(one.selector, pod)),
                max_skew=one.max_skew,
                min_domains=one.min_domains,
            )
            for one in company.spread
        ]
        if company.near:
            selectors = tuple(term.selector for term in company.near)
            keys = [term.topology_key for term in company.near]
            own = all(selects(selector, pod) for selector in selectors)
            tallies = tuple(self._selected(selectors, key) for key in keys)
            rules.append(Near(f"pod affinity on {', '.join(keys)}", tallies, own))
        rules += [
            Clear(
                f"pod anti-affinity on {term.topology_key}",
                self._selected((term.selector,), term.topology_key),
            )
            for term in company.apart
        ]
        for term in self._repelled.matching(pod):
            holders = self._tallies.get(("holds", term))
            if holders is None:
                holders = self._open(("holds", term), self._labelled(term.topology_key))
            rules.append(Clear(f"another pod's anti-affinity on {term.topology_key}", holders))
        return rules

    def _open(self, key: object, domains: Domains) -> Tally:
        tally = self._tallies[key] = Tally(domains)
        return tally

    def _selected(self, selectors: tuple[PodSelector, ...], topology_key: str) -> Tally:
        key = ("selected", selectors, topology_key)
        found = self._tallies.get(key)
        if found is None:
            found = self._open(key, self._labelled(topology_key))
            self._counted.add(selectors, (found, True))
        return found

    def _spread(self, pod: Pod, constraint: SpreadConstraint, kinds: NodeKinds) -> Tally:
        """Count the pods of a constraint on the nodes that the scheduler takes into account.

        Those are the nodes with the labels of all the pod's constraints that match the pod's own
        node selectors (honor_affinity) and whose taints it tolerates (honor_taints).
        """
        placing = Placing()
        rules: Rules = ()
        if constraint.honor_affinity:
            placing = replace(placing, node_selector=pod.placing.node_selector,
                              affinity=pod.placing.affinity)  # fmt: skip
            rules += LABEL_RULES
        if constraint.honor_taints:
            placing = replace(placing, tolerations=pod.placing.tolerations)
            rules += (TAINT_RULE,)
        labels = tuple(sorted({one.topology_key for one in pod.company.spread}))
        where = (constraint.topology_key, labels, placing, len(rules))
        domains = self._domains.get(where)
        if domains is None:
            allowed = set(kinds.allowing(placing, rules))
            domains = self._domains[where] = [
                node.labels[constraint.topology_key]
                if number in allowed and all(label in node.labels for label in labels)
                else None
                for number, node in enumerate(self._nodes)
            ]
        key = ("spread", constraint.selector, where)
        found = self._tallies.get(key)
        if found is None:
            found = self._open(key, domains)
            self._counted.add((constraint.selector,), (found, False))
        return found

    def _labelled(self, topology_key: str) -> Domains:
        found = self._domains.get(topology_key)
        if found is None:
            found = [node.labels.get(topology_key) for node in self._nodes]
            self._domains[topology_key] = found
        return found
