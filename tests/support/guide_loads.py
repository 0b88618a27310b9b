"""Write the loads of the guides, docs/guides/loads: `python -m tests.support.guide_loads`.

A load is two dumps of a cluster. The second has all pods of the time between them. They have
finished, so each pod has the times of its whole life.
"""

import json
import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

FOLDER: Final = Path(__file__).parents[2] / "docs" / "guides" / "loads"
START: Final = datetime(2026, 11, 2, 6, tzinfo=UTC)
HOURS: Final = 14
SEED: Final = 1

Json = dict[str, Any]


class Kind(NamedTuple):
    """What the pods of a load have in common."""

    server: str
    """Name of the Deployment that starts them."""
    name: str
    namespace: str
    requests: dict[str, str]
    owner: str | None
    """Kind of the controller."""
    restart: str
    annotations: dict[str, str]


class Life(NamedTuple):
    """When a pod is created and how long it runs, in minutes after START."""

    start_min: int
    length_min: int


USERS: Final = Kind("hub", "jupyter", "hub", {"cpu": "1", "memory": "4Gi"}, None, "OnFailure", {})
RUNNERS: Final = Kind(
    "arc", "runner", "arc-runners", {"cpu": "2", "memory": "4Gi"}, "EphemeralRunner", "Never", {}
)
GAME_SERVERS: Final = Kind(
    "agones",
    "arena",
    "games",
    {"cpu": "1", "memory": "2Gi"},
    "GameServer",
    "Always",
    {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"},
)


def users(chance: random.Random) -> Iterator[Life]:
    """Yield sessions: most begin in the morning, and each takes half an hour to seven hours."""
    for _ in range(110):
        yield Life(chance.randrange(60, 540), 30 + chance.randrange(30) * chance.randrange(15))


def runners(chance: random.Random) -> Iterator[Life]:
    """Yield jobs: a push starts up to twelve of them, which take 2 to 40 minutes."""
    for _ in range(18):
        pushed = chance.randrange(30, 780)
        for _ in range(chance.randrange(1, 13)):
            yield Life(pushed + chance.randrange(3), 2 + chance.randrange(7) * chance.randrange(7))


def game_servers(chance: random.Random) -> Iterator[Life]:
    """Yield matches: most in the evening, and each takes 20 to 60 minutes."""
    for number in range(120):
        begin = chance.randrange(30, 780) if number % 3 else chance.randrange(420, 660)
        yield Life(begin, 20 + chance.randrange(40))


LOADS: Final[dict[str, tuple[Kind, Callable[[random.Random], Iterator[Life]]]]] = {
    "jupyterhub": (USERS, users),
    "runners": (RUNNERS, runners),
    "agones": (GAME_SERVERS, game_servers),
}


def written(minutes: int) -> str:
    """Return the time so many minutes after START, as Kubernetes writes it."""
    return (START + timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")


def node(number: int) -> Json:
    """Return a Node of four cores that is Ready."""
    resources = {"cpu": "4", "memory": "16Gi", "pods": "110"}
    return {
        "kind": "Node",
        "metadata": {"name": f"node-{number}", "creationTimestamp": written(-1440)},
        "status": {"allocatable": resources, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def pod(kind: Kind, number: int, life: Life) -> Json:
    """Return a Pod that has finished."""
    name = f"{kind.name}-{number:03}"
    begin, end = written(life.start_min), written(life.start_min + life.length_min)
    metadata: Json = {"name": name, "namespace": kind.namespace, "creationTimestamp": begin}
    if kind.annotations:
        metadata["annotations"] = kind.annotations
    if kind.owner:
        metadata["ownerReferences"] = [{"kind": kind.owner, "name": name, "controller": True}]
    container = {"name": "main", "resources": {"requests": kind.requests}}
    done = {"terminated": {"finishedAt": end}}
    return {
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"nodeName": "node-1", "restartPolicy": kind.restart, "containers": [container]},
        "status": {
            "phase": "Succeeded",
            "startTime": begin,
            "containerStatuses": [{"name": "main", "state": done}],
        },
    }


def server(kind: Kind) -> Json:
    """Return the Pod of the Deployment that starts the pods; it runs all the time."""
    owner = {"kind": "ReplicaSet", "name": f"{kind.server}-6d4b", "controller": True}
    return {
        "kind": "Pod",
        "metadata": {
            "name": f"{kind.server}-6d4b-x7k2p",
            "namespace": kind.namespace,
            "creationTimestamp": written(-1440),
            "ownerReferences": [owner],
        },
        "spec": {
            "nodeName": "node-1",
            "containers": [{"name": "main", "resources": {"requests": {"cpu": "500m"}}}],
        },
        "status": {"phase": "Running", "startTime": written(-1440)},
    }


def dump(items: list[Json]) -> str:
    """Return a List with one object in each line."""
    lines = ",\n".join(json.dumps(item, separators=(",", ":")) for item in items)
    return f'{{"apiVersion":"v1","kind":"List","items":[\n{lines}\n]}}\n'


def files() -> Iterator[tuple[Path, str]]:
    """Yield the path and the content of each dump."""
    nodes = [node(number) for number in (1, 2)]
    for name, (kind, lives) in LOADS.items():
        standing = [*nodes, server(kind)]
        ordered = sorted(lives(random.Random(SEED)))
        whole = [life for life in ordered if life.start_min + life.length_min < 60 * HOURS]
        pods = [pod(kind, number, life) for number, life in enumerate(whole)]
        for minutes, items in ((0, standing), (60 * HOURS, standing + pods)):
            time = written(minutes).replace(":", "-")
            yield FOLDER / name / f"{time}.json", dump(items)


if __name__ == "__main__":
    for path, text in files():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
