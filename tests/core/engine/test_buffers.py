"""CapacityBuffers of other owners: how they are decoded, and how much room is kept for them."""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import orjson
import pytest

from core.cluster.read_options import READ_DEFAULTS
from core.config.settings import Config
from core.engine import reconcile
from core.engine.buffers import BUFFERS_MAX, PODS_MAX, Offered, requested_rooms, requesting_buffers
from core.engine.leader_state import LeaderState
from core.engine.plan import BufferRoom, Plan
from core.engine.snapshot import ClusterSnapshot
from core.marks.wellknown import BUFFER_OURS_LABEL
from core.model.buffers import Buffer
from core.model.cluster import Cluster
from core.model.constraints import NodeConstraints
from core.model.errors import InvalidInputError
from core.model.node import Node, Taint
from core.model.pod import Pod
from core.model.resources import Resources
from kube.decode.kinds import BUFFERS, TEMPLATES
from kube.dump import from_dumps
from tests.support.builders import GREEN, UNLIMITED, marked, node, pod

pytestmark = pytest.mark.mutate

Json = dict[str, Any]
READY = {"type": "ReadyForProvisioning", "status": "True", "reason": "Resolved"}
TEMPLATE: Json = {
    "kind": "PodTemplate",
    "metadata": {"name": "t", "namespace": "shop"},
    "template": {
        "metadata": {"labels": {"app": "web"}},
        "spec": {
            "nodeName": "x",
            "containers": [
                {"name": "c", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}
            ],
            "nodeSelector": {"pool": "a"},
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}],
        },
    },
}


def written(status: Json | None = None, spec: Json | None = None, **metadata: Any) -> Json:
    """Return a buffer as the controller of Cluster Autoscaler writes it, with changes."""
    found = {"podTemplateRef": {"name": "t"}, "replicas": 3, "conditions": [READY]}
    found |= {"provisioningStrategy": "buffer.x-k8s.io/active-capacity"} | (status or {})
    return {
        "apiVersion": "autoscaling.x-k8s.io/v1beta1",
        "kind": "CapacityBuffer",
        "metadata": {"name": "b", "namespace": "shop"} | metadata,
        "spec": {"podTemplateRef": {"name": "t"}, "replicas": 3} if spec is None else spec,
        "status": {key: value for key, value in found.items() if value is not None},
    }


