"""Call functions that take ClusterPods, with pods in any order."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from core.cluster import build, tenant_limits
from core.cluster.tenant_limits import BUDGET
from core.model.cluster import Cluster
from core.model.cluster_pods import ClusterPods, SortedPods
from core.model.node import Node
from core.model.pod import Pod
from kube.cluster_kinds import Lists, cluster_objects


def cluster_pods(*pods: Pod) -> ClusterPods:
    return SortedPods(pods).snapshot()


def in_order_of(pods: Iterable[Pod], found: ClusterPods) -> list[Pod]:
    """Return the pods of a list in the order of other versions of them."""
    by_key = {pod.key: pod for pod in found.all}
    return [by_key[pod.key] for pod in pods]


def build_cluster(nodes: Iterable[Node], pods: Iterable[Pod], **others: Any) -> Cluster:
    """Create a Cluster; *others*: objects of other kinds, sorted."""
    objects = replace(
        cluster_objects(Lists(lambda _: ())),
        nodes=sorted(nodes, key=lambda node: node.name),
        pods=cluster_pods(*pods),
        **others,
    )
    return build.build_cluster(objects)


def within_budget(pods: Sequence[Pod], budget: int = BUDGET) -> list[Pod]:
    """Return the pods of the function with the same name, in the given order."""
    return in_order_of(pods, tenant_limits.within_budget(cluster_pods(*pods), budget))
