"""One Pod at a time: read with its resourceVersion, and merge-patched."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from core.edge.decode import decode
from core.edge.kube.client import ApiError, Client
from core.edge.kube.wire import VersionedPod, strictly
from core.errors import ConflictError, InvalidInputError, UnavailableError
from core.model.pod import Pod

_DECODER: Final = msgspec.json.Decoder(VersionedPod)


class PodStore:
    """Pods by namespace and name."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def get_pod(self, namespace: str, name: str) -> tuple[Pod, str] | None:
        """Return a Pod and its resourceVersion; None when it has finished or is gone.

        Raises: UnavailableError.
        """
        try:
            raw = await self._client.ask("GET", _path(namespace, name))
        except ApiError as fault:
            if fault.status == 404:
                return None
            raise
        found: VersionedPod = strictly(_DECODER, raw)
        try:
            pod = decode.pod_of(found)
        except InvalidInputError as fault:
            raise UnavailableError(f"API server: {fault}") from fault
        return None if pod is None else (pod, found.metadata.resource_version)

    async def patch_pod(self, namespace: str, name: str, patch: Mapping[str, Any]) -> None:
        """Merge-patch a Pod.

        Raises: ConflictError when it has changed or is gone, UnavailableError.
        """
        try:
            await self._client.ask("PATCH", _path(namespace, name), patch)
        except ApiError as fault:
            if fault.status == 404:
                raise ConflictError(str(fault)) from fault
            raise


def _path(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods/{name}"
