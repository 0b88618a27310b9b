"""Amounts and scopes of ResourceQuotas, and what they read of pods: a row for each field."""

from typing import Any

import orjson
import pytest

from core.model.constraints import NO_QUOTA_FACTS, QuotaFacts, Requirement
from core.model.errors import InvalidInputError
from core.model.resources import Resources
from kube.decode.kinds import PODS, QUOTAS
from kube.decode.quotas import QUOTA_BYTES_MAX
from tests.support.fake_objects import Json

GI = 2**30


def quota(**found: Any) -> Any:
    return QUOTAS.decode(orjson.dumps({"metadata": {"name": "q", "namespace": "d"}, **found}))


def test_amounts_of_quota_are_decoded() -> None:
    hard = {"pods": "3", "requests.cpu": "1500m", "limits.cpu": 2, "cpu": "1", "memory": "1Gi"}
    made = quota(spec={"hard": {"pods": "9"}}, status={"hard": hard, "used": {"pods": "2"}})
    assert made.hard == {
        "pods": 3,
        "requests.cpu": 1500,
        "limits.cpu": 2000,
        "cpu": 1000,
        "memory": GI,
    }
    assert made.used == {"pods": 2}
    assert quota(spec={"hard": {"pods": "9"}}).hard == {"pods": 9}, "not counted yet"


@pytest.mark.parametrize(
    "hard",
    [{"pods": "many"}, {"x" * QUOTA_BYTES_MAX: "1"}, {f"count/{n:0200}": "1" for n in range(120)}],
)
def test_quota_is_unreadable_when_an_amount_is_invalid_or_too_large(hard: Json) -> None:
    spec = {"status": {"hard": hard, "used": dict.fromkeys(hard, "0")}}
    with pytest.raises(InvalidInputError):
        quota(**spec)


def expression(name: str, operator: str, *values: str, **more: Any) -> Json:
    return {"scopeName": name, "operator": operator, **({"values": values} if values else more)}


