"""Run all programs of Ebb, a scheduler and a load on a control plane with faults.

One seed determines all random choices. After each fault, `Town.settled` waits until all
invariants hold again.
"""

import json
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from core.config.settings import Mode
from core.marks.mark import PROTECTED_WHILE_UNMARKED, decode_details, mark_of, protection_of
from core.marks.taints import desired_taints
from core.marks.wellknown import DETAILS_ANNOTATION, MARK_LABEL, PROTECTION_ANNOTATION, TAINT_KEY
from core.model.cluster import Cluster
from core.model.node import Node
from tests.e2e.api import Json, RefusedError
from tests.e2e.crowd import Crowd
from tests.e2e.install import (
    apply,
    config,
    point,
    port_of,
    remove,
)
from tests.e2e.objects import NODES, PODS, add_nodes, clear, pod
from tests.e2e.plane import FLAGS, LOOPBACK, Plane, free_port, until
from tests.e2e.replica import Replica, leads
from tests.e2e.scheduling import stanza
from tests.support.kube_json import cluster_from_dumps

NODE_COUNT: Final = 8
RECONCILIATIONS: Final = "ebb_reconcile_duration_seconds_count"
JUDGES_SECONDS: Final = 60.0
RSS_MAX_BYTES: Final = {
    "controller": 192 * 1024**2,
    "webhook": 95 * 10**6,
    "extender": 192 * 1024**2,
}
LEASE_SECONDS: Final = 6
OURS: Final = (MARK_LABEL, DETAILS_ANNOTATION, PROTECTION_ANNOTATION, TAINT_KEY)
SETTINGS: Final = {
    "usableCapacity": "all",
    "noScheduleAfter": "2s",
    "scaleDownProtection": {"afterUnmark": "2s"},
}


