import pytest

from core.fit.rules import refusal, tolerates
from core.model.constraints import Placing, Requirement, SelectorTerm, Toleration
from core.model.node import Node, Taint
from tests.support.builders import node

ZONE_A = {"zone": "a", "cores": "8"}


def affine(*requirements: Requirement, fields: tuple[Requirement, ...] = ()) -> Placing:
    return Placing(affinity=(SelectorTerm(requirements, fields),))


@pytest.mark.parametrize(
    ("place", "placing", "rule"),
    [
        pytest.param(node("n"), Placing(), None, id="nothing asked"),
        pytest.param(node("n", unschedulable=True), Placing(), "cordoned", id="cordon"),
        pytest.param(
            node("n", unschedulable=True),
            Placing(tolerations=(Toleration("node.kubernetes.io/unschedulable", "Exists"),)),
            None,
            id="cordon tolerated",
        ),
        pytest.param(
            node("n", taints=(Taint("k", "v", "NoSchedule"),)), Placing(), "taint", id="taint"
        ),
        pytest.param(
            node("n", taints=(Taint("k", "v", "NoExecute"),)), Placing(), "taint", id="no execute"
        ),
        pytest.param(
            node("n", taints=(Taint("k", "v", "PreferNoSchedule"),)),
            Placing(),
            None,
            id="a preference refuses nobody",
        ),
        pytest.param(
            node("n", labels=ZONE_A),
            Placing(node_selector=(("zone", "a"),)),
            None,
            id="selector",
        ),
        pytest.param(
            node("n", labels=ZONE_A),
            Placing(node_selector=(("zone", "a"), ("disk", "ssd"))),
            "node-selector",
            id="every label of a selector counts",
        ),
        pytest.param(node("n"), Placing(affinity=()), "node-affinity", id="no term, no node"),
        pytest.param(node("n"), affine(), "node-affinity", id="an empty term matches nothing"),
        pytest.param(
            node("n", labels=ZONE_A),
            Placing(
                affinity=(
                    SelectorTerm((Requirement("zone", "In", ("b",)),)),
                    SelectorTerm((Requirement("zone", "In", ("a",)),)),
                )
            ),
            None,
            id="any term suffices",
        ),
        pytest.param(
            node("n", labels=ZONE_A),
            affine(Requirement("zone", "Exists"), Requirement("zone", "NotIn", ("a",))),
            "node-affinity",
            id="all requirements of a term count",
        ),
        pytest.param(
            node("n"),
            affine(fields=(Requirement("metadata.name", "In", ("n",)),)),
            None,
            id="by name",
        ),
        pytest.param(
            node("m"),
            affine(fields=(Requirement("metadata.name", "In", ("n",)),)),
            "node-affinity",
            id="by another name",
        ),
    ],
)
def test_refusal(place: Node, placing: Placing, rule: str | None) -> None:
    assert refusal(place, placing) == rule


@pytest.mark.parametrize(
    ("operator", "values", "with_label", "without"),
    [
        ("In", ("8", "9"), True, False),
        ("In", ("9",), False, False),
        ("NotIn", ("8",), False, True),
        ("NotIn", ("9",), True, True),
        ("Exists", (), True, False),
        ("DoesNotExist", (), False, True),
        ("Gt", ("7",), True, False),
        ("Gt", ("8",), False, False),
        ("Lt", ("9",), True, False),
        ("Lt", ("8",), False, False),
        ("Gt", ("many",), False, False),
        ("Gt", (), False, False),
        ("Gt", ("1", "2"), False, False),
        ("Like", ("8",), False, False),
    ],
)
def test_operators(
    operator: str, values: tuple[str, ...], with_label: bool, without: bool
) -> None:
    placing = affine(Requirement("cores", operator, values))
    assert (refusal(node("n", labels=ZONE_A), placing) is None) == with_label
    assert (refusal(node("n"), placing) is None) == without


TAINT = Taint("k", "v", "NoSchedule")


@pytest.mark.parametrize(
    ("toleration", "covers"),
    [
        (Toleration("k", "Equal", "v", "NoSchedule"), True),
        (Toleration("k", "", "v"), True),
        (Toleration("k", "Equal", "w"), False),
        (Toleration("k", "Exists"), True),
        (Toleration("", "Exists"), True),
        (Toleration("", "Equal", "v"), False),
        (Toleration("k", "Exists", "", "NoExecute"), False),
        (Toleration("j", "Exists"), False),
        (Toleration("k", "Like", "v"), False),
    ],
)
def test_toleration(toleration: Toleration, covers: bool) -> None:
    assert tolerates(toleration, TAINT) == covers
