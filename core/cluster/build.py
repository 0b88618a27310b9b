"""Build a Cluster from decoded objects; look up what pods and CapacityBuffers refer to.

If no node offers a device that a pod requests, the pod cannot be evaluated. kube-scheduler then
looks for a DeviceClass with this extended resource name, and claims a device for the pod (DRA).
Ebb does not read DeviceClasses, so it cannot tell such a pod from a pod that never fits anywhere.
If some nodes offer the device, Ebb considers these nodes only. Source: kube-scheduler 1.36,
NodeResourcesFit (shouldDelegateResourceToDRA); its feature gate DRAExtendedResource is enabled by
default.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from core.cluster.namespaces import Namespace, with_namespaces
from core.cluster.tenant_limits import within_budget
from core.cluster.volumes import Attachment, Claim, CsiNode, Volume, VolumeLookup
from core.model.buffers import Buffer, PodTemplate, with_placeholders
from core.model.cluster import Cluster, DaemonSet, DisruptionBudget
from core.model.cluster_pods import ClusterPods
from core.model.node import Node
from core.model.node_groups import AutoscalerStatus, NodeClaim, NodePool
from core.model.pod import Pod
from core.model.resources import is_device


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
) -> Cluster:
    """Return a Cluster; look up the volumes of its pods, and the pods of its CapacityBuffers.

    The objects of each kind must be sorted as in a Cluster. A pod becomes not evaluable
    (`unsupported` or `too_much` says why) if it requests a device that no node offers, or if it
    exceeds the evaluation budget of its namespace.
    """
    pods = within_budget(pods)
    lookup = VolumeLookup.of(nodes, pods, claims, volumes, csi_nodes)
    pods = with_namespaces(pods, namespaces)
    return Cluster(
        tuple(nodes),
        _completed(pods, lookup, offered(nodes)).all,
        tuple(budgets),
        attach_limits=lookup.attach_limits,
        attachments=lookup.attached(attachments),
        buffers=with_placeholders(buffers, templates, pods.all),
        node_pools=tuple(node_pools),
        node_claims=tuple(node_claims),
        autoscaler_statuses=tuple(statuses),
        daemon_sets=tuple(daemon_sets),
    )


def _completed(pods: ClusterPods, lookup: VolumeLookup, devices: frozenset[str]) -> ClusterPods:
    completed: dict[int, Pod] = {}
    for pod in pods.special:
        changed = lookup.pod(pod) if pod.unsupported else pod
        changed = without_claimed(changed, devices) if changed.requests.extended else changed
        if changed is not pod:
            completed[id(pod)] = changed
    return pods.replacing(completed)


def offered(nodes: Iterable[Node]) -> frozenset[str]:
    """Return the names of the extended resources that at least one node offers."""
    return frozenset(name for node in nodes for name, units in node.allocatable.extended if units)


def without_claimed(pod: Pod, devices: frozenset[str]) -> Pod:
    """Return the pod without requests for devices that no node offers.

    `unsupported` then names such a device, so the pod is not evaluable. The remaining requests
    still show which nodes have no room for the pod. The same object if there is no such request.

    *devices*: names of the extended resources that nodes offer.
    """
    requested = pod.requests.extended
    missing = [
        name for name, units in requested if units and name not in devices and is_device(name)
    ]
    if not missing:
        return pod
    remaining = tuple((name, units) for name, units in requested if name not in missing)
    return replace(
        pod,
        requests=replace(pod.requests, extended=remaining),
        unsupported=(*pod.unsupported, f"{missing[0]}, which no node offers"),
    )
