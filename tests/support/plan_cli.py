"""Build a small cluster for `ebb plan`, and run the command."""

import io
import os
import pty
import subprocess
import sys
from itertools import combinations
from pathlib import Path
from typing import Any

import orjson
import pytest

from cli.__main__ import main

Json = dict[str, Any]
ROOT = Path(__file__).parents[2]
LONG = "ip-10-0-0-{}.eu-central-1.compute.internal"
"""Node names as long as those of cloud providers."""


def node(name: str, **extra: Any) -> Json:
    status = {
        "allocatable": {"cpu": "4", "memory": "16Gi", "pods": "58"},
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    return {"kind": "Node", "metadata": {"name": name}, "status": status, **extra}


def pod(name: str, on: str | None, cpu: str = "500m", **spec: Any) -> Json:
    container = {"name": "main", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}
    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"nodeName": on, "containers": [container], **spec},
        "status": {"phase": "Running" if on else "Pending"},
    }


def many_reaches() -> list[Json]:
    """Return 300 pods that each select another pair of 25 nodes; the last pod is Pending."""
    names = [f"n{number:02}" for number in range(25)]
    pairs = list(combinations(names, 2))
    items = [node(name, metadata={"name": name, "labels": {"host": name}}) for name in names]
    for number, pair in enumerate(pairs, 1):
        on = pair[1] if number < len(pairs) else None
        items.append(pod(f"p{number}", on, "100m", **one_of(*pair)))
    return items


def one_of(*hosts: str) -> Json:
    term = {"matchExpressions": [{"key": "host", "operator": "In", "values": list(hosts)}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return {"affinity": {"nodeAffinity": required}}


A, B, C, D = (LONG.format(number) for number in range(1, 5))
ITEMS = [
    node(A),
    node(B),
    node(C),
    node(D, spec={"unschedulable": True}),
    pod("a1", A, "1500m"),
    pod("b1", B, "1"),
    pod("b2", B),
    pod("c1", C),
    pod("d1", D, volumes=[{"persistentVolumeClaim": {"claimName": "d"}}]),
    {"kind": "PodDisruptionBudget", "metadata": {"name": "p", "namespace": "shop"}},
]


def dump(*items: Json) -> bytes:
    return orjson.dumps({"apiVersion": "v1", "kind": "List", "items": list(items)})


def plan_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> Json:
    assert main(["plan", "-o", "json", *arguments]) == 0
    found: Json = orjson.loads(capsys.readouterr().out)
    return found


def without_source(plan: Json) -> Json:
    """Return a plan without its times, and without the files that it was made from."""
    left_out = {"source", "configuration", "time", "headline"}
    return {name: one for name, one in plan.items() if name not in left_out}


COMMAND = (sys.executable, "-m", "cli")


def ebb(
    *arguments: str, stdin: bytes = b"", **variables: str
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*COMMAND, *arguments],
        input=stdin,
        capture_output=True,
        cwd=ROOT,
        env={**os.environ, **variables},
        check=False,
        timeout=60,
    )


def without_warnings(stderr: bytes) -> bytes:
    """Return standard error without the warnings about the cluster, such as cordoned nodes."""
    lines = stderr.splitlines(keepends=True)
    return b"".join(line for line in lines if not line.startswith(b"Warning: "))


def started(*arguments: str) -> subprocess.Popen[bytes]:
    pipe = subprocess.PIPE
    return subprocess.Popen([*COMMAND, *arguments], stdout=pipe, stderr=pipe, cwd=ROOT)


def on_terminal(*arguments: str, **variables: str) -> str:
    ours, theirs = pty.openpty()
    environment = {**os.environ, **variables}
    with subprocess.Popen([*COMMAND, *arguments], stdout=theirs, cwd=ROOT, env=environment):
        os.close(theirs)
        seen = io.BytesIO()
        while chunk := _read(ours):
            seen.write(chunk)
    os.close(ours)
    return seen.getvalue().decode()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # Linux reports a closed terminal this way
        return b""
