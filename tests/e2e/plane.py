"""A control plane of real programs on the loopback interface, for one test run."""

import json
import os
import random
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import cycle
from pathlib import Path
from typing import Any, Final, Self

import yaml

from controller.__main__ import REPORT_PORT
from serving.http import SCRAPE_SECONDS
from tests.e2e import tools
from tests.e2e.api import Api, Json
from tests.e2e.pki import Authority, Signed, write_kubeconfig

LOOPBACK = "127.0.0.1"
START_SECONDS = 60
STOP_SECONDS = 20
POLL_SECONDS = 0.05
"""Interval for polling programs that have no event."""
POD_ADDRESSES: Final = "10.64.0.0/12"
"""The IPs of pods: more than any test has pods. Without them all EndpointSlices would be empty."""
HPA_SYNC_SECONDS = 1
HPA_WINDOW_SECONDS = 8
"""Stabilization window of HorizontalPodAutoscalers without `behavior`; the default is 300 s."""
ROOT = Path(__file__).parents[2]
FLAGS: Final = "flags"
"""Key of the settings of a test with flags by module; it is no part of the configuration."""
FORWARDED: Final = ("ebb-controller-a", "ebb-controller-b")
"""Names of pods whose report port kwok forwards to a process."""
PORTS: Final = range(20_000, 32_000)
"""Ports below the ephemeral range of Linux, so that a client cannot take one before a program
listens on it."""
_UNTRIED: Final = cycle(random.sample(PORTS, len(PORTS)))


def free_port() -> int:
    """Return an unused port, a different one for each call."""
    for port in _UNTRIED:
        with socket.socket() as probe, suppress(OSError):
            probe.bind((LOOPBACK, port))
            return port
    raise AssertionError("unreachable: the ports are a cycle")


