"""State of a reach is retained when other constraints select the same nodes."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction

import pytest

from core.config.budgets import Reserve
from core.config.settings import Config
from core.engine.arrivals import SHAPES_MAX
from core.engine.leader_state import LeaderState
from core.engine.reach_keys import ReachKeys, renamed
from core.engine.reconcile import ReconcileResult, reconcile
from core.model.cluster import Cluster
from core.model.constraints import NodeConstraints
from core.model.node import Node
from core.model.now import Now
from core.model.pod import Pod
from core.placement.reaches import Reach
from tests.support.builders import UNLIMITED, node, pod

pytestmark = pytest.mark.mutate

START = 1_000_000 * 300
LABELS = {"team": "shop", "pool": "a"}
SHOP = NodeConstraints(node_selector=(("team", "shop"),))
OTHER = NodeConstraints(node_selector=(("pool", "a"),))
"""Selects the same nodes; its key sorts first."""
RESERVE = Reserve(window_seconds=300, percentile=Fraction(1))
ASKED = Config(budgets=replace(UNLIMITED, reserve=RESERVE, stabilization_window_seconds=3600))
GENERAL = [node("g0"), node("g1")]


def _pool(*names: str) -> list[Node]:
    return [*GENERAL, *(node(name, labels=LABELS) for name in names)]


def _pod(
    name: str, on: str | None, node_constraints: NodeConstraints = SHOP, cpu: int = 100
) -> Pod:
    made = pod(name, on, cpu, 100, node_constraints=node_constraints)
    return replace(made, uid=name, unschedulable=on is None)


STAYS = _pod("s", "a0")
GENERAL_POD = pod("g", "g0", 100, 100)
GREEDY = replace(_pod("e", "a0", OTHER, 1), namespace="evil")


def _run_passes(*moments: tuple[int, Sequence[Node], Iterable[Pod]]) -> ReconcileResult:
    last: ReconcileResult | None = None
    memory = LeaderState()
    for seconds, nodes, pods in moments:
        cluster = Cluster.of(nodes, [STAYS, GENERAL_POD, *pods])
        last = reconcile(cluster, ASKED, memory, START + seconds, last=last)
        memory = last.state
    assert last is not None
    return last


def _key(found: ReconcileResult) -> str:
    reach = found.snapshot.reaches.reach_of(SHOP)
    assert reach is not None
    return reach.key


POOL = _pool("a0", "a1", "a2")
LATER = [
    pytest.param(((30, POOL, [GREEDY]),), "pool=a", id="renamed"),
    pytest.param(((30, POOL, [GREEDY]), (40, POOL, [])), "team=shop", id="renamed and back"),
    pytest.param(
        ((30, _pool("a0", "a1", "a3"), [GREEDY]),), "pool=a", id="renamed, and nodes change"
    ),
]


@pytest.mark.parametrize(("later", "key"), LATER)
def test_peak_is_retained_when_reach_is_renamed(
    later: Sequence[tuple[int, Sequence[Node], Iterable[Pod]]], key: str
) -> None:
    peak = [_pod(f"p{n}", "a1", cpu=1000) for n in range(3)]
    found = _run_passes((0, POOL, []), (10, POOL, peak), (20, POOL, []), *later)
    assert _key(found) == key
    assert found.state.peak.samples.keys() == {"", "general", key}
    assert 2999 <= found.rate_limits.peak_excess[key].cpu_millis <= 3000


@pytest.mark.parametrize(("later", "key"), LATER)
def test_arrivals_are_retained_when_reach_is_renamed(
    later: Sequence[tuple[int, Sequence[Node], Iterable[Pod]]], key: str
) -> None:
    one = _pod("p", "a1")
    found = _run_passes((0, POOL, []), (10, POOL, [one]), (20, POOL, []), *later)
    expected = found.state.expected_pods(
        found.snapshot.reachable_allocatable, Now(START + 50), RESERVE.percentile
    )
    own = {kind.reach: many for kind, many in expected.items() if kind.node_constraints == SHOP}
    assert own == {key: 1}
    counted = {kind.reach for counts in found.state.arrivals.recent.values() for kind in counts}
    assert counted == {key}


@pytest.mark.parametrize(("later", "key"), LATER)
def test_provisioning_time_is_retained_when_reach_is_renamed(
    later: Sequence[tuple[int, Sequence[Node], Iterable[Pod]]], key: str
) -> None:
    few = _pool("a0", "a1")
    found = _run_passes(
        (0, few, []), (5, few, [_pod("w", None)]), (15, POOL, [_pod("w", "a2")]), *later
    )
    assert found.state.provisioning_times.seconds == {key: 10}


def _keys(nodes: str, **reaches: str) -> ReachKeys:
    """Return the keys of a pass: a node is a letter, a reach the letters of its nodes."""
    made = (
        Reach(key, tuple(nodes.index(one) for one in members), key)
        for key, members in reaches.items()
    )
    return ReachKeys(tuple(nodes), {one.key: one.nodes for one in made})


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        (_keys("abcd", x="ab"), _keys("abcd", x="ab", y="cd"), {}),
        (_keys("abcd", x="ab"), _keys("abcd", y="cd"), {}),
        (_keys("abcd", x="ab"), _keys("abcd", y="abc"), {}),
        (_keys("abcd", x="ab"), _keys("abcd", y="ab"), {"x": "y"}),
        (_keys("abcd", x="ab"), _keys("bacd", y="ab"), {"x": "y"}),
        (_keys("abcd", x="abc"), _keys("abde", y="abe"), {"x": "y"}),
        (_keys("ab", x="ab"), _keys("cd", y="cd"), {}),
        (_keys("abcd", x="ab", z="cd"), _keys("abcd", y="cd", w="ab"), {"x": "w", "z": "y"}),
        (_keys("abcd", x="ab", z="abd"), _keys("ab", y="ab"), {"z": "y"}),
        (_keys("abcd", x="abc", z="abd"), _keys("ab", y="ab"), {"x": "y"}),
    ],
)  # fmt: skip
def test_reach_is_renamed_when_new_key_has_same_nodes(
    before: ReachKeys, now: ReachKeys, expected: dict[str, str]
) -> None:
    assert renamed(before, now) == expected


def test_full_bucket_counts_shapes_under_new_key() -> None:
    """Otherwise shapes under the old key would occupy the bucket."""
    many = [_pod(f"m{n:02}", "a0", cpu=100 + n) for n in range(SHAPES_MAX)]
    more = [replace(_pod(f"x{n}", "a0", cpu=900 + n), namespace="other") for n in range(3)]
    moments = [
        (0, _pool("a0", "a1"), []),
        (10, _pool("a0", "a1"), many),
        (20, _pool("a0", "a1"), [*many, GREEDY]),
        (30, _pool("a0", "a1"), [*many, GREEDY, *more]),
    ]
    found = _run_passes(*moments)
    assert [len(counts) for counts in found.state.arrivals.recent.values()] == [SHAPES_MAX]


def test_state_of_other_reaches_keeps_their_keys() -> None:
    pool, busy = _pool("a0", "a1"), pod("h", "g1", 3000, 100)
    first = _run_passes((0, pool, [busy]))
    after = _run_passes((0, pool, [busy]), (60, pool, [_pod("o", "a1", OTHER)]))
    assert _key(first) != _key(after), "the reach is renamed"
    general = after.snapshot.reaches.reach_of(NodeConstraints())
    assert general is not None
    assert [second for second, _ in after.state.peak.samples[general.key]] == [START, START + 60]
