"""Deployments whose pods surge moves replace, and the traces of moves on their pods.

Pods run on node a. Ebb marks it as soon as node b, which has an opt-out, offers room for them.
"""

import ipaddress
import itertools
import json
import signal
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final

import urllib3

from core.config.settings import Mode
from core.marks.wellknown import (
    COST_ANNOTATION,
    COST_OURS_ANNOTATION,
    KEEP_ANNOTATION,
    MARK_LABEL,
    MOVE_ANNOTATION,
)
from core.model.pod import DETACHED_LABEL, TEMPLATE_LABEL
from core.moves.hourly import MOVES_BEGUN_ANNOTATION
from kube.target import NAMESPACE
from tests.e2e.api import STRATEGIC, Api, Json
from tests.e2e.endpoints import SLICES, ready_endpoints
from tests.e2e.install import (
    CONTROLLER_ACCOUNT,
    LEASE,
    Start,
    apply,
    config,
    ending,
    overlay,
    plain_url,
    remove,
    starting,
)
from tests.e2e.objects import (
    AUTOSCALERS,
    DEPLOYMENTS,
    NODES,
    PODS,
    START,
    THEIRS,
    add_nodes,
    node,
)
from tests.e2e.objects import ready as node_ready
from tests.e2e.plane import FLAGS, LOOPBACK, Ebb, Plane, start_ebb, until
from tests.e2e.pod_metrics import ready as is_ready

OLD, NEW = "a", "b"
"""The node that Ebb marks, and the node to which pods move."""
APPS: Final = "/apis/apps/v1/namespaces/default"
REPLICA_SETS: Final = f"{APPS}/replicasets"
SERVICES: Final = "/api/v1/namespaces/default/services"
BUDGETS: Final = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
QUOTAS: Final = "/api/v1/namespaces/default/resourcequotas"
EVENTS: Final = "/apis/events.k8s.io/v1/namespaces/default/events"
DAEMON_SETS: Final = f"{APPS}/daemonsets"
REPLICATION_CONTROLLERS: Final = "/api/v1/namespaces/default/replicationcontrollers"
NETWORK_POLICIES: Final = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies"
KINDS: Final = (
    AUTOSCALERS,
    DAEMON_SETS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    BUDGETS,
    QUOTAS,
    NETWORK_POLICIES,
)
"""Paths of what tests of moves create besides Deployments and Services."""
CLUSTER_KINDS: Final = (
    "clusterrole,clusterrolebinding,validatingadmissionpolicy,validatingadmissionpolicybinding"
)
"""Kinds without a namespace that the base and the components of moves have."""
_NUMBERS: Final = itertools.count()
"""Numbers for the names of controllers."""
SKIPPED: Final = 'ebb_reconcile_total{result="skipped"}'
CONTROLLER_MANAGER: Final = "kube-controller-manager"
MOVE_COST, UNDO_COST = "-100000001", "-100000002"
"""Pod deletion costs of the old pod of a move, and of the new pod of a move that is undone."""
HELD: Final = {KEEP_ANNOTATION: "true"}
"""Annotations of a Deployment whose pods Ebb does not move."""
BY_HAND: Final = "24h"
"""Time until a pod is Ready by itself: longer than any test."""
OLD_SECONDS: Final = 3600
"""Time since which pods are Ready when a test begins: any `minReadySeconds` has passed."""
_ADDRESSES: Final = (str(one) for one in ipaddress.ip_network("10.80.0.0/16").hosts())
"""IPs of pods that a test makes Ready; kwok gives others to its own."""
ATTACHED_SECONDS: Final = 20.0
"""Ebb attaches a pod within 2 s of a change; the rest is for a busy machine.

It is less than any move's time until its deadline, at which Ebb attaches the pod anyway.
"""
MOVED_SECONDS: Final = 60.0
SETTINGS: Json = {
    "mode": Mode.ENFORCE,
    "usableCapacity": "all",
    "thresholds": {"cpu": "100%", "memory": "100%"},
    FLAGS: {"controller": {"--lease-duration": "3s"}},
    "surge": {"mode": "enabled", "minPodAge": "0s"},
}


