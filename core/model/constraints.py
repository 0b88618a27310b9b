"""What a pod asks of its node, of the pods around it and of its volumes; frozen.

Pods are compared and grouped by these values, so they hold tuples in canonical order only.
"""

from dataclasses import dataclass, replace
from typing import Final, NamedTuple

HOST_LABEL: Final = "kubernetes.io/hostname"
ANY_IP: Final = "0.0.0.0"  # noqa: S104 read, never bound
ANY_DRIVER: Final = ""
"""Of a volume that nobody knows: it may be any driver's."""
RESTARTS_ALL: Final = "RestartAllContainersOnContainerExits"
HOST_USERS: Final = "UserNamespacesHostNetworkSupport"
ASKED_FEATURES: Final = frozenset((RESTARTS_ALL, HOST_USERS))
"""What a kubelet may declare that a pod can ask for as it is scheduled. Source: InferForScheduling
in nodedeclaredfeatures/features of k8s.io/component-helpers 0.36."""


@dataclass(frozen=True, slots=True)
class Toleration:
    """A pod's toleration; empty key with Exists tolerates every key, empty effect every effect."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True)
class Requirement:
    """One expression of a node selector term: In, NotIn, Exists, DoesNotExist, Gt, Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SelectorTerm:
    """One term of required node affinity: all its requirements must hold; none at all: no node."""

    labels: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()
    """matchFields: the API knows the one field metadata.name."""


@dataclass(frozen=True, slots=True)
class VolumeTopology:
    """The nodes from which a volume can be reached."""

    affinity: tuple[SelectorTerm, ...] | None = None
    """Required node affinity of the PersistentVolume, as in Placing."""
    zones: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Its zone and region labels: (key, allowed values); a node without any such label is in."""


EVERYWHERE: Final = VolumeTopology()


@dataclass(frozen=True, slots=True)
class NodeConstraints:
    """What a pod asks of its node besides resources; equal for pods of one template."""

    node_selector: tuple[tuple[str, str], ...] = ()
    affinity: tuple[SelectorTerm, ...] | None = None
    """Required node affinity: any term suffices. None: none asked; empty: nothing matches."""
    tolerations: tuple[Toleration, ...] = ()
    volumes: tuple[VolumeTopology, ...] = ()
    """Of the volumes behind the pod's claims that not every node reaches (model.volumes)."""
    system: tuple[tuple[str, str], ...] = ()
    """Labels that a kubelet asks of its own node (spec.os), and kube-scheduler of none: where it
    counts the nodes of a topology spread, they do not matter."""
    features: tuple[str, ...] = ()
    """What the kubelet must be able to do (ASKED_FEATURES), by name."""

    @property
    def labels(self) -> tuple[tuple[str, str], ...]:
        """Return all that the pod's node must be labelled with."""
        return self.node_selector + self.system


def without_volumes(placing: NodeConstraints) -> NodeConstraints:
    """Return the template without its volumes."""
    return replace(placing, volumes=()) if placing.volumes else placing


def names_node(placing: NodeConstraints) -> bool:
    """Say whether the template asks for nodes by their names, as the pods of DaemonSets do."""
    terms = placing.affinity or ()
    asked = {key for key, _ in placing.node_selector}
    asked |= {one.key for term in terms for one in term.labels}
    return HOST_LABEL in asked or any(term.fields for term in terms)


NO_NODE_CONSTRAINTS: Final = NodeConstraints()


@dataclass(frozen=True, slots=True)
class PodSelector:
    """Pods by namespace and labels: all requirements must hold; none at all: every pod there."""

    namespaces: tuple[str, ...] | None
    """None: any namespace. Empty: no pod at all, as a missing label selector says."""
    requirements: tuple[Requirement, ...]


NO_POD: Final = PodSelector((), ())


@dataclass(frozen=True, slots=True)
class PodAffinityTerm:
    """A term of required pod affinity or anti-affinity: these pods, as near as this."""

    selector: PodSelector
    topology_key: str
    """Nodes with equal values of this label are one place."""


@dataclass(frozen=True, slots=True)
class SpreadConstraint:
    """A topology spread constraint that says DoNotSchedule."""

    selector: PodSelector
    topology_key: str
    max_skew: int
    min_domains: int = 1
    honor_affinity: bool = True
    """nodeAffinityPolicy: only nodes that the pod's own selectors match are counted."""
    honor_taints: bool = False
    """nodeTaintsPolicy: only nodes whose taints the pod tolerates are counted."""


class HostPort(NamedTuple):
    """A port of the host that a pod takes."""

    port: int
    protocol: str = "TCP"
    ip: str = ANY_IP


class ClaimUse(NamedTuple):
    """A PersistentVolumeClaim that a pod uses."""

    name: str
    ephemeral: bool = False
    """It was made for this pod and belongs to it: another pod's of that name is another one."""


@dataclass(frozen=True, slots=True)
class DisruptionFacts:
    """What else binds a pod to its node: claims, data, and words against disturbing it.

    One object, the same for nearly all pods: every field of a pod is paid for by all of them.
    """

    claims: tuple[ClaimUse, ...] = ()
    """By name, each once. Until they are looked up (model.volumes), Pod.unsupported says so."""
    faults: tuple[str, ...] = ()
    """What is not known of which claim, if Pod.unsupported still says so."""
    local_volumes: tuple[str, ...] = ()
    """Names of volumes whose data is gone with the node: hostPath, emptyDir on disk."""
    notes: tuple[tuple[str, str], ...] = ()
    """Annotations on whether the pod may be disrupted (core.guards.drainability), by key."""
    started_seconds: int | None = None
    """Unix time, of pods with notes, which may count from it; None: not known, or not asked."""
    overdue_seconds: int | None = None
    """Unix time from which a pod that is being deleted should have been gone; None: it is not."""


NO_DISRUPTION_FACTS: Final = DisruptionFacts()


class Disk(NamedTuple):
    """A volume that must be attached to the node of the pods that use it."""

    driver: str
    """Of CSI, or ANY_DRIVER."""
    handle: str


@dataclass(frozen=True, slots=True)
class PodConstraints:
    """What a pod asks of the pods around it, all of it required; tuples in canonical order.

    It says nothing about the order of packing; equal for pods of one template.
    """

    near: tuple[PodAffinityTerm, ...] = ()
    """Pod affinity: one pod that all terms select must be at the place of each."""
    apart: tuple[PodAffinityTerm, ...] = ()
    """Pod anti-affinity; it also refuses its place to the pods that it selects."""
    spread: tuple[SpreadConstraint, ...] = ()
    host_ports: tuple[HostPort, ...] = ()
    sole: tuple[str, ...] = ()
    """ReadWriteOncePod claims, by namespace/name: one pod of the cluster may use each."""
    disks: tuple[Disk, ...] = ()
    """What is attached for the pod: a node takes so many different ones of a driver."""


NO_POD_CONSTRAINTS: Final = PodConstraints()
