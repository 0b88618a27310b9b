"""Measure `ebb plan` with a dump: a small cluster, and NODES nodes with about 30 pods each.

`python -m tests.bench.bench_cli [NODES]` prints the processor time of the whole process, and for
the large dump its ratio to a process that only decodes the same dump. Bytecode is cached, as after
an installation. The dump of 5,000 nodes has 700 MB.
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
    """
import sys
from kube.dump import from_dumps
from runtime.files import read_dump
from runtime.heap import growing
from core.cluster.read_options import ReadOptions
with growing():
    from_dumps([("", read_dump(sys.argv[1]))], ReadOptions(), [])
""",
)
"""Only decode a dump, as `ebb plan` does first; without the imports of this benchmark."""


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
    spec["nodeSelector"] = dict(pod.node_constraints.node_selector)
    spec["tolerations"] += [
        {"key": one.key, "operator": one.operator} for one in pod.node_constraints.tolerations
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
    """Measure `ebb plan` for a cluster of 12 nodes: mostly the start of the program."""
    path.write_bytes(dump(PLATFORM))
    seconds(PLAN, path)  # writes bytecode
    factors, taken = zip(*((factor(), seconds(PLAN, path)) for _ in range(RUNS)), strict=True)
    ours, k = median(taken), median(factors)
    return [f"{PLATFORM}, 12 nodes", "", f"{ours:.2f}", f"{ours / k:.2f}", f"{BUDGET_SECONDS}"]


def large(path: Path, nodes: int) -> list[list[str]]:
    """Measure `ebb plan` for many nodes, and the decoding of the same dump, in turns."""
    written(path, nodes)
    k = factor()
    decoding, planning = zip(
        *((seconds(DECODE, path), seconds(PLAN, path)) for _ in range(RUNS_LARGE)), strict=True
    )
    ratio = median(plan / decode for decode, plan in zip(decoding, planning, strict=True))
    rows = [("decoding", decoding, ""), ("ebb plan", planning, f"{ratio:.2f}")]
    mb = path.stat().st_size / 1e6
    return [
        [
            f"{what}, {nodes:,} nodes, {mb:,.0f} MB",
            shown,
            f"{median(taken):.2f}",
            f"{median(taken) / k:.2f}",
            f"{BUDGET_RATIO} decodings" if shown else "",
        ]
        for what, taken, shown in rows
    ]


def main() -> None:
    nodes = int(sys.argv[1]) if len(sys.argv) > 1 else NODES
    with tempfile.TemporaryDirectory() as folder:
        rows = [small(Path(folder) / "small"), *large(Path(folder) / "large", nodes)]
    columns = ["processor time", "decodings", "seconds", "s / K", "budget"]
    show("ebb plan --from-file", columns, rows)


if __name__ == "__main__":
    main()
