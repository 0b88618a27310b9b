"""Decode claims, volumes and CSINodes from JSON, alone and in a dump with all kinds."""

from typing import Any

import orjson
import pytest

from core.cluster.devices import DeviceClass
from core.cluster.volumes import Claim, CsiNode, StorageClass, Volume
from core.engine import reconcile
from core.engine.planner import PlanOptions
from core.model.cluster import DisruptionBudget
from core.model.constraints import (
    NO_DISRUPTION_FACTS,
    ClaimUse,
    Disk,
    DisruptionFacts,
    InlineDisk,
    PodSelector,
    Requirement,
    SelectorTerm,
    VolumeTopology,
)
from core.model.errors import InvalidInputError
from core.model.pod import CLAIMS_FIELD, VOLUMES_FIELD
from kube.decode import kinds
from kube.decode.field_decoding import NAME_MAX
from kube.decode.storage import SUPPORTED
from kube.dump import objects
from tests.support.builders import thesis_config
from tests.support.kube_json import (
    MISSING,
    NODE,
    POD,
    Json,
    changed,
    cluster_from_dumps,
    dump,
    fault_of,
    pod,
)

UUID = "12345678-9abc-def0-1234-56789abcdef0"
LEADER = {
    "leaderworkerset.sigs.k8s.io/name": "serve",
    "leaderworkerset.sigs.k8s.io/group-index": "2",
}
CLAIM: Json = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {
        "name": "data-web-0",
        "namespace": "shop",
        "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
    },
    "spec": {"accessModes": ["ReadWriteOnce"], "volumeName": "pv-1", "storageClassName": "fast"},
    "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}},
}
VOLUME: Json = {
    "apiVersion": "v1",
    "kind": "PersistentVolume",
    "metadata": {"name": "pv-1", "labels": {"topology.kubernetes.io/zone": "a"}},
    "spec": {
        "capacity": {"storage": "1Gi"},
        "csi": {"driver": "ebs.csi.aws.com", "volumeHandle": "vol-1", "fsType": "ext4"},
        "nodeAffinity": {
            "required": {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
                ]
            }
        },
    },
    "status": {"phase": "Bound"},
}
CSI_NODE: Json = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "CSINode",
    "metadata": {"name": "n1"},
    "spec": {
        "drivers": [
            {"name": "ebs.csi.aws.com", "nodeID": "i-1", "allocatable": {"count": 25}},
            {"name": "efs.csi.aws.com", "nodeID": "i-1", "topologyKeys": None},
            {"name": "full.example", "allocatable": {"count": 0}},
        ]
    },
}
EBS = Disk("ebs.csi.aws.com", "vol-1")
GCE = "pd.csi.storage.gke.io"
ZONE = "topology.kubernetes.io/zone"
BETA_ZONE = "failure-domain.beta.kubernetes.io/zone"
TERMS = "spec__nodeAffinity__required__nodeSelectorTerms"


def claim(**changes: Any) -> Claim:
    return kinds.CLAIMS.decode(changed(CLAIM, **changes), "f")


def volume(**changes: Any) -> Volume:
    return kinds.VOLUMES.decode(changed(VOLUME, **changes), "f")


class TestClaim:
    def test_claim_is_decoded(self) -> None:
        assert claim() == Claim(
            namespace="shop",
            name="data-web-0",
            volume="pv-1",
            modes=("ReadWriteOnce",),
            storage_class="fast",
        )

    @pytest.mark.parametrize(
        "changes",
        [
            {"metadata__annotations": None},
            {"status__phase": "Pending"},
            {"status__phase": "Lost"},
            {"status": None},
            {"spec__volumeName": ""},
            {"spec": None},
        ],
    )
    def test_claim_has_no_volume_unless_binding_is_complete(self, changes: Json) -> None:
        assert claim(**changes).volume == ""

    def test_claim_is_deleting_when_it_has_deletion_timestamp(self) -> None:
        assert claim(metadata__deletionTimestamp="2026-01-01T00:00:00Z").deleting

    def test_claim_owner_is_controller(self) -> None:
        owners = [{"kind": "A", "uid": "u0"}, {"kind": "Pod", "uid": "u2", "controller": True}]
        assert claim(metadata__ownerReferences=owners).owner_uid == "u2"