def until(reached: Callable[[], Any], what: str, seconds: float = START_SECONDS) -> Any:
    """Poll until the condition is true; return its value. Raises: AssertionError."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := reached():
            return found
        time.sleep(POLL_SECONDS)
    raise AssertionError(f"{what}: condition not reached within {seconds} s")


class Program:
    """A process and its log file."""

    def __init__(self, name: str, command: Sequence[str], folder: Path, **env: str) -> None:
        self.name, self._command, self._env = name, list(command), env
        self.log = folder / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        """Start the process; its output goes to the log."""
        with self.log.open("ab") as out:
            self._process = subprocess.Popen(
                self._command,
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
                env={**os.environ, **self._env},
                cwd=ROOT,
            )
        return self

    @property
    def running(self) -> bool:
        """Return whether the process runs."""
        return self._process is not None and self._process.poll() is None

    def send(self, number: int) -> None:
        """Send a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the process with SIGSTOP inside of the context; it goes on afterwards."""
        self.send(signal.SIGSTOP)
        try:
            yield
        finally:
            self.send(signal.SIGCONT)

    def stop(self, number: int = signal.SIGTERM) -> int | None:
        """Stop the process; return its exit status."""
        if self._process is None:
            return None
        if self.running:
            self.send(signal.SIGCONT)
            self.send(number)
        try:
            return self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def rss_bytes(self) -> int:
        """Return the resident memory of the process."""
        assert self._process is not None
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        (line,) = [line for line in status.splitlines() if line.startswith("VmRSS:")]
        return int(line.split()[1]) * 1024

    def tail(self) -> str:
        """Return the end of the log, for error messages."""
        return self.log.read_text(errors="replace")[-3000:] if self.log.exists() else ""


class Plane:
    """etcd, API server, controller manager and kwok; tests add schedulers and Ebb."""

    def __init__(self, folder: Path, *, plugins: Sequence[str] = ()) -> None:
        """Prepare a control plane, with these admission plugins besides the usual ones."""
        self.folder, self.bin = folder, tools.find()
        self._plugins = ("NodeRestriction", *plugins)
        self.authority = Authority(folder)
        self.port = free_port()
        self.url = f"https://{LOOPBACK}:{self.port}"
        self._etcd_url = f"http://{LOOPBACK}:{free_port()}"
        self.programs: list[Program] = []
        self.audit = folder / "audit.log"
        self._serving = self.authority.sign("apiserver", "kube-apiserver", hosts=(LOOPBACK,))
        self.kubelet_port = free_port()
        """Port at which kwok serves port-forwards of pods, as a kubelet does."""
        self.forwards = {name: free_port() for name in FORWARDED}
        """Loopback port of the process that stands for a pod, by the name of the pod."""
        self.admin = self.user("admin", group="system:masters")
        self.api = self.api_as(self.admin)
        self.apiserver = self._apiserver()

    def audited(self, offset: int = 0) -> Iterator[Json]:
        """Yield the events of the audit log from a byte offset on.

        Skip events with objects that nest too deeply for this process, and an incomplete line.
        """
        *lines, _ = self.audit.read_bytes()[offset:].split(b"\n")
        for line in lines:
            with suppress(RecursionError):
                yield json.loads(line)

    def user(self, name: str, *, group: str = "") -> Signed:
        """Create a client certificate."""
        return self.authority.sign(name.replace(":", "-"), name, group=group)

    def api_as(self, user: Signed | None, token: str = "") -> Api:
        """Return the API as a user."""
        return Api(self.url, str(self.authority.certificate), user, token)

    def kubeconfig(
        self, name: str, user: Signed | None = None, token: str = "", url: str = ""
    ) -> Path:
        """Write a kubeconfig, by default with the credential of the administrator."""
        user = None if token else user or self.admin
        path = self.folder / f"{name}.kubeconfig"
        certificate = self.authority.certificate
        return write_kubeconfig(path, url or self.url, certificate, user, token)

    def token(self, namespace: str, account: str, **spec: Any) -> str:
        """Request a token of a ServiceAccount, as kubelets do for pods."""
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        token: str = self.api.create(path, body)["status"]["token"]
        return token

    def minor(self) -> int:
        """Return the minor version of Kubernetes."""
        return int(self.api.get("/version")["minor"])

    def kubectl(self, *arguments: str, check: bool = True) -> str:
        """Run kubectl as administrator; return its output."""
        done = subprocess.run(
            [self.bin / "kubectl", "--kubeconfig", self.kubeconfig("kubectl"), *arguments],
            capture_output=True,
            text=True,
            check=False,
            cwd=ROOT,
            timeout=60,
        )
        if check and done.returncode:
            raise AssertionError(f"kubectl {' '.join(arguments)}: {done.stderr}{done.stdout}")
        return done.stdout + done.stderr

    def start(self) -> Self:
        """Start the control plane, and wait until the API server is ready."""
        self.run("etcd", self._etcd())
        self.programs.append(self.apiserver.start())
        self.wait_ready()
        self.controller_manager = self.run("kube-controller-manager", self._controller_manager())
        self.run("kwok", self._kwok())
        self.api.wait(
            "/api/v1/namespaces/default/serviceaccounts", lambda found: "default" in found
        )
        return self

    def wait_ready(self) -> None:
        """Wait until the API server answers /readyz."""

        def ready() -> bool:
            if not self.apiserver.running:
                raise AssertionError(f"kube-apiserver ended:\n{self.apiserver.tail()}")
            try:
                return self.api.text("/readyz") == "ok"
            except Exception:  # noqa: BLE001 not ready yet
                return False

        until(ready, "kube-apiserver /readyz")

    def stop(self) -> None:
        """Stop all programs, the last started first."""
        for program in reversed(self.programs):
            program.stop(signal.SIGTERM if program.name.startswith("ebb") else signal.SIGKILL)
        self.programs.clear()

    def run(self, name: str, command: Sequence[str], **env: str) -> Program:
        """Start a program that is stopped with the control plane."""
        program = Program(name, command, self.folder, **env).start()
        self.programs.append(program)
        return program

    def end(self, program: Program, number: int = signal.SIGTERM) -> int | None:
        """Stop one program before the control plane."""
        self.programs.remove(program)
        return program.stop(number)

    def scheduler(
        self,
        *extenders: Json,
        name: str = "kube-scheduler",
        also: Sequence[str] = (),
        profile: Json | None = None,
        port: int | None = None,
        options: Sequence[str] = (),
    ) -> Program:
        """Start kube-scheduler with these extenders, and wait until it schedules.

        It schedules for its default name and the names in *also*, with *profile*. It serves its
        metrics at *port*, by default at any port.
        """
        user = self.user("system:kube-scheduler")
        config = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {
                "kubeconfig": str(self.kubeconfig("scheduler", user)),
                "qps": 1000,
                "burst": 2000,
            },
            "leaderElection": {"leaderElect": False},
            "profiles": [
                {**(profile or {}), "schedulerName": one} for one in ("default-scheduler", *also)
            ],
            "extenders": list(extenders),
        }
        path = self.folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump(config))
        serving, port = self._serving, port or free_port()
        program = self.run(
            name,
            [
                str(self.bin / "kube-scheduler"),
                f"--config={path}",
                f"--bind-address={LOOPBACK}",
                f"--secure-port={port}",
                f"--tls-cert-file={serving.certificate}",
                f"--tls-private-key-file={serving.key}",
                f"--client-ca-file={self.authority.certificate}",
                "--authorization-always-allow-paths=/*",
                "-v=1",
                *options,
            ],
        )
        answers = Api(f"https://{LOOPBACK}:{port}", str(self.authority.certificate), self.admin)

        def ready() -> bool:
            try:
                return answers.text("/readyz") == "ok"
            except Exception:  # noqa: BLE001 not there yet
                return False

        until(ready, f"{name} /readyz")
        return program

    def _etcd(self) -> list[str]:
        peer = f"http://{LOOPBACK}:{free_port()}"
        return [
            str(self.bin / "etcd"),
            f"--data-dir={self.folder / 'etcd'}",
            "--unsafe-no-fsync",
            f"--listen-client-urls={self._etcd_url}",
            f"--advertise-client-urls={self._etcd_url}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--log-level=error",
        ]

    def _apiserver(self) -> Program:
        ca, policy = self.authority, self.folder / "audit.yaml"
        policy.write_text(json.dumps(AUDIT))
        options = {
            "etcd-servers": self._etcd_url,
            "bind-address": LOOPBACK,
            "advertise-address": LOOPBACK,
            "endpoint-reconciler-type": "none",
            "secure-port": self.port,
            "authorization-mode": "Node,RBAC",
            "enable-admission-plugins": ",".join(self._plugins),
            "client-ca-file": ca.certificate,
            "tls-cert-file": self._serving.certificate,
            "tls-private-key-file": self._serving.key,
            "service-account-key-file": ca.key,
            "service-account-signing-key-file": ca.key,
            "service-account-issuer": "https://e2e",
            "service-cluster-ip-range": "10.96.0.0/16",
            "allow-privileged": "true",
            "audit-policy-file": policy,
            "audit-log-path": self.audit,
            "max-requests-inflight": 1000,
            "kubelet-client-certificate": self.admin.certificate,
            "kubelet-client-key": self.admin.key,
        }
        command = [str(self.bin / "kube-apiserver")]
        command += [f"--{name}={value}" for name, value in options.items()]
        return Program("kube-apiserver", command, self.folder)

    def _controller_manager(self) -> list[str]:
        user = self.user("system:kube-controller-manager")
        return [
            str(self.bin / "kube-controller-manager"),
            f"--kubeconfig={self.kubeconfig('controller-manager', user)}",
            "--use-service-account-credentials",
            "--leader-elect=false",
            "--secure-port=0",
            f"--service-account-private-key-file={self.authority.key}",
            f"--root-ca-file={self.authority.certificate}",
            "--kube-api-qps=500",
            "--kube-api-burst=1000",
            "--controllers=*,-node-ipam-controller",
            f"--horizontal-pod-autoscaler-sync-period={HPA_SYNC_SECONDS}s",
            f"--horizontal-pod-autoscaler-downscale-stabilization={HPA_WINDOW_SECONDS}s",
        ]

    def _kwok(self) -> list[str]:
        return [
            str(self.bin / "kwok"),
            f"--kubeconfig={self.kubeconfig('kwok')}",
            f"--config={Path(__file__).parent / 'stages.yaml'}",
            f"--config={self._write_forwards()}",
            f"--node-port={self.kubelet_port}",
            f"--tls-cert-file={self._serving.certificate}",
            f"--tls-private-key-file={self._serving.key}",
            "--manage-all-nodes=true",
            "--node-lease-duration-seconds=40",
            f"--node-ip={LOOPBACK}",
            f"--cidr={POD_ADDRESSES}",
        ]

    def _write_forwards(self) -> Path:
        """Write kwok's port-forwards: one from the report port of each pod to its process."""
        path = self.folder / "forwards.yaml"
        documents = [
            {
                "apiVersion": "kwok.x-k8s.io/v1alpha1",
                "kind": "ClusterPortForward",
                "metadata": {"name": name},
                "spec": {
                    "selector": {"matchNames": [name]},
                    "forwards": [
                        {
                            "ports": [REPORT_PORT.default],
                            "target": {"address": LOOPBACK, "port": port},
                        }
                    ],
                },
            }
            for name, port in self.forwards.items()
        ]
        path.write_text(yaml.safe_dump_all(documents))
        return path


