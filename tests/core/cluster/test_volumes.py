"""Look up the volumes of claims, and check them against nodes as kube-scheduler does."""

from collections.abc import Collection
from dataclasses import replace
from typing import TypedDict

import pytest

from core.cluster.volumes import Claim, CsiNode, StorageClass, Volume
from core.config.settings import Config
from core.eligibility.unplaceable import pod_blockers
from core.engine import reconcile
from core.engine.plan import Plan
from core.model.cluster import Cluster
from core.model.constraints import (
    ANY_DRIVER,
    NO_POD_CONSTRAINTS,
    ClaimUse,
    Disk,
    DisruptionFacts,
    InlineDisk,
    NodeConstraints,
    Requirement,
    SelectorTerm,
    VolumeTopology,
)
from core.model.node import Node
from core.model.pod import CLAIMS_FIELD, VOLUMES_FIELD, Pod
from core.placement.filters import first_failing_filter
from core.placement.node_classes import NodeClasses
from tests.support.builders import node, pod, thesis_config
from tests.support.cluster_pods import build_cluster

ZONE, OLD_ZONE = "topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"
DISK = Disk("ebs", "vol-1")
IN_A = VolumeTopology(affinity=(SelectorTerm((Requirement("zone", "In", ("a",)),)),))
IN_B = VolumeTopology(affinity=(SelectorTerm((Requirement("zone", "In", ("b",)),)),))
B_WITH_X = SelectorTerm((Requirement("zone", "In", ("b", "c")), Requirement("x", "Exists")))
LIMITS = {name: CsiNode(name=name, limits={"ebs": 2}) for name in ("n1", "n2", "n3")}

NOT_IN_A = Requirement("zone", "NotIn", ("a",))


def using(name: str, on: str | None, *claims: str, **changes: object) -> Pod:
    made = pod(name, on, 100, 100, unsupported=(CLAIMS_FIELD,))
    uses = tuple(ClaimUse(claim) for claim in claims)
    return replace(made, disruption_facts=DisruptionFacts(claims=uses), **changes)  # type: ignore[arg-type]


def naming(name: str, *disks: InlineDisk) -> Pod:
    """Return a pod that names disks itself, on n1."""
    made = pod(name, "n1", 100, 100, unsupported=(VOLUMES_FIELD,))
    return replace(made, disruption_facts=DisruptionFacts(disks=disks))


def claim(name: str = "c", volume: str = "pv", *modes: str, **changes: object) -> Claim:
    modes = modes or ("ReadWriteOnce",)
    return Claim(namespace="d", name=name, volume=volume, modes=modes, **changes)  # type: ignore[arg-type]


class Storage(TypedDict, total=False):
    """Claims, volumes and CSINodes, as `build_cluster` takes them."""

    claims: list[Claim]
    volumes: list[Volume]
    csi_nodes: Collection[CsiNode]


def stored(*found: Claim | Volume, csi_nodes: dict[str, CsiNode] | None = None) -> Storage:
    return {
        "claims": [one for one in found if isinstance(one, Claim)],
        "volumes": [one for one in found if isinstance(one, Volume)],
        "csi_nodes": (LIMITS if csi_nodes is None else csi_nodes).values(),
    }


def resolved(claiming: Pod, storage: Storage, *others: Pod) -> Pod:
    cluster = build_cluster([node("n1"), node("n2")], [claiming, *others], **storage)
    return next(one for one in cluster.pods if one.key == claiming.key)


