"""Complete pods with their operating system, and with the node nominated for them.

- Most pods do not name an operating system. An image that runs on Linux does not run on Windows,
  so a pod of a cluster with both stays on the system that it runs on now. The same holds for
  builds of Windows: a container needs a node of its own build.
- kube-scheduler nominates a node for a pod that preempts others: it keeps the room for the pod,
  although the pod is Pending. Such a pod counts as a pod of the node. Source: kube-scheduler
  filters with nominated pods; Cluster Autoscaler (podsBySchedulability) places the pod there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from core.model.cluster_pods import ClusterPods
from core.model.constraints import SYSTEM_LABELS, NodeConstraints, with_system
from core.model.node import Node
from core.model.node_lifecycle import is_terminating, why_unready
from core.model.pod import Pod
from core.placement.filters import first_failing_filter

Assumed = Mapping[int, tuple[Pod, NodeConstraints, str | None, Pod]]
"""Completed pods by the id of the decoded pod.

Each entry has the decoded pod, the assumed constraints and node, and the completed pod."""


def assume(
    nodes: Sequence[Node], pods: ClusterPods, before: Assumed
) -> tuple[ClusterPods, Assumed]:
    """Return the completed pods, and the value to pass as *before* to the next call.

    In a cluster with several operating systems, or builds of Windows, a pod must stay on that of
    its node. A Pending pod gets the node that is nominated for it.

    *before*: the second value of the previous call, so that unchanged pods remain the same
    objects; empty in the first call.
    """
    systems = _systems(nodes)
    nominees = any(pod.nominated_node for pod in pods.special)
    if not systems and not nominees:
        return pods, {}
    by_name = {node.name: node for node in nodes} if nominees else {}
    known: dict[int, tuple[Pod, NodeConstraints, str | None, Pod]] = {}
    for pod in pods.all if systems else pods.special:
        node_constraints, node = pod.node_constraints, pod.node
        if node is None:
            node = _nominated(pod, by_name)
        elif node in systems and not pod.stays_with_node:
            node_constraints = with_system(node_constraints, systems[node])
        if node_constraints is pod.node_constraints and node is pod.node:
            continue
        # Return the same objects as before: callers compare pods by identity from one
        # reconciliation to the next.
        entry = before.get(id(pod))
        if entry is None or entry[0] is not pod or entry[1:3] != (node_constraints, node):
            entry = (
                pod,
                node_constraints,
                node,
                replace(pod, node_constraints=node_constraints, node=node),
            )
        known[id(pod)] = entry
    return pods.replacing({key: entry[3] for key, entry in known.items()}), known


def _systems(nodes: Sequence[Node]) -> Mapping[str, tuple[tuple[str, str], ...]]:
    """Return the labels that pods need because their node has them, by node name.

    They are those of SYSTEM_LABELS that have several values in the cluster. Nodes without such
    labels are left out.
    """
    values = {
        key: {node.labels[key] for node in nodes if key in node.labels} for key in SYSTEM_LABELS
    }
    mixed = [key for key, found in values.items() if len(found) > 1]
    if not mixed:
        return {}
    labels = {
        node.name: tuple((key, node.labels[key]) for key in mixed if key in node.labels)
        for node in nodes
    }
    return {name: found for name, found in labels.items() if found}


def _nominated(pod: Pod, nodes: Mapping[str, Node]) -> str | None:
    """Return the name of the node that is nominated for a pending pod, or None.

    None also if the node cannot take the pod. kube-scheduler does not remove a nomination when the
    node changes; then the pod is an ordinary pending pod.
    """
    node = nodes.get(pod.nominated_node)
    if (
        node is None
        or node.virtual
        or node.unreadable
        or is_terminating(node)
        or why_unready(node)
        or first_failing_filter(node, pod.node_constraints)
    ):
        return None
    return node.name
