"""Surge moves on a real control plane: nobody's write is lost, and no endpoint is ever missing.

One controller leads for all tests of this file. Each test has its own nodes and Deployments, with
names of their own: no Deployment is moved twice within a minute.
"""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from core.model.pod import DETACHED_LABEL, TEMPLATE_LABEL
from core.moves.outcomes import PAUSE_SECONDS
from tests.e2e.api import Api, Json
from tests.e2e.endpoints import never_below
from tests.e2e.install import CONTROLLER_ACCOUNT
from tests.e2e.moves import (
    BY_HAND,
    MOVED_SECONDS,
    NEW,
    OLD,
    QUOTAS,
    REPLICA_SETS,
    App,
    app_of,
    attached,
    begin,
    deploy,
    detached,
    ended,
    make_ready,
    note,
    open_up,
    outlast_reconciliations,
    owners,
    prepare,
    reasons,
    settled,
    untouched,
    without_traces,
)
from tests.e2e.objects import AUTOSCALERS, DEPLOYMENTS, PODS, START
from tests.e2e.plane import Ebb, Plane, until
from tests.e2e.pod_metrics import PodMetrics, serving_pod_metrics
from tests.e2e.releases import HELM_MAJOR, Release, helm_version
from tests.e2e.test_manifests import asked_by, rights_of

pytestmark = pytest.mark.usefixtures("leader")

LISTED_AT_BEGIN = {
    ("apps", "replicasets"),
    ("", "replicationcontrollers"),
    ("apps", "daemonsets"),
    ("", "services"),
    ("policy", "poddisruptionbudgets"),
    ("networking.k8s.io", "networkpolicies"),
}
"""API group and resource of the objects that Ebb lists when a move begins."""
WRITTEN = {
    ("", "configmaps", "patch"),  # the figures of the day, within 5 s of the first count
    ("", "nodes", "patch"),
    ("", "pods", "patch"),
    ("coordination.k8s.io", "leases", "create"),
    ("coordination.k8s.io", "leases", "update"),
    ("events.k8s.io", "events", "create"),
    ("authorization.k8s.io", "selfsubjectaccessreviews", "create"),
}
"""Every write that the controller may make."""
READ = ("get", "list", "watch")


def test_controller_moves_pods_with_budget_of_100_percent_and_writes_only_pods(
    plane: Plane, cluster: Api, leader: Ebb
) -> None:
    before, offset = ended(leader, "moved"), len(plane.audit.read_bytes())
    deploy(cluster, App(name="one", start="2s"), App(name="three", replicas=3, start="2s"))
    with untouched(cluster, "one", "three"), never_below(plane, {"one": 1, "three": 3}):
        begin(cluster)
        old = detached(cluster, "one", "three")["one"]["metadata"]["uid"]
        (new,) = settled(cluster, {"one": 1}, NEW)
        until(lambda: ended(leader, "moved") == before + 2, "both moves are counted")
        three = settled(cluster, {"three": 3})
    assert new["metadata"]["uid"] != old
    assert sorted(pod["spec"]["nodeName"] for pod in three) == [OLD, OLD, NEW]
    without_traces([new, *three])
    told = {"SurgeMoveBegan", "SurgeMoved"}
    until(lambda: told <= reasons(cluster, "one"), "Events say so")
    asked = asked_by(plane, CONTROLLER_ACCOUNT, offset)
    assert 403 not in {one["responseStatus"]["code"] for one in asked if "responseStatus" in one}
    rights = rights_of(asked)
    assert {right for right in rights if right[2] not in READ} <= WRITTEN
    assert {right[:2] for right in rights if right[2] == "list"} >= LISTED_AT_BEGIN


def applying(plane: Plane, app: App) -> Callable[[int], None]:
    """Return a function that applies a Deployment with these replicas by kubectl."""

    def apply(replicas: int) -> None:
        path = plane.folder / f"{app.name}.json"
        path.write_text(json.dumps(app.manifest(replicas)))
        plane.kubectl("apply", "--server-side", "-f", str(path))

    return apply


