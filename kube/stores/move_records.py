"""Read and write the ConfigMap with the records of surge moves. Source: k8s.io/api core/v1."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from core.model.errors import ConflictError
from core.moves.records import CONFIG_MAP
from kube.client import ApiError, Client, answered

CALL_SECONDS_MAX: Final = 10.0


def read_access(namespace: str) -> Mapping[str, str]:
    """Return the resourceAttributes of an access review: read the ConfigMap of surge moves."""
    return {
        "verb": "get",
        "resource": "configmaps",
        "namespace": namespace,
        "name": CONFIG_MAP,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRecords:
    """The ConfigMap with the records of surge moves, as read or written."""

    data: Mapping[str, str]
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Metadata with the resourceVersion. Labels and annotations of others are written back."""


class MoveRecordStore:
    """Reads and writes the ConfigMap `ebb-moves`; the component surge of manifests/ creates it."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self.key = f"{namespace}/{CONFIG_MAP}"
        self._path = f"/api/v1/namespaces/{namespace}/configmaps/{CONFIG_MAP}"

    async def read(self) -> StoredRecords | None:
        """Return the ConfigMap; None if it does not exist. Raises: UnavailableError."""
        raw = await self._client.find(self._path, seconds_max=CALL_SECONDS_MAX, tries_max=1)
        return None if raw is None else _stored(raw)

    async def write(self, before: StoredRecords, data: Mapping[str, str]) -> StoredRecords:
        """Replace the data of the ConfigMap, and return the ConfigMap as stored.

        *before*: the ConfigMap as read before; its metadata is written back. Raises: ConflictError
        if the ConfigMap has changed or does not exist any more; UnavailableError.
        """
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": dict(before.metadata),
            "data": dict(data),
        }
        try:
            raw = await self._client.ask(
                "PUT", self._path, body, seconds_max=CALL_SECONDS_MAX, tries_max=1
            )
        except ApiError as fault:
            if fault.status == 404:
                raise ConflictError(f"the ConfigMap {self.key} has been deleted") from fault
            raise
        return _stored(raw)


class _ConfigMap(msgspec.Struct):
    metadata: dict[str, Any]
    data: dict[str, str] | None = None


_DECODER: Final = msgspec.json.Decoder(_ConfigMap)


def _stored(raw: bytes) -> StoredRecords:
    config_map = answered(_DECODER, raw)
    metadata = {
        name: value for name, value in config_map.metadata.items() if name != "managedFields"
    }
    return StoredRecords(data=config_map.data or {}, metadata=metadata)
