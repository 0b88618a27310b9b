"""Create placeholders (a Pod or Node with only a name and the fault) for undecodable objects."""

import re
from hashlib import sha256
from typing import Final, NamedTuple, TypeVar

import msgspec

from core.model.errors import InvalidInputError
from core.model.node import Node
from core.model.pod import Pod
from core.model.resources import Resources
from kube.decode.field_decoding import DECODE_ERRORS, NULL, Bytes, checked_name
from kube.decode.json_depth import decoded
from kube.decode.objects import FINISHED, Name, Struct

REASON_CHARS_MAX: Final = 300
"""Maximum length of the reason why an object cannot be decoded; it quotes foreign text."""
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
    """The metadata of an object that is nested too deeply to be decoded, and some of its JSON."""

    metadata: Name
    raw: bytes
    """The object without most of its metadata; only for its placeholder."""


MEMBERS: Final = rb'(?:"[^"\\]*+":"[^"\\]*+",?+)*+'
"""Pattern for members with text values, at the start of an object."""
_HEAD: Final = re.compile(rb'\{%b"metadata":\{(%b)' % (MEMBERS, MEMBERS))


def outline(raw: bytes) -> Outline | None:
    """Return the metadata of an object in JSON; None if the name does not come first in it.

    The nested part is not scanned. The API server writes built-in kinds this way, with
    managedFields at the end of the metadata, so no text of users precedes the name. The text from
    `"spec"` on is the rest of the object; if it is not valid JSON, it is dropped.
    """
    head = _HEAD.match(raw)
    name_fields: bytes = head[1].rstrip(b",") if head else b""
    meta = _read(_WHO, b"{%b}" % name_fields, Name())
    if not meta.name:
        return None
    end = raw.find(b',"spec":{')
    whole = b'{"metadata":{%b}%b' % (name_fields, raw[end:] if end >= 0 else b"}")
    try:
        _PARTS.decode(whole)
    except DECODE_ERRORS:
        whole = b'{"metadata":{%b}}' % name_fields
    return Outline(meta, whole)


def pod(raw: Bytes, reason: str) -> Pod | None:
    """Return a placeholder for a pod that cannot be decoded; None for a finished pod.

    *raw*: JSON of the pod. *reason*: why it cannot be decoded. The placeholder has the pod's
    namespace, name and node, as far as they are valid.
    """
    parts = _read(_PARTS, raw, _Parts())
    if _read(_STATUS, parts.status, _Status()).phase in FINISHED:
        return None
    meta = _read(_WHO, parts.metadata, Name())
    # A dump may contain several pods with invalid names, which the API server would reject.
    digest = sha256(f"{meta.namespace}/{meta.name}".encode(errors="replace")).hexdigest()
    unnamed = f"unreadable-{digest[:16]}"
    return Pod(
        namespace=_name(meta.namespace or "default") or "default",
        name=_name(meta.name) or unnamed,
        node=_name(_read(_SPEC, parts.spec, _Spec()).node_name or "") or None,
        unreadable=reason[:REASON_CHARS_MAX],
    )


def node(raw: Bytes, reason: str) -> Node | None:
    """Return a placeholder for a Node that cannot be decoded; None if its name is unknown.

    *raw*: JSON of the Node. *reason*: why it cannot be decoded. The placeholder has no labels, so
    that Ebb writes nothing on the Node.
    """
    parts = _read(_PARTS, raw, _Parts())
    name = _name(_read(_WHO, parts.metadata, Name()).name)
    if not name:
        return None
    return Node(name=name, allocatable=Resources(), unreadable=reason[:REASON_CHARS_MAX])


def no_placeholder(_: Bytes, __: str) -> None:
    """Return None, for kinds without placeholders.

    Everything that depends on an undecodable object of the kind counts as unknown.
    """


def _name(text: str) -> str:
    try:
        return checked_name(text, "")
    except InvalidInputError:
        return ""


def _read(decoder: msgspec.json.Decoder[Wire_], raw: Bytes, otherwise: Wire_) -> Wire_:
    try:
        return decoded(decoder.decode, bytes(raw))
    except DECODE_ERRORS:
        return otherwise
