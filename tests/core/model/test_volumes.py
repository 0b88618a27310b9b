"""What stands behind claims: looked up, and held against nodes as kube-scheduler does."""

from collections.abc import Collection
from dataclasses import replace
from typing import TypedDict

import pytest

from core.config.settings import Config
from core.engine import reconcile
from core.engine.plan import Plan
from core.fit.filters import first_failing_filter
from core.fit.node_classes import NodeClasses
from core.guards.unplaceable import pod_blockers
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
from core.model.pod import Pod
from core.model.volumes import (
    CLAIMS_FIELD,
    VOLUMES_FIELD,
    Claim,
    CsiNode,
    Volume,
    build_cluster,
)
from tests.support.builders import node, pod, thesis_config

ZONE, OLD_ZONE = "topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"
DISK = Disk("ebs", "vol-1")
IN_A = VolumeTopology(affinity=(SelectorTerm((Requirement("zone", "In", ("a",)),)),))
B_WITH_X = SelectorTerm((Requirement("zone", "In", ("b", "c")), Requirement("x", "Exists")))
LIMITS = {name: CsiNode(name=name, limits={"ebs": 2}) for name in ("n1", "n2", "n3")}

NOT_IN_A = Requirement("zone", "NotIn", ("a",))


def using(name: str, on: str | None, *claims: str, **changes: object) -> Pod:
    made = pod(name, on, 100, 100, unsupported=(CLAIMS_FIELD,))
    uses = tuple(ClaimUse(claim) for claim in claims)
    return replace(made, ties=DisruptionFacts(claims=uses), **changes)  # type: ignore[arg-type]


def naming(name: str, *disks: InlineDisk) -> Pod:
    """Return a pod that names disks itself, on n1."""
    made = pod(name, "n1", 100, 100, unsupported=(VOLUMES_FIELD,))
    return replace(made, ties=DisruptionFacts(disks=disks))


def claim(name: str = "c", volume: str = "pv", *modes: str, **changes: object) -> Claim:
    modes = modes or ("ReadWriteOnce",)
    return Claim(namespace="d", name=name, volume=volume, modes=modes, **changes)  # type: ignore[arg-type]


class Storage(TypedDict, total=False):
    """What is known of storage, as `cluster_of` takes it."""

    claims: list[Claim]
    volumes: list[Volume]
    csi_nodes: Collection[CsiNode]


def stored(*found: Claim | Volume, csi_nodes: dict[str, CsiNode] | None = None) -> Storage:
    return {
        "claims": [one for one in found if isinstance(one, Claim)],
        "volumes": [one for one in found if isinstance(one, Volume)],
        "csi_nodes": (LIMITS if csi_nodes is None else csi_nodes).values(),
    }


def looked_up(asking: Pod, storage: Storage, *others: Pod) -> Pod:
    cluster = build_cluster([node("n1"), node("n2")], [asking, *others], **storage)
    return next(one for one in cluster.pods if one.key == asking.key)


