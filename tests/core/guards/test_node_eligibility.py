"""Which nodes stay for what they are: a table with a row for each rule."""

from dataclasses import replace

import pytest

from core.guards.node_eligibility import NODE_RULES, node_blockers
from core.marks.wellknown import KEEP_ANNOTATION
from core.model.node import Node, Taint
from core.model.reason import Reason
from tests.support.builders import node

pytestmark = pytest.mark.mutate

PLAIN = node("n")
ROWS = {
    "virtual-node": replace(PLAIN, virtual=True),
    "being-deleted": replace(PLAIN, taints=(Taint("karpenter.sh/disrupted", "", "NoSchedule"),)),
    "opted-out": node("n", annotations={KEEP_ANNOTATION: "true"}),
    "cordoned": replace(PLAIN, unschedulable=True),
    "not-ready": replace(PLAIN, ready=False),
    "control-plane": node("n", labels={"node-role.kubernetes.io/control-plane": ""}),
    "unreadable": replace(PLAIN, unreadable="status: expected an object"),
}


@pytest.mark.parametrize("role", ["control-plane", "master", "controlplane", "etcd"])
def test_the_taint_of_the_control_plane_counts_without_the_label(role: str) -> None:
    key = f"node-role.kubernetes.io/{role}"
    (blocker,) = node_blockers(replace(PLAIN, taints=(Taint(key, "", "NoSchedule"),)))
    assert (blocker.code, blocker.about) == ("control-plane", key)
    assert f"taint {key}" in blocker.message


def test_a_plain_node_has_no_blocker() -> None:
    assert node_blockers(PLAIN) == []


@pytest.mark.parametrize("reason", [reason for reason, _ in NODE_RULES], ids=lambda one: one.code)
def test_each_rule_speaks_for_its_node_alone(reason: Reason) -> None:
    found: Node = ROWS[reason.code]
    assert [blocker.reason for blocker in node_blockers(found)] == [reason]
