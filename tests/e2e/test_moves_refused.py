"""Pods that surge moves must leave alone, and a new pod that never becomes Ready."""

import time

import pytest

from core.model.pod import TEMPLATE_LABEL
from core.moves.note import DEADLINE_SECONDS_MIN
from core.moves.outcomes import PAUSE_SECONDS
from core.moves.reasons import HASH_SELECTED, OTHER_CONTROLLER
from tests.e2e.api import Api
from tests.e2e.endpoints import never_below
from tests.e2e.moves import (
    BUDGETS,
    DAEMON_SETS,
    NETWORK_POLICIES,
    NEW,
    OLD,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    SERVICES,
    App,
    begin,
    deploy,
    detached,
    ended,
    note,
    refused,
    settled,
    template_hash,
    untouched,
)
from tests.e2e.plane import Ebb, Plane, until

pytestmark = pytest.mark.usefixtures("leader")


def selecting(cluster: Api, app: App) -> None:
    """Create the object of a trap, whose selector matches the pods of the Deployment.

    The controllers match without the hash, and the others do not.
    """
    template = app.manifest()["spec"]["template"]
    labels = template["metadata"]["labels"]
    hashed = {**labels, TEMPLATE_LABEL: template_hash(cluster, app)}
    bare = {"selector": {"matchLabels": labels}, "template": template}
    path, spec = {
        "daemon": (DAEMON_SETS, bare),
        "bare": (REPLICA_SETS, {**bare, "replicas": 1}),
        "empty": (REPLICA_SETS, {**bare, "replicas": 0}),
        "old": (
            REPLICATION_CONTROLLERS,
            {"selector": labels, "template": template, "replicas": 0},
        ),
        "service": (SERVICES, {"selector": hashed, "clusterIP": "None", "ports": [{"port": 80}]}),
        "budget": (BUDGETS, {"selector": {"matchLabels": hashed}, "minAvailable": 0}),
        "policy": (NETWORK_POLICIES, {"podSelector": {"matchLabels": hashed}}),
    }[app.name]
    cluster.create(path, {"metadata": {"name": f"{app.name}-too"}, "spec": spec})


def test_pods_that_another_object_selects_are_not_moved(
    plane: Plane, cluster: Api, leader: Ebb
) -> None:
    """Each set-up works for years, because each pod has a controller."""
    controllers_too = [App(name=name, start="0s") for name in ("daemon", "bare", "empty", "old")]
    by_hash = [App(name=name, start="0s") for name in ("service", "budget", "policy")]
    twins = [App(name=name, start="0s", labels={"app": "twins"}) for name in ("twin-a", "twin-b")]
    deploy(cluster, App(name="free", start="0s"), *controllers_too, *by_hash, *twins)
    for app in (*controllers_too, *by_hash):
        selecting(cluster, app)
    names = [app.name for app in (*controllers_too, *by_hash, *twins)]
    with untouched(cluster, *names), never_below(plane, {"free": 1}) as samples:
        begin(cluster)
        settled(cluster, {"free": 1}, NEW)
        expected = {
            OTHER_CONTROLLER.code: len(controllers_too) + len(twins),
            HASH_SELECTED.code: len(by_hash),
        }
        until(lambda: refused(leader) == expected, f"{expected} ReplicaSets are refused")
    assert samples.detached == {"free"}


def test_move_is_undone_and_paused_when_new_pod_never_becomes_ready(
    plane: Plane, cluster: Api, leader: Ebb
) -> None:
    deploy(cluster, App(replicas=2, spec={"progressDeadlineSeconds": 5}))
    with untouched(cluster, "web"), never_below(plane, {"web": 2}):
        begin(cluster)
        (old,) = detached(cluster, "web").values()
        begun = note(old)
        assert begun["deadline"] - begun["begun"] == DEADLINE_SECONDS_MIN
        until(lambda: ended(leader, "timed_out") == 1, "it times out")
        pods = settled(cluster, {"web": 2}, OLD)
    (kept,) = (one for one in pods if one["metadata"]["uid"] == old["metadata"]["uid"])
    found = note(kept)
    assert (found["outcome"], found["failures"]) == ("timed_out", 1)
    assert abs(found["until"] - time.time() - PAUSE_SECONDS) < 60
