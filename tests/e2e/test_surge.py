"""Surge moves on a real control plane: replicas stay as their owner wants, no pod is missing.

A single replica with a PodDisruptionBudget of 100 % runs on node a, which Ebb marks. Node b has an
opt-out, so the replacement is scheduled there.
"""

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from core.config.settings import Mode
from core.marks.wellknown import KEEP_ANNOTATION, MARK_LABEL
from core.moves.records import CONFIG_MAP
from kube.target import NAMESPACE
from tests.e2e.api import APPLY, Api, Json
from tests.e2e.install import CONTROLLER_ACCOUNT, Start, apply, overlay, remove, starting
from tests.e2e.objects import DEPLOYMENTS, NODES, PODS, START, add_nodes
from tests.e2e.plane import HPA_WINDOW_SECONDS, Ebb, Plane, until
from tests.e2e.pod_metrics import PodMetrics, ready, serving_pod_metrics
from tests.e2e.test_manifests import asked_by, rights_of
from tests.support.plan_cli import ebb

AUTOSCALERS = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
QUOTAS = "/api/v1/namespaces/default/resourcequotas"
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
RECORDS = f"/api/v1/namespaces/{NAMESPACE}/configmaps/{CONFIG_MAP}"
OURS = f"system:serviceaccount:{NAMESPACE}:{CONTROLLER_ACCOUNT}"
WEB = f"{DEPLOYMENTS}/web"
ROLES = ("ebb-controller-surge", "ebb-controller-scale-in")
SETTINGS: Json = {
    "mode": Mode.ENFORCE,
    "usability": "none",
    "thresholds": {"cpu": "100%", "memory": "100%"},
    "controller": {"leaseDuration": "3s"},
    "surge": {"mode": "enabled", "minPodAge": "0s"},
}


@pytest.fixture(scope="module", autouse=True)
def folder(plane: Plane) -> Iterator[Path]:
    """Install Ebb with the components, and run a scheduler."""
    made = plane.folder / "surge"
    overlay(made, "components/pod-deletion-cost", "components/surge")
    apply(plane, str(made))
    scheduler = plane.scheduler()
    yield made
    plane.end(scheduler, signal.SIGKILL)
    plane.kubectl("delete", "clusterrole,clusterrolebinding", *ROLES, "--ignore-not-found")
    plane.kubectl("-n", NAMESPACE, "delete", "role,rolebinding", "ebb-controller-moves")
    remove(plane)


@pytest.fixture
def start(plane: Plane) -> Iterator[Start]:
    """Run a webhook; yield a function that starts controllers with these settings."""
    with starting(plane, SETTINGS) as start:
        yield start


@pytest.fixture
def cluster(api: Api) -> Iterator[Api]:
    """Return the API; remove the records, budgets and quotas after the test."""
    yield api
    api.delete(AUTOSCALERS)
    api.delete(BUDGETS)
    api.delete(QUOTAS)
    api.merge(RECORDS, {"data": None})


def deploy(api: Api, replicas: int = 1, *, start: str = "0s", **spec: Any) -> None:
    """Run a Deployment on node a with a budget of 100 %, and add node b.

    *start*: time until a pod is Ready.
    """
    add_nodes(api, "a")
    labels = {"app": "web"}
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "100m"}}}
    metadata = {"labels": labels, "annotations": {START: start}}
    template = {"metadata": metadata, "spec": {"containers": [container]}}
    made = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    api.create(DEPLOYMENTS, {"metadata": {"name": "web"}, "spec": {**made, **spec}})
    budget = {"selector": {"matchLabels": labels}, "minAvailable": "100%"}
    api.create(BUDGETS, {"metadata": {"name": "web"}, "spec": budget})
    api.wait(DEPLOYMENTS, lambda found: available(found) == replicas, 60)
    add_nodes(api, "b", annotations={KEEP_ANNOTATION: "true"})


def available(found: Mapping[str, Json]) -> int:
    count: int = found["web"].get("status", {}).get("availableReplicas", 0)
    return count


def nodes_of(found: Mapping[str, Json]) -> list[str]:
    return sorted(one["spec"].get("nodeName", "") for one in found.values() if ready(one))


