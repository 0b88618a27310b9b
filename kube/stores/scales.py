"""Read and write the replicas of Deployments by their subresource `scale`.

Source: k8s.io/api autoscaling/v1.
"""

from typing import Final, NamedTuple

import msgspec

from core.model.errors import ConflictError
from kube.client import ApiError, Client, answered
from kube.decode.objects import Meta, Struct

CALL_SECONDS_MAX: Final = 10.0


class Scale(NamedTuple):
    """The number of replicas of a Deployment, with its UID and resourceVersion."""

    uid: str
    version: str
    """resourceVersion of the Deployment."""
    replicas: int


class ScaleStore:
    """Reads and writes the replicas of Deployments at the API server."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def read(self, namespace: str, name: str) -> Scale | None:
        """Return the scale of a Deployment, or None if it does not exist.

        Raises: UnavailableError.
        """
        raw = await self._client.find(_path(namespace, name), seconds_max=CALL_SECONDS_MAX)
        return None if raw is None else _decoded(raw)

    async def write(self, namespace: str, name: str, version: str, replicas: int) -> Scale:
        """Set the replicas of a Deployment if it still has the resourceVersion *version*.

        Returns: the scale as stored. Raises: ConflictError if the Deployment has changed or does
        not exist, UnavailableError.
        """
        patch = {"metadata": {"resourceVersion": version}, "spec": {"replicas": replicas}}
        try:
            raw = await self._client.ask(
                "PATCH",
                _path(namespace, name),
                patch,
                seconds_max=CALL_SECONDS_MAX,
                tries_max=1,
            )
        except ApiError as fault:
            if fault.status == 404:
                raise ConflictError(str(fault)) from fault
            raise
        return _decoded(raw)


def _path(namespace: str, name: str) -> str:
    return f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale"


class _Spec(Struct):
    replicas: int | None = None


class _Scale(Struct):
    metadata: Meta
    spec: _Spec = msgspec.field(default_factory=_Spec)


_DECODER: Final = msgspec.json.Decoder(_Scale)


def _decoded(raw: bytes) -> Scale:
    decoded = answered(_DECODER, raw)
    meta = decoded.metadata
    # The API server omits 0.
    return Scale(meta.uid, meta.resource_version, decoded.spec.replicas or 0)
