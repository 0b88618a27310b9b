"""Remove what Ebb has written from the Nodes and Pods of a live cluster."""

import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from cli.input import live
from cli.stop import check_nobody_leads, exists, scale_to_zero, wait_until_nobody_leads
from cli.terminal import printable
from controller.names import DEPLOYMENT, LEASE
from controller.taint_key import KEY_ANNOTATION
from core.config.settings import Config
from core.marks.taints import keys_unknown
from core.model.cluster import Cluster
from core.model.errors import ConflictError, InvalidInputError, UnavailableError
from core.model.humanize import plural
from core.model.node import Node
from core.model.pod import Pod
from core.model.sorted_objects import BY_NAME
from core.moves.new_pods import new_pod
from core.moves.objects import MANAGER
from core.moves.records import MoveRecord, MoveStep, decode
from core.moves.steps import is_kept
from core.writes.capacity_buffers import changes
from core.writes.cleanup import cleanup_write
from core.writes.costs import UNDO_COST, cost_write, decide_costs
from kube.client import CALL_SECONDS_MAX, ApiError, Client
from kube.decode.field_decoding import Bytes
from kube.decode.kinds import CLUSTER_KINDS, DEPLOYMENTS, NODES_WITH_ALL_KEYS, PODS
from kube.decode.objects import PodObject
from kube.decode.pod_times import FINISHED_TOO
from kube.listing import Listed
from kube.stores.capacity_buffers import PublishedStore
from kube.stores.lease import LeaseStore
from kube.stores.move_records import MoveRecordStore
from kube.stores.objects import TRIES_MAX, Failures, nodes, pods, write_as_decided
from kube.stores.scales import ScaleStore
from kube.target import Target
from runtime.clock import Clock

Report = Callable[[str, str, str], None]
"""Reports a removal: the kind of an object, its key, and what is removed."""


class Actions(NamedTuple):
    """The part of the command that prints and asks."""

    connected: Callable[[Target], None]
    """Names the cluster, before anything is removed."""
    passes: Callable[[], Iterator[bool]]
    """Yields, for each pass over all objects, whether the pass only reports the removals."""
    report: Report


class Request(NamedTuple):
    """What the command line asks to clean up."""

    names: frozenset[str] | None
    """Names of the nodes; None: all nodes and pods of the cluster."""
    taint_key: str | None
    """Key of the taints to remove. The record of this key in the Lease is removed last. None: the
    key that the Lease records, or else the key in the configuration."""
    stop_controller: bool
    """First scale the controller to 0, and wait until nobody leads."""


async def cleanup(
    connecting: Awaitable[Client],
    config: Config,
    actions: "Actions",
    namespace: str,
    request: Request,
    clock: Clock,
) -> None:
    """Remove what Ebb has written on the requested nodes, and on the pods there.

    *namespace*: namespace of Ebb, with its CapacityBuffers and its Lease. If a write fails for a
    reason that concerns its object alone, the object is reported on standard error, and the
    others are still cleaned up.

    Raises: InvalidInputError for an unknown node. UnavailableError after the first failure that
    would repeat for other objects; finished writes remain, and the command can be run again.
    UnavailableError also at the end, if any object could not be changed.
    """
    names = request.names
    async with await connecting as client:
        actions.connected(client.target)
        leases = LeaseStore(client, namespace, LEASE, CALL_SECONDS_MAX)
        recorded = await _recorded_key(leases)
        key = request.taint_key or recorded or config.taint_key
        forget = request.taint_key is not None and recorded in (None, key)
        cluster: Cluster | None = None
        for dry_run in actions.passes():
            writing = _Writing(actions.report, dry_run=dry_run)
            if request.stop_controller:
                await _stop(client, leases, namespace, writing)
                if not dry_run:
                    await wait_until_nobody_leads(leases, clock)
            # The controller may have marked nodes until it stopped.
            if cluster is None or request.stop_controller:
                cluster = await _listed(client, config)
                _check_names(names, cluster)
            await _Cleanup(client, namespace, cluster, key, names).write(writing)
            if forget:
                what, change = f"taint key {key}", partial(_forget_key, leases, key)
                await writing.each("lease", f"{namespace}/{LEASE}", what, change)
                writing.end()


