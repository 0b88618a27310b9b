"""`ebb trace fill`: a full cluster at one moment, from the openb trace, for `ebb plan`."""

import argparse
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import orjson

from core.config.fields import parse_share
from core.edge import files
from core.errors import ConfigError
from core.model.resources import Resources
from sim import trace
from sim.fill import Placement, fill
from sim.workload import GPU

DEFAULT_FOLDER = "../shared/traces"


def add_parser(commands: "argparse._SubParsersAction[Any]") -> None:
    """Register the command."""
    parser = commands.add_parser("trace", help="work with the openb trace")
    actions = parser.add_subparsers(title="actions", required=True, metavar="ACTION")
    one = actions.add_parser("fill", help="write a dump of the trace's cluster, filled in part")
    one.add_argument("--share", type=_share, required=True, metavar="60%", help="of the pods")
    one.add_argument("--trace", default=DEFAULT_FOLDER, metavar="DIR", help=DEFAULT_FOLDER)
    one.add_argument("--placement", choices=[p.value for p in Placement], default="spread")
    one.add_argument("-o", "--output", default="-", metavar="FILE", help="ends in .gz: gzipped")
    one.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Place the first pods in order of creation, and write what kubectl would print."""
    folder = Path(arguments.trace)
    nodes = trace.nodes(folder)
    rows = trace.pods(folder)
    rows = rows[: len(rows) * arguments.share.numerator // arguments.share.denominator]
    placed = fill(
        nodes, [(name, asked) for name, asked, _ in rows], Placement(arguments.placement)
    )
    items = [_node(name, shape) for name, shape in nodes]
    items += [_pod(name, asked, placed[name]) for name, asked, _ in rows]
    written = orjson.dumps({"apiVersion": "v1", "kind": "List", "items": items}) + b"\n"
    if arguments.output == "-":
        sys.stdout.buffer.write(written)
    else:
        files.write_dump(arguments.output, written)
    return 0


def _node(name: str, shape: Resources) -> dict[str, Any]:
    allocatable = _amounts(replace(shape, pods=0)) | {"pods": str(shape.pods)}
    status = {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": "True"}]}
    labels = {"kubernetes.io/hostname": name}
    metadata = {"name": name, "labels": labels}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status}


def _pod(name: str, asked: Resources, node: str | None) -> dict[str, Any]:
    owner = {"kind": "ReplicaSet", "name": name, "controller": True}
    spec: dict[str, Any] = {
        "containers": [{"name": "main", "resources": {"requests": _amounts(asked)}}]
    }
    if node is not None:
        spec["nodeName"] = node
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "openb", "ownerReferences": [owner]},
        "spec": spec,
        "status": {"phase": "Pending" if node is None else "Running"},
    }


def _amounts(amount: Resources) -> dict[str, str]:
    written = {"cpu": f"{amount.cpu_millis}m", "memory": str(amount.memory_bytes)}
    gpu = dict(amount.extended).get(GPU)
    return {**written, f"alibabacloud.com/{GPU}": str(gpu)} if gpu else written


def _share(text: str) -> Fraction:
    try:
        return parse_share(text, "--share")
    except ConfigError as fault:
        raise argparse.ArgumentTypeError(fault.faults[0]) from fault
