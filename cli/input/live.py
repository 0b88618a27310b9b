"""Read a cluster from its API server, kind by kind, in pages; nothing is written."""

import asyncio
import io
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final, Generic, NamedTuple, TextIO, TypeVar

from cli.input import setup_live
from cli.input.cluster_input import ClusterInput, Installation, report_unreadable
from cli.input.running import read_running
from cli.input.setup import Setup
from core.config.settings import Config
from core.model.cluster import Cluster
from core.model.errors import EbbError
from core.model.node import Node
from core.model.pod import Pod
from core.moves.facts import with_moves
from core.moves.objects import SurgeObjects
from kube.client import ApiError, Client
from kube.cluster_kinds import CLUSTER_KINDS, SURGE_KINDS
from kube.decode.kinds import (
    ATTACHMENTS,
    BUDGETS,
    CLAIMS,
    CSI_NODES,
    NODES,
    PODS,
    VOLUMES,
    AnyKind,
)
from kube.inventory import Inventory
from kube.listing import ABSENT, Listed, Part
from kube.target import Overrides
from runtime.clock import Clock, SystemClock
from runtime.messages import printable, tell

LIST_TRIES_MAX: Final = 3
"""Attempts to read a list that expires or is throttled."""
THROTTLED_SECONDS_MAX: Final = 10.0
NOT_THERE: Final = 404
"""HTTP status for a kind that the cluster does not have."""
REQUIRED: Final = frozenset((NODES, PODS))
"""Kinds without which no command can answer; others may be missing, as in a dump."""
WITHOUT: Final[Mapping[AnyKind, str]] = {
    BUDGETS: "pods that a PodDisruptionBudget protects look evictable",
    CLAIMS: "pods with PersistentVolumeClaims count as not movable",
    VOLUMES: "pods with PersistentVolumeClaims count as not movable",
    CSI_NODES: "pods with PersistentVolumeClaims count as not movable",
    ATTACHMENTS: "volumes that are attached without a pod do not count against attach limits",
}
"""Consequence of a missing kind, for kinds that every cluster has."""
PROGRESS_AFTER_SECONDS: Final = 1.0
PROGRESS_EVERY_SECONDS: Final = 0.2

CLUSTERS_AT_ONCE: Final = 4
"""Maximum number of clusters that are read at the same time: all of them are in memory."""

T = TypeVar("T")
Lists = dict[AnyKind, Listed]
"""Objects read so far, by kind."""


class Connecting(NamedTuple):
    """How to connect to an API server: kubeconfig, context, and options that replace parts of it.

    Without a kubeconfig it is in-cluster access; without a context, the current context.
    """

    kubeconfig: str | None
    context: str | None
    overrides: Overrides
    clock: Clock = SystemClock()

    async def client(self) -> Client:
        """Connect to the API server, and return the client. Raises: as `Client.connect`."""
        return await Client.connect(self.kubeconfig, self.context, self.clock, self.overrides)


class Reading(NamedTuple):
    """A cluster that was read, and what is necessary to follow its changes from there."""

    cluster_input: ClusterInput
    lists: Lists
    connecting: Connecting
    installation: Installation


class ClusterOutcome(NamedTuple, Generic[T]):
    """The answer for one of several clusters, or the error because of which there is none."""

    context: str
    answer: T | None
    """Answer for the cluster; None if it could not be read."""
    error: str
    """Why the cluster could not be read; empty if it could."""
    warnings: str
    """Warnings about failed reads, a line each."""


async def read(
    connecting: Connecting, installation: Installation, progress: TextIO, *, setup: bool = False
) -> ClusterInput:
    """Read a live cluster, and return it with its configuration.

    *progress*: output for the progress and for warnings. *setup*: also read the objects around Ebb
    that only `ebb doctor` checks. Raises: as `read_lists`.
    """
    return (await read_lists(connecting, installation, progress, setup=setup)).cluster_input


async def read_lists(
    connecting: Connecting, installation: Installation, progress: TextIO, *, setup: bool = False
) -> Reading:
    """Read a live cluster, and return it with the lists from which its changes can be followed.

    *progress*: output for the progress and for warnings about failed reads. *setup*: also read the
    objects around Ebb that only `ebb doctor` checks. If surge moves (Ebb starts a replacement
    before a pod is deleted) are enabled, the objects that they depend on are listed too. If RBAC
    does not allow it, `surge_objects` is None.

    Raises: InvalidInputError for a kubeconfig that cannot be read; UnavailableError when the API
    server does not answer, or rejects a call.
    """
    lists: Lists = {kind: Listed() for kind in CLUSTER_KINDS}
    surges: Lists = {}
    async with (
        await connecting.client() as client,
        progress_shown(lists, progress),
    ):
        running, used, source = await read_running(client, installation)
        cluster = await listed(client, lists, used)
        surge = await _surge_objects(client, surges, used, progress) if used.surges else None
        around = Setup()
        if setup:
            namespace = installation.namespace
            around = await setup_live.read(client, cluster, used, namespace, SystemClock())
    not_read = (*running.problems, *_not_read(lists))
    for problem in not_read:
        tell(f"Warning: {problem}", progress)
    report_unreadable(list(_refused(lists)), progress)
    if surge is not None:
        cluster = with_moves(cluster, surge, installation.namespace)
    cluster_input = ClusterInput(
        cluster=cluster,
        config=used,
        config_from=source,
        where=f"live cluster, {connecting.kubeconfig or 'in-cluster access'}",
        target=client.target,
        running=running,
        not_read=not_read,
        absent={
            kind.name: str(listing.absent) for kind, listing in lists.items() if listing.absent
        },
        setup=around,
        surge_objects=surge,
        namespace=installation.namespace,
    )
    return Reading(cluster_input, lists | surges, connecting, installation)


