"""Counts of pods by domain, and the rules that one pod asks of them.

A domain is a value of a topology label; for host ports and attached volumes it is the node
itself, for claims that one pod alone may use it is the cluster.
Source: kube-scheduler plugins NodePorts, VolumeRestrictions, NodeVolumeLimits, PodTopologySpread
and InterPodAffinity, their filters.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from core.model.constraints import ANY_DRIVER, Company, Disk
from core.model.pod import Pod

Domain = str | int
Domains = Sequence[Domain | None]
"""By node id; None: the node is in no domain of this topology."""


class Tally:
    """How many pods of one description stand in each domain."""

    __slots__ = ("counts", "domains")

    def __init__(self, domains: Domains) -> None:
        self.domains = domains
        self.counts: dict[Domain | None, int] = {}
        """Of the domains that have any."""

    def add(self, node: int, by: int) -> None:
        """Count *by* more pods on the node; one that is in no domain has nothing to count."""
        domain = self.domains[node]
        if domain is not None:
            count = self.counts.get(domain, 0) + by
            if count:
                self.counts[domain] = count
            else:
                del self.counts[domain]


class Spread(Tally):
    """The pods that are to be spread, and how many domains have how many of them."""

    __slots__ = ("_having", "_least", "_size")

    def __init__(self, domains: Domains) -> None:
        super().__init__(domains)
        self._size = len(set(domains) - {None})
        self._having = Counter({0: self._size})
        """By count: the domains that have so many."""
        self._least: int | None = None

    def add(self, node: int, by: int) -> None:
        """Count *by* more pods on the node; one that is in no domain has nothing to count."""
        domain = self.domains[node]
        if domain is not None:
            before = self.counts.get(domain, 0)
            super().add(node, by)
            self._having[before] -= 1
            if not self._having[before]:
                del self._having[before]
            self._having[before + by] += 1
            self._least = None

    def least(self, min_domains: int) -> int:
        """Return the smallest count of any domain; 0 if there are fewer than *min_domains*."""
        if self._size < min_domains:
            return 0
        if self._least is None:
            self._least = min(self._having, default=0)
        return self._least

    def having(self, most: int) -> int:
        """Return how many domains have so many at most."""
        return sum(domains for count, domains in self._having.items() if count <= most)


class Attached(Tally):
    """The pods that use one volume, by node; it counts once a node in its driver's tally."""

    __slots__ = ("_of_driver",)

    def __init__(self, of_driver: Tally) -> None:
        super().__init__(of_driver.domains)
        self._of_driver = of_driver

    def add(self, node: int, by: int) -> None:
        """Count *by* more pods on the node; the first attaches the volume, the last detaches."""
        before = self.domains[node] in self.counts
        super().add(node, by)
        after = self.domains[node] in self.counts
        if before != after:
            self._of_driver.add(node, 1 if after else -1)


class Clear(NamedTuple):
    """None of the counted may be where the node is: ports, claims, anti-affinity of both sides."""

    name: str
    tally: Tally

    def admits(self, node: int) -> bool:
        """Admit nodes outside of the topology too, as the scheduler does."""
        return self.tally.domains[node] not in self.tally.counts


class Near(NamedTuple):
    """One of the counted must be where the node is, for every term of the pod's affinity."""

    name: str
    tallies: tuple[Tally, ...]
    own: bool
    """The pod itself is such a pod."""

    def admits(self, node: int) -> bool:
        """Admit the first pod of a group that is its own company wherever the labels exist."""
        met = True
        for tally in self.tallies:
            domain = tally.domains[node]
            if domain is None:
                return False
            met = met and domain in tally.counts
        return met or (self.own and not any(tally.counts for tally in self.tallies))


