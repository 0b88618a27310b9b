"""Eviction on a real control plane: budgets, 20 evicted pods, and a killed leader."""

import asyncio
import json
import signal
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from core.config.settings import Mode
from core.eviction.context import Allowances
from core.marks.wellknown import BACKOFF_ANNOTATION, KEEP_ANNOTATION, MARK_LABEL
from core.model.pod import Pod
from kube.client import Client
from kube.decode import kinds
from kube.stores.evictions import EvictionAnswer, EvictionResult, EvictionStore
from kube.target import NAMESPACE
from tests.e2e.api import Api, Json
from tests.e2e.install import (
    CONTROLLER_ACCOUNT,
    Start,
    apply,
    overlay,
    remove,
    starting,
)
from tests.e2e.objects import DEPLOYMENTS, NODES, PODS, add_nodes, taints
from tests.e2e.plane import FLAGS, Ebb, Plane, until
from tests.e2e.test_manifests import granted

BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
RIGHT = ("", "pods/eviction", "create")
ROLES = "clusterrole,clusterrolebinding"
OURS = f"system:serviceaccount:{NAMESPACE}:{CONTROLLER_ACCOUNT}"
WHOLE = {"cpu": "100%", "memory": "100%"}
EVICTION = {"mode": "enabled", "after": "0s"}
SETTINGS: Json = {
    "mode": Mode.ENFORCE,
    "usableCapacity": "all",
    "thresholds": WHOLE,
    "eviction": EVICTION,
    FLAGS: {"controller": {"--lease-duration": "3s"}},
}


@pytest.fixture(scope="module", autouse=True)
def install(plane: Plane) -> Iterator[Path]:
    """Install Ebb with the component, and run a scheduler that binds the replacement pods."""
    made = plane.folder / "eviction"
    overlay(made, "components/eviction")
    apply(plane, str(made))
    scheduler = plane.scheduler()
    yield made
    plane.end(scheduler, signal.SIGKILL)
    plane.kubectl("delete", ROLES, "ebb-controller-eviction", "--ignore-not-found")
    remove(plane)


@pytest.fixture(scope="module")
def start(plane: Plane) -> Iterator[Start]:
    """Run a webhook; yield a function that starts controllers with these settings."""
    with starting(plane, SETTINGS) as start:
        yield start


@pytest.fixture(scope="module")
def leader(start: Start) -> Ebb:
    """Start a controller for several tests, as a new leader observes before it evicts."""
    return start()


@pytest.fixture
def pods(api: Api) -> Iterator[Api]:
    """Return the API; delete the budgets after the test."""
    yield api
    api.delete(BUDGETS)


def deploy(api: Api, name: str, replicas: int, cpu: str = "100m") -> None:
    """Create a Deployment with these replicas, and wait until they are Ready."""
    labels = {"app": name}
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": cpu}}}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    api.create(DEPLOYMENTS, {"metadata": {"name": name}, "spec": spec})
    api.wait(PODS, lambda found: sum(ready(p) for p in found.values() if of(p, name)) == replicas)


def protect(api: Api, app: str, maximum: int, name: str = "") -> None:
    """Create a budget of unavailable pods for an app, and wait until it counts its pods."""
    made = name or app
    spec = {"selector": {"matchLabels": {"app": app}}, "maxUnavailable": maximum}
    api.create(BUDGETS, {"metadata": {"name": made}, "spec": spec})

    def counted(found: Mapping[str, Json]) -> bool:
        status = found[made].get("status", {})
        return bool(0 < status.get("expectedPods", 0) == status.get("currentHealthy", 0))

    api.wait(BUDGETS, counted)


def of(found: Json, name: str) -> bool:
    return bool(found["metadata"].get("labels", {}).get("app") == name)


def ready(found: Json) -> bool:
    conditions = found["status"].get("conditions") or ()
    return "deletionTimestamp" not in found["metadata"] and any(
        (one["type"], one["status"]) == ("Ready", "True") for one in conditions
    )


