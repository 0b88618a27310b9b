"""Record a simulated cluster as dumps or as metrics, as users would record a real one."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from core.model.node import Node
from core.model.pod import Pod
from core.model.resources import Resources
from sim.autoscaler import ScaleDown
from sim.cluster import ClusterState
from sim.simulated_load import SimulatedLoad
from sim.simulator import Simulator, SimulatorOptions

Json = dict[str, Any]
EPOCH = 1_793_520_000
"""Start of simulated time, 2026-11-01T08:00:00Z."""


def seconds(at_ms: int) -> int:
    return EPOCH + at_ms // 1000


def written(at_ms: int) -> str:
    return datetime.fromtimestamp(seconds(at_ms), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Recorder:
    """A compactor that records the cluster in every reconciliation instead of acting."""

    taint_key = ""

    def __init__(self, look: Callable[["Recorder", ClusterState, int], None]) -> None:
        self.now: Callable[[], int] = lambda: 0
        self._look = look
        self.pods: dict[str, Pod] = {}
        self.nodes: dict[str, Node] = {}
        self.created: dict[str, int] = {}
        self.bound: dict[str, int] = {}
        self.ended: dict[str, int] = {}
        self.seen: dict[str, list[int]] = {}
        """Times at which each object was recorded."""

    def node_changed(self, node: Node) -> None:
        self.created.setdefault(node.name, self.now())
        self.nodes[node.name] = node

    def node_deleted(self, name: str) -> None:
        self.ended[name] = self.now()

    def pod_changed(self, pod: Pod) -> None:
        self.created.setdefault(pod.key, self.now())
        if pod.node:
            self.bound.setdefault(pod.key, self.now())
        self.pods[pod.key] = pod

    def pod_deleted(self, pod: Pod) -> None:
        self.ended[pod.key] = self.now()

    def admit(self, _: Node, after: Node) -> Node:
        return after

    def scores(self, _: Pod, __: Sequence[str]) -> Mapping[str, int]:
        return {}

    def urgent(self) -> bool:
        return False

    def reconcile(self, state: ClusterState, _: Callable[[Node], None], now_ms: int) -> None:
        for key in (*state.pods, *state.places):
            self.seen.setdefault(key, []).append(now_ms)
        self._look(self, state, now_ms)


def record(
    load: SimulatedLoad, every_ms: int, look: Callable[[Recorder, ClusterState, int], None]
) -> Recorder:
    recorder = Recorder(look)
    world = Simulator(load, ScaleDown.EMPTY, recorder, 1, SimulatorOptions(interval_ms=every_ms))
    recorder.now = world.now_ms
    world.run()
    return recorder


# Dumps


def dumps_into(
    folder: Path, *, created: bool = True
) -> Callable[[Recorder, ClusterState, int], None]:
    def look(recorder: Recorder, state: ClusterState, now_ms: int) -> None:
        items = [
            *(_node(recorder, place.node, created=created) for place in state.places.values()),
            *(_pod(recorder, pod, created=created) for pod in state.pods.values()),
        ]
        name = written(now_ms).replace(":", "-")
        (folder / f"{name}.json").write_bytes(orjson.dumps({"kind": "List", "items": items}))

    return look


def _node(recorder: Recorder, node: Node, *, created: bool) -> Json:
    metadata: Json = {"name": node.name, "uid": node.name, "labels": dict(node.labels)}
    if created:
        metadata["creationTimestamp"] = written(recorder.created[node.name])
    return {"kind": "Node", "metadata": metadata, "status": {"allocatable": _of(node.allocatable)}}


def _pod(recorder: Recorder, pod: Pod, *, created: bool) -> Json:
    owner = {"kind": pod.owner_kind, "name": pod.owner_name, "controller": True}
    metadata: Json = {
        "name": pod.name,
        "namespace": pod.namespace,
        "uid": pod.key,
        "ownerReferences": [owner],
    }
    status: Json = {"phase": "Running" if pod.node else "Pending"}
    if created:
        metadata["creationTimestamp"] = written(recorder.created[pod.key])
        if pod.node and pod.key in recorder.bound:
            status["startTime"] = written(recorder.bound[pod.key])
    asked = _of(pod.requests)
    del asked["pods"]
    containers = [{"name": "main", "resources": {"requests": asked}}]
    spec = {"nodeName": pod.node, "containers": containers}
    return {"kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


def _of(amount: Resources) -> dict[str, str]:
    return {
        "cpu": f"{amount.cpu_millis}m",
        "memory": str(amount.memory_bytes),
        "pods": str(amount.pods),
        **{f"nvidia.com/{name}": str(units) for name, units in amount.extended},
    }


# Prometheus


class Scraped:
    """Samples of kube-state-metrics, by metric and labels."""

    def __init__(self) -> None:
        self.series: dict[str, dict[tuple[tuple[str, str], ...], list[tuple[int, str]]]] = {}

    def look(self, recorder: Recorder, state: ClusterState, now_ms: int) -> None:
        for place in state.places.values():
            for name, amount in _of(place.node.allocatable).items():
                self._add(now_ms, "kube_node_status_allocatable", _in_units(name, amount),
                          node=place.node.name, resource=_plain(name))  # fmt: skip
        for pod in state.pods.values():
            who = {"namespace": pod.namespace, "pod": pod.name, "uid": pod.key}
            phase = "Running" if pod.node else "Pending"
            self._add(now_ms, "kube_pod_info", "1", **who, node=pod.node or "",
                      created_by_kind=pod.owner_kind, created_by_name=pod.owner_name)  # fmt: skip
            for one in ("Pending", "Running", "Succeeded"):
                value = "1" if one == phase else "0"
                self._add(now_ms, "kube_pod_status_phase", value, **who, phase=one)
            created = str(seconds(recorder.created[pod.key]))
            self._add(now_ms, "kube_pod_created", created, **who)
            for name, amount in _of(pod.requests).items():
                if name != "pods":
                    self._add(now_ms, "kube_pod_container_resource_requests",
                              _in_units(name, amount), **who, container="main",
                              resource=_plain(name))  # fmt: skip

    def _add(self, now_ms: int, metric: str, value: str, **labels: str) -> None:
        found = self.series.setdefault(metric, {})
        found.setdefault(tuple(labels.items()), []).append((seconds(now_ms), value))

    def write(self, folder: Path) -> None:
        for metric, found in self.series.items():
            result = [
                {"metric": {"__name__": metric, **dict(labels)}, "values": values}
                for labels, values in found.items()
            ]
            body = {"status": "success", "data": {"resultType": "matrix", "result": result}}
            (folder / f"{metric}.json").write_bytes(orjson.dumps(body))


def _plain(name: str) -> str:
    return name.replace(".", "_").replace("/", "_").replace("-", "_")


def _in_units(name: str, amount: str) -> str:
    return str(int(amount[:-1]) / 1000) if name == "cpu" else amount
