"""Record ten minutes of a cluster with kubectl, kube-state-metrics and Prometheus.

`python -m tests.e2e.record_past PROGRAMS`: PROGRAMS is a folder with kube-state-metrics and
Prometheus, which `make e2e-tools` does not build. It runs the commands of docs/replay.md and
writes tests/sim/recorded/past.
"""

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.e2e.api import Api, Json
from tests.e2e.objects import LIFE, NODES, ready
from tests.e2e.plane import LOOPBACK, ROOT, Plane, Program, free_port

OUT = ROOT / "tests" / "sim" / "recorded" / "past"
SECONDS, EVERY, STEP, SCRAPE, DOWN = 600, 60, 15, 5, 20
DEPLOYMENTS = "/apis/apps/v1/namespaces/shop/deployments"
STATEFUL_SETS = "/apis/apps/v1/namespaces/shop/statefulsets"
DAEMON_SETS = "/apis/apps/v1/namespaces/kube-system/daemonsets"
JOBS = "/apis/batch/v1/namespaces/batch/jobs"
POOL = "example.com/nodePool"
GPU = "nvidia.com/gpu"
WAITS = "shop/never"
"""A pod that fits on no node."""


def node(number: int, pool: str, cpu: str, memory: str, **more: Any) -> Json:
    name = f"{pool}-{number}"
    room = {
        "cpu": cpu,
        "memory": memory,
        "pods": "58",
        "hugepages-2Mi": "0",
        **more.get("room", {}),
    }
    labels = {"kubernetes.io/hostname": name, POOL: pool, **more.get("labels", {})}
    labels["topology.kubernetes.io/zone"] = "ab"[number % 2]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": more.get("taints", [])},
        "status": {"allocatable": room, "capacity": room},
    }


def general(number: int) -> Json:
    return node(number, "general", "3920m", f"{16303432 - 40 * number}Ki")


def nodes() -> Iterator[Json]:
    control = "node-role.kubernetes.io/control-plane"
    taint = {"key": control, "effect": "NoSchedule"}
    yield node(0, "control", "2", "4Gi", labels={control: ""}, taints=[taint])
    yield from map(general, range(4))
    gpus = [{"key": GPU, "value": "present", "effect": "NoSchedule"}]
    yield from (
        node(number, "gpu", "15890m", "60Gi", room={GPU: "4"}, taints=gpus) for number in range(2)
    )


def template(app: str, cpu: str, memory: str, **spec: Any) -> Json:
    """Return a pod template of two containers."""
    asked = {"cpu": cpu, "memory": memory, **spec.pop("also", {})}
    containers = [
        {"name": "main", "image": "none", "resources": {"requests": asked, "limits": asked}},
        {"name": "side", "image": "none", "resources": {"requests": {"cpu": "50m"}}},
    ]
    return {"metadata": {"labels": {"app": app}}, "spec": {"containers": containers, **spec}}


def workload(kind: str, name: str, pods: Json, **spec: Any) -> Json:
    selector = {"matchLabels": {"app": name}}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {"selector": selector, "template": pods, **spec},
    }


