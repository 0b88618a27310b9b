"""Which pods a ResourceQuota counts, and whether it has room for another one."""

from dataclasses import replace
from typing import Any

import pytest

from core.model.constraints import QuotaFacts, Requirement
from core.model.resources import Resources
from core.moves.quotas import ResourceQuota
from tests.support.surge import make_pod

FULL = ResourceQuota(namespace="d", name="q", hard={"pods": 3}, used={"pods": 3})
HIGH, NO_CLASS = QuotaFacts(priority_class="high"), QuotaFacts()


@pytest.mark.parametrize(
    ("scope", "facts", "counts"),
    [
        (Requirement("Terminating", "Exists"), QuotaFacts(has_deadline=True), True),
        (Requirement("Terminating", "Exists"), QuotaFacts(), False),
        (Requirement("NotTerminating", "Exists"), QuotaFacts(has_deadline=True), False),
        (Requirement("NotTerminating", "Exists"), QuotaFacts(), True),
        (Requirement("BestEffort", "Exists"), QuotaFacts(best_effort=True), True),
        (Requirement("BestEffort", "Exists"), QuotaFacts(), False),
        (Requirement("NotBestEffort", "Exists"), QuotaFacts(best_effort=True), False),
        (Requirement("NotBestEffort", "Exists"), QuotaFacts(), True),
        (Requirement("PriorityClass", "In", ("high", "low")), HIGH, True),
        (Requirement("PriorityClass", "In", ("low",)), HIGH, False),
        (Requirement("PriorityClass", "In", ("high",)), NO_CLASS, False),
        (Requirement("PriorityClass", "NotIn", ("low",)), HIGH, True),
        (Requirement("PriorityClass", "NotIn", ("high",)), HIGH, False),
        (Requirement("PriorityClass", "NotIn", ("high",)), NO_CLASS, True),
        (Requirement("PriorityClass", "Exists"), HIGH, True),
        (Requirement("PriorityClass", "Exists"), NO_CLASS, False),
        (Requirement("PriorityClass", "DoesNotExist"), HIGH, False),
        (Requirement("PriorityClass", "DoesNotExist"), NO_CLASS, True),
        (
            Requirement("CrossNamespacePodAffinity", "Exists"),
            QuotaFacts(crosses_namespaces=True),
            True,
        ),
        (Requirement("CrossNamespacePodAffinity", "Exists"), QuotaFacts(), False),
        (Requirement("VolumeAttributesClass", "In", ("gold",)), QuotaFacts(), False),
        (Requirement("Unknown", "Exists"), QuotaFacts(), False),
    ],
)
def test_quota_counts_pod_in_its_scope(
    scope: Requirement, facts: QuotaFacts, *, counts: bool
) -> None:
    pod = make_pod("a", quota_facts=facts)
    assert bool(replace(FULL, scopes=(scope,)).why_refused(pod)) is counts
    both = (scope, Requirement("Unknown", "Exists"))
    assert not replace(FULL, scopes=both).why_refused(pod), "all scopes must match"


REQUESTS = Resources(100, 200, 300, 1, (("gpu.example/x", 2), ("hugepages-2Mi", 4)))
LIMITS = QuotaFacts(limits=Resources(1000, 2000, 3000), unset=("requests.memory",))


@pytest.mark.parametrize(
    ("name", "used"),
    [
        ("pods", 1),
        ("count/pods", 1),
        ("cpu", 100),
        ("requests.cpu", 100),
        ("ephemeral-storage", 300),
        ("requests.ephemeral-storage", 300),
        ("limits.cpu", 1000),
        ("limits.memory", 2000),
        ("limits.ephemeral-storage", 3000),
        ("hugepages-2Mi", 4),
        ("requests.hugepages-2Mi", 4),
        ("requests.gpu.example/x", 2),
    ],
)
def test_quota_has_room_for_pod_up_to_its_limit(name: str, used: int) -> None:
    pod = make_pod("a", requests=REQUESTS, quota_facts=LIMITS)
    quota = replace(FULL, hard={name: used + 5}, used={name: 5})
    assert not quota.why_refused(pod)
    quota = replace(quota, hard={name: used + 4})
    assert quota.why_refused(pod) == f"ResourceQuota q has no room for {name}"


@pytest.mark.parametrize(
    ("name", "unset", "refused"),
    [
        ("limits.cpu", "limits.cpu", True),
        ("limits.memory", "limits.memory", True),
        ("requests.cpu", "requests.cpu", True),
        ("cpu", "requests.cpu", True),
        ("memory", "requests.memory", True),
        ("limits.cpu", "limits.memory", False),
        ("cpu", "limits.cpu", False),
        ("pods", "limits.cpu", False),
    ],
)
def test_pod_must_set_what_quota_limits(name: str, unset: str, *, refused: bool) -> None:
    pod = make_pod("a", quota_facts=QuotaFacts(unset=(unset,)))
    quota = replace(FULL, hard={name: 10**9}, used={name: 0})
    expected = f"ResourceQuota q rejects pods that do not set {name} in all containers"
    assert quota.why_refused(pod) == (expected if refused else "")


@pytest.mark.parametrize(
    "other", ["gpu.example/x", "limits.gpu.example/x", "services", "limits.x"]
)
def test_other_amounts_of_quota_do_not_matter(other: str) -> None:
    pod: Any = make_pod("a", requests=REQUESTS, quota_facts=LIMITS)
    assert not replace(FULL, hard={other: 0}, used={other: 0}).why_refused(pod)
