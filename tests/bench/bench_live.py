"""The live loop on real programs: a falling load for eight minutes, with `marks` and with `pack`.

`python -m tests.bench.bench_live [none|marks|pack|marks+scalein|pack+scalein ...]`; about nine
minutes each. With `+scalein` scale-ins empty marked nodes first. The autoscaler's stand-in takes
unguarded nodes that have been empty for 20 s. Needs `make e2e-tools`.
"""

import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from core.config.settings import Mode
from tests.e2e.install import apply, installed, overlay
from tests.e2e.live import HEAD, Load, Outcome, play
from tests.e2e.objects import clear
from tests.e2e.plane import Plane
from tests.e2e.test_scheduling import port_of, scheduling, stanza, start_extender

SETTINGS = {
    "usability": "none",
    "delay": "5s",
    "headroom": 1,
    "thresholds": {"cpu": "85%", "memory": "85%"},
}
COMPONENTS = ("components/extender", "components/scale-in-order")
KNOWN = (
    ("autoscaler alone, empty nodes only", 19_156),
    ("autoscaler alone, evicting under 50 %", 13_761),
    ("a marker of 40 lines, no evictions", 15_308),
    ("the same with fuller-first scores", 13_237),
)
"""Measured on a real Cluster Autoscaler with the same load, one run each."""


@contextmanager
def pair(plane: Plane, name: str) -> Iterator[None]:
    """Run kube-scheduler, with both our programs or (`none`) alone."""
    score, _, scale_in = name.partition("+")
    order = "enabled" if scale_in == "scalein" else "disabled"
    with ExitStack() as stack:
        stanzas = []
        if score == "none":
            apply(plane)
        else:
            folder = plane.folder / "installed"
            overlay(folder, *COMPONENTS)
            how = {"mode": Mode.ENFORCE, "scaleInOrder": order, **SETTINGS}
            stack.enter_context(installed(plane, str(folder), **how))
            extender = start_extender(plane, score=score).wait_ready()
            stack.callback(extender.stop)
            stanzas.append(stanza(port_of(extender)))
        stack.enter_context(scheduling(plane, *stanzas))
        yield


def run(name: str, load: Load) -> Outcome:
    """Play the load on a control plane of its own."""
    with tempfile.TemporaryDirectory(prefix="ebb-live-") as folder:
        plane = Plane(Path(folder)).start()
        try:
            with pair(plane, name):
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
    names = sys.argv[1:] or ["marks", "pack"]
    load = Load.ramp()
    print(f"live loop: {load.nodes} nodes, {load.seconds:.0f} s, requested cpu 65 % -> 45 %")
    print(f"{'':40} {HEAD}")
    for known, node_seconds in KNOWN:
        print(f"{known:40} {node_seconds:>12,}")
    for name in names:
        outcome = run(name, load)
        print(f"{'Ebb, extender.score: ' + name:40} {outcome.line()}", flush=True)
        for fault in outcome.faults[:5]:
            print(f"  fault: {fault}")


if __name__ == "__main__":
    main()
