"""What is written on which Node: one row a state."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from core.capacity.usable import NOTHING, Totals
from core.config.budgets import CLOCKS_APART_SECONDS_MAX
from core.config.settings import Config, Mode, ScaleDownProtection, Scope
from core.engine.leader_state import LeaderState, RecordedMark
from core.engine.limits import MIN_NODES
from core.engine.plan import Plan, Removal, UnremovableNode
from core.engine.reconcile import reconcile
from core.guards.node_eligibility import node_blockers
from core.marks.mark import Details, decode_details, encode_details
from core.marks.taints import desired_taints
from core.marks.wellknown import (
    BACKOFF_ANNOTATION,
    DETAILS_ANNOTATION,
    GUARD_ANNOTATION,
    GUARD_OURS_ANNOTATION,
    MARK_LABEL,
    TAINT_KEY,
)
from core.model.cluster import Cluster
from core.model.node import Effect, Node, Taint
from core.model.pod import Pod
from core.model.reason import Blocker
from core.model.resources import Resources
from core.policies.cluster_threshold import LAST_NODE
from core.writes.nodes import (
    MARKS_A_PASS_MAX,
    TIMES_MAX,
    WATCH_SECONDS,
    LeaderObservations,
    decide,
)
from core.writes.write import Write, WriteKind, prefer_no_schedule_writes, repair

pytestmark = pytest.mark.mutate

NOW = 1_767_225_600

CONFIG = Config(mode=Mode.ENFORCE, deadline_seconds=3600)
LATER = str(NOW + CONFIG.scale_down_protection.after_release_seconds)
DETAILS = Details(since=NOW - 60, deadline=NOW + 60, owner="me", policy="p", reason="r")
OURS = Taint(TAINT_KEY, str(NOW - 60), Effect.PREFER_NO_SCHEDULE)
GOING = Taint("ToBeDeletedByClusterAutoscaler", "1", Effect.NO_SCHEDULE)
STOPPED = Taint("node.cloudprovider.kubernetes.io/shutdown", "", Effect.NO_SCHEDULE)
MARKED = {MARK_LABEL: "soft"}
BACKED_OFF = {BACKOFF_ANNOTATION: f"1 {NOW + 60}"}
DETAILED = {DETAILS_ANNOTATION: encode_details(DETAILS)}
GUARDED = {GUARD_ANNOTATION: "true", GUARD_OURS_ANNOTATION: "marked"}
FOREIGN = {GUARD_ANNOTATION: "true"}
LIFTED: Mapping[str, str | None] = {GUARD_ANNOTATION: None, GUARD_OURS_ANNOTATION: None}
RELEASED = {DETAILS_ANNOTATION: None, GUARD_ANNOTATION: "true", GUARD_OURS_ANNOTATION: LATER}


def node(
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    *taints: Taint,
) -> Node:
    return Node(
        name="n1",
        labels=labels or {},
        annotations=annotations or {},
        taints=taints,
        allocatable=Resources(4000, 2**34, 0, 110),
    )


def marked(**more: str) -> Node:
    return node(MARKED, DETAILED | more, OURS)


def a_plan(wanted: bool, feasible: bool = True) -> Plan:
    none = Totals(nodes=0, capacity=NOTHING, requests=NOTHING, usable=NOTHING)
    return Plan(
        policy="ClusterThreshold",
        usability=None,
        usability_derived=True,
        before=none,
        after=none,
        reaches=(),
        removals=(Removal("n1", 1, ()),) if wanted else (),
        kept=(),
        pending=(),
        marked_infeasible=() if feasible else ("n1",),
    )


def write(one: Node, *pods: Pod, wanted: bool = True) -> list[Write[Node]]:
    infeasible = MARK_LABEL in one.labels and not wanted
    plan = a_plan(wanted, feasible=not infeasible)
    cluster = Cluster.of([one], pods)
    return list(decide(cluster, plan, CONFIG, now_seconds=NOW, owner="me"))


POD = Pod(namespace="a", name="p", node="n1")
DAEMON = Pod(namespace="a", name="d", node="n1", daemon=True)
MIRROR = Pod(namespace="a", name="m", node="n1", mirror=True)
FILLER = Pod(namespace="a", name="f", node="n1", priority=-11)
LEAST = Pod(namespace="a", name="l", node="n1", priority=-10)
"""The lowest priority that Cluster Autoscaler does not take for none."""


def test_a_mark_is_label_details_and_guard_in_one_patch() -> None:
    (found,) = write(node(), POD)
    metadata = found.merge_patch("7")["metadata"]
    assert metadata["resourceVersion"] == "7"
    details = decode_details(metadata["annotations"])
    assert found.kind is WriteKind.MARK
    assert metadata["labels"] == MARKED
    assert GUARDED.items() <= metadata["annotations"].items()
    assert details is not None
    assert (details.since, details.deadline, details.owner) == (NOW, NOW + 3600, "me")
    assert details.order == 1


Case = tuple[str, Node, tuple[Pod, ...], bool, WriteKind | None, dict[str, Any]]
CASES: list[Case] = [
    ("not wanted, not marked", node(), (POD,), False, None, {}),
    ("marked, full, guarded", marked(**GUARDED), (POD,), True, None, {}),
    ("marked, empty", marked(**GUARDED), (), True, WriteKind.REMOVE_PROTECTION, dict(LIFTED)),
    (
        "marked, only pods that go with it",
        marked(**GUARDED),
        (DAEMON, MIRROR, FILLER),
        True,
        WriteKind.REMOVE_PROTECTION,
        dict(LIFTED),
    ),
    ("handed over, still empty", marked(), (DAEMON,), True, None, {}),
    ("handed over, a pod arrives", marked(), (POD,), True, WriteKind.PROTECT, GUARDED),
    (
        "handed over, a pod of the least priority",
        marked(),
        (LEAST,),
        True,
        WriteKind.PROTECT,
        GUARDED,
    ),
    ("marked, a pod of the least priority", marked(**GUARDED), (LEAST,), True, None, {}),
    ("marked, infeasible", marked(**GUARDED), (POD,), False, WriteKind.RELEASE_MARK, RELEASED),
    ("handed over, infeasible", marked(), (), False, WriteKind.RELEASE_MARK, RELEASED),
    (
        "marked, somebody else's guard",
        marked(**FOREIGN),
        (POD,),
        False,
        WriteKind.RELEASE_MARK,
        {DETAILS_ANNOTATION: None},
    ),
    ("somebody else's guard, empty", marked(**FOREIGN), (), True, None, {}),
    ("somebody else's guard, not empty", marked(**FOREIGN), (POD,), True, None, {}),
    ("somebody else's guard, no mark", node(None, FOREIGN), (), False, None, {}),
    ("taint missing", node(MARKED, DETAILED | GUARDED), (POD,), True, WriteKind.REPAIR_TAINTS, {}),
    (
        "the label taken away by somebody",
        node(None, DETAILED | GUARDED),
        (POD,),
        False,
        WriteKind.RELEASE_MARK,
        RELEASED,
    ),
    (
        "released, its guard's time not over",
        node(None, GUARDED | {GUARD_OURS_ANNOTATION: str(NOW + 1)}),
        (POD,),
        False,
        None,
        {},
    ),
    (
        "released, its guard's time over",
        node(None, GUARDED | {GUARD_OURS_ANNOTATION: str(NOW)}),
        (POD,),
        False,
        WriteKind.REMOVE_PROTECTION,
        dict(LIFTED),
    ),
    (
        "released, the guard taken away by somebody",
        node(None, {GUARD_OURS_ANNOTATION: str(NOW)}),
        (POD,),
        False,
        WriteKind.REMOVE_PROTECTION,
        {GUARD_OURS_ANNOTATION: None},
    ),
    ("back-off that cannot be read", node(None, {BACKOFF_ANNOTATION: "x"}), (), False, None, {}),
    ("being deleted, wanted", node(None, None, GOING), (), True, None, {}),
    ("machine stops, nothing of ours", node(None, FOREIGN, STOPPED), (), False, None, {}),
    (
        "machine stops, marked: nothing keeps its autoscaler from collecting it",
        node(MARKED, DETAILED | GUARDED | BACKED_OFF, OURS, STOPPED),
        (POD,),
        False,
        WriteKind.RELEASE_MARK,
        {DETAILS_ANNOTATION: None, **LIFTED},
    ),
    (
        "machine stops, guarded after a release",
        node(None, GUARDED | {GUARD_OURS_ANNOTATION: LATER}, STOPPED),
        (POD,),
        False,
        WriteKind.REMOVE_PROTECTION,
        dict(LIFTED),
    ),
    (
        "machine stops, taint left over",
        node(None, BACKED_OFF, OURS, STOPPED),
        (),
        False,
        WriteKind.REPAIR_TAINTS,
        {},
    ),
    ("being deleted, marked", node(MARKED, DETAILED, OURS, GOING), (POD,), False, None, {}),
    (
        "being deleted, guarded",
        node(None, GUARDED | {GUARD_OURS_ANNOTATION: "0"}, GOING),
        (),
        False,
        None,
        {},
    ),
]


@pytest.mark.parametrize(
    ("one", "pods", "wanted", "kind", "annotations"),
    [case[1:] for case in CASES],
    ids=[case[0] for case in CASES],
)
def test_states(
    one: Node,
    pods: tuple[Pod, ...],
    wanted: bool,
    kind: WriteKind | None,
    annotations: dict[str, str | None],
) -> None:
    found = write(one, *pods, wanted=wanted)
    assert [one.kind for one in found] == ([kind] if kind else [])
    for one_write in found:
        assert dict(one_write.annotations) == annotations
        released = kind is WriteKind.RELEASE_MARK
        assert dict(one_write.labels) == ({MARK_LABEL: None} if released else {})


def test_a_mark_is_released_at_its_deadline_and_not_before() -> None:
    def details(deadline: int) -> dict[str, str]:
        made = Details(since=NOW - 60, deadline=deadline, owner="me", policy="p", reason="r")
        return {DETAILS_ANNOTATION: encode_details(made)} | GUARDED

    assert write(node(MARKED, details(NOW + 1), OURS), POD) == []
    (found,) = write(node(MARKED, details(NOW), OURS), POD)
    assert found.kind is WriteKind.RELEASE_MARK


def test_a_new_mark_takes_over_the_guard_that_a_release_has_left() -> None:
    left = GUARDED | {GUARD_OURS_ANNOTATION: LATER}
    (found,) = write(node(None, left), POD)
    assert found.annotations[GUARD_OURS_ANNOTATION] == "marked"


def test_releases_come_first() -> None:
    late = Node(
        name="n2", labels=MARKED, annotations=DETAILED, taints=(OURS,), allocatable=Resources()
    )
    plan = a_plan(wanted=True)
    found = decide(Cluster.of([node(), late], []), plan, CONFIG, now_seconds=NOW, owner="me")
    assert [(one.kind, one.key) for one in found] == [
        (WriteKind.RELEASE_MARK, "n2"),
        (WriteKind.MARK, "n1"),
    ]


def test_a_taint_that_outlived_its_mark_is_taken_away() -> None:
    (found,) = write(node(None, None, OURS), wanted=False)
    assert found.kind is WriteKind.REPAIR_TAINTS


def test_the_guard_stays_a_while_when_somebody_else_takes_the_mark_away() -> None:
    (found,) = write(node(None, GUARDED), POD, wanted=False)
    assert found.annotations == {GUARD_ANNOTATION: "true", GUARD_OURS_ANNOTATION: LATER}


def test_taints_of_others_are_written_with_their_times() -> None:
    """Kubernetes evicts by the time of a NoExecute taint, and the list is written as a whole."""
    lost = Taint("example.org/lost", "", Effect.NO_EXECUTE, "2026-01-01T00:00:00Z")
    found = repair(node(MARKED, DETAILED, lost), TAINT_KEY, "")
    assert found is not None
    assert found.merge_patch("7")["spec"]["taints"] == [
        {"key": lost.key, "effect": "NoExecute", "timeAdded": lost.time_added},
        {"key": TAINT_KEY, "value": OURS.value, "effect": "PreferNoSchedule"},
    ]


def test_a_mark_without_details_is_given_a_deadline() -> None:
    (found,) = write(node(MARKED, GUARDED, OURS), POD)
    details = decode_details({k: v for k, v in found.annotations.items() if v is not None})
    assert details is not None
    assert details.deadline == NOW - 60 + CONFIG.deadline_seconds


def test_a_node_that_cannot_be_guarded_is_not_marked() -> None:
    (blocker,) = node_blockers(node(None, {GUARD_ANNOTATION: "false"}))
    assert blocker.code == "opted-out"


def decided(config: Config, one: Node, *pods: Pod, wanted: bool = True) -> list[Write[Node]]:
    plan = a_plan(wanted, feasible=wanted)
    return list(decide(Cluster.of([one], pods), plan, config, now_seconds=NOW, owner="me"))


OBSERVE = replace(CONFIG, mode=Mode.OBSERVE)
MARKED_ALONE = replace(CONFIG, scale_down_protection=ScaleDownProtection(scope=Scope.MARKED))
HARD = replace(CONFIG, no_schedule_after_seconds=60)
HARD_TAINT = Taint(TAINT_KEY, str(NOW - 60), Effect.NO_SCHEDULE)
LOGS = replace(DAEMON, owner_kind="DaemonSet", owner_name="logs")
BACKED_OFF = {BACKOFF_ANNOTATION: f"2 {NOW - 24 * 3600}"}
LEFT = GUARDED | {GUARD_OURS_ANNOTATION: LATER}
OVER = GUARDED | {GUARD_OURS_ANNOTATION: str(NOW)}


def of_mark(value: str, *taints: Taint) -> Node:
    return node({MARK_LABEL: value}, DETAILED | GUARDED, *taints)


@pytest.mark.parametrize(
    ("config", "one", "pods", "wanted", "kinds"),
    [
        (OBSERVE, marked(**GUARDED), (POD,), True, [WriteKind.RELEASE_MARK]),
        (OBSERVE, node(), (POD,), True, [WriteKind.MARK]),
        (OBSERVE, node(None, LEFT), (POD,), False, []),
        (OBSERVE, node(None, OVER), (POD,), True, [WriteKind.REMOVE_PROTECTION, WriteKind.MARK]),
        (OBSERVE, node(None, None, OURS), (POD,), True, [WriteKind.REPAIR_TAINTS, WriteKind.MARK]),
        (CONFIG, node(None, OVER), (POD,), True, [WriteKind.MARK]),
        (
            OBSERVE,
            node(None, {BACKOFF_ANNOTATION: f"1 {NOW + 9}"}),
            (),
            False,
            [WriteKind.REMOVE_BACKOFF],
        ),
        (CONFIG, node(None, {BACKOFF_ANNOTATION: f"1 {NOW + 9}"}), (), False, []),
        (CONFIG, node(None, BACKED_OFF), (), False, [WriteKind.REMOVE_BACKOFF]),
        (HARD, of_mark("soft", OURS), (POD,), True, [WriteKind.SET_NO_SCHEDULE]),
        (replace(HARD, no_schedule_after_seconds=61), of_mark("soft", OURS), (POD,), True, []),
        (HARD, of_mark("soft", OURS), (POD, LOGS), True, []),
        (HARD, of_mark("hard", HARD_TAINT), (POD,), True, []),
        (HARD, of_mark("hard", HARD_TAINT), (POD, LOGS), True, [WriteKind.SET_PREFER_NO_SCHEDULE]),
        (CONFIG, of_mark("hard", HARD_TAINT), (POD,), True, [WriteKind.SET_PREFER_NO_SCHEDULE]),
        (HARD, of_mark("hard", HARD_TAINT), (POD,), False, [WriteKind.RELEASE_MARK]),
    ],
)
def test_modes_and_marks(
    config: Config, one: Node, pods: tuple[Pod, ...], wanted: bool, kinds: list[WriteKind]
) -> None:
    assert [found.kind for found in decided(config, one, *pods, wanted=wanted)] == kinds


def test_a_hard_mark_whose_details_are_lost_stays_hard() -> None:
    (found,) = decided(HARD, node({MARK_LABEL: "hard"}, GUARDED, HARD_TAINT), POD)
    assert found.kind is WriteKind.MARK
    assert found.labels == {MARK_LABEL: "hard"}


@pytest.mark.parametrize(
    ("one", "kinds"),
    [
        (node(MARKED, DETAILED, OURS), [WriteKind.PROTECT, WriteKind.SET_NO_SCHEDULE]),
        (node(MARKED, {}, OURS), [WriteKind.PROTECT, WriteKind.MARK]),
        (node({MARK_LABEL: "hard"}, DETAILED, HARD_TAINT), [WriteKind.PROTECT]),
    ],
)
def test_the_guard_comes_back_first_whatever_else_is_written(
    one: Node, kinds: list[WriteKind]
) -> None:
    """It presses, where a new date or a hard mark may be dropped."""
    assert [found.kind for found in decided(HARD, one, POD)] == kinds


@pytest.mark.parametrize(
    ("before", "after"), [(None, (1, 3600)), ("1 5", (2, 7200)), ("9999 5", (TIMES_MAX, 86400))]
)
def test_a_node_that_did_not_empty_in_time_is_left_alone_longer_each_time(
    before: str | None, after: tuple[int, int]
) -> None:
    late = Details(since=NOW - 60, deadline=NOW, owner="me", policy="p", reason="r")
    annotations = {DETAILS_ANNOTATION: encode_details(late)} | GUARDED
    if before is not None:
        annotations[BACKOFF_ANNOTATION] = before
    (found,) = decided(CONFIG, node(MARKED, annotations, OURS), POD)
    times, seconds = after
    assert found.annotations[BACKOFF_ANNOTATION] == f"{times} {NOW + seconds}"


@pytest.mark.parametrize(("cpu", "kinds"), [(2000, []), (2001, [WriteKind.REMOVE_PROTECTION])])
def test_a_released_node_above_the_autoscalers_threshold_needs_no_guard(
    cpu: int, kinds: list[WriteKind]
) -> None:
    busy = replace(POD, requests=Resources(cpu, 0, 0, 1))
    found = decided(MARKED_ALONE, node(None, LEFT), busy, wanted=False)
    assert [one.kind for one in found] == kinds
    assert not decided(CONFIG, node(None, LEFT), busy, wanted=False), "it may be empty soon"


GPUS = (("nvidia.com/gpu", 2),)


@pytest.mark.parametrize(
    ("whole", "asked", "kinds"),
    [
        pytest.param(
            Resources(4000, 0, 0, 110), Resources(10, 1, 0, 1), [], id="it has no memory"
        ),
        pytest.param(
            Resources(4000, 1, 0, 110),
            Resources(10, 1, 0, 1),
            [WriteKind.REMOVE_PROTECTION],
            id="one byte",
        ),
        pytest.param(
            Resources(4000, 9, 0, 110, GPUS), Resources(4000, 0, 0, 1), [], id="GPUs alone count"
        ),
        pytest.param(
            Resources(4000, 9, 0, 110, GPUS), Resources(4000, 0, 0, 1, GPUS), [], id="all GPUs"
        ),
        pytest.param(
            Resources(4000, 9, 0, 110, (("vpc.amazonaws.com/pod-eni", 54),)),
            Resources(4000, 0, 0, 1),
            [WriteKind.REMOVE_PROTECTION],
            id="interfaces are no GPUs",
        ),
    ],
)
def test_what_an_autoscaler_does_not_look_at_ends_no_guard(
    whole: Resources, asked: Resources, kinds: list[WriteKind]
) -> None:
    one, user = replace(node(None, LEFT), allocatable=whole), replace(POD, requests=asked)
    found = decided(MARKED_ALONE, one, user, wanted=False)
    assert [write.kind for write in found] == kinds


def test_a_pass_marks_a_first_part_of_the_plan() -> None:
    names = [f"n{number:03}" for number in range(MARKS_A_PASS_MAX + 1)]
    removals = tuple(Removal(name, place, ()) for place, name in enumerate(names[::-1], 1))
    plan = replace(a_plan(wanted=False), removals=removals)
    cluster = Cluster.of([replace(node(), name=name) for name in names], [])
    found = decide(cluster, plan, CONFIG, now_seconds=NOW, owner="me")
    assert [one.key for one in found] == names[:0:-1]


# What another leader's clock wrote.

HOUR = 3600
DAY = CLOCKS_APART_SECONDS_MAX
SECONDS = CONFIG.scale_down_protection.after_release_seconds


def watched(seconds: int, one: Node, *pods: Pod, wanted: bool = True) -> list[Write[Node]]:
    """Decide as a leader that has looked on for so long."""
    plan, cluster = a_plan(wanted, feasible=wanted), Cluster.of([one], pods)
    watch = LeaderObservations(seconds, {})
    return list(decide(cluster, plan, HARD, now_seconds=NOW, owner="me", watch=watch))


def dated(since: int, deadline: int, value: str = "soft") -> Node:
    found = Details(since=since, deadline=deadline, owner="me", policy="p", reason="r")
    annotations = {DETAILS_ANNOTATION: encode_details(found)} | GUARDED
    bare = node({MARK_LABEL: value}, annotations)
    return replace(bare, taints=desired_taints(bare, TAINT_KEY))


@pytest.mark.parametrize(
    ("until", "watching", "kind"),
    [
        (str(NOW + 1), WATCH_SECONDS, None),
        (str(NOW + SECONDS), WATCH_SECONDS, None),
        (str(NOW + SECONDS + 1), WATCH_SECONDS, WriteKind.PROTECT),
        (str(NOW + SECONDS + HOUR), 0, WriteKind.PROTECT),
        ("9" * 40, 0, WriteKind.PROTECT),
        ("-1", WATCH_SECONDS, WriteKind.PROTECT),
        ("\u0663", WATCH_SECONDS, WriteKind.PROTECT),
        ("", WATCH_SECONDS, WriteKind.PROTECT),
        (str(NOW - HOUR), 0, None),
        (str(NOW), WATCH_SECONDS - 1, None),
        (str(NOW), WATCH_SECONDS, WriteKind.REMOVE_PROTECTION),
    ],
)
def test_no_clock_lifts_a_guard_at_once(until: str, watching: int, kind: WriteKind | None) -> None:
    """One whose end cannot be right gets another; none ends before its leader has looked on."""
    one = node(None, GUARDED | {GUARD_OURS_ANNOTATION: until})
    found = watched(watching, one, POD, wanted=False)
    assert [write.kind for write in found] == ([kind] if kind else [])
    if kind is WriteKind.PROTECT:
        assert found[0].annotations == GUARDED | {GUARD_OURS_ANNOTATION: LATER}


@pytest.mark.parametrize(
    ("one", "watching", "kind"),
    [
        (dated(NOW - 2 * HOUR, NOW - HOUR), 0, None),
        (dated(NOW - 2 * HOUR, NOW - HOUR), WATCH_SECONDS - 1, None),
        (dated(NOW - 2 * HOUR, NOW - HOUR), WATCH_SECONDS, WriteKind.RELEASE_MARK),
        (dated(NOW + HOUR, NOW + 2 * HOUR), WATCH_SECONDS, None),
        (dated(NOW + DAY, NOW + DAY + HOUR), WATCH_SECONDS, None),
        (dated(NOW + DAY + 1, NOW + DAY), WATCH_SECONDS, WriteKind.MARK),
        (dated(NOW, NOW + DAY + HOUR + 1), WATCH_SECONDS, WriteKind.MARK),
    ],
)
def test_no_clock_ends_a_mark_at_once_or_keeps_it_for_ever(
    one: Node, watching: int, kind: WriteKind | None
) -> None:
    """Times that nobody's clock has written are written anew."""
    found = [
        write
        for write in watched(watching, one, POD)
        if write.kind is not WriteKind.SET_NO_SCHEDULE
    ]
    assert [write.kind for write in found] == ([kind] if kind else [])
    if kind is WriteKind.MARK:
        anew = decode_details({DETAILS_ANNOTATION: found[0].annotations[DETAILS_ANNOTATION] or ""})
        assert anew is not None
        assert (anew.since, anew.deadline) == (NOW, NOW + CONFIG.deadline_seconds)
        assert found[0].labels == {MARK_LABEL: "soft"}


