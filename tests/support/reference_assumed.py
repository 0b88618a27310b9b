"""Reference implementation of data that a pod takes from its node.

The data are the operating system and the build of Windows of the node of a bound pod, and the
nominated node of a Pending pod.
"""

from dataclasses import replace

from core.model.cluster import Cluster
from core.model.constraints import NodeConstraints
from core.model.node import Node, Taint
from core.model.pod import Pod
from tests.support.reference_fit import admits
from tests.support.reference_rules import leaving, takes_now

OS = "kubernetes.io/os"
BUILD = "node.kubernetes.io/windows-build"


def assumed(cluster: Cluster) -> Cluster:
    """Return the cluster in which pods carry the data that they take from their node."""
    nodes = {node.name: node for node in cluster.nodes}
    mixed = [
        key
        for key in (OS, BUILD)
        if len({node.labels[key] for node in cluster.nodes if key in node.labels}) > 1
    ]
    return replace(cluster, pods=tuple(_completed(pod, nodes, mixed) for pod in cluster.pods))


def _completed(pod: Pod, nodes: dict[str, Node], mixed: list[str]) -> Pod:
    if pod.node is None:
        node = nodes.get(pod.nominated_node)
        promised = node is not None and could_start(node, pod)
        return replace(pod, node=pod.nominated_node) if promised else pod
    node = nodes.get(pod.node)
    if node is None or pod.stays_with_node:
        return pod
    for key in mixed:
        if key in node.labels and not _says(pod.node_constraints, key):
            label = (key, node.labels[key])
            pod = replace(pod, node_constraints=on_system(pod.node_constraints, label))
    return pod


def _says(node_constraints: NodeConstraints, key: str) -> bool:
    terms = node_constraints.affinity or ()
    return key in dict((*node_constraints.node_selector, *node_constraints.system)) or (
        len(terms) > 0 and all(any(one.key == key for one in term.labels) for term in terms)
    )


def on_system(node_constraints: NodeConstraints, label: tuple[str, str]) -> NodeConstraints:
    """Return the constraints of a pod that runs on nodes with this label only."""
    return replace(node_constraints, system=(*node_constraints.system, label))


def could_start(node: Node, pod: Pod) -> bool:
    """Return whether the node admits the pod now."""
    usable = not (node.virtual or node.unreadable or leaving(node)) and takes_now(node)
    cordon = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
    with_cordon = replace(node, taints=(*node.taints, cordon)) if node.unschedulable else node
    return usable and admits(with_cordon, pod.node_constraints, taint_key="")
