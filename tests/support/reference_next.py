"""Reference implementation of scale-in targets, from the objects and the reasons of the plan."""

from collections.abc import Collection, Mapping

from core.config.settings import Config
from core.model.cluster import Cluster
from core.model.node import Node
from core.model.pod import Pod
from core.model.resources import Resources
from tests.support.reference_packing import Packing, is_unremovable
from tests.support.reference_reserve import left_on
from tests.support.reference_rules import is_marked
from tests.support.reference_sums import dominant

LASTING = {
    "no-pool",
    "not-scalable",
    "min-nodes",
    "min-untainted-nodes",
    "zone-balance",
    "min-savings",
}
"""Reasons that remain when requests decrease."""


def following(
    cluster: Cluster,
    config: Config,
    before: Mapping[str, int],
    kept: Mapping[str, Collection[str]],
    mutant: str = "",
    *,
    clock: int,
) -> dict[str, int]:
    """Return the targets with their numbers; *kept* are unremovable nodes with reasons."""
    packing = Packing(cluster, config, clock=clock)
    nodes = {node.name: node for node in cluster.nodes}

    def may(name: str) -> bool:
        own = [] if name not in nodes else left_on(nodes[name], cluster)
        marked = name in nodes and is_marked(nodes[name]) and mutant != "marked nodes too"
        said = (
            name in nodes
            and is_unremovable(nodes[name], cluster, packing)
            and mutant != "unremovable nodes too"
        )
        return any(map(is_scaled, own)) and not marked and not said

    found = {name: number for name, number in before.items() if may(name)}
    if mutant == "targets are chosen again":
        found = {}
    lasting = set() if mutant == "budgets are ignored" else LASTING
    free = [nodes[name] for name, codes in kept.items() if may(name) and not lasting & {*codes}]
    number = max(before.values(), default=0)
    for node in sorted(free, key=lambda one: order(one, cluster, mutant)):
        if node.name not in found and is_missing(node, found, packing, mutant):
            number += 1
            found[node.name] = number
    return found


def is_scaled(pod: Pod) -> bool:
    """Return whether a scale-in may delete the pod; it does not delete one pod of a gang."""
    return pod.owner_kind == "ReplicaSet" and not (
        pod.daemon or pod.mirror or pod.disruption_facts.gang
    )


def order(node: Node, cluster: Cluster, mutant: str) -> tuple[bool, int, str]:
    """Return the sort key: nodes with pods that no scale-in deletes last, then by requests."""
    others = [pod for pod in left_on(node, cluster) if not is_scaled(pod)]
    used = Resources.total(pod.requests for pod in cluster.pods if pod.node == node.name)
    share = dominant(used, node.allocatable) if mutant != "by name" else 0
    return bool(others) and mutant != "pods of Jobs are ignored", share, node.name


def is_missing(node: Node, found: Mapping[str, int], packing: Packing, mutant: str) -> bool:
    """Return whether a reach of the node has too few targets so far."""
    reaches = [members for members in packing.all_reaches if len(members) > 1]
    if mutant == "reaches are ignored":
        reaches = [packing.reached]
    return any(
        node.name in members and 10 * len(members & found.keys()) < len(members)
        for members in reaches
    )