class TestClaimLookUp:
    def test_pod_is_movable_when_its_claim_is_known(self) -> None:
        found = resolved(
            using("p", "n1", "c"), stored(claim(), Volume(name="pv", disk=DISK, reach=IN_A))
        )
        assert (found.unsupported, pod_blockers(found)) == ((), [])
        assert found.node_constraints == NodeConstraints(volumes=(IN_A,))
        assert (found.pod_constraints.disks, found.pod_constraints.sole) == ((DISK,), ())

    @pytest.mark.parametrize(
        ("storage", "message"),
        [
            (Storage(), "claim d/c: it does not exist or was not read"),
            (stored(claim(volume="")), "claim d/c: it is not bound to a volume"),
            (stored(claim(deleting=True)), "claim d/c: it is being deleted"),
            (stored(claim()), "claim d/c: its volume pv does not exist or was not read"),
            (
                stored(claim(), Volume(name="pv", fault="is of cheese")),
                "claim d/c: its volume pv is of cheese",
            ),
            (
                stored(claim(), Volume(name="pv", disk=DISK), csi_nodes={}),
                "claim d/c: no CSINode was read, so the attach limit of ebs is unknown",
            ),
        ],
    )
    def test_pod_is_blocked_with_message_when_its_claim_is_unresolved(
        self, storage: Storage, message: str
    ) -> None:
        found = resolved(using("p", "n1", "c"), storage)
        assert [(one.code, one.message, one.pod) for one in pod_blockers(found)] == [
            ("pod-volumes", message, "d/p")
        ]
        assert found.pod_constraints.disks == (Disk(ANY_DRIVER, "d/c"),)

    def test_pod_is_blocked_when_its_claims_were_not_looked_up(self) -> None:
        assert [one.code for one in pod_blockers(using("p", "n1", "c"))] == ["pod-volumes"]

    def test_all_claim_faults_and_unsupported_fields_are_reported(self) -> None:
        claiming = using("p", "n1", "x", "c", "y")
        claiming = replace(claiming, unsupported=("spec.schedulerName", CLAIMS_FIELD))
        found = resolved(claiming, stored(claim(), Volume(name="pv")))
        assert [one.message for one in pod_blockers(found)] == [
            "claim d/x: it does not exist or was not read",
            "claim d/y: it does not exist or was not read",
            "uses fields that Ebb cannot evaluate: spec.schedulerName",
        ]

    @pytest.mark.parametrize(("owner", "faults"), [("u1", 0), ("u2", 1), ("", 1)])
    def test_ephemeral_claim_must_be_owned_by_pod(self, owner: str, faults: int) -> None:
        claiming = replace(
            using("p", "n1"),
            uid="u1",
            disruption_facts=DisruptionFacts(claims=(ClaimUse("p-tmp", ephemeral=True),)),
        )
        found = resolved(claiming, stored(claim("p-tmp", owner_uid=owner), Volume(name="pv")))
        assert len(found.disruption_facts.faults) == faults

    @pytest.mark.parametrize(
        ("on", "ephemeral", "classes", "reach"),
        [
            ("n1", True, (), None),
            ("n1", True, (StorageClass(name="fast"),), None),
            ("n1", True, (StorageClass(name="fast", reach=IN_B),), IN_B),
            ("n1", True, (StorageClass(name="other", reach=IN_B),), None),
            ("n1", True, (StorageClass(name="fast", provides=False),), IN_A),
            ("n1", False, (StorageClass(name="fast", reach=IN_B),), IN_A),
            (None, True, (StorageClass(name="fast", reach=IN_B),), IN_A),
        ],
    )
    def test_running_pod_gets_new_volume_when_its_claim_is_ephemeral(
        self,
        on: str | None,
        ephemeral: bool,
        classes: tuple[StorageClass, ...],
        reach: VolumeTopology | None,
    ) -> None:
        facts = DisruptionFacts(claims=(ClaimUse("p-tmp", ephemeral=ephemeral),))
        claiming = replace(using("p", on), uid="u1", disruption_facts=facts)
        of = claim("p-tmp", owner_uid="u1", storage_class="fast")
        volumes = stored(of, Volume(name="pv", disk=DISK, reach=IN_A))
        (found,) = build_cluster([node("n1")], [claiming], **volumes, storage_classes=classes).pods
        assert found.node_constraints.volumes == (() if reach is None else (reach,))
        assert found.pod_constraints.disks == (DISK,)
        assert found.disruption_facts.one_node_volumes == (() if ephemeral else ("p-tmp",))

    def test_ephemeral_volume_without_disk_stays_where_it_is(self) -> None:
        facts = DisruptionFacts(claims=(ClaimUse("p-tmp", ephemeral=True),))
        claiming = replace(using("p", "n1"), uid="u1", disruption_facts=facts)
        found = resolved(
            claiming, stored(claim("p-tmp", owner_uid="u1"), Volume(name="pv", reach=IN_A))
        )
        assert found.node_constraints.volumes == (IN_A,)

    @pytest.mark.parametrize(
        ("modes", "faults"),
        [
            (("ReadWriteOnce",), 1),
            (("ReadWriteOnce", "ReadWriteMany"), 0),
            (("ReadOnlyMany",), 0),
            (("ReadWriteOncePod",), 0),  # a rule of its own
        ],
    )
    def test_pods_are_blocked_when_they_share_read_write_once_claim(
        self, modes: tuple[str, ...], faults: int
    ) -> None:
        other = using("q", "n1", "c")
        found = resolved(
            using("p", "n1", "c"), stored(claim("c", "pv", *modes), Volume(name="pv")), other
        )
        assert len(found.disruption_facts.faults) == faults
        alone = resolved(
            using("p", "n1", "c"), stored(claim("c", "pv", *modes), Volume(name="pv"))
        )
        assert alone.disruption_facts.faults == ()

    def test_disk_is_counted_unless_no_node_limits_its_driver(self) -> None:
        free = {name: CsiNode(name=name, limits={"ebs": None}) for name in ("n1", "n2")}
        storage = stored(claim(), Volume(name="pv", disk=DISK), csi_nodes=free)
        assert resolved(using("p", "n1", "c"), storage).pod_constraints.disks == ()
        storage = stored(claim(), Volume(name="pv", disk=DISK), csi_nodes={"n1": free["n1"]})
        assert resolved(using("p", "n1", "c"), storage).pod_constraints.disks == (DISK,)

    def test_inline_volumes_count_for_any_driver(self) -> None:
        claiming = pod("p", "n1", 100, 100, unsupported=(VOLUMES_FIELD,))
        found = resolved(claiming, Storage())
        assert [disk.driver for disk in found.pod_constraints.disks] == [ANY_DRIVER]
        assert [one.code for one in pod_blockers(found)] == ["pod-unsupported"]

    @pytest.mark.parametrize("read_only", [True, False])
    def test_inline_disk_counts_for_its_driver(self, *, read_only: bool) -> None:
        found = resolved(naming("p", InlineDisk(*DISK, read_only)), stored())
        assert (found.unsupported, found.pod_constraints.disks) == ((), (DISK,))

    def test_disk_without_driver_counts_for_no_driver(self) -> None:
        found = resolved(naming("p", InlineDisk("rbd", "i", counted=False)), Storage())
        assert (found.unsupported, found.pod_constraints) == ((), NO_POD_CONSTRAINTS)

    @pytest.mark.parametrize(
        ("own", "others", "movable"),
        [(True, True, True), (True, False, False), (False, True, False), (False, False, False)],
    )
    def test_pods_that_share_disk_are_not_movable_when_one_writes(
        self, *, own: bool, others: bool, movable: bool
    ) -> None:
        other = naming("q", InlineDisk(*DISK, others))
        found = resolved(naming("p", InlineDisk(*DISK, own)), stored(), other)
        assert (found.unsupported == ()) is movable
        assert [one.code for one in pod_blockers(found)] == ([] if movable else ["pod-volumes"])

    @pytest.mark.parametrize(
        ("disk", "storage", "why"),
        [
            (InlineDisk(*DISK), Storage(), "no CSINode was read"),
            (InlineDisk("ebs", "", fault="is no disk"), stored(), "is no disk"),
        ],
    )
    def test_unknown_disk_is_reported_with_reason(
        self, disk: InlineDisk, storage: Storage, why: str
    ) -> None:
        found = resolved(naming("p", disk), storage)
        (blocker,) = pod_blockers(found)
        assert (blocker.code, why in blocker.message) == ("pod-volumes", True)
        assert ANY_DRIVER in {one.driver for one in found.pod_constraints.disks}

    def test_pods_share_constraints_when_their_volumes_have_equal_topology(self) -> None:
        storage = stored(
            claim("a", "x"),
            claim("b", "y"),
            Volume(name="x", reach=IN_A),
            Volume(name="y", reach=VolumeTopology(affinity=IN_A.affinity)),
        )
        cluster = build_cluster(
            [node("n1")], [using("p", "n1", "a"), using("q", "n1", "b")], **storage
        )
        assert cluster.pods[0].node_constraints is cluster.pods[1].node_constraints


