"""Surge moves on a real control plane: replicas stay as their owner wants, no pod is missing.

A single replica with a PodDisruptionBudget of 100 % runs on node a, which Ebb marks. Node b has an
opt-out, so the replacement is scheduled there.
"""

import json
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from core.config.settings import Mode
from core.edge.kube.names import NAMESPACE
from core.marks.wellknown import KEEP_ANNOTATION, MARK_LABEL
from core.surge.records import CONFIG_MAP
from tests.e2e.api import APPLY, Api, Json
from tests.e2e.install import CONTROLLER_ACCOUNT, Start, apply, overlay, remove, starting
from tests.e2e.objects import DEPLOYMENTS, NODES, PODS, add_nodes
from tests.e2e.plane import Ebb, Plane, until
from tests.e2e.test_manifests import asked_by, rights_of
from tests.support.plan_cli import ebb

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
    api.delete(BUDGETS)
    api.delete(QUOTAS)
    api.merge(RECORDS, {"data": None})


def deploy(api: Api, replicas: int = 1, **spec: Any) -> None:
    """Run a Deployment on node a with a budget of 100 %, and add node b."""
    add_nodes(api, "a")
    labels = {"app": "web"}
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "100m"}}}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    made = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    api.create(DEPLOYMENTS, {"metadata": {"name": "web"}, "spec": {**made, **spec}})
    budget = {"selector": {"matchLabels": labels}, "minAvailable": "100%"}
    api.create(BUDGETS, {"metadata": {"name": "web"}, "spec": budget})
    api.wait(DEPLOYMENTS, lambda found: available(found) == replicas, 60)
    add_nodes(api, "b", annotations={KEEP_ANNOTATION: "true"})


def available(found: Mapping[str, Json]) -> int:
    count: int = found["web"].get("status", {}).get("availableReplicas", 0)
    return count


def ready(found: Json) -> bool:
    conditions = found["status"].get("conditions") or ()
    return "deletionTimestamp" not in found["metadata"] and any(
        (one["type"], one["status"]) == ("Ready", "True") for one in conditions
    )


def nodes_of(found: Mapping[str, Json]) -> list[str]:
    return sorted(one["spec"].get("nodeName", "") for one in found.values() if ready(one))


def replicas(api: Api) -> int:
    count: int = api.get(WEB)["spec"]["replicas"]
    return count


def data(api: Api) -> Json:
    return api.get(RECORDS).get("data") or {}


def moves(api: Api) -> list[Json]:
    return [json.loads(text) for key, text in data(api).items() if key.startswith("move.")]


def is_marked(api: Api) -> bool:
    return MARK_LABEL in api.get(f"{NODES}/a")["metadata"]["labels"]


@contextmanager
def never_below(plane: Plane, wanted: int) -> Iterator[None]:
    """Check that at no moment fewer pods are Ready than the owner wants."""
    samples: list[int] = []
    ended = threading.Event()
    api = plane.api_as(plane.admin)

    def sample() -> None:
        while not ended.wait(0.05):
            samples.append(sum(map(ready, api.get(PODS)["items"])))

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    assert len(samples) > 10
    assert min(samples) >= wanted


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
        lambda: controller.metric('ebb_reconcile_total{result="skipped"}') > 2, "three more passes"
    )
    asked = {resource for _, resource, _ in rights_of(asked_by(plane, CONTROLLER_ACCOUNT, offset))}
    assert asked.isdisjoint({"deployments", "deployments/scale", "replicasets", "resourcequotas"})
    assert nodes_of(cluster.wait(PODS, lambda found: len(found) == 1)) == ["a"]


@pytest.mark.parametrize("applied", [False, True])
def test_value_of_writer_that_sets_replicas_back_stays(
    plane: Plane, cluster: Api, start: Start, *, applied: bool
) -> None:
    deploy(cluster, minReadySeconds=3)
    with never_below(plane, 1):
        start()
        until(lambda: replicas(cluster) == 2, "the replicas are raised")
        if applied:
            manifest = {"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": 1}}
            path = f"{WEB}?fieldManager=argocd-controller&force=true"
            full = cluster.get(WEB)
            body = {
                **manifest,
                "metadata": {"name": "web"},
                "spec": {
                    "replicas": 1,
                    "selector": full["spec"]["selector"],
                    "template": {
                        "metadata": full["spec"]["template"]["metadata"],
                        "spec": {"containers": [{"name": "main", "image": "none"}]},
                    },
                },
            }
            cluster.call("PATCH", path, body, content=APPLY)
        else:
            cluster.merge(f"{WEB}/scale", {"spec": {"replicas": 1}})
        until(lambda: not moves(cluster), "the move ends")
        cluster.wait(PODS, lambda found: len(found) == 1)
        assert replicas(cluster) == 1
    (pause,) = (json.loads(text) for text in data(cluster).values())
    assert pause["times"] == 1
    assert pause["manager"]


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
        # Both pods are Ready, so the pod with the deletion cost is deleted.
        assert nodes_of(cluster.wait(PODS, lambda found: len(found) == 1)) == ["b"]


def test_move_ends_when_node_is_released_halfway(plane: Plane, cluster: Api, start: Start) -> None:
    deploy(cluster, minReadySeconds=10)
    with never_below(plane, 1):
        controller = start()
        until(lambda: replicas(cluster) == 2, "the replicas are raised")
        cluster.merge(f"{NODES}/a", {"metadata": {"annotations": {KEEP_ANNOTATION: "true"}}})
        until(lambda: not moves(cluster), "the move ends")
        assert replicas(cluster) == 1
        cluster.wait(PODS, lambda found: len(found) == 1)
    assert controller.metric('ebb_surge_moves_total{outcome="node_released"}') == 1


def test_move_ends_when_rollout_begins_and_rollout_finishes(
    plane: Plane, cluster: Api, start: Start
) -> None:
    deploy(cluster, minReadySeconds=5)
    with never_below(plane, 1):
        start()
        until(lambda: replicas(cluster) == 2, "the replicas are raised")
        template = {"metadata": {"annotations": {"version": "2"}}}
        cluster.merge(WEB, {"spec": {"template": template}})
        until(lambda: replicas(cluster) == 1, "the replicas are restored")
        until(lambda: not moves(cluster), "the move ends")
        cluster.wait(PODS, lambda found: [*map(version, found.values())] == ["2"])
    assert replicas(cluster) == 1


def version(found: Json) -> str:
    text: str = (found["metadata"].get("annotations") or {}).get("version", "1")
    return text


def test_release_restores_replicas_of_killed_controller(
    plane: Plane, cluster: Api, start: Start
) -> None:
    deploy(cluster, minReadySeconds=20)
    with never_below(plane, 1):
        killed_when(start(), lambda: replicas(cluster) == 2)
        done = ebb("release", "--all", "--yes", "--kubeconfig", str(plane.kubeconfig("release")))
        assert done.returncode == 0, done.stderr
        told = b"deployment default/web  released: replicas 2 of a surge move, 1 again"
        assert told in done.stdout
        assert (replicas(cluster), data(cluster)) == (1, {})
        cluster.wait(PODS, lambda found: len(found) == 1)
