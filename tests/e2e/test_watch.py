"""The controller's view after an outage of the API server, and no actions on a stale view."""

import signal
from collections.abc import Iterator

import pytest

from core.config.settings import Mode
from core.marks.wellknown import MARK_LABEL
from kube.target import NAMESPACE
from tests.e2e.api import Api, Json
from tests.e2e.install import (
    CONTROLLER_ACCOUNT,
    REGISTRATION,
    apply,
    config,
    ending,
    remove,
    start_program,
)
from tests.e2e.objects import NODES, PODS, add_nodes, pod
from tests.e2e.plane import LOOPBACK, Ebb, Plane, until
from tests.e2e.stub import Wire

OURS = f"system:serviceaccount:{NAMESPACE}:{CONTROLLER_ACCOUNT}"


@pytest.fixture
def wire(plane: Plane) -> Iterator[Wire]:
    made = Wire(plane.port)
    yield made
    made.cut()


@pytest.fixture
def controller(plane: Plane, wire: Wire) -> Iterator[Ebb]:
    """Run a controller in mode enforce behind a connection that can be cut; no webhook runs."""
    apply(plane)
    plane.api.delete(REGISTRATION)
    settings = config(mode=Mode.ENFORCE, usableCapacity="all")
    url = f"https://{LOOPBACK}:{wire.port}"
    ebb = start_program(plane, "controller", settings, "ebb-cut", url=url)
    with ending(plane, ebb):
        yield ebb.wait_ready()
    remove(plane)


def marks(found: dict[str, Json]) -> list[str]:
    return [n for n, one in found.items() if MARK_LABEL in one["metadata"]["labels"]]


def one_marked(api: Api) -> str:
    return marks(api.wait(NODES, marks))[0]  # type: ignore[arg-type]


def our_marks(plane: Plane) -> list[str]:
    """Return the nodes that the controller has marked, in order, from the audit log."""
    return [
        event["objectRef"]["name"]
        for event in plane.audited()
        if event["user"]["username"] == OURS
        and event["verb"] == "patch"
        and event["objectRef"]["resource"] == "nodes"
        and MARK_LABEL in (event["requestObject"]["metadata"].get("labels") or {})
    ]


def test_controller_does_not_act_on_stale_view_when_watch_is_cut(
    plane: Plane, api: Api, controller: Ebb, wire: Wire
) -> None:
    for name in "abc":  # before the nodes, as an empty node could be marked
        api.create(PODS, pod(f"on-{name}", node_name=name, cpu="3"))
    add_nodes(api, "a", "b", "c")
    seen = reconciliations(controller)
    until(lambda: reconciliations(controller) > seen + 2, "they find nothing to do")
    assert not marks(api.wait(NODES, lambda found: len(found) == 3))
    wire.cut()
    # Pods are deleted and recreated while the watch is cut; a stale view would act on it.
    api.delete(f"{PODS}/on-a", gracePeriodSeconds=0)
    api.delete(f"{PODS}/on-b", gracePeriodSeconds=0)
    api.create(PODS, pod("again-a", node_name="a", cpu="3"))
    api.create(PODS, pod("again-b", node_name="b", cpu="3"))
    before = our_marks(plane)
    wire.mend()
    seen = reconciliations(controller)
    until(lambda: reconciliations(controller) > seen + 2, "reconciliations on the new view", 90)
    assert our_marks(plane) == before
    api.delete(f"{PODS}/again-a", gracePeriodSeconds=0)
    assert one_marked(api) == "a", "and the view is right again"


def reconciliations(controller: Ebb) -> float:
    return controller.metric("ebb_reconcile_duration_seconds_count")


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_controller_continues_when_api_server_restarts(
    plane: Plane, api: Api, controller: Ebb, how: signal.Signals
) -> None:
    add_nodes(api, "a", "b")
    api.create(PODS, pod("p", node_name="a"))
    api.create(PODS, pod("q", node_name="b"))
    name = one_marked(api)
    plane.apiserver.stop(how)
    until(
        lambda: controller.metric('ebb_watch_restarts_total{reason="error",resource="pods"}'),
        "cut",
    )
    plane.apiserver.start()
    plane.wait_ready()
    api.create(PODS, pod("big", node_name="b" if name == "a" else "a", cpu="3"))
    api.wait(NODES, lambda found: not marks(dict(found)), seconds=60)
    assert controller.program.running


def test_controller_lists_again_when_resource_version_has_expired(
    plane: Plane, api: Api, controller: Ebb, wire: Wire
) -> None:
    add_nodes(api, "a", "b")
    api.create(PODS, pod("p", node_name="a"))
    one_marked(api)
    wire.cut()
    for number in range(20):
        api.create(PODS, pod(f"short-{number}", node_name="a", cpu="10m"))
    for number in range(20):
        api.delete(f"{PODS}/short-{number}", gracePeriodSeconds=0)
    # The watch cache of a new server begins at its start, so older versions have expired.
    plane.apiserver.stop()
    plane.apiserver.start()
    plane.wait_ready()
    wire.mend()
    expired = 'ebb_watch_restarts_total{reason="expired",resource="pods"}'
    until(lambda: controller.metric(expired), "410", 60)
    api.create(PODS, pod("big", node_name="b", cpu="3"))
    api.create(PODS, pod("bigger", node_name="a", cpu="2"))
    api.wait(NODES, lambda found: not marks(dict(found)), seconds=60)