class TestLookUp:
    def test_a_known_claim_makes_the_pod_movable(self) -> None:
        found = looked_up(
            using("p", "n1", "c"), stored(claim(), Volume(name="pv", disk=DISK, reach=IN_A))
        )
        assert (found.unsupported, pod_blockers(found)) == ((), [])
        assert found.placing == NodeConstraints(volumes=(IN_A,))
        assert (found.company.disks, found.company.sole) == ((DISK,), ())

    @pytest.mark.parametrize(
        ("storage", "told"),
        [
            (Storage(), "claim d/c: it is not known"),
            (stored(claim(volume="")), "claim d/c: it is not bound to a volume"),
            (stored(claim(deleting=True)), "claim d/c: it is being deleted"),
            (stored(claim()), "claim d/c: its volume pv is not known"),
            (
                stored(claim(), Volume(name="pv", fault="is of cheese")),
                "claim d/c: its volume pv is of cheese",
            ),
            (
                stored(claim(), Volume(name="pv", disk=DISK), csi_nodes={}),
                "claim d/c: no CSINode is known, so how many volumes of ebs a node takes",
            ),
        ],
    )
    def test_what_is_not_known_blocks_and_is_told(self, storage: Storage, told: str) -> None:
        found = looked_up(using("p", "n1", "c"), storage)
        assert [(one.code, one.message, one.pod) for one in pod_blockers(found)] == [
            ("pod-volumes", told, "d/p")
        ]
        assert found.company.disks == (Disk(ANY_DRIVER, "d/c"),)

    def test_a_pod_that_nobody_has_looked_up_is_not_movable(self) -> None:
        assert [one.code for one in pod_blockers(using("p", "n1", "c"))] == ["pod-volumes"]

    def test_every_fault_is_told_and_nothing_else_is_lost(self) -> None:
        asking = using("p", "n1", "x", "c", "y")
        asking = replace(asking, unsupported=("spec.schedulerName", CLAIMS_FIELD))
        found = looked_up(asking, stored(claim(), Volume(name="pv")))
        assert [one.message for one in pod_blockers(found)] == [
            "claim d/x: it is not known",
            "claim d/y: it is not known",
            "uses fields that Ebb cannot evaluate: spec.schedulerName",
        ]

    @pytest.mark.parametrize(("owner", "faults"), [("u1", 0), ("u2", 1), ("", 1)])
    def test_an_ephemeral_volume_must_be_the_pods_own(self, owner: str, faults: int) -> None:
        asking = replace(
            using("p", "n1"),
            uid="u1",
            ties=DisruptionFacts(claims=(ClaimUse("p-tmp", ephemeral=True),)),
        )
        found = looked_up(asking, stored(claim("p-tmp", owner_uid=owner), Volume(name="pv")))
        assert len(found.ties.faults) == faults

    @pytest.mark.parametrize(
        ("modes", "faults"),
        [
            (("ReadWriteOnce",), 1),
            (("ReadWriteOnce", "ReadWriteMany"), 0),
            (("ReadOnlyMany",), 0),
            (("ReadWriteOncePod",), 0),  # a rule of its own
        ],
    )
    def test_sharing_what_one_node_may_write_ties_the_pods(
        self, modes: tuple[str, ...], faults: int
    ) -> None:
        other = using("q", "n1", "c")
        found = looked_up(
            using("p", "n1", "c"), stored(claim("c", "pv", *modes), Volume(name="pv")), other
        )
        assert len(found.ties.faults) == faults
        alone = looked_up(
            using("p", "n1", "c"), stored(claim("c", "pv", *modes), Volume(name="pv"))
        )
        assert alone.ties.faults == ()

    def test_a_driver_without_any_limit_is_not_counted(self) -> None:
        free = {name: CsiNode(name=name, limits={"ebs": None}) for name in ("n1", "n2")}
        storage = stored(claim(), Volume(name="pv", disk=DISK), csi_nodes=free)
        assert looked_up(using("p", "n1", "c"), storage).company.disks == ()
        storage = stored(claim(), Volume(name="pv", disk=DISK), csi_nodes={"n1": free["n1"]})
        assert looked_up(using("p", "n1", "c"), storage).company.disks == (DISK,)

    def test_disks_in_the_pod_itself_count_for_any_driver(self) -> None:
        asking = pod("p", "n1", 100, 100, unsupported=(VOLUMES_FIELD,))
        found = looked_up(asking, Storage())
        assert [disk.driver for disk in found.company.disks] == [ANY_DRIVER]
        assert [one.code for one in pod_blockers(found)] == ["pod-unsupported"]

    @pytest.mark.parametrize("read_only", [True, False])
    def test_a_disk_in_the_pod_itself_counts_for_its_driver(self, *, read_only: bool) -> None:
        found = looked_up(naming("p", InlineDisk(*DISK, read_only)), stored())
        assert (found.unsupported, found.company.disks) == ((), (DISK,))

    def test_a_disk_that_no_driver_serves_counts_for_none(self) -> None:
        found = looked_up(naming("p", InlineDisk("rbd", "i", counted=False)), Storage())
        assert (found.unsupported, found.company) == ((), NO_POD_CONSTRAINTS)

    @pytest.mark.parametrize(
        ("own", "others", "movable"),
        [(True, True, True), (True, False, False), (False, True, False), (False, False, False)],
    )
    def test_pods_that_share_a_disk_do_not_move_when_one_writes_to_it(
        self, *, own: bool, others: bool, movable: bool
    ) -> None:
        other = naming("q", InlineDisk(*DISK, others))
        found = looked_up(naming("p", InlineDisk(*DISK, own)), stored(), other)
        assert (found.unsupported == ()) is movable
        assert [one.code for one in pod_blockers(found)] == ([] if movable else ["pod-volumes"])

    @pytest.mark.parametrize(
        ("disk", "storage", "why"),
        [
            (InlineDisk(*DISK), Storage(), "no CSINode is known"),
            (InlineDisk("ebs", "", fault="is no disk"), stored(), "is no disk"),
        ],
    )
    def test_a_disk_that_is_not_known_well_enough_says_why(
        self, disk: InlineDisk, storage: Storage, why: str
    ) -> None:
        found = looked_up(naming("p", disk), storage)
        (blocker,) = pod_blockers(found)
        assert (blocker.code, why in blocker.message) == ("pod-volumes", True)
        assert ANY_DRIVER in {one.driver for one in found.company.disks}

    def test_pods_whose_volumes_are_in_equal_places_share_one_placing(self) -> None:
        storage = stored(
            claim("a", "x"),
            claim("b", "y"),
            Volume(name="x", reach=IN_A),
            Volume(name="y", reach=VolumeTopology(affinity=IN_A.affinity)),
        )
        cluster = build_cluster(
            [node("n1")], [using("p", "n1", "a"), using("q", "n1", "b")], (), **storage
        )
        assert cluster.pods[0].placing is cluster.pods[1].placing


