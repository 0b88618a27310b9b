"""Count pods by domain, and evaluate the rules that read these counts.

A domain is a value of a topology label. For host ports and attached volumes the domain is the
node, for ReadWriteOncePod claims the whole cluster. Source: the filters of kube-scheduler's
plugins NodePorts, VolumeRestrictions, NodeVolumeLimits, PodTopologySpread and InterPodAffinity.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import NamedTuple

from core.model.constraints import ANY_DRIVER, Disk, PodConstraints
from core.model.pod import Pod
from core.placement.bits import bits_of, set_bits

Domain = str | int
"""Value of a topology label, or the id of a node."""


class Domains:
    """The domain of each node in one topology, such as its zone.

    A set of nodes is an integer: bit n is set if it contains node n.
    """

    __slots__ = ("_shared", "any", "count", "of")

    def __init__(self, of: Sequence[Domain | None]) -> None:
        """Store *of*, the domain of each node by node id; None: the node is in no domain."""
        self.of = of
        places: dict[Domain, list[int]] = {}
        for node, domain in enumerate(of):
            if domain is not None:
                places.setdefault(domain, []).append(node)
        self.count = len(places)
        self.any = bits_of(len(of), (node for nodes in places.values() for node in nodes))
        """Nodes that are in some domain."""
        self._shared = {
            domain: bits_of(len(of), nodes) for domain, nodes in places.items() if len(nodes) > 1
        }

    @property
    def by_node(self) -> bool:
        """Report whether no domain has more than one node."""
        return not self._shared

    def beside(self, node: int) -> int:
        """Return all nodes in the domain of the node, as a bit set.

        The node is included. Without a domain, it is the only one.
        """
        domain = self.of[node]
        nodes = self._shared.get(domain) if domain is not None else None
        return 1 << node if nodes is None else nodes


class DomainCount:
    """The number of pods of one kind in each domain, such as a zone.

    Example: the pods that the selector of a pod affinity matches.
    """

    __slots__ = ("counts", "domains", "occupied")

    def __init__(self, domains: Domains) -> None:
        self.domains = domains
        self.counts: dict[Domain | None, int] = {}
        """Counts by domain, without zeros."""
        self.occupied = 0
        """Nodes whose domain has at least one counted pod, as a bit set."""

    def add(self, node: int, by: int) -> None:
        """Add *by* (may be negative) to the count of the node's domain.

        A node without a domain changes nothing.
        """
        domain = self.domains.of[node]
        if domain is not None:
            before = self.counts.get(domain, 0)
            count = before + by
            if count:
                self.counts[domain] = count
            else:
                del self.counts[domain]
            if not before or not count:
                self.occupied ^= self.domains.beside(node)

    def matters_elsewhere(self, node: int) -> bool:
        """Report whether a rule may answer otherwise for another node without a pod on *node*."""
        domain = self.domains.of[node]
        # If the last counted pod goes, the first pod of a group with affinity to itself may run
        # anywhere.
        return domain is not None and (
            self.domains.beside(node) != 1 << node or self.counts == {domain: 1}
        )


class SpreadCount(DomainCount):
    """The number of pods in each domain for a topology spread constraint.

    It also groups the domains by their count, to find the smallest count quickly.
    """

    __slots__ = ("_having",)

    def __init__(self, domains: Domains) -> None:
        super().__init__(domains)
        self._having = {0: domains.any} if domains.any else {}
        """Nodes whose domain has a count, as a bit set by count."""

    def add(self, node: int, by: int) -> None:
        """Add *by* (may be negative) to the count of the node's domain.

        A node without a domain changes nothing.
        """
        domain = self.domains.of[node]
        if domain is not None:
            before = self.counts.get(domain, 0)
            super().add(node, by)
            nodes, having = self.domains.beside(node), self._having
            having[before] ^= nodes
            if not having[before]:
                del having[before]
            having[before + by] = having.get(before + by, 0) | nodes

    def matters_elsewhere(self, node: int) -> bool:
        """Report whether a rule may answer otherwise for another node without a pod on *node*."""
        if super().matters_elsewhere(node):
            return True
        domain = self.domains.of[node]
        return domain is not None and self.counts[domain] <= min(self._having)

    def least(self, min_domains: int) -> int:
        """Return the smallest number of pods in a domain.

        Return 0 if there are fewer than *min_domains* domains, as in the Kubernetes API.
        """
        if self.domains.count < min_domains:
            return 0
        return min(self._having, default=0)

    def having(self, most: int) -> int:
        """Return the nodes in whose domain at most *most* pods are counted, as a bit set."""
        nodes_having = 0
        for count, nodes in self._having.items():
            if count <= most:
                nodes_having |= nodes
        return nodes_having


class Attached(DomainCount):
    """The number of pods on each node that use one volume.

    However many pods use it, the volume counts once per node for the limit of its CSI driver.
    """

    __slots__ = ("_of_driver", "attached")

    def __init__(self, of_driver: DomainCount, attached: int) -> None:
        """Start without pods; *of_driver*: number of attached volumes of the CSI driver by node.

        *attached*: bit set of the nodes that have a VolumeAttachment of the volume, which
        *of_driver* includes already.
        """
        super().__init__(of_driver.domains)
        self._of_driver, self.attached = of_driver, attached

    def add(self, node: int, by: int) -> None:
        """Add *by* (may be negative) to the number of pods on the node that use the volume.

        The first pod on a node attaches the volume, the last one detaches it.
        """
        before = self.occupied
        super().add(node, by)
        if before != self.occupied and not self.attached >> node & 1:
            self._of_driver.add(node, 1 if self.occupied > before else -1)


class AntiAffinityRule(NamedTuple):
    """A rule that refuses a node if a counted pod is in the domain of the node.

    It is used for host ports, ReadWriteOncePod claims, and the anti-affinity of both pods.
    """

    name: str
    tally: DomainCount

    @property
    def monotone(self) -> bool:
        """Report whether a refused node stays refused, however many pods are placed."""
        return True

    def refusing(self, nodes: int) -> int:
        """Return the nodes among *nodes* that the rule refuses; both are bit sets.

        A node without a domain is not refused.
        """
        return nodes & self.tally.occupied


class AffinityRule(NamedTuple):
    """A rule that refuses a node if its domain has no counted pod for a term of a pod affinity."""

    name: str
    tallies: tuple[DomainCount, ...]
    own: bool
    """True if the pod's own affinity selects the pod."""

    @property
    def monotone(self) -> bool:
        """Report whether a refused node stays refused, however many pods are placed."""
        return False

    def refusing(self, nodes: int) -> int:
        """Return the nodes among *nodes* that the rule refuses; both are bit sets."""
        # The first pod of a group with affinity to itself may run on any node with the labels.
        first = self.own and not any(tally.occupied for tally in self.tallies)
        admitted = nodes
        for tally in self.tallies:
            admitted &= tally.domains.any if first else tally.occupied
        return nodes ^ admitted


