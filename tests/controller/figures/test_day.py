"""The figures of a day: what counts, midnight, and a leader that continues after another one."""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from controller.figures.day import CLOCKS_APART_SECONDS_MAX, UNKNOWN, Happened
from controller.figures.figures import GAP_SECONDS_MAX, Figures
from core.config.budgets import Budget, LabelSelector, Pool
from core.eligibility.scalability import OTHER
from core.engine.leader_state import LeaderState
from core.engine.reconcile import ReconcileResult, reconcile
from core.history.days import DAY_SECONDS, HISTORY_POOLS_MAX, Day, PoolDay
from core.history.packing import pack_today, read_today
from core.history.today import EARLIER_MAX, REMOVED_MAX, SAMPLES_MAX, RemovedNode, Today
from core.marks.mark import PROTECTED_WHILE_MARKED
from core.marks.wellknown import (
    KARPENTER_LABEL,
    PROTECTION_ANNOTATION,
    SCALE_DOWN_DISABLED_ANNOTATION,
)
from core.model.cluster import Cluster
from core.model.node import Node
from core.model.pod import Pod
from tests.controller.figures.test_figures import NO_SCHEDULE, PRICED, WAITING
from tests.support.builders import config, marked, node, pod

NUMBER = 20_000
MIDNIGHT = NUMBER * DAY_SECONDS
T = MIDNIGHT - DAY_SECONDS // 2
OWN = [pod("on-a", "a", 3900, 7900)]
"""Node a is full, so that it is needed."""
SPOT = {KARPENTER_LABEL: "spot"}
LABELS = {"type": "big", "eks.amazonaws.com/nodegroup": "workers"}
A, B = (node(name, labels=LABELS) for name in "ab")


def protected(one: Node) -> Node:
    ours = {SCALE_DOWN_DISABLED_ANNOTATION: "true", PROTECTION_ANNOTATION: PROTECTED_WHILE_MARKED}
    return replace(one, annotations={**one.annotations, **ours})


def with_mark(name: str, since: int = T) -> Node:
    return marked(node(name, labels=LABELS), since=since)


class Leader:
    """Reconcile again and again, and count."""

    def __init__(self, stored: Today | None = None) -> None:
        self.config, self.figures = PRICED, Figures()
        self.last: ReconcileResult | None = None
        self._stored = stored

    def sees(
        self,
        nodes: Sequence[Node],
        at: int,
        pods: Sequence[Pod] = OWN,
        happened: Sequence[Happened] = (),
    ) -> Today:
        if self._stored:
            self.figures = self.figures.restored(self._stored, at)
        self._stored = None
        state = self.last.state if self.last else LeaderState()
        self.last = reconcile(Cluster.of(nodes, pods), self.config, state, at, last=self.last)
        self.figures = self.figures.observe(self.last, happened)
        return self.today

    @property
    def today(self) -> Today:
        assert self.figures.to_store
        return self.figures.to_store

    def successor(self) -> "Leader":
        return Leader(read_today(pack_today(self.today)))


def workers(today: Today) -> PoolDay:
    return today.day.pools["workers"]


def test_removed_node_has_what_was_predicted_beside_what_happened() -> None:
    leader = Leader()
    z = with_mark("z", T + 5)
    pods = [*OWN, pod("on-z", "z", 100, 100)]
    leader.sees([A, node("z", labels=LABELS)], T, pods)
    leader.sees([A, B, protected(z)], T + 10, pods)
    leader.sees([A, B, protected(z)], T + 20, pods, [Happened("z")])
    leader.sees([A, B, z], T + 30)
    leader.sees([A, B], T + 40)
    today = leader.sees([A, B], T + 100)
    (removed,) = today.removed
    assert removed == RemovedNode(
        node="z",
        pool="workers",
        marked_at=T + 5,
        deadline=removed.deadline,
        price=Fraction(2),
        pods=1,
        allowed_at=T + 30,
        removed_at=T + 40,
        moved=1,
        saved_seconds=60,
        saved_cost=Fraction(2 * 60, 3600),
    )
    day = workers(today)
    assert (day.marks, day.unmarks, day.removed, day.moved) == (1, 0, 1, 1)
    assert (day.saved_seconds, day.saved_cost) == (60, Fraction(2 * 60, 3600))
    assert day.expected_seconds >= day.saved_seconds
    assert day.node_seconds == 10 * 2 + 30 * 3 + 60 * 2
    assert today.day.unmarks == {}


