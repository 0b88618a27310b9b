"""Karpenter, a real autoscaler, removes the nodes whose scale-down Ebb allows, and no others."""

import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from core.config.settings import Mode
from core.marks.wellknown import (
    COST_ANNOTATION,
    DO_NOT_DISRUPT_ANNOTATION,
    PROTECTION_ANNOTATION,
    TAINT_KEY,
)
from core.writes.costs import cost_of
from kube.target import NAMESPACE
from tests.e2e.api import Api, Json
from tests.e2e.install import installed, overlay
from tests.e2e.karpenter import FINALIZER, TAKEN_SECONDS, add_empty, drop_pool, karpenter, set_pool
from tests.e2e.objects import NODES, PODS, pod
from tests.e2e.observer import evictions
from tests.e2e.plane import Plane, until
from tests.e2e.scheduling import scheduling
from tests.e2e.test_engine import is_marked
from tests.support.builders import node

EVENTS = "/api/v1/namespaces/default/events"
COST = str(cost_of(node("any"), TAINT_KEY))
"""Deletion cost of pods on marked nodes; Karpenter reads it as their disruption cost."""
TEMPLATES = "/api/v1/namespaces/default/podtemplates"
BUFFERS = "/apis/autoscaling.x-k8s.io/v1beta1/namespaces/default/capacitybuffers"
OURS = f"/apis/autoscaling.x-k8s.io/v1beta1/namespaces/{NAMESPACE}/capacitybuffers"
OUR_TEMPLATES = f"/api/v1/namespaces/{NAMESPACE}/podtemplates"
TOLD_SECONDS = 150.0
"""Timeout for an Event of Karpenter, which reports the reason for a node every two minutes."""
BUFFER = {"apiVersion": "autoscaling.x-k8s.io/v1beta1", "kind": "CapacityBuffer"}


@pytest.fixture(scope="module", autouse=True)
def running(plane: Plane) -> Iterator[None]:
    with karpenter(plane):
        yield


@pytest.fixture
def pool(api: Api) -> Iterator[Api]:
    """Return the API of a cluster with a NodePool that removes no nodes yet."""
    set_pool(api)
    yield api
    for path in (BUFFERS, TEMPLATES):
        api.delete(path)
    drop_pool(api)


def taken(api: Api, *names: str) -> list[Json]:
    """Wait until Karpenter has removed these nodes; return every version seen on the way."""
    going: list[Json] = []

    def note(_: str, found: Json) -> None:
        if found["metadata"]["name"] in names and "deletionTimestamp" in found["metadata"]:
            going.append(found)

    api.wait(NODES, lambda found: not found.keys() & set(names), TAKEN_SECONDS, told=note)
    return going


def told_of(events: Mapping[str, Json], reason: str) -> set[str]:
    """Return the uids of the objects that have an Event with this reason."""
    return {one["involvedObject"]["uid"] for one in events.values() if one["reason"] == reason}


def stays(found: Json) -> bool:
    return "deletionTimestamp" not in found["metadata"] and not any(
        taint["key"] == "karpenter.sh/disrupted" for taint in found["spec"].get("taints") or ()
    )


def blocked(events: Mapping[str, Json]) -> set[str]:
    """Return the nodes that Karpenter reports as protected by the annotation."""
    return {
        event["involvedObject"]["name"]
        for event in events.values()
        if DO_NOT_DISRUPT_ANNOTATION in event["message"]
    }


def protected(found: Json) -> bool:
    return DO_NOT_DISRUPT_ANNOTATION in found["metadata"]["annotations"]


THREE_NODES = {"maxMarked": "100%", "maxNewMarks": "100%", "period": "0s", "minNodes": 3}
PROTECTED = {
    DO_NOT_DISRUPT_ANNOTATION: "true",
    PROTECTION_ANNOTATION: f"unmarked {DO_NOT_DISRUPT_ANNOTATION}",
}


def scale_down_allowed(found: Json) -> bool:
    return is_marked(found) and not protected(found)


def initialized(found: Json) -> bool:
    return bool(found["metadata"]["labels"].get("karpenter.sh/initialized") == "true")


def on(pods: Mapping[str, Json]) -> list[str]:
    """Return the nodes of the pods, in the order of the pod names."""
    return [pods[name]["spec"].get("nodeName", "") for name in sorted(pods)]


def accepted(buffer: Json) -> bool:
    conditions = buffer.get("status", {}).get("conditions") or ()
    return any((c["type"], c["status"]) == ("ReadyForProvisioning", "True") for c in conditions)


