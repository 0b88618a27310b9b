"""Read a list of one kind, page by page, with a placeholder for each undecodable object."""

# Each page is decoded before the next one is requested, because raw pages are large. A page is
# decoded in one pass. Only if that fails, it is decoded item by item, to separate invalid objects
# from the others. If a page is nested too deeply, fewer objects are requested, until the object
# that causes it is alone on its page.

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, Generic, TypeVar

import msgspec

from core.config.settings import Config
from core.model.errors import GarbledError, InvalidInputError
from kube.client import PAGE_OBJECTS, ApiError, Client, TooLargeError, answered
from kube.cluster_kinds import ONLY
from kube.decode.field_decoding import DECODE_ERRORS
from kube.decode.json_depth import decoded, pruned
from kube.decode.kinds import AnyKind, WireObject, in_namespace
from kube.decode.objects import Name
from kube.decode.placeholders import MEMBERS, Outline, outline
from runtime.heap import growing

Object_ = TypeVar("Object_")


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    token: str | None = msgspec.field(default=None, name="continue")


class Page(msgspec.Struct, Generic[Object_]):
    """A page of a list as the API server sends it."""

    metadata: _ListMeta
    items: list[Object_] | None = None


class AnswerHeader(msgspec.Struct):
    """The identity of an answer: metadata of an object, or code and message of a Status."""

    metadata: Name = msgspec.field(default_factory=Name)
    code: int = 0
    message: str = ""


ANSWER_HEADER: Final = msgspec.json.Decoder(AnswerHeader)
_RAW_PAGE: Final = msgspec.json.Decoder(Page[msgspec.Raw])
ABSENT: Final = frozenset((403, 404))
"""HTTP statuses if the API server does not serve a kind, or RBAC does not allow reading it.

Without permission the status is 403 in both cases."""
FEWER: Final = 4
"""Divisor for the number of objects if a page is too large or too deeply nested."""
_ONE: Final = re.compile(
    rb'\{%b"metadata":(\{[^{}]*+\}),%b"items":\[(.*)\]\}\s*+' % (MEMBERS, MEMBERS), re.DOTALL
)
"""A page with one object."""
_META: Final = msgspec.json.Decoder(_ListMeta)


@dataclass(frozen=True, slots=True)
class Part:
    """The objects of a list to read: all, the selection of a label selector, or only one."""

    label_selector: str | None = None
    only: str = ""
    """namespace/name of the only object to read; empty: all objects."""

    def path(self, path: str) -> str:
        """Return the path of the list to read; *path* is the list of all objects of the kind.

        If only one object is read, it is the list of the object's namespace; else it is *path*.
        """
        namespace, _, _ = self.only.rpartition("/")
        return in_namespace(path, namespace) if namespace else path

    @property
    def field_selector(self) -> str | None:
        """Return the field selector of the only object to read; None if there is no single object.

        With this selector, an RBAC rule can allow reading only this name.
        """
        return f"metadata.name={self.only.rpartition('/')[2]}" if self.only else None

    @staticmethod
    def of(kind: AnyKind, config: Config) -> "Part":
        """Return which objects of a kind to read: for some kinds one by *config*, else all."""
        return Part(only=ONLY[kind](config)) if kind in ONLY else WHOLE


WHOLE: Final = Part()