def test_pods_moved_before_mark_is_seen_count_for_their_node() -> None:
    """A move can end within seconds, before the next reconciliation."""
    leader, z, pods = Leader(), node("z", labels=LABELS), [*OWN, pod("on-b", "b", 900, 900)]
    for at in (T - leader.config.unneeded_time_seconds - 1, T):
        leader.sees([A, B, z], at, [*pods, pod("on-z", "z", 100, 100)])
    z = protected(with_mark("z", T + 1))
    today = leader.sees([A, B, z], T + 10, pods, [Happened("z")])
    assert (today.marked["z"].pods, today.marked["z"].moved) == (1, 1)
    assert workers(today).moved == 1
    assert leader.figures.day.early == {}


def test_unmark_has_its_reason_when_this_leader_wrote_it() -> None:
    leader, y, z = Leader(), protected(with_mark("y")), protected(with_mark("z"))
    leader.sees([A, y, z], T)
    leader.sees([A, y, z], T + 5, happened=[Happened("z", "crowded")])
    today = leader.sees([A, *(node(name, labels=LABELS) for name in "yz")], T + 10)
    assert today.day.unmarks == {"crowded": 1, UNKNOWN: 1}
    assert workers(today).unmarks == 2
    assert leader.figures.day.codes == {}


def test_mark_set_again_counts_again() -> None:
    leader = Leader()
    leader.sees([A, protected(with_mark("z"))], T)
    today = leader.sees([A, protected(with_mark("z", T + 7))], T + 10)
    assert workers(today).marks == 2, "the first was set in the second of the first reconciliation"


def test_marks_from_before_the_first_count_are_no_new_ones() -> None:
    today = Leader().sees([A, protected(with_mark("z", T - 1))], T)
    assert today.day.total.marks == 0
    assert today.marked["z"].since == T - 1


def test_pods_that_wait_because_of_mark_are_counted() -> None:
    leader = Leader()
    leader.sees([A, NO_SCHEDULE], T, [*OWN, WAITING])
    today = leader.sees([A, NO_SCHEDULE], T + 7, OWN)
    assert today.day.waited_seconds == 7
    assert leader.sees([A, NO_SCHEDULE], T + 70, OWN).day.waited_seconds == 7


def test_day_ends_at_midnight_of_utc() -> None:
    leader = Leader()
    leader.sees([A, with_mark("z", MIDNIGHT - 500)], MIDNIGHT - 100)
    leader.sees([A], MIDNIGHT - 90)
    today = leader.sees([A], MIDNIGHT + 20)
    (past,) = today.earlier
    assert (past.number, today.day.number) == (NUMBER - 1, NUMBER)
    assert past.total.saved_seconds == 90
    assert today.day.total.saved_seconds == 20
    assert (past.total.removed, today.day.total.removed) == (1, 0)
    assert [one.node for one in today.removed] == ["z"], "removed nodes stay in the list"
    for n in range(2, 10):
        today = leader.sees([A], MIDNIGHT + n * DAY_SECONDS)
    assert [day.number for day in today.earlier] == [NUMBER + n for n in (6, 7, 8)]
    assert len(today.earlier) == EARLIER_MAX


def test_long_gap_counts_in_part_and_on_its_day() -> None:
    leader = Leader()
    leader.sees([A, B], MIDNIGHT - 100)
    today = leader.sees([A, B], MIDNIGHT + 3 * DAY_SECONDS + 5)
    assert [day.total.node_seconds for day in today.earlier] == [200]
    assert today.day.number == NUMBER + 3
    assert today.day.total.node_seconds == 2 * (GAP_SECONDS_MAX - 100)


def test_past_day_has_largest_pools_only() -> None:
    nodes = [node(f"n{n:03}", labels={KARPENTER_LABEL: f"pool-{n % 30:02}"}) for n in range(59)]
    leader = Leader()
    leader.sees([A, *nodes], MIDNIGHT - 10)
    leader.sees([A, *nodes], MIDNIGHT)
    today = leader.sees([A, *nodes], MIDNIGHT + 10)
    assert len(today.day.pools) == 31
    (past,) = today.earlier
    assert len(past.pools) == HISTORY_POOLS_MAX + 1
    assert past.pools[OTHER].node_seconds == 10 * (60 - 2 * HISTORY_POOLS_MAX)
    assert past.total == Day(number=0).plus(today.day.pools).total