class Even(NamedTuple):
    """The counted may not become more by `max_skew` than in the emptiest domain."""

    name: str
    tally: Spread
    own: int
    """1 if the pod itself is counted."""
    max_skew: int
    min_domains: int
    by_node: bool
    """No two nodes are in one domain."""

    @property
    def most(self) -> int:
        """Return how many may be counted where one more may come."""
        return self.tally.least(self.min_domains) + self.max_skew - self.own

    def admits(self, node: int) -> bool:
        """Refuse nodes without the label, as the scheduler does."""
        domain = self.tally.domains[node]
        return domain is not None and self.tally.counts.get(domain, 0) <= self.most

    def admits_only(self, away: Collection[int]) -> bool:
        """Say whether it refuses all nodes but these, as far as that is known without asking each.

        What was spread over all nodes can come back to none but the one that it leaves.
        """
        admitted = self.tally.having(self.most) if self.by_node else len(away) + 1
        return admitted <= len(away) and admitted <= sum(map(self.admits, away))


class Within(NamedTuple):
    """The node may not take more different volumes of one driver than its limit."""

    name: str
    attached: Tally
    """Volumes of the driver by node."""
    own: tuple[Attached, ...]
    """The pod's volumes of the driver."""
    limits: Sequence[int | None]
    """By node id; None: it takes any number."""

    def admits(self, node: int) -> bool:
        """Admit wherever the volumes are attached already, as the scheduler does."""
        limit = self.limits[node]
        if limit is None:
            return True
        domain = self.attached.domains[node]
        more = sum(domain not in volume.counts for volume in self.own)
        return not more or self.attached.counts.get(domain, 0) + more <= limit


Rule = Clear | Near | Even | Within
"""What one pod asks of the counts at a node; *name* is what a person reads when it refuses."""


class Attachments:
    """The tallies of attached volumes, and of claims that one pod alone may use.

    First `rules` for all pods that may be placed, then `adds` for all that stand.
    """

    def __init__(self, limits: Sequence[Mapping[str, int | None]]) -> None:
        """Take by node id and driver how many volumes a node takes."""
        self._limits = limits
        self._cluster: Domains = ("",) * len(limits)
        self._sole: dict[str, Tally] = {}
        self._drivers: dict[str, tuple[Tally, Sequence[int | None]]] = {}
        """Of each driver that is asked for: its volumes and its limits, by node."""
        self._attached: dict[Disk, Attached] = {}

    def rules(self, company: Company) -> Iterator[Rule]:
        """Yield what a pod asks, and open the tallies for it."""
        for claim in company.sole:
            tally = self._sole.setdefault(claim, Tally(self._cluster))
            yield Clear(f"ReadWriteOncePod claim {claim}", tally)
        for driver, disks in groupby(company.disks, key=lambda disk: disk.driver):
            if driver not in self._drivers:
                limits = [of_node.get(driver, 0) for of_node in self._limits]
                self._drivers[driver] = Tally(range(len(limits))), limits
            attached, limits_by_node = self._drivers[driver]
            own = tuple(map(self._tally, disks))
            yield Within(f"attach limit of {driver}", attached, own, limits_by_node)

    def adds(self, company: Company) -> Iterator[Tally]:
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
    adds: tuple[Tally, ...] | None = None
    """The tallies in which each of them counts; None: not looked up yet."""
    lasting: tuple[Rule, ...] = ()
    """Those of the rules that refuse a node for as long as the pods stay that stand there."""

    @property
    def monotone(self) -> bool:
        """Say whether more pods never make a rule admit a node that it has refused."""
        return all(isinstance(rule, Clear | Within) for rule in self.rules)

    @property
    def by_node(self) -> bool:
        """Say whether each rule refuses nodes for what stands on them alone."""
        return len(self.lasting) == len(self.rules)

    def refusal_for_good(self, node: int) -> str | None:
        """Return the name of the first rule that refuses the node while its pods stay, or None."""
        return next((rule.name for rule in self.lasting if not rule.admits(node)), None)

    def refusal_but_for(self, away: Collection[int]) -> str | None:
        """Return the name of the first rule if it is known to refuse all nodes but these."""
        first = self.rules[0] if self.rules else None
        shut = isinstance(first, Even) and first.admits_only(away)
        return first.name if first is not None and shut else None

    def finds_company(self, node: int) -> bool:
        """Say whether those are there that the pods must be near."""
        return all(rule.admits(node) for rule in self.rules if isinstance(rule, Near))

    def refusal(self, node: int) -> str | None:
        """Return the name of the first rule that refuses the node, or None."""
        return next((rule.name for rule in self.rules if not rule.admits(node)), None)
