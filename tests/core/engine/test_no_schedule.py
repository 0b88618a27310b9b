"""When a PreferNoSchedule mark may become a NoSchedule mark."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from core.config.settings import Config, UsabilityMode
from core.config.thresholds import Thresholds
from core.engine import reconcile
from core.engine.leader_state import LeaderState
from core.engine.no_schedule import (
    NO_SCHEDULE_AFFINITY,
    NO_SCHEDULE_DAEMONSET,
    NO_SCHEDULE_PREEMPTION,
    NO_SCHEDULE_SPREAD,
    NO_SCHEDULE_WAITING,
    PAUSE_SECONDS,
    PREEMPTING_SHAPES_MAX,
    SHAPES_MAX,
    RecentReasons,
    blockers_by_node,
)
from core.engine.snapshot import ClusterSnapshot
from core.engine.unschedulable import WAIT_SECONDS
from core.marks.mark import Mark
from core.marks.wellknown import TAINT_KEY
from core.model.cluster import Cluster, DaemonSet
from core.model.constraints import (
    NO_NODE_CONSTRAINTS,
    NodeConstraints,
    PodAffinityTerm,
    PodConstraints,
    PodSelector,
    Requirement,
    SelectorTerm,
    SpreadConstraint,
    Toleration,
    VolumeTopology,
)
from core.model.humanize import timestamp
from core.model.node import Effect, Node, Taint
from core.model.now import Now
from core.model.pod import TOPOLOGY_FIELD, Pod
from core.model.reason import Blocker, Reason
from core.model.resources import Resources
from tests.support.builders import GREEN, UNLIMITED, marked, node, pod, select

pytestmark = pytest.mark.mutate

ALL_PODS = PodSelector(None, ())
DAEMON = replace(pod("d", "n0", 10, 10, daemon=True), owner_kind="DaemonSet", owner_name="logs")
TOLERANT = NodeConstraints(tolerations=(Toleration(key=TAINT_KEY, operator="Exists"),))
EXACT = NodeConstraints(tolerations=(Toleration(key=TAINT_KEY, operator="Equal"),))


def spread(key: str, *, honor_taints: bool = False, min_domains: int = 1) -> Pod:
    constraint = SpreadConstraint(
        ALL_PODS, key, 1, honor_taints=honor_taints, min_domains=min_domains
    )
    return pod("s", "n1", 10, 10, pod_constraints=PodConstraints(spread=(constraint,)))


def nodes() -> list[Node]:
    labels = [{"host": "0", "zone": "a"}, {"host": "1", "zone": "a"}, {"host": "2", "zone": "b"}]
    made = [node(f"n{number}", labels=found) for number, found in enumerate(labels)]
    return [
        marked(made[0], Mark.PREFER_NO_SCHEDULE, 1),
        made[1],
        marked(made[2], Mark.PREFER_NO_SCHEDULE, 1),
    ]


@pytest.mark.parametrize(
    ("others", "against"),
    [
        ([], {"n0": [], "n2": []}),
        ([DAEMON], {"n0": ["no-schedule-daemonset"], "n2": []}),
        ([replace(DAEMON, node_constraints=TOLERANT)], {"n0": [], "n2": []}),
        ([replace(DAEMON, node_constraints=EXACT)], {"n0": ["no-schedule-daemonset"], "n2": []}),
        ([replace(DAEMON, node="n1")], {"n0": [], "n2": []}),
        ([spread("zone")], {"n0": [], "n2": ["no-schedule-spread"]}),
        ([spread("host")], {"n0": ["no-schedule-spread"], "n2": ["no-schedule-spread"]}),
        ([spread("host", honor_taints=True)], {"n0": [], "n2": []}),
        (
            [spread("zone", honor_taints=True, min_domains=2)],
            {"n0": [], "n2": ["no-schedule-spread"]},
        ),
        ([spread("rack")], {"n0": [], "n2": []}),
        (
            [pod("k", "n0", 10, 10, unsupported=(TOPOLOGY_FIELD,))],
            {"n0": ["no-schedule-kueue"], "n2": []},
        ),
        ([pod("k", "n1", 10, 10, unsupported=(TOPOLOGY_FIELD,))], {"n0": [], "n2": []}),
    ],
)
def test_daemon_sets_and_spread_block_no_schedule(
    others: list[Pod], against: dict[str, list[str]]
) -> None:
    found = blockers_by_node(ClusterSnapshot(Cluster.of(nodes(), others), Config()))
    assert {name: [one.code for one in why] for name, why in found.items()} == against


def daemon_set(name: str = "logs", **node_constraints: Any) -> DaemonSet:
    return DaemonSet(
        namespace="d", name=name, node_constraints=NodeConstraints(**node_constraints)
    )


ON_ZONE_A = (("zone", "a"),)
WAITS = "no-schedule-daemonset-waits"


@pytest.mark.parametrize(
    ("daemon_sets", "others", "against"),
    [
        ([daemon_set()], [], {"n0": [WAITS], "n2": [WAITS]}),
        ([daemon_set(node_selector=ON_ZONE_A)], [], {"n0": [WAITS], "n2": []}),
        ([daemon_set(tolerations=TOLERANT.tolerations)], [], {"n0": [], "n2": []}),
        ([daemon_set(tolerations=EXACT.tolerations)], [], {"n0": [WAITS], "n2": [WAITS]}),
        ([daemon_set()], [DAEMON], {"n0": ["no-schedule-daemonset"], "n2": [WAITS]}),
        ([daemon_set("other")], [DAEMON], {"n0": ["no-schedule-daemonset", WAITS], "n2": [WAITS]}),
        (
            [daemon_set(f"s{n}", node_selector=((f"k{n}", ""),)) for n in range(SHAPES_MAX + 1)],
            [],
            {"n0": [WAITS], "n2": [WAITS]},
        ),
    ],
)
def test_daemon_set_blocks_no_schedule_when_it_has_no_pod_on_the_node(
    daemon_sets: list[DaemonSet], others: list[Pod], against: dict[str, list[str]]
) -> None:
    cluster = replace(Cluster.of(nodes(), others), daemon_sets=tuple(daemon_sets))
    found = blockers_by_node(ClusterSnapshot(cluster, Config()))
    assert {name: [one.code for one in why] for name, why in found.items()} == against


def test_daemon_set_does_not_block_when_another_taint_rejects_its_pods() -> None:
    one, two, three = nodes()
    one = replace(one, taints=(*one.taints, Taint("gpu", "", Effect.NO_SCHEDULE)))
    cluster = replace(Cluster.of([one, two, three], []), daemon_sets=(daemon_set(),))
    found = blockers_by_node(ClusterSnapshot(cluster, Config()))
    assert {name: len(why) for name, why in found.items()} == {"n0": 0, "n2": 1}


def near(key: str, *, of: str = "cache", **changes: Any) -> Pod:
    terms = (PodAffinityTerm(select(of), key),)
    return replace(
        pod("client", "n1", 10, 10, pod_constraints=PodConstraints(near=terms)), **changes
    )


CACHE = pod("cache", "n0", 10, 10, labels={"app": "cache"})
ITSELF: dict[str, Any] = {"labels": {"app": "cache"}, "node": "n0"}
BLOCKED_0 = {"n0": [NO_SCHEDULE_AFFINITY], "n2": []}
PREFER_NO_SCHEDULE: dict[str, list[Reason]] = {"n0": [], "n2": []}
WEB = pod("web", "n1", 10, 10, labels={"app": "web"})
ON_0 = VolumeTopology(affinity=(SelectorTerm((Requirement("host", "In", ("0",)),)),))
HERE_ALONE = NodeConstraints(volumes=(ON_0,))


@pytest.mark.parametrize(
    ("pods", "against"),
    [
        ([near("host")], PREFER_NO_SCHEDULE),  # no node satisfies it, marked or not
        ([near("host"), CACHE], BLOCKED_0),
        ([near("host", node=None), CACHE], BLOCKED_0),
        ([near("host", daemon=True), CACHE], PREFER_NO_SCHEDULE),
        ([near("host"), CACHE, replace(CACHE, name="other", node="n1")], PREFER_NO_SCHEDULE),
        ([near("zone"), CACHE], PREFER_NO_SCHEDULE),  # n1 is in the same zone
        ([near("zone"), replace(CACHE, node="n2")], {"n0": [], "n2": [NO_SCHEDULE_AFFINITY]}),
        ([near("rack"), CACHE], PREFER_NO_SCHEDULE),
        ([near("host", node_constraints=GREEN), CACHE], PREFER_NO_SCHEDULE),  # no node admits it
        # Another pod of a group with affinity to itself must run where the first one runs.
        ([near("host", **ITSELF)], BLOCKED_0),
        ([near("host", **ITSELF | {"node": "n1"})], PREFER_NO_SCHEDULE),
        ([near("host", **ITSELF | {"node": None})], PREFER_NO_SCHEDULE),
    ],
)
def test_affinity_blocks_no_schedule_when_only_marked_node_satisfies_it(
    pods: list[Pod], against: dict[str, list[Reason]]
) -> None:
    found = blockers_by_node(ClusterSnapshot(Cluster.of(nodes(), pods), Config()))
    assert {name: [one.reason for one in why] for name, why in found.items()} == against


CLIENT = near("host")
WITHOUT = replace(CLIENT, pod_constraints=near("host", of="nobody").pod_constraints)
RACK = near("rack", node=None)
ITS_RACK = replace(RACK, labels={"app": "cache"})


@pytest.mark.parametrize(
    ("pods", "more", "against"),
    [
        # Each kind of pods counts.
        ([CLIENT, WITHOUT, CACHE], {}, BLOCKED_0),
        ([CLIENT, replace(CLIENT, node_constraints=GREEN), CACHE], {}, BLOCKED_0),
        ([near("host", of="web"), CLIENT, CACHE, WEB], {}, BLOCKED_0),
        # The first pod of a group may run on any node that has the key.
        ([RACK], {"n0": {"rack": "a"}}, PREFER_NO_SCHEDULE),
        ([ITS_RACK, replace(ITS_RACK, labels={"app": "x"})], {"n0": {"rack": "a"}}, BLOCKED_0),
        ([RACK, ITS_RACK], {"n0": {"rack": "a"}}, BLOCKED_0),
        # A volume is no reason: another pod like it has another volume.
        (
            [near("host", node_constraints=HERE_ALONE), CACHE, replace(CACHE, node="n1")],
            {},
            PREFER_NO_SCHEDULE,
        ),
        # Pods on an unschedulable node count for other nodes of the same domain.
        ([near("zone"), replace(CACHE, node="n3")], {}, {"n0": [], "n2": [NO_SCHEDULE_AFFINITY]}),
        ([near("host"), CACHE, replace(CACHE, node="n4")], {}, PREFER_NO_SCHEDULE),
    ],
)
def test_affinity_of_each_pod_shape_is_checked_for_new_pod(
    pods: list[Pod], more: dict[str, dict[str, str]], against: dict[str, list[Reason]]
) -> None:
    not_ready = node("n3", labels={"host": "3", "zone": "b"}, ready=False)
    made = [*nodes(), not_ready, node("n4", labels={"host": "4", "zone": "a"})]
    made = [replace(n, labels={**n.labels, **more.get(n.name, {})}) for n in made]
    named = [replace(pod, name=f"{pod.name}-{number}") for number, pod in enumerate(pods)]
    found = blockers_by_node(ClusterSnapshot(Cluster.of(made, named), Config()))
    assert {name: [one.reason for one in why] for name, why in found.items()} == against


def test_blocker_names_pod_with_affinity() -> None:
    (found,) = blockers_by_node(ClusterSnapshot(Cluster.of(nodes(), [CLIENT, CACHE]), Config()))[
        "n0"
    ]
    reported = "a pod like d/client has affinity to pods that run on no unmarked node"
    assert found == Blocker(NO_SCHEDULE_AFFINITY, reported, "d/client")


@pytest.mark.parametrize(("kinds", "against"), [(SHAPES_MAX, 0), (SHAPES_MAX + 1, 2)])
def test_all_marks_remain_prefer_no_schedule_when_there_are_too_many_affinity_shapes(
    kinds: int, against: int
) -> None:
    pods = [near("host", of=f"cache-{n}", name=f"client-{n}") for n in range(kinds)]
    found = blockers_by_node(ClusterSnapshot(Cluster.of(nodes(), pods), Config()))
    assert [one.reason for why in found.values() for one in why] == [
        NO_SCHEDULE_AFFINITY
    ] * against


ODD = Pod(namespace="d", name="odd", node="other", unreadable="spec")
ZONE_B = [replace(spread("zone"), node="n1", node_constraints=GREEN)]


@pytest.mark.parametrize(
    ("other", "pods", "against"),
    [
        ({}, [spread("zone")], False),
        ({"ready": False}, [spread("zone")], True),
        ({"unschedulable": True}, [spread("zone")], True),
        ({"unreadable": "status"}, [spread("zone")], True),
        ({"virtual": True}, [spread("zone")], True),
        ({"deleting": True}, [spread("zone")], True),
        ({"taints": (Taint("control-plane", "", "NoSchedule"),)}, [spread("zone")], True),
        ({}, [spread("zone"), ODD], True),
        ({"ready": False}, ZONE_B, False),
        ({"labels": {"zone": "b", "green": "true"}, "ready": False}, ZONE_B, False),
    ],
)  # fmt: skip
def test_spread_blocks_no_schedule_when_only_marked_node_serves_domain(
    other: dict[str, Any], pods: list[Pod], against: bool
) -> None:
    """Zone b has a marked node and another one; pods that need green nodes can use neither."""
    here = replace(node("other", labels={"zone": "b"}), **other)
    found = blockers_by_node(ClusterSnapshot(Cluster.of([*nodes(), here], pods), Config()))["n2"]
    assert [one.reason for one in found] == ([NO_SCHEDULE_SPREAD] if against else [])


def test_node_marked_in_this_pass_gives_no_room() -> None:
    snapshot = ClusterSnapshot(small(ranked("p", 500)), Config())
    assert not any(blockers_by_node(snapshot).values())
    assert all(blockers_by_node(snapshot, to_mark={"open"}).values())
    assert all(reconcile.no_schedule_blockers(snapshot, {}, Now(1), to_mark={"open"}).values())


def test_pass_considers_its_own_new_marks() -> None:
    full = Thresholds(cpu=Fraction(1), memory=Fraction(1))
    settings = Config(
        thresholds=full,
        usable_capacity=UsabilityMode.ALL,
        budgets=UNLIMITED,
        no_schedule_after_seconds=0,
    )
    nodes = [marked(node("m"), Mark.PREFER_NO_SCHEDULE, 1), node("empty"), node("open")]
    cluster = Cluster.of(nodes, [pod("busy", "open", 3000, 100), ranked("p", 800)])
    found = reconcile.reconcile(cluster, settings, LeaderState(), 1000)
    assert {one.node for one in found.plan.removals} == {"m", "empty"}
    assert [one.reason for one in found.no_schedule_blockers["m"]] == [NO_SCHEDULE_PREEMPTION]


BLUE = NodeConstraints((("blue", "true"),))
ZONE = spread("zone")


@pytest.mark.parametrize(
    "pods",
    [
        [replace(spread(key), node_constraints=NO_NODE_CONSTRAINTS) for key in ("rack", "zone")],
        [replace(ZONE, node_constraints=one) for one in (NO_NODE_CONSTRAINTS, BLUE)],
    ],
)
@pytest.mark.parametrize("turned", [False, True])
def test_each_spread_pod_shape_blocks_its_domains(pods: list[Pod], *, turned: bool) -> None:
    """Pods that no node admits, or whose domain key no node has, do not hide the reason.

    Equal constraints are one object, as for decoded pods.
    """
    both = [replace(one, name=str(n)) for n, one in enumerate(pods[::-1] if turned else pods)]
    found = blockers_by_node(ClusterSnapshot(Cluster.of(nodes(), both), Config()))
    assert {name: [blocker.code for blocker in why] for name, why in found.items()} == {
        "n0": [],
        "n2": ["no-schedule-spread"],
    }


def test_all_marks_remain_prefer_no_schedule_when_there_are_too_many_spread_shapes() -> None:
    def pods(many: int) -> list[Pod]:
        all_constraints = [NodeConstraints(node_selector=(("no", str(n)),)) for n in range(many)]
        return [
            replace(spread("zone"), name=str(n), node_constraints=one)
            for n, one in enumerate(all_constraints)
        ]

    few, many = (
        blockers_by_node(ClusterSnapshot(Cluster.of(nodes(), pods(number)), Config()))
        for number in (SHAPES_MAX, SHAPES_MAX + 1)
    )
    assert not any(few.values())
    assert all([one.reason for one in why] == [NO_SCHEDULE_SPREAD] for why in many.values())


def test_toleration_must_match_taint_value() -> None:
    """The value of the taint is the time of the mark: 1."""
    for value, speaks in (("1", False), ("2", True)):
        node_constraints = NodeConstraints(tolerations=(Toleration(TAINT_KEY, "Equal", value),))
        found = blockers_by_node(
            ClusterSnapshot(
                Cluster.of(nodes(), [replace(DAEMON, node_constraints=node_constraints)]), Config()
            )
        )
        assert bool(found["n0"]) is speaks


def test_plan_alone_keeps_mark_that_separates_pod_from_its_affinity() -> None:
    """The plan moves both pods together. So without foresight the new pod would wait for 5 s."""
    client = replace(near("zone"), node=None, unschedulable=True)
    made = nodes()
    made[2] = marked(node("n2", labels={"zone": "b"}), Mark.NO_SCHEDULE, 1)
    cluster = Cluster.of(made, [replace(CACHE, node="n2"), client])
    config = Config(budgets=UNLIMITED, unneeded_time_seconds=0, no_schedule_after_seconds=0)
    last: reconcile.ReconcileResult | None = None
    for now in (1000, 1000 + WAIT_SECONDS):
        state = last.state if last else LeaderState()
        last = reconcile.reconcile(cluster, config, state, now, last=last)
        reasons = [one.reason for one in last.no_schedule_blockers["n2"]]
        assert (NO_SCHEDULE_WAITING in reasons) is (now > 1000)
        assert NO_SCHEDULE_AFFINITY in reasons
        assert dict(last.plan.pending) == {client.key: "n2"}
        assert "n2" in {removal.node for removal in last.plan.removals}


def test_unschedulable_pod_is_placed_before_pods_with_choice() -> None:
    """Otherwise a pod of a leaving node uses the room, and the mark remains NoSchedule."""
    only = NodeConstraints(node_selector=(("only", "m"),))
    going = Taint("ToBeDeletedByClusterAutoscaler", "1", Effect.NO_SCHEDULE)
    found = Cluster.of(
        [
            marked(node("m", 2000, labels={"only": "m"}), Mark.NO_SCHEDULE, 1),
            node("going", taints=(going,)),
            node("n", 6000),
        ],
        [
            pod("has-a-choice", "going", 2000, 100),
            replace(pod("waits", None, 1900, 100, node_constraints=only), unschedulable=True),
        ],
    )
    plan = reconcile.plan(found, Config(budgets=UNLIMITED))
    assert plan.marked_infeasible == ("m",)
    assert dict(plan.pending) == {"d/waits": "m", "d/has-a-choice": "n"}


def small(*others: Pod, used: int = 3000) -> Cluster:
    """Two marked nodes, one of them green, and one without a mark that is almost full."""
    nodes = [
        marked(node("green", labels={"green": "true"}), Mark.PREFER_NO_SCHEDULE, 1),
        node("open"),
        marked(node("small", 1000), Mark.NO_SCHEDULE, 1),
    ]
    return Cluster.of(nodes, [pod("busy", "open", used, 100), *others])


def ranked(name: str, cpu: int, priority: int = 1, **more: object) -> Pod:
    return replace(pod(name, "open", cpu, 100), priority=priority, **more)  # type: ignore[arg-type]


HUGE = Resources(5, 5, 0, 1, (("gpu", 9),))


@pytest.mark.parametrize(
    ("others", "against"),
    [
        ([], []),
        ([ranked("p", 500)], []),
        ([ranked("p", 501)], ["green", "small"]),
        ([ranked("p", 501, priority=0)], []),
        ([ranked("p", 600, priority=-1)], ["green"]),  # "busy" is above the lowest then
        ([ranked("p", 501, daemon=True)], []),
        ([ranked("p", 501, node=None)], []),
        ([ranked("p", 1001, node=None)], ["green"]),
        ([ranked("p", 100, node_constraints=GREEN, node="green")], ["green"]),
        ([ranked("p", 100, node="green"), ranked("q", 2000, node_constraints=GREEN, node="green")],
         ["green"]),
        ([ranked("p", 5000, node=None)], []),
        # A pod that fits no marked node does not hide one that does.
        ([ranked("p", 501), ranked("q", 10**9, node=None)], ["green", "small"]),
        ([ranked("p", 501), ranked("q", 4000, node=None)], ["green", "small"]),
        ([ranked("p", 501), ranked("q", 5, node=None, requests=HUGE)], ["green", "small"]),
    ],
)  # fmt: skip
def test_preemption_blocks_no_schedule_when_pod_fits_only_marked_nodes(
    others: list[Pod], against: list[str]
) -> None:
    found = blockers_by_node(ClusterSnapshot(small(*others), Config()))
    reported = [
        n for n, why in found.items() if "no-schedule-preemption" in [one.code for one in why]
    ]
    assert reported == against


def test_preemption_is_checked_for_pods_of_each_device_count() -> None:
    nodes = [
        marked(node(name, extended=(("gpu", many),)), Mark.PREFER_NO_SCHEDULE, 1)
        for name, many in (("two", 2), ("one", 1))
    ]
    asks = [
        ranked(name, 100, node=None, requests=Resources(100, 100, 0, 1, (("gpu", many),)))
        for name, many in (("second", 2), ("first", 1))
    ]
    busy = pod("busy", "open", 3000, 100)
    found = blockers_by_node(
        ClusterSnapshot(Cluster.of([*nodes, node("open")], [busy, *asks]), Config())
    )
    reported = {name: [one.reason for one in why] for name, why in found.items()}
    assert reported == {"two": [NO_SCHEDULE_PREEMPTION], "one": [NO_SCHEDULE_PREEMPTION]}


def test_preemption_is_checked_with_pods_that_fit_each_node() -> None:
    large = [ranked("a", 60_000, node="big"), ranked("b", 20_000, node="middle")]
    more = [node("big", 64_000), marked(node("middle", 32_000), Mark.PREFER_NO_SCHEDULE, 1)]
    found = small(*large, ranked("web", 600), used=3400)
    reported = blockers_by_node(
        ClusterSnapshot(Cluster.of([*found.nodes, *more], found.pods), Config())
    )
    assert {name: [one.pod for one in why] for name, why in reported.items() if why} == {
        "middle": ["d/b"]
    }
    full = pod("full", "big", 4000, 100)
    reported = blockers_by_node(
        ClusterSnapshot(Cluster.of([*found.nodes, *more], [*found.pods, full]), Config())
    )
    assert {name: [one.pod for one in why] for name, why in reported.items() if why} == {
        "green": ["d/web"],
        "middle": ["d/b"],
        "small": ["d/web"],
    }


def test_all_marks_remain_prefer_no_schedule_when_there_are_too_many_preempting_shapes() -> None:
    nodes = [marked(node("a", 10), Mark.PREFER_NO_SCHEDULE, 1), node("open", 10)]
    sizes = [
        replace(pod(f"p{n}", None, 20 + n, 1), priority=1)
        for n in range(PREEMPTING_SHAPES_MAX + 1)
    ]
    for many, against in ((PREEMPTING_SHAPES_MAX, []), (PREEMPTING_SHAPES_MAX + 1, ["a"])):
        pods = [pod("low", None, 1, 1), *sizes[:many]]
        found = blockers_by_node(ClusterSnapshot(Cluster.of(nodes, pods), Config()))
        assert [name for name, why in found.items() if why] == against


def test_preemption_is_checked_for_pod_that_is_largest_in_no_resource() -> None:
    """Pods with more CPU, or as much memory, find room, but no node has enough of both."""
    shapes = (("cpu", 3900, 100), ("memory", 1, 7900), ("both", 800, 7900))
    pods = [replace(pod(name, None, cpu, memory), priority=1) for name, cpu, memory in shapes]
    nodes = [node("memory", 100, 8000), *small().nodes]
    cluster = Cluster.of(nodes, [pod("busy", "open", 100, 200), *pods])
    found = blockers_by_node(ClusterSnapshot(cluster, Config()))
    assert {name: [one.pod for one in why] for name, why in found.items()} == {
        "green": ["d/both"],
        "small": ["d/both"],
    }


def test_all_marks_remain_prefer_no_schedule_when_there_are_too_many_node_constraints() -> None:
    pods = [
        ranked(
            f"p{n}", 1, node_constraints=NodeConstraints(node_selector=(("k", str(n)),)), node=None
        )
        for n in range(SHAPES_MAX + 1)
    ]
    found = blockers_by_node(ClusterSnapshot(small(*pods), Config()))
    assert all(why for why in found.values())
    assert not any(blockers_by_node(ClusterSnapshot(small(*pods[1:]), Config())).values())


@pytest.mark.parametrize(
    ("waits", "against"),
    [
        (pod("p", None, 500, 100), ["green", "small"]),
        (pod("p", None, 2000, 100), ["green"]),
        (pod("p", None, 500, 100, node_constraints=GREEN), ["green"]),
        (pod("p", None, 5000, 100), []),
        (Pod(namespace="d", name="p", unreadable="spec: bad"), ["green", "small"]),
    ],
)
def test_stuck_pod_blocks_no_schedule_marks_that_may_block_it(
    waits: Pod, against: list[str]
) -> None:
    found = blockers_by_node(ClusterSnapshot(small(waits), Config()), [(waits, "it waits")])
    reported = {name: [(one.code, one.pod) for one in why] for name, why in found.items() if why}
    assert reported == {name: [("no-schedule-waiting", "d/p")] for name in against}


def test_all_marks_remain_prefer_no_schedule_when_there_are_too_many_stuck_pods() -> None:
    stuck = [(pod(f"p{n}", None, 5000 + n, 100), "it waits") for n in range(SHAPES_MAX + 1)]
    assert all(blockers_by_node(ClusterSnapshot(small(), Config()), stuck).values())
    assert not any(blockers_by_node(ClusterSnapshot(small(), Config()), stuck[1:]).values())


def test_reason_is_retained_for_pause_when_it_disappears() -> None:
    waits = pod("p", None, 500, 100, node_constraints=GREEN)
    cluster = small(waits)
    blockers = blockers_by_node(ClusterSnapshot(cluster, Config()), [(waits, "it waits")])
    freed = blockers_by_node(ClusterSnapshot(cluster, Config()))
    recent = RecentReasons().observe(blockers, Now(100))
    assert recent.merged_with(blockers) == blockers
    for later in (100, 101, 100 + PAUSE_SECONDS - 1):
        again = recent.observe(freed, now := Now(later))
        (why,) = again.merged_with(freed)["green"]
        assert (why.code, why.pod) == ("no-schedule-waiting", "d/p")
        assert why.message == f"it waits; last seen {timestamp(100)}"
        assert why.until == now.next_change == 100 + PAUSE_SECONDS
    over = recent.observe(freed, Now(100 + PAUSE_SECONDS))
    assert over.last == {}
    assert over.merged_with(freed) == freed


def test_recent_reason_is_forgotten_when_node_has_no_mark() -> None:
    recent = RecentReasons({"gone": (100, Blocker(NO_SCHEDULE_WAITING, "it waits"))})
    assert recent.observe({"n": ()}, Now(101)).last == {}
    assert recent.merged_with({"n": ()}) == {"n": ()}


def test_blocker_names_pod_and_reason() -> None:
    """An earlier pod without a DaemonSet does not hide the DaemonSet pod."""
    two = [pod("a", "n0", 10, 10), DAEMON, spread("zone")]
    assert blockers_by_node(ClusterSnapshot(Cluster.of(nodes(), two), Config())) == {
        "n0": (
            Blocker(
                NO_SCHEDULE_DAEMONSET,
                f"DaemonSet logs does not tolerate the taint {TAINT_KEY}",
                "d/d",
                TAINT_KEY,
            ),
        ),
        "n2": (
            Blocker(
                NO_SCHEDULE_SPREAD,
                "topology spread over zone would still count domain b, where no node would accept "
                "pods with this constraint",
            ),
        ),
    }
    preempts = (
        "with a NoSchedule mark, new pods like d/{} may find no room, and preempt other pods"
    )
    pods = [
        ranked("p", 100, node_constraints=GREEN, node="green"),
        ranked("q", 501),
        ranked("r", 502),
    ]
    assert blockers_by_node(ClusterSnapshot(small(*pods), Config())) == {
        "green": (Blocker(NO_SCHEDULE_PREEMPTION, preempts.format("p"), "d/p"),),
        "small": (Blocker(NO_SCHEDULE_PREEMPTION, preempts.format("q"), "d/q"),),
    }


def test_blocker_names_one_stuck_pod_and_own_taints_are_ignored() -> None:
    taint = Taint(TAINT_KEY, "1", Effect.NO_SCHEDULE)
    one = replace(marked(node("n"), Mark.NO_SCHEDULE, 1), taints=(taint,))
    stuck = [(pod(name, None, 1000 + place, 10), "waits") for place, name in enumerate("pq")]
    found = blockers_by_node(ClusterSnapshot(Cluster.of([one], []), Config()), stuck)
    assert found == {"n": (Blocker(NO_SCHEDULE_WAITING, "waits", "d/p"),)}


def many(cpu: int) -> list[Pod]:
    """Return pods with SHAPES_MAX different constraints that all nodes satisfy; one is large."""
    all_constraints = [
        NodeConstraints(tolerations=(Toleration(key=f"k{n:03}", operator="Exists"),))
        for n in range(SHAPES_MAX)
    ]
    last = SHAPES_MAX - 1
    return [
        ranked(f"p{n:03}", cpu if n == last else 1, node_constraints=node_constraints, node=None)
        for n, node_constraints in enumerate(all_constraints)
    ]


@pytest.mark.parametrize(("cpu", "against"), [(1, []), (1000, []), (1001, ["green"])])
def test_node_constraints_up_to_limit_are_all_checked(cpu: int, against: list[str]) -> None:
    assert [
        name
        for name, why in blockers_by_node(ClusterSnapshot(small(*many(cpu)), Config())).items()
        if why
    ] == against


@pytest.mark.parametrize(
    ("changed", "against"),
    [
        ({}, []),
        ({"ready": False}, ["green", "small"]),
        ({"unschedulable": True}, ["green", "small"]),
        ({"unreadable": "spec: bad"}, ["green", "small"]),
        ({"virtual": True}, ["green", "small"]),
        (
            {"taints": (Taint("ToBeDeletedByClusterAutoscaler", "1", Effect.NO_SCHEDULE),)},
            ["green", "small"],
        ),
    ],
)
def test_unschedulable_node_gives_no_room(changed: dict[str, Any], against: list[str]) -> None:
    found = small(ranked("p", 100, node=None))
    nodes = [replace(one, **changed) if one.name == "open" else one for one in found.nodes]
    reported = blockers_by_node(ClusterSnapshot(Cluster.of(nodes, found.pods), Config()))
    assert [name for name, why in reported.items() if why] == against
