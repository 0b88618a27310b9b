"""Generate random histories of clusters, which together contain every reason code."""

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple
from zoneinfo import ZoneInfo

from core.config.budgets import Cooldown, Reserve
from core.config.schedule import Window
from core.config.settings import Config
from core.engine.planner import unlimited_time
from core.marks.mark import BACKOFF_SECONDS_MAX, CLOCKS_APART_SECONDS_MAX
from core.marks.wellknown import BACKOFF_ANNOTATION
from core.model.buffers import Buffer
from core.model.cluster import Cluster, DaemonSet, DisruptionBudget
from core.model.constraints import (
    DisruptionFacts,
    NodeConstraints,
    PodAffinityTerm,
    PodConstraints,
    Toleration,
)
from core.model.node import Node, Taint
from core.model.pod import CLAIMS_FIELD, DAEMON_SET, DEVICES_FIELD, JOB, TOPOLOGY_FIELD, Pod
from core.policies.all import POLICIES
from core.policies.ported.node_utilization import NodeUtilization
from core.policies.ported.underutilized_count import CountedPools, UnderutilizedCount
from tests.support import builders, counting, mixed, mixed_config
from tests.support.builders import node, pod, select
from tests.support.mixed_autoscalers import surrounded

WAITS = {"unneeded_time_seconds": 60, "max_seconds": 600}
"""Backoff of nodes whose mark cannot be written."""
LOOKS = 12
SECONDS = (0, 1, 1, 1, 10, 10, 60, 61, 600, 4000)
PERCENTILES = (Fraction(1, 2), Fraction(7, 10), Fraction(1))
EPOCH = 1_000_000
AHEAD = CLOCKS_APART_SECONDS_MAX + BACKOFF_SECONDS_MAX
"""Seconds in the future that no leader could have written in an annotation."""
TIMED = (
    DisruptionFacts(notes=(("karpenter.sh/do-not-disrupt", "90s"),), started_seconds=EPOCH),
    DisruptionFacts(overdue_seconds=EPOCH + 100),
)
COUNTED = CountedPools(
    pool_label="pool",
    pools={name: counting.counted("4/5", 1) for name in ("batch", "general", "gpu", "")},
)
DISABLED = CountedPools(
    pool_label="pool",
    pools={name: counting.counted(enabled=False) for name in ("batch", "general", "gpu", "")},
)


SCHEDULES = (
    (),
    (),
    (),
    (Window(start="*/7 * * * *", duration_seconds=60),),
    (
        Window(start="* * * * *", duration_seconds=60),
        Window(start="30 15 12 1 *", duration_seconds=3600, time_zone=ZoneInfo("Asia/Kolkata")),
    ),
)


class Look(NamedTuple):
    """One reconciliation of a history."""

    cluster: Cluster
    now: int
    """Time of the reconciliation in Unix seconds; it never decreases."""
    failed: frozenset[str]
    """Nodes whose mark could not be written since the previous reconciliation."""
    in_time: Callable[[], bool]
    """Function that returns whether the reconciliation has time left."""


class History(NamedTuple):
    """A configuration and the reconciliations with it."""

    config: Config
    looks: list[Look]


