"""The live loop on real programs: a falling load for eight minutes, with `marks` and with `pack`.

`python -m tests.bench.bench_live [none|marks|pack ...]`; about nine minutes each. The autoscaler's
stand-in takes unguarded nodes that have been empty for 20 s. Needs `make e2e-tools`.
"""

import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from core.config import Mode
from tests.e2e.install import apply, installed
from tests.e2e.live import HEAD, Load, Outcome, play
from tests.e2e.objects import clear
from tests.e2e.plane import Plane
from tests.e2e.test_scheduling import port_of, scheduling, stanza, start_extender

SETTINGS = {"usability": "none", "delay": "5s", "thresholds": {"cpu": "85%", "memory": "85%"}}
FOLDER = "manifests/examples/self-managed"
KNOWN = (
    ("autoscaler alone, empty nodes only", 19_156),
    ("autoscaler alone, evicting under 50 %", 13_761),
    ("a marker of 40 lines, no evictions", 15_308),
    ("the same with fuller-first scores", 13_237),
)
"""Measured on a real Cluster Autoscaler with the same load, one run each."""


@contextmanager
def pair(plane: Plane, score: str) -> Iterator[None]:
    """Run kube-scheduler, with both our programs or (`none`) alone."""
    with ExitStack() as stack:
        stanzas = []
        if score == "none":
            apply(plane)
        else:
            stack.enter_context(installed(plane, FOLDER, mode=Mode.ENFORCE, **SETTINGS))
            extender = start_extender(plane, score=score).wait_ready()
            stack.callback(extender.stop)
            stanzas.append(stanza(port_of(extender)))
        stack.enter_context(scheduling(plane, *stanzas))
        yield


def run(score: str, load: Load) -> Outcome:
    """Play the load on a control plane of its own."""
    with tempfile.TemporaryDirectory(prefix="ebb-live-") as folder:
        plane = Plane(Path(folder)).start()
        try:
            with pair(plane, score):
                outcome = play(plane.api, load, say)
                clear(plane.api)
                return outcome
        finally:
            plane.stop()


def say(text: str) -> None:
    """Show progress."""
    print(f"  {text}", file=sys.stderr, flush=True)


def main() -> None:
    """Play the whole load once for each score, and print the table."""
    scores = sys.argv[1:] or ["marks", "pack"]
    load = Load.ramp()
    print(f"live loop: {load.nodes} nodes, {load.seconds:.0f} s, requested cpu 65 % -> 45 %")
    print(f"{'':40} {HEAD}")
    for name, node_seconds in KNOWN:
        print(f"{name:40} {node_seconds:>12,}")
    for score in scores:
        outcome = run(score, load)
        print(f"{'Ebb, extender.score: ' + score:40} {outcome.line()}", flush=True)
        for fault in outcome.faults[:5]:
            print(f"  fault: {fault}")


if __name__ == "__main__":
    main()