def labelled(**labels: str) -> Node:
    return node(
        "n", labels={{"zone": ZONE, "old": OLD_ZONE}.get(k, k): v for k, v in labels.items()}
    )


class TestReach:
    @pytest.mark.parametrize(
        ("key", "at", "admits"),
        [
            (ZONE, labelled(zone="a"), True),
            (ZONE, labelled(zone="b"), True),
            (ZONE, labelled(zone="c"), False),
            (ZONE, labelled(old="a"), False),
            (ZONE, labelled(), True),  # in no zone at all
            (ZONE, node("n", labels={"topology.kubernetes.io/region": "r"}), False),
            (OLD_ZONE, labelled(old="b"), True),
            (OLD_ZONE, labelled(zone="b"), True),  # the newer label stands in
            (OLD_ZONE, labelled(old="c", zone="b"), False),
        ],
    )
    def test_zone_labels(self, key: str, at: Node, admits: bool) -> None:
        placing = NodeConstraints(volumes=(VolumeTopology(zones=((key, ("a", "b")),)),))
        assert first_failing_filter(at, placing) == (None if admits else "volume-zone")
        assert NodeClasses([at], [placing]).allowing(placing) == ([0] if admits else [])

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
    def test_node_affinity(self, reach: VolumeTopology, ids: list[int]) -> None:
        nodes = [
            node("1", labels={"zone": "a"}),
            node("2", labels={"zone": "b", "x": ""}),
            node("3", labels={"zone": "a"}),
        ]
        placing = NodeConstraints(volumes=(reach,))
        assert NodeClasses(nodes, [placing]).allowing(placing) == ids
        alone = [n for n, one in enumerate(nodes) if first_failing_filter(one, placing) is None]
        assert alone == ids

    def test_every_volume_must_be_reached(self) -> None:
        in_x = VolumeTopology(affinity=(SelectorTerm((Requirement("x", "Exists"),)),))
        nodes = [node("1", labels={"zone": "a"}), node("2", labels={"zone": "a", "x": ""})]
        placing = NodeConstraints(node_selector=(("zone", "a"),), volumes=(IN_A, in_x))
        assert NodeClasses(nodes, [placing]).allowing(placing) == [1]


def planned(cluster: Cluster) -> Plan:
    return reconcile.plan(cluster, thesis_config("1", "1"))


def moves(plan: Plan) -> dict[str, str]:
    return {one.pod: one.node for removal in plan.removals for one in removal.placements}


def reasons(plan: Plan, name: str) -> str:
    (kept,) = (one for one in plan.kept if one.node == name)
    return "; ".join(one.message for one in kept.blockers)