async def read_each(
    every: Sequence[Connecting], installation: Installation, answer: Callable[[ClusterInput], T]
) -> list[ClusterOutcome[T]]:
    """Read several clusters, a few at the same time, and return an outcome for each.

    *answer* computes the answer for a cluster in another thread. A cluster that cannot be read has
    an error as outcome, and does not prevent the others from being read. Only the answers remain
    in memory.
    """
    turns = asyncio.Semaphore(CLUSTERS_AT_ONCE)

    async def outcome_of(connecting: Connecting) -> ClusterOutcome[T]:
        async with turns:
            warnings = io.StringIO()
            try:
                cluster_input = await read(connecting, installation, warnings)
                made = await asyncio.to_thread(answer, cluster_input)
            except EbbError as fault:
                return ClusterOutcome(
                    connecting.context or "", None, str(fault), warnings.getvalue()
                )
            return ClusterOutcome(connecting.context or "", made, "", warnings.getvalue())

    return await asyncio.gather(*map(outcome_of, every))


async def _surge_objects(
    client: Client, lists: Lists, config: Config, out: TextIO
) -> SurgeObjects | None:
    """List the objects that surge moves depend on into *lists*, and return them.

    In a surge move, Ebb starts a replacement before a pod is deleted. Returns None, after a
    warning on *out*, if the API server does not serve a kind or RBAC forbids the list.
    """
    inventory = Inventory()
    for kind in SURGE_KINDS:
        listing = lists[kind] = Listed()
        await _list(client, kind, listing, Part.of(kind, config))
        if listing.absent is not None:
            problem = f"cannot read {kind.resource}, so surge moves are unknown: {listing.absent}"
            out.write(f"Warning: {printable(problem)}\n")
            return None
        inventory.replaced(kind, listing.objects, listing.refused)
    return inventory.surge_snapshot()()


async def listed(client: Client, lists: Lists, config: Config) -> Cluster:
    """List every kind in *lists* from the API server, and return the objects as a Cluster.

    The values of *lists* are filled with the objects. An object that cannot be read is represented
    by the fields that are readable. Raises: as `read_lists`.
    """
    inventory = Inventory(SystemClock().unix_seconds)
    for kind, listing in lists.items():
        await _list(client, kind, listing, Part.of(kind, config))
        inventory.replaced(kind, listing.objects, listing.refused)
    return inventory.snapshot(config.read_options)()


def _not_read(lists: Lists) -> Iterator[str]:
    """Yield a text for each kind that could not be listed, with the consequence and the error.

    Optional kinds that the cluster does not have are omitted.
    """
    for kind, listing in lists.items():
        missing = listing.absent is not None and listing.absent.status == NOT_THERE
        if listing.absent is None or (missing and kind.optional):
            continue  # many clusters have no CapacityBuffers and no Karpenter
        consequence = f", so {WITHOUT[kind]}" if kind in WITHOUT else ""
        yield f"cannot read {kind.resource}{consequence}: {listing.absent}"


def _refused(lists: Lists) -> Iterator[str]:
    for kind, listing in lists.items():
        yield from (reason for _, reason in listing.refused)
        for item in listing.objects:
            if isinstance(item, Node | Pod) and item.unreadable:
                yield f"{kind.resource} {item.name}: {item.unreadable}"


async def _list(client: Client, kind: AnyKind, listing: Listed, part: Part) -> None:
    """Read all objects of a kind into *listing*; retry if the list expires or is throttled.

    *part*: label or name to which the list is limited. If the API server does not serve the kind,
    or RBAC forbids the list, `listing.absent` becomes the error. For a required kind, the error is
    raised.
    """
    for tries in range(1, LIST_TRIES_MAX + 1):
        try:
            return await listing.read(client, kind, part)
        except ApiError as fault:
            if kind not in REQUIRED and fault.status in ABSENT:
                listing.absent = fault
                return None
            if fault.status not in (410, 429) or tries == LIST_TRIES_MAX:
                raise
            wait = fault.retry_after_seconds or 0
            await asyncio.sleep(min(wait, THROTTLED_SECONDS_MAX))
    raise AssertionError("the last try returns or raises")


@asynccontextmanager
async def progress_shown(
    lists: Lists, out: TextIO, after_seconds: float = PROGRESS_AFTER_SECONDS
) -> AsyncIterator[None]:
    """Show a progress line on a terminal if reading takes long, and erase it at the end.

    *lists*: objects read so far, which the line counts. *out*: output that may be a terminal.
    *after_seconds*: delay before the line appears.
    """
    if not out.isatty():
        yield
        return
    task = asyncio.create_task(_show_progress(lists, out, after_seconds))
    try:
        yield
    finally:
        task.cancel()
        out.write("\r\x1b[K")
        out.flush()


async def _show_progress(lists: Lists, out: TextIO, after_seconds: float) -> None:
    await asyncio.sleep(after_seconds)
    while True:
        counts = ((len(listing.objects), kind.resource) for kind, listing in lists.items())
        parts = (f"{count:,} {resource}" for count, resource in counts if count)
        out.write(f"\r\x1b[Kreading the cluster: {', '.join(parts) or 'no answer yet'}")
        out.flush()
        await asyncio.sleep(PROGRESS_EVERY_SECONDS)