@pytest.mark.parametrize(
    ("since", "watching", "hard"),
    [(NOW - 60, 60, True), (NOW - 60, 59, False), (NOW - 59, 60, False), (NOW + HOUR, 60, False)],
)
def test_no_clock_hardens_a_mark_at_once(since: int, watching: int, hard: bool) -> None:
    found = watched(watching, dated(since, since + 2 * HOUR), POD)
    assert [write.kind for write in found] == ([WriteKind.SET_NO_SCHEDULE] if hard else [])


@pytest.mark.parametrize(("since", "hard"), [(NOW, False), (NOW - 1, True)])
def test_a_mark_of_this_second_has_no_age_either(since: int, hard: bool) -> None:
    config = replace(CONFIG, no_schedule_after_seconds=1)
    found = decided(config, dated(since, NOW + HOUR), POD)
    assert [write.kind for write in found] == ([WriteKind.SET_NO_SCHEDULE] if hard else [])


def test_a_mark_from_the_future_has_no_age() -> None:
    config = replace(CONFIG, no_schedule_after_seconds=0)
    (found,) = decided(config, dated(NOW + HOUR, NOW + 2 * HOUR), POD)
    assert (found.kind, found.note) == (WriteKind.SET_NO_SCHEDULE, "marked for 0 s")


