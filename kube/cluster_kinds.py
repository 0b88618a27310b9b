"""The kinds that Ebb reads, what their objects are used for, and which settings need them.

A kind of a Cluster is a line in `cluster_objects`, a kind of surge moves one in `surge_objects`.
Tests check that the manifests grant RBAC permissions for these kinds.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from core.cluster.build import ClusterObjects
from core.config.settings import Config
from core.model.cluster_pods import ClusterPods
from core.moves import listed
from core.moves.objects import SurgeObjects
from kube.decode.kinds import (
    ATTACHMENTS,
    BUDGETS,
    BUFFERS,
    CLAIMS,
    CSI_NODES,
    DAEMON_SETS,
    DEPLOYMENTS,
    DEVICE_CLASSES,
    HORIZONTAL_AUTOSCALERS,
    NAMESPACES,
    NODE_CLAIMS,
    NODE_POOLS,
    NODES,
    PODS,
    QUOTAS,
    REPLICA_SETS,
    STATUSES,
    STORAGE_CLASSES,
    TEMPLATES,
    VOLUMES,
    AnyKind,
    Kind,
    Object,
)

Model_ = TypeVar("Model_", bound=Object)


class Lists:
    """The objects of each kind at one moment, sorted and immutable."""

    def __init__(self, read: Callable[[AnyKind], Any]) -> None:
        """*read*: returns the objects of a kind: ClusterPods for pods, else a tuple."""
        self._read = read

    def of(self, kind: Kind[Any, Model_ | None]) -> tuple[Model_, ...]:
        """Return the objects of a kind, except pods."""
        objects: tuple[Model_, ...] = self._read(kind)
        return objects

    def pods(self) -> ClusterPods:
        """Return the pods."""
        pods: ClusterPods = self._read(PODS)
        return pods


def cluster_objects(lists: Lists) -> ClusterObjects:
    """Return what a Cluster is built from; without these kinds there is no plan."""
    # The order is that of listing, nodes first. If a node is added after the list of nodes, its
    # pods are ignored. In the other order, the node would look empty by mistake.
    return ClusterObjects(
        nodes=lists.of(NODES),
        pods=lists.pods(),
        budgets=lists.of(BUDGETS),
        claims=lists.of(CLAIMS),
        volumes=lists.of(VOLUMES),
        csi_nodes=lists.of(CSI_NODES),
        namespaces=lists.of(NAMESPACES),
        attachments=lists.of(ATTACHMENTS),
        templates=lists.of(TEMPLATES),
        buffers=lists.of(BUFFERS),
        node_pools=lists.of(NODE_POOLS),
        node_claims=lists.of(NODE_CLAIMS),
        autoscaler_statuses=lists.of(STATUSES),
        daemon_sets=lists.of(DAEMON_SETS),
        storage_classes=lists.of(STORAGE_CLASSES),
        device_classes=lists.of(DEVICE_CLASSES),
    )


def surge_objects(lists: Lists) -> SurgeObjects:
    """Return what only surge moves need; without these kinds no move begins."""
    return listed.surge_objects(
        deployments=lists.of(DEPLOYMENTS),
        replica_sets=lists.of(REPLICA_SETS),
        autoscalers=lists.of(HORIZONTAL_AUTOSCALERS),
        quotas=lists.of(QUOTAS),
    )


def _kinds_of(use: Callable[[Lists], object]) -> tuple[AnyKind, ...]:
    """Return the kinds whose objects a function uses, in its order."""
    kinds: dict[AnyKind, tuple[()]] = {}
    use(Lists(lambda kind: kinds.setdefault(kind, ())))
    return tuple(kinds)


CLUSTER_KINDS: Final = _kinds_of(cluster_objects)
"""The kinds of a Cluster in the order of listing."""
SURGE_KINDS: Final = _kinds_of(surge_objects)
"""The kinds that only surge moves need."""
KINDS: Final = (*CLUSTER_KINDS, *SURGE_KINDS)
BY_NAME: Final[Mapping[str, AnyKind]] = {kind.name: kind for kind in KINDS}
"""All kinds by the `kind` of their objects in a dump."""
NEEDED: Final[Mapping[AnyKind, Callable[[Config], bool]]] = {
    BUDGETS: lambda config: config.evicts,
    **dict.fromkeys(SURGE_KINDS, lambda config: config.surges),
}
"""Whether a running controller watches a kind; it always watches kinds that are missing here."""
ONLY: Final[Mapping[AnyKind, Callable[[Config], str]]] = {
    STATUSES: lambda config: config.cluster_autoscaler.status,
}
"""namespace/name of the only object that is listed and watched; of other kinds all objects are."""
