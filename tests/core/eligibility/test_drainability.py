"""Which pods may be evicted, which end by themselves, and what that means for their node."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.eligibility.drainability import (
    DISRUPTION_COST,
    DISRUPTION_COST_KEYS,
    DO_NOT_DISRUPT,
    DO_NOT_DISRUPT_KEYS,
    NOTES,
    OF_NAMESPACE,
    PREFER_NO_EVICTION,
    RULES,
    SAFE_TO_EVICT,
    SAFE_VOLUMES,
    Consequence,
    disruption_cost,
    findings,
    long_lived_reasons,
)
from core.eligibility.emptiness import occupants
from core.eligibility.pod_classes import classes_of, count_long_lived_pods
from core.engine import reconcile
from core.engine.planner import PlanOptions
from core.marks.wellknown import KARPENTER_LABEL, KEEP_ANNOTATION, REMOVAL_DISABLED
from core.model.cluster import Cluster
from core.model.constraints import DisruptionFacts
from core.model.now import Now
from core.model.pod import Pod
from tests.support.builders import node, pod, thesis_config

pytestmark = pytest.mark.mutate

HOUR, DAY = 3600, 86_400
NOW = 10 * HOUR
PLAIN = Pod(namespace="d", name="p", node="n", owner_kind="ReplicaSet", owner_name="web")
COMPLETES = DisruptionFacts(completes=True)
LAST, LONG_LIVED, INFO = Consequence.LAST, Consequence.LONG_LIVED, Consequence.INFO


def like(**changes: object) -> Pod:
    return replace(PLAIN, **changes)  # type: ignore[arg-type]


def noted(started: int | None = None, **notes: str) -> Pod:
    keys = {
        "safe": SAFE_TO_EVICT,
        "volumes": SAFE_VOLUMES,
        "disrupt": DO_NOT_DISRUPT,
        "prefer": PREFER_NO_EVICTION,
        "removal": REMOVAL_DISABLED,
        "cost": DISRUPTION_COST,
        "keep": KEEP_ANNOTATION,
        "common": "node-autoscaling.kubernetes.io/do-not-disrupt",
        "common_cost": "node-autoscaling.kubernetes.io/disruption-cost",
    }
    found = tuple(sorted((keys[name], value) for name, value in notes.items()))
    return like(disruption_facts=DisruptionFacts(notes=found, started_seconds=started))


def data(*volumes: str, safe: str | None = None) -> Pod:
    notes = () if safe is None else ((SAFE_VOLUMES, safe),)
    return like(disruption_facts=DisruptionFacts(local_volumes=volumes, notes=notes))


def terminating(overdue: int | None) -> Pod:
    return like(terminating=True, disruption_facts=DisruptionFacts(overdue_seconds=overdue))


def codes(pod: Pod) -> list[str]:
    return [one.code for _, one in findings(pod)]


TABLE: list[tuple[Pod, list[tuple[str, Consequence]]]] = [
    (PLAIN, []),
    (like(owner_kind="Job"), []),
    (like(owner_kind="ReplicationController"), []),
    (noted(keep="true"), [("pod-kept", INFO)]),
    (noted(keep=OF_NAMESPACE), [("pod-kept", INFO)]),
    (noted(keep="false"), []),
    (replace(noted(keep="true"), daemon=True, owner_kind="DaemonSet"), [("pod-daemon", LAST)]),
    (replace(noted(keep="true"), terminating=True), [("pod-terminating", LAST)]),
    (replace(noted(keep="true"), priority=-20), [("pod-kept", INFO), ("pod-expendable", LAST)]),
    # Node-bound and expendable pods: no other rule applies.
    (like(mirror=True, owner_kind="Node", namespace="kube-system"), [("pod-mirror", LAST)]),
    (like(daemon=True, owner_kind="DaemonSet"), [("pod-daemon", LAST)]),
    (like(daemon=True, owner_kind=""), [("pod-daemon", LAST)]),
    (terminating(10 * HOUR - 1), [("pod-long-terminating", LAST)]),
    (like(priority=-11, owner_kind=""), [("pod-expendable", LAST)]),
    (like(priority=-10), []),
    # Pods that end by themselves.
    (terminating(10 * HOUR), [("pod-terminating", LAST)]),
    (terminating(None), [("pod-terminating", LAST)]),
    (noted(safe="on-completion"), [("pod-on-completion", LAST)]),
    # Karpenter's annotation, permanent or for a duration.
    (noted(disrupt="true"), [("pod-do-not-disrupt", LONG_LIVED)]),
    (noted(disrupt="True"), []),
    (noted(disrupt="false"), []),
    (noted(disrupt=""), []),
    (noted(9 * HOUR, disrupt="2h"), [("pod-do-not-disrupt", LONG_LIVED)]),
    (noted(9 * HOUR, disrupt="1h"), []),
    (noted(9 * HOUR, disrupt="1h1s"), [("pod-do-not-disrupt", LONG_LIVED)]),
    (noted(None, disrupt="1s"), [("pod-do-not-disrupt", LONG_LIVED)]),
    (noted(0, disrupt="-5h"), []),
    (noted(0, disrupt="0s"), []),
    # CAST AI's, and what is only a number to Karpenter.
    (noted(removal="true"), [("pod-removal-disabled", LONG_LIVED)]),
    (noted(removal="false"), []),
    (noted(cost="100"), []),
    # The annotation of the descheduler.
    (noted(prefer=""), [("pod-prefer-no-eviction", INFO)]),
    # The annotation of Cluster Autoscaler.
    (noted(safe="true"), [("pod-safe-to-evict", INFO)]),
    (noted(safe="false"), [("pod-not-safe-to-evict", LONG_LIVED)]),
    (noted(safe="maybe"), []),
    # Another controller writes its deletion cost.
    (like(deletion_cost="5"), [("pod-foreign-cost", INFO)]),
    (like(deletion_cost="5", deletion_cost_ours="-9"), [("pod-foreign-cost", INFO)]),
    (like(deletion_cost="-9", deletion_cost_ours="-9"), []),
    (like(deletion_cost="5", owner_kind="Job"), []),
    # A pod of a gang.
    (like(disruption_facts=DisruptionFacts(gang="g")), [("pod-gang", INFO)]),
    # A deferred resize has no effect.
    (
        like(disruption_facts=DisruptionFacts(resize_deferred=True)),
        [("pod-resize-deferred", INFO)],
    ),
    # No controller, or an unknown one, recreates the pod.
    (like(owner_kind="", owner_name=""), [("pod-bare", LONG_LIVED)]),
    (like(owner_kind="CloneSet"), [("pod-custom-controller", LONG_LIVED)]),
    (like(owner_kind="StatefulSet"), [("pod-stateful-set", LONG_LIVED)]),
    # A pod that runs to completion leaves its node, as the pods of a Job do.
    (like(owner_kind="", owner_name="", disruption_facts=COMPLETES), [("pod-bare", INFO)]),
    (like(owner_kind="Workflow", disruption_facts=COMPLETES), [("pod-custom-controller", INFO)]),
    (
        like(owner_kind="StatefulSet", disruption_facts=COMPLETES),
        [("pod-stateful-set", LONG_LIVED)],
    ),
    # System pods.
    (like(namespace="kube-system"), [("pod-system", LONG_LIVED)]),
    (like(priority=2_000_000_000), [("pod-system", LONG_LIVED)]),
    (like(priority=1_999_999_999), []),
    # Local storage.
    (data("a"), [("pod-local-storage", LONG_LIVED)]),
    (data("a", "b", safe="a"), [("pod-local-storage", LONG_LIVED)]),
    (data("a", "b", safe="b,a"), []),
    (data("a", "b", safe="a, b"), [("pod-local-storage", LONG_LIVED)]),  # nothing is trimmed
    # All findings are reported.
    (
        like(
            owner_kind="",
            namespace="kube-system",
            disruption_facts=DisruptionFacts(local_volumes=("a",)),
        ),
        [("pod-bare", LONG_LIVED), ("pod-system", LONG_LIVED), ("pod-local-storage", LONG_LIVED)],
    ),
]


@pytest.mark.parametrize(("pod", "expected"), TABLE)
def test_findings_have_code_and_verdict(pod: Pod, expected: list[tuple[str, Consequence]]) -> None:
    found = findings(pod, Now(NOW))
    assert [(one.code, verdict) for verdict, one in found] == expected
    assert all(one.message and one.pod == pod.key for _, one in found)


def test_every_rule_is_in_table() -> None:
    listed = {code for _, expected in TABLE for code, _ in expected}
    assert listed == {rule.reason.code for rule in RULES}


def test_durations_do_not_expire_when_time_is_unknown() -> None:
    assert codes(noted(0, disrupt="1s")) == ["pod-do-not-disrupt"]
    assert codes(terminating(0)) == ["pod-terminating"]


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
def test_durations_are_parsed_as_in_go(text: str, holds: bool) -> None:
    assert bool(findings(noted(None, disrupt=text))) is holds


@given(st.text(max_size=70))
def test_any_annotation_value_is_tolerated(text: str) -> None:
    for name in ("safe", "volumes", "disrupt", "prefer"):
        findings(noted(0, **{name: text}), Now(NOW))


@pytest.mark.parametrize(
    ("written", "cost"), [("7", 7), ("-7", -7), ("", 0), ("7.5", 0), ("x", 0), ("9" * 11, 0)]
)
def test_disruption_cost_is_read_from_annotation(written: str, cost: int) -> None:
    assert disruption_cost(noted(cost=written)) == cost
    assert disruption_cost(noted(common_cost=written)) == cost
    assert disruption_cost(PLAIN) == 0


@pytest.mark.parametrize(("common", "cost"), [("3", 3), ("", 7), ("x", 7)])
def test_common_disruption_cost_counts_first(common: str, cost: int) -> None:
    assert disruption_cost(noted(cost="7", common_cost=common)) == cost


@pytest.mark.parametrize(("value", "holds"), [("true", True), ("1h", True), ("false", False)])
def test_common_do_not_disrupt_forbids_disruption_by_ebb(value: str, holds: bool) -> None:
    pod = noted(NOW, common=value)
    assert codes(pod) == (["pod-do-not-disrupt"] if holds else [])
    agent = replace(pod, owner_kind="DaemonSet", daemon=True)
    there = Cluster.of([node("n", labels={KARPENTER_LABEL: "general"})], [agent])
    assert not occupants(there, Now(NOW), {"n"})  # Karpenter does not read it


def test_do_not_disrupt_holds_until_its_duration_ends() -> None:
    pod = noted(100, disrupt="1.5m")
    assert findings(pod, Now(189))
    assert not findings(pod, Now(190))


class TestLongLivedPods:
    def test_only_long_lived_pods_are_reported(self) -> None:
        pods = [
            PLAIN,
            like(name="q", owner_kind=""),
            noted(prefer=""),
            noted(safe="on-completion"),
        ]
        assert [(one.code, one.pod) for one in long_lived_reasons(pods)] == [("pod-bare", "d/q")]

    def test_safe_to_evict_pod_is_still_long_lived_when_bare(self) -> None:
        pod = replace(noted(safe="true"), owner_kind="")
        assert [one.code for one in long_lived_reasons([pod])] == ["pod-bare"]

    def test_long_lived_pods_are_counted_per_node(self) -> None:
        pods = [
            PLAIN,
            like(name="a", owner_kind=""),
            like(name="b", owner_kind="", disruption_facts=DisruptionFacts(local_volumes=("x",))),
            like(name="c", node="m", owner_kind="StatefulSet"),
            like(name="d", node=None, owner_kind=""),
        ]
        assert count_long_lived_pods(classes_of(pods)) == {"n": 2, "m": 1}

    @given(st.lists(st.sampled_from([pod for pod, _ in TABLE]), max_size=12))
    def test_count_agrees_with_reasons_of_each_pod(self, pods: list[Pod]) -> None:
        expected = sum(bool(long_lived_reasons([pod], Now(NOW))) for pod in pods)
        assert count_long_lived_pods(classes_of(pods), Now(NOW)).total() == expected


@pytest.mark.parametrize(
    ("pod", "occupies", "now"),
    [
        (PLAIN, True, True),
        (like(daemon=True), False, False),
        (like(mirror=True), False, False),
        (like(priority=-10), True, True),
        (like(priority=-11), False, False),
        (terminating(None), True, True),
        (terminating(NOW), True, True),
        (terminating(NOW - 1), True, False),
    ],
)
def test_pod_occupies_node(pod: Pod, occupies: bool, now: bool) -> None:
    assert pod.occupies == occupies
    there = Cluster.of([node("n")], [pod, replace(pod, name="b", node=None)])
    assert occupants(there, Now(NOW)) == ({"n": 1} if now else {})
    assert occupants(there, None) == ({"n": 1} if occupies else {})


@pytest.mark.parametrize(
    ("pod", "occupies"),
    [
        (PLAIN, True),
        (like(priority=-11), True),
        (like(daemon=True), True),  # by Cluster Autoscaler's annotation
        (like(daemon=True, owner_kind="DaemonSet"), False),
        (replace(noted(disrupt="true"), daemon=True, owner_kind="DaemonSet"), True),
        (replace(noted(disrupt="1h"), daemon=True, owner_kind="DaemonSet"), True),
        (replace(noted(9 * HOUR + 1, disrupt="1h"), daemon=True, owner_kind="DaemonSet"), True),
        (replace(noted(9 * HOUR, disrupt="1h"), daemon=True, owner_kind="DaemonSet"), False),
        (replace(noted(disrupt="yes"), daemon=True, owner_kind="DaemonSet"), False),
        (replace(noted(9 * HOUR + 1, disrupt="1h"), mirror=True, owner_kind="Node"), True),
        (like(mirror=True), False),
        (terminating(NOW), True),
        (terminating(NOW - 1), False),
        (replace(terminating(NOW - DAY), owner_kind="StatefulSet"), True),
    ],
)
def test_pod_occupies_karpenter_node(pod: Pod, occupies: bool) -> None:
    there = Cluster.of([node("n", labels={KARPENTER_LABEL: "general"})], [pod])
    assert occupants(there, Now(NOW), {"n"}) == ({"n": 1} if occupies else {})
    assert occupants(there, Now(NOW), {"m"}) == {}


def test_all_used_annotations_are_retained() -> None:
    read = {SAFE_TO_EVICT, SAFE_VOLUMES, PREFER_NO_EVICTION, REMOVAL_DISABLED, KEEP_ANNOTATION}
    assert {*read, *DO_NOT_DISRUPT_KEYS, *DISRUPTION_COST_KEYS} == NOTES


@pytest.mark.parametrize(("now", "first"), [(None, "a"), (10 * HOUR - 1, "a"), (10 * HOUR, "b")])
def test_plan_depends_on_its_time(now: int | None, first: str) -> None:
    """Until the duration ends, a pod keeps the first node from being tried early."""
    stays = noted(9 * HOUR, disrupt="1h").disruption_facts
    pods = [pod("on-a", "a", 100, 100), pod("on-b", "b", 100, 100)]
    pods[1] = replace(pods[1], disruption_facts=stays)
    cluster = Cluster.of([node("a"), node("b"), node("c")], pods)
    plan = reconcile.plan(cluster, thesis_config(), PlanOptions(removals_max=2), now_seconds=now)
    assert [removal.node for removal in plan.removals] == ["c", first]