@pytest.mark.parametrize(
    ("until", "left_alone"),
    [
        (NOW, False),
        (NOW + 1, True),
        (NOW + CONFIG.budgets.backoff.max_seconds + DAY, True),
        (NOW + CONFIG.budgets.backoff.max_seconds + DAY + 1, False),
        (10**12 - 1, False),
    ],
)
def test_no_clock_keeps_a_node_from_going_for_ever(until: int, left_alone: bool) -> None:
    one = node(None, {BACKOFF_ANNOTATION: f"1 {until}"})
    cluster = Cluster.of([one], [])
    held = reconcile(cluster, CONFIG, LeaderState(), NOW).rate_limits
    assert ("n1" in held.backing_off) is left_alone
    forgotten = [write.kind for write in watched(0, one, wanted=False)]
    assert forgotten == ([] if left_alone or until == NOW else [WriteKind.REMOVE_BACKOFF])


def test_a_mark_from_the_future_leaves_the_window_with_its_node() -> None:
    config = replace(CONFIG, budgets=replace(CONFIG.budgets, window_seconds=60))
    memory = reconcile(Cluster.of([dated(10**12 - 1, 0)], []), config, LeaderState(), NOW).state
    assert memory.recent_marks == {"n1": RecordedMark(NOW, "", reached=False)}
    assert reconcile(Cluster.of([], []), config, memory, NOW + 60).state.recent_marks == {}


