"""Small clusters of which the right plan is known, one for each kind of mistake that users met."""

import codecs
import gzip
from pathlib import Path
from typing import Any

import orjson
import pytest

from cli.__main__ import main
from core.config.settings import API_VERSION, KIND
from core.marks.wellknown import TAINT_KEY
from kube.cluster_kinds import CLUSTER_KINDS
from tests.support.plan_cli import Json, dump, node, plan_of, pod, without_source

HEAD = f"apiVersion: {API_VERSION}\nkind: {KIND}\n"
COSTS = "cost-writer"
REFUSED = 2
"""Exit code for input that is refused."""
ZONE = "topology.kubernetes.io/zone"


def written(path: Path, *items: Json) -> list[str]:
    """Write a dump and return the arguments that read it."""
    path.joinpath("dump.json").write_bytes(dump(*items))
    return ["--from-file", str(path / "dump.json")]


def configured(path: Path, *lines: str) -> list[str]:
    """Write a configuration and return the arguments that read it."""
    path.joinpath("config.yaml").write_text(HEAD + "".join(f"{line}\n" for line in lines))
    return ["--config", str(path / "config.yaml")]


def explained(capsys: pytest.CaptureFixture[str], *arguments: str) -> Json:
    """Run `ebb explain` and return its answer."""
    assert main(["explain", *arguments, "-o", "json"]) == 0
    found: Json = orjson.loads(capsys.readouterr().out)
    return found


def removals(plan: Json) -> list[str]:
    """Return the names of the nodes that the plan removes, in order."""
    return [removal["node"] for removal in plan["removals"]]


def codes(plan: Json, name: str) -> set[str]:
    """Return the reasons for which the plan keeps a node."""
    (kept,) = (one for one in plan["unremovable"] if one["node"] == name)
    return {reason["code"] for reason in kept["reasons"]}


def owned(one: Json, kind: str = "ReplicaSet", name: str = "web-1") -> Json:
    """Return the pod with a controller."""
    owner = {"apiVersion": "apps/v1", "kind": kind, "name": name, "controller": True}
    return {**one, "metadata": {**one["metadata"], "ownerReferences": [owner]}}


