"""kube-scheduler with our extender: marked nodes last, and a broken extender stops nothing."""

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
    """The ServiceAccounts and their rights; without a webhook program behind the registration."""
    apply(plane, "manifests/examples/self-managed")
    plane.api.delete(REGISTRATION)
    yield
    remove(plane)


@pytest.fixture
def nodes(api: Api) -> Api:
    """Four nodes, two of them marked; no webhook runs, so there is no taint to help."""
    add_nodes(api, *UNMARKED, *MARKED)
    for name in MARKED:
        mark(api, name)
    return api


def placed(api: Api, count: int, prefix: str = "p", cpu: str = "500m") -> Counter[str]:
    """Create pods, wait until all are bound, and count them by node."""
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


def test_marked_nodes_get_pods_only_when_nothing_else_fits(plane: Plane, nodes: Api) -> None:
    extender = start_extender(plane, score="marks").wait_ready()
    with scheduling(plane, stanza(port_of(extender))):
        assert set(placed(nodes, 14)) == set(UNMARKED)
        assert extender.metric('ebb_extender_prioritize_requests_total{result="scored"}') >= 14
        last = placed(nodes, 4, prefix="late", cpu="2")
    extender.stop()
    assert set(last) == set(MARKED)


def test_without_an_extender_the_same_pods_spread_onto_marked_nodes(
    plane: Plane, nodes: Api
) -> None:
    with scheduling(plane):
        assert set(placed(nodes, 14)) == {*UNMARKED, *MARKED}


def test_pack_fills_the_fuller_node_first(plane: Plane, nodes: Api) -> None:
    extender = start_extender(plane, score="pack").wait_ready()
    nodes.create(PODS, pod("there", node_name="b", cpu="1"))
    nodes.wait(PODS, lambda found: found["there"]["status"].get("phase") == "Running")
    with scheduling(plane, stanza(port_of(extender))):
        for number in range(5):
            assert placed(nodes, 1, prefix=f"n{number}-") == {"b": 1}
    extender.stop()


ONE_STEP = {"a": "50m", "b": "350m"}
"""Of nodes with four cores: `pack` scores both like an empty one, also with the pods below."""


@pytest.mark.parametrize(
    ("profile", "winner"),
    [pytest.param(shipped_profile(), "b", id="shipped"), pytest.param(None, "a", id="default")],
)
def test_of_two_nodes_within_one_step_of_pack_the_fuller_wins(
    plane: Plane, nodes: Api, profile: Json | None, winner: str
) -> None:
    """With kube-scheduler's own profile it is the emptier one: the control."""
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
def test_a_broken_extender_does_not_stop_scheduling(
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
def test_garbage_does_not_stop_scheduling(
    plane: Plane, nodes: Api, body: bytes, status: int
) -> None:
    with answering(body, status=status) as port, scheduling(plane, stanza(port)):
        assert sum(placed(nodes, 4).values()) == 4


def test_over_tls_with_a_client_certificate(plane: Plane, nodes: Api) -> None:
    served = plane.authority.sign("extender", "ebb-extender", hosts=(LOOPBACK,))
    client = plane.user("kube-scheduler-client")
    started = start_extender(
        plane,
        certFile=str(served.certificate),
        keyFile=str(served.key),
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
