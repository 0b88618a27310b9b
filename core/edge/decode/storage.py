"""PersistentVolumeClaims, PersistentVolumes and CSINodes: from the wire to core.model.volumes.

Faults name the field; whoever calls adds the object.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import msgspec

from core.edge.decode.fields import checked
from core.edge.decode.objects import Meta, NodeSelector, Owner, Present, Struct
from core.edge.decode.selectors import node_terms
from core.fit.filters import ZONE_LABELS
from core.model.constraints import EVERYWHERE, Disk, VolumeTopology
from core.model.volumes import Claim, CsiNode, Volume

BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
"""On a claim: the volume that it names is its own, for good."""
BOUND: Final = "Bound"
BETWEEN_ZONES: Final = "__"
"""Between the zones in a volume's label, when there are several."""
REACHES_MAX: Final = 4096
"""Different places of volumes that are kept as one object each."""


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


class VolumeSpec(Struct):
    """A volume's spec: where it is, by one of its sources."""

    node_affinity: VolumeAffinity | None = None
    csi: CsiSource | None = None
    local: Present | None = None
    host_path: Present | None = None
    nfs: Present | None = None
    iscsi: Present | None = None
    fc: Present | None = None


class VolumeObject(Struct):
    metadata: Meta
    spec: VolumeSpec = msgspec.field(default_factory=VolumeSpec)


class Allocatable(Struct):
    """How many volumes of a driver a node takes."""

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
    """Make a Claim. Raises: InvalidInputError with the field."""
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
    """Make a Volume. Raises: InvalidInputError with the field."""
    spec = obj.spec
    required = spec.node_affinity.required if spec.node_affinity else None
    reach = VolumeTopology(
        affinity=None if required is None else node_terms(required),
        zones=_zones(obj.metadata.labels or {}),
    )
    return Volume(
        name=checked(obj.metadata.name, "metadata.name"),
        disk=Disk(spec.csi.driver, spec.csi.volume_handle) if spec.csi else None,
        reach=_same(reach),
        fault=_fault(spec, reach),
    )


def _fault(spec: VolumeSpec, reach: VolumeTopology) -> str:
    """Say why a volume cannot be evaluated; empty: it can."""
    if any(term.fields for term in reach.affinity or ()):
        return "has matchFields in its node affinity"
    if spec.csi is not None and not (spec.csi.driver and spec.csi.volume_handle):
        return "names no CSI driver or no handle"
    if spec.host_path is not None and reach.affinity is None:
        return "is a hostPath without node affinity, so that any node seems to reach it"
    known = spec.csi or spec.local or spec.host_path or spec.nfs or spec.iscsi or spec.fc
    return "" if known else "is of a kind that is none of csi, local, hostPath, nfs, iscsi, fc"


def _zones(labels: Mapping[str, str]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Read the zone labels; as the scheduler, pass over one with an empty zone in it."""
    found = (
        (key, tuple(sorted({zone.strip() for zone in labels[key].split(BETWEEN_ZONES)})))
        for key in sorted(ZONE_LABELS)
        if key in labels
    )
    return tuple((key, zones) for key, zones in found if all(zones))


@lru_cache(maxsize=REACHES_MAX)
def _same(reach: VolumeTopology) -> VolumeTopology:
    """Return one object for equal ones."""
    return EVERYWHERE if reach == EVERYWHERE else reach


def csi_node(obj: CsiNodeObject) -> CsiNode:
    """Make a CsiNode. Raises: InvalidInputError with the field."""
    drivers = (obj.spec.drivers if obj.spec else None) or ()
    return CsiNode(
        name=checked(obj.metadata.name, "metadata.name"),
        limits={one.name: one.allocatable.count if one.allocatable else None for one in drivers},
    )