@dataclass(frozen=True, kw_only=True)
class App:
    """A Deployment, and a Service and a PodDisruptionBudget of 100 % of the same name."""

    name: str = "web"
    replicas: int = 1
    start: str = BY_HAND
    """Time until a pod is Ready; by default the test makes its pods Ready."""
    spec: Json = field(default_factory=dict)
    """Further fields of the spec of the Deployment."""
    annotations: Json = field(default_factory=dict)
    """Annotations of the Deployment."""
    labels: Json = field(default_factory=dict)
    """Labels of its pods in place of `app`."""
    version: str = "1"
    """A change of it is a rollout."""

    @property
    def path(self) -> str:
        """Return the API path of the Deployment."""
        return f"{DEPLOYMENTS}/{self.name}"

    def manifest(self, replicas: int | None = None) -> Json:
        """Return the Deployment, by default with its own number of replicas."""
        labels = self.labels or {"app": self.name}
        metadata = {"annotations": self.annotations} if self.annotations else {}
        annotations = {START: self.start, "version": self.version}
        container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "10m"}}}
        template = {
            "metadata": {"labels": labels, "annotations": annotations},
            "spec": {"containers": [container], "terminationGracePeriodSeconds": 1},
        }
        return {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": self.name, **metadata},
            "spec": {
                "replicas": self.replicas if replicas is None else replicas,
                "selector": {"matchLabels": labels},
                "template": template,
                **self.spec,
            },
        }


def deploy(api: Api, *apps: App, created: bool = False) -> None:
    """Run the Deployments on node a, and wait until all their endpoints are Ready.

    *created*: somebody else creates the Deployments.
    """
    add_nodes(api, OLD)
    for app in apps:
        labels = app.labels or {"app": app.name}
        if not created:
            api.create(DEPLOYMENTS, app.manifest())
        service = {"selector": labels, "clusterIP": "None", "ports": [{"port": 80}]}
        api.create(SERVICES, {"metadata": {"name": app.name}, "spec": service})
        budget = {"selector": {"matchLabels": labels}, "minAvailable": "100%"}
        api.create(BUDGETS, {"metadata": {"name": app.name}, "spec": budget})
    counts = {app.name: app.replicas for app in apps}
    by_hand = {app.name: app.replicas for app in apps if app.start == BY_HAND}
    make_ready(api, by_hand, age_seconds=OLD_SECONDS)
    api.wait(
        DEPLOYMENTS,
        lambda found: all(
            found.get(n, {}).get("status", {}).get("availableReplicas", 0) == count
            for n, count in counts.items()
        ),
        MOVED_SECONDS,
    )

    def serve() -> bool:
        found = ready_endpoints(api.get(SLICES)["items"])
        return all(found[name] >= count for name, count in counts.items())

    until(serve, "all endpoints are Ready")


def template_hash(api: Api, app: App) -> str:
    """Return the hash that the pods of a Deployment have as a label."""
    pods = (one for one in api.get(PODS)["items"] if app_of(one) == app.name)
    found: str = next(pods)["metadata"]["labels"][TEMPLATE_LABEL]
    return found


def until_bound(api: Api, counts: Mapping[str, int]) -> dict[str, Json]:
    """Wait until each Deployment has so many bound pods that do not run. Returns all pods."""

    def reached(found: Mapping[str, Json]) -> bool:
        seen = Counter(app_of(one) for one in found.values() if _is_bound(one))
        return all(seen[name] == count for name, count in counts.items())

    return api.wait(PODS, reached, MOVED_SECONDS)