@pytest.fixture
def helm(plane: Plane, tmp_path: Path) -> Iterator[Callable[[App], Release]]:
    """Return a function that makes a release of a Deployment; uninstall all afterwards."""
    made: list[Release] = []

    def make(app: App) -> Release:
        made.append(Release(plane, tmp_path, app))
        return made[-1]

    yield make
    for release in made:
        release.uninstall()


def test_helm_and_server_side_apply_succeed_before_during_and_after_moves(
    plane: Plane, cluster: Api, leader: Ebb, helm: Callable[[App], Release]
) -> None:
    assert helm_version(plane).startswith(HELM_MAJOR)
    values = {
        "helm-same": (1, 1),
        "helm-more": (1, 3),
        "kubectl-same": (2, 2),
        "kubectl-less": (3, 2),
    }
    apps = {name: App(name=name, replicas=before) for name, (before, _) in values.items()}
    write: dict[str, Callable[[int], None]] = {
        name: helm(app) if name.startswith("helm") else applying(plane, app)
        for name, app in apps.items()
    }
    tools = {name: {f"{name.partition('-')[0]} Apply"} for name in apps}
    same, changed = ("helm-same", "kubectl-same"), ("helm-more", "kubectl-less")
    moves = ended(leader, "moved"), ended(leader, "changed")
    for name, app in apps.items():
        write[name](app.replicas)
    deploy(cluster, *apps.values(), created=True)
    least = {name: min(both) for name, both in values.items()}
    with never_below(plane, least, {name: max(both) + 1 for name, both in values.items()}):
        with untouched(cluster, *apps):
            for name, app in apps.items():
                write[name](app.replicas)
            begin(cluster)
            detached(cluster, *apps)
            for name in same:
                write[name](apps[name].replicas)
        for name in changed:
            write[name](values[name][1])
            attached(cluster, name)
        make_ready(cluster, {"helm-same": 1, "kubectl-same": 1, "helm-more": 2})
        settled(cluster, {name: values[name][0] for name in same})
        settled(cluster, {name: values[name][1] for name in changed})
        until(lambda: ended(leader, "moved") == moves[0] + 2, "two moves succeed")
        with untouched(cluster, *apps):
            for name, (_, after) in values.items():
                write[name](after)
        for name, (_, after) in values.items():
            write[name](after + 1)
    until(lambda: ended(leader, "changed") == moves[1] + 2, "two moves are ended by changes")
    found = {name: cluster.get(app.path)["spec"]["replicas"] for name, app in apps.items()}
    assert found == {name: after + 1 for name, (_, after) in values.items()}
    assert {name: owners(cluster, name) for name in apps} == tools


@pytest.fixture(scope="module")
def metrics(plane: Plane) -> Iterator[PodMetrics]:
    with serving_pod_metrics(plane) as found:
        yield found


def autoscale(api: Api, app: App, least: int) -> None:
    """Create an HPA whose target is half of the requests: 5m of a pod; wait until it acts.

    It scales in at once.
    """
    target = {"type": "Utilization", "averageUtilization": 50}
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": app.name},
        "minReplicas": least,
        "maxReplicas": 4,
        "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
        "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}},
    }
    api.create(AUTOSCALERS, {"metadata": {"name": app.name}, "spec": spec})
    api.wait(AUTOSCALERS, lambda found: found[app.name].get("status", {}).get("currentMetrics"))


def test_hpa_at_its_minimum_changes_nothing_during_a_move(
    plane: Plane, cluster: Api, leader: Ebb, metrics: PodMetrics
) -> None:
    app, moved = App(name="hpa-minimum", replicas=2, start="4s"), ended(leader, "moved")
    deploy(cluster, app)
    metrics.load_millis = 2
    autoscale(cluster, app, 2)
    with never_below(plane, {"hpa-minimum": 2}), untouched(cluster, "hpa-minimum"):
        begin(cluster)
        detached(cluster, "hpa-minimum")
        until(lambda: ended(leader, "moved") == moved + 1, "the move succeeds")
        settled(cluster, {"hpa-minimum": 2})


