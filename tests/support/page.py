"""Plans for the page of a cluster, also of clusters with names that no API server accepts."""

import random
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, Final

import msgspec
import orjson

from cli.answers import Planned, RowOptions
from cli.input.cluster_input import ClusterInput, Leader, Running
from cli.plan import Limits, planned
from controller.day_report import DayReport, MonthReport, PoolFigures, StateSample
from controller.leader_report import (
    Decision,
    LeaderFacts,
    LimitUse,
    PendingPods,
    Report,
    Savings,
)
from controller.writers import EVENT_REASONS
from core.config.budgets import Budget, LabelSelector, Pool
from core.config.prices import Price
from core.config.settings import Config, Mode
from core.engine.mark_limits import SPACING
from core.engine.planner import NO_ROOM
from core.engine.zones import ZONE_LABEL
from core.model.cluster import Cluster
from core.model.humanize import HOUR, duration
from core.model.node import Node, Taint
from core.model.pod import Pod
from core.writes.life_cycle import Event
from core.writes.write import WriteKind
from kube.target import Target
from tests.support import builders
from tests.support.clock import FakeClock

NOW: Final = int(time.time())
POOL_LABEL: Final = "pool"
HOSTILE = "</script><!--<img src=x onerror=\"document.title='owned'\">&amp;"


def input_of(nodes: Iterable[Node], pods: Iterable[Pod]) -> ClusterInput:
    cluster = Cluster.of(nodes, pods)
    return ClusterInput(cluster=cluster, config=Config(), where=HOSTILE, kinds=frozenset())


def state_of(html: str) -> Any:
    """Return the state in a page."""
    found = re.search(
        r'<script type="application/json" id="state">(.*?)</script>', html, re.DOTALL
    )
    assert found
    return orjson.loads(found[1])


def plan_of(cluster_input: ClusterInput, now_seconds: int = NOW) -> Planned:
    return planned(cluster_input, Limits(), RowOptions(), clock=FakeClock(now_seconds))


def hostile_input() -> ClusterInput:
    """Return a cluster in which every name is an attempt to insert HTML."""
    labels = {HOSTILE: HOSTILE, ZONE_LABEL: HOSTILE}
    nodes = [
        builders.node(HOSTILE, labels=labels, taints=(Taint(HOSTILE, HOSTILE, HOSTILE),)),
        builders.node("a"),
    ]
    pods = [
        builders.pod(HOSTILE, HOSTILE, 100, 100, namespace=HOSTILE),
        builders.pod(f"{HOSTILE}-pending", None, 100, 100),
    ]
    return input_of(nodes, pods)


def saved(hours: int, cost: float) -> PoolFigures:
    """Return the figures of a time in which 24 node-hours were counted for each saved one."""
    return PoolFigures(
        node_seconds=24 * hours * HOUR,
        expected_node_seconds=0,
        expected_cost=0,
        saved_node_seconds=hours * HOUR,
        saved_cost=cost,
        marks=0,
        unmarks=0,
        removed_nodes=0,
        moved_pods=0,
    )


def with_day(
    cluster_input: ClusterInput,
    samples: Sequence[StateSample] = (),
    *,
    today: PoolFigures,
    month: PoolFigures | None,
) -> ClusterInput:
    """Return a live cluster whose leader has counted savings today and in this month."""
    running = cluster_input.running
    assert running is not None
    assert running.report is not None
    assert running.report.facts is not None
    day = DayReport(
        date="2026-01-02",
        total=today,
        pools=[],
        unmarks={},
        waited_pod_seconds=0,
        samples=[*samples],
    )
    facts = msgspec.structs.replace(
        running.report.facts,
        today=day,
        month=None if month is None else MonthReport(first="2026-01-01", total=month),
    )
    report = msgspec.structs.replace(running.report, facts=facts)
    return replace(cluster_input, running=replace(running, report=report))


LEADER: Final = "ebb-controller-7d9c_1"


