"""Nodes that are no machines, nodes that leave, nodes of the control plane: from the wire on."""

from dataclasses import replace
from typing import Any

import pytest

from core.config.settings import Config, UsabilityMode
from core.engine import reconcile
from core.guards.node_eligibility import node_blockers
from core.marks.wellknown import TAINT_KEY
from core.model.cluster import Cluster
from core.model.node import Node, Taint
from core.model.node_lifecycle import (
    DELETING_TAINTS,
    LEAVING_TAINTS,
    is_terminating,
    name_leaving_taints,
    others_taint,
    why_leaving,
    why_unready,
)
from core.writes.write import fingerprint
from tests.support import kube_json
from tests.support.builders import UNLIMITED, node, pod
from tests.support.kube_json import MISSING
from tests.support.reference_fit import LEAVING, PASSING

pytestmark = pytest.mark.mutate

STATES = (
    *(key for key in PASSING if key not in LEAVING),
    "startup-taint.cluster-autoscaler.kubernetes.io/anything",
    "ignore-taint.cluster-autoscaler.kubernetes.io/anything",
    "readiness.k8s.io/anything",
    "node.cluster.x-k8s.io/uninitialized",
    "node.gardener.cloud/critical-components-not-ready",
    "cni.istio.io/not-ready",
    "s3.csi.aws.com/agent-not-ready",
    "disk.csi.azure.com/agent-not-ready",
)
CONFIG = Config(usability=UsabilityMode.NONE, budgets=UNLIMITED)


def written(
    labels: dict[str, str] | None = None,
    taint: str | None = None,
    provider_id: Any = MISSING,
    **changes: Any,
) -> Node:
    if provider_id is not MISSING:
        changes["spec__providerID"] = provider_id
    key, _, value = (taint or "").partition("=")
    taints = [{"key": key, "value": value, "effect": "NoSchedule"}] if key else []
    return kube_json.node(metadata__labels=labels or {}, spec__taints=taints, **changes)


class TestVirtual:
    @pytest.mark.parametrize(
        "found",
        [
            pytest.param(written({"type": "virtual-kubelet"}), id="virtual-kubelet"),
            pytest.param(written({"eks.amazonaws.com/compute-type": "fargate"}), id="Fargate"),
            pytest.param(written(taint="eks.amazonaws.com/compute-type=fargate"), id="its taint"),
            pytest.param(
                written(provider_id="aws:///eu-west-1b/5ad2dd2b4c-0f3a/fargate-ip-10-0-1-2.internal"),
                id="its providerID",
            ),
            pytest.param(written(taint="virtual-kubelet.io/provider"), id="a provider's taint"),
            pytest.param(written({"liqo.io/type": "virtual-node"}), id="Liqo"),
            pytest.param(written(provider_id="liqo://rome"), id="Liqo, providerID"),
            pytest.param(written({"node.kubernetes.io/instance-type": "eklet"}), id="TKE"),
            pytest.param(written({"node-role.kubernetes.io/virtual-node": ""}), id="OKE"),
            pytest.param(written(provider_id="ocid1.virtualnode.oc1.aaaa"), id="OKE, providerID"),
        ],
    )  # fmt: skip
    def test_what_platforms_write(self, found: Node) -> None:
        assert found.virtual
        assert "virtual-node" in {blocker.code for blocker in node_blockers(found)}

    @pytest.mark.parametrize(
        "found",
        [
            pytest.param(written({"type": "kwok", "liqo.io/type": "x"}), id="other values"),
            pytest.param(written({"eks.amazonaws.com/compute-type": "ec2"}), id="EKS on EC2"),
            pytest.param(written(taint="eks.amazonaws.com/compute-type=hybrid"), id="EKS hybrid"),
            pytest.param(written(provider_id="aws:///eu-west-1b/i-0b1234"), id="EC2"),
            pytest.param(written(provider_id="gce://fargate-p/zone/gke-fargate-1"), id="a name"),
            pytest.param(written(provider_id=None), id="null"),
            pytest.param(written(), id="nothing"),
        ],
    )
    def test_a_machine_is_none(self, found: Node) -> None:
        assert not found.virtual

    def test_it_never_goes_and_takes_nothing(self) -> None:
        cloud = replace(node("cloud", 10_000_000, 10_000_000), virtual=True)
        cluster = Cluster.of([node("a"), cloud], [pod("x", "a", 100, 100)])
        plan = reconcile.plan(cluster, CONFIG)
        assert not plan.removals
        codes = {kept.node: {one.code for one in kept.blockers} for kept in plan.kept}
        assert "virtual-node" in codes["cloud"]
        assert "no-room" in codes["a"]


