"""Find the CSI driver and disk of in-tree volumes (without a CSI driver), as kube-scheduler does.

Source: k8s.io/csi-translation-lib; NodeVolumeLimits, VolumeBinding and VolumeRestrictions of
kube-scheduler. Ebb is stricter in one case: vSphere volumes count too, because kubelets also mount
them through the CSI driver.
"""

import re
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Final

from core.model.constraints import InlineDisk, Requirement, SelectorTerm
from kube.decode.objects import InTreeSource, InTreeSources

HANDLE_CHARS_MAX: Final = 1024
"""Maximum length of the name of a disk; longer names are a fault."""
BETWEEN_ZONES: Final = "__"
"""Separator between the zones in the zone label of a volume."""
ZONE: Final = "topology.kubernetes.io/zone"
REGION: Final = "topology.kubernetes.io/region"
BETA_ZONE: Final = "failure-domain.beta.kubernetes.io/zone"
BETA_REGION: Final = "failure-domain.beta.kubernetes.io/region"
NOWHERE: Final = "UNSPECIFIED"
ZONE_PARTS: Final = 3
"""Number of parts in the name of a Google Cloud zone, such as europe-west1-b."""
_EBS_PREFIX: Final = "aws://"
_EBS_VOLUME: Final = re.compile(r"vol-[^/]*")
_NO_LABELS: Final[Mapping[str, str]] = {}


def disk_of(volume: InTreeSources, labels: Mapping[str, str] = _NO_LABELS) -> InlineDisk | None:
    """Return the disk of an in-tree volume that a CSI driver serves; None for other volumes.

    *labels*: labels of the PersistentVolume; empty for a volume in a pod spec.
    """
    sources = _sources(volume)
    if sources == _NO_SOURCES:  # as for most volumes
        return None
    return next(
        _disk(driver, source, handle_of(source, labels))
        for source, (driver, handle_of) in zip(sources, _DRIVERS.values(), strict=True)
        if source is not None
    )


def mount_of(volume: InTreeSources) -> InlineDisk | None:
    """Return the iSCSI or RBD disk of a volume, or None if it has neither.

    No CSI driver serves such a disk, but kube-scheduler places no two pods that share it on one
    node, unless both only read it.
    """
    if iscsi := volume.iscsi:
        return _disk("iscsi", iscsi, iscsi.iqn, counted=False)
    if rbd := volume.rbd:
        # kube-scheduler also compares the monitors. Without them, two disks may count as one.
        return _disk("rbd", rbd, f"{rbd.pool or 'rbd'}/{rbd.image or ''}", counted=False)
    return None


def affinity_of(
    volume: InTreeSources, terms: tuple[SelectorTerm, ...] | None, labels: Mapping[str, str]
) -> tuple[SelectorTerm, ...] | None:
    """Return the required node affinity of a PersistentVolume, limited to the zones of its disk.

    Only AWS, GCE and Cinder disks have zones. kube-scheduler replaces the zone label by the
    topology label of the CSI driver. A node has that label once the driver has registered there,
    and its value is the node's zone. So Ebb requires the zone.

    *terms*: the decoded node affinity; None if there is none. *labels*: labels of the
    PersistentVolume, which name its zones. Returns None if no affinity is required.
    """
    if not (volume.aws_elastic_block_store or volume.gce_persistent_disk or volume.cinder):
        return terms
    keys = {requirement.key for term in terms or () for requirement in term.labels}
    if ZONE in keys:
        return terms
    if BETA_ZONE in keys:
        newer = {BETA_ZONE: ZONE, BETA_REGION: REGION}
        return tuple(_renamed(term, newer) for term in terms or ())
    label = labels.get(ZONE) or labels.get(BETA_ZONE) or ""
    zones = sorted({zone.strip() for zone in label.split(BETWEEN_ZONES)} - {""})
    if not zones or terms == ():
        return terms
    within = Requirement(ZONE, "In", tuple(zones))
    return tuple(
        SelectorTerm((*term.labels, within), term.fields) for term in terms or (SelectorTerm(),)
    )


def _renamed(term: SelectorTerm, newer: Mapping[str, str]) -> SelectorTerm:
    labels = (
        Requirement(
            newer.get(requirement.key, requirement.key), requirement.operator, requirement.values
        )
        for requirement in term.labels
    )
    return SelectorTerm(tuple(labels), term.fields)


def _disk(
    driver: str, source: InTreeSource, handle: str | None, *, counted: bool = True
) -> InlineDisk:
    fault = ""
    if not handle or len(handle) > HANDLE_CHARS_MAX:
        fault, handle = f"has a missing or invalid ID for {driver}", ""
    return InlineDisk(driver, handle, bool(source.read_only), counted, fault)


def _azure_handle(source: InTreeSource) -> str | None:
    """Return the URI of a managed disk; None for other disks, which the driver does not serve."""
    return source.disk_uri if (source.kind or "managed").lower() == "managed" else None


def _ebs_handle(source: InTreeSource) -> str | None:
    """Return the ID of an EBS volume that is written as `vol-1` or `aws://zone/vol-1`.

    None if it is missing or has another form.
    """
    written = source.volume_id
    if written is None or not written.startswith(_EBS_PREFIX):
        return written
    volume = written.removeprefix(_EBS_PREFIX).partition("/")[2].strip("/")
    return volume if _EBS_VOLUME.fullmatch(volume) else None


def _gce_handle(source: InTreeSource, labels: Mapping[str, str]) -> str | None:
    """Return the CSI volume handle of a zonal or regional disk.

    None if its name is missing, or if the zones in its labels are not of one region.
    """
    name = source.pd_name
    zones = (labels.get(BETA_ZONE) or labels.get(ZONE) or "").split(BETWEEN_ZONES)
    if not name:
        return None
    if len(zones) == 1:
        return f"projects/{NOWHERE}/zones/{zones[0] or NOWHERE}/disks/{name}"
    regions = {
        "-".join(parts[:-1]) for zone in zones if len(parts := zone.split("-")) == ZONE_PARTS
    }
    malformed = any(zone.count("-") != ZONE_PARTS - 1 for zone in zones)
    return (
        None
        if malformed or len(regions) != 1
        else f"projects/{NOWHERE}/regions/{min(regions)}/disks/{name}"
    )


_DRIVERS: Final[
    Mapping[str, tuple[str, Callable[[InTreeSource, Mapping[str, str]], str | None]]]
] = {
    "aws_elastic_block_store": ("ebs.csi.aws.com", lambda source, _: _ebs_handle(source)),
    "gce_persistent_disk": ("pd.csi.storage.gke.io", _gce_handle),
    "azure_disk": ("disk.csi.azure.com", lambda source, _: _azure_handle(source)),
    "cinder": ("cinder.csi.openstack.org", lambda source, _: source.volume_id),
    "portworx_volume": ("pxd.portworx.com", lambda source, _: source.volume_id),
    "vsphere_volume": ("csi.vsphere.vmware.com", lambda source, _: source.volume_path),
}
"""CSI driver, and handle of the disk, by the field of InTreeSources."""
_sources: Final[Callable[[InTreeSources], tuple[InTreeSource | None, ...]]] = attrgetter(*_DRIVERS)
_NO_SOURCES: Final = (None,) * len(_DRIVERS)
