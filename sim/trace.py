"""Read the openb trace of Alibaba: two CSV files with nodes and pods."""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from core.model.errors import InvalidInputError
from core.model.resources import Resources
from sim.simulated_load import PODS_PER_NODE, SimulatedLoad, amount, bootstrap
from sim.statistics import WAVE_PERCENT

NODES_FILE: Final = "openb_node_list_all_node.csv"
PODS_FILE: Final = "openb_pod_list_default.csv"
PODS_AT_ONCE: Final = 5000
"""Default number of concurrent pods; they use three quarters of the GPUs of the 1,523 nodes."""
DIGITS_MAX: Final = 9
"""Digits of a field, so that no product of two fields exceeds a Kubernetes quantity."""


def nodes(folder: Path) -> list[tuple[str, Resources]]:
    """Return (name, allocatable) of every node. Raises: InvalidInputError with file and line."""
    return [
        (row["sn"], amount(_int(row, "cpu_milli", at), _int(row, "memory_mib", at),
                           1000 * _int(row, "gpu", at), PODS_PER_NODE))
        for at, row in rows(folder / NODES_FILE, "sn")
    ]  # fmt: skip


class TracePod(NamedTuple):
    """A pod of the trace."""

    created_ms: int
    name: str
    requests: Resources
    life_ms: int


def pods(folder: Path) -> list[TracePod]:
    """Return every pod, in order of creation. Raises: InvalidInputError with file and line."""
    trace_pods = []
    for at, row in rows(folder / PODS_FILE, "name"):
        created, deleted = _int(row, "creation_time", at), _int(row, "deletion_time", at)
        if deleted < created:
            raise InvalidInputError(f"{at}: deletion_time", f"{deleted} is before creation_time")
        gpu = _int(row, "num_gpu", at) * _int(row, "gpu_milli", at)
        requests = amount(_int(row, "cpu_milli", at), _int(row, "memory_mib", at), gpu)
        trace_pods.append(
            TracePod(1000 * created, row["name"], requests, 1000 * (deleted - created))
        )
    return sorted(trace_pods, key=lambda pod: pod[:2])


def drawn(folder: Path, *, seed: int, days: int, at_once: int = PODS_AT_ONCE) -> SimulatedLoad:
    """Generate a load from random pods of the trace, on the nodes of the trace.

    The arrival rate follows the daily wave of sim.statistics. *at_once*: mean number of concurrent
    pods. Raises: InvalidInputError with file and line.
    """
    shapes = [shape for _, shape in nodes(folder)]
    lives = [(pod.requests, pod.life_ms) for pod in pods(folder)]
    return bootstrap(shapes, lives, seed=seed, days=days, at_once=at_once, wave=WAVE_PERCENT)


def rows(path: Path, name: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield (location, values by column) for each line of a CSV file; locations are for errors.

    The column *name* must have a unique value in each line. Raises: InvalidInputError with file
    and line.
    """
    seen: set[str] = set()
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            for row in reader:
                at = f"{path}: line {reader.line_num}"
                key = row.get(name)
                if not key:
                    raise InvalidInputError(f"{at}: {name}", "missing")
                if key in seen:
                    raise InvalidInputError(f"{at}: {name}", f"{key!r:.80} occurs twice")
                seen.add(key)
                yield at, row
    except OSError as fault:
        raise InvalidInputError(str(path), fault.strerror or str(fault)) from fault
    except (csv.Error, UnicodeDecodeError) as fault:
        raise InvalidInputError(str(path), f"not CSV in UTF-8: {fault}") from fault
    if not seen:
        raise InvalidInputError(str(path), "has no rows")


def _int(row: dict[str, str], field: str, at: str) -> int:
    text = row.get(field) or ""
    if not text.isdecimal() or len(text) > DIGITS_MAX:
        problem = f"{text!r:.40}; allowed: a whole number of up to {DIGITS_MAX} digits"
        raise InvalidInputError(f"{at}: {field}", problem)
    return int(text)
