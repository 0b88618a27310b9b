"""Read and write a ConfigMap whose content is one packed value. Source: k8s.io/api core/v1."""

import base64
import binascii
from typing import Final, NamedTuple

import msgspec

from core.model.errors import ConflictError
from kube.client import ApiError, Client, answered
from kube.decode.objects import Meta, Struct

KEY: Final = "packed"
"""Key of the value in `binaryData`."""
CALL_SECONDS_MAX: Final = 10.0


class Packed(NamedTuple):
    """The packed content of a ConfigMap, and its resourceVersion."""

    content: bytes
    """Empty if there is none, or if it is no base64."""
    version: str


class PackedConfigMap:
    """Reads and writes one ConfigMap; manifests/ creates it without content.

    RBAC can limit a permission to this ConfigMap, but not the permission to create it.
    """

    def __init__(self, client: Client, namespace: str, name: str) -> None:
        self._client, self.key = client, f"{namespace}/{name}"
        self._path = f"/api/v1/namespaces/{namespace}/configmaps/{name}"

    async def read(self) -> Packed | None:
        """Return the content; None if there is no ConfigMap. Raises: UnavailableError."""
        raw = await self._client.find(self._path, seconds_max=CALL_SECONDS_MAX, tries_max=1)
        return None if raw is None else _packed(raw)

    async def write(self, content: bytes, version: str) -> Packed:
        """Replace the content, and return it as stored; an empty one is removed.

        Raises: ConflictError if the ConfigMap does not have the resourceVersion *version* any more
        or does not exist; UnavailableError.
        """
        # A patch leaves the metadata alone, which belongs to whoever has applied the ConfigMap.
        value = base64.b64encode(content).decode() if content else None
        patch = {"metadata": {"resourceVersion": version}, "binaryData": {KEY: value}}
        try:
            raw = await self._client.ask(
                "PATCH", self._path, patch, seconds_max=CALL_SECONDS_MAX, tries_max=1
            )
        except ApiError as fault:
            if fault.status == 404:
                raise ConflictError(f"the ConfigMap {self.key} has been deleted") from fault
            raise
        return _packed(raw)


class _ConfigMap(Struct):
    metadata: Meta
    binary_data: dict[str, str] | None = None


_DECODER: Final = msgspec.json.Decoder(_ConfigMap)


def _packed(raw: bytes) -> Packed:
    config_map = answered(_DECODER, raw)
    value = (config_map.binary_data or {}).get(KEY, "")
    try:
        content = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        content = b""
    return Packed(content, config_map.metadata.resource_version)