def make_ready(api: Api, counts: Mapping[str, int], *, age_seconds: int = 0) -> None:
    """Wait until each Deployment has so many bound pods that do not run, and make them Ready.

    *age_seconds*: how long they have been Ready.
    """
    found = until_bound(api, counts)
    moment = f"{datetime.now(UTC) - timedelta(seconds=age_seconds):%Y-%m-%dT%H:%M:%SZ}"
    conditions = [
        {"type": kind, "status": "True", "lastTransitionTime": moment}
        for kind in ("Ready", "ContainersReady", "Initialized")
    ]
    for name, one in found.items():
        if _is_bound(one) and app_of(one) in counts:
            ip = next(_ADDRESSES)
            status = {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}]}
            status |= {"conditions": conditions, "startTime": moment}
            api.call("PATCH", f"{PODS}/{name}/status", {"status": status}, content=STRATEGIC)


def _is_bound(pod: Json) -> bool:
    return (
        pod["status"].get("phase") == "Pending"
        and "nodeName" in pod["spec"]
        and "deletionTimestamp" not in pod["metadata"]
    )


def begin(api: Api) -> None:
    """Offer room for the pods of node a, so that Ebb marks it and moves begin."""
    add_nodes(api, NEW, annotations={KEEP_ANNOTATION: "true"})


def prepare(api: Api) -> None:
    """Add node b, which offers no room yet."""
    made = node(NEW, annotations={KEEP_ANNOTATION: "true"})
    api.create(NODES, {**made, "spec": {"taints": [THEIRS]}})
    api.wait(NODES, lambda found: node_ready(found[NEW]))


def open_up(api: Api) -> None:
    """Let node b offer room, as `begin` does; this needs no controller manager."""
    api.merge(f"{NODES}/{NEW}", {"spec": {"taints": None}})


def let_go(api: Api, app: App) -> None:
    """Allow moves of a Deployment that has been created with the annotations HELD."""
    api.merge(app.path, {"metadata": {"annotations": dict.fromkeys(HELD)}})


def hold(api: Api, app: App) -> None:
    """Forbid moves of a Deployment again."""
    api.merge(app.path, {"metadata": {"annotations": HELD}})


@contextmanager
def installed_for_moves(plane: Plane) -> Iterator[None]:
    """Install Ebb with the component surge; run a scheduler and a webhook."""
    folder = plane.folder / "surge"
    overlay(folder, "components/surge")
    apply(plane, str(folder))
    scheduler = plane.scheduler()
    try:
        with starting(plane, SETTINGS):
            yield
    finally:
        plane.end(scheduler, signal.SIGKILL)
        plane.kubectl("delete", CLUSTER_KINDS, "-l", "app.kubernetes.io/name=ebb")
        remove(plane)


@contextmanager
def controllers(plane: Plane) -> Iterator[Start]:
    """Yield a function that starts a controller; kill all of them afterwards.

    The first one leads at once. The function does not wait until a controller is ready. *url*
    replaces the URL of the API server, *lease_in* the namespace of the Lease, and other arguments
    replace settings.
    """

    def start(*, url: str = "", lease_in: str = NAMESPACE, **changed: Any) -> Ebb:
        name, settings = f"ebb-mover-{next(_NUMBERS)}", config(**{**SETTINGS, **changed})
        made = start_ebb(
            plane,
            name,
            "controller",
            settings,
            kubeconfig=plane.kubeconfig(name, token=token, url=url),
            health=plain_url("controller", settings),
            POD_NAME=name,
            POD_NAMESPACE=lease_in,
        )
        at_end.enter_context(ending(plane, made))
        return made

    plane.api.delete(LEASE)
    token = plane.token(NAMESPACE, CONTROLLER_ACCOUNT)
    with ExitStack() as at_end:
        yield start


def tidy(api: Api) -> None:
    """Delete what tests of moves create, except what the fixture `api` deletes."""
    for path in KINDS:
        api.delete(path, propagationPolicy="Background")
    for one in api.get(SERVICES)["items"]:
        if one["spec"].get("clusterIP") == "None":
            api.delete(f"{SERVICES}/{one['metadata']['name']}")


def app_of(pod: Json) -> str:
    """Return the name of the Deployment of a pod."""
    name: str = pod["metadata"].get("labels", {}).get("app", "")
    return name


