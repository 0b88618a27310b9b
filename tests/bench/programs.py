"""Run programs of Ebb as processes."""

import contextlib
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from serving import tls
from serving.tls_contexts import CERTIFICATE_FILE, KEY_FILE
from tests.bench.serving import LOOPBACK
from tests.e2e.plane import free_port
from tests.support.fake_objects import KUBECONFIG

START_SECONDS: Final = 120
POLL_SECONDS: Final = 0.1
NOWHERE: Final = f"http://{LOOPBACK}:9"
"""URL for a program that does not call the API server."""


@dataclass(frozen=True)
class Running:
    """A running program."""

    process: "subprocess.Popen[bytes]"
    plain: str
    """Address of health and metrics, host:port."""
    log: Path

    @property
    def pid(self) -> int:
        """Return the process id, which is also the id of the event loop's thread."""
        return self.process.pid

    def get(self, path: str) -> str:
        """GET from the address of health and metrics. Raises: OSError."""
        with urllib.request.urlopen(f"http://{self.plain}{path}", timeout=5) as answer:
            return str(answer.read().decode())

    def metric(self, series: str) -> float:
        """Return the value of a series, or 0 if it does not exist. Raises: OSError."""
        for line in self.get("/metrics").splitlines():
            name, _, value = line.rpartition(" ")
            if name == series:
                return float(value)
        return 0.0

    def wait(self, reached: Callable[["Running"], object]) -> None:
        """Wait until a condition is true. Raises: AssertionError, with the log of the program."""
        for _ in range(int(START_SECONDS / POLL_SECONDS)):
            assert self.process.poll() is None, self.log.read_text()
            with contextlib.suppress(OSError):
                if reached(self):
                    return
            time.sleep(POLL_SECONDS)
        raise AssertionError(self.log.read_text())

    def mib(self, key: str) -> float:
        """Return VmRSS or VmHWM in MiB."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        found = next(line for line in lines if line.startswith(key))
        return int(found.split()[1]) / 1024

    def seconds(self) -> float:
        """Return the processor time of the process."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def ready(program: Running) -> bool:
    """Return whether the program is ready."""
    return bool(program.get("/readyz"))


@contextlib.contextmanager
def running(
    module: str, folder: Path, flags: Mapping[str, str], url: str, **settings: Any
) -> Iterator[Running]:
    """Run a program with the API server at *url* inside of the context.

    *flags*: flags of the program; the address of metrics is added. *settings*: the configuration.
    """
    kubeconfig = folder / f"{module}.kubeconfig"
    kubeconfig.write_text(KUBECONFIG.format(url=url))
    plain, log = f"{LOOPBACK}:{free_port()}", folder / f"{module}.log"
    config = {"apiVersion": "kube-ebb.io/v1alpha1", "kind": "EbbConfiguration", **settings}
    path = folder / f"{module}.yaml"
    path.write_bytes(orjson.dumps(config))
    given = {
        "--config": str(path),
        "--kubeconfig": str(kubeconfig),
        "--listen" if module == "extender" else "--metrics-listen": plain,
        **({"--report-port": "0"} if module == "controller" else {}),
        **flags,
    }
    arguments = [f"{name}={value}" for name, value in given.items()]
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments], stderr=out, stdout=out
        )
    try:
        yield Running(process, plain, log)
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def webhook(folder: Path, pair: tls.Pair) -> Iterator[tuple[Running, int]]:
    """Run a webhook with certificate files, which needs no API server.

    Yields: the program, and the port of admission.
    """
    port = free_port()
    for name, content in ((CERTIFICATE_FILE, pair.certificate), (KEY_FILE, pair.key)):
        (folder / name).write_bytes(content)
    flags, section = {"--listen": f"{LOOPBACK}:{port}"}, {"certDir": str(folder)}
    with running("webhook", folder, flags, NOWHERE, webhook=section) as program:
        program.wait(ready)
        yield program, port
