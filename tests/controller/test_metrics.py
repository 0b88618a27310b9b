"""What a pass tells Prometheus of the room that is kept, and of what Ebb asks autoscalers for."""

from dataclasses import replace

import pytest

from controller.metrics import Metrics
from core.config.settings import Config
from core.engine import reconcile
from core.engine.leader_state import LeaderState
from core.engine.provisioning_time import ProvisioningTimes
from core.model.buffers import Buffer
from core.model.cluster import Cluster
from core.writes.write import CostKind, WriteKind
from tests.core.engine.test_buffers import BUSY, NODES, buffer, cluster, config

NOW = 10**9


def told(found: Cluster, namespace: str = "ebb-system") -> dict[str, float]:
    """Return what is told of a look at the cluster, by name and the value of the label."""
    metrics = Metrics(namespace)
    metrics.of_a_pass.tell(reconcile.reconcile(found, config(), LeaderState(), NOW))
    return {
        " ".join((one.name, *one.labels.values())): one.value
        for family in metrics.of_a_pass.collect()
        for one in family.samples
    }


def ours(namespace: str, *, asked: int, replicas: int = 0, fault: str = "") -> Buffer:
    """Return one that bears Ebb's label."""
    return Buffer(
        namespace=namespace, name="ebb-x", replicas=replicas, fault=fault, published=asked
    )


def test_what_buffers_ask_for_and_get_is_told_in_sum_whoever_has_written_them() -> None:
    faulty = replace(buffer(9, key="z/b"), fault="no autoscaler has accepted the buffer", pod=None)
    found = told(cluster(buffer(1000), buffer(2, 9000, key="a/b"), faulty))
    assert found["ebb_engine_buffer_pods asked"] == 1000 + 2 + 9
    assert found["ebb_engine_buffer_pods allowed"] == 9
    assert found["ebb_engine_buffer_pods kept"] == 8, "the one of 9 cores finds no node"
    assert found["ebb_engine_buffers_ignored"] == 1


def test_what_the_reserve_keeps_is_told_in_nodes_cores_and_bytes() -> None:
    found = told(cluster(buffer(6)))
    assert found["ebb_engine_reserved_nodes"] == 1
    assert found["ebb_engine_reserved_allocatable cpu"] == 4
    memory = NODES[1].allocatable.memory_bytes
    assert found["ebb_engine_reserved_allocatable memory"] == memory > 0
    none = told(cluster(pods=(BUSY,)))
    assert none["ebb_engine_reserved_allocatable cpu"] == 0


def test_how_long_new_nodes_take_is_told_of_reaches_that_are() -> None:
    metrics = Metrics()
    memory = LeaderState(
        provisioning_times=ProvisioningTimes(durations={"general": (90,), "another": (70,)})
    )
    metrics.of_a_pass.tell(reconcile.reconcile(cluster(), Config(), memory, NOW))
    samples = [one for family in metrics.of_a_pass.collect() for one in family.samples]
    seconds = [one for one in samples if one.name == "ebb_engine_new_node_seconds"]
    assert [(one.labels["reach"], one.value) for one in seconds] == [("general", 90)]


def test_what_a_replica_saw_while_it_led_it_tells_no_longer() -> None:
    """Or two replicas would tell of the same nodes, one of them as they were when it led."""
    metrics = Metrics()
    removable = "ebb_engine_removable_nodes"
    metrics.of_a_pass.tell(
        reconcile.reconcile(cluster(pods=(BUSY,)), config(), LeaderState(), NOW)
    )
    assert "ebb_engine_kept_nodes{" in metrics.text().decode()
    was = metrics.registry.get_sample_value(removable)
    metrics.leads = lambda: False
    assert metrics.registry.get_sample_value(removable) == 0 != was
    assert "ebb_engine_kept_nodes{" not in metrics.text().decode()
    metrics.leads = lambda: True
    assert metrics.registry.get_sample_value(removable) == was


def test_what_ebb_asks_for_is_told_and_what_others_write_under_its_label_is_not() -> None:
    found = told(
        cluster(
            ours("ebb-system", asked=5, replicas=3),
            ours("more", asked=7, replicas=7),
            ours("tenant", asked=2**31 - 1, replicas=2**31 - 1),
        )
    )
    assert found["ebb_published_pods asked"] == 5
    assert found["ebb_published_pods accepted"] == 3
    assert found["ebb_published_pods ready"] == 0
    elsewhere = told(cluster(ours("more", asked=7, replicas=7, fault="not yet")), "more")
    assert elsewhere["ebb_published_pods asked"] == 7
    assert elsewhere["ebb_published_pods accepted"] == 0


def test_how_many_series_there_are_does_not_follow_from_how_many_buffers_there_are() -> None:
    few, many = told(cluster()), told(cluster(*(buffer(1, key=f"a/{n}") for n in range(50))))
    assert {one for one in many if "buffer" in one} - few.keys() <= {
        "ebb_engine_kept_nodes buffer"
    }


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("ebb_engine_writes_total", (*WriteKind, "outdated", "dropped", "failed")),
        ("ebb_engine_pod_writes_total", (*CostKind, "outdated", "failed")),
    ],
)
def test_every_kind_of_write_is_told_from_0_on(name: str, kinds: tuple[str, ...]) -> None:
    """Or the first of a kind would be no increase."""
    registry = Metrics().registry
    assert {registry.get_sample_value(name, {"kind": str(kind)}) for kind in kinds} == {0}
