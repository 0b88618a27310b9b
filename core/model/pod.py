"""A pod, frozen, and the workload that it belongs to.

Pods of one template share their constraint objects. Pods of one workload replace each other.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from core.model.constraints import (
    ANY_DRIVER,
    NO_DISRUPTION_FACTS,
    NO_NODE_CONSTRAINTS,
    NO_POD_CONSTRAINTS,
    NO_QUOTA_FACTS,
    DisruptionFacts,
    NodeConstraints,
    PodConstraints,
    QuotaFacts,
    SpreadConstraint,
    with_extended,
)
from core.model.now import Now
from core.model.resources import Resources

EXPENDABLE_BELOW: Final = -10
"""Cluster Autoscaler's default of `--expendable-pods-priority-cutoff`."""
DEVICES_FIELD: Final = "spec.resourceClaims"
"""Entry of Pod.unsupported for devices that are allocated by resource claims (DRA)."""
TOPOLOGY_FIELD: Final = "Kueue's topology assignment"
"""Entry of Pod.unsupported for pods whose node Kueue chooses (topology-aware scheduling)."""
DEFAULT_SCHEDULER: Final = "default-scheduler"
"""Scheduler name that the API server sets in pods that name none."""
SCHEDULER_CHARS_MAX: Final = 253
"""Maximum length of a scheduler name; a longer name is cut, so it matches no known scheduler."""
CLAIMS_FIELD: Final = "spec.volumes[*].persistentVolumeClaim"
"""In Pod.unsupported: claims that were not looked up, or about which Ebb knows too little."""
VOLUMES_FIELD: Final = "spec.volumes"
"""In Pod.unsupported: volumes defined in the pod itself, without a claim."""
TEMPLATE_LABEL: Final = "pod-template-hash"
"""Label with the hash that a Deployment appends to its own name to name a ReplicaSet."""
DETACHED_LABEL: Final = "kube-ebb.io/detached"
"""Label of a pod that a move has taken out of its ReplicaSet. Its value is that of TEMPLATE_LABEL,
which a move removes for this time and then gives back."""
REPLICA_SET: Final = "ReplicaSet"
"""Kind of the most common owner of pods."""
STATEFUL_SET: Final = "StatefulSet"
DAEMON_SET: Final = "DaemonSet"
JOB: Final = "Job"
KEEPERS: Final = frozenset((REPLICA_SET, "ReplicationController", STATEFUL_SET))
"""Kinds of controllers that replace each of their pods that is deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A running or pending pod; finished pods are never part of a Cluster."""

    namespace: str
    name: str
    uid: str = ""
    node: str | None = None
    """Name of the node that the pod is bound to; None if the pod is pending."""
    nominated_node: str = ""
    """Node that kube-scheduler has nominated for the pod. The pod is Pending until other pods have
    left the node.

    If the node admits the pod, `node` names this node too (core.cluster.assumptions)."""
    requests: Resources = Resources(pods=1)
    """Requests as kube-scheduler counts them (core.model.requests); `pods` is 1."""
    node_constraints: NodeConstraints = NO_NODE_CONSTRAINTS
    """Constraints on the node, including the extended resources that `requests` needs."""
    scheduler: str = DEFAULT_SCHEDULER
    """Scheduler of the pod.

    If Ebb does not know its filters, `unsupported` says so (core.cluster.read_options)."""
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    owner_kind: str = ""
    """Kind of the controlling owner (ReplicaSet, DaemonSet, Job, ...); empty for a bare pod."""
    owner_name: str = ""
    priority: int = 0
    mirror: bool = False
    """The pod is the mirror pod of a static pod: it ends with its node."""
    daemon: bool = False
    """The pod belongs to a DaemonSet, or an annotation says so to the autoscaler: it ends with its
    node."""
    unsupported: tuple[str, ...] = ()
    """Field paths of constraints that Ebb cannot evaluate; such a pod is not movable."""
    too_much: str = ""
    """The limit that the pod's constraints exceed; empty if they exceed none.

    Such a pod is not movable. Ebb evaluates only its host ports and disks, because they can keep
    other pods off the node."""
    unreadable: str = ""
    """Why the pod could not be read; empty if it could.

    The other fields hold all that is known. The pod is not movable; its node accepts no pods."""
    pod_constraints: PodConstraints = NO_POD_CONSTRAINTS
    """Constraints on other pods.

    DaemonSet and static pods keep only those that block other pods: anti-affinity, ports,
    disks."""
    own_spread: bool = False
    """The pod has topology spread constraints of its own, so the cluster's defaults do not
    apply."""
    soft_spread: tuple[SpreadConstraint, ...] = ()
    """Topology spread constraints with whenUnsatisfiable: ScheduleAnyway, in canonical order.

    Plans ignore them; the order of scale-ins keeps them."""
    disruption_facts: DisruptionFacts = NO_DISRUPTION_FACTS
    quota_facts: QuotaFacts = NO_QUOTA_FACTS
    unschedulable: bool = False
    """The pod is pending, and the scheduler reported that it fits on no node."""
    terminating: bool = False
    """The pod is being deleted; topology spread constraints do not count it."""
    ready: bool = field(default=False, compare=False)
    """The pod is Ready.

    Plans ignore this field, and so does comparison: readiness changes too often to plan again for
    it."""
    created_seconds: int | None = field(default=None, compare=False)
    """Unix second of the pod's creationTimestamp, which users cannot change; None if unknown.

    Comparison ignores it, because pods of one UID never differ in it. Plans read it only for
    `maxJobAge`."""
    ready_seconds: int | None = field(default=None, compare=False)
    """Unix second since which the pod is Ready; None if it is not, or if the time is unknown."""
    move: str | None = None
    """Value of the annotation with the pod's move; None if there is none (core.moves.note)."""
    deletion_cost: str | None = None
    """Value of the annotation for the pod deletion cost; None if there is none."""
    deletion_cost_ours: str | None = None
    """Pod deletion cost that Ebb has written; None if Ebb has written none."""

    def __post_init__(self) -> None:
        # Only a node that offers the extended resources of the requests admits the pod.
        if self.requests.extended or self.node_constraints.extended:
            names = tuple(name for name, units in self.requests.extended if units)
            object.__setattr__(
                self, "node_constraints", with_extended(self.node_constraints, names)
            )

    @property
    def key(self) -> str:
        """Return namespace/name, unique in a cluster."""
        return f"{self.namespace}/{self.name}"

    @property
    def evaluable(self) -> bool:
        """Return whether Ebb can evaluate all constraints of the pod.

        If not, Ebb does not look for another node for the pod.
        """
        return not (self.unsupported or self.too_much or self.unreadable)

    @property
    def nominated(self) -> bool:
        """Return whether the pod is Pending and counts as a pod of its nominated node."""
        return bool(self.nominated_node and self.node)

    @property
    def movable(self) -> bool:
        """Return whether Ebb can look for another node for the pod when its own node is removed.

        False if Ebb cannot evaluate its constraints, or if the pod is Pending and waits for its
        nominated node.
        """
        # Not by way of `evaluable` and `nominated`: each reconciliation asks this for all pods.
        return not (
            self.unsupported
            or self.too_much
            or self.unreadable
            or (self.nominated_node and self.node)
        )

    @property
    def estimable(self) -> bool:
        """Return whether Ebb knows the pod's requests, node selectors and tolerations.

        Other constraints, such as volumes, may still be unknown.
        """
        return not (self.too_much or self.unreadable)

    def as_estimated(self) -> "Pod":
        """Return the pod without volumes whose CSI driver is unknown.

        The same object if the pod has no such volume.
        """
        disks = tuple(disk for disk in self.pod_constraints.disks if disk.driver != ANY_DRIVER)
        if len(disks) == len(self.pod_constraints.disks):
            return self
        return replace(self, pod_constraints=replace(self.pod_constraints, disks=disks))

    @property
    def stays_with_node(self) -> bool:
        """Return whether the pod ends with its node and needs no room elsewhere.

        DaemonSet pods and mirror pods do.
        """
        return self.daemon or self.mirror

    @property
    def expendable(self) -> bool:
        """Return whether Cluster Autoscaler ignores the pod when it removes the pod's node.

        It ignores pods with a priority below EXPENDABLE_BELOW.
        """
        return self.priority < EXPENDABLE_BELOW

    @property
    def occupies(self) -> bool:
        """Return whether the pod makes its node non-empty by Cluster Autoscaler's rules.

        DaemonSet pods, mirror pods and pods with an expendable priority do not.
        """
        return not (self.daemon or self.mirror or self.priority < EXPENDABLE_BELOW)

    @property
    def has_our_cost(self) -> bool:
        """Return whether the pod has a pod deletion cost, and it is the cost that Ebb wrote."""
        return self.deletion_cost is not None and self.deletion_cost == self.deletion_cost_ours

    @property
    def detached(self) -> str:
        """Return the pod template hash if a move has detached the pod from its ReplicaSet.

        Empty otherwise. The owner of a detached pod is still its ReplicaSet.
        """
        labels = self.labels
        return "" if TEMPLATE_LABEL in labels else labels.get(DETACHED_LABEL, "")

    @property
    def template_hash(self) -> str:
        """Return the hash of the pod template, also of a detached pod; empty if it has none."""
        return self.labels.get(TEMPLATE_LABEL) or self.detached

    def overdue(self, now: Now | None) -> bool:
        """Return whether the pod is terminating and should have ended long ago.

        Cluster Autoscaler does not wait for such a pod (LongTerminating). False if *now* is None.
        """
        due = self.disruption_facts.overdue_seconds
        return due is not None and now is not None and now.reached(due + 1)


