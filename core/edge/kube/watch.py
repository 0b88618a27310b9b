"""Following a resource: list in pages, watch from there, and begin again when that ends.

Source: the API server's rules for list and watch (bookmarks, 410, 429) and client-go's waits.
"""

import asyncio
import gc
import logging
import random
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import aiohttp
import msgspec

from core.edge import decode
from core.edge.kube.client import NODES, ApiError, Client, Sleep
from core.edge.kube.lines import lines
from core.edge.logs import fields
from core.errors import InvalidInputError, UnavailableError
from core.model import Node, Pod

BACKOFF_SECONDS_MIN: Final = 0.8
BACKOFF_SECONDS_MAX: Final = 30.0
RETRY_AFTER_SECONDS_MAX: Final = 60.0
RELIST_AFTER_FAILURES: Final = 5
"""So many server faults in a row, and the version is given up: the server may not know it."""

log = logging.getLogger("ebb.watch")

Jitter = Callable[[], float]
"""Returns what to add to a wait, as a share of it: 0 to 1."""


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
    jitter: Jitter = random.random,
) -> None:
    """Tell *handler* of every change of *resource* until cancelled; never ends by itself."""
    follower = _Follower(client, resource, handler, label_selector)
    while True:
        wait = await follower.round(jitter)
        if wait:
            await sleep(wait)


class _Follower:
    def __init__(
        self, client: Client, resource: str, handler: Handler, label_selector: str | None
    ) -> None:
        self._client, self._resource = client, resource
        self._handler, self._selector = handler, label_selector
        self._version = ""
        self._told = False
        """Whether the watch has brought an event or a bookmark: a list alone is no progress."""
        self._failures = 0
        self._expired = False

    async def round(self, jitter: Jitter) -> float:
        """List if need be and watch until that ends. Returns: seconds to wait before the next."""
        self._told = False
        fault: Exception | None = None
        try:
            if not self._version:
                await self._list()
            await self._watch()
        except (UnavailableError, TimeoutError, aiohttp.ClientError, OSError) as found:
            fault = found
        if self._told:
            self._failures, self._expired = 0, False
        if fault is None:
            self._failures = 0
            # A server that ends watches at once must not be asked without pause.
            return 0 if self._told else _backoff(0, jitter)
        return self._after(fault, jitter)

    def _after(self, fault: Exception, jitter: Jitter) -> float:
        """Log and count why the watch ended; forget the version when the server has."""
        reason = _reason(fault)
        self._handler.restarted(reason)
        found = fields(resource=self._resource, reason=reason, fault=str(fault))
        log.warning("watch ended", extra=found)
        wait = _backoff(self._failures, jitter)
        self._failures += 1
        if isinstance(fault, ApiError):
            lost = fault.status >= 500 and self._failures >= RELIST_AFTER_FAILURES
            if lost or fault.status in (400, 410):
                self._version = ""
            if fault.retry_after_seconds is not None:
                wait = min(
                    max(fault.retry_after_seconds, BACKOFF_SECONDS_MIN), RETRY_AFTER_SECONDS_MAX
                )
        # Expired is how a long absence ends, and a fresh list mends it; twice in a row is a fault.
        at_once = reason == "expired" and not self._expired
        self._expired = reason == "expired"
        return 0 if at_once else wait

    async def _list(self) -> None:
        """Read all pages, turning each into objects at once: raw pages are large."""
        objects: list[Any] = []
        refused: list[str] = []
        token: str | None = None
        collecting = gc.isenabled()
        gc.disable()  # walking a heap that only grows would take most of the time
        try:
            while True:
                raw = await self._client.page(
                    self._resource, label_selector=self._selector, token=token
                )
                page = _decode(_LIST, raw)
                self._read(page.items or [], objects, refused)
                token = page.metadata.token
                if not token:
                    break
        finally:
            if collecting:
                gc.enable()
        self._handler.replaced(objects)
        for reason in refused:  # after the list, so that nobody forgets them with the old one
            self._handler.refused(reason)
        self._handler.alive()
        self._version = page.metadata.resourceVersion

    def _read(self, items: Sequence[msgspec.Raw], objects: list[Any], refused: list[str]) -> None:
        for item in items:
            try:
                found = self._object(item)
            except InvalidInputError as fault:
                refused.append(str(fault))
            else:
                objects += [] if found is None else [found]

    async def _watch(self) -> None:
        """Read events until the server ends the watch. Raises: when it ends otherwise."""
        response = await self._client.watch(
            self._resource, label_selector=self._selector, version=self._version
        )
        silence = self._client.silence_seconds_max
        try:
            async for line in lines(response.content, silence_seconds_max=silence):
                self._event(line)
        finally:
            response.close()

    def _event(self, line: bytes) -> None:
        event = _decode(_EVENT, line)
        about = _decode(_ANY, event.object)
        if event.type == "ERROR":
            raise ApiError(about.code, about.message)
        if event.type in ("ADDED", "MODIFIED", "DELETED"):
            self._tell(event)
        self._version = about.metadata.resourceVersion or self._version
        self._told = True
        self._handler.alive()

    def _tell(self, event: _Event) -> None:
        try:
            found = self._object(event.object)
        except InvalidInputError as fault:
            found = None
            if event.type != "DELETED":
                self._handler.refused(str(fault))
        if found is None or event.type == "DELETED":
            self._forget(event.object)
        else:
            self._handler.changed(found)

    def _forget(self, raw: msgspec.Raw) -> None:
        """Drop what is deleted, a pod that has finished, or an object that cannot be read."""
        name = _decode(_NAMED, raw).metadata
        key = name.name if self._resource == NODES else f"{name.namespace}/{name.name}"
        self._handler.deleted(key)

    def _object(self, raw: msgspec.Raw) -> Node | Pod | None:
        """Return None for a finished pod. Raises: InvalidInputError."""
        return decode.node(raw) if self._resource == NODES else decode.pod(raw)


def _reason(fault: Exception) -> str:
    if isinstance(fault, ApiError):
        return {410: "expired", 429: "throttled"}.get(fault.status, "error")
    return "timeout" if isinstance(fault, TimeoutError) else "error"


def _backoff(failures: int, jitter: Jitter) -> float:
    wait: float = min(BACKOFF_SECONDS_MIN * 2 ** min(failures, 10), BACKOFF_SECONDS_MAX)
    return wait * (1 + jitter())


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