def history(seed: int) -> History:
    """Return a random history; odd seeds add a cluster for one of the rare reason codes."""
    chance = random.Random(seed)
    asked, cluster = config(chance), mixed.cluster(chance)
    for code in (list(RARE)[seed // 2 % len(RARE)],) if seed % 2 else ():
        asked, cluster = RARE[code](asked, cluster)
    return History(asked, list(_looks(chance, cluster)))


def _looks(chance: random.Random, cluster: Cluster) -> Iterator[Look]:
    now = EPOCH
    yield Look(cluster, now, frozenset(), unlimited_time)
    for _ in range(LOOKS):
        now += chance.choice(SECONDS)
        if chance.random() < 0.5:
            cluster = changed(chance, cluster, now)
        failed = frozenset(one.name for one in cluster.nodes if chance.random() < 0.02)
        yield Look(cluster, now, failed, unlimited_time if chance.random() < 0.98 else never)


def never() -> bool:
    """Return False: no time is left."""
    return False


def config(chance: random.Random) -> Config:
    """Return a random configuration in which every limit that ends with time may be set."""
    found = mixed_config.config(chance)
    timed = replace(
        found.budgets,
        period_seconds=chance.choice((5, 100)),
        stabilization_window_seconds=chance.choice((0, 30, 300)),
        cooldown=Cooldown(
            delay_after_add_seconds=chance.choice((0, 50)),
            delay_after_pending_seconds=chance.choice((0, 50)),
        ),
        mark_interval_seconds=chance.choice((0, 0, 40)),
        reserve=Reserve(
            window_seconds=chance.choice((None, 1, 7, 100)),
            percentile=chance.choice(PERCENTILES),
        ),
    )
    return replace(
        found,
        policy=chance.choice((*POLICIES, *POLICIES, NodeUtilization.name)),
        policies=replace(found.policies, underutilized_count=COUNTED),
        budgets=timed,
        unneeded_time_seconds=chance.choice((0, 15, 100)),
        no_schedule_after_seconds=chance.choice((None, 0, 30)),
        schedule=chance.choice(SCHEDULES),
        pause_until_seconds=chance.choice((None, None, None, EPOCH + 65)),
    )


def changed(chance: random.Random, was: Cluster, now: int) -> Cluster:
    """Return the cluster after random changes, or a new cluster with equal objects."""
    nodes, pods = list(was.nodes), list(was.pods)
    budgets, limits = was.budgets, was.attach_limits
    match chance.randrange(6):
        case 0:
            pods = list(_pods(chance, pods, nodes))
        case 1:
            nodes = [_node(chance, one, now) if chance.random() < 0.2 else one for one in nodes]
        case 2:
            nodes.append(mixed.node(chance, f"m{chance.randrange(10)}"))
            nodes = list({one.name: one for one in nodes}.values())
        case 3:
            nodes = [one for one in nodes if chance.random() < 0.9]
        case 4:
            budgets = (DisruptionBudget(namespace="d", name="b", disruptions_allowed=1),)
            limits = {one.name: chance.choice(({"ebs": 1}, {})) for one in nodes}
        case _:
            pods = [replace(one) for one in pods]
    made = Cluster.of(nodes, pods, budgets)
    return replace(
        surrounded(made, was),
        attach_limits=limits,
        buffers=was.buffers,
        daemon_sets=was.daemon_sets,
    )


def _pods(chance: random.Random, pods: list[Pod], nodes: list[Node]) -> Iterator[Pod]:
    rare = chance.choice((20, 100, 300))
    for one in pods:
        match chance.randrange(rare):
            case 0:
                continue
            case 1:
                yield replace(
                    one, nominated_node="", node=chance.choice(nodes).name if nodes else None
                )
            case 2:
                yield replace(
                    one, nominated_node="", node=None, unschedulable=chance.random() < 0.5
                )
            case 3:
                yield replace(one, name=f"{one.name}-more", labels={"app": "a"})
            case 4:
                yield replace(
                    one, disruption_facts=chance.choice(TIMED), terminating=chance.random() < 0.5
                )
            case 5:
                yield mixed.odd(chance, one)
            case _:
                yield one


def _node(chance: random.Random, one: Node, now: int) -> Node:
    ends = {BACKOFF_ANNOTATION: f"1 {now + chance.choice((-5, 20, AHEAD + 2))}"}
    return chance.choice(
        (
            builders.marked(
                replace(one, labels={}, taints=()),
                "PreferNoSchedule",
                now + chance.choice((-3, 9)),
            ),
            builders.marked(replace(one, labels={}, taints=()), "NoSchedule", now - 1),
            replace(one, ready=not one.ready),
            replace(one, labels={**one.labels, "rank": "7"}),
            replace(one, annotations={**one.annotations, **ends}),
            mixed.tainted(one, chance.choice((*mixed.PASSING, *mixed.LEAVING, mixed.GPU))),
        )
    )


Made = tuple[Config, Cluster]


def _with(asked: Config, was: Cluster, nodes: list[Node], *pods: Pod) -> Made:
    made = Cluster.of([*was.nodes, *nodes], [*was.pods, *pods], was.budgets)
    return asked, surrounded(made, was)


def _unsupported(field: str) -> Callable[[Config, Cluster], Made]:
    stays = replace(pod("rare", "rare", 10, 10), unsupported=(field,))
    return lambda asked, was: _with(asked, was, [node("rare")], stays)


def _unreached(asked: Config, was: Cluster) -> Made:
    taint = Taint("rare", "", "NoSchedule")
    tolerant = NodeConstraints(tolerations=(Toleration(key="rare", operator="Exists"),))
    odd = replace(pod("rare", None, 10, 10, node_constraints=tolerant), unsupported=("spec.rare",))
    return _with(asked, was, [node("rare", taints=(taint,))], odd)


def _buffer(asked: Config, was: Cluster) -> Made:
    large = replace(pod("a/b", None, 3000, 100), namespace="", owner_kind="CapacityBuffer")
    one = Buffer(namespace="a", name="b", replicas=2, pod=replace(large, owner_name="a/b"))
    budgets = replace(asked.budgets, balance_zones=False, cooldown=Cooldown(
        delay_after_add_seconds=0, delay_after_pending_seconds=0))  # fmt: skip
    small = [node(f"rare{number}") for number in range(3)]
    pods = [pod(f"rare{number}", f"rare{number}", 1500, 100) for number in range(3)]
    asked, made = _with(replace(asked, budgets=budgets), was, small, *pods)
    return asked, replace(made, buffers=(one,))


def _pool_disabled(asked: Config, was: Cluster) -> Made:
    policies = replace(asked.policies, underutilized_count=DISABLED)
    return replace(asked, policy=UnderutilizedCount.name, policies=policies), was


def _old_job(asked: Config, was: Cluster) -> Made:
    job = replace(pod("rare", "rare", 10, 10), owner_kind=JOB, created_seconds=EPOCH - 20)
    return _with(replace(asked, max_job_age_seconds=30), was, [node("rare")], job)


def _no_schedule_daemonset(asked: Config, was: Cluster) -> Made:
    agent = replace(pod("rare", "rare", 10, 10, daemon=True), owner_kind=DAEMON_SET)
    marked_node = builders.marked(node("rare"), "PreferNoSchedule", EPOCH - 1)
    return _with(replace(asked, no_schedule_after_seconds=0), was, [marked_node], agent)


def _no_schedule_kueue(asked: Config, was: Cluster) -> Made:
    worker = replace(pod("rare", "rare", 10, 10), unsupported=(TOPOLOGY_FIELD,))
    marked_node = builders.marked(node("rare"), "PreferNoSchedule", EPOCH - 1)
    return _with(replace(asked, no_schedule_after_seconds=0), was, [marked_node], worker)


def _no_schedule_daemonset_waits(asked: Config, was: Cluster) -> Made:
    marked_node = builders.marked(node("rare"), "PreferNoSchedule", EPOCH - 1)
    asked, made = _with(replace(asked, no_schedule_after_seconds=0), was, [marked_node])
    new = DaemonSet(namespace="d", name="rare", node_constraints=NodeConstraints())
    return asked, replace(made, daemon_sets=(new,))


def _no_schedule_affinity(asked: Config, was: Cluster) -> Made:
    terms = (PodAffinityTerm(select("rare"), "host"),)
    near = pod("client", "rare", 10, 10, pod_constraints=PodConstraints(near=terms))
    cache = pod("cache", "rare", 10, 10, labels={"app": "rare"})
    marked_node = builders.marked(
        node("rare", labels={"host": "rare"}), "PreferNoSchedule", EPOCH - 1
    )
    return _with(replace(asked, no_schedule_after_seconds=0), was, [marked_node], near, cache)


RARE: Mapping[str, Callable[[Config, Cluster], Made]] = {
    "pod-resource-claims": _unsupported(DEVICES_FIELD),
    "pod-volumes": _unsupported(CLAIMS_FIELD),
    "unreached": _unreached,
    "buffer": _buffer,
    "pool-disabled": _pool_disabled,
    "old-job": _old_job,
    "no-schedule-daemonset": _no_schedule_daemonset,
    "no-schedule-daemonset-waits": _no_schedule_daemonset_waits,
    "no-schedule-affinity": _no_schedule_affinity,
    "no-schedule-kueue": _no_schedule_kueue,
    "pod-kueue-topology": _unsupported(TOPOLOGY_FIELD),
}
"""By reason code: a function that creates a cluster with it. All other codes occur in random
clusters."""