@pytest.mark.parametrize(
    ("spec", "scopes"),
    [
        ({}, ()),
        ({"scopes": None, "scopeSelector": {"matchExpressions": None}}, ()),
        ({"scopes": ["Terminating"]}, (Requirement("Terminating", "Exists"),)),
        (
            {"scopeSelector": {"matchExpressions": [expression("BestEffort", "Exists")]}},
            (Requirement("BestEffort", "Exists"),),
        ),
        (
            {
                "scopes": ["NotBestEffort"],
                "scopeSelector": {
                    "matchExpressions": [expression("PriorityClass", "NotIn", "z", "a")]
                },
            },
            (
                Requirement("NotBestEffort", "Exists"),
                Requirement("PriorityClass", "NotIn", ("a", "z")),
            ),
        ),
        (
            {
                "scopeSelector": {
                    "matchExpressions": [expression("PriorityClass", "DoesNotExist", values=[])]
                }
            },
            (Requirement("PriorityClass", "DoesNotExist"),),
        ),
    ],
)
def test_scopes_of_quota_are_decoded(spec: Json, scopes: tuple[Requirement, ...]) -> None:
    assert quota(spec=spec).scopes == scopes


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"scopes": "BestEffort"}, r"spec\.scopes"),
        ({"scopes": [7]}, r"spec\.scopes"),
        ({"scopes": ["x" * 254]}, r"spec\.scopes"),
        ({"scopes": ["BestEffort"] * QUOTA_BYTES_MAX}, r"spec\.scopes.*bytes, the limit is"),
        ({"scopes": ["a"] * (QUOTA_BYTES_MAX // 8)}, "bytes of memory, the limit is"),
        (
            {"scopeSelector": {"matchExpressions": [expression("PriorityClass", "Gt", "a")]}},
            r"matchExpressions\[0\]\.operator: 'Gt'; allowed: DoesNotExist, Exists, In, NotIn",
        ),
        (
            {"scopeSelector": {"matchExpressions": [expression("PriorityClass", "In")]}},
            r"matchExpressions\[0\]\.values: 0; allowed with In: at least one",
        ),
        (
            {"scopeSelector": {"matchExpressions": [expression("BestEffort", "Exists", "a")]}},
            r"matchExpressions\[0\]\.values: 1; allowed with Exists: none",
        ),
        (
            {
                "scopeSelector": {
                    "matchExpressions": [expression("PriorityClass", "In", *["v"] * 10_000)]
                }
            },
            r"spec\.scopeSelector.*bytes, the limit is",
        ),
    ],
)
def test_quota_is_unreadable_when_its_scopes_are_invalid_or_too_large(
    spec: Json, problem: str
) -> None:
    with pytest.raises(InvalidInputError, match=problem):
        quota(spec=spec)


def container(**resources: Any) -> Json:
    return {"name": "main", "resources": resources}


def facts(*containers: Json, **spec: Any) -> QuotaFacts:
    meta = {"name": "p", "namespace": "d"}
    found = PODS.decode(
        orjson.dumps({"metadata": meta, "spec": {"containers": list(containers), **spec}})
    )
    assert found is not None
    return found.quota_facts


ALL = {"cpu": "1", "memory": "1Gi"}
WHOLE = container(requests=ALL, limits=ALL)
NONE = ("limits.cpu", "limits.memory", "requests.cpu", "requests.memory")


def terms(kind: str, when: str, **term: Any) -> Json:
    term = {"topologyKey": "zone", "labelSelector": {}, **term}
    if when == "preferred":
        term = {"weight": 1, "podAffinityTerm": term}
    return {"affinity": {kind: {f"{when}DuringSchedulingIgnoredDuringExecution": [term]}}}


@pytest.mark.parametrize(
    ("spec", "field", "value"),
    [
        ({}, "priority_class", ""),
        ({"priorityClassName": "high"}, "priority_class", "high"),
        ({}, "has_deadline", False),
        ({"activeDeadlineSeconds": 0}, "has_deadline", True),
        ({"activeDeadlineSeconds": 60}, "has_deadline", True),
        ({"activeDeadlineSeconds": -1}, "has_deadline", False),
        ({}, "crosses_namespaces", False),
        *(
            (terms(kind, when, **term), "crosses_namespaces", crosses)
            for kind in ("podAffinity", "podAntiAffinity")
            for when in ("required", "preferred")
            for term, crosses in (
                ({}, False),
                ({"namespaces": []}, False),
                ({"namespaces": ["d"]}, True),
                ({"namespaceSelector": {}}, True),
            )
        ),
        ({"affinity": {"nodeAffinity": {}}}, "crosses_namespaces", False),
        ({}, "limits", Resources(1000, GI)),
        ({"overhead": {"cpu": "1", "pods": "1"}}, "limits", Resources(2000, GI)),
        ({"resources": {"limits": {"cpu": "4"}}}, "limits", Resources(4000, GI)),
        ({"initContainers": [WHOLE]}, "limits", Resources(1000, GI)),
        (
            {"initContainers": [WHOLE | {"restartPolicy": "Always"}]},
            "limits",
            Resources(2000, 2 * GI),
        ),
        ({}, "unset", ()),
        ({"initContainers": [container(limits=ALL)]}, "unset", NONE[2:]),
    ],
)
def test_quota_facts_of_pod_are_decoded(spec: Json, field: str, value: object) -> None:
    assert getattr(facts(WHOLE, **spec), field) == value


@pytest.mark.parametrize(
    ("containers", "limits", "unset"),
    [
        ([container()], Resources(), NONE),
        ([container(limits={"ephemeral-storage": "1Gi"})], Resources(0, 0, GI), NONE),
        ([container(requests=ALL)], Resources(), NONE[:2]),
        ([WHOLE, container(requests=ALL, limits={"cpu": "500m"})], Resources(1500, GI), NONE[1:2]),
        ([container(requests=ALL, limits={"cpu": 0, "memory": 0})], Resources(), ()),
    ],
)
def test_limits_are_summed_over_containers(
    containers: list[Json], limits: Resources, unset: tuple[str, ...]
) -> None:
    found = facts(*containers)
    assert (found.limits, found.unset) == (limits, unset)


def test_containers_need_no_limits_when_pod_has_resources_as_a_whole() -> None:
    found = facts(container(), resources={"requests": {"cpu": "1"}})
    assert (found.unset, found.best_effort) == ((), False)
    assert facts(container(), resources={"requests": {"x.example/y": "1"}}).unset == NONE


@pytest.mark.parametrize(
    ("containers", "spec", "best_effort"),
    [
        ([container()], {}, True),
        ([container(requests={"cpu": "0"}, limits={"ephemeral-storage": "1Gi"})], {}, True),
        ([container(requests={"x.example/y": "1"})], {}, True),
        ([container(), container(requests={"memory": "1"})], {}, False),
        ([container(limits={"cpu": "1"})], {}, False),
        ([container()], {"initContainers": [WHOLE]}, False),
        ([container()], {"resources": {"limits": {"memory": "1Gi"}}}, False),
        ([WHOLE], {"resources": {"requests": {"cpu": "0"}}}, True),
    ],
)
def test_pod_is_best_effort_when_it_asks_for_no_cpu_and_memory(
    containers: list[Json], spec: Json, *, best_effort: bool
) -> None:
    assert facts(*containers, **spec).best_effort is best_effort


def test_equal_facts_are_one_object() -> None:
    one, other = (facts(WHOLE, priorityClassName="high", hostname=name) for name in "ab")
    assert one is other
    assert one is not NO_QUOTA_FACTS
    assert facts(WHOLE, container(limits={"cpu": "1"})) is facts(
        container(limits={"cpu": "1"}), WHOLE
    )


@pytest.mark.parametrize("limits", [{"cpu": "many"}, {"memory": "-1"}, {"cpu": []}])
def test_pod_is_unreadable_when_a_limit_is_invalid(limits: Json) -> None:
    with pytest.raises(InvalidInputError, match=r"spec\.containers\[0\]\.resources"):
        facts(container(limits=limits))