def is_detached(pod: Json) -> bool:
    """Return whether a pod is taken out of its ReplicaSet."""
    return DETACHED_LABEL in pod["metadata"].get("labels", {})


def detached(api: Api, *names: str) -> dict[str, Json]:
    """Wait until a pod of each of these Deployments is detached; return these pods by Deployment.

    Each is detached as documented: the hash is in the label, the reference to its ReplicaSet
    stays, but does not make it the controller, and the annotation has no outcome yet.
    """

    def by_app(found: Mapping[str, Json]) -> dict[str, Json]:
        return {app_of(one): one for one in found.values() if is_detached(one)}

    found = by_app(api.wait(PODS, lambda seen: by_app(seen).keys() >= set(names)))
    for one in found.values():
        metadata = one["metadata"]
        (owner,) = metadata["ownerReferences"]
        assert TEMPLATE_LABEL not in metadata["labels"]
        assert owner["name"].endswith(metadata["labels"][DETACHED_LABEL])
        assert (owner["kind"], owner["controller"]) == ("ReplicaSet", False)
        assert owner["blockOwnerDeletion"] is False
        assert note(one).keys() - {"failures"} == {"begun", "deadline"}
        assert metadata["annotations"][COST_ANNOTATION] == MOVE_COST
    return {name: found[name] for name in names}


def note(pod: Json) -> Json:
    """Return the annotation with the state of a move; {} without one."""
    text = (pod["metadata"].get("annotations") or {}).get(MOVE_ANNOTATION)
    found: Json = json.loads(text) if text else {}
    return found


def attached(api: Api, *names: str, seconds: float = ATTACHED_SECONDS) -> None:
    """Wait until no pod of these Deployments is detached, which Ebb owes within seconds."""
    api.wait(
        PODS,
        lambda found: not any(is_detached(one) for one in found.values() if app_of(one) in names),
        seconds,
    )


def is_settled(found: Mapping[str, Json], counts: Mapping[str, int]) -> bool:
    """Return whether each Deployment has exactly its pods, and none is in a move."""
    for name, count in counts.items():
        pods = [one for one in found.values() if app_of(one) == name]
        ours = [
            one for one in pods if is_ready(one) and TEMPLATE_LABEL in one["metadata"]["labels"]
        ]
        if len(pods) != count or len(ours) != count or any(map(is_detached, pods)):
            return False
        if not all(one["metadata"]["ownerReferences"][0]["controller"] for one in pods):
            return False
    return True


def settled(api: Api, counts: Mapping[str, int], on: str = "") -> list[Json]:
    """Wait until each Deployment has exactly its pods, and none is in a move; return the pods.

    *on*: the node on which all of them run; "" for any.
    """

    def reached(found: Mapping[str, Json]) -> bool:
        pods = [one for one in found.values() if app_of(one) in counts]
        there = all(one["spec"].get("nodeName") == on for one in pods) or not on
        return there and is_settled(found, counts)

    try:
        found = api.wait(PODS, reached, MOVED_SECONDS)
    except AssertionError as fault:
        left = "\n".join(map(_summary, api.get(PODS)["items"]))
        raise AssertionError(f"not settled: {counts} on {on or 'any node'}\n{left}") from fault
    return [one for one in found.values() if app_of(one) in counts]


def _summary(pod: Json) -> str:
    """Return what matters of a pod, for error messages."""
    meta = pod["metadata"]
    owners = [(one["name"], one.get("controller")) for one in meta.get("ownerReferences", ())]
    state = "Ready" if is_ready(pod) else pod["status"].get("phase")
    found = meta["name"], pod["spec"].get("nodeName"), state, meta["labels"], owners, note(pod)
    return " ".join(map(str, found))


