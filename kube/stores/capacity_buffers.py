"""Read and write the CapacityBuffers and PodTemplates of Ebb in one namespace."""

from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec

from core.marks.wellknown import BUFFER_OURS_LABEL
from core.model.errors import InvalidInputError
from core.writes.capacity_buffers import (
    BufferChange,
    BufferShape,
    ExistingBuffer,
    Found,
    Operation,
)
from kube.client import ApiError, Client, answered
from kube.decode.kinds import BUFFERS, TEMPLATES, in_namespace
from kube.decode.objects import Name
from kube.listing import ABSENT, ANSWER_HEADER, Page

CALL_SECONDS_MAX: Final = 5.0
PAGES_MAX: Final = 20
"""Maximum number of pages that are read of a list; objects beyond are ignored."""
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
    """Reads and writes Ebb's CapacityBuffers and PodTemplates in one namespace."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client, self._namespace = client, namespace
        self._buffers = in_namespace(BUFFERS.path, namespace)
        self._templates = in_namespace(TEMPLATES.path, namespace)

    async def found(self) -> Found:
        """Return the CapacityBuffers and PodTemplates with Ebb's label.

        If the API server does not serve one of the kinds, or RBAC does not allow reading it, the
        result is `absent`. Raises: UnavailableError.
        """
        buffers = None
        # Clusters serve different versions of the API; the first that can be listed is used.
        for path in BUFFERS.paths:
            if buffers is None:
                self._buffers = in_namespace(path, self._namespace)
                buffers = await self._list(self._buffers, _BUFFERS)
        templates = await self._list(self._templates, _TEMPLATES)
        return Found(
            {buffer.metadata.name: _existing(buffer) for buffer in buffers or ()},
            {
                answered(ANSWER_HEADER, template).metadata.name: _pod_shape(template)
                for template in templates or ()
            },
            absent=buffers is None or templates is None,
        )

    async def carry_out(self, change: BufferChange) -> None:
        """Create, resize or delete one CapacityBuffer or PodTemplate.

        An object that does not exist counts as deleted. Raises: ConflictError if the object has
        changed since it was read, UnavailableError.
        """
        match change.operation:
            case Operation.ADD_TEMPLATE:
                metadata = {**self._metadata(change.name), "labels": OURS}
                template = {"metadata": {"labels": OURS}, "spec": change.spec}
                body = {"apiVersion": "v1", "kind": TEMPLATES.name, "metadata": metadata}
                await self._ask("POST", self._templates, {**body, "template": template})
            case Operation.ADD_BUFFER:
                await self._ask("POST", self._buffers, self._buffer(change))
            case Operation.RESIZE:
                patch = {
                    "metadata": {"resourceVersion": change.version},
                    "spec": {"replicas": change.replicas},
                }
                await self._ask("PATCH", f"{self._buffers}/{change.name}", patch)
            case Operation.DROP_BUFFER:
                await self._drop(self._buffers, change)
            case Operation.DROP_TEMPLATE:
                await self._drop(self._templates, change)

    def _buffer(self, change: BufferChange) -> Mapping[str, Any]:
        _, _, group, version, *_ = self._buffers.split("/")
        return {
            "apiVersion": f"{group}/{version}",
            "kind": BUFFERS.name,
            "metadata": {**self._metadata(change.name), "labels": OURS},
            "spec": {"podTemplateRef": {"name": change.name}, "replicas": change.replicas},
        }

    def _metadata(self, name: str) -> dict[str, Any]:
        return {"name": name, "namespace": self._namespace}

    async def _drop(self, path: str, change: BufferChange) -> None:
        only = {"preconditions": {"resourceVersion": change.version}} if change.version else {}
        options = {"apiVersion": "v1", "kind": "DeleteOptions", **only}
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
        """Return the objects with Ebb's label in the list at *path*, up to PAGES_MAX pages.

        None if the API server does not serve the kind or RBAC does not allow reading it.
        """
        items: list[Item] = []
        token: str | None = None
        for _ in range(PAGES_MAX):
            request = self._client.page(path, label_selector=BUFFER_OURS_LABEL, token=token)
            try:
                page = answered(decoder, await request)
            except ApiError as fault:
                if fault.status in ABSENT:
                    return None
                raise
            items += page.items or ()
            token = page.metadata.token
            if not token:
                break
        return items


def _existing(buffer: _Buffer) -> ExistingBuffer:
    replicas = (buffer.spec.replicas if buffer.spec else None) or 0
    return ExistingBuffer(replicas, buffer.metadata.resource_version)


def _pod_shape(template: msgspec.Raw) -> BufferShape | None:
    """Return the requests and node constraints of a PodTemplate's pod.

    None if it cannot be decoded or exceeds a limit.
    """
    try:
        pod = TEMPLATES.decode(template).pod
    except InvalidInputError:
        return None
    return None if pod.too_much else (pod.requests, pod.node_constraints)
