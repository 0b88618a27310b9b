"""Decode the output of kubectl with -o json into a Cluster: lists, or a single object."""

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
    f"kubectl get {','.join(kind.short for kind in KINDS if kind.in_dumps)} -A -o json"
)
"""Command that creates a dump; kubectl fails for kinds that the cluster does not serve, so these
need another dump."""
HOW_TO: Final = f"create it with: {COMMAND}"
LIST: Final = "List"
"""Suffix of the kind of a list; unlike in a plain List, its items do not name their kind."""


def from_dumps(
    dumps: Sequence[tuple[str, bytes]],
    schedulers: Collection[str],
    refused: list[str],
    time: DumpTime | None = None,
) -> tuple[Cluster, frozenset[str]]:
    """Merge dumps, given as (source, bytes), into a Cluster; return it and the kinds they contain.

    *schedulers*: as for Inventory.snapshot. An object that cannot be decoded is replaced by a
    placeholder, and its name, field and fault are added to *refused*. *time* collects times of the
    dumps. A dump without pods is rejected: every node would look empty.

    Raises: InvalidInputError that names the source.
    """
    found = [entry for source, raw in dumps for entry in objects(raw, source, refused, time)]
    names = frozenset(name for name, _ in found)
    sources = ", ".join(source for source, _ in dumps)
    for kind in (NODES, PODS):
        if kind.name not in names:
            raise InvalidInputError(sources, f"contains no {kind.resource}; {HOW_TO}")
    inventory = Inventory()
    for name, one in found:
        if one is not None:
            _add(inventory, BY_NAME[name], one, sources)
    return inventory.snapshot(schedulers)(), names


def _add(inventory: Inventory, kind: AnyKind, one: Object, sources: str) -> None:
    """Add an object. Raises: InvalidInputError for a second node or pod with the same name."""
    key = kind.key(one)
    if kind in (NODES, PODS) and key in inventory.of(kind):
        where = f"{sources}: {kind.name.lower()} {key}"
        raise InvalidInputError(where, "occurs more than once in the input")
    inventory.changed(kind, one)


def objects(
    raw: bytes, source: str, refused: list[str], time: DumpTime | None = None
) -> Iterator[tuple[str, Object | None]]:
    """Yield kind and object, or its placeholder; None if the object does not count.

    Raises: InvalidInputError if the dump is not JSON.
    """
    for name, raw_item, where in items(raw, source, refused):
        found = _object(name, raw_item, where, refused)
        if time is not None and isinstance(found, Node):
            time.add_node(found.name, raw_item)
        elif time is not None and name == PODS.name and found is None:
            time.add_finished(raw_item)
        yield name, found


def items(raw: bytes, source: str, refused: list[str]) -> Iterator[tuple[str, Bytes, str]]:
    """Yield the kind of each object, its bytes, and its place in the source.

    Objects of other APIs are skipped if their kind has the name of a kind that Ebb knows.

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
    """Return whether the object belongs to another API whose kind has the name of a known kind."""
    kind = BY_NAME.get(one.kind)
    return kind is not None and not kind.is_of(one.api_version)


def _object(name: str, raw: Bytes, source: str, refused: list[str]) -> Object | None:
    kind = BY_NAME.get(name)
    if kind is None:
        return None
    try:
        found: Object | None = kind.read(raw, source)
    except InvalidInputError as fault:
        message = str(fault)
        refused.append(message)
        placeholder: Object | None = kind.blind(raw, message.removeprefix(f"{source}: "))
        return placeholder
    if isinstance(found, Node) and found.unreadable:
        refused.append(join(where_of(source, name, None, found.name), found.unreadable))
    return found