def test_karpenter_removes_only_nodes_whose_scale_down_is_allowed(plane: Plane, pool: Api) -> None:
    before = evictions(pool)
    full, used, *empty = add_empty(pool, 4)
    pool.create(PODS, pod("p", node_name=full, cpu="3"))
    for name in ("q", "r"):
        one = pod(name, node_name=used)
        one["metadata"]["annotations"] = {COST_ANNOTATION: COST}
        pool.create(PODS, one)
    how: dict[str, Any] = {"budgets": THREE_NODES, "scaleDownProtection": {"scope": "all-empty"}}
    with installed(plane, mode=Mode.ENFORCE, usableCapacity="all", **how):
        found = pool.wait(NODES, lambda found: sum(is_marked(found[one]) for one in empty) == 1)
        (allowed,) = [one for one in empty if is_marked(found[one])]
        (kept,) = {*empty} - {allowed}
        set_pool(pool, "0s")
        going = taken(pool, allowed)
        assert all(FINALIZER in one["metadata"]["finalizers"] for one in going)
        assert all(is_marked(one) for one in going), "left alone as it goes"
        pool.wait(NODES, lambda found: protected(found[kept]))
        pool.wait(EVENTS, lambda found: kept in blocked(found), seconds=TOLD_SECONDS)
        assert all(map(stays, pool.get(NODES)["items"]))
    assert len(pool.get(NODES)["items"]) == 3
    assert evictions(pool) == before


def test_karpenter_removes_empty_node_that_no_pod_needs_although_ebb_may_not_mark_it(
    plane: Plane, pool: Api
) -> None:
    """As without Ebb: by default Ebb keeps no empty node only because a limit forbids its mark."""
    full, *empty = add_empty(pool, 3)
    pool.create(PODS, pod("p", node_name=full, cpu="3"))
    how: dict[str, Any] = {"budgets": THREE_NODES}
    with installed(plane, mode=Mode.ENFORCE, usableCapacity="all", **how) as programs:
        reconciled = 'ebb_reconcile_total{result="evaluated"}'
        until(lambda: programs.controller.metric(reconciled) > 0, "it has decided")
        assert not any(map(is_marked, pool.get(NODES)["items"]))
        set_pool(pool, "0s")
        taken(pool, *empty)
        assert stays(pool.get(f"{NODES}/{full}"))


CHECKED_SECONDS = 14.0
"""Karpenter looks again 15 s after it has found empty nodes; until then none is tainted."""
EMPTY_NODES, AFTERWARDS = 72, 5
"""Numbers of nodes to remove, and of pods that are bound to them after the first taint."""


class Removal:
    """Pods that are bound to empty nodes while Karpenter removes these, and what was seen when."""

    def __init__(self, api: Api, nodes: list[str]) -> None:
        self._api, self._nodes = api, nodes
        self.bound: dict[str, float] = {}
        """When a pod was bound to a node, by the name of the node."""
        self.seen: dict[str, dict[str, float]] = {
            fact: {} for fact in ("protected", "tainted", "deleting", "gone")
        }
        """When this was first seen of a node, by its name."""

    def note(self, kind: str, found: Json) -> None:
        """Note a change of a Node."""
        name, metadata, now = found["metadata"]["name"], found["metadata"], time.monotonic()
        facts = {
            "protected": name in self.bound and protected(found),
            "tainted": not stays(found),
            "deleting": "deletionTimestamp" in metadata,
            "gone": kind == "DELETED",
        }
        for fact in (fact for fact, is_so in facts.items() if is_so):
            self.seen[fact].setdefault(name, now)

    def bind(self) -> None:
        """Bind a pod to one node after the other, until Karpenter taints nodes, and a few more."""
        began, left = time.monotonic(), AFTERWARDS
        for name in self._nodes:
            self.bound[name] = time.monotonic()
            self._api.create(PODS, pod(f"on-{name}", node_name=name, cpu="100m"))
            left -= bool(self.seen["tainted"])
            if left <= 0:
                break
            time.sleep(0.2 if self.bound[name] - began > CHECKED_SECONDS else 1.0)

    def table(self) -> Iterator[str]:
        """Yield a line for each pod: what was seen of its node, in seconds from its binding."""
        first = min(self.seen["tainted"].values())
        for name, at in self.bound.items():
            facts = {
                fact: f"{when[name] - at:+.2f}" for fact, when in self.seen.items() if name in when
            }
            yield f"{at - first:+7.2f} from the first taint: {facts}"


def test_pods_that_are_bound_while_karpenter_removes_released_nodes(
    plane: Plane, pool: Api, capsys: pytest.CaptureFixture[str]
) -> None:
    """kubernetes-sigs/karpenter#3185: pods die with a node that was empty when it was released."""
    full, *empty = add_empty(pool, 1 + EMPTY_NODES)
    pool.create(PODS, pod("p", node_name=full, cpu="3"))
    budgets = {"maxMarked": "100%", "maxNewMarks": "100%", "period": "0s"}
    removal = Removal(pool, empty)
    binding = threading.Thread(target=removal.bind)

    def ended(found: Mapping[str, Json]) -> bool:
        going = removal.seen["tainted"].keys()
        left = removal.bound.keys() - going
        over = bool(going) and not binding.is_alive() and not going & found.keys()
        return over and all(protected(found[name]) for name in left)

    with installed(plane, mode=Mode.ENFORCE, usableCapacity="all", budgets=budgets):
        pool.wait(
            NODES,
            lambda found: all(scale_down_allowed(found[one]) for one in empty),
            TAKEN_SECONDS,
        )
        set_pool(pool, "0s")
        binding.start()
        pool.wait(NODES, ended, TAKEN_SECONDS, told=removal.note)
    pods = pool.get(PODS)["items"]
    alive = {one["spec"]["nodeName"] for one in pods} - {full}
    with capsys.disabled():
        print("", *removal.table(), sep="\n")
    assert alive == removal.bound.keys() - removal.seen["tainted"].keys(), "no other pods die"


