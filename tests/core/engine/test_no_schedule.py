"""When a soft mark may become a hard one."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from core.config.settings import Config, UsabilityMode
from core.config.thresholds import Thresholds
from core.engine import reconcile
from core.engine.leader_state import LeaderState
from core.engine.no_schedule import (
    HARD_AFFINITY,
    HARD_DAEMONSET,
    HARD_PREEMPTION,
    HARD_SPREAD,
    HARD_WAITING,
    LOOKS_MAX,
    PAUSE_SECONDS,
    SHAPES_MAX,
    RecentReasons,
    reasons_against,
    wanted,
)
from core.engine.snapshot import ClusterSnapshot
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
from core.model.pod import Pod
from core.model.reason import Blocker, Reason
from core.model.resources import Resources
from tests.support.builders import GREEN, UNLIMITED, marked, node, pod, select

pytestmark = pytest.mark.mutate

EVERYBODY = PodSelector(None, ())
DAEMON = replace(pod("d", "n0", 10, 10, daemon=True), owner_kind="DaemonSet", owner_name="logs")
TOLERANT = NodeConstraints(tolerations=(Toleration(key=TAINT_KEY, operator="Exists"),))
EXACT = NodeConstraints(tolerations=(Toleration(key=TAINT_KEY, operator="Equal"),))


def spread(key: str, *, honor_taints: bool = False, min_domains: int = 1) -> Pod:
    constraint = SpreadConstraint(
        EVERYBODY, key, 1, honor_taints=honor_taints, min_domains=min_domains
    )
    return pod("s", "n1", 10, 10, company=PodConstraints(spread=(constraint,)))


def nodes() -> list[Node]:
    labels = [{"host": "0", "zone": "a"}, {"host": "1", "zone": "a"}, {"host": "2", "zone": "b"}]
    made = [node(f"n{number}", labels=found) for number, found in enumerate(labels)]
    return [marked(made[0], Mark.SOFT, 1), made[1], marked(made[2], Mark.SOFT, 1)]


@pytest.mark.parametrize(
    ("others", "against"),
    [
        ([], {"n0": [], "n2": []}),
        ([DAEMON], {"n0": ["hard-daemonset"], "n2": []}),
        ([replace(DAEMON, placing=TOLERANT)], {"n0": [], "n2": []}),
        ([replace(DAEMON, placing=EXACT)], {"n0": ["hard-daemonset"], "n2": []}),
        ([replace(DAEMON, node="n1")], {"n0": [], "n2": []}),
        ([spread("zone")], {"n0": [], "n2": ["hard-spread"]}),
        ([spread("host")], {"n0": ["hard-spread"], "n2": ["hard-spread"]}),
        ([spread("host", honor_taints=True)], {"n0": [], "n2": []}),
        (
            [spread("zone", honor_taints=True, min_domains=2)],
            {"n0": [], "n2": ["hard-spread"]},
        ),
        ([spread("rack")], {"n0": [], "n2": []}),
    ],
)
def test_what_speaks_against_it(others: list[Pod], against: dict[str, list[str]]) -> None:
    found = reasons_against(ClusterSnapshot(Cluster.of(nodes(), others), Config()))
    assert {name: [one.code for one in why] for name, why in found.items()} == against


def daemon_set(name: str = "logs", **placing: Any) -> DaemonSet:
    return DaemonSet(namespace="d", name=name, placing=NodeConstraints(**placing))


ON_ZONE_A = (("zone", "a"),)
WAITS = "hard-daemonset-waits"


@pytest.mark.parametrize(
    ("daemon_sets", "others", "against"),
    [
        ([daemon_set()], [], {"n0": [WAITS], "n2": [WAITS]}),
        ([daemon_set(node_selector=ON_ZONE_A)], [], {"n0": [WAITS], "n2": []}),
        ([daemon_set(tolerations=TOLERANT.tolerations)], [], {"n0": [], "n2": []}),
        ([daemon_set(tolerations=EXACT.tolerations)], [], {"n0": [WAITS], "n2": [WAITS]}),
        ([daemon_set()], [DAEMON], {"n0": ["hard-daemonset"], "n2": [WAITS]}),
        ([daemon_set("other")], [DAEMON], {"n0": ["hard-daemonset", WAITS], "n2": [WAITS]}),
        (
            [daemon_set(f"s{n}", node_selector=((f"k{n}", ""),)) for n in range(SHAPES_MAX + 1)],
            [],
            {"n0": [WAITS], "n2": [WAITS]},
        ),
    ],
)
def test_a_daemon_set_without_its_pod_speaks_against_it(
    daemon_sets: list[DaemonSet], others: list[Pod], against: dict[str, list[str]]
) -> None:
    cluster = replace(Cluster.of(nodes(), others), daemon_sets=tuple(daemon_sets))
    found = reasons_against(ClusterSnapshot(cluster, Config()))
    assert {name: [one.code for one in why] for name, why in found.items()} == against


def test_a_taint_that_keeps_its_pods_away_anyway_makes_no_difference() -> None:
    one, two, three = nodes()
    one = replace(one, taints=(*one.taints, Taint("gpu", "", Effect.NO_SCHEDULE)))
    cluster = replace(Cluster.of([one, two, three], []), daemon_sets=(daemon_set(),))
    found = reasons_against(ClusterSnapshot(cluster, Config()))
    assert {name: len(why) for name, why in found.items()} == {"n0": 0, "n2": 1}


def near(key: str, *, of: str = "cache", **changes: Any) -> Pod:
    terms = (PodAffinityTerm(select(of), key),)
    return replace(pod("client", "n1", 10, 10, company=PodConstraints(near=terms)), **changes)


CACHE = pod("cache", "n0", 10, 10, labels={"app": "cache"})
ITSELF: dict[str, Any] = {"labels": {"app": "cache"}, "node": "n0"}
HARD_0 = {"n0": [HARD_AFFINITY], "n2": []}
SOFT: dict[str, list[Reason]] = {"n0": [], "n2": []}
WEB = pod("web", "n1", 10, 10, labels={"app": "web"})
ON_0 = VolumeTopology(affinity=(SelectorTerm((Requirement("host", "In", ("0",)),)),))
HERE_ALONE = NodeConstraints(volumes=(ON_0,))


@pytest.mark.parametrize(
    ("pods", "against"),
    [
        ([near("host")], SOFT),  # it finds none, marked or not
        ([near("host"), CACHE], HARD_0),
        ([near("host", node=None), CACHE], HARD_0),
        ([near("host", daemon=True), CACHE], SOFT),
        ([near("host"), CACHE, replace(CACHE, name="other", node="n1")], SOFT),
        ([near("zone"), CACHE], SOFT),  # n1 is in the same zone
        ([near("zone"), replace(CACHE, node="n2")], {"n0": [], "n2": [HARD_AFFINITY]}),
        ([near("rack"), CACHE], SOFT),
        ([near("host", placing=GREEN), CACHE], SOFT),  # it may run on neither
        # One more of a group that is its own company must stand where the first stands.
        ([near("host", **ITSELF)], HARD_0),
        ([near("host", **ITSELF | {"node": "n1"})], SOFT),
        ([near("host", **ITSELF | {"node": None})], SOFT),
    ],
)
def test_who_must_be_near_others_finds_them_on_a_node_without_a_mark(
    pods: list[Pod], against: dict[str, list[Reason]]
) -> None:
    found = reasons_against(ClusterSnapshot(Cluster.of(nodes(), pods), Config()))
    assert {name: [one.reason for one in why] for name, why in found.items()} == against


CLIENT = near("host")
WITHOUT = replace(CLIENT, company=near("host", of="nobody").company)
RACK = near("rack", node=None)
ITS_RACK = replace(RACK, labels={"app": "cache"})


@pytest.mark.parametrize(
    ("pods", "more", "against"),
    [
        # Of several kinds of pods each counts.
        ([CLIENT, WITHOUT, CACHE], {}, HARD_0),
        ([CLIENT, replace(CLIENT, placing=GREEN), CACHE], {}, HARD_0),
        ([near("host", of="web"), CLIENT, CACHE, WEB], {}, HARD_0),
        # Where nobody is, the first of a group stands anywhere that has the key.
        ([RACK], {"n0": {"rack": "a"}}, SOFT),
        ([ITS_RACK, replace(ITS_RACK, labels={"app": "x"})], {"n0": {"rack": "a"}}, HARD_0),
        ([RACK, ITS_RACK], {"n0": {"rack": "a"}}, HARD_0),
        # A volume is its own reason: another pod like it has another one.
        ([near("host", placing=HERE_ALONE), CACHE, replace(CACHE, node="n1")], {}, SOFT),
        # What stands on a node that takes no pods counts for the nodes beside it.
        ([near("zone"), replace(CACHE, node="n3")], {}, {"n0": [], "n2": [HARD_AFFINITY]}),
        ([near("host"), CACHE, replace(CACHE, node="n4")], {}, SOFT),
    ],
)
def test_each_kind_of_pods_that_must_be_near_others_counts_as_one_that_comes_anew(
    pods: list[Pod], more: dict[str, dict[str, str]], against: dict[str, list[Reason]]
) -> None:
    shut = node("n3", labels={"host": "3", "zone": "b"}, ready=False)
    made = [*nodes(), shut, node("n4", labels={"host": "4", "zone": "a"})]
    made = [replace(n, labels={**n.labels, **more.get(n.name, {})}) for n in made]
    named = [replace(pod, name=f"{pod.name}-{number}") for number, pod in enumerate(pods)]
    found = reasons_against(ClusterSnapshot(Cluster.of(made, named), Config()))
    assert {name: [one.reason for one in why] for name, why in found.items()} == against


def test_who_must_be_near_others_is_named() -> None:
    (found,) = reasons_against(ClusterSnapshot(Cluster.of(nodes(), [CLIENT, CACHE]), Config()))[
        "n0"
    ]
    told = "a pod like d/client has affinity to pods that run on no unmarked node"
    assert found == Blocker(HARD_AFFINITY, told, "d/client")


@pytest.mark.parametrize(("kinds", "against"), [(SHAPES_MAX, 0), (SHAPES_MAX + 1, 2)])
def test_with_too_many_kinds_of_company_all_marks_stay_soft(kinds: int, against: int) -> None:
    pods = [near("host", of=f"cache-{n}", name=f"client-{n}") for n in range(kinds)]
    found = reasons_against(ClusterSnapshot(Cluster.of(nodes(), pods), Config()))
    assert [one.reason for why in found.values() for one in why] == [HARD_AFFINITY] * against


ODD = Pod(namespace="d", name="odd", node="other", unreadable="spec")
ZONE_B = [replace(spread("zone"), node="n1", placing=GREEN)]


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
def test_a_domain_is_closed_to_pods_that_only_a_marked_node_would_take(
    other: dict[str, Any], pods: list[Pod], against: bool
) -> None:
    """Beside the marked one the zone has another; pods that ask for green nodes use neither."""
    here = replace(node("other", labels={"zone": "b"}), **other)
    found = reasons_against(ClusterSnapshot(Cluster.of([*nodes(), here], pods), Config()))["n2"]
    assert [one.reason for one in found] == ([HARD_SPREAD] if against else [])


def test_a_node_that_gets_a_mark_in_this_pass_is_no_room_any_more() -> None:
    survey = ClusterSnapshot(small(ranked("p", 500)), Config())
    assert not any(reasons_against(survey).values())
    assert all(reasons_against(survey, new={"open"}).values())
    assert all(reconcile.no_schedule_blockers(survey, {}, Now(1), to_mark={"open"}).values())


def test_a_pass_knows_which_nodes_get_a_mark_in_it() -> None:
    full = Thresholds(cpu=Fraction(1), memory=Fraction(1))
    asked = Config(
        thresholds=full,
        usability=UsabilityMode.NONE,
        budgets=UNLIMITED,
        no_schedule_after_seconds=0,
    )
    nodes = [marked(node("m"), Mark.SOFT, 1), node("empty"), node("open")]
    cluster = Cluster.of(nodes, [pod("busy", "open", 3000, 100), ranked("p", 800)])
    found = reconcile.reconcile(cluster, asked, LeaderState(), 1000)
    assert {one.node for one in found.plan.removals} == {"m", "empty"}
    assert [one.reason for one in found.no_schedule_blockers["m"]] == [HARD_PREEMPTION]


BLUE = NodeConstraints((("blue", "true"),))
ZONE = spread("zone")


@pytest.mark.parametrize(
    "pods",
    [
        [replace(spread(key), placing=NO_NODE_CONSTRAINTS) for key in ("rack", "zone")],
        [replace(ZONE, placing=one) for one in (NO_NODE_CONSTRAINTS, BLUE)],
    ],
)
@pytest.mark.parametrize("turned", [False, True])
def test_each_pod_that_is_spread_closes_its_domains(pods: list[Pod], *, turned: bool) -> None:
    """Those that could use neither node, or whose domain no node has, open none to others.

    They share what is equal, as decoded ones do.
    """
    both = [replace(one, name=str(n)) for n, one in enumerate(pods[::-1] if turned else pods)]
    found = reasons_against(ClusterSnapshot(Cluster.of(nodes(), both), Config()))
    assert {name: [blocker.code for blocker in why] for name, why in found.items()} == {
        "n0": [],
        "n2": ["hard-spread"],
    }


def test_of_too_many_templates_that_are_spread_none_is_looked_at() -> None:
    def pods(many: int) -> list[Pod]:
        placings = [NodeConstraints(node_selector=(("no", str(n)),)) for n in range(many)]
        return [
            replace(spread("zone"), name=str(n), placing=one) for n, one in enumerate(placings)
        ]

    few, many = (
        reasons_against(ClusterSnapshot(Cluster.of(nodes(), pods(number)), Config()))
        for number in (SHAPES_MAX, SHAPES_MAX + 1)
    )
    assert not any(few.values())
    assert all([one.reason for one in why] == [HARD_SPREAD] for why in many.values())


def test_a_toleration_of_another_second_is_none_of_the_mark() -> None:
    """The taint's value is the second of the mark: 1."""
    for value, speaks in (("1", False), ("2", True)):
        placing = NodeConstraints(tolerations=(Toleration(TAINT_KEY, "Equal", value),))
        found = reasons_against(
            ClusterSnapshot(Cluster.of(nodes(), [replace(DAEMON, placing=placing)]), Config())
        )
        assert bool(found["n0"]) is speaks


