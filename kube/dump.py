"""Decode dumps into a Cluster: output of `kubectl get -o json`, lists or a single object."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from core.cluster.read_options import ReadOptions
from core.model.cluster import Cluster
from core.model.errors import InvalidInputError
from core.model.node import Node
from core.model.pod import Pod
from core.moves.objects import SurgeObjects
from kube.cluster_kinds import BY_NAME, CLUSTER_KINDS
from kube.decode.field_decoding import DECODE_ERRORS, Bytes, decode_json, join, location_of
from kube.decode.json_depth import legible
from kube.decode.kinds import DEPLOYMENTS, NODES, PODS, REPLICA_SETS, AnyKind, Object
from kube.decode.objects import (
    HEAD_DECODER,
    LINES_DECODER,
    LIST_META_DECODER,
    AnyObject,
    ListMeta,
)
from kube.dump_time import DumpTime
from kube.inventory import Inventory

COMMAND: Final = (
    f"kubectl get {','.join(kind.short for kind in CLUSTER_KINDS if kind.in_dumps)} -A -o json"
)
"""Command that creates a dump. kubectl fails if the cluster does not serve one of the kinds, so
the command names only kinds that every cluster serves; a second dump can contain the others."""
HOW_TO: Final = f"create it with: {COMMAND}"
LIST: Final = "List"
"""Suffix of the kind of a list, such as PodList; its items need not name their kind."""


_TEXT: Final = re.compile(rb"\S")


class Dumped(NamedTuple):
    """The content of all dumps: a Cluster, the names of the kinds, and objects for surge moves."""

    cluster: Cluster
    kinds: frozenset[str]
    """Names of the kinds that the dumps contain."""
    surge_objects: SurgeObjects | None
    """The objects that surge moves depend on; None without Deployments and ReplicaSets."""


def from_dumps(
    dumps: Sequence[tuple[str, bytes]],
    options: ReadOptions,
    refused: list[str],
    time: DumpTime | None = None,
) -> Dumped:
    """Decode several dumps to one Cluster.

    *dumps*: the name of each file, for messages, and its content. *refused*: a list to which one
    message is added for each object that cannot be decoded; a placeholder replaces a Pod or Node.
    *time*: collects the times of the objects.

    Raises: InvalidInputError that names the file, also if the dumps contain no Nodes or no Pods.
    Without Pods every node would look empty.
    """
    by_kind: dict[str, list[Object]] = {}
    for source, raw in dumps:
        for name, obj in objects(raw, source, refused, time):
            known = by_kind.setdefault(name, [])
            if obj is not None:
                known.append(obj)
    names = frozenset(by_kind)
    sources = ", ".join(source for source, _ in dumps)
    for kind in (NODES, PODS):
        if kind.name not in names:
            raise InvalidInputError(sources, f"contains no {kind.resource}; {HOW_TO}")
    pods = [pod for pod in by_kind[PODS.name] if isinstance(pod, Pod)]
    latest = None if time is None else time.latest(pods)
    inventory = Inventory(lambda: latest)
    for name, known in by_kind.items():
        if name in BY_NAME:
            _add(inventory, BY_NAME[name], known, sources)
    surge = {DEPLOYMENTS.name, REPLICA_SETS.name} <= names
    return Dumped(
        inventory.snapshot(options)(), names, inventory.surge_snapshot()() if surge else None
    )


def _add(inventory: Inventory, kind: AnyKind, decoded: Sequence[Object], sources: str) -> None:
    """Add the decoded objects of a kind to the inventory; *sources*: names of the files.

    Raises: InvalidInputError if two Nodes or two Pods have the same name.
    """
    inventory.replaced(kind, decoded)
    if kind in (NODES, PODS) and len(inventory.of(kind)) < len(decoded):
        counts = Counter(map(kind.key, decoded))
        repeated = next(key for key, count in counts.items() if count > 1)
        where = f"{sources}: {kind.name.lower()} {repeated}"
        raise InvalidInputError(where, "occurs more than once in the input")


def objects(
    raw: bytes, source: str, refused: list[str], time: DumpTime | None = None
) -> Iterator[tuple[str, Object | None]]:
    """Decode one dump, and yield each object after the name of its kind.

    For a Pod or Node that cannot be decoded, yield a placeholder with its name and the fault.
    Yield None for an object that does not count, such as a finished pod, or whose kind Ebb does
    not know.

    *raw*: content of the dump. *source*: name of the file. *refused*: a list to which a message is
    added for each object that cannot be decoded. *time*: collects times of objects.

    Raises: InvalidInputError if the dump is not JSON.
    """
    for name, raw_item, where in items(raw, source, refused):
        obj = _object(name, raw_item, where, refused)
        if time is not None and isinstance(obj, Node):
            time.add_node(obj.name, raw_item)
        elif time is not None and name == PODS.name and obj is None:
            time.add_finished(raw_item)
        elif time is not None and isinstance(obj, Pod) and obj.node is None:
            time.add_without_node(raw_item)
        yield name, obj


def items(raw: bytes, source: str, refused: list[str]) -> Iterator[tuple[str, Bytes, str]]:
    """Yield for each object of a dump the name of its kind, its JSON, and its place for messages.

    A dump may be one object, one list, a list of lists, or several of these, one on each line. An
    object is skipped if its kind has the name of a kind that Ebb knows, but another API group.
    *refused*: a list to which a message is added for each item that is not an object.

    Raises: InvalidInputError if the dump is empty or not JSON, or if a list is incomplete.
    """
    if not _TEXT.search(raw):
        raise InvalidInputError(source, f"is empty; {HOW_TO}")
    if lines := _lines(raw):
        for line in lines:
            yield from _items(bytes(line), source, refused)
    else:
        yield from _items(raw, source, refused)


def _lines(raw: bytes) -> Sequence[Bytes]:
    """Return the lines of a dump that has one JSON value on each line; empty for other dumps."""
    end = raw.find(b"\n")
    # Without copies: a dump may have gigabytes, and nearly all have one value.
    if (
        end < 0
        or not raw[max(0, end - 2) : end].rstrip().endswith(b"}")
        or not _TEXT.search(raw, end)
    ):
        return ()
    try:
        return LINES_DECODER.decode_lines(raw)
    except DECODE_ERRORS:
        return ()


def _items(
    raw: bytes, source: str, refused: list[str], *, nested: bool = False
) -> Iterator[tuple[str, Bytes, str]]:
    try:
        head = decode_json(HEAD_DECODER.decode, raw, source, HOW_TO, None)
    except InvalidInputError:
        raw = legible(raw)
        head = decode_json(HEAD_DECODER.decode, raw, source, HOW_TO, None)
    if head.items is None:
        if not _is_of_other_api(head):
            yield head.kind, raw, source
        return
    of_list = AnyObject(head.kind.removesuffix(LIST), head.api_version)
    known = of_list.kind in BY_NAME
    if known or not of_list.kind:
        _check_complete(head, source)
    for number, item in enumerate(head.items):
        try:
            where = f"{source}: items[{number}]"
            inner = of_list if known else decode_json(HEAD_DECODER.decode, item, where)
        except InvalidInputError as fault:
            refused.append(str(fault))
        else:
            if inner.items is not None and inner is not of_list and not nested:
                yield from _items(bytes(item), where, refused, nested=True)
            elif not _is_of_other_api(inner):
                yield inner.kind, item, source


def _check_complete(head: AnyObject, source: str) -> None:
    """Check that a list has all objects, and is not one page of a longer list.

    Raises: InvalidInputError if pages are missing. Source: Kubernetes API concepts, "Retrieving
    large results sets in chunks".
    """
    try:
        meta = LIST_META_DECODER.decode(head.metadata) or ListMeta()
    except DECODE_ERRORS:
        return
    if not (meta.continue_ or meta.remaining_item_count):
        return
    more = f", {meta.remaining_item_count:,} more items" if meta.remaining_item_count else ""
    kind = head.kind or LIST
    problem = f"is incomplete: its {kind} is one page, and the API server has more{more}"
    raise InvalidInputError(source, f"{problem}; {HOW_TO}")


def _is_of_other_api(obj: AnyObject) -> bool:
    """Return whether an object has the kind's name of a known kind, but another API group.

    False if Ebb knows no kind of this name.
    """
    kind = BY_NAME.get(obj.kind)
    return kind is not None and not kind.is_of(obj.api_version)


def _object(name: str, raw: Bytes, source: str, refused: list[str]) -> Object | None:
    kind = BY_NAME.get(name)
    if kind is None:
        return None
    try:
        obj: Object | None = kind.decode(raw, source)
    except InvalidInputError as fault:
        message = str(fault)
        refused.append(message)
        placeholder: Object | None = kind.make_placeholder(
            raw, message.removeprefix(f"{source}: ")
        )
        return placeholder
    if isinstance(obj, Node) and obj.unreadable:
        refused.append(join(location_of(source, name, None, obj.name), obj.unreadable))
    return obj
