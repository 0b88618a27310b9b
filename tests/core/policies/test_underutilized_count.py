"""Policy UnderutilizedCount: its tables, figures and settings."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

import pytest

from core.config.document import parse
from core.config.schema import settings as all_settings
from core.config.schema import written
from core.config.settings import API_VERSION, KIND, Config
from core.engine import reconcile
from core.engine.leader_state import LeaderState
from core.engine.plan import Plan
from core.marks.mark import Mark
from core.model.cluster import Cluster
from core.model.constraints import NodeConstraints
from core.model.errors import ConfigError
from core.model.node import Taint
from core.policies.ported.underutilized_count import POOLS_MAX, CountedPool, CountedPools
from tests.support.builders import marked, node, pod
from tests.support.counting import POOL, counted, counting

pytestmark = pytest.mark.mutate

HEAD = {"apiVersion": API_VERSION, "kind": KIND, "policy": "UnderutilizedCount"}
A = {POOL: "a"}


def filled(shares: Mapping[str, int], *, each: int = 400, label: Mapping[str, str] = A) -> Cluster:
    """Return nodes of 4,000m, filled to these millicores with pods of *each* millicores."""
    return Cluster.of(
        [node(name, labels=label, pods=1000) for name in shares],
        [
            pod(f"{name}-{number}", name, min(each, full - number * each), 10)
            for name, full in shares.items()
            for number in range(-(-full // each))
        ],
    )


def six(**changes: int) -> dict[str, int]:
    """Return the loads of six nodes: 60%, except for the *changes*."""
    return dict.fromkeys("abcdef", 2400) | changes


def opted_out(cluster: Cluster, names: str) -> Cluster:
    """Return the cluster with these nodes opted out."""
    keep = {"kube-ebb.io/keep": "true"}
    nodes = [replace(n, annotations=keep) if n.name in names else n for n in cluster.nodes]
    return Cluster.of(nodes, cluster.pods)


def removed_nodes(plan: Plan) -> list[str]:
    return [one.node for one in plan.removals]


def codes(plan: Plan, name: str) -> list[str]:
    (opted_out,) = (one for one in plan.kept if one.node == name)
    return [blocker.code for blocker in opted_out.blockers]


def message_of(plan: Plan, name: str) -> str:
    (opted_out,) = (one for one in plan.kept if one.node == name)
    return opted_out.blockers[-1].message


# The rule.


def test_one_of_six_nodes_at_60_percent_is_removed() -> None:
    """As in the description of the rule: nodes at 100, 80, 60, 60 and 60% remain."""
    plan = reconcile.plan(filled(six()), counting({"a": counted("3/4", 5)}))
    assert removed_nodes(plan) == ["a"]
    loads = dict.fromkeys("bcdef", 2400)
    for one in plan.removals[0].placements:
        loads[one.node] += 400
    assert [load * 100 // 4000 for load in loads.values()] == [100, 80, 60, 60, 60]
    assert message_of(plan, "f") == (
        "3 unmarked nodes of pool 'a' are under its `limit` of 75%; `required` is 5"
    )


@pytest.mark.parametrize(("limit", "required"), [("60%", 3), ("75%", 5), ("90%", 10)])
def test_documented_pairs_of_limit_and_count_leave_room(limit: str, required: int) -> None:
    """With the required number of nodes just below the limit, the pods of one find room."""
    share = Fraction(limit.removesuffix("%")) / 100
    assert required >= 1 / (1 - share)
    full = int(share * 4000) - 10
    shares = {f"n{number:02}": full for number in range(required)}
    config = counting({"a": CountedPool(enabled=True, limit=share, required=required)})
    assert removed_nodes(reconcile.plan(filled(shares, each=10), config)) == ["n00"]
    del shares["n00"]
    assert removed_nodes(reconcile.plan(filled(shares, each=10), config)) == []


@pytest.mark.parametrize(
    ("changes", "required", "removed"),
    [
        ({}, 6, ["a"]),
        ({}, 7, []),
        ({"a": 3000}, 6, []),
        ({"a": 3000}, 5, ["b"]),
        ({"a": 2999}, 6, ["b"]),
        ({"d": 2000}, 6, ["d"]),
        ({"d": 2000, "b": 2000}, 6, ["b"]),
        ({"d": 0}, 6, ["d"]),
        ({"d": 0}, 5, ["d", "a"]),
        ({"e": 4000}, 5, ["a"]),
    ],
)
def test_least_utilized_node_is_removed_while_enough_are_under_limit(
    changes: dict[str, int], required: int, removed: list[str]
) -> None:
    plan = reconcile.plan(filled(six(**changes)), counting({"a": counted("3/4", required)}))
    assert removed_nodes(plan) == removed


def test_next_node_is_removed_when_first_is_blocked_or_has_no_room() -> None:
    calm = counting({"a": counted("3/4", 6)})
    cluster = filled(six(b=1200, c=1600, d=2000))
    opted_out = replace(cluster.nodes[1], annotations={"kube-ebb.io/keep": "true"})
    large = [p for p in cluster.pods if p.node != "c"] + [pod("large", "c", 1600, 7990)]
    nodes = [opted_out if one.name == "b" else one for one in cluster.nodes]
    plan = reconcile.plan(Cluster.of(nodes, large), calm)
    assert removed_nodes(plan) == ["d"]
    assert codes(plan, "b") == ["opted-out", "too-few-under-limit"]
    tight = counting({"a": counted("3/4", 7)})
    assert "no-room" in codes(reconcile.plan(Cluster.of(nodes, large), tight), "c")


def test_node_over_limit_is_kept_when_enough_are_under_it() -> None:
    """The nodes under the limit are opted out; f is over it from the start."""
    config, busy = counting({"a": counted("3/4", 5)}), filled(six(f=3200))
    plan = reconcile.plan(opted_out(busy, "abcde"), config)
    assert removed_nodes(plan) == []
    assert codes(plan, "f") == ["over-limit"]


def test_node_is_kept_when_moved_pods_bring_it_over_limit() -> None:
    """Four pods of a move to b, which is fullest; c and d are opted out and have room."""
    cluster = opted_out(filled({"a": 2400, "b": 2400, "c": 0, "d": 0}), "cd")
    plan = reconcile.plan(cluster, counting({"a": counted("3/4", 2)}))
    assert removed_nodes(plan) == ["a"]
    assert (
        message_of(plan, "b")
        == "the pods of the node request 100% of its CPU; the `limit` of its pool is 75%"
    )


def test_pending_pod_counts_on_its_planned_node() -> None:
    """Node a has the least requests, unless the pending pod is placed there."""
    cluster = filled(six(a=2000))
    first, *others = cluster.nodes
    nodes = [replace(first, labels={**A, "x": ""}), *others, node("z", labels={"x": ""})]
    waiting = pod(
        "waiting", None, 500, 10, node_constraints=NodeConstraints(node_selector=(("x", ""),))
    )
    config = counting({"a": counted("3/4", 6)})
    assert removed_nodes(reconcile.plan(Cluster.of(nodes, cluster.pods), config)) == ["a"]
    assert removed_nodes(reconcile.plan(Cluster.of(nodes, [*cluster.pods, waiting]), config)) == [
        "b"
    ]


def test_pools_are_counted_separately_and_share_room() -> None:
    """Both pools have enough nodes under the limit, but pods of one use the room of the other."""
    one, other = filled(six()), filled({f"b{n}": 2400 for n in range(6)}, label={POOL: "b"})
    both = Cluster.of([*one.nodes, *other.nodes], [*one.pods, *other.pods])
    five, six_of_them = counted("3/4", 5), counted("3/4", 6)
    assert removed_nodes(reconcile.plan(both, counting({"b": six_of_them}))) == ["b0"]
    assert removed_nodes(reconcile.plan(both, counting({"a": five, "b": six_of_them}))) == ["a"]
    assert removed_nodes(reconcile.plan(both, counting({"a": five, "b": five}))) == ["a", "b1"]


# Which nodes count.


def with_change(cluster: Cluster, name: str, change: Mapping[str, object]) -> Cluster:
    nodes = [replace(n, **change) if n.name == name else n for n in cluster.nodes]  # type: ignore[arg-type]
    return replace(Cluster.of(nodes, cluster.pods))


@pytest.mark.parametrize(
    ("change", "removed"),
    [
        pytest.param({}, ["a"], id="plain"),
        pytest.param({"annotations": {"kube-ebb.io/keep": "true"}}, ["b"], id="opted out"),
        pytest.param({"taints": (Taint("gpu", "", "NoSchedule"),)}, ["a"], id="tainted by others"),
        pytest.param({"labels": {**A, "node-role.kubernetes.io/control-plane": ""}}, ["b"],
                     id="control plane"),
        pytest.param({"unschedulable": True}, [], id="cordoned"),
        pytest.param({"ready": False}, [], id="not ready"),
        pytest.param({"deleting": True}, [], id="leaving"),
        pytest.param({"virtual": True}, [], id="virtual"),
        pytest.param({"unreadable": "status: x"}, [], id="unreadable"),
        pytest.param({"labels": {POOL: "b"}}, [], id="another pool"),
        pytest.param({"labels": {}}, [], id="no pool"),
    ],
)  # fmt: skip
def test_nodes_are_counted_and_removed_by_state(
    change: dict[str, object], removed: list[str]
) -> None:
    """One of six nodes, without pods: five others are under the limit, and six are required."""
    cluster = with_change(filled(six(a=0)), "a", change)
    assert removed_nodes(reconcile.plan(cluster, counting({"a": counted("3/4", 6)}))) == removed


def test_node_without_cpu_is_not_counted_and_its_mark_is_released() -> None:
    bare = replace(node("z", 0, 8000, labels=A))
    cluster = Cluster.of([*filled(six()).nodes, bare], filled(six()).pods)
    config = counting({"a": counted("3/4", 7)})
    plan = reconcile.plan(cluster, config)
    assert removed_nodes(plan) == []
    assert (
        message_of(plan, "z") == "the node has no allocatable CPU; the `limit` of its pool is 75%"
    )
    plan = reconcile.plan(Cluster.of([marked(bare, Mark.PREFER_NO_SCHEDULE, 1)], []), config)
    assert plan.marked_infeasible == ("z",)


def test_nodes_without_label_belong_to_unnamed_pool() -> None:
    cluster = filled(six(), label={})
    assert removed_nodes(reconcile.plan(cluster, counting({"": counted()}))) == ["a"]
    assert removed_nodes(reconcile.plan(cluster, counting({"a": counted()}))) == []


# Candidates over time.


def candidate_states(config: Config, *fulls: int) -> list[bool]:
    """Return for each pass, one second apart, whether node a with this load is a candidate."""
    memory, found = LeaderState(), []
    for now, full in enumerate(fulls):
        cluster = filled({"a": full, "b": 4000}, each=1)
        memory = reconcile.reconcile(cluster, config, memory, now).state
        found.append("a" in memory.candidates)
    return found


@pytest.mark.parametrize(
    ("fulls", "listed"),
    [
        ((299, 300, 301, 300, 299), (True, True, False, False, True)),
        ((300, 300, 299, 300), (False, False, True, True)),
        ((301, 300, 301), (False, False, False)),
    ],
)
def test_node_at_exactly_limit_keeps_its_state(
    fulls: Sequence[int], listed: Sequence[bool]
) -> None:
    config = counting({"a": counted("3/40", 1)})
    assert candidate_states(config, *fulls) == list(listed)


@pytest.mark.parametrize(("seconds", "removed"), [(299, []), (300, ["a"]), (301, ["a"])])
def test_node_is_removed_after_at_least_unneeded_time(seconds: int, removed: list[str]) -> None:
    config, cluster = counting({"a": counted()}), filled(six())
    first = reconcile.reconcile(cluster, config, LeaderState(), 1000)
    assert removed_nodes(first.plan) == []
    again = reconcile.reconcile(cluster, config, first.state, 1000 + seconds, last=first)
    assert removed_nodes(again.plan) == removed


def test_unneeded_time_restarts_when_node_was_over_limit() -> None:
    config = counting({"a": counted("3/4", 6)})
    first = reconcile.reconcile(filled(six(c=1200)), config, LeaderState(), 0)
    second = reconcile.reconcile(filled(six(c=3200)), config, first.state, 200)
    found = reconcile.reconcile(filled(six(c=1200)), config, second.state, 300)
    assert found.state.candidates["c"] == 300
    assert removed_nodes(found.plan) == ["a"]
    assert "unneeded-time" in codes(found.plan, "c")


def test_candidate_at_limit_is_removed_although_it_does_not_count() -> None:
    """Five nodes are under the limit but are new candidates; the sixth is an old candidate."""
    config = counting({"a": counted("3/4", 5)})
    busy = dict.fromkeys("abcde", 3600)
    memory = reconcile.reconcile(
        filled({**busy, "f": 2990}, each=10), config, LeaderState(), 0
    ).state
    now = {**dict.fromkeys("abcde", 2000), "f": 3000}
    found = reconcile.reconcile(filled(now, each=10), config, memory, 300)
    assert removed_nodes(found.plan) == ["f"]
    unlisted = reconcile.reconcile(
        filled(now, each=10), replace(config, unneeded_time_seconds=0), LeaderState(), 300
    )
    assert "f" not in removed_nodes(unlisted.plan)


# Marks.


@pytest.mark.parametrize(
    ("pools", "full", "retained"),
    [
        ({"a": counted()}, 2400, True),
        ({"a": counted("3/4", 100)}, 3000, True),
        ({"a": counted()}, 3001, False),
        ({"a": counted("1")}, 4000, True),
        ({"a": counted("1")}, 4001, False),
        ({"a": counted(enabled=False)}, 2400, False),
        ({"b": counted()}, 2400, False),
        ({}, 2400, False),
    ],
)
def test_mark_is_removed_when_node_is_over_limit_or_pool_is_off(
    pools: Mapping[str, CountedPool], full: int, *, retained: bool
) -> None:
    """The count does not matter; removing or disabling the pool removes the mark."""
    cluster = filled({"a": full, "b": 0, "c": 0}, each=1000)
    nodes = [marked(n, Mark.PREFER_NO_SCHEDULE, 1) if n.name == "a" else n for n in cluster.nodes]
    plan = reconcile.plan(Cluster.of(nodes, cluster.pods), counting(pools))
    assert (plan.marked_infeasible == ()) is retained
    assert ("a" in removed_nodes(plan)) is retained


def test_marked_node_does_not_count_and_its_pods_count_on_targets() -> None:
    cluster = filled(six())
    nodes = [marked(n, Mark.PREFER_NO_SCHEDULE, 1) if n.name == "a" else n for n in cluster.nodes]
    plan = reconcile.plan(Cluster.of(nodes, cluster.pods), counting({"a": counted("3/4", 3)}))
    assert removed_nodes(plan)[:2] == ["a", "d"]
    plan = reconcile.plan(Cluster.of(nodes, cluster.pods), counting({"a": counted("3/4", 4)}))
    assert removed_nodes(plan) == ["a"]


def test_marked_node_does_not_count_when_it_is_blocked() -> None:
    cluster = opted_out(filled(six()), "a")
    nodes = [marked(n, Mark.PREFER_NO_SCHEDULE, 1) if n.name == "a" else n for n in cluster.nodes]
    plan = reconcile.plan(Cluster.of(nodes, cluster.pods), counting({"a": counted("3/4", 6)}))
    assert removed_nodes(plan) == []
    assert (
        message_of(plan, "b")
        == "5 unmarked nodes of pool 'a' are under its `limit` of 75%; `required` is 6"
    )


def test_message_of_marked_node_reports_its_own_pods() -> None:
    """Pods of another node would move there, because it is the fullest."""
    cluster = filled(six(b=3001), each=10)
    nodes = [marked(n, Mark.PREFER_NO_SCHEDULE, 1) if n.name == "b" else n for n in cluster.nodes]
    plan = reconcile.plan(Cluster.of(nodes, cluster.pods), counting({"a": counted("3/4", 5)}))
    assert removed_nodes(plan) == ["a"]
    assert {one.node for one in plan.removals[0].placements} >= {"b"}
    assert (
        message_of(plan, "b")
        == "the pods of the node request 75.1% of its CPU; the `limit` of its pool is 75%"
    )


def test_message_reports_utilization_above_100_percent() -> None:
    """Marked or not; the figure of its pool counts at most its capacity."""
    cluster = filled({"a": 4200, "b": 4200, "c": 0, "d": 0}, each=100)
    nodes = [marked(n, Mark.PREFER_NO_SCHEDULE, 1) if n.name == "a" else n for n in cluster.nodes]
    plan = reconcile.plan(Cluster.of(nodes, cluster.pods), counting({"a": counted("1", 3)}))
    for name in "ab":
        assert (
            message_of(plan, name)
            == "the pods of the node request 105% of its CPU; the `limit` of its pool is 100%"
        )
    assert figures(plan)["requests_ratio", "a", "cpu"] == Fraction(1, 2)


def test_marked_node_is_compared_by_its_own_pods_only() -> None:
    """First fit moves the pods of a to b, which is fullest and marked too: both are removable."""
    cluster = filled({"a": 2000, "b": 2990, "c": 0, "d": 0}, each=10)
    nodes = [marked(n, Mark.PREFER_NO_SCHEDULE, 1) if n.name in "ab" else n for n in cluster.nodes]
    plan = reconcile.plan(Cluster.of(nodes, cluster.pods), counting({"a": counted()}))
    assert removed_nodes(plan) == ["a", "b"]


# Messages.


@pytest.mark.parametrize(
    ("pools", "code", "message"),
    [
        ({}, "pool-not-configured", "pool 'a' of the node (label pool) is not configured"),
        ({"a": counted(enabled=False)}, "pool-disabled",
         "pool 'a' of the node (label pool) is not enabled"),
        ({"a": counted("3/5")}, "over-limit",
         "the pods of the node request 60% of its CPU; the `limit` of its pool is 60%"),
        ({"a": counted("5999/10000")}, "over-limit",
         "the pods of the node request 60% of its CPU; the `limit` of its pool is 59.99%"),
        ({"a": counted("3/4", 9)}, "too-few-under-limit",
         "6 unmarked nodes of pool 'a' are under its `limit` of 75%; `required` is 9"),
    ],
)  # fmt: skip
def test_blocker_has_code_and_message(
    pools: Mapping[str, CountedPool], code: str, message: str
) -> None:
    plan = reconcile.plan(filled(six()), counting(pools))
    assert codes(plan, "a") == [code]
    assert message_of(plan, "a") == message


# Figures.


def figures(plan: Plan) -> dict[tuple[str, ...], int | Fraction]:
    return {
        (one.gauge.removeprefix("ebb_underutilized_count_"), *one.labels): one.value
        for one in plan.figures
    }


def test_figures_are_reported_for_each_configured_pool() -> None:
    """Virtual nodes and pending pods do not count, and other pools are not reported."""
    cluster = filled(six(e=3200, f=3000))
    nodes = [marked(n, Mark.PREFER_NO_SCHEDULE, 1) if n.name == "a" else n for n in cluster.nodes]
    nodes = [replace(n, unschedulable=True) if n.name == "b" else n for n in nodes]
    nodes = [replace(n, labels={**A, "x": ""}) if n.name == "c" else n for n in nodes]
    nodes += [node("other", labels={POOL: "written by somebody"})]
    nodes += [replace(node("virtual", labels=A), virtual=True)]
    waiting = pod(
        "waiting", None, 700, 10, node_constraints=NodeConstraints(node_selector=(("x", ""),))
    )
    whole = Cluster.of(nodes, [*cluster.pods, waiting])
    shares = Fraction(4 * 2400 + 3200 + 3000, 24_000), Fraction(4 * 60 + 80 + 80, 48_000)
    config = counting({"a": counted(), "off": CountedPool(), "empty": counted()})
    for plan in (
        reconcile.reconcile(whole, config, LeaderState(), 0).plan,
        reconcile.plan(whole, config),
    ):
        found = figures(plan)
        assert {name for _, name, *_ in found} == {"a", "off", "empty"}
        of_a = {
            (name, *labels): value for (name, pool, *labels), value in found.items() if pool == "a"
        }
        assert of_a == {
            ("nodes",): 6,
            ("marked_nodes",): 1,
            ("underutilized_nodes",): 2,
            ("candidate_nodes",): 3,
            ("requests_ratio", "cpu"): shares[0],
            ("requests_ratio", "memory"): shares[1],
        }
        assert all(value == 0 for (_, name, *_), value in found.items() if name != "a")
    off = reconcile.plan(whole, counting({"a": counted(enabled=False)}))
    assert list(figures(off).values()) == [6, 1, 2, 0, *shares]


# Settings.


def faults_of(section: object) -> list[str]:
    with pytest.raises(ConfigError) as rejected:
        parse({**HEAD, "underutilizedCount": section}, "ebb.yaml")
    return [fault.removeprefix("underutilizedCount.") for fault in rejected.value.faults]


SHARE = 'allowed: a percentage above 0% and up to 100%, such as "80%" or "62.5%"'
NUMBER = "allowed: a whole number from 1 to 100000"
KNOWN = "allowed: enabled, limit, required; did you mean enabled?"


@pytest.mark.parametrize(
    ("pool", "faults"),
    [
        ({"enabled": True}, [f"pools.a.limit: missing; {SHARE}",
                             f"pools.a.required: missing; {NUMBER}"]),
        ({"enabled": True, "limit": None, "required": 2}, [f"pools.a.limit: missing; {SHARE}"]),
        ({"enabled": True, "limit": "0%"}, [f"pools.a.limit: '0%'; {SHARE}",
                                            f"pools.a.required: missing; {NUMBER}"]),
        ({"limit": "101%", "required": 0}, [f"pools.a.limit: '101%'; {SHARE}",
                                            f"pools.a.required: 0; {NUMBER}"]),
        ({"limit": 0.75}, [f"pools.a.limit: 0.75; {SHARE}"]),
        ({"required": "5"}, [f"pools.a.required: '5'; {NUMBER}"]),
        ({"required": True}, [f"pools.a.required: true; {NUMBER}"]),
        ({"enabled": "yes"}, ["pools.a.enabled: 'yes'; allowed: true | false"]),
        ({"enable": True}, [f"pools.a.enable: unknown field; {KNOWN}"]),
        (None, ["pools.a: missing; allowed: a mapping of fields"]),
        ("75%", ["pools.a: '75%'; allowed: a mapping of fields"]),
    ],
)  # fmt: skip
def test_invalid_pool_is_rejected(pool: object, faults: list[str]) -> None:
    assert faults_of({"pools": {"a": pool}}) == faults


def test_faults_of_all_pools_are_reported_at_once() -> None:
    pools = {"a.b": {"enabled": True, "required": 5}, "c": {"limit": "0%"}, "-d": {}, 7: {}}
    name = "allowed: a value that a label may have, in quotes if it looks like a number"
    assert faults_of({"pools": pools, "poolLabel": "a b", "pool": {}}) == [
        "poolLabel: 'a b'; allowed: a qualified label key",
        f"pools.a.b.limit: missing; {SHARE}",
        f"pools.c.limit: '0%'; {SHARE}",
        f"pools.-d: '-d'; {name}",
        f"pools.7: 7; {name}",
        "pool: unknown field; allowed: poolLabel, pools; did you mean pools?",
    ]


@pytest.mark.parametrize("pools", [[], "a", {str(n): {} for n in range(POOLS_MAX + 1)}])
def test_pools_are_rejected_unless_bounded_mapping(pools: object) -> None:
    (fault,) = faults_of({"pools": pools})
    assert fault.startswith("pools: ")
    assert fault.endswith(
        f"allowed: a mapping of at most {POOLS_MAX} names to {{enabled, limit, required}}"
    )


def test_settings_are_read_with_defaults() -> None:
    pools = {
        "default-pool": {"enabled": True, "limit": "62.5%", "required": 3},
        "": {},
        "off": {"limit": "75%"},
    }
    document = {**HEAD, "underutilizedCount": {"pools": pools}}
    config = parse(document, "x")
    assert config.unneeded_time_seconds == 300
    assert config.policies.underutilized_count == CountedPools(
        pools={
            "default-pool": CountedPool(enabled=True, limit=Fraction(5, 8), required=3),
            "": CountedPool(),
            "off": CountedPool(limit=Fraction(3, 4)),
        }
    )
    assert config.policies.underutilized_count.pool_label == "cloud.google.com/gke-nodepool"
    assert parse(written(config), "x") == config
    assert parse({**document, "unneededTime": "7m"}, "x").unneeded_time_seconds == 420
    assert parse({**document, "policy": "ClusterThreshold"}, "x").unneeded_time_seconds == 120
    assert [one.path for one in all_settings() if one.path.startswith("underutilizedCount")] == [
        "underutilizedCount",
        "underutilizedCount.poolLabel",
        "underutilizedCount.pools",
        "underutilizedCount.pools.NAME.enabled",
        "underutilizedCount.pools.NAME.limit",
        "underutilizedCount.pools.NAME.required",
    ]
