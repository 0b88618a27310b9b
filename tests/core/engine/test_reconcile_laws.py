"""A pass that reuses the result of the last pass gives the same answer as one from scratch."""

import gc
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

from cli.explain.reasons import NOT_REMOVABLE, NOT_SET_TO_NO_SCHEDULE, SCALE_DOWN_NOT_ALLOWED
from core.config.budgets import Budgets, Cooldown, Reserve
from core.config.settings import Config, Mode
from core.engine.leader_state import LeaderState
from core.engine.maintenance_gate import WRITES_REFUSED, Refusal, may_begin
from core.engine.planner import LIMIT
from core.engine.pod_index import PodIndex
from core.engine.reconcile import ReconcileResult, reconcile
from core.marks.mark import Mark, mark_of
from core.marks.wellknown import BACKOFF_ANNOTATION
from core.model.cluster import Cluster
from core.model.constraints import DisruptionFacts
from core.model.humanize import timestamp
from core.model.node import Node
from core.model.now import Now
from core.model.pod import Pod
from core.model.reason import Blocker
from core.model.resources import Resources
from core.placement.usable_capacity import Amount
from core.writes.nodes import LeaderObservations, decide
from core.writes.write import Write, WriteKind
from tests.support import builders, histories, mixed
from tests.support.builders import UNLIMITED, node, pod
from tests.support.histories import AHEAD, EPOCH, LOOKS, SECONDS, TIMED, WAITS, changed, config

pytestmark = [pytest.mark.law, pytest.mark.mutate]


def answer(one: ReconcileResult) -> tuple[object, ...]:
    expected = one.expected_pods, one.short_reaches
    return one.plan, one.rate_limits, one.no_schedule_blockers, one.state, one.at, *expected


@pytest.mark.law(seeds_max=3000)
def test_skipped_pass_gives_same_answer_as_full_pass(seeds: range) -> None:
    for seed in seeds:
        compare_skipped_passes(seed)


def compare_skipped_passes(seed: int) -> None:
    """Fail if a pass of the history has another answer when passes may be skipped."""
    settings, steps = histories.history(seed)
    warm = cold = reconcile(steps[0].cluster, settings, LeaderState(), steps[0].now)
    for cluster, now, failed, in_time in steps[1:]:
        known, fresh = (
            one.state.with_failed_writes(failed, Now(now), **WAITS) for one in (warm, cold)
        )
        warm = reconcile(cluster, settings, known, now, in_time=in_time, last=warm)
        cold = reconcile(cluster, settings, fresh, now, in_time=in_time)
        assert not cold.skipped, seed
        if warm.skipped and not in_time():
            return  # the answer from before remains valid; the other pass did not try all nodes
        assert answer(warm) == answer(cold), seed


HISTORIES = range(120)
"""Seeds of histories that together have every reason; the rarest ones occur once."""


def test_every_reason_occurs_in_histories_and_ends_when_announced() -> None:
    """A new rule without a generator fails here; an unannounced change fails the test above."""
    seen: set[str] = set()
    ends: set[str] = set()
    for seed in HISTORIES:
        settings, steps = histories.history(seed)
        last: ReconcileResult | None = None
        for cluster, now, failed, in_time in steps:
            memory = (last.state if last else LeaderState()).with_failed_writes(
                failed, Now(now), **WAITS
            )
            last = reconcile(cluster, settings, memory, now, in_time=in_time, last=last)
            for blocker in blockers(last):
                seen.add(blocker.code)
                if blocker.until is not None:
                    ends.add(blocker.code)
                    assert now < blocker.until
                    assert last.requeue_at is not None
                    assert last.requeue_at <= blocker.until
    reasons = (*NOT_REMOVABLE, *SCALE_DOWN_NOT_ALLOWED, *NOT_SET_TO_NO_SCHEDULE)
    # Histories have no write that the API server refuses.
    assert seen == {one.code for one in reasons} - {LIMIT.code, WRITES_REFUSED.code}
    assert ends - {one.code for one in NOT_SET_TO_NO_SCHEDULE} == ENDING
    assert "no-schedule-new-leader" in ends