def replicas(api: Api) -> int:
    count: int = api.get(WEB)["spec"]["replicas"]
    return count


def data(api: Api) -> Json:
    return api.get(RECORDS).get("data") or {}


def moves(api: Api) -> list[Json]:
    return [json.loads(text) for key, text in data(api).items() if key.startswith("move.")]


def pauses(api: Api) -> list[Json]:
    return [json.loads(text) for key, text in data(api).items() if key.startswith("pause.")]


def is_marked(api: Api) -> bool:
    return MARK_LABEL in api.get(f"{NODES}/a")["metadata"]["labels"]


@contextmanager
def never_below(plane: Plane, wanted: int, most: int | None = None) -> Iterator[None]:
    """Check that at no moment fewer pods are Ready than the owner wants.

    There are at most so many pods; the default is one more, the maxSurge of the Deployment.
    """
    samples: list[tuple[int, int]] = []
    ended = threading.Event()
    api = plane.api_as(plane.admin)

    def sample() -> None:
        while not ended.wait(0.05):
            pods = api.get(PODS)["items"]
            left = sum("deletionTimestamp" not in one["metadata"] for one in pods)
            samples.append((sum(map(ready, pods)), left))

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    assert len(samples) > 10
    assert min(count for count, _ in samples) >= wanted
    assert max(count for _, count in samples) <= (most or wanted + 1)


def moved(api: Api, count: int = 1) -> None:
    """Wait until all pods run on node b, the replicas are restored and no record remains."""
    api.wait(PODS, lambda found: nodes_of(found) == ["b"] * count and len(found) == count, 90)
    until(lambda: not moves(api), "no record remains")
    assert replicas(api) == count


def reasons(api: Api) -> list[str]:
    found = api.get(EVENTS)["items"]
    return [one["reason"] for one in found if one["regarding"]["name"] == "web"]


def test_controller_moves_single_replica_with_budget_of_100_percent(
    plane: Plane, cluster: Api, start: Start
) -> None:
    offset = len(plane.audit.read_bytes())
    deploy(cluster)
    with never_below(plane, 1):
        controller = start()
        moved(cluster)
    assert controller.metric('ebb_surge_moves_total{outcome="moved"}') == 1
    assert {"SurgeMoveBegan", "SurgeMoved"} <= set(reasons(cluster))
    cluster.wait(NODES, lambda found: MARK_LABEL in found["a"]["metadata"]["labels"])
    assert moves(cluster) == []
    answers = [one for one in plane.audited(offset) if one["user"]["username"] == OURS]
    assert 403 not in {one["responseStatus"]["code"] for one in answers if "responseStatus" in one}


def test_controller_moves_all_replicas_one_after_the_other(
    plane: Plane, cluster: Api, start: Start
) -> None:
    deploy(cluster, 3)
    with never_below(plane, 3):
        start()
        moved(cluster, 3)


def test_nothing_is_moved_when_surge_is_disabled(plane: Plane, cluster: Api, start: Start) -> None:
    deploy(cluster)
    offset = len(plane.audit.read_bytes())
    controller = start(surge={"mode": "disabled"})
    until(lambda: is_marked(cluster), "node a is marked")
    until(
        lambda: controller.metric('ebb_reconcile_total{result="skipped"}') > 2,
        "three more reconciliations",
    )
    asked = {resource for _, resource, _ in rights_of(asked_by(plane, CONTROLLER_ACCOUNT, offset))}
    assert asked.isdisjoint({"deployments", "deployments/scale", "replicasets", "resourcequotas"})
    assert nodes_of(cluster.wait(PODS, lambda found: len(found) == 1)) == ["a"]


def apply_replicas(api: Api, replicas: int) -> None:
    """Apply a manifest with `spec.replicas`, as Argo CD does."""
    found = api.get(WEB)["spec"]
    container = {"name": "main", "image": "none"}
    template = {"metadata": found["template"]["metadata"], "spec": {"containers": [container]}}
    spec = {"replicas": replicas, "selector": found["selector"], "template": template}
    body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}}
    path = f"{WEB}?fieldManager=argocd-controller&force=true"
    api.call("PATCH", path, {**body, "spec": spec}, content=APPLY)


