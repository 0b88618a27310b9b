"""Decide which pods get a deletion cost and which lose it: one row per state, and laws."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.marks.wellknown import (
    COST_ANNOTATION,
    COST_OURS_ANNOTATION,
    MARK_LABEL,
    TAINT_KEY,
)
from core.model.cluster import Cluster
from core.model.constraints import DisruptionFacts
from core.model.node import Effect, Node, Taint
from core.model.pod import Pod
from core.writes.costs import (
    COST_EPOCH_SECONDS,
    COST_MAX,
    COST_MIN,
    COST_STEP_SECONDS,
    NEXT_MIN,
    cost_of,
    decide_costs,
    next_cost,
    pods_of_other_writers,
)
from core.writes.write import CostKind, Write, fingerprint
from tests.support.builders import marked, node, pod

pytestmark = pytest.mark.mutate

NOW = 1_767_225_600
SECONDS_MAX = 2_524_608_000
"""The year 2050."""
KARPENTER_COSTS_A_POD = 2**27
"""Deletion cost that raises the disruption cost of a pod by 1; source: EvictionCost."""


MARKED, UNMARKED, NEXT = marked(node("marked"), since=NOW), node("unmarked"), node("next")
COST, NEXT_COST = str(cost_of(MARKED, TAINT_KEY)), str(next_cost(7))
CLEAR_BOTH = {COST_ANNOTATION: None, COST_OURS_ANNOTATION: None}
CLEAR_TRACE = {COST_OURS_ANNOTATION: None}


def make_pod(
    on: str | None = "marked",
    *,
    cost: str | None = None,
    ours: str | None = None,
    owner: str = "ReplicaSet",
    terminating: bool = False,
    daemon: bool = False,
) -> Pod:
    made = pod("p", on, 100, 100, terminating=terminating)
    return replace(
        made, owner_kind=owner, daemon=daemon, deletion_cost=cost, deletion_cost_ours=ours
    )


def in_gang(pod: Pod) -> Pod:
    return replace(pod, disruption_facts=DisruptionFacts(gang="g"))


def decided(
    *pods: Pod, nodes: Iterable[Node] = (MARKED, UNMARKED, NEXT), enabled: bool = True
) -> list[Write[Pod]]:
    return list(
        decide_costs(Cluster.of(nodes, pods), TAINT_KEY, {"next": 7}, enabled=enabled).writes
    )


@pytest.mark.parametrize(
    "one",
    [
        pytest.param(make_pod("unmarked"), id="on an unmarked node"),
        pytest.param(make_pod(None), id="pending"),
        pytest.param(make_pod("nowhere"), id="on an unknown node"),
        pytest.param(make_pod(cost="5"), id="foreign cost"),
        pytest.param(make_pod("unmarked", cost="5"), id="foreign cost, unmarked"),
        pytest.param(make_pod(cost=COST), id="foreign cost, as low as ours"),
        pytest.param(make_pod(cost=COST, ours=COST), id="ours"),
        pytest.param(
            make_pod(cost="-90000000", ours="-90000000"), id="ours, of another mark of the node"
        ),
        pytest.param(make_pod("next", cost=NEXT_COST, ours=NEXT_COST), id="ours, next"),
        pytest.param(
            make_pod("next", cost="-1", ours="-1"), id="ours, next, cost of another node"
        ),
        pytest.param(make_pod("next", cost=NEXT_COST), id="foreign cost, next"),
        pytest.param(make_pod("next", ours=NEXT_COST), id="ours, next, removed by a person"),
        pytest.param(make_pod("next", owner="Job"), id="of a Job, next"),
        pytest.param(make_pod("next", daemon=True), id="daemon, next"),
        pytest.param(make_pod("next", terminating=True), id="terminating, next"),
        pytest.param(make_pod(ours=COST), id="ours, removed by a person"),
        pytest.param(make_pod(terminating=True), id="terminating"),
        pytest.param(
            make_pod("unmarked", cost=COST, ours=COST, terminating=True), id="ours, terminating"
        ),
        pytest.param(make_pod(owner="StatefulSet"), id="of a StatefulSet"),
        pytest.param(make_pod(owner="Job"), id="of a Job"),
        pytest.param(make_pod(owner=""), id="without owner"),
        pytest.param(in_gang(make_pod()), id="of a gang"),
        pytest.param(in_gang(make_pod("next")), id="of a gang, next"),
        pytest.param(make_pod(daemon=True), id="daemon"),
    ],
)
def test_nothing_is_written_when_cost_is_right_or_not_wanted(one: Pod) -> None:
    assert decided(one) == []


@pytest.mark.parametrize("value", ["PreferNoSchedule", "NoSchedule"])
def test_pod_on_marked_node_gets_cost_and_ownership_trace(value: str) -> None:
    (found,) = decided(make_pod(), nodes=[marked(node("marked"), value, NOW)])
    assert (found.kind, found.key, found.note) == (CostKind.SET, "d/p", "")
    annotations = {COST_ANNOTATION: COST, COST_OURS_ANNOTATION: COST}
    assert found.merge_patch("7") == {
        "metadata": {"resourceVersion": "7", "annotations": annotations}
    }


@pytest.mark.parametrize(
    ("one", "cost"),
    [
        pytest.param(make_pod("next"), NEXT_COST, id="node is a scale-in target"),
        pytest.param(
            make_pod(cost=NEXT_COST, ours=NEXT_COST), COST, id="scale-in target, now marked"
        ),
        pytest.param(
            make_pod("next", cost=COST, ours=COST), NEXT_COST, id="was marked, now scale-in target"
        ),
    ],
)
def test_cost_changes_when_mark_or_target_changes(one: Pod, cost: str) -> None:
    (found,) = decided(one)
    assert found.kind is CostKind.SET
    assert found.annotations == {COST_ANNOTATION: cost, COST_OURS_ANNOTATION: cost}


def test_cost_is_that_of_mark_when_marked_node_is_also_target() -> None:
    (found,) = decide_costs(
        Cluster.of([MARKED], [make_pod()]), TAINT_KEY, {"marked": 1}, enabled=True
    ).writes
    assert found.annotations[COST_ANNOTATION] == COST


@given(st.integers(), st.text(), st.integers(1))
def test_marked_costs_are_below_target_costs_and_those_below_zero(
    since: int, name: str, number: int
) -> None:
    assert cost_of(marked(node(name), since=since), TAINT_KEY) < NEXT_MIN <= next_cost(number) < 0
    assert next_cost(number) <= next_cost(number + 1)


@pytest.mark.parametrize(
    ("one", "enabled", "cleared"),
    [
        pytest.param(make_pod("unmarked", cost=COST, ours=COST), True, CLEAR_BOTH, id="released"),
        pytest.param(
            make_pod("nowhere", cost=COST, ours=COST), True, CLEAR_BOTH, id="node deleted"
        ),
        pytest.param(make_pod(cost=COST, ours=COST), False, CLEAR_BOTH, id="disabled"),
        pytest.param(
            make_pod("next", cost=NEXT_COST, ours=NEXT_COST),
            False,
            CLEAR_BOTH,
            id="disabled, next",
        ),
        pytest.param(
            make_pod("unmarked", cost=NEXT_COST, ours=NEXT_COST),
            True,
            CLEAR_BOTH,
            id="no longer next",
        ),
        pytest.param(
            make_pod("next", cost="5", ours=NEXT_COST), True, CLEAR_TRACE, id="overwritten"
        ),
        pytest.param(make_pod(cost=COST, ours=COST, owner=""), True, CLEAR_BOTH, id="orphaned"),
        pytest.param(make_pod("unmarked", ours=COST), True, CLEAR_TRACE, id="only trace left"),
        pytest.param(make_pod(cost="5", ours=COST), True, CLEAR_TRACE, id="overwritten, marked"),
        pytest.param(
            make_pod("unmarked", cost="5", ours=COST),
            True,
            CLEAR_TRACE,
            id="overwritten, released",
        ),
        pytest.param(
            make_pod(cost="5", ours=COST), False, CLEAR_TRACE, id="overwritten, disabled"
        ),
    ],
)
def test_clear_removes_only_own_annotations(
    one: Pod, enabled: bool, cleared: dict[str, str | None]
) -> None:
    (found,) = decided(one, enabled=enabled)
    assert (found.kind, found.note) == (CostKind.REMOVE, "")
    assert found.annotations == cleared


def test_fingerprint_changes_when_pod_begins_to_terminate() -> None:
    assert fingerprint(make_pod())[-1] is None
    assert fingerprint(make_pod(terminating=True))[-1] == "terminating"


def test_no_cost_is_set_when_disabled() -> None:
    assert decided(make_pod(), enabled=False) == []


def test_writes_are_ordered_by_clear_then_age_of_mark() -> None:
    nodes = [
        marked(node("young"), since=NOW),
        marked(node("old"), since=NOW - COST_STEP_SECONDS),
        UNMARKED,
    ]
    pods = [
        replace(make_pod("young"), name="a"),
        replace(make_pod("old"), name="c"),
        replace(make_pod("old"), name="b"),
        replace(make_pod("unmarked", cost="-1", ours="-1"), name="z"),
    ]
    found = decided(*pods, nodes=nodes)
    assert [(write.kind.value, write.before.name) for write in found] == [
        ("remove_deletion_cost", "z"),
        ("set_deletion_cost", "b"),
        ("set_deletion_cost", "c"),
        ("set_deletion_cost", "a"),
    ]
    assert [write.before.name for write in decided(*pods[::-1], nodes=nodes[::-1])] == list("zbca")


def test_writes_are_shared_between_namespaces_and_kinds() -> None:
    forged = [
        replace(make_pod("unmarked", ours="1"), namespace="a", name=f"{n:03}") for n in range(300)
    ]
    own = [replace(make_pod(), namespace="a", name=f"x{n:03}") for n in range(300)]
    theirs = [
        replace(make_pod("unmarked", cost="-1", ours="-1"), namespace="shop", name=f"old{n}")
        for n in range(5)
    ] + [replace(make_pod(), namespace="shop", name=f"new{n}") for n in range(5)]
    first = decided(*forged, *own, *theirs)[:20]
    assert sum(write.before.namespace == "shop" for write in first) == 10
    assert sum(write.kind is CostKind.SET for write in first) == 10


@given(
    st.lists(st.integers(COST_EPOCH_SECONDS, SECONDS_MAX), min_size=2),
    st.text("abcdef-", min_size=1),
)
def test_older_marks_cost_less_within_api_range(times: list[int], name: str) -> None:
    for older, younger in pairwise(sorted(times)):
        low, high = (
            cost_of(marked(node(name), since=older), TAINT_KEY),
            cost_of(marked(node(name), since=younger), TAINT_KEY),
        )
        assert -(2**31) < COST_MIN <= low <= high <= COST_MAX < 0
        if younger - older >= COST_STEP_SECONDS:
            assert low < cost_of(marked(node("another"), since=younger), TAINT_KEY)


@given(st.integers(), st.text())
def test_cost_never_makes_pods_free_for_karpenter(since: int, name: str) -> None:
    priority = -(2**20)  # a very low priority; it counts four times as much as a cost
    assert (
        KARPENTER_COSTS_A_POD + cost_of(marked(node(name), since=since), TAINT_KEY) + 4 * priority
        > 0
    )


def test_costs_differ_between_nodes_marked_at_same_time() -> None:
    assert len({cost_of(marked(node(name), since=NOW), TAINT_KEY) for name in "abcdef"}) == 6


def test_mark_age_is_read_from_configured_taint_when_details_are_missing() -> None:
    bare = node("marked", labels={MARK_LABEL: "PreferNoSchedule"})
    aged = replace(bare, taints=(Taint("own.example/key", str(NOW), Effect.PREFER_NO_SCHEDULE),))
    assert cost_of(aged, "own.example/key") == cost_of(MARKED, TAINT_KEY)
    assert cost_of(aged, TAINT_KEY) < cost_of(MARKED, TAINT_KEY)


@pytest.mark.parametrize("since", [-(10**30), 10**30])
def test_cost_is_in_range_when_time_is_invalid(since: int) -> None:
    assert COST_MIN <= cost_of(marked(node("n"), since=since), TAINT_KEY) <= COST_MAX


# Laws, on random clusters.

COSTS = st.sampled_from((None, None, "5", "-7", COST, NEXT_COST))
NODES = st.sampled_from(
    (MARKED, marked(node("marked-2"), "NoSchedule", NOW - 10**5), UNMARKED, NEXT, node("n"))
)
TARGETS = st.dictionaries(
    st.sampled_from(("marked", "next", "n", "gone")), st.integers(1, 2 * 10**6)
)


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    nodes = draw(st.lists(NODES, unique_by=lambda one: one.name))
    places = st.sampled_from((None, "marked", "marked-2", "unmarked", "next", "n"))
    pods = [
        replace(
            make_pod(
                draw(places),
                cost=draw(COSTS),
                ours=draw(COSTS),
                owner=draw(st.sampled_from(("ReplicaSet", "ReplicaSet", "Job", ""))),
                terminating=draw(st.booleans()),
                daemon=draw(st.integers(0, 9)) == 0,
            ),
            name=f"p{number}",
        )
        for number in range(draw(st.integers(0, 8)))
    ]
    return Cluster.of(nodes, pods)


def applied(cluster: Cluster, writes: Iterable[Write[Pod]]) -> Cluster:
    pods = {pod.key: pod for pod in cluster.pods}
    for write in writes:
        pod, new = pods[write.key], write.annotations
        pods[write.key] = replace(
            pod,
            deletion_cost=new.get(COST_ANNOTATION, pod.deletion_cost),
            deletion_cost_ours=new.get(COST_OURS_ANNOTATION, pod.deletion_cost_ours),
        )
    return Cluster.of(cluster.nodes, pods.values())


@given(clusters(), TARGETS, st.booleans())
def test_decision_is_idempotent(cluster: Cluster, targets: dict[str, int], enabled: bool) -> None:
    after = applied(cluster, decide_costs(cluster, TAINT_KEY, targets, enabled=enabled).writes)
    assert decide_costs(after, TAINT_KEY, targets, enabled=enabled).writes == ()


@given(clusters(), TARGETS, st.booleans())
def test_foreign_cost_is_never_changed(
    cluster: Cluster, targets: dict[str, int], enabled: bool
) -> None:
    writes = decide_costs(cluster, TAINT_KEY, targets, enabled=enabled).writes
    after = applied(cluster, writes)
    for before, now in zip(cluster.pods, after.pods, strict=True):
        if before.deletion_cost is not None and before.deletion_cost != before.deletion_cost_ours:
            assert now.deletion_cost == before.deletion_cost
    untraced = {pod.key for pod in cluster.pods if pod.deletion_cost_ours is None}
    foreign = {pod.key for pod in cluster.pods if pod.deletion_cost is not None} & untraced
    assert not foreign & {write.key for write in writes}


@given(clusters(), TARGETS, st.booleans())
def test_no_own_annotation_remains_when_unmarked_or_disabled(
    cluster: Cluster, targets: dict[str, int], enabled: bool
) -> None:
    during = applied(cluster, decide_costs(cluster, TAINT_KEY, targets, enabled=True).writes)
    if enabled:
        during = Cluster.of((replace(one, labels={}) for one in during.nodes), during.pods)
    after = applied(during, decide_costs(during, TAINT_KEY, enabled=enabled).writes)
    assert all(pod.deletion_cost_ours is None or pod.terminating for pod in after.pods)
    for before, now in zip(cluster.pods, after.pods, strict=True):
        if not before.terminating and before.deletion_cost != before.deletion_cost_ours:
            assert now.deletion_cost == before.deletion_cost


@given(clusters(), TARGETS)
def test_pod_has_at_most_one_write_and_none_when_terminating(
    cluster: Cluster, targets: dict[str, int]
) -> None:
    keys = [write.key for write in decide_costs(cluster, TAINT_KEY, targets, enabled=True).writes]
    assert len(keys) == len(set(keys))
    assert not {pod.key for pod in cluster.pods if pod.terminating} & set(keys)


def deletion_order(pods: Iterable[Pod], replica_set: str) -> list[Pod]:
    """Return the pods of a ReplicaSet in the order in which its controller deletes them by cost.

    Source: kube-controller-manager, ActivePodsWithRanks; a pod without a cost counts as 0.
    """
    its = (
        one
        for one in pods
        if (one.owner_kind, one.owner_name) == ("ReplicaSet", replica_set)
        and one.node is not None
        and not (one.terminating or one.daemon)
    )
    return sorted(its, key=lambda one: int(one.deletion_cost or "0"))


@given(
    clusters(),
    TARGETS,
    st.lists(st.sampled_from(("web-old", "web-new")), min_size=8, max_size=8),
)
def test_replica_sets_delete_pods_on_marked_nodes_first_then_on_targets(
    cluster: Cluster, targets: dict[str, int], sets: list[str]
) -> None:
    bare = [
        replace(one, owner_name=of, deletion_cost=None, deletion_cost_ours=None)
        for one, of in zip(cluster.pods, sets, strict=False)
    ]
    cluster = Cluster.of(cluster.nodes, bare)
    after = applied(cluster, decide_costs(cluster, TAINT_KEY, targets, enabled=True).writes)
    there = {one.name for one in cluster.nodes}
    order = dict.fromkeys(targets.keys() & there, 1)
    order |= {one.name: 0 for one in cluster.nodes if MARK_LABEL in one.labels}
    for name in ("web-old", "web-new"):
        taken = [order.get(one.node or "", 2) for one in deletion_order(after.pods, name)]
        assert taken == sorted(taken)


@pytest.mark.parametrize(
    ("costs", "found"),
    [
        ((), 0),
        (("5", "5", None), 0),  # from the pod template
        (("5", "6", None), 2),
        (("0", "1", "2147483647"), 3),
    ],
)
def test_another_writer_is_found_by_costs_that_differ_within_a_replica_set(
    costs: tuple[str | None, ...], found: int
) -> None:
    pods = [
        replace(make_pod(cost=cost), name=f"p{number}", owner_name="web")
        for number, cost in enumerate(costs)
    ]
    other = replace(make_pod(cost="9"), name="other", owner_name="api")
    assert len(pods_of_other_writers([*pods, other])) == found


def test_another_writer_is_found_by_a_cost_that_has_replaced_ours() -> None:
    (found,) = pods_of_other_writers([make_pod(cost="5", ours=COST)])
    assert found.deletion_cost == "5"
    assert pods_of_other_writers([make_pod(cost=COST, ours=COST)]) == ()
    job = make_pod(cost="5", ours=COST, owner="Job")
    assert pods_of_other_writers([job]) == ()
