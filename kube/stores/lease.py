"""Read and write a Lease of coordination.k8s.io.

Times are RFC 3339 in UTC with six digits of microseconds. Source: k8s.io/api/coordination/v1.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from core.model.errors import ConflictError
from kube.client import ApiError, Client, answered
from kube.decode.objects import Meta, Struct

API_VERSION: Final = "coordination.k8s.io/v1"
TRANSITIONS_MAX: Final = 2**31 - 1
"""Maximum of leaseTransitions, an int32 in the API."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A Lease of coordination.k8s.io, as read or to be written."""

    holder: str = ""
    """Identity of the holder; empty if the Lease is free."""
    duration_seconds: int = 1
    """Time after a renewal for which the Lease is held."""
    acquired: str = ""
    renewed: str = ""
    transitions: int = 0
    """Number of changes of the holder."""
    version: str = ""
    """The resourceVersion that was read; empty for a Lease to create."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels as read; a write preserves them."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    """Annotations as read; a write preserves them."""


class LeaseStore:
    """Reads and writes one Lease at the API server."""

    # A throttled call fails at once: the elector has its own schedule of retries.

    def __init__(self, client: Client, namespace: str, name: str, call_seconds_max: float) -> None:
        self._client, self._namespace, self._name = client, namespace, name
        self._seconds = call_seconds_max
        self._path = f"/apis/{API_VERSION}/namespaces/{namespace}/leases"

    async def read(self) -> Lease | None:
        """Return the Lease, or None if it does not exist. Raises: UnavailableError."""
        path = f"{self._path}/{self._name}"
        raw = await self._client.find(path, seconds_max=self._seconds, tries_max=1)
        return None if raw is None else _decoded(raw)

    async def write(self, lease: Lease) -> Lease:
        """Create a Lease, or replace the version that was read; return the Lease as stored.

        *lease*: without `version` it is created. Raises: ConflictError if the Lease has been
        changed, created or deleted since it was read; UnavailableError.
        """
        metadata: dict[str, Any] = {
            "name": self._name,
            "namespace": self._namespace,
            "labels": dict(lease.labels),
            "annotations": dict(lease.annotations),
        }
        method, path = "POST", self._path
        if lease.version:
            metadata["resourceVersion"] = lease.version
            method, path = "PUT", f"{self._path}/{self._name}"
        # All fields are set, so that the Lease is valid whatever another client has written to it.
        spec = {
            "holderIdentity": lease.holder,
            "leaseDurationSeconds": lease.duration_seconds,
            "acquireTime": lease.acquired or None,
            "renewTime": lease.renewed or None,
            "leaseTransitions": min(lease.transitions, TRANSITIONS_MAX),
        }
        body = {"apiVersion": API_VERSION, "kind": "Lease", "metadata": metadata, "spec": spec}
        ask = self._client.ask(method, path, body, seconds_max=self._seconds, tries_max=1)
        try:
            return _decoded(await ask)
        except ApiError as fault:
            if fault.status == 404 and lease.version:
                raise ConflictError(f"the Lease {self._name} has been deleted") from fault
            raise


class _Spec(Struct):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class _Meta(Meta):
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _Lease(Struct):
    metadata: _Meta
    spec: _Spec = msgspec.field(default_factory=_Spec)


_DECODER: Final = msgspec.json.Decoder(_Lease)


def _decoded(raw: bytes) -> Lease:
    decoded = answered(_DECODER, raw)
    spec = decoded.spec
    return Lease(
        holder=spec.holder_identity or "",
        duration_seconds=max(1, spec.lease_duration_seconds or 1),
        acquired=spec.acquire_time or "",
        renewed=spec.renew_time or "",
        transitions=spec.lease_transitions or 0,
        version=decoded.metadata.resource_version,
        labels=decoded.metadata.labels or {},
        annotations=decoded.metadata.annotations or {},
    )