@pytest.mark.parametrize(
    ("applied", "value"), [(False, 1), (True, 1), (False, 3)], ids=["scaled", "applied", "more"]
)
def test_value_of_another_writer_stays(
    plane: Plane, cluster: Api, start: Start, *, applied: bool, value: int
) -> None:
    deploy(cluster, minReadySeconds=3)
    with never_below(plane, 1, most=max(value, 2)):
        start()
        until(lambda: replicas(cluster) == 2, "the replicas are raised")
        if applied:
            apply_replicas(cluster, value)
        else:
            cluster.merge(f"{WEB}/scale", {"spec": {"replicas": value}})
        until(lambda: not moves(cluster), "the move ends")
        cluster.wait(PODS, lambda found: len(found) == value)
        assert replicas(cluster) == value
    (pause,) = pauses(cluster)
    assert pause["times"] == 1
    assert pause["manager"] or value != 1


def test_replicas_stay_when_gitops_tool_sets_them_back_at_each_step(
    plane: Plane, cluster: Api, start: Start
) -> None:
    deploy(cluster, minReadySeconds=2)
    ended = threading.Event()
    tool = plane.api_as(plane.admin)

    def set_back() -> None:
        while not ended.wait(0.1):
            if replicas(tool) != 1:
                apply_replicas(tool, 1)

    thread = threading.Thread(target=set_back)
    thread.start()
    try:
        with never_below(plane, 1):
            start()
            until(lambda: pauses(cluster), "the Deployment is left alone")
            until(lambda: not moves(cluster), "the move ends")
            cluster.wait(PODS, lambda found: len(found) == 1)
    finally:
        ended.set()
        thread.join()
    assert replicas(cluster) == 1
    assert [pause["manager"] for pause in pauses(cluster)] == ["argocd-controller"]


def test_replicas_are_restored_when_new_pod_never_becomes_ready(
    plane: Plane, cluster: Api, start: Start
) -> None:
    deploy(cluster, minReadySeconds=8, progressDeadlineSeconds=15)
    (old,) = cluster.get(PODS)["items"]

    def keep_unready() -> Json | None:
        for one in cluster.get(PODS)["items"]:
            if one["metadata"]["uid"] != old["metadata"]["uid"] and ready(one):
                condition = {"type": "Ready", "status": "False"}
                path = f"{PODS}/{one['metadata']['name']}/status"
                cluster.merge(path, {"status": {"conditions": [condition]}})
        return next((one for one in moves(cluster) if one["step"] == "lowering"), None)

    with never_below(plane, 1):
        start()
        until(lambda: replicas(cluster) == 2, "the replicas are raised")
        until(lambda: keep_unready() or replicas(cluster) == 1, "the move is undone")
        until(lambda: not moves(cluster), "the move ends")
        found = cluster.wait(PODS, lambda found: len(found) == 1)
    assert old["metadata"]["name"] in found
    assert replicas(cluster) == 1


