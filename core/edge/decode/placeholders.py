"""What stands for an object that cannot be read: as much of it as says which node it is about."""

import re
from hashlib import sha256
from typing import Final, NamedTuple, TypeVar

import msgspec

from core.edge.decode.fields import FAULTS, Bytes, checked
from core.edge.decode.json_depth import decoded
from core.edge.decode.objects import FINISHED, NULL, Name, Struct
from core.model.errors import InvalidInputError
from core.model.node import Node
from core.model.pod import Pod
from core.model.resources import Resources

REASON_CHARS_MAX: Final = 300
"""Of why an object could not be read: it quotes what somebody has written."""
Wire_ = TypeVar("Wire_", bound=Struct)


class _Parts(Struct):
    metadata: msgspec.Raw = NULL
    spec: msgspec.Raw = NULL
    status: msgspec.Raw = NULL


class _Spec(Struct):
    node_name: str | None = None


class _Status(Struct):
    phase: str | None = None


_PARTS: Final = msgspec.json.Decoder(_Parts)
_WHO: Final = msgspec.json.Decoder(Name)
_SPEC: Final = msgspec.json.Decoder(_Spec)
_STATUS: Final = msgspec.json.Decoder(_Status)


class Outline(NamedTuple):
    """What is known at once of an object that nests too deep to be cut."""

    metadata: Name
    raw: bytes
    """The object without most of its metadata; for a stand-in, not to be read as the object."""


MEMBERS: Final = rb'(?:"[^"\\]*+":"[^"\\]*+",?+)*+'
"""Those of which an object's values are text, from wherever it begins."""
_HEAD: Final = re.compile(rb'\{%b"metadata":\{(%b)' % (MEMBERS, MEMBERS))


def outline(raw: bytes) -> Outline | None:
    """Return what is known without a look at what nests; None where the name does not stand first.

    The API server writes the kinds of its own that way, and managedFields as the metadata's end:
    nobody else's words stand before the name. What is found behind is an object's end, or no JSON.
    """
    head = _HEAD.match(raw)
    who: bytes = head[1].rstrip(b",") if head else b""
    meta = _read(_WHO, b"{%b}" % who, Name())
    if not meta.name:
        return None
    end = raw.find(b',"spec":{')
    whole = b'{"metadata":{%b}%b' % (who, raw[end:] if end >= 0 else b"}")
    try:
        _PARTS.decode(whole)
    except FAULTS:
        whole = b'{"metadata":{%b}}' % who
    return Outline(meta, whole)


def pod(raw: Bytes, reason: str) -> Pod | None:
    """Return what is known of a pod; None for a finished one."""
    parts = _read(_PARTS, raw, _Parts())
    if _read(_STATUS, parts.status, _Status()).phase in FINISHED:
        return None
    who = _read(_WHO, parts.metadata, Name())
    # No API server takes a name that is none; files may have several such pods.
    digest = sha256(f"{who.namespace}/{who.name}".encode(errors="replace")).hexdigest()
    unnamed = f"unreadable-{digest[:16]}"
    return Pod(
        namespace=_name(who.namespace or "default") or "default",
        name=_name(who.name) or unnamed,
        node=_name(_read(_SPEC, parts.spec, _Spec()).node_name or "") or None,
        unreadable=reason[:REASON_CHARS_MAX],
    )


def node(raw: Bytes, reason: str) -> Node | None:
    """Return what is known of a Node; None: not even its name.

    Its labels are left out, so that nothing is written there.
    """
    parts = _read(_PARTS, raw, _Parts())
    name = _name(_read(_WHO, parts.metadata, Name()).name)
    if not name:
        return None
    return Node(name=name, allocatable=Resources(), unreadable=reason[:REASON_CHARS_MAX])


def nothing(_: Bytes, __: str) -> None:
    """Stand for an object without which all that it is about is judged as not known."""


def _name(text: str) -> str:
    try:
        return checked(text, "")
    except InvalidInputError:
        return ""


def _read(decoder: msgspec.json.Decoder[Wire_], raw: Bytes, otherwise: Wire_) -> Wire_:
    try:
        return decoded(decoder.decode, bytes(raw))
    except FAULTS:
        return otherwise
