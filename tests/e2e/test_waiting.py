"""No pod remains Pending because of a NoSchedule taint of Ebb, whatever its constraints."""

import http.server
import json
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from core.config.settings import Mode
from tests.e2e.api import Api, Json
from tests.e2e.install import installed
from tests.e2e.objects import NODES, PODS, pod
from tests.e2e.plane import LOOPBACK, Plane
from tests.e2e.stub import served
from tests.e2e.test_safety import EVENTS, NO_SCHEDULE, bound, effects, mark, two_no_schedule

THEIR_SCHEDULER = "theirs"
BOUND_SECONDS = 60.0
"""Timeout for binding: kube-scheduler retries a rejected pod within ten seconds, if it is idle."""
STORAGE = "/apis/storage.k8s.io/v1/storageclasses"
VOLUMES = "/api/v1/persistentvolumes"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
DRA = "/apis/resource.k8s.io/v1"


@pytest.fixture(scope="module")
def programs(plane: Plane) -> Iterator[None]:
    with installed(plane, mode=Mode.ENFORCE, usableCapacity="all", noScheduleAfter="1s"):
        yield


def here(name: str) -> Json:
    """Return a selector for one node."""
    return {"nodeSelector": {"kubernetes.io/hostname": name}}


def late_claim(api: Api, name: str) -> Json:
    """Return a pod with a claim that binds when the pod is scheduled."""
    late = {"metadata": {"name": "late"}, "provisioner": "kubernetes.io/no-provisioner"}
    api.create(STORAGE, {**late, "volumeBindingMode": "WaitForFirstConsumer"})
    term = {"key": "kubernetes.io/hostname", "operator": "In", "values": [name]}
    common = {"storageClassName": "late", "accessModes": ["ReadWriteOnce"]}
    local = {
        "capacity": {"storage": "1Gi"},
        "local": {"path": "/disk"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}},
    }
    api.create(VOLUMES, {"metadata": {"name": "late"}, "spec": {**common, **local}})
    asked = {"resources": {"requests": {"storage": "1Gi"}}}
    api.create(CLAIMS, {"metadata": {"name": "late"}, "spec": {**common, **asked}})
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "late"}}
    return pod("odd", cpu="100m", volumes=[volume])


def device(api: Api, name: str) -> Json:
    """Return a pod that claims a device of one node."""
    api.create(f"{DRA}/deviceclasses", {"metadata": {"name": "e2e"}, "spec": {}})
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    devices = [{"name": "d0"}]
    offer = {"driver": "e2e", "nodeName": name, "pool": pool, "devices": devices}
    api.create(f"{DRA}/resourceslices", {"metadata": {"name": "e2e"}, "spec": offer})
    asked = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "e2e"}}]}}
    claims = f"{DRA}/namespaces/default/resourceclaims"
    api.create(claims, {"metadata": {"name": "e2e"}, "spec": asked})
    found = pod("odd", cpu="100m", resourceClaims=[{"name": "c", "resourceClaimName": "e2e"}])
    found["spec"]["containers"][0]["resources"]["claims"] = [{"name": "c"}]
    return found


def other_scheduler(_: Api, name: str) -> Json:
    return pod("odd", cpu="100m", schedulerName=THEIR_SCHEDULER, **here(name))


def namespace_selector(_: Api, name: str) -> Json:
    """Return a pod whose anti-affinity selects namespaces by label."""
    term = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"nobody": "has"}},
        "namespaceSelector": {"matchLabels": {"some": "label"}},
    }
    anti = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    return pod("odd", cpu="100m", affinity={"podAntiAffinity": anti}, **here(name))


def inline_disk(_: Api, name: str) -> Json:
    disk = {"targetPortal": "10.0.0.1:3260", "iqn": "iqn.2026-01.org.example:d", "lun": 0}
    return pod("odd", cpu="100m", volumes=[{"name": "data", "iscsi": disk}], **here(name))


