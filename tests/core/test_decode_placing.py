"""What a pod asks of its surroundings, as JSON, to the model."""

import pytest

from core.model import (
    ANYWHERE,
    Placing,
    PodSelector,
    Requirement,
    SelectorTerm,
    Toleration,
)
from tests.support.kube_json import MISSING, Json, pod

TERM = {
    "topologyKey": "kubernetes.io/hostname",
    "labelSelector": {
        "matchLabels": {"app": "web"},
        "matchExpressions": [{"key": "tier", "operator": "Exists"}],
    },
}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
APP_IS_WEB = Requirement("app", "In", ("web",))
HAS_TIER = Requirement("tier", "Exists")


class TestPlacing:
    def test_what_is_read(self) -> None:
        terms = [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]},
            {"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["b", "a"]}]},
        ]
        found = pod(
            spec__nodeSelector={"b": "2", "a": "1"},
            spec__affinity={"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}},
            spec__tolerations=[{"operator": "Exists"}, {"key": "k", "tolerationSeconds": 300}],
        ).placing
        assert found.node_selector == (("a", "1"), ("b", "2"))
        assert set(found.affinity or ()) == {
            SelectorTerm(fields=(Requirement("metadata.name", "In", ("n1",)),)),
            SelectorTerm(labels=(Requirement("zone", "NotIn", ("a", "b")),)),
        }
        assert set(found.tolerations) == {Toleration("", "Exists"), Toleration("k", "Equal")}

    def test_pods_of_one_template_share_it_in_whatever_order_it_is_written(self) -> None:
        one, other = {"key": "a", "operator": "Exists"}, {"key": "b", "operator": "Exists"}
        first = pod(spec__tolerations=[one, other], spec__nodeSelector={"x": "1", "y": "2"})
        second = pod(spec__tolerations=[other, one, one], spec__nodeSelector={"y": "2", "x": "1"})
        assert first.placing is second.placing
        assert first.requests is second.requests
        assert first.labels is second.labels

    def test_nothing_asked(self) -> None:
        nothing = {"spec__affinity": None, "spec__tolerations": None, "spec__nodeSelector": None}
        assert pod(**nothing).placing == pod(spec__affinity={}).placing == ANYWHERE

    def test_affinity_without_terms_matches_no_node(self) -> None:
        affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": None}}}
        assert pod(spec__affinity=affinity).placing == Placing(affinity=())

    def test_preferences_are_no_constraint(self) -> None:
        affinity = {
            "nodeAffinity": {PREFERRED: [{"weight": 1, "preference": {}}]},
            "podAntiAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": TERM}]},
        }
        found = pod(spec__affinity=affinity)
        assert (found.placing, found.unsupported, found.repels) == (ANYWHERE, (), ())

    def test_a_daemon_that_has_a_node_is_not_placed_but_still_repels(self) -> None:
        owner = [{"kind": "DaemonSet", "name": "d", "controller": True}]
        affinity = {
            "nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchFields": []}]}},
            "podAntiAffinity": {REQUIRED: [TERM]},
        }
        found = pod(metadata__ownerReferences=owner, spec__affinity=affinity)
        assert found.placing == ANYWHERE
        assert found.repels
        waiting = pod(
            metadata__ownerReferences=owner, spec__affinity=affinity, spec__nodeName=MISSING
        )
        assert waiting.placing.affinity == (SelectorTerm(),)

    @pytest.mark.parametrize(
        ("term", "selector"),
        [
            (TERM, PodSelector(("shop",), (APP_IS_WEB, HAS_TIER))),
            (TERM | {"namespaces": ["b", "a"]}, PodSelector(("a", "b"), (APP_IS_WEB, HAS_TIER))),
            (TERM | {"namespaceSelector": {}}, PodSelector(None, (APP_IS_WEB, HAS_TIER))),
            ({"labelSelector": {}}, PodSelector(("shop",), ())),
            ({"labelSelector": None}, None),
        ],
    )
    def test_whom_it_repels(self, term: Json, selector: PodSelector | None) -> None:
        found = pod(spec__affinity={"podAntiAffinity": {REQUIRED: [term]}})
        assert found.repels == (() if selector is None else (selector,))
        assert found.unsupported == ("spec.affinity.podAntiAffinity",)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"affinity": {"podAffinity": {REQUIRED: [TERM]}}}, "spec.affinity.podAffinity"),
        (
            {"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}]},
            "spec.topologySpreadConstraints",
        ),
        ({"topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway"}]}, None),
        (
            {"containers": [{"ports": [{"containerPort": 1}, {"hostPort": 80}]}]},
            "spec.containers.ports.hostPort",
        ),
        (
            {"initContainers": [{"ports": [{"hostPort": 80}]}]},
            "spec.initContainers.ports.hostPort",
        ),
        ({"containers": [{"ports": [{"containerPort": 80}]}]}, None),
        (
            {"hostNetwork": True, "containers": [{"ports": [{"containerPort": 80}]}]},
            "spec.containers.ports",
        ),
        ({"hostNetwork": True}, None),
        ({"volumes": [{"persistentVolumeClaim": {"claimName": "c"}}]}, "spec.volumes"),
        ({"volumes": [{"name": "a", "emptyDir": {}}, {"ephemeral": {}}]}, "spec.volumes"),
        ({"volumes": [{"awsElasticBlockStore": {"volumeID": "v"}}]}, "spec.volumes"),
        ({"volumes": [{"configMap": {}, "persistentVolumeClaim": None}]}, None),
        ({"resourceClaims": [{"name": "gpu"}]}, "spec.resourceClaims"),
        ({"schedulerName": "volcano"}, "spec.schedulerName"),
        ({"schedulerName": "default-scheduler"}, None),
        ({"volumes": None, "resourceClaims": [], "topologySpreadConstraints": None}, None),
    ],
)
def test_what_the_engine_cannot_evaluate_is_named(changes: Json, field: str | None) -> None:
    found = pod(**{f"spec__{name}": value for name, value in changes.items()})
    assert found.unsupported == (() if field is None else (field,))