class TopologySpreadRule(NamedTuple):
    """A rule that refuses a node if its domain would have too many pods with the new pod.

    Too many means more than the smallest count of a domain plus `max_skew`.
    """

    name: str
    tally: SpreadCount
    own: int
    """1 if the constraint selects the pod itself, else 0."""
    max_skew: int
    min_domains: int

    @property
    def monotone(self) -> bool:
        """Report whether a refused node stays refused, however many pods are placed."""
        return False

    def refusing(self, nodes: int) -> int:
        """Return the nodes among *nodes* that the rule refuses; both are bit sets.

        Nodes without the topology label are refused.
        """
        most = self.tally.least(self.min_domains) + self.max_skew - self.own
        return nodes & ~self.tally.having(most)


class VolumeLimitRule(NamedTuple):
    """A rule that refuses a node if the pod's volumes would exceed an attach limit.

    The limit is that of the node for one CSI driver.
    """

    name: str
    attached: DomainCount
    """Attached volumes of the driver by node."""
    own: tuple[Attached, ...]
    """Volumes of the driver that the pod uses."""
    limits: Sequence[int | None]
    """Limit by node id, or None if there is no limit."""

    @property
    def monotone(self) -> bool:
        """Report whether a refused node stays refused, however many pods are placed.

        A VolumeAttachment without a pod counts beside the new pod's use of the same volume; once
        another pod uses the volume, it counts once.
        """
        return not any(volume.attached for volume in self.own)

    def refusing(self, nodes: int) -> int:
        """Return the nodes among *nodes* that the rule refuses; both are bit sets."""
        places = (node for node in set_bits(nodes) if not self._admits(node))
        return bits_of(len(self.limits), places)

    def _admits(self, node: int) -> bool:
        limit = self.limits[node]
        if limit is None:
            return True
        domain = self.attached.domains.of[node]
        # As in kube-scheduler, a node over its limit admits a pod whose volumes are all attached.
        more = sum(domain not in volume.counts for volume in self.own)
        return not more or self.attached.counts.get(domain, 0) + more <= limit


Rule = AntiAffinityRule | AffinityRule | TopologySpreadRule | VolumeLimitRule
"""A condition of a pod on the counts in a node's domain; *name* is used in messages."""


