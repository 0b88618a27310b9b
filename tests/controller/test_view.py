"""The cluster as the watches tell it."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.metrics import Metrics
from controller.view import HURRIED_MAX, ClusterView
from core.edge.clock import Clock
from core.edge.decode.kinds import (
    BUDGETS,
    CLAIMS,
    CSI_NODES,
    KINDS,
    NODES,
    PODS,
    VOLUMES,
    Kind,
)
from core.edge.kube.freshness import WatchSink
from core.guards.emptiness import occupants
from core.guards.unplaceable import pod_blockers
from core.marks.mark import Mark
from core.marks.wellknown import (
    GUARD_ANNOTATION,
    GUARD_OURS_ANNOTATION,
    KARPENTER_KEEP_ANNOTATION,
    KARPENTER_LABEL,
    TAINT_KEY,
)
from core.model.cluster import Cluster
from core.model.constraints import NO_DISRUPTION_FACTS, ClaimUse, Disk, DisruptionFacts
from core.model.node import Node, Taint
from core.model.node_lifecycle import DELETING_TAINTS
from core.model.now import Now
from core.model.pod import Pod
from core.model.read_options import READ_DEFAULTS
from core.model.resources import Resources
from core.model.volumes import CLAIMS_FIELD, Claim, CsiNode, Volume
from core.model.workload import DAEMON_SET
from tests.support.builders import marked, node

pytestmark = pytest.mark.mutate


class Ticking(Clock):
    def __init__(self) -> None:
        self.now = 100.0

    def unix_seconds(self) -> int:
        return int(self.now)

    def monotonic_seconds(self) -> float:
        return self.now


class Fed:
    def __init__(self) -> None:
        self.clock = Ticking()
        self.view = ClusterView()
        self.metrics = Metrics()
        self.feeds = {
            kind: WatchSink(self.view, kind, self.view.news, self.clock, self.metrics)
            for kind in KINDS
        }
        self.nodes, self.pods = self.feeds[NODES], self.feeds[PODS]

    def everything(self) -> Iterable[WatchSink]:
        return self.feeds.values()


def a_node(name: str) -> Node:
    return Node(name=name, allocatable=Resources())


def a_pod(name: str, node: str | None = None) -> Pod:
    return Pod(namespace="a", name=name, node=node)


def test_a_snapshot_is_sorted_and_does_not_change_afterwards() -> None:
    fed = Fed()
    fed.nodes.replaced([a_node("b"), a_node("a")])
    fed.pods.replaced([a_pod("q"), a_pod("p")])
    before = fed.view.snapshot(READ_DEFAULTS)()
    fed.nodes.deleted("a")
    fed.pods.changed(a_pod("p", "b"))
    assert [node.name for node in before.nodes] == ["a", "b"]
    assert [pod.node for pod in before.pods] == [None, None]
    after = fed.view.snapshot(READ_DEFAULTS)()
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
def test_what_occupies_a_node_that_was_handed_over_cannot_wait(
    arrives: dict[str, Any], urgent: bool
) -> None:
    fed = Fed()
    fed.nodes.replaced([marked(a_node("n"), Mark.SOFT, 1), a_node("other")])
    fed.pods.changed(a_pod("elsewhere", "other"))
    assert not fed.view.urgent.is_set()
    fed.pods.changed(replace(a_pod("p", "n"), **arrives))
    assert fed.view.urgent.is_set() is urgent


LASTING = DisruptionFacts(notes=((KARPENTER_KEEP_ANNOTATION, "true"),))
FOR_A_MINUTE = DisruptionFacts(notes=((KARPENTER_KEEP_ANNOTATION, "1m"),), started_seconds=100)
DAEMONS: dict[str, Any] = {"daemon": True, "owner_kind": DAEMON_SET}


@pytest.mark.parametrize(
    ("arrives", "occupies"),
    [
        ({}, True),
        ({"priority": -11}, True),
        ({"priority": -11, "terminating": True}, False),
        ({"daemon": True}, True),
        (DAEMONS, False),
        (DAEMONS | {"ties": LASTING}, True),
        (DAEMONS | {"ties": FOR_A_MINUTE}, True),
        ({"mirror": True}, False),
        ({"mirror": True, "ties": LASTING}, True),
    ],
    ids=str,
)
def test_a_node_of_karpenters_is_occupied_by_what_it_counts(
    arrives: dict[str, Any], occupies: bool
) -> None:
    """A pod that came after the look keeps the guard, or has it put back at once."""
    fed, handed_over = Fed(), marked(a_node("n"), Mark.SOFT, 1)
    fed.view.looked_at = 159
    fed.nodes.replaced([replace(handed_over, labels={**handed_over.labels, KARPENTER_LABEL: "p"})])
    fed.pods.changed(replace(a_pod("p", "n"), **arrives))
    assert fed.view.occupied("n") is occupies
    assert fed.view.urgent.is_set() is occupies
    fed.pods.deleted("a/p")
    assert not fed.view.occupied("n")


def test_who_asked_for_a_time_that_was_over_at_the_look_keeps_nobody() -> None:
    """Or his node would never be handed over."""
    fed = Fed()
    fed.nodes.replaced([node("n", labels={KARPENTER_LABEL: "p"})])
    fed.pods.changed(replace(a_pod("p", "n"), **DAEMONS, ties=FOR_A_MINUTE))
    for looked_at, occupied in ((None, True), (159, True), (160, False)):
        fed.view.looked_at = looked_at
        assert fed.view.occupied("n") is occupied


def test_a_marked_node_that_somebody_else_keeps_was_not_handed_over() -> None:
    fed = Fed()
    node = marked(a_node("n"), Mark.SOFT, 1)
    kept = {**node.annotations, GUARD_ANNOTATION: "true"}
    fed.nodes.replaced([replace(node, annotations=kept)])
    fed.pods.changed(a_pod("p", "n"))
    assert not fed.view.urgent.is_set()


DELETED: list[dict[str, Any]] = [
    {"deleting": True},
    *({"taints": (Taint(key, "1", "NoSchedule"),)} for key in sorted(DELETING_TAINTS)),
]


@pytest.mark.parametrize("leaves", DELETED, ids=str)
def test_pods_on_a_node_that_is_being_deleted_hurry_nobody(leaves: dict[str, Any]) -> None:
    """Nothing is written there; and whoever may create pods can bind one after the other to it."""
    fed = Fed()
    fed.nodes.replaced([replace(marked(a_node("n"), Mark.SOFT, 1), **leaves)])
    fed.pods.changed(a_pod("p", "n"))
    assert not fed.view.urgent.is_set()


GUARDED = {GUARD_ANNOTATION: "true", GUARD_OURS_ANNOTATION: "marked"}
HANDED_OVER = marked(a_node("n"), Mark.SOFT, 1)
KEPT = replace(HANDED_OVER, annotations={**HANDED_OVER.annotations, **GUARDED})


@pytest.mark.parametrize(
    ("there", "urgent"),
    [
        ([a_pod("p", "n")], True),
        ([a_pod("p", "n"), a_pod("p", "other")], False),
        ([replace(a_pod("p", "n"), daemon=True)], False),
        ([], False),
    ],
)
@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("before", [KEPT, *(replace(HANDED_OVER, **leaves) for leaves in DELETED)])
def test_a_node_that_turns_out_handed_over_with_a_pod_on_it_cannot_wait(
    before: Node, listed: bool, there: Sequence[Pod], urgent: bool
) -> None:
    """The pod came while the guard was being lifted, or before the autoscaler gave the node up."""
    fed = Fed()
    fed.nodes.replaced([before])
    for one in there:
        fed.pods.changed(one)
    assert not fed.view.urgent.is_set()
    if listed:
        fed.nodes.replaced([HANDED_OVER])
    else:
        fed.nodes.changed(HANDED_OVER)
    assert fed.view.urgent.is_set() is urgent
    fed.view.urgent.clear()
    fed.nodes.changed(replace(HANDED_OVER, version="2"))
    assert not fed.view.urgent.is_set(), "each time it turns, and not as long as it is so"


def test_what_a_kubelet_writes_hurries_nobody_twice_until_the_engine_has_rested() -> None:
    """Or one that takes the guard off its node, again and again, would have all others wait."""
    fed = Fed()
    fed.nodes.replaced([KEPT])
    fed.pods.changed(a_pod("p", "n"))
    for rested, urgent in ((False, True), (False, False), (True, True), (False, False)):
        if rested:
            fed.view.rested()
        fed.nodes.changed(HANDED_OVER)
        assert fed.view.urgent.is_set() is urgent
        fed.view.urgent.clear()
        fed.nodes.changed(KEPT)
    fed.nodes.changed(HANDED_OVER)
    fed.pods.changed(a_pod("q", "n"))
    assert fed.view.urgent.is_set(), "a pod that comes is another's word"


def test_a_pod_that_ends_and_does_not_hurries_nobody_twice_until_the_engine_has_rested() -> None:
    """Its kubelet writes its phase; it cannot make a pod with another uid."""
    fed, one = Fed(), replace(a_pod("p", "n"), uid="u")
    fed.nodes.replaced([HANDED_OVER])
    for rested, came, urgent in (
        (False, one, True),
        (False, one, False),
        (False, replace(one, uid="v"), True),
        (True, one, True),
    ):
        if rested:
            fed.view.rested()
        fed.pods.changed(came)
        assert fed.view.urgent.is_set() is urgent
        fed.view.urgent.clear()
        fed.pods.deleted("a/p")


def test_who_may_have_pods_come_and_go_hurries_the_engine_so_often_and_no_more() -> None:
    fed, hurried = Fed(), 0
    fed.nodes.replaced([HANDED_OVER])
    for number in range(HURRIED_MAX + 9):
        fed.pods.changed(replace(a_pod("p", "n"), uid=str(number)))
        fed.pods.deleted("a/p")
        hurried += fed.view.urgent.is_set()
        fed.view.urgent.clear()
    assert hurried == HURRIED_MAX


PLACED = st.builds(
    lambda sort, **rest: Pod(namespace="a", **sort, **rest),
    st.sampled_from([{}, {"daemon": True}, DAEMONS, {"mirror": True}]),
    name=st.sampled_from("pqr"),
    node=st.sampled_from([None, "n", "m"]),
    priority=st.sampled_from([0, -11]),
    ties=st.sampled_from([NO_DISRUPTION_FACTS, LASTING, FOR_A_MINUTE]),
    terminating=st.booleans(),
)
THERE = (a_node("m"), node("n", labels={KARPENTER_LABEL: "p"}))


@given(st.lists(PLACED | st.lists(PLACED) | st.sampled_from(["a/p", "a/q"])))
def test_who_occupies_a_node_is_what_a_walk_over_all_pods_finds(
    happens: list[Pod | list[Pod] | str],
) -> None:
    view = ClusterView()
    view.replaced(NODES, THERE)
    view.looked_at = 160
    for one in happens:
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
    assert not view._occupants, "what has gone leaves nothing behind"
    assert not view._others, "nor do those that Karpenter alone counts"


def test_a_new_list_forgets_what_is_not_in_it() -> None:
    fed = Fed()
    fed.pods.replaced([a_pod("p")])
    fed.pods.replaced([a_pod("q")])
    fed.pods.deleted("a/never-seen")
    assert list(fed.view.pods) == ["a/q"]


@pytest.mark.parametrize(
    ("heard", "later", "reason"),
    [
        ([], 0, "nodes have not been listed yet"),
        ([NODES], 0, "pods have not been listed yet"),
        ([NODES, PODS], 0, "poddisruptionbudgets have not been listed yet"),
        ([NODES, PODS, BUDGETS], 0, "persistentvolumeclaims have not been listed yet"),
        (KINDS[:-1], 0, f"{KINDS[-1].resource} have not been listed yet"),
        (KINDS, 180, None),
        (KINDS, 181, "the watch of nodes has sent nothing for 181 s"),
    ],
)
def test_a_view_without_news_is_not_to_be_decided_on(
    heard: Sequence[Kind[Any, Any]], later: float, reason: str | None
) -> None:
    fed = Fed()
    for kind in heard:
        fed.feeds[kind].alive()
    assert fed.view.news.why_stale(fed.clock.now + later, 180) == reason


def test_what_cannot_be_read_stops_no_decision_and_is_counted_as_long_as_it_lasts() -> None:
    fed = Fed()
    for feed in fed.everything():
        feed.alive()
    gauge = 'ebb_unreadable_objects{resource="pods"} '
    odd = replace(a_pod("p", "n"), unreadable="spec: bad")
    for break_ in (partial(fed.pods.changed, odd), partial(fed.pods.refused, "a/p", "spec: bad")):
        for mend in (
            partial(fed.pods.changed, a_pod("p", "n")),
            partial(fed.pods.deleted, "a/p"),
            partial(fed.pods.replaced, []),
        ):
            break_()
            assert fed.view.news.why_stale(fed.clock.now, 180) is None
            assert gauge + "1.0" in fed.metrics.text().decode()
            mend()
            assert gauge + "0.0" in fed.metrics.text().decode()


def test_what_cannot_be_read_stands_in_the_snapshot() -> None:
    fed = Fed()
    fed.nodes.replaced([replace(a_node("n"), unreadable="status: bad")])
    fed.pods.replaced([replace(a_pod("p", "n"), unreadable="spec: bad")])
    fed.pods.replaced([replace(a_pod("p", "n"), unreadable="spec: bad")])
    found = fed.view.snapshot(READ_DEFAULTS)()
    assert (found.nodes[0].unreadable, found.pods[0].unreadable) == ("status: bad", "spec: bad")
    assert 'ebb_refused_objects_total{resource="pods"} 1.0' in fed.metrics.text().decode()


def test_a_watch_that_broke_off_must_tell_something_first() -> None:
    fed = Fed()
    for feed in fed.everything():
        feed.alive()
    fed.pods.restarted("error")
    why = fed.view.news.why_stale(fed.clock.now, 180)
    assert why == "the watch of pods was interrupted and has not caught up yet"
    fed.pods.alive()
    assert fed.view.news.why_stale(fed.clock.now, 180) is None


def test_what_cannot_be_read_is_counted() -> None:
    fed = Fed()
    fed.pods.refused("a/p", "a/p: spec: bad")
    fed.pods.restarted("expired")
    text = fed.metrics.text().decode()
    assert 'ebb_refused_objects_total{resource="pods"} 1.0' in text
    assert 'ebb_watch_restarts_total{reason="expired",resource="pods"} 1.0' in text


def test_pods_are_movable_once_what_they_claim_is_known() -> None:
    """In whatever order the watches tell it; what is forgotten again blocks again."""
    fed = Fed()
    fed.nodes.changed(a_node("n"))
    ties = DisruptionFacts(claims=(ClaimUse("c"),))
    fed.pods.changed(Pod(namespace="a", name="p", ties=ties, unsupported=(CLAIMS_FIELD,)))

    def blocked() -> bool:
        return bool(pod_blockers(fed.view.snapshot(READ_DEFAULTS)().pods[0]))

    assert blocked()
    fed.feeds[CSI_NODES].replaced([CsiNode(name="n", limits={"ebs": 3})])
    fed.feeds[CLAIMS].changed(Claim(namespace="a", name="c", volume="v", modes=("ReadWriteMany",)))
    assert blocked()
    fed.feeds[VOLUMES].changed(Volume(name="v", disk=Disk("ebs", "1")))
    assert not blocked()
    assert fed.view.snapshot(READ_DEFAULTS)().attach_limits == {"n": {"ebs": 3}}
    fed.feeds[CLAIMS].deleted("a/c")
    assert blocked()


def test_a_pod_that_turned_is_judged_as_a_pass_judges_it() -> None:
    """A device that no node offers may be claimed; a hard mark may keep its pod waiting."""
    asked = Resources(pods=1, extended=(("example.com/gpu", 1),))
    fed = Fed()
    fed.nodes.replaced([marked(node("n"), Mark.HARD, 1)])
    fed.pods.changed(replace(a_pod("p"), requests=asked, unschedulable=True))
    assert fed.view.turns(TAINT_KEY, READ_DEFAULTS)()


def test_a_pod_that_turned_and_has_gone_since_hurries_nobody() -> None:
    fed = Fed()
    fed.nodes.replaced([node("n")])
    fed.pods.changed(replace(a_pod("p"), unschedulable=True))
    fed.pods.deleted("a/p")
    assert not fed.view.turns(TAINT_KEY, READ_DEFAULTS)()


def test_a_volume_that_cannot_be_read_keeps_its_pods_alone() -> None:
    fed = Fed()
    for feed in fed.everything():
        feed.alive()
    fed.feeds[VOLUMES].changed(Volume(name="v"))
    fed.feeds[VOLUMES].refused("v", "spec: bad")
    assert fed.view.news.why_stale(fed.clock.now, 180) is None
    assert fed.view.of(VOLUMES) == {}
