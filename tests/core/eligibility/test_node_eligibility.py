"""Nodes that are never removable: one row per rule."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from core.eligibility.node_eligibility import (
    CONTROL_PLANE_LABELS,
    CONTROL_PLANE_ROLES,
    NODE_RULES,
    node_blockers,
)
from core.eligibility.ordinary_node import OrdinaryNode
from core.marks.wellknown import (
    DO_NOT_DISRUPT_ANNOTATION,
    KEEP_ANNOTATION,
    REMOVAL_DISABLED,
    SCALE_DOWN_DISABLED_ANNOTATION,
)
from core.model.node import Node, Taint
from core.model.reason import Reason
from kube.decode.node import NodeAnnotations
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


@pytest.mark.parametrize(
    "key",
    [
        KEEP_ANNOTATION,
        REMOVAL_DISABLED,
        DO_NOT_DISRUPT_ANNOTATION,
        SCALE_DOWN_DISABLED_ANNOTATION,
    ],
)
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


def test_ordinary_nodes_need_no_rule() -> None:
    """Otherwise all rules run on every node, which takes 40 times as long."""
    ordinary = OrdinaryNode(rule for _, rule in NODE_RULES)
    labels = {"kubernetes.io/hostname": "n", "topology.kubernetes.io/zone": "a"}
    assert ordinary.matches(node("n", labels=labels, annotations={"team.example/a": "b"}))
    assert not any(ordinary.matches(found) for found in ROWS.values())


READS = {
    "a label by key": (
        lambda n: "no" if n.labels.get("x") == "y" else None,
        {"labels": {"x": "y"}},
    ),
    "any label": (
        lambda n: "no" if any("x" in key for key in n.labels) else None,
        {"labels": {"ax": ""}},
    ),
    "the number of labels": (
        lambda n: "no" if len(n.labels) > 1 else None,
        {"labels": {"a": "", "b": ""}},
    ),
    "an annotation": (
        lambda n: "no" if "x" in n.annotations else None,
        {"annotations": {"x": ""}},
    ),
    "a field": (lambda n: "no" if n.provider == "k3s" else None, {"provider": "k3s"}),
    "a property": (lambda n: "no" if n.key == "m" else None, {"name": "m"}),
}


@pytest.mark.parametrize(("rule", "changes"), READS.values(), ids=READS)
def test_rule_applies_without_declaring_what_it_reads(rule: Any, changes: dict[str, Any]) -> None:
    refused = replace(PLAIN, **changes)
    assert rule(refused) == "no"
    assert not OrdinaryNode([rule]).matches(refused)


def test_rule_against_ordinary_nodes_is_rejected() -> None:
    with pytest.raises(ValueError, match="ordinary node"):
        OrdinaryNode([lambda _: "no"])


def test_annotations_that_rules_read_are_decoded() -> None:
    """Nodes keep few annotations; a rule about another one would never apply in a cluster."""
    decoded = {field.encode_name for field in msgspec.structs.fields(NodeAnnotations)}
    read = OrdinaryNode(rule for _, rule in NODE_RULES).annotations
    assert read <= decoded, "add the annotation to NodeAnnotations in kube/decode/node.py"
