"""When a soft mark may become a hard one."""

from dataclasses import replace

import pytest

from core import engine
from core.config import Config
from core.harden import refusals, wanted
from core.marks import TAINT_KEY, Mark
from core.model import (
    Cluster,
    Company,
    Effect,
    Node,
    Placing,
    Pod,
    PodSelector,
    SpreadConstraint,
    Taint,
    Toleration,
)
from tests.support.builders import UNLIMITED, node, pod
from tests.support.strategies import marked

EVERYBODY = PodSelector(None, ())
DAEMON = replace(pod("d", "n0", 10, 10, daemon=True), owner_kind="DaemonSet", owner_name="logs")
TOLERANT = Placing(tolerations=(Toleration(key=TAINT_KEY, operator="Exists"),))
EXACT = Placing(tolerations=(Toleration(key=TAINT_KEY, operator="Equal"),))


def spread(key: str, *, honor_taints: bool = False) -> Pod:
    constraint = SpreadConstraint(EVERYBODY, key, 1, honor_taints=honor_taints)
    return pod("s", "n1", 10, 10, company=Company(spread=(constraint,)))


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
        ([spread("rack")], {"n0": [], "n2": []}),
    ],
)
def test_what_speaks_against_it(others: list[Pod], against: dict[str, list[str]]) -> None:
    found = refusals(Cluster.of(nodes(), others), TAINT_KEY)
    assert {name: [one.code for one in why] for name, why in found.items()} == against


@pytest.mark.parametrize(
    ("after", "age", "mark"),
    [(None, 10**6, Mark.SOFT), (60, 59, Mark.SOFT), (60, 60, Mark.HARD), (0, 0, Mark.HARD)],
)
def test_it_is_opt_in_and_takes_time(after: int | None, age: int, mark: Mark) -> None:
    assert wanted((), after, age) is mark
    against = refusals(Cluster.of(nodes(), [DAEMON]), TAINT_KEY)["n0"]
    assert wanted(against, after, age) is Mark.SOFT


def test_a_pod_that_every_node_has_refused_comes_before_those_with_a_choice() -> None:
    """Else a pod of a node that is going would take the room, and the mark would stay hard."""
    only = Placing(node_selector=(("only", "m"),))
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
    plan = engine.plan(found, Config(budgets=UNLIMITED))
    assert plan.marked_infeasible == ("m",)
    assert dict(plan.pending) == {"d/waits": "m", "d/has-a-choice": "n"}
