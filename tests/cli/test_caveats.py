"""Caveats: what the input cannot show, and which nodes provide no capacity."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from cli.explain.caveats import NO_CAPACITY, Caveat, caveats
from cli.formats.json import plan as in_json
from core.config.document import parse
from core.config.settings import Config
from core.model.cluster import Cluster
from core.model.constraints import ClaimUse, DisruptionFacts
from core.model.node import Node, Taint
from core.model.node_groups import AutoscalerStatus, NodeGroup, NodePool
from core.model.pod import Pod
from core.policies.all import POLICIES
from tests.support.builders import node, pod
from tests.support.configurations import HEAD

ALL = frozenset(
    {
        "Node",
        "Pod",
        "PodDisruptionBudget",
        "PersistentVolume",
        "PersistentVolumeClaim",
        "CSINode",
        "VolumeAttachment",
    }
)
DAEMON = pod("proxy", "a", 100, 50, daemon=True, namespace="kube-system")
WHOLE = (DAEMON, pod("x", "a", 100, 100))
BOUND = replace(
    pod("bound", "a", 100, 100),
    disruption_facts=DisruptionFacts(claims=(ClaimUse("d/data", ephemeral=False),)),
)


def with_autoscaler(nodes: Sequence[Node], pods: Sequence[Pod]) -> Cluster:
    """Return a cluster with a Cluster Autoscaler, about which there is nothing to say."""
    status = AutoscalerStatus(namespace="kube-system", name="cluster-autoscaler-status")
    return replace(Cluster.of(nodes, pods), autoscaler_statuses=(status,))


def codes(pods: tuple[Pod, ...], kinds: frozenset[str] | None, *nodes: Node) -> dict[str, Caveat]:
    found = caveats(with_autoscaler(nodes or [node("a"), node("b")], pods), kinds, Config())
    assert len({one.code for one in found}) == len(found)
    for one in found:
        assert one.message.isprintable()
    return {one.code: one for one in found}


@pytest.mark.parametrize(
    ("pods", "kinds", "found"),
    [
        pytest.param(WHOLE, ALL, set(), id="complete input"),
        pytest.param(WHOLE, None, set(), id="live cluster"),
        pytest.param(WHOLE[1:], ALL, {"one-namespace"}, id="dump of one namespace"),
        pytest.param(WHOLE[1:], None, set(), id="live cluster of one namespace"),
        pytest.param(
            (WHOLE[1], pod("y", "a", 1, 1, namespace="e")),
            ALL,
            {"no-daemonsets"},
            id="dump without DaemonSet pods",
        ),
        pytest.param(WHOLE, ALL - {"PodDisruptionBudget"}, {"no-budgets"}, id="no pdb"),
        pytest.param(WHOLE, ALL - {"CSINode"}, set(), id="no pod uses a claim"),
        pytest.param((*WHOLE, BOUND), ALL, set(), id="claims and what is behind them"),
        pytest.param((*WHOLE, BOUND), ALL - {"CSINode"}, {"no-volumes"}, id="no csinodes"),
        pytest.param((*WHOLE, BOUND), ALL - {"PersistentVolume"}, {"no-volumes"}, id="no pv"),
        pytest.param(
            (*WHOLE, BOUND), ALL - {"VolumeAttachment"}, {"no-attachments"}, id="no attachments"
        ),
        pytest.param(
            (*WHOLE, BOUND), ALL - {"VolumeAttachment", "CSINode"}, {"no-volumes"}, id="neither"
        ),
        pytest.param(WHOLE, ALL - {"VolumeAttachment"}, set(), id="no claim, no attachment"),
        pytest.param((*WHOLE, pod("z", "a", 0, 1)), ALL, {"no-requests"}, id="no cpu"),
        pytest.param((*WHOLE, pod("z", None, 1, 0)), None, {"no-requests"}, id="no memory, waits"),
        pytest.param(
            WHOLE,
            ALL - {"PodDisruptionBudget"},
            {"no-budgets"},
            id="dump without PodDisruptionBudgets",
        ),
        pytest.param(WHOLE, ALL - {"CSINode"}, set(), id="dump without CSINodes, no claims"),
        pytest.param((*WHOLE, BOUND), ALL, set(), id="claims and volumes"),
        pytest.param(
            (*WHOLE, BOUND), ALL - {"CSINode"}, {"no-volumes"}, id="claims without CSINodes"
        ),
        pytest.param(
            (*WHOLE, BOUND),
            ALL - {"PersistentVolume"},
            {"no-volumes"},
            id="claims without PersistentVolumes",
        ),
        pytest.param(
            (*WHOLE, pod("z", "a", 0, 1)), ALL, {"no-requests"}, id="pod without CPU request"
        ),
        pytest.param(
            (*WHOLE, pod("z", None, 1, 0)),
            None,
            {"no-requests"},
            id="Pending pod without memory request",
        ),
        pytest.param(
            (*WHOLE, pod("z", "a", 0, 0, daemon=True)),
            ALL,
            set(),
            id="DaemonSet pod without requests",
        ),
        pytest.param(
            (*WHOLE, pod("z", "b", 4100, 1)), None, {"overcommitted"}, id="CPU overcommitted"
        ),
        pytest.param(
            (*WHOLE, pod("z", "b", 1, 8100)), ALL, {"overcommitted"}, id="memory overcommitted"
        ),
        pytest.param((*WHOLE, pod("z", "b", 4000, 8000)), ALL, set(), id="full node"),
    ],
)
def test_caveats_are_reported_when_input_is_incomplete(
    pods: tuple[Pod, ...], kinds: frozenset[str] | None, found: set[str]
) -> None:
    assert set(codes(pods, kinds)) == found


def test_node_without_capacity_is_reported_once_for_its_main_reason() -> None:
    taint = Taint("karpenter.sh/disrupted", "", "NoSchedule")
    found = codes(
        WHOLE,
        ALL,
        node("a"),
        replace(node("v"), virtual=True, ready=False),
        node("l", taints=(taint,), unschedulable=True),
        node("c", unschedulable=True, ready=False),
        node("d", unschedulable=True),
        node("n", ready=False),
    )
    assert {code: [name for name, _ in one.nodes] for code, one in found.items()} == {
        "virtual": ["v"],
        "leaving": ["l"],
        "cordoned": ["c", "d"],
        "not-ready": ["n"],
    }
    assert list(found) == [code for code, _, _ in NO_CAPACITY]
    assert "\n".join(one.message for one in found.values()) == (
        "1 virtual node is ignored and provides no capacity: v\n"
        "1 leaving node provides no capacity; its pods are placed first: l\n"
        "2 cordoned nodes provide no capacity, although cpu 8 and memory 14.9Gi are allocatable: "
        "c, d\n"
        "1 NotReady node provides no capacity, although cpu 4 and memory 7.5Gi are allocatable: n"
    )


def test_caveat_lists_few_nodes_and_nodes_with_most_pods_first() -> None:
    pods = [
        pod(f"p{number}-{more}", f"n{number}", 0, 0)
        for number in range(30)
        for more in range(2 if number == 7 else 1)
    ]
    nodes = [node(f"n{number}") for number in range(30)]
    (said,) = caveats(with_autoscaler(nodes, pods), None, Config())
    assert said.message == (
        "31 of 31 pods do not request both CPU and memory; a missing request counts as 0; pods "
        "by node: n7 (2), n0 (1), n1 (1) and 27 more nodes"
    )
    (document,) = in_json.warnings([said])
    assert (document["code"], document["count"]) == ("no-requests", 31)
    assert len(document["nodes"]) == in_json.NODES_LISTED


@pytest.mark.parametrize(
    ("pods", "kinds", "told"),
    [
        ((*WHOLE, BOUND), ALL - {"CSINode"}, "1 of 3 pods uses PersistentVolumeClaims,"),
        (
            (*WHOLE, BOUND, replace(BOUND, name="b")),
            ALL - {"CSINode"},
            "2 of 4 pods use Persistent",
        ),
        ((*WHOLE, pod("z", "a", 0, 1)), ALL, "1 of 2 pods does not request both"),
        ((*WHOLE, pod("z", "a", 0, 1), pod("y", "a", 1, 0)), ALL, "2 of 3 pods do not request"),
        (WHOLE[1:], ALL, "all pods (1) are in namespace d;"),
    ],
)
def test_caveat_uses_singular_when_one_pod_is_affected(
    pods: tuple[Pod, ...], kinds: frozenset[str], told: str
) -> None:
    (said,) = codes(pods, kinds).values()
    assert said.message.startswith(told)


SAID = {
    "thresholds": {"cpu": "90%"},
    "usableCapacity": "all",
    "pools": [
        {"name": "a", "selector": {"matchLabels": {"a": "b"}}, "thresholds": {"cpu": "90%"}}
    ],
    "prices": [{"nodeSelector": {"a": "b"}, "price": 1}],
}


@pytest.mark.parametrize("policy", POLICIES)
def test_caveat_names_settings_that_selected_policy_ignores(policy: str) -> None:
    heard = POLICIES[policy].thresholds
    for said in ({}, SAID, *({name: value} for name, value in SAID.items())):
        config = parse({**HEAD, **said, "policy": policy}, "x")
        found = caveats(with_autoscaler([node("a", labels={"a": "b"})], ()), None, config)
        assert [one.code for one in found] == ([] if heard or not said else ["ignored-settings"])
        for one in found:
            assert all(name in one.message for name in said if name != "pools")


@pytest.mark.parametrize("policy", POLICIES)
def test_caveat_names_hysteresis_unless_selected_policy_has_it(policy: str) -> None:
    config = parse({**HEAD, "hysteresis": "10%", "policy": policy}, "x")
    found = caveats(with_autoscaler([node("a")], ()), None, config)
    ignored = [] if POLICIES[policy].hysteresis else ["ignored-settings"]
    assert [one.code for one in found] == ignored
    assert POLICIES[policy].hysteresis is (policy in {"ClusterThreshold", "NodeUtilization"})


def test_minimum_savings_without_prices_are_reported() -> None:
    cluster = with_autoscaler([node("a", labels={"a": "b"})], ())
    for prices, codes in (([], ["no-prices"]), (SAID["prices"], [])):
        given = {**HEAD, "minSavings": 0.03, "prices": prices}
        for policy in POLICIES:
            config = parse({**given, "policy": policy}, "x")
            assert [one.code for one in caveats(cluster, None, config)] == codes


def test_missing_autoscaler_is_reported_once() -> None:
    cluster = Cluster.of([node("a")], WHOLE[:0])
    (live,) = caveats(cluster, None, Config())
    assert live.code == "no-autoscaler"
    assert "kube-system/cluster-autoscaler-status" in live.message
    assert "--from-file" not in live.message
    (dumped,) = (one for one in caveats(cluster, ALL, Config()) if one.code == "no-autoscaler")
    assert "kubectl get nodepools,nodeclaims -o json" in dumped.message
    with_pools = replace(cluster, node_pools=(NodePool(name="general"),))
    assert caveats(with_pools, None, Config()) == ()


def test_status_is_read_from_configured_configmap() -> None:
    cluster = with_autoscaler([node("a")], WHOLE[:0])
    named = parse({**HEAD, "clusterAutoscaler": {"status": "ca/status"}}, "x")
    (said,) = caveats(cluster, None, named)
    assert "ConfigMap ca/status " in said.message


def test_pool_without_nodes_is_reported() -> None:
    pools = [
        {
            "name": "some",
            "selector": {"matchExpressions": [{"key": "gpu", "operator": "DoesNotExist"}]},
        },
        {"name": "none", "selector": {"matchLabels": {"gpu": "yes"}}},
    ]
    found = caveats(with_autoscaler([node("a")], ()), None, parse({**HEAD, "pools": pools}, "x"))
    assert [(one.code, one.message) for one in found] == [
        ("empty-pools", "pools of the setting `pools` without a node: none")
    ]


def test_nodes_without_known_group_are_named_when_a_status_has_groups() -> None:
    groups = (NodeGroup("akspool", 1),)
    status = AutoscalerStatus(
        namespace="kube-system", name="cluster-autoscaler-status", groups=groups
    )
    nodes = [
        node("known", labels={"kubernetes.azure.com/agentpool": "pool"}),
        node("lost"),
        node("master", labels={"node-role.kubernetes.io/control-plane": ""}),
    ]
    cluster = replace(Cluster.of(nodes, WHOLE), autoscaler_statuses=(status,))
    (found,) = (one for one in caveats(cluster, ALL, Config()) if one.code == "unknown-groups")
    assert found.message.startswith(
        "1 node is in no known node group of the ConfigMap kube-system/"
    )
    assert found.message.endswith("counts as no savings: lost")
    empty = replace(cluster, autoscaler_statuses=(replace(status, groups=()),))
    assert "unknown-groups" not in {one.code for one in caveats(empty, ALL, Config())}
