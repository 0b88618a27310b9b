"""Decode VolumeAttachments into core.cluster.volumes; errors name the field.

kube-scheduler also counts a VolumeAttachment whose volume is not attached yet or is being
detached, so the status is not read.
"""

from core.cluster.volumes import Attachment
from kube.decode.fields import ApiName, checked, shared
from kube.decode.objects import Name, Struct


class AttachmentSource(Struct):
    """The volume; an inline volume of a pod has no name, and kube-scheduler does not count it."""

    persistent_volume_name: ApiName | None = None


class AttachmentSpec(Struct):
    attacher: ApiName = ""
    node_name: ApiName = ""
    source: AttachmentSource | None = None


class AttachmentObject(Struct):
    metadata: Name
    spec: AttachmentSpec | None = None


def attachment(obj: AttachmentObject) -> Attachment:
    """Create an Attachment; missing fields are empty. Raises: InvalidInputError."""
    spec = obj.spec or AttachmentSpec()
    volume = (spec.source and spec.source.persistent_volume_name) or ""
    return Attachment(
        name=checked(obj.metadata.name, "metadata.name"),
        driver=spec.attacher and shared(spec.attacher, "spec.attacher"),
        node=spec.node_name and shared(spec.node_name, "spec.nodeName"),
        volume=volume and checked(volume, "spec.source.persistentVolumeName"),
    )