class Ebb:
    """A running program of Ebb, with a port for health and metrics."""

    def __init__(
        self, plane: Plane, program: Program, health: str, settings: Json, path: Path
    ) -> None:
        self._plane, self.program, self._health = plane, program, health
        self.settings, self._path = settings, path
        self._trust = ssl.create_default_context(cafile=str(plane.authority.certificate))
        self._told_anew = 0.0
        """Time when the program stops serving cached metrics."""

    def get(self, path: str) -> tuple[int, str]:
        """GET from the program's port for health and metrics."""
        try:
            with urllib.request.urlopen(
                self._health + path, timeout=5, context=self._trust
            ) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as fault:
            return fault.code, fault.read().decode()
        except OSError as fault:
            return 0, str(fault)

    def wait_ready(self) -> Self:
        """Wait until the program is ready."""

        def ready() -> bool:
            if not self.program.running:
                raise AssertionError(f"{self.program.name} ended:\n{self.program.tail()}")
            return self.get("/readyz")[0] == 200

        until(ready, f"{self.program.name} /readyz ({self.get('/readyz?verbose')[1]})")
        return self

    def metric(self, series: str) -> float:
        """Return the current value of a series, or 0 if it does not exist."""
        return self.metrics().get(series, 0.0)

    def metric_sum(self, name: str, label: str) -> float:
        """Return the sum of the series of a metric with a label, written `name="value"`.

        Raises: AssertionError if there is no such series.
        """
        values = [
            value
            for series, value in self.metrics().items()
            if series.startswith(f"{name}{{") and label in series
        ]
        assert values, f"no series of {name} has {label}"
        return sum(values)

    def metrics(self) -> dict[str, float]:
        """Return the current values of all series."""
        time.sleep(max(0.0, self._told_anew - time.monotonic()))
        status, text = self.get("/metrics")
        self._told_anew = time.monotonic() + SCRAPE_SECONDS
        if status != 200:  # the program is starting, or was killed
            return {}
        samples = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
        return {series: float(value) for series, _, value in samples}

    def configure(self, **changed: Any) -> None:
        """Replace the configuration file with a changed one."""
        _write_config(self._path, {**self.settings, **changed})

    def stop(self, number: int = signal.SIGTERM) -> int | None:
        """Stop the program; return its exit status."""
        return self._plane.end(self.program, number)


