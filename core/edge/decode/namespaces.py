"""Decode Namespaces into core.model.namespaces; errors name the field."""

import msgspec

from core.edge.decode import templates
from core.edge.decode.fields import shared
from core.edge.decode.objects import NULL, Name, Struct
from core.model.namespaces import Namespace


class NamespaceMeta(Name):
    labels: msgspec.Raw = NULL


class NamespaceObject(Struct):
    metadata: NamespaceMeta


def namespace(obj: NamespaceObject) -> Namespace:
    """Create a Namespace. Raises: InvalidInputError with the field."""
    labels = templates.labels(bytes(obj.metadata.labels))
    return Namespace(
        name=shared(obj.metadata.name, "metadata.name"),
        labels=None if labels is templates.TOO_MANY_LABELS else labels,
    )