class TestVolume:
    def test_volume_is_decoded(self) -> None:
        zones = (("topology.kubernetes.io/zone", ("a",)),)
        term = SelectorTerm((Requirement("zone", "In", ("a",)),))
        assert volume() == Volume(name="pv-1", disk=EBS, reach=VolumeTopology((term,), zones))

    @pytest.mark.parametrize(
        ("labels", "zones"),
        [
            (None, ()),
            ({"zone": "a"}, ()),
            ({"topology.kubernetes.io/zone": "b__a"}, ("a", "b")),
            ({"topology.kubernetes.io/zone": "a__"}, ()),  # as the scheduler: passed over
            ({"failure-domain.beta.kubernetes.io/region": "r"}, ("r",)),
        ],
    )
    def test_zone_labels_are_split(self, labels: Json | None, zones: tuple[str, ...]) -> None:
        found = volume(metadata__labels=labels).reach.zones
        assert found == (((next(iter(labels or {})), zones),) if zones else ())

    @pytest.mark.parametrize(
        ("changes", "fault"),
        [
            ({"spec__csi": None, "spec__nfs": {"server": "s"}}, ""),
            ({"spec__csi": None, "spec__local": {"path": "/mnt"}}, ""),
            ({"spec__csi": None, "spec__iscsi": {}}, ""),
            ({"spec__csi": None, "spec__fc": {}}, ""),
            ({"spec__csi": None, "spec__hostPath": {"path": "/mnt"}}, ""),
            (
                {"spec__csi": None, "spec__hostPath": {}, "spec__nodeAffinity": None},
                "is a hostPath without node affinity, so its node is unknown",
            ),
            ({"spec__csi": None, "spec__rbd": {"image": "i"}}, ""),
            ({"spec__csi": None, "spec__cephfs": {}}, ""),
            ({"spec__csi": None, "spec__azureFile": {"shareName": "s"}}, ""),
            (
                {"spec__csi": None, "spec__flexVolume": {"driver": "d"}},
                f"has an unsupported type; supported: {SUPPORTED}",
            ),
            (
                {"spec__csi": None, "spec__awsElasticBlockStore": {"volumeID": "aws://a/disk"}},
                "has a missing or invalid ID for ebs.csi.aws.com",
            ),
            (
                {"spec__csi": None, "spec__azureDisk": {"diskURI": "d", "kind": "Dedicated"}},
                "has a missing or invalid ID for disk.csi.azure.com",
            ),
            ({"spec__csi__volumeHandle": MISSING}, "has no CSI driver or no volume handle"),
            (
                {
                    TERMS: [
                        {
                            "matchFields": [
                                {"key": "metadata.name", "operator": "In", "values": ["n1"]}
                            ]
                        }
                    ]
                },
                "uses matchFields in its node affinity",
            ),
        ],
    )
    def test_unsupported_volume_has_fault(self, changes: Json, fault: str) -> None:
        assert volume(**changes).fault == fault

    @pytest.mark.parametrize(
        ("source", "zone", "disk"),
        [
            ({"awsElasticBlockStore": {"volumeID": "vol-1"}}, "a", EBS),
            ({"awsElasticBlockStore": {"volumeID": "aws://a/vol-1"}}, "a", EBS),
            ({"awsElasticBlockStore": {"volumeID": "aws:///vol-1"}}, "a", EBS),
            (
                {"gcePersistentDisk": {"pdName": "d"}},
                "us-east1-b",
                Disk(GCE, "projects/UNSPECIFIED/zones/us-east1-b/disks/d"),
            ),
            (
                {"gcePersistentDisk": {"pdName": "d"}},
                "us-east1-b__us-east1-c",
                Disk(GCE, "projects/UNSPECIFIED/regions/us-east1/disks/d"),
            ),
            ({"azureDisk": {"diskURI": "/x/d"}}, "a", Disk("disk.csi.azure.com", "/x/d")),
            ({"cinder": {"volumeID": "d"}}, "a", Disk("cinder.csi.openstack.org", "d")),
            ({"portworxVolume": {"volumeID": "d"}}, "a", Disk("pxd.portworx.com", "d")),
            (
                {"vsphereVolume": {"volumePath": "[s] d.vmdk"}},
                "a",
                Disk("csi.vsphere.vmware.com", "[s] d.vmdk"),
            ),
        ],
    )
    def test_in_tree_volume_is_disk_of_its_csi_driver(
        self, source: Json, zone: str, disk: Disk
    ) -> None:
        """The cases are those of csi-translation-lib."""
        spec = {f"spec__{name}": value for name, value in source.items()}
        labels = {"topology.kubernetes.io/zone": zone}
        found = volume(metadata__labels=labels, spec__csi=None, **spec)
        assert (found.disk, found.fault) == (disk, "")

    @pytest.mark.parametrize(
        ("key", "label", "asked"),
        [
            (ZONE, ZONE, (ZONE, "a")),
            (BETA_ZONE, BETA_ZONE, (ZONE, "a")),
            (BETA_ZONE, ZONE, (ZONE, "a")),
            (None, ZONE, (ZONE, "b")),
            (None, BETA_ZONE, (ZONE, "b")),
            ("zone", ZONE, ("zone", "a")),
        ],
    )
    def test_in_tree_volume_requires_its_zone(
        self, key: str | None, label: str, asked: tuple[str, str]
    ) -> None:
        term = {"matchExpressions": [{"key": key, "operator": "In", "values": ["a"]}]}
        found = volume(
            metadata__labels={label: "b"},
            spec__csi=None,
            spec__awsElasticBlockStore={"volumeID": "vol-1"},
            spec__nodeAffinity={"required": {"nodeSelectorTerms": [term]}} if key else None,
        )
        (read,) = found.reach.affinity or ()
        assert Requirement(asked[0], "In", (asked[1],)) in read.labels
        assert len(read.labels) == (2 if key == "zone" else 1)

    def test_csi_volume_keeps_its_own_affinity(self) -> None:
        term = {"matchExpressions": [{"key": BETA_ZONE, "operator": "In", "values": ["a"]}]}
        found = volume(**{TERMS: [term]})
        assert found.reach.affinity == (SelectorTerm((Requirement(BETA_ZONE, "In", ("a",)),)),)

    def test_equal_topologies_are_one_object(self) -> None:
        assert volume().reach is volume(metadata__name="pv-2").reach


