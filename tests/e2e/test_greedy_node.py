"""A kubelet that reports 1,000 CPUs draws few pods of other tenants by moves and evictions.

kube-scheduler prefers the emptiest node, as by default, so it chooses the greedy one for every pod.
"""

from collections import Counter
from collections.abc import Iterator

import pytest

from core.engine.node_share import SHARE_MIN
from core.marks.wellknown import KEEP_ANNOTATION
from tests.e2e.api import MERGE, Api, Json
from tests.e2e.attacks import ROGUE
from tests.e2e.moves import (
    CLUSTER_KINDS,
    MOVED_SECONDS,
    NEW,
    OLD,
    SETTINGS,
    App,
    app_of,
    controllers,
    deploy,
    installed_for_moves,
    is_detached,
    outlast_reconciliations,
    tidy,
)
from tests.e2e.objects import NODES, PODS, add_nodes
from tests.e2e.plane import Ebb, Plane
from tests.e2e.pod_metrics import ready

APPS = [f"tenant-{number}" for number in range(6)]
CLAIM = {"cpu": "1000", "memory": "4Ti", "pods": "1000"}
EVERYTHING = {"cpu": "100m", "memory": "128Mi", "pods": "110"}


@pytest.fixture(scope="module", autouse=True)
def leader(plane: Plane) -> Iterator[Ebb]:
    """Install Ebb, and run a controller."""
    with installed_for_moves(plane), controllers(plane) as start:
        yield start().wait_ready()


@pytest.fixture
def cluster(api: Api) -> Iterator[Api]:
    """Return the API; delete what the tests create afterwards."""
    yield api
    tidy(api)