def by_node(found: Mapping[str, Json]) -> Counter[str]:
    return Counter(one["spec"].get("nodeName", "") for one in found.values() if ready(one))


def listed(api: Api) -> dict[str, Json]:
    return {one["metadata"]["name"]: one for one in api.get(PODS)["items"]}


def mark_of(found: Json) -> str | None:
    value: str | None = found["metadata"]["labels"].get(MARK_LABEL)
    return value


def two_nodes(api: Api) -> None:
    """Add an opted-out node for the evicted pods."""
    add_nodes(api, "b", annotations={KEEP_ANNOTATION: "true"})


def evictions(plane: Plane, offset: int) -> Counter[int]:
    """Count Ebb's evictions since *offset* by status code, from the audit log."""
    return Counter(
        event["responseStatus"]["code"]
        for event in plane.audited(offset)
        if event["user"]["username"] == OURS
        and event["objectRef"].get("subresource") == "eviction"
    )


def test_eviction_api_answers_as_predicted_from_budgets(plane: Plane, pods: Api) -> None:
    """Cases: another uid, no such pod, a budget that allows 0, two budgets, and success."""
    api = pods
    add_nodes(api, "a")
    deploy(api, "web", 1)
    (found,) = api.get(PODS)["items"]
    pod = kinds.PODS.decode(json.dumps(found).encode())
    assert pod is not None
    assert pod.ready

    async def answered(pod: Pod) -> EvictionAnswer:
        async with await Client.connect(str(plane.kubeconfig("kubectl"))) as client:
            return await EvictionStore(client).evict(pod)

    def ask(pod: Pod) -> tuple[EvictionResult, str | None]:
        raw = [json.dumps(one).encode() for one in api.get(BUDGETS)["items"]]
        why = Allowances(map(kinds.BUDGETS.decode, raw)).why_not(pod)
        return asyncio.run(answered(pod)).result, why.code if why else None

    assert ask(replace(pod, uid="another"))[0] is EvictionResult.GONE
    assert ask(replace(pod, name="nobody"))[0] is EvictionResult.GONE
    protect(api, "web", 0)
    assert ask(pod) == (EvictionResult.REFUSED, "evict-budget-never")
    protect(api, "web", 1, "web-2")
    assert ask(pod) == (EvictionResult.REFUSED, "evict-two-budgets")
    api.delete(f"{BUDGETS}/web")
    assert ask(pod) == (EvictionResult.EVICTED, None)


def test_controller_reports_one_event_and_evicts_nothing_without_permission(
    plane: Plane, api: Api, start: Start
) -> None:
    roles = plane.kubectl("get", ROLES, "ebb-controller-eviction", "-o", "json")
    plane.kubectl("delete", ROLES, "ebb-controller-eviction")
    offset = len(plane.audit.read_bytes())
    add_nodes(api, "a")
    deploy(api, "web", 2)
    two_nodes(api)
    ebb = start()
    until(lambda: ebb.metric("ebb_eviction_forbidden") == 1, "it says so")
    api.wait(NODES, lambda found: mark_of(found["a"]) == "PreferNoSchedule")
    reconciliations = ebb.metric("ebb_reconcile_duration_seconds_count")
    until(
        lambda: ebb.metric("ebb_reconcile_duration_seconds_count") > reconciliations + 3,
        "reconciliations follow",
    )

    def told() -> list[Json]:
        return [one for one in api.get(EVENTS)["items"] if one["reason"] == "EvictionForbidden"]

    (event,) = until(told, "an Event says so")
    assert event["type"] == "Warning"
    assert evictions(plane, offset) == {}
    assert mark_of(api.get(f"{NODES}/a")) == "PreferNoSchedule"
    (plane.folder / "granted.json").write_text(roles)
    plane.kubectl("create", "-f", str(plane.folder / "granted.json"))
    ebb.stop(signal.SIGKILL)


