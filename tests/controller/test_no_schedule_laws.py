"""Laws of NoSchedule marks after a reconciliation of any cluster, checked by the plain filters."""

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from controller.metrics import Metrics
from controller.reconciler import Reconciler
from core.config.settings import Config, Mode, UsabilityMode
from core.config.thresholds import Thresholds
from core.marks.mark import Mark, mark_of
from core.marks.wellknown import TAINT_KEY
from core.model.cluster import Cluster
from core.model.node import Node
from core.model.pod import Pod
from tests.support.builders import UNLIMITED, node, pod
from tests.support.examples import examples
from tests.support.reference_fit import admits, has_room
from tests.support.reference_rules import is_open, leaving
from tests.support.standing import Standing
from tests.support.strategies import clusters

pytestmark = [pytest.mark.law, pytest.mark.mutate]

WHOLE = Thresholds(cpu=Fraction(1), memory=Fraction(1))


@st.composite
def troubled(draw: st.DrawFn) -> Cluster:
    """Draw a cluster with Pending pods, some of them unevaluable, and with priorities."""
    found = draw(clusters())
    pods = []
    for one in found.pods:
        waits = not one.stays_with_node and draw(st.integers(0, 3)) == 0
        odd = waits and draw(st.booleans())
        changed = {"node": None, "unschedulable": True} if waits else {}
        pods.append(
            replace(
                one,
                priority=draw(st.sampled_from((0, 0, 0, 5))),
                unsupported=("spec.schedulerName",) if odd else one.unsupported,
                **changed,  # type: ignore[arg-type]
            )
        )
    return replace(found, pods=tuple(pods))


def takes(node: Node, pod: Pod) -> bool:
    """Return whether the node would admit the pod if it were empty; volumes are ignored."""
    node_constraints = replace(pod.node_constraints, volumes=())
    return (
        not node.unschedulable
        and has_room(pod.requests, node.allocatable)
        and admits(node, node_constraints, TAINT_KEY)
    )


def preempting(pods: Iterable[Pod]) -> list[Pod]:
    """Return the pods above the lowest priority, which may preempt others."""
    movers = [one for one in pods if not one.stays_with_node]
    lowest = min((one.priority for one in movers), default=0)
    return [one for one in movers if one.priority > lowest]


def almost_full() -> Cluster:
    """Return a cluster with a removable node; one of its pods may preempt others."""
    high = replace(pod("high", "a", 1000, 100), priority=5)
    return Cluster.of([node("a"), node("b")], [pod("low", "a", 2500, 100), high])


def with_pending_pod() -> Cluster:
    waits = replace(pod("waits", None, 100, 100, unsupported=("x",)), unschedulable=True)
    return Cluster.of([node("a"), node("b")], [pod("low", "a", 2500, 100), waits])


@settings(max_examples=examples(100), deadline=None)
@given(troubled())
@example(almost_full())
@example(with_pending_pod())
async def test_no_schedule_mark_neither_blocks_pod_nor_causes_preemption(
    cluster: Cluster,
) -> None:
    standing = Standing(cluster)
    config = Config(
        mode=Mode.ENFORCE,
        unneeded_time_seconds=0,
        thresholds=WHOLE,
        usable_capacity=UsabilityMode.ALL,
        no_schedule_after_seconds=0,
        budgets=UNLIMITED,
    )
    controller = Reconciler(config, standing, owner="me", metrics=Metrics())
    for now in range(10, 60, 10):
        await controller.reconcile(standing.cluster, now)
        nodes, pods = standing.cluster.nodes, standing.cluster.pods
        no_schedule = [
            one for one in nodes if mark_of(one.labels) is Mark.NO_SCHEDULE and not leaving(one)
        ]
        for asks in pods:
            if asks.node is None and asks.unschedulable and not asks.terminating:
                assert asks.evaluable or not any(takes(one, asks) for one in no_schedule)
        used = standing.cluster.used()
        for asks in preempting(pods):
            room = any(
                mark_of(one.labels) is None
                and is_open(one, [each for each in pods if each.node == one.name])
                and has_room(asks.requests, one.allocatable - used[one.name])
                and takes(one, asks)
                for one in nodes
            )
            assert room or not any(takes(one, asks) for one in no_schedule)
