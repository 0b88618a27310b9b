"""The CapacityBuffers and PodTemplates that Ebb has written, in one namespace."""

from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec

from core.edge.decode.kinds import BUFFERS, TEMPLATES, in_namespace
from core.edge.decode.objects import Name
from core.edge.kube.client import ApiError, Client, answered
from core.edge.kube.listing import ABOUT, ABSENT, Page
from core.marks.wellknown import BUFFER_OURS_LABEL
from core.model.errors import InvalidInputError
from core.writes.capacity_buffers import Act, Alike, Change, Found, Standing

CALL_SECONDS_MAX: Final = 5.0
PAGES_MAX: Final = 20
"""Of a list; what is beyond is not looked at."""
OURS: Final = {
    "app.kubernetes.io/name": "ebb",
    "app.kubernetes.io/managed-by": "ebb-controller",
    BUFFER_OURS_LABEL: "",
}


class _Spec(msgspec.Struct):
    replicas: int | None = None


class _Buffer(msgspec.Struct):
    metadata: Name
    spec: _Spec | None = None


_BUFFERS: Final = msgspec.json.Decoder(Page[_Buffer])
_TEMPLATES: Final = msgspec.json.Decoder(Page[msgspec.Raw])
Item = TypeVar("Item")


class PublishedStore:
    """The API server's; which version of the API it serves is seen when it is listed."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client, self._namespace = client, namespace
        self._buffers = in_namespace(BUFFERS.path, namespace)
        self._templates = in_namespace(TEMPLATES.path, namespace)

    async def found(self) -> Found:
        """Return what of Ebb's is there. Raises: UnavailableError."""
        buffers = None
        for path in BUFFERS.paths:
            if buffers is None:
                self._buffers = in_namespace(path, self._namespace)
                buffers = await self._list(self._buffers, _BUFFERS)
        templates = await self._list(self._templates, _TEMPLATES)
        return Found(
            {one.metadata.name: _standing(one) for one in buffers or ()},
            {answered(ABOUT, one).metadata.name: _alike(one) for one in templates or ()},
            absent=buffers is None or templates is None,
        )

    async def carry_out(self, change: Change) -> None:
        """Write. Raises: ConflictError when somebody was faster, UnavailableError."""
        match change.act:
            case Act.ADD_TEMPLATE:
                metadata = {**self._metadata(change.name), "labels": OURS}
                template = {"metadata": {"labels": OURS}, "spec": change.spec}
                body = {"apiVersion": "v1", "kind": TEMPLATES.name, "metadata": metadata}
                await self._ask("POST", self._templates, {**body, "template": template})
            case Act.ADD_BUFFER:
                await self._ask("POST", self._buffers, self._buffer(change))
            case Act.RESIZE:
                patch = {
                    "metadata": {"resourceVersion": change.version},
                    "spec": {"replicas": change.replicas},
                }
                await self._ask("PATCH", f"{self._buffers}/{change.name}", patch)
            case Act.DROP_BUFFER:
                await self._drop(self._buffers, change)
            case Act.DROP_TEMPLATE:
                await self._drop(self._templates, change)

    def _buffer(self, change: Change) -> Mapping[str, Any]:
        _, _, group, version, *_ = self._buffers.split("/")
        return {
            "apiVersion": f"{group}/{version}",
            "kind": BUFFERS.name,
            "metadata": {**self._metadata(change.name), "labels": OURS},
            "spec": {"podTemplateRef": {"name": change.name}, "replicas": change.replicas},
        }

    def _metadata(self, name: str) -> dict[str, Any]:
        return {"name": name, "namespace": self._namespace}

    async def _drop(self, path: str, change: Change) -> None:
        kept = {"preconditions": {"resourceVersion": change.version}} if change.version else {}
        options = {"apiVersion": "v1", "kind": "DeleteOptions", **kept}
        try:
            await self._ask("DELETE", f"{path}/{change.name}", options)
        except ApiError as fault:
            if fault.status != 404:
                raise

    async def _ask(self, method: str, path: str, body: Mapping[str, Any]) -> None:
        await self._client.ask(method, path, body, seconds_max=CALL_SECONDS_MAX, tries_max=1)

    async def _list(
        self, path: str, decoder: msgspec.json.Decoder[Page[Item]]
    ) -> list[Item] | None:
        """Return what of ours is there; None: there is no such kind, or it may not be read."""
        found: list[Item] = []
        token: str | None = None
        for _ in range(PAGES_MAX):
            asked = self._client.page(path, label_selector=BUFFER_OURS_LABEL, token=token)
            try:
                page = answered(decoder, await asked)
            except ApiError as fault:
                if fault.status in ABSENT:
                    return None
                raise
            found += page.items or ()
            token = page.metadata.token
            if not token:
                break
        return found


def _standing(one: _Buffer) -> Standing:
    replicas = (one.spec.replicas if one.spec else None) or 0
    return Standing(replicas, one.metadata.resource_version)


def _alike(template: msgspec.Raw) -> Alike | None:
    try:
        pod = TEMPLATES.read(template).pod
    except InvalidInputError:
        return None
    return None if pod.too_much else (pod.requests, pod.placing)