@pytest.mark.parametrize(
    ("after", "age", "mark"),
    [(None, 10**6, Mark.SOFT), (60, 59, Mark.SOFT), (60, 60, Mark.HARD), (0, 0, Mark.HARD)],
)
def test_it_is_opt_in_and_takes_time(after: int | None, age: int, mark: Mark) -> None:
    assert wanted((), after, age) is mark
    against = reasons_against(ClusterSnapshot(Cluster.of(nodes(), [DAEMON]), Config()))["n0"]
    assert wanted(against, after, age) is Mark.SOFT


def test_a_pod_that_every_node_has_refused_comes_before_those_with_a_choice() -> None:
    """Else a pod of a node that is going would take the room, and the mark would stay hard."""
    only = NodeConstraints(node_selector=(("only", "m"),))
    going = Taint("ToBeDeletedByClusterAutoscaler", "1", Effect.NO_SCHEDULE)
    found = Cluster.of(
        [
            marked(node("m", 2000, labels={"only": "m"}), Mark.HARD, 1),
            node("going", taints=(going,)),
            node("n", 6000),
        ],
        [
            pod("has-a-choice", "going", 2000, 100),
            replace(pod("waits", None, 1900, 100, placing=only), unschedulable=True),
        ],
    )
    plan = reconcile.plan(found, Config(budgets=UNLIMITED))
    assert plan.marked_infeasible == ("m",)
    assert dict(plan.pending) == {"d/waits": "m", "d/has-a-choice": "n"}


