"""Kubernetes JSON to the model, straight from bytes; only what is used is decoded.

Typed decoding (core.edge.decode.objects) skips what is not named there, so that a 5 kB pod costs
microseconds. Every fault names source, object and field.
"""

from collections.abc import Callable
from typing import Final, Generic, TypeVar

import msgspec

from core.edge.decode import convert, storage
from core.edge.decode.depth import decoded
from core.edge.decode.objects import (
    BUDGET_DECODER,
    NAME_DECODER,
    NODE_DECODER,
    POD_DECODER,
    BudgetObject,
    Meta,
    NodeObject,
    PodObject,
)
from core.errors import InvalidInputError
from core.model.cluster import DisruptionBudget
from core.model.node import Node
from core.model.pod import Pod
from core.model.volumes import Claim, CsiNode, Volume

__all__ = [
    "CLAIMS",
    "CSI_NODES",
    "NODE_DECODER",
    "POD_DECODER",
    "VOLUMES",
    "budget",
    "budget_of",
    "join",
    "node",
    "node_of",
    "pod",
    "pod_of",
    "strictly",
    "where_of",
]

SHOWN_MAX: Final = 80
"""Characters of a name that a fault repeats."""

Bytes = bytes | msgspec.Raw
Object = Node | Pod | DisruptionBudget | Claim | Volume | CsiNode
Wire_ = TypeVar("Wire_")
Model_ = TypeVar("Model_")


def node(raw: Bytes, source: str = "") -> Node:
    """Decode one v1 Node. Raises: InvalidInputError that names source, object and field."""
    return node_of(_struct(NODE_DECODER, raw, "Node", source), source)


def pod(raw: Bytes, source: str = "") -> Pod | None:
    """Decode one v1 Pod; None for a finished one. Raises: InvalidInputError as `node`."""
    return pod_of(_struct(POD_DECODER, raw, "Pod", source), source)


def node_of(obj: NodeObject, source: str = "") -> Node:
    """Make a Node of its decoded wire form. Raises: InvalidInputError as `node`."""
    try:
        return convert.node(obj)
    except InvalidInputError as fault:
        raise _about(fault, source, "Node", None, obj.metadata.name) from fault


def pod_of(obj: PodObject, source: str = "") -> Pod | None:
    """Make a Pod of its decoded wire form; None for a finished one. Raises: as `node`."""
    try:
        return convert.pod(obj)
    except InvalidInputError as fault:
        meta = obj.metadata
        raise _about(fault, source, "Pod", meta.namespace, meta.name) from fault


def budget(raw: Bytes, source: str = "") -> DisruptionBudget:
    """Decode one policy/v1 PodDisruptionBudget. Raises: InvalidInputError as `node`."""
    return budget_of(_struct(BUDGET_DECODER, raw, "PodDisruptionBudget", source), source)


def budget_of(obj: BudgetObject, source: str = "") -> DisruptionBudget:
    """Make a budget of its decoded wire form. Raises: InvalidInputError as `node`."""
    try:
        return convert.budget(obj)
    except InvalidInputError as fault:
        meta = obj.metadata
        raise _about(fault, source, "PodDisruptionBudget", meta.namespace, meta.name) from fault


class Reader(Generic[Wire_, Model_]):
    """Decodes one kind of object, and says in its faults which object it is about."""

    def __init__(
        self,
        kind: str,
        decoder: msgspec.json.Decoder[Wire_],
        make: Callable[[Wire_], Model_],
        meta: Callable[[Wire_], Meta],
    ) -> None:
        self._kind, self._decoder, self._make, self._meta = kind, decoder, make, meta

    def read(self, raw: Bytes, source: str = "") -> Model_:
        """Decode one. Raises: InvalidInputError as `node`."""
        return self.made(_struct(self._decoder, raw, self._kind, source), source)

    def made(self, obj: Wire_, source: str = "") -> Model_:
        """Make one of its decoded wire form. Raises: InvalidInputError as `node`."""
        try:
            return self._make(obj)
        except InvalidInputError as fault:
            meta = self._meta(obj)
            raise _about(fault, source, self._kind, meta.namespace, meta.name) from fault


CLAIMS: Final = Reader(
    "PersistentVolumeClaim", storage.CLAIM_DECODER, storage.claim, lambda obj: obj.metadata
)
VOLUMES: Final = Reader(
    "PersistentVolume", storage.VOLUME_DECODER, storage.volume, lambda obj: obj.metadata
)
CSI_NODES: Final = Reader(
    "CSINode", storage.CSI_NODE_DECODER, storage.csi_node, lambda obj: obj.metadata
)


def _struct(decoder: msgspec.json.Decoder[Wire_], raw: Bytes, kind: str, source: str) -> Wire_:
    """Decode one object; the search for its name is paid for by faults alone."""
    try:
        return decoded(decoder.decode, bytes(raw))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        name = strictly(NAME_DECODER.decode, raw, join(source, kind)).metadata
        where = where_of(source, kind, name.namespace, name.name) if name else join(source, kind)
        return strictly(decoder.decode, raw, where)


def strictly(decode: Callable[[Bytes], Model_], raw: Bytes, where: str, hint: str = "") -> Model_:
    """Decode, or raise InvalidInputError with the field or the position."""
    try:
        return decoded(decode, bytes(raw))
    except msgspec.ValidationError as fault:
        problem, _, path = str(fault).partition(" - at `$")
        field = path.rstrip("`").lstrip(".")
        raise InvalidInputError(join(where, field), _hinted(problem, hint)) from fault
    except UnicodeDecodeError as fault:
        raise InvalidInputError(where, _hinted("is not UTF-8", hint)) from fault
    except RecursionError as fault:
        raise InvalidInputError(where, _hinted("is nested too deeply", hint)) from fault
    except msgspec.DecodeError as fault:
        # Only this one comes without a position.
        cut = f"{fault} after {len(bytes(raw))} bytes" if "truncated" in str(fault) else str(fault)
        raise InvalidInputError(where, _hinted(f"is not whole JSON: {cut}", hint)) from fault


def _about(
    fault: InvalidInputError, source: str, kind: str, namespace: str | None, name: str
) -> InvalidInputError:
    """Put the object before the field."""
    return InvalidInputError(
        join(where_of(source, kind, namespace, name), fault.where), fault.problem
    )


def where_of(source: str, kind: str, namespace: str | None, name: str) -> str:
    """Name an object in its source, printable and short."""
    shown = (f"{namespace}/{name}" if namespace else name)[:SHOWN_MAX]
    return join(source, f"{kind} {shown if shown.isprintable() else ascii(shown)}".strip())


def join(where: str, what: str) -> str:
    """Put a place before what stands there; either may be empty."""
    return f"{where}: {what}" if where and what else where or what


def _hinted(problem: str, hint: str) -> str:
    return f"{problem}; {hint}" if hint else problem
