"""The words: what a cluster is made of, frozen.

Units: CPU in millicores, memory and storage in bytes, times in whole seconds. Every sequence that
holds things with names is sorted by name, so that the order of arrival cannot matter.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise

from core.errors import InvalidInputError
from core.wants import (
    ALONE,
    ANY_IP,
    ANYWHERE,
    NO_POD,
    UNTIED,
    Company,
    Disk,
    HostPort,
    Placing,
    PodAffinityTerm,
    PodSelector,
    Requirement,
    SelectorTerm,
    SpreadConstraint,
    Ties,
    Toleration,
    VolumeReach,
)

__all__ = [
    "ALONE",
    "ANYWHERE",
    "ANY_IP",
    "Cluster",
    "Company",
    "Disk",
    "DisruptionBudget",
    "Effect",
    "HostPort",
    "Node",
    "Placing",
    "Pod",
    "PodAffinityTerm",
    "PodSelector",
    "Requirement",
    "Resources",
    "SelectorTerm",
    "SpreadConstraint",
    "Taint",
    "Ties",
    "Toleration",
    "VolumeReach",
]


@dataclass(frozen=True, slots=True)
class Resources:
    """An amount of what pods ask for and nodes offer; whole numbers."""

    cpu_millis: int = 0
    memory_bytes: int = 0
    ephemeral_bytes: int = 0
    pods: int = 0
    extended: tuple[tuple[str, int], ...] = ()
    """Extended resources (nvidia.com/gpu, hugepages-2Mi): (name, whole units), sorted by name."""

    def __add__(self, other: "Resources") -> "Resources":
        return self._combine(other, 1)

    def __sub__(self, other: "Resources") -> "Resources":
        return self._combine(other, -1)

    def fits_in(self, free: "Resources") -> bool:
        """Say whether there is room, as kube-scheduler's filter compares: 0 always fits."""
        have = dict(free.extended) if self.extended else {}
        return (
            self.pods <= free.pods
            and (not self.cpu_millis or self.cpu_millis <= free.cpu_millis)
            and (not self.memory_bytes or self.memory_bytes <= free.memory_bytes)
            and (not self.ephemeral_bytes or self.ephemeral_bytes <= free.ephemeral_bytes)
            and all(amount <= have.get(name, 0) for name, amount in self.extended)
        )

    @staticmethod
    def total(amounts: Iterable["Resources"]) -> "Resources":
        """Add up many amounts at once; `a + b + ...` would make an object for every step."""
        cpu = memory = ephemeral = pods = 0
        extended: dict[str, int] = {}
        for amount in amounts:
            cpu += amount.cpu_millis
            memory += amount.memory_bytes
            ephemeral += amount.ephemeral_bytes
            pods += amount.pods
            for name, units in amount.extended:
                extended[name] = extended.get(name, 0) + units
        return Resources(cpu, memory, ephemeral, pods, tuple(sorted(extended.items())))

    def _combine(self, other: "Resources", sign: int) -> "Resources":
        if other.extended:
            amounts = dict(self.extended)
            for name, amount in other.extended:
                amounts[name] = amounts.get(name, 0) + sign * amount
            extended = tuple(sorted((name, amount) for name, amount in amounts.items() if amount))
        else:
            extended = self.extended
        return Resources(
            self.cpu_millis + sign * other.cpu_millis,
            self.memory_bytes + sign * other.memory_bytes,
            self.ephemeral_bytes + sign * other.ephemeral_bytes,
            self.pods + sign * other.pods,
            extended,
        )


class Effect(StrEnum):
    """What a taint does to pods that do not tolerate it."""

    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