class TestPlan:
    """n1 is the one node that may go; the others are full enough to be the better targets."""

    def cluster(self, storage: Storage, *pods: Pod, nodes: tuple[Node, ...] = ()) -> Cluster:
        keep = {"kube-ebb.io/keep": "true"}
        standing = nodes or (node("n2", annotations=keep), node("n3", annotations=keep))
        load = [pod(f"load-{one.name}", one.name, 1000 - i, 10) for i, one in enumerate(standing)]
        return build_cluster([node("n1"), *standing], [*pods, *load], **storage)

    def test_a_volume_goes_where_it_can_be_reached(self) -> None:
        keep = {"kube-ebb.io/keep": "true"}
        nodes = (node("n2", annotations=keep), node("n3", annotations=keep, labels={"zone": "a"}))
        storage = stored(claim(), Volume(name="pv", disk=DISK, reach=IN_A))
        plan = planned(self.cluster(storage, using("p", "n1", "c"), nodes=nodes))
        assert moves(plan) == {"d/p": "n3"}
        plan = planned(self.cluster(storage, using("p", "n1", "c")))
        assert moves(plan) == {}
        assert "volume-node-affinity" in reasons(plan, "n1")

    def test_a_node_takes_no_more_volumes_than_its_limit(self) -> None:
        volumes = [Volume(name=f"pv{i}", disk=Disk("ebs", f"v{i}")) for i in range(5)]
        claims = [claim(f"c{i}", f"pv{i}") for i in range(5)]
        there = using("there", "n2", "c0")
        moving = [using(f"p{i}", "n1", f"c{i}") for i in range(1, 5)]
        plan = planned(self.cluster(stored(*claims, *volumes), there, *moving[:3]))
        assert moves(plan) == {"d/p1": "n2", "d/p2": "n3", "d/p3": "n3"}
        plan = planned(self.cluster(stored(*claims, *volumes), there, *moving))
        assert moves(plan) == {}
        assert "it violates: attach limit of ebs" in reasons(plan, "n1")

    def test_one_volume_counts_once_a_node(self) -> None:
        shared = (claim("c", "pv", "ReadWriteMany"), Volume(name="pv", disk=DISK))
        one_each = {name: CsiNode(name=name, limits={"ebs": 1}) for name in LIMITS}
        pods = [using(f"p{i}", "n1", "c") for i in range(3)]
        plan = planned(self.cluster(stored(*shared, csi_nodes=one_each), *pods))
        assert set(moves(plan).values()) == {"n2"}

    def test_a_node_without_the_driver_takes_none(self) -> None:
        storage = stored(
            claim(),
            Volume(name="pv", disk=DISK),
            csi_nodes={"n1": LIMITS["n1"], "n3": CsiNode(name="n3", limits={"ebs": None})},
        )
        assert moves(planned(self.cluster(storage, using("p", "n1", "c")))) == {"d/p": "n3"}

    def test_volumes_that_nobody_knows_count_for_every_driver(self) -> None:
        one_each = {name: CsiNode(name=name, limits={"ebs": 1}) for name in LIMITS}
        storage = stored(claim(), Volume(name="pv", disk=DISK), csi_nodes=one_each)
        strange = using("strange", "n2", "unknown")
        plan = planned(self.cluster(storage, using("p", "n1", "c"), strange))
        assert moves(plan) == {"d/p": "n3"}

    def test_a_pod_moves_with_the_claim_that_is_its_own(self) -> None:
        storage = stored(claim("c", "pv", "ReadWriteOncePod"), Volume(name="pv"))
        assert moves(planned(self.cluster(storage, using("p", "n1", "c")))) == {"d/p": "n2"}

    def test_a_claim_for_one_pod_is_no_other_pods(self) -> None:
        """Wherever the other one runs: the rule is the cluster's, not the node's."""
        storage = stored(claim("c", "pv", "ReadWriteOncePod"), Volume(name="pv"))
        other = using("q", "n3", "c")
        plan = planned(self.cluster(storage, using("p", "n1", "c"), other))
        assert moves(plan) == {}
        assert "it violates: ReadWriteOncePod claim d/c" in reasons(plan, "n1")

    def test_a_pending_pod_waits_for_the_claim(self) -> None:
        storage = stored(claim("c", "pv", "ReadWriteOncePod"), Volume(name="pv"))
        waiting = using("w", None, "c")
        assert planned(self.cluster(storage, waiting)).pending != ()
        held = self.cluster(storage, waiting, using("p", "n2", "c"))
        assert planned(held).pending == ()

    def test_volumes_on_a_nodes_own_disk_stay_there(self) -> None:
        on_n1 = VolumeTopology(affinity=(SelectorTerm((Requirement("host", "In", ("n1",)),)),))
        storage = stored(claim(), Volume(name="pv", reach=on_n1))
        plan = planned(self.cluster(storage, using("p", "n1", "c")))
        assert moves(plan) == {}
        assert "no other node admits it" in reasons(plan, "n1")


def test_a_cluster_without_claims_is_the_plain_one() -> None:
    nodes, pods = [node("n1"), node("n2")], [pod("a", "n1", 1, 1), pod("b", None, 1, 1)]
    assert build_cluster(nodes, pods) == Cluster.of(nodes, pods)
    assert reconcile.plan(build_cluster(nodes, pods), Config()).kept != ()