@dataclass(slots=True)
class Listed:
    """A list of one kind: the objects that have been read, and where the next page begins."""

    objects: list[Any] = field(default_factory=list)
    """Decoded objects, with placeholders for objects that cannot be decoded."""
    refused: list[tuple[str, str]] = field(default_factory=list)
    """Key of each object that is left out of `objects`, and why it cannot be decoded."""
    version: str = ""
    token: str | None = None
    """Continue token of the next page."""
    path: str = ""
    """Path of the list."""
    absent: ApiError | None = None
    """Answer of the API server if it does not serve the kind, or RBAC does not allow reading it;
    else None."""
    decoded_as: AnyKind | None = None
    """Kind that decodes more of the same objects; None: the kind that is listed."""
    finished: Callable[[Any], None] | None = None
    """Called with finished pods, in their wire format; None if nobody needs them."""

    async def read(self, client: Client, kind: AnyKind, part: Part = WHOLE) -> None:
        """Read all pages of the list of *kind*, or of the *part* of it, into this Listed.

        If an optional kind cannot be read, there are no objects, and `absent` is set. Raises:
        ApiError and related errors; GarbledError if the answer is not a list.
        """
        kind = self.decoded_as or kind
        for path in kind.paths:
            self.path, self.absent = part.path(path), None
            try:
                return await self._read(client, kind, part)
            except ApiError as fault:
                if not kind.optional or fault.status not in ABSENT:
                    raise
                self.absent = fault
        return None

    async def _read(self, client: Client, kind: AnyKind, part: Part) -> None:
        self.objects.clear()
        self.refused.clear()
        self.token = None
        objects = PAGE_OBJECTS
        with growing():
            while True:
                request = client.page(
                    self.path,
                    label_selector=part.label_selector,
                    field_selector=part.field_selector,
                    token=self.token,
                    objects=objects,
                )
                try:
                    raw = await request
                    if objects > 1:
                        self.take(kind, raw)
                    else:
                        await self._take_one(kind, raw)
                except TooLargeError:
                    if objects == 1:
                        raise
                    objects = max(1, objects // FEWER)
                    continue
                if len(raw) * FEWER < client.answer_bytes_max:
                    objects = min(PAGE_OBJECTS, objects * 2)
                if not self.token:
                    return

    def take(self, kind: AnyKind, raw: bytes) -> None:
        """Decode the JSON of a page, and add its objects; store its resourceVersion and token.

        Raises: GarbledError if it is not a page; TooLargeError if it is nested too deeply. The
        caller may then request fewer objects.
        """
        self._add(kind, _page(kind, raw))

    async def _take_one(self, kind: AnyKind, raw: bytes) -> None:
        """Add a page that has one object; add its placeholder if it is nested too deeply.

        Raises: GarbledError if it is not a page.
        """
        try:
            self.take(kind, raw)
        except TooLargeError:
            page = _outlined(raw) or _page(kind, await asyncio.to_thread(pruned, raw))
            self._add(kind, page)

    def _add(self, kind: AnyKind, page: Page[Any]) -> None:
        for item in page.items or ():
            try:
                obj = kind.model_or_placeholder(item)
            except InvalidInputError as fault:
                self.refused.append((kind.key(_metadata_of(item)), str(fault)))
            else:
                if obj is not None:
                    self.objects.append(obj)
                elif self.finished is not None:
                    self.finished(item)
        self.version, self.token = page.metadata.resource_version, page.metadata.token


def version_of(raw: bytes) -> str:
    """Return the resourceVersion of a page of a list. Raises: GarbledError if it is not a page."""
    return answered(_RAW_PAGE, raw).metadata.resource_version


@cache
def _page_decoder(kind: AnyKind) -> msgspec.json.Decoder[Page[Any]]:
    return kind.within(Page)


def _page(kind: AnyKind, raw: bytes) -> Page[Any]:
    try:
        page: Page[Any] = decoded(_page_decoder(kind).decode, raw)
    except RecursionError as fault:
        raise TooLargeError(f"API server: a page of a list {fault}") from fault
    except DECODE_ERRORS:
        return answered(_RAW_PAGE, raw)
    return page


def _outlined(raw: bytes) -> Page[Any] | None:
    """Return a page with the Outline of its single object, without decoding the object.

    None if the page may have several objects, or if the object's name cannot be found.
    """
    match = _ONE.fullmatch(raw)
    meta = answered(_META, match[1]) if match else _ListMeta()
    # Without a continue token the page may have more objects: some servers ignore the limit.
    item = outline(match[2]) if match and meta.token else None
    return Page(meta, [item]) if item else None


def _metadata_of(item: WireObject | msgspec.Raw | Outline) -> Name:
    if not isinstance(item, msgspec.Raw):
        return item.metadata
    try:
        return answered(ANSWER_HEADER, item).metadata
    except GarbledError:
        return Name()