class Attachments:
    """Counts of attached volumes by node, and of the pods that use a ReadWriteOncePod claim.

    Call `rules` for all pods that may be placed, then `adds` for all existing pods.
    """

    def __init__(
        self,
        limits: Sequence[Mapping[str, int | None]],
        attached: Sequence[Collection[Disk]],
    ) -> None:
        """Store *limits*, the attach limit by node id and CSI driver, and *attached*.

        A limit of None means no limit; a driver without an entry can attach nothing. *attached*:
        by node id, the volumes that have a VolumeAttachment.
        """
        self._limits, self._attachments = limits, attached
        self._sole: dict[str, DomainCount] = {}
        self._drivers: dict[str, tuple[DomainCount, Sequence[int | None]]] = {}
        """Attached volumes and limits by node, for each driver that a pod uses."""
        self._attached: dict[Disk, Attached] = {}

    @cached_property
    def _cluster(self) -> Domains:
        return Domains(("",) * len(self._limits))

    @cached_property
    def _each_node(self) -> Domains:
        return Domains(range(len(self._limits)))

    def rules(self, pod_constraints: PodConstraints) -> Iterator[Rule]:
        """Yield the rules for the volumes and ReadWriteOncePod claims of a pod.

        The counts that the rules read are created.
        """
        for claim in pod_constraints.sole:
            tally = self._sole.setdefault(claim, DomainCount(self._cluster))
            yield AntiAffinityRule(f"ReadWriteOncePod claim {claim}", tally)
        for driver, disks in groupby(pod_constraints.disks, key=lambda disk: disk.driver):
            if driver not in self._drivers:
                limits = [of_node.get(driver, 0) for of_node in self._limits]
                self._drivers[driver] = self._counted(driver), limits
            attached, limits_by_node = self._drivers[driver]
            own = tuple(map(self._tally, disks))
            yield VolumeLimitRule(f"attach limit of {driver}", attached, own, limits_by_node)

    def adds(self, pod_constraints: PodConstraints) -> Iterator[DomainCount]:
        """Yield the counts that change when a pod with these constraints is placed or removed.

        A volume whose CSI driver is unknown counts for every driver.
        """
        for claim in pod_constraints.sole:
            if claim in self._sole:
                yield self._sole[claim]
        for disk in pod_constraints.disks:
            drivers = self._drivers if disk.driver == ANY_DRIVER else (disk.driver,)
            for driver in drivers:
                if driver in self._drivers:
                    yield self._tally(Disk(driver, disk.handle))

    def _counted(self, driver: str) -> DomainCount:
        # As in kube-scheduler, a volume that is attached counts until its VolumeAttachment is
        # gone, even if no pod uses it any more.
        tally = DomainCount(self._each_node)
        for disk, nodes in self._attached_nodes.items():
            if disk.driver == driver:
                for node in set_bits(nodes):
                    tally.add(node, 1)
        return tally

    @cached_property
    def _attached_nodes(self) -> Mapping[Disk, int]:
        """Return the nodes with a VolumeAttachment of each volume, as a bit set."""
        nodes_of: dict[Disk, int] = {}
        for node, disks in enumerate(self._attachments):
            for disk in disks:
                nodes_of[disk] = nodes_of.get(disk, 0) | 1 << node
        return nodes_of

    def _tally(self, disk: Disk) -> Attached:
        if disk not in self._attached:
            of_driver = self._drivers[disk.driver][0]
            self._attached[disk] = Attached(of_driver, self._attached_nodes.get(disk, 0))
        return self._attached[disk]


@dataclass(slots=True, eq=False)
class Group:
    """Pods that all inter-pod rules, such as pod affinity, treat alike; and their rules."""

    like: Pod
    """One of the pods."""
    rules: tuple[Rule, ...] = ()
    """Rules in the order of kube-scheduler's default profile."""
    adds: tuple[DomainCount, ...] | None = None
    """Counts that change when a pod of the group is placed or removed; None: not computed yet."""
    by_node: bool = True
    """True if each rule refuses a node only because of the pods on this node."""

    @property
    def monotone(self) -> bool:
        """Report whether a refused node stays refused, however many pods are placed."""
        return all(rule.monotone for rule in self.rules)

    def admitted(self, nodes: int) -> int:
        """Return the nodes among *nodes* that no rule refuses; both are bit sets.

        Limits on attached volumes are not checked here; see `takes`.
        """
        for rule in self.rules:
            if not nodes:
                break
            if not isinstance(rule, VolumeLimitRule):
                nodes ^= rule.refusing(nodes)
        return nodes

    def takes(self, node: int) -> bool:
        """Report whether the node's limits on attached volumes admit a pod of the group.

        All other rules are not checked: *node* must come from `admitted`.
        """
        return not any(
            rule.refusing(1 << node) for rule in self.rules if isinstance(rule, VolumeLimitRule)
        )

    def refuses(self, node: int) -> bool:
        """Report whether at least one rule refuses the node for a pod of the group."""
        return any(rule.refusing(1 << node) for rule in self.rules)

    def finds_pods(self, node: int) -> bool:
        """Report whether the node satisfies the required pod affinity of the group."""
        return not any(
            rule.refusing(1 << node) for rule in self.rules if isinstance(rule, AffinityRule)
        )
