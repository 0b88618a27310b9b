"""CapacityBuffers on a real API server: Ebb reserves nodes for them, and publishes its own."""

import signal
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from core.config.settings import Mode
from core.marks.wellknown import BUFFER_OURS_LABEL, MARK_LABEL
from kube.decode.kinds import BUFFERS, TEMPLATES
from kube.target import NAMESPACE
from kube.watch import ABSENT_SECONDS
from tests.e2e.api import Api, Json
from tests.e2e.buffers import DEFINITIONS, GROUP, NAME, define
from tests.e2e.install import Start, apply, overlay, remove, starting
from tests.e2e.objects import NODES, PODS, add_nodes, pod
from tests.e2e.plane import Plane, until

OURS = f"/apis/{GROUP}/v1beta1/namespaces/{NAMESPACE}/{BUFFERS.resource}"
THEIRS = f"/apis/{GROUP}/v1beta1/namespaces/default/{BUFFERS.resource}"
OUR_TEMPLATES = f"/api/v1/namespaces/{NAMESPACE}/{TEMPLATES.resource}"
THEIR_TEMPLATES = f"/api/v1/namespaces/default/{TEMPLATES.resource}"
READY = {"type": "ReadyForProvisioning", "status": "True", "reason": "Resolved"}
SEEN_SECONDS = 3 * ABSENT_SECONDS
"""Timeout for a kind that is installed later; the controller checks every ABSENT_SECONDS."""
SETTINGS: Mapping[str, Any] = {"mode": Mode.ENFORCE, "usableCapacity": "all"}


@pytest.fixture(scope="module", autouse=True)
def installed(plane: Plane) -> Iterator[None]:
    """Install Ebb with the component, but without the CRD."""
    folder = plane.folder / "buffers"
    overlay(folder, "components/capacity-buffers")
    apply(plane, str(folder))
    yield
    plane.kubectl("-n", NAMESPACE, "delete", "role,rolebinding", "ebb-controller-buffers")
    plane.api.delete(f"{DEFINITIONS}/{NAME}")
    remove(plane)


@pytest.fixture
def start(plane: Plane) -> Iterator[Start]:
    """Run a webhook; yield a function that starts controllers with these settings."""
    with starting(plane, dict(SETTINGS)) as start:
        yield start


@pytest.fixture
def kind(plane: Plane) -> None:
    """Install the CRD."""
    define(plane)


def marked(nodes: Mapping[str, Json]) -> set[str]:
    return {name for name, one in nodes.items() if MARK_LABEL in one["metadata"]["labels"]}


def ask(api: Api, replicas: int) -> None:
    """Create a buffer as a user does, and accept it as an autoscaler does."""
    api.create(
        THEIR_TEMPLATES,
        {"metadata": {"name": "room"}, "template": {"spec": pod("x", cpu="3")["spec"]}},
    )
    api.create(
        THEIRS,
        {
            "apiVersion": f"{GROUP}/v1beta1",
            "kind": BUFFERS.name,
            "metadata": {"name": "room"},
            "spec": {"podTemplateRef": {"name": "room"}, "replicas": replicas},
        },
    )
    status = {"replicas": replicas, "podTemplateRef": {"name": "room"}, "conditions": [READY]}
    api.merge(f"{THEIRS}/room/status", {"status": status})


def test_controller_reserves_nodes_for_capacitybuffer_until_it_is_deleted(
    start: Start, plane: Plane, api: Api
) -> None:
    """The buffer needs two nodes of 4 cores: two pods of 3 cores, beside a pod of 500m.

    The controller leads and marks before the CRD is installed.
    """
    ebb = start()
    add_nodes(api, "a", "b", "c", "d")
    api.create(PODS, pod("one", cpu="500m", node_name="a"))
    api.wait(NODES, lambda nodes: len(marked(nodes)) == 3)
    define(plane)
    ask(api, 2)
    api.wait(NODES, lambda nodes: len(marked(nodes)) == 2, SEEN_SECONDS)
    until(lambda: ebb.metric("ebb_capacity_buffer_reserved_pods") == 2, "it is told")
    api.delete(f"{THEIRS}/room")
    api.wait(NODES, lambda nodes: len(marked(nodes)) == 3)
    assert ebb.program.running
    ebb.stop(signal.SIGTERM)
    api.delete(f"{THEIR_TEMPLATES}/room")


@pytest.mark.usefixtures("kind")
def test_controller_publishes_capacitybuffer_and_deletes_it_when_no_pods_are_expected(
    start: Start, api: Api
) -> None:
    add_nodes(api, "a", "b")
    api.create(PODS, pod("full", cpu="3500m", node_name="b"))
    ebb = start(reserve={"window": "60s", "percentile": "100%"})
    until(lambda: ebb.metric("ebb_leader") == 1, "it leads")
    api.wait(NODES, lambda nodes: len(nodes) == 2)
    until(lambda: ebb.metric('ebb_reconcile_total{result="evaluated"}') > 0, "it has looked")
    for number in range(3):
        api.create(PODS, pod(f"job-{number}", cpu="1300m", node_name="a"))
    (told,) = api.wait(OURS, lambda found: len(found) == 1).values()
    assert told["spec"]["replicas"] >= 1
    api.wait(OURS, lambda found: [one["spec"]["replicas"] for one in found.values()] == [3])
    assert BUFFER_OURS_LABEL in told["metadata"]["labels"]
    (template,) = api.wait(OUR_TEMPLATES, lambda found: len(found) == 1).values()
    (container,) = template["template"]["spec"]["containers"]
    assert container["resources"]["requests"] == {"cpu": "1300m"}
    until(lambda: ebb.metric("ebb_capacity_buffer_published_pods") == 3, "it is told")
    assert ebb.metric("ebb_published_accepted_pods") == 0
    ebb.configure(reserve={"window": "never"})
    api.wait(OURS, lambda found: not found)
    api.wait(OUR_TEMPLATES, lambda found: not found)
