"""Run every fault for a minute, in an order that depends on a seed: `make chaos`."""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.e2e.plane import Plane
from tests.e2e.town import Town
from tests.e2e.troubles import TROUBLES

OUTAGE_SECONDS: Final = 60.0


def main(arguments: Sequence[str]) -> int:
    """Run the rounds; print the first violation and return 1."""
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument(
        "--outage", type=float, default=OUTAGE_SECONDS, help="seconds of each fault"
    )
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="ebb-chaos-") as folder:
        plane = Plane(Path(folder))
        try:
            town = Town(plane.start(), asked.seed)
            return _play(town, asked.rounds, asked.outage)
        finally:
            plane.stop()


def _play(town: Town, rounds: int, seconds: float) -> int:
    for _ in range(rounds):
        for trouble in town.chance.sample(TROUBLES, len(TROUBLES)):
            trouble(town, seconds)
            try:
                took = town.settled(trouble.__name__)
            except AssertionError as fault:
                print(fault)
                return 1
            held = ", ".join(f"{one.ebb.program.rss_bytes() >> 20}" for one in town.programs)
            print(
                f"{trouble.__name__:<32}{took:6.1f} s to next reconciliation; MiB {held}",
                flush=True,
            )
    print(f"seed {town.seed}: {rounds} x {len(TROUBLES)} faults, {len(town.crowd.known)} pods")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
