"""Decode PersistentVolumes, claims, StorageClasses, CSINodes and VolumeAttachments.

Errors name the field; the caller adds the object.
"""

from collections.abc import Mapping
from sys import intern
from typing import Annotated, Final

import msgspec

from core.cluster.volumes import (
    NO_PROVISIONER,
    Attachment,
    Claim,
    CsiNode,
    StorageClass,
    Volume,
)
from core.model.constraints import (
    EVERYWHERE,
    Disk,
    InlineDisk,
    Requirement,
    SelectorTerm,
    VolumeTopology,
)
from core.placement.filters import ZONE_LABELS
from kube.decode.byte_lru import ByteBoundedCache
from kube.decode.field_decoding import (
    NULL,
    ApiName,
    BoundedField,
    check_memory,
    checked_name,
    shared_name,
)
from kube.decode.in_tree import BETWEEN_ZONES, affinity_of, disk_of
from kube.decode.objects import (
    BLOCK_BYTES_MAX,
    InTreeSources,
    Meta,
    Name,
    NodeSelector,
    Present,
    Struct,
    keyed,
    set_keys,
)
from kube.decode.selectors import node_terms

BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
"""Annotation of a claim whose volume is bound permanently."""
BOUND: Final = "Bound"
SUPPORTED: Final = "csi, local, hostPath, nfs, iscsi, fc, rbd, cephfs, and in-tree cloud volumes"
HANDLE_MAX: Final = 4096
"""Maximum length of a volume handle; those of file shares have some hundred characters."""
KEPT_BYTES_MAX: Final = 50_000
"""Maximum memory that a volume or a CSINode takes; beyond it, the object is unreadable."""
SMALL_BYTES: Final = 3 * 1024
"""Size of a node affinity or a list of drivers in JSON up to which they always take less memory
than KEPT_BYTES_MAX."""


class ClaimOwner(Struct):
    controller: bool | None = None
    uid: ApiName = ""


OWNERS: Final = BoundedField[list[ClaimOwner]](list[ClaimOwner], items_max=1024)
MODES: Final = BoundedField[list[str]](list[str], bytes_max=1024)


class ClaimAnnotations(Struct):
    """The annotations of a PersistentVolumeClaim that Ebb reads."""

    bind_completed: str | None = keyed(BIND_COMPLETED)


class ClaimMeta(Meta):
    annotations: ClaimAnnotations | None = None
    owner_references: Annotated[msgspec.Raw, OWNERS] = NULL


class ClaimSpec(Struct):
    access_modes: Annotated[msgspec.Raw, MODES] = NULL
    volume_name: ApiName | None = None
    storage_class_name: ApiName | None = None


class ClaimStatus(Struct):
    phase: str = ""


class ClaimObject(Struct):
    metadata: ClaimMeta
    spec: ClaimSpec | None = None
    status: ClaimStatus | None = None


class CsiSource(Struct):
    driver: ApiName = ""
    volume_handle: Annotated[str, msgspec.Meta(max_length=HANDLE_MAX)] = ""


class VolumeAffinity(Struct):
    required: NodeSelector | None = None


AFFINITY: Final = BoundedField[VolumeAffinity](VolumeAffinity, bytes_max=BLOCK_BYTES_MAX)


class VolumeSpec(InTreeSources):
    """The spec of a PersistentVolume: its node affinity and its source."""

    node_affinity: Annotated[msgspec.Raw, AFFINITY] = NULL
    csi: CsiSource | None = None
    local: Present | None = None
    host_path: Present | None = None
    nfs: Present | None = None
    fc: Present | None = None
    azure_file: Present | None = None
    cephfs: Present | None = None


class VolumeLabels(Struct):
    """The zone and region labels of a PersistentVolume; Ebb reads no others."""

    zone: ApiName | None = keyed("topology.kubernetes.io/zone")
    region: ApiName | None = keyed("topology.kubernetes.io/region")
    older_zone: ApiName | None = keyed("failure-domain.beta.kubernetes.io/zone")
    older_region: ApiName | None = keyed("failure-domain.beta.kubernetes.io/region")


class VolumeMeta(Meta):
    labels: VolumeLabels | None = None


class VolumeObject(Struct):
    metadata: VolumeMeta
    spec: VolumeSpec = msgspec.field(default_factory=VolumeSpec)


class TopologyExpression(Struct):
    key: str = ""
    values: list[str] | None = None


class TopologyTerm(Struct):
    match_label_expressions: list[TopologyExpression] | None = None


TOPOLOGIES: Final = BoundedField[list[TopologyTerm]](list[TopologyTerm], bytes_max=BLOCK_BYTES_MAX)


class StorageClassObject(Struct):
    metadata: Name
    provisioner: ApiName = ""
    allowed_topologies: Annotated[msgspec.Raw, TOPOLOGIES] = NULL


class Allocatable(Struct):
    """The maximum number of volumes of a CSI driver on a node; `count` None: no limit."""

    count: int | None = None


class Driver(Struct):
    name: ApiName = ""
    allocatable: Allocatable | None = None


DRIVERS: Final = BoundedField[list[Driver]](list[Driver], bytes_max=BLOCK_BYTES_MAX)


class CsiNodeSpec(Struct):
    drivers: Annotated[msgspec.Raw, DRIVERS] = NULL


class CsiNodeObject(Struct):
    metadata: Meta
    spec: CsiNodeSpec | None = None


class AttachmentSource(Struct):
    """The volume of a VolumeAttachment.

    An inline volume of a pod has no name here, and kube-scheduler does not count it.
    """

    persistent_volume_name: ApiName | None = None


class AttachmentSpec(Struct):
    attacher: ApiName = ""
    node_name: ApiName = ""
    source: AttachmentSource | None = None