class Load:
    """The workload of the cluster."""

    def __init__(self, api: Api) -> None:
        self._api, self._jobs = api, 0

    def begin(self) -> None:
        """Create the initial objects."""
        for one in nodes():
            self._api.create(NODES, one)
        self._api.wait(NODES, lambda found: len(found) == 7 and all(map(ready, found.values())))
        for name in ("batch", "shop"):
            space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            self._api.create("/api/v1/namespaces", space)
            accounts = f"/api/v1/namespaces/{name}/serviceaccounts"
            self._api.wait(accounts, lambda found: "default" in found)
        agent = template("agent", "100m", "128Mi", tolerations=[{"operator": "Exists"}])
        self._api.create(DAEMON_SETS, workload("DaemonSet", "agent", agent))
        first = template("api", "600m", "64Mi")["spec"]["containers"][:1]
        api = template("api", "300m", "256Mi", initContainers=[{**first[0], "name": "first"}],
                       nodeSelector={POOL: "general"})  # fmt: skip
        self._api.create(DEPLOYMENTS, workload("Deployment", "api", api, replicas=3))
        web = template("web", "500m", "512Mi")
        self._api.create(DEPLOYMENTS, workload("Deployment", "web", web, replicas=6))
        db = workload(
            "StatefulSet", "db", template("db", "1", "2Gi"), replicas=2, serviceName="db"
        )
        self._api.create(STATEFUL_SETS, db)
        for name, selector in (("bare", {}), ("never", {POOL: "none"})):
            spec = template(name, "500m", "512Mi", nodeSelector=selector)["spec"]
            bare = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
            self._api.create("/api/v1/namespaces/shop/pods", bare)

    def jobs(self, count: int, life: str, *, gpu: bool = False) -> None:
        """Create Jobs with one pod of this lifetime; they are deleted 30 s after they finish."""
        asked = {GPU: "1"} if gpu else {}
        tolerations = [{"key": GPU, "operator": "Exists", "effect": "NoSchedule"}] if gpu else []
        for _ in range(count):
            self._jobs += 1
            name = f"job-{self._jobs}"
            pods = template(name, "1", "1Gi", also=asked, tolerations=tolerations,
                            restartPolicy="Never")  # fmt: skip
            pods["metadata"]["annotations"] = {LIFE: life}
            spec = {"template": pods, "ttlSecondsAfterFinished": 30}
            job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}}
            self._api.create(JOBS, {**job, "spec": spec})

    def scale(self, name: str, replicas: int) -> None:
        """Set the replicas of a Deployment."""
        self._api.merge(f"{DEPLOYMENTS}/{name}", {"spec": {"replicas": replicas}})

    def roll_out(self, name: str) -> None:
        """Change the template of a Deployment."""
        change = {"metadata": {"annotations": {"version": "2"}}}
        self._api.merge(f"{DEPLOYMENTS}/{name}", {"spec": {"template": change}})

    def delete(self, name: str) -> None:
        """Delete a pod."""
        self._api.delete(f"/api/v1/namespaces/shop/pods/{name}")

    def lose(self, name: str) -> None:
        """Delete a Node and its pods, as an autoscaler does."""
        self._api.merge(f"{NODES}/{name}", {"spec": {"unschedulable": True}})
        for pod in self._api.get("/api/v1/pods")["items"]:
            if pod["spec"].get("nodeName") == name:
                where = pod["metadata"]
                self._api.delete(f"/api/v1/namespaces/{where['namespace']}/pods/{where['name']}")
        self._api.delete(f"{NODES}/{name}")

    def add(self, number: int) -> None:
        """Add a Node."""
        self._api.create(NODES, general(number))


class Watchers:
    """kube-state-metrics, and two Prometheus, with and without honor_labels."""

    def __init__(self, plane: Plane, programs: Path) -> None:
        self._plane, self._programs = plane, programs
        self._ports = [free_port(), free_port()]
        self._metrics = self._start_metrics(0)
        self.answers = {
            folder: self._start_prometheus(folder, honor)
            for folder, honor in (("prometheus", True), ("aside", False))
        }

    def _start_metrics(self, number: int) -> Program:
        port = self._ports[number]
        command = [
            str(self._programs / "kube-state-metrics"),
            f"--kubeconfig={self._plane.kubeconfig('metrics')}",
            f"--host={LOOPBACK}", f"--port={port}",
            f"--telemetry-host={LOOPBACK}", f"--telemetry-port={free_port()}",
            "--metric-labels-allowlist=nodes=[*]",
            "--metric-opt-in-list=kube_pod_nodeselectors",
        ]  # fmt: skip
        return self._plane.run(f"kube-state-metrics-{number}", command)

    def restart(self) -> None:
        """Restart kube-state-metrics at another address, as a Deployment does."""
        self._plane.end(self._metrics)
        time.sleep(DOWN)
        self._metrics = self._start_metrics(1)

    def _start_prometheus(self, name: str, honor: bool) -> str:
        own = {"namespace": "monitoring", "node": "general-0", "container": "kube-state-metrics"}
        targets = [
            {"targets": [f"{LOOPBACK}:{port}"], "labels": {**own, "pod": f"metrics-{number}"}}
            for number, port in enumerate(self._ports)
        ]
        job = {"job_name": "kube-state-metrics", "honor_labels": honor, "static_configs": targets}
        config = {"global": {"scrape_interval": f"{SCRAPE}s"}, "scrape_configs": [job]}
        path, port = self._plane.folder / f"{name}.yml", free_port()
        path.write_text(json.dumps(config))
        command = [
            str(self._programs / "prometheus"),
            f"--config.file={path}",
            f"--storage.tsdb.path={self._plane.folder / name}",
            f"--web.listen-address={LOOPBACK}:{port}",
        ]
        self._plane.run(name, command)
        return f"http://{LOOPBACK}:{port}"


