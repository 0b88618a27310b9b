"""For the peak window nodes that pods asked for stay a reach after the last pod has gone."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from core.capacity.reaches import REACHES_MAX, Reaches
from core.capacity.usable import NOTHING, Amount
from core.config.settings import Config, UsabilityMode
from core.engine.leader_state import LeaderState
from core.engine.peak import RECENT_TEMPLATES_MAX
from core.engine.reconcile import PassResult, reconcile
from core.marks.mark import Mark
from core.model.cluster import Cluster
from core.model.constraints import NodeConstraints, Toleration
from core.model.node import Taint
from core.model.now import Now
from core.model.pod import Pod
from tests.support.builders import UNLIMITED, marked, node, pod

pytestmark = pytest.mark.mutate

NOW = 1000
WINDOW = 60
ASKED = Config(
    usability=UsabilityMode.NONE,
    budgets=replace(UNLIMITED, stabilization_window_seconds=WINDOW),
    unneeded_time_seconds=0,
)
CI = NodeConstraints((("pool", "ci"),), tolerations=(Toleration("ci", "Exists"),))
GENERAL = [marked(node("g0"), Mark.SOFT, 1), node("g1"), node("g2")]
STAYS = [pod(f"s{n}", f"g{n}", 1000, 1000) for n in range(3)]


def ci(count: int, *pods: Pod) -> Cluster:
    """Return general nodes, one of them marked, beside so many of a pool behind a taint."""
    taint, labels = Taint("ci", "", "NoSchedule"), {"pool": "ci"}
    pool = [node(f"c{n}", labels=labels, taints=(taint,)) for n in range(count)]
    return Cluster.of([*GENERAL, *pool], [*STAYS, *pods])


def busy(count: int) -> list[Pod]:
    return [pod(f"p{n}", f"c{n}", 3000, 3000, placing=CI) for n in range(count)]


def looks(*moments: tuple[int, Cluster]) -> PassResult:
    last: PassResult | None = None
    for seconds, cluster in moments:
        memory = last.state if last else LeaderState()
        last = reconcile(cluster, ASKED, memory, NOW + seconds, last=last)
    assert last is not None
    return last


def gone(found: PassResult) -> list[str]:
    return [one.node for one in found.plan.removals]


@pytest.mark.parametrize("count", [1, 4])
def test_no_mark_of_others_is_released_because_the_last_pod_of_a_pool_ends(count: int) -> None:
    """What these asked for is no load of the nodes that are left."""
    found = looks((0, ci(count, *busy(count))), (10, ci(count)))
    assert found.rate_limits.peak_excess[""] == Amount(3000 * count, 3000 * 10**6 * count)
    assert "g0" in gone(found)


@pytest.mark.parametrize(("seconds", "stays"), [(10, True), (WINDOW - 1, True), (WINDOW, False)])
def test_the_busiest_moment_keeps_the_pool_after_its_last_pod(seconds: int, stays: bool) -> None:
    found = looks((0, ci(4, *busy(4))), (seconds, ci(4)))
    assert ("c0" in gone(found)) is not stays
    assert bool(found.snapshot.reaches.recent_templates) is stays
    assert (found.rate_limits.peak_excess == {"": NOTHING, "general": NOTHING}) is not stays


def test_while_nothing_changes_it_is_asked_for_until_the_last_look() -> None:
    """Passes that are skipped are looks too; and one is made when the window is over."""
    there, after = ci(4, *busy(4)), ci(4)
    found = looks((0, there), (40, there), (50, after))
    assert found.requeue_at is not None
    assert found.requeue_at == NOW + 40 + WINDOW
    late = reconcile(after, ASKED, found.state, NOW + 40 + WINDOW, last=found)
    assert not late.skipped
    assert not late.snapshot.reaches.recent_templates


@pytest.mark.parametrize("seconds", [0, 40])
def test_one_more_look_in_idle_time_asks_for_nothing_that_nobody_asked_for_at_the_last(
    seconds: int,
) -> None:
    """Be the last two of one second."""
    found = looks((0, ci(4, *busy(4))), (seconds, ci(4)))
    assert found.state.recent_templates.seen_at[CI] == NOW
    again = found.state.unchanged(Now(NOW + 50)).recent_templates.seen_at
    assert again[CI] == NOW
    assert {at for one, at in again.items() if one != CI} == {NOW + 50}


def test_without_a_window_nothing_is_remembered() -> None:
    asked = replace(ASKED, budgets=UNLIMITED)
    assert (
        reconcile(ci(4, *busy(4)), asked, LeaderState(), NOW).state.recent_templates.seen_at == {}
    )


def test_who_asks_in_other_words_now_has_the_reach() -> None:
    """It is one reach, under the words of those that are there."""
    same = NodeConstraints((("pool", "ci"),), tolerations=(Toleration(operator="Exists"),))
    found = looks((0, ci(4, *busy(4))), (10, ci(4, pod("q", "c0", 10, 10, placing=same))))
    assert not found.snapshot.reaches.recent_templates
    assert same in found.state.recent_templates.seen_at
    assert CI not in found.state.recent_templates.seen_at


def of_two(number: int) -> NodeConstraints:
    return NodeConstraints((("set", str(number)),))


def test_those_of_lately_push_out_none_that_pods_ask_for_now() -> None:
    nodes = [
        node(f"{number}-{n}", labels={"set": str(number)})
        for number in range(REACHES_MAX + 9)
        for n in range(2)
    ]
    lately = [of_two(REACHES_MAX + n) for n in range(9)]
    for many in (REACHES_MAX, REACHES_MAX - 2):
        asked: Mapping[NodeConstraints, list[list[Pod]]] = {
            of_two(n): [[pod(f"p{n}", None, 1, 1, placing=of_two(n))]] for n in range(many)
        }
        found = Reaches(nodes, asked, recent=lately)
        assert {*found.current_templates} == {*asked}
        assert len(found.recent_templates) == REACHES_MAX - many


def test_what_is_remembered_is_bounded() -> None:
    """Sets of one node are told apart without a bound, and whoever makes pods may ask for each."""
    nodes = [node(f"n{n:03}", labels={"set": str(n)}) for n in range(RECENT_TEMPLATES_MAX + 50)]
    pods = [pod(f"p{n}", None, 1, 1, placing=of_two(n)) for n in range(len(nodes))]
    found = looks((0, Cluster.of(nodes, pods)), (10, Cluster.of(nodes, [])))
    assert len(found.snapshot.reaches.recent_templates) == len(nodes)
    assert len(found.state.recent_templates.seen_at) == RECENT_TEMPLATES_MAX
    assert found.requeue_at == NOW + 11


def test_of_too_many_those_are_remembered_that_were_asked_for_last() -> None:
    nodes = [node(f"n{n:03}", labels={"set": str(n)}) for n in range(RECENT_TEMPLATES_MAX + 50)]
    pods = [pod(f"p{n}", None, 1, 1, placing=of_two(n)) for n in range(len(nodes))]
    last = Cluster.of(nodes, pods[50:])
    found = looks((0, Cluster.of(nodes, pods)), (5, last), (10, Cluster.of(nodes, [])))
    assert found.state.recent_templates.seen_at == {
        of_two(n): NOW + 5 for n in range(50, len(nodes))
    }