def read(*objects: Json, pods: Sequence[Json] = ()) -> Buffer:
    """Return the only buffer of a cluster with these objects."""
    least = [
        {"kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "4"}}},
        {"kind": "Pod", "metadata": {"name": "p", "namespace": "d"}, "spec": {}},
    ]
    raw = orjson.dumps({"kind": "List", "items": [*least, *objects, *pods]})
    (found,) = from_dumps([("f", raw)], READ_DEFAULTS, [])[0].buffers
    return found


class TestDecode:
    def test_accepted_buffer_has_its_replicas_and_pod(self) -> None:
        found = read(written(), TEMPLATE)
        assert (found.key, found.replicas, found.fault) == ("shop/b", 3, "")
        assert found.pod is not None
        assert found.pod.requests == Resources(500, 2**30, 0, 1)
        assert found.pod.node_constraints == NodeConstraints(node_selector=(("pool", "a"),))
        assert found.pod.node is None

    @pytest.mark.parametrize(("reported", "ready"), [(None, 0), (2, 2), (-1, 0)])
    def test_how_many_pods_have_room_is_what_the_autoscaler_reports(
        self, reported: int | None, ready: int
    ) -> None:
        assert read(written({"readyReplicas": reported}), TEMPLATE).ready == ready

    @pytest.mark.parametrize(
        ("changed", "fault"),
        [
            (written({"conditions": None}), "no autoscaler has accepted the buffer"),
            (written({"conditions": [{"type": "Ready", "status": "True"}]}),
             "no autoscaler has accepted the buffer"),
            (written({"conditions": [{**READY, "status": "False", "reason": "NotFound"}]}),
             "the autoscaler rejects the buffer: NotFound"),
            (written({"conditions": [{**READY, "status": "x", "reason": None}]}),
             "the autoscaler rejects the buffer: no reason given"),
            (written({"provisioningStrategy": "a.b/standby"}),
             "provisioning strategy a.b/standby keeps no room on existing nodes"),
            (written({"podTemplateRef": {"name": "u"}}), "PodTemplate u was not found"),
            (
                written({"podTemplateRef": None}, {}),
                "the buffer names neither a PodTemplate nor a workload",
            ),
            (written(deletionTimestamp="2026-01-01T00:00:00Z"), "the buffer is being deleted"),
        ],
    )  # fmt: skip
    def test_buffer_has_fault_when_it_is_not_accepted_or_resolved(
        self, changed: Json, fault: str
    ) -> None:
        assert read(changed, TEMPLATE).fault == fault

    def test_template_of_another_namespace_is_not_found(self) -> None:
        other = {**TEMPLATE, "metadata": {"name": "t", "namespace": "other"}}
        assert read(written(), other).fault == "PodTemplate t was not found"

    def test_buffer_has_fault_when_template_exceeds_limits(self) -> None:
        spec = {"tolerations": [{"key": f"k{n}"} for n in range(5000)]}
        found = read(written(), {**TEMPLATE, "template": {"spec": spec}})
        assert "PodTemplate t: " in found.fault

    @pytest.mark.parametrize(
        ("kind", "owner", "labels"),
        [
            ("Deployment", ("ReplicaSet", "web-7f"), {"pod-template-hash": "7f"}),
            ("ReplicaSet", ("ReplicaSet", "web"), {}),
            ("StatefulSet", ("StatefulSet", "web"), {}),
        ],
    )
    def test_buffer_pod_is_copied_from_workload_when_no_template_is_named(
        self, kind: str, owner: tuple[str, str], labels: Json
    ) -> None:
        raw = written({"podTemplateRef": None}, {"scalableRef": {"kind": kind, "name": "web"}})
        like = {
            "kind": "Pod",
            "metadata": {
                "name": "web-1",
                "namespace": "shop",
                "labels": labels,
                "ownerReferences": [{"kind": owner[0], "name": owner[1], "controller": True}],
            },
            "spec": {"containers": [{"resources": {"requests": {"cpu": "250m"}}}]},
        }
        found = read(raw, pods=[like])
        assert found.pod is not None
        assert found.pod.requests.cpu_millis == 250
        assert read(raw).fault == f"a pod of {kind} web was not found"

    def test_own_buffer_has_published_and_accepted_replicas(self) -> None:
        ours, wanted = {BUFFER_OURS_LABEL: ""}, {"replicas": 5}
        found = read(written(spec=wanted, labels=ours), TEMPLATE)
        assert (found.published, found.accepted, found.fault) == (5, 3, "")
        assert found.pod is None, "no room is kept for it"
        waits = read(written({"conditions": None}, wanted, labels=ours), TEMPLATE)
        assert (waits.published, waits.accepted) == (5, 0)
        more = read(written({"replicas": 9}, wanted, labels=ours), TEMPLATE)
        assert more.accepted == 5, "accepted replicas are at most the published ones"
        assert read(written(), TEMPLATE).published is None

    @pytest.mark.parametrize(("value", "counts"), [(None, 0), (-3, 0), (2**40, 2**31 - 1)])
    def test_published_replicas_are_clamped_to_api_range(
        self, value: int | None, counts: int
    ) -> None:
        spec = {"replicas": value, "scalableRef": {"kind": "Deployment", "name": "web"}}
        found = read(written({"podTemplateRef": None}, spec, labels={BUFFER_OURS_LABEL: ""}))
        assert (found.published, found.scalable) == (counts, None)

    @pytest.mark.parametrize("many", [None, 0, -1, -(2**31)])
    def test_buffer_without_replicas_has_no_room_and_no_fault(self, many: int | None) -> None:
        found = read(written({"replicas": many}), TEMPLATE)
        assert (found.replicas, found.fault) == (0, "")

    def test_replicas_are_clamped_to_api_maximum(self) -> None:
        raw = orjson.dumps(written({"replicas": "@"})).replace(b'"@"', b"9" * 70)
        found = BUFFERS.decode(raw)
        assert found is not None
        assert found.replicas == 2**31 - 1

    @pytest.mark.parametrize("many", ["3", 1.5, []])
    def test_invalid_buffer_is_rejected_with_its_field(self, many: object) -> None:
        raw = orjson.dumps(written({"replicas": many}))
        with pytest.raises(InvalidInputError, match=r"CapacityBuffer shop/b: status\.replicas"):
            BUFFERS.decode(raw)

    def test_empty_template_requests_one_pod(self) -> None:
        found = TEMPLATES.decode(orjson.dumps({"metadata": {"name": "t"}}))
        assert found.pod.requests == Resources(pods=1)


def buffer(
    many: int = 1,
    cpu: int = 1000,
    key: str = "shop/b",
    node_constraints: NodeConstraints | None = None,
) -> Buffer:
    namespace, _, name = key.partition("/")
    like = replace(
        pod(key, None, cpu, 100 if cpu else 0), namespace="", owner_kind="CapacityBuffer"
    )
    like = replace(
        like, owner_name=key, node_constraints=node_constraints or like.node_constraints
    )
    return Buffer(namespace=namespace, name=name, replicas=many, pod=like)


NODES = tuple(node(f"n{number}", cpu=4000) for number in range(4))
BUSY = pod("a", "n0", 2000, 100)


def cluster(
    *buffers: Buffer, nodes: Sequence[Node] = NODES, pods: Sequence[Pod] = (BUSY,)
) -> Cluster:
    return replace(Cluster.of(nodes, pods), buffers=tuple(sorted(buffers, key=lambda b: b.key)))


CONFIG = Config(budgets=UNLIMITED)


def make_plan(asked: Cluster) -> Plan:
    return reconcile.plan(asked, CONFIG)


def removed_nodes(plan: Plan) -> set[str]:
    return {one.node for one in plan.removals}


class TestRoom:
    def test_nodes_are_kept_for_pods_of_buffer(self) -> None:
        assert len(removed_nodes(make_plan(cluster()))) == 3
        assert len(removed_nodes(make_plan(cluster(buffer(2))))) == 3, "beside the pod"
        assert len(removed_nodes(make_plan(cluster(buffer(3))))) == 2
        assert len(removed_nodes(make_plan(cluster(buffer(7))))) == 1

    def test_blocker_names_buffer(self) -> None:
        plan = make_plan(cluster(buffer(3)))
        blockers = {one.node: one.blockers for one in plan.kept}
        messages = [(why.code, why.message) for all_ in blockers.values() for why in all_]
        assert ("buffer", "no room would be left for 1 pod of CapacityBuffer shop/b") in messages
        of_two = {
            why.message for one in make_plan(cluster(buffer(4))).kept for why in one.blockers
        }
        assert of_two == {"no room would be left for 2 pods of CapacityBuffer shop/b"}

    def test_no_room_is_kept_when_buffer_has_fault(self) -> None:
        plan = make_plan(
            cluster(
                replace(
                    buffer(4),
                    pod=None,
                    fault="the buffer names neither a PodTemplate nor a workload",
                )
            )
        )
        assert plan.buffers == (
            BufferRoom("shop/b", 4, 0, 0, "the buffer names neither a PodTemplate nor a workload"),
        )

    def test_blocker_names_pod_that_would_use_room_of_buffer(self) -> None:
        two = (pod("a", "n0", 2000, 100), pod("c", "n1", 2000, 100))
        plan = make_plan(cluster(buffer(2, 2000), nodes=NODES[:2], pods=two))
        blockers = [(why.code, why.pod) for one in plan.kept for why in one.blockers]
        assert ("buffer", "d/a") in blockers or ("buffer", "d/c") in blockers

    def test_no_room_is_kept_when_buffer_pods_do_not_fit_now(self) -> None:
        plan = make_plan(cluster(buffer(5, 5000)))
        assert len(removed_nodes(plan)) == 3
        assert plan.buffers == (BufferRoom("shop/b", 5, 1, 0, ""),)

    def test_buffer_does_not_count_as_load(self) -> None:
        assert make_plan(cluster(buffer(7))).before == make_plan(cluster()).before

    def test_buffer_pods_are_placed_only_on_admitted_nodes(self) -> None:
        green = replace(NODES[3], labels={"green": "true"})
        nodes = (*NODES[:3], green)
        plan = make_plan(cluster(buffer(1, node_constraints=GREEN), nodes=nodes))
        assert removed_nodes(plan) == {"n0", "n1", "n2"}, "n3 is kept for the buffer"
        behind = replace(green, taints=(Taint("own", "x", "NoSchedule"),))
        plan = make_plan(cluster(buffer(1, node_constraints=GREEN), nodes=(*NODES[:3], behind)))
        assert "n3" in removed_nodes(plan), "no pod of the buffer can run there"
        assert plan.buffers[0].allowed == 0

    def test_pending_pods_are_placed_before_buffer_pods(self) -> None:
        waits = pod("w", None, 3000, 100)
        full = pod("full", "n2", 4000, 100)
        plan = make_plan(cluster(buffer(2, 3000), nodes=NODES[:3], pods=(waits, full)))
        assert plan.buffers[0].allowed == 2
        assert [one.pod for one in plan.pending] == ["d/w"]
        assert plan.buffers[0].placed == 1

    def test_room_is_kept_for_device_that_no_pod_requests(self) -> None:
        owns = replace(NODES[1].allocatable, extended=(("gpu", 1),))
        nodes = (NODES[0], replace(NODES[1], allocatable=owns), *NODES[2:])
        wanted = buffer(1)
        assert wanted.pod is not None
        wants = replace(wanted.pod.requests, extended=(("gpu", 1),))
        plan = make_plan(
            cluster(replace(wanted, pod=replace(wanted.pod, requests=wants)), nodes=nodes)
        )
        assert removed_nodes(plan) == {"n0", "n2", "n3"}

    def test_no_room_is_kept_for_own_buffers(self) -> None:
        ours = replace(buffer(7), published=7, pod=None)
        assert make_plan(cluster(ours)) == make_plan(cluster())

    def test_marked_node_is_infeasible_when_buffer_needs_it(self) -> None:
        nodes = (NODES[0], marked(NODES[1], "PreferNoSchedule", 1))
        assert make_plan(cluster(nodes=nodes)).marked_infeasible == ()
        assert make_plan(cluster(buffer(3), nodes=nodes)).marked_infeasible == ("n1",)


class TestBounds:
    def test_room_for_all_buffers_is_half_of_nodes(self) -> None:
        (found,) = make_plan(cluster(buffer(2**31 - 1))).buffers
        assert (found.asked, found.placed) == (2**31 - 1, 8)

    @pytest.mark.parametrize(
        ("size", "kept"), [(Resources(1, 1, 6 * 10**9, 1), 3), (Resources(1, 1, 0, 1), 20)]
    )
    def test_room_is_limited_by_storage_and_pod_count(self, size: Resources, kept: int) -> None:
        whole = Resources(4000, 10**10, 10**10, 10)
        nodes = tuple(replace(one, allocatable=whole) for one in NODES)
        many = buffer(1000)
        like = replace(buffer(1000), pod=replace(many.pod or BUSY, requests=size))
        assert make_plan(cluster(like, nodes=nodes)).buffers[0].allowed == kept

    def test_namespaces_get_equal_shares(self) -> None:
        plan = make_plan(cluster(buffer(1000), buffer(1000, key="a/b"), buffer(1, key="z/b")))
        assert [one.allowed for one in plan.buffers] == [4, 3, 1]

    def test_namespace_gets_no_larger_share_when_it_has_many_buffers(self) -> None:
        many = [buffer(10, key=f"a/{number}") for number in range(20)]
        plan = make_plan(cluster(*many, buffer(10, key="z/b")))
        found = {one.buffer: one.allowed for one in plan.buffers}
        assert found["z/b"] == 4
        assert sum(found.values()) == 8

    @pytest.mark.parametrize("cpu", [7000, 9000, 10**9])
    def test_large_pod_does_not_reduce_share_of_another_namespace(self, cpu: int) -> None:
        plan = make_plan(cluster(buffer(1, cpu, key="a/large"), buffer(5, key="z/b")))
        assert {one.buffer: one.allowed for one in plan.buffers}["z/b"] == 5

    def test_one_pod_is_kept_when_it_exceeds_share(self) -> None:
        one = replace(NODES[0], name="big", allocatable=Resources(20_000, 10**12, 10**12, 110))
        large = [buffer(2, 19_000, key=f"{name}/large") for name in "ab"]
        plan = make_plan(cluster(*large, buffer(100, key="z/b"), nodes=(one, *NODES[:3])))
        assert [found.allowed for found in plan.buffers] == [1, 0, 16]

    def test_small_pool_is_not_kept_completely(self) -> None:
        green = tuple(replace(one, labels={"green": "true"}) for one in NODES[2:])
        plan = make_plan(cluster(buffer(100, node_constraints=GREEN), nodes=(*NODES[:2], *green)))
        assert plan.buffers[0].allowed == 4

    def test_number_of_buffers_is_bounded_fairly_between_namespaces(self) -> None:
        many = [buffer(1, 0, key=f"a/{number}") for number in range(BUFFERS_MAX + 10)]
        snapshot = ClusterSnapshot(cluster(*many, buffer(1, 0, key="z/b")), CONFIG)
        assert len(snapshot.buffer_rooms) == BUFFERS_MAX
        assert "z/b" in {one.buffer.key for one in snapshot.buffer_rooms}

    def test_pods_without_requests_are_bounded(self) -> None:
        found = ClusterSnapshot(
            cluster(buffer(2**31 - 1, 0), buffer(4, key="z/b")), CONFIG
        ).buffer_rooms
        assert sum(one.kept for one in found) <= PODS_MAX
        assert found[1].kept == 4

    @pytest.mark.parametrize(
        ("given", "share", "kept"),
        [
            ((buffer(9), buffer(9, key="shop/c")), "1/2", [4, 4]),
            ((buffer(9, key="a/b"), buffer(9, 2000, "z/b")), "5/16", [3, 1]),
            (
                (buffer(1, 4000, "a/b", GREEN), buffer(1, key="z/b", node_constraints=GREEN)),
                "1/2",
                [0, 1],
            ),
            ((buffer(2**31 - 1, 0),), "1", [PODS_MAX]),
        ],
        ids=[
            "one namespace",
            "two namespaces",
            "pod as large as the share",
            "pods without requests",
        ],
    )
    def test_next_pod_comes_from_namespace_with_least_room(
        self, given: Sequence[Buffer], share: str, kept: list[int]
    ) -> None:
        """The cluster has 16 cores; 8 of them are on green nodes."""
        whole, half = Resources(16_000, 10**12), Resources(8000, 10**12)

        def offered(node_constraints: NodeConstraints) -> Offered:
            return ((0, 1), half) if node_constraints == GREEN else ((0, 1, 2, 3), whole)

        found = requested_rooms(requesting_buffers(given), offered, whole, Fraction(share))
        assert [one.kept for one in found] == kept

    def test_nodes_are_evaluated_once_per_buffer(self) -> None:
        """Each evaluation looks at all nodes, which may be thousands."""
        evaluated: list[NodeConstraints] = []

        def offered(node_constraints: NodeConstraints) -> Offered:
            evaluated.append(node_constraints)
            return (0, 1), Resources(8000, 10**12)

        whole = Resources(16_000, 10**12)
        requested_rooms(
            requesting_buffers((buffer(9), buffer(9, key="shop/c"))), offered, whole, Fraction(1)
        )
        assert len(evaluated) == 2


class TestReserve:
    def test_empty_node_is_reserved_for_buffer_with_its_name(self) -> None:
        found = reconcile.reconcile(cluster(buffer(6)), CONFIG, LeaderState(), 10**9)
        nodes = [(one.node, one.why.message) for one in found.plan.reserve]
        assert nodes == [("n1", "the node is reserved for 4 pods: 4 of CapacityBuffer shop/b")]

    def test_no_node_is_reserved_when_nothing_is_expected(self) -> None:
        waits = pod("w", None, 3000, 100)
        found = reconcile.reconcile(cluster(pods=(BUSY, waits)), CONFIG, LeaderState(), 10**9)
        assert found.plan.reserve == ()

    def test_buffer_reserves_no_second_node_when_one_is_kept(self) -> None:
        """A full node and two empty ones: one empty node is removable, and may be removed."""
        full = pod("full", "n0", 4000, 100)
        there = cluster(buffer(1, 3000), nodes=NODES[:3], pods=(full,))
        (name,) = removed_nodes(reconcile.plan(there, CONFIG))
        nodes = [
            marked(one, "PreferNoSchedule", 10**9) if one.name == name else one
            for one in there.nodes
        ]
        found = reconcile.reconcile(
            replace(there, nodes=tuple(nodes)), CONFIG, LeaderState(), 10**9 + 60
        )
        (protected,) = found.plan.reserve
        assert protected.node != name
        assert removed_nodes(found.plan) == {name}
