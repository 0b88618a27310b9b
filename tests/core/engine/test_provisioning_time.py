"""Provisioning times of new nodes, and the window of arrivals that the reserve covers then."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from core.config.budgets import Reserve
from core.config.settings import Config
from core.engine.leader_state import LeaderState
from core.engine.provisioning_time import NODES_MAX, ProvisioningTimes
from core.engine.reconcile import ReconcileResult, reconcile
from core.engine.unschedulable import WAITING_PODS_MAX
from core.marks.wellknown import PROTECTION_ANNOTATION, SCALE_DOWN_DISABLED_ANNOTATION
from core.model.cluster import Cluster
from core.model.humanize import timestamp
from core.model.node import Node
from core.model.node_lifecycle import START_SECONDS_MAX
from core.model.now import Now
from core.model.pod import Pod
from core.model.resources import Resources
from core.placement.reaches import REACHES_MAX
from tests.support.builders import GREEN, UNLIMITED, node, pod

pytestmark = pytest.mark.mutate

START = 1_000_000 * 300
HOUR = 3600
WHOLE = Resources(40_000, 80_000 * 10**6)
RESERVE = Reserve(window_seconds=300, percentile=Fraction(1))
ASKED = Config(budgets=replace(UNLIMITED, reserve=RESERVE))
PROTECTED = {SCALE_DOWN_DISABLED_ANNOTATION: "true", PROTECTION_ANNOTATION: "unmarked"}
HERE = (node("n0"), node("n1"))
GENERAL = "general"


def job(name: str, on: str | None, **changes: Any) -> Pod:
    """Return a pod that runs on this node, or is unschedulable without one."""
    made = replace(pod(name, on, 1000, 100), uid=name, unschedulable=on is None)
    return replace(made, **changes)


def run_passes(
    *moments: tuple[int, Iterable[Node], Iterable[Pod]],
    config: Config = ASKED,
    memory: LeaderState | None = None,
) -> ReconcileResult:
    """Run a pass at each of these times, in seconds after START."""
    last: ReconcileResult | None = None
    memory = memory or LeaderState()
    for seconds, nodes, pods in moments:
        last = reconcile(Cluster.of(nodes, pods), config, memory, START + seconds, last=last)
        memory = last.state
    assert last is not None
    return last


def measured(found: ReconcileResult) -> Mapping[str, int]:
    return found.state.provisioning_times.seconds


def arrival(waiting: Pod, bound: Pod, new: Node) -> ReconcileResult:
    """The pod becomes Pending, node *new* is added, and at second 100 the pod runs there."""
    later = [*HERE, new]
    return run_passes(
        (0, HERE, []), (10, HERE, [waiting]), (70, later, [waiting]), (100, later, [bound])
    )


class TestObserved:
    def test_time_is_measured_from_pending_pod_to_pod_on_new_node(
        self,
    ) -> None:
        assert measured(arrival(job("a", None), job("a", "x"), node("x"))) == {GENERAL: 90}

    def test_time_is_measured_when_node_and_bound_pod_appear_together(self) -> None:
        later = [*HERE, node("x")]
        found = run_passes(
            (0, HERE, []), (10, HERE, [job("a", None)]), (40, later, [job("a", "x")])
        )
        assert measured(found) == {GENERAL: 30}

    @pytest.mark.parametrize(
        ("waiting", "bound", "new"),
        [
            (job("a", None), job("a", "n0"), node("x")),
            (job("a", None), job("b", "x"), node("x")),
            (job("a", None), job("a", "x", uid="other"), node("x")),
            (job("a", None, unschedulable=False), job("a", "x"), node("x")),
            (job("a", None, daemon=True), job("a", "x", daemon=True), node("x")),
            (job("a", None, priority=-11), job("a", "x", priority=-11), node("x")),
            (job("a", None, unsupported=("x",)), job("a", "x", unsupported=("x",)), node("x")),
            (job("a", None), job("a", "x"), replace(node("x"), virtual=True)),
        ],
    )
    def test_time_is_not_measured_from_unsuitable_pod_or_node(
        self, waiting: Pod, bound: Pod, new: Node
    ) -> None:
        assert measured(arrival(waiting, bound, new)) == {}

    def test_time_is_not_measured_when_node_existed_before_pod_was_pending(self) -> None:
        one = job("a", None)
        later = [*HERE, node("x")]
        assert (
            measured(run_passes((0, HERE, []), (10, later, [one]), (50, later, [job("a", "x")])))
            == {}
        )
        first = run_passes((0, later, []), (10, later, [one]), (50, later, [job("a", "x")]))
        assert measured(first) == {}

    def test_time_is_measured_from_each_pods_own_pending_time(self) -> None:
        """Pod b runs and is ignored; c is Pending from before the node was added, a from then."""
        later, b, c = [*HERE, node("x")], job("0b", "n0"), job("c", None)
        moments = (0, HERE, [b]), (5, HERE, [b, c]), (10, later, [b, c, job("a", None)])
        assert measured(run_passes(*moments, (50, later, [job("a", "x"), b, c]))) == {}
        assert measured(run_passes(*moments, (50, later, [b, job("c", "x")]))) == {GENERAL: 45}
        both = [job("a", "x"), b, job("c", "x")]
        assert measured(run_passes(*moments, (50, later, both))) == {GENERAL: 45}

    def test_pending_time_restarts_when_pod_is_no_longer_unschedulable(self) -> None:
        one, calm = job("a", None), job("a", None, unschedulable=False)
        later = [*HERE, node("x")]
        found = run_passes(
            (0, HERE, [one]), (10, HERE, [calm]), (20, HERE, [one]), (50, later, [job("a", "x")])
        )
        assert measured(found) == {GENERAL: 30}

    def test_node_counts_once_with_longest_pending_pod(self) -> None:
        a, b, c = (job(name, None) for name in "abc")
        later = [*HERE, node("x")]
        found = run_passes(
            (0, HERE, []),
            (10, HERE, [a]),
            (40, HERE, [a, b, c]),
            (70, later, [a, b, c]),
            (100, later, [job("a", "x"), job("b", "x"), c]),
            (200, later, [job("a", "x"), job("b", "x"), job("c", "x")]),
        )
        assert found.state.provisioning_times.durations == {GENERAL: (90,)}
        assert found.state.provisioning_times.added_at == {}

    def test_time_is_measured_per_reach(self) -> None:
        green = [node(name, labels={"green": "true"}) for name in ("g0", "g1", "x")]
        there = [*HERE, *green[:2]]
        one = job("a", None, node_constraints=GREEN)
        running = [job("p", "n0"), job("q", "g0", node_constraints=GREEN)]
        found = run_passes(
            (0, there, running),
            (10, there, [*running, one]),
            (60, [*there, green[2]], [*running, replace(one, node="x", unschedulable=False)]),
        )
        assert list(measured(found).values()) == [50]
        assert GENERAL not in measured(found)

    def test_nothing_is_remembered_when_reserve_is_off(self) -> None:
        found = arrival(job("a", None), job("a", "x"), node("x"))
        off = reconcile(
            found.snapshot.cluster, Config(budgets=UNLIMITED), found.state, START + 200
        )
        assert off.state.provisioning_times == ProvisioningTimes()


class TestBounds:
    def test_time_is_capped_when_pod_was_pending_for_days(self) -> None:
        one, later = job("a", None), [*HERE, node("x")]
        found = run_passes((0, HERE, []), (10, HERE, [one]), (86_400, later, [job("a", "x")]))
        assert measured(found) == {GENERAL: START_SECONDS_MAX}

    def test_provisioning_time_is_median(self) -> None:
        found = arrival(job("a", None), job("a", "x"), node("x"))
        odd = (90, 90, START_SECONDS_MAX, 95, START_SECONDS_MAX)
        times = replace(found.state.provisioning_times, durations={GENERAL: odd})
        assert times.seconds == {GENERAL: 95}

    def test_only_last_nodes_count(self) -> None:
        before = ProvisioningTimes(durations={GENERAL: (1,) * NODES_MAX})
        found = run_passes(
            (0, HERE, [job("a", None)]),
            (30, [*HERE, node("x")], [job("a", "x")]),
            memory=LeaderState(provisioning_times=before),
        )
        assert found.state.provisioning_times.durations == {GENERAL: (*(1,) * (NODES_MAX - 1), 30)}

    def test_oldest_reach_is_forgotten_when_there_are_too_many(self) -> None:
        before = ProvisioningTimes(durations={f"r{n}": (1,) for n in range(REACHES_MAX)})
        found = run_passes(
            (0, HERE, [job("a", None)]),
            (30, [*HERE, node("x")], [job("a", "x")]),
            memory=LeaderState(provisioning_times=before),
        )
        assert len(measured(found)) == REACHES_MAX
        assert "r0" not in measured(found)
        assert measured(found)[GENERAL] == 30

    def test_pending_pods_are_bounded_fairly_between_namespaces(self) -> None:
        many = [job(f"a{n:05}", None) for n in range(WAITING_PODS_MAX + 1)]
        other = job("z", None, namespace="other")
        waiting = run_passes((0, HERE, [*many, other])).state.provisioning_times.pending_since
        assert len(waiting) == WAITING_PODS_MAX
        assert (other.key, "z") in waiting

    def test_added_nodes_are_remembered_only_while_pods_are_pending(self) -> None:
        nodes = [*HERE, *(node(f"x{n}") for n in range(3))]
        memory = run_passes(
            (0, HERE, []), (10, HERE, [job("a", None)]), (20, nodes, [job("a", None)])
        )
        assert set(memory.state.provisioning_times.added_at) == {"x0", "x1", "x2"}
        calm = reconcile(Cluster.of(nodes, []), ASKED, memory.state, START + 30)
        assert calm.state.provisioning_times == ProvisioningTimes()


class TestWindow:
    EARLY, LATE = job("e", "n0"), job("l", "n0")

    def counts(self, took: int, now: int) -> int:
        """Return for how many pods room is kept; two pods arrive 500 s apart."""
        memory = LeaderState(provisioning_times=ProvisioningTimes(durations={GENERAL: (took,)}))
        found = run_passes(
            (0, HERE, []),
            (100, HERE, [self.EARLY]),
            (600, HERE, [self.EARLY, self.LATE]),
            memory=memory,
        )
        then = Now(START + now)
        return sum(found.state.expected_pods(WHOLE, then, RESERVE.percentile).values())

    @pytest.mark.parametrize(("took", "many"), [(300, 1), (299, 1), (500, 1), (541, 2), (900, 2)])
    def test_reserve_covers_arrivals_during_provisioning_time(self, took: int, many: int) -> None:
        assert self.counts(took, 700) == many

    @pytest.mark.parametrize(("took", "left"), [(100, 0), (700, 200)])
    def test_new_leader_reserves_until_it_has_observed_provisioning_time(
        self, took: int, left: int
    ) -> None:
        memory = LeaderState(provisioning_times=ProvisioningTimes(durations={GENERAL: (took,)}))
        here = [replace(one, annotations=PROTECTED) for one in HERE]
        found = run_passes((0, here, []), (500, here, []), memory=memory)
        times = [one.why.message for one in found.plan.reserve]
        until = START + 500 + left
        message = f"a new leader observes pod arrivals until {timestamp(until)}"
        assert times == ([message] * 2 if left else [])
