"""Ebb moves its own pods; before the pod of the leader, another replica leads.

kwok runs nothing. So a kubelet of the tests runs the pods of Ebb's Deployments as processes.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import pytest
import yaml

from controller.mover import HANDED_OVER, MOVED
from core.config.settings import Mode
from core.marks.wellknown import KEEP_ANNOTATION, SCALE_DOWN_DISABLED_ANNOTATION
from core.moves.own import HANDOVER_ANNOTATION
from kube.target import NAMESPACE
from tests.e2e.api import Api, Json
from tests.e2e.install import (
    AT_ONCE,
    LEASE,
    config,
    ending,
    in_force,
    overlay,
    point,
    port_of,
    remove,
    start_program,
)
from tests.e2e.kubelet import Kubelet
from tests.e2e.moves import BY_HAND, CLUSTER_KINDS
from tests.e2e.objects import NODES, START, add_nodes
from tests.e2e.plane import Plane, config_file, until

OURS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
DEPLOYMENTS: Final = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
EVENTS: Final = f"/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events"
LEASES, LEASE_NAME = LEASE.rsplit("/", 1)
NOBODY: Final = "nobody"
STAYS: Final = {"annotations": {KEEP_ANNOTATION: "true"}}
SETTINGS: Final = {
    **AT_ONCE,
    "mode": Mode.ENFORCE.value,
    "usableCapacity": "all",
    "thresholds": {"cpu": "100%", "memory": "100%"},
    "surge": {"mode": "enabled", "minPodAge": "0s"},
    "controller": {"interval": "1s"},
}
SECONDS_MAX: Final = 180.0
"""Processes start and pods are moved within 20 s; the rest is for a busy machine."""


@pytest.fixture
def kubelet(plane: Plane, api: Api) -> Iterator[Kubelet]:
    """Run the controller and the webhook of the manifests, a replica of each on a node."""
    add_nodes(api, "a", "b", **STAYS)
    folder, settings = plane.folder / "own-pods", config()
    overlay(folder, "components/surge", patches=patches())
    plane.kubectl("apply", "-k", str(folder))
    # The webhooks in pods come and go, and Services do not work here.
    point(plane, port_of(settings))
    made = Kubelet(plane, NAMESPACE, bound=True)
    with ExitStack() as at_end:
        at_end.callback(remove_all, made)
        webhook = start_program(plane, "webhook", settings)
        at_end.enter_context(ending(plane, webhook))
        webhook.wait_ready()
        in_force(plane)
        # Not before, as `in_force` adds a node for a moment.
        at_end.callback(plane.end, plane.scheduler(name="kube-scheduler-own-pods"))
        run_all(made)
        yield made


def remove_all(kubelet: Kubelet) -> None:
    """Delete the Deployments with their pods and processes, and what the manifests have."""
    plane = kubelet.plane
    plane.api.delete(DEPLOYMENTS, propagationPolicy="Background")
    plane.api.wait(OURS, lambda found: not found)
    kubelet.close()
    plane.kubectl("delete", CLUSTER_KINDS, "-l", "app.kubernetes.io/name=ebb")
    remove(plane)


def patches() -> list[Json]:
    """Return patches of the manifests: kwok leaves the pods alone, and moves begin at once."""
    template = {"metadata": {"annotations": {START: BY_HAND}}}
    changes: dict[str, Json] = {
        "Deployment": {"apiVersion": "apps/v1", "spec": {"template": template}},
        "ConfigMap": {"apiVersion": "v1", "data": {"config.yaml": config_file(SETTINGS)}},
    }
    return [
        {
            "target": {"kind": kind, "name": "ebb-(controller|webhook|config)"},
            "patch": yaml.safe_dump({"kind": kind, "metadata": {"name": "any"}, **changed}),
        }
        for kind, changed in changes.items()
    ]


def run_all(kubelet: Kubelet) -> None:
    """Run pods until each Deployment has exactly two, and all are Ready."""
    api = kubelet.plane.api

    def complete() -> bool:
        kubelet.step()
        found = api.get(DEPLOYMENTS)["items"]
        ready = [one["status"].get("readyReplicas", 0) for one in found]
        return ready == [2, 2] and len(api.get(OURS)["items"]) == sum(ready)

    until(complete, "all pods are Ready", SECONDS_MAX)


class Chapter(NamedTuple):
    """Something that was seen, in the order of the resourceVersions that all kinds share."""

    version: int
    text: str
    at: float
    """Monotonic time."""


@dataclass
class Story:
    """What the watches of Ebb's pods and of the Lease show."""

    chapters: list[Chapter] = field(default_factory=list)
    _leader: str = ""

    def pod(self, kind: str, found: Json) -> None:
        """Take an event of the watch of pods."""
        if kind == "DELETED":
            self._tell(found, f"{found['metadata']['name']} has left")

    def lease(self, _: str, found: Json) -> None:
        """Take an event of the watch of the Lease."""
        if (leader := leader_of(found)) != self._leader:
            self._leader = leader
            self._tell(found, f"{leader} leads")

    def _tell(self, found: Json, text: str) -> None:
        version = int(found["metadata"]["resourceVersion"])
        self.chapters.append(Chapter(version, text, time.monotonic()))

    @property
    def told(self) -> list[str]:
        """Return everything in order."""
        return [one.text for one in sorted(self.chapters)]


