"""The view of the cluster that the watches update."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.metrics import Metrics
from controller.view import WOKE_FOR_MAX, ClusterView
from core.cluster.read_options import READ_DEFAULTS
from core.cluster.volumes import Claim, CsiNode, Volume
from core.eligibility.emptiness import occupants
from core.eligibility.unplaceable import pod_blockers
from core.marks.mark import Mark
from core.marks.wellknown import (
    DO_NOT_DISRUPT_ANNOTATION,
    KARPENTER_LABEL,
    PROTECTION_ANNOTATION,
    SCALE_DOWN_DISABLED_ANNOTATION,
    TAINT_KEY,
)
from core.model.cluster import Cluster
from core.model.constraints import NO_DISRUPTION_FACTS, ClaimUse, Disk, DisruptionFacts
from core.model.node import Node, Taint
from core.model.node_lifecycle import DELETING_TAINTS
from core.model.now import Now
from core.model.pod import CLAIMS_FIELD, DAEMON_SET, REPLICA_SET, Pod
from core.model.resources import Resources
from core.moves.listed import ListedDeployment
from kube.cluster_kinds import CLUSTER_KINDS, SURGE_KINDS
from kube.decode.kinds import (
    BUDGETS,
    CLAIMS,
    CSI_NODES,
    DEPLOYMENTS,
    NODES,
    PODS,
    VOLUMES,
    AnyKind,
    Kind,
)
from kube.freshness import WatchSink
from runtime.clock import Clock
from tests.support.builders import marked, node
from tests.support.surge import deployment, detached
from tests.support.surge import make_pod as owned_pod

pytestmark = pytest.mark.mutate


class Ticking(Clock):
    def __init__(self) -> None:
        self.now = 100.0

    def unix_seconds(self) -> int:
        return int(self.now)

    def monotonic_seconds(self) -> float:
        return self.now


class WatchedView:
    def __init__(self) -> None:
        self.clock = Ticking()
        self.view = ClusterView()
        self.metrics = Metrics()
        self.feeds = {
            kind: WatchSink(self.view, kind, self.view.freshness, self.clock, self.metrics)
            for kind in CLUSTER_KINDS
        }
        self.nodes, self.pods = self.feeds[NODES], self.feeds[PODS]

    def everything(self) -> Iterable[WatchSink]:
        return self.feeds.values()


def make_node(name: str) -> Node:
    return Node(name=name, allocatable=Resources())


def make_pod(name: str, node: str | None = None) -> Pod:
    return Pod(namespace="a", name=name, node=node)


def test_snapshot_is_sorted_and_immutable() -> None:
    watched = WatchedView()
    watched.nodes.replaced([make_node("b"), make_node("a")])
    watched.pods.replaced([make_pod("q"), make_pod("p")])
    before = watched.view.snapshot(READ_DEFAULTS)()
    watched.nodes.deleted("a")
    watched.pods.changed(make_pod("p", "b"))
    assert [node.name for node in before.nodes] == ["a", "b"]
    assert [pod.node for pod in before.pods] == [None, None]
    after = watched.view.snapshot(READ_DEFAULTS)()
    assert [node.name for node in after.nodes] == ["b"]
    assert [(pod.key, pod.node) for pod in after.pods] == [("a/p", "b"), ("a/q", None)]


@pytest.mark.parametrize(
    ("arrives", "urgent"),
    [
        ({}, True),
        ({"priority": -10}, True),
        ({"priority": -11}, False),
        ({"daemon": True}, False),
        ({"mirror": True}, False),
    ],
    ids=str,
)
def test_pod_on_node_whose_scale_down_is_allowed_is_urgent_when_it_occupies_node(
    arrives: dict[str, Any], urgent: bool
) -> None:
    watched = WatchedView()
    watched.nodes.replaced(
        [marked(make_node("n"), Mark.PREFER_NO_SCHEDULE, 1), make_node("other")]
    )
    watched.pods.changed(make_pod("elsewhere", "other"))
    assert not watched.view.wake.is_set()
    watched.pods.changed(replace(make_pod("p", "n"), **arrives))
    assert watched.view.wake.is_set() is urgent


LASTING = DisruptionFacts(notes=((DO_NOT_DISRUPT_ANNOTATION, "true"),))
FOR_A_MINUTE = DisruptionFacts(notes=((DO_NOT_DISRUPT_ANNOTATION, "1m"),), started_seconds=100)
DAEMONS: dict[str, Any] = {"daemon": True, "owner_kind": DAEMON_SET}


@pytest.mark.parametrize(
    ("arrives", "occupies"),
    [
        ({}, True),
        ({"priority": -11}, True),
        ({"priority": -11, "terminating": True}, False),
        ({"daemon": True}, True),
        (DAEMONS, False),
        (DAEMONS | {"disruption_facts": LASTING}, True),
        (DAEMONS | {"disruption_facts": FOR_A_MINUTE}, True),
        ({"mirror": True}, False),
        ({"mirror": True, "disruption_facts": LASTING}, True),
    ],
    ids=str,
)
def test_karpenter_node_is_occupied_by_pods_that_karpenter_counts(
    arrives: dict[str, Any], occupies: bool
) -> None:
    """A pod that arrived after the snapshot keeps the protection, or is urgent."""
    watched, released = WatchedView(), marked(make_node("n"), Mark.PREFER_NO_SCHEDULE, 1)
    watched.view.snapshot_at = 159
    watched.nodes.replaced([replace(released, labels={**released.labels, KARPENTER_LABEL: "p"})])
    watched.pods.changed(replace(make_pod("p", "n"), **arrives))
    assert watched.view.occupied("n") is occupies
    assert watched.view.wake.is_set() is occupies
    watched.pods.deleted("a/p")
    assert not watched.view.occupied("n")


def test_expired_do_not_disrupt_does_not_occupy_node() -> None:
    """Otherwise the node would never be removed."""
    watched = WatchedView()
    watched.nodes.replaced([node("n", labels={KARPENTER_LABEL: "p"})])
    watched.pods.changed(replace(make_pod("p", "n"), **DAEMONS, disruption_facts=FOR_A_MINUTE))
    for looked_at, occupied in ((None, True), (159, True), (160, False)):
        watched.view.snapshot_at = looked_at
        assert watched.view.occupied("n") is occupied


def test_pod_on_node_with_foreign_protection_is_not_urgent() -> None:
    watched = WatchedView()
    node = marked(make_node("n"), Mark.PREFER_NO_SCHEDULE, 1)
    kept = {**node.annotations, SCALE_DOWN_DISABLED_ANNOTATION: "true"}
    watched.nodes.replaced([replace(node, annotations=kept)])
    watched.pods.changed(make_pod("p", "n"))
    assert not watched.view.wake.is_set()


DELETED: list[dict[str, Any]] = [
    {"deleting": True},
    *({"taints": (Taint(key, "1", "NoSchedule"),)} for key in sorted(DELETING_TAINTS)),
]


@pytest.mark.parametrize("leaving", DELETED, ids=str)
def test_pod_on_node_that_is_being_deleted_is_not_urgent(leaving: dict[str, Any]) -> None:
    """Nothing is written there, and a tenant can bind any number of pods to it."""
    watched = WatchedView()
    watched.nodes.replaced(
        [replace(marked(make_node("n"), Mark.PREFER_NO_SCHEDULE, 1), **leaving)]
    )
    watched.pods.changed(make_pod("p", "n"))
    assert not watched.view.wake.is_set()


PROTECTION = {SCALE_DOWN_DISABLED_ANNOTATION: "true", PROTECTION_ANNOTATION: "marked"}
RELEASED = marked(make_node("n"), Mark.PREFER_NO_SCHEDULE, 1)
PROTECTED = replace(RELEASED, annotations={**RELEASED.annotations, **PROTECTION})


@pytest.mark.parametrize(
    ("there", "urgent"),
    [
        ([make_pod("p", "n")], True),
        ([make_pod("p", "n"), make_pod("p", "other")], False),
        ([replace(make_pod("p", "n"), daemon=True)], False),
        ([], False),
    ],
)
@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize(
    "before", [PROTECTED, *(replace(RELEASED, **leaving) for leaving in DELETED)]
)
def test_node_is_urgent_when_its_scale_down_becomes_allowed_with_pod(
    before: Node, listed: bool, there: Sequence[Pod], urgent: bool
) -> None:
    """The pod arrived while the protection was removed, or the autoscaler kept the node."""
    watched = WatchedView()
    watched.nodes.replaced([before])
    for one in there:
        watched.pods.changed(one)
    assert not watched.view.wake.is_set()
    if listed:
        watched.nodes.replaced([RELEASED])
    else:
        watched.nodes.changed(RELEASED)
    assert watched.view.wake.is_set() is urgent
    watched.view.wake.clear()
    watched.nodes.changed(replace(RELEASED, version="2"))
    assert not watched.view.wake.is_set(), (
        "only when its scale-down becomes allowed, not while it is"
    )


def test_node_change_by_kubelet_is_urgent_once_per_idle_period() -> None:
    """Otherwise a kubelet could remove the protection repeatedly and delay all other work."""
    watched = WatchedView()
    watched.nodes.replaced([PROTECTED])
    watched.pods.changed(make_pod("p", "n"))
    for is_idle, urgent in ((False, True), (False, False), (True, True), (False, False)):
        if is_idle:
            watched.view.idle_reconciliation_started()
        watched.nodes.changed(RELEASED)
        assert watched.view.wake.is_set() is urgent
        watched.view.wake.clear()
        watched.nodes.changed(PROTECTED)
    watched.nodes.changed(RELEASED)
    watched.pods.changed(make_pod("q", "n"))
    assert watched.view.wake.is_set(), "a new pod does not come from the kubelet"


def test_pod_whose_phase_flaps_is_urgent_once_per_idle_period() -> None:
    """A kubelet writes the phase of a pod, but cannot create a pod with another uid."""
    watched, one = WatchedView(), replace(make_pod("p", "n"), uid="u")
    watched.nodes.replaced([RELEASED])
    for is_idle, arriving, urgent in (
        (False, one, True),
        (False, one, False),
        (False, replace(one, uid="v"), True),
        (True, one, True),
    ):
        if is_idle:
            watched.view.idle_reconciliation_started()
        watched.pods.changed(arriving)
        assert watched.view.wake.is_set() is urgent
        watched.view.wake.clear()
        watched.pods.deleted("a/p")


def test_number_of_urgent_pods_is_bounded_per_idle_period() -> None:
    watched, hurried = WatchedView(), 0
    watched.nodes.replaced([RELEASED])
    for number in range(WOKE_FOR_MAX + 9):
        watched.pods.changed(replace(make_pod("p", "n"), uid=str(number)))
        watched.pods.deleted("a/p")
        hurried += watched.view.wake.is_set()
        watched.view.wake.clear()
    assert hurried == WOKE_FOR_MAX


PLACED = st.builds(
    lambda sort, **rest: Pod(namespace="a", **sort, **rest),
    st.sampled_from([{}, {"daemon": True}, DAEMONS, {"mirror": True}]),
    name=st.sampled_from("pqr"),
    node=st.sampled_from([None, "n", "m"]),
    priority=st.sampled_from([0, -11]),
    disruption_facts=st.sampled_from([NO_DISRUPTION_FACTS, LASTING, FOR_A_MINUTE]),
    terminating=st.booleans(),
)
THERE = (make_node("m"), node("n", labels={KARPENTER_LABEL: "p"}))


@given(st.lists(PLACED | st.lists(PLACED) | st.sampled_from(["a/p", "a/q"])))
def test_occupied_nodes_agree_with_walk_over_all_pods(
    events: list[Pod | list[Pod] | str],
) -> None:
    view = ClusterView()
    view.replaced(NODES, THERE)
    view.snapshot_at = 160
    for one in events:
        if isinstance(one, Pod):
            view.changed(PODS, one)
        elif isinstance(one, list):
            view.replaced(PODS, one)
        else:
            view.deleted(PODS, one)
        stays = [p for p in view.pods.values() if not p.terminating]
        walk = occupants(Cluster.of(THERE, stays), Now(160))
        assert [name for name in ("m", "n", "x") if view.occupied(name)] == sorted(walk)
    view.replaced(PODS, [])
    assert not view._occupants, "deleted pods leave nothing behind"
    assert not view._karpenter_occupants, "nor do pods that only Karpenter counts"


def test_new_list_removes_missing_objects() -> None:
    watched = WatchedView()
    watched.pods.replaced([make_pod("p")])
    watched.pods.replaced([make_pod("q")])
    watched.pods.deleted("a/never-seen")
    assert list(watched.view.pods) == ["a/q"]


@pytest.mark.parametrize(
    ("listed", "later", "reason"),
    [
        ([], 0, "nodes have not been listed yet"),
        ([NODES], 0, "pods have not been listed yet"),
        ([NODES, PODS], 0, "poddisruptionbudgets have not been listed yet"),
        ([NODES, PODS, BUDGETS], 0, "persistentvolumeclaims have not been listed yet"),
        (CLUSTER_KINDS[:-1], 0, f"{CLUSTER_KINDS[-1].resource} have not been listed yet"),
        (CLUSTER_KINDS, 180, None),
        (CLUSTER_KINDS, 181, "the watch of nodes has sent nothing for 181 s"),
    ],
)
def test_view_is_stale_when_kind_is_unlisted_or_silent(
    listed: Sequence[Kind[Any, Any]], later: float, reason: str | None
) -> None:
    watched = WatchedView()
    for kind in listed:
        watched.feeds[kind].alive()
    assert watched.view.freshness.why_stale(watched.clock.now + later, 180) == reason


def test_unreadable_object_does_not_make_view_stale_and_is_counted() -> None:
    watched = WatchedView()
    for feed in watched.everything():
        feed.alive()
    gauge = 'ebb_unreadable_objects{resource="pods"} '
    odd = replace(make_pod("p", "n"), unreadable="spec: bad")
    for break_ in (
        partial(watched.pods.changed, odd),
        partial(watched.pods.refused, "a/p", "spec: bad"),
    ):
        for mend in (
            partial(watched.pods.changed, make_pod("p", "n")),
            partial(watched.pods.deleted, "a/p"),
            partial(watched.pods.replaced, []),
        ):
            break_()
            assert watched.view.freshness.why_stale(watched.clock.now, 180) is None
            assert gauge + "1.0" in watched.metrics.text().decode()
            mend()
            assert gauge + "0.0" in watched.metrics.text().decode()


def test_snapshot_contains_unreadable_objects() -> None:
    watched = WatchedView()
    watched.nodes.replaced([replace(make_node("n"), unreadable="status: bad")])
    watched.pods.replaced([replace(make_pod("p", "n"), unreadable="spec: bad")])
    watched.pods.replaced([replace(make_pod("p", "n"), unreadable="spec: bad")])
    found = watched.view.snapshot(READ_DEFAULTS)()
    assert (found.nodes[0].unreadable, found.pods[0].unreadable) == ("status: bad", "spec: bad")
    assert 'ebb_decode_errors_total{resource="pods"} 1.0' in watched.metrics.text().decode()


def test_view_is_stale_when_watch_was_interrupted() -> None:
    watched = WatchedView()
    for feed in watched.everything():
        feed.alive()
    watched.pods.restarted("error")
    why = watched.view.freshness.why_stale(watched.clock.now, 180)
    assert why == "the watch of pods was interrupted and has not caught up yet"
    watched.pods.alive()
    assert watched.view.freshness.why_stale(watched.clock.now, 180) is None


def test_refused_object_and_watch_restart_are_counted() -> None:
    watched = WatchedView()
    watched.pods.refused("a/p", "a/p: spec: bad")
    watched.pods.restarted("expired")
    text = watched.metrics.text().decode()
    assert 'ebb_decode_errors_total{resource="pods"} 1.0' in text
    assert 'ebb_watch_restarts_total{reason="expired",resource="pods"} 1.0' in text


def test_pod_is_movable_when_its_claims_are_known() -> None:
    """In any order of watch events; a deleted claim blocks the pod again."""
    watched = WatchedView()
    watched.nodes.changed(make_node("n"))
    disruption_facts = DisruptionFacts(claims=(ClaimUse("c"),))
    watched.pods.changed(
        Pod(
            namespace="a", name="p", disruption_facts=disruption_facts, unsupported=(CLAIMS_FIELD,)
        )
    )

    def blocked() -> bool:
        return bool(pod_blockers(watched.view.snapshot(READ_DEFAULTS)().pods[0]))

    assert blocked()
    watched.feeds[CSI_NODES].replaced([CsiNode(name="n", limits={"ebs": 3})])
    watched.feeds[CLAIMS].changed(
        Claim(namespace="a", name="c", volume="v", modes=("ReadWriteMany",))
    )
    assert blocked()
    watched.feeds[VOLUMES].changed(Volume(name="v", disk=Disk("ebs", "1")))
    assert not blocked()
    assert watched.view.snapshot(READ_DEFAULTS)().attach_limits == {"n": {"ebs": 3}}
    watched.feeds[CLAIMS].deleted("a/c")
    assert blocked()


def test_unschedulable_pod_is_evaluated_as_in_reconciliation() -> None:
    """A device that no node offers may come from a DeviceClass; a NoSchedule mark may block it."""
    requests = Resources(pods=1, extended=(("example.com/gpu", 1),))
    watched = WatchedView()
    watched.nodes.replaced([marked(node("n"), Mark.NO_SCHEDULE, 1)])
    watched.pods.changed(replace(make_pod("p"), requests=requests, unschedulable=True))
    assert watched.view.unschedulable_check(TAINT_KEY, READ_DEFAULTS)()


def test_deleted_pod_is_not_urgent() -> None:
    watched = WatchedView()
    watched.nodes.replaced([node("n")])
    watched.pods.changed(replace(make_pod("p"), unschedulable=True))
    watched.pods.deleted("a/p")
    assert not watched.view.unschedulable_check(TAINT_KEY, READ_DEFAULTS)()


def test_unreadable_volume_does_not_make_view_stale() -> None:
    watched = WatchedView()
    for feed in watched.everything():
        feed.alive()
    watched.feeds[VOLUMES].changed(Volume(name="v"))
    watched.feeds[VOLUMES].refused("v", "spec: bad")
    assert watched.view.freshness.why_stale(watched.clock.now, 180) is None
    assert watched.view.of(VOLUMES) == {}


OWNERS = st.sampled_from(
    [("ReplicaSet", "web-1"), ("ReplicaSet", "db-1"), ("StatefulSet", "web-1"), ("", "")]
)
POD_EVENTS = st.one_of(
    st.tuples(st.just("add"), st.sampled_from("abcd"), OWNERS, st.booleans()),
    st.tuples(st.just("delete"), st.sampled_from("abcd"), st.none(), st.none()),
    st.tuples(st.just("relist"), st.just(""), st.none(), st.none()),
)


def stored_pod(name: str, owner: tuple[str, str], *, away: bool) -> Pod:
    found = replace(owned_pod(name), owner_kind=owner[0], owner_name=owner[1])
    return detached(found) if away else found


@given(st.lists(POD_EVENTS, max_size=20))
def test_pods_beside_detached_ones_are_those_of_a_search_of_all_pods(
    events: list[tuple[str, str, Any, Any]],
) -> None:
    """The mover is woken whenever they change."""
    view = ClusterView()
    before: dict[str, list[Pod]] = {}
    for event, name, owner, away in events:
        view.surge_changed.clear()
        if event == "add":
            view.changed(PODS, stored_pod(name, owner, away=away))
        elif event == "delete":
            view.deleted(PODS, f"d/{name}")
        else:
            view.replaced(PODS, list(view.pods.values()))
        expected = {
            key: sorted(
                (
                    one
                    for one in view.pods.values()
                    if one.owner_kind == pod.owner_kind == REPLICA_SET
                    and one.owner_name == pod.owner_name
                ),
                key=lambda one: one.name,
            )
            for key, pod in view.pods.items()
            if pod.detached
        }
        assert view.detached.keys() == expected.keys()
        for key, pod in view.detached.items():
            beside = sorted(view.pods_beside(pod), key=lambda one: one.name)
            assert beside == expected[key]
        assert view.surge_changed.is_set() or expected == before
        before = expected


AWAY = detached(owned_pod("old"))


@pytest.mark.parametrize(
    ("change", "wakes"),
    [
        pytest.param(owned_pod("new", "n"), True, id="new pod"),
        pytest.param(owned_pod("new", "n", of="db-1"), False, id="pod of another ReplicaSet"),
        pytest.param(owned_pod("old"), True, id="given back"),
        pytest.param(replace(AWAY, ready_seconds=7), True, id="detached pod changes"),
    ],
)
def test_mover_is_woken_by_changes_of_pods_of_a_move(change: Pod, *, wakes: bool) -> None:
    view = ClusterView()
    view.changed(PODS, AWAY)
    view.pods_beside(AWAY)
    view.surge_changed.clear()
    view.changed(PODS, change)
    assert view.surge_changed.is_set() is wakes


def test_mover_is_woken_when_new_pod_becomes_ready() -> None:
    """Readiness is not compared, and the time of it matters too."""
    view = ClusterView()
    new = owned_pod("new", "n", ready=False)
    for pod in (AWAY, new):
        view.changed(PODS, pod)
    for seconds in (5, 6):
        view.pods_beside(AWAY)
        view.surge_changed.clear()
        view.changed(PODS, replace(new, ready=True, ready_seconds=seconds))
        assert view.surge_changed.is_set()
        beside = {pod.name: pod.ready_seconds for pod in view.pods_beside(AWAY)}
        assert beside["new"] == seconds


@pytest.mark.parametrize(
    ("kind", "name", "wakes"),
    [
        (DEPLOYMENTS, "web", True),
        (DEPLOYMENTS, "db", False),
        (NODES, "m", True),
        (NODES, "n", False),
    ],
)
def test_mover_is_woken_by_deployment_and_node_of_a_move(
    kind: AnyKind, name: str, *, wakes: bool
) -> None:
    view = ClusterView()
    view.changed(PODS, AWAY)
    view.moving_deployments = frozenset({"d/web"})
    view.surge_changed.clear()
    if kind is NODES:
        view.changed(NODES, node(name))
    else:
        view.changed(DEPLOYMENTS, ListedDeployment(observed=deployment(name)))
    assert view.surge_changed.is_set() is wakes


@pytest.mark.parametrize("kind", [PODS, *SURGE_KINDS], ids=lambda kind: kind.name)
def test_mover_is_woken_by_a_new_list(kind: AnyKind) -> None:
    view = ClusterView()
    view.replaced(kind, [])
    assert view.surge_changed.is_set()