def showcase(now_seconds: int = NOW) -> ClusterInput:
    """Return a live cluster with nodes in every state, and a leader with decisions."""
    chance = random.Random(4)
    nodes, pods = [], []
    for number in range(60):
        pool, zone = ("general", "batch")[number % 5 == 0], "abc"[number % 3]
        name = f"{pool}-{zone}-{number:02}"
        node = builders.node(
            name,
            8000,
            32_000,
            labels={POOL_LABEL: pool, ZONE_LABEL: f"eu-central-1{zone}"},
            ready=number != 17,
            unschedulable=number == 22,
        )
        if number in (9, 10):
            node = builders.marked(
                node, "NoSchedule" if number == 9 else "PreferNoSchedule", now_seconds - 900
            )
        if number == 33:
            taint = Taint("ToBeDeletedByClusterAutoscaler", "", "NoSchedule")
            node = replace(node, taints=(taint,))
        nodes.append(replace(node, created_seconds=now_seconds - 86_400))
        target = chance.choice((900, 3000, 5500, 6500)) if number % 7 else 0
        while target > 0:
            cpu = chance.choice((250, 500, 1000))
            target -= cpu
            key = f"web-{number}-{target}"
            pods.append(
                builders.pod(key, name, cpu, cpu * chance.choice((2, 4)), namespace="shop")
            )
    late = builders.pod("report-0", None, 9000, 1000, namespace="batch")
    pods.append(replace(late, unschedulable=True, created_seconds=now_seconds - 400))
    bare = builders.pod("bare", "general-b-01", 100, 100, namespace="ops")
    pods.append(replace(bare, owner_kind="", owner_name=""))
    config = Config(
        mode=Mode.ENFORCE,
        budgets=replace(
            Config().budgets,
            pools=tuple(
                Pool(
                    name=name,
                    selector=LabelSelector(match_labels=((POOL_LABEL, name),)),
                    budget=Budget(),
                )
                for name in ("general", "batch")
            ),
        ),
        prices=(Price(node_selector=(), price=Fraction("0.384")),),
    )
    running = Running(
        Leader(lease="ebb-system/ebb-controller", holder=LEADER, renewed_seconds=now_seconds),
        Report(identity=LEADER, leading=True, facts=_facts(now_seconds)),
    )
    return ClusterInput(
        cluster=Cluster.of(nodes, pods),
        config=config,
        config_from=f"leader {LEADER}",
        where="live cluster, ~/.kube/config",
        target=Target("https://10.0.0.1:6443", "production", "production"),
        running=running,
    )


def _facts(now_seconds: int) -> LeaderFacts:
    decided = (
        (20, "batch-b-10", EVENT_REASONS[WriteKind.MARK], Event.REMOVABLE.meaning),
        (
            95,
            "general-a-09",
            EVENT_REASONS[WriteKind.SET_NO_SCHEDULE],
            f"marked for {duration(805)}",
        ),
        (340, "general-c-41", EVENT_REASONS[WriteKind.REMOVE_PROTECTION], Event.EMPTY.meaning),
        (
            900,
            "general-b-28",
            EVENT_REASONS[WriteKind.UNMARK],
            f"{NO_ROOM.code}: no other remaining node admits it and has room",
        ),
    )
    return LeaderFacts(
        leading_since_seconds=now_seconds - 7200,
        reconciled_at_seconds=now_seconds - 5,
        decisions=[
            Decision(at_seconds=now_seconds - ago, kind="Node", name=name, action=action,
                     reason=reason, written=True)
            for ago, name, action, reason in decided
        ],
        limits=[LimitUse(code=SPACING.code, scope="", until_seconds=[now_seconds + 40])],
        savings=Savings(expected_node_seconds=72_000, expected_cost=7.7,
                        estimated_node_seconds=50_400, estimated_cost=5.4),
        pending=[PendingPods(cause="mark", pods=0, pod_seconds=0),
                 PendingPods(cause="room", pods=1, pod_seconds=400)],
    )  # fmt: skip
