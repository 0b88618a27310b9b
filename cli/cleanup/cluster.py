"""Remove everything that Ebb has written in a live cluster, or on some of its nodes."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Final, NamedTuple, Self

import msgspec

from cli.cleanup.moves import end_moves, warn_of_old_records
from cli.cleanup.removals import Removals, warn
from cli.cleanup.stop import stop_controller
from cli.input import live
from controller.names import HISTORY, LEASE, TODAY
from core.config.settings import Config
from core.marks.mark import backoff_of
from core.marks.wellknown import BACKOFF_ANNOTATION, KEEP_ANNOTATION, TAINT_KEY
from core.model.cluster import Cluster
from core.model.errors import ConflictError, InvalidInputError, UnavailableError
from core.model.humanize import timestamp
from core.model.node import Node
from core.model.pod import DETACHED_LABEL, Pod
from core.writes.capacity_buffers import changes
from core.writes.cleanup import cleanup_write, unmark_write
from core.writes.costs import decide_costs
from core.writes.write import Write
from kube.client import CALL_SECONDS_MAX, ApiError, Client
from kube.cluster_kinds import CLUSTER_KINDS
from kube.decode.kinds import NODES, NODES_WITH_ALL_KEYS, PODS
from kube.decode.objects import PodObject
from kube.decode.pod_times import FINISHED_TOO
from kube.listing import Listed
from kube.stores.capacity_buffers import PublishedStore
from kube.stores.events import Events
from kube.stores.lease import LeaseStore
from kube.stores.objects import TRIES_MAX, nodes, pods, write_as_decided
from kube.stores.packed_config_map import PackedConfigMap
from runtime.clock import Clock

REPORTING: Final = "kube-ebb.io/ebb"
"""The reportingController of the Events that the command writes."""


class Request(NamedTuple):
    """The part of a cluster to clean up, as the command line selects it."""

    names: frozenset[str] | None = None
    """Names of the nodes; None: all nodes and pods of the cluster, surge moves, Ebb's own
    CapacityBuffers, and the history."""
    stop_controller: bool = False
    """First scale the controller to 0, and wait until nobody leads."""


@dataclass(kw_only=True)
class Cleanup:
    """The cleanup of a live cluster: the removal of everything that Ebb has written.

    `run` may be called twice, first for a dry run.
    """

    client: Client
    namespace: str
    """Namespace of Ebb, with its CapacityBuffers and its Lease."""
    config: Config
    request: Request
    clock: Clock
    leases: LeaseStore
    cluster: Cluster | None = None
    """Cluster as last listed; None before the first run."""

    @classmethod
    def of(
        cls, client: Client, namespace: str, config: Config, request: Request, clock: Clock
    ) -> Self:
        """Prepare a cleanup; *namespace*: namespace of Ebb."""
        leases = LeaseStore(client, namespace, LEASE, CALL_SECONDS_MAX)
        return cls(
            client=client,
            namespace=namespace,
            config=config,
            request=request,
            clock=clock,
            leases=leases,
        )

    async def run(self, removals: Removals) -> None:
        """Remove what Ebb has written on the requested nodes, and on the pods there.

        If all nodes are requested, surge moves are ended, Ebb's own CapacityBuffers are deleted,
        and the history is emptied. *removals* makes or only prints each removal. If a write fails
        for a reason that concerns its object alone, the object is reported on standard error, and
        the others are still cleaned up.

        Raises: InvalidInputError for an unknown node. UnavailableError after the first failure
        that would repeat for other objects; finished writes remain, and the command can be run
        again. UnavailableError also at the end, if any object could not be changed.
        """
        if self.request.stop_controller:
            await stop_controller(self.client, self.leases, self.namespace, self.clock, removals)
        # The controller may have marked nodes until it stopped.
        if self.cluster is None or self.request.stop_controller:
            self.cluster = await _listed(self.client, self.config)
            nodes_in_cluster = {node.name for node in self.cluster.nodes}
            if unknown := sorted((self.request.names or frozenset()) - nodes_in_cluster):
                raise InvalidInputError(f"node {unknown[0]}", "not found")
        await self._clean_objects(self.cluster, removals)

    async def _clean_objects(self, cluster: Cluster, removals: Removals) -> None:
        client, names = self.client, self.request.names
        if names is None:
            # While the pods still have their deletion costs, which decide the pods that remain.
            cluster = await end_moves(client, cluster, removals)
            await warn_of_old_records(client, self.namespace)
        for node in cluster.nodes:
            write = self._write(node)
            if write is not None and (names is None or node.name in names):
                clean = partial(self._clean_node, node.name)
                await removals.make("node", node.name, write.note, clean)
        if names is None:
            # CapacityBuffers that Ebb publishes, and their PodTemplates
            store = PublishedStore(client, self.namespace)
            for change in changes({}, await store.found()):
                name, delete = f"{self.namespace}/{change.name}", partial(store.carry_out, change)
                await removals.make("buffer", name, change.operation.value, delete)
            for name in (TODAY, HISTORY):
                await _empty(PackedConfigMap(client, self.namespace, name), removals)
        of_any_phase = pods(client, finished=True)
        for cost in decide_costs(cluster, TAINT_KEY, enabled=False).writes:
            if names is None or cost.before.node in names:
                clear = partial(write_as_decided, of_any_phase, cost.key, cost.if_unchanged)
                await removals.make("pod", cost.key, "deletion cost", clear)
        removals.check()

    def _write(self, node: Node) -> Write[Node] | None:
        if self.request.names is None:
            return cleanup_write(node, TAINT_KEY)
        return unmark_write(node, TAINT_KEY, self.clock.unix_seconds())

    async def _clean_node(self, name: str) -> None:
        """Remove Ebb's labels and annotations from a Node, then its taint if it remains.

        A webhook may remove the taint with the labels. Raises: ConflictError.
        """
        objects = nodes(self.client, all_keys=True)
        for _ in range(TRIES_MAX):
            done = await write_as_decided(objects, name, self._write)
            if done is None:
                return
            if done.write.annotations.get(BACKOFF_ANNOTATION):
                await self._report_unmark(done.stored[0])
        raise ConflictError("another client keeps changing the object; run the command again")

    async def _report_unmark(self, node: Node) -> None:
        """Write an Event about a Node that `ebb unmark` has unmarked, or warn if that fails."""
        backoff = backoff_of(node.annotations)
        until = timestamp(backoff.until) if backoff else "unknown"
        note = (
            f"`ebb unmark` removed the mark: Ebb does not mark the node again before {until}. The "
            f"annotation {KEEP_ANNOTATION}=true excludes the node for good"
        )
        events = Events(
            self.client, self.clock, lambda: None, controller=REPORTING, instance="ebb-unmark"
        )
        try:
            await events.send(node, "NodeUnmarked", note)
        except UnavailableError as fault:
            warn(f"node {node.name}: it is unmarked, but its Event cannot be written: {fault}")


async def _empty(config_map: PackedConfigMap, removals: Removals) -> None:
    """Remove the content of a ConfigMap with the history, unless RBAC forbids reading it.

    Raises: UnavailableError.
    """
    try:
        found = await config_map.read()
    except ApiError as fault:
        if fault.forbidden:
            return
        raise
    if found is not None and found.content:
        empty = partial(config_map.write, b"", found.version)
        await removals.make("configmap", config_map.key, "history", empty)


async def _listed(client: Client, config: Config) -> Cluster:
    """Return the nodes and pods of the cluster, and finished pods on which Ebb has written."""
    finished: dict[str, Pod] = {}
    lists: live.Lists = {kind: Listed() for kind in CLUSTER_KINDS} | {
        PODS: Listed(finished=partial(_keep_if_written, finished)),
        NODES: Listed(decoded_as=NODES_WITH_ALL_KEYS),
    }
    cluster = await live.listed(client, lists, config)
    return replace(cluster, pods=(*cluster.pods, *finished.values()))


def _keep_if_written(finished: dict[str, Pod], item: PodObject | msgspec.Raw) -> None:
    try:
        pod = FINISHED_TOO.model_or_placeholder(item)
    except InvalidInputError:
        return
    if pod.deletion_cost_ours is not None or pod.move is not None or DETACHED_LABEL in pod.labels:
        finished[pod.key] = pod