class TestDrainTaints:
    """Another tool takes n2 away; its pods fill n3, so that n1 must stay."""

    def items(self, key: str) -> list[Json]:
        taint = {"key": key, "value": "1700000000", "effect": "NoSchedule"}
        filled = [owned(pod(f"c{n}", "n3", "500m")) for n in range(2)]
        return [
            node("n1"),
            node("n2", spec={"taints": [taint]}),
            node("n3"),
            owned(pod("a", "n1", "500m")),
            *(owned(pod(f"b{n}", "n2", "500m")) for n in range(6)),
            *filled,
        ]

    @pytest.mark.parametrize(
        "key",
        [
            "ToBeDeletedByClusterAutoscaler",
            "atlassian.com/escalator",
            "autoscaling.cast.ai/draining",
            "node-compactor.osdc.io/consolidating",
            "medik8s.io/drain",
            "kubevirt.io/drain",
        ],
    )
    def test_node_is_leaving_when_tool_drains_it(
        self, key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        plan = plan_of(capsys, *written(tmp_path, *self.items(key)))
        assert removals(plan) == []
        assert "being-deleted" in codes(plan, "n2")

    def test_node_is_leaving_when_leaving_taints_name_its_taint(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        dumped = written(tmp_path, *self.items("team.example/drain"))
        assert removals(plan_of(capsys, *dumped)) == ["n1"]
        config = configured(tmp_path, "leavingTaints: [team.example/drain]")
        plan = plan_of(capsys, *dumped, *config)
        assert removals(plan) == []
        assert "being-deleted" in codes(plan, "n2")

    def test_ebbs_own_taint_announces_nothing(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        config = configured(tmp_path, f"leavingTaints: [{TAINT_KEY}]")
        plan = plan_of(capsys, *written(tmp_path, *self.items(TAINT_KEY)), *config)
        assert "being-deleted" not in codes(plan, "n2")


class TestRunsToCompletion:
    """Node a holds two pods without a controller; b holds two pods of a Deployment."""

    def items(self, policy: str | None, kind: str = "") -> list[Json]:
        spec = {"restartPolicy": policy} if policy else {}
        runners = [pod(f"runner-{n}", "a", "500m", **spec) for n in range(2)]
        return [
            node("a"),
            node("b"),
            node("c"),
            *(owned(one, kind, "runners") if kind else one for one in runners),
            *(owned(pod(f"web-{n}", "b", "600m")) for n in range(2)),
            *(owned(pod(f"db-{n}", "c", "500m")) for n in range(5)),
        ]

    @pytest.mark.parametrize("policy", ["Never", "OnFailure"])
    @pytest.mark.parametrize("kind", ["", "Workflow"])
    def test_pod_ends_when_it_is_not_restarted(
        self, policy: str, kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        plan = plan_of(capsys, *written(tmp_path, *self.items(policy, kind)))
        assert removals(plan) == ["a"]
        assert not plan["removals"][0].get("emptiesLate")

    @pytest.mark.parametrize("policy", [None, "Always"])
    def test_pod_stays_when_it_is_restarted(
        self, policy: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        plan = plan_of(capsys, *written(tmp_path, *self.items(policy)))
        assert removals(plan) == ["b"]


def test_pod_fits_no_node_when_its_node_affinity_is_invalid(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    term = {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["team a/b"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    odd = owned(pod("odd", "n1", affinity={"nodeAffinity": required}))
    dumped = written(tmp_path, node("n1"), node("n2"), node("n3"), odd)
    found = explained(capsys, "pod", "shop/odd", *dumped)
    assert found["couldRunOn"] == []
    assert [one["rule"] for one in found["rejectedBy"]] == ["node-affinity"]
    assert "n1" not in removals(plan_of(capsys, *dumped))


class TestInTreeVolume:
    """A volume of before CSI lies in zone a; n2 is in zone a, n3 in zone b."""

    def items(self, source: Json, *, driver: str, claimed: bool) -> list[Json]:
        zones = {"n1": "a", "n2": "a", "n3": "b"}
        volume: Json = {"name": "data", "persistentVolumeClaim": {"claimName": "d"}}
        db = owned(
            pod("db", "n1", volumes=[volume if claimed else {"name": "data", **source}]),
            "StatefulSet",
        )
        return [
            *(
                node(name, metadata={"name": name, "labels": {ZONE: zone}})
                for name, zone in zones.items()
            ),
            *(
                {
                    "kind": "CSINode",
                    "metadata": {"name": name},
                    "spec": {"drivers": [{"name": driver, "allocatable": {"count": 1}}]},
                }
                for name in zones
            ),
            {
                "kind": "PersistentVolumeClaim",
                "metadata": {
                    "name": "d",
                    "namespace": "shop",
                    "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
                },
                "spec": {"accessModes": ["ReadWriteOnce"], "volumeName": "v"},
                "status": {"phase": "Bound"},
            },
            {
                "kind": "PersistentVolume",
                "metadata": {"name": "v", "labels": {ZONE: "a"}},
                "spec": source,
            },
            db,
        ]

    @pytest.mark.parametrize(
        ("source", "driver"),
        [
            ({"awsElasticBlockStore": {"volumeID": "aws://a/vol-1"}}, "ebs.csi.aws.com"),
            ({"gcePersistentDisk": {"pdName": "d"}}, "pd.csi.storage.gke.io"),
            ({"azureDisk": {"diskURI": "/d"}}, "disk.csi.azure.com"),
            ({"cinder": {"volumeID": "d"}}, "cinder.csi.openstack.org"),
            ({"vsphereVolume": {"volumePath": "d"}}, "csi.vsphere.vmware.com"),
            ({"portworxVolume": {"volumeID": "d"}}, "pxd.portworx.com"),
        ],
    )
    def test_in_tree_volume_counts_for_its_csi_driver(
        self, source: Json, driver: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        items = self.items(source, driver=driver, claimed=True)
        found = explained(capsys, "pod", "shop/db", *written(tmp_path, *items))
        assert (found["movable"], found["couldRunOn"]) == (True, ["n2"])
        other = owned(pod("other", "n2", volumes=[{"name": "o", **_another(source)}]))
        found = explained(capsys, "pod", "shop/db", *written(tmp_path, *items, other))
        assert found["couldRunOn"] == []

    def test_disk_named_in_pod_has_no_zone(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        source = {"awsElasticBlockStore": {"volumeID": "vol-1"}}
        items = self.items(source, driver="ebs.csi.aws.com", claimed=False)
        found = explained(capsys, "pod", "shop/db", *written(tmp_path, *items))
        assert (found["movable"], found["couldRunOn"]) == (True, ["n2", "n3"])


def _another(source: Json) -> Json:
    """Return the same kind of volume with another disk."""
    return {name: {key: f"{value}2" for key, value in one.items()} for name, one in source.items()}


class TestDumps:
    """Dumps that are not what kubectl prints, or not as it prints it."""

    items = (node("n1"), node("n2"), owned(pod("a", "n2")))

    @pytest.mark.parametrize(
        ("mark", "encoding"),
        [
            (codecs.BOM_UTF8, "utf-8"),
            (codecs.BOM_UTF16_LE, "utf-16-le"),
            (codecs.BOM_UTF16_BE, "utf-16-be"),
            (codecs.BOM_UTF32_LE, "utf-32-le"),
            (codecs.BOM_UTF32_BE, "utf-32-be"),
            (b"", "utf-16-le"),
            (b"", "utf-16-be"),
            (b"", "utf-32-le"),
            (b"", "utf-32-be"),
        ],
    )
    @pytest.mark.parametrize("packed", [True, False])
    def test_dump_is_read_in_every_unicode_encoding(
        self,
        mark: bytes,
        encoding: str,
        packed: bool,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        whole = plan_of(capsys, *written(tmp_path, *self.items))
        raw = mark + dump(*self.items).decode().encode(encoding)
        (tmp_path / "dump.json").write_bytes(gzip.compress(raw) if packed else raw)
        again = plan_of(capsys, "--from-file", str(tmp_path / "dump.json"))
        assert again | {"time": whole["time"]} == whole

    def test_dump_is_rejected_when_its_encoding_is_invalid(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = tmp_path / "dump.json"
        path.write_bytes(codecs.BOM_UTF16_LE + "{}".encode("utf-16-le")[:-1])
        assert main(["plan", "--from-file", str(path)]) == REFUSED
        assert "is not valid UTF-16-LE" in capsys.readouterr().err

    @pytest.mark.parametrize("kind", [one.name for one in CLUSTER_KINDS])
    @pytest.mark.parametrize(
        "meta", [{"continue": "x"}, {"remainingItemCount": 12}, {"continue": "x", "other": [1]}]
    )
    @pytest.mark.parametrize("form", ["file", "line", "nested"])
    def test_dump_is_rejected_when_a_list_is_incomplete(
        self, kind: str, meta: Json, form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        page = {"kind": f"{kind}List", "metadata": meta, "items": []}
        path = tmp_path / "page.json"
        raws = {
            "file": orjson.dumps(page),
            "line": b"\n".join((dump(), orjson.dumps(page))),
            "nested": dump(page),
        }
        path.write_bytes(raws[form])
        arguments = written(tmp_path, *self.items)
        assert main(["plan", *arguments, "--from-file", str(path)]) == REFUSED
        told = capsys.readouterr().err
        assert str(path) in told
        assert "incomplete" in told

    @pytest.mark.parametrize("meta", [{}, {"continue": ""}, {"remainingItemCount": 0}, None, 7])
    def test_dump_is_read_when_its_lists_are_complete(
        self, meta: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        nodes, pods = [node("n1"), node("n2")], [owned(pod("a", "n2"))]
        lists = (
            {"kind": "NodeList", "metadata": meta, "items": nodes},
            {"kind": "PodList", "metadata": meta, "items": pods},
        )
        whole = without_source(plan_of(capsys, *written(tmp_path, *nodes, *pods)))
        for raw in (dump(*lists), b"\n".join(map(orjson.dumps, lists)) + b"\n\n"):
            (tmp_path / "dump.json").write_bytes(raw)
            found = plan_of(capsys, "--from-file", str(tmp_path / "dump.json"))
            assert without_source(found) == whole

    def test_warning_is_printed_when_running_pods_have_no_node(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        odd = [pod(f"p{number}", None) for number in range(3)]
        for one in odd[:2]:
            one["status"]["phase"] = "Running"
        plan = plan_of(capsys, *written(tmp_path, *self.items, *odd))
        (found,) = (one for one in plan["warnings"] if one["code"] == "running-nowhere")
        assert "2 pods run (phase Running) but are on no node" in found["message"]
        assert "kubectl did not make the dump" in found["message"]


class TestDeferredResize:
    """The pod on n1 is to grow to 3 cores; n1 has 2 for it until others have left."""

    def items(self, reason: str) -> list[Json]:
        grows = owned(pod("grows", "n1", "3"))
        status = {
            **grows["status"],
            "conditions": [{"type": "PodResizePending", "status": "True", "reason": reason}],
            "containerStatuses": [
                {
                    "name": "main",
                    "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}},
                    "allocatedResources": {"cpu": "500m", "memory": "1Gi"},
                }
            ],
        }
        return [
            node("n1"),
            node("n2"),
            {**grows, "status": status},
            owned(pod("beside", "n1", "1500m")),
            owned(pod("moves", "n2", "500m")),
        ]

    def test_its_node_keeps_the_room_that_it_waits_for(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        config = configured(
            tmp_path, "headroom: 0", "usableCapacity: all", "thresholds: {cpu: 100%}"
        )
        dumped = written(tmp_path, *self.items("Deferred"))
        plan = plan_of(capsys, *dumped, *config)
        assert removals(plan) == []
        (found,) = (one for one in plan["warnings"] if one["code"] == "resize-deferred")
        assert found["message"].endswith("n1 (1)")
        remarks = explained(capsys, "pod", "shop/grows", *dumped)["remarks"]
        assert "pod-resize-deferred" in {one["code"] for one in remarks}

    def test_infeasible_resize_uses_no_capacity(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        config = configured(
            tmp_path, "headroom: 0", "usableCapacity: all", "thresholds: {cpu: 100%}"
        )
        plan = plan_of(capsys, *written(tmp_path, *self.items("Infeasible")), *config)
        assert removals(plan) == ["n2"]
        assert "resize-deferred" not in {one["code"] for one in plan["warnings"]}


class TestKueue:
    """Kueue has put a pod on n1 (topology-aware scheduling)."""

    @pytest.mark.parametrize(
        ("field", "key"),
        [
            ("labels", "kueue.x-k8s.io/tas"),
            ("annotations", "kueue.x-k8s.io/podset-required-topology"),
            ("annotations", "kueue.x-k8s.io/podset-preferred-topology"),
            ("annotations", "kueue.x-k8s.io/podset-unconstrained-topology"),
            ("annotations", "kueue.x-k8s.io/podset-slice-required-topology"),
        ],
    )
    def test_its_node_stays(
        self, field: str, key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        worker = owned(pod("worker", "n1"), "Job")
        worker["metadata"][field] = {key: "true"}
        dumped = written(tmp_path, node("n1"), node("n2"), worker, owned(pod("a", "n2")))
        plan = plan_of(capsys, *dumped)
        assert removals(plan) == ["n2"]
        assert "pod-kueue-topology" in codes(plan, "n1")
        found = explained(capsys, "pod", "shop/worker", *dumped)
        assert not found["movable"]
        assert [one["code"] for one in found["reasons"]] == ["pod-kueue-topology"]


@pytest.mark.parametrize(
    ("field", "code"), [("labels", "opted-out-label"), ("annotations", "opted-out")]
)
def test_node_stays_when_cast_ai_must_not_remove_it(
    field: str, code: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = node("n1")
    kept["metadata"][field] = {"autoscaling.cast.ai/removal-disabled": "true"}
    plan = plan_of(capsys, *written(tmp_path, kept, node("n2"), owned(pod("a", "n2"))))
    assert removals(plan) == ["n2"]
    assert code in codes(plan, "n1")


@pytest.mark.parametrize("field", ["labels", "annotations"])
def test_node_empties_late_when_its_pod_protects_it_from_cast_ai(
    field: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sticky = owned(pod("a", "n1"))
    sticky["metadata"][field] = {"autoscaling.cast.ai/removal-disabled": "true"}
    found = explained(capsys, "pod", "shop/a", *written(tmp_path, node("n1"), node("n2"), sticky))
    assert [one["code"] for one in found["remarks"]] == ["pod-removal-disabled"]


def test_suspended_machine_has_no_capacity(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asleep = node("n1")
    asleep["status"]["conditions"].append({"type": "Suspended", "status": "True"})
    plan = plan_of(capsys, *written(tmp_path, asleep, node("n2"), owned(pod("a", "n2"))))
    assert removals(plan) == []
    assert "not-ready" in codes(plan, "n1")


class TestAnotherCostWriter:
    """Another controller writes a pod deletion cost on each pod, by its node."""

    def items(self, *costs: str) -> list[Json]:
        pods = [owned(pod(f"p{number}", f"n{number}")) for number in range(len(costs))]
        for one, cost in zip(pods, costs, strict=True):
            key = "controller.kubernetes.io/pod-deletion-cost"
            one["metadata"]["annotations"] = {key: cost}
        return [*(node(f"n{number}") for number in range(len(costs))), *pods]

    def test_warning_and_explanation_name_the_cause(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        dumped = written(tmp_path, *self.items("0", "1", "2"))
        (found,) = (one for one in plan_of(capsys, *dumped)["warnings"] if one["code"] == COSTS)
        assert found["message"].startswith("3 pods have a pod deletion cost that another")
        remarks = explained(capsys, "pod", "shop/p1", *dumped)["remarks"]
        assert [one["code"] for one in remarks] == ["pod-foreign-cost"]
        disabled = configured(tmp_path, "podDeletionCost: disabled")
        told = plan_of(capsys, *dumped, *disabled)["warnings"]
        assert COSTS not in {one["code"] for one in told}

    def test_costs_of_a_pod_template_are_no_writer(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        plan = plan_of(capsys, *written(tmp_path, *self.items("5", "5", "5")))
        assert COSTS not in {one["code"] for one in plan["warnings"]}


class TestDefaultTopologySpread:
    """Two pods run in zone a and one in zone b; the cluster spreads all pods over zones."""

    lines = (
        "defaultTopologySpread:",
        "- {maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: %s}",
    )

    def items(self, kind: str, **spec: Any) -> list[Json]:
        zones = {"n1": "a", "n2": "b", "n3": "b"}
        pods = [
            owned(pod(f"w{number}", name, **spec), kind)
            for number, name in enumerate(("n1", "n1", "n2"))
        ]
        for one in pods:
            one["metadata"]["labels"] = {"app": "web", "pod-template-hash": "1"}
        return [
            *(node(n, metadata={"name": n, "labels": {ZONE: zone}}) for n, zone in zones.items()),
            *pods,
        ]

    @pytest.mark.parametrize(
        ("kind", "when", "spec", "feasible"),
        [
            ("ReplicaSet", "DoNotSchedule", {}, ["n3"]),
            ("StatefulSet", "DoNotSchedule", {}, ["n3"]),
            ("Job", "DoNotSchedule", {}, ["n1", "n3"]),
            ("ReplicaSet", "ScheduleAnyway", {}, ["n1", "n3"]),
            (
                "ReplicaSet",
                "DoNotSchedule",
                {
                    "topologySpreadConstraints": [
                        {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "ScheduleAnyway"}
                    ]
                },
                ["n1", "n3"],
            ),
        ],
    )
    def test_default_spread_applies_to_pods_without_constraints(
        self,
        kind: str,
        when: str,
        spec: Json,
        feasible: list[str],
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        dumped = written(tmp_path, *self.items(kind, **spec))
        config = configured(tmp_path, self.lines[0], self.lines[1] % when)
        assert explained(capsys, "pod", "shop/w2", *dumped)["couldRunOn"] == ["n1", "n3"]
        found = explained(capsys, "pod", "shop/w2", *dumped, *config)
        assert found["couldRunOn"] == feasible
