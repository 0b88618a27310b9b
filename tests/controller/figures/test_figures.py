"""Figures for operators: savings, pending pods by cause, repeated marks, nodes by state."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction

import pytest

from controller.figures.figures import GAP_SECONDS_MAX, Figures
from controller.figures.marks import AGAIN_SECONDS
from controller.figures.pending import SHAPES_MAX, Cause, pending_pods
from controller.figures.pools import PlannedNodeState
from controller.figures.savings import CREDIT_SECONDS_MAX, HOUR_SECONDS
from core.config.prices import Price
from core.config.settings import Config
from core.engine.leader_state import LeaderState
from core.engine.reconcile import ReconcileResult, reconcile
from core.marks.wellknown import KARPENTER_LABEL, SCALE_DOWN_DISABLED_ANNOTATION
from core.model.cluster import Cluster
from core.model.node import Effect, Node, Taint
from core.model.pod import Pod
from core.placement.usable_capacity import Amount
from tests.support.builders import GREEN, MB, config, marked, node, pod

T = 10**9
PRICED = config(prices=(Price(node_selector=(("type", "big"),), price=Fraction(2)),))
BIG = {"type": "big"}
DELETING = Taint("ToBeDeletedByClusterAutoscaler", "", Effect.NO_SCHEDULE)
OWN = [pod("on-a", "a", 3900, 7900)]
"""Node a is full, so that it is needed."""


class Leader:
    """Reconcile again and again, and keep the account."""

    def __init__(self, settings: Config = PRICED) -> None:
        self.config, self.figures = settings, Figures()
        self.last: ReconcileResult | None = None

    def sees(self, nodes: Iterable[Node], at: int, pods: Sequence[Pod] = OWN) -> Figures:
        state = self.last.state if self.last else LeaderState()
        self.last = reconcile(Cluster.of(nodes, pods), self.config, state, at, last=self.last)
        self.figures = self.figures.observe(self.last)
        return self.figures


def of(names: str, *others: Node) -> list[Node]:
    return [*(node(name, labels=BIG) for name in names), *others]


RELEASED = marked(node("z", labels=BIG), since=T)
PROTECTED = replace(
    RELEASED, annotations={**RELEASED.annotations, SCALE_DOWN_DISABLED_ANNOTATION: "true"}
)


def real(figures: Figures) -> tuple[int, Fraction]:
    return figures.savings.real


def test_removed_node_counts_until_its_pool_has_as_many_nodes_again() -> None:
    leader = Leader()
    assert leader.sees(of("ab", RELEASED), T).savings.oldest_allowed == T
    assert leader.sees(of("ab"), T + 60).savings.oldest_allowed is None
    assert real(leader.sees(of("ab"), T + 360)) == (300, Fraction(2 * 300, HOUR_SECONDS))
    assert real(leader.sees(of("abc"), T + 400)) == (340, Fraction(2 * 340, HOUR_SECONDS))
    assert real(leader.sees(of("abc"), T + 900)) == (340, Fraction(2 * 340, HOUR_SECONDS))


def test_two_removed_nodes_end_one_after_the_other() -> None:
    other = marked(node("y", labels=BIG), since=T)
    leader = Leader()
    leader.sees(of("a", other, RELEASED), T)
    leader.sees(of("a"), T + 10)
    assert real(leader.sees(of("a"), T + 20))[0] == 20
    leader.sees(of("ab"), T + 30)
    assert real(leader.sees(of("ab"), T + 40))[0] == 20 + 20 + 10
    assert real(leader.sees(of("abc"), T + 50))[0] == 60
    assert real(leader.sees(of("abc"), T + 60))[0] == 60


def test_removed_node_counts_for_at_most_a_day() -> None:
    leader = Leader()
    leader.sees(of("a", RELEASED), T)
    for at in range(T, T + CREDIT_SECONDS_MAX + 6000, GAP_SECONDS_MAX):
        leader.sees(of("a"), at + 1)
    assert real(leader.figures)[0] == CREDIT_SECONDS_MAX


@pytest.mark.parametrize(
    ("then", "counts"),
    [
        ([], True),
        ([replace(node("z", labels=BIG), taints=(DELETING,))], True),
        ([PROTECTED], False),
        ([node("z", labels=BIG)], False),
    ],
    ids=["gone at once", "being deleted", "protected again", "mark removed"],
)
def test_only_removed_node_whose_scale_down_was_allowed_counts(
    then: list[Node], counts: bool
) -> None:
    leader = Leader()
    leader.sees(of("a", RELEASED), T)
    leader.sees(of("a", *then), T + 10)
    leader.sees(of("a"), T + 20)
    assert bool(real(leader.sees(of("a"), T + 30))[0]) is counts


def test_node_whose_scale_down_was_never_allowed_does_not_count() -> None:
    leader = Leader()
    leader.sees(of("abc", PROTECTED), T)
    leader.sees(of("a"), T + 10)
    assert real(leader.sees(of("a"), T + 20))[0] == 0


def test_long_gap_between_reconciliations_counts_in_part() -> None:
    leader = Leader()
    leader.sees(of("a", RELEASED), T)
    leader.sees(of("a"), T + 10)
    assert real(leader.sees(of("a"), T + 10 + 5 * GAP_SECONDS_MAX))[0] == GAP_SECONDS_MAX


def test_expected_savings_count_every_removable_node() -> None:
    leader = Leader()
    leader.sees(of("abc"), T)
    figures = leader.sees(of("abc"), T + 100)
    assert leader.last
    assert len(leader.last.plan.removals) == 2
    assert figures.savings.expected == (200, Fraction(400, HOUR_SECONDS))
    assert real(figures)[0] == 0


def test_new_leader_keeps_totals_only() -> None:
    leader = Leader()
    leader.sees(of("a", RELEASED), T)
    leader.sees(of("a"), T + 10)
    before = leader.sees(of("a"), T + 20)
    after = before.restarted()
    assert after.savings.real == before.savings.real
    assert real(after)[0] > 0
    assert after.savings.expected == before.savings.expected
    assert (after.savings.credits, after.savings.allowed, after.at) == ((), {}, None)


WAITING = replace(pod("w", None, 1000, 1000), unschedulable=True)
NO_SCHEDULE = marked(node("h"), "NoSchedule", since=T)
FULL = pod("on-h", "h", 3500, 100)
GREEN_HARD = replace(NO_SCHEDULE, labels={**NO_SCHEDULE.labels, "green": "true"})
CASES = {
    "NoSchedule mark with room": (WAITING, NO_SCHEDULE, [], Cause.MARK),
    "NoSchedule mark without room": (WAITING, NO_SCHEDULE, [FULL], Cause.ROOM),
    "NoSchedule mark on a node that is not feasible": (
        replace(WAITING, node_constraints=GREEN),
        NO_SCHEDULE,
        [],
        Cause.OTHER,
    ),
    "NoSchedule mark on a feasible node": (
        replace(WAITING, node_constraints=GREEN),
        GREEN_HARD,
        [],
        Cause.MARK,
    ),
    "NoSchedule mark, constraints unknown": (
        replace(WAITING, unsupported=("x",)),
        NO_SCHEDULE,
        [],
        Cause.MARK,
    ),
    "PreferNoSchedule mark, scheduler has not retried": (
        WAITING,
        marked(node("h"), since=T),
        [],
        Cause.OTHER,
    ),
    "no node is large enough": (
        replace(pod("w", None, 9000, 1), unschedulable=True),
        NO_SCHEDULE,
        [],
        Cause.OTHER,
    ),
}


@pytest.mark.parametrize(("one", "extra", "pods", "cause"), CASES.values(), ids=CASES)
def test_cause_of_pending_pod(one: Pod, extra: Node, pods: list[Pod], cause: Cause) -> None:
    found = Cluster.of(of("a", extra), [*OWN, *pods, one])
    assert pending_pods(reconcile(found, PRICED, LeaderState(), T)) == {cause: 1}


def test_pods_that_scheduler_has_not_tried_are_not_pending() -> None:
    found = Cluster.of(of("a", NO_SCHEDULE), [*OWN, pod("w", None, 1000, 1000)])
    assert not pending_pods(reconcile(found, PRICED, LeaderState(), T))


def test_number_of_checked_shapes_is_bounded_and_namespaces_take_turns() -> None:
    many = [
        replace(pod(f"w{n}", None, 1000 + n, 1000), unschedulable=True, namespace="tenant")
        for n in range(2 * SHAPES_MAX)
    ]
    other = replace(WAITING, namespace="z", requests=pod("", None, 999, 1).requests)
    found = Cluster.of(of("a", NO_SCHEDULE), [*OWN, *many, other])
    counts = pending_pods(reconcile(found, PRICED, LeaderState(), T))
    assert counts.total() == 2 * SHAPES_MAX + 1
    assert counts[Cause.MARK] == SHAPES_MAX


def test_pod_seconds_add_up_by_cause() -> None:
    leader = Leader()
    leader.sees(of("a", NO_SCHEDULE), T, [*OWN, WAITING])
    leader.sees(of("a", NO_SCHEDULE), T + 7, [*OWN, WAITING, FULL])
    leader.sees(of("a", NO_SCHEDULE), T + 10, OWN)
    leader.sees(of("a", NO_SCHEDULE), T + 100, OWN)
    assert leader.figures.pending.pod_seconds == {Cause.MARK: 7, Cause.ROOM: 3}
    assert not leader.figures.pending.pods


def test_mark_soon_after_another_is_repeated() -> None:
    leader = Leader()
    soft = marked(node("b", labels=BIG), since=T)
    leader.sees(of("a", soft), T)
    assert leader.sees(of("ab"), T + 10).marks.repeated == 0
    assert leader.sees(of("a", soft), T + 20).marks.repeated == 1
    leader.sees(of("ab"), T + 30)
    assert leader.sees(of("a", soft), T + 31 + AGAIN_SECONDS).marks.repeated == 1


def test_oldest_mark_is_that_of_a_node_whose_scale_down_is_not_allowed() -> None:
    leader = Leader()
    held = marked(node("c"), since=T - 500)
    held = replace(held, annotations={**held.annotations, SCALE_DOWN_DISABLED_ANNOTATION: "true"})
    assert leader.sees(of("a", RELEASED), T).marks.oldest is None
    assert Leader().sees(of("a", RELEASED, held), T).marks.oldest == T - 500


def test_every_node_is_in_one_state_of_its_pool() -> None:
    green = node("g", labels={KARPENTER_LABEL: "green"})
    nodes = of(
        "ab",
        green,
        RELEASED,
        NO_SCHEDULE,
        node("cordoned", unschedulable=True),
        replace(node("going"), taints=(DELETING,)),
        replace(node("virtual"), virtual=True),
    )
    pods = [*OWN, pod("on-h", "h", 100, 100), pod("on-g", "g", 1000, 1000)]
    result = reconcile(Cluster.of(nodes, pods), config(), LeaderState(), T)
    found = Figures().observe(result).pools
    assert found.keys() == {"", "green"}
    assert found[""].states.total() == len(nodes) - 2
    assert found["green"].states.total() == 1
    assert found["green"].allocatable == Amount(4000, 8000 * MB)
    assert found["green"].requests == Amount(1000, 1000 * MB)
    assert found["green"].usable == Amount(4000, 8000 * MB), "all free capacity is usable here"
    assert found[""].states[PlannedNodeState.LEAVING] == 1
    assert found[""].states[PlannedNodeState.SCALE_DOWN_ALLOWED] >= 1
    assert found[""].states[PlannedNodeState.UNSCHEDULABLE] == 1
