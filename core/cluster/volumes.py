"""Look up the volumes of pods: their claims, the nodes that can access them, attach limits.

A pod names claims, a claim names a volume, and a volume names nodes. VolumeLookup looks them up
once and stores the result in the pod, where the filters find it: NodeConstraints.volumes
(VolumeBinding and VolumeZone), PodConstraints.sole and PodConstraints.disks (VolumeRestrictions
and NodeVolumeLimits). If a claim cannot be looked up, the pod is not movable, with the reason.

The claim of a generic ephemeral volume is deleted with its pod, and the replacement of the pod
gets a new claim. So a running pod may use each node on which its StorageClass provides volumes,
wherever its present volume is. Source: kubernetes.io, generic ephemeral volumes.

Source: the filters of these four plugins of kube-scheduler. Two rules are stricter than there,
because the pod would be bound and never start: a node without the driver in its CSINode attaches
none of its volumes, and pods that share a ReadWriteOnce claim are not moved.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from core.model.cluster_pods import ClusterPods
from core.model.constraints import (
    ANY_DRIVER,
    EVERYWHERE,
    NO_POD_CONSTRAINTS,
    ClaimUse,
    Disk,
    DisruptionFacts,
    InlineDisk,
    NodeConstraints,
    PodConstraints,
    VolumeTopology,
)
from core.model.node import Node
from core.model.pod import CLAIMS_FIELD, VOLUMES_FIELD, Pod

SOLE_MODE: Final = "ReadWriteOncePod"
ONE_NODE_MODES: Final = frozenset({"ReadWriteOnce", SOLE_MODE})
NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
"""Provisioner of classes whose volumes people create."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A PersistentVolumeClaim, with the name of its volume and its access modes."""

    namespace: str
    name: str
    volume: str = ""
    """Name of the bound PersistentVolume; empty if the claim is not bound."""
    modes: tuple[str, ...] = ()
    """Access modes of the spec."""
    deleting: bool = False
    storage_class: str = ""
    """Name of its StorageClass; empty if the claim names none."""
    owner_uid: str = ""
    """UID of the controlling owner, which is the pod for an ephemeral volume."""

    @property
    def key(self) -> str:
        """Return namespace/name, unique in a cluster."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """A PersistentVolume: the disk to attach, and the nodes that can access it."""

    name: str
    disk: Disk | None = None
    """Disk that is attached to the node; None if nothing is attached or counted."""
    reach: VolumeTopology = EVERYWHERE
    fault: str = ""
    """Reason why the volume cannot be evaluated; empty if it can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageClass:
    """A StorageClass: where it provides new volumes."""

    name: str
    reach: VolumeTopology = EVERYWHERE
    """The nodes that allowedTopologies admit."""
    provides: bool = True
    """A driver creates volumes; False if people do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CsiNode:
    """A CSINode: the attach limits of the CSI drivers on the Node of the same name."""

    name: str
    limits: Mapping[str, int | None] = field(default_factory=dict, hash=False)
    """Maximum number of attached volumes by driver; None: unlimited."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """A VolumeAttachment, which attaches a volume to a Node; missing fields are empty."""

    name: str
    driver: str = ""
    """Name of the CSI driver that attaches the volume."""
    node: str = ""
    volume: str = ""
    """Name of the PersistentVolume; empty for an inline volume of a pod."""


def _unlimited(
    nodes: Sequence[Node], limits: Mapping[str, Mapping[str, int | None]]
) -> frozenset[str]:
    drivers = {driver for of_node in limits.values() for driver in of_node}
    return frozenset(
        driver
        for driver in drivers
        if all(limits.get(node.name, {}).get(driver, 0) is None for node in nodes)
    )


def _pod_constraints(
    pod_constraints: PodConstraints, sole: tuple[str, ...], disks: tuple[Disk, ...]
) -> PodConstraints:
    if (
        pod_constraints is NO_POD_CONSTRAINTS
    ):  # true for most pods; a new object is cheaper than `replace`
        return PodConstraints(sole=sole, disks=disks) if sole or disks else NO_POD_CONSTRAINTS
    return replace(pod_constraints, sole=sole, disks=disks)


def _disruption_facts(
    disruption_facts: DisruptionFacts, faults: tuple[str, ...], one_node: tuple[str, ...]
) -> DisruptionFacts:
    if (disruption_facts.faults, disruption_facts.one_node_volumes) == (faults, one_node):
        return disruption_facts
    return replace(disruption_facts, faults=faults, one_node_volumes=one_node)


@dataclass(slots=True, kw_only=True)
class VolumeLookup:
    """The claims and volumes of a cluster, by name; completes pods with their volumes."""

    claims: Mapping[str, Claim]
    """Claims by namespace/name."""
    volumes: Mapping[str, Volume]
    """PersistentVolumes by name."""
    users: Mapping[str, int]
    """Number of pods that use each claim."""
    disk_users: Mapping[tuple[str, str, bool], int]
    """Number of pods that name each disk, by driver, handle and whether the pods only read it."""
    attach_limits: Mapping[str, Mapping[str, int | None]]
    """Maximum number of volumes by node and CSI driver, as in Cluster."""
    limits_known: bool
    """True if at least one CSINode was read."""
    unlimited: frozenset[str]
    """CSI drivers that have no attach limit on any node, so that nothing counts their volumes."""
    classes: Mapping[str, StorageClass] = field(default_factory=dict)
    """StorageClasses by name."""
    node_constraints_of: dict[
        tuple[NodeConstraints, tuple[VolumeTopology, ...]], NodeConstraints
    ] = field(default_factory=dict)
    """Node constraints with volume topologies, by both: pods of one template share one object."""

    @staticmethod
    def of(
        nodes: Sequence[Node],
        pods: ClusterPods,
        claims: Iterable[Claim],
        volumes: Iterable[Volume],
        csi_nodes: Iterable[CsiNode],
        classes: Iterable[StorageClass] = (),
    ) -> "VolumeLookup":
        """Return the lookup for these objects; count the pods that use each claim and disk."""
        drivers = {csi_node.name: csi_node.limits for csi_node in csi_nodes}
        limits = {node.name: drivers[node.name] for node in nodes if node.name in drivers}
        using = [pod for pod in pods.special if pod.unsupported]
        return VolumeLookup(
            claims={claim.key: claim for claim in claims},
            volumes={volume.name: volume for volume in volumes},
            users=Counter(
                f"{pod.namespace}/{claim.name}"
                for pod in using
                for claim in pod.disruption_facts.claims
            ),
            disk_users=Counter(
                (disk.driver, disk.handle, disk.read_only)
                for pod in using
                for disk in pod.disruption_facts.disks
                if not disk.fault
            ),
            attach_limits=limits,
            limits_known=bool(drivers),
            unlimited=_unlimited(nodes, limits),
            classes={one.name: one for one in classes},
        )

    def attached(self, attachments: Iterable[Attachment]) -> Mapping[str, frozenset[Disk]]:
        """Return the volumes with a VolumeAttachment that kube-scheduler counts, by node name.

        Source: getNodeVolumeAttachmentInfo of NodeVolumeLimits. It ignores attachments of volumes
        that do not exist or are no CSI volumes. Volumes of drivers without any attach limit are
        left out.
        """
        by_node: dict[str, set[Disk]] = {}
        for attachment in attachments:
            driver, volume = attachment.driver, self.volumes.get(attachment.volume)
            if driver and driver not in self.unlimited and volume and volume.disk is not None:
                by_node.setdefault(attachment.node, set()).add(Disk(driver, volume.disk.handle))
        return {node: frozenset(disks) for node, disks in by_node.items()}

    def pod(self, pod: Pod) -> Pod:
        """Return the pod with the topologies, disks and faults of its volumes.

        The same object if there is nothing to add. If Ebb knows too little about a volume, the pod
        remains unsupported, and `disruption_facts.faults` says why.
        """
        faults: list[str] = []
        volumes: list[Volume] = []
        unknown: set[Disk] = set()
        sole: list[str] = []
        for use in pod.disruption_facts.claims:
            key = f"{pod.namespace}/{use.name}"
            volume = self._volume(pod, use, key)
            if isinstance(volume, str):
                faults.append(f"claim {key}: {volume}")
                unknown.add(Disk(ANY_DRIVER, key))
            elif use.ephemeral and pod.node is not None:
                volumes.append(self._anew(self.claims[key], volume))
            else:
                volumes.append(volume)
            if key in self.claims and SOLE_MODE in self.claims[key].modes:
                sole.append(key)
        known = {volume.disk for volume in volumes if volume.disk is not None}
        looked_up = set() if faults else {CLAIMS_FIELD}
        if VOLUMES_FIELD in pod.unsupported:
            disk_faults = [
                fault for fault in map(self._disk_fault, pod.disruption_facts.disks) if fault
            ]
            faults += disk_faults
            if disk_faults or not pod.disruption_facts.disks:
                unknown.add(Disk(ANY_DRIVER, f"{pod.key} {VOLUMES_FIELD}"))
            else:
                looked_up.add(VOLUMES_FIELD)
            known |= {
                Disk(disk.driver, disk.handle)
                for disk in pod.disruption_facts.disks
                if disk.counted and not disk.fault
            }
        if not volumes and not unknown and not looked_up.intersection(pod.unsupported):
            return pod
        disks = unknown | {disk for disk in known if disk.driver not in self.unlimited}
        kept = (field for field in pod.unsupported if field not in looked_up)
        return replace(
            pod,
            node_constraints=self._node_constraints(pod.node_constraints, volumes),
            pod_constraints=_pod_constraints(
                pod.pod_constraints, tuple(sole), tuple(sorted(disks))
            ),
            unsupported=tuple(kept),
            disruption_facts=_disruption_facts(
                pod.disruption_facts, tuple(faults), self._one_node_volumes(pod)
            ),
        )

    def _anew(self, claim: Claim, volume: Volume) -> Volume:
        """Return the volume that a new claim like this one would get.

        Its disk stands for the new one. If people create the volumes, another one may not exist:
        then it is the present volume.
        """
        found = self.classes.get(claim.storage_class)
        if volume.disk is None or (found is not None and not found.provides):
            return volume
        return replace(volume, reach=EVERYWHERE if found is None else found.reach)

    def _one_node_volumes(self, pod: Pod) -> tuple[str, ...]:
        # The replacement of a pod has ephemeral volumes of its own.
        keys = (
            (use.name, f"{pod.namespace}/{use.name}")
            for use in pod.disruption_facts.claims
            if not use.ephemeral
        )
        claims = ((name, self.claims.get(key)) for name, key in keys)
        names = [
            name
            for name, claim in claims
            if claim is None or ONE_NODE_MODES.issuperset(claim.modes)
        ]
        names += (disk.handle for disk in pod.disruption_facts.disks if not disk.read_only)
        return tuple(sorted(set(names)))

    def _disk_fault(self, disk: InlineDisk) -> str:
        """Return a text why Ebb cannot evaluate a disk that a pod names; empty if it can."""
        if disk.fault:
            return f"a disk in spec.volumes {disk.fault}"
        where = f"the disk {disk.driver} {disk.handle} in spec.volumes"
        readers, writers = (
            self.disk_users.get((disk.driver, disk.handle, read_only), 0)
            for read_only in (True, False)
        )
        # As for a ReadWriteOnce claim, the disk is attached to one node, so Ebb moves none of the
        # pods.
        if writers and readers + writers > 1:
            return f"{where}: {readers + writers} pods share it, and only one node can mount it"
        if disk.counted and not self.limits_known:
            return f"no CSINode was read, so the attach limit of {disk.driver} is unknown"
        return ""

    def _volume(self, pod: Pod, use: ClaimUse, key: str) -> Volume | str:
        """Return the volume of a claim, or a text why Ebb knows too little about it.

        *key*: namespace/name of the claim.
        """
        claim = self.claims.get(key)
        if claim is None:
            return "it does not exist or was not read"
        if fault := self._claim_fault(claim, pod, use, key):
            return fault
        volume = self.volumes.get(claim.volume)
        if volume is None:
            return f"its volume {claim.volume} does not exist or was not read"
        if volume.fault:
            return f"its volume {volume.name} {volume.fault}"
        if volume.disk is not None and not self.limits_known:
            return f"no CSINode was read, so the attach limit of {volume.disk.driver} is unknown"
        return volume

    def _claim_fault(self, claim: Claim, pod: Pod, use: ClaimUse, key: str) -> str:
        if claim.deleting:
            return "it is being deleted"
        if use.ephemeral and claim.owner_uid != pod.uid:
            return (
                "it has the name of an ephemeral volume of the pod, but belongs to another object"
            )
        if not claim.volume:
            return "it is not bound to a volume"
        users = self.users[key]
        shared = (
            users > 1 and SOLE_MODE not in claim.modes and ONE_NODE_MODES.issuperset(claim.modes)
        )
        return f"{users} pods share it, and only one node can mount it" if shared else ""

    def _node_constraints(
        self, node_constraints: NodeConstraints, volumes: Iterable[Volume]
    ) -> NodeConstraints:
        """Return the constraints with the topologies of the volumes.

        Equal results are one object.
        """
        topologies = {volume.reach for volume in volumes if volume.reach != EVERYWHERE}
        if not topologies:
            return node_constraints
        ordered = tuple(sorted(topologies, key=repr)) if len(topologies) > 1 else tuple(topologies)
        shared = self.node_constraints_of.get((node_constraints, ordered))
        if shared is None:
            shared = self.node_constraints_of[node_constraints, ordered] = replace(
                node_constraints, volumes=ordered
            )
        return shared
