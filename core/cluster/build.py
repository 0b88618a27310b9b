"""Build a Cluster from decoded objects; look up what pods and CapacityBuffers refer to."""

from collections.abc import Iterable, Sequence

from core.cluster.devices import DeviceClass, Devices
from core.cluster.namespaces import Namespace, with_namespaces
from core.cluster.tenant_limits import within_budget
from core.cluster.volumes import (
    Attachment,
    Claim,
    CsiNode,
    StorageClass,
    Volume,
    VolumeLookup,
)
from core.model.buffers import Buffer, PodTemplate, with_placeholders
from core.model.cluster import Cluster, DaemonSet, DisruptionBudget
from core.model.cluster_pods import ClusterPods
from core.model.node import Node
from core.model.node_groups import AutoscalerStatus, NodeClaim, NodePool
from core.model.pod import Pod


def build_cluster(  # noqa: PLR0913 one for each kind of the API
    nodes: Sequence[Node],
    pods: ClusterPods,
    budgets: Iterable[DisruptionBudget] = (),
    claims: Iterable[Claim] = (),
    volumes: Iterable[Volume] = (),
    csi_nodes: Iterable[CsiNode] = (),
    *,
    attachments: Iterable[Attachment] = (),
    namespaces: Sequence[Namespace] = (),
    buffers: Iterable[Buffer] = (),
    templates: Iterable[PodTemplate] = (),
    node_pools: Iterable[NodePool] = (),
    node_claims: Iterable[NodeClaim] = (),
    statuses: Iterable[AutoscalerStatus] = (),
    daemon_sets: Iterable[DaemonSet] = (),
    storage_classes: Iterable[StorageClass] = (),
    device_classes: Iterable[DeviceClass] = (),
) -> Cluster:
    """Return a Cluster; look up the volumes of its pods, and the pods of its CapacityBuffers.

    The objects of each kind must be sorted as in a Cluster. A pod becomes not evaluable
    (`unsupported` or `too_much` says why) if it may get a device by DRA (core.cluster.devices), or
    if it exceeds the evaluation budget of its namespace.
    """
    pods = within_budget(pods)
    lookup = VolumeLookup.of(nodes, pods, claims, volumes, csi_nodes, storage_classes)
    pods = with_namespaces(pods, namespaces)
    return Cluster(
        tuple(nodes),
        _completed(pods, lookup, Devices(nodes, device_classes)).all,
        tuple(budgets),
        attach_limits=lookup.attach_limits,
        attachments=lookup.attached(attachments),
        buffers=with_placeholders(buffers, templates, pods.all),
        node_pools=tuple(node_pools),
        node_claims=tuple(node_claims),
        autoscaler_statuses=tuple(statuses),
        daemon_sets=tuple(daemon_sets),
    )


def _completed(pods: ClusterPods, lookup: VolumeLookup, devices: Devices) -> ClusterPods:
    completed: dict[int, Pod] = {}
    for pod in pods.special:
        changed = lookup.pod(pod) if pod.unsupported else pod
        changed = devices.without_claimed(changed) if changed.requests.extended else changed
        if changed is not pod:
            completed[id(pod)] = changed
    return pods.replacing(completed)
