"""Small clusters for everything that Ebb reads about nodes and pods from other tools.

Each class has one kind of input, its siblings, and the nearest input with the other answer.
"""

from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_right_answers import codes, configured, explained, owned, removals, written
from tests.support.plan_cli import Json, node, plan_of, pod

OS, ZONE = "kubernetes.io/os", "topology.kubernetes.io/zone"
BUILD = "node.kubernetes.io/windows-build"
AZURE: Json = {"type": "VMEventScheduled", "status": "True"}


def labeled(name: str, labels: dict[str, str], **extra: Any) -> Json:
    """Return a node with labels."""
    return node(name, metadata={"name": name, "labels": labels}, **extra)


class TestKueueTopology:
    """A pod of a Job runs on n1, and Kueue may have put it there."""

    def items(self, key: str) -> list[Json]:
        worker = owned(pod("worker", "n1"), "Job")
        worker["metadata"]["annotations"] = {key: "[]"}
        return [node("n1"), node("n2"), worker, owned(pod("a", "n2"))]

    @pytest.mark.parametrize(
        "name",
        [
            "required-topology",
            "preferred-topology",
            "unconstrained-topology",
            "slice-required-topology",
            "slice-required-topology-constraints",
        ],
    )
    def test_pod_stays_when_it_has_a_topology_annotation(
        self, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        dumped = written(tmp_path, *self.items(f"kueue.x-k8s.io/podset-{name}"))
        assert "pod-kueue-topology" in codes(plan_of(capsys, *dumped), "n1")
        assert not explained(capsys, "pod", "shop/worker", *dumped)["movable"]

    @pytest.mark.parametrize("key", ["kueue.x-k8s.io/workload", "kueue.x-k8s.io/queue-name"])
    def test_pod_moves_when_kueue_only_admits_it(
        self, key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        found = explained(capsys, "pod", "shop/worker", *written(tmp_path, *self.items(key)))
        assert found["couldRunOn"] == ["n2"]


class TestWindowsBuilds:
    """Two nodes have one build of Windows, one has another; pods select Windows only."""

    def items(self, *builds: str, **spec: Any) -> list[Json]:
        nodes = [
            labeled(f"w{number}", {OS: "windows", **({BUILD: build} if build else {})})
            for number, build in enumerate(builds)
        ]
        pods = [
            owned(pod(f"p{number}", f"w{number}", nodeSelector={OS: "windows"}, **spec))
            for number in range(len(builds))
        ]
        return [*nodes, *pods]

    def test_pod_stays_on_nodes_of_its_build(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        dumped = written(tmp_path, *self.items("10.0.17763", "10.0.17763", "10.0.20348"))
        assert explained(capsys, "pod", "shop/p0", *dumped)["couldRunOn"] == ["w1"]
        assert explained(capsys, "pod", "shop/p2", *dumped)["couldRunOn"] == []
        assert "w2" not in removals(plan_of(capsys, *dumped))

    @pytest.mark.parametrize("other", ["10.0.20348", ""])
    def test_pod_may_use_other_nodes_when_one_build_is_known(
        self, other: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        dumped = written(tmp_path, *self.items("10.0.20348", other))
        assert explained(capsys, "pod", "shop/p0", *dumped)["couldRunOn"] == ["w1"]

    @pytest.mark.parametrize("builds", [("10.0.17763", "10.0.20348"), ("10.0.20348",)])
    def test_affinity_of_the_pod_decides_when_it_names_builds(
        self,
        builds: tuple[str, ...],
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        term = {"matchExpressions": [{"key": BUILD, "operator": "In", "values": list(builds)}]}
        required = {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}
        }
        items = self.items(
            "10.0.17763", "10.0.20348", "10.0.20348", affinity={"nodeAffinity": required}
        )
        found = explained(capsys, "pod", "shop/p1", *written(tmp_path, *items))["couldRunOn"]
        assert found == (["w0", "w2"] if len(builds) > 1 else ["w2"])


class TestRollingUpdate:
    """A rolling update has tainted n1 and n2, which it will replace; n3 is new."""

    def items(self, key: str) -> list[Json]:
        taints = {"taints": [{"key": key, "effect": "PreferNoSchedule"}]} if key else {}
        return [
            *(node(name, spec=taints) for name in ("n1", "n2")),
            node("n3"),
            owned(pod("p0", "n1", "600m")),
            *(owned(pod(f"p{number}", f"n{on}", "700m")) for number, on in enumerate("223", 1)),
        ]

    @pytest.mark.parametrize(
        "key",
        [
            "",
            "node.cluster.x-k8s.io/outdated-revision",
            "deployment.machine.sapcloud.io/prefer-no-schedule",
            "kops.k8s.io/scheduled-for-update",
            "UpdateInProgress",
            "decommission-pending",
        ],
    )
    @pytest.mark.parametrize("line", ["budgets: {minUntaintedNodes: 2}", "policy: ExcessNodes"])
    def test_plan_is_as_without_the_taint(
        self, key: str, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        dumped = written(tmp_path, *self.items(key))
        assert removals(plan_of(capsys, *dumped, *configured(tmp_path, line))) == ["n1"]

    def test_node_is_dedicated_when_the_taint_is_for_some_pods(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        dumped = written(tmp_path, *self.items("team.example/batch"))
        config = configured(tmp_path, "budgets: {minUntaintedNodes: 2}")
        assert removals(plan_of(capsys, *dumped, *config)) == ["n1", "n2"]


class TestGangs:
    """n1 is marked, and its pod would be evicted."""

    @pytest.mark.parametrize(
        ("labels", "remarks"),
        [
            ({"scheduling.x-k8s.io/pod-group": "train"}, ["pod-gang"]),
            ({"team.example/pod-group": "train"}, []),
        ],
    )
    def test_pod_is_not_evicted_when_it_is_in_a_gang(
        self,
        labels: dict[str, str],
        remarks: list[str],
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        member = owned(pod("g0", "n1"))
        member["metadata"]["labels"] = labels
        dumped = written(tmp_path, node("n1"), node("n2"), member)
        found = explained(capsys, "pod", "shop/g0", *dumped)
        assert [one["code"] for one in found["remarks"]] == remarks


class TestLeavingNodes:
    """Something takes n2 away; its pods fill n3, so that n1 must stay."""

    def items(self, *conditions: Json, cordoned: bool = False) -> list[Json]:
        going = node("n2", spec={"unschedulable": cordoned})
        dated = [{"lastTransitionTime": "2026-01-01T00:00:00Z", **one} for one in conditions]
        going["status"]["conditions"] += dated
        pods = [
            owned(pod("a", "n1")),
            *(owned(pod(f"b{number}", "n2")) for number in range(6)),
            *(owned(pod(f"c{number}", "n3")) for number in range(2)),
        ]
        for one in pods:
            one["metadata"]["creationTimestamp"] = "2026-01-01T00:30:00Z"
        return [node("n1"), going, node("n3"), *pods]

    @pytest.mark.parametrize(
        ("condition", "cordoned", "leaves"),
        [
            ({"type": "Terminating", "status": "True"}, False, True),
            ({"type": "Terminating", "status": "False"}, False, False),
            (AZURE | {"message": "Preempt Scheduled: Mon"}, False, True),
            (AZURE | {"message": "Freeze Scheduled: Mon"}, False, False),
            ({"type": "Drained", "status": "True"}, True, True),
            ({"type": "Drained", "status": "True"}, False, False),
            (
                {
                    "type": "Terminating",
                    "status": "True",
                    "lastTransitionTime": "2025-12-31T23:30:00Z",
                },
                False,
                False,
            ),
        ],
    )
    def test_node_is_leaving_when_a_condition_says_so(
        self,
        condition: Json,
        cordoned: bool,
        leaves: bool,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        dumped = written(tmp_path, *self.items(condition, cordoned=cordoned))
        plan = plan_of(capsys, *dumped)
        kept = {
            one["node"]: {why["code"] for why in one["reasons"]} for one in plan["unremovable"]
        }
        assert ("being-deleted" in kept.get("n2", ())) is leaves
        if leaves:
            assert removals(plan) == []

    def test_node_is_leaving_when_leaving_conditions_name_its_condition(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        healthy = {"type": "example.com/Healthy", "status": "False", "message": "stopping soon"}
        dumped = written(tmp_path, *self.items(healthy))
        assert removals(plan_of(capsys, *dumped)) != []
        config = configured(
            tmp_path,
            "leavingConditions: [{type: example.com/Healthy, status: 'False', message: stopping}]",
        )
        plan = plan_of(capsys, *dumped, *config)
        assert removals(plan) == []
        assert "being-deleted" in codes(plan, "n2")

    @pytest.mark.parametrize("deleted", [True, False])
    def test_node_is_leaving_when_its_node_claim_is_deleted(
        self, deleted: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        stamp = {"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleted else {}
        claim = {
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodeClaim",
            "metadata": {"name": "c2", **stamp},
            "status": {"nodeName": "n2"},
        }
        plan = plan_of(capsys, *written(tmp_path, *self.items(), claim))
        assert (removals(plan) == []) is deleted
        assert ("being-deleted" in codes(plan, "n2")) if deleted else "n1" in removals(plan)


class TestKept:
    """A pod on n1, or its Namespace, has the annotation that excludes it."""

    def items(self, *, pod_value: str, space_value: str, kind: str = "ReplicaSet") -> list[Json]:
        kept = owned(pod("a", "n1"), kind)
        kept["metadata"]["annotations"] = {"kube-ebb.io/keep": pod_value}
        metadata = {"name": "shop", "annotations": {"kube-ebb.io/keep": space_value}}
        elsewhere = owned(pod("b", "n2", "1"))
        elsewhere["metadata"]["namespace"] = "bank"
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
        return [node("n1"), node("n2"), kept, elsewhere, space]

    @pytest.mark.parametrize("kind", ["ReplicaSet", "Job", "StatefulSet"])
    @pytest.mark.parametrize(("pod_value", "space_value"), [("true", ""), ("", "true")])
    def test_node_stays_and_pod_is_not_evicted_when_it_is_kept(
        self,
        pod_value: str,
        space_value: str,
        kind: str,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        items = self.items(pod_value=pod_value, space_value=space_value, kind=kind)
        dumped = written(tmp_path, *items)
        plan = plan_of(capsys, *dumped)
        assert removals(plan) == ["n2"]
        assert "pod-kept" in codes(plan, "n1")
        remarks = explained(capsys, "pod", "shop/a", *dumped)["remarks"]
        assert "pod-kept" in {one["code"] for one in remarks}

    @pytest.mark.parametrize(
        ("values", "kind"), [(("false", ""), "ReplicaSet"), (("true", "true"), "DaemonSet")]
    )
    def test_node_goes_when_its_pod_is_not_kept(
        self,
        values: tuple[str, str],
        kind: str,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        items = self.items(pod_value=values[0], space_value=values[1], kind=kind)
        assert removals(plan_of(capsys, *written(tmp_path, *items))) == ["n1"]


class TestEphemeralVolumes:
    """Each of three pods has an ephemeral volume in the zone of its node."""

    def items(self, source: Json) -> list[Json]:
        found: list[Json] = []
        for number, zone in enumerate("abc"):
            name = f"w{number}"
            one = owned(pod(name, f"n{zone}", volumes=[{"name": "scratch", **source}]))
            one["metadata"]["uid"] = f"u-{name}"
            terms = [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}]
            owner = [{"kind": "Pod", "name": name, "uid": f"u-{name}", "controller": True}]
            found += [
                labeled(f"n{zone}", {ZONE: zone}),
                one,
                {
                    "kind": "CSINode",
                    "metadata": {"name": f"n{zone}"},
                    "spec": {"drivers": [{"name": "ebs", "allocatable": {"count": 25}}]},
                },
                {
                    "kind": "PersistentVolumeClaim",
                    "metadata": {
                        "name": f"{name}-scratch",
                        "namespace": "shop",
                        "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
                        "ownerReferences": owner,
                    },
                    "spec": {
                        "accessModes": ["ReadWriteOnce"],
                        "volumeName": f"v{number}",
                        "storageClassName": "fast",
                    },
                    "status": {"phase": "Bound"},
                },
                {
                    "kind": "PersistentVolume",
                    "metadata": {"name": f"v{number}"},
                    "spec": {
                        "csi": {"driver": "ebs", "volumeHandle": f"h{number}"},
                        "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
                    },
                },
            ]
        return found

    @pytest.mark.parametrize(
        ("source", "zones", "feasible"),
        [
            ({"ephemeral": {"volumeClaimTemplate": {}}}, None, ["nb", "nc"]),
            ({"ephemeral": {"volumeClaimTemplate": {}}}, ["a", "c"], ["nc"]),
            ({"persistentVolumeClaim": {"claimName": "w0-scratch"}}, None, []),
        ],
    )
    def test_replacement_gets_volume_where_its_class_provides_one(
        self,
        source: Json,
        zones: list[str] | None,
        feasible: list[str],
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        items = self.items(source)
        if zones is not None:
            allowed = [{"matchLabelExpressions": [{"key": ZONE, "values": zones}]}]
            items.append(
                {
                    "apiVersion": "storage.k8s.io/v1",
                    "kind": "StorageClass",
                    "metadata": {"name": "fast"},
                    "provisioner": "ebs",
                    "allowedTopologies": allowed,
                }
            )
        found = explained(capsys, "pod", "shop/w0", *written(tmp_path, *items))
        assert found["couldRunOn"] == feasible


class TestDevicesByPluginAndByDra:
    """n1 offers a GPU by a plugin, which is taken; n3 may offer one by DRA; a pod waits."""

    @pytest.mark.parametrize(("resource", "stays"), [("x.com/gpu", True), ("y.com/gpu", False)])
    def test_node_stays_when_a_device_class_maps_the_device(
        self, resource: str, stays: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with_gpu = node("n1")
        with_gpu["status"]["allocatable"]["x.com/gpu"] = "1"
        training, waiting = owned(pod("g0", "n1", "800m")), owned(pod("wait", None, "3"))
        for one in (training, waiting):
            one["spec"]["containers"][0]["resources"]["requests"]["x.com/gpu"] = "1"
        waiting["status"]["conditions"] = [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        ]
        others = [owned(pod(f"w{number}", f"n{1 + number % 2}", "800m")) for number in range(5)]
        device_class = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": "gpu"},
            "spec": {"extendedResourceName": resource},
        }
        plan = plan_of(
            capsys,
            *written(
                tmp_path,
                with_gpu,
                node("n2"),
                node("n3"),
                training,
                waiting,
                *others,
                device_class,
            ),
        )
        assert ("n3" not in removals(plan)) is stays


def autoscaler_status(*groups: tuple[str, int]) -> Json:
    """Return the status of Cluster Autoscaler; *groups*: id and minimum size of each."""
    entries = "".join(
        f"- name: {name}\n  health:\n    minSize: {least}\n" for name, least in groups
    )
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "cluster-autoscaler-status", "namespace": "kube-system"},
        "data": {"status": f"autoscalerStatus: Running\nnodeGroups:\n{entries}"},
    }


class TestNodeGroups:
    """Three nodes of a group, of which Cluster Autoscaler publishes the minimum."""

    def items(self, annotations: dict[str, str], group: str, least: int) -> list[Json]:
        names = ("n1", "n2", "n3")
        nodes = [labeled(name, {"pool": "a"}) for name in names]
        for one in nodes:
            one["metadata"]["annotations"] = annotations
        pods = [owned(pod(f"p{name}", name)) for name in names]
        return [*nodes, *pods, autoscaler_status((group, least))]

    @pytest.mark.parametrize(
        ("annotations", "group", "least", "goes"),
        [
            ({"cluster.x-k8s.io/owner-name": "md-0-x"}, "MachineDeployment/capi/md-0", 3, False),
            ({"cluster.x-k8s.io/owner-name": "md-0-x"}, "MachineDeployment/capi/md-0", 2, True),
            ({"cluster.x-k8s.io/owner-name": "md-0-x"}, "MachineDeployment/capi/other", 3, True),
            ({"machine.openshift.io/machine": "o/w-a-x"}, "MachineSet/o/w-a", 3, False),
            ({"oci.oraclecloud.com/node-pool-id": "ocid1.p"}, "ocid1.p", 3, False),
            ({}, "MachineDeployment/capi/md-0", 3, True),
        ],
    )
    def test_group_keeps_its_minimum(
        self,
        annotations: dict[str, str],
        group: str,
        least: int,
        goes: bool,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        plan = plan_of(capsys, *written(tmp_path, *self.items(annotations, group, least)))
        assert bool(removals(plan)) is goes
        if not goes:
            assert codes(plan, "n1") == {"not-scalable"}

    def test_unknown_group_is_a_warning_and_no_savings(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        config = configured(tmp_path, "prices: [{nodeSelector: {pool: a}, price: '1'}]")
        known = {"cluster.x-k8s.io/owner-name": "md-0-x"}
        for annotations, warned in (({}, True), (known, False)):
            dumped = written(tmp_path, *self.items(annotations, "x/md-0", 0))
            plan = plan_of(capsys, *dumped, *config)
            assert removals(plan)
            assert ("unknown-groups" in {one["code"] for one in plan["warnings"]}) is warned
            assert (float(plan["headline"]["savings"]["perMonth"]) == 0) is warned


@pytest.mark.parametrize(
    ("provider", "goes"), [("eks-hybrid:///eu-west-1/c/mi-1", False), ("aws:///a/i-1", True)]
)
def test_machine_of_no_autoscaler_stays_beside_others(
    provider: str, goes: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pool = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "general"},
        "spec": {"disruption": {"consolidateAfter": "30s"}},
    }
    items = [
        node("mine", spec={"providerID": provider}),
        *(labeled(name, {"karpenter.sh/nodepool": "general"}) for name in ("a", "b")),
        *(owned(pod(f"p{number}", "ab"[number % 2])) for number in range(6)),
        owned(pod("on-mine", "mine", "100m")),
        pool,
    ]
    plan = plan_of(capsys, *written(tmp_path, *items))
    assert ("mine" in removals(plan)) is goes
    if not goes:
        assert "not-scalable" in codes(plan, "mine")
