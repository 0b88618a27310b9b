"""How long Ebb protects a node that Karpenter would replace because it has drifted."""

from dataclasses import replace

import pytest

from core.config.settings import Config, Mode, Scope
from core.eligibility.drift import DRIFT_PROTECTION_SECONDS, unprotectable
from core.engine.leader_state import LeaderState
from core.engine.reconcile import reconcile
from core.marks.mark import Mark, mark_of
from core.marks.wellknown import (
    DO_NOT_DISRUPT_ANNOTATION,
    KARPENTER_LABEL,
    PROTECTION_ANNOTATION,
)
from core.model.cluster import Cluster
from core.model.node import Node
from core.model.node_groups import NodeClaim, NodePool
from core.model.now import Now
from core.writes.nodes import decide
from core.writes.write import applied
from tests.support.builders import UNLIMITED, marked, node, pod

pytestmark = pytest.mark.mutate

NOW = 1_767_225_600
END = NOW + DRIFT_PROTECTION_SECONDS
LABELS = {KARPENTER_LABEL: "general"}
EMPTY = replace(Config().scale_down_protection, scope=Scope.EMPTY)
CONFIG = Config(mode=Mode.ENFORCE, budgets=UNLIMITED, scale_down_protection=EMPTY)
MARKING_NONE = replace(
    CONFIG,
    unneeded_time_seconds=10**6,
    budgets=replace(UNLIMITED, cluster=replace(UNLIMITED.cluster, min_nodes=9)),
)
STAYS = pod("big", "n", 3000, 3000)


def there(one: Node, *, drifted: int | None = NOW, busy: bool = True) -> Cluster:
    claims = (NodeClaim(name="c", node=one.name, drifted_seconds=drifted),)
    pods = [STAYS, pod("other", "m", 3000, 3000)] if busy else [pod("other", "m", 3000, 3000)]
    cluster = Cluster.of([one, node("m", labels=LABELS)], pods)
    return replace(cluster, node_claims=claims, node_pools=(NodePool(name="general"),))


def after(cluster: Cluster, now: int, config: Config = CONFIG) -> Node:
    """Return the node after one reconciliation at this second."""
    found = reconcile(cluster, config, LeaderState(first_reconciliation_at=0), now)
    (one,) = (each for each in cluster.nodes if each.name == "n")
    writes = decide(cluster, found.plan, config, now_seconds=now, owner="me")
    for write in (write for write in writes if write.key == "n"):
        one = applied(write, one)
    return one


def is_protected(one: Node) -> bool:
    return one.annotations.get(DO_NOT_DISRUPT_ANNOTATION) == "true"


def test_drift_limit_ends_after_one_hour() -> None:
    cluster = there(node("n"))
    now = Now(END - 1)
    assert unprotectable(cluster, now) == frozenset()
    assert now.next_change == END
    assert unprotectable(cluster, Now(END)) == {"n"}
    assert unprotectable(cluster, None) == frozenset()
    assert unprotectable(there(node("n"), drifted=None), Now(END)) == frozenset()


@pytest.mark.parametrize(("now", "protected"), [(END - 1, True), (END, False)])
def test_unmarked_drifted_node_is_protected_for_one_hour(now: int, protected: bool) -> None:
    first = after(there(node("n", labels=LABELS), busy=False), NOW, MARKING_NONE)
    assert is_protected(first)
    again = after(there(first, busy=False), now, MARKING_NONE)
    assert is_protected(again) is protected
    assert (PROTECTION_ANNOTATION in again.annotations) is protected


@pytest.mark.parametrize(("now", "protected"), [(END - 1, True), (END, False)])
def test_marked_drifted_node_keeps_its_mark(now: int, protected: bool) -> None:
    one = marked(node("n", labels=LABELS), Mark.PREFER_NO_SCHEDULE, NOW, deadline=NOW + 10**6)
    protection = {
        DO_NOT_DISRUPT_ANNOTATION: "true",
        PROTECTION_ANNOTATION: f"marked {DO_NOT_DISRUPT_ANNOTATION}",
    }
    one = replace(one, annotations={**one.annotations, **protection})
    small = replace(STAYS, requests=replace(STAYS.requests, cpu_millis=100, memory_bytes=1))
    cluster = there(one)
    cluster = replace(cluster, pods=(small, *cluster.pods[1:]))
    found = after(cluster, now)
    assert mark_of(found.labels) is Mark.PREFER_NO_SCHEDULE
    assert is_protected(found) is protected
    again = after(replace(cluster, nodes=(cluster.nodes[0], found)), now + 1)
    assert is_protected(again) is False or now + 1 < END


def test_node_is_protected_again_when_drift_ends() -> None:
    one = after(there(node("n", labels=LABELS), busy=False), END, MARKING_NONE)
    assert not is_protected(one)
    ended = there(one, drifted=None, busy=False)
    assert is_protected(after(ended, END + 1, MARKING_NONE))
