"""Which terms of node affinity kube-scheduler can parse, as its table of NodeAffinity has them."""

import pytest

from core.model.constraints import Requirement, SelectorTerm
from tests.support.kube_json import Json, pod

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
FINE = {"key": "zone", "operator": "Exists"}
FINE_TERM = SelectorTerm((Requirement("zone", "Exists"),))


def terms(*terms: Json) -> set[SelectorTerm]:
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [*terms]}}}
    return set(pod(spec__affinity=affinity).node_constraints.affinity or ())


@pytest.mark.parametrize(
    ("operator", "values"),
    [
        ("In", ["team a/b"]),
        ("NotIn", ["team a/b"]),
        ("NotIn", ["fine", "-"]),
        ("In", ["a" * 64]),
        ("In", ["ä"]),
        ("In", ["a\n"]),
        ("In", []),
        ("NotIn", None),
        ("Exists", ["a"]),
        ("DoesNotExist", ["a"]),
        ("Gt", []),
        ("Gt", ["1", "1"]),
        ("Gt", ["1", "2"]),
        ("Gt", ["a"]),
        ("Lt", ["1_0"]),
        ("Lt", ["1.5"]),
        ("Gt", ["-1"]),  # no label value
        ("Gt", ["9223372036854775808"]),
        ("in", ["a"]),
        ("", None),
    ],
)
def test_term_matches_no_node_when_an_expression_is_invalid(
    operator: str, values: list[str] | None
) -> None:
    odd = {"key": "team", "operator": operator, "values": values}
    assert terms({"matchExpressions": [odd]}) == set()
    assert terms({"matchExpressions": [FINE, odd]}) == set()
    assert terms({"matchExpressions": [odd]}, {"matchExpressions": [FINE]}) == {FINE_TERM}


@pytest.mark.parametrize(
    "key",
    ["", "a b", "-a", "a/b/c", "/a", "A.b/c", "a_b/c", "a" * 64, f"{'a' * 254}/b", "a/", "a..b/c"],
)
def test_term_matches_no_node_when_a_key_is_invalid(key: str) -> None:
    assert terms({"matchExpressions": [{"key": key, "operator": "DoesNotExist"}]}) == set()


@pytest.mark.parametrize(
    "field",
    [
        {"operator": "In", "values": []},
        {"operator": "In", "values": ["a", "b"]},
        {"operator": "NotIn", "values": None},
        {"operator": "Exists"},
        {"operator": "Gt", "values": ["1"]},
    ],
)
def test_term_matches_no_node_when_a_field_is_invalid(field: Json) -> None:
    odd = {"key": "metadata.name", **field}
    assert terms({"matchFields": [odd]}) == set()
    assert terms({"matchFields": [odd], "matchExpressions": [FINE]}) == set()


@pytest.mark.parametrize(
    ("operator", "values"),
    [
        ("In", [""]),
        ("NotIn", ["a", "b.c_d-e", "a" * 63]),
        ("Gt", ["007"]),
        ("Lt", ["9223372036854775807"]),
        ("Exists", []),
    ],
)
def test_valid_term_is_kept(operator: str, values: list[str]) -> None:
    key = f"{'a' * 253}/{'b' * 63}"
    found = terms({"matchExpressions": [{"key": key, "operator": operator, "values": values}]})
    assert found == {SelectorTerm((Requirement(key, operator, tuple(sorted(values))),))}


@pytest.mark.parametrize(
    "selector",
    [
        {"matchLabels": {"app": "no value"}},
        {"matchLabels": {"no key": "a"}},
        {"matchExpressions": [{"key": "app", "operator": "In", "values": ["no value"]}]},
        {"matchExpressions": [{"key": "app", "operator": "In", "values": []}]},
        {"matchExpressions": [{"key": "app", "operator": "Exists", "values": ["a"]}]},
    ],
)
def test_pod_is_not_evaluable_when_its_pod_affinity_is_invalid(selector: Json) -> None:
    term = {"topologyKey": "zone", "labelSelector": selector}
    found = pod(spec__affinity={"podAffinity": {REQUIRED: [term]}})
    assert found.unsupported == ("spec.affinity.podAffinity.labelSelector",)