class Town:
    """A cluster under load, with all programs of Ebb."""

    def __init__(self, plane: Plane, seed: int) -> None:
        self.plane, self.api, self.seed = plane, plane.api, seed
        self.chance = random.Random(seed)
        apply(plane, "manifests/examples/self-managed")
        self.controllers, self.webhooks = (
            tuple(
                Replica(plane, module, _settings(), f"ebb-{module}-{number}")
                for number in ("first", "second")
            )
            for module in ("controller", "webhook")
        )
        port = free_port()
        settings = {FLAGS: {"extender": {"--listen": f"{LOOPBACK}:{port}"}}}
        self.extender = Replica(plane, "extender", settings, "ebb-extender-line")
        self.programs = (*self.controllers, *self.webhooks, self.extender)
        # Without a load balancer the API server only calls the first webhook.
        self.webhook = self.webhooks[0]
        point(plane, port_of(self.webhook.settings))
        plane.scheduler(stanza(port), name="kube-scheduler-town")
        self.crowd = Crowd(plane.api_as(plane.admin), seed)
        self.two_leaders: list[str] = []
        self._watching = threading.Event()
        self._watcher = threading.Thread(target=self._watch_leaders, daemon=True)
        self._watcher.start()
        for one in self.programs:
            one.ebb.wait_ready()
        add_nodes(self.api, *(f"n{number}" for number in range(NODE_COUNT)))
        for number in range(2):
            self.api.create(PODS, pod(f"stays-{number}", node_name=f"n{number}"))

    def end(self) -> None:
        """Stop the load and all programs."""
        self.crowd.end()
        self._watching.set()
        self._watcher.join(30)
        for one in self.programs:
            if one.ebb.program in self.plane.programs:
                one.ebb.stop(signal.SIGKILL)
            one.line.end()
        for program in [p for p in self.plane.programs if p.name == "kube-scheduler-town"]:
            self.plane.end(program, signal.SIGKILL)
        remove(self.plane)
        clear(self.api)

    def leader(self) -> Replica:
        """Wait until one controller leads."""
        found: Replica = until(
            lambda: next((one for one in self.controllers if leads(one)), None), "a leader"
        )
        return found

    def other(self, than: Replica) -> Replica:
        """Return the other controller."""
        one, two = self.controllers
        return two if than is one else one

    def program(self, name: str) -> Any:
        """Return a program of the control plane."""
        return next(one for one in self.plane.programs if one.name == name)

    def cluster(self) -> Cluster:
        """Read the cluster."""
        return cluster_from_dumps(
            [(path, json.dumps(self.api.get(path)).encode()) for path in (NODES, PODS)]
        )

    def fill(self) -> None:
        """Fill the nodes so that none is removable, and wait until all nodes are unmarked."""
        for number in range(NODE_COUNT):
            name = f"n{number}"
            self.api.create(PODS, pod(f"full-{name}", node_name=name, cpu="2900m"))
        self.api.wait(NODES, lambda found: not any(map(marked, found.values())), JUDGES_SECONDS)

    def empty(self) -> None:
        """Delete the pods of `fill`, so that nodes become removable."""
        for number in range(NODE_COUNT):
            self.api.delete(f"{PODS}/full-n{number}", gracePeriodSeconds=0)

    def settled(self, what: str) -> float:
        """Wait until all invariants hold; return the seconds until a leader's reconciliation.

        Raises: AssertionError, with the violated invariants.
        """
        begun, wrong = time.monotonic(), ["not checked yet"]
        until(self._judging(), f"seed {self.seed}: a reconciliation after {what}", JUDGES_SECONDS)
        took = time.monotonic() - begun

        def sound() -> bool:
            wrong[:] = self.wrong()
            return not wrong

        try:
            until(sound, what, JUDGES_SECONDS)
        except AssertionError as fault:
            raise AssertionError(f"seed {self.seed}, after {what}: {wrong}") from fault
        if twice := self.two_leaders:
            self.two_leaders = []
            raise AssertionError(f"seed {self.seed}, in {what}: {len(twice)} times {twice[0]}")
        return took

    def _judging(self) -> Callable[[], bool]:
        """Return a function that checks whether a leader has reconciled since its first call."""
        seen: dict[str, float] = {}

        def judges() -> bool:
            counts = {
                one.name: one.ebb.metric(RECONCILIATIONS) for one in self.controllers if leads(one)
            }
            for name, count in counts.items():
                seen[name] = min(seen.get(name, count), count)
            return any(count > seen[name] for name, count in counts.items())

        return judges

    def wrong(self) -> list[str]:
        """Return the invariants that are violated now."""
        try:
            cluster = self.cluster()
        except Exception as fault:  # noqa: BLE001 not ready yet
            return [str(fault)]
        return [
            *(word for node in cluster.nodes for word in _wrong_on(node, cluster)),
            *self._wrong_pods(cluster),
            *self._wrong_programs(),
        ]

    def _wrong_pods(self, cluster: Cluster) -> Iterator[str]:
        there = {one.name: one for one in cluster.pods}
        for name, deleted in dict(self.crowd.known).items():
            if not deleted and name not in there:
                yield f"pod {name} was deleted"
        for one in cluster.pods:
            if one.node is None:
                yield f"pod {one.name} is Pending: {self._why_waits(one.name)}"

    def _why_waits(self, name: str) -> str:
        """Return the message of the scheduler, and the marked nodes."""
        try:
            conditions = self.api.get(f"{PODS}/{name}")["status"].get("conditions") or [{}]
        except RefusedError as fault:
            return str(fault)  # deleted meanwhile
        marks = [node.name for node in self.cluster().nodes if mark_of(node.labels)]
        return f"{conditions[-1].get('message')}; marked: {marks}"

    def _wrong_programs(self) -> Iterator[str]:
        if (leaders := sum(map(leads, self.controllers))) != 1:
            yield f"{leaders} leaders"
        for one in self.programs:
            if not one.ebb.program.running:
                yield f"{one.name} ended: {one.ebb.program.tail()}"
            elif one.ebb.get("/readyz")[0] != 200:
                yield f"{one.name}: {one.ebb.get('/readyz?verbose')[1]}"
            elif (held := one.ebb.program.rss_bytes()) > RSS_MAX_BYTES[one.module]:
                yield f"{one.name} uses {held >> 20} MiB"

    def _watch_leaders(self) -> None:
        """Record when both controllers lead; the first is read twice to exclude a handover."""
        one, two = self.controllers
        while not self._watching.wait(0.1):
            if leads(one) and leads(two) and leads(one):
                self.two_leaders.append("both controllers led at once")


def _settings() -> Json:
    return config(
        mode=Mode.ENFORCE,
        flags={
            "controller": {"--lease-duration": f"{LEASE_SECONDS}s"},
            "webhook": {"--rotation-soak": "5s"},
        },
        **SETTINGS,
    )


def _wrong_on(node: Node, cluster: Cluster) -> Iterator[str]:
    """Yield unexpected and missing metadata of Ebb on a node."""
    if node.taints != desired_taints(node, TAINT_KEY):
        yield f"{node.name}: taints {node.taints}"
    ours = [key for key in OURS if key in {*node.labels, *node.annotations}]
    occupied = any(pod.node == node.name and not pod.stays_with_node for pod in cluster.pods)
    protection = protection_of(node)
    if mark_of(node.labels) is None:
        if protection and protection.until == PROTECTED_WHILE_UNMARKED and not occupied:
            ours.remove(PROTECTION_ANNOTATION)
        if ours:
            yield f"{node.name}: {ours} on an unmarked node"
        return
    if decode_details(node.annotations) is None:
        yield f"{node.name}: mark without details"
    if occupied is not bool(protection):
        yield f"{node.name}: has pods: {occupied}, protected: {not occupied}"


def marked(found: Json) -> bool:
    """Return whether a Node is marked."""
    return MARK_LABEL in (found["metadata"].get("labels") or {})


@contextmanager
def away(town: Town, name: str) -> Iterator[None]:
    """Kill a program of the control plane; restart it at the end of the context."""
    program = town.program(name)
    program.stop(signal.SIGKILL)
    try:
        yield
    finally:
        program.start()
        town.plane.wait_ready()
