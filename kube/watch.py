"""Watch the objects of a kind: list them, watch for changes, and resume when the watch ends.

Source: the API server's rules for list and watch (bookmarks, 410, 429) and client-go's backoff.
"""

import asyncio
import logging
import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, Generic, TypeVar

import aiohttp
import msgspec

from core.model.errors import GarbledError, InvalidInputError, UnavailableError
from kube.client import ApiError, Client, Sleep, answered
from kube.decode.field_decoding import DECODE_ERRORS
from kube.decode.json_depth import decoded, pruned
from kube.decode.kinds import AnyKind, WireObject
from kube.decode.objects import Name
from kube.decode.placeholders import Outline, outline
from kube.freshness import WatchSink
from kube.listing import ABSENT, ANSWER_HEADER, WHOLE, Listed, Part, version_of
from runtime.heap import growing, release_memory
from runtime.logs import fields

BACKOFF_SECONDS_MIN: Final = 0.8
BACKOFF_SECONDS_MAX: Final = 15.0
"""Half of client-go's maximum: with jitter, a leader can decide again within a minute."""
RETRY_AFTER_SECONDS_MAX: Final = 60.0
SETTLE_SECONDS: Final = 1.0
"""Time after which a quiet watch is up to date; a server sends missed events at once."""
RELIST_AFTER_FAILURES: Final = 5
"""Number of server errors in a row after which all objects are listed again.

The API server may not be able to start a watch from the last resourceVersion."""
WITHOUT_AFTER_FAILURES: Final = 5
"""Number of failures in a row after which the known objects of an optional kind count as up to
date.

Every list of a custom resource fails while the conversion webhook of its CustomResourceDefinition
is down."""

ABSENT_SECONDS: Final = 15.0
"""Pause before an absent kind is requested again; jitter at most doubles it."""
DOUBT_SECONDS: Final = 1.0
"""Pause before the absence of a kind with known objects is confirmed by a second list.

An API server that is starting reports kinds as absent for a moment, while its caches of RBAC rules
and CustomResourceDefinitions are empty."""

LINE_BYTES_MAX: Final = 16 * 1024**2
"""Maximum length of an event; etcd allows some megabytes, aiohttp's readline less."""
CHANGES: Final = frozenset({"ADDED", "MODIFIED"})
ABSENT_KIND: Final = (
    "the API server does not serve this kind, or RBAC does not allow reading it; Ebb "
    "continues without these objects"
)

RESTORED: Final = (
    "resourceVersions went back from {before} to {now}: etcd was restored from a backup; "
    "listing all objects again"
)

log = logging.getLogger("ebb.watch")

Object_ = TypeVar("Object_")

Jitter = Callable[[], float]
"""Returns the jitter to add to a pause, as a share of it: 0 to 1."""


async def watch_objects(
    client: Client,
    kind: AnyKind,
    sink: WatchSink,
    part: Part = WHOLE,
    *,
    known: Listed | None = None,
    sleep: Sleep = asyncio.sleep,
    jitter: Jitter = random.random,
) -> None:
    """List the objects of *kind*, then report every change to *sink*, until cancelled.

    *part*: the objects to watch; by default all. *known*: a list whose objects *sink* has already;
    only later changes are reported. *sleep* and *jitter* decide how long to pause before the watch
    is opened again.
    """
    watcher = _Watcher(client, kind, sink, part, known)
    while True:
        wait = await watcher.round(jitter)
        if wait:
            await sleep(wait)


class RestoredError(UnavailableError):
    """The API server's resourceVersion went back, because etcd was restored from a backup."""

    def __init__(self, before: str, now: str) -> None:
        super().__init__(RESTORED.format(before=before, now=now))