def test_what_keeps_pods_from_waiting_comes_first_hard_marks_before_soft_ones() -> None:
    """Then what keeps them from being evicted, and what completes that."""
    hard = replace(of_mark("hard", HARD_TAINT), name="z")
    soft = replace(of_mark("soft", OURS), name="a")
    handed = replace(node(MARKED, DETAILED, OURS), name="b")
    bare = replace(node(MARKED, DETAILED | GUARDED), name="c")
    stays = replace(of_mark("hard", HARD_TAINT), name="d")
    found = [hard, soft, handed, bare, stays]
    removals = tuple(Removal(name, place, ()) for place, name in enumerate("bcd", 1))
    plan = replace(a_plan(wanted=False), removals=removals)
    pods = [replace(POD, name=one.name, node=one.name) for one in found]
    writes = decide(Cluster.of(found, pods), plan, CONFIG, now_seconds=NOW, owner="me")
    assert [(write.kind, write.key) for write in writes] == [
        (WriteKind.RELEASE_MARK, "z"),
        (WriteKind.RELEASE_MARK, "a"),
        (WriteKind.SET_PREFER_NO_SCHEDULE, "d"),
        (WriteKind.PROTECT, "b"),
        (WriteKind.REPAIR_TAINTS, "c"),
    ]


FORGOTTEN = {BACKOFF_ANNOTATION: f"1 {NOW - 48 * HOUR}"}
MADE_HARD = "DaemonSet logs does not tolerate the taint"