@dataclass(frozen=True, slots=True)
class Taint:
    """A node's taint; an unknown effect is kept as it was written and never tolerated away."""

    key: str
    value: str
    effect: str
    time_added: str = ""
    """As it was written; it must not get lost when the list is written back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod that holds, or asks for, room on a node. Finished pods are never in a Cluster."""

    namespace: str
    name: str
    uid: str = ""
    node: str | None = None
    """The node it is bound to; None: pending."""
    requests: Resources = Resources(pods=1)
    """As kube-scheduler counts them (core.requests); `pods` is 1."""
    placing: Placing = ANYWHERE
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    owner_kind: str = ""
    """Kind of the controlling owner (ReplicaSet, DaemonSet, Job, ...); empty: a bare pod."""
    owner_name: str = ""
    priority: int = 0
    mirror: bool = False
    """A static pod's image in the API: it lives and goes with its node."""
    daemon: bool = False
    """Of a DaemonSet, or declared so to the autoscaler: goes with its node."""
    unsupported: tuple[str, ...] = ()
    """Constraints that the engine cannot evaluate, by field path: such a pod is not movable."""
    too_much: str = ""
    """What it asks more of than is evaluated for one pod: nothing of that is, and the pod is not
    movable; empty: nothing."""
    unreadable: str = ""
    """Why it could not be read: what stands here is all that is known of it, and neither it nor
    another pod can be placed beside it; empty: it could."""
    company: Company = ALONE
    """Of a pod that lives and goes with its node: only what others feel, `apart`, ports, disks."""
    ties: Ties = UNTIED
    unschedulable: bool = False
    """Pending, and the scheduler has said that no node takes it."""
    terminating: bool = False
    """It is being deleted: topology spread does not count it any more."""
    deletion_cost: str | None = None
    """What its ReplicaSet's scale-in goes by, as written; and what of it Ebb has written."""
    deletion_cost_ours: str | None = None

    @property
    def key(self) -> str:
        """Return namespace/name, unique in a cluster."""
        return f"{self.namespace}/{self.name}"

    @property
    def evaluable(self) -> bool:
        """Say whether all that it asks is known and can be judged; if not, it is not movable."""
        return not (self.unsupported or self.too_much or self.unreadable)

    @property
    def stays_with_node(self) -> bool:
        """Say whether the pod goes when its node goes, and needs no other place."""
        return self.daemon or self.mirror


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node as the scheduler and the engine see it."""

    name: str
    uid: str = ""
    version: str = field(default="", compare=False)
    """The resourceVersion: a write that goes by it fails if anything has changed; "": unknown."""
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    annotations: Mapping[str, str] = field(default_factory=dict, hash=False)
    taints: tuple[Taint, ...] = ()
    """In the order in which they stand on the node."""
    unschedulable: bool = False
    allocatable: Resources
    ready: bool = True
    unreadable: str = ""
    """Why it could not be read: what stands here is all that is known of it, so it stays and
    takes nothing; empty: it could."""
    deleting: bool = False
    """Its object has a deletionTimestamp, and a finalizer that still holds it."""
    virtual: bool = False
    """It stands for no machine (core.virtual): it never goes and takes nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DisruptionBudget:
    """A PodDisruptionBudget, as far as the engine reads it."""

    namespace: str
    name: str
    disruptions_allowed: int
    selector: PodSelector = NO_POD
    """The pods that it protects."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """All nodes and all unfinished pods at one moment; make it with Cluster.of."""

    nodes: tuple[Node, ...]
    pods: tuple[Pod, ...]
    budgets: tuple[DisruptionBudget, ...] = ()
    attach_limits: Mapping[str, Mapping[str, int | None]] = field(default_factory=dict, hash=False)
    """By node and CSI driver: how many volumes it takes, None: any number. A node without the
    driver takes none of its volumes."""

    @staticmethod
    def of(
        nodes: Iterable[Node], pods: Iterable[Pod], budgets: Iterable[DisruptionBudget] = ()
    ) -> "Cluster":
        """Sort by name and refuse doubles.

        Raises: InvalidInputError when two nodes or two pods have one name.
        """
        ordered_nodes = tuple(sorted(nodes, key=lambda node: node.name))
        ordered_pods = tuple(sorted(pods, key=lambda pod: (pod.namespace, pod.name)))
        for one, other in pairwise(ordered_nodes):
            if one.name == other.name:
                raise InvalidInputError(f"node {one.name}", "stands in the input twice")
        for first, second in pairwise(ordered_pods):
            if first.name == second.name and first.namespace == second.namespace:
                raise InvalidInputError(f"pod {first.key}", "stands in the input twice")
        ordered_budgets = tuple(sorted(budgets, key=lambda one: (one.namespace, one.name)))
        return Cluster(ordered_nodes, ordered_pods, ordered_budgets)

    def used(self) -> dict[str, Resources]:
        """Sum up the requests on every node, all resources."""
        on_node: dict[str, list[Resources]] = {node.name: [] for node in self.nodes}
        for pod in self.pods:
            if pod.node in on_node:
                on_node[pod.node].append(pod.requests)
        return {name: Resources.total(amounts) for name, amounts in on_node.items()}