def test_pool_is_node_group_or_else_that_of_configuration() -> None:
    leader = Leader()
    selector = LabelSelector(match_labels=(("type", "big"),))
    leader.config = config(pools=(Pool(name="mine", selector=selector, budget=Budget()),))
    nodes = [A, node("m", labels={"type": "big"}), node("x"), node("k", labels=SPOT)]
    for second in range(2):
        leader.sees(nodes, T + second)
        assert set(leader.today.rates) == {"workers", "mine", "", "spot"}
    leader.config = config(pools=(Pool(name="new", selector=selector, budget=Budget()),))
    leader.sees(nodes, T + 2)
    assert set(leader.today.rates) == {"workers", "new", "", "spot"}


def test_samples_and_removed_nodes_are_bounded() -> None:
    leader = Leader()
    turns = SAMPLES_MAX + 10
    for n in range(turns):
        at = T + 600 * n
        gone = [with_mark(f"z{n}-{m}", at) for m in range(2)]
        leader.sees([A, *gone], at)
        leader.sees([A], at + 1)
    today, last = leader.today, turns - 1
    assert len(today.samples) == SAMPLES_MAX
    assert (today.samples[-1].at, today.samples[-1].nodes) == (T + 600 * last, 3)
    assert len(today.removed) == REMOVED_MAX
    assert today.removed[-1].node == f"z{last}-1"


Z, Y, X = with_mark("z"), with_mark("y", T + 30), with_mark("x", T + 57)
FRAMES = {
    0: [A, B, Z, node("y", labels=LABELS)],
    23: [A, B, node("y", labels=LABELS)],
    31: [A, B, protected(Y)],
    44: [A, B, Y],
    53: [A, B],
    58: [A, B, protected(X)],
    65: [A, B, node("x", labels=LABELS)],
}
"""The nodes from each second on: z and y are removed, and x is marked and unmarked."""


ENDS = 75


def test_handover_at_any_second_doubles_nothing_and_loses_what_nobody_saw() -> None:
    alone, shown = Leader(), dict[int, list[Node]]()
    stored, counted = list[Today](), list[PoolDay]()
    for second in range(ENDS + 60):
        shown[second] = FRAMES.get(second, shown.get(second - 1, []))
        stored.append(alone.sees(shown[second], T + second))
        counted.append(workers(alone.today))
    assert (counted[-1].marks, counted[-1].unmarks, counted[-1].removed) == (3, 1, 2)
    for second in range(61):
        takes = 1 + 29 * second % 59
        begins = second + takes
        successor = Leader(read_today(pack_today(stored[second])))
        last = max(ENDS, begins + 2)
        for later in range(begins, last + 1):
            successor.sees(shown[later], T + later)
        mine, its = workers(successor.today), counted[last]
        # A mark that came and went while nobody led, and a node that was allowed and removed.
        y, x = second < 31 and begins >= 53, second < 58 and begins >= 65
        assert mine.marks == its.marks - y - x
        assert mine.unmarks == its.unmarks - x
        assert mine.removed == its.removed - (second < 44 and begins >= 53)
        assert successor.today.counted_until == T + last
        assert abs(mine.node_seconds - its.node_seconds) <= 2 * takes
        assert abs(mine.saved_seconds - its.saved_seconds) <= 2 * takes


def test_state_of_a_clock_ahead_is_not_continued() -> None:
    leader = Leader()
    leader.sees([A, with_mark("z")], T)
    ahead = replace(leader.today, counted_until=T + 10 + CLOCKS_APART_SECONDS_MAX + 1)
    other = Leader(ahead)
    assert other.sees([A], T + 10).day.total.removed == 0
    near = Leader(replace(ahead, counted_until=T + 10 + CLOCKS_APART_SECONDS_MAX))
    assert near.sees([A], T + 10).day.total.removed == 1


def test_removed_node_does_not_count_for_ever_when_somebody_forges_its_end() -> None:
    leader = Leader()
    leader.sees([A, with_mark("z")], T)
    leader.sees([A], T + 10)
    (credit,) = leader.today.credits
    for until, seconds in ((credit.until, 20), (T + 10**9, 0)):
        other = Leader(replace(leader.today, credits=(credit._replace(until=until),)))
        other.sees([A], T + 20)
        assert workers(other.sees([A], T + 30)).saved_seconds == seconds