class AttachmentObject(Struct):
    metadata: Name
    spec: AttachmentSpec | None = None


_TOPOLOGIES: Final = ByteBoundedCache[VolumeTopology, VolumeTopology]()
"""Shared objects for equal topologies."""


def claim(obj: ClaimObject) -> Claim:
    """Convert a PersistentVolumeClaim to a Claim; its volume is empty unless bound permanently.

    Raises: InvalidInputError with the invalid field.
    """
    meta, spec = obj.metadata, obj.spec or ClaimSpec()
    complete = meta.annotations is not None and meta.annotations.bind_completed is not None
    bound = complete and obj.status is not None and obj.status.phase == BOUND
    owners = OWNERS.decode(meta.owner_references, "metadata.ownerReferences") or ()
    owner = next((reference for reference in owners if reference.controller), None)
    modes = MODES.decode(spec.access_modes, "spec.accessModes") or ()
    return Claim(
        namespace=checked_name(meta.namespace or "default", "metadata.namespace"),
        name=checked_name(meta.name, "metadata.name"),
        volume=(spec.volume_name or "") if bound else "",
        modes=tuple(sorted(map(intern, set(modes)))),
        deleting=meta.deletion_timestamp is not None,
        storage_class=spec.storage_class_name or "",
        owner_uid=owner.uid if owner else "",
    )


def volume(obj: VolumeObject) -> Volume:
    """Convert a PersistentVolume to a Volume, with the nodes that can access it.

    Raises: InvalidInputError with the invalid field.
    """
    spec, labels = obj.spec, set_keys(obj.metadata.labels or VolumeLabels())
    affinity = AFFINITY.decode(spec.node_affinity, "spec.nodeAffinity")
    required = affinity.required if affinity else None
    terms = None if required is None else node_terms(required)
    reach = VolumeTopology(affinity=affinity_of(spec, terms, labels), zones=_zones(labels))
    size = len(spec.node_affinity)
    if size > SMALL_BYTES:
        check_memory(reach, KEPT_BYTES_MAX)
    in_tree = None if spec.csi else disk_of(spec, labels)
    disk = Disk(spec.csi.driver, spec.csi.volume_handle) if spec.csi else None
    if in_tree is not None and not in_tree.fault:
        disk = Disk(in_tree.driver, in_tree.handle)
    return Volume(
        name=checked_name(obj.metadata.name, "metadata.name"),
        disk=disk,
        reach=_TOPOLOGIES.same(reach, size) if reach != EVERYWHERE else EVERYWHERE,
        fault=_fault(spec, reach, in_tree),
    )


def _fault(spec: VolumeSpec, reach: VolumeTopology, in_tree: InlineDisk | None) -> str:
    """Return why Ebb cannot tell where a PersistentVolume can be used; empty if it can.

    *reach*: the nodes that can access the volume. *in_tree*: its disk without a CSI driver.
    """
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
    """Return key and zones of each zone label of a PersistentVolume, sorted.

    Like kube-scheduler, it ignores a label with an empty zone.
    """
    zones_by_key = (
        (key, tuple(sorted({zone.strip() for zone in labels[key].split(BETWEEN_ZONES)})))
        for key in sorted(ZONE_LABELS)
        if key in labels
    )
    return tuple((key, zones) for key, zones in zones_by_key if all(zones))


def storage_class(obj: StorageClassObject) -> StorageClass:
    """Convert a StorageClass: the nodes for which it provides new volumes.

    Raises: InvalidInputError with the invalid field.
    """
    terms = TOPOLOGIES.decode(obj.allowed_topologies, "allowedTopologies")
    reach = EVERYWHERE if not terms else VolumeTopology(affinity=tuple(map(_term, terms)))
    if terms:
        check_memory(reach, KEPT_BYTES_MAX)  # a cluster has few classes
    return StorageClass(
        name=checked_name(obj.metadata.name, "metadata.name"),
        reach=reach,
        provides=obj.provisioner != NO_PROVISIONER,
    )


def _term(term: TopologyTerm) -> SelectorTerm:
    expressions = term.match_label_expressions or ()
    requirements = (
        Requirement(one.key, "In", tuple(sorted(set(one.values or ())))) for one in expressions
    )
    return SelectorTerm(tuple(sorted(requirements, key=repr)))


def csi_node(obj: CsiNodeObject) -> CsiNode:
    """Convert a CSINode to the attach limits of its drivers.

    Raises: InvalidInputError with the invalid field.
    """
    raw = obj.spec.drivers if obj.spec else NULL
    drivers = DRIVERS.decode(raw, "spec.drivers") or ()
    result = CsiNode(
        name=checked_name(obj.metadata.name, "metadata.name"),
        limits={
            driver.name: driver.allocatable.count if driver.allocatable else None
            for driver in drivers
        },
    )
    if len(raw) > SMALL_BYTES:
        check_memory(result, KEPT_BYTES_MAX)
    return result


def attachment(obj: AttachmentObject) -> Attachment:
    """Convert a VolumeAttachment to an Attachment; missing fields are empty.

    Raises: InvalidInputError with the invalid field.
    """
    # kube-scheduler also counts a VolumeAttachment whose volume is not attached yet or is being
    # detached, so the status is not read.
    spec = obj.spec or AttachmentSpec()
    volume = (spec.source and spec.source.persistent_volume_name) or ""
    return Attachment(
        name=checked_name(obj.metadata.name, "metadata.name"),
        driver=spec.attacher and shared_name(spec.attacher, "spec.attacher"),
        node=spec.node_name and shared_name(spec.node_name, "spec.nodeName"),
        volume=volume and checked_name(volume, "spec.source.persistentVolumeName"),
    )
