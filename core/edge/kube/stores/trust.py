"""Where the API server keeps what it needs to trust the webhook: a Secret and a registration."""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from core.edge.kube.client import Client
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


class Registration:
    """One MutatingWebhookConfiguration, of which only the caBundles are ours."""

    def __init__(self, client: Client, name: str) -> None:
        self._client, self._path = client, f"{REGISTRATIONS}/{name}"

    async def bundles(self) -> list[bytes] | None:
        """Return each webhook's caBundle; None when there is no registration."""
        found = await self._read()
        return None if found is None else _bundles(found)

    async def write(self, bundles: list[bytes], wanted: bytes) -> None:
        """Give every webhook this caBundle, if they still are *bundles*.

        Raises: ConflictError when somebody else has changed the registration.
        """
        found = await self._read()
        if found is None or _bundles(found) != bundles:
            raise ConflictError("the webhook's registration has changed")
        text = base64.b64encode(wanted).decode()
        webhooks = [
            {**one, "clientConfig": {**(one.get("clientConfig") or {}), "caBundle": text}}
            for one in found.get("webhooks") or ()
        ]
        metadata = {"resourceVersion": found["metadata"]["resourceVersion"]}
        await self._client.ask("PATCH", self._path, {"metadata": metadata, "webhooks": webhooks})

    async def _read(self) -> dict[str, Any] | None:
        raw = await self._client.find(self._path)
        return None if raw is None else _object(raw)


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
