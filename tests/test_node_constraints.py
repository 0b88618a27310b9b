"""What a new field of NodeConstraints needs besides its filter; each failure says what is missing.

To add a field, add an example to EXAMPLES, and do what the failing tests say.
"""

from dataclasses import fields, replace
from typing import Any, Final, NamedTuple

import orjson
import pytest

from core.cluster.tenant_limits import _requirements_of_nodes
from core.model.constraints import (
    OS_LABEL,
    RESTARTS_ALL,
    NodeConstraints,
    Requirement,
    SelectorTerm,
    Toleration,
    VolumeTopology,
)
from core.model.node import Effect, Node, Taint
from core.model.resources import Resources
from core.placement.filters import FILTERS, first_failing_filter
from core.placement.reaches import GENERAL, Reaches
from core.writes.capacity_buffers import pod_spec
from kube.decode.kinds import PODS
from tests.support.builders import node, pod
from tests.support.fake_objects import Json, pod_object

ZONE: Final = "topology.kubernetes.io/zone"
IN_A: Final = (SelectorTerm((Requirement(ZONE, "In", ("a",)),)),)
REQUIRED: Final = {
    "nodeSelectorTerms": [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["a"]}]}]
}
RESTARTING: Final = {
    "name": "main",
    "restartPolicyRules": [{"action": "RestartAllContainers"}],
}


class Example(NamedTuple):
    """Constraints with one field only, the spec of such a pod, and two nodes."""

    constraints: NodeConstraints
    spec: Json | None
    """None: the field does not come from the spec alone."""
    admitting: Node
    refusing: Node


EXAMPLES: Final = {
    "node_selector": Example(
        NodeConstraints(node_selector=((ZONE, "a"),)),
        {"nodeSelector": {ZONE: "a"}},
        node("a", labels={ZONE: "a"}),
        node("b", labels={ZONE: "b"}),
    ),
    "affinity": Example(
        NodeConstraints(affinity=IN_A),
        {
            "affinity": {
                "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": REQUIRED}
            }
        },
        node("a", labels={ZONE: "a"}),
        node("b", labels={ZONE: "b"}),
    ),
    "tolerations": Example(
        NodeConstraints(tolerations=(Toleration("only", "Exists"),)),
        {"tolerations": [{"key": "only", "operator": "Exists"}]},
        node("a", taints=(Taint("only", "", Effect.NO_SCHEDULE),)),
        node("b", taints=(Taint("other", "", Effect.NO_SCHEDULE),)),
    ),
    "volumes": Example(
        NodeConstraints(volumes=(VolumeTopology(IN_A),)),
        None,
        node("a", labels={ZONE: "a"}),
        node("b", labels={ZONE: "b"}),
    ),
    "system": Example(
        NodeConstraints(system=((OS_LABEL, "windows"),)),
        {"os": {"name": "windows"}},
        node("a", labels={OS_LABEL: "windows"}),
        node("b", labels={OS_LABEL: "linux"}),
    ),
    "features": Example(
        NodeConstraints(features=(RESTARTS_ALL,)),
        {"containers": [RESTARTING]},
        Node(name="a", features=(RESTARTS_ALL,), allocatable=Resources(1, 1)),
        node("b"),
    ),
    "extended": Example(
        NodeConstraints(extended=("example.com/gpu",)),
        {
            "containers": [
                {"name": "main", "resources": {"requests": {"example.com/gpu": "1"}}},
            ]
        },
        node("a", extended=(("example.com/gpu", 1),)),
        node("b"),
    ),
}
DEFINE_NO_REACH: Final = {"tolerations", "volumes"}
NOT_CHARGED: Final = {
    "volumes": "claims are charged instead",
    "features": "a pod asks for at most the ASKED_FEATURES",
    "extended": "the number of resources in the requests is limited",
}
NOT_IN_TEMPLATES: Final = {
    "volumes": "expected pods have no claims",
    "extended": "pod_spec writes them as requests",
    "features": "the API derives them from fields that a template of Ebb does not set",
}

REFUSE_WITHOUT_FIELD: Final = {"cordoned", "volume-zone"}
"""Filters that no example can show: they refuse nodes for pods without constraints, or read a
part of a field."""

every_field = pytest.mark.parametrize("field", [one.name for one in fields(NodeConstraints)])


def example(field: str) -> Example:
    assert field in EXAMPLES, f"add an example of NodeConstraints.{field} to EXAMPLES"
    return EXAMPLES[field]


@every_field
def test_field_is_decoded_from_pod(field: str) -> None:
    wanted, spec, _, _ = example(field)
    if spec is not None:
        made = pod_object("p")
        made["spec"] |= spec
        decoded = PODS.decode(orjson.dumps(made))
        assert decoded is not None
        assert decoded.node_constraints == wanted, f"kube/decode does not set {field}"


@every_field
def test_filter_reads_field(field: str) -> None:
    constraints, _, admitting, refusing = example(field)
    assert first_failing_filter(admitting, constraints) is None
    assert first_failing_filter(refusing, constraints), f"no filter of FILTERS reads {field}"


@every_field
def test_reach_is_named_by_field(field: str) -> None:
    constraints, _, admitting, refusing = example(field)
    nodes = [replace(admitting, name="c"), admitting, refusing]
    reaches = Reaches(nodes, {constraints: [[pod("p", None, 1, 1)]]})
    if field not in DEFINE_NO_REACH:
        (reach,) = reaches.all
        assert reach.nodes == (0, 1)
        assert reach.name != GENERAL, f"Filter.parts of its filter returns no text for {field}"


@every_field
def test_tenant_is_charged_for_field(field: str) -> None:
    many: Any = getattr(example(field).constraints, field) * 100
    cost = _requirements_of_nodes(NodeConstraints(**{field: many}))
    message = f"core/cluster/tenant_limits.py does not charge a namespace for {field}"
    assert (cost > 0) is (field not in NOT_CHARGED), message


@every_field
def test_template_of_expected_pods_has_field(field: str) -> None:
    written = pod_spec(Resources(1, 1), example(field).constraints)
    message = f"pod_spec of core/writes/capacity_buffers.py does not write {field}"
    is_written = written != pod_spec(Resources(1, 1), NodeConstraints())
    assert is_written is (field not in NOT_IN_TEMPLATES), message


def test_every_filter_reads_a_field_of_an_example() -> None:
    reading = {
        one.name
        for one in FILTERS
        for constraints, _, admitting, refusing in EXAMPLES.values()
        if any(not one.admits(found, constraints) for found in (admitting, refusing))
    }
    others = {one.name for one in FILTERS} - reading
    assert others <= REFUSE_WITHOUT_FIELD, "add an example, or the filter to REFUSE_WITHOUT_FIELD"