def test_karpenter_does_not_remove_empty_node_reserved_for_buffer(plane: Plane, pool: Api) -> None:
    full, *empty = add_empty(pool, 3)
    pool.create(PODS, pod("p", node_name=full, cpu="2"))
    web = {"metadata": {"name": "web"}}
    pool.create(TEMPLATES, {**web, "template": {"spec": pod("web", cpu="3")["spec"]}})
    spec = {"podTemplateRef": {"name": "web"}, "replicas": 1}
    pool.create(BUFFERS, {**BUFFER, **web, "spec": spec})
    pool.wait(BUFFERS, lambda found: accepted(found["web"]))
    with installed(plane, mode=Mode.ENFORCE, usableCapacity="all"):
        found = pool.wait(NODES, lambda found: sum(map(scale_down_allowed, found.values())) == 1)
        (gone,) = [name for name in empty if scale_down_allowed(found[name])]
        (kept,) = {*empty} - {gone}
        set_pool(pool, "0s")
        taken(pool, gone)
        found = pool.wait(NODES, lambda found: protected(found[kept]))
        assert not is_marked(found[kept])
        assert stays(found[kept])
        set_pool(pool)
        pool.delete(f"{BUFFERS}/web")
        pool.wait(NODES, lambda found: scale_down_allowed(found[kept]))


def test_karpenter_adds_node_for_published_buffer_before_pods_are_pending(
    plane: Plane, pool: Api
) -> None:
    """Three pods of one core fill a node of four; the reserve publishes room for three more.

    Buffers may ask for half of the capacity, which a full node increases.
    """
    full, first = add_empty(pool, 2)
    pool.create(PODS, pod("full", node_name=full, cpu="3500m"))
    folder = plane.folder / "publishing"
    overlay(folder, "components/capacity-buffers")
    how = {
        "mode": Mode.ENFORCE,
        "usableCapacity": "all",
        "reserve": {"window": "60s", "percentile": "100%"},
    }
    with installed(plane, str(folder), **how) as programs, scheduling(plane):
        controller = programs.controller
        until(
            lambda: controller.metric('ebb_reconcile_total{result="evaluated"}') > 0,
            "it has looked",
        )
        for number in range(3):
            pool.create(PODS, pod(f"came-{number}"))
        pool.wait(PODS, lambda found: on(found) == [first] * 3 + [full])
        found = pool.wait(
            NODES, lambda found: len(found) == 3 and all(map(initialized, found.values()))
        )
        (second,) = found.keys() - {full, first}
        until(lambda: controller.metric("ebb_published_accepted_pods") == 3, "it is told")
        for number in range(2):
            pool.create(PODS, pod(f"comes-{number}", cpu="2"))
        pool.wait(PODS, lambda found: len(found) == 6 and on(found)[3:5] == [second] * 2)
        ours = {
            one["metadata"]["uid"]
            for one in pool.get(PODS)["items"]
            if one["metadata"]["name"] != "full"
        }
        events = pool.wait(EVENTS, lambda found: told_of(found, "Scheduled") >= ours)
        assert not told_of(events, "FailedScheduling") & ours
        controller.configure(reserve={"window": "never"})
        for path in (OURS, OUR_TEMPLATES):
            pool.wait(path, lambda found: not found)
    plane.kubectl("-n", NAMESPACE, "delete", "role,rolebinding", "ebb-controller-buffers")


def test_karpenter_does_not_remove_nodes_that_previous_leader_protected_until_reserve_is_disabled(
    plane: Plane, pool: Api
) -> None:
    full, *empty = add_empty(pool, 3)
    pool.create(PODS, pod("p", node_name=full, cpu="2"))
    for name in empty:
        pool.merge(f"{NODES}/{name}", {"metadata": {"annotations": PROTECTED}})
    reserve = {"window": "5m", "percentile": "100%"}
    with installed(plane, mode=Mode.ENFORCE, usableCapacity="all", reserve=reserve) as programs:
        pool.wait(NODES, lambda found: all(is_marked(found[one]) for one in empty))
        set_pool(pool, "0s")
        pool.wait(EVENTS, lambda found: blocked(found) >= {*empty}, seconds=TOLD_SECONDS)
        assert all(stays(pool.get(f"{NODES}/{name}")) for name in empty)
        programs.controller.configure(reserve={"window": "never"})
        taken(pool, *empty)
        assert stays(pool.get(f"{NODES}/{full}"))