class _Watcher:
    def __init__(
        self,
        client: Client,
        kind: AnyKind,
        sink: WatchSink,
        part: Part,
        known: Listed | None = None,
    ) -> None:
        self._client, self._kind = client, kind
        self._sink, self._part, self._known = sink, part, known
        self._decoder = kind.within(_Event)
        self._version = self._path = ""
        self._newest = ""
        """The last known resourceVersion. It is kept when `_version` is dropped, so that a new
        list shows whether etcd was restored from a backup."""
        self._absent: int | None = None
        """HTTP status of the list if the API server does not serve the kind, or RBAC does not
        allow reading it; else None."""
        self._absence_unconfirmed = False
        """Whether a first list reported a kind with known objects as absent."""
        self._progressed = False
        """Whether the watch has brought an event or a bookmark; a list alone is no progress."""
        self._failures = 0
        self._expired = False

    async def round(self, jitter: Jitter) -> float:
        """List objects if necessary, then watch them until the watch ends.

        Returns: seconds to pause before the next round.
        """
        self._progressed = False
        fault: Exception | None = None
        try:
            if self._known is not None:
                self._continue_from(self._known)
                self._known = None
            elif self._version:
                await self._check_version()
            else:
                await self._list()
            if self._absent is None and not self._absence_unconfirmed:
                await self._watch()
        except (UnavailableError, TimeoutError, aiohttp.ClientError, OSError) as found:
            fault = found
        if self._progressed:
            self._failures, self._expired = 0, False
        if fault is None and self._absence_unconfirmed:
            return DOUBT_SECONDS * (1 + jitter())
        if fault is None:
            self._failures = 0
            if self._absent is not None:
                return ABSENT_SECONDS * (1 + jitter())
            # Do not reconnect without a pause to a server that ends watches at once.
            return 0 if self._progressed else _backoff(0, jitter)
        return self._handle_fault(fault, jitter)

    def _handle_fault(self, fault: Exception, jitter: Jitter) -> float:
        """Log and count why the watch ended; forget a resourceVersion that cannot be watched from.

        Returns: seconds to pause before the next attempt; 0 to list again at once.
        """
        reason = _reason(fault)
        self._sink.restarted(reason)
        extra = fields(resource=self._kind.resource, reason=reason, fault=str(fault))
        log.warning("a watch ended early; it is resumed after a pause", extra=extra)
        wait = _backoff(self._failures, jitter)
        self._failures += 1
        if self._kind.optional and self._failures >= WITHOUT_AFTER_FAILURES:
            self._sink.alive()  # do not block decisions on it any longer
        if isinstance(fault, GarbledError | RestoredError):
            self._version = ""  # a watch from this version would fail again, or send nothing
        if isinstance(fault, RestoredError):
            self._newest = ""  # the restore has been logged above
        if isinstance(fault, ApiError):
            lost = fault.status >= 500 and self._failures >= RELIST_AFTER_FAILURES
            absent = self._kind.optional and fault.status in ABSENT
            if lost or absent or fault.status in (400, 410):
                self._version = ""
            if fault.retry_after_seconds is not None:
                wait = min(
                    max(fault.retry_after_seconds, BACKOFF_SECONDS_MIN), RETRY_AFTER_SECONDS_MAX
                )
        # A version expires after a long interruption. List again at once, but pause if the version
        # of the new list has expired too.
        expired = isinstance(fault, RestoredError) or reason == "expired"
        at_once = expired and not self._expired
        self._expired = expired
        return 0 if at_once else wait

    async def _check_version(self) -> None:
        """Check that the API server's resourceVersion is not older than the last known version.

        Raises: RestoredError. After etcd was restored from a backup, the API server would accept a
        watch from the last known version. It would send neither events nor bookmarks until its own
        version is larger.
        """
        # Without a resourceVersion in the request, the API server reads the current state of etcd.
        page = await self._client.page(
            self._path,
            label_selector=self._part.label_selector,
            field_selector=self._part.field_selector,
            token=None,
            objects=1,
        )
        now = version_of(page)
        if is_older(now, self._version):
            raise RestoredError(self._version, now)

    async def _list(self) -> None:
        listed = Listed()
        with growing():
            await listed.read(self._client, self._kind, self._part)
            absent = listed.absent is not None and self._sink.knows_some()
            self._absence_unconfirmed = absent and not self._absence_unconfirmed
            if self._absence_unconfirmed:
                return
            self._sink.replaced(listed.objects, listed.refused)
        release_memory()
        self._continue_from(listed)

    def _continue_from(self, listed: Listed) -> None:
        self._sink.alive()
        if is_older(listed.version, self._newest):
            restored = RESTORED.format(before=self._newest, now=listed.version)
            log.warning(restored, extra=fields(resource=self._kind.resource))
        self._version, self._path = listed.version, listed.path
        self._newest = self._version
        before = self._absent
        self._absent = listed.absent.status if listed.absent is not None else None
        if listed.absent is not None and self._absent != before:
            extra = fields(resource=self._kind.resource, fault=str(listed.absent))
            log.log(_level(listed.absent), ABSENT_KIND, extra=extra)

    async def _watch(self) -> None:
        response = await self._client.watch(
            self._path,
            label_selector=self._part.label_selector,
            field_selector=self._part.field_selector,
            version=self._version,
        )
        silence = self._client.silence_seconds_max
        settled = asyncio.get_running_loop().call_later(SETTLE_SECONDS, self._settled)
        try:
            async for line in lines(response.content.readany, silence):
                await self._line(line)
        finally:
            settled.cancel()
            response.close()

    def _settled(self) -> None:
        # In a quiet watch no event would reset the failures, or report the inventory as current.
        self._failures = 0
        self._sink.alive()

    async def _line(self, line: bytes) -> None:
        """Process the JSON of an event; if its object is nested too deeply, use a placeholder."""
        try:
            self._event(line)
        except RecursionError:
            event = _outlined(line)
            if event is None:
                self._event(await asyncio.to_thread(pruned, line))
            else:
                self._take(event, event.object.metadata)
                self._progress()

    def _event(self, line: bytes) -> None:
        """Decode an event in one pass, or in parts if that fails.

        Raises: RecursionError if it is nested too deeply; ApiError for an ERROR event;
        GarbledError.
        """
        try:
            event: _Event[Any] = decoded(self._decoder.decode, line)
        except RecursionError:
            raise
        except DECODE_ERRORS:
            self._unusual_event(line)
        else:
            if event.type == "ERROR":
                self._unusual_event(line)
            self._take(event, event.object.metadata)
        self._progress()

    def _progress(self) -> None:
        self._progressed = True
        self._sink.alive()

    def _unusual_event(self, line: bytes) -> None:
        """Process an ERROR event, or an event whose object is invalid.

        Raises: ApiError for an ERROR event, GarbledError.
        """
        event = answered(_RAW_EVENT, line)
        header = answered(ANSWER_HEADER, event.object)
        if event.type == "ERROR":
            raise ApiError(header.code, header.message)
        self._take(event, header.metadata)

    def _take(self, event: "_Event[Any]", meta: Name) -> None:
        if event.type == "DELETED":
            self._sink.deleted(self._kind.key(meta))
        elif event.type in CHANGES:
            self._changed(event.object, meta)
        elif is_older(meta.resource_version, self._version):
            raise RestoredError(self._version, meta.resource_version)
        self._newest = self._version = meta.resource_version or self._version

    def _changed(self, item: WireObject | msgspec.Raw | Outline, meta: Name) -> None:
        try:
            obj = self._kind.model_or_placeholder(item)
        except InvalidInputError as fault:
            self._sink.refused(self._kind.key(meta), str(fault))
            return
        if obj is None:  # a finished pod
            self._sink.deleted(self._kind.key(meta))
        else:
            self._sink.changed(obj)


