"""Measure prioritize calls over HTTP: `python -m tests.bench.bench_extender`.

It compares Ebb, the same handler on Go's net/http, and an empty aiohttp handler, in turns, over a
persistent connection like the scheduler's. Then it compares the score `pack`, which depends on the
pod, with `marks`, on nodes of one shape and of eight shapes.
"""

import contextlib
import functools
import json
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import orjson
from aiohttp import web

from core.config.programs import ExtenderConfig
from core.marks.mark import Mark
from core.marks.wellknown import MARK_LABEL, TAINT_KEY
from extender import wire
from extender.app import make_app
from extender.formulas import score_marked
from extender.metrics import Metrics
from extender.view import View
from kube.decode.kinds import NODES, PODS
from serving import http as bones
from tests.bench import serving
from tests.bench.machine import factor, show
from tests.support.builders import node, pod
from tests.support.clock import FakeClock

PATH = "/prioritize"
TURNS = 5
CALLS = {100: 400, 500: 400, 1000: 300, 5000: 120}
"""Calls per turn, by number of node names."""
FULL_NODES, FULL_CALLS = 500, 20
BUDGET_MS = {"500": 0.2, "1,000": 0.3, "5,000": 0.8}
BUDGET_RATIO = {"500": 0.80, "1,000": 0.65, "5,000": 0.50, "500 full nodes": 0.4}
PACKED = (1000, 5000)
SHAPES = 8
METADATA = {"name": "p", "annotations": {"filler": "x" * 2800}}
POD = orjson.dumps({"metadata": METADATA})
ASKING = orjson.dumps(
    {
        "metadata": METADATA,
        "spec": {"containers": [{"resources": {"requests": {"cpu": "1", "memory": "2Gi"}}}]},
    }
)
NAMES = [f"gke-cluster-1-default-pool-7f3b2a1c-{number:05}" for number in range(max(CALLS))]
MARKS = {
    name: Mark.NO_SCHEDULE if at % 50 == 0 else Mark.PREFER_NO_SCHEDULE
    for at, name in enumerate(NAMES)
    if at % 10 == 0
}


def ebb() -> web.Application:
    """Return the extender after a list of Nodes."""
    view = View(ExtenderConfig(score="marks"), TAINT_KEY)
    view.replaced(NODES, [node(name, labels={MARK_LABEL: mark}) for name, mark in MARKS.items()])
    view.freshness.alive(NODES, 0.0)
    return make_app(view, FakeClock(), Metrics(), bones.Health())


