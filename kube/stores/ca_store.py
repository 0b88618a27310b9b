"""Read and write a webhook's certificates: the Secret with the CA, and the caBundles.

The caBundles are in a MutatingWebhookConfiguration.
"""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from core.model.errors import ConflictError, UnavailableError
from kube.client import ApiError, Client

REGISTRATIONS: Final = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"


@dataclass(frozen=True, slots=True)
class Secret:
    """The decoded data and the annotations of a Secret, and the whole object as read."""

    data: Mapping[str, bytes]
    annotations: Mapping[str, str]
    whole: Mapping[str, Any]
    """The object as read, for a write that preserves all other fields."""


class SecretStore:
    """Reads and writes one Secret at the API server."""

    # The manifests create the Secret. RBAC lets the webhook update this Secret by name; a
    # permission to create Secrets could not be limited to a name.

    def __init__(self, client: Client, namespace: str, name: str) -> None:
        self._client = client
        self._path = f"/api/v1/namespaces/{namespace}/secrets/{name}"
        self._name = f"{namespace}/{name}"

    async def read(self) -> Secret:
        """Return the Secret. Raises: UnavailableError, also if the Secret does not exist."""
        raw = await self._client.find(self._path)
        if raw is None:
            problem = "does not exist: apply Ebb's manifests again, or set `webhook.certDir`"
            raise UnavailableError(f"Secret {self._name} {problem}")
        return _secret(raw)

    async def write(
        self, read: Secret, data: Mapping[str, bytes], annotations: Mapping[str, str]
    ) -> Secret:
        """Replace the data and annotations of a Secret, and return the Secret as stored.

        *read*: the Secret as read before; its other fields are written back. Raises: ConflictError
        if the Secret has changed since it was read; UnavailableError.
        """
        written = {name: base64.b64encode(value).decode() for name, value in data.items()}
        metadata = {**read.whole["metadata"], "annotations": dict(annotations)}
        body = {**read.whole, "data": written, "metadata": metadata}
        return _secret(await self._client.ask("PUT", self._path, body))


@dataclass(frozen=True, slots=True)
class Registered:
    """A MutatingWebhookConfiguration as read, with the caBundles of its webhooks."""

    bundles: list[bytes]
    """The caBundle of each webhook."""
    whole: Mapping[str, Any]
    """The object as read."""


class Registration:
    """Reads one MutatingWebhookConfiguration, and writes its caBundles."""

    def __init__(self, client: Client, name: str) -> None:
        self._client, self._path = client, f"{REGISTRATIONS}/{name}"

    async def read(self) -> Registered | None:
        """Return the configuration, or None if it does not exist. Raises: UnavailableError."""
        raw = await self._client.find(self._path)
        if raw is None:
            return None
        configuration = _object(raw)
        webhooks = configuration.get("webhooks") or ()
        clients = (webhook.get("clientConfig") or {} for webhook in webhooks)
        bundles = [_decoded(client.get("caBundle") or "") for client in clients]
        return Registered(bundles, configuration)

    async def write(self, read: Registered, wanted: bytes) -> None:
        """Write the caBundle *wanted*, certificates in PEM, to every webhook.

        *read*: the configuration as read before. Raises: ConflictError if it has been changed or
        deleted since it was read; UnavailableError.
        """
        text = base64.b64encode(wanted).decode()
        webhooks = [
            {**webhook, "clientConfig": {**(webhook.get("clientConfig") or {}), "caBundle": text}}
            for webhook in read.whole.get("webhooks") or ()
        ]
        metadata = {"resourceVersion": read.whole["metadata"]["resourceVersion"]}
        body = {"metadata": metadata, "webhooks": webhooks}
        try:
            await self._client.ask("PATCH", self._path, body)
        except ApiError as fault:
            if fault.status == 404:
                problem = "the MutatingWebhookConfiguration has been deleted"
                raise ConflictError(problem) from fault
            raise


def _secret(raw: bytes) -> Secret:
    secret = _object(raw)
    data = {name: _decoded(value or "") for name, value in (secret.get("data") or {}).items()}
    return Secret(data, secret["metadata"].get("annotations") or {}, secret)


def _object(raw: bytes) -> dict[str, Any]:
    try:
        obj: dict[str, Any] = orjson.loads(raw)
        obj["metadata"]["resourceVersion"]
    except (orjson.JSONDecodeError, KeyError, TypeError) as fault:
        raise UnavailableError(f"API server: the answer is not an object: {fault}") from fault
    return obj


def _decoded(text: str) -> bytes:
    """Decode base64. Invalid base64 is returned as it is, and fails as a certificate or key."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return text.encode()