class _Cleanup(NamedTuple):
    """The writes that clean up the requested objects of a cluster."""

    client: Client
    namespace: str
    cluster: Cluster
    key: str
    """Key of the taints to remove."""
    names: frozenset[str] | None
    """Names of the nodes; None: all nodes and pods of the cluster."""

    async def write(self, writing: "_Writing") -> None:
        """Make the writes. Raises: UnavailableError."""
        client, key, names = self.client, self.key, self.names
        if names is None:
            # While the pods still have their deletion costs, which decide the pods that remain.
            await _end_moves(client, self.namespace, self.cluster, writing)
        for node in self.cluster.nodes:
            found = cleanup_write(node, key)
            if found is not None and (names is None or node.name in names):
                writing.warn(node, keys_unknown(node, key))
                clean = partial(_clean_node, client, node.name, key)
                await writing.each("node", node.name, found.note, clean)
        if names is None:
            await _delete_buffers(client, self.namespace, writing)
        of_any_phase = pods(client, finished=True)
        for write in decide_costs(self.cluster, key, enabled=False):
            if names is None or write.before.node in names:
                clear = partial(write_as_decided, of_any_phase, write.key, write.if_unchanged)
                await writing.each("pod", write.key, "deletion cost", clear)
        writing.end()


class _Writing:
    """Write one object after another, and count the rejected changes."""

    def __init__(self, report: Report, *, dry_run: bool) -> None:
        self.report, self.dry_run = report, dry_run
        self._failures, self._refused = Failures(), 0

    async def each(
        self, kind: str, name: str, what: str, write: Callable[[], Awaitable[object]]
    ) -> None:
        """Write and report one change. Raises: UnavailableError if other writes would fail too."""
        try:
            if not self.dry_run:
                await write()
        except UnavailableError as fault:
            message = f"{kind} {name}: {fault}"
            if self._failures.end(fault):
                raise UnavailableError(
                    f"{message}; the remaining objects were not tried"
                ) from fault
            self.refuse(message)
        else:
            self._failures.end(None)
            self.report(kind, name, what)

    def warn(self, node: Node, keys: Iterable[str]) -> None:
        """Warn on standard error about taints that may be Ebb's; they are not removed."""
        for key in keys:
            _say(
                f"node {node.name}: the taint {key} may be Ebb's, and was not removed. If it is "
                "the taintKey of the installed configuration, use --config with that file, or "
                "--taint-key"
            )

    def refuse(self, message: str) -> None:
        """Name an object that cannot be changed on standard error, and count it."""
        _say(message)
        self._refused += 1

    @property
    def refused(self) -> int:
        """Return the number of rejected changes."""
        return self._refused

    def end(self) -> None:
        """Raise an error if any change was rejected. Raises: UnavailableError."""
        if self._refused:
            message = plural(self._refused, "object")
            raise UnavailableError(
                f"{message} could not be changed, as listed above; all others are cleaned up"
            )


def _say(message: str) -> None:
    print(f"ebb: {printable(message)}", file=sys.stderr, flush=True)


async def _stop(client: Client, leases: LeaseStore, namespace: str, writing: _Writing) -> None:
    """Scale the controller to 0. Raises: UnavailableError."""
    key = f"{namespace}/{DEPLOYMENT}"
    try:
        if not await exists(client, namespace):
            await check_nobody_leads(leases)
            _say(
                f"deployment {key} does not exist, and nobody holds the Lease. If Ebb is "
                "installed in another namespace, use --ebb-namespace"
            )
        elif writing.dry_run or await scale_to_zero(client, namespace):
            writing.report("deployment", key, "scaled to 0")
    except UnavailableError as fault:
        raise UnavailableError(f"deployment {key}: {fault}; nothing was cleaned up") from fault


def _check_names(names: frozenset[str] | None, cluster: Cluster) -> None:
    """Raise InvalidInputError if a node does not exist."""
    if unknown := sorted((names or frozenset()) - {node.name for node in cluster.nodes}):
        raise InvalidInputError(f"node {unknown[0]}", "not found")


async def _listed(client: Client, config: Config) -> Cluster:
    """List the cluster, including finished pods with a deletion cost of Ebb."""
    finished: dict[str, Pod] = {}
    lists: live.Lists = {kind: Listed() for kind in CLUSTER_KINDS}
    lists[PODS].finished = partial(_keep_with_cost, finished)
    found = await live.listed(client, lists, config)
    nodes_with_all_keys = Listed()
    await nodes_with_all_keys.read(client, NODES_WITH_ALL_KEYS)
    return replace(
        found,
        nodes=tuple(sorted(nodes_with_all_keys.objects, key=BY_NAME)),
        pods=(*found.pods, *finished.values()),
    )


def _keep_with_cost(finished: dict[str, Pod], item: PodObject | Bytes) -> None:
    try:
        pod = FINISHED_TOO.model_or_placeholder(item)
    except InvalidInputError:
        return
    if pod.deletion_cost_ours is not None:
        finished[pod.key] = pod


