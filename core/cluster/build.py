"""Build a Cluster from decoded objects; look up what pods and CapacityBuffers refer to."""

from collections.abc import Sequence
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterObjects:
    """The objects of each kind that a Cluster is built from, sorted as in a Cluster."""

    # No field has a default: whoever reads a cluster must say what it knows of each kind.

    nodes: Sequence[Node]
    pods: ClusterPods
    budgets: Sequence[DisruptionBudget]
    claims: Sequence[Claim]
    volumes: Sequence[Volume]
    csi_nodes: Sequence[CsiNode]
    namespaces: Sequence[Namespace]
    attachments: Sequence[Attachment]
    templates: Sequence[PodTemplate]
    buffers: Sequence[Buffer]
    node_pools: Sequence[NodePool]
    node_claims: Sequence[NodeClaim]
    autoscaler_statuses: Sequence[AutoscalerStatus]
    daemon_sets: Sequence[DaemonSet]
    storage_classes: Sequence[StorageClass]
    device_classes: Sequence[DeviceClass]


def build_cluster(objects: ClusterObjects) -> Cluster:
    """Return a Cluster; look up the volumes of its pods, and the pods of its CapacityBuffers.

    A pod becomes not evaluable (`unsupported` or `too_much` says why) if it may get a device by
    DRA (core.cluster.devices), or if it exceeds the evaluation budget of its namespace.
    """
    pods = within_budget(objects.pods)
    lookup = VolumeLookup.of(
        objects.nodes,
        pods,
        objects.claims,
        objects.volumes,
        objects.csi_nodes,
        objects.storage_classes,
    )
    pods = with_namespaces(pods, objects.namespaces)
    return Cluster(
        tuple(objects.nodes),
        _completed(pods, lookup, Devices(objects.nodes, objects.device_classes)).all,
        tuple(objects.budgets),
        attach_limits=lookup.attach_limits,
        attachments=lookup.attached(objects.attachments),
        buffers=with_placeholders(objects.buffers, objects.templates, pods.all),
        node_pools=tuple(objects.node_pools),
        node_claims=tuple(objects.node_claims),
        autoscaler_statuses=tuple(objects.autoscaler_statuses),
        daemon_sets=tuple(objects.daemon_sets),
    )


def _completed(pods: ClusterPods, lookup: VolumeLookup, devices: Devices) -> ClusterPods:
    completed: dict[int, Pod] = {}
    for pod in pods.special:
        changed = lookup.pod(pod) if pod.unsupported else pod
        changed = devices.without_claimed(changed) if changed.requests.extended else changed
        if changed is not pod:
            completed[id(pod)] = changed
    return pods.replacing(completed)