@pytest.mark.parametrize(
    ("config", "one", "pods", "wanted", "note"),
    [
        (CONFIG, node(), (POD,), True, "the cluster does not need the node"),
        (OBSERVE, marked(**GUARDED), (POD,), True, "the configured mode is observe"),
        (CONFIG, dated(NOW - HOUR, NOW), (POD,), True,
         "the node was not empty before its deadline"),
        (CONFIG, node(None, DETAILED), (POD,), False, "someone else removed the mark"),
        (CONFIG, node(None, GUARDED), (POD,), False, "someone else removed the mark"),
        (CONFIG, marked(), (POD,), True, "the marked node is not empty any more"),
        (CONFIG, marked(**GUARDED), (), True,
         "the marked node is empty, and the autoscaler may remove it"),
        (CONFIG, node(None, {GUARD_OURS_ANNOTATION: LATER}), (), False,
         "someone else removed the protection"),
        (CONFIG, node(None, OVER), (POD,), False, "the protection has reached its end"),
        (CONFIG, node(None, GUARDED | {GUARD_OURS_ANNOTATION: "x"}), (POD,), False,
         "a wrong clock set the end of the protection"),
        (MARKED_ALONE, node(None, LEFT), (replace(POD, requests=Resources(2001, 0, 0, 1)),), False,
         "the unmarked node is above the autoscaler's utilization threshold"),
        (CONFIG, node(None, FORGOTTEN), (), False, "the backoff ended long ago"),
        (CONFIG, node(None, None, OURS), (), False,
         "the taints of the node do not match its mark"),
        (HARD, of_mark("soft", OURS), (POD,), True, "marked for 1 min"),
        (CONFIG, of_mark("hard", HARD_TAINT), (POD,), True,
         "NoSchedule marks are not configured (noScheduleAfter: never)"),
        (HARD, of_mark("hard", HARD_TAINT), (POD, LOGS, replace(LOGS, name="e")), True,
         f"hard-daemonset: {MADE_HARD} {TAINT_KEY}; hard-daemonset: {MADE_HARD} {TAINT_KEY}"),
        (CONFIG, node(MARKED, DETAILED, STOPPED), (), False,
         f"taint {STOPPED.key} announces that the node will be removed"),
    ],
)  # fmt: skip
def test_people_are_told_why(
    config: Config, one: Node, pods: tuple[Pod, ...], wanted: bool, note: str
) -> None:
    (found,) = decided(config, one, *pods, wanted=wanted)
    assert found.note == note