def small(*others: Pod, used: int = 3000) -> Cluster:
    """Two marked nodes, one of them green, and one without a mark that is almost full."""
    nodes = [
        marked(node("green", labels={"green": "true"}), Mark.SOFT, 1),
        node("open"),
        marked(node("small", 1000), Mark.HARD, 1),
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
        ([ranked("p", 100, placing=GREEN, node="green")], ["green"]),
        ([ranked("p", 100, node="green"), ranked("q", 2000, placing=GREEN, node="green")],
         ["green"]),
        ([ranked("p", 5000, node=None)], []),
        # What no marked node could take hides nothing that one could.
        ([ranked("p", 501), ranked("q", 10**9, node=None)], ["green", "small"]),
        ([ranked("p", 501), ranked("q", 4000, node=None)], ["green", "small"]),
        ([ranked("p", 501), ranked("q", 5, node=None, requests=HUGE)], ["green", "small"]),
    ],
)  # fmt: skip
def test_whoever_may_preempt_must_find_room_without_the_marked_nodes(
    others: list[Pod], against: list[str]
) -> None:
    found = reasons_against(ClusterSnapshot(small(*others), Config()))
    told = [n for n, why in found.items() if "hard-preemption" in [one.code for one in why]]
    assert told == against


def test_who_takes_a_smaller_node_with_devices_is_looked_at_after_who_takes_the_larger() -> None:
    """Both ask for as much CPU, so the later name is first: what it leaves has a device yet."""
    nodes = [
        marked(node(name, extended=(("gpu", many),)), Mark.SOFT, 1)
        for name, many in (("two", 2), ("one", 1))
    ]
    asks = [
        ranked(name, 100, node=None, requests=Resources(100, 100, 0, 1, (("gpu", many),)))
        for name, many in (("second", 2), ("first", 1))
    ]
    busy = pod("busy", "open", 3000, 100)
    found = reasons_against(
        ClusterSnapshot(Cluster.of([*nodes, node("open")], [busy, *asks]), Config())
    )
    told = {name: [one.reason for one in why] for name, why in found.items()}
    assert told == {"two": [HARD_PREEMPTION], "one": [HARD_PREEMPTION]}


