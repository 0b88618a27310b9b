"""Recordings of one real cluster by several programs must yield the same history.

kubectl dumped every minute, and two Prometheus scraped a kube-state-metrics that was restarted
meanwhile; one Prometheus sets own labels that conflict with those of kube-state-metrics.
"""

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from core.config.settings import Config
from core.model.pod import Pod
from core.model.resources import Resources
from sim.history import dumps, load, prometheus
from sim.history.cluster_history import ClusterHistory, PodLifetime

RECORDED = Path(__file__).parent / "recorded" / "past"
POOL = "example.com/nodePool"
DUMPS, ASIDE = "dumps", "aside"
ALL = (DUMPS, "prometheus", ASIDE)
STEP_MS = 15_000


@cache
def told_by(which: str) -> ClusterHistory:
    refused: list[str] = []
    folder = str(RECORDED / which)
    past = (
        dumps.read(folder, refused) if which == DUMPS else prometheus.read(folder, refused, [POOL])
    )
    assert refused == []
    return past


def lives(which: str) -> dict[str, PodLifetime]:
    return {life.pod.uid: life for life in told_by(which).pod_lifetimes}


def plain(one: Resources) -> tuple[object, ...]:
    """Return the resources with names as metrics spell them."""
    extended = [(name.replace(".", "_").replace("/", "_"), units) for name, units in one.extended]
    return one.cpu_millis, one.memory_bytes, one.pods, extended


def what(pod: Pod) -> tuple[object, ...]:
    owner = pod.owner_kind, pod.owner_name, pod.daemon, pod.mirror
    # Metrics change the names of extended resources: nvidia_com_gpu.
    node_constraints = replace(pod.node_constraints, extended=())
    return pod.key, pod.node, plain(pod.requests), node_constraints, owner


@pytest.mark.parametrize("which", ALL[1:])
def test_pod_lifetimes_of_metrics_match_dumps(which: str) -> None:
    seen, told = lives(DUMPS), lives(which)
    assert seen.keys() <= told.keys()
    assert len(seen) > 50
    for uid, life in seen.items():
        other = told[uid]
        assert what(other.pod) == what(life.pod)
        assert (other.begins_ms, other.bound_ms) == (life.begins_ms, life.bound_ms)
        assert (other.ends_ms is None) == (life.ends_ms is None), life
        if life.ends_ms is not None and other.ends_ms is not None:
            assert abs(life.ends_ms - other.ends_ms) <= life.slack_ms + other.slack_ms
    between = [told[uid].pod.owner_name[:4] for uid in told.keys() - seen.keys()]
    assert between == ["api-", "api-"]  # they existed only between two dumps


@pytest.mark.parametrize("which", ALL[1:])
def test_node_lifetimes_of_metrics_match_dumps(which: str) -> None:
    seen, told = (
        sorted(told_by(one).node_lifetimes, key=lambda stay: (stay.node.name, stay.begins_ms))
        for one in (DUMPS, which)
    )
    assert [stay.node.name for stay in seen].count(
        "general-3"
    ) == 2  # the node was deleted and recreated
    for one, other in zip(seen, told, strict=True):
        assert other.node.name == one.node.name
        assert plain(other.node.allocatable) == plain(one.node.allocatable)
        assert other.node.taints == one.node.taints
        assert other.node.labels[POOL] == one.node.labels[POOL]
        if one.begins_ms > told_by(DUMPS).begins_ms:
            assert abs(other.begins_ms - one.begins_ms) <= STEP_MS
        assert abs(other.ends_ms - one.ends_ms) <= 2 * STEP_MS + STEP_MS // 2


def test_workload_is_same_for_dumps_and_metrics() -> None:
    played = {which: load.load_of(told_by(which), Config()) for which in ALL}
    for found in played.values():
        whole = found.load
        assert len(whole.nodes) == 6
        pools = sorted(node.labels[POOL] for node in whole.groups.values())
        assert pools == ["general"] * 2 + ["gpu"] * 2  # each pool is in two zones
        assert sorted(one.replicas[-1][1] for one in whole.deployments) == [0, 2, 7]
        (left, never) = found.notes[-2:]
        assert left == "nodes left out (control plane, virtual or unreadable): 1"
        assert never == "pods left out (they fit on no empty node): 1"
        assert "the history is shorter than an hour" in found.notes[0]
    jobs = [
        sorted((one.name, one.at_ms) for one in found.load.arrivals if one.owner_kind == "Job")
        for found in played.values()
    ]
    assert jobs[0] == jobs[1] == jobs[2]
    assert len(jobs[0]) == 13
