"""Nodes that are never removable: one row per rule."""

from dataclasses import replace

import pytest

from core.eligibility.node_eligibility import (
    CONTROL_PLANE_LABELS,
    CONTROL_PLANE_ROLES,
    NODE_RULES,
    node_blockers,
)
from core.marks.mark import OPT_OUT_ANNOTATIONS
from core.marks.wellknown import KEEP_ANNOTATION, REMOVAL_DISABLED
from core.model.node import Node, Taint
from core.model.reason import Reason
from tests.support.builders import node

pytestmark = pytest.mark.mutate

PLAIN = node("n")
ROWS = {
    "virtual-node": replace(PLAIN, virtual=True),
    "being-deleted": replace(PLAIN, taints=(Taint("karpenter.sh/disrupted", "", "NoSchedule"),)),
    "opted-out": node("n", annotations={KEEP_ANNOTATION: "true"}),
    "opted-out-label": node("n", labels={REMOVAL_DISABLED: "true"}),
    "cordoned": replace(PLAIN, unschedulable=True),
    "not-ready": replace(PLAIN, ready=False),
    "control-plane": node("n", labels={"node-role.kubernetes.io/control-plane": ""}),
    "unreadable": replace(PLAIN, unreadable="status: expected an object"),
}


@pytest.mark.parametrize("role", ["control-plane", "master", "controlplane", "etcd"])
def test_control_plane_taint_counts_without_label(role: str) -> None:
    key = f"node-role.kubernetes.io/{role}"
    (blocker,) = node_blockers(replace(PLAIN, taints=(Taint(key, "", "NoSchedule"),)))
    assert (blocker.code, blocker.about) == ("control-plane", key)
    assert f"taint {key}" in blocker.message


def test_plain_node_has_no_blocker() -> None:
    assert node_blockers(PLAIN) == []


@pytest.mark.parametrize(
    ("key", "value"),
    [*((key, "") for key in CONTROL_PLANE_LABELS), *CONTROL_PLANE_ROLES],
)
def test_control_plane_label_blocks_node_without_taint(key: str, value: str) -> None:
    (blocker,) = node_blockers(node("n", labels={key: value}))
    assert (blocker.code, blocker.about) == ("control-plane", key)


@pytest.mark.parametrize("key", sorted(OPT_OUT_ANNOTATIONS))
def test_annotation_excludes_node(key: str) -> None:
    (blocker,) = node_blockers(node("n", annotations={key: "true"}))
    assert (blocker.code, blocker.about) == ("opted-out", key)


@pytest.mark.parametrize("state", [{"suspended": True}, {"deleting": True}])
def test_state_without_taint_blocks_node(state: dict[str, bool]) -> None:
    assert len(node_blockers(replace(PLAIN, **state))) == 1  # type: ignore[arg-type]


@pytest.mark.parametrize("reason", [reason for reason, _ in NODE_RULES], ids=lambda one: one.code)
def test_rule_blocks_only_its_own_node(reason: Reason) -> None:
    found: Node = ROWS[reason.code]
    assert [blocker.reason for blocker in node_blockers(found)] == [reason]
