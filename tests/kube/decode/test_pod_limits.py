"""Limits on the constraints of one pod and of one namespace; pods beyond them do not move."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec
import pytest

from core.cluster.tenant_limits import (
    BUDGET,
    CLAIM_COST,
    COUNTED_POD_COST,
    FOREIGN_COST,
    HOST_PORT_COST,
    NODE_REQUIREMENT_COST,
    NODE_TEMPLATE_COST,
    POD_REQUIREMENT_COST,
    REQUIREMENTS_PER_COUNTED_POD,
    VALUES_PER_REQUIREMENT,
)
from core.eligibility.drainability import SAFE_TO_EVICT
from core.eligibility.unplaceable import pod_blockers
from core.engine import reconcile
from core.engine.planner import PlanOptions
from core.model.cluster import Cluster
from core.model.constraints import (
    NO_NODE_CONSTRAINTS,
    NO_POD_CONSTRAINTS,
    ClaimUse,
    DisruptionFacts,
    HostPort,
    NodeConstraints,
    PodAffinityTerm,
    PodConstraints,
    PodSelector,
    Requirement,
    SelectorTerm,
    SpreadConstraint,
    Toleration,
    VolumeTopology,
)
from core.model.errors import InvalidInputError
from core.model.node import Node
from core.model.pod import CLAIMS_FIELD, VOLUMES_FIELD, Pod
from core.model.resources import Resources
from kube.decode import kinds, pod_limits
from kube.decode.byte_lru import (
    ENTRY_BYTES,
    KEPT_BYTES_MAX,
    KEY_BYTES_MAX,
    MADE_OF_BYTE,
    ByteBoundedCache,
)
from kube.decode.disruption_facts import NOTE_CHARS_MAX
from kube.decode.objects import BLOCK_BYTES_MAX
from tests.support.builders import node, pod, select, thesis_config
from tests.support.cluster_pods import build_cluster, within_budget
from tests.support.kube_json import NODE, POD, changed, cluster_from_dumps, dump

pytestmark = pytest.mark.mutate

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def _terms(count: int) -> list[dict[str, Any]]:
    return [
        {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": f"a{n}"}}}
        for n in range(count)
    ]


def _texts(count: int) -> dict[str, str]:
    return {f"k{n}": "v" for n in range(count)}


CASES: Mapping[str, tuple[int, Any, str]] = {
    "labels": (pod_limits.LABELS_MAX, lambda n: {"metadata__labels": _texts(n)}, "labels"),
    "selector": (
        pod_limits.SELECTORS_MAX,
        lambda n: {"spec__nodeSelector": _texts(n)},
        "entries of nodeSelector",
    ),
    "node terms": (
        pod_limits.NODE_TERMS_MAX,
        lambda n: {
            "spec__affinity__nodeAffinity": {
                REQUIRED: {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": f"k{i}", "operator": "Exists"}]}
                        for i in range(n)
                    ]
                }
            }
        },
        "node affinity terms",
    ),
    "values": (
        pod_limits.VALUES_MAX,
        lambda n: {
            "spec__affinity__nodeAffinity": {
                REQUIRED: {
                    "nodeSelectorTerms": [
                        {
                            "matchExpressions": [
                                {
                                    "key": "k",
                                    "operator": "In",
                                    "values": [str(i) for i in range(n)],
                                }
                            ]
                        }
                    ]
                }
            }
        },
        "values in affinity terms",
    ),
    "near": (
        pod_limits.POD_TERMS_MAX,
        lambda n: {"spec__affinity__podAffinity": {REQUIRED: _terms(n)}},
        "pod affinity terms",
    ),
    "apart": (
        pod_limits.POD_TERMS_MAX,
        lambda n: {"spec__affinity__podAntiAffinity": {REQUIRED: _terms(n)}},
        "pod affinity terms",
    ),
    "tolerations": (
        pod_limits.TOLERATIONS_MAX,
        lambda n: {"spec__tolerations": [{"key": f"k{i}"} for i in range(n)]},
        "tolerations",
    ),
    "spread": (
        pod_limits.SPREADS_MAX,
        lambda n: {
            "spec__topologySpreadConstraints": [
                {
                    "maxSkew": 1,
                    "topologyKey": f"k{i}",
                    "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": {"matchLabels": {"app": "web"}},
                }
                for i in range(n)
            ]
        },
        "topology spread constraints",
    ),
    "ports": (
        pod_limits.HOST_PORTS_MAX,
        lambda n: {"spec__containers__0__ports": [{"hostPort": 1 + i} for i in range(n)]},
        "host ports",
    ),
    "volumes": (
        pod_limits.VOLUMES_MAX,
        lambda n: {"spec__volumes": [{"name": f"v{i}", "configMap": {}} for i in range(n)]},
        "volumes",
    ),
}


@pytest.mark.parametrize(("most", "fields", "message"), CASES.values(), ids=CASES)
def test_pod_is_evaluable_up_to_limit(most: int, fields: Any, message: str) -> None:
    within = kinds.PODS.decode(changed(POD, **fields(most)))
    beyond = kinds.PODS.decode(changed(POD, **fields(most + 1)))
    assert within is not None
    assert beyond is not None
    assert within.evaluable
    assert message in beyond.too_much
    assert (replace(beyond.pod_constraints, host_ports=()), beyond.node_constraints) == (
        NO_POD_CONSTRAINTS,
        NO_NODE_CONSTRAINTS,
    )
    assert beyond.requests == within.requests


OWN_PORT = {"spec__containers__0__ports": [{"hostPort": 80}]}
OWN_CLAIM: Any = {"name": "c", "persistentVolumeClaim": {"claimName": "c"}}
OWN_DISK: Any = {"name": "d", "awsElasticBlockStore": {"volumeID": "v"}}


@pytest.mark.parametrize("daemon", [False, True])
@pytest.mark.parametrize("case", ["tolerations", "labels", "volumes"])
def test_pod_beyond_limit_keeps_ports_and_disks(case: str, *, daemon: bool) -> None:
    most, fields, _ = CASES[case]
    requested = fields(most + 1)
    requested["spec__volumes"] = [OWN_CLAIM, OWN_DISK, *requested.get("spec__volumes", ())]
    if daemon:
        requested["metadata__ownerReferences"] = [{"kind": "DaemonSet", "controller": True}]
    found = kinds.PODS.decode(changed(POD, **OWN_PORT, **requested))
    assert found is not None
    assert found.too_much
    assert found.pod_constraints == PodConstraints(host_ports=(HostPort(80),))
    assert found.disruption_facts.claims == (ClaimUse("c"),)
    assert found.unsupported == (VOLUMES_FIELD, CLAIMS_FIELD)


@pytest.mark.parametrize("case", ["apart", "spread"])
def test_pod_keeps_ports_when_its_pod_constraints_are_beyond_limit(case: str) -> None:
    most, fields, _ = CASES[case]
    found = kinds.PODS.decode(changed(POD, **OWN_PORT, **fields(most + 1)))
    assert found is not None
    assert found.pod_constraints == PodConstraints(host_ports=(HostPort(80),))


def test_ports_and_claims_are_cut_at_limit() -> None:
    ports = [{"hostPort": 1 + n} for n in range(2 * pod_limits.HOST_PORTS_MAX)]
    volumes = [
        {"name": f"v{n}", "persistentVolumeClaim": {"claimName": f"c{n}"}}
        for n in range(2 * pod_limits.VOLUMES_MAX)
    ]
    found = kinds.PODS.decode(
        changed(POD, spec__containers__0__ports=ports, spec__volumes=volumes)
    )
    assert found is not None
    assert {one.port for one in found.pod_constraints.host_ports} == set(
        range(1, 1 + pod_limits.HOST_PORTS_MAX)
    )
    assert len(found.disruption_facts.claims) == pod_limits.VOLUMES_MAX


def test_plan_avoids_host_port_of_pod_beyond_limit() -> None:
    """n2 is fuller and would be the first target, but its pod uses the port."""
    moving = changed(POD, **OWN_PORT)
    greedy = changed(
        POD,
        metadata__name="greedy",
        spec__nodeName="n2",
        spec__tolerations=[{"key": f"k{n}"} for n in range(pod_limits.TOLERATIONS_MAX + 1)],
        **OWN_PORT,
    )
    nodes = [changed(NODE, metadata__name=name, spec=None) for name in ("n1", "n2", "n3")]
    cluster = cluster_from_dumps([("f", dump(*nodes, moving, greedy))])
    plan = reconcile.plan(cluster, thesis_config("1", "1"), PlanOptions(due=frozenset({"n1"})))
    (removal, *_) = plan.removals
    assert [(one.pod, one.node) for one in removal.placements] == [("shop/web-0", "n3")]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata__labels", {"k": "x" * BLOCK_BYTES_MAX}),
        ("spec__nodeSelector", {"k": "x" * BLOCK_BYTES_MAX}),
        ("spec__tolerations", [{"key": "x" * BLOCK_BYTES_MAX}]),
        ("spec__affinity", {"podAffinity": {"x": "x" * BLOCK_BYTES_MAX}}),
        ("spec__topologySpreadConstraints", [{"topologyKey": "x" * BLOCK_BYTES_MAX}]),
    ],
)
def test_pod_is_beyond_limit_when_one_field_is_too_long(path: str, value: Any) -> None:
    found = kinds.PODS.decode(changed(POD, **{path: value}))
    assert found is not None
    assert found.too_much


@pytest.mark.parametrize("path", ["spec__affinity__podAntiAffinity"])
def test_daemon_pod_beyond_limit_has_no_pod_constraints(path: str) -> None:
    owner = [{"kind": "DaemonSet", "name": "d", "controller": True}]
    found = kinds.PODS.decode(
        changed(POD, metadata__ownerReferences=owner, **{path: {REQUIRED: _terms(5000)}})
    )
    assert found is not None
    assert found.pod_constraints == NO_POD_CONSTRAINTS


def _devices(count: int) -> dict[str, str]:
    return {f"x.y/{n}": "1" for n in range(count)}


def test_pod_is_unreadable_when_it_requests_too_many_resources() -> None:
    def read(count: int) -> Pod:
        requested = {"cpu": "1", "memory": "1Gi", "x.y/none": "0", **_devices(count)}
        found = kinds.PODS.model_or_placeholder(
            msgspec.Raw(changed(POD, spec__containers__0__resources={"requests": requested}))
        )
        assert found is not None
        return found

    within, beyond = read(pod_limits.RESOURCES_MAX - 1), read(pod_limits.RESOURCES_MAX)
    assert (len(within.requests.extended), within.unreadable) == (pod_limits.RESOURCES_MAX - 1, "")
    assert "resources, the limit is 64" in beyond.unreadable
    assert (beyond.node, beyond.requests.extended) == ("n1", ())


@pytest.mark.parametrize("amount", ["0", "1"])
@pytest.mark.parametrize(
    ("many", "name", "message"),
    [
        (1000, "x.y", "resources, the limit is 64"),
        (1000, "x" * 100, "bytes of"),
        (2000, "x.y", "2,000 containers, the limit is 1,024"),
        (9000, "x.y", "9,000 containers, the limit is 1,024"),
    ],
)
def test_sidecar_requests_are_counted_before_they_are_summed(
    many: int, name: str, message: str, amount: str
) -> None:
    """The sum is quadratic: 3,000 sidecars with a resource each took more than a second."""
    sidecars = [
        {"restartPolicy": "Always", "resources": {"requests": {f"{name}/{number}": amount}}}
        for number in range(many)
    ]
    with pytest.raises(InvalidInputError, match=message):
        kinds.PODS.decode(changed(POD, spec__initContainers=sidecars))


def test_node_is_unreadable_when_it_offers_too_many_resources() -> None:
    def read(count: int) -> Node:
        found = kinds.NODES.model_or_placeholder(
            msgspec.Raw(changed(NODE, status__allocatable={"cpu": "4", **_devices(count)}))
        )
        assert found is not None
        return found

    within, beyond = read(pod_limits.NODE_RESOURCES_MAX - 1), read(pod_limits.NODE_RESOURCES_MAX)
    assert not within.unreadable
    assert "resources, the limit is 256" in beyond.unreadable
    assert (beyond.labels, beyond.allocatable.extended) == (within.labels, ())


def test_stored_annotations_are_truncated() -> None:
    notes = {
        SAFE_TO_EVICT: "x" * 10**5,
        "controller.kubernetes.io/pod-deletion-cost": "9" * 10**5,
        "kube-ebb.io/deletion-cost": "9" * 10**5,
    }
    found = kinds.PODS.decode(changed(POD, metadata__annotations=notes))
    assert found is not None
    assert [len(value) for _, value in found.disruption_facts.notes] == [NOTE_CHARS_MAX]
    assert found.deletion_cost == found.deletion_cost_ours == "9" * 32


def _anti_affine(name: str, namespace: str, *terms: PodAffinityTerm) -> Pod:
    pod_constraints = PodConstraints(apart=terms, host_ports=())
    return pod(name, "n1", 1, 1, namespace=namespace, pod_constraints=pod_constraints)


def _own_term(namespace: str, number: int) -> PodAffinityTerm:
    return PodAffinityTerm(select(f"a{number}", namespace), "zone")


@pytest.mark.parametrize("part", ["kind", "name"])
def test_long_owner_is_truncated_and_equal_owners_remain_equal(part: str) -> None:
    def owner(text: str) -> Pod:
        refs = [{"kind": "ReplicaSet", "name": "web", "controller": True, part: text}]
        found = kinds.PODS.decode(changed(POD, metadata__ownerReferences=refs))
        assert found is not None
        return found

    longest, more = "x" * pod_limits.OWNER_CHARS_MAX, "x" * 1_000_000
    assert getattr(owner(longest), f"owner_{part}") == longest
    found = [owner(text) for text in (more, more, f"{more}y", f"x{longest}")]
    texts = [getattr(one, f"owner_{part}") for one in found]
    assert all(len(text) <= pod_limits.OWNER_CHARS_MAX for text in texts)
    assert texts[0] == texts[1]
    assert len({*texts, longest}) == 4


SMALL: Final = 2**15
"""A budget that few pods exhaust."""
ANY_NODE: Final = NODE_TEMPLATE_COST
"""Cost of the node template of pods without node constraints."""
TERMS: Final = (SMALL - ANY_NODE) // POD_REQUIREMENT_COST
"""Number of terms that the budget covers: one requirement each, selecting no pod."""


def _beyond(pods: Sequence[Pod], budget: int = SMALL) -> list[str]:
    """Return the names of the pods that the budget does not cover, in any order of the pods."""
    found = within_budget(pods, budget)
    assert within_budget(pods[::-1], budget) == found[::-1]
    assert [one.key for one in found] == [one.key for one in pods]
    assert all(one == pod for one, pod in zip(found, pods, strict=True) if not one.too_much)
    return [one.name for one in found if one.too_much]


class TestPodTerms:
    def test_each_namespace_has_its_own_budget(self) -> None:
        greedy = [_anti_affine(f"p{n:05}", "evil", _own_term("evil", n)) for n in range(TERMS + 9)]
        tame = [_anti_affine(f"q{n}", "tame", _own_term("tame", n)) for n in range(50)]
        assert _beyond([*greedy, *tame]) == [f"p{n:05}" for n in range(TERMS, TERMS + 9)]
        assert within_budget([*greedy, *tame], SMALL)[TERMS].pod_constraints == NO_POD_CONSTRAINTS

    def test_constraints_of_most_pods_are_evaluated_first(self) -> None:
        pods = [_anti_affine(f"a{n:05}", "d", _own_term("d", n)) for n in range(TERMS)]
        many = [_anti_affine(f"z{n}", "d", _own_term("d", TERMS)) for n in range(2)]
        assert _beyond([*pods, *many]) == [f"a{TERMS - 1:05}"]

    @pytest.mark.parametrize("namespaces", [None, ("d", "other"), ("other",)])
    def test_pod_terms_cost_more_when_they_select_other_namespaces(
        self, namespaces: tuple[str, ...] | None
    ) -> None:
        most = (SMALL - ANY_NODE) // (POD_REQUIREMENT_COST + FOREIGN_COST)
        nobody = Requirement("app", "In", ("nobody",))
        pods = [
            _anti_affine(
                f"p{n:04}", "d", PodAffinityTerm(PodSelector(namespaces, (nobody,)), f"k{n}")
            )
            for n in range(most + 1)
        ]
        assert _beyond(pods) == [f"p{most:04}"]

    @pytest.mark.parametrize(
        ("namespaces", "others"), [(("d",), 0), (("d",), 5000), (None, 5000), (("d", "o"), 5000)]
    )
    def test_pod_term_cost_grows_with_selected_pods(
        self, namespaces: tuple[str, ...] | None, others: int
    ) -> None:
        """Each term selects all pods but one, in every namespace that it names."""
        own, counted, each = 1000, 1000, POD_REQUIREMENT_COST
        if namespaces != ("d",):
            counted, each = own + others, POD_REQUIREMENT_COST + FOREIGN_COST
        beyond = (SMALL - ANY_NODE) // (each + counted * COUNTED_POD_COST)
        pods = []
        for number in range(own):
            but = Requirement("app", "NotIn", (f"a{number}",))
            term = PodAffinityTerm(PodSelector(namespaces, (but,)), "zone")
            pods.append(_anti_affine(f"p{number:04}", "d", term))
        pods += [pod(f"o{number}", "n1", 1, 1, namespace="o") for number in range(others)]
        assert _beyond(pods) == [one.name for one in pods[beyond:own]]
        assert 0 < beyond < own

    @pytest.mark.parametrize(
        ("pod_constraints", "requirements"),
        [
            (lambda one: PodConstraints(near=(PodAffinityTerm(one, "zone"),)), 1),
            (
                lambda one: PodConstraints(near=(PodAffinityTerm(one, "zone"), _own_term("d", 1))),
                2,
            ),
            (lambda one: PodConstraints(spread=(SpreadConstraint(one, "zone", 1),)), 1),
        ],
        ids=["near", "near two", "spread"],
    )
    def test_affinity_and_spread_cost_grows_with_selected_pods(
        self, pod_constraints: Callable[[PodSelector], PodConstraints], requirements: int
    ) -> None:
        pods = []
        for number in range(1000):
            but = Requirement("app", "NotIn", (f"b{number}",))
            requested = pod_constraints(PodSelector(("d",), (but,)))
            pods.append(
                pod(f"p{number:04}", "n1", 1, 1, pod_constraints=requested, labels={"app": "a1"})
            )
        cost = requirements * POD_REQUIREMENT_COST + 1000 * COUNTED_POD_COST
        beyond = (SMALL - ANY_NODE) // cost
        assert _beyond(pods) == [one.name for one in pods[beyond:]]
        assert 0 < beyond < 1000

    def test_selected_pods_cost_more_when_term_has_many_requirements(self) -> None:
        """Terms of 80 requirements about 20,000 pods made a reconciliation three times as long."""
        many = 5 * REQUIREMENTS_PER_COUNTED_POD
        pods = []
        for number in range(1000):
            absent = (Requirement(f"k{n}", "DoesNotExist") for n in range(many - 1))
            but = Requirement("app", "NotIn", (f"a{number}",))
            term = PodAffinityTerm(PodSelector(("d",), (*absent, but)), "zone")
            pods.append(_anti_affine(f"p{number:04}", "d", term))
        cost = many * POD_REQUIREMENT_COST + 6 * 1000 * COUNTED_POD_COST
        beyond = (SMALL - ANY_NODE) // cost
        assert _beyond(pods) == [one.name for one in pods[beyond:]]
        assert 0 < beyond < 1000

    @pytest.mark.parametrize("few", [2, 3])
    def test_pod_terms_are_cheap_when_they_select_few_pods(self, few: int) -> None:
        """One label distinguishes the pods; another is common to all of them."""
        pods = []
        for number in range(few * 400):
            requested = (("app", f"a{number // few}"), ("team", "t"))
            which = tuple(Requirement(key, "In", (value,)) for key, value in requested)
            term = PodAffinityTerm(PodSelector(("d",), which), "zone")
            pods.append(replace(_anti_affine(f"p{number:04}", "d", term), labels=dict(requested)))
        assert _beyond(pods) == []

    def test_equal_pod_terms_cost_once(self) -> None:
        pods = [
            _anti_affine(f"p{n:05}", "d", replace(_own_term("d", 1))) for n in range(2 * TERMS)
        ]
        assert _beyond(pods) == []


def _constrained(name: str, namespace: str, node_constraints: NodeConstraints) -> Pod:
    return pod(name, "n1", 1, 1, namespace=namespace, node_constraints=node_constraints)


def _with_requirements(number: int, requirements: int) -> NodeConstraints:
    requested = tuple(Requirement(f"k{number}-{n}", "Exists") for n in range(requirements))
    return NodeConstraints(affinity=(SelectorTerm(requested[1:]), SelectorTerm((), requested[:1])))


def _requirements_for(units: int) -> int:
    """Return how many requirements one template has for these units."""
    return (units - NODE_TEMPLATE_COST) // NODE_REQUIREMENT_COST


class TestNodeTemplates:
    EACH = 64
    KINDS = SMALL // (NODE_TEMPLATE_COST + EACH * NODE_REQUIREMENT_COST)

    def _greedy(self) -> list[Pod]:
        return [
            _constrained(f"p{n:04}", "evil", _with_requirements(n, self.EACH))
            for n in range(self.KINDS + 2)
        ]

    def test_each_namespace_has_its_own_budget(self) -> None:
        tame = [_constrained(f"q{n}", "tame", _with_requirements(n, 3)) for n in range(200)]
        pods = [*self._greedy(), *tame]
        assert _beyond(pods) == [f"p{n:04}" for n in (self.KINDS, self.KINDS + 1)]
        assert within_budget(pods, SMALL)[self.KINDS].node_constraints == NO_NODE_CONSTRAINTS

    def test_constraints_of_most_pods_are_evaluated_first(self) -> None:
        many = [_constrained(f"z{n}", "evil", _with_requirements(-1, self.EACH)) for n in range(2)]
        beyond = [f"p{n:04}" for n in range(self.KINDS - 1, self.KINDS + 2)]
        assert _beyond([*self._greedy(), *many]) == beyond

    def test_small_template_fits_budget_after_larger_one_does_not(self) -> None:
        left = NODE_TEMPLATE_COST + NODE_REQUIREMENT_COST
        pods = [_constrained("a", "d", _with_requirements(0, _requirements_for(SMALL - left)))]
        pods += [
            _constrained("b", "d", _with_requirements(1, 2)),
            _constrained("c", "d", _with_requirements(2, 1)),
        ]
        assert _beyond(pods) == ["b"]

    @pytest.mark.parametrize(
        "more",
        [
            NodeConstraints(node_selector=(("a", "b"), ("c", "d"))),
            NodeConstraints(node_selector=(("a", "b"),), system=(("c", "d"),)),
            NodeConstraints(tolerations=(Toleration("a"),) * (2 * VALUES_PER_REQUIREMENT)),
            NodeConstraints(
                affinity=(
                    SelectorTerm((Requirement("a", "In", ("v",) * VALUES_PER_REQUIREMENT),)),
                )
            ),
        ],
    )
    def test_selectors_values_and_tolerations_cost_as_requirements(
        self, more: NodeConstraints
    ) -> None:
        """*more* costs as much as two requirements, so no budget is left for z."""
        left = NODE_TEMPLATE_COST + 2 * NODE_REQUIREMENT_COST
        first = [
            _constrained(f"a{n}", "d", _with_requirements(0, _requirements_for(SMALL - left)))
            for n in range(2)
        ]
        last = _constrained("z", "d", NodeConstraints(node_selector=(("z", ""),)))
        assert _beyond([*first, _constrained("b", "d", more), last]) == ["z"]
        two = _constrained(
            "b", "d", NodeConstraints(node_selector=(("b", ""), ("c", ""), ("d", "")))
        )
        assert _beyond([*first, two, last]) == ["b"]

    def test_volumes_and_bound_daemon_pods_cost_nothing(self) -> None:
        wide = NodeConstraints(node_selector=tuple((f"k{n}", "") for n in range(100)))
        pods = [
            _constrained(
                f"p{n}", "d", replace(wide, volumes=(VolumeTopology(zones=((f"z{n}", ()),)),))
            )
            for n in range(400)
        ]
        pods += [
            replace(one, daemon=True, node="n1")
            for one in (_constrained(f"d{n}", "d", _with_requirements(n, 100)) for n in range(400))
        ]
        assert _beyond(pods) == []

    def test_new_daemonset_does_not_spend_budget_of_other_pods(self) -> None:
        """All its pods are created at once, and each selects its own node."""
        kinds = SMALL // NODE_TEMPLATE_COST
        pods = [
            replace(
                _constrained(f"a{n:04}", "d", _with_requirements(n, 2)), daemon=True, node=None
            )
            for n in range(kinds)
        ]
        found = _beyond([*pods, _constrained("z", "d", _with_requirements(-1, 10))])
        assert "z" not in found
        cost = NODE_TEMPLATE_COST + 2 * NODE_REQUIREMENT_COST
        assert len(found) == kinds - (SMALL - cost - 8 * NODE_REQUIREMENT_COST) // cost

    def test_pod_beyond_budget_keeps_ports_and_loses_pod_terms(self) -> None:
        pod_constraints = PodConstraints(host_ports=(HostPort(80),), apart=(_own_term("d", 1),))
        one = replace(
            _constrained("p", "d", _with_requirements(0, _requirements_for(SMALL) + 1)),
            pod_constraints=pod_constraints,
        )
        (found,) = within_budget([one], SMALL)
        assert found.too_much
        assert found.pod_constraints == PodConstraints(host_ports=(HostPort(80),))


class TestHostPorts:
    EACH = 64
    KINDS = (SMALL - ANY_NODE - POD_REQUIREMENT_COST) // (EACH * HOST_PORT_COST)

    def _with_ports(self, name: str, namespace: str, number: int, **changes: Any) -> Pod:
        ports = tuple(HostPort(80 + n, ip=f"10.0.0.{number}") for n in range(self.EACH))
        pod_constraints = PodConstraints(host_ports=ports, apart=(_own_term(namespace, 1),))
        one = pod(name, "n1", 1, 1, namespace=namespace, pod_constraints=pod_constraints)
        return replace(one, **changes)

    def _greedy(self, many: int = 2) -> list[Pod]:
        return [self._with_ports(f"p{n:04}", "evil", n) for n in range(self.KINDS + many)]

    def test_each_namespace_has_its_own_budget(self) -> None:
        pods = [*self._greedy(), *(self._with_ports(f"q{n}", "tame", n) for n in range(9))]
        assert _beyond(pods) == [f"p{n:04}" for n in (self.KINDS, self.KINDS + 1)]
        beyond = within_budget(pods, SMALL)[self.KINDS]
        assert not beyond.pod_constraints.apart
        assert beyond.pod_constraints.host_ports, "they are taken all the same"

    def test_host_ports_of_most_pods_are_evaluated_first(self) -> None:
        many = [self._with_ports(f"z{n}", "evil", self.KINDS) for n in range(2)]
        assert _beyond([*self._greedy(0), *many]) == [f"p{self.KINDS - 1:04}"]

    def test_equal_ports_and_daemon_pods_cost_nothing(self) -> None:
        pods = [self._with_ports(f"p{n}", "d", 1) for n in range(2 * self.KINDS)]
        pods += [self._with_ports(f"d{n}", "d", n, daemon=True) for n in range(len(pods))]
        assert _beyond(pods) == []


class TestVolumeClaims:
    EACH = 256
    PODS = (SMALL - ANY_NODE) // (EACH * CLAIM_COST)

    def _with_claims(self, name: str, namespace: str, many: int) -> Pod:
        disruption_facts = DisruptionFacts(
            claims=tuple(ClaimUse(f"{name}-{n}") for n in range(many)), overdue_seconds=7
        )
        one = pod(name, "n1", 1, 1, namespace=namespace, unsupported=(CLAIMS_FIELD,))
        return replace(one, disruption_facts=disruption_facts)

    def _greedy(self, many: int = 1) -> list[Pod]:
        return [self._with_claims(f"p{n:04}", "evil", self.EACH) for n in range(self.PODS + many)]

    def test_each_namespace_has_its_own_budget(self) -> None:
        pods = [*self._greedy(), self._with_claims("tame", "tame", self.EACH)]
        assert _beyond(pods) == [f"p{self.PODS:04}"]
        assert within_budget(pods, SMALL)[self.PODS].disruption_facts == DisruptionFacts(
            overdue_seconds=7
        )
        assert _beyond(self._greedy(0)) == []

    def test_pods_with_fewer_claims_are_evaluated_first(self) -> None:
        few = [self._with_claims(f"z{n}", "evil", self.EACH - 1) for n in range(9)]
        assert _beyond([*self._greedy(-9), *few]) == []
        assert _beyond([*self._greedy(-8), *few]) == [f"p{self.PODS - 9:04}"]

    def test_pod_beyond_budget_does_not_move_and_attaches_no_disks(self) -> None:
        most = (BUDGET - ANY_NODE) // (self.EACH * CLAIM_COST)
        last = f"p{most:04}"
        pods = self._greedy(most + 1 - self.PODS)
        found = {one.name: one for one in build_cluster([node("n1")], pods).pods}
        codes = {name: [one.code for one in pod_blockers(one)] for name, one in found.items()}
        assert "asks-too-much" in codes[last]
        assert codes["p0000"] == ["pod-volumes"] * self.EACH
        assert (len(found["p0000"].pod_constraints.disks), found[last].pod_constraints) == (
            self.EACH,
            NO_POD_CONSTRAINTS,
        )

    def test_claims_count_when_other_constraints_exceed_budget(self) -> None:
        one = replace(
            self._with_claims("p", "d", 3),
            node_constraints=_with_requirements(0, _requirements_for(BUDGET) + 1),
        )
        (found,) = build_cluster([node("n1")], [one]).pods
        assert found.too_much
        assert len(found.pod_constraints.disks) == 3


class TestOneBudget:
    def test_budget_covers_sum_of_six_former_limits(self) -> None:
        """The limits that one budget replaced; node templates of four requirements and more."""
        pods = [_constrained(f"n{n}", "d", _with_requirements(n, 4)) for n in range(4096 // 4 - 1)]
        for number in range(64):
            ports = tuple(HostPort(80 + n, ip=f"10.0.0.{number}") for n in range(64))
            pods.append(
                pod(f"h{number}", "n1", 1, 1, pod_constraints=PodConstraints(host_ports=ports))
            )
            disruption_facts = DisruptionFacts(
                claims=tuple(ClaimUse(f"c{number}-{n}") for n in range(256))
            )
            pods.append(replace(pod(f"c{number}", "n1", 1, 1), disruption_facts=disruption_facts))
            nobody = PodSelector(None, (Requirement("app", "In", (f"x{number}",)),))
            pods.append(_anti_affine(f"f{number}", "d", PodAffinityTerm(nobody, "zone")))
        pods += [_anti_affine(f"o{n}", "d", _own_term("d", n)) for n in range(1024 - 64 - 64)]
        size = 4096
        pods += [pod(f"q{n}", "n1", 1, 1) for n in range(size - len(pods) - 64)]
        for number in range(64):
            other = Requirement("app", "NotIn", (f"y{number}",))
            term = PodAffinityTerm(PodSelector(("d",), (other,)), "zone")
            pods.append(_anti_affine(f"t{number}", "d", term))
        assert len(pods) * 64 == 2**18
        assert _beyond(pods, BUDGET) == []

    def test_pod_terms_leave_less_budget_for_host_ports(self) -> None:
        half = [_anti_affine(f"p{n:05}", "d", _own_term("d", n)) for n in range(TERMS // 2)]
        ports = [
            pod(
                f"q{n:03}",
                "n1",
                1,
                1,
                pod_constraints=PodConstraints(host_ports=(HostPort(9, ip=f"{n}"),) * 64),
            )
            for n in range(60)
        ]
        assert _beyond(half) == _beyond(ports) == []
        left = SMALL - ANY_NODE - len(half) * POD_REQUIREMENT_COST
        most = left // (64 * HOST_PORT_COST)
        assert _beyond([*half, *ports]) == [f"q{n:03}" for n in range(most, 60)]

    def test_message_names_namespace_and_limit(self) -> None:
        (found,) = within_budget(
            [_constrained("p", "shop", _with_requirements(0, _requirements_for(BUDGET) + 1))]
        )
        (blocker,) = pod_blockers(found)
        assert blocker.message == (
            "exceeds a limit of Ebb: the evaluation budget of 524,288 units for the constraints "
            "and volume claims of namespace shop; remove some of them, or give more pods equal "
            "constraints"
        )


class TestNodeBoundPods:
    def _mirror_pod(self, name: str, on: str, namespace: str, first: int, terms: int) -> Pod:
        """Return a mirror pod whose terms select pods of namespace d."""
        requested = tuple(_own_term("d", first + n) for n in range(terms))
        return replace(
            _anti_affine(name, namespace, *requested),
            node=on,
            mirror=True,
            node_constraints=NO_NODE_CONSTRAINTS,
        )

    def _attack(self, many: int, namespace: str = "d") -> list[Pod]:
        return [self._mirror_pod(f"m{n:03}", "evil", namespace, n * 64, 64) for n in range(many)]

    def test_mirror_pods_spend_no_namespace_budget(self) -> None:
        """A kubelet makes mirror pods in any namespace, bound to its own node."""
        tame = [_anti_affine(f"p{n:05}", "d", _own_term("d", -n)) for n in range(TERMS)]
        assert _beyond([*self._attack(12), *tame]) == []

    def test_mirror_pods_exceed_budget_only_on_their_own_node(self) -> None:
        for namespace in ("d", "other"):
            attack = self._attack(20, namespace)
            pods = [
                *attack,
                *(self._mirror_pod(f"s{n}", f"n{n}", "kube-system", -n, 1) for n in range(9)),
                *(
                    replace(_anti_affine(f"d{n}", "d", _own_term("d", 1)), daemon=True)
                    for n in range(9)
                ),
                *(_anti_affine(f"p{n}", "d", _own_term("d", -n)) for n in range(9)),
            ]
            beyond = _beyond(pods)
            assert beyond
            assert set(beyond) <= {one.name for one in attack}
            found = next(one for one in within_budget(pods, SMALL) if one.too_much)
            assert found.pod_constraints == NO_POD_CONSTRAINTS
            assert "the static pods of node evil" in found.too_much

    def test_mirror_pods_of_all_nodes_share_one_budget(self) -> None:
        pods = [
            self._mirror_pod(f"m{on:02}-{n:02}", f"n{on:02}", "d", (on * 4 + n) * 64, 64)
            for on in range(8)
            for n in range(4)
        ]
        pods += [self._mirror_pod("s", "tame", "kube-system", -1, 8)]
        spent = 8 * (POD_REQUIREMENT_COST + FOREIGN_COST)
        most = (SMALL - spent) // (64 * POD_REQUIREMENT_COST)
        beyond = _beyond(pods)
        assert len(pods) - 1 - len(beyond) == most
        assert "s" not in beyond

    def test_mirror_pods_of_one_node_do_not_change_plan_of_others(self) -> None:
        """The attack once put all pods of the namespace beyond the limit, and kept their nodes."""
        zone = {"zone": "a"}
        nodes = [node(name, labels=zone) for name in ("evil", "n1", "n2", "n3", "n4")]
        tame = [
            replace(
                _anti_affine(f"p{n}", "d", PodAffinityTerm(select(f"t{n}"), "host")), node=f"n{n}"
            )
            for n in range(1, 5)
        ]

        def verdicts(attack: Sequence[Pod]) -> tuple[list[str], set[str]]:
            found = reconcile.plan(build_cluster(nodes, [*tame, *attack]), thesis_config())
            codes = {one.code for cache in found.kept for one in cache.blockers}
            return [one.node for one in found.removals], codes

        removed, codes = verdicts([])
        assert removed == ["evil", "n4", "n3", "n2"]
        for many in (20, 300):
            # Requests would change the order of the nodes, and nothing else.
            attack = [replace(one, requests=Resources(pods=1)) for one in self._attack(many)]
            assert verdicts(attack) == (removed, codes)

    def test_daemonset_pod_annotation_gives_no_second_budget(self) -> None:
        """The tenant itself sets the annotation `daemonset-pod` of the autoscaler."""
        daemons = [
            replace(_anti_affine(f"a{n:05}", "d", _own_term("d", n)), node=f"n{n}", daemon=True)
            for n in range(TERMS + 9)
        ]
        free = ANY_NODE // POD_REQUIREMENT_COST  # a bound pod needs no template of nodes
        assert _beyond(daemons) == [f"a{n:05}" for n in range(TERMS + free, TERMS + 9)]
        tame = [_anti_affine(f"p{n}", "d", _own_term("d", -n)) for n in range(1, 10)]
        last = TERMS - len(tame)
        assert _beyond([*daemons, *tame]) == [f"a{n:05}" for n in range(last, TERMS + 9)]

    def test_bound_daemon_pod_keeps_tolerations_when_beyond_budget(self) -> None:
        """They decide whether pods of its DaemonSet could return after a NoSchedule mark."""
        node_constraints = NodeConstraints(tolerations=(Toleration(operator="Exists"),))
        terms = tuple(_own_term("d", n) for n in range(TERMS + 4))
        one = replace(
            _anti_affine("a", "d", *terms), daemon=True, node_constraints=node_constraints
        )
        (found,) = within_budget([one], SMALL)
        assert (bool(found.too_much), found.pod_constraints, found.node_constraints) == (
            True,
            NO_POD_CONSTRAINTS,
            node_constraints,
        )


def test_pod_fits_no_node_when_no_node_offers_its_resource() -> None:
    greedy = tuple(sorted((f"x.y/{n}", 1) for n in range(500)))
    pods = [
        pod("a", "n1", 100, 100, extended=greedy),
        pod("b", "n2", 100, 100, extended=(("gpu", 1),)),
    ]
    nodes = [node("n1"), node("n2", extended=(("gpu", 2),)), node("n3", extended=(("gpu", 2),))]
    plan = reconcile.plan(Cluster.of(nodes, pods), thesis_config())
    assert "n1" not in {removal.node for removal in plan.removals}
    cache = next(cache for cache in plan.kept if cache.node == "n1")
    assert ("no-room", "d/a") in {(blocker.code, blocker.pod) for blocker in cache.blockers}
    assert nodes[0].allocatable == Resources(4000, 8000 * 10**6, 0, 110)


class TestByteBoundedCache:
    def test_cache_is_bounded_in_bytes_and_retains_used_keys(self) -> None:
        cache = ByteBoundedCache[int, int](bytes_max=20 * ENTRY_BYTES)
        made = 0

        def make() -> int:
            nonlocal made
            made += 1
            return 7

        for turn in range(100):
            for key in (-1, turn):
                assert (cache[key] or cache.compute(key, make, 0)) == 7
            assert len(cache) <= 10
        assert made == 101, "the key that was read every time was made once"

    def test_large_key_is_not_cached(self) -> None:
        cache = ByteBoundedCache[int, int]()
        assert cache.compute(1, lambda: 7, KEY_BYTES_MAX + 1) == 7
        assert cache[1] is None
        assert ENTRY_BYTES + KEY_BYTES_MAX * MADE_OF_BYTE < KEPT_BYTES_MAX // 2


@pytest.mark.parametrize("chars", [254, 1_300_000])
def test_pod_is_unreadable_when_a_claim_name_is_too_long(chars: int) -> None:
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "c" * chars}}
    found = kinds.PODS.model_or_placeholder(msgspec.Raw(changed(POD, spec__volumes=[volume])))
    assert found is not None
    assert "spec.volumes" in found.unreadable
    assert (found.node, found.disruption_facts.claims) == ("n1", ())


def test_pod_is_unreadable_when_its_fields_take_much_memory_together() -> None:
    texts = {f"k{n}": "x" * 100 for n in range(118)}
    part = {"metadata__labels": texts, "spec__tolerations": [{"key": key} for key in texts]}
    within = kinds.PODS.model_or_placeholder(msgspec.Raw(changed(POD, **part)))
    volumes = [
        {"name": f"v{n}", "persistentVolumeClaim": {"claimName": f"{n}{'c' * 100}"}}
        for n in range(200)
    ]
    beyond = kinds.PODS.model_or_placeholder(
        msgspec.Raw(changed(POD, spec__volumes=volumes, **part))
    )
    assert within is not None
    assert beyond is not None
    assert within.evaluable
    assert "bytes of memory, the limit is 64,000" in beyond.unreadable