def test_csi_node_limits_are_decoded() -> None:
    limits = {"ebs.csi.aws.com": 25, "efs.csi.aws.com": None, "full.example": 0}
    assert kinds.CSI_NODES.decode(changed(CSI_NODE)) == CsiNode(name="n1", limits=limits)
    assert kinds.CSI_NODES.decode(changed(CSI_NODE, spec=None)) == CsiNode(name="n1")


class TestPod:
    @pytest.mark.parametrize(
        ("volumes", "disruption_facts", "unsupported"),
        [
            (None, NO_DISRUPTION_FACTS, ()),
            (
                [{"name": "a", "configMap": {}}, {"name": "b", "projected": {}}],
                NO_DISRUPTION_FACTS,
                (),
            ),
            ([{"name": "a", "emptyDir": {"medium": "Memory"}}], NO_DISRUPTION_FACTS, ()),
            ([{"name": "a", "emptyDir": None}], NO_DISRUPTION_FACTS, ()),
            (
                [{"name": "b", "emptyDir": {}}, {"name": "a", "hostPath": {"path": "/"}}],
                DisruptionFacts(local_volumes=("a", "b")),
                (),
            ),
            (
                [
                    {"name": "a", "persistentVolumeClaim": {"claimName": "c"}},
                    {"name": "b", "ephemeral": {"volumeClaimTemplate": {}}},
                    {"name": "d", "persistentVolumeClaim": {"claimName": "c", "readOnly": True}},
                ],
                DisruptionFacts(claims=(ClaimUse("c"), ClaimUse("web-0-b", ephemeral=True))),
                (CLAIMS_FIELD,),
            ),
        ],
    )
    def test_pod_volumes_are_decoded(
        self, volumes: Any, disruption_facts: DisruptionFacts, unsupported: tuple[str, ...]
    ) -> None:
        found = pod(spec__volumes=volumes)
        assert (found.disruption_facts, found.unsupported) == (disruption_facts, unsupported)

    @pytest.mark.parametrize(
        ("source", "disk"),
        [
            ({"awsElasticBlockStore": {"volumeID": "vol-1"}}, InlineDisk(*EBS)),
            (
                {"awsElasticBlockStore": {"volumeID": "aws://a/b"}},
                InlineDisk(
                    EBS.driver, "", fault="has a missing or invalid ID for ebs.csi.aws.com"
                ),
            ),
            (
                {"azureDisk": {"diskURI": "d", "kind": "Managed", "readOnly": True}},
                InlineDisk("disk.csi.azure.com", "d", read_only=True),
            ),
            ({"cinder": {"volumeID": "d"}}, InlineDisk("cinder.csi.openstack.org", "d")),
            (
                {"gcePersistentDisk": {"pdName": "d"}},
                InlineDisk(GCE, "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d"),
            ),
            ({"iscsi": {"iqn": "q"}}, InlineDisk("iscsi", "q", counted=False)),
            ({"portworxVolume": {"volumeID": "d"}}, InlineDisk("pxd.portworx.com", "d")),
            ({"rbd": {"image": "i"}}, InlineDisk("rbd", "rbd/i", counted=False)),
            ({"vsphereVolume": {"volumePath": "p"}}, InlineDisk("csi.vsphere.vmware.com", "p")),
            ({"azureFile": {}}, None),
            ({"cephfs": {}}, None),
            ({"csi": {}}, None),
            ({"nfs": {}}, None),
        ],
    )
    def test_inline_disks_are_read_when_scheduler_checks_them(
        self, source: Json, disk: InlineDisk | None
    ) -> None:
        """In VolumeRestrictions, or in NodeVolumeLimits for types migrated to CSI drivers."""
        found = pod(spec__volumes=[{"name": "a", **source}])
        disruption_facts = DisruptionFacts(disks=(disk,)) if disk else NO_DISRUPTION_FACTS
        assert (found.disruption_facts, found.unsupported) == (
            disruption_facts,
            (VOLUMES_FIELD,) if disk else (),
        )

    @pytest.mark.parametrize(
        ("policy", "of_container", "completes"),
        [
            (None, None, False),
            ("Always", None, False),
            ("OnFailure", None, True),
            ("Never", None, True),
            ("Never", "Always", False),
            ("Always", "Never", True),
        ],
    )
    def test_pod_completes_when_restart_policy_is_not_always(
        self, policy: str | None, of_container: str | None, *, completes: bool
    ) -> None:
        changes = {"spec__containers__0__restartPolicy": of_container} if of_container else {}
        found = pod(spec__restartPolicy=policy, **changes)
        assert found.disruption_facts.completes is completes
        sidecar = [{"name": "s", "restartPolicy": "Always"}]
        beside = pod(spec__restartPolicy=policy, spec__initContainers=sidecar, **changes)
        assert beside.disruption_facts is found.disruption_facts

    @pytest.mark.parametrize(
        ("field", "value", "gang"),
        [
            ("schedulingGroup", {"podGroupName": "workers"}, "workers"),
            ("schedulingGroup", {}, ""),
            ("schedulingGroup", None, ""),
            ("workloadRef", {"name": "job", "podGroup": "workers"}, "job/workers"),
            (
                "workloadRef",
                {"name": "job", "podGroup": "workers", "podGroupReplicaKey": "0"},
                "job/workers/0",
            ),
            ("workloadRef", {}, ""),
        ],
    )
    def test_gang_is_read_from_scheduling_group(
        self, field: str, value: Json | None, gang: str
    ) -> None:
        assert pod(**{f"spec__{field}": value}).disruption_facts.gang == gang

    @pytest.mark.parametrize(
        ("labels", "annotations", "gang"),
        [
            ({"scheduling.x-k8s.io/pod-group": "train"}, {}, "train"),
            ({"pod-group.scheduling.sigs.k8s.io": "train"}, {}, "train"),
            ({"pod-group.scheduling.sigs.k8s.io/name": "train"}, {}, "train"),
            ({"scheduling.x-k8s.io/pod-group": ""}, {}, ""),
            ({"scheduling.x-k8s.io/pod-group": ""}, {"scheduling.k8s.io/group-name": "g"}, "g"),
            ({"grove.io/podgang": "decode-0"}, {}, "decode-0"),
            ({"pod-group": "train"}, {"group-name": "train"}, ""),
            ({}, {"gang.scheduling.koordinator.sh/name": "train"}, "train"),
            ({}, {"scheduling.k8s.io/group-name": "job-7"}, "job-7"),
            ({}, {"scheduling.volcano.sh/group-name": "job-7"}, "job-7"),
            ({}, {"scheduling.k8s.io/group-name": f"podgroup-{UUID}"}, ""),
            ({}, {"scheduling.k8s.io/group-name": "podgroup-train"}, "podgroup-train"),
            ({}, {"yunikorn.apache.org/task-group-name": "driver"}, "driver"),
            (LEADER, {"leaderworkerset.sigs.k8s.io/size": "4"}, "serve-2"),
            (LEADER, {"leaderworkerset.sigs.k8s.io/size": "1"}, ""),
            (LEADER, {}, "serve-2"),
            ({}, {"scheduling.k8s.io/group-name": "g" * 10_000}, "g" * NAME_MAX),
        ],
    )
    def test_gang_is_read_from_labels_and_annotations(
        self, labels: dict[str, str], annotations: dict[str, str], gang: str
    ) -> None:
        found = pod(metadata__labels=labels, metadata__annotations=annotations)
        assert found.disruption_facts.gang == gang

    def test_scheduling_group_decides_when_there_is_a_label_too(self) -> None:
        found = pod(
            metadata__labels={"scheduling.x-k8s.io/pod-group": "old"},
            spec__schedulingGroup={"podGroupName": "new"},
        )
        assert found.disruption_facts.gang == "new"

    def test_equal_disruption_facts_are_one_object(self) -> None:
        assert pod().disruption_facts is NO_DISRUPTION_FACTS
        data = [{"name": "a", "emptyDir": {}}]
        assert pod(spec__volumes=data).disruption_facts is pod(spec__volumes=data).disruption_facts

    def test_disruption_annotations_and_start_time_are_decoded(self) -> None:
        safe = "cluster-autoscaler.kubernetes.io/safe-to-evict"
        found = pod(
            metadata__annotations={"x": "y", "karpenter.sh/do-not-disrupt": "1h", safe: "false"},
            status__startTime="2026-01-01T00:00:00Z",
        ).disruption_facts
        assert found.notes == ((safe, "false"), ("karpenter.sh/do-not-disrupt", "1h"))
        assert found.started_seconds == 1_767_225_600

    @pytest.mark.parametrize(
        ("deleted", "grace", "overdue"),
        [
            (None, 5, None),
            ("2026-01-01T00:00:00Z", None, 1_767_225_660),
            ("2026-01-01T00:00:00Z", 5, 1_767_225_635),
            ("2026-01-01T00:00:00Z", 0, 1_767_225_630),
            ("soon", 0, None),
        ],
    )
    def test_overdue_time_is_deletion_plus_grace_period(
        self, deleted: str | None, grace: int | None, overdue: int | None
    ) -> None:
        found = pod(metadata__deletionTimestamp=deleted, spec__terminationGracePeriodSeconds=grace)
        assert found.disruption_facts.overdue_seconds == overdue
        assert found.terminating is (deleted is not None)


