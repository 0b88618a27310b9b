"""Metrics of a reconciliation: reserved room, CapacityBuffers, and published pods."""

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from itertools import product

import pytest

from controller.metrics import Metrics, WriteResult
from core.config.prices import Price
from core.config.settings import Config, Mode
from core.engine import reconcile
from core.engine.leader_state import LeaderState
from core.engine.provisioning_time import ProvisioningTimes
from core.model.buffers import Buffer
from core.model.cluster import Cluster
from core.writes.write import CostKind, WriteKind
from tests.core.engine.test_buffers import BUSY, CONFIG, NODES, buffer, cluster

NOW = 10**9


def samples_of(
    found: Cluster, namespace: str = "ebb-system", asked: Config | None = None
) -> dict[str, float]:
    """Return the samples of a reconciliation of the cluster, by name and label value."""
    metrics = Metrics(namespace)
    metrics.reconciliation_gauges.report(
        reconcile.reconcile(found, asked or CONFIG, LeaderState(), NOW)
    )
    return {
        " ".join((one.name, *one.labels.values())): one.value
        for family in metrics.reconciliation_gauges.collect()
        for one in family.samples
    }


def own_buffer(namespace: str, *, published: int, replicas: int = 0, fault: str = "") -> Buffer:
    """Return a buffer with Ebb's label."""
    return Buffer(
        namespace=namespace, name="ebb-x", replicas=replicas, fault=fault, published=published
    )


def test_buffer_metrics_sum_over_all_buffers() -> None:
    faulty = replace(buffer(9, key="z/b"), fault="no autoscaler has accepted the buffer", pod=None)
    found = samples_of(cluster(buffer(1000), buffer(2, 9000, key="a/b"), faulty))
    assert found["ebb_capacity_buffer_requested_pods"] == 1000 + 2 + 9
    assert found["ebb_capacity_buffer_allowed_pods"] == 9
    assert found["ebb_capacity_buffer_reserved_pods"] == 8, "the pod with 9 cores fits no node"
    assert found["ebb_ignored_capacity_buffers"] == 1


def test_reserve_metrics_are_in_nodes_cores_and_bytes() -> None:
    prices = (Price(node_selector=(), price=Fraction(3, 2)),)
    priced = replace(CONFIG, mode=Mode.ENFORCE, prices=prices)
    found = samples_of(cluster(buffer(6)), asked=priced)
    assert found["ebb_reserved_nodes buffer"] == 1
    assert found["ebb_reserved_cost buffer"] == 1.5
    assert {found[f"ebb_reserved_nodes {cause}"] for cause in ("expected", "scope")} == {0}
    assert found["ebb_reserved_allocatable cpu core"] == 4
    memory = NODES[1].allocatable.memory_bytes
    assert found["ebb_reserved_allocatable memory byte"] == memory > 0
    none = samples_of(cluster(pods=(BUSY,)))
    assert none["ebb_reserved_allocatable cpu core"] == 0


def test_provisioning_time_is_exported_only_for_existing_reaches() -> None:
    metrics = Metrics()
    memory = LeaderState(
        provisioning_times=ProvisioningTimes(durations={"general": (90,), "another": (70,)})
    )
    metrics.reconciliation_gauges.report(reconcile.reconcile(cluster(), Config(), memory, NOW))
    samples = [one for family in metrics.reconciliation_gauges.collect() for one in family.samples]
    seconds = [one for one in samples if one.name == "ebb_node_provisioning_seconds"]
    assert [(one.labels["reach"], one.value) for one in seconds] == [("general", 90)]


def test_replica_exports_no_plan_when_it_does_not_lead() -> None:
    """Otherwise two replicas would report the same nodes, one of them with old values."""
    leading = True
    metrics = Metrics(is_leading=lambda: leading)
    removable = "ebb_removable_nodes"
    metrics.reconciliation_gauges.report(
        reconcile.reconcile(cluster(pods=(BUSY,)), CONFIG, LeaderState(), NOW)
    )
    assert "ebb_unremovable_nodes{" in metrics.text().decode()
    was = metrics.registry.get_sample_value(removable)
    leading = False
    assert metrics.registry.get_sample_value(removable) == 0 != was
    assert "ebb_unremovable_nodes{" not in metrics.text().decode()
    leading = True
    assert metrics.registry.get_sample_value(removable) == was


def test_published_pods_ignore_buffers_of_other_namespaces() -> None:
    found = samples_of(
        cluster(
            own_buffer("ebb-system", published=5, replicas=3),
            own_buffer("more", published=7, replicas=7),
            own_buffer("tenant", published=2**31 - 1, replicas=2**31 - 1),
        )
    )
    assert found["ebb_capacity_buffer_published_pods"] == 5
    assert found["ebb_published_accepted_pods"] == 3
    assert found["ebb_published_ready_pods"] == 0
    elsewhere = samples_of(
        cluster(own_buffer("more", published=7, replicas=7, fault="not yet")), "more"
    )
    assert elsewhere["ebb_capacity_buffer_published_pods"] == 7
    assert elsewhere["ebb_published_accepted_pods"] == 0


def test_number_of_series_does_not_grow_with_buffers() -> None:
    few, many = (
        samples_of(cluster()),
        samples_of(cluster(*(buffer(1, key=f"a/{n}") for n in range(50)))),
    )
    assert {one for one in many if "buffer" in one} - few.keys() <= {
        "ebb_unremovable_nodes buffer"
    }


@pytest.mark.parametrize(
    ("name", "operations", "results"),
    [
        ("ebb_node_writes_total", WriteKind, {*WriteResult}),
        ("ebb_pod_writes_total", CostKind, {*WriteResult} - {WriteResult.DROPPED}),
    ],
)
def test_writes_of_every_operation_start_at_0(
    name: str, operations: Iterable[str], results: Iterable[str]
) -> None:
    """Otherwise `increase` would miss the first write of an operation."""
    registry = Metrics().registry
    counts = {
        registry.get_sample_value(name, {"operation": operation, "result": result})
        for operation, result in product(operations, results)
    }
    assert counts == {0}


def test_series_with_a_fixed_set_of_labels_are_exported_while_there_is_no_report() -> None:
    registry = Metrics().registry
    for effect in ("PreferNoSchedule", "NoSchedule"):
        assert registry.get_sample_value("ebb_marked_nodes", {"effect": effect}) == 0
    for resource, unit in (("cpu", "core"), ("memory", "byte")):
        labels = {"resource": resource, "unit": unit}
        assert registry.get_sample_value("ebb_reserved_allocatable", labels) == 0


def test_no_series_has_the_time_at_which_it_was_created() -> None:
    assert "_created" not in Metrics().text().decode()
