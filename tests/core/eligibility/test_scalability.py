"""Whether an autoscaler removes a node: one row a rule."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from core.config.settings import Config
from core.eligibility.scalability import (
    GROUPS_SHOWN,
    NODE_GROUPS,
    NOT_SCALABLE,
    OTHER,
    Autoscalers,
    NodeScalability,
    Scalability,
    group_name,
    largest_groups,
)
from core.engine.snapshot import ClusterSnapshot
from core.model.cluster import Cluster
from core.model.node_groups import AutoscalerStatus, NodeGroup, NodePool
from tests.support import kube_json
from tests.support.builders import node
from tests.support.reference_scalable import group_of, is_fixed

EKS, GKE = "eks.amazonaws.com/nodegroup", "cloud.google.com/gke-nodepool"
AKS, MODE = "kubernetes.azure.com/agentpool", "kubernetes.azure.com/mode"
ZONE, KARPENTER = "topology.kubernetes.io/zone", "karpenter.sh/nodepool"
UUID = "0dc7f2a6-5c1e-4d2b-9f5e-3b1f0a7c9e11"
NAME = "cluster-autoscaler-status"
YES, NO, UNKNOWN = Scalability.SCALABLE, Scalability.NOT_SCALABLE, Scalability.UNKNOWN


def status(*groups: NodeGroup, fault: str = "") -> AutoscalerStatus:
    return AutoscalerStatus(namespace="kube-system", name=NAME, groups=groups, fault=fault)


POOLS = {
    "general": NodePool(name="general"),
    "static": NodePool(name="static", fixed="keeps a fixed number of nodes (spec.replicas: 2)"),
}
WEB = NodeGroup(f"eks-web-{UUID}", 1)
WEB_LARGE = NodeGroup(f"eks-web-large-{UUID}", 1)


def verdict(
    labels: Mapping[str, str],
    found: AutoscalerStatus | None = None,
    pools: Mapping[str, NodePool] | None = None,
    provider: str = "",
    annotations: Mapping[str, str] | None = None,
) -> NodeScalability:
    made = node("n", labels=dict(labels), annotations=dict(annotations or {}))
    one = replace(made, provider=provider)
    autoscalers = Autoscalers(found, pools or {})
    answer = autoscalers.verdict(one)
    assert autoscalers.verdicts([one]) == {"n": answer}
    cluster = replace(
        Cluster.of([one], []),
        autoscaler_statuses=() if found is None else (found,),
        node_pools=tuple((pools or {}).values()),
    )
    assert is_fixed(one, cluster, Config()) is (answer.state is NO)
    assert group_of(one, cluster, Config()) == answer.group
    return answer


@pytest.mark.parametrize(
    ("labels", "found", "pools", "state", "evidence"),
    [
        ({}, None, {}, UNKNOWN, "no label or annotation of the node names its node group"),
        ({MODE: "system"}, None, {}, NO, f"label {MODE}=system"),
        ({MODE: "user"}, None, {}, UNKNOWN, "no label"),
        ({MODE: "system", AKS: "a"}, status(NodeGroup("aks-a-1-vmss", 0)), {}, NO, "system pool"),
        ({EKS: "web"}, None, {}, UNKNOWN, "no autoscaler was found for the node group"),
        ({EKS: "web"}, None, POOLS, NO, f"({EKS}=web) is fixed"),
        ({AKS: "web"}, None, POOLS, NO, "is fixed"),
        ({GKE: "web"}, None, POOLS, NO, "is fixed"),
        ({EKS: "web"}, status(), POOLS, UNKNOWN, "no node group in ConfigMap"),
        ({EKS: "web"}, status(WEB), {}, YES, f"eks-web-{UUID} (minimum size 1)"),
        ({EKS: "web"}, status(WEB), POOLS, YES, "(minimum size 1)"),
        ({EKS: "web"}, status(fault="odd"), {}, UNKNOWN, f"ConfigMap kube-system/{NAME}: odd"),
        ({KARPENTER: "general"}, None, POOLS, YES, "NodePool general"),
        ({KARPENTER: "general", EKS: "web"}, None, POOLS, YES, "NodePool general"),
        ({KARPENTER: "static"}, None, POOLS, NO, "spec.replicas: 2"),
        ({KARPENTER: "static"}, status(WEB), POOLS, NO, "spec.replicas: 2"),
        ({KARPENTER: "gone"}, None, POOLS, UNKNOWN, "NodePool gone of the node does not exist"),
        ({}, None, POOLS, UNKNOWN, "no label"),
    ],
)
def test_scalability_of_node(
    labels: Mapping[str, str],
    found: AutoscalerStatus | None,
    pools: Mapping[str, NodePool],
    state: Scalability,
    evidence: str,
) -> None:
    answer = verdict(labels, found, pools)
    assert answer.state is state
    assert evidence in answer.evidence


@pytest.mark.parametrize("provider", ["k3s", "rke2", "eks-hybrid", "hrobot"])
def test_machines_of_nobody_are_not_scaled(provider: str) -> None:
    answer = verdict({}, provider=provider)
    assert answer.state is NO
    assert f"{provider}://" in answer.evidence
    assert verdict({}, None, POOLS, provider).state is NO


@pytest.mark.parametrize("provider", ["", "aws", "hcloud", "gce", "kwok"])
def test_machines_of_clouds_may_be_scaled(provider: str) -> None:
    assert verdict({}, provider=provider).state is UNKNOWN


@pytest.mark.parametrize(
    ("label", "value", "group", "own"),
    [
        (EKS, "web", f"eks-web-{UUID}", True),
        (EKS, "web", "eks-web-1234", True),
        (EKS, "web", "web", True),
        (EKS, "web", "eks-web-large-1234", False),
        (EKS, "web", f"eks-web-large-{UUID}", False),
        (EKS, "web", f"eks-my-web-{UUID}", False),
        (EKS, "web", "eks-web", False),
        (EKS, "web", "eks-web-feed", False),
        (EKS, "web", f"eks-website-{UUID}", False),
        (EKS, "web-2", f"eks-web-2-{UUID}", True),
        (EKS, "web", f"eks-web-2-{UUID}", False),
        (EKS, "w.b", f"eks-web-{UUID}", False),
        (AKS, "pool1", "aks-pool1-12345678-vmss", True),
        (AKS, "pool1", "aks-pool12-12345678-vmss", False),
        (AKS, "win", "akswin", True),
        (AKS, "win", "akswin2", False),
        (GKE, "web", "gke-prod-web-0a1b2c3d-grp", True),
        (GKE, "web", "gke-prod-web-large-0a1b2c3d-grp", False),
        (GKE, "default-pool", "gke-my-cluster-default-pool-0a1b2c3d-grp", True),
        (GKE, "web", "gke-web-0a1b2c3d-grp", False),
        (GKE, "web", "aks-web-12345678-vmss", False),
    ],
)
def test_which_group_a_node_is_of(label: str, value: str, group: str, own: bool) -> None:
    answer = verdict({label: value}, status(NodeGroup(group, 2)))
    assert answer.state is (YES if own else UNKNOWN)
    assert answer.group == (NodeGroup(group, 2) if own else None)


CAPI, OPENSHIFT = "cluster.x-k8s.io/owner-name", "machine.openshift.io/machine"


@pytest.mark.parametrize(
    ("labels", "annotations", "group", "own"),
    [
        ({}, {CAPI: "prod-md-0-x7k2p"}, "prod-md-0", True),
        ({}, {CAPI: "prod-md-0"}, "prod-md-0", True),  # a MachinePool or a MachineSet
        ({}, {CAPI: "prod-md-0-x7k2p"}, "prod-md", False),
        ({}, {CAPI: "prod-md-0-x7k2p"}, "prod-md-0-x7k2p-1", False),
        ({}, {OPENSHIFT: "openshift-machine-api/c-worker-a-9xkqz"}, "c-worker-a", True),
        ({}, {OPENSHIFT: "openshift-machine-api/c-worker-a-9xkqz"}, "c-worker-a-9xkqz", False),
        ({"kops.k8s.io/instancegroup": "nodes"}, {}, "nodes.k.example.com", True),
        ({"kops.k8s.io/instancegroup": "nodes"}, {}, "nodes-2.k.example.com", False),
        ({"doks.digitalocean.com/node-pool-id": UUID}, {}, UUID, True),
        ({"lke.linode.com/pool-id": "123"}, {}, "123", True),
        ({"lke.linode.com/pool-id": "123"}, {}, "1234", False),
        ({"k8s.scaleway.com/pool": UUID}, {}, UUID, True),
        ({"kubernetes.civo.com/civo-node-pool": UUID}, {}, UUID, True),
        ({"hcloud/node-group": "pool1"}, {}, "pool1", True),
        ({"magnum.openstack.org/nodegroup": "web"}, {}, "web-0a1b2c3d", True),
        ({"magnum.openstack.org/nodegroup": "web"}, {}, "web-large-0a1b2c3d", False),
        ({}, {"oci.oraclecloud.com/node-pool-id": "ocid1.nodepool.x"}, "ocid1.nodepool.x", True),
        ({"oci.oraclecloud.com/node-pool-id": "ocid1.nodepool.x"}, {}, "ocid1.nodepool.x", False),
        ({"compute.coreweave.com/node-pool-uid": UUID}, {}, UUID, True),
        ({}, {"cluster-autoscaler.kwok.nodegroup/name": "kwok-1"}, "kwok-1", True),
        ({"nodepool": "general"}, {}, "general", True),
        ({"nodepool": "general"}, {CAPI: "prod-md-0-x7k2p"}, "general", True),
    ],
)
def test_group_is_found_by_label_or_annotation(
    labels: Mapping[str, str], annotations: Mapping[str, str], group: str, own: bool
) -> None:
    answer = verdict(labels, status(NodeGroup(group, 2)), annotations=annotations)
    assert answer.state is (YES if own else UNKNOWN)
    assert verdict(labels, None, POOLS, annotations=annotations).state is UNKNOWN


@pytest.mark.parametrize(
    ("said", "nodes", "state"),
    [(None, 3, YES), (3, 3, YES), (4, 3, YES), (6, 3, YES), (7, 3, UNKNOWN), (1, 3, UNKNOWN),
     (0, 1, UNKNOWN), (1, 2, YES)],
)  # fmt: skip
def test_group_is_unknown_when_its_number_of_nodes_differs(
    said: int | None, nodes: int, state: Scalability
) -> None:
    there = [node(f"n{number}", labels={EKS: "web"}) for number in range(nodes)]
    found = Autoscalers(status(NodeGroup(f"eks-web-{UUID}", 1, "", said)), {}).verdicts(there)
    assert {answer.state for answer in found.values()} == {state}
    if state is UNKNOWN:
        assert f"Autoscaler reports {said}" in found["n0"].evidence


def test_each_annotation_that_names_a_group_is_decoded() -> None:
    written = {key.key: "x" for key in NODE_GROUPS if key.annotation}
    assert kube_json.node(metadata__annotations=written).annotations == written


def test_zonal_group_matches_nodes_of_its_zone() -> None:
    groups = [NodeGroup(f"gke-c-web-{zone}0-grp", 1, zone) for zone in "ab"]
    for number, zone in enumerate("ab"):
        assert verdict({GKE: "web", ZONE: zone}, status(*groups)).group == groups[number]
    for elsewhere in ({ZONE: "c"}, {}):
        assert verdict({GKE: "web", **elsewhere}, status(*groups)).state is UNKNOWN


def test_several_groups_are_unknown() -> None:
    both = status(NodeGroup("gke-a-web-0a-grp", 1), NodeGroup("gke-b-a-web-0b-grp", 1))
    answer = verdict({GKE: "web"}, both)
    assert answer.state is UNKNOWN
    assert "2 node groups" in answer.evidence


def test_only_what_is_not_scalable_keeps_a_node() -> None:
    nodes = [node("a", labels={MODE: "system"}), node("b", labels={EKS: "web"}), node("c")]
    blockers = ClusterSnapshot(Cluster.of(nodes, []), Config()).blockers
    assert [one.reason for one in blockers["a"]] == [NOT_SCALABLE]
    assert not blockers["b"]
    assert not blockers["c"]


def test_status_is_read_from_configured_configmap() -> None:
    other = replace(status(WEB), namespace="autoscaler")
    cluster = replace(
        Cluster.of([node("n", labels={EKS: "web"})], []), autoscaler_statuses=(other,)
    )
    assert not Autoscalers.of(cluster, Config().cluster_autoscaler.status).found
    assert Autoscalers.of(cluster, f"autoscaler/{NAME}").status == other


@pytest.mark.parametrize(
    ("labels", "annotations", "name"),
    [
        ({EKS: "web"}, {}, "web"),
        ({GKE: "web", KARPENTER: "general"}, {}, "general"),
        ({AKS: "web", "nodepool": "old"}, {}, "web"),
        ({}, {"machine.openshift.io/machine": "machines/web-1a-x7k2p"}, "web-1a"),
        ({EKS: ""}, {}, ""),
        ({"pool": "web"}, {}, ""),
    ],
)
def test_group_has_name_of_first_key(
    labels: dict[str, str], annotations: dict[str, str], name: str
) -> None:
    one = node("n", labels=labels, annotations=annotations)
    assert group_name(one, "") == name
    assert group_name(one, "mine") == (name or "mine")


def test_smallest_groups_beyond_the_limit_are_shown_as_one() -> None:
    large = [f"g{number:03}" for number in range(GROUPS_SHOWN)]
    groups = {f"{name}-{node}": name for name in large for node in "ab"}
    shown = largest_groups({"x": "a", "y": "b", **groups})
    assert shown == {"x": OTHER, "y": OTHER, **groups}
    assert largest_groups(groups) == groups
