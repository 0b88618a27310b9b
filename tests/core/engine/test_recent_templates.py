"""Nodes remain a reach for the stabilization window after their last pod has ended."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from core.config.settings import Config, UsabilityMode
from core.engine.leader_state import LeaderState
from core.engine.peak import RECENT_TEMPLATES_MAX
from core.engine.reconcile import ReconcileResult, reconcile
from core.marks.mark import Mark
from core.model.cluster import Cluster
from core.model.constraints import NodeConstraints, Toleration
from core.model.node import Taint
from core.model.now import Now
from core.model.pod import Pod
from core.placement.reaches import REACHES_MAX, Reaches
from core.placement.usable_capacity import NOTHING, Amount
from tests.support.builders import UNLIMITED, marked, node, pod

pytestmark = pytest.mark.mutate

NOW = 1000
WINDOW = 60
ASKED = Config(
    usable_capacity=UsabilityMode.ALL,
    budgets=replace(UNLIMITED, stabilization_window_seconds=WINDOW),
    unneeded_time_seconds=0,
)
CI = NodeConstraints((("pool", "ci"),), tolerations=(Toleration("ci", "Exists"),))
GENERAL = [marked(node("g0"), Mark.PREFER_NO_SCHEDULE, 1), node("g1"), node("g2")]
STAYS = [pod(f"s{n}", f"g{n}", 1000, 1000) for n in range(3)]


def ci(count: int, *pods: Pod) -> Cluster:
    """Return general nodes, one of them marked, and *count* nodes of a tainted pool."""
    taint, labels = Taint("ci", "", "NoSchedule"), {"pool": "ci"}
    pool = [node(f"c{n}", labels=labels, taints=(taint,)) for n in range(count)]
    return Cluster.of([*GENERAL, *pool], [*STAYS, *pods])


def busy(count: int) -> list[Pod]:
    return [pod(f"p{n}", f"c{n}", 3000, 3000, node_constraints=CI) for n in range(count)]


def run_passes(*moments: tuple[int, Cluster]) -> ReconcileResult:
    last: ReconcileResult | None = None
    for seconds, cluster in moments:
        memory = last.state if last else LeaderState()
        last = reconcile(cluster, ASKED, memory, NOW + seconds, last=last)
    assert last is not None
    return last


def removed_nodes(found: ReconcileResult) -> list[str]:
    return [one.node for one in found.plan.removals]


@pytest.mark.parametrize("count", [1, 4])
def test_mark_is_not_removed_when_last_pod_of_another_pool_ends(count: int) -> None:
    """The requests of those pods are no load on the remaining nodes."""
    found = run_passes((0, ci(count, *busy(count))), (10, ci(count)))
    assert found.rate_limits.peak_excess[""] == Amount(3000 * count, 3000 * 10**6 * count)
    assert "g0" in removed_nodes(found)


@pytest.mark.parametrize(("seconds", "kept"), [(10, True), (WINDOW - 1, True), (WINDOW, False)])
def test_peak_keeps_pool_for_window_after_its_last_pod(seconds: int, kept: bool) -> None:
    found = run_passes((0, ci(4, *busy(4))), (seconds, ci(4)))
    assert ("c0" in removed_nodes(found)) is not kept
    assert bool(found.snapshot.reaches.recent_templates) is kept
    assert (found.rate_limits.peak_excess == {"": NOTHING, "general": NOTHING}) is not kept


def test_template_is_recent_until_window_after_last_skipped_pass() -> None:
    """Skipped passes extend the window, and a pass is due when the window ends."""
    there, after = ci(4, *busy(4)), ci(4)
    found = run_passes((0, there), (40, there), (50, after))
    assert found.requeue_at is not None
    assert found.requeue_at == NOW + 40 + WINDOW
    late = reconcile(after, ASKED, found.state, NOW + 40 + WINDOW, last=found)
    assert not late.skipped
    assert not late.snapshot.reaches.recent_templates


@pytest.mark.parametrize("seconds", [0, 40])
def test_skipped_pass_does_not_renew_templates_without_pods(
    seconds: int,
) -> None:
    """Also if the last two passes are in the same second."""
    found = run_passes((0, ci(4, *busy(4))), (seconds, ci(4)))
    assert found.state.recent_templates.seen_at[CI] == NOW
    again = found.state.unchanged(Now(NOW + 50)).recent_templates.seen_at
    assert again[CI] == NOW
    assert {at for one, at in again.items() if one != CI} == {NOW + 50}


def test_no_template_is_remembered_when_window_is_off() -> None:
    settings = replace(ASKED, budgets=UNLIMITED)
    assert (
        reconcile(ci(4, *busy(4)), settings, LeaderState(), NOW).state.recent_templates.seen_at
        == {}
    )


def test_current_template_replaces_recent_one_for_same_nodes() -> None:
    """The reach has the key of the template that existing pods have."""
    same = NodeConstraints((("pool", "ci"),), tolerations=(Toleration(operator="Exists"),))
    found = run_passes(
        (0, ci(4, *busy(4))), (10, ci(4, pod("q", "c0", 10, 10, node_constraints=same)))
    )
    assert not found.snapshot.reaches.recent_templates
    assert same in found.state.recent_templates.seen_at
    assert CI not in found.state.recent_templates.seen_at


def in_set(number: int) -> NodeConstraints:
    return NodeConstraints((("set", str(number)),))


def test_recent_templates_do_not_displace_current_ones() -> None:
    nodes = [
        node(f"{number}-{n}", labels={"set": str(number)})
        for number in range(REACHES_MAX + 9)
        for n in range(2)
    ]
    recent = [in_set(REACHES_MAX + n) for n in range(9)]
    for many in (REACHES_MAX, REACHES_MAX - 2):
        groups: Mapping[NodeConstraints, list[list[Pod]]] = {
            in_set(n): [[pod(f"p{n}", None, 1, 1, node_constraints=in_set(n))]]
            for n in range(many)
        }
        found = Reaches(nodes, groups, recent=recent)
        assert {*found.current_templates} == {*groups}
        assert len(found.recent_templates) == REACHES_MAX - many


def test_number_of_recent_templates_is_bounded() -> None:
    """Reaches of one node are unbounded, and a user can create pods for each of them."""
    nodes = [node(f"n{n:03}", labels={"set": str(n)}) for n in range(RECENT_TEMPLATES_MAX + 50)]
    pods = [pod(f"p{n}", None, 1, 1, node_constraints=in_set(n)) for n in range(len(nodes))]
    found = run_passes((0, Cluster.of(nodes, pods)), (10, Cluster.of(nodes, [])))
    assert len(found.snapshot.reaches.recent_templates) == len(nodes)
    assert len(found.state.recent_templates.seen_at) == RECENT_TEMPLATES_MAX
    assert found.requeue_at == NOW + 11


def test_most_recent_templates_are_remembered_when_there_are_too_many() -> None:
    nodes = [node(f"n{n:03}", labels={"set": str(n)}) for n in range(RECENT_TEMPLATES_MAX + 50)]
    pods = [pod(f"p{n}", None, 1, 1, node_constraints=in_set(n)) for n in range(len(nodes))]
    last = Cluster.of(nodes, pods[50:])
    found = run_passes((0, Cluster.of(nodes, pods)), (5, last), (10, Cluster.of(nodes, [])))
    assert found.state.recent_templates.seen_at == {
        in_set(n): NOW + 5 for n in range(50, len(nodes))
    }