@pytest.mark.law(seeds_max=1000, seeds_min=25)
def test_nothing_begins_in_histories_while_it_is_refused(seeds: range) -> None:
    """Marks are still removed, and protection and repairs continue."""
    refused: Counter[str] = Counter()
    for seed in seeds[: max(25, len(seeds) // 2)]:
        settings, steps = histories.history(seed)
        settings = replace(settings, mode=Mode.ENFORCE)
        last: ReconcileResult | None = None
        for cluster, now, _, in_time in steps:
            memory = last.state if last else LeaderState()
            last = reconcile(cluster, settings, memory, now, in_time=in_time, last=last)
            seen = LeaderObservations(last.watched_seconds, last.no_schedule_blockers)
            writes = decide(cluster, last.plan, settings, now_seconds=now, owner="me", watch=seen)
            beginning = may_begin(settings, Now(now))
            assert last.rate_limits.beginning == beginning, seed
            if isinstance(beginning, Refusal):
                refused.update(one.kind for one in writes if not is_repeated(one))
        assert not refused.keys() & {WriteKind.MARK, WriteKind.SET_NO_SCHEDULE}, seed
    assert refused[WriteKind.UNMARK] > 5
    assert refused[WriteKind.SET_PREFER_NO_SCHEDULE] > 0


def is_repeated(one: Write[Node]) -> bool:
    """Return whether the write repairs the details of an existing mark."""
    return one.kind is WriteKind.MARK and mark_of(one.before.labels) is not None


ENDING = {
    "unneeded-time", "cooldown", "pods-pending", "mark-interval", "backoff", "mark-refused",
    "budget-new-marks", "reserve", "paused", "schedule",
}  # fmt: skip
"""Reasons that end by time alone. Reasons against NoSchedule marks persist after their end."""


def blockers(one: ReconcileResult) -> Iterator[Blocker]:
    """Yield every reason of the pass."""
    for kept in one.plan.kept:
        yield from kept.blockers
    yield from (reserved.why for reserved in one.plan.reserve)
    for against in one.no_schedule_blockers.values():
        yield from against


def test_updated_pod_index_equals_new_pod_index(seeds: range) -> None:
    reused = 0
    for seed in seeds:
        chance = random.Random(seed)
        cluster = mixed.cluster(chance)
        warm = PodIndex.of(cluster)
        for _ in range(LOOKS):
            cluster = changed(chance, cluster, EPOCH)
            before, warm, cold = warm, warm.updated(cluster), PodIndex.of(cluster)
            assert counted(warm) == counted(cold), seed
            assert warm.pods is cluster.pods
            kept = {id(one) for one in before.groups.values()}
            reused += any(id(one) in kept for one in warm.groups.values())
    assert reused > len(seeds) // 2


@pytest.mark.parametrize(
    ("removed", "added", "reused"), [(1, 1, True), (2, 0, False), (2, 2, False)]
)
def test_pod_index_reuses_groups_when_few_pods_change(
    removed: int, added: int, reused: bool
) -> None:
    other = pod("other", "n0", 500, 500)
    pods = [pod(f"p{n:02}", "n0", 100, 100) for n in range(15)]
    new = [pod(f"q{n:02}", "n0", 100, 100) for n in range(added)]
    before = PodIndex.of(Cluster.of([node("n0")], [*pods, other]))
    now = before.updated(Cluster.of([node("n0")], [*pods[removed:], *new, other]))
    alike = other.requests, other.node_constraints
    assert (now.groups[alike] is before.groups[alike]) is reused


ORPHAN = pod("a", "left", 100, 100)


@pytest.mark.parametrize(
    ("orphan", "pending"),
    [
        (ORPHAN, True),
        (replace(ORPHAN, owner_kind="Job"), True),
        (replace(ORPHAN, owner_kind=""), False),
        (replace(ORPHAN, terminating=True), False),
        (replace(ORPHAN, priority=-20), False),
        (replace(ORPHAN, mirror=True), False),
        (replace(ORPHAN, daemon=True), False),
    ],
)
def test_pod_of_deleted_node_counts_as_pending_when_it_is_replaced(
    orphan: Pod, pending: bool
) -> None:
    others = [pod(f"b{number:02}", "n0", 100, 100) for number in range(20)]
    before = PodIndex.of(Cluster.of([node("n0")], others))
    found = before.updated(Cluster.of([node("n0")], [orphan, *others]))
    fresh = [replace(orphan, node=None)] if pending else []
    assert list(found.groups.values()) == [[*fresh, *others]]
    assert found.requests == before.requests
    collected = found.updated(Cluster.of([node("n0")], others))
    assert list(collected.groups.values()) == [others]


def test_replacement_of_pod_on_departed_node_needs_room_when_it_cannot_be_evaluated() -> None:
    odd = replace(ORPHAN, unsupported=("spec.volumes",))
    found = PodIndex.of(Cluster.of([node("n0")], [odd]))
    waits = replace(odd, node=None)
    assert found.unevaluable == [waits]
    assert [*found.groups.values()] == [[waits]]


def test_pass_reuses_pod_index_of_last_pass() -> None:
    other = pod("other", "n0", 500, 500)
    pods = [pod(f"p{n:02}", "n0", 100, 100) for n in range(20)]
    settings, nodes = Config(budgets=UNLIMITED), [node("n0"), node("n1")]
    last = reconcile(Cluster.of(nodes, [*pods, other]), settings, LeaderState(), 0)
    again = reconcile(Cluster.of(nodes, [*pods[1:], other]), settings, last.state, 1, last=last)
    alike = other.requests, other.node_constraints
    assert again.snapshot.pod_index.groups[alike] is last.snapshot.pod_index.groups[alike]


def counted(pod_index: PodIndex) -> tuple[object, ...]:
    """Return the contents of the index without empty sums."""
    sums = [
        {name: (Amount(one.cpu_millis, one.memory_bytes), one.pods, dict(one.extended))
         for name, one in found.items() if one != Resources()}
        for found in (pod_index.requests, pod_index.resident_requests)
    ]  # fmt: skip
    classes = {key: one.by_node for key, one in pod_index.classes.items()}
    counts = pod_index.scale_in_pods, pod_index.pending_counts, classes
    some = pod_index.pending, pod_index.constrained, pod_index.unevaluable, pod_index.terminating
    return *sums, *counts, *some, pod_index.groups, pod_index.virtual


def small_cluster(count: int = 3) -> Cluster:
    """Return nodes with one small pod each."""
    pods = [pod(f"p{n}", f"n{n}", 10 if n else 500, 10 if n else 500) for n in range(count)]
    return Cluster.of([node(f"n{n}") for n in range(count)], pods)


@pytest.mark.parametrize("stabilization_window_seconds", [0, 100])
def test_pass_is_skipped_until_unneeded_time_ends(
    stabilization_window_seconds: int,
) -> None:
    """The current requests are not a peak that ends."""
    budgets = replace(UNLIMITED, stabilization_window_seconds=stabilization_window_seconds)
    settings = Config(budgets=budgets, unneeded_time_seconds=600)
    last = reconcile(small_cluster(), settings, LeaderState(), 0)
    assert last.requeue_at == 601
    for now, skipped in ((0, True), (600, True), (601, False), (10**9, True)):
        last = reconcile(small_cluster(), settings, last.state, now, last=last)
        assert last.skipped is skipped
        assert bool(last.plan.removals) is (now > 600)


def test_limits_change_exactly_when_mark_or_backoff_expires() -> None:
    settings = Config(budgets=replace(UNLIMITED, period_seconds=60))
    made = small_cluster()
    one = builders.marked(made.nodes[0], "PreferNoSchedule", 100)
    far = replace(made.nodes[1], annotations={BACKOFF_ANNOTATION: f"1 {200 + AHEAD}"})
    for cluster, last_second in (
        (Cluster.of([one, *made.nodes[1:]], made.pods), 159),
        (Cluster.of([far, made.nodes[0]], made.pods), 199),
    ):
        last = reconcile(
            cluster, settings, LeaderState(candidates={"n0": 0, "n1": 0, "n2": 0}), 110
        )
        before = reconcile(cluster, settings, last.state, last_second, last=last)
        after = reconcile(cluster, settings, before.state, last_second + 1, last=before)
        assert before.rate_limits == last.rate_limits
        assert after.rate_limits != last.rate_limits


@pytest.mark.parametrize(
    ("disruption_facts", "last_second"), [(TIMED[0], EPOCH + 89), (TIMED[1], EPOCH + 100)]
)
def test_temporary_disruption_fact_counts_until_it_expires(
    disruption_facts: DisruptionFacts, last_second: int
) -> None:
    """Until then the node with that pod is tried last."""
    settings = Config(budgets=UNLIMITED, unneeded_time_seconds=0)
    stays = replace(pod("a", "n1", 500, 500), owner_kind="", disruption_facts=disruption_facts)
    if disruption_facts is TIMED[0]:
        stays = replace(stays, owner_kind="ReplicaSet")
    cluster = Cluster.of(
        [node("n0"), node("n1")],
        [stays, replace(stays, name="b", node="n0", disruption_facts=DisruptionFacts())],
    )
    cluster = replace(
        cluster, pods=(cluster.pods[0], replace(cluster.pods[1], owner_kind="ReplicaSet"))
    )
    last = reconcile(cluster, settings, LeaderState(candidates={"n0": 0, "n1": 0}), EPOCH)
    assert [one.node for one in last.plan.removals] == ["n0"]
    last = reconcile(cluster, settings, last.state, last_second, last=last)
    assert last.skipped
    last = reconcile(cluster, settings, last.state, last_second + 1, last=last)
    assert [one.node for one in last.plan.removals] == ["n1"]


def test_pass_that_drops_remembered_places_is_repeated_once() -> None:
    """It tried the remembered places first, and the next pass cannot."""
    settings = Config(budgets=UNLIMITED, policy="NodeUtilization", unneeded_time_seconds=600)
    cluster = small_cluster(2)
    last = reconcile(cluster, settings, LeaderState(), 0)
    assert last.state.hints.placements
    full = Cluster.of(
        cluster.nodes, [*cluster.pods, *(pod(n, n, 3400, 100) for n in ("n0", "n1"))]
    )
    dropped = reconcile(full, settings, last.state, 1, last=last)
    assert not dropped.state.hints.placements
    assert dropped.requeue_at == 2
    repeated = reconcile(full, settings, dropped.state, 2, last=dropped)
    assert not repeated.skipped
    assert reconcile(full, settings, repeated.state, 3, last=repeated).skipped


def test_pass_is_not_skipped_when_anything_changes() -> None:
    settings = Config(budgets=UNLIMITED)
    last = reconcile(small_cluster(), settings, LeaderState(), 0)
    again = reconcile(small_cluster(4), settings, last.state, 1, last=last)
    assert not again.skipped
    assert not reconcile(small_cluster(4), replace(settings), again.state, 2, last=again).skipped
    assert not reconcile(small_cluster(4), settings, again.state, 0, last=again).skipped
    failed = again.state.with_failed_writes(frozenset({"n1"}), Now(1), **WAITS)
    assert not reconcile(small_cluster(4), settings, failed, 2, last=again).skipped
    assert reconcile(small_cluster(4), settings, again.state, 2, last=again).skipped


def test_incomplete_pass_is_not_reused() -> None:
    settings = Config(budgets=UNLIMITED, unneeded_time_seconds=0)
    first = reconcile(small_cluster(), settings, LeaderState(), 0)
    late = reconcile(small_cluster(), settings, first.state, 1, last=first, in_time=lambda: False)
    assert not late.plan.removals
    assert reconcile(small_cluster(), settings, late.state, 1, last=late).plan.removals


def test_pass_is_skipped_during_cooldown() -> None:
    cooling = Cooldown(delay_after_add_seconds=600, delay_after_pending_seconds=600)
    reserve = Reserve(window_seconds=300)
    budgets = Budgets(reserve=reserve, stabilization_window_seconds=600, cooldown=cooling)
    settings = Config(budgets=budgets, unneeded_time_seconds=600)
    last = reconcile(small_cluster(), settings, LeaderState(), 0)
    last = reconcile(small_cluster(4), settings, last.state, 10, last=last)
    assert last.requeue_at == 300  # the leader has observed arrivals for long enough
    for now, skipped in ((11, True), (300, False), (600, True), (601, False), (609, True)):
        last = reconcile(small_cluster(4), settings, last.state, now, last=last)
        assert last.skipped is skipped
        assert not last.plan.removals
    assert codes(last, "n1") == ["cooldown"]
    # The unneeded time of n3 ends at 610.
    for now, skipped in ((610, False), (611, False), (612, True)):
        last = reconcile(small_cluster(4), settings, last.state, now, last=last)
        assert last.skipped is skipped


def codes(one: ReconcileResult, name: str) -> list[str]:
    (kept,) = (kept for kept in one.plan.kept if kept.node == name)
    return [blocker.code for blocker in kept.blockers]


@pytest.mark.parametrize("marked_at", [1, 10])
def test_permanent_no_schedule_blocker_causes_no_passes(marked_at: int) -> None:
    settings = Config(budgets=UNLIMITED, no_schedule_after_seconds=0)
    pods = [pod("busy", "n1", 3500, 100), replace(pod("p", "n1", 501, 100), priority=1)]
    cluster = Cluster.of(
        [builders.marked(node("n0"), "PreferNoSchedule", marked_at), node("n1")], pods
    )
    last = reconcile(cluster, settings, LeaderState(), 10)
    assert [one.code for one in last.no_schedule_blockers["n0"]] == ["no-schedule-preemption"]
    assert reconcile(cluster, settings, last.state, 11, last=last).skipped
    over = reconcile(Cluster.of(cluster.nodes, pods[:1]), settings, last.state, 20, last=last)
    assert [one.code for one in over.no_schedule_blockers["n0"]] == ["no-schedule-preemption"]
    never = replace(settings, no_schedule_after_seconds=None)
    assert reconcile(cluster, never, LeaderState(), 10).no_schedule_blockers == {}


def test_pending_pod_blocks_no_schedule_after_wait_time() -> None:
    """Not earlier, because a scheduler needs some time."""
    settings = Config(budgets=UNLIMITED, no_schedule_after_seconds=0)
    pending = replace(pod("p", None, 500, 500), unschedulable=True)
    nodes = [builders.marked(node("n0"), "NoSchedule", 1), node("n1")]
    last = None
    for now, codes in ((10, []), (14, []), (15, ["no-schedule-waiting"])):
        cluster = Cluster.of(nodes, [pending])
        last = reconcile(cluster, settings, last.state if last else LeaderState(), now, last=last)
        assert [one.code for one in last.no_schedule_blockers["n0"]] == codes


def test_pass_creates_no_reference_cycles() -> None:
    """The garbage collector would stop every thread while it walks all objects of a pass."""
    gc.collect()
    gc.freeze()  # the collections below walk the objects of this test only
    try:
        check_cycles()
    finally:
        gc.unfreeze()


def check_cycles() -> None:
    for seed in range(8):
        chance = random.Random(seed)
        settings, cluster = config(chance), mixed.cluster(chance)
        last = reconcile(cluster, settings, LeaderState(), EPOCH)
        gc.collect()
        last = reconcile(
            changed(chance, cluster, EPOCH), settings, last.state, EPOCH + 1, last=last
        )
        assert gc.collect() == 0


def test_ended_reason_blocks_no_schedule_for_pause() -> None:
    """Also in the second of its end: Pending pods cause several passes per second."""
    settings = Config(budgets=UNLIMITED, no_schedule_after_seconds=0)
    pending = replace(pod("w", None, 100, 100, unsupported=("spec.volumes",)), unschedulable=True)
    nodes = [builders.marked(node("n0"), "PreferNoSchedule", 1), node("n1")]
    last = reconcile(Cluster.of(nodes, [pending]), settings, LeaderState(), 10)
    bound = Cluster.of(nodes, [replace(pending, node="n1", unschedulable=False)])
    for now, skipped in ((10, False), (11, True), (309, True)):
        last = reconcile(bound, settings, last.state, now, last=last)
        assert last.skipped is skipped
        (why,) = last.no_schedule_blockers["n0"]
        assert (why.code, why.until) == ("no-schedule-waiting", 310)
        assert why.message.endswith(f"; last seen {timestamp(10)}")
    last = reconcile(bound, settings, last.state, 310, last=last)
    assert not last.no_schedule_blockers["n0"]


def blocked_prefer_no_schedule_marks(one: ReconcileResult) -> set[str]:
    marks = {
        name for name, found in one.snapshot.marks.items() if found.mark is Mark.PREFER_NO_SCHEDULE
    }
    return {name for name in marks if one.no_schedule_blockers[name]}


def counts_waiting_time(why: Blocker) -> bool:
    """Return whether the reason ends a waiting time, which each leader counts from its start."""
    return why.code == "no-schedule-waiting" and "still Pending" in why.message


PAUSE_END = EPOCH + 10**6
"""Unix second that no history reaches."""


def ended_on_no_schedule_marks(one: ReconcileResult) -> set[tuple[str, Blocker]]:
    """Return nodes whose mark is NoSchedule, each with a reason that ended before this pass."""
    marks = {name for name, found in one.snapshot.marks.items() if found.mark is Mark.NO_SCHEDULE}
    return {
        (name, why)
        for name in marks - one.state.no_schedule_reasons.current
        for why in one.no_schedule_blockers[name]
        if why.until is not None
    }


@pytest.mark.law(seeds_max=1000)
def test_new_leader_keeps_marks_prefer_no_schedule_as_previous_leader(seeds: range) -> None:
    """Both observe the same cluster; the reserve is off, as a new leader restarts it.

    No mark begins either: a node that is to be marked is no room for pods, and a new leader marks
    later, because it counts unneeded times anew. It also counts anew for how long a pod is Pending
    although there is room for it. And it cannot know of a reason that ended before its first pass,
    if the mark was NoSchedule in that pass: nothing in the cluster shows such a reason.
    """
    kept = 0
    for seed in seeds:
        chance = random.Random(seed)
        settings, now, cluster = config(chance), EPOCH, mixed.cluster(chance)
        budgets = replace(settings.budgets, reserve=Reserve(window_seconds=None))
        settings = replace(settings, budgets=budgets, no_schedule_after_seconds=0)
        settings = replace(settings, pause_until_seconds=PAUSE_END)
        old, new = reconcile(cluster, settings, LeaderState(), now - 1000), None
        unknown: set[tuple[str, Blocker]] = set()
        for look in range(LOOKS):
            cluster, now = changed(chance, cluster, now), now + chance.choice(SECONDS[:-2])
            old = reconcile(cluster, settings, old.state, now, last=old)
            if look >= LOOKS // 3:
                unknown = unknown if new else ended_on_no_schedule_marks(old)
                memory = new.state if new else LeaderState()
                new = reconcile(cluster, settings, memory, now, last=new)
                blocked = blocked_prefer_no_schedule_marks(old)
                for name in blocked - blocked_prefer_no_schedule_marks(new):
                    reasons = {(name, why) for why in old.no_schedule_blockers[name]} - unknown
                    assert all(counts_waiting_time(why) for _, why in reasons), seed
                kept += len(blocked)
    assert kept > 0


def test_new_leader_keeps_existing_prefer_no_schedule_marks_for_pause() -> None:
    settings = Config(budgets=UNLIMITED, no_schedule_after_seconds=0)
    nodes = [
        builders.marked(node(name), how, 1)
        for name, how in (("h", "NoSchedule"), ("s", "PreferNoSchedule"))
    ]
    last = reconcile(Cluster.of([*nodes, node("n")], []), settings, LeaderState(), 10)
    later = Cluster.of([*nodes, builders.marked(node("n"), "PreferNoSchedule", 11), node("m")], [])
    began = "the leader is new, and does not know the earlier reasons against a NoSchedule mark"
    for now, kept in ((10, True), (309, True), (310, False)):
        last = reconcile(later, settings, last.state, now, last=last)
        codes = {
            name: [one.code for one in why] for name, why in last.no_schedule_blockers.items()
        }
        assert codes == {"h": [], "s": ["no-schedule-new-leader"] if kept else [], "n": []}
        assert (
            not kept
            or last.no_schedule_blockers["s"][0].message == f"{began}; last seen {timestamp(10)}"
        )
