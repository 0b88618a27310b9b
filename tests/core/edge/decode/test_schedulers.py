"""Which pods can be judged is said by the schedulers that the configuration names."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.config.settings import Config
from core.edge.decode.inventory import Inventory
from core.edge.decode.kinds import NODES, PODS
from core.engine.pod_index import PodIndex
from core.model.constraints import ClaimUse, DisruptionFacts
from core.model.pod import SCHEDULER_CHARS_MAX, Pod
from core.model.read_options import READ_DEFAULTS, ReadOptions
from core.model.schedulers import KNOWN, SCHEDULER_FIELD
from core.model.volumes import CLAIMS_FIELD
from tests.support import builders, kube_json

OWN = "bin-packing"
OTHERS = (*KNOWN, OWN, "volcano")


def of(scheduler: str | None, **changes: object) -> Pod:
    """Return a pod as it is decoded."""
    return kube_json.pod(spec__schedulerName=scheduler, **changes)


def judged(one: Pod, *schedulers: str) -> Pod:
    inventory = Inventory()
    inventory.changed(PODS, one)
    (found,) = inventory.snapshot(ReadOptions(schedulers))().pods
    return found


@pytest.mark.parametrize("scheduler", [None, "", *OTHERS])
@pytest.mark.parametrize("known", [KNOWN, (*KNOWN, OWN), (OWN,), ()])
def test_pods_of_the_schedulers_that_are_named_can_be_judged(
    scheduler: str | None, known: Sequence[str]
) -> None:
    named = (scheduler or "default-scheduler") in known
    found = judged(of(scheduler), *known)
    assert found.evaluable is named
    assert found.unsupported == (() if named else (SCHEDULER_FIELD,))


def test_what_else_cannot_be_judged_stays_so() -> None:
    devices = of(OWN, spec__resourceClaims=[{"name": "gpu"}])
    assert judged(devices, OWN).unsupported == ("spec.resourceClaims",)
    assert judged(devices).unsupported == ("spec.resourceClaims", SCHEDULER_FIELD)
    unknown = replace(builders.pod("p", None, 1, 1), unreadable="spec: bad")
    assert judged(unknown) is unknown, "its scheduler has not been read"


def test_claims_are_looked_up_for_pods_whose_scheduler_is_named() -> None:
    ties = DisruptionFacts(claims=(ClaimUse("c"),))
    found = judged(replace(of(OWN), ties=ties, unsupported=(CLAIMS_FIELD, SCHEDULER_FIELD)), OWN)
    assert found.unsupported == (CLAIMS_FIELD,)
    assert found.ties.faults == (f"claim {found.namespace}/c: it is not known",)


def test_a_name_that_is_longer_than_can_be_named_is_not_known() -> None:
    longest = "a" * SCHEDULER_CHARS_MAX
    assert judged(of(longest), longest).evaluable
    assert not judged(of(longest + "a"), longest).evaluable
    assert len(of(100 * longest).scheduler) == SCHEDULER_CHARS_MAX + 1


def test_by_default_no_pod_is_made_anew() -> None:
    one = of("volcano")
    assert judged(one, *Config().schedulers) is one


def test_a_pod_that_has_not_changed_is_the_same_object_from_look_to_look() -> None:
    inventory = Inventory()
    inventory.replaced(PODS, [replace(of(name), name=name) for name in OTHERS])
    before = inventory.snapshot(ReadOptions((OWN,)))()
    assert inventory.snapshot(ReadOptions((OWN,)))() is before
    inventory.changed(PODS, builders.pod("new", None, 1, 1))
    after = inventory.snapshot(ReadOptions((OWN,)))()
    assert {id(pod) for pod in after.pods} > {id(pod) for pod in before.pods}


LOOKS = st.lists(st.tuples(st.sets(st.sampled_from(OTHERS)), st.integers(0, 59)), max_size=6)
"""At each, which schedulers are known, and a pod that changes before it."""


@given(st.lists(st.sampled_from(OTHERS), min_size=5, max_size=5), LOOKS)
def test_pods_that_are_followed_are_those_that_are_sorted_out_anew(
    schedulers: Sequence[str], looks: Sequence[tuple[set[str], int]]
) -> None:
    inventory = Inventory()
    inventory.changed(NODES, builders.node("n"))
    names = [*schedulers, *["default-scheduler"] * 55]
    pods = [replace(of(name), name=f"p{n:02}", node="n") for n, name in enumerate(names)]
    inventory.replaced(PODS, pods)
    census = PodIndex.of(inventory.snapshot(READ_DEFAULTS)())
    for known, number in looks:
        changed = pods[number] = replace(pods[number], priority=pods[number].priority + 1)
        inventory.changed(PODS, changed)
        cluster = inventory.snapshot(ReadOptions((*KNOWN, *sorted(known))))()
        census = census.updated(cluster)
        anew = PodIndex.of(cluster)
        assert (census.groups, list(census.unevaluable)) == (anew.groups, list(anew.unevaluable))
        assert (census.requests, census.resident_requests) == (
            anew.requests,
            anew.resident_requests,
        )