def without_traces(pods: Collection[Json]) -> None:
    """Check that pods have no trace of a move that succeeded, or was undone for nobody's failure.

    Costs of a marked node may remain, which are not those of a move.
    """
    for one in pods:
        annotations = one["metadata"].get("annotations") or {}
        assert note(one) == {}, _summary(one)
        costs = annotations.get(COST_ANNOTATION), annotations.get(COST_OURS_ANNOTATION)
        assert int(costs[0] or 0) > int(MOVE_COST), f"{costs}: {_summary(one)}"
        assert costs[0] == costs[1]


def written(api: Api, name: str) -> tuple[Any, ...]:
    """Return what Ebb must not change in a Deployment: replicas, generation and managedFields.

    The controller manager writes its status and annotations.
    """
    found = api.get(f"{DEPLOYMENTS}/{name}")
    metadata = found["metadata"]
    fields = [one for one in metadata["managedFields"] if one["manager"] != CONTROLLER_MANAGER]
    return found["spec"]["replicas"], metadata["generation"], fields


@contextmanager
def untouched(api: Api, *names: str) -> Iterator[None]:
    """Check that nobody changes these Deployments meanwhile."""
    before = {name: written(api, name) for name in names}
    yield
    changed = {n: written(api, n) for n in names if written(api, n) != before[n]}
    assert changed == {name: before[name] for name in changed}


def owners(api: Api, name: str) -> set[str]:
    """Return the field managers that own `spec.replicas` of a Deployment, with their operation."""
    found = api.get(f"{DEPLOYMENTS}/{name}")["metadata"]["managedFields"]
    assert "ebb" not in str([one["manager"] for one in found])
    return {
        f"{one['manager']} {one['operation']}"
        for one in found
        if "f:replicas" in one["fieldsV1"].get("f:spec", {})
    }


class Write(StrEnum):
    """The writes of a move, in the order in which they are made."""

    BEGUN = "the Lease counts the move"
    DETACHED = "the pod is detached"
    ATTACHED = "the pod is attached"
    LOWERED = "the new pod has the cost of an undo"


def write_of(method: str, path: str, body: bytes) -> Write | None:
    """Return which write of a move a request is; None if it is another one, or a dry run."""
    if method not in ("PATCH", "PUT") or "dryRun" in path:
        return None
    metadata = json.loads(body).get("metadata", {})
    annotations = metadata.get("annotations") or {}
    if "/leases/" in path:
        return Write.BEGUN if json.loads(annotations.get(MOVES_BEGUN_ANNOTATION) or "{}") else None
    if "/pods/" not in path:
        return None
    labels = metadata.get("labels") or {}
    if labels.get(DETACHED_LABEL):
        return Write.DETACHED
    if labels.get(TEMPLATE_LABEL):
        return Write.ATTACHED
    return Write.LOWERED if annotations.get(COST_ANNOTATION) == UNDO_COST else None


def ended(leader: Ebb, outcome: str) -> int:
    """Return how many moves have ended with this outcome while this controller led."""
    return int(leader.metric(f'ebb_surge_moves_total{{outcome="{outcome}"}}'))


def outlast_reconciliations(leader: Ebb) -> None:
    """Wait until the controller has reconciled three times more."""
    before = leader.metric(SKIPPED)
    until(lambda: leader.metric(SKIPPED) > before + 2, "three more reconciliations")


def is_marked(api: Api) -> bool:
    """Return whether Ebb has marked node a."""
    return MARK_LABEL in api.get(f"{NODES}/{OLD}")["metadata"]["labels"]


def refused(leader: Ebb) -> Json:
    """Return the number of ReplicaSets whose pods cannot be moved, by code of the reason."""
    port = leader.settings[FLAGS]["controller"]["--report-port"]
    report = urllib3.request("GET", f"http://{LOOPBACK}:{port}/report").json()
    facts: Json = report["facts"] or {}  # none before it leads
    found: Json = facts.get("refusedMoves", {})
    return found


def reasons(api: Api, name: str) -> set[str]:
    """Return the reasons of the Events about a Deployment."""
    found = api.get(EVENTS)["items"]
    return {one["reason"] for one in found if one["regarding"]["name"] == name}
