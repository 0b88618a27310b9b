"""Run the pods of Ebb's namespace as processes, with their own tokens, files and probes.

No container runs here, and kwok would call every pod Ready. This kubelet starts the command of
each container as the rendered manifest has it, and a pod is Ready when its readiness probe
succeeds. The pods share one network, so each process gets free ports in place of the container's.
"""

import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import urllib3

from tests.e2e.api import Json, RefusedError
from tests.e2e.plane import LOOPBACK, Plane, Program, free_port

MODULES: Final = {
    "ebb": "cli",
    "ebb-controller": "controller",
    "ebb-extender": "extender",
    "ebb-webhook": "webhook",
}
"""Module of each program of the image."""
PORTS: Final = {
    ("controller", "--metrics-listen"): 8081,
    ("webhook", "--metrics-listen"): 8080,
    ("webhook", "--listen"): 8443,
    ("extender", "--listen"): 8888,
}
"""Port in the manifests of each address that a program listens on."""
PROBE_SECONDS: Final = 2.0


@dataclass
class Running:
    """A pod and the process that stands for its container."""

    pod: Json
    program: Program
    ports: Mapping[int, int]
    """Port of the process by port of the container."""
    reported: str = ""

    @property
    def probe(self) -> str:
        """Return the URL of the readiness probe; "" if the pod has none."""
        (container,) = self.pod["spec"]["containers"]
        if "readinessProbe" not in container:
            return ""
        get = container["readinessProbe"]["httpGet"]
        (port,) = (
            one["containerPort"] for one in container["ports"] if one["name"] == get["port"]
        )
        return f"{get.get('scheme', 'HTTP').lower()}://{LOOPBACK}:{self.ports[port]}{get['path']}"


@dataclass
class Kubelet:
    """Runs pods of one namespace; `step` does what is due."""

    plane: Plane
    namespace: str
    bound: bool = False
    """Whether it runs only pods that are bound to a node; without a scheduler none is."""
    running: dict[str, Running] = field(default_factory=dict)
    """Pods by UID."""

    def step(self) -> None:
        """Start new pods, stop deleted ones, and report the state of all."""
        found = self.plane.api.get(f"/api/v1/namespaces/{self.namespace}/pods")["items"]
        pods = {one["metadata"]["uid"]: one for one in found}
        for uid in self.running.keys() - pods.keys():
            self._stop(uid)
        for uid, pod in pods.items():
            may_run = "nodeName" in pod["spec"] or not self.bound
            if uid not in self.running and pod["status"].get("phase") == "Pending" and may_run:
                self.running[uid] = self._started(pod)
        for one in self.running.values():
            self._report(one)

    def close(self) -> None:
        """Stop all processes."""
        for uid in list(self.running):
            self._stop(uid)

    def of(self, component: str) -> list[Running]:
        """Return the running pods of a component."""
        label = "app.kubernetes.io/component"
        return [
            one
            for one in self.running.values()
            if one.pod["metadata"]["labels"][label] == component and one.program.running
        ]

    def _stop(self, uid: str) -> None:
        program = self.running.pop(uid).program
        self.plane.end(program, signal.SIGTERM)

    def _started(self, pod: Json) -> Running:
        name = pod["metadata"]["name"]
        (container,) = pod["spec"]["containers"]
        folder = self.plane.folder / f"pod-{name}"
        ports = {port: free_port() for port in PORTS.values()}
        mounts = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
        for volume in pod["spec"]["volumes"]:
            if "configMap" in volume:
                path = folder / mounts[volume["name"]].strip("/")
                self._mount(path, volume["configMap"]["name"])
        self._mount_token(folder, pod["spec"]["serviceAccountName"])
        command = [*container["command"], *container.get("args", ())]
        module = MODULES[command[0]]
        arguments = [
            str(folder / one.strip("/")) if one.startswith("/etc/ebb") else one
            for one in command[1:]
        ]
        arguments += _flags(module, ports)
        launcher = [sys.executable, "-m", "tests.e2e.incluster", str(folder), module]
        env = {one["name"]: _resolved(pod, one) for one in container.get("env", ())}
        program = self.plane.run(
            name,
            [*launcher, *arguments],
            KUBERNETES_SERVICE_HOST=LOOPBACK,
            KUBERNETES_SERVICE_PORT=str(self.plane.port),
            HOME=str(folder),
            KUBECONFIG="",  # that of the developer is another cluster, which a Job would clean up
            **env,
        )
        return Running(pod, program, ports)

    def _mount(self, folder: Path, name: str) -> None:
        """Write a ConfigMap's files."""
        folder.mkdir(parents=True)
        found = self.plane.api.get(f"/api/v1/namespaces/{self.namespace}/configmaps/{name}")
        for key, text in found["data"].items():
            (folder / key).write_text(text)

    def _mount_token(self, folder: Path, account: str) -> None:
        folder.mkdir(exist_ok=True)
        (folder / "token").write_text(self.plane.token(self.namespace, account))
        (folder / "ca.crt").write_text(self.plane.authority.certificate.read_text())

    def _report(self, one: Running) -> None:
        """Write the status of a pod if it has changed."""
        phase, ready = "Running", False
        if not one.program.running:
            phase = "Failed" if one.program.stop() else "Succeeded"
        elif one.probe:
            ready = _answers(one.probe)
        state = f"{phase} {ready}"
        if state == one.reported:
            return
        conditions = [
            {"type": kind, "status": str(ready)} for kind in ("Ready", "ContainersReady")
        ]
        meta = one.pod["metadata"]
        path = f"/api/v1/namespaces/{self.namespace}/pods/{meta['name']}/status"
        try:
            self.plane.api.merge(path, {"status": {"phase": phase, "conditions": conditions}})
        except RefusedError as fault:
            if fault.status != 404:
                raise
        one.reported = state


def _flags(module: str, ports: Mapping[int, int]) -> list[str]:
    """Return the flags by which a program listens on the ports of its process."""
    flags = [
        f"{flag}={LOOPBACK}:{ports[port]}" for (of, flag), port in PORTS.items() if of == module
    ]
    return [*flags, f"--report-port={free_port()}"] if module == "controller" else flags


def _resolved(pod: Json, variable: Json) -> str:
    """Return the value of an environment variable."""
    value: Any = pod
    for part in variable["valueFrom"]["fieldRef"]["fieldPath"].split("."):
        value = value[part]
    return str(value)


def _answers(url: str) -> bool:
    try:
        answer = urllib3.request("GET", url, timeout=PROBE_SECONDS, retries=False)
    except urllib3.exceptions.HTTPError:
        return False
    return answer.status == 200