def test_replicas_are_restored_when_quota_rejects_new_pod(
    plane: Plane, cluster: Api, start: Start
) -> None:
    deploy(cluster)
    # Pods without limits are rejected; Ebb cannot know before.
    cluster.create(QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": {"limits.cpu": "9"}}})
    with never_below(plane, 1):
        controller = start()
        until(
            lambda: controller.metric('ebb_surge_moves_total{outcome="refused"}') == 1,
            "it is refused",
        )
        until(lambda: not moves(cluster), "the move ends")
    assert replicas(cluster) == 1
    assert nodes_of(cluster.wait(PODS, lambda found: len(found) == 1)) == ["a"]


def killed_when(controller: Ebb, reached: Callable[[], Any]) -> None:
    until(reached, "the step is reached")
    controller.stop(signal.SIGKILL)


@pytest.mark.parametrize("step", ["recorded", "raised", "lowering", "ended"])
def test_next_leader_finishes_when_leader_is_killed(
    plane: Plane, cluster: Api, start: Start, step: str
) -> None:
    deploy(cluster, minReadySeconds=2)
    with never_below(plane, 1):
        controller = start()
        begun = False

        def reached() -> bool:
            nonlocal begun
            found = [one["step"] for one in moves(cluster)]
            begun = begun or bool(found)
            return found == [step] or (begun and not found) or (step == "recorded" and begun)

        killed_when(controller, reached)
        start()
        moved(cluster)


def test_moves_end_when_surge_is_disabled_halfway(
    plane: Plane, cluster: Api, start: Start
) -> None:
    deploy(cluster, minReadySeconds=20)
    with never_below(plane, 1):
        controller = start()
        until(lambda: replicas(cluster) == 2, "the replicas are raised")
        controller.configure(surge={"mode": "disabled"})
        until(lambda: not moves(cluster), "the move ends")
        assert replicas(cluster) == 1
        # Both pods are Ready, but the new one has not been for 20 s.
        assert nodes_of(cluster.wait(PODS, lambda found: len(found) == 1)) == ["a"]


def test_move_ends_when_node_is_unmarked_halfway(plane: Plane, cluster: Api, start: Start) -> None:
    deploy(cluster, minReadySeconds=10)
    with never_below(plane, 1):
        controller = start()
        until(lambda: replicas(cluster) == 2, "the replicas are raised")
        cluster.merge(f"{NODES}/a", {"metadata": {"annotations": {KEEP_ANNOTATION: "true"}}})
        until(lambda: not moves(cluster), "the move ends")
        assert replicas(cluster) == 1
        assert nodes_of(cluster.wait(PODS, lambda found: len(found) == 1)) == ["a"]
    assert controller.metric('ebb_surge_moves_total{outcome="node_released"}') == 1


def test_move_ends_when_rollout_begins_and_rollout_finishes(
    plane: Plane, cluster: Api, start: Start
) -> None:
    deploy(cluster, minReadySeconds=5)
    with never_below(plane, 1, most=3):
        start()
        until(lambda: replicas(cluster) == 2, "the replicas are raised")
        template = {"metadata": {"annotations": {"version": "2"}}}
        cluster.merge(WEB, {"spec": {"template": template}})
        until(lambda: replicas(cluster) == 1, "the replicas are restored")
        until(lambda: not moves(cluster), "the move ends")
        cluster.wait(PODS, partial(all_have_version, "2"))
    assert replicas(cluster) == 1


def test_rollout_undo_after_a_move_restores_the_template_only(
    plane: Plane, cluster: Api, start: Start
) -> None:
    deploy(cluster)
    with never_below(plane, 1):
        start()
        moved(cluster)
        for command, expected in (("", "2"), ("undo", "1")):
            if command:
                plane.kubectl("rollout", command, "deployment/web")
            else:
                template = {"metadata": {"annotations": {"version": expected}}}
                cluster.merge(WEB, {"spec": {"template": template}})
            cluster.wait(PODS, partial(all_have_version, expected))
    assert replicas(cluster) == 1
    assert moves(cluster) == []
    assert not [key for key in cluster.get(WEB)["metadata"]["annotations"] if "ebb" in key]


def all_have_version(expected: str, found: Mapping[str, Json]) -> bool:
    return [*map(version, found.values())] == [expected]


def version(found: Json) -> str:
    text: str = (found["metadata"].get("annotations") or {}).get("version", "1")
    return text


def test_cleanup_restores_replicas_of_killed_controller(
    plane: Plane, cluster: Api, start: Start
) -> None:
    deploy(cluster, minReadySeconds=20)
    with never_below(plane, 1):
        killed_when(start(), lambda: replicas(cluster) == 2)
        done = ebb("cleanup", "--all", "--yes", "--kubeconfig", str(plane.kubeconfig("cleanup")))
        assert done.returncode == 0, done.stderr
        told = b"deployment default/web  cleaned up: replicas of a surge move set back from 2 to 1"
        assert told in done.stdout
        assert (replicas(cluster), data(cluster)) == (1, {})
        assert nodes_of(cluster.wait(PODS, lambda found: len(found) == 1)) == ["a"]


@pytest.fixture(scope="module")
def metrics(plane: Plane) -> Iterator[PodMetrics]:
    with serving_pod_metrics(plane) as found:
        yield found


def autoscale(api: Api, least: int, most: int, *, behavior: Json | None = None) -> None:
    """Create an HPA whose target is half of the requests: 50m of a pod; wait until it acts."""
    target = {"type": "Utilization", "averageUtilization": 50}
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "minReplicas": least,
        "maxReplicas": most,
        "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
        **({"behavior": behavior} if behavior else {}),
    }
    api.create(AUTOSCALERS, {"metadata": {"name": "web"}, "spec": spec})
    api.wait(AUTOSCALERS, lambda found: found["web"].get("status", {}).get("currentMetrics"))