def _write_config(path: Path, config: Json) -> None:
    written = path.with_suffix(".new")
    written.write_text(config_file(config))
    written.rename(path)


def config_file(settings: Json) -> str:
    """Return the configuration file; `flags` in the settings are flags of the programs."""
    head = {"apiVersion": "kube-ebb.io/v1alpha1", "kind": "EbbConfiguration"}
    own = {name: value for name, value in settings.items() if name != FLAGS}
    return yaml.safe_dump({**head, **own})


def flags_of(settings: Json, module: str) -> list[str]:
    """Return the flags of a program in the settings, as arguments."""
    flags = settings.get(FLAGS, {}).get(module, {})
    return [f"{name}={value}" for name, value in flags.items()]


def start_ebb(
    plane: Plane,
    name: str,
    module: str,
    config: Json,
    *,
    kubeconfig: Path,
    health: str,
    **env: str,
) -> Ebb:
    """Start a program with `python -m`, a configuration file, and its `flags` of *config*."""
    path = plane.folder / f"{name}.yaml"
    _write_config(path, config)
    command = [
        sys.executable,
        "-m",
        module,
        "--kubeconfig",
        str(kubeconfig),
        "--config",
        str(path),
        *flags_of(config, module),
    ]
    return Ebb(plane, plane.run(name, command, **env), health, config, path)


AUDIT = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {
            "level": "RequestResponse",
            "verbs": ["create", "update", "patch", "delete"],
            "resources": [{"group": "", "resources": ["nodes"]}],
        },
        {"level": "Metadata", "userGroups": ["system:serviceaccounts:ebb-system"]},
        {"level": "None"},
    ],
}