def test_a_node_that_is_released_names_all_that_speaks_against_it() -> None:
    blockers = (Blocker(LAST_NODE, "no other"), Blocker(MIN_NODES, "too few", "a/p"))
    plan = replace(a_plan(False, feasible=False), kept=(UnremovableNode("n1", blockers),))
    (found,) = decide(Cluster.of([marked()], []), plan, CONFIG, now_seconds=NOW, owner="me")
    assert found.note == "last-node: no other; min-nodes: too few"


KEY = "example.com/drain"


def of_key(one: Node) -> Node:
    """Return the node as it would be under another key."""
    taints = tuple(replace(t, key=KEY) if t.key == TAINT_KEY else t for t in one.taints)
    return replace(one, taints=taints)


@pytest.mark.parametrize("case", CASES, ids=[case[0] for case in CASES])
def test_states_are_the_same_under_another_key(case: Case) -> None:
    _, one, pods, wanted, kind, annotations = case
    found = decided(replace(CONFIG, taint_key=KEY), of_key(one), *pods, wanted=wanted)
    assert [write.kind for write in found] == ([kind] if kind else [])
    for write in found:
        assert annotations.items() <= write.annotations.items()


def test_times_of_a_taint_under_another_key_are_read_and_no_others() -> None:
    one = of_key(node(MARKED, GUARDED, OURS))
    (found,) = decided(replace(CONFIG, taint_key=KEY), one, POD)
    details = decode_details({k: v for k, v in found.annotations.items() if v is not None})
    assert details is not None
    assert details.since == NOW - 60
    hard = replace(HARD, taint_key=KEY)
    undated = of_key(node(MARKED, DETAILED | GUARDED, OURS))
    assert [write.kind for write in decided(hard, undated, POD)] == [WriteKind.SET_NO_SCHEDULE]


