"""kube-scheduler with the extender: it uses marked nodes last, and tolerates a broken extender."""

import signal
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.e2e.api import Api, Json
from tests.e2e.install import REGISTRATION, apply, remove
from tests.e2e.objects import PODS, add_nodes, mark, pod
from tests.e2e.plane import LOOPBACK, Ebb, Plane, free_port
from tests.e2e.scheduling import port_of, scheduling, shipped_profile, stanza, start_extender
from tests.e2e.stub import answering

UNMARKED, MARKED = ("a", "b"), ("x", "y")


@pytest.fixture(scope="module", autouse=True)
def accounts(plane: Plane) -> Iterator[None]:
    """Create the ServiceAccounts and roles, without the MutatingWebhookConfiguration."""
    apply(plane, "manifests/examples/self-managed")
    plane.api.delete(REGISTRATION)
    yield
    remove(plane)


@pytest.fixture
def nodes(api: Api) -> Api:
    """Create four nodes and mark two; no webhook runs, so there are no taints."""
    add_nodes(api, *UNMARKED, *MARKED)
    for name in MARKED:
        mark(api, name)
    return api


def placed(api: Api, count: int, prefix: str = "p", cpu: str = "500m") -> Counter[str]:
    """Create pods, wait until all are bound; return their number by node."""
    names = [f"{prefix}{number}" for number in range(count)]
    for name in names:
        api.create(PODS, pod(name, cpu=cpu))
    found = api.wait(
        PODS, lambda found: all(found.get(n, {}).get("spec", {}).get("nodeName") for n in names)
    )
    return Counter(found[name]["spec"]["nodeName"] for name in names)


@pytest.fixture
def extender(plane: Plane) -> Iterator[Ebb]:
    started = start_extender(plane)
    yield started.wait_ready()
    if started.program in plane.programs:
        started.stop()


def test_marked_nodes_get_pods_only_when_no_other_node_fits(plane: Plane, nodes: Api) -> None:
    extender = start_extender(plane, score="marks").wait_ready()
    with scheduling(plane, stanza(port_of(extender))):
        assert set(placed(nodes, 14)) == set(UNMARKED)
        assert extender.metric('ebb_extender_prioritize_requests_total{result="scored"}') >= 14
        last = placed(nodes, 4, prefix="late", cpu="2")
    extender.stop()
    assert set(last) == set(MARKED)


def test_pods_are_bound_to_marked_nodes_without_extender(plane: Plane, nodes: Api) -> None:
    with scheduling(plane):
        assert set(placed(nodes, 14)) == {*UNMARKED, *MARKED}


def test_pack_fills_fuller_node_first(plane: Plane, nodes: Api) -> None:
    extender = start_extender(plane, score="pack").wait_ready()
    nodes.create(PODS, pod("there", node_name="b", cpu="1"))
    nodes.wait(PODS, lambda found: found["there"]["status"].get("phase") == "Running")
    with scheduling(plane, stanza(port_of(extender))):
        for number in range(5):
            assert placed(nodes, 1, prefix=f"n{number}-") == {"b": 1}
    extender.stop()


ONE_STEP = {"a": "50m", "b": "350m"}
"""Requests on nodes of four cores; with both amounts `pack` gives the score of an empty node."""


@pytest.mark.parametrize(
    ("profile", "winner"),
    [pytest.param(shipped_profile(), "b", id="shipped"), pytest.param(None, "a", id="default")],
)
def test_profile_decides_between_nodes_with_same_pack_score(
    plane: Plane, nodes: Api, profile: Json | None, winner: str
) -> None:
    """The default profile of kube-scheduler chooses the emptier node."""
    extender = start_extender(plane, score="pack").wait_ready()
    for name, cpu in ONE_STEP.items():
        nodes.create(PODS, pod(f"on-{name}", node_name=name, cpu=cpu))
    nodes.wait(
        PODS, lambda found: all(p["status"].get("phase") == "Running" for p in found.values())
    )
    with scheduling(plane, stanza(port_of(extender)), profile=profile):
        for number in range(3):
            assert placed(nodes, 1, prefix=f"n{number}-", cpu="10m") == {winner: 1}
        scored = 'ebb_extender_prioritize_requests_total{result="scored"}'
        assert extender.metric(scored) >= 3
    extender.stop()


@pytest.mark.parametrize("how", ["killed", "slow", "nobody"])
def test_pods_are_scheduled_when_extender_is_unavailable(
    plane: Plane, nodes: Api, extender: Ebb, how: str
) -> None:
    port = free_port() if how == "nobody" else port_of(extender)
    with scheduling(plane, stanza(port)):
        placed(nodes, 1, prefix="before")
        if how == "killed":
            extender.stop(signal.SIGKILL)
        elif how == "slow":
            extender.program.send(signal.SIGSTOP)
        assert sum(placed(nodes, 6).values()) == 6


@pytest.mark.parametrize(
    ("body", "status"),
    [(b"garbage", 200), (b"{}", 200), (b'[{"Host":"x","Score":1.5}]', 200), (b"[]", 503)],
)
def test_pods_are_scheduled_when_extender_response_is_invalid(
    plane: Plane, nodes: Api, body: bytes, status: int
) -> None:
    with answering(body, status=status) as port, scheduling(plane, stanza(port)):
        assert sum(placed(nodes, 4).values()) == 4


def test_extender_requires_client_certificate_over_tls(plane: Plane, nodes: Api) -> None:
    (plane.authority.folder / "extender").mkdir()
    served = plane.authority.sign("extender/tls", "ebb-extender", hosts=(LOOPBACK,))
    client = plane.user("kube-scheduler-client")
    started = start_extender(
        plane,
        certDir=str(served.certificate.parent),
        clientCAFile=str(plane.authority.certificate),
    ).wait_ready()
    tls = {
        "enableHTTPS": True,
        "tlsConfig": {
            "caFile": str(plane.authority.certificate),
            "certFile": str(client.certificate),
            "keyFile": str(client.key),
        },
    }
    with scheduling(plane, stanza(port_of(started), "https", **tls)):
        assert not set(placed(nodes, 8)) & set(MARKED)
    without = {"enableHTTPS": True, "tlsConfig": {"caFile": str(plane.authority.certificate)}}
    with scheduling(plane, stanza(port_of(started), "https", **without)):
        assert set(placed(nodes, 8, prefix="q", cpu="100m")) & set(MARKED), "nobody asked it"
    started.stop()
