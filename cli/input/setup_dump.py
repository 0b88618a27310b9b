"""Read the setup around Ebb from dumps; what they do not contain is unknown."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from cli.input.setup import SETUP_KINDS, Read, Setup, SetupKind
from kube.decode.field_decoding import DECODE_ERRORS, Bytes
from kube.decode.json_depth import decoded
from kube.decode.objects import HEAD_DECODER
from kube.dump import items

_BY_NAME: Final = {kind.name: kind for kind in SETUP_KINDS}


def read(dumps: Sequence[tuple[str, bytes]]) -> Setup:
    """Return the setup in dumps, given as (source, bytes) that have been read before."""
    found: dict[str, list[Any]] = {}
    faults: dict[str, str] = {}
    for source, raw in dumps:
        for name, one, where in items(raw, source, []):
            kind = _BY_NAME.get(name)
            if kind is None:
                continue
            try:
                _add(found, kind, one)
            except DECODE_ERRORS as fault:
                faults[name] = f"{where}: {fault}"
    objects = {name: Read(tuple(ones)) for name, ones in found.items()}
    # A check must not conclude anything from a part of the objects.
    objects |= {name: Read(absent=fault) for name, fault in faults.items()}
    return Setup(objects=objects)


def _add(found: dict[str, list[Any]], kind: SetupKind, raw: Bytes) -> None:
    """Add an object of the kind. Raises: one of DECODE_ERRORS."""
    content = bytes(raw)
    objects = found.setdefault(kind.name, [])
    # Decoding all pods of a large cluster again would take longer than the plan.
    if kind.contains and not any(text in content for text in kind.contains):
        return
    if _group(content) in (None, kind.group):
        objects.append(decoded(msgspec.json.Decoder(kind.wire).decode, content))


def _group(content: bytes) -> str | None:
    """Return the API group of an object: "" for the core group (`v1`), None without apiVersion.

    OpenShift has kinds such as ClusterRole in a group of its own.
    """
    version = decoded(HEAD_DECODER.decode, content).api_version
    return version.rpartition("/")[0] if isinstance(version, str) and version else None
