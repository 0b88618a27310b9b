"""Each policy marks the expected number of nodes on a real control plane."""

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import pytest

from core.config.settings import Mode
from core.marks.wellknown import MARK_LABEL
from tests.e2e.api import Api, Json
from tests.e2e.install import LEASE, apply, config, ending, point, port_of, remove, start_program
from tests.e2e.objects import NODES, PODS, add_nodes, mark, node, pod, ready
from tests.e2e.plane import Ebb, Plane, until

RECONCILIATIONS = 2
"""Reconciliations after the last mark, to see that no other mark follows."""
Start = Callable[..., Ebb]


@pytest.fixture(scope="module")
def settings(plane: Plane) -> Iterator[Json]:
    """Install Ebb and run a webhook; the controller starts when the cluster of a test exists."""
    found = config(mode=Mode.ENFORCE)
    apply(plane)
    point(plane, port_of(found))
    webhook = start_program(plane, "webhook", found)
    with ending(plane, webhook):
        webhook.wait_ready()
        yield found
    remove(plane)


@pytest.fixture
def start(plane: Plane, settings: Json) -> Iterator[Start]:
    """Yield a function that starts the controller; kill it afterwards and delete its Lease."""
    with ExitStack() as at_end:
        at_end.callback(plane.api.delete, LEASE)

        def started(policy: str, **more: Any) -> Ebb:
            ebb = start_program(plane, "controller", {**settings, "policy": policy, **more})
            at_end.callback(ebb.stop, signal.SIGKILL)
            return ebb.wait_ready()

        yield started


def spread(api: Api, nodes: Sequence[str], *millis: int) -> None:
    """Create pods with these millicores on each node."""
    for name in nodes:
        for number, cpu in enumerate(millis):
            api.create(PODS, pod(f"{name}-{number}", node_name=name, cpu=f"{cpu}m"))


def marked(nodes: dict[str, Json]) -> list[str]:
    return sorted(n for n, one in nodes.items() if MARK_LABEL in one["metadata"]["labels"])


def settled(controller: Ebb, api: Api, count: int) -> list[str]:
    """Wait until *count* nodes are marked; return the marked nodes some reconciliations later."""
    api.wait(NODES, lambda nodes: len(marked(dict(nodes))) >= count)
    enough = reconciliations(controller) + RECONCILIATIONS
    until(lambda: reconciliations(controller) >= enough, f"{RECONCILIATIONS} reconciliations")
    return marked({one["metadata"]["name"]: one for one in api.get(NODES)["items"]})


def reconciliations(controller: Ebb) -> float:
    results = ("evaluated", "skipped")
    return sum(controller.metric(f'ebb_reconcile_total{{result="{one}"}}') for one in results)


def test_excessnodes_marks_0_of_5_nodes_at_60_percent_and_1_at_55_percent(
    start: Start, api: Api
) -> None:
    nodes = ("a", "b", "c", "d", "e")
    add_nodes(api, *nodes)
    spread(api, nodes, 550, 550, 550, 550, 200)
    controller = start("ExcessNodes", markInterval="0s")
    assert settled(controller, api, 0) == []
    assert controller.metric("ebb_excess_nodes") == 2
    for name in nodes:
        api.delete(f"{PODS}/{name}-4", gracePeriodSeconds=0)
    assert settled(controller, api, 1) == ["a"]


POOL = "cloud.google.com/gke-nodepool"
COUNTED = {"enabled": True, "limit": "75%", "required": 5}


def counted(api: Api, start: Start, **of_pool: Any) -> Ebb:
    """Start with UnderutilizedCount on six nodes of a pool at 60%, with pods of 400m."""
    nodes = ("a", "b", "c", "d", "e", "f")
    add_nodes(api, *nodes, labels={POOL: "main"})
    spread(api, nodes, *[400] * 6)
    pools = {"main": {**COUNTED, **of_pool}}
    return start("UnderutilizedCount", underutilizedCount={"pools": pools})


def test_underutilizedcount_marks_1_of_6_nodes_at_60_percent(start: Start, api: Api) -> None:
    """Afterwards the nodes are at 100, 80, 60, 60 and 60%; three of five required are listed."""
    controller = counted(api, start)
    assert settled(controller, api, 1) == ["a"]
    counts = ("nodes", "marked_nodes", "underutilized_nodes", "candidate_nodes")
    of_pool = [
        controller.metric(f'ebb_underutilized_count_{name}{{pool="main"}}') for name in counts
    ]
    assert of_pool == [6, 1, 5, 5]
    ratio = 'ebb_underutilized_count_requests_ratio{pool="main",resource="cpu"}'
    assert controller.metric(ratio) == 0.6


def test_underutilizedcount_marks_0_nodes_when_7_are_required(start: Start, api: Api) -> None:
    assert settled(counted(api, start, required=7), api, 0) == []


def test_nodes_are_unmarked_when_pool_is_disabled(start: Start, api: Api) -> None:
    add_nodes(api, "g", labels={POOL: "main"})
    mark(api, "g")
    counted(api, start, enabled=False)
    api.wait(NODES, lambda nodes: marked(dict(nodes)) == [])


CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
def owner(api: Api) -> Iterator[Json]:
    """Yield an owner for pods; without it the garbage collector would delete them."""
    made = api.create(CONFIG_MAPS, {"metadata": {"name": "owner"}})
    uid = made["metadata"]["uid"]
    yield {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "owner",
        "uid": uid,
        "controller": True,
    }
    api.delete(f"{CONFIG_MAPS}/owner")


def test_nodeutilization_marks_nodes_whose_pods_fit_together_elsewhere(
    start: Start, api: Api, owner: Json
) -> None:
    """x fits the pod of a or of b, y those of c and d; d is utilized by exactly half."""
    for name, cpu, takes in (("a", "8", "a"), ("b", "4", "b"), ("c", "4", "c"), ("d", "4", "d"),
                             ("x", "4", "ab"), ("y", "4", "cd")):  # fmt: skip
        api.create(NODES, node(name, cpu=cpu, labels=dict.fromkeys(takes, "")))
    api.wait(NODES, lambda found: all(map(ready, found.values())))
    for name, cpu in (("a", "400m"), ("b", "350m"), ("c", "350m"), ("d", "2")):
        one = pod(name, node_name=name, cpu=cpu, nodeSelector={name: ""})
        one["metadata"]["ownerReferences"] = [owner]
        api.create(PODS, one)
    spread(api, ["x"], 3150, 400)  # bare pods make their nodes unremovable
    spread(api, ["y"], 100)
    controller = start("NodeUtilization", unneededTime="2s")
    assert settled(controller, api, 2) == ["a", "c"]
    api.delete(f"{PODS}/x-1", gracePeriodSeconds=0)
    assert settled(controller, api, 3) == ["a", "b", "c"]
