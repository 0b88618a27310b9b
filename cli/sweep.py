"""Takes what is ours off the Nodes and Pods of a live cluster."""

import sys
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from functools import partial

from cli.look import live
from cli.terminal import printable
from core.config.settings import Config
from core.edge.decode.fields import Bytes
from core.edge.decode.kinds import KINDS, PODS
from core.edge.decode.lives import FINISHED_TOO
from core.edge.decode.objects import PodObject
from core.edge.kube.client import CALL_SECONDS_MAX, Client
from core.edge.kube.listing import Listed
from core.edge.kube.stores.lease import LeaseStore
from core.edge.kube.stores.objects import TRIES_MAX, nodes, pods, write_as_decided
from core.edge.kube.stores.published import PublishedStore
from core.errors import InvalidInputError, UnavailableError
from core.marks.taints import KEYS_ANNOTATION, keys_before, keys_unknown
from core.model.cluster import Cluster
from core.model.node import Node
from core.model.pod import Pod
from core.writes.cleanup import cleanup
from core.writes.costs import decide_costs
from core.writes.published import changes
from webhook.names import LEASE

Tell = Callable[[str, str, str], None]
"""Takes "node", "pod" or "buffer", the key of one, and what is taken off it."""


async def release(
    connecting: Awaitable[Client],
    names: frozenset[str] | None,
    config: Config,
    tell: Tell,
    namespace: str,
    *,
    dry_run: bool,
) -> None:
    """Release the named nodes and the pods on them; None: all of the cluster.

    *namespace*: where Ebb is installed, which has its CapacityBuffers and its Lease.
    Raises: InvalidInputError for a node that is not there; UnavailableError at the first write
    that fails: what was written until then stays written, and can be gone on with.
    """
    key = config.taint_key
    async with await connecting as client:
        cluster = await _listed(client, config)
        if unknown := sorted((names or frozenset()) - {node.name for node in cluster.nodes}):
            raise InvalidInputError(f"node {unknown[0]}", "there is no such node")
        before = await _keys_before(client, namespace, key)
        for node in cluster.nodes:
            found = cleanup(node, key, before)
            if found is not None and (names is None or node.name in names):
                _warn(node, keys_unknown(node, {key, *before}))
                if not dry_run:
                    await _clean_node(client, node.name, key, before)
                tell("node", node.name, found.note)
        if names is None:
            await _take_away(client, namespace, tell, dry_run=dry_run)
        for write in decide_costs(cluster, key, enabled=False):
            if names is None or write.before.node in names:
                if not dry_run:
                    of_any_phase = pods(client, finished=True)
                    await write_as_decided(of_any_phase, write.key, write.if_as_seen)
                tell("pod", write.key, "deletion cost")


def _warn(node: Node, keys: Iterable[str]) -> None:
    """Name the taints that may be ours, on standard error; nobody else's is taken by a guess."""
    for key in keys:
        told = (
            f"node {node.name}: the taint {key} stays, and may be Ebb's: "
            "if it is the programs' taintKey, give --config their file"
        )
        print(f"ebb: {printable(told)}", file=sys.stderr, flush=True)


async def _listed(client: Client, config: Config) -> Cluster:
    """List the cluster, and beside its pods those that have finished with a cost of ours."""
    finished: dict[str, Pod] = {}
    lists: live.Lists = {kind: Listed() for kind in KINDS}
    lists[PODS].finished = partial(_keep_with_cost, finished)
    found = await live.listed(client, lists, config)
    return replace(found, pods=(*found.pods, *finished.values()))


def _keep_with_cost(finished: dict[str, Pod], item: PodObject | Bytes) -> None:
    try:
        pod = FINISHED_TOO.taken(item)
    except InvalidInputError:
        return
    if pod.deletion_cost_ours is not None:
        finished[pod.key] = pod


async def _take_away(client: Client, namespace: str, tell: Tell, *, dry_run: bool) -> None:
    """Delete the CapacityBuffers of ours."""
    store = PublishedStore(client, namespace)
    found = await store.found()
    for change in changes({}, found, lower=True) if found else ():
        if not dry_run:
            await store.carry_out(change)
        tell("buffer", f"{namespace}/{change.name}", change.act.value)


async def _keys_before(client: Client, namespace: str, key: str) -> frozenset[str]:
    """Return the taint's other keys, as the engine's Lease has them."""
    try:
        lease = await LeaseStore(client, namespace, LEASE, CALL_SECONDS_MAX).read()
    except UnavailableError:
        lease = None  # not every person may read it
    return keys_before(lease.annotations.get(KEYS_ANNOTATION, "") if lease else "", key)


async def _clean_node(client: Client, name: str, key: str, before: frozenset[str]) -> None:
    """Write the metadata, then the taints that are left if no webhook has taken ours away."""
    decide = partial(cleanup, taint_key=key, keys_before=before)
    for _ in range(TRIES_MAX):
        if await write_as_decided(nodes(client), name, decide) is None:
            return
    raise UnavailableError(f"node {name}: somebody else writes it all the time")
