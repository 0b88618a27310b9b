"""The programs are independent: if one is killed or flooded, the other two continue."""

import base64
import itertools
import signal
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

import pytest

from core.config.settings import Mode
from serving.tls_contexts import client_context
from tests.bench.bench_webhook import a_review
from tests.bench.serving import Connection
from tests.e2e.api import Api, Json
from tests.e2e.flood import flooding
from tests.e2e.install import LEASE, SECRET, ending, installed
from tests.e2e.install import port_of as admission_port_of
from tests.e2e.objects import NODES, PODS, TAINT, add_nodes, mark, pod, taints
from tests.e2e.plane import FLAGS, Ebb, Plane, until
from tests.e2e.scheduling import port_of, scheduling, stanza, start_extender
from tests.e2e.test_engine import is_marked, our_taints
from webhook.app import MUTATE_PATH

LEASE_SECONDS = 6
FLOOD_MIN = 1000
"""Requests answered under load."""
FLOODED_RECONCILIATIONS = 8
"""Reconciliations under load, a second each: longer than the duration of the Lease."""
RECONCILIATIONS = "ebb_reconcile_duration_seconds_count"
REPAIRS = 'ebb_node_writes_total{operation="repair_taints",result="success"}'
PATCHED = 'ebb_webhook_reviews_total{result="patched"}'
SCORED = 'ebb_extender_prioritize_requests_total{result="scored"}'


class Three(NamedTuple):
    """The three programs of Ebb."""

    controller: Ebb
    webhook: Ebb
    extender: Ebb


@pytest.fixture
def three(plane: Plane) -> Iterator[Three]:
    """Run the three programs in mode enforce, and a kube-scheduler that calls the extender."""
    flags = {"controller": {"--lease-duration": f"{LEASE_SECONDS}s"}}
    how = {"mode": Mode.ENFORCE, "usableCapacity": "all", FLAGS: flags}
    with installed(plane, "manifests/examples/self-managed", **how) as programs:
        extender = start_extender(plane)
        with ending(plane, extender):
            extender.wait_ready()
            with scheduling(plane, stanza(port_of(extender))):
                yield Three(*programs, extender)


def all_tainted(found: Mapping[str, Json], count: int) -> bool:
    """Return whether *count* nodes are marked, each with the taint."""
    marked = [one for one in found.values() if is_marked(one)]
    return len(marked) == count and all(map(our_taints, marked))


def tainted(api: Api, count: int) -> list[str]:
    """Add nodes, one of them with a pod; return the names of the others when they are marked."""
    names = [f"n{number}" for number in range(count + 1)]
    add_nodes(api, names[0])
    api.create(PODS, pod("first", node_name=names[0]))
    add_nodes(api, *names[1:])  # after the pod: an empty node is marked at once
    found = api.wait(NODES, lambda found: all_tainted(found, count))
    return [name for name in names if is_marked(found[name])]


def placed(api: Api, name: str) -> str:
    """Create a pod; return the node that kube-scheduler binds it to."""
    api.create(PODS, pod(name, cpu="100m"))
    found = api.wait(PODS, lambda found: found[name]["spec"].get("nodeName"))
    return str(found[name]["spec"]["nodeName"])


def wait_for_pods_on(api: Api, node: str) -> None:
    """Create pods until kube-scheduler binds one to the node.

    Scheduler and extender read marks and taints from watches, so the first pod may be too early.
    """
    names = (f"late-{number}" for number in itertools.count())
    until(lambda: placed(api, next(names)) == node, f"a new pod is bound to {node}")


def ready(*programs: Ebb) -> bool:
    return all(ebb.program.running and ebb.get("/readyz")[0] == 200 for ebb in programs)


def test_controller_marks_and_extender_scores_when_webhook_is_killed(
    api: Api, three: Three
) -> None:
    three.webhook.stop(signal.SIGKILL)
    before = three.controller.metric(REPAIRS)
    tainted(api, 2)
    until(lambda: three.controller.metric(REPAIRS) > before, "the controller writes the taints")
    wait_for_pods_on(api, "n0")
    assert three.extender.metric(SCORED) >= 1
    assert ready(three.controller, three.extender)


def test_webhook_taints_and_extender_scores_when_controller_is_killed(
    api: Api, three: Three
) -> None:
    marked = tainted(api, 2)
    three.controller.stop(signal.SIGKILL)
    assert taints(mark(api, "n0")) == [TAINT]
    assert taints(api.merge(f"{NODES}/n0", {"spec": {"taints": None}})) == [TAINT]
    assert taints(mark(api, "n0", None)) == []
    wait_for_pods_on(api, "n0")
    assert three.extender.metric(SCORED) >= 1
    found = {one["metadata"]["name"]: one for one in api.get(NODES)["items"]}
    assert [name for name, one in found.items() if is_marked(one) and our_taints(one)] == marked
    assert ready(three.webhook, three.extender)


def test_scheduler_binds_and_controller_marks_when_extender_is_killed(
    api: Api, three: Three
) -> None:
    three.extender.stop(signal.SIGKILL)
    before = three.webhook.metric(PATCHED), three.controller.metric(REPAIRS)
    tainted(api, 2)
    until(lambda: three.webhook.metric(PATCHED) >= before[0] + 2, "two marks are patched")
    assert three.controller.metric(REPAIRS) == before[1], "the webhook adds the taints"
    assert placed(api, "late")
    assert ready(three.controller, three.webhook)


def reviews(three: Three, api: Api) -> Connection:
    """Return a connection that sends reviews of 48 kB to the webhook."""
    ca = base64.b64decode(api.get(SECRET)["data"]["ca.crt"])
    body = a_review(24_000)
    return Connection(
        admission_port_of(three.webhook.settings), MUTATE_PATH, body, client_context(ca)
    )


def scrapes(three: Three, _: Api) -> Connection:
    """Return a connection that reads the controller's metrics."""
    listen = three.controller.settings[FLAGS]["controller"]["--metrics-listen"]
    return Connection(int(listen.rpartition(":")[2]), "/metrics")


@pytest.mark.parametrize("connect", [reviews, scrapes], ids=["reviews", "scrapes"])
def test_controller_retains_lease_when_port_is_flooded(
    api: Api,
    three: Three,
    connect: Callable[[Three, Api], Connection],
    capsys: pytest.CaptureFixture[str],
) -> None:
    controller = three.controller
    until(lambda: controller.metric("ebb_leader") == 1, "the controller leads")
    before, seen = api.get(LEASE)["spec"], controller.metric(RECONCILIATIONS)
    logged = len(controller.program.log.read_text())
    with flooding(partial(connect, three, api)) as flood:
        tainted(api, 2)
        until(
            lambda: controller.metric(RECONCILIATIONS) >= seen + FLOODED_RECONCILIATIONS,
            "reconciliations go on",
        )
        until(lambda: flood.fault or flood.answered > FLOOD_MIN, "requests are answered")
        assert flood.fault is None
    with capsys.disabled():
        print(f"\n{flood.answered:,} requests were answered meanwhile")
    after = api.get(LEASE)["spec"]
    assert after["renewTime"] > before["renewTime"]
    same = ("holderIdentity", "leaseTransitions", "acquireTime")
    assert [after.get(name) for name in same] == [before.get(name) for name in same]
    assert "lost the Lease" not in controller.program.log.read_text()[logged:]
    assert ready(*three)
