"""Surge moves that are interrupted, on a real control plane: no pod stays detached."""

import signal
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from cli.cleanup.moves import OLD_RECORDS
from core.marks.wellknown import KEEP_ANNOTATION
from core.model.pod import DETACHED_LABEL
from kube.target import NAMESPACE
from runtime.file_changes import FILES_SECONDS
from tests.e2e.api import Api
from tests.e2e.endpoints import never_below
from tests.e2e.install import CONTROLLER_ACCOUNT, Start
from tests.e2e.line import Line
from tests.e2e.moves import (
    ATTACHED_SECONDS,
    OLD,
    SETTINGS,
    App,
    Write,
    app_of,
    attached,
    begin,
    deploy,
    detached,
    ended,
    is_detached,
    make_ready,
    outlast_reconciliations,
    settled,
    until_bound,
    untouched,
    without_traces,
    write_of,
)
from tests.e2e.objects import NODES, PODS
from tests.e2e.plane import Ebb, Plane, until
from tests.e2e.test_install_doc import TRACES, said
from tests.support.pages import console
from tests.support.plan_cli import ebb

STARTING = App(name="starting", replicas=2)
READY = App(name="ready", replicas=2, spec={"minReadySeconds": 60})
"""A Deployment whose new pod is Ready for a minute before it is available."""
BY_HAND = console("docs/surge.md", "kubectl label pod NAME")
CONFIG_MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
SURGE = SETTINGS["surge"]
DETACHED_PODS = ("get", "pods", "-A", "-l", DETACHED_LABEL)
"""The documented command that finds what a move has left behind."""
RELOADED_SECONDS = FILES_SECONDS + 1
"""Time until a controller has read a changed configuration file."""


def observe(_: Plane, leader: Ebb) -> None:
    leader.configure(mode="observe")


def clean_up(plane: Plane, leader: Ebb) -> None:
    leader.stop(signal.SIGKILL)
    records = {"metadata": {"name": OLD_RECORDS}, "data": {"move.x": "{}"}}
    plane.api.create(CONFIG_MAPS, records)
    _, warned = cleaned_up(plane)
    plane.api.delete(f"{CONFIG_MAPS}/{OLD_RECORDS}")
    assert "an older version of Ebb has recorded 1 surge move there" in warned


def cleaned_up(plane: Plane) -> tuple[str, str]:
    """Run `ebb cleanup --all`; return its output and its warnings."""
    done = ebb("cleanup", "--all", "--yes", "--kubeconfig", str(plane.kubeconfig("cleanup")))
    assert done.returncode == 0, done.stderr
    return done.stdout.decode(), done.stderr.decode()


def cordon(plane: Plane, _: Ebb) -> None:
    plane.kubectl("cordon", OLD)


def unmark(plane: Plane, _: Ebb) -> None:
    plane.api.merge(f"{NODES}/{OLD}", {"metadata": {"annotations": {KEEP_ANNOTATION: "true"}}})


@pytest.mark.parametrize("interrupt", [observe, clean_up, cordon, unmark])
def test_old_pods_stay_and_new_ones_go_when_moves_are_interrupted(
    plane: Plane, cluster: Api, start: Start, interrupt: Callable[[Plane, Ebb], None]
) -> None:
    deploy(cluster, STARTING, READY)
    leader = start()
    with untouched(cluster, "starting", "ready"), never_below(plane, {"starting": 2, "ready": 2}):
        begin(cluster)
        detached(cluster, "starting", "ready")
        make_ready(cluster, {"ready": 1})
        interrupt(plane, leader)
        attached(cluster, "starting", "ready", seconds=RELOADED_SECONDS + ATTACHED_SECONDS)
        pods = settled(cluster, {"starting": 2, "ready": 2}, OLD)
    without_traces(pods)


def test_uninstalling_in_the_documented_order_leaves_nothing(
    plane: Plane, cluster: Api, start: Start
) -> None:
    deploy(cluster, STARTING, READY)
    leader = start()
    with untouched(cluster, "starting", "ready"), never_below(plane, {"starting": 2, "ready": 2}):
        begin(cluster)
        detached(cluster, "starting", "ready")
        make_ready(cluster, {"ready": 1})
        leader.configure(surge={"mode": "disabled"})
        until(lambda: "No resources found" in plane.kubectl(*DETACHED_PODS), "all moves end")
        leader.stop(signal.SIGTERM)
        cleaned_up(plane)
        settled(cluster, {"starting": 2, "ready": 2}, OLD)
    assert said(plane, TRACES.commands) == ""
    assert cleaned_up(plane)[0].endswith("0 nodes and 0 pods cleaned up\n")


def test_documented_command_ends_a_move_when_no_controller_runs(
    plane: Plane, cluster: Api, start: Start
) -> None:
    commands = BY_HAND.commands
    deploy(cluster, STARTING)
    leader = start()
    with untouched(cluster, "starting"), never_below(plane, {"starting": 2}):
        begin(cluster)
        metadata = detached(cluster, "starting")["starting"]["metadata"]
        leader.stop(signal.SIGKILL)
        for place, value in {
            "NAMESPACE": "default",
            "NAME": metadata["name"],
            "HASH": metadata["labels"][DETACHED_LABEL],
        }.items():
            commands = commands.replace(place, value)
        assert metadata["name"] in said(plane, commands)
        settled(cluster, {"starting": 2}, OLD)


