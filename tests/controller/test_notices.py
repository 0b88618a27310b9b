"""What is logged once, however many reconciliations there are."""

import logging
from dataclasses import replace
from fractions import Fraction

import pytest

from controller.loop import Notices
from core.config.budgets import Budget, Budgets, LabelSelector, NodeRequirement, Operator, Pool
from core.config.settings import Config
from core.engine.snapshot import ClusterSnapshot
from core.model.cluster import Cluster
from core.model.node_groups import NodePool
from tests.support.builders import node

GPU = NodeRequirement(key="gpu", operator=Operator.EXISTS)
POOLS = (
    Pool(name="none", selector=LabelSelector(match_expressions=(GPU,)), budget=Budget()),
    Pool(name="some", selector=LabelSelector(match_labels=(("a", "b"),)), budget=Budget()),
)
CONFIG = Config(budgets=Budgets(pools=POOLS))
ONE = Cluster.of([node("n", labels={"a": "b"})], [])


def test_each_notice_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    notices = Notices()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            notices.observe(ClusterSnapshot(ONE, CONFIG))
    assert [record.message for record in caplog.records] == [
        "Ebb found no autoscaler, so it does not know which nodes an autoscaler can remove",
        "a configured pool selects no node",
    ]


def test_minimum_savings_without_prices_are_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = replace(ONE, node_pools=(NodePool(name="general"),))
    notices, savings = Notices(), Fraction(1)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            notices.observe(ClusterSnapshot(cluster, Config(min_savings=savings)))
    assert [record.message for record in caplog.records] == [
        "`minSavings` has no effect, because no `prices` are configured"
    ]


def test_nothing_is_logged_where_there_is_nothing_to_say(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = replace(ONE, node_pools=(NodePool(name="general"),))
    with caplog.at_level(logging.WARNING):
        Notices().observe(ClusterSnapshot(cluster, Config()))
    assert caplog.records == []
