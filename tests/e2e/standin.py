"""A stand-in for Cluster Autoscaler: the simulated autoscaler acts on a real API server.

tests/sim/test_recorded_load.py compares the simulated autoscaler with a real one. Its nodes are
Node objects that kwok makes Ready.
"""

import heapq
import json
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import count

from urllib3.exceptions import HTTPError

from core.marks.wellknown import COST_ANNOTATION
from core.model.node import Node
from core.model.pod import Pod
from core.model.resources import Resources
from kube.decode.kinds import BUFFERS as BUFFER_KIND
from kube.decode.kinds import NODES as NODE_KIND
from kube.decode.kinds import PODS as POD_KIND
from kube.decode.kinds import TEMPLATES as TEMPLATE_KIND
from sim.autoscaler import TO_BE_DELETED, Autoscaler, ScaleDown, Timers
from sim.cluster import DAEMON_REQUESTS, ClusterState, Place
from tests.e2e.api import Api, Json, RefusedError
from tests.e2e.objects import NODES
from tests.e2e.observer import Observer
from tests.e2e.plane import until
from tests.support.scale_in import ScaleInOrder, deletion_costs

TIMERS = Timers(
    scan_ms=2000,
    unneeded_ms=20_000,
    delay_after_add_ms=10_000,
    recheck_ms=20_000,
    reaction_ms=(2000, 2600),
    startup_ms=(200, 1000),
)
"""Timers, shortened like those of the recorded runs."""
COSTS_SECONDS = 2.0
"""Time between two writes of pod deletion costs by CostWriter."""
NewNode = Callable[[int], Json]
"""Type of a function that returns a new Node by its number."""
SEED = 1
TRIES_MAX = 5
EVICTION = {"apiVersion": "policy/v1", "kind": "Eviction"}


def read_state(observer: Observer, state: ClusterState) -> dict[str, float]:
    """Read nodes and pods into the state; return the creation times of the pods by name."""
    nodes, pods, since = observer.seen()
    places = {one.name: Place(one, 0, one.allocatable) for one in map(_decoded, nodes)}
    found = (POD_KIND.decode(json.dumps(one).encode()) for one in pods)
    state.pods = {pod.key: pod for pod in found if pod is not None}
    for pod in state.pods.values():
        if place := places.get(pod.node or ""):
            place.free -= pod.requests
            place.pods[pod.key] = pod
    state.places = places
    return since


def _decoded(node: Json) -> Node:
    return NODE_KIND.decode(json.dumps(node).encode())


class CostWriter(threading.Thread):
    """Writes pod deletion costs in the order of another tool, as a controller of its own."""

    def __init__(self, api: Api, observer: Observer, order: ScaleInOrder) -> None:
        super().__init__(daemon=True)
        self._api, self._observer, self._order = api, observer, order

    def run(self) -> None:
        """Write the costs that have changed, until the observer has stopped counting."""
        while not self._observer.ended.wait(COSTS_SECONDS):
            state = ClusterState()
            read_state(self._observer, state)
            costs = deletion_costs(self._order, state.places.values())
            for key, cost in costs.items():
                if (
                    state.pods[key].deletion_cost != str(cost)
                    and not self._observer.ended.is_set()
                ):
                    self._write(key, cost)

    def _write(self, key: str, cost: int) -> None:
        annotations = {COST_ANNOTATION: str(cost)}
        try:
            self._api.merge(POD_KIND.path_of(key), {"metadata": {"annotations": annotations}})
        except RefusedError as fault:
            if fault.status != 404:  # deleted meanwhile
                raise
        except HTTPError:
            if not self._observer.ended.is_set():  # otherwise the API server has ended too
                raise


