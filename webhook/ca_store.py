"""Where the API server keeps what it needs to trust the webhook: a Secret and a registration."""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from core.edge.kube.client import ApiError, Client
from core.model.errors import ConflictError, UnavailableError

REGISTRATIONS: Final = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"


@dataclass(frozen=True, slots=True)
class Secret:
    """A Secret's data and annotations; the object it was read from goes back with them."""

    data: Mapping[str, bytes]
    annotations: Mapping[str, str]
    whole: Mapping[str, Any]


class SecretStore:
    """One Secret, which is there before the program: its right is to change it, not to make it."""

    def __init__(self, client: Client, namespace: str, name: str) -> None:
        self._client = client
        self._path = f"/api/v1/namespaces/{namespace}/secrets/{name}"
        self._name = f"{namespace}/{name}"

    async def read(self) -> Secret:
        """Return it. Raises: UnavailableError, with what to do when there is none."""
        raw = await self._client.find(self._path)
        if raw is None:
            problem = "is not there: apply manifests/, or set webhook.certFile and keyFile"
            raise UnavailableError(f"Secret {self._name} {problem}")
        return _secret(raw)

    async def write(
        self, read: Secret, data: Mapping[str, bytes], annotations: Mapping[str, str]
    ) -> Secret:
        """Replace what was read. Raises: ConflictError when somebody was faster."""
        written = {name: base64.b64encode(value).decode() for name, value in data.items()}
        metadata = {**read.whole["metadata"], "annotations": dict(annotations)}
        body = {**read.whole, "data": written, "metadata": metadata}
        return _secret(await self._client.ask("PUT", self._path, body))


@dataclass(frozen=True, slots=True)
class Registered:
    """The caBundle of each webhook, and the object that they were read from."""

    bundles: list[bytes]
    whole: Mapping[str, Any]


class Registration:
    """One MutatingWebhookConfiguration, of which only the caBundles are ours."""

    def __init__(self, client: Client, name: str) -> None:
        self._client, self._path = client, f"{REGISTRATIONS}/{name}"

    async def read(self) -> Registered | None:
        """Return the registration, or None if there is none. Raises: UnavailableError."""
        raw = await self._client.find(self._path)
        if raw is None:
            return None
        found = _object(raw)
        return Registered(_bundles(found), found)

    async def write(self, read: Registered, wanted: bytes) -> None:
        """Give every webhook this caBundle, on the version that was read.

        Raises: ConflictError when somebody else has changed or deleted the registration.
        """
        text = base64.b64encode(wanted).decode()
        webhooks = [
            {**one, "clientConfig": {**(one.get("clientConfig") or {}), "caBundle": text}}
            for one in read.whole.get("webhooks") or ()
        ]
        metadata = {"resourceVersion": read.whole["metadata"]["resourceVersion"]}
        body = {"metadata": metadata, "webhooks": webhooks}
        try:
            await self._client.ask("PATCH", self._path, body)
        except ApiError as fault:
            if fault.status == 404:
                raise ConflictError("the webhook's registration has been deleted") from fault
            raise


def _bundles(found: Mapping[str, Any]) -> list[bytes]:
    clients = (webhook.get("clientConfig") or {} for webhook in found.get("webhooks") or ())
    return [_decoded(client.get("caBundle") or "") for client in clients]


def _secret(raw: bytes) -> Secret:
    found = _object(raw)
    data = {name: _decoded(value or "") for name, value in (found.get("data") or {}).items()}
    return Secret(data, found["metadata"].get("annotations") or {}, found)


def _object(raw: bytes) -> dict[str, Any]:
    try:
        found: dict[str, Any] = orjson.loads(raw)
        found["metadata"]["resourceVersion"]
    except (orjson.JSONDecodeError, KeyError, TypeError) as fault:
        raise UnavailableError(f"API server: not an object: {fault}") from fault
    return found


def _decoded(text: str) -> bytes:
    """Return the bytes, or what is not base64 as it is: whoever asks finds that it is garbage."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return text.encode()
