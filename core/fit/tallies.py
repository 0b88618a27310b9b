"""Counts of pods by domain, and the rules that one pod asks of them.

A domain is a value of a topology label; for host ports and attached volumes it is the node
itself, for claims that one pod alone may use it is the cluster.
Source: kube-scheduler plugins NodePorts, VolumeRestrictions, NodeVolumeLimits, PodTopologySpread
and InterPodAffinity, their filters.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import NamedTuple

from core.fit.bits import bits_of, set_bits
from core.model.constraints import ANY_DRIVER, Disk, PodConstraints
from core.model.pod import Pod

Domain = str | int


class Domains:
    """Which nodes are in one domain of a topology; sets of nodes are those of core.fit.bits."""

    __slots__ = ("_shared", "any", "count", "of")

    def __init__(self, of: Sequence[Domain | None]) -> None:
        """Take the domain of each node by its id; None: it is in none of this topology."""
        self.of = of
        places: dict[Domain, list[int]] = {}
        for node, domain in enumerate(of):
            if domain is not None:
                places.setdefault(domain, []).append(node)
        self.count = len(places)
        self.any = bits_of(len(of), (node for nodes in places.values() for node in nodes))
        """The nodes that are in some domain."""
        self._shared = {
            domain: bits_of(len(of), nodes) for domain, nodes in places.items() if len(nodes) > 1
        }

    @property
    def by_node(self) -> bool:
        """Say whether no two nodes are in one domain."""
        return not self._shared

    def beside(self, node: int) -> int:
        """Return the nodes in the domain of a node that is in one."""
        domain = self.of[node]
        found = self._shared.get(domain) if domain is not None else None
        return 1 << node if found is None else found


class DomainCount:
    """How many pods of one description stand in each domain."""

    __slots__ = ("counts", "domains", "there")

    def __init__(self, domains: Domains) -> None:
        self.domains = domains
        self.counts: dict[Domain | None, int] = {}
        """Of the domains that have any."""
        self.there = 0
        """The nodes of these domains."""

    def add(self, node: int, by: int) -> None:
        """Count *by* more pods on the node; one that is in no domain has nothing to count."""
        domain = self.domains.of[node]
        if domain is not None:
            before = self.counts.get(domain, 0)
            count = before + by
            if count:
                self.counts[domain] = count
            else:
                del self.counts[domain]
            if not before or not count:
                self.there ^= self.domains.beside(node)


class Spread(DomainCount):
    """The pods that are to be spread, and which domains have how many of them."""

    __slots__ = ("_having",)

    def __init__(self, domains: Domains) -> None:
        super().__init__(domains)
        self._having = {0: domains.any} if domains.any else {}
        """By count: the nodes of the domains that have so many."""

    def add(self, node: int, by: int) -> None:
        """Count *by* more pods on the node; one that is in no domain has nothing to count."""
        domain = self.domains.of[node]
        if domain is not None:
            before = self.counts.get(domain, 0)
            super().add(node, by)
            nodes, having = self.domains.beside(node), self._having
            having[before] ^= nodes
            if not having[before]:
                del having[before]
            having[before + by] = having.get(before + by, 0) | nodes

    def least(self, min_domains: int) -> int:
        """Return the smallest count of any domain; 0 if there are fewer than *min_domains*."""
        if self.domains.count < min_domains:
            return 0
        return min(self._having, default=0)

    def having(self, most: int) -> int:
        """Return the nodes of the domains that have so many at most."""
        found = 0
        for count, nodes in self._having.items():
            if count <= most:
                found |= nodes
        return found


class Attached(DomainCount):
    """The pods that use one volume, by node; it counts once a node in its driver's tally."""

    __slots__ = ("_of_driver",)

    def __init__(self, of_driver: DomainCount) -> None:
        super().__init__(of_driver.domains)
        self._of_driver = of_driver

    def add(self, node: int, by: int) -> None:
        """Count *by* more pods on the node; the first attaches the volume, the last detaches."""
        before = self.there
        super().add(node, by)
        if before != self.there:
            self._of_driver.add(node, 1 if self.there > before else -1)


class AntiAffinity(NamedTuple):
    """None of the counted may be where the node is: ports, claims, anti-affinity of both sides."""

    name: str
    tally: DomainCount

    def refusing(self, nodes: int) -> int:
        """Return those of the nodes that it refuses; none outside of the topology."""
        return nodes & self.tally.there


class Affinity(NamedTuple):
    """One of the counted must be where the node is, for every term of the pod's affinity."""

    name: str
    tallies: tuple[DomainCount, ...]
    own: bool
    """The pod itself is such a pod."""

    def refusing(self, nodes: int) -> int:
        """Return those of the nodes that it refuses.

        The first pod of a group that is its own company may go wherever the labels exist.
        """
        first = self.own and not any(tally.there for tally in self.tallies)
        admitted = nodes
        for tally in self.tallies:
            admitted &= tally.domains.any if first else tally.there
        return nodes ^ admitted


