"""Measure `ebb plan` with a dump: a small cluster, and NODES nodes with about 30 pods each.

`python -m tests.bench.bench_cli [NODES [FILE]]` prints the processor time of the whole process,
times K, and for the large dump its ratio to the decoding of the same bytes. FILE keeps the large
dump. Bytecode is cached, as after an installation.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Final

import orjson

from core.model.node import Node
from core.model.pod import Pod
from tests.bench import bench_kube
from tests.bench.machine import factor, show
from tests.platforms import dump
from tests.support import generate
from tests.support.fake_objects import Json, key_of

PLATFORM: Final = "kubeadm"
NODES: Final = 5000
REGIME: Final = "loose"
RUNS: Final = 7
RUNS_LARGE: Final = 3
BUDGET_SECONDS: Final = 0.25
"""Budget of the small cluster, times K."""
BUDGET_RATIO: Final = 1.4
"""Budget of the large dump, in decodings of the same bytes."""
PLAN: Final = ("-m", "cli", "plan", "--from-file")
DECODE: Final = (
    "-c",
    "import sys; from core.edge.decode.dump import from_dumps; "
    "from core.edge.files import read_dump; from core.model.read_options import ReadOptions; "
    "from_dumps([('', read_dump(sys.argv[1]))], ReadOptions(), [])",
)


def written(path: Path, nodes: int) -> None:
    """Write the dump of a generated cluster; pods have 5 kB."""
    made = generate.cluster(nodes, REGIME)
    with path.open("wb") as file:
        file.write(b'{"kind":"List","apiVersion":"v1","items":[')
        for number, one in enumerate(_items(made.nodes, made.pods)):
            file.write(b",\n" * bool(number) + orjson.dumps(one))
        file.write(b"]}\n")


def _items(nodes: Sequence[Node], pods: Sequence[Pod]) -> Iterator[Json]:
    for node in nodes:
        yield _node(node)
    found = (_pod(number, pod) for number, pod in enumerate(pods))
    yield from sorted(found, key=key_of)  # in the order of etcd


def _node(node: Node) -> Json:
    room = node.allocatable
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node.name, "labels": dict(node.labels)},
        "spec": {"taints": [{"key": one.key, "effect": one.effect} for one in node.taints]},
        "status": {
            "allocatable": {
                "cpu": f"{room.cpu_millis}m",
                "memory": str(room.memory_bytes),
                "pods": str(room.pods),
            },
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def _pod(number: int, pod: Pod) -> Json:
    found = {"apiVersion": "v1", "kind": "Pod", **bench_kube.pod_object(number, number)}
    spec, asked = found["spec"], pod.requests
    spec["nodeName"] = pod.node
    spec["containers"][0]["resources"]["requests"] = {
        "cpu": f"{asked.cpu_millis}m",
        "memory": str(asked.memory_bytes),
    }
    spec["nodeSelector"] = dict(pod.placing.node_selector)
    spec["tolerations"] += [
        {"key": one.key, "operator": one.operator} for one in pod.placing.tolerations
    ]
    return found


def seconds(arguments: Sequence[str], path: Path) -> float:
    """Return the processor seconds of a Python process with the dump as its last argument."""
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    command = [sys.executable, *arguments, str(path)]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as process:
        problems = process.stderr.read() if process.stderr else b""
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(problems.decode())
    return used.ru_utime + used.ru_stime


def small(path: Path) -> list[str]:
    """Measure the start and the plan of a few nodes."""
    path.write_bytes(dump(PLATFORM))
    seconds((*PLAN,), path)  # writes bytecode
    k = factor()
    taken = median(seconds(PLAN, path) for _ in range(RUNS))
    k = median((k, factor()))
    return [f"{PLATFORM}, 12 nodes", "", f"{taken:.2f}", f"{taken / k:.2f}", f"{BUDGET_SECONDS}"]


def main() -> None:
    nodes = int(sys.argv[1]) if len(sys.argv) > 1 else NODES
    with tempfile.TemporaryDirectory() as folder:
        large = Path(sys.argv[2] if len(sys.argv) > 2 else f"{folder}/large")
        if not large.exists():
            written(large, nodes)
        print(large, large.stat().st_size)
        print(small(Path(folder) / "small"))
        for _ in range(RUNS_LARGE):
            decoding, plan = seconds(DECODE, large), seconds(PLAN, large)
            print(f"{decoding:.2f} {plan:.2f} {plan / decoding:.2f} K {factor():.2f}")
    show
    REGIME


if __name__ == "__main__":
    main()