def labeled_node(**labels: str) -> Node:
    return node(
        "n", labels={{"zone": ZONE, "old": OLD_ZONE}.get(k, k): v for k, v in labels.items()}
    )


class TestVolumeTopology:
    @pytest.mark.parametrize(
        ("key", "at", "admits"),
        [
            (ZONE, labeled_node(zone="a"), True),
            (ZONE, labeled_node(zone="b"), True),
            (ZONE, labeled_node(zone="c"), False),
            (ZONE, labeled_node(old="a"), False),
            (ZONE, labeled_node(), True),  # in no zone at all
            (ZONE, node("n", labels={"topology.kubernetes.io/region": "r"}), False),
            (OLD_ZONE, labeled_node(old="b"), True),
            (OLD_ZONE, labeled_node(zone="b"), True),  # the newer label stands in
            (OLD_ZONE, labeled_node(old="c", zone="b"), False),
        ],
    )
    def test_zone_labels_of_volume_admit_node(self, key: str, at: Node, admits: bool) -> None:
        node_constraints = NodeConstraints(volumes=(VolumeTopology(zones=((key, ("a", "b")),)),))
        assert first_failing_filter(at, node_constraints) == (None if admits else "volume-zone")
        assert NodeClasses([at], [node_constraints]).allowing(node_constraints) == (
            [0] if admits else []
        )

    @pytest.mark.parametrize(
        ("reach", "ids"),
        [
            (IN_A, [0, 2]),
            (VolumeTopology(affinity=()), []),
            (VolumeTopology(affinity=(SelectorTerm(),)), []),
            (VolumeTopology(affinity=(SelectorTerm((NOT_IN_A,)),)), [1]),
            (VolumeTopology(
                affinity=(*(IN_A.affinity or ()), SelectorTerm((Requirement("x", "Exists"),)))),
             [0, 1, 2]),
            (VolumeTopology(affinity=(SelectorTerm((Requirement("zone", "In", ("a", "b")),
                                           Requirement("x", "Exists"))),)), [1]),
            (VolumeTopology(affinity=(*(IN_A.affinity or ()), B_WITH_X)), [0, 1, 2]),
            (VolumeTopology(affinity=(B_WITH_X, B_WITH_X, SelectorTerm())), [1]),
        ],
    )  # fmt: skip
    def test_node_affinity_of_volume_admits_nodes(
        self, reach: VolumeTopology, ids: list[int]
    ) -> None:
        nodes = [
            node("1", labels={"zone": "a"}),
            node("2", labels={"zone": "b", "x": ""}),
            node("3", labels={"zone": "a"}),
        ]
        node_constraints = NodeConstraints(volumes=(reach,))
        assert NodeClasses(nodes, [node_constraints]).allowing(node_constraints) == ids
        alone = [
            n for n, one in enumerate(nodes) if first_failing_filter(one, node_constraints) is None
        ]
        assert alone == ids

    def test_node_is_admitted_when_all_volumes_admit_it(self) -> None:
        in_x = VolumeTopology(affinity=(SelectorTerm((Requirement("x", "Exists"),)),))
        nodes = [node("1", labels={"zone": "a"}), node("2", labels={"zone": "a", "x": ""})]
        node_constraints = NodeConstraints(node_selector=(("zone", "a"),), volumes=(IN_A, in_x))
        assert NodeClasses(nodes, [node_constraints]).allowing(node_constraints) == [1]


