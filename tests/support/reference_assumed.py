"""Reference implementation of data that a pod takes from its node.

The data are the operating system of the node of a bound pod, and the nominated node of a Pending
pod.
"""

from dataclasses import replace

from core.model.cluster import Cluster
from core.model.constraints import NodeConstraints
from core.model.node import Node, Taint
from core.model.pod import Pod
from tests.support.reference_fit import admits
from tests.support.reference_rules import leaving, takes_now

OS = "kubernetes.io/os"


def assumed(cluster: Cluster) -> Cluster:
    """Return the cluster in which pods carry the data that they take from their node."""
    nodes = {node.name: node for node in cluster.nodes}
    mixed = len({node.labels[OS] for node in cluster.nodes if OS in node.labels}) > 1
    return replace(
        cluster, pods=tuple(_completed(pod, nodes, mixed=mixed) for pod in cluster.pods)
    )


def _completed(pod: Pod, nodes: dict[str, Node], *, mixed: bool) -> Pod:
    if pod.node is None:
        node = nodes.get(pod.nominated_node)
        promised = node is not None and could_start(node, pod)
        return replace(pod, node=pod.nominated_node) if promised else pod
    node = nodes.get(pod.node)
    said = {key for key, _ in (*pod.node_constraints.node_selector, *pod.node_constraints.system)}
    if not mixed or node is None or OS not in node.labels or OS in said or pod.stays_with_node:
        return pod
    return replace(pod, node_constraints=on_system(pod.node_constraints, node.labels[OS]))


def on_system(node_constraints: NodeConstraints, name: str) -> NodeConstraints:
    """Return the constraints of a pod that runs on this operating system only."""
    return replace(node_constraints, system=((OS, name),))


def could_start(node: Node, pod: Pod) -> bool:
    """Return whether the node admits the pod now."""
    usable = not (node.virtual or node.unreadable or leaving(node)) and takes_now(node)
    cordon = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
    with_cordon = replace(node, taints=(*node.taints, cordon)) if node.unschedulable else node
    return usable and admits(with_cordon, pod.node_constraints, taint_key="")
