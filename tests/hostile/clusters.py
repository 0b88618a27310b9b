"""Read objects from a dump, a list or a watch, and plan the resulting cluster."""

from collections.abc import Sequence
from typing import Any, cast

import orjson

from cli.explain.explainer import Explainer
from controller.metrics import Metrics
from controller.reconciler import Reconciler
from controller.view import ClusterView
from core.cluster.read_options import READ_DEFAULTS
from core.config.budgets import Budget, Budgets, Cooldown
from core.config.settings import Config, Mode, UsabilityMode
from core.engine.plan import Plan
from core.engine.reconcile import make_plan
from core.engine.snapshot import ClusterSnapshot
from core.model.cluster import Cluster
from core.model.errors import GarbledError
from core.model.node import Node
from core.model.now import Now
from core.writes.write import Write
from kube.cluster_kinds import BY_NAME, KINDS
from kube.dump import from_dumps
from kube.freshness import WatchSink
from kube.listing import WHOLE, Listed
from kube.watch import _Watcher
from tests.support.clock import FakeClock

CONFIG = Config(
    mode=Mode.ENFORCE,
    no_schedule_after_seconds=1,
    usable_capacity=UsabilityMode.ALL,
    budgets=Budgets(
        cluster=Budget(),
        balance_zones=True,
        headroom=1,
        cooldown=Cooldown(delay_after_add_seconds=0, delay_after_pending_seconds=0),
    ),
)
NOW = 1_767_225_600
METRICS = Metrics()
"""Shared, because nothing here reads them, and a program makes them once too."""


def dumped(objects: Sequence[tuple[str, bytes]]) -> Cluster:
    """Return the cluster of a dump that contains the objects, each (kind, bytes)."""
    raw = b'{"kind":"List","items":[%b]}' % b",".join(raw for _, raw in objects)
    return from_dumps([("f", raw)], READ_DEFAULTS, [])[0]


class Watched:
    """A view that is filled by lists and watch events."""

    def __init__(self) -> None:
        self.view = ClusterView()
        clock = FakeClock()
        self.feeds = {
            kind: WatchSink(self.view, kind, self.view.freshness, clock, METRICS) for kind in KINDS
        }

    def list(self, objects: Sequence[tuple[str, bytes]]) -> None:
        """Replace the view with lists of the objects."""
        for kind in KINDS:
            items = b",".join(raw for of, raw in objects if of == kind.name)
            page = b'{"metadata":{"resourceVersion":"1"},"items":[%b]}' % items
            listed = Listed()
            listed.take(kind, page)
            self.feeds[kind].replaced(listed.objects, listed.refused)

    def event(self, name: str, raw: bytes) -> bool:
        """Apply a watch event; return False if it is invalid and would lead to a new list."""
        kind = BY_NAME[name]
        watcher = _Watcher(cast("Any", None), kind, self.feeds[kind], WHOLE)
        try:
            watcher._event(b'{"type":"ADDED","object":%b}' % raw)
        except GarbledError:
            return False
        return True

    def cluster(self) -> Cluster:
        return self.view.snapshot(READ_DEFAULTS)()


def judged(cluster: Cluster) -> tuple[Plan, dict[str, str]]:
    """Plan, decide and explain; return the plan, and the verdict of each node as text."""
    survey = ClusterSnapshot(cluster, CONFIG, Now(NOW))
    plan = make_plan(survey)
    controller = Reconciler(CONFIG, cast("Any", None), owner="o", metrics=METRICS)
    writes: list[Write[Node]] = []
    for turn in range(2):
        writes += controller.evaluate(cluster, NOW + turn * 10**5).writes
    explainer = Explainer(survey, plan, NOW)
    told: dict[str, str] = {}
    removals = {one.node: repr((one.order, one.placements)) for one in plan.removals}
    kept = {one.node: repr(one.blockers) for one in plan.kept}
    assert removals.keys().isdisjoint(kept)
    assert removals.keys() | kept.keys() == {node.name for node in cluster.nodes}
    assert all(one.blockers for one in plan.kept), "a node that stays has a reason"
    for node in cluster.nodes:
        assert explainer.node(node.name) is not None
        mine = [(one.kind, one.labels, one.note) for one in writes if one.key == node.name]
        told[node.name] = removals.get(node.name, "") + kept.get(node.name, "") + repr(mine)
    return plan, told


def written(objects: Sequence[dict[str, Any]]) -> list[tuple[str, bytes]]:
    return [(one["kind"], orjson.dumps(one)) for one in objects]
