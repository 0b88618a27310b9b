"""Add to a random cluster what autoscalers, attachments and kubelets report."""

import random
from dataclasses import replace

from core.eligibility.drift import DRIFT_PROTECTION_SECONDS
from core.model.cluster import Cluster
from core.model.constraints import Disk
from core.model.node import Node
from core.model.node_groups import AutoscalerStatus, NodeClaim, NodeGroup, NodePool
from core.model.pod import Pod

POOL, SYSTEM = "cloud.google.com/gke-nodepool", "kubernetes.azure.com/mode"
ZONE = "topology.kubernetes.io/zone"
KARPENTER = "karpenter.sh/nodepool"
DISKS = tuple(Disk("ebs", handle) for handle in ("v1", "v2", "v3"))
POOLS = (
    NodePool(name="spot"),
    NodePool(name="static", fixed="keeps a fixed number of nodes (spec.replicas: 2)"),
)


def beside(chance: random.Random) -> random.Random:
    """Return a generator of its own, so that later draws from *chance* do not change."""
    _, internal, _ = chance.getstate()
    return random.Random(f"{internal[0]} {internal[-1]}")


def surrounded(made: Cluster, was: Cluster) -> Cluster:
    """Return *made* with the attachments and autoscaler objects of the cluster *was*."""
    return replace(
        made,
        attach_limits=was.attach_limits,
        attachments=was.attachments,
        node_pools=was.node_pools,
        node_claims=was.node_claims,
        autoscaler_statuses=was.autoscaler_statuses,
    )


def with_autoscalers(chance: random.Random, cluster: Cluster) -> Cluster:
    """Return the cluster with attachments; in three of ten cases with objects of autoscalers."""
    attached = {
        one.name: frozenset(chance.sample(DISKS, chance.choice((0, 0, 0, 1, 2))))
        for one in cluster.nodes
    }
    pods = tuple(_with_facts(chance, one) for one in cluster.pods)
    cluster = replace(cluster, attachments=attached, pods=pods)
    if chance.random() < 0.7:
        return cluster
    nodes = tuple(_managed(chance, one) for one in cluster.nodes)
    groups = tuple(
        NodeGroup(f"gke-c-{pool}-{zone}0f-grp", chance.randint(0, 3), zone)
        for pool in ("p", "q")
        for zone in "abc"
        if chance.random() < 0.8
    )
    status = AutoscalerStatus(
        namespace="kube-system", name="cluster-autoscaler-status", groups=groups
    )
    found = chance.choice(((), (status,), (status,)))
    pools = chance.choice(((), POOLS, POOLS))
    claims = tuple(_claim(chance, one) for one in nodes if KARPENTER in one.labels)
    return replace(
        cluster, nodes=nodes, autoscaler_statuses=found, node_pools=pools, node_claims=claims
    )


def _with_facts(chance: random.Random, pod: Pod) -> Pod:
    """Return the pod, sometimes in a gang, or with a deferred resize."""
    facts = chance.choice(({},) * 8 + ({"gang": "g"}, {"resize_deferred": True}))
    return replace(pod, disruption_facts=replace(pod.disruption_facts, **facts)) if facts else pod


def _claim(chance: random.Random, node: Node) -> NodeClaim:
    """Return the NodeClaim of a node, which may have drifted for less than an hour, or longer."""
    drifted = chance.choice((None, None, 0, 1 - DRIFT_PROTECTION_SECONDS, -7200))
    return NodeClaim(name=f"claim-{node.name}", node=node.name, drifted_seconds=drifted)


def _managed(chance: random.Random, node: Node) -> Node:
    """Return the node with random labels of a cloud or of Karpenter."""
    labels = chance.choice(
        (
            {},
            *({POOL: "p"},) * 3,
            {POOL: "q"},
            {SYSTEM: chance.choice(("user", "system")), POOL: "p"},
            {KARPENTER: chance.choice(("spot", "static", "gone"))},
        )
    )
    provider = "k3s" if chance.random() < 0.05 else ""
    return replace(node, labels={**node.labels, **labels}, provider=provider)
