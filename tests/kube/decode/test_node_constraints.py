"""Decode the scheduling constraints of Pods from JSON into the model."""

import pytest

from core.model.constraints import (
    NO_NODE_CONSTRAINTS,
    NO_POD_CONSTRAINTS,
    HostPort,
    NamespaceChoice,
    NodeConstraints,
    PodAffinityTerm,
    PodConstraints,
    PodSelector,
    Requirement,
    SelectorTerm,
    SpreadConstraint,
    Toleration,
)
from tests.support.kube_json import MISSING, Json, pod

HOST = "kubernetes.io/hostname"
A = {"team": "a"}
TERM = {
    "topologyKey": HOST,
    "labelSelector": {
        "matchLabels": {"app": "web"},
        "matchExpressions": [{"key": "tier", "operator": "Exists"}],
    },
}
SPREAD = {
    "maxSkew": 1,
    "topologyKey": "zone",
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": {"app": "web"}},
}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
APP_IS_WEB = Requirement("app", "In", ("web",))
HAS_TIER = Requirement("tier", "Exists")


class TestNodeConstraints:
    def test_selector_affinity_and_tolerations_are_decoded(self) -> None:
        terms = [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]},
            {"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["b", "a"]}]},
        ]
        found = pod(
            spec__nodeSelector={"b": "2", "a": "1"},
            spec__affinity={"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}},
            spec__tolerations=[{"operator": "Exists"}, {"key": "k", "tolerationSeconds": 300}],
        ).node_constraints
        assert found.node_selector == (("a", "1"), ("b", "2"))
        assert set(found.affinity or ()) == {
            SelectorTerm(fields=(Requirement("metadata.name", "In", ("n1",)),)),
            SelectorTerm(labels=(Requirement("zone", "NotIn", ("a", "b")),)),
        }
        assert set(found.tolerations) == {Toleration("", "Exists"), Toleration("k", "Equal")}

    @pytest.mark.parametrize(
        ("given", "node_constraints"),
        [
            (
                {"spec__os": {"name": "windows"}},
                NodeConstraints(system=(("kubernetes.io/os", "windows"),)),
            ),
            ({"spec__os": {}}, NO_NODE_CONSTRAINTS),
            (
                {
                    "spec__os": {"name": "windows"},
                    "spec__nodeSelector": {"kubernetes.io/os": "windows"},
                },
                NodeConstraints(node_selector=(("kubernetes.io/os", "windows"),)),
            ),
            ({"spec__os": None}, NO_NODE_CONSTRAINTS),
            (
                {
                    "spec__os": {"name": "windows"},
                    "spec__nodeSelector": {"kubernetes.io/os": "linux"},
                },
                NodeConstraints(
                    node_selector=(("kubernetes.io/os", "linux"),),
                    system=(("kubernetes.io/os", "windows"),),
                ),
            ),
        ],
    )
    def test_pod_os_becomes_node_constraint(
        self, given: Json, node_constraints: NodeConstraints
    ) -> None:
        """A kubelet on another OS would reject the pod; no node satisfies two different OSes."""
        assert pod(**given).node_constraints == node_constraints

    def test_node_constraints_are_shared_when_their_order_differs(self) -> None:
        one, other = {"key": "a", "operator": "Exists"}, {"key": "b", "operator": "Exists"}
        first = pod(spec__tolerations=[one, other], spec__nodeSelector={"x": "1", "y": "2"})
        second = pod(spec__tolerations=[other, one, one], spec__nodeSelector={"y": "2", "x": "1"})
        assert first.node_constraints is second.node_constraints
        assert first.requests is second.requests
        assert first.labels is second.labels

    def test_node_constraints_are_empty_when_fields_are_null(self) -> None:
        nothing = {"spec__affinity": None, "spec__tolerations": None, "spec__nodeSelector": None}
        assert (
            pod(**nothing).node_constraints
            == pod(spec__affinity={}).node_constraints
            == NO_NODE_CONSTRAINTS
        )

    def test_node_affinity_matches_no_node_when_it_has_no_terms(self) -> None:
        affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": None}}}
        assert pod(spec__affinity=affinity).node_constraints == NodeConstraints(affinity=())

    def test_preferred_terms_are_ignored(self) -> None:
        affinity = {
            "nodeAffinity": {PREFERRED: [{"weight": 1, "preference": {}}]},
            "podAntiAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": TERM}]},
        }
        found = pod(spec__affinity=affinity)
        assert (found.node_constraints, found.unsupported) == (NO_NODE_CONSTRAINTS, ())
        assert found.pod_constraints is NO_POD_CONSTRAINTS

    def test_bound_daemon_pod_has_only_constraints_on_other_pods(self) -> None:
        owner = [{"kind": "DaemonSet", "name": "d", "controller": True}]
        changes: Json = {
            "metadata__ownerReferences": owner,
            "spec__affinity": {
                "nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchFields": []}]}},
                "podAffinity": {REQUIRED: [TERM]},
                "podAntiAffinity": {REQUIRED: [TERM | {"namespaceSelector": {"matchLabels": A}}]},
            },
            "spec__containers__0__ports": [{"hostPort": 80}],
        }
        found = pod(**changes)
        assert (found.node_constraints, found.unsupported) == (NO_NODE_CONSTRAINTS, ())
        chosen = NamespaceChoice((), (Requirement("team", "In", ("a",)),))
        apart = PodAffinityTerm(PodSelector(None, (APP_IS_WEB, HAS_TIER)), HOST, chosen)
        assert found.pod_constraints == PodConstraints(apart=(apart,), host_ports=(HostPort(80),))
        waiting = pod(**changes, spec__nodeName=MISSING)
        assert waiting.node_constraints.affinity == (SelectorTerm(),)
        assert waiting.pod_constraints.near
        changes["spec__affinity"] = {"nodeAffinity": {}}
        changes["spec__containers__0__ports"] = None
        assert pod(**changes).pod_constraints is NO_POD_CONSTRAINTS