def test_eviction_fails_when_budget_allows_0_and_evicts_20_pods_within_budget(
    plane: Plane, pods: Api, leader: Ebb, install: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    api, offset = pods, len(plane.audit.read_bytes())
    add_nodes(api, "a")
    deploy(api, "web", 20)
    deploy(api, "fixed", 1)
    protect(api, "web", 5)
    protect(api, "fixed", 0)
    two_nodes(api)
    failed = api.wait(
        NODES, lambda found: BACKOFF_ANNOTATION in found["a"]["metadata"]["annotations"]
    )
    assert mark_of(failed["a"]) is None
    assert taints(failed["a"]) == []
    times, _, why = failed["a"]["metadata"]["annotations"][BACKOFF_ANNOTATION].split()
    assert (times, why) == ("1", "evict-budget-never")
    assert evictions(plane, offset) == {}, "nobody was disturbed for an eviction that fails"
    assert by_node(listed(api)) == {"a": 21}
    failures = 'ebb_drain_failures_total{reason="evict-budget-never"}'
    until(lambda: leader.metric(failures) == 1, "the failure is counted")
    until(
        lambda: any(
            "evict-budget-never" in one["note"]
            for one in api.get(EVENTS)["items"]
            if one["reason"] == "NodeUnmarked" and one["regarding"]["name"] == "a"
        ),
        "an Event says why",
    )
    # The obstacle is deleted, and a user ends the backoff of the node.
    api.delete(f"{DEPLOYMENTS}/fixed", propagationPolicy="Foreground")
    api.merge(f"{NODES}/a", {"metadata": {"annotations": {BACKOFF_ANNOTATION: None}}})
    begun, least = time.monotonic(), 20

    def emptied(found: Mapping[str, Json]) -> bool:
        nonlocal least
        alive = [one for one in found.values() if of(one, "web") and ready(one)]
        least = min(least, len(alive))
        return by_node(found) == {"b": 20}

    api.wait(PODS, emptied, 90)
    with capsys.disabled():
        print(f"\n20 pods: {time.monotonic() - begun:.0f} s, {least} Ready at least")
    assert least >= 15
    until(lambda: evictions(plane, offset)[201] >= 20, "all are in the audit log")
    asked = evictions(plane, offset)
    assert asked[201] == 20, "each once"
    assert asked.keys() <= {201, 429}, "a budget whose status is late may refuse one"
    evicted = 'ebb_evictions_total{result="evicted"}'
    until(lambda: leader.metric(evicted) == 20, "all are counted")
    rights = granted(plane, str(install), CONTROLLER_ACCOUNT)
    assert {one for one in rights if one[1].startswith("pods/")} == {RIGHT}


def test_next_leader_finishes_eviction_when_leader_is_killed(
    plane: Plane, pods: Api, leader: Ebb, start: Start
) -> None:
    api, offset = pods, len(plane.audit.read_bytes())
    add_nodes(api, "a")
    deploy(api, "shop", 8)
    two_nodes(api)
    api.wait(PODS, lambda found: by_node(found)["b"] >= 2, 60)
    leader.stop(signal.SIGKILL)
    left = api.wait(PODS, lambda found: sum(by_node(found).values()) == 8)
    assert by_node(left)["a"] > 0, "it was killed halfway"
    count = evictions(plane, offset)[201]
    after = start(eviction={"mode": "disabled"})
    api.wait(NODES, lambda found: mark_of(found["a"]) == "PreferNoSchedule")
    assert evictions(plane, offset)[201] == count, "pods that are left stay"
    after.configure(eviction=EVICTION)
    api.wait(PODS, lambda found: by_node(found) == {"b": 8}, 90)
    until(lambda: evictions(plane, offset).total() >= 8, "all are in the audit log")
    asked = evictions(plane, offset)
    assert asked.keys() <= {201, 504}, "a call of the one that was killed ends with 504"
    assert asked[201] <= 8 <= asked.total()
