"""How long new nodes take, and for how long a time of arrivals room is kept then."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from core.capacity.reaches import REACHES_MAX
from core.config.budgets import Reserve
from core.config.settings import Config
from core.engine.leader_state import LeaderState
from core.engine.provisioning_time import NODES_MAX, ProvisioningTimes
from core.engine.reconcile import PassResult, reconcile
from core.engine.unschedulable import WAITING_PODS_MAX
from core.model.cluster import Cluster
from core.model.humanize import timestamp
from core.model.node import Node
from core.model.now import Now
from core.model.pod import Pod
from core.model.resources import Resources
from core.model.startup_taints import START_SECONDS_MAX
from tests.support.builders import GREEN, UNLIMITED, node, pod

pytestmark = pytest.mark.mutate

START = 1_000_000 * 300
HOUR = 3600
WHOLE = Resources(40_000, 80_000 * 10**6)
ASKED = Config(
    budgets=replace(UNLIMITED, reserve=Reserve(window_seconds=300, lookback_seconds=HOUR))
)
HERE = (node("n0"), node("n1"))
GENERAL = "general"


def job(name: str, on: str | None, **changes: Any) -> Pod:
    """Return a pod that waits, or runs there."""
    made = replace(pod(name, on, 1000, 100), uid=name, unschedulable=on is None)
    return replace(made, **changes)


def looks(
    *moments: tuple[int, Iterable[Node], Iterable[Pod]],
    config: Config = ASKED,
    memory: LeaderState | None = None,
) -> PassResult:
    """Look at these moments, so many seconds after the first one."""
    last: PassResult | None = None
    memory = memory or LeaderState()
    for seconds, nodes, pods in moments:
        last = reconcile(Cluster.of(nodes, pods), config, memory, START + seconds, last=last)
        memory = last.state
    assert last is not None
    return last


def takes(found: PassResult) -> Mapping[str, int]:
    return found.state.provisioning_times.seconds


def came(waiting: Pod, bound: Pod, new: Node) -> PassResult:
    """Let it wait, a node come and be seen with it at second 100."""
    later = [*HERE, new]
    return looks(
        (0, HERE, []), (10, HERE, [waiting]), (70, later, [waiting]), (100, later, [bound])
    )


class TestObserved:
    def test_from_the_look_that_sees_a_pod_wait_to_the_one_that_sees_it_on_a_new_node(
        self,
    ) -> None:
        assert takes(came(job("a", None), job("a", "x"), node("x"))) == {GENERAL: 90}

    def test_a_node_may_have_its_pod_when_it_is_seen_first(self) -> None:
        later = [*HERE, node("x")]
        found = looks((0, HERE, []), (10, HERE, [job("a", None)]), (40, later, [job("a", "x")]))
        assert takes(found) == {GENERAL: 30}

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
    def test_what_tells_nothing(self, waiting: Pod, bound: Pod, new: Node) -> None:
        assert takes(came(waiting, bound, new)) == {}

    def test_a_node_that_was_there_when_the_pod_began_to_wait_is_not_new(self) -> None:
        one = job("a", None)
        later = [*HERE, node("x")]
        assert takes(looks((0, HERE, []), (10, later, [one]), (50, later, [job("a", "x")]))) == {}
        first = looks((0, later, []), (10, later, [one]), (50, later, [job("a", "x")]))
        assert takes(first) == {}

    def test_each_pod_is_held_to_the_second_in_which_it_began_to_wait_itself(self) -> None:
        """B, which runs, is passed by; C waits since before the node came, A since it came."""
        later, b, c = [*HERE, node("x")], job("0b", "n0"), job("c", None)
        moments = (0, HERE, [b]), (5, HERE, [b, c]), (10, later, [b, c, job("a", None)])
        assert takes(looks(*moments, (50, later, [job("a", "x"), b, c]))) == {}
        assert takes(looks(*moments, (50, later, [b, job("c", "x")]))) == {GENERAL: 45}
        both = [job("a", "x"), b, job("c", "x")]
        assert takes(looks(*moments, (50, later, both))) == {GENERAL: 45}

    def test_a_pod_that_stops_waiting_begins_anew(self) -> None:
        one, calm = job("a", None), job("a", None, unschedulable=False)
        later = [*HERE, node("x")]
        found = looks(
            (0, HERE, [one]), (10, HERE, [calm]), (20, HERE, [one]), (50, later, [job("a", "x")])
        )
        assert takes(found) == {GENERAL: 30}

    def test_a_node_counts_once_by_the_pod_that_waited_longest(self) -> None:
        a, b, c = (job(name, None) for name in "abc")
        later = [*HERE, node("x")]
        found = looks(
            (0, HERE, []),
            (10, HERE, [a]),
            (40, HERE, [a, b, c]),
            (70, later, [a, b, c]),
            (100, later, [job("a", "x"), job("b", "x"), c]),
            (200, later, [job("a", "x"), job("b", "x"), job("c", "x")]),
        )
        assert found.state.provisioning_times.durations == {GENERAL: (90,)}
        assert found.state.provisioning_times.added_at == {}

    def test_each_reach_has_its_own(self) -> None:
        green = [node(name, labels={"green": "true"}) for name in ("g0", "g1", "x")]
        there = [*HERE, *green[:2]]
        one = job("a", None, placing=GREEN)
        standing = [job("p", "n0"), job("q", "g0", placing=GREEN)]
        found = looks(
            (0, there, standing),
            (10, there, [*standing, one]),
            (60, [*there, green[2]], [*standing, replace(one, node="x", unschedulable=False)]),
        )
        assert list(takes(found).values()) == [50]
        assert GENERAL not in takes(found)

    def test_without_a_reserve_nothing_is_remembered(self) -> None:
        found = came(job("a", None), job("a", "x"), node("x"))
        off = reconcile(
            found.snapshot.cluster, Config(budgets=UNLIMITED), found.state, START + 200
        )
        assert off.state.provisioning_times == ProvisioningTimes()


class TestBounds:
    def test_who_waits_for_days_waited_for_something_else(self) -> None:
        one, later = job("a", None), [*HERE, node("x")]
        found = looks((0, HERE, []), (10, HERE, [one]), (86_400, later, [job("a", "x")]))
        assert takes(found) == {GENERAL: START_SECONDS_MAX}

    def test_one_odd_node_does_not_decide(self) -> None:
        found = came(job("a", None), job("a", "x"), node("x"))
        odd = (90, 90, START_SECONDS_MAX, 95, START_SECONDS_MAX)
        told = replace(found.state.provisioning_times, durations={GENERAL: odd})
        assert told.seconds == {GENERAL: 95}

    def test_the_last_nodes_count(self) -> None:
        before = ProvisioningTimes(durations={GENERAL: (1,) * NODES_MAX})
        found = looks(
            (0, HERE, [job("a", None)]),
            (30, [*HERE, node("x")], [job("a", "x")]),
            memory=LeaderState(provisioning_times=before),
        )
        assert found.state.provisioning_times.durations == {GENERAL: (*(1,) * (NODES_MAX - 1), 30)}

    def test_the_reach_that_was_told_of_longest_ago_is_forgotten(self) -> None:
        before = ProvisioningTimes(durations={f"r{n}": (1,) for n in range(REACHES_MAX)})
        found = looks(
            (0, HERE, [job("a", None)]),
            (30, [*HERE, node("x")], [job("a", "x")]),
            memory=LeaderState(provisioning_times=before),
        )
        assert len(takes(found)) == REACHES_MAX
        assert "r0" not in takes(found)
        assert takes(found)[GENERAL] == 30

    def test_of_so_many_pods_it_is_remembered_and_no_namespace_hides_another_s(self) -> None:
        many = [job(f"a{n:05}", None) for n in range(WAITING_PODS_MAX + 1)]
        other = job("z", None, namespace="other")
        waiting = looks((0, HERE, [*many, other])).state.provisioning_times.pending_since
        assert len(waiting) == WAITING_PODS_MAX
        assert (other.key, "z") in waiting

    def test_nodes_are_remembered_while_somebody_waits(self) -> None:
        nodes = [*HERE, *(node(f"x{n}") for n in range(3))]
        memory = looks((0, HERE, []), (10, HERE, [job("a", None)]), (20, nodes, [job("a", None)]))
        assert set(memory.state.provisioning_times.added_at) == {"x0", "x1", "x2"}
        calm = reconcile(Cluster.of(nodes, []), ASKED, memory.state, START + 30)
        assert calm.state.provisioning_times == ProvisioningTimes()


class TestLength:
    EARLY, LATE = job("e", "n0"), job("l", "n0")

    def counts(self, took: int, now: int) -> int:
        """Return how many pods room is kept for: two come 500 s apart."""
        memory = LeaderState(provisioning_times=ProvisioningTimes(durations={GENERAL: (took,)}))
        found = looks(
            (0, HERE, []),
            (100, HERE, [self.EARLY]),
            (600, HERE, [self.EARLY, self.LATE]),
            memory=memory,
        )
        return sum(found.state.expected_pods(WHOLE, Now(START + now)).values())

    @pytest.mark.parametrize(("took", "many"), [(300, 1), (299, 1), (500, 1), (541, 2), (900, 2)])
    def test_room_is_kept_for_what_comes_while_a_node_does(self, took: int, many: int) -> None:
        assert self.counts(took, 700) == many

    @pytest.mark.parametrize(("took", "many"), [(300, 1), (600, 1), (601, 2)])
    def test_of_the_days_before_too(self, took: int, many: int) -> None:
        assert self.counts(took, 86_400) == many

    @pytest.mark.parametrize(("took", "left"), [(100, 0), (700, 200)])
    def test_the_leader_must_have_seen_so_long_a_time(self, took: int, left: int) -> None:
        memory = LeaderState(provisioning_times=ProvisioningTimes(durations={GENERAL: (took,)}))
        found = looks((0, HERE, []), (500, HERE, []), memory=memory)
        told = [one.why.message for one in found.plan.reserve]
        until = START + 500 + left
        message = f"a new leader observes pod arrivals until {timestamp(until)}"
        assert told == ([message] * 2 if left else [])
