"""Complete entries of the kubeconfig, and names of nodes and pods, for a shell.

Without an answer in time, a shell completes nothing; errors are not reported.
"""

import asyncio
from collections.abc import Iterable, Iterator
from typing import Final

import click
import msgspec

from cli.input import source
from cli.input.cluster_options import ClusterOptions, Environment, kubeconfig_of
from cli.input.subjects import NODE
from core.model.errors import EbbError
from kube.decode.field_decoding import DECODE_ERRORS
from kube.decode.kinds import NODES, PODS, AnyKind, in_namespace
from kube.decode.objects import Name
from kube.dump import items
from runtime import files

SECONDS_MAX: Final = 2.0
"""Maximum time for the names; the user waits for them."""
NAMES_MAX: Final = 2000
"""Number of objects of which the names are completed."""


class _Object(msgspec.Struct):
    metadata: Name


class _List(msgspec.Struct):
    items: list[_Object]


_OBJECT: Final = msgspec.json.Decoder(_Object)
_LIST: Final = msgspec.json.Decoder(_List)


def entries(ctx: click.Context, section: str, begun: str) -> list[str]:
    """Return the entries of the kubeconfig that begin with *begun*; *section*: as contexts."""
    from kube.kubeconfig import entry_names  # noqa: PLC0415 slow to import

    try:
        path = kubeconfig_of(ctx.params.get("kubeconfig"), ctx.obj)
        return _beginning(entry_names(path, section) if path else (), begun)
    except EbbError:
        return []


def names(ctx: click.Context, of_type: str, begun: str) -> list[str]:
    """Return the names of nodes, or namespace/name of pods, that begin with *begun*.

    With the option --namespace, pods are named without their namespace.
    """
    kind, namespace = NODES if of_type == NODE else PODS, ctx.params.get("namespace")
    if kind is NODES or ctx.params.get("all_namespaces"):
        namespace = None
    try:
        where = source.where_from(ctx.params)
        found = (
            _in_dumps(where, kind) if where.from_file else _live(ctx.obj, where, kind, namespace)
        )
        keys = [
            one.name if kind is NODES or namespace else f"{one.namespace}/{one.name}"
            for one in found
            if namespace in (None, one.namespace)
        ]
    except (EbbError, click.UsageError, TimeoutError, *DECODE_ERRORS):
        return []
    return _beginning(keys, begun)


def _beginning(known: Iterable[str], begun: str) -> list[str]:
    return sorted(name for name in known if name.startswith(begun) and name.isprintable())


def _in_dumps(where: ClusterOptions, kind: AnyKind) -> Iterator[Name]:
    for path in where.from_file:
        if path == "-":  # the shell reads from it
            continue
        for name, raw, _ in items(files.read_dump(path), path, []):
            if name == kind.name:
                yield _OBJECT.decode(raw).metadata


def _live(
    environment: Environment, where: ClusterOptions, kind: AnyKind, namespace: str | None
) -> list[Name]:
    from cli.input.reader import connecting  # noqa: PLC0415 slow to import

    (one,) = connecting(environment, where, where.contexts[:1] or [None])
    path = in_namespace(kind.path, namespace) if namespace else kind.path

    async def read() -> bytes:
        async with asyncio.timeout(SECONDS_MAX), await one.client() as client:
            return await client.page(path, label_selector=None, token=None, objects=NAMES_MAX)

    return [one.metadata for one in _LIST.decode(asyncio.run(read())).items]