def detached_pods(pods: Iterable[Pod]) -> list[Pod]:
    """Return the pods that a move has detached from their ReplicaSet."""
    # Few pods have the label, and each reconciliation asks this for all pods.
    return [pod for pod in pods if DETACHED_LABEL in pod.labels and pod.detached]


def goes_by_cost(pod: Pod) -> bool:
    """Return whether a scale-in may choose the pod by its pod deletion cost.

    Only ReplicaSets read the cost. False also for pods that stay with their node, and for a pod of
    a gang (pods that are scheduled together): a scale-in would delete one member because of its
    node, although the other members run elsewhere.
    """
    return (
        pod.owner_kind == REPLICA_SET and not pod.stays_with_node and not pod.disruption_facts.gang
    )


def runs_to_completion(pod: Pod) -> bool:
    """Return whether the pod ends by itself when its work is done, as pods of Jobs do."""
    return pod.owner_kind == JOB or pod.disruption_facts.completes


class Workload(NamedTuple):
    """The controller of pods, such as a StatefulSet, by namespace, kind and name."""

    namespace: str
    owner_kind: str
    owner_name: str


def workload_of(pod: Pod) -> Workload:
    """Return the workload of a pod; all ReplicaSets of a Deployment are one workload.

    Its kind is that of the pod's owner. Its name is that of the owner without the hash of the pod
    template.

    Users who may write pods in the namespace control every field that this function reads.
    """
    name = pod.owner_name
    if template := pod.template_hash:
        name = name.removesuffix(f"-{template}")
    return Workload(pod.namespace, pod.owner_kind, name)
