"""Decode DeviceClasses into core.cluster.devices; errors name the field."""

from core.cluster.devices import DeviceClass
from kube.decode.field_decoding import ApiName, checked_name, shared_name
from kube.decode.objects import Name, Struct


class DeviceClassSpec(Struct):
    """The part of a DeviceClass that Ebb reads; its selectors need the devices of nodes."""

    extended_resource_name: ApiName | None = None


class DeviceClassObject(Struct):
    """A DeviceClass (resource.k8s.io/v1, from 1.34)."""

    metadata: Name
    spec: DeviceClassSpec | None = None


def device_class(obj: DeviceClassObject) -> DeviceClass:
    """Convert a DeviceClass, with its extended resource name.

    Raises: InvalidInputError with the invalid field.
    """
    resource = (obj.spec or DeviceClassSpec()).extended_resource_name
    return DeviceClass(
        name=checked_name(obj.metadata.name, "metadata.name"),
        resource=shared_name(resource, "spec.extendedResourceName") if resource else "",
    )
