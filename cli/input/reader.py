"""Read the cluster that the command line selects: a live one, or dumps (files with objects)."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
import msgspec

from cli.input.cluster_input import ClusterInput, Installation, report_unreadable
from cli.input.cluster_options import ClusterOptions, kubeconfig_of
from cli.input.setup import SETUP_KINDS, Read, Setup
from core.moves.facts import with_moves
from kube.decode.field_decoding import DECODE_ERRORS
from kube.decode.json_depth import decoded
from kube.decode.objects import HEAD_DECODER
from kube.dump import COMMAND, from_dumps, items
from kube.dump_time import DumpTime
from runtime import files
from runtime.heap import growing

if TYPE_CHECKING:  # slow to import
    from cli.input.live import ClusterOutcome, Connecting, Reading

OR_A_DUMP: Final = (
    f"; give a kubeconfig with --kubeconfig, or a dump with --from-file; `{COMMAND}` prints a dump"
)
_SETUP_KINDS: Final = {kind.name: kind for kind in SETUP_KINDS}
Environment = Mapping[str, str]
T = TypeVar("T")


def read(environment: Environment, where: ClusterOptions) -> ClusterInput:
    """Read the cluster that the command line selects, live or from dumps.

    *environment*: environment variables, such as KUBECONFIG. *where*: the options that select the
    cluster. Raises: EbbError (any subclass); UsageError for options that contradict each other.
    """
    if where.from_file:
        cluster_input = _read_dumps(where.from_file, _installation(where), setup=where.setup)
        return _with_source(cluster_input, where)
    return read_live(environment, where).cluster_input


def read_live(environment: Environment, where: ClusterOptions) -> "Reading":
    """Read the live cluster that the command line selects, so that its changes can be followed.

    *environment*: environment variables, such as KUBECONFIG. Raises: as `read`.
    """
    # Importing the client takes longer than making a plan.
    import asyncio  # noqa: PLC0415

    from cli.input import live  # noqa: PLC0415

    installation = _installation(where)
    context = where.contexts[0] if where.contexts else None
    (connection,) = connecting(environment, where, [context])
    reading = asyncio.run(live.read_lists(connection, installation, sys.stderr, setup=where.setup))
    return reading._replace(cluster_input=_with_source(reading.cluster_input, where))


def read_each(
    environment: Environment, where: ClusterOptions, answer: Callable[[ClusterInput], T]
) -> "list[ClusterOutcome[T]]":
    """Read the clusters of all contexts in *where*, and return an answer or an error for each.

    *answer* computes the answer for a cluster. Raises: as `read`, except for a cluster that cannot
    be read.
    """
    import asyncio  # noqa: PLC0415

    from cli.input import live  # noqa: PLC0415

    installation = _installation(where)
    every = connecting(environment, where, where.contexts)
    return asyncio.run(
        live.read_each(every, installation, lambda read: answer(_with_source(read, where)))
    )


def _installation(where: ClusterOptions) -> Installation:
    if where.from_file and (given := where.live_only):
        raise click.UsageError(f"{given[0]}: not allowed with --from-file")
    # Read only once: the file may be a pipe.
    config = files.read_config(where.config, where.policy) if where.config else None
    return Installation(where.ebb_namespace, config, where.policy)


def connecting(
    environment: Environment, where: ClusterOptions, contexts: Sequence[str | None]
) -> "list[Connecting]":
    """Return how to connect to the cluster of each context; None is the current context.

    Raises: InvalidInputError if there is no kubeconfig and no in-cluster access.
    """
    from cli.input import live  # noqa: PLC0415

    path = kubeconfig_of(where.kubeconfig, environment, OR_A_DUMP)
    return [live.Connecting(path, context, where.overrides) for context in contexts]


def _with_source(cluster_input: ClusterInput, where: ClusterOptions) -> ClusterInput:
    return replace(cluster_input, config_from=where.config) if where.config else cluster_input


def _read_dumps(named: Sequence[str], installation: Installation, *, setup: bool) -> ClusterInput:
    config = installation.config or files.read_config(None, installation.policy)
    named_dumps = [(files.named(path), files.read_dump(path)) for path in named]
    unreadable: list[str] = []
    time = DumpTime()
    with growing():  # the collector would scan all decoded pods again and again
        cluster, kinds, surge = from_dumps(named_dumps, config.read_options, unreadable, time)
    if not config.surges:
        surge = None
    if surge is not None:
        cluster = with_moves(cluster, surge, installation.namespace)
    report_unreadable(unreadable, sys.stderr)
    where = ", ".join(name for name, _ in named_dumps)
    return ClusterInput(
        cluster=cluster,
        config=config,
        where=where,
        kinds=kinds,
        dump_time=time,
        namespace=installation.namespace,
        surge_objects=surge,
        setup=setup_in(named_dumps) if setup else Setup(),
    )


def setup_in(dumps: Sequence[tuple[str, bytes]]) -> Setup:
    """Return the objects around Ebb in dumps that only `ebb doctor` checks, such as RBAC objects.

    *dumps*: pairs of source and content. A kind that no dump contains, or of which an object
    cannot be decoded, is unknown.
    """
    objects: dict[str, list[Any]] = {}
    faults: dict[str, str] = {}
    for source, dump in dumps:
        for name, raw, where in items(dump, source, []):
            kind = _SETUP_KINDS.get(name)
            if kind is None:
                continue
            of_kind, content = objects.setdefault(name, []), bytes(raw)
            # Decoding all pods of a large cluster again would take longer than the plan.
            if kind.contains and not any(text in content for text in kind.contains):
                continue
            try:
                if _group(content) in (None, kind.group):
                    of_kind.append(decoded(msgspec.json.Decoder(kind.wire).decode, content))
            except DECODE_ERRORS as fault:
                faults[name] = f"{where}: {fault}"
    known = {name: Read(tuple(of_kind)) for name, of_kind in objects.items()}
    # A check must not conclude anything from a part of the objects.
    known |= {name: Read(absent=fault) for name, fault in faults.items()}
    return Setup(objects=known)


def _group(content: bytes) -> str | None:
    """Return the API group of an object: "" for the core group (`v1`), None without apiVersion.

    OpenShift has its own group with kinds such as ClusterRole.
    """
    version = decoded(HEAD_DECODER.decode, content).api_version
    return version.rpartition("/")[0] if isinstance(version, str) and version else None