@pytest.mark.parametrize(
    ("selector", "read"),
    [
        ({"matchLabels": {"app": "web"}}, (("shop",), (Requirement("app", "In", ("web",)),))),
        ({}, (("shop",), ())),
        (None, ((), ())),
    ],
)
def test_disruption_budget_selector_is_decoded(
    selector: Json | None, read: tuple[Any, Any]
) -> None:
    raw = {"metadata": {"name": "b", "namespace": "shop"}, "spec": {"selector": selector}}
    found = kinds.BUDGETS.decode(changed(raw))
    assert found == DisruptionBudget(
        namespace="shop", name="b", disruptions_allowed=0, selector=PodSelector(*read)
    )


class TestDump:
    def test_pod_is_movable_when_dump_has_all_storage_kinds(self) -> None:
        """The volume of the claim is in zone a, so n2 is skipped although it has room."""
        on_claim = changed(
            POD,
            spec__volumes=[{"name": "d", "persistentVolumeClaim": {"claimName": "data-web-0"}}],
        )
        items = [
            changed(NODE, spec=None),
            changed(NODE, metadata__name="n2", metadata__labels={"zone": "b"}, spec=None),
            changed(NODE, metadata__name="n3", metadata__labels={"zone": "a"}, spec=None),
            on_claim,
            *(changed(CSI_NODE, metadata__name=name) for name in ("n1", "n2", "n3")),
        ]
        known = cluster_from_dumps([("f", dump(*items, CLAIM, VOLUME))])
        assert known.attach_limits["n1"]["ebs.csi.aws.com"] == 25
        (removal, *_) = reconcile.plan(
            known, thesis_config("1", "1"), PlanOptions(due=frozenset({"n1"}))
        ).removals
        assert [(one.pod, one.node) for one in removal.placements] == [("shop/web-0", "n3")]
        blind = cluster_from_dumps([("f", dump(*items))])
        plan = reconcile.plan(blind, thesis_config("1", "1"), PlanOptions(due=frozenset({"n1"})))
        (kept,) = (one for one in plan.kept if one.node == "n1")
        assert [one.code for one in kept.blockers] == ["pod-volumes"]

    def test_typed_list_is_decoded(self) -> None:
        lists = (
            ("PersistentVolumeClaimList", CLAIM),
            ("PersistentVolumeList", VOLUME),
            ("CSINodeList", CSI_NODE),
        )
        for kind, item in lists:
            raw = changed({"kind": kind, "items": [{**item, "kind": ""}]})
            assert len(list(objects(raw, "f", []))) == 1

    @pytest.mark.parametrize(
        ("raw", "message"),
        [
            (
                changed(CLAIM, spec__accessModes=7),
                "f.json: PersistentVolumeClaim shop/data-web-0: spec.accessModes: Expected",
            ),
            (
                changed(VOLUME, metadata__name="a b"),
                "f.json: PersistentVolume a b: metadata.name: 'a b' is not a valid name",
            ),
            (
                changed(CSI_NODE, spec__drivers__0__allocatable__count="x"),
                "f.json: CSINode n1: spec.drivers[0].allocatable.count: Expected `int | null`",
            ),
        ],
    )
    def test_fault_names_object_and_field(self, raw: bytes, message: str) -> None:
        assert message in fault_of(dump(NODE, POD, raw))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, StorageClass(name="fast")),
        ({"provisioner": "ebs.csi.aws.com", "allowedTopologies": []}, StorageClass(name="fast")),
        ({"allowedTopologies": None}, StorageClass(name="fast")),
        (
            {"provisioner": "kubernetes.io/no-provisioner"},
            StorageClass(name="fast", provides=False),
        ),
        (
            {
                "allowedTopologies": [
                    {"matchLabelExpressions": [{"key": "zone", "values": ["b", "a"]}]},
                    {"matchLabelExpressions": [{"key": "rack", "values": ["1"]}]},
                ]
            },
            StorageClass(
                name="fast",
                reach=VolumeTopology(
                    affinity=(
                        SelectorTerm((Requirement("zone", "In", ("a", "b")),)),
                        SelectorTerm((Requirement("rack", "In", ("1",)),)),
                    )
                ),
            ),
        ),
    ],
)
def test_storage_class_is_decoded(fields: Json, expected: StorageClass) -> None:
    raw = orjson.dumps({"metadata": {"name": "fast"}, **fields})
    assert kinds.STORAGE_CLASSES.decode(raw) == expected


def test_storage_class_is_rejected_when_its_topologies_are_too_large() -> None:
    terms = [{"matchLabelExpressions": [{"key": "zone", "values": ["x" * 63] * 999}]}]
    raw = orjson.dumps({"metadata": {"name": "fast"}, "allowedTopologies": terms})
    with pytest.raises(InvalidInputError, match="allowedTopologies"):
        kinds.STORAGE_CLASSES.decode(raw)


@pytest.mark.parametrize(("name", "resource"), [("x.com/gpu", "x.com/gpu"), (None, ""), ("", "")])
def test_device_class_is_decoded(name: str | None, resource: str) -> None:
    spec = {"extendedResourceName": name, "selectors": [{"cel": {"expression": "true"}}]}
    raw = orjson.dumps({"metadata": {"name": "gpu"}, "spec": spec})
    assert kinds.DEVICE_CLASSES.decode(raw) == DeviceClass(name="gpu", resource=resource)
