"""Lists and watch events as they stand on the wire, and what they become.

All of a page, or an event, is decoded in one pass; only what cannot be read so is decoded piece
by piece, to tell the one bad object from the rest.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, TypeVar

import msgspec

from core.edge.decode import decode, stand_in
from core.edge.decode.depth import decoded, legible
from core.edge.decode.objects import BudgetObject, NodeObject, PodMeta, PodObject
from core.edge.decode.storage import ClaimObject, CsiNodeObject, VolumeObject
from core.errors import GarbledError, InvalidInputError

FAULTS: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
CHANGES: Final = frozenset({"ADDED", "MODIFIED", "DELETED"})
Object = decode.Object
Object_ = TypeVar("Object_")


class _PodMeta(PodMeta):
    resource_version: str = ""


class VersionedPod(PodObject):
    """A pod with its resourceVersion."""

    metadata: _PodMeta


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    token: str | None = msgspec.field(default=None, name="continue")


class Page(msgspec.Struct, Generic[Object_]):
    """A page of a list."""

    metadata: _ListMeta
    items: list[Object_] | None = None


class Event(msgspec.Struct, Generic[Object_]):
    """A watch event."""

    type: str
    object: Object_


class Who(msgspec.Struct, rename="camel"):
    """The least of an object's metadata, so that hardly anything can be wrong with it."""

    name: str = ""
    namespace: str | None = None
    resource_version: str = ""


class About(msgspec.Struct):
    """What any object of an event says of itself; code and message are those of a Status."""

    metadata: Who = msgspec.field(default_factory=Who)
    code: int = 0
    message: str = ""


@dataclass(frozen=True, slots=True)
class Kind:
    """How to read one resource."""

    page: msgspec.json.Decoder[Any]
    event: msgspec.json.Decoder[Any]
    made: Callable[[Any], Object | None]
    """From the typed object; None for one that does not count any more."""
    made_raw: Callable[[msgspec.Raw], Object | None]
    blind: Callable[[bytes | msgspec.Raw, str], Object | None] = stand_in.nothing
    """What stands for one that cannot be read, and why not."""
    namespaced: bool = True

    def key(self, meta: Any) -> str:  # noqa: ANN401 any metadata
        """Return the name, with the namespace before it if it has one."""
        name: str = meta.name
        return f"{meta.namespace or 'default'}/{name}" if self.namespaced else name


KINDS: Final[Mapping[str, Kind]] = {
    "nodes": Kind(
        msgspec.json.Decoder(Page[NodeObject]),
        msgspec.json.Decoder(Event[NodeObject]),
        decode.node_of,
        decode.node,
        stand_in.node,
        namespaced=False,
    ),
    "pods": Kind(
        msgspec.json.Decoder(Page[VersionedPod]),
        msgspec.json.Decoder(Event[VersionedPod]),
        decode.pod_of,
        decode.pod,
        stand_in.pod,
    ),
    "poddisruptionbudgets": Kind(
        msgspec.json.Decoder(Page[BudgetObject]),
        msgspec.json.Decoder(Event[BudgetObject]),
        decode.budget_of,
        decode.budget,
    ),
    "persistentvolumeclaims": Kind(
        msgspec.json.Decoder(Page[ClaimObject]),
        msgspec.json.Decoder(Event[ClaimObject]),
        decode.CLAIMS.made,
        decode.CLAIMS.read,
    ),
    "persistentvolumes": Kind(
        msgspec.json.Decoder(Page[VolumeObject]),
        msgspec.json.Decoder(Event[VolumeObject]),
        decode.VOLUMES.made,
        decode.VOLUMES.read,
        namespaced=False,
    ),
    "csinodes": Kind(
        msgspec.json.Decoder(Page[CsiNodeObject]),
        msgspec.json.Decoder(Event[CsiNodeObject]),
        decode.CSI_NODES.made,
        decode.CSI_NODES.read,
        namespaced=False,
    ),
}
_RAW_PAGE: Final = msgspec.json.Decoder(Page[msgspec.Raw])
_RAW_EVENT: Final = msgspec.json.Decoder(Event[msgspec.Raw])
_ABOUT: Final = msgspec.json.Decoder(About)


def read_page(
    kind: Kind, raw: bytes, objects: list[Object], refused: list[tuple[str, str]]
) -> tuple[str, str | None]:
    """Add a page's objects, or what stands for them; of those without either key and why.

    Returns: the list's resourceVersion, and the token of the next page.
    Raises: GarbledError when it is no list.
    """
    try:
        page = decoded(kind.page.decode, raw)
    except FAULTS:
        page = strictly(_RAW_PAGE, raw)
        read: Callable[[Any], Object | None] = partial(read_raw, kind)
    else:
        read = partial(read_typed, kind)
    for item in page.items or ():
        try:
            found = read(item)
        except InvalidInputError as fault:
            refused.append((kind.key(_about(item)), str(fault)))
        else:
            if found is not None:
                objects.append(found)
    return page.metadata.resource_version, page.metadata.token


def read_typed(kind: Kind, item: Any) -> Object | None:  # noqa: ANN401 by kind
    """Make an object of its typed form, or what stands for it. Raises: InvalidInputError."""
    try:
        return kind.made(item)
    except InvalidInputError as fault:
        # The faulty field alone was read: what stands for the object is found in its bytes.
        found = kind.blind(msgspec.json.encode(item), str(fault))
        if found is None:
            raise
        return found


def read_raw(kind: Kind, item: msgspec.Raw) -> Object | None:
    """Make an object of its bytes, or what stands for it. Raises: InvalidInputError."""
    try:
        return kind.made_raw(item)
    except InvalidInputError as fault:
        found = kind.blind(item, str(fault))
        if found is None:
            raise
        return found


def _about(item: Any) -> Any:  # noqa: ANN401 the metadata of any object, typed or not
    if not isinstance(item, msgspec.Raw):
        return item.metadata
    try:
        return strictly(_ABOUT, item).metadata
    except GarbledError:
        return Who()


def read_event(kind: Kind, line: bytes) -> Event[Any] | None:
    """Decode an event in one pass; None when that cannot be done, as with an ERROR."""
    try:
        event: Event[Any] = decoded(kind.event.decode, line)
    except FAULTS:
        return None
    return event if event.type in CHANGES or event.type == "BOOKMARK" else None


def read_raw_event(line: bytes) -> tuple[Event[msgspec.Raw], About]:
    """Decode as little of an event as tells what it is about. Raises: GarbledError."""
    event = strictly(_RAW_EVENT, line)
    return event, strictly(_ABOUT, event.object)


def strictly(decoder: Any, raw: bytes | msgspec.Raw) -> Any:  # noqa: ANN401 typed by its decoder
    """Decode, or raise GarbledError: this no API server sends."""
    given = bytes(raw)
    try:
        return decoded(decoder.decode, given)
    except FAULTS as fault:
        mended = legible(given)
        if mended != given:
            return strictly(decoder, mended)
        raise GarbledError(f"API server: not what it must send: {fault}") from fault