def packing(shapes: int) -> web.Application:
    """Return the extender with `pack`, for half-full nodes of several shapes."""
    view = View(ExtenderConfig(score="pack"), TAINT_KEY)
    sizes = [4000 * (1 + number % shapes) for number in range(len(NAMES))]
    labels = [{MARK_LABEL: MARKS[name]} if name in MARKS else None for name in NAMES]
    nodes = (
        node(name, cpu, 16_000, labels=own)
        for name, cpu, own in zip(NAMES, sizes, labels, strict=True)
    )
    view.replaced(NODES, [*nodes])
    pods = (pod(name, name, cpu // 2, 8000) for name, cpu in zip(NAMES, sizes, strict=True))
    view.replaced(PODS, [*pods])
    for kind in (NODES, PODS):
        view.freshness.alive(kind, 0.0)
    return make_app(view, FakeClock(), Metrics(), bones.Health())


def full_nodes(names: list[str]) -> bytes:
    """Return a call with whole Nodes of about 8 kB each."""
    items = [
        {
            "metadata": {"name": name, "labels": {f"label-{n}": "value" for n in range(20)}},
            "spec": {"podCIDR": "10.0.0.0/24"},
            "status": {
                "allocatable": {"cpu": "4", "memory": "16Gi", "pods": "110"},
                "images": [{"names": ["i" * 120], "sizeBytes": 12345678} for _ in range(47)],
            },
        }
        for name in names
    ]
    return orjson.dumps({"Pod": {}, "Nodes": {"items": items}, "NodeNames": None})


def bodies() -> dict[str, tuple[bytes, int]]:
    """Return the bodies by label, with the number of calls per turn."""
    found = {f"{n:,}": (wire.names_body(NAMES[:n], POD), calls) for n, calls in CALLS.items()}
    found[f"{FULL_NODES} full nodes"] = full_nodes(NAMES[:FULL_NODES]), FULL_CALLS
    return found


def check_same(ports: Mapping[str, int], body: bytes) -> None:
    """Check that Ebb and Go return the same scores."""
    if "Go" in ports:
        ours, theirs = (wire.scores(serving.call(ports[who], PATH, body)) for who in ("Ebb", "Go"))
        assert ours == theirs
        assert len(set(ours.values())) > 1


def row(label: str, ports: Mapping[str, int], body: bytes, calls: int, k: float) -> list[str]:
    """Measure one body on all servers; return a row of the table."""
    check_same(ports, body)
    lines = {who: [serving.Connection(port, PATH, body)] for who, port in ports.items()}
    taken = serving.measure(lines, TURNS, calls)
    p50 = {who: found.ms(50) for who, found in taken.items()}
    cells = [label, f"{len(body) / 1000:,.0f} kB"]
    for found in taken.values():
        cells += [f"{found.ms(50):.3f}", f"{found.ms(99):.3f}"]
    cells += [f"{p50['Ebb'] / k:.3f}", f"{BUDGET_MS.get(label, '')}"]
    if "Go" in p50:
        cells += [f"{p50['Ebb'] / p50['Go']:.2f}", f"{BUDGET_RATIO.get(label, '')}"]
    return [*cells, f"{p50['Ebb'] / p50['no-op']:.2f}"]


def packed(k: float) -> None:
    """Compare `pack` with `marks`, and print the table."""
    with contextlib.ExitStack() as stack:
        apps: dict[str, Callable[[], web.Application]] = {
            "marks": ebb,
            "one shape": functools.partial(packing, 1),
            f"{SHAPES} shapes": functools.partial(packing, SHAPES),
        }
        ports = {who: stack.enter_context(serving.python_server(app)) for who, app in apps.items()}
        rows = []
        for names in PACKED:
            body = wire.names_body(NAMES[:names], ASKING)
            lines = {who: [serving.Connection(at, PATH, body)] for who, at in ports.items()}
            taken = serving.measure(lines, TURNS, CALLS[names])
            least = taken["marks"].ms(50)
            rows += [
                [who, f"{names:,}", *(f"{found.ms(share):.3f}" for share in (50, 99)),
                 f"{found.ms(50) / k:.3f}", f"{found.ms(50) / least:.2f}"]
                for who, found in taken.items()
            ]  # fmt: skip
    columns = ["score", "names", "p50", "p99", "p50 / K", "ratio to marks"]
    show(f"scores `pack` and `marks`, ms; K = {k:.2f}", columns, rows)


def main() -> None:
    k = factor()
    against_others(k)
    packed(k)


def against_others(k: float) -> None:
    """Compare `marks` with Go and with an empty handler, and print the table."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        ranks = enumerate(MARKS.items())
        scores = {name: score_marked(mark, rank, len(MARKS)) for rank, (name, mark) in ranks}
        (folder / "names").write_text(json.dumps(scores))
        peer = serving.build_peer(folder)
        nothing = functools.partial(serving.nothing_app, b"[]", PATH)
        ports = {"Ebb": stack.enter_context(serving.python_server(ebb))}
        if peer:
            started = peer.serve("-extender", serving.ANY_PORT, "-names", str(folder / "names"))
            ports["Go"] = stack.enter_context(started)
        ports["no-op"] = stack.enter_context(serving.python_server(nothing))
        rows = [row(what, ports, *asked, k) for what, asked in bodies().items()]
    columns = ["names", "body"]
    for who in ports:
        columns += [f"{who} p50", "p99"]
    columns += ["Ebb / K", "budget", *(["Ebb : Go", "budget"] if peer else []), "Ebb : no-op"]
    against = peer.version if peer else "no Go"
    show(f"extender prioritize over HTTP, ms; {against}; K = {k:.2f}", columns, rows)


if __name__ == "__main__":
    main()
