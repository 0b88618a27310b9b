"""Decode PersistentVolumeClaims, PersistentVolumes and CSINodes into core.model.volumes.

Errors name the field; the caller adds the object.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import msgspec

from core.edge.decode.fields import checked
from core.edge.decode.in_tree import BETWEEN_ZONES, affinity_of, disk_of
from core.edge.decode.objects import (
    InTreeSources,
    Meta,
    NodeSelector,
    Owner,
    Present,
    Struct,
)
from core.edge.decode.selectors import node_terms
from core.fit.filters import ZONE_LABELS
from core.model.constraints import EVERYWHERE, Disk, InlineDisk, VolumeTopology
from core.model.volumes import Claim, CsiNode, Volume

BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
"""Annotation of a claim whose volume is bound permanently."""
BOUND: Final = "Bound"
SUPPORTED: Final = "csi, local, hostPath, nfs, iscsi, fc, rbd, cephfs, and in-tree cloud volumes"
REACHES_MAX: Final = 4096
"""Maximum number of cached volume topologies."""


class ClaimOwner(Owner):
    uid: str = ""


class ClaimMeta(Meta):
    owner_references: list[ClaimOwner] | None = None


class ClaimSpec(Struct):
    access_modes: list[str] | None = None
    volume_name: str | None = None


class ClaimStatus(Struct):
    phase: str = ""


class ClaimObject(Struct):
    metadata: ClaimMeta
    spec: ClaimSpec | None = None
    status: ClaimStatus | None = None


class CsiSource(Struct):
    driver: str = ""
    volume_handle: str = ""


class VolumeAffinity(Struct):
    required: NodeSelector | None = None


class VolumeSpec(InTreeSources):
    """Spec of a volume: its node affinity and its source."""

    node_affinity: VolumeAffinity | None = None
    csi: CsiSource | None = None
    local: Present | None = None
    host_path: Present | None = None
    nfs: Present | None = None
    fc: Present | None = None
    azure_file: Present | None = None
    cephfs: Present | None = None


class VolumeObject(Struct):
    metadata: Meta
    spec: VolumeSpec = msgspec.field(default_factory=VolumeSpec)


class Allocatable(Struct):
    """Maximum number of volumes of a driver on a node."""

    count: int | None = None


class Driver(Struct):
    name: str = ""
    allocatable: Allocatable | None = None


class CsiNodeSpec(Struct):
    drivers: list[Driver] | None = None


class CsiNodeObject(Struct):
    metadata: Meta
    spec: CsiNodeSpec | None = None


def claim(obj: ClaimObject) -> Claim:
    """Create a Claim. Raises: InvalidInputError with the field."""
    meta, spec = obj.metadata, obj.spec or ClaimSpec()
    complete = BIND_COMPLETED in (meta.annotations or {})
    bound = complete and obj.status is not None and obj.status.phase == BOUND
    owner = next((one for one in meta.owner_references or () if one.controller), None)
    return Claim(
        namespace=checked(meta.namespace or "default", "metadata.namespace"),
        name=checked(meta.name, "metadata.name"),
        volume=(spec.volume_name or "") if bound else "",
        modes=tuple(sorted(set(spec.access_modes or ()))),
        deleting=meta.deletion_timestamp is not None,
        owner_uid=owner.uid if owner else "",
    )


def volume(obj: VolumeObject) -> Volume:
    """Create a Volume. Raises: InvalidInputError with the field."""
    spec, labels = obj.spec, obj.metadata.labels or {}
    required = spec.node_affinity.required if spec.node_affinity else None
    terms = None if required is None else node_terms(required)
    reach = VolumeTopology(affinity=affinity_of(spec, terms, labels), zones=_zones(labels))
    in_tree = None if spec.csi else disk_of(spec, labels)
    disk = Disk(spec.csi.driver, spec.csi.volume_handle) if spec.csi else None
    if in_tree is not None and not in_tree.fault:
        disk = Disk(in_tree.driver, in_tree.handle)
    return Volume(
        name=checked(obj.metadata.name, "metadata.name"),
        disk=disk,
        reach=_same(reach),
        fault=_fault(spec, reach, in_tree),
    )


def _fault(spec: VolumeSpec, reach: VolumeTopology, in_tree: InlineDisk | None) -> str:
    """Return why a volume cannot be evaluated; empty if it can."""
    if any(term.fields for term in reach.affinity or ()):
        return "uses matchFields in its node affinity"
    if spec.csi is not None and not (spec.csi.driver and spec.csi.volume_handle):
        return "has no CSI driver or no volume handle"
    if spec.host_path is not None and reach.affinity is None:
        return "is a hostPath without node affinity, so its node is unknown"
    if in_tree is not None:
        return in_tree.fault
    # Volumes of these types are mounted over the network: no attach limit counts them.
    network = spec.nfs or spec.iscsi or spec.fc or spec.azure_file or spec.cephfs or spec.rbd
    known = spec.csi or spec.local or spec.host_path or network
    return "" if known else f"has an unsupported type; supported: {SUPPORTED}"


def _zones(labels: Mapping[str, str]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the zone labels; like kube-scheduler, ignore a label with an empty zone."""
    found = (
        (key, tuple(sorted({zone.strip() for zone in labels[key].split(BETWEEN_ZONES)})))
        for key in sorted(ZONE_LABELS)
        if key in labels
    )
    return tuple((key, zones) for key, zones in found if all(zones))


@lru_cache(maxsize=REACHES_MAX)
def _same(reach: VolumeTopology) -> VolumeTopology:
    """Return one shared object for equal topologies."""
    return EVERYWHERE if reach == EVERYWHERE else reach


def csi_node(obj: CsiNodeObject) -> CsiNode:
    """Create a CsiNode. Raises: InvalidInputError with the field."""
    drivers = (obj.spec.drivers if obj.spec else None) or ()
    return CsiNode(
        name=checked(obj.metadata.name, "metadata.name"),
        limits={one.name: one.allocatable.count if one.allocatable else None for one in drivers},
    )