class TestUnready:
    """Capacity that no pod can use counts for nothing, and such a node does not go."""

    @pytest.mark.parametrize(
        ("taint", "why"),
        [
            (
                Taint("node.kubernetes.io/disk-pressure", "", "NoSchedule"),
                "taint node.kubernetes.io/disk-pressure temporarily keeps pods off the node",
            ),
            (
                Taint("node.cilium.io/agent-not-ready", "", "NoExecute"),
                "taint node.cilium.io/agent-not-ready temporarily keeps pods off the node",
            ),
            (Taint("node.cilium.io/agent-not-ready", "", "PreferNoSchedule"), None),
            (Taint("node.kubernetes.io/memory-pressure", "", "NoSchedule"), None),
            (Taint("node.kubernetes.io/unschedulable", "", "NoSchedule"), None),
            (Taint("ToBeDeletedByClusterAutoscaler", "1", "NoSchedule"), None),
            (Taint("gpu", "", "NoSchedule"), None),
        ],
    )
    def test_a_taint_that_passes_says_so(self, taint: Taint, why: str | None) -> None:
        assert why_unready(node("n", taints=(taint,))) == why

    def test_a_suspended_machine_says_so(self) -> None:
        conditions = [
            {"type": "Ready", "status": "True"},
            {"type": "Suspended", "status": "True"},
        ]
        found = written(status__conditions=conditions)
        assert why_unready(found) == "the machine of the node is suspended (condition Suspended)"
        assert [blocker.code for blocker in node_blockers(found)] == ["not-ready"]
        conditions[1]["status"] = "False"
        assert why_unready(written(status__conditions=conditions)) is None

    def test_such_a_node_is_no_capacity_and_does_not_go(self) -> None:
        """Half of twelve nodes wait for their network: the others' thresholds hold alone."""
        away = (Taint("node.cilium.io/agent-not-ready", "", "NoSchedule"),)
        nodes = [node(f"n{n:02}", taints=away if n % 2 else ()) for n in range(12)]
        pods = [pod(f"p{n}", f"n{n:02}", 1200, 2400) for n in range(12)]
        tainted = reconcile.plan(Cluster.of(nodes, pods), CONFIG)
        unready = [replace(one, taints=(), ready=not one.taints) for one in nodes]
        assert tainted.before == reconcile.plan(Cluster.of(unready, pods), CONFIG).before
        assert tainted.before.nodes == 6
        assert all(int(one.node[1:]) % 2 == 0 for one in tainted.removals)