async def lines(
    read: Callable[[], Awaitable[bytes]],
    silence_seconds_max: float,
    bytes_max: int = LINE_BYTES_MAX,
) -> AsyncIterator[bytes]:
    """Yield the non-empty lines of a stream, each without its line end.

    *read*: returns the next bytes; empty at the end of the stream. Raises: TimeoutError if nothing
    arrives for *silence_seconds_max*, as the connection is half open. GarbledError if a line
    exceeds *bytes_max*. UnavailableError if the stream ends within a line.
    """
    parts: list[bytes] = []  # of an incomplete line; joined only once
    size = 0
    while True:
        async with asyncio.timeout(silence_seconds_max):
            chunk = await read()
        if not chunk:
            break
        first, *others = chunk.split(b"\n")
        parts.append(first)
        size += len(first)
        if others:
            for line in (b"".join(parts), *others[:-1]):
                if line.strip():
                    yield line
            parts = [others[-1]]
            size = len(others[-1])
        if size > bytes_max:
            raise GarbledError(f"API server: a watch event is larger than {bytes_max} bytes")
    if b"".join(parts).strip():
        raise UnavailableError("API server: the watch ended within an event")


class _Event(msgspec.Struct, Generic[Object_]):
    type: str
    object: Object_


_RAW_EVENT: Final = msgspec.json.Decoder(_Event[msgspec.Raw])
_CHANGE: Final = re.compile(rb'\{"type":"(ADDED|MODIFIED|DELETED)","object":(.*)\}\s*+', re.DOTALL)


def _outlined(line: bytes) -> _Event[Any] | None:
    """Return an event with the Outline of its object, without decoding the object.

    None if the line is no change of an object, or if the object's name cannot be found.
    """
    match = _CHANGE.fullmatch(line)
    item = outline(match[2]) if match else None
    return _Event(match[1].decode(), item) if match and item else None


def _level(absent: ApiError) -> int:
    # 404 is normal in most clusters: they do not serve every optional kind.
    return logging.INFO if absent.status == 404 else logging.WARNING


def is_older(version: str, than: str) -> bool:
    """Return whether *version* is an older resourceVersion than *than*.

    False if either is not a number. Source: KEP-5504; from Kubernetes 1.35 clients may compare
    resourceVersions as numbers.
    """
    if not (version.isdecimal() and than.isdecimal()):
        return False
    return (len(version), version) < (len(than), than)


def _reason(fault: Exception) -> str:
    if isinstance(fault, RestoredError):
        return "restored"
    if isinstance(fault, ApiError):
        return {410: "expired", 429: "throttled"}.get(fault.status, "error")
    return "timeout" if isinstance(fault, TimeoutError) else "error"


def _backoff(failures: int, jitter: Jitter) -> float:
    wait: float = min(BACKOFF_SECONDS_MIN * 2 ** min(failures, 10), BACKOFF_SECONDS_MAX)
    return wait * (1 + jitter())