def leader_of(lease: Json | None) -> str:
    """Return the name of the pod that holds the Lease, or NOBODY."""
    holder = lease["spec"].get("holderIdentity") if lease else None
    return str(holder or NOBODY).partition("_")[0]


def places(api: Api) -> dict[str, str]:
    """Return the node of each pod of Ebb."""
    return {
        one["metadata"]["name"]: one["spec"].get("nodeName", "") for one in api.get(OURS)["items"]
    }


@contextmanager
def following(api: Api) -> Iterator[Story]:
    """Follow Ebb's pods and the Lease of the controller inside of the context."""
    story, ended = Story(), threading.Event()
    api.follow(OURS, story.pod, ended)
    api.follow(LEASES, story.lease, ended, fieldSelector=f"metadata.name={LEASE_NAME}")
    until(lambda: story.chapters, "the leader is seen")
    yield story
    ended.set()


def test_leader_hands_its_lease_over_as_last_pod_of_its_node_and_is_moved(
    kubelet: Kubelet, api: Api, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a handover, the Lease would expire after 15 s, and nobody would ever give it up."""
    nodes = places(api)
    lease = api.wait(LEASES, lambda found: leader_of(found.get(LEASE_NAME)) in nodes)[LEASE_NAME]
    leader, on = leader_of(lease), nodes[leader_of(lease)]
    (webhook,) = (pod for pod in nodes if nodes[pod] == on and pod != leader)
    (other,) = (pod for pod in nodes if "controller" in pod and pod != leader)

    def is_empty() -> bool:
        kubelet.step()
        found = api.get(f"{NODES}/{on}")["metadata"]["annotations"]
        return on not in places(api).values() and SCALE_DOWN_DISABLED_ANNOTATION not in found

    with following(api) as story:
        add_nodes(api, "c", **STAYS)
        api.merge(f"{NODES}/{on}", {"metadata": {"annotations": {KEEP_ANNOTATION: None}}})
        begun = time.monotonic()
        until(is_empty, "the node of the leader is empty, and its removal allowed", SECONDS_MAX)
        run_all(kubelet)
    with capsys.disabled():
        print("".join(f"\n{one.at - begun:5.1f} s: {one.text}" for one in sorted(story.chapters)))
    assert story.told == [
        f"{leader} leads",
        f"{webhook} has left",
        f"{NOBODY} leads",
        f"{other} leads",
        f"{leader} has left",
    ]
    assert HANDOVER_ANNOTATION in api.get(LEASE)["metadata"]["annotations"]
    events = {(one["reason"], one["regarding"]["name"]) for one in api.get(EVENTS)["items"]}
    assert events >= {(HANDED_OVER, leader), (MOVED, "ebb-webhook"), (MOVED, "ebb-controller")}
