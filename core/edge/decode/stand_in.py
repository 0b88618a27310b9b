"""What stands for an object that cannot be read: as much of it as says which node it is about."""

from hashlib import sha256
from typing import Final, TypeVar

import msgspec

from core.edge.decode.depth import decoded
from core.edge.decode.fields import FAULTS, Bytes, checked
from core.edge.decode.objects import FINISHED, NULL, Name, Struct
from core.errors import InvalidInputError
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