def make_plan(cluster: Cluster) -> Plan:
    return reconcile.plan(cluster, thesis_config("1", "1"))


def moves(plan: Plan) -> dict[str, str]:
    return {one.pod: one.node for removal in plan.removals for one in removal.placements}


def reasons(plan: Plan, name: str) -> str:
    (kept,) = (one for one in plan.kept if one.node == name)
    return "; ".join(one.message for one in kept.blockers)


class TestPlan:
    """Only n1 is removable; the other nodes are full enough to be the better targets."""

    def cluster(self, storage: Storage, *pods: Pod, nodes: tuple[Node, ...] = ()) -> Cluster:
        keep = {"kube-ebb.io/keep": "true"}
        others = nodes or (node("n2", annotations=keep), node("n3", annotations=keep))
        load = [pod(f"load-{one.name}", one.name, 1000 - i, 10) for i, one in enumerate(others)]
        return build_cluster([node("n1"), *others], [*pods, *load], **storage)

    def test_pod_moves_only_to_nodes_that_its_volume_admits(self) -> None:
        keep = {"kube-ebb.io/keep": "true"}
        nodes = (node("n2", annotations=keep), node("n3", annotations=keep, labels={"zone": "a"}))
        storage = stored(claim(), Volume(name="pv", disk=DISK, reach=IN_A))
        plan = make_plan(self.cluster(storage, using("p", "n1", "c"), nodes=nodes))
        assert moves(plan) == {"d/p": "n3"}
        plan = make_plan(self.cluster(storage, using("p", "n1", "c")))
        assert moves(plan) == {}
        assert "volume-node-affinity" in reasons(plan, "n1")

    def test_attach_limit_bounds_volumes_of_node(self) -> None:
        volumes = [Volume(name=f"pv{i}", disk=Disk("ebs", f"v{i}")) for i in range(5)]
        claims = [claim(f"c{i}", f"pv{i}") for i in range(5)]
        there = using("there", "n2", "c0")
        moving = [using(f"p{i}", "n1", f"c{i}") for i in range(1, 5)]
        plan = make_plan(self.cluster(stored(*claims, *volumes), there, *moving[:3]))
        assert moves(plan) == {"d/p1": "n2", "d/p2": "n3", "d/p3": "n3"}
        plan = make_plan(self.cluster(stored(*claims, *volumes), there, *moving))
        assert moves(plan) == {}
        assert "it violates: attach limit of ebs" in reasons(plan, "n1")

    def test_shared_volume_counts_once_per_node(self) -> None:
        shared = (claim("c", "pv", "ReadWriteMany"), Volume(name="pv", disk=DISK))
        one_each = {name: CsiNode(name=name, limits={"ebs": 1}) for name in LIMITS}
        pods = [using(f"p{i}", "n1", "c") for i in range(3)]
        plan = make_plan(self.cluster(stored(*shared, csi_nodes=one_each), *pods))
        assert set(moves(plan).values()) == {"n2"}

    def test_pod_does_not_move_to_node_without_driver(self) -> None:
        storage = stored(
            claim(),
            Volume(name="pv", disk=DISK),
            csi_nodes={"n1": LIMITS["n1"], "n3": CsiNode(name="n3", limits={"ebs": None})},
        )
        assert moves(make_plan(self.cluster(storage, using("p", "n1", "c")))) == {"d/p": "n3"}

    def test_unknown_volumes_count_for_every_driver(self) -> None:
        one_each = {name: CsiNode(name=name, limits={"ebs": 1}) for name in LIMITS}
        storage = stored(claim(), Volume(name="pv", disk=DISK), csi_nodes=one_each)
        strange = using("strange", "n2", "unknown")
        plan = make_plan(self.cluster(storage, using("p", "n1", "c"), strange))
        assert moves(plan) == {"d/p": "n3"}

    def test_pod_moves_with_its_read_write_once_pod_claim(self) -> None:
        storage = stored(claim("c", "pv", "ReadWriteOncePod"), Volume(name="pv"))
        assert moves(make_plan(self.cluster(storage, using("p", "n1", "c")))) == {"d/p": "n2"}

    def test_read_write_once_pod_claim_blocks_pod_when_another_uses_it(self) -> None:
        """The rule holds for the whole cluster: the other pod may run on any node."""
        storage = stored(claim("c", "pv", "ReadWriteOncePod"), Volume(name="pv"))
        other = using("q", "n3", "c")
        plan = make_plan(self.cluster(storage, using("p", "n1", "c"), other))
        assert moves(plan) == {}
        assert "it violates: ReadWriteOncePod claim d/c" in reasons(plan, "n1")

    def test_pending_pod_is_not_placed_when_its_claim_is_in_use(self) -> None:
        storage = stored(claim("c", "pv", "ReadWriteOncePod"), Volume(name="pv"))
        waiting = using("w", None, "c")
        assert make_plan(self.cluster(storage, waiting)).pending != ()
        in_use = self.cluster(storage, waiting, using("p", "n2", "c"))
        assert make_plan(in_use).pending == ()

    def test_node_is_not_removable_when_pod_uses_local_volume(self) -> None:
        on_n1 = VolumeTopology(affinity=(SelectorTerm((Requirement("host", "In", ("n1",)),)),))
        storage = stored(claim(), Volume(name="pv", reach=on_n1))
        plan = make_plan(self.cluster(storage, using("p", "n1", "c")))
        assert moves(plan) == {}
        assert "no other node admits it" in reasons(plan, "n1")


def test_cluster_without_claims_equals_plain_cluster() -> None:
    nodes, pods = [node("n1"), node("n2")], [pod("a", "n1", 1, 1), pod("b", None, 1, 1)]
    assert build_cluster(nodes, pods) == Cluster.of(nodes, pods)
    assert reconcile.plan(build_cluster(nodes, pods), Config()).kept != ()