async def _end_moves(client: Client, namespace: str, cluster: Cluster, writing: _Writing) -> None:
    """Restore the replicas of all Deployments with a surge move, then remove the records."""
    store = MoveRecordStore(client, namespace)
    try:
        stored = await store.read()
    except ApiError as fault:
        if not fault.forbidden:
            raise
        writing.refuse(
            f"configmap {store.key}: {fault}. If surge moves are in progress, the replicas of "
            "these Deployments remain raised: run the command with permission to get and update it"
        )
        return
    if stored is None or not stored.data:
        return
    before = writing.refused
    for move in decode(stored.data).records.moves.values():
        restore = partial(_restore_replicas, client, move, _pod_to_delete(cluster, move))
        what = f"replicas of a surge move set back from {move.raised} to {move.original}"
        await writing.each("deployment", move.deployment_key, what, restore)
    if writing.refused == before:
        forget = partial(_forget_moves, store)
        await writing.each("configmap", store.key, "records of surge moves", forget)


def _pod_to_delete(cluster: Cluster, move: MoveRecord) -> Pod | None:
    """Return the new pod of a move if the ReplicaSet controller would keep it, or None."""
    old = next((pod for pod in cluster.pods if pod.uid == move.pod_uid), None)
    if old is None:
        return None
    owner = old.namespace, old.owner_name
    new = new_pod(move, [pod for pod in cluster.pods if (pod.namespace, pod.owner_name) == owner])
    return new if new is not None and is_kept(new) else None


async def _restore_replicas(client: Client, move: MoveRecord, new: Pod | None) -> None:
    """Write the original replicas, unless somebody else has set them. Raises: UnavailableError."""
    scales = ScaleStore(client)
    for _ in range(TRIES_MAX):
        scale = await scales.read(move.namespace, move.deployment)
        if scale is None or (scale.uid, scale.replicas) != (move.uid, move.raised):
            return
        if not await _is_raised_by_ebb(client, move):
            return
        if new is not None:
            # Without the write, the new pod remains, which is Ready at least.
            with suppress(UnavailableError):
                lowest = cost_write(new, UNDO_COST)
                await write_as_decided(pods(client), new.key, lowest.if_unchanged)
        with suppress(ConflictError):
            await scales.write(move.namespace, move.deployment, scale.version, move.original)
            return
    raise ConflictError("another client keeps changing the Deployment")


async def _is_raised_by_ebb(client: Client, move: MoveRecord) -> bool:
    """Return whether the raised replicas are Ebb's, as far as this user may know."""
    try:
        raw = await client.find(DEPLOYMENTS.path_of(move.deployment_key))
        found = None if raw is None else DEPLOYMENTS.decode(raw)
    except (ApiError, InvalidInputError):
        return True
    manager = found.observed.replicas_manager if found else ""
    return manager == MANAGER or (not manager and move.step is not MoveStep.RECORDED)


async def _forget_moves(store: MoveRecordStore) -> None:
    """Remove all records. Raises: UnavailableError."""
    for _ in range(TRIES_MAX):
        stored = await store.read()
        if stored is None or not stored.data:
            return
        with suppress(ConflictError):
            await store.write(stored, {})
            return
    raise ConflictError("the controller keeps writing the records: scale it to 0 first")


async def _delete_buffers(client: Client, namespace: str, writing: _Writing) -> None:
    """Delete Ebb's CapacityBuffers and their PodTemplates."""
    store = PublishedStore(client, namespace)
    for change in changes({}, await store.found()):
        drop = partial(store.carry_out, change)
        await writing.each("buffer", f"{namespace}/{change.name}", change.operation.value, drop)


async def _recorded_key(leases: LeaseStore) -> str | None:
    """Return the taint key that the Lease records, "" if none; None if the Lease is unreadable."""
    try:
        lease = await leases.read()
    except UnavailableError:
        return None  # not every user may read the Lease
    return lease.annotations.get(KEY_ANNOTATION, "") if lease else ""


async def _forget_key(leases: LeaseStore, key: str) -> None:
    """Remove the record of this key from the Lease. Raises: UnavailableError."""
    for _ in range(TRIES_MAX):
        lease = await leases.read()
        if lease is None or lease.annotations.get(KEY_ANNOTATION) != key:
            return
        others = {
            name: value for name, value in lease.annotations.items() if name != KEY_ANNOTATION
        }
        with suppress(ConflictError):
            await leases.write(replace(lease, annotations=others))
            return
    raise ConflictError("the controller keeps writing the Lease: scale it to 0 first")


async def _clean_node(client: Client, name: str, key: str) -> None:
    """Remove Ebb's labels and annotations, then its taint, unless a webhook has removed it."""
    decide = partial(cleanup_write, taint_key=key)
    for _ in range(TRIES_MAX):
        if await write_as_decided(nodes(client, all_keys=True), name, decide) is None:
            return
    raise ConflictError("another client keeps changing it")