def written(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def dump(plane: Plane) -> None:
    """Write a dump by kubectl."""
    at = written(time.time()).replace(":", "-")
    said = plane.kubectl("get", "nodes,pods", "-A", "-o", "json")
    (OUT / "dumps" / f"{at}.json.gz").write_bytes(gzip.compress(said.encode(), mtime=0))


def ask(url: str, folder: str, begins: float) -> None:
    """Run the commands of docs/replay.md."""
    shown = re.findall(r"(?ms)^PROMETHEUS=.*?\n(.*?^done)$", DOCS.read_text())
    asked = {"PROMETHEUS": url, "START": written(begins), "END": written(time.time())}
    with tempfile.TemporaryDirectory() as here:
        env = {**os.environ, **asked, "STEP": str(STEP)}
        subprocess.run(["bash", "-euc", shown[0]], cwd=here, env=env, check=True)
        shutil.copytree(Path(here) / "prometheus", OUT / folder)


DOCS = ROOT / "docs" / "replay.md"


def acts(load: Load, watchers: Watchers) -> list[tuple[int, Callable[[], None]]]:
    """Return the actions with their times in seconds."""
    return [
        (10, lambda: load.jobs(2, "200s", gpu=True)),
        (50, lambda: load.scale("web", 10)),
        (70, lambda: load.jobs(3, "90s")),
        (110, lambda: load.scale("api", 5)),
        (150, lambda: load.jobs(2, "15s")),
        (190, lambda: load.jobs(2, "120s", gpu=True)),
        (220, lambda: load.add(4)),
        (250, lambda: load.roll_out("web")),
        (290, lambda: load.delete("db-1")),
        (310, watchers.restart),
        (350, lambda: load.scale("web", 4)),
        (370, lambda: load.jobs(3, "60s")),
        (400, lambda: load.delete("bare")),
        (430, lambda: load.lose("general-3")),
        (480, lambda: load.scale("api", 2)),
        (520, lambda: load.add(3)),
        (530, lambda: load.jobs(1, "900s")),
        (550, lambda: load.scale("web", 7)),
    ]


def record(plane: Plane, programs: Path) -> None:
    """Run all actions, and record dumps and metrics."""
    plane.scheduler()
    load = Load(plane.api)
    load.begin()
    watchers = Watchers(plane, programs)
    time.sleep(3 * SCRAPE)
    begins = time.time()
    todo: list[tuple[int, Callable[[], None]]] = [
        *acts(load, watchers),
        *((at, lambda: dump(plane)) for at in range(0, SECONDS + 1, EVERY)),
    ]
    for at, act in sorted(todo, key=lambda one: one[0]):
        time.sleep(max(begins + at - time.time(), 0))
        act()
    for folder, url in watchers.answers.items():
        ask(url, folder, begins)


def main() -> None:
    """Record everything."""
    (programs,) = map(Path, sys.argv[1:])
    for name in ("dumps", "prometheus", "aside"):
        shutil.rmtree(OUT / name, ignore_errors=True)
    (OUT / "dumps").mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="ebb-past-") as folder:
        plane = Plane(Path(folder))
        try:
            record(plane.start(), programs.absolute())
        finally:
            plane.stop()


if __name__ == "__main__":
    main()
