"""A throw-away cluster for docs/tutorial.md: `make cluster` runs it until Ctrl-C.

Four nodes of four cores run one Deployment. kwok stands for the kubelets. The folder gets a file
`env`, which sets KUBECONFIG and PATH for the commands of the tutorial.
"""

import argparse
import os
import shutil
import signal
import sys
import threading
from pathlib import Path
from typing import Final

from tests.e2e import tools
from tests.e2e.api import Json
from tests.e2e.objects import DEPLOYMENTS, add_nodes
from tests.e2e.plane import ROOT, Plane, until

FOLDER: Final = ROOT / ".cluster"
NODES: Final = ("node-1", "node-2", "node-3", "node-4")
REPLICAS: Final = 8


def deployment() -> Json:
    """Return the Deployment: its pods request a quarter of the cluster's cores."""
    labels = {"app": "web"}
    requests = {"cpu": "500m", "memory": "1Gi"}
    container = {"name": "main", "image": "none", "resources": {"requests": requests}}
    return {
        "metadata": {"name": "web"},
        "spec": {
            "replicas": REPLICAS,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


def write_env(plane: Plane) -> Path:
    """Write the file that a shell reads to use the cluster and the programs of Ebb."""
    programs = os.pathsep.join([str(Path(sys.executable).parent), str(plane.bin)])
    path = plane.folder / "env"
    path.write_text(
        f"export KUBECONFIG='{plane.kubeconfig('admin')}'\nexport PATH='{programs}':\"$PATH\"\n"
    )
    return path


def fill(plane: Plane) -> None:
    """Add the nodes and the Deployment, and wait until its pods are ready."""
    plane.scheduler()
    add_nodes(plane.api, *NODES)
    plane.api.create(DEPLOYMENTS, deployment())
    path = f"{DEPLOYMENTS}/web"
    until(
        lambda: plane.api.get(path)["status"].get("readyReplicas") == REPLICAS,
        "all pods are ready",
    )


def main() -> int:
    """Start the cluster, and stop it at Ctrl-C."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=FOLDER, help="data, logs and env")
    folder = parser.parse_args().folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    try:
        plane = Plane(folder)
    except tools.MissingError as fault:
        sys.exit(str(fault))
    try:
        fill(plane.start())
        print(f"The cluster is ready. In another terminal:  . {os.path.relpath(write_env(plane))}")
        print("Ctrl-C here stops it and deletes its data.", flush=True)
        stop.wait()
    finally:
        plane.stop()
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
