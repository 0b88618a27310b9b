"""Decode Namespaces into core.cluster.namespaces; errors name the field."""

from typing import Annotated

import msgspec

from core.cluster.namespaces import Namespace
from core.marks.wellknown import KEEP_ANNOTATION
from kube.decode import templates
from kube.decode.field_decoding import NULL, shared_name
from kube.decode.objects import TEXTS, Name, Struct, keyed


class NamespaceAnnotations(Struct):
    keep: str | None = keyed(KEEP_ANNOTATION)


class NamespaceMeta(Name):
    labels: Annotated[msgspec.Raw, TEXTS] = NULL
    annotations: NamespaceAnnotations | None = None


class NamespaceObject(Struct):
    metadata: NamespaceMeta


def namespace(obj: NamespaceObject) -> Namespace:
    """Convert a Namespace; its labels are None if they exceed Ebb's limits.

    Raises: InvalidInputError with the invalid field.
    """
    labels, annotations = templates.labels(bytes(obj.metadata.labels)), obj.metadata.annotations
    return Namespace(
        name=shared_name(obj.metadata.name, "metadata.name"),
        labels=None if labels is templates.TOO_MANY_LABELS else labels,
        kept=annotations is not None and annotations.keep == "true",
    )
