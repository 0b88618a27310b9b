"""Constraints of a pod on its node, on the pods around it and on its volumes; frozen.

Pods are compared and grouped by these values, so all tuples are in canonical order.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, NamedTuple

from core.model.resources import Resources

HOST_LABEL: Final = "kubernetes.io/hostname"
ANY_IP: Final = "0.0.0.0"  # noqa: S104 read, never bound
ANY_DRIVER: Final = ""
"""Driver of a volume that Ebb could not look up: it may belong to any driver."""
RESTARTS_ALL: Final = "RestartAllContainersOnContainerExits"
OS_LABEL: Final = "kubernetes.io/os"
SYSTEM_LABELS: Final = (
    OS_LABEL,
    "node.kubernetes.io/windows-build",  # containers need a host of their own build
)
"""Labels of a node, set by its kubelet, that say which images run there, whatever the image says.

A pod stays on nodes with the values of its own node (core.cluster.assumptions). Source: the guide
to Windows containers of kubernetes.io, and process isolation of Windows Server."""
SYSTEMS_CACHED_MAX: Final = 16_384
"""Maximum number of cached results of `with_system`."""
EXTENDED_CACHED_MAX: Final = 4096
"""Maximum number of cached results of `with_extended`."""
HOST_USERS: Final = "UserNamespacesHostNetworkSupport"
MOUNT_OPTIONS: Final = "VolumeBindMountOptions"
ASKED_FEATURES: Final = frozenset((RESTARTS_ALL, HOST_USERS, MOUNT_OPTIONS))
"""Node features that a pod can require when it is scheduled.

Source: InferForScheduling in nodedeclaredfeatures/features of k8s.io/component-helpers 0.37."""


@dataclass(frozen=True, slots=True)
class Toleration:
    """A toleration; an empty key with Exists tolerates all keys, an empty effect all effects."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True)
class Requirement:
    """A requirement on a label or field: In, NotIn, Exists, DoesNotExist, Gt or Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SelectorTerm:
    """A required node affinity term: all of its requirements must match.

    A term without requirements matches no node.
    """

    labels: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()
    """Requirements on fields (matchFields); the API allows the field metadata.name only."""


@dataclass(frozen=True, slots=True)
class VolumeTopology:
    """The nodes that can access a volume."""

    affinity: tuple[SelectorTerm, ...] | None = None
    """Required node affinity of the PersistentVolume, as in NodeConstraints."""
    zones: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Zone and region labels of the volume, with the values allowed for a node.

    A node without any of these labels can access the volume."""


EVERYWHERE: Final = VolumeTopology()


@dataclass(frozen=True, slots=True)
class NodeConstraints:
    """Constraints of a pod on its node, besides resources; equal for pods of one template."""

    node_selector: tuple[tuple[str, str], ...] = ()
    affinity: tuple[SelectorTerm, ...] | None = None
    """Terms of required node affinity; one matching term suffices.

    None: the pod has no affinity. An empty tuple matches no node."""
    tolerations: tuple[Toleration, ...] = ()
    volumes: tuple[VolumeTopology, ...] = ()
    """Topologies of the volumes behind the pod's claims, without volumes that every node can
    access."""
    system: tuple[tuple[str, str], ...] = ()
    """Labels that only the kubelet checks (spec.os); kube-scheduler does not.

    They do not matter for the nodes that a topology spread constraint counts."""
    features: tuple[str, ...] = ()
    """Names of the features that the kubelet must declare (ASKED_FEATURES)."""
    extended: tuple[str, ...] = ()
    """Names of the extended resources that the node must offer, sorted.

    Pod derives them from its requests, so they never disagree."""

    @property
    def labels(self) -> tuple[tuple[str, str], ...]:
        """Return all labels that the pod's node must have, as pairs of key and value."""
        return self.node_selector + self.system


def without_volumes(node_constraints: NodeConstraints) -> NodeConstraints:
    """Return the constraints without volume topologies; the same object if there are none."""
    return replace(node_constraints, volumes=()) if node_constraints.volumes else node_constraints


def with_extended(node_constraints: NodeConstraints, names: tuple[str, ...]) -> NodeConstraints:
    """Return the constraints with *names* as the extended resources that the node must offer.

    Equal arguments give the same object, so that the pods of one template share it.
    """
    return (
        _with_extended(node_constraints, names)
        if node_constraints.extended != names
        else node_constraints
    )