def test_move_ends_and_value_stays_when_hpa_scales_in_during_a_move(
    plane: Plane, cluster: Api, leader: Ebb, metrics: PodMetrics
) -> None:
    app, changed = App(name="hpa-in", replicas=3), ended(leader, "changed")
    deploy(cluster, app)
    metrics.load_millis = 15
    autoscale(cluster, app, 1)
    with never_below(plane, {"hpa-in": 2}, {"hpa-in": 4}):
        with untouched(cluster, "hpa-in"):
            begin(cluster)
            detached(cluster, "hpa-in")
        metrics.load_millis = 8
        until(lambda: cluster.get(app.path)["spec"]["replicas"] == 2, "the HPA scales in")
        attached(cluster, "hpa-in")
        without_traces(settled(cluster, {"hpa-in": 2}))
    assert cluster.get(app.path)["spec"]["replicas"] == 2
    until(lambda: ended(leader, "changed") == changed + 1, "the change has ended it")


def test_move_is_undone_and_paused_when_quota_refuses_new_pod(
    plane: Plane, cluster: Api, leader: Ebb
) -> None:
    """The quota is full after Ebb has looked: nothing is created before."""
    refused = ended(leader, "refused")
    deploy(cluster, App(name="quota", replicas=2))
    prepare(cluster)
    with never_below(plane, {"quota": 2}):
        with plane.controller_manager.paused():
            open_up(cluster)
            (old,) = detached(cluster, "quota").values()
            full = {"pods": "2"}
            cluster.create(QUOTAS, {"metadata": {"name": "full"}, "spec": {"hard": full}})
            status = {"status": {"hard": full, "used": full}}
            cluster.merge(f"{QUOTAS}/full/status", status)
        until(lambda: ended(leader, "refused") == refused + 1, "it is refused")
        pods = settled(cluster, {"quota": 2}, OLD)
    (kept,) = (one for one in pods if one["metadata"]["uid"] == old["metadata"]["uid"])
    found = note(kept)
    assert (found["outcome"], found["failures"]) == ("refused", 1)
    assert abs(found["until"] - time.time() - PAUSE_SECONDS) < 60


def test_failed_pod_gets_its_label_back_during_a_move(
    plane: Plane, cluster: Api, leader: Ebb
) -> None:
    """The ReplicaSet does not adopt it, but it is collected with it."""
    deploy(cluster, App(name="failed", replicas=2))
    with never_below(plane, {"failed": 1}, {"failed": 3}):
        begin(cluster)
        (old,) = detached(cluster, "failed").values()
        outlast_reconciliations(leader)  # the controller has seen the pod detached
        path = f"{PODS}/{old['metadata']['name']}"
        unready = [{"type": "Ready", "status": "False"}]
        cluster.merge(f"{path}/status", {"status": {"phase": "Failed", "conditions": unready}})
        attached(cluster, "failed")
        make_ready(cluster, {"failed": 1})
        labels = cluster.get(path)["metadata"]["labels"]
    assert labels[TEMPLATE_LABEL] == old["metadata"]["labels"][DETACHED_LABEL]
    cluster.delete(f"{DEPLOYMENTS}/failed")
    cluster.wait(PODS, lambda found: not found)


