"""Decide the writes of a Node: one row per state."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from core.config.settings import Config, Mode
from core.eligibility.node_eligibility import node_blockers
from core.engine.leader_state import LeaderState
from core.engine.limits import MIN_NODES
from core.engine.mark_limits import BACKOFF, NewMarks, RecordedMark
from core.engine.plan import Plan, Removal, UnremovableNode
from core.engine.reconcile import reconcile
from core.marks.mark import (
    BACKOFF_SECONDS_MAX,
    CLOCKS_APART_SECONDS_MAX,
    TIMES_MAX,
    Details,
    decode_details,
    encode_details,
)
from core.marks.taints import desired_taints
from core.marks.wellknown import (
    BACKOFF_ANNOTATION,
    DETAILS_ANNOTATION,
    KEEP_ANNOTATION,
    MARK_LABEL,
    PROTECTION_ANNOTATION,
    SCALE_DOWN_DISABLED_ANNOTATION,
    TAINT_KEY,
)
from core.model.cluster import Cluster
from core.model.node import Effect, Node, Taint
from core.model.pod import Pod
from core.model.reason import Blocker
from core.model.resources import Resources
from core.placement.usable_capacity import NOTHING, Totals
from core.policies.cluster_threshold import LAST_NODE
from core.writes.node_facts import WATCH_SECONDS
from core.writes.nodes import (
    COMES_BACK,
    MARKS_PER_RECONCILIATION_MAX,
    LeaderObservations,
    decide,
)
from core.writes.write import Write, WriteKind, prefer_no_schedule_writes, repair

pytestmark = pytest.mark.mutate

NOW = 1_767_225_600

CONFIG = Config(mode=Mode.ENFORCE, deadline_seconds=3600)
LATER = str(NOW + CONFIG.scale_down_protection.after_unmark_seconds)
DETAILS = Details(since=NOW - 60, deadline=NOW + 60, owner="me", policy="p", reason="r")
OURS = Taint(TAINT_KEY, str(NOW - 60), Effect.PREFER_NO_SCHEDULE)
TO_BE_DELETED = Taint("ToBeDeletedByClusterAutoscaler", "1", Effect.NO_SCHEDULE)
SHUT_DOWN = Taint("node.cloudprovider.kubernetes.io/shutdown", "", Effect.NO_SCHEDULE)
MARKED = {MARK_LABEL: "PreferNoSchedule"}
BACKED_OFF = {BACKOFF_ANNOTATION: f"1 {NOW + 60}"}
DETAILED = {DETAILS_ANNOTATION: encode_details(DETAILS)}
PROTECTION = {SCALE_DOWN_DISABLED_ANNOTATION: "true", PROTECTION_ANNOTATION: "marked"}
FOREIGN = {SCALE_DOWN_DISABLED_ANNOTATION: "true"}
LIFTED: Mapping[str, str | None] = {
    SCALE_DOWN_DISABLED_ANNOTATION: None,
    PROTECTION_ANNOTATION: None,
}
RELEASED = {
    DETAILS_ANNOTATION: None,
    SCALE_DOWN_DISABLED_ANNOTATION: "true",
    PROTECTION_ANNOTATION: LATER,
}


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
"""The lowest priority at which Cluster Autoscaler does not ignore the pod."""


def test_mark_writes_label_details_and_protection_in_one_patch() -> None:
    (found,) = write(node(), POD)
    metadata = found.merge_patch("7")["metadata"]
    assert metadata["resourceVersion"] == "7"
    details = decode_details(metadata["annotations"])
    assert found.kind is WriteKind.MARK
    assert metadata["labels"] == MARKED
    assert PROTECTION.items() <= metadata["annotations"].items()
    assert details is not None
    assert (details.since, details.deadline, details.owner) == (NOW, NOW + 3600, "me")
    assert details.order == 1


Case = tuple[str, Node, tuple[Pod, ...], bool, WriteKind | None, dict[str, Any]]
CASES: list[Case] = [
    ("not wanted, not marked", node(), (POD,), False, None, {}),
    ("marked, occupied, protected", marked(**PROTECTION), (POD,), True, None, {}),
    ("marked, empty", marked(**PROTECTION), (), True, WriteKind.REMOVE_PROTECTION, dict(LIFTED)),
    (
        "marked, only pods bound to the node",
        marked(**PROTECTION),
        (DAEMON, MIRROR, FILLER),
        True,
        WriteKind.REMOVE_PROTECTION,
        dict(LIFTED),
    ),
    ("scale-down allowed, still empty", marked(), (DAEMON,), True, None, {}),
    (
        "scale-down allowed, a pod arrives",
        marked(),
        (POD,),
        True,
        WriteKind.PROTECT,
        PROTECTION,
    ),
    (
        "scale-down allowed, a pod of the lowest priority",
        marked(),
        (LEAST,),
        True,
        WriteKind.PROTECT,
        PROTECTION,
    ),
    ("marked, a pod of the lowest priority", marked(**PROTECTION), (LEAST,), True, None, {}),
    ("marked, infeasible", marked(**PROTECTION), (POD,), False, WriteKind.UNMARK, RELEASED),
    (
        "scale-down allowed, infeasible",
        marked(),
        (),
        False,
        WriteKind.UNMARK,
        RELEASED,
    ),
    (
        "marked, foreign protection",
        marked(**FOREIGN),
        (POD,),
        False,
        WriteKind.UNMARK,
        {DETAILS_ANNOTATION: None},
    ),
    ("foreign protection, empty", marked(**FOREIGN), (), True, None, {}),
    ("foreign protection, not empty", marked(**FOREIGN), (POD,), True, None, {}),
    ("foreign protection, no mark", node(None, FOREIGN), (), False, None, {}),
    (
        "taint missing",
        node(MARKED, DETAILED | PROTECTION),
        (POD,),
        True,
        WriteKind.REPAIR_TAINTS,
        {},
    ),
    (
        "label removed by someone else",
        node(None, DETAILED | PROTECTION),
        (POD,),
        False,
        WriteKind.UNMARK,
        RELEASED,
    ),
    (
        "unmarked, protection not expired",
        node(None, PROTECTION | {PROTECTION_ANNOTATION: str(NOW + 1)}),
        (POD,),
        False,
        None,
        {},
    ),
    (
        "unmarked, protection expired",
        node(None, PROTECTION | {PROTECTION_ANNOTATION: str(NOW)}),
        (POD,),
        False,
        WriteKind.REMOVE_PROTECTION,
        dict(LIFTED),
    ),
    (
        "unmarked, protection removed by someone else",
        node(None, {PROTECTION_ANNOTATION: str(NOW)}),
        (POD,),
        False,
        WriteKind.REMOVE_PROTECTION,
        {PROTECTION_ANNOTATION: None},
    ),
    ("invalid backoff", node(None, {BACKOFF_ANNOTATION: "x"}), (), False, None, {}),
    ("being deleted, wanted", node(None, None, TO_BE_DELETED), (), True, None, {}),
    ("machine shuts down, nothing of Ebb", node(None, FOREIGN, SHUT_DOWN), (), False, None, {}),
    (
        "machine shuts down, marked: the autoscaler may delete it",
        node(MARKED, DETAILED | PROTECTION | BACKED_OFF, OURS, SHUT_DOWN),
        (POD,),
        False,
        WriteKind.UNMARK,
        {DETAILS_ANNOTATION: None, **LIFTED},
    ),
    (
        "machine shuts down, protected after a release",
        node(None, PROTECTION | {PROTECTION_ANNOTATION: LATER}, SHUT_DOWN),
        (POD,),
        False,
        WriteKind.REMOVE_PROTECTION,
        dict(LIFTED),
    ),
    (
        "machine shuts down, taint left over",
        node(None, BACKED_OFF, OURS, SHUT_DOWN),
        (),
        False,
        WriteKind.REPAIR_TAINTS,
        {},
    ),
    (
        "being deleted, marked",
        node(MARKED, DETAILED, OURS, TO_BE_DELETED),
        (POD,),
        False,
        None,
        {},
    ),
    (
        "being deleted, protected",
        node(None, PROTECTION | {PROTECTION_ANNOTATION: "0"}, TO_BE_DELETED),
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
def test_state_leads_to_write(
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
        released = kind is WriteKind.UNMARK
        assert dict(one_write.labels) == ({MARK_LABEL: None} if released else {})


def test_node_is_unmarked_at_its_deadline() -> None:
    def details(deadline: int) -> dict[str, str]:
        made = Details(since=NOW - 60, deadline=deadline, owner="me", policy="p", reason="r")
        return {DETAILS_ANNOTATION: encode_details(made)} | PROTECTION

    assert write(node(MARKED, details(NOW + 1), OURS), POD) == []
    (found,) = write(node(MARKED, details(NOW), OURS), POD)
    assert found.kind is WriteKind.UNMARK


def test_new_mark_takes_over_protection_of_previous_mark() -> None:
    left = PROTECTION | {PROTECTION_ANNOTATION: LATER}
    (found,) = write(node(None, left), POD)
    assert found.annotations[PROTECTION_ANNOTATION] == "marked"


def test_nodes_are_unmarked_before_others_are_marked() -> None:
    late = Node(
        name="n2", labels=MARKED, annotations=DETAILED, taints=(OURS,), allocatable=Resources()
    )
    plan = a_plan(wanted=True)
    found = decide(Cluster.of([node(), late], []), plan, CONFIG, now_seconds=NOW, owner="me")
    assert [(one.kind, one.key) for one in found] == [
        (WriteKind.UNMARK, "n2"),
        (WriteKind.MARK, "n1"),
    ]


def test_taint_is_removed_when_node_has_no_mark() -> None:
    (found,) = write(node(None, None, OURS), wanted=False)
    assert found.kind is WriteKind.REPAIR_TAINTS


def test_protection_ends_later_when_someone_else_removes_mark() -> None:
    (found,) = write(node(None, PROTECTION), POD, wanted=False)
    assert found.annotations == {
        SCALE_DOWN_DISABLED_ANNOTATION: "true",
        PROTECTION_ANNOTATION: LATER,
    }


def test_foreign_taints_are_written_with_time_added() -> None:
    """Kubernetes evicts by the time of a NoExecute taint, and a write replaces the whole list."""
    lost = Taint("example.org/lost", "", Effect.NO_EXECUTE, "2026-01-01T00:00:00Z")
    found = repair(node(MARKED, DETAILED, lost), TAINT_KEY, "")
    assert found is not None
    assert found.merge_patch("7")["spec"]["taints"] == [
        {"key": lost.key, "effect": "NoExecute", "timeAdded": lost.time_added},
        {"key": TAINT_KEY, "value": OURS.value, "effect": "PreferNoSchedule"},
    ]


def test_mark_gets_deadline_when_details_are_missing() -> None:
    (found,) = write(node(MARKED, PROTECTION, OURS), POD)
    details = decode_details({k: v for k, v in found.annotations.items() if v is not None})
    assert details is not None
    assert details.deadline == NOW - 60 + CONFIG.deadline_seconds


def test_node_is_blocked_when_it_cannot_be_protected() -> None:
    (blocker,) = node_blockers(node(None, {SCALE_DOWN_DISABLED_ANNOTATION: "false"}))
    assert blocker.code == "opted-out"


def decided(config: Config, one: Node, *pods: Pod, wanted: bool = True) -> list[Write[Node]]:
    plan = a_plan(wanted, feasible=wanted)
    return list(decide(Cluster.of([one], pods), plan, config, now_seconds=NOW, owner="me"))


OBSERVE = replace(CONFIG, mode=Mode.OBSERVE)
NO_SCHEDULE = replace(CONFIG, no_schedule_after_seconds=60)
NO_SCHEDULE_TAINT = Taint(TAINT_KEY, str(NOW - 60), Effect.NO_SCHEDULE)
LOGS = replace(DAEMON, owner_kind="DaemonSet", owner_name="logs")
BACKED_OFF = {BACKOFF_ANNOTATION: f"2 {NOW - 24 * 3600}"}
ENDING = PROTECTION | {PROTECTION_ANNOTATION: LATER}
EXPIRED = PROTECTION | {PROTECTION_ANNOTATION: str(NOW)}


def with_mark(value: str, *taints: Taint) -> Node:
    return node({MARK_LABEL: value}, DETAILED | PROTECTION, *taints)


@pytest.mark.parametrize(
    ("config", "one", "pods", "wanted", "kinds"),
    [
        (OBSERVE, marked(**PROTECTION), (POD,), True, [WriteKind.UNMARK]),
        (OBSERVE, node(), (POD,), True, [WriteKind.MARK]),
        (OBSERVE, node(None, ENDING), (POD,), False, []),
        (
            OBSERVE,
            node(None, EXPIRED),
            (POD,),
            True,
            [WriteKind.REMOVE_PROTECTION, WriteKind.MARK],
        ),
        (OBSERVE, node(None, None, OURS), (POD,), True, [WriteKind.REPAIR_TAINTS, WriteKind.MARK]),
        (CONFIG, node(None, EXPIRED), (POD,), True, [WriteKind.MARK]),
        (
            OBSERVE,
            node(None, {BACKOFF_ANNOTATION: f"1 {NOW + 9}"}),
            (),
            False,
            [WriteKind.REMOVE_BACKOFF],
        ),
        (CONFIG, node(None, {BACKOFF_ANNOTATION: f"1 {NOW + 9}"}), (), False, []),
        (CONFIG, node(None, BACKED_OFF), (), False, [WriteKind.REMOVE_BACKOFF]),
        (
            NO_SCHEDULE,
            with_mark("PreferNoSchedule", OURS),
            (POD,),
            True,
            [WriteKind.SET_NO_SCHEDULE],
        ),
        (
            replace(NO_SCHEDULE, no_schedule_after_seconds=61),
            with_mark("PreferNoSchedule", OURS),
            (POD,),
            True,
            [],
        ),
        (
            replace(NO_SCHEDULE, pause_until_seconds=NOW + 1),
            with_mark("PreferNoSchedule", OURS),
            (POD,),
            True,
            [],
        ),
        (
            replace(NO_SCHEDULE, pause_until_seconds=NOW + 1),
            with_mark("PreferNoSchedule", OURS),
            (POD,),
            False,
            [WriteKind.UNMARK],
        ),
        (
            replace(NO_SCHEDULE, pause_until_seconds=NOW),
            with_mark("PreferNoSchedule", OURS),
            (POD,),
            True,
            [WriteKind.SET_NO_SCHEDULE],
        ),
        (NO_SCHEDULE, with_mark("PreferNoSchedule", OURS), (POD, LOGS), True, []),
        (NO_SCHEDULE, with_mark("NoSchedule", NO_SCHEDULE_TAINT), (POD,), True, []),
        (
            NO_SCHEDULE,
            with_mark("NoSchedule", NO_SCHEDULE_TAINT),
            (POD, LOGS),
            True,
            [WriteKind.SET_PREFER_NO_SCHEDULE],
        ),
        (
            CONFIG,
            with_mark("NoSchedule", NO_SCHEDULE_TAINT),
            (POD,),
            True,
            [WriteKind.SET_PREFER_NO_SCHEDULE],
        ),
        (
            NO_SCHEDULE,
            with_mark("NoSchedule", NO_SCHEDULE_TAINT),
            (POD,),
            False,
            [WriteKind.UNMARK],
        ),
    ],
)
def test_writes_follow_mode_and_mark_value(
    config: Config, one: Node, pods: tuple[Pod, ...], wanted: bool, kinds: list[WriteKind]
) -> None:
    assert [found.kind for found in decided(config, one, *pods, wanted=wanted)] == kinds


def test_no_schedule_mark_is_retained_when_details_are_missing() -> None:
    (found,) = decided(
        NO_SCHEDULE, node({MARK_LABEL: "NoSchedule"}, PROTECTION, NO_SCHEDULE_TAINT), POD
    )
    assert found.kind is WriteKind.MARK
    assert found.labels == {MARK_LABEL: "NoSchedule"}


@pytest.mark.parametrize(
    ("one", "kinds"),
    [
        (node(MARKED, DETAILED, OURS), [WriteKind.PROTECT, WriteKind.SET_NO_SCHEDULE]),
        (node(MARKED, {}, OURS), [WriteKind.PROTECT, WriteKind.MARK]),
        (node({MARK_LABEL: "NoSchedule"}, DETAILED, NO_SCHEDULE_TAINT), [WriteKind.PROTECT]),
    ],
)
def test_protection_is_written_before_other_changes(one: Node, kinds: list[WriteKind]) -> None:
    """Protection is urgent; a new deadline or a NoSchedule mark may be deferred."""
    assert [found.kind for found in decided(NO_SCHEDULE, one, POD)] == kinds


@pytest.mark.parametrize(
    ("before", "after"), [(None, (1, 3600)), ("1 5", (2, 7200)), ("9999 5", (TIMES_MAX, 86400))]
)
def test_backoff_grows_each_time_node_misses_its_deadline(
    before: str | None, after: tuple[int, int]
) -> None:
    late = Details(since=NOW - 60, deadline=NOW, owner="me", policy="p", reason="r")
    annotations = {DETAILS_ANNOTATION: encode_details(late)} | PROTECTION
    if before is not None:
        annotations[BACKOFF_ANNOTATION] = before
    (found,) = decided(CONFIG, node(MARKED, annotations, OURS), POD)
    times, seconds = after
    assert found.annotations[BACKOFF_ANNOTATION] == f"{times} {NOW + seconds}"


def test_reconciliation_marks_bounded_first_part_of_plan() -> None:
    names = [f"n{number:03}" for number in range(MARKS_PER_RECONCILIATION_MAX + 1)]
    removals = tuple(Removal(name, place, ()) for place, name in enumerate(names[::-1], 1))
    plan = replace(a_plan(wanted=False), removals=removals)
    cluster = Cluster.of([replace(node(), name=name) for name in names], [])
    found = decide(cluster, plan, CONFIG, now_seconds=NOW, owner="me")
    assert [one.key for one in found] == names[:0:-1]


# Times that the clock of another leader wrote.

HOUR = 3600
DAY = CLOCKS_APART_SECONDS_MAX
SECONDS = CONFIG.scale_down_protection.after_unmark_seconds


def decided_after(seconds: int, one: Node, *pods: Pod, wanted: bool = True) -> list[Write[Node]]:
    """Decide as a leader that has observed the cluster for *seconds*."""
    plan, cluster = a_plan(wanted, feasible=wanted), Cluster.of([one], pods)
    watch = LeaderObservations(seconds, {})
    return list(decide(cluster, plan, NO_SCHEDULE, now_seconds=NOW, owner="me", watch=watch))


def dated(since: int, deadline: int, value: str = "PreferNoSchedule") -> Node:
    found = Details(since=since, deadline=deadline, owner="me", policy="p", reason="r")
    annotations = {DETAILS_ANNOTATION: encode_details(found)} | PROTECTION
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
def test_protection_does_not_end_at_once_when_clock_is_wrong(
    until: str, watching: int, kind: WriteKind | None
) -> None:
    """An implausible end is replaced; no protection ends before the leader has observed it."""
    one = node(None, PROTECTION | {PROTECTION_ANNOTATION: until})
    found = decided_after(watching, one, POD, wanted=False)
    assert [write.kind for write in found] == ([kind] if kind else [])
    if kind is WriteKind.PROTECT:
        assert found[0].annotations == PROTECTION | {PROTECTION_ANNOTATION: LATER}


@pytest.mark.parametrize(
    ("one", "watching", "kind"),
    [
        (dated(NOW - 2 * HOUR, NOW - HOUR), 0, None),
        (dated(NOW - 2 * HOUR, NOW - HOUR), WATCH_SECONDS - 1, None),
        (dated(NOW - 2 * HOUR, NOW - HOUR), WATCH_SECONDS, WriteKind.UNMARK),
        (dated(NOW + HOUR, NOW + 2 * HOUR), WATCH_SECONDS, None),
        (dated(NOW + DAY, NOW + DAY + HOUR), WATCH_SECONDS, None),
        (dated(NOW + DAY + 1, NOW + DAY), WATCH_SECONDS, WriteKind.MARK),
        (dated(NOW, NOW + DAY + HOUR + 1), WATCH_SECONDS, WriteKind.MARK),
    ],
)
def test_mark_neither_ends_at_once_nor_lasts_forever_when_clock_is_wrong(
    one: Node, watching: int, kind: WriteKind | None
) -> None:
    """Implausible times are rewritten."""
    found = [
        write
        for write in decided_after(watching, one, POD)
        if write.kind is not WriteKind.SET_NO_SCHEDULE
    ]
    assert [write.kind for write in found] == ([kind] if kind else [])
    if kind is WriteKind.MARK:
        rewritten = decode_details(
            {DETAILS_ANNOTATION: found[0].annotations[DETAILS_ANNOTATION] or ""}
        )
        assert rewritten is not None
        assert (rewritten.since, rewritten.deadline) == (NOW, NOW + CONFIG.deadline_seconds)
        assert found[0].labels == {MARK_LABEL: "PreferNoSchedule"}


@pytest.mark.parametrize(
    ("since", "watching", "no_schedule"),
    [(NOW - 60, 60, True), (NOW - 60, 59, False), (NOW - 59, 60, False), (NOW + HOUR, 60, False)],
)
def test_mark_does_not_become_no_schedule_at_once_when_clock_is_wrong(
    since: int, watching: int, no_schedule: bool
) -> None:
    found = decided_after(watching, dated(since, since + 2 * HOUR), POD)
    assert [write.kind for write in found] == ([WriteKind.SET_NO_SCHEDULE] if no_schedule else [])


@pytest.mark.parametrize(("since", "no_schedule"), [(NOW, False), (NOW - 1, True)])
def test_mark_of_this_second_has_age_zero(since: int, no_schedule: bool) -> None:
    config = replace(CONFIG, no_schedule_after_seconds=1)
    found = decided(config, dated(since, NOW + HOUR), POD)
    assert [write.kind for write in found] == ([WriteKind.SET_NO_SCHEDULE] if no_schedule else [])


def test_mark_from_future_has_age_zero() -> None:
    config = replace(CONFIG, no_schedule_after_seconds=0)
    (found,) = decided(config, dated(NOW + HOUR, NOW + 2 * HOUR), POD)
    assert (found.kind, found.note) == (
        WriteKind.SET_NO_SCHEDULE,
        "the node has been marked for 0 s",
    )


@pytest.mark.parametrize(
    ("until", "backing_off"),
    [
        (NOW, False),
        (NOW + 1, True),
        (NOW + BACKOFF_SECONDS_MAX + DAY, True),
        (NOW + BACKOFF_SECONDS_MAX + DAY + 1, False),
        (10**12 - 1, False),
    ],
)
def test_backoff_does_not_last_forever_when_clock_is_wrong(until: int, backing_off: bool) -> None:
    one = node(None, {BACKOFF_ANNOTATION: f"1 {until}"})
    cluster = Cluster.of([one], [])
    limits = reconcile(cluster, CONFIG, LeaderState(), NOW).rate_limits
    assert ("n1" in limits.of(BACKOFF)) is backing_off
    forgotten = [write.kind for write in decided_after(0, one, wanted=False)]
    assert forgotten == ([] if backing_off or until == NOW else [WriteKind.REMOVE_BACKOFF])


def test_recorded_mark_from_future_expires_when_node_is_removed() -> None:
    config = replace(CONFIG, budgets=replace(CONFIG.budgets, period_seconds=60))
    memory = reconcile(Cluster.of([dated(10**12 - 1, 0)], []), config, LeaderState(), NOW).state
    assert memory.limit(NewMarks).marks == {"n1": RecordedMark(NOW, ("",), reached=False)}
    later = reconcile(Cluster.of([], []), config, memory, NOW + 60).state
    assert later.limit(NewMarks).marks == {}


def test_writes_are_ordered_by_urgency() -> None:
    """First releases, NoSchedule marks before others; then softer marks, protection, repairs."""
    no_schedule = replace(with_mark("NoSchedule", NO_SCHEDULE_TAINT), name="z")
    prefer_no_schedule = replace(with_mark("PreferNoSchedule", OURS), name="a")
    scale_down_allowed = replace(node(MARKED, DETAILED, OURS), name="b")
    bare = replace(node(MARKED, DETAILED | PROTECTION), name="c")
    stays = replace(with_mark("NoSchedule", NO_SCHEDULE_TAINT), name="d")
    found = [no_schedule, prefer_no_schedule, scale_down_allowed, bare, stays]
    removals = tuple(Removal(name, place, ()) for place, name in enumerate("bcd", 1))
    plan = replace(a_plan(wanted=False), removals=removals)
    pods = [replace(POD, name=one.name, node=one.name) for one in found]
    writes = decide(Cluster.of(found, pods), plan, CONFIG, now_seconds=NOW, owner="me")
    assert [(write.kind, write.key) for write in writes] == [
        (WriteKind.UNMARK, "z"),
        (WriteKind.UNMARK, "a"),
        (WriteKind.SET_PREFER_NO_SCHEDULE, "d"),
        (WriteKind.PROTECT, "b"),
        (WriteKind.REPAIR_TAINTS, "c"),
    ]


FORGOTTEN = {BACKOFF_ANNOTATION: f"1 {NOW - 48 * HOUR}"}
REPELLED = "DaemonSet logs does not tolerate the taint"


@pytest.mark.parametrize(
    ("config", "one", "pods", "wanted", "note"),
    [
        (CONFIG, node(), (POD,), True, "the cluster does not need the node"),
        (OBSERVE, marked(**PROTECTION), (POD,), True, "the configured mode is observe"),
        (CONFIG, dated(NOW - HOUR, NOW), (POD,), True,
         "the node was not empty before its deadline"),
        (CONFIG, node(None, DETAILED), (POD,), True,
         f"the cluster does not need the node; someone else removed the mark, and {COMES_BACK}"),
        (CONFIG, node(None, DETAILED), (POD,), False,
         f"someone else removed the mark; {COMES_BACK}"),
        (CONFIG, node(None, PROTECTION), (POD,), False,
         ("someone else removed the mark; the protection from scale-down ends in 15 min; "
         f"{COMES_BACK}")),
        (CONFIG, node(None, {**DETAILED, KEEP_ANNOTATION: "true"}), (POD,), False,
         "someone else removed the mark"),
        (OBSERVE, node(None, DETAILED), (POD,), False, "someone else removed the mark"),
        (CONFIG, marked(), (POD,), True, "the marked node is not empty any more"),
        (CONFIG, marked(**PROTECTION), (), True,
         "the marked node is empty and not reserved, so the autoscaler may remove it"),
        (CONFIG, node(None, {PROTECTION_ANNOTATION: LATER}), (), False,
         "someone else removed the scale-down protection"),
        (CONFIG, node(None, EXPIRED), (POD,), False,
         "the scale-down protection of the unmarked node has reached its end"),
        (CONFIG, node(None, PROTECTION | {PROTECTION_ANNOTATION: "x"}), (POD,), False,
         ("the former end of the scale-down protection was not valid; the protection from "
         "scale-down ends in 15 min")),
        (CONFIG, node(None, FORGOTTEN), (), False,
         ("the backoff ended at least a day ago, its end is too far in the future, or the mode is "
         "observe")),
        (CONFIG, node(None, None, OURS), (), False,
         "the taints of the node do not match its mark"),
        (NO_SCHEDULE, with_mark("PreferNoSchedule", OURS), (POD,), True,
         "the node has been marked for 1 min"),
        (CONFIG, with_mark("NoSchedule", NO_SCHEDULE_TAINT), (POD,), True,
         "NoSchedule marks are not configured (noScheduleAfter: never)"),
        (replace(NO_SCHEDULE, no_schedule_after_seconds=3600),
         with_mark("NoSchedule", NO_SCHEDULE_TAINT),
         (POD,), True,
         "the mark is younger than `noScheduleAfter` (1 h)"),
        (NO_SCHEDULE, with_mark("NoSchedule", NO_SCHEDULE_TAINT),
         (POD, LOGS, replace(LOGS, name="e")), True,
         "; ".join(
             f"no-schedule-daemonset: pod a/{name}: {REPELLED} {TAINT_KEY}" for name in "de")),
        (CONFIG, node(MARKED, DETAILED, SHUT_DOWN), (), False,
         f"taint {SHUT_DOWN.key} announces that the node will be removed"),
    ],
)  # fmt: skip
def test_write_has_note_with_reason(
    config: Config, one: Node, pods: tuple[Pod, ...], wanted: bool, note: str
) -> None:
    (found,) = decided(config, one, *pods, wanted=wanted)
    assert found.note == note


def test_note_of_unmarking_names_all_blockers() -> None:
    blockers = (Blocker(LAST_NODE, "no other"), Blocker(MIN_NODES, "too few", "a/p"))
    plan = replace(a_plan(False, feasible=False), kept=(UnremovableNode("n1", blockers),))
    (found,) = decide(Cluster.of([marked()], []), plan, CONFIG, now_seconds=NOW, owner="me")
    assert found.note == "last-node: no other; min-nodes: pod a/p: too few"


def test_mark_time_is_read_from_taint() -> None:
    one = node(MARKED, PROTECTION, OURS)
    (found,) = decided(CONFIG, one, POD)
    details = decode_details({k: v for k, v in found.annotations.items() if v is not None})
    assert details is not None
    assert details.since == NOW - 60


def test_marks_become_prefer_no_schedule_unless_node_is_being_deleted() -> None:
    no_schedule = with_mark("NoSchedule", NO_SCHEDULE_TAINT)
    going = with_mark("NoSchedule", NO_SCHEDULE_TAINT, TO_BE_DELETED)
    found = prefer_no_schedule_writes(
        [no_schedule, going, with_mark("PreferNoSchedule", OURS), node()],
        "no reconciliation can be made",
    )
    assert found == [
        Write.of(
            WriteKind.SET_PREFER_NO_SCHEDULE,
            no_schedule,
            {MARK_LABEL: "PreferNoSchedule"},
            {},
            "no reconciliation can be made",
        )
    ]


@pytest.mark.parametrize(("after", "age", "kinds"), [
    (0, 0, [WriteKind.SET_NO_SCHEDULE]),
    (1, 0, []),
    (1, 1, []),
])  # fmt: skip
def test_new_leader_writes_no_schedule_only_when_no_delay_is_configured(
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


def test_repair_writes_taint_of_mark_and_keeps_foreign_taints() -> None:
    theirs = Taint("theirs", "x", Effect.NO_SCHEDULE)
    one = node(MARKED, DETAILED | PROTECTION, theirs)
    (found,) = decided(CONFIG, one, POD)
    ours = Taint(TAINT_KEY, str(DETAILS.since), Effect.PREFER_NO_SCHEDULE)
    assert (found.kind, found.taints) == (WriteKind.REPAIR_TAINTS, (theirs, ours))