@lru_cache(maxsize=EXTENDED_CACHED_MAX)
def _with_extended(node_constraints: NodeConstraints, names: tuple[str, ...]) -> NodeConstraints:
    return replace(node_constraints, extended=names)


def with_system(
    node_constraints: NodeConstraints, labels: tuple[tuple[str, str], ...]
) -> NodeConstraints:
    """Return the constraints, which then also require a node with *labels*, keys of SYSTEM_LABELS.

    A label that the constraints name already is left out. Equal arguments give the same object, so
    that the pods of one template share it.
    """
    named = {key for key, _ in node_constraints.labels}
    if named.issuperset(key for key, _ in labels):
        return node_constraints
    return _with_system(node_constraints, labels)


@lru_cache(maxsize=SYSTEMS_CACHED_MAX)
def _with_system(
    node_constraints: NodeConstraints, labels: tuple[tuple[str, str], ...]
) -> NodeConstraints:
    named = {key for key, _ in node_constraints.labels} | _keys_in_each(node_constraints.affinity)
    added = tuple((key, value) for key, value in labels if key not in named)
    if not added:
        return node_constraints
    return replace(node_constraints, system=(*node_constraints.system, *added))


def _keys_in_each(terms: tuple[SelectorTerm, ...] | None) -> set[str]:
    """Return the keys of labels that each of the terms names."""
    keys = [{requirement.key for requirement in term.labels} for term in terms or ()]
    return set.intersection(*keys) if keys else set()


def names_node(node_constraints: NodeConstraints) -> bool:
    """Return whether the constraints select nodes by hostname label or by matchFields.

    Those of DaemonSet pods do.
    """
    terms = node_constraints.affinity or ()
    keys = {key for key, _ in node_constraints.node_selector}
    keys |= {requirement.key for term in terms for requirement in term.labels}
    return HOST_LABEL in keys or any(term.fields for term in terms)


NO_NODE_CONSTRAINTS: Final = NodeConstraints()


@dataclass(frozen=True, slots=True)
class PodSelector:
    """A selector of pods by namespace and labels; all requirements must match.

    Without requirements it selects all pods of the namespaces.
    """

    namespaces: tuple[str, ...] | None
    """Namespaces of the selected pods; None: all namespaces.

    Empty: no pod is selected, as for a missing label selector."""
    requirements: tuple[Requirement, ...]


NO_POD: Final = PodSelector((), ())


@dataclass(frozen=True, slots=True)
class NamespaceChoice:
    """The namespaces that a pod affinity term selects.

    They are the namespaces in `names`, and all whose labels match every requirement.
    """

    names: tuple[str, ...]
    requirements: tuple[Requirement, ...]


@dataclass(frozen=True, slots=True)
class PodAffinityTerm:
    """A term of required pod (anti-)affinity: the selected pods, within a topology domain."""

    selector: PodSelector
    topology_key: str
    """Node label whose value names the topology domain of the node."""
    chosen: NamespaceChoice | None = None
    """Namespaces that are not looked up yet; the selector selects the pods of all namespaces
    until then. None: the selector names the namespaces."""


@dataclass(frozen=True, slots=True)
class SpreadConstraint:
    """A topology spread constraint; whether it is hard (DoNotSchedule) depends on its place."""

    selector: PodSelector
    topology_key: str
    max_skew: int
    min_domains: int = 1
    honor_affinity: bool = True
    """Value of nodeAffinityPolicy: count only nodes that match the pod's own node affinity."""
    honor_taints: bool = False
    """Value of nodeTaintsPolicy: count only nodes whose taints the pod tolerates."""


class HostPort(NamedTuple):
    """A port of the node that a pod occupies, with protocol and IP address of the node."""

    port: int
    protocol: str = "TCP"
    ip: str = ANY_IP


class ClaimUse(NamedTuple):
    """The use of a PersistentVolumeClaim by a pod, in the namespace of the pod."""

    name: str
    ephemeral: bool = False
    """The claim was created for this pod and belongs to it; a claim of another pod is invalid."""