class TopologySpread(NamedTuple):
    """The counted may not become more by `max_skew` than in the emptiest domain."""

    name: str
    tally: Spread
    own: int
    """1 if the pod itself is counted."""
    max_skew: int
    min_domains: int

    def refusing(self, nodes: int) -> int:
        """Return those of the nodes that it refuses, all without the label among them."""
        most = self.tally.least(self.min_domains) + self.max_skew - self.own
        return nodes & ~self.tally.having(most)


class VolumeLimit(NamedTuple):
    """The node may not take more different volumes of one driver than its limit."""

    name: str
    attached: DomainCount
    """Volumes of the driver by node."""
    own: tuple[Attached, ...]
    """The pod's volumes of the driver."""
    limits: Sequence[int | None]
    """By node id; None: it takes any number."""

    def refusing(self, nodes: int) -> int:
        """Return those of the nodes that it refuses: each is asked."""
        places = (node for node in set_bits(nodes) if not self._admits(node))
        return bits_of(len(self.limits), places)

    def _admits(self, node: int) -> bool:
        """Admit wherever the volumes are attached already, as the scheduler does."""
        limit = self.limits[node]
        if limit is None:
            return True
        domain = self.attached.domains.of[node]
        more = sum(domain not in volume.counts for volume in self.own)
        return not more or self.attached.counts.get(domain, 0) + more <= limit


Rule = AntiAffinity | Affinity | TopologySpread | VolumeLimit
"""What one pod asks of the counts at a node; *name* is what a person reads when it refuses."""


class Attachments:
    """The tallies of attached volumes, and of claims that one pod alone may use.

    First `rules` for all pods that may be placed, then `adds` for all that stand.
    """

    def __init__(self, limits: Sequence[Mapping[str, int | None]]) -> None:
        """Take by node id and driver how many volumes a node takes."""
        self._limits = limits
        self._sole: dict[str, DomainCount] = {}
        self._drivers: dict[str, tuple[DomainCount, Sequence[int | None]]] = {}
        """Of each driver that is asked for: its volumes and its limits, by node."""
        self._attached: dict[Disk, Attached] = {}

    @cached_property
    def _cluster(self) -> Domains:
        return Domains(("",) * len(self._limits))

    @cached_property
    def _each_node(self) -> Domains:
        return Domains(range(len(self._limits)))

    def rules(self, company: PodConstraints) -> Iterator[Rule]:
        """Yield what a pod asks, and open the tallies for it."""
        for claim in company.sole:
            tally = self._sole.setdefault(claim, DomainCount(self._cluster))
            yield AntiAffinity(f"ReadWriteOncePod claim {claim}", tally)
        for driver, disks in groupby(company.disks, key=lambda disk: disk.driver):
            if driver not in self._drivers:
                limits = [of_node.get(driver, 0) for of_node in self._limits]
                self._drivers[driver] = DomainCount(self._each_node), limits
            attached, limits_by_node = self._drivers[driver]
            own = tuple(map(self._tally, disks))
            yield VolumeLimit(f"attach limit of {driver}", attached, own, limits_by_node)

    def adds(self, company: PodConstraints) -> Iterator[DomainCount]:
        """Yield the tallies in which such a pod counts; one of no known driver counts in all."""
        for claim in company.sole:
            if claim in self._sole:
                yield self._sole[claim]
        for disk in company.disks:
            drivers = self._drivers if disk.driver == ANY_DRIVER else (disk.driver,)
            for driver in drivers:
                if driver in self._drivers:
                    yield self._tally(Disk(driver, disk.handle))

    def _tally(self, disk: Disk) -> Attached:
        return self._attached.setdefault(disk, Attached(self._drivers[disk.driver][0]))


@dataclass(slots=True, eq=False)
class Group:
    """Pods that no rule here can tell apart."""

    like: Pod
    """One of them."""
    rules: tuple[Rule, ...] = ()
    """In the order in which kube-scheduler's default profile asks."""
    adds: tuple[DomainCount, ...] | None = None
    """The tallies in which each of them counts; None: not looked up yet."""
    by_node: bool = True
    """Each rule refuses nodes for what stands on them alone."""

    @property
    def monotone(self) -> bool:
        """Say whether more pods never make a rule admit a node that it has refused."""
        return all(isinstance(rule, AntiAffinity | VolumeLimit) for rule in self.rules)

    def admitted(self, nodes: int) -> int:
        """Return those of the nodes that no rule refuses, but for attach limits: see `takes`."""
        for rule in self.rules:
            if not nodes:
                break
            if not isinstance(rule, VolumeLimit):
                nodes ^= rule.refusing(nodes)
        return nodes

    def takes(self, node: int) -> bool:
        """Say whether the node that is `admitted` takes the pod's volumes too."""
        return not any(
            rule.refusing(1 << node) for rule in self.rules if isinstance(rule, VolumeLimit)
        )

    def refuses(self, node: int) -> bool:
        """Say whether a rule refuses the node."""
        return any(rule.refusing(1 << node) for rule in self.rules)

    def finds_company(self, node: int) -> bool:
        """Say whether those are there that the pods must be near."""
        return not any(
            rule.refusing(1 << node) for rule in self.rules if isinstance(rule, Affinity)
        )