class TestLeaving:
    @pytest.mark.parametrize("key", sorted(LEAVING_TAINTS))
    def test_a_taint_says_so(self, key: str) -> None:
        found = written(taint=key)
        assert is_terminating(found)
        assert key in (why_leaving(found) or "")
        assert [blocker.code for blocker in node_blockers(found)] == ["being-deleted"]

    def test_a_taint_that_the_configuration_names_says_so(self) -> None:
        others = written(taint="gpu")
        found = written(taint="team.example/drain")
        nodes, before = name_leaving_taints(("team.example/drain",), (found, others), {})
        leaving = nodes[0]
        assert nodes[1] is others
        assert is_terminating(leaving)
        assert others_taint(leaving) is None
        assert why_unready(leaving) is None
        assert [blocker.code for blocker in node_blockers(leaving)] == ["being-deleted"]
        again, _ = name_leaving_taints(("team.example/drain",), (found, others), before)
        assert again[0] is leaving

    def test_a_write_is_not_dropped_because_the_configuration_names_a_taint(self) -> None:
        found = written(taint="team.example/drain")
        (leaving,), _ = name_leaving_taints(("team.example/drain",), (found,), {})
        assert fingerprint(leaving) == fingerprint(found)

    def test_an_object_that_is_being_deleted_is_leaving(self) -> None:
        found = written(metadata__deletionTimestamp="2026-01-01T00:00:00Z")
        assert is_terminating(found)
        assert [blocker.code for blocker in node_blockers(found)] == ["being-deleted"]

    def test_what_was_decided_before_a_node_began_to_leave_is_not_written(self) -> None:
        assert fingerprint(node("a")) != fingerprint(replace(node("a"), deleting=True))

    def test_what_was_decided_before_its_deletion_began_is_not_written(self) -> None:
        """It was leaving before, by the same taint, and may be written to until then."""
        leaving = written(taint="node.kubernetes.io/out-of-service")
        assert fingerprint(leaving) != fingerprint(replace(leaving, deleting=True))
        assert fingerprint(written(taint=min(DELETING_TAINTS)))[-1] == "being deleted"

    @pytest.mark.parametrize(
        "key",
        [*STATES, TAINT_KEY, "gpu", "node.cilium.io/agent-not-ready2"],
    )
    def test_other_taints_do_not(self, key: str) -> None:
        assert not is_terminating(written(taint=key))

    @pytest.mark.parametrize("key", [*sorted(LEAVING_TAINTS), *STATES])
    def test_who_leaves_or_starts_is_not_somebodys_own(self, key: str) -> None:
        assert others_taint(written(taint=key)) is None

    @pytest.mark.parametrize(
        "key",
        [
            "gpu",
            "node.cilium.io/agent-not-ready2",
            "startup-taint.cluster-autoscaler",
            "readiness.k8s.io",
        ],
    )
    def test_all_other_taints_say_for_whom_a_node_is(self, key: str) -> None:
        assert others_taint(written(taint=key)) == key

    @pytest.mark.parametrize("key", sorted(LEAVING_TAINTS))
    def test_its_pods_are_placed_before_any_node_goes(self, key: str) -> None:
        """With its 3,000m two of the three nodes are full; without them two could go."""
        leaving = node("gone", taints=(Taint(key, "", "NoSchedule"),))
        nodes = [node("a"), node("b"), node("c"), leaving]
        pods = [pod(f"on-{name}", name, 1000, 100) for name in "abc"]
        cluster = Cluster.of(nodes, [*pods, pod("moves", "gone", 3000, 100)])
        plan = reconcile.plan(cluster, CONFIG)
        assert "gone" not in {removal.node for removal in plan.removals}
        assert all(p.node != "gone" for removal in plan.removals for p in removal.placements)
        assert len(plan.removals) == 1

    def test_its_pods_have_their_places_until_others_are_made_for_them(self) -> None:
        """They stand there for a minute after their node, and a third node would go meanwhile."""
        nodes = [node("a"), node("b"), node("c")]
        pods = [pod(f"on-{name}", name, 1000, 100) for name in "abc"]
        orphan = pod("moves", "gone", 3000, 100)
        waits = replace(orphan, node=None)
        plans = [
            reconcile.plan(Cluster.of(nodes, [*pods, one]), CONFIG) for one in (orphan, waits)
        ]
        assert plans[0].removals == plans[1].removals
        assert plans[0].pending == plans[1].pending != ()
        assert len(plans[0].removals) == 1


class TestControlPlane:
    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("node-role.kubernetes.io/control-plane", ""),
            ("node-role.kubernetes.io/master", "true"),
            ("node-role.kubernetes.io/controlplane", "true"),
            ("node-role.kubernetes.io/etcd", "true"),
            ("node-role.kubernetes.io/api-server", ""),
            ("node.kubernetes.io/microk8s-controlplane", "microk8s-controlplane"),
            ("kubernetes.io/role", "master"),
            ("node.k0sproject.io/role", "control-plane"),
        ],
    )
    def test_however_it_is_spelled(self, key: str, value: str) -> None:
        (blocker,) = node_blockers(written({key: value}))
        assert blocker.code == "control-plane"
        assert key in blocker.message

    @pytest.mark.parametrize(
        "label",
        [("kubernetes.io/role", "agent"), ("node-role.kubernetes.io/worker", "true")],
    )
    def test_workers_have_roles_too(self, label: tuple[str, str]) -> None:
        assert not node_blockers(written(dict([label])))
