"""What kubectl prints with -o json, to a Cluster: a list of any kinds, of one kind, one object."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from core.edge.decode import decode, stand_in
from core.edge.decode.decode import Bytes, Object, join, strictly, where_of
from core.edge.decode.depth import legible
from core.edge.decode.objects import HEAD_DECODER
from core.errors import InvalidInputError
from core.model.cluster import Cluster, DisruptionBudget
from core.model.node import Node
from core.model.pod import Pod
from core.model.volumes import Claim, CsiNode, Storage, Volume, cluster_of

HOW_TO: Final = "make it with: kubectl get nodes,pods,pdb,pv,pvc,csinodes -A -o json"
ITEM_KINDS: Final = {
    "NodeList": "Node",
    "PodList": "Pod",
    "PodDisruptionBudgetList": "PodDisruptionBudget",
    "PersistentVolumeClaimList": "PersistentVolumeClaim",
    "PersistentVolumeList": "PersistentVolume",
    "CSINodeList": "CSINode",
}
"""Kind of the items, which do not name it themselves in lists of one kind."""
_READERS: Final[Mapping[str, Callable[[Bytes, str], Object | None]]] = {
    "Pod": decode.pod,
    "Node": decode.node,
    "PodDisruptionBudget": decode.budget,
    "PersistentVolumeClaim": decode.CLAIMS.read,
    "PersistentVolume": decode.VOLUMES.read,
    "CSINode": decode.CSI_NODES.read,
}
"""By kind; objects of other kinds are left out."""
_STAND_INS: Final[Mapping[str, Callable[[Bytes, str], Object | None]]] = {
    "Pod": stand_in.pod,
    "Node": stand_in.node,
}


def cluster_from_dumps(
    dumps: Sequence[tuple[str, bytes]], refused: list[str] | None = None
) -> Cluster:
    """Merge dumps, each (source, bytes), into one Cluster. Raises: as `from_dumps`."""
    return from_dumps(dumps, [] if refused is None else refused)[0]


def from_dumps(
    dumps: Sequence[tuple[str, bytes]], refused: list[str]
) -> tuple[Cluster, frozenset[str]]:
    """Merge dumps, each (source, bytes), into one Cluster; return it and the kinds they hold.

    For an object that cannot be read stands what is known of it; *refused* is told which it is,
    which field, and why. A dump without any pod is refused: every node would look as if it could
    go. Raises: InvalidInputError that names the source.
    """
    found = [entry for source, raw in dumps for entry in objects(raw, source, refused)]
    kinds = frozenset(kind for kind, _ in found)
    sources = ", ".join(source for source, _ in dumps)
    for kind, name in (("Node", "nodes"), ("Pod", "pods")):
        if kind not in kinds:
            raise InvalidInputError(sources, f"holds no {name}; {HOW_TO}")
    return _cluster((one for _, one in found), sources), kinds


def objects(raw: bytes, source: str, refused: list[str]) -> Iterator[tuple[str, Object | None]]:
    """Yield kind and object, or what stands for it; None: nothing, or it does not count.

    Raises: InvalidInputError when it is no JSON.
    """
    if not raw.strip():
        raise InvalidInputError(source, f"is empty; {HOW_TO}")
    try:
        head = strictly(HEAD_DECODER.decode, raw, source, HOW_TO)
    except InvalidInputError:
        raw = legible(raw)
        head = strictly(HEAD_DECODER.decode, raw, source, HOW_TO)
    if head.items is None:
        yield head.kind, _object(head.kind, raw, source, refused)
        return
    of_list = ITEM_KINDS.get(head.kind, "")
    for number, item in enumerate(head.items):
        try:
            where = f"{source}: items[{number}]"
            kind = of_list or strictly(HEAD_DECODER.decode, item, where).kind
        except InvalidInputError as fault:
            refused.append(str(fault))
        else:
            yield kind, _object(kind, item, source, refused)


def _object(kind: str, raw: Bytes, source: str, refused: list[str]) -> Object | None:
    read = _READERS.get(kind)
    if read is None:
        return None
    try:
        found = read(raw, source)
    except InvalidInputError as fault:
        told = str(fault)
        refused.append(told)
        return _STAND_INS.get(kind, stand_in.nothing)(raw, told.removeprefix(f"{source}: "))
    if isinstance(found, Node) and found.unreadable:
        refused.append(join(where_of(source, kind, None, found.name), found.unreadable))
    return found


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