class StandIn:
    """An autoscaler with one scale-down mode; `act` drives it."""

    def __init__(
        self,
        api: Api,
        observer: Observer,
        how: ScaleDown,
        timers: Timers,
        new_node: NewNode,
    ) -> None:
        """*new_node*: returns a Node; all have the same shape."""
        self._api, self._observer, self._new_node = api, observer, new_node
        self.state = ClusterState()
        self._begin = time.monotonic()
        self._numbers = count(len(observer.nodes))
        self._order = count()
        self._later: list[tuple[int, int, Callable[[], None]]] = []
        self._refused: set[str] = set()
        # The autoscaler adds the DaemonSet requests of the simulation, which no live node has.
        shape = _decoded(new_node(0)).allocatable + DAEMON_REQUESTS
        self._autoscaler = Autoscaler(self, how, (shape,), SEED, timers)
        self.after(0, self._scan)

    def act(self) -> float:
        """Carry out due actions; return the seconds until the next action."""
        self._look()
        for pod in self.state.pods.values():
            if pod.unschedulable and pod.uid not in self._refused:
                self._refused.add(pod.uid)
                self._autoscaler.unschedulable()
        while self._later and self._later[0][0] <= self.now_ms():
            heapq.heappop(self._later)[2]()
            self._look()
        return (self._later[0][0] - self.now_ms()) / 1000

    def _scan(self) -> None:
        self.state.buffers = [pod for one in self._buffers() for pod in self._pods_of(one)]
        self._autoscaler.scan()
        self.after(self._autoscaler.scan_ms, self._scan)

    def _buffers(self) -> list[Json]:
        """Return all CapacityBuffers, or none if the API server does not serve them."""
        try:
            found: list[Json] = self._api.get(BUFFER_KIND.path)["items"]
        except RefusedError as fault:
            if fault.status != 404:
                raise
            return []
        return found

    def _pods_of(self, buffer: Json) -> list[Pod]:
        """Return the pods that a buffer represents."""
        meta, spec = buffer["metadata"], buffer["spec"]
        path = f"/api/v1/namespaces/{meta['namespace']}/{TEMPLATE_KIND.resource}"
        try:
            template = self._api.get(f"{path}/{spec['podTemplateRef']['name']}")["template"]
        except RefusedError as fault:
            if fault.status != 404:  # deleted meanwhile
                raise
            return []
        who = {"name": meta["name"], "namespace": meta["namespace"]}
        pod = POD_KIND.decode(json.dumps({"metadata": who, "spec": template["spec"]}).encode())
        assert pod is not None
        return [replace(pod, name=f"{pod.name}-{n}") for n in range(spec["replicas"])]

    def _look(self) -> None:
        """Update the state from the observer."""
        since = read_state(self._observer, self.state)
        self.state.pending = {
            pod.key: round(1000 * (since[pod.name] - self._begin))
            for pod in self.state.pods.values()
            if pod.node is None
        }

    # The methods of sim.autoscaler.AutoscalerOperations

    def now_ms(self) -> int:
        """Return the milliseconds since the start."""
        return round(1000 * (time.monotonic() - self._begin))

    def after(self, delay_ms: int, act: Callable[[], None]) -> None:
        """Schedule an action."""
        heapq.heappush(self._later, (self.now_ms() + delay_ms, next(self._order), act))

    def write(self, node: Node) -> None:
        """Write changed taints, and cordon a node that is being deleted."""
        before, now = set(self.state.places[node.name].node.taints), set(node.taints)
        added = [
            {"key": one.key, "value": one.value, "effect": str(one.effect)} for one in now - before
        ]
        taken = {one.key for one in before - now}

        def change(found: Json) -> None:
            kept = [t for t in found["spec"].get("taints") or [] if t["key"] not in taken]
            found["spec"]["taints"] = [*kept, *added]
            if TO_BE_DELETED in taken | {one["key"] for one in added}:
                found["spec"]["unschedulable"] = TO_BE_DELETED not in taken

        self._update(f"{NODES}/{node.name}", change)
        self.state.replace_node(node)

    def _update(self, path: str, change: Callable[[Json], None]) -> None:
        for left in reversed(range(TRIES_MAX)):
            found = self._api.get(path)
            change(found)
            try:
                self._api.call("PUT", path, found)
            except RefusedError as fault:
                if fault.status != 409 or not left:
                    raise
            else:
                return

    def evict(self, pod: Pod) -> None:
        """Evict a pod through the eviction API."""
        path = POD_KIND.path_of(pod.key)
        who = {"name": pod.name, "namespace": pod.namespace}
        try:
            self._api.create(f"{path}/eviction", {**EVICTION, "metadata": who})
        except RefusedError as fault:
            if fault.status != 404:  # deleted meanwhile
                raise

    def end_node(self, name: str) -> None:
        """Delete a Node."""
        self._api.delete(f"{NODES}/{name}")

    def template(self, shape: Resources) -> Node:
        """Return the template of new Nodes."""
        return Node(name="new", allocatable=shape)

    def new_node(self, shape: Resources) -> str:
        """Create a Node."""
        made = self._new_node(next(self._numbers))
        name = str(made["metadata"]["name"])
        self._api.create(NODES, made)
        until(lambda: name in self._observer.nodes, f"{name} is observed")
        empty = shape - DAEMON_REQUESTS
        self.state.places[name] = Place(Node(name=name, allocatable=empty), 0, empty)
        return name

    def ready_node(self, name: str) -> None:
        """Do nothing, as kwok makes the node Ready."""