def test_a_pod_for_larger_nodes_says_nothing_of_smaller_ones() -> None:
    """Each marked node goes by the largest that it could take itself."""
    large = [ranked("a", 60_000, node="big"), ranked("b", 20_000, node="middle")]
    more = [node("big", 64_000), marked(node("middle", 32_000), Mark.SOFT, 1)]
    found = small(*large, ranked("web", 600), used=3400)
    told = reasons_against(
        ClusterSnapshot(Cluster.of([*found.nodes, *more], found.pods), Config())
    )
    assert {name: [one.pod for one in why] for name, why in told.items() if why} == {
        "middle": ["d/b"]
    }
    full = pod("full", "big", 4000, 100)
    told = reasons_against(
        ClusterSnapshot(Cluster.of([*found.nodes, *more], [*found.pods, full]), Config())
    )
    assert {name: [one.pod for one in why] for name, why in told.items() if why} == {
        "green": ["d/web"],
        "middle": ["d/b"],
        "small": ["d/web"],
    }


def test_with_more_sizes_than_are_looked_at_all_marks_that_are_left_stay_soft() -> None:
    """Each asks for more memory than one node has, and for more CPU than the other."""
    nodes = [node("a", 10_000, 10), node("b", 10, 10_000)]
    nodes = [*(marked(one, Mark.SOFT, 1) for one in nodes), node("open", 20_000, 20_000)]
    sizes = [replace(pod(f"p{n}", None, 20 + n, 20), priority=1) for n in range(LOOKS_MAX)]
    for many, against in ((LOOKS_MAX // 3, []), (LOOKS_MAX, ["a", "b"])):
        pods = [pod("low", None, 1, 1), *sizes[:many]]
        found = reasons_against(ClusterSnapshot(Cluster.of(nodes, pods), Config()))
        assert [name for name, why in found.items() if why] == against


def test_each_resource_has_its_largest_pod() -> None:
    """The one that asks for most memory counts beside the one that asks for most CPU."""
    pods = [ranked("cpu", 400, node=None), replace(pod("memory", None, 1, 7950), priority=1)]
    found = reasons_against(ClusterSnapshot(small(*pods, used=0), Config()))
    assert {name: [one.pod for one in why] for name, why in found.items()} == {
        "green": ["d/memory"],
        "small": ["d/memory"],
    }


def test_more_placings_than_are_looked_at_keep_all_marks_soft() -> None:
    pods = [
        ranked(f"p{n}", 1, placing=NodeConstraints(node_selector=(("k", str(n)),)), node=None)
        for n in range(SHAPES_MAX + 1)
    ]
    found = reasons_against(ClusterSnapshot(small(*pods), Config()))
    assert all(why for why in found.values())
    assert not any(reasons_against(ClusterSnapshot(small(*pods[1:]), Config())).values())


@pytest.mark.parametrize(
    ("waits", "against"),
    [
        (pod("p", None, 500, 100), ["green", "small"]),
        (pod("p", None, 2000, 100), ["green"]),
        (pod("p", None, 500, 100, placing=GREEN), ["green"]),
        (pod("p", None, 5000, 100), []),
        (Pod(namespace="d", name="p", unreadable="spec: bad"), ["green", "small"]),
    ],
)
def test_a_pod_that_is_stuck_softens_the_marks_that_may_be_what_keeps_it(
    waits: Pod, against: list[str]
) -> None:
    found = reasons_against(ClusterSnapshot(small(waits), Config()), [(waits, "it waits")])
    told = {name: [(one.code, one.pod) for one in why] for name, why in found.items() if why}
    assert told == {name: [("hard-waiting", "d/p")] for name in against}


def test_more_pods_that_wait_than_are_looked_at_keep_all_marks_soft() -> None:
    stuck = [(pod(f"p{n}", None, 5000 + n, 100), "it waits") for n in range(SHAPES_MAX + 1)]
    assert all(reasons_against(ClusterSnapshot(small(), Config()), stuck).values())
    assert not any(reasons_against(ClusterSnapshot(small(), Config()), stuck[1:]).values())


def test_what_comes_and_goes_does_not_make_marks_flap() -> None:
    waits = pod("p", None, 500, 100, placing=GREEN)
    cluster = small(waits)
    held = reasons_against(ClusterSnapshot(cluster, Config()), [(waits, "it waits")])
    freed = reasons_against(ClusterSnapshot(cluster, Config()))
    spoken = RecentReasons().observe(held, Now(100))
    assert spoken.merged_with(held) == held
    for later in (100, 101, 100 + PAUSE_SECONDS - 1):
        again = spoken.observe(freed, now := Now(later))
        (why,) = again.merged_with(freed)["green"]
        assert (why.code, why.pod) == ("hard-waiting", "d/p")
        assert why.message == f"it waits; last seen {timestamp(100)}"
        assert why.until == now.next_change == 100 + PAUSE_SECONDS
    over = spoken.observe(freed, Now(100 + PAUSE_SECONDS))
    assert over.last == {}
    assert over.merged_with(freed) == freed


def test_what_is_remembered_of_nodes_without_a_mark_is_forgotten() -> None:
    spoken = RecentReasons({"gone": (100, Blocker(HARD_WAITING, "it waits"))})
    assert spoken.observe({"n": ()}, Now(101)).last == {}
    assert spoken.merged_with({"n": ()}) == {"n": ()}


def test_each_refusal_says_which_pod_and_why() -> None:
    """A pod of no DaemonSet before one of a DaemonSet hides nothing."""
    two = [pod("a", "n0", 10, 10), DAEMON, spread("zone")]
    assert reasons_against(ClusterSnapshot(Cluster.of(nodes(), two), Config())) == {
        "n0": (
            Blocker(
                HARD_DAEMONSET,
                f"DaemonSet logs does not tolerate the taint {TAINT_KEY}",
                "d/d",
                TAINT_KEY,
            ),
        ),
        "n2": (
            Blocker(
                HARD_SPREAD, "pods spread over zone would count b, without a node for them there"
            ),
        ),
    }
    would = "would find no room on unmarked nodes and may preempt others"
    pods = [ranked("p", 100, placing=GREEN, node="green"), ranked("q", 501), ranked("r", 502)]
    assert reasons_against(ClusterSnapshot(small(*pods), Config())) == {
        "green": (Blocker(HARD_PREEMPTION, f"a pod like d/p {would}", "d/p"),),
        "small": (Blocker(HARD_PREEMPTION, f"a pod like d/r {would}", "d/r"),),
    }


def test_a_node_is_told_of_one_pod_that_waits_and_taints_of_the_key_in_use_are_set_aside() -> None:
    taint = Taint("example.com/ours", "1", Effect.NO_SCHEDULE)
    one = replace(marked(node("n"), Mark.HARD, 1), taints=(taint,))
    stuck = [(pod(name, None, 1000 + place, 10), "waits") for place, name in enumerate("pq")]
    found = reasons_against(
        ClusterSnapshot(Cluster.of([one], []), Config(taint_key="example.com/ours")), stuck
    )
    assert found == {"n": (Blocker(HARD_WAITING, "waits", "d/p"),)}


def many(cpu: int) -> list[Pod]:
    """As many placings as are looked at, each of which every node admits; one pod is large."""
    placings = [
        NodeConstraints(tolerations=(Toleration(key=f"k{n:03}", operator="Exists"),))
        for n in range(SHAPES_MAX)
    ]
    last = SHAPES_MAX - 1
    return [
        ranked(f"p{n:03}", cpu if n == last else 1, placing=placing, node=None)
        for n, placing in enumerate(placings)
    ]


@pytest.mark.parametrize(("cpu", "against"), [(1, []), (1000, []), (1001, ["green"])])
def test_as_many_placings_as_are_looked_at_are_all_looked_at(cpu: int, against: list[str]) -> None:
    assert [
        name
        for name, why in reasons_against(ClusterSnapshot(small(*many(cpu)), Config())).items()
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
def test_a_node_that_takes_nothing_is_no_room(changed: dict[str, Any], against: list[str]) -> None:
    found = small(ranked("p", 100, node=None))
    nodes = [replace(one, **changed) if one.name == "open" else one for one in found.nodes]
    told = reasons_against(ClusterSnapshot(Cluster.of(nodes, found.pods), Config()))
    assert [name for name, why in told.items() if why] == against
