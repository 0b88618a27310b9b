"""Following a resource: list in pages, watch from there, and begin again when that ends.

Source: the API server's rules for list and watch (bookmarks, 410, 429) and client-go's waits.
"""

import asyncio
import gc
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

import aiohttp
import msgspec

from core.edge import decode
from core.edge.kube.client import NODES, ApiError, Client
from core.edge.logs import fields
from core.errors import InvalidInputError, UnavailableError
from core.model import Node, Pod

BACKOFF_SECONDS_MIN: Final = 0.8
BACKOFF_SECONDS_MAX: Final = 30.0
RETRY_AFTER_SECONDS_MAX: Final = 60.0
SILENCE_SECONDS_MAX: Final = 200.0
"""Bookmarks come about once a minute; a connection silent for longer is half open."""
LINE_BYTES_MAX: Final = 16 * 1024**2

log = logging.getLogger("ebb.watch")

Sleep = Callable[[float], Awaitable[object]]


class Handler(Protocol):
    """What wants to know."""

    def replaced(self, objects: list[Any]) -> None:
        """Take the whole list: what is not in it is gone."""

    def changed(self, obj: Any) -> None:  # noqa: ANN401 Node or Pod, by resource
        """Take a new or changed object."""

    def deleted(self, key: str) -> None:
        """Forget a Node by name or a Pod by namespace/name."""

    def alive(self) -> None:
        """Note that what has been told is up to date."""

    def refused(self, reason: str) -> None:
        """Note that an object could not be read and is not known."""

    def restarted(self, reason: str) -> None:
        """Note that the watch ended other than by its time: expired, throttled, error, timeout."""


class _Meta(msgspec.Struct):
    resourceVersion: str = ""  # noqa: N815 as on the wire
    token: str | None = msgspec.field(default=None, name="continue")


class _List(msgspec.Struct):
    metadata: _Meta
    items: list[msgspec.Raw] | None = None


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Any(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)
    code: int = 0
    message: str = ""


_LIST: Final = msgspec.json.Decoder(_List)
_EVENT: Final = msgspec.json.Decoder(_Event)
_ANY: Final = msgspec.json.Decoder(_Any)


async def follow(
    client: Client,
    resource: str,
    handler: Handler,
    *,
    label_selector: str | None = None,
    sleep: Sleep = asyncio.sleep,
) -> None:
    """Tell *handler* of every change of *resource* until cancelled; never ends by itself."""
    follower = _Follower(client, resource, handler, label_selector)
    failures = 0
    while True:
        try:
            if not follower.version:
                await follower.list()
            await follower.watch()
            failures = 0
        except (UnavailableError, TimeoutError, aiohttp.ClientError, OSError) as fault:
            failures = 0 if follower.progressed else failures + 1
            follower.progressed = False
            reason = follower.note(fault)
            if reason != "expired" or failures > 1:
                await sleep(_wait(fault, failures))


def _wait(fault: Exception, failures: int) -> float:
    if isinstance(fault, ApiError) and fault.retry_after_seconds is not None:
        return min(fault.retry_after_seconds, RETRY_AFTER_SECONDS_MAX)
    wait: float = min(BACKOFF_SECONDS_MIN * 2 ** min(failures, 10), BACKOFF_SECONDS_MAX)
    return wait * (1 + random.random())  # noqa: S311 jitter, no secret


class _Follower:
    def __init__(
        self, client: Client, resource: str, handler: Handler, label_selector: str | None
    ) -> None:
        self._client, self._resource = client, resource
        self._handler, self._selector = handler, label_selector
        self.version = ""
        self.progressed = False

    def note(self, fault: Exception) -> str:
        """Log and count why the watch ended; forget the version when the server has."""
        reason = "timeout" if isinstance(fault, TimeoutError) else "error"
        if isinstance(fault, ApiError):
            reason = {410: "expired", 429: "throttled"}.get(fault.status, "error")
            if fault.status in (400, 410):
                self.version = ""
        self._handler.restarted(reason)
        found = fields(resource=self._resource, reason=reason, fault=str(fault))
        log.warning("watch ended", extra=found)
        return reason

    async def list(self) -> None:
        """Read all pages, turning each into objects at once: raw pages are large."""
        objects: list[Any] = []
        token: str | None = None
        collecting = gc.isenabled()
        gc.disable()  # walking a heap that only grows would take most of the time
        try:
            while True:
                raw = await self._client.page(
                    self._resource, label_selector=self._selector, token=token
                )
                page = _decode(_LIST, raw)
                for item in page.items or ():
                    found = self._object(item)
                    if found is not None:
                        objects.append(found)
                token = page.metadata.token
                if not token:
                    break
        finally:
            if collecting:
                gc.enable()
        self._handler.replaced(objects)
        self._handler.alive()
        self.version = page.metadata.resourceVersion
        self.progressed = True

    async def watch(self) -> None:
        """Read events until the server ends the watch. Raises: when it ends otherwise."""
        response = await self._client.watch(
            self._resource, label_selector=self._selector, version=self.version
        )
        try:
            rest = bytearray()
            while True:
                async with asyncio.timeout(SILENCE_SECONDS_MAX):
                    chunk = await response.content.readany()
                if not chunk:
                    break
                rest += chunk
                *lines, last = rest.split(b"\n")
                for line in lines:
                    if line.strip():
                        self._event(bytes(line))
                rest = bytearray(last)
                if len(rest) > LINE_BYTES_MAX:
                    raise UnavailableError(f"a watch event is over {LINE_BYTES_MAX} bytes")
            if rest.strip():
                raise UnavailableError("the watch ended within an event")
        finally:
            response.close()

    def _event(self, line: bytes) -> None:
        event = _decode(_EVENT, line)
        about = _decode(_ANY, event.object)
        if event.type == "ERROR":
            raise ApiError(about.code, about.message)
        if event.type in ("ADDED", "MODIFIED", "DELETED"):
            self._tell(event)
        self.version = about.metadata.resourceVersion or self.version
        self.progressed = True
        self._handler.alive()

    def _tell(self, event: _Event) -> None:
        found = self._object(event.object)
        if found is None:
            self._forget(event.object)
        elif event.type == "DELETED":
            self._handler.deleted(found.name if isinstance(found, Node) else found.key)
        else:
            self._handler.changed(found)

    def _forget(self, raw: msgspec.Raw) -> None:
        """Drop a pod that has finished, or an object that cannot be read."""
        name = _decode(_NAMED, raw).metadata
        key = name.name if self._resource == NODES else f"{name.namespace}/{name.name}"
        self._handler.deleted(key)

    def _object(self, raw: msgspec.Raw) -> Node | Pod | None:
        try:
            return decode.node(raw) if self._resource == NODES else decode.pod(raw)
        except InvalidInputError as fault:
            self._handler.refused(str(fault))
            return None


class _Name(msgspec.Struct):
    name: str = ""
    namespace: str = "default"


class _Named(msgspec.Struct):
    metadata: _Name = msgspec.field(default_factory=_Name)


_NAMED: Final = msgspec.json.Decoder(_Named)


def _decode(decoder: Any, raw: bytes | msgspec.Raw) -> Any:  # noqa: ANN401 typed by its decoder
    try:
        return decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as fault:
        raise UnavailableError(f"API server: not what it must send: {fault}") from fault
