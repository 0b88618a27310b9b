"""Which pods get a deletion cost and which lose it: one row a state, and the laws."""

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
"""To move a pod costs it 1 more for so much more deletion cost; source: its EvictionCost."""
"""The year 2100."""


MARKED, UNMARKED, NEXT = marked(node("marked"), since=NOW), node("unmarked"), node("next")
COST, NEXT_COST = str(cost_of(MARKED, TAINT_KEY)), str(next_cost(7))
BOTH_GONE = {COST_ANNOTATION: None, COST_OURS_ANNOTATION: None}
TRACE_GONE = {COST_OURS_ANNOTATION: None}


def a_pod(
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
    return replace(pod, ties=DisruptionFacts(gang="g"))


def decided(
    *pods: Pod, nodes: Iterable[Node] = (MARKED, UNMARKED, NEXT), enabled: bool = True
) -> list[Write[Pod]]:
    return list(decide_costs(Cluster.of(nodes, pods), TAINT_KEY, {"next": 7}, enabled=enabled))


@pytest.mark.parametrize(
    "one",
    [
        pytest.param(a_pod("unmarked"), id="on an unmarked node"),
        pytest.param(a_pod(None), id="pending"),
        pytest.param(a_pod("nowhere"), id="on a node that is not known"),
        pytest.param(a_pod(cost="5"), id="somebody's own cost"),
        pytest.param(a_pod("unmarked", cost="5"), id="somebody's own cost, unmarked"),
        pytest.param(a_pod(cost=COST), id="somebody's own cost, as low as ours"),
        pytest.param(a_pod(cost=COST, ours=COST), id="ours"),
        pytest.param(
            a_pod(cost="-90000000", ours="-90000000"), id="ours, of another mark of the node"
        ),
        pytest.param(a_pod("next", cost=NEXT_COST, ours=NEXT_COST), id="ours, next"),
        pytest.param(a_pod("next", cost="-1", ours="-1"), id="ours, next, as another node has it"),
        pytest.param(a_pod("next", cost=NEXT_COST), id="somebody's own cost, next"),
        pytest.param(a_pod("next", ours=NEXT_COST), id="ours, next, and a person took it away"),
        pytest.param(a_pod("next", owner="Job"), id="of a Job, next"),
        pytest.param(a_pod("next", daemon=True), id="goes with its node, next"),
        pytest.param(a_pod("next", terminating=True), id="going, next"),
        pytest.param(a_pod(ours=COST), id="ours, and a person took it away"),
        pytest.param(a_pod(terminating=True), id="going"),
        pytest.param(a_pod("unmarked", cost=COST, ours=COST, terminating=True), id="ours, going"),
        pytest.param(a_pod(owner="StatefulSet"), id="of a StatefulSet"),
        pytest.param(a_pod(owner="Job"), id="of a Job"),
        pytest.param(a_pod(owner=""), id="of nobody"),
        pytest.param(in_gang(a_pod()), id="of a gang"),
        pytest.param(in_gang(a_pod("next")), id="of a gang, next"),
        pytest.param(a_pod(daemon=True), id="goes with its node"),
    ],
)
def test_nothing_to_write(one: Pod) -> None:
    assert decided(one) == []


@pytest.mark.parametrize("value", ["soft", "hard"])
def test_a_pod_on_a_marked_node_gets_a_cost_and_the_trace_that_it_is_ours(value: str) -> None:
    (found,) = decided(a_pod(), nodes=[marked(node("marked"), value, NOW)])
    assert (found.kind, found.key, found.note) == (CostKind.SET, "d/p", "")
    annotations = {COST_ANNOTATION: COST, COST_OURS_ANNOTATION: COST}
    assert found.merge_patch("7") == {
        "metadata": {"resourceVersion": "7", "annotations": annotations}
    }


@pytest.mark.parametrize(
    ("one", "cost"),
    [
        pytest.param(a_pod("next"), NEXT_COST, id="the node is next in line"),
        pytest.param(a_pod(cost=NEXT_COST, ours=NEXT_COST), COST, id="it was, and has a mark now"),
        pytest.param(
            a_pod("next", cost=COST, ours=COST), NEXT_COST, id="it had a mark, and is next"
        ),
    ],
)
def test_a_mark_weighs_more_than_being_next_in_line(one: Pod, cost: str) -> None:
    (found,) = decided(one)
    assert found.kind is CostKind.SET
    assert found.annotations == {COST_ANNOTATION: cost, COST_OURS_ANNOTATION: cost}


def test_a_mark_that_is_next_in_line_too_is_a_mark() -> None:
    (found,) = decide_costs(
        Cluster.of([MARKED], [a_pod()]), TAINT_KEY, {"marked": 1}, enabled=True
    )
    assert found.annotations[COST_ANNOTATION] == COST


@given(st.integers(), st.text(), st.integers(1))
def test_every_mark_costs_less_than_what_is_next_and_that_less_than_what_has_no_cost(
    since: int, name: str, number: int
) -> None:
    assert cost_of(marked(node(name), since=since), TAINT_KEY) < NEXT_MIN <= next_cost(number) < 0
    assert next_cost(number) <= next_cost(number + 1)


@pytest.mark.parametrize(
    ("one", "enabled", "gone"),
    [
        pytest.param(a_pod("unmarked", cost=COST, ours=COST), True, BOTH_GONE, id="released"),
        pytest.param(a_pod("nowhere", cost=COST, ours=COST), True, BOTH_GONE, id="node gone"),
        pytest.param(a_pod(cost=COST, ours=COST), False, BOTH_GONE, id="turned off"),
        pytest.param(
            a_pod("next", cost=NEXT_COST, ours=NEXT_COST), False, BOTH_GONE, id="turned off, next"
        ),
        pytest.param(
            a_pod("unmarked", cost=NEXT_COST, ours=NEXT_COST), True, BOTH_GONE, id="next no more"
        ),
        pytest.param(a_pod("next", cost="5", ours=NEXT_COST), True, TRACE_GONE, id="overwritten"),
        pytest.param(a_pod(cost=COST, ours=COST, owner=""), True, BOTH_GONE, id="orphaned"),
        pytest.param(a_pod("unmarked", ours=COST), True, TRACE_GONE, id="a trace is left"),
        pytest.param(a_pod(cost="5", ours=COST), True, TRACE_GONE, id="overwritten, marked"),
        pytest.param(
            a_pod("unmarked", cost="5", ours=COST), True, TRACE_GONE, id="overwritten, released"
        ),
        pytest.param(a_pod(cost="5", ours=COST), False, TRACE_GONE, id="overwritten, off"),
    ],
)
def test_what_is_ours_goes_and_nothing_else(
    one: Pod, enabled: bool, gone: dict[str, str | None]
) -> None:
    (found,) = decided(one, enabled=enabled)
    assert (found.kind, found.note) == (CostKind.CLEAR, "")
    assert found.annotations == gone


def test_what_was_decided_before_a_pod_began_to_go_is_not_written() -> None:
    assert fingerprint(a_pod())[-1] is None
    assert fingerprint(a_pod(terminating=True))[-1] == "terminating"


def test_turned_off_no_cost_is_set() -> None:
    assert decided(a_pod(), enabled=False) == []


def test_a_clear_comes_first_and_the_pods_of_the_oldest_mark() -> None:
    nodes = [
        marked(node("young"), since=NOW),
        marked(node("old"), since=NOW - COST_STEP_SECONDS),
        UNMARKED,
    ]
    pods = [
        replace(a_pod("young"), name="a"),
        replace(a_pod("old"), name="c"),
        replace(a_pod("old"), name="b"),
        replace(a_pod("unmarked", cost="-1", ours="-1"), name="z"),
    ]
    found = decided(*pods, nodes=nodes)
    assert [(write.kind.value, write.before.name) for write in found] == [
        ("clear", "z"),
        ("set", "b"),
        ("set", "c"),
        ("set", "a"),
    ]
    assert [write.before.name for write in decided(*pods[::-1], nodes=nodes[::-1])] == list("zbca")


def test_what_one_namespace_has_written_leaves_half_to_the_others_and_to_new_costs() -> None:
    forged = [
        replace(a_pod("unmarked", ours="1"), namespace="a", name=f"{n:03}") for n in range(300)
    ]
    own = [replace(a_pod(), namespace="a", name=f"x{n:03}") for n in range(300)]
    theirs = [
        replace(a_pod("unmarked", cost="-1", ours="-1"), namespace="shop", name=f"old{n}")
        for n in range(5)
    ] + [replace(a_pod(), namespace="shop", name=f"new{n}") for n in range(5)]
    first = decided(*forged, *own, *theirs)[:20]
    assert sum(write.before.namespace == "shop" for write in first) == 10
    assert sum(write.kind is CostKind.SET for write in first) == 10


@given(
    st.lists(st.integers(COST_EPOCH_SECONDS, SECONDS_MAX), min_size=2),
    st.text("abcdef-", min_size=1),
)
def test_older_marks_cost_less_and_every_cost_is_one_that_the_api_takes(
    times: list[int], name: str
) -> None:
    for older, younger in pairwise(sorted(times)):
        low, high = (
            cost_of(marked(node(name), since=older), TAINT_KEY),
            cost_of(marked(node(name), since=younger), TAINT_KEY),
        )
        assert -(2**31) < COST_MIN <= low <= high <= COST_MAX < 0
        if younger - older >= COST_STEP_SECONDS:
            assert low < cost_of(marked(node("another"), since=younger), TAINT_KEY)


@given(st.integers(), st.text())
def test_no_cost_makes_a_node_with_pods_empty_to_karpenter(since: int, name: str) -> None:
    priority = -(2**20)  # as low as anybody needs; it counts four times as much as a cost
    assert (
        KARPENTER_COSTS_A_POD + cost_of(marked(node(name), since=since), TAINT_KEY) + 4 * priority
        > 0
    )


def test_nodes_of_one_age_have_costs_of_their_own() -> None:
    assert len({cost_of(marked(node(name), since=NOW), TAINT_KEY) for name in "abcdef"}) == 6


def test_the_age_of_a_mark_without_details_is_read_from_the_taint_of_the_configured_key() -> None:
    bare = node("marked", labels={MARK_LABEL: "soft"})
    aged = replace(bare, taints=(Taint("own.example/key", str(NOW), Effect.PREFER_NO_SCHEDULE),))
    assert cost_of(aged, "own.example/key") == cost_of(MARKED, TAINT_KEY)
    assert cost_of(aged, TAINT_KEY) < cost_of(MARKED, TAINT_KEY)


@pytest.mark.parametrize("since", [-(10**30), 10**30])
def test_a_damaged_time_makes_no_damaged_cost(since: int) -> None:
    assert COST_MIN <= cost_of(marked(node("n"), since=since), TAINT_KEY) <= COST_MAX


# The laws, on whatever may stand in a cluster.

COSTS = st.sampled_from((None, None, "5", "-7", COST, NEXT_COST))
NODES = st.sampled_from(
    (MARKED, marked(node("marked-2"), "hard", NOW - 10**5), UNMARKED, NEXT, node("n"))
)
NEXT_IN_LINE = st.dictionaries(
    st.sampled_from(("marked", "next", "n", "gone")), st.integers(1, 2 * 10**6)
)


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    nodes = draw(st.lists(NODES, unique_by=lambda one: one.name))
    places = st.sampled_from((None, "marked", "marked-2", "unmarked", "next", "n"))
    pods = [
        replace(
            a_pod(
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


@given(clusters(), NEXT_IN_LINE, st.booleans())
def test_applied_to_its_own_answer_it_leaves_nothing_to_write(
    cluster: Cluster, following: dict[str, int], enabled: bool
) -> None:
    after = applied(cluster, decide_costs(cluster, TAINT_KEY, following, enabled=enabled))
    assert decide_costs(after, TAINT_KEY, following, enabled=enabled) == ()


@given(clusters(), NEXT_IN_LINE, st.booleans())
def test_a_cost_that_is_not_ours_is_never_touched(
    cluster: Cluster, following: dict[str, int], enabled: bool
) -> None:
    writes = decide_costs(cluster, TAINT_KEY, following, enabled=enabled)
    after = applied(cluster, writes)
    for before, now in zip(cluster.pods, after.pods, strict=True):
        if before.deletion_cost is not None and before.deletion_cost != before.deletion_cost_ours:
            assert now.deletion_cost == before.deletion_cost
    untraced = {pod.key for pod in cluster.pods if pod.deletion_cost_ours is None}
    foreign = {pod.key for pod in cluster.pods if pod.deletion_cost is not None} & untraced
    assert not foreign & {write.key for write in writes}


@given(clusters(), NEXT_IN_LINE, st.booleans())
def test_when_all_is_released_or_turned_off_nothing_of_ours_is_left(
    cluster: Cluster, following: dict[str, int], enabled: bool
) -> None:
    during = applied(cluster, decide_costs(cluster, TAINT_KEY, following, enabled=True))
    if enabled:
        during = Cluster.of((replace(one, labels={}) for one in during.nodes), during.pods)
    after = applied(during, decide_costs(during, TAINT_KEY, enabled=enabled))
    assert all(pod.deletion_cost_ours is None or pod.terminating for pod in after.pods)
    for before, now in zip(cluster.pods, after.pods, strict=True):
        if not before.terminating and before.deletion_cost != before.deletion_cost_ours:
            assert now.deletion_cost == before.deletion_cost


@given(clusters(), NEXT_IN_LINE)
def test_a_pod_has_one_write_at_most_and_none_when_it_is_going(
    cluster: Cluster, following: dict[str, int]
) -> None:
    keys = [write.key for write in decide_costs(cluster, TAINT_KEY, following, enabled=True)]
    assert len(keys) == len(set(keys))
    assert not {pod.key for pod in cluster.pods if pod.terminating} & set(keys)


def taken_first(pods: Iterable[Pod], replica_set: str) -> list[Pod]:
    """Return its bound and ready pods as the ReplicaSet controller deletes them, as far as costs.

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
    NEXT_IN_LINE,
    st.lists(st.sampled_from(("web-old", "web-new")), min_size=8, max_size=8),
)
def test_every_set_of_a_rollout_loses_its_pods_on_marked_nodes_first_then_on_the_next(
    cluster: Cluster, following: dict[str, int], sets: list[str]
) -> None:
    bare = [
        replace(one, owner_name=of, deletion_cost=None, deletion_cost_ours=None)
        for one, of in zip(cluster.pods, sets, strict=False)
    ]
    cluster = Cluster.of(cluster.nodes, bare)
    after = applied(cluster, decide_costs(cluster, TAINT_KEY, following, enabled=True))
    there = {one.name for one in cluster.nodes}
    order = dict.fromkeys(following.keys() & there, 1)
    order |= {one.name: 0 for one in cluster.nodes if MARK_LABEL in one.labels}
    for name in ("web-old", "web-new"):
        taken = [order.get(one.node or "", 2) for one in taken_first(after.pods, name)]
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
        replace(a_pod(cost=cost), name=f"p{number}", owner_name="web")
        for number, cost in enumerate(costs)
    ]
    other = replace(a_pod(cost="9"), name="other", owner_name="api")
    assert len(pods_of_other_writers(Cluster.of([MARKED], [*pods, other]))) == found


def test_another_writer_is_found_by_a_cost_that_has_replaced_ours() -> None:
    (found,) = pods_of_other_writers(Cluster.of([MARKED], [a_pod(cost="5", ours=COST)]))
    assert found.deletion_cost == "5"
    assert pods_of_other_writers(Cluster.of([MARKED], [a_pod(cost=COST, ours=COST)])) == ()
    job = a_pod(cost="5", ours=COST, owner="Job")
    assert pods_of_other_writers(Cluster.of([MARKED], [job])) == ()