def test_all_hard_marks_are_softened_but_on_nodes_that_are_being_deleted() -> None:
    hard = of_mark("hard", HARD_TAINT)
    going = of_mark("hard", HARD_TAINT, GOING)
    found = prefer_no_schedule_writes(
        [hard, going, of_mark("soft", OURS), node()], "no pass can be made"
    )
    assert found == [
        Write.of(
            WriteKind.SET_PREFER_NO_SCHEDULE, hard, {MARK_LABEL: "soft"}, {}, "no pass can be made"
        )
    ]


@pytest.mark.parametrize(("after", "age", "kinds"), [
    (0, 0, [WriteKind.SET_NO_SCHEDULE]),
    (1, 0, []),
    (1, 1, []),
])  # fmt: skip
def test_a_leader_that_begins_hardens_what_needs_no_time_alone(
    after: int, age: int, kinds: list[WriteKind]
) -> None:
    one = dated(NOW - age, NOW + HOUR)
    found = decide(
        Cluster.of([one], [POD]),
        a_plan(True),
        replace(CONFIG, no_schedule_after_seconds=after),
        now_seconds=NOW,
        owner="me",
        watch=LeaderObservations(0, {}),
    )
    assert [write.kind for write in found] == kinds


@pytest.mark.parametrize("key", [TAINT_KEY, KEY])
def test_taints_are_repaired_to_those_of_the_mark_and_theirs_stay(key: str) -> None:
    theirs = Taint("theirs", "x", Effect.NO_SCHEDULE)
    one = node(MARKED, DETAILED | GUARDED, theirs)
    (found,) = decided(replace(CONFIG, taint_key=key), one, POD)
    ours = Taint(key, str(DETAILS.since), Effect.PREFER_NO_SCHEDULE)
    assert (found.kind, found.taints) == (WriteKind.REPAIR_TAINTS, (theirs, ours))