@pytest.fixture
def made(api: Api) -> Iterator[None]:
    """Delete the pods and their objects after the test."""
    yield
    api.delete(PODS, gracePeriodSeconds=0)
    api.wait(PODS, lambda found: not found)
    claims = f"{DRA}/namespaces/default/resourceclaims"
    devices = [f"{DRA}/{kind}" for kind in ("resourceslices", "deviceclasses")]
    for path in (CLAIMS, VOLUMES, STORAGE, claims, *devices):
        api.delete(path)
    api.wait(VOLUMES, lambda found: not found)


KINDS = [late_claim, device, other_scheduler, namespace_selector, inline_disk]


def wait_event(api: Api, name: str, reason: str = "PreferNoScheduleSet") -> None:
    """Wait for an Event about a node: Ebb writes it after the change that it reports."""
    api.wait(
        EVENTS,
        lambda found: any(
            event["reason"] == reason and event["regarding"]["name"] == name
            for event in found.values()
        ),
    )


@pytest.mark.usefixtures("programs", "made")
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_noschedule_is_lifted_when_pending_pod_cannot_be_evaluated(
    plane: Plane,
    api: Api,
    kind: Callable[[Api, str], Json],
    capsys: pytest.CaptureFixture[str],
) -> None:
    first, other = two_no_schedule(api)
    scheduler = plane.scheduler(also=[THEIR_SCHEDULER])
    try:
        wanted = kind(api, first)
        created = time.monotonic()
        api.create(PODS, wanted)
        api.wait(NODES, lambda found: mark(found[first]) != "NoSchedule")
        changed = time.monotonic() - created
        found = api.wait(PODS, lambda found: bound(found["odd"]), BOUND_SECONDS)
        seconds = time.monotonic() - created
    finally:
        plane.end(scheduler, signal.SIGKILL)
    with capsys.disabled():
        print(f"\n{kind.__name__}: changed after {changed:.2f} s, bound after {seconds:.2f} s")
    assert bound(found["odd"]) == first
    # Ebb reads Namespaces, so it places this pod and needs its node.
    known = kind is namespace_selector
    wait_event(api, first, "NodeUnmarked" if known else "PreferNoScheduleSet")
    if kind not in (late_claim, device):  # here Ebb does not know which node is feasible
        assert NO_SCHEDULE in effects(api.get(f"{NODES}/{other}"))


@contextmanager
def refusing(name: str, nodes: set[str]) -> Iterator[Json]:
    """Run an extender that allows a pod only on some nodes; yield its stanza."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            offered = asked["NodeNames"]
            if asked["Pod"]["metadata"]["name"] == name:
                offered = [one for one in offered if one in nodes]
            failed = {one: "not this one" for one in asked["NodeNames"] if one not in offered}
            body = json.dumps({"NodeNames": offered, "FailedNodes": failed}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Suppress the log."""

    server = http.server.ThreadingHTTPServer((LOOPBACK, 0), Handler)
    server.daemon_threads = True
    with served(server):
        url = f"http://{LOOPBACK}:{server.server_address[1]}"
        yield {"urlPrefix": url, "filterVerb": "filter", "nodeCacheCapable": True, "weight": 1}


@pytest.mark.usefixtures("programs")
def test_noschedule_is_lifted_when_scheduler_rejects_pod_for_unknown_reason(
    plane: Plane, api: Api, capsys: pytest.CaptureFixture[str]
) -> None:
    """For Ebb the pod fits on the unmarked node; the scheduler's extender rejects it there."""
    marked = two_no_schedule(api)
    with refusing("odd", set(marked)) as stanza:
        scheduler = plane.scheduler(stanza)
        try:
            created = time.monotonic()
            api.create(PODS, pod("odd", cpu="100m"))
            found = api.wait(PODS, lambda found: bound(found["odd"]), BOUND_SECONDS)
            seconds = time.monotonic() - created
        finally:
            plane.end(scheduler, signal.SIGKILL)
    with capsys.disabled():
        print(f"\nrefused: bound after {seconds:.2f} s")
    assert bound(found["odd"]) in marked
    wait_event(api, bound(found["odd"]))
