"""Kubernetes JSON to the model, straight from bytes; only what is used is decoded.

Typed decoding (core.edge.objects) skips what is not named there, so that a 5 kB pod costs
microseconds. Every fault names source, object and field.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Generic, TypeVar

import msgspec

from core.edge import convert, storage
from core.edge.objects import (
    BUDGET_DECODER,
    HEAD_DECODER,
    NAME_DECODER,
    NODE_DECODER,
    POD_DECODER,
    BudgetObject,
    Meta,
    NodeObject,
    PodObject,
)
from core.errors import InvalidInputError
from core.model import Cluster, DisruptionBudget, Node, Pod
from core.volumes import Claim, CsiNode, Storage, Volume, cluster_of

__all__ = [
    "CLAIMS",
    "CSI_NODES",
    "NODE_DECODER",
    "POD_DECODER",
    "VOLUMES",
    "budget",
    "budget_of",
    "cluster_from_dumps",
    "decode_dump",
    "from_dumps",
    "node",
    "node_of",
    "pod",
    "pod_of",
]

HOW_TO: Final = "make it with: kubectl get nodes,pods,pdb,pv,pvc,csinodes -A -o json"
SHOWN_MAX: Final = 80
"""Characters of a name that a fault repeats."""
ITEM_KINDS: Final = {
    "NodeList": "Node",
    "PodList": "Pod",
    "PodDisruptionBudgetList": "PodDisruptionBudget",
    "PersistentVolumeClaimList": "PersistentVolumeClaim",
    "PersistentVolumeList": "PersistentVolume",
    "CSINodeList": "CSINode",
}
"""Kind of the items, which do not name it themselves in lists of one kind."""

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


def decode_dump(raw: bytes, source: str) -> list[Object]:
    """Decode what kubectl prints with -o json: a list of any kinds, of one kind, or one object.

    Finished pods and objects of other kinds are left out.
    Raises: InvalidInputError that names source, object and field.
    """
    found = (_object(kind, item, source) for kind, item in _items(raw, source))
    return [one for one in found if one is not None]


def cluster_from_dumps(dumps: Sequence[tuple[str, bytes]]) -> Cluster:
    """Merge dumps, each (source, bytes), into one Cluster. Raises: as `from_dumps`."""
    return from_dumps(dumps)[0]


def from_dumps(dumps: Sequence[tuple[str, bytes]]) -> tuple[Cluster, frozenset[str]]:
    """Merge dumps, each (source, bytes), into one Cluster; return it and the kinds they hold.

    A dump without any pod is refused: every node would look as if it could go.
    Raises: InvalidInputError that names source, object and field.
    """
    kinds: set[str] = set()
    found: list[Object | None] = []
    for source, raw in dumps:
        for kind, item in _items(raw, source):
            kinds.add(kind)
            found.append(_object(kind, item, source))
    sources = ", ".join(source for source, _ in dumps)
    for kind, name in (("Node", "nodes"), ("Pod", "pods")):
        if kind not in kinds:
            raise InvalidInputError(sources, f"holds no {name}; {HOW_TO}")
    return _cluster(found, sources), frozenset(kinds)


def _cluster(found: Iterable[Object | None], sources: str) -> Cluster:
    nodes: list[Node] = []
    pods: list[Pod] = []
    budgets: list[DisruptionBudget] = []
    claims: dict[str, Claim] = {}
    volumes: dict[str, Volume] = {}
    csi_nodes: dict[str, CsiNode] = {}
    for one in found:
        match one:
            case Pod():
                pods.append(one)
            case Node():
                nodes.append(one)
            case DisruptionBudget():
                budgets.append(one)
            case Claim():
                claims[one.key] = one
            case Volume():
                volumes[one.name] = one
            case CsiNode():
                csi_nodes[one.name] = one
            case None:
                pass
    try:
        return cluster_of(nodes, pods, budgets, Storage(claims, volumes, csi_nodes))
    except InvalidInputError as fault:
        raise InvalidInputError(f"{sources}: {fault.where}", fault.problem) from fault


def _items(raw: bytes, source: str) -> Iterator[tuple[str, Bytes]]:
    """Yield (kind, bytes) of a list's items, or of the one object that was given."""
    if not raw.strip():
        raise InvalidInputError(source, f"is empty; {HOW_TO}")
    head = _decode(HEAD_DECODER.decode, raw, source, HOW_TO)
    if head.items is None:
        yield head.kind, raw
        return
    of_list = ITEM_KINDS.get(head.kind, "")
    for number, item in enumerate(head.items):
        yield (
            of_list or _decode(HEAD_DECODER.decode, item, f"{source}: items[{number}]").kind,
            item,
        )


def _object(kind: str, raw: Bytes, source: str) -> Object | None:
    read = _READERS.get(kind)
    return read(raw, source) if read is not None else None


_READERS: Final[Mapping[str, Callable[[Bytes, str], Object | None]]] = {
    "Pod": pod,
    "Node": node,
    "PodDisruptionBudget": budget,
    "PersistentVolumeClaim": CLAIMS.read,
    "PersistentVolume": VOLUMES.read,
    "CSINode": CSI_NODES.read,
}
"""By kind; objects of other kinds are left out."""


def _struct(decoder: msgspec.json.Decoder[Wire_], raw: Bytes, kind: str, source: str) -> Wire_:
    """Decode one object; the search for its name is paid for by faults alone."""
    try:
        return decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        name = _decode(NAME_DECODER.decode, raw, _join(source, kind)).metadata
        where = _where(source, kind, name.namespace, name.name) if name else _join(source, kind)
        return _decode(decoder.decode, raw, where)


def _decode(decode: Callable[[Bytes], Model_], raw: Bytes, where: str, hint: str = "") -> Model_:
    """Decode, or raise InvalidInputError with the field or the position."""
    try:
        return decode(raw)
    except msgspec.ValidationError as fault:
        problem, _, path = str(fault).partition(" - at `$")
        field = path.rstrip("`").lstrip(".")
        raise InvalidInputError(_join(where, field), _hinted(problem, hint)) from fault
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
        _join(_where(source, kind, namespace, name), fault.where), fault.problem
    )


def _where(source: str, kind: str, namespace: str | None, name: str) -> str:
    shown = (f"{namespace}/{name}" if namespace else name)[:SHOWN_MAX]
    return _join(source, f"{kind} {shown if shown.isprintable() else ascii(shown)}".strip())


def _join(where: str, what: str) -> str:
    return f"{where}: {what}" if where and what else where or what


def _hinted(problem: str, hint: str) -> str:
    return f"{problem}; {hint}" if hint else problem