def counts(api: Api, seconds: float, until_true: Callable[[list[int]], Any]) -> list[int]:
    """Return the values of the replicas one after the other, until a condition is true."""
    values = [replicas(api)]

    def seen() -> Any:
        if (now := replicas(api)) != values[-1]:
            values.append(now)
        return until_true(values)

    until(seen, f"replicas, now {values}", seconds)
    return values


def lasts(seconds: float) -> Callable[[list[int]], bool]:
    """Return a condition that is true if the replicas have changed, and then not for so long."""
    seen: tuple[int, float] = 0, 0.0

    def reached(values: list[int]) -> bool:
        nonlocal seen
        if seen[0] != len(values):
            seen = len(values), time.monotonic()
        return len(values) > 1 and time.monotonic() - seen[1] > seconds

    return reached


def test_hpa_raises_replicas_again_for_its_window_after_a_move(
    plane: Plane, cluster: Api, start: Start, metrics: PodMetrics
) -> None:
    """The HPA counts the additional replica while the new pod starts and is not measured yet."""
    deploy(cluster, 2, start="3s")
    metrics.load_millis = 100
    autoscale(cluster, 1, 4)
    with never_below(plane, 2):
        controller = start()
        values = counts(cluster, 60, lambda values: values[-3:] == [2, 3, 2] and len(values) == 5)
    assert values == [2, 3, 2, 3, 2]
    assert controller.metric('ebb_surge_moves_total{outcome="moved"}') == 1
    assert not moves(cluster), "at most one move for each window"


def test_hpa_with_behavior_does_not_raise_replicas_again(
    plane: Plane, cluster: Api, start: Start, metrics: PodMetrics
) -> None:
    deploy(cluster, 2, start="3s")
    metrics.load_millis = 100
    autoscale(cluster, 1, 4, behavior={"scaleDown": {"stabilizationWindowSeconds": 8}})
    with never_below(plane, 2):
        start()
        until(lambda: replicas(cluster) == 3, "the replicas are raised")
        assert counts(cluster, 60, lasts(HPA_WINDOW_SECONDS)) == [3, 2]
    assert "b" in nodes_of({one["metadata"]["name"]: one for one in cluster.get(PODS)["items"]})


def test_hpa_keeps_additional_replica_when_it_is_within_tolerance(
    plane: Plane, cluster: Api, start: Start, metrics: PodMetrics
) -> None:
    """With ten replicas, one more is a change of less than the tolerance of a tenth."""
    deploy(cluster, 10, start="3s")
    metrics.load_millis = 500
    autoscale(cluster, 1, 20)
    with never_below(plane, 10):
        start()
        until(lambda: replicas(cluster) == 11, "the replicas are raised")
        assert counts(cluster, 60, lasts(2 * HPA_WINDOW_SECONDS)) == [11, 10, 11]


def test_hpa_at_its_minimum_ends_a_move_before_new_pod_is_ready(
    plane: Plane, cluster: Api, start: Start, metrics: PodMetrics
) -> None:
    deploy(cluster, 2, start="5s")
    metrics.load_millis = 20
    autoscale(cluster, 2, 4)
    with never_below(plane, 2):
        controller = start()
        until(
            lambda: controller.metric('ebb_surge_moves_total{outcome="scaled"}') == 1,
            "the HPA ends the move",
        )
    assert (replicas(cluster), moves(cluster)) == (2, [])
    cluster.wait(PODS, lambda found: nodes_of(found) == ["a", "a"])