def test_rollouts_and_scale_to_0_during_moves_end_them_without_failure(
    plane: Plane, cluster: Api, leader: Ebb
) -> None:
    rolling = {"maxSurge": 1, "maxUnavailable": 1}
    apps = (
        App(name="history", replicas=2),
        App(name="none", replicas=2, spec={"revisionHistoryLimit": 0}),
        App(name="slack", replicas=3, spec={"strategy": {"rollingUpdate": rolling}}),
        App(name="zero", replicas=2),
    )
    least = {"history": 2, "none": 2, "slack": 2, "zero": 0}
    most = {"history": 4, "none": 4, "slack": 5, "zero": 3}
    changed = ended(leader, "changed")
    deploy(cluster, *apps)
    with never_below(plane, least, most):
        begin(cluster)
        detached(cluster, *least)
        for name in ("history", "none", "slack"):
            template = {"metadata": {"annotations": {"version": "2", START: "500ms"}}}
            cluster.merge(f"{DEPLOYMENTS}/{name}", {"spec": {"template": template}})
        plane.kubectl("scale", "deployment/zero", "--replicas=0")
        attached(cluster, *least)
        cluster.wait(PODS, all_new({"history": 2, "none": 2, "slack": 3}), MOVED_SECONDS)
    pods = settled(cluster, {"history": 2, "none": 2, "slack": 3, "zero": 0})
    without_traces(pods)
    until(lambda: ended(leader, "changed") == changed + len(apps), "changes have ended all")
    for app in apps:
        assert owners(cluster, app.name) <= {"python-urllib3 Update", "kubectl Update"}


def all_new(counts: Mapping[str, int]) -> Callable[[Mapping[str, Json]], bool]:
    """Return a condition: all pods are of version 2, and as many as wanted."""

    def reached(found: Mapping[str, Json]) -> bool:
        new = [p for p in found.values() if p["metadata"]["annotations"]["version"] == "2"]
        return len(new) == len(found) and Counter(map(app_of, new)) == Counter(counts)

    return reached


def test_rollout_undo_after_a_move_restores_the_template_only(plane: Plane, cluster: Api) -> None:
    deploy(cluster, App(name="undo", start="0s"))
    with never_below(plane, {"undo": 1}):
        begin(cluster)
        settled(cluster, {"undo": 1}, NEW)
        template = {"metadata": {"annotations": {"version": "2"}}}
        cluster.merge(f"{DEPLOYMENTS}/undo", {"spec": {"template": template}})
        cluster.wait(PODS, all_new({"undo": 1}))
        plane.kubectl("rollout", "undo", "deployment/undo")
        cluster.wait(PODS, lambda found: not all_new({"undo": 1})(found) and len(found) == 1)
        (pod,) = settled(cluster, {"undo": 1})
        assert pod["metadata"]["annotations"]["version"] == "1"
    found = cluster.get(f"{DEPLOYMENTS}/undo")
    assert found["spec"]["replicas"] == 1
    assert "ebb" not in str(found["metadata"]["annotations"])


def test_deletion_during_moves_leaves_no_detached_pod(plane: Plane, cluster: Api) -> None:
    """What is orphaned keeps its pods, and a ReplicaSet that is deleted is created again."""
    ways = {
        "background": DEPLOYMENTS,
        "foreground": DEPLOYMENTS,
        "orphan": DEPLOYMENTS,
        "set-foreground": REPLICA_SETS,
        "set-orphan": REPLICA_SETS,
    }
    # A move whose ReplicaSet is created again goes on, and succeeds or is undone.
    starts = {"set-orphan": "3s"}
    apps = [App(name=name, replicas=2, start=starts.get(name, BY_HAND)) for name in ways]
    deploy(cluster, *apps)
    with never_below(plane, {"orphan": 2, "set-orphan": 2}):
        begin(cluster)
        for name, pod in detached(cluster, *ways).items():
            owner = pod["metadata"]["ownerReferences"][0]["name"]
            object_name = owner if ways[name] == REPLICA_SETS else name
            policy = name.rpartition("-")[2].capitalize()
            cluster.delete(f"{ways[name]}/{object_name}", propagationPolicy=policy)
        attached(cluster, *(ways.keys() - starts))
        make_ready(cluster, {"set-foreground": 2})
        kept = {"orphan": 2, "set-foreground": 2, "set-orphan": 2}
        pods = settled(cluster, {"background": 0, "foreground": 0, **kept})
    without_traces(pods)
    # The garbage collector deletes a Deployment after its pods, or after it has orphaned them.
    cluster.wait(DEPLOYMENTS, lambda found: found.keys() == {"set-foreground", "set-orphan"})
