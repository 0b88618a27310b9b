"""The openb trace: two CSV files to nodes and pods."""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from core.errors import InvalidInputError
from core.model import Resources
from sim.workload import PODS_PER_NODE, amount

NODES_FILE: Final = "openb_node_list_all_node.csv"
PODS_FILE: Final = "openb_pod_list_default.csv"


def nodes(folder: Path) -> list[tuple[str, Resources]]:
    """Return (name, allocatable) of every node. Raises: InvalidInputError with file and line."""
    return [
        (row["sn"], amount(_int(row, "cpu_milli", at), _int(row, "memory_mib", at),
                           1000 * _int(row, "gpu", at), PODS_PER_NODE))
        for at, row in _rows(folder / NODES_FILE, "sn")
    ]  # fmt: skip


def pods(folder: Path) -> list[tuple[str, Resources, int]]:
    """Return (name, requests, life in ms) of every pod, in order of creation."""
    found = []
    for at, row in _rows(folder / PODS_FILE, "name"):
        created, deleted = _int(row, "creation_time", at), _int(row, "deletion_time", at)
        gpu = _int(row, "num_gpu", at) * _int(row, "gpu_milli", at)
        requests = amount(_int(row, "cpu_milli", at), _int(row, "memory_mib", at), gpu)
        life = 1000 * max(deleted - created, 0)
        found.append((created, row["name"], requests, life))
    return [(name, requests, life) for _, name, requests, life in sorted(found, key=_by_creation)]


def _by_creation(row: tuple[int, str, Resources, int]) -> tuple[int, str]:
    return row[0], row[1]


def _rows(path: Path, name: str) -> Iterator[tuple[str, dict[str, str]]]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            for number, row in enumerate(csv.DictReader(file), start=2):
                if not row.get(name):
                    raise InvalidInputError(f"{path}: line {number}: {name}", "missing")
                yield f"{path}: line {number}", row
    except OSError as fault:
        raise InvalidInputError(str(path), fault.strerror or str(fault)) from fault


def _int(row: dict[str, str], field: str, at: str) -> int:
    text = row.get(field) or ""
    if not text.isdecimal() or len(text) > 15:
        raise InvalidInputError(
            f"{at}: {field}", f"{text!r:.40} is not a whole number of 0 or more"
        )
    return int(text)