class InlineDisk(NamedTuple):
    """A disk that a pod or a PersistentVolume names without a CSI driver."""

    driver: str
    """CSI driver that serves the disk, or the type of the volume if none does."""
    handle: str
    read_only: bool = False
    counted: bool = True
    """The disk counts against the driver's attach limit of a node."""
    fault: str = ""
    """Why the disk cannot be evaluated; empty if it can."""


@dataclass(frozen=True, slots=True)
class DisruptionFacts:
    """What matters when a pod is disrupted: its volume claims, local data and annotations.

    Nearly all pods share one empty object: every field of Pod costs memory for each pod.
    """

    claims: tuple[ClaimUse, ...] = ()
    """Claims, sorted by name, each once.

    Pod.unsupported names the claims until they are looked up (core.cluster.volumes)."""
    disks: tuple[InlineDisk, ...] = ()
    """Disks that the pod itself names, sorted, each once.

    Pod.unsupported names the volumes until they are looked up."""
    faults: tuple[str, ...] = ()
    """Messages about claims and disks that could not be resolved; Pod.unsupported names them."""
    local_volumes: tuple[str, ...] = ()
    """Names of volumes whose data is lost with the node: hostPath, emptyDir on disk."""
    notes: tuple[tuple[str, str], ...] = ()
    """Annotations that allow or forbid a disruption (eligibility.drainability), sorted by key."""
    started_seconds: int | None = None
    """Start time of a pod with notes, in Unix seconds; None if unknown or not needed."""
    overdue_seconds: int | None = None
    """Unix second by which a terminating pod should have ended; None: it is not terminating."""
    gang: str = ""
    """Name of the group of pods that are scheduled together; empty if the pod is in none."""
    resize_deferred: bool = False
    """The kubelet has deferred a resize of the pod until its node has room."""
    one_node_volumes: tuple[str, ...] = ()
    """Names of claims and disks that the pods of one node alone can use (ReadWriteOnce), sorted.

    They are looked up together with the claims (core.cluster.volumes)."""
    completes: bool = False
    """The pod runs to completion: the kubelet restarts no container that has succeeded."""


NO_DISRUPTION_FACTS: Final = DisruptionFacts()


@dataclass(frozen=True, slots=True)
class QuotaFacts:
    """What a ResourceQuota reads of a pod besides its requests.

    Pods with equal facts share one object.
    """

    limits: Resources = Resources()
    """Limits of the pod on CPU, memory and ephemeral storage; other amounts are 0."""
    unset: tuple[str, ...] = ()
    """Amounts that some container does not set: of requests.cpu, requests.memory, limits.cpu and
    limits.memory, sorted."""
    priority_class: str = ""
    """Name of the PriorityClass; empty if there is none."""
    best_effort: bool = False
    """The QoS class is BestEffort: no container requests or limits CPU or memory."""
    has_deadline: bool = False
    """The pod has activeDeadlineSeconds."""
    crosses_namespaces: bool = False
    """A term of pod affinity or anti-affinity, required or preferred, names namespaces."""


NO_QUOTA_FACTS: Final = QuotaFacts()


class Disk(NamedTuple):
    """A volume that must be attached to the node of the pods that use it, by driver and handle."""

    driver: str
    """Name of the CSI driver, or ANY_DRIVER."""
    handle: str


@dataclass(frozen=True, slots=True)
class PodConstraints:
    """Required constraints of a pod on the pods around it; tuples in canonical order.

    They do not affect the order in which pods are placed. Pods of one template have equal
    constraints.
    """

    near: tuple[PodAffinityTerm, ...] = ()
    """Terms of pod affinity. For each term, the domain of the node must contain a pod that matches
    all terms."""
    apart: tuple[PodAffinityTerm, ...] = ()
    """Terms of pod anti-affinity; they also keep the selected pods out of this pod's domain."""
    spread: tuple[SpreadConstraint, ...] = ()
    host_ports: tuple[HostPort, ...] = ()
    sole: tuple[str, ...] = ()
    """ReadWriteOncePod claims as namespace/name; only one pod of the cluster may use each."""
    disks: tuple[Disk, ...] = ()
    """Volumes to attach; a node can attach a limited number of different volumes of a driver."""


NO_POD_CONSTRAINTS: Final = PodConstraints()