def test_moves_wait_while_controller_manager_is_stopped_before_and_after_detach(
    plane: Plane, cluster: Api, start: Start
) -> None:
    """Nobody adopts, creates or counts pods then, and no status of a Deployment changes.

    The second move begins when the first one has ended.
    """
    first, second = App(name="first", replicas=2), App(name="second", replicas=3)
    deploy(cluster, first, second)
    leader = start(surge={**SURGE, "maxAtOnce": 1})
    with (
        untouched(cluster, "first", "second"),
        never_below(plane, {"first": 2, "second": 3}) as samples,
    ):
        begin(cluster)
        detached(cluster, "first")
        until_bound(cluster, {"first": 1})
        with plane.controller_manager.paused():
            make_ready(cluster, {"first": 1})
            detached(cluster, "second")
            outlast_reconciliations(leader)
            assert cluster.get(second.path)["status"]["readyReplicas"] == 3
            left = [one for one in cluster.get(PODS)["items"] if is_detached(one)]
            assert [app_of(one) for one in left] == ["second"]
        make_ready(cluster, {"second": 1})
        until(lambda: ended(leader, "moved") == 2, "both moves succeed")
        without_traces(settled(cluster, {"first": 2, "second": 3}))
    assert samples.detached == {"first", "second"}


ELSEWHERE = "ebb-elsewhere"


@pytest.fixture
def elsewhere(plane: Plane) -> Iterator[str]:
    """Return a namespace in which the controller may hold a second Lease."""
    plane.api.create("/api/v1/namespaces", {"metadata": {"name": ELSEWHERE}})
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{ELSEWHERE}"
    rule = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["*"]}
    plane.api.create(f"{rbac}/roles", {"metadata": {"name": "leases"}, "rules": [rule]})
    subject = {"kind": "ServiceAccount", "name": CONTROLLER_ACCOUNT, "namespace": NAMESPACE}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "leases"}
    binding = {"metadata": {"name": "leases"}, "subjects": [subject], "roleRef": role}
    plane.api.create(f"{rbac}/rolebindings", binding)
    yield ELSEWHERE
    plane.api.delete(f"/api/v1/namespaces/{ELSEWHERE}")


def test_nothing_is_left_behind_by_two_leaders_at_once(
    plane: Plane, cluster: Api, start: Start, elsewhere: str
) -> None:
    """Each has a Lease of its own, so each may detach a pod of the same Deployment."""
    apps = [App(name=f"app-{number}", replicas=2, start="2s") for number in range(4)]
    counts = {app.name: app.replicas for app in apps}
    deploy(cluster, *apps)
    leaders = [start(), start(lease_in=elsewhere)]
    for leader in leaders:
        leader.wait_ready()
        until(lambda: leader.metric("ebb_leader") == 1, "both lead")  # noqa: B023
    most = {name: count + 2 for name, count in counts.items()}
    with untouched(cluster, *counts), never_below(plane, counts, most) as samples:
        begin(cluster)
        until(lambda: samples.detached == counts.keys(), "each Deployment is moved")
        for leader in leaders:
            outlast_reconciliations(leader)
        leaders[1].stop(signal.SIGKILL)
        settled(cluster, counts)


def test_next_leader_ends_moves_of_paused_leader_which_then_writes_nothing(
    plane: Plane, cluster: Api, start: Start
) -> None:
    deploy(cluster, STARTING, READY)
    first = start().wait_ready()
    second = start()
    with untouched(cluster, "starting", "ready"), never_below(plane, {"starting": 2, "ready": 2}):
        begin(cluster)
        detached(cluster, "starting", "ready")
        make_ready(cluster, {"ready": 1})
        with first.program.paused():
            until(lambda: second.metric("ebb_leader") == 1, "the other leads")
            attached(cluster, "starting", "ready")
            pods = settled(cluster, {"starting": 2, "ready": 2}, OLD)
        outlast_reconciliations(second)
        without_traces(settled(cluster, {"starting": 2, "ready": 2}, OLD))
    without_traces(pods)


def test_nothing_is_left_behind_when_answers_to_writes_are_lost(
    plane: Plane, cluster: Api, start: Start
) -> None:
    """The first answer to each write of a move is lost, after the API server has made it."""
    apps = STARTING, App(name="succeeds", replicas=2, start="1s")
    deploy(cluster, *apps)
    counts = {app.name: app.replicas for app in apps}
    line, asked = Line(plane, "lossy"), Counter[tuple[Write, str]]()

    def loses(method: str, path: str, body: bytes) -> bool:
        write = write_of(method, path, body)
        if write is None or write is Write.BEGUN:
            return False
        asked[write, path] += 1
        return asked[write, path] == 1

    line.loses = loses
    start(url=line.url)
    try:
        with untouched(cluster, *counts), never_below(plane, counts) as samples:
            begin(cluster)
            until(lambda: samples.detached == counts.keys(), "each Deployment is moved")
            settled(cluster, {"succeeds": 2})
            plane.kubectl("cordon", OLD)
            attached(cluster, *counts)
            settled(cluster, counts)
    finally:
        line.end()
    assert {write for write, _ in asked} == {Write.DETACHED, Write.ATTACHED}
