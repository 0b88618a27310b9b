"""What kubectl prints with -o json, to a Cluster: a list of any kinds, of one kind, one object."""

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from core.edge.decode.dump_time import DumpTime
from core.edge.decode.fields import Bytes, join, strictly, where_of
from core.edge.decode.inventory import Inventory
from core.edge.decode.json_depth import legible
from core.edge.decode.kinds import BY_NAME, KINDS, NODES, PODS, AnyKind, Object
from core.edge.decode.objects import HEAD_DECODER, AnyObject
from core.model.cluster import Cluster
from core.model.errors import InvalidInputError
from core.model.node import Node

COMMAND: Final = (
    f"kubectl get {','.join(kind.short for kind in KINDS if not kind.optional)} -A -o json"
)
"""kubectl refuses all where it does not know one: the optional kinds are a dump of their own."""
HOW_TO: Final = f"make it with: {COMMAND}"
LIST: Final = "List"
"""What the kind of a list ends in: its items do not name theirs, unless that is all of it."""


def from_dumps(
    dumps: Sequence[tuple[str, bytes]],
    schedulers: Collection[str],
    refused: list[str],
    time: DumpTime | None = None,
) -> tuple[Cluster, frozenset[str]]:
    """Merge dumps, each (source, bytes), into one Cluster; return it and the kinds they hold.

    *schedulers*: as for Inventory.snapshot. For an object that cannot be read stands what is known
    of it; *refused* is told which it is, which field, and why; *time* collects when the dumps
    were made. A dump without any pod is refused: every node would look as if it could go.

    Raises: InvalidInputError that names the source.
    """
    found = [entry for source, raw in dumps for entry in objects(raw, source, refused, time)]
    names = frozenset(name for name, _ in found)
    sources = ", ".join(source for source, _ in dumps)
    for kind in (NODES, PODS):
        if kind.name not in names:
            raise InvalidInputError(sources, f"holds no {kind.resource}; {HOW_TO}")
    inventory = Inventory()
    for name, one in found:
        if one is not None:
            _add(inventory, BY_NAME[name], one, sources)
    return inventory.snapshot(schedulers)(), names


def _add(inventory: Inventory, kind: AnyKind, one: Object, sources: str) -> None:
    """Add one. Raises: InvalidInputError for a second node or pod of one name."""
    key = kind.key(one)
    if kind in (NODES, PODS) and key in inventory.of(kind):
        where = f"{sources}: {kind.name.lower()} {key}"
        raise InvalidInputError(where, "stands in the input twice")
    inventory.changed(kind, one)


def objects(
    raw: bytes, source: str, refused: list[str], time: DumpTime | None = None
) -> Iterator[tuple[str, Object | None]]:
    """Yield the kind's name and object, or what stands for it; None: nothing, or not counted.

    Raises: InvalidInputError when it is no JSON.
    """
    for name, raw_item, where in items(raw, source, refused):
        found = _object(name, raw_item, where, refused)
        if time is not None and isinstance(found, Node):
            time.add_node(found.name, raw_item)
        elif time is not None and name == PODS.name and found is None:
            time.add_finished(raw_item)
        yield name, found


def items(raw: bytes, source: str, refused: list[str]) -> Iterator[tuple[str, Bytes, str]]:
    """Yield the kind's name, the bytes of an object, and in which source it stands.

    Those of other APIs are passed over where their kind is called as one that Ebb knows.

    Raises: as `objects`.
    """
    if not raw.strip():
        raise InvalidInputError(source, f"is empty; {HOW_TO}")
    try:
        head = strictly(HEAD_DECODER.decode, raw, source, HOW_TO, None)
    except InvalidInputError:
        raw = legible(raw)
        head = strictly(HEAD_DECODER.decode, raw, source, HOW_TO, None)
    if head.items is None:
        if not _is_of_another(head):
            yield head.kind, raw, source
        return
    of_list = AnyObject(head.kind.removesuffix(LIST), head.api_version)
    known = of_list.kind in BY_NAME
    for number, item in enumerate(head.items):
        try:
            where = f"{source}: items[{number}]"
            one = of_list if known else strictly(HEAD_DECODER.decode, item, where)
        except InvalidInputError as fault:
            refused.append(str(fault))
        else:
            if not _is_of_another(one):
                yield one.kind, item, source


def _is_of_another(one: AnyObject) -> bool:
    """Say whether it is another API's, of a kind that is called as one that Ebb knows."""
    kind = BY_NAME.get(one.kind)
    return kind is not None and not kind.is_of(one.api_version)


def _object(name: str, raw: Bytes, source: str, refused: list[str]) -> Object | None:
    kind = BY_NAME.get(name)
    if kind is None:
        return None
    try:
        found: Object | None = kind.read(raw, source)
    except InvalidInputError as fault:
        told = str(fault)
        refused.append(told)
        stands: Object | None = kind.blind(raw, told.removeprefix(f"{source}: "))
        return stands
    if isinstance(found, Node) and found.unreadable:
        refused.append(join(where_of(source, name, None, found.name), found.unreadable))
    return found
