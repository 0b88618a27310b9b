"""Kill the leader each minute, and compare what Ebb has counted with what happened: `make kills`.

Nodes become empty and are removed all the time. A watch of the Nodes counts marks, unmarks and
removed nodes. What Ebb has counted is never more. It only lacks what happened between the last
write of a leader that was killed and the first one of the next leader.
"""

import argparse
import base64
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from controller import names
from core.config.settings import Mode
from core.history.packing import read_today
from core.history.today import Today
from kube.stores.packed_config_map import KEY
from kube.target import NAMESPACE
from tests.e2e.api import Json
from tests.e2e.counted import PRINTED, Counted, Version, printed_days
from tests.e2e.fleet import Fleet
from tests.e2e.install import apply, config, in_force, leader_of, point, port_of, start_program
from tests.e2e.moves import outlast_reconciliations
from tests.e2e.plane import Ebb, Plane, until

CONFIG_MAPS: Final = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
REPLICAS: Final = ("ebb-controller-first", "ebb-controller-second")
LEASE_SECONDS: Final = 15
"""As in the manifests."""
STORED_SECONDS: Final = 120.0
"""Time within which the next leader has stored something, on a busy machine."""
SETTINGS: Final = {"usableCapacity": "all", "scaleDownProtection": {"afterUnmark": "2s"}}


class Kills:
    """Two controllers whose leader is killed, the fleet, and every version of `ebb-today`."""

    def __init__(self, plane: Plane, seed: int) -> None:
        self._plane, self._fleet = plane, Fleet(plane.api, seed)
        self.counted = Counted(self._fleet.happened)
        self._ended = threading.Event()
        apply(plane)
        webhook = config()
        point(plane, port_of(webhook))
        start_program(plane, "webhook", webhook).wait_ready()
        in_force(plane)
        plane.api.follow(CONFIG_MAPS, self._take, self._ended)
        flags = {"controller": {"--lease-duration": f"{LEASE_SECONDS}s"}}
        self._running = [
            start_program(
                plane, "controller", config(mode=Mode.ENFORCE, flags=flags, **SETTINGS), name
            )
            for name in REPLICAS
        ]
        for one in self._running:
            one.wait_ready()

    def play(self, kills: int, seconds: float) -> None:
        """Kill the leader so many times, with a pause before each kill; then let all rest."""
        self._fleet.begin()
        begun, counted = time.monotonic(), self.counted
        for number in range(1, kills + 1):
            time.sleep(max(begun + number * seconds - time.monotonic(), 0.0))
            leader = self._leader()
            leader.stop(signal.SIGKILL)
            counted.killed.append(time.time())
            print(f"{time.monotonic() - begun:5.0f} s: {leader.program.name} killed", flush=True)
            self._running.remove(leader)
            self._running.append(
                start_program(self._plane, "controller", leader.settings, name=leader.program.name)
            )
        until(
            lambda: counted.final.at > counted.killed[-1], "the next leader stores", STORED_SECONDS
        )
        self._fleet.rest()
        leader = self._leader()
        outlast_reconciliations(leader)
        leader.stop()
        until(lambda: counted.final.today == self._stored(), "the last version is seen")
        self._fleet.end()
        self._ended.set()

    def faults(self) -> list[str]:
        """Return what is wrong."""
        found = [*self.counted.faults()]
        total, days = self.counted.final.total, printed_days(self._plane)
        for figure, key in PRINTED.items():
            printed, stored = sum(day[key] for day in days), getattr(total, figure)
            print(f"ebb history: {printed} {figure}")
            if printed != stored:
                found.append(f"{figure}: `ebb history` prints {printed}, stored are {stored}")
        return found

    def _leader(self) -> Ebb:
        return leader_of(self._plane.api, self._running)

    def _stored(self) -> Today | None:
        return _read(self._plane.api.get(f"{CONFIG_MAPS}/{names.TODAY}"))

    def _take(self, _: str, found: Json) -> None:
        if found["metadata"]["name"] == names.TODAY and (today := _read(found)) is not None:
            self.counted.versions.append(Version(time.time(), today))


def _read(config_map: Json) -> Today | None:
    packed = (config_map.get("binaryData") or {}).get(KEY, "")
    return read_today(base64.b64decode(packed))


def main(arguments: Sequence[str]) -> int:
    """Run all kills; print what was counted, and return 1 if something is wrong."""
    parser = argparse.ArgumentParser(prog="kills", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--pause", type=float, default=60.0, help="seconds before each kill")
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="ebb-kills-") as folder:
        plane = Plane(Path(folder))
        try:
            kills = Kills(plane.start(), asked.seed)
            kills.play(asked.kills, asked.pause)
            print(*kills.counted.report(), sep="\n", flush=True)
            faults = kills.faults()
        finally:
            plane.stop()
    print(*faults, f"{len(faults)} faults", sep="\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
