"""Which pods may be disturbed, which leave by themselves, and what that means for their node."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.guards.disruption import (
    DO_NOT_DISRUPT,
    NO_FACTS,
    NOTES,
    PREFER_NO_EVICTION,
    RULES,
    SAFE_TO_EVICT,
    SAFE_VOLUMES,
    Facts,
    Verdict,
    findings,
)
from core.guards.lingering import eviction_blockers, stickiness, sticky_pods
from core.model.cluster import DisruptionBudget
from core.model.constraints import Ties
from core.model.pod import Pod
from tests.support.builders import select

HOUR = 3600
ONES = Facts(now_seconds=10 * HOUR, owners=frozenset({("ReplicaSet", "d", "web")}))
PLAIN = Pod(namespace="d", name="p", node="n", owner_kind="ReplicaSet", owner_name="web")
IGNORED, LEAVING = Verdict.IGNORED, Verdict.LEAVING
EVICTABLE, STICKY, GUARDED = Verdict.EVICTABLE, Verdict.STICKY, Verdict.GUARDED


def like(**changes: object) -> Pod:
    return replace(PLAIN, **changes)  # type: ignore[arg-type]


def noted(started: int | None = None, **notes: str) -> Pod:
    keys = {
        "safe": SAFE_TO_EVICT,
        "volumes": SAFE_VOLUMES,
        "disrupt": DO_NOT_DISRUPT,
        "prefer": PREFER_NO_EVICTION,
    }
    found = tuple(sorted((keys[name], value) for name, value in notes.items()))
    return like(ties=Ties(notes=found, started_seconds=started))


def data(*volumes: str, safe: str | None = None) -> Pod:
    notes = () if safe is None else ((SAFE_VOLUMES, safe),)
    return like(ties=Ties(local_volumes=volumes, notes=notes))


def terminating(overdue: int | None) -> Pod:
    return like(terminating=True, ties=Ties(overdue_seconds=overdue))


def codes(pod: Pod, facts: Facts = NO_FACTS) -> list[str]:
    return [reason.code for reason, _ in findings(pod, facts)]


TABLE: list[tuple[Pod, list[tuple[str, Verdict]]]] = [
    (PLAIN, []),
    (like(owner_kind="Job"), []),
    (like(owner_kind="ReplicationController"), []),
    # Goes with its node, or counts for nothing: nothing more is asked.
    (like(mirror=True, owner_kind="Node", namespace="kube-system"), [("pod-mirror", IGNORED)]),
    (like(daemon=True, owner_kind="DaemonSet"), [("pod-daemon", IGNORED)]),
    (like(daemon=True, owner_kind=""), [("pod-daemon", IGNORED)]),
    (terminating(10 * HOUR - 1), [("pod-long-terminating", IGNORED)]),
    (like(priority=-11, owner_kind=""), [("pod-expendable", IGNORED)]),
    (like(priority=-10), []),
    # Leaves by itself: waited for.
    (terminating(10 * HOUR), [("pod-terminating", LEAVING)]),
    (terminating(None), [("pod-terminating", LEAVING)]),
    (noted(safe="on-completion"), [("pod-on-completion", LEAVING)]),
    # Karpenter's word, for good or for a time.
    (noted(disrupt="true"), [("pod-do-not-disrupt", STICKY)]),
    (noted(disrupt="True"), []),
    (noted(disrupt="false"), []),
    (noted(disrupt=""), []),
    (noted(9 * HOUR, disrupt="2h"), [("pod-do-not-disrupt", STICKY)]),
    (noted(9 * HOUR, disrupt="1h"), []),
    (noted(9 * HOUR, disrupt="1h1s"), [("pod-do-not-disrupt", STICKY)]),
    (noted(None, disrupt="1s"), [("pod-do-not-disrupt", STICKY)]),
    (noted(0, disrupt="-5h"), []),
    (noted(0, disrupt="0s"), []),
    # The descheduler's.
    (noted(prefer=""), [("pod-prefer-no-eviction", GUARDED)]),
    # Cluster Autoscaler's.
    (noted(safe="true"), [("pod-safe-to-evict", EVICTABLE)]),
    (noted(safe="false"), [("pod-not-safe-to-evict", STICKY)]),
    (noted(safe="maybe"), []),
    # Nobody, or somebody unknown, brings it back.
    (like(owner_kind="", owner_name=""), [("pod-bare", STICKY)]),
    (like(owner_kind="CloneSet"), [("pod-custom-controller", STICKY)]),
    (like(owner_kind="StatefulSet"), [("pod-stateful-set", STICKY)]),
    # The cluster's own.
    (like(namespace="kube-system"), [("pod-system", STICKY)]),
    (like(priority=2_000_000_000), [("pod-system", STICKY)]),
    (like(priority=1_999_999_999), []),
    # Data on the node.
    (data("a"), [("pod-local-storage", STICKY)]),
    (data("a", "b", safe="a"), [("pod-local-storage", STICKY)]),
    (data("a", "b", safe="b,a"), []),
    (data("a", "b", safe="a, b"), [("pod-local-storage", STICKY)]),  # nothing is trimmed
    # All of them are told.
    (
        like(owner_kind="", namespace="kube-system", ties=Ties(local_volumes=("a",))),
        [("pod-bare", STICKY), ("pod-system", STICKY), ("pod-local-storage", STICKY)],
    ),
]


@pytest.mark.parametrize(("pod", "expected"), TABLE)
def test_what_the_rules_say(pod: Pod, expected: list[tuple[str, Verdict]]) -> None:
    found = findings(pod, replace(ONES, owners=None))
    assert [(reason.code, one.verdict) for reason, one in found] == expected
    assert all(one.message for _, one in found)


def test_every_rule_is_in_the_table() -> None:
    told = {code for _, expected in TABLE for code, _ in expected}
    assert told | {"pod-owner-missing", "pod-budget"} == {reason.code for reason, _ in RULES}


def test_an_owner_that_is_gone_is_as_none() -> None:
    orphan = like(owner_name="gone")
    assert findings(orphan) == []
    assert codes(orphan, ONES) == ["pod-owner-missing"]
    assert findings(PLAIN, ONES) == []
    assert codes(like(owner_kind=""), ONES) == ["pod-bare"]


def test_without_a_clock_no_time_has_passed() -> None:
    assert codes(noted(0, disrupt="1s")) == ["pod-do-not-disrupt"]
    assert codes(terminating(0)) == ["pod-terminating"]


def test_the_cutoff_is_configurable() -> None:
    assert [
        reason.code for reason, _ in findings(like(priority=4), Facts(expendable_below=5))
    ] == ["pod-expendable"]


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("1.5h", True),
        (".5h", True),
        ("1h30m10s5ms3us2ns", True),
        ("1µs", True),
        ("1", False),
        ("h", False),
        (".h", False),
        ("1h ", False),
        ("1d", False),
        ("9" * 63 + "h", False),
        ("1h" * 33, False),
        ("٣h", False),
    ],
)
def test_durations_as_go_writes_them(text: str, holds: bool) -> None:
    assert bool(findings(noted(None, disrupt=text))) is holds


@given(st.text(max_size=70))
def test_any_annotation_is_read_or_says_nothing(text: str) -> None:
    for name in ("safe", "volumes", "disrupt", "prefer"):
        findings(noted(0, **{name: text}), ONES)


def test_a_short_duration_holds_until_it_is_over() -> None:
    pod = noted(100, disrupt="1.5m")
    assert findings(pod, Facts(now_seconds=189))
    assert not findings(pod, Facts(now_seconds=190))


class TestStickiness:
    def test_what_rarely_leaves_is_told_and_blocks_nothing(self) -> None:
        pods = [
            PLAIN,
            like(name="q", owner_kind=""),
            noted(prefer=""),
            noted(safe="on-completion"),
        ]
        assert [(one.code, one.pod) for one in stickiness(pods)] == [("pod-bare", "d/q")]

    def test_an_owners_word_for_evictions_does_not_make_a_pod_leave(self) -> None:
        pod = replace(noted(safe="true"), owner_kind="")
        assert [one.code for one in stickiness([pod])] == ["pod-bare"]
        assert eviction_blockers([pod], ()) == []

    def test_pods_are_counted_by_node(self) -> None:
        pods = [
            PLAIN,
            like(name="a", owner_kind=""),
            like(name="b", owner_kind="", ties=Ties(local_volumes=("x",))),
            like(name="c", node="m", owner_kind="StatefulSet"),
            like(name="d", node=None, owner_kind=""),
        ]
        assert sticky_pods(pods) == {"n": 2, "m": 1}

    @given(st.lists(st.sampled_from([pod for pod, _ in TABLE]), max_size=12), st.booleans())
    def test_counting_is_asking_every_pod(self, pods: list[Pod], owners: bool) -> None:
        facts = ONES if owners else replace(ONES, owners=None)
        asked = sum(bool(stickiness([pod], facts)) for pod in pods)
        assert sticky_pods(pods, facts).total() == asked


def budget(name: str, app: str, allowed: int) -> DisruptionBudget:
    return DisruptionBudget(
        namespace="d", name=name, disruptions_allowed=allowed, selector=select(app)
    )


def of(app: str, *names: str) -> list[Pod]:
    return [like(name=name, labels={"app": app}) for name in names]


class TestEviction:
    @pytest.mark.parametrize(
        ("pods", "budgets", "expected"),
        [
            (of("a", "x", "y"), [], []),
            (of("a", "x", "y"), [budget("b", "a", 2)], []),
            (of("a", "y", "x"), [budget("b", "a", 1)], ["d/y"]),  # by name
            (of("a", "x"), [budget("b", "a", 0)], ["d/x"]),
            (of("a", "x") + of("b", "y"), [budget("b", "a", 0), budget("c", "b", 1)], ["d/x"]),
            (of("a", "x"), [budget("b", "a", 9), budget("c", "a", 9)], ["d/x"]),
        ],
    )
    def test_budgets_are_shared_and_one_for_a_pod(
        self, pods: list[Pod], budgets: list[DisruptionBudget], expected: list[str]
    ) -> None:
        found = eviction_blockers(pods, budgets)
        assert [(one.code, one.pod) for one in found] == [("pod-budget", key) for key in expected]

    def test_pods_that_are_not_evicted_take_nothing_from_a_budget(self) -> None:
        first = replace(of("a", "a")[0], daemon=True)
        assert eviction_blockers([first, *of("a", "b")], [budget("b", "a", 1)]) == []

    def test_an_owners_word_overrules_all_but_budgets_and_what_comes_before_it(self) -> None:
        pod = replace(noted(safe="true", prefer="x"), owner_kind="", labels={"app": "a"})
        found = eviction_blockers([pod], [budget("b", "a", 0)])
        assert [one.code for one in found] == ["pod-prefer-no-eviction", "pod-budget"]

    @pytest.mark.parametrize(
        ("pod", "blocked"),
        [
            (like(daemon=True), False),
            (like(priority=-11), False),
            (terminating(None), True),
            (noted(safe="on-completion"), True),
            (noted(disrupt="true"), True),
            (like(owner_kind="StatefulSet"), True),
        ],
    )
    def test_what_is_never_evicted(self, pod: Pod, blocked: bool) -> None:
        assert bool(eviction_blockers([pod], ())) is blocked


def test_all_annotations_that_are_read_are_kept() -> None:
    assert {SAFE_TO_EVICT, SAFE_VOLUMES, DO_NOT_DISRUPT, PREFER_NO_EVICTION} == NOTES
