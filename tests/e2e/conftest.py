"""Fixtures: one control plane for all tests of a run; each test removes its objects."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e import tools
from tests.e2e.api import Api
from tests.e2e.install import ADDED
from tests.e2e.objects import clear
from tests.e2e.plane import Ebb, Plane

if True:
    pytest.register_assert_rewrite("tests.e2e.endpoints")

from tests.e2e.install import Start
from tests.e2e.moves import controllers, installed_for_moves, tidy

HERE = Path(__file__).parent
LONG_FILES = [
    HERE / f"test_{name}.py"
    for name in ("karpenter", "moves_killed", "moves", "live", "moves_interrupted", "helm")
]
"""Files that take minutes. They run first, so that all processes end at about the same time."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests here as e2e: they need the programs of a control plane."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.e2e)
    order = {path: number for number, path in enumerate(LONG_FILES)}
    items.sort(key=lambda item: order.get(item.path, len(order)))


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    """Start etcd, the API server, the controller manager and kwok."""
    try:
        made = Plane(tmp_path_factory.mktemp("plane"))
    except tools.MissingError as fault:
        pytest.fail(str(fault), pytrace=False)
    try:
        yield made.start()
        assert refused_by_policies(made) == []
    finally:
        made.stop()


def refused_by_policies(plane: Plane) -> list[str]:
    """Return what the API server said when a policy refused a write, other than a dry run.

    The policies of the manifests apply to accounts of Ebb only, and no program makes such a write,
    unless a test lets another policy add the label ADDED.
    """
    with plane.audit.open(encoding="utf-8") as lines:
        events = [json.loads(line) for line in lines if "denied request" in line]
    return [
        f"{event['verb']} {event['requestURI']}: {event['responseStatus']['message']}"
        for event in events
        if "dryRun=All" not in event["requestURI"]
        and "ValidatingAdmissionPolicy 'ebb-" in event["responseStatus"].get("message", "")
        and ADDED not in event["responseStatus"]["message"]
    ]


@pytest.fixture
def api(plane: Plane) -> Iterator[Api]:
    """Yield the API as administrator, for a cluster without nodes and pods."""
    yield plane.api
    clear(plane.api)


@pytest.fixture(scope="module")
def installed(plane: Plane) -> Iterator[None]:
    """Install Ebb for tests of surge moves."""
    with installed_for_moves(plane):
        yield


@pytest.fixture(scope="module")
def leader(plane: Plane, installed: None) -> Iterator[Ebb]:  # noqa: ARG001 for its effect
    """Run a controller with surge moves for all tests of a file."""
    with controllers(plane) as start:
        yield start().wait_ready()


@pytest.fixture
def start(plane: Plane, installed: None) -> Iterator[Start]:  # noqa: ARG001 for its effect
    """Yield a function that starts controllers with surge moves."""
    with controllers(plane) as start:
        yield start


@pytest.fixture
def cluster(api: Api) -> Iterator[Api]:
    """Return the API; delete what tests of surge moves create afterwards."""
    yield api
    tidy(api)
