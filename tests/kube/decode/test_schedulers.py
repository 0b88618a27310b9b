"""Pods can be evaluated if the configuration names their scheduler."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.cluster.read_options import KNOWN_SCHEDULERS, READ_DEFAULTS, SCHEDULER_FIELD, ReadOptions
from core.config.settings import Config
from core.engine.pod_index import PodIndex
from core.model.constraints import ClaimUse, DisruptionFacts
from core.model.pod import CLAIMS_FIELD, SCHEDULER_CHARS_MAX, Pod
from kube.decode.kinds import NODES, PODS
from kube.inventory import Inventory
from tests.support import builders, kube_json

OWN = "bin-packing"
OTHERS = (*KNOWN_SCHEDULERS, OWN, "volcano")


def scheduled_by(scheduler: str | None, **changes: object) -> Pod:
    """Return a decoded pod of this scheduler."""
    return kube_json.pod(spec__schedulerName=scheduler, **changes)


def snapshot_pod(one: Pod, *schedulers: str) -> Pod:
    inventory = Inventory()
    inventory.changed(PODS, one)
    (found,) = inventory.snapshot(ReadOptions(schedulers))().pods
    return found


@pytest.mark.parametrize("scheduler", [None, "", *OTHERS])
@pytest.mark.parametrize("known", [KNOWN_SCHEDULERS, (*KNOWN_SCHEDULERS, OWN), (OWN,), ()])
def test_pod_is_evaluable_when_its_scheduler_is_configured(
    scheduler: str | None, known: Sequence[str]
) -> None:
    named = (scheduler or "default-scheduler") in known
    found = snapshot_pod(scheduled_by(scheduler), *known)
    assert found.evaluable is named
    assert found.unsupported == (() if named else (SCHEDULER_FIELD,))


def test_other_unsupported_fields_are_retained() -> None:
    devices = scheduled_by(OWN, spec__resourceClaims=[{"name": "gpu"}])
    assert snapshot_pod(devices, OWN).unsupported == ("spec.resourceClaims",)
    assert snapshot_pod(devices).unsupported == ("spec.resourceClaims", SCHEDULER_FIELD)
    unknown = replace(builders.pod("p", None, 1, 1), unreadable="spec: bad")
    assert snapshot_pod(unknown) is unknown, "its scheduler has not been read"


def test_claims_are_looked_up_when_scheduler_is_configured() -> None:
    disruption_facts = DisruptionFacts(claims=(ClaimUse("c"),))
    found = snapshot_pod(
        replace(
            scheduled_by(OWN),
            disruption_facts=disruption_facts,
            unsupported=(CLAIMS_FIELD, SCHEDULER_FIELD),
        ),
        OWN,
    )
    assert found.unsupported == (CLAIMS_FIELD,)
    assert found.disruption_facts.faults == (
        f"claim {found.namespace}/c: it does not exist or was not read",
    )


def test_scheduler_is_unknown_when_its_name_is_too_long() -> None:
    longest = "a" * SCHEDULER_CHARS_MAX
    assert snapshot_pod(scheduled_by(longest), longest).evaluable
    assert not snapshot_pod(scheduled_by(longest + "a"), longest).evaluable
    assert len(scheduled_by(100 * longest).scheduler) == SCHEDULER_CHARS_MAX + 1


def test_snapshot_copies_no_pod_by_default() -> None:
    one = scheduled_by("volcano")
    assert snapshot_pod(one, *Config().schedulers) is one


def test_unchanged_pod_is_the_same_object_in_next_snapshot() -> None:
    inventory = Inventory()
    inventory.replaced(PODS, [replace(scheduled_by(name), name=name) for name in OTHERS])
    before = inventory.snapshot(ReadOptions((OWN,)))()
    assert inventory.snapshot(ReadOptions((OWN,)))() is before
    inventory.changed(PODS, builders.pod("new", None, 1, 1))
    after = inventory.snapshot(ReadOptions((OWN,)))()
    assert {id(pod) for pod in after.pods} > {id(pod) for pod in before.pods}


SNAPSHOTS = st.lists(st.tuples(st.sets(st.sampled_from(OTHERS)), st.integers(0, 59)), max_size=6)
"""For each snapshot the additional known schedulers, and the pod that changes before it."""


@given(st.lists(st.sampled_from(OTHERS), min_size=5, max_size=5), SNAPSHOTS)
def test_updated_pod_index_equals_rebuilt_one(
    schedulers: Sequence[str], snapshots: Sequence[tuple[set[str], int]]
) -> None:
    inventory = Inventory()
    inventory.changed(NODES, builders.node("n"))
    names = [*schedulers, *["default-scheduler"] * 55]
    pods = [replace(scheduled_by(name), name=f"p{n:02}", node="n") for n, name in enumerate(names)]
    inventory.replaced(PODS, pods)
    pod_index = PodIndex.of(inventory.snapshot(READ_DEFAULTS)())
    for known, number in snapshots:
        changed = pods[number] = replace(pods[number], priority=pods[number].priority + 1)
        inventory.changed(PODS, changed)
        cluster = inventory.snapshot(ReadOptions((*KNOWN_SCHEDULERS, *sorted(known))))()
        pod_index = pod_index.updated(cluster)
        rebuilt = PodIndex.of(cluster)
        assert (pod_index.groups, list(pod_index.unevaluable)) == (
            rebuilt.groups,
            list(rebuilt.unevaluable),
        )
        assert (pod_index.requests, pod_index.resident_requests) == (
            rebuilt.requests,
            rebuilt.resident_requests,
        )