class TestPodConstraints:
    @pytest.mark.parametrize("kind", ["podAffinity", "podAntiAffinity"])
    @pytest.mark.parametrize(
        ("term", "selector"),
        [
            (TERM, PodSelector(("shop",), (APP_IS_WEB, HAS_TIER))),
            (TERM | {"namespaces": ["b", "a"]}, PodSelector(("a", "b"), (APP_IS_WEB, HAS_TIER))),
            (TERM | {"namespaceSelector": {}}, PodSelector(None, (APP_IS_WEB, HAS_TIER))),
            (TERM | {"labelSelector": {}}, PodSelector(("shop",), ())),
            (TERM | {"labelSelector": None}, PodSelector((), ())),
        ],
    )
    def test_pod_affinity_terms_are_decoded(
        self, kind: str, term: Json, selector: PodSelector
    ) -> None:
        found = pod(spec__affinity={kind: {REQUIRED: [term, term]}})
        terms = (PodAffinityTerm(selector, HOST),)
        near, apart = (terms, ()) if kind == "podAffinity" else ((), terms)
        assert found.pod_constraints == PodConstraints(near=near, apart=apart)
        assert found.unsupported == ()

    @pytest.mark.parametrize("kind", ["podAffinity", "podAntiAffinity"])
    @pytest.mark.parametrize(
        ("changes", "field"),
        [
            ({"namespaceSelector": {"matchLabels": A}}, "namespaceSelector"),
            ({"namespaceSelector": {"matchExpressions": [{"key": "a"}]}}, "namespaceSelector"),
            ({"labelSelector": {"matchExpressions": [{"operator": "Gt"}]}}, "labelSelector"),
        ],
    )
    def test_unsupported_pod_affinity_terms_are_named(
        self, kind: str, changes: Json, field: str
    ) -> None:
        """An unsupported anti-affinity term still repels pods, with its widest meaning."""
        found = pod(spec__affinity={kind: {REQUIRED: [TERM | changes]}})
        assert found.unsupported == (f"spec.affinity.{kind}.{field}",)
        if kind == "podAntiAffinity":
            (term,) = found.pod_constraints.apart
            assert (term.selector.namespaces is None) == (field == "namespaceSelector")

    def test_spread_constraints_are_decoded(self) -> None:
        least = SpreadConstraint(PodSelector(("shop",), (APP_IS_WEB,)), "zone", 1)
        every = {
            "minDomains": 3,
            "nodeAffinityPolicy": "Ignore",
            "nodeTaintsPolicy": "Honor",
        }
        found = pod(
            spec__topologySpreadConstraints=[
                SPREAD | {"maxSkew": 2, "topologyKey": HOST} | every,
                SPREAD,
                SPREAD | {"whenUnsatisfiable": "ScheduleAnyway"},
                SPREAD | {"whenUnsatisfiable": "ScheduleAnyway", "maxSkew": 0},
            ]
        )
        other = SpreadConstraint(
            least.selector, HOST, 2, 3, honor_affinity=False, honor_taints=True
        )
        assert set(found.pod_constraints.spread) == {least, other}
        assert found.soft_spread == (least,), "the other cannot be evaluated"
        assert found.unsupported == ()

    def test_spread_selector_includes_own_values_of_match_label_keys(self) -> None:
        keyed = SPREAD | {"matchLabelKeys": ["pod-template-hash", "absent"]}
        labels = {"app": "web", "pod-template-hash": "1"}
        found = pod(metadata__labels=labels, spec__topologySpreadConstraints=[keyed])
        (one,) = found.pod_constraints.spread
        own = Requirement("pod-template-hash", "In", ("1",))
        assert set(one.selector.requirements) == {APP_IS_WEB, own}
        other = pod(
            metadata__labels=labels | {"pod-template-hash": "2"},
            spec__topologySpreadConstraints=[keyed],
        )
        assert other.pod_constraints != found.pod_constraints
        (one,) = pod(
            metadata__labels=labels,
            spec__topologySpreadConstraints=[keyed | {"labelSelector": None}],
        ).pod_constraints.spread
        assert one.selector == PodSelector(("shop",), (own,))

    @pytest.mark.parametrize("selector", [None, {}, {"matchLabels": {}}])
    def test_spread_counts_no_pods_when_selector_is_empty(self, selector: Json) -> None:
        constraints = [SPREAD | {"labelSelector": selector}]
        (one,) = pod(spec__topologySpreadConstraints=constraints).pod_constraints.spread
        assert one.selector == PodSelector((), ())

    @pytest.mark.parametrize(
        ("changes", "field"),
        [
            ({"whenUnsatisfiable": "Perhaps"}, "whenUnsatisfiable"),
            ({"whenUnsatisfiable": None}, "whenUnsatisfiable"),
            ({"maxSkew": 0}, "maxSkew"),
            ({"maxSkew": None}, "maxSkew"),
            ({"minDomains": 0}, "minDomains"),
            ({"nodeAffinityPolicy": "Perhaps"}, "nodeAffinityPolicy"),
            ({"nodeTaintsPolicy": "Perhaps"}, "nodeTaintsPolicy"),
            ({"labelSelector": {"matchExpressions": [{"operator": "Lt"}]}}, "labelSelector"),
        ],
    )
    def test_unsupported_spread_field_is_named(self, changes: Json, field: str) -> None:
        found = pod(spec__topologySpreadConstraints=[SPREAD | changes])
        assert found.unsupported == (f"spec.topologySpreadConstraints.{field}",)

    @pytest.mark.parametrize(
        ("changes", "ports"),
        [
            ({"containers": [{"ports": [{"containerPort": 80}]}]}, ()),
            ({"containers": [{"ports": [{"hostPort": 80}, {}]}]}, (HostPort(80),)),
            (
                {"containers": [{"ports": [{"hostPort": 9, "protocol": "UDP", "hostIP": "::1"}]}]},
                (HostPort(9, "UDP", "::1"),),
            ),
            (
                {"hostNetwork": True, "containers": [{"ports": [{"containerPort": 80}]}]},
                (HostPort(80),),
            ),
            ({"hostNetwork": True}, ()),
            ({"initContainers": [{"ports": [{"hostPort": 80}]}]}, ()),
            (
                {"initContainers": [{"restartPolicy": "Always", "ports": [{"hostPort": 80}]}]},
                (HostPort(80),),
            ),
            (
                {"containers": [{"ports": [{"hostPort": 9}]}, {"ports": [{"hostPort": 8}]}]},
                (HostPort(8), HostPort(9)),
            ),
        ],
    )
    def test_host_ports_are_decoded(self, changes: Json, ports: tuple[HostPort, ...]) -> None:
        found = pod(**{f"spec__{name}": value for name, value in changes.items()})
        assert set(found.pod_constraints.host_ports) == set(ports)
        assert found.unsupported == ()

    def test_pod_constraints_are_shared_when_their_order_differs(self) -> None:
        first = pod(spec__topologySpreadConstraints=[SPREAD, SPREAD | {"topologyKey": HOST}])
        second = pod(
            metadata__labels={"app": "other"},
            spec__topologySpreadConstraints=[SPREAD | {"topologyKey": HOST}, SPREAD],
        )
        assert first.pod_constraints is second.pod_constraints

    def test_pod_is_terminating_when_it_has_deletion_timestamp(self) -> None:
        assert pod(metadata__deletionTimestamp="2026-01-01T00:00:00Z").terminating
        assert not pod().terminating


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway"}]}, None),
        ({"volumes": [{"awsElasticBlockStore": {"volumeID": "v"}}]}, "spec.volumes"),
        ({"volumes": [{"configMap": {}, "persistentVolumeClaim": None}]}, None),
        ({"resourceClaims": [{"name": "gpu"}]}, "spec.resourceClaims"),
        ({"schedulerName": "volcano"}, "spec.schedulerName"),
        ({"schedulerName": "default-scheduler"}, None),
        ({"schedulerName": "gke.io/optimize-utilization-scheduler"}, None),
        ({"volumes": None, "resourceClaims": [], "topologySpreadConstraints": None}, None),
    ],
)
def test_unsupported_field_is_named(changes: Json, field: str | None) -> None:
    found = pod(**{f"spec__{name}": value for name, value in changes.items()})
    assert found.unsupported == (() if field is None else (field,))


def test_tolerations_of_daemon_pod_are_decoded() -> None:
    """NoSchedule marks need them. Other node constraints are dropped: the pod never moves."""
    found = pod(
        metadata__ownerReferences=[{"kind": "DaemonSet", "name": "d", "controller": True}],
        spec__nodeSelector={"a": "b"},
        spec__tolerations=[{"key": "x", "operator": "Exists"}],
    )
    assert found.node_constraints == NodeConstraints(
        tolerations=(Toleration(key="x", operator="Exists"),)
    )


UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}


@pytest.mark.parametrize(
    ("node", "conditions", "unschedulable"),
    [
        (MISSING, [UNSCHEDULABLE], True),
        (MISSING, [{**UNSCHEDULABLE, "reason": "SchedulingGated"}], False),
        (MISSING, [{**UNSCHEDULABLE, "status": "True"}], False),
        (MISSING, [], False),
        (MISSING, None, False),
        ("n1", [UNSCHEDULABLE], False),
    ],
)
def test_pod_is_unschedulable_when_scheduler_reports_it(
    node: object, conditions: object, unschedulable: bool
) -> None:
    found = pod(spec__nodeName=node, status__conditions=conditions)
    assert found.unschedulable is unschedulable
