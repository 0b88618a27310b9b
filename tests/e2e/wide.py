"""The load `wide`: thirty Deployments in three zones, scaled in at one moment.

A file has a row for each Deployment, with the columns of Karpenter's benchmark of scale-ins
(test/suites/performance/wide_deployments_test.go). Nodes have 32 cores and 256Gi, so that the
requests use up both. The benchmark leaves the choice of the nodes to Karpenter.
"""

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from core.model.constraints import HOST_LABEL
from core.model.quantity import parse_quantity
from tests.e2e.api import Json
from tests.e2e.live import ZONE, Event, Load, NodeShape

BEGIN: Final = -90.0
"""Second at which the Deployments are created."""
SCALE_IN: Final = 60.0
"""Second at which all Deployments are scaled in."""
NODES: Final = 66
"""Nodes at the beginning; the Deployments need 62 by their requests."""
ZONES: Final = 3
SHAPE: Final = NodeShape(cpu="32", memory="256Gi", zones=ZONES)
COLUMNS: Final = (
    "deployment", "cpu", "memory", "replicas_before", "replicas_after",
    "zone_spread", "hostname_anti_affinity", "hostname_spread",
)  # fmt: skip
MIB: Final = 1024**2


class Remaining(NamedTuple):
    """The pods of a Deployment after the scale-in."""

    cpu_millis: int
    memory_mib: int
    replicas: int
    apart: bool
    """At most one of the pods may run on a node."""


def wide(path: Path) -> Load:
    """Read a file as a load."""
    rows = _rows(path)
    events = [*(_deploy(row) for row in rows), *(_scale(row) for row in rows)]
    return Load(tuple(events), nodes=NODES, shape=SHAPE)


def remaining(path: Path) -> list[Remaining]:
    """Read the pods that remain after the scale-in.

    There are more nodes than pods of a Deployment, so a spread over nodes also keeps them apart.
    """
    return [
        Remaining(
            *_requests(row),
            int(row["replicas_after"]),
            "1" in (row["hostname_anti_affinity"], row["hostname_spread"]),
        )
        for row in _rows(path)
    ]


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def _requests(row: Mapping[str, str]) -> tuple[int, int]:
    cpu, memory = parse_quantity(row["cpu"]), parse_quantity(row["memory"])
    return round(1000 * cpu), round(memory / MIB)


def _deploy(row: Mapping[str, str]) -> Event:
    return Event(
        BEGIN,
        "deploy",
        row["deployment"],
        *_requests(row),
        replicas=int(row["replicas_before"]),
        pod_spec=_constraints(row),
    )


def _scale(row: Mapping[str, str]) -> Event:
    return Event(SCALE_IN, "scale", row["deployment"], replicas=int(row["replicas_after"]))


def _constraints(row: Mapping[str, str]) -> Json:
    selector = {"matchLabels": {"app": row["deployment"]}}
    spec: Json = {"topologySpreadConstraints": list(_spread(row, selector))}
    if row["hostname_anti_affinity"] == "1":
        term = {"labelSelector": selector, "topologyKey": HOST_LABEL}
        apart = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
        spec["affinity"] = {"podAntiAffinity": apart}
    return spec


def _spread(row: Mapping[str, str], selector: Json) -> Iterator[Json]:
    for column, key in (("zone_spread", ZONE), ("hostname_spread", HOST_LABEL)):
        if row[column] == "1":
            yield {
                "maxSkew": 1,
                "topologyKey": key,
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": selector,
            }
