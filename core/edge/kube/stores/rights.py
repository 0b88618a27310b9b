"""What this program may do, in any namespace. Source: k8s.io/api authorization/v1."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from core.edge.kube.client import Client, answered

REVIEW_PATH: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"

Right = Mapping[str, str]
"""The resourceAttributes that are asked about; without a namespace: in every one."""
EVICT_PODS: Final[Right] = MappingProxyType(
    {"verb": "create", "resource": "pods", "subresource": "eviction"}
)
PATCH_PODS: Final[Right] = MappingProxyType({"verb": "patch", "resource": "pods"})


class _Status(msgspec.Struct):
    allowed: bool = False


class _Review(msgspec.Struct):
    status: _Status = msgspec.field(default_factory=_Status)


_DECODER: Final = msgspec.json.Decoder(_Review)


async def is_allowed(client: Client, right: Right) -> bool:
    """Ask whether this program has a right. Raises: UnavailableError."""
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": dict(right)},
    }
    return answered(_DECODER, await client.ask("POST", REVIEW_PATH, review)).status.allowed
