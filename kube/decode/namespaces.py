"""Decode Namespaces into core.cluster.namespaces; errors name the field."""

from typing import Annotated

import msgspec

from core.cluster.namespaces import Namespace
from kube.decode import templates
from kube.decode.field_decoding import NULL, shared_name
from kube.decode.objects import TEXTS, Name, Struct


class NamespaceMeta(Name):
    labels: Annotated[msgspec.Raw, TEXTS] = NULL


class NamespaceObject(Struct):
    metadata: NamespaceMeta


def namespace(obj: NamespaceObject) -> Namespace:
    """Convert a Namespace to the model. Raises: InvalidInputError with the field."""
    labels = templates.labels(bytes(obj.metadata.labels))
    return Namespace(
        name=shared_name(obj.metadata.name, "metadata.name"),
        labels=None if labels is templates.TOO_MANY_LABELS else labels,
    )
