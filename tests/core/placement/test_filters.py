from dataclasses import replace

import pytest

from core.model.constraints import NodeConstraints, Requirement, SelectorTerm, Toleration
from core.model.node import Node, Taint
from core.placement.filters import first_failing_filter
from core.placement.matching import tolerates
from core.placement.reaches import Reaches
from tests.support import kube_json
from tests.support.builders import node, pod
from tests.support.kube_json import Json

ZONE_A = {"zone": "a", "cores": "8"}


def affine(*requirements: Requirement, fields: tuple[Requirement, ...] = ()) -> NodeConstraints:
    return NodeConstraints(affinity=(SelectorTerm(requirements, fields),))


@pytest.mark.parametrize(
    ("place", "node_constraints", "name"),
    [
        pytest.param(node("n"), NodeConstraints(), None, id="no constraints"),
        pytest.param(node("n", unschedulable=True), NodeConstraints(), "cordoned", id="cordon"),
        pytest.param(
            node("n", unschedulable=True),
            NodeConstraints(
                tolerations=(Toleration("node.kubernetes.io/unschedulable", "Exists"),)
            ),
            None,
            id="cordon tolerated",
        ),
        pytest.param(
            node("n", taints=(Taint("k", "v", "NoSchedule"),)),
            NodeConstraints(),
            "taint",
            id="taint",
        ),
        pytest.param(
            node("n", taints=(Taint("k", "v", "NoExecute"),)),
            NodeConstraints(),
            "taint",
            id="no execute",
        ),
        pytest.param(
            node("n", taints=(Taint("k", "v", "PreferNoSchedule"),)),
            NodeConstraints(),
            None,
            id="PreferNoSchedule admits all",
        ),
        pytest.param(
            node("n", labels=ZONE_A),
            NodeConstraints(node_selector=(("zone", "a"),)),
            None,
            id="selector",
        ),
        pytest.param(
            node("n", labels=ZONE_A),
            NodeConstraints(node_selector=(("zone", "a"), ("disk", "ssd"))),
            "node-selector",
            id="all labels of a selector must match",
        ),
        pytest.param(
            node("n"), NodeConstraints(affinity=()), "node-affinity", id="no terms match no node"
        ),
        pytest.param(node("n"), affine(), "node-affinity", id="an empty term matches nothing"),
        pytest.param(
            node("n", labels=ZONE_A),
            NodeConstraints(
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
            id="all requirements of a term must match",
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
def test_first_failing_filter_is_named(
    place: Node, node_constraints: NodeConstraints, name: str | None
) -> None:
    assert first_failing_filter(place, node_constraints) == name


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
def test_operator_matches_label(
    operator: str, values: tuple[str, ...], with_label: bool, without: bool
) -> None:
    node_constraints = affine(Requirement("cores", operator, values))
    assert (first_failing_filter(node("n", labels=ZONE_A), node_constraints) is None) == with_label
    assert (first_failing_filter(node("n"), node_constraints) is None) == without


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
def test_toleration_covers_taint(toleration: Toleration, covers: bool) -> None:
    assert tolerates(toleration, TAINT) == covers


RESTART_ALL = {"restartPolicyRules": [{"action": "Restart"}, {"action": "RestartAllContainers"}]}
RESTART = {"restartPolicyRules": [{"action": "Restart"}]}


def mounting(options: list[str] | None) -> Json:
    return {"volumeMounts": [{"name": "a"}, {"name": "b", "bindMountOptions": options}]}


@pytest.mark.parametrize(
    ("spec", "feature"),
    [
        ({"containers": [{}, RESTART_ALL]}, "RestartAllContainersOnContainerExits"),
        ({"initContainers": [RESTART_ALL]}, "RestartAllContainersOnContainerExits"),
        ({"hostNetwork": True, "hostUsers": False}, "UserNamespacesHostNetworkSupport"),
        ({"containers": [RESTART], "initContainers": None}, None),
        ({"containers": [{"restartPolicyRules": None}]}, None),
        ({"containers": [{}, mounting(["noexec"])]}, "VolumeBindMountOptions"),
        ({"initContainers": [mounting(["nodev", "nosuid"])]}, "VolumeBindMountOptions"),
        ({"containers": [mounting([])], "initContainers": [mounting(None)]}, None),
        ({"containers": [{"args": ['"bindMountOptions"'], "volumeMounts": [{}]}]}, None),
        ({"containers": [{"args": ["bindMountOptions"]}], "initContainers": [{}]}, None),
        ({"hostNetwork": True}, None),
        ({"hostNetwork": True, "hostUsers": True}, None),
        ({"hostUsers": False}, None),
    ],
)
def test_node_must_declare_features_that_pod_needs(spec: Json, feature: str | None) -> None:
    """As in NodeDeclaredFeatures of kube-scheduler. Other declared features are ignored."""
    node_constraints = kube_json.pod(
        **{f"spec__{field}": given for field, given in spec.items()}
    ).node_constraints
    declared = {
        "nothing": kube_json.node(spec__taints=[]),
        "null": kube_json.node(spec__taints=[], status__declaredFeatures=None),
        "other": kube_json.node(spec__taints=[], status__declaredFeatures=["Other"]),
    }
    for found in declared.values():
        assert first_failing_filter(found, node_constraints) == (feature and "declared-features")
    assert len(set(map(repr, declared.values()))) == 1
    able = kube_json.node(spec__taints=[], status__declaredFeatures=["Other", feature or "X"])
    assert first_failing_filter(able, node_constraints) is None


def test_pod_with_feature_and_os_has_both_constraints() -> None:
    spec = {"spec__containers": [RESTART_ALL], "spec__os": {"name": "windows"}}
    found = kube_json.pod(**spec).node_constraints
    assert (found.system, len(found.features)) == ((("kubernetes.io/os", "windows"),), 1)
    assert kube_json.pod(**spec).node_constraints is found


def test_pods_that_need_feature_have_their_own_reach() -> None:
    able = [replace(node(f"n{number}"), features=("F",)) for number in range(2)]
    nodes = [*able, node("n2")]
    all_constraints = (NodeConstraints(), NodeConstraints(features=("F",)))
    groups = {one: [[pod("p", None, 1, 1, node_constraints=one)]] for one in all_constraints}
    found = {one.name: one.nodes for one in Reaches(nodes, groups).all}
    assert found == {"general": (0, 1, 2), "declares F": (0, 1)}
