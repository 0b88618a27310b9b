"""Virtual, unready, leaving and control-plane nodes, decoded from JSON."""

from dataclasses import replace
from typing import Any

import pytest

from core.config.settings import Config, UsabilityMode
from core.eligibility.node_eligibility import node_blockers
from core.engine import reconcile
from core.marks.wellknown import TAINT_KEY
from core.model.cluster import Cluster
from core.model.node import Node, Taint
from core.model.node_lifecycle import (
    DELETING_TAINTS,
    LEAVING_SECONDS_MAX,
    LEAVING_TAINTS,
    LeavingCondition,
    LeavingRules,
    is_terminating,
    name_leaving,
    others_taint,
    why_leaving,
    why_unready,
)
from core.writes.write import fingerprint
from tests.support import kube_json
from tests.support.builders import UNLIMITED, node, pod
from tests.support.kube_json import MISSING, Json
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
CONFIG = Config(usable_capacity=UsabilityMode.ALL, budgets=UNLIMITED)


def decoded(
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


SINCE = 1_767_225_600
"""2026-01-01T00:00:00Z"""


def event(message: str | None) -> Json:
    return {"type": "VMEventScheduled", "status": "True", "message": message}


def with_condition(condition: Json, **changes: Any) -> Node:
    """Return a Ready node with another condition, which began at SINCE."""
    ready = {"type": "Ready", "status": "True"}
    dated = {"lastTransitionTime": "2026-01-01T00:00:00Z", **condition}
    return kube_json.node(spec__taints=[], status__conditions=[ready, dated], **changes)


class TestVirtual:
    @pytest.mark.parametrize(
        "found",
        [
            pytest.param(decoded({"type": "virtual-kubelet"}), id="virtual-kubelet"),
            pytest.param(decoded({"eks.amazonaws.com/compute-type": "fargate"}), id="Fargate"),
            pytest.param(decoded(taint="eks.amazonaws.com/compute-type=fargate"), id="EKS taint"),
            pytest.param(
                decoded(provider_id="aws:///eu-west-1b/5ad2dd2b4c-0f3a/fargate-ip-10-0-1-2.internal"),
                id="Fargate, providerID",
            ),
            pytest.param(decoded(taint="virtual-kubelet.io/provider"), id="taint"),
            pytest.param(decoded({"liqo.io/type": "virtual-node"}), id="Liqo"),
            pytest.param(decoded(provider_id="liqo://rome"), id="Liqo, providerID"),
            pytest.param(decoded({"node.kubernetes.io/instance-type": "eklet"}), id="TKE"),
            pytest.param(decoded({"node-role.kubernetes.io/virtual-node": ""}), id="OKE"),
            pytest.param(decoded(provider_id="ocid1.virtualnode.oc1.aaaa"), id="OKE, providerID"),
        ],
    )  # fmt: skip
    def test_virtual_node_is_recognized(self, found: Node) -> None:
        assert found.virtual
        assert "virtual-node" in {blocker.code for blocker in node_blockers(found)}

    @pytest.mark.parametrize(
        "found",
        [
            pytest.param(decoded({"type": "kwok", "liqo.io/type": "x"}), id="other values"),
            pytest.param(decoded({"eks.amazonaws.com/compute-type": "ec2"}), id="EKS on EC2"),
            pytest.param(decoded(taint="eks.amazonaws.com/compute-type=hybrid"), id="EKS hybrid"),
            pytest.param(decoded(provider_id="aws:///eu-west-1b/i-0b1234"), id="EC2"),
            pytest.param(
                decoded(provider_id="gce://fargate-p/zone/gke-fargate-1"), id="only the name"
            ),
            pytest.param(decoded(provider_id=None), id="null"),
            pytest.param(decoded(), id="no labels"),
        ],
    )
    def test_real_node_is_not_virtual(self, found: Node) -> None:
        assert not found.virtual

    def test_virtual_node_is_not_removable_and_gets_no_pods(self) -> None:
        cloud = replace(node("cloud", 10_000_000, 10_000_000), virtual=True)
        cluster = Cluster.of([node("a"), cloud], [pod("x", "a", 100, 100)])
        plan = reconcile.plan(cluster, CONFIG)
        assert not plan.removals
        codes = {kept.node: {one.code for one in kept.blockers} for kept in plan.kept}
        assert "virtual-node" in codes["cloud"]
        assert "no-room" in codes["a"]


class TestUnready:
    """Capacity that no pod can use does not count, and such a node is not removable."""

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
    def test_transient_taint_makes_node_unready(self, taint: Taint, why: str | None) -> None:
        assert why_unready(node("n", taints=(taint,))) == why

    def test_suspended_node_is_not_ready(self) -> None:
        conditions = [
            {"type": "Ready", "status": "True"},
            {"type": "Suspended", "status": "True"},
        ]
        found = decoded(status__conditions=conditions)
        assert why_unready(found) == "the machine of the node is suspended (condition Suspended)"
        assert [blocker.code for blocker in node_blockers(found)] == ["not-ready"]
        conditions[1]["status"] = "False"
        assert why_unready(decoded(status__conditions=conditions)) is None

    def test_unready_node_is_no_capacity_and_is_not_removed(self) -> None:
        """Half of twelve nodes have no network yet; thresholds hold among the others."""
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
    def test_leaving_taint_makes_node_leaving(self, key: str) -> None:
        found = decoded(taint=key)
        assert is_terminating(found)
        assert key in (why_leaving(found) or "")
        assert [blocker.code for blocker in node_blockers(found)] == ["being-deleted"]

    def test_configured_taint_makes_node_leaving(self) -> None:
        others = decoded(taint="gpu")
        found = decoded(taint="team.example/drain")
        nodes, before = name_leaving(LeavingRules(("team.example/drain",)), (found, others), {})
        leaving = nodes[0]
        assert nodes[1] is others
        assert is_terminating(leaving)
        assert others_taint(leaving) is None
        assert why_unready(leaving) is None
        assert [blocker.code for blocker in node_blockers(leaving)] == ["being-deleted"]
        again, _ = name_leaving(LeavingRules(("team.example/drain",)), (found, others), before)
        assert again[0] is leaving

    def test_configured_taint_does_not_change_fingerprint(self) -> None:
        found = decoded(taint="team.example/drain")
        (leaving,), _ = name_leaving(LeavingRules(("team.example/drain",)), (found,), {})
        assert fingerprint(leaving) == fingerprint(found)

    @pytest.mark.parametrize(
        ("condition", "expected"),
        [
            ({"type": "Terminating", "status": "True"}, "Terminating announces"),
            ({"type": "Terminating", "status": "False"}, None),
            ({"type": "Terminating", "status": "Unknown"}, None),
            (event("Preempt Scheduled: Mon, 02 Mar"), "VMEventScheduled (Preempt) announces"),
            (event("Redeploy Scheduled"), "VMEventScheduled (Redeploy) announces"),
            (event("Terminate Scheduled"), "VMEventScheduled (Terminate) announces"),
            (event("Freeze Scheduled: Terminate"), None),
            (event("Reboot Scheduled"), None),
            (event(None), None),
            ({**event("Preempt Scheduled"), "status": "False"}, None),
            ({"type": "DrainInProgress", "status": "True"}, None),
            ({"type": "Drained", "status": "True"}, None),
            ({"type": "MaintenanceInProgress", "status": "True"}, None),
            ({"type": "KernelDeadlock", "status": "True"}, None),
        ],
    )
    def test_condition_makes_node_leaving(self, condition: Json, expected: str | None) -> None:
        found = with_condition(condition)
        (made,), _ = name_leaving(LeavingRules(now_seconds=SINCE + 1), (found,), {})
        assert is_terminating(made) is (expected is not None)
        assert (expected or "") in (why_leaving(made) or "")
        assert fingerprint(made) == fingerprint(found)
        assert not is_terminating(found)

    @pytest.mark.parametrize("name", ["DrainInProgress", "Drained"])
    def test_condition_of_a_drain_counts_when_the_node_is_cordoned(self, name: str) -> None:
        found = with_condition({"type": name, "status": "True"}, spec__unschedulable=True)
        (made,), _ = name_leaving(LeavingRules(), (found,), {})
        assert is_terminating(made)

    @pytest.mark.parametrize(
        ("at", "counts"),
        [
            (SINCE, True),
            (SINCE + LEAVING_SECONDS_MAX - 1, True),
            (SINCE + LEAVING_SECONDS_MAX, False),
            (SINCE - LEAVING_SECONDS_MAX, False),
            (None, True),
        ],
    )
    def test_condition_counts_for_an_hour(self, at: int | None, counts: bool) -> None:
        found = with_condition({"type": "Terminating", "status": "True"})
        (made,), _ = name_leaving(LeavingRules(now_seconds=at), (found,), {})
        assert is_terminating(made) is counts
        assert made.leaving_until_seconds == (SINCE + LEAVING_SECONDS_MAX if counts else None)

    def test_condition_without_time_does_not_count(self) -> None:
        found = with_condition(
            {"type": "Terminating", "status": "True", "lastTransitionTime": None}
        )
        (made,), _ = name_leaving(LeavingRules(now_seconds=SINCE), (found,), {})
        assert made is found

    @pytest.mark.parametrize(
        ("rule", "leaves"),
        [
            (LeavingCondition("example.com/Healthy", "False"), True),
            (LeavingCondition("example.com/Healthy", "False", "going"), True),
            (LeavingCondition("example.com/Healthy", "False", "staying"), False),
            (LeavingCondition("example.com/Healthy", "True"), False),
            (LeavingCondition("example.com/Healthy", "False", cordoned=True), False),
        ],
    )
    def test_configured_condition_makes_node_leaving(
        self, rule: LeavingCondition, leaves: bool
    ) -> None:
        found = with_condition(
            {"type": "example.com/Healthy", "status": "False", "message": "going away"}
        )
        (made,), _ = name_leaving(LeavingRules(conditions=(rule,)), (found,), {})
        assert is_terminating(made) is leaves

    def test_node_is_leaving_when_its_claim_is(self) -> None:
        nodes = (node("a"), node("b"))
        rules = LeavingRules(claims={"a": "its NodeClaim c is being deleted"})
        (a, b), before = name_leaving(rules, nodes, {})
        assert (why_leaving(a), b) == ("its NodeClaim c is being deleted", nodes[1])
        (again, _), _ = name_leaving(rules, nodes, before)
        assert again is a
        (other, _), _ = name_leaving(LeavingRules(claims={"a": "other"}), nodes, before)
        assert why_leaving(other) == "other"

    def test_deletion_timestamp_makes_node_leaving(self) -> None:
        found = decoded(metadata__deletionTimestamp="2026-01-01T00:00:00Z")
        assert is_terminating(found)
        assert [blocker.code for blocker in node_blockers(found)] == ["being-deleted"]

    def test_fingerprint_changes_when_node_begins_to_leave(self) -> None:
        assert fingerprint(node("a")) != fingerprint(replace(node("a"), deleting=True))

    def test_fingerprint_changes_when_deletion_of_leaving_node_begins(self) -> None:
        """The node was leaving before by its taint, and may be written until then."""
        leaving = decoded(taint="node.kubernetes.io/out-of-service")
        assert fingerprint(leaving) != fingerprint(replace(leaving, deleting=True))
        assert fingerprint(decoded(taint=min(DELETING_TAINTS)))[-1] == "being deleted"

    @pytest.mark.parametrize(
        "key",
        [*STATES, TAINT_KEY, "gpu", "node.cilium.io/agent-not-ready2"],
    )
    def test_other_taints_do_not_make_node_leaving(self, key: str) -> None:
        assert not is_terminating(decoded(taint=key))

    @pytest.mark.parametrize("key", [*sorted(LEAVING_TAINTS), *STATES])
    def test_leaving_and_startup_taints_do_not_dedicate_node(self, key: str) -> None:
        assert others_taint(decoded(taint=key)) is None

    @pytest.mark.parametrize(
        "key",
        [
            "gpu",
            "node.cilium.io/agent-not-ready2",
            "startup-taint.cluster-autoscaler",
            "readiness.k8s.io",
        ],
    )
    def test_other_taints_dedicate_node(self, key: str) -> None:
        assert others_taint(decoded(taint=key)) == key

    @pytest.mark.parametrize("key", sorted(LEAVING_TAINTS))
    def test_pods_of_leaving_node_are_placed_before_any_removal(self, key: str) -> None:
        """With its 3,000m two of three nodes are full; without it two would be removable."""
        leaving = node("gone", taints=(Taint(key, "", "NoSchedule"),))
        nodes = [node("a"), node("b"), node("c"), leaving]
        pods = [pod(f"on-{name}", name, 1000, 100) for name in "abc"]
        cluster = Cluster.of(nodes, [*pods, pod("moves", "gone", 3000, 100)])
        plan = reconcile.plan(cluster, CONFIG)
        assert "gone" not in {removal.node for removal in plan.removals}
        assert all(p.node != "gone" for removal in plan.removals for p in removal.placements)
        assert len(plan.removals) == 1

    def test_pods_of_deleted_node_keep_their_room_until_replaced(self) -> None:
        """They exist for a minute after their node; otherwise a third node would be removed."""
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
    def test_control_plane_label_is_recognized(self, key: str, value: str) -> None:
        (blocker,) = node_blockers(decoded({key: value}))
        assert blocker.code == "control-plane"
        assert key in blocker.message

    @pytest.mark.parametrize(
        "label",
        [("kubernetes.io/role", "agent"), ("node-role.kubernetes.io/worker", "true")],
    )
    def test_worker_role_is_no_control_plane(self, label: tuple[str, str]) -> None:
        assert not node_blockers(decoded(dict([label])))
