"""Run Ebb's real controller, extender and webhook code in a simulated cluster."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from typing import Any, Protocol

import orjson

from controller.deletion_costs import DeletionCosts
from controller.metrics import Metrics
from controller.publisher import Publisher
from controller.reconciler import Reconciler
from controller.view import ClusterView
from core.cluster.read_options import READ_DEFAULTS
from core.config.settings import Config
from core.engine.reconcile import ReconcileResult
from core.marks.taints import desired_taints
from core.marks.wellknown import COST_ANNOTATION, COST_OURS_ANNOTATION, MOVE_ANNOTATION, TAINT_KEY
from core.model.cluster import Cluster
from core.model.errors import UnavailableError
from core.model.node import Node
from core.model.pod import Pod
from core.writes.capacity_buffers import BufferChange, ExistingBuffer, Found, Operation
from core.writes.write import Write, applied
from extender import wire
from extender.view import View
from kube.decode.kinds import NODES, PODS, TEMPLATES
from kube.stores.access_review import AccessReview
from runtime.clock import SystemClock
from sim.cluster import ClusterState
from sim.wire import written


class Peers(Protocol):
    """Calls to Ebb's extender and webhook, in process or over HTTP."""

    def prioritize(self, pod: Pod, names: Sequence[str]) -> Mapping[str, int]:
        """Return the extender's score of each node by name; *names*: nodes that admit the pod."""

    def mutate(self, before: Node, after: Node) -> Node:
        """Return the Node *after* as the webhook changes it; *before*: the Node until now."""


class InProcessCalls:
    """Calls to the functions behind the extender and the webhook, without HTTP."""

    def __init__(self, view: View, config: Config) -> None:
        self._view, self._config = view, config

    def prioritize(self, pod: Pod, names: Sequence[str]) -> Mapping[str, int]:
        """Return the extender's score of each node by name; *names*: nodes that admit the pod."""
        answer, _ = self._view.answer(wire.names_body(names, written(pod)), 0.0)
        return wire.scores(answer)

    def mutate(self, before: Node, after: Node) -> Node:  # noqa: ARG002 as the protocol has it
        """Return the Node *after* with the taint that its mark requires; unmarked: without it.

        *before* is the Node as stored until now, and not used.
        """
        return replace(after, taints=desired_taints(after, TAINT_KEY))


class _StoppedLoop(asyncio.SelectorEventLoop):
    """Event loop whose clock stands still: nothing times out, and no code in it may sleep.

    It calls at once what the controller computes in other threads, so a run has only one thread.
    """

    def time(self) -> float:
        return 0.0

    def run_in_executor(  # type: ignore[override]
        self,
        executor: Executor | None,  # noqa: ARG002 as the event loop has it
        func: Callable[..., Any],
        *args: Any,  # noqa: ANN401 arguments of any function
    ) -> asyncio.Future[Any]:
        done = self.create_future()
        done.set_result(func(*args))
        return done


def annotated(pod: Pod, annotations: Mapping[str, str | None]) -> Pod:
    """Return the pod with annotations changed; None removes one. Only those of Ebb count."""
    return replace(
        pod,
        deletion_cost=annotations.get(COST_ANNOTATION, pod.deletion_cost),
        deletion_cost_ours=annotations.get(COST_OURS_ANNOTATION, pod.deletion_cost_ours),
        move=annotations.get(MOVE_ANNOTATION, pod.move),
    )


class _Pods:
    """Store of the simulated Pods, to which the controller writes pod deletion costs."""

    def __init__(self, state: Callable[[], ClusterState], store: Callable[[Pod], None]) -> None:
        self._state, self._store = state, store

    async def get(self, key: str) -> tuple[Pod, str] | None:
        pod = self._state().pods.get(key)
        return None if pod is None else (pod, "1")

    async def write(self, write: Write[Pod], version: str) -> tuple[Pod, str]:
        after = annotated(self._state().pods[write.key], write.annotations)
        self._store(after)
        return after, version

    async def may(self) -> bool:
        """Return True: Ebb may patch pods, as with the component pod-deletion-cost."""
        return True


class _Buffers:
    """Store of the CapacityBuffers and PodTemplates that Ebb creates.

    After each change, it gives the simulated autoscaler the pods that the CapacityBuffers request.
    """

    def __init__(self, state: Callable[[], ClusterState], *, allowed: bool) -> None:
        self._state, self._allowed = state, allowed
        self._pods: dict[str, Pod] = {}
        self._replicas: dict[str, int] = {}

    async def may(self) -> bool:
        """Return whether Ebb may write CapacityBuffers (component capacity-buffers)."""
        return self._allowed

    async def found(self) -> Found:
        buffers = {name: ExistingBuffer(many, "1") for name, many in self._replicas.items()}
        templates = {
            name: (pod.requests, pod.node_constraints) for name, pod in self._pods.items()
        }
        return Found(buffers, templates)

    async def carry_out(self, change: BufferChange) -> None:
        match change.operation:
            case Operation.ADD_TEMPLATE:
                body = {"metadata": {"name": change.name}, "template": {"spec": change.spec}}
                self._pods[change.name] = TEMPLATES.decode(orjson.dumps(body)).pod
            case Operation.ADD_BUFFER | Operation.RESIZE:
                self._replicas[change.name] = change.replicas
            case Operation.DROP_BUFFER:
                del self._replicas[change.name]
            case Operation.DROP_TEMPLATE:
                del self._pods[change.name]
        self._state().buffers = [
            replace(self._pods[name], name=f"{name}-{number}")
            for name, replicas in self._replicas.items()
            for number in range(replicas)
        ]


class Ebb:
    """Ebb's controller, extender and webhook in a simulated cluster (sim.simulator.Compactor)."""

    def __init__(
        self, config: Config, view: View, peers: Peers, *, publishes: bool = False
    ) -> None:
        """Start a controller. *publishes*: whether the component capacity-buffers is installed."""
        self._peers = peers
        self._loop = _StoppedLoop()
        self._store: Callable[[Node], None] = lambda _: None
        self.outdated_cluster: Cluster | None = None
        """Outdated cluster that the controller sees while its watches are broken; None: the
        current one."""
        self._state = ClusterState()
        self._controller_view = ClusterView()
        self._inventories = view, self._controller_view
        self._buffers = _Buffers(lambda: self._state, allowed=publishes)
        self.restart(config)
        for kind in (NODES, PODS):
            view.replaced(kind, ())
            view.freshness.alive(kind, 0.0)

    @property
    def taint_key(self) -> str:
        """Return the key of the taint that Ebb sets on marked nodes."""
        return TAINT_KEY

    @property
    def config(self) -> Config:
        """Return the controller's configuration, from which schedules and pauses are removed."""
        return self._reconciler.config

    @property
    def last(self) -> ReconcileResult | None:
        """Return the result of the last reconciliation; None before the first one."""
        return self._reconciler.last

    def store_pod(self, pod: Pod) -> None:
        """Store a changed Pod, and notify the controller and the extender."""
        self._state.replace_pod(pod)
        self.pod_changed(pod)

    def close(self) -> None:
        """Close the event loop in which the controller runs."""
        self._loop.close()

    def restart(self, config: Config, metrics: Metrics | None = None) -> None:
        """Start a new controller, which knows nothing but what the Nodes contain.

        Schedules and pauses in the configuration are ignored. *metrics*: None for new metrics.
        """
        # A simulation begins at no real date, so the settings for dates have no meaning.
        config = replace(config, schedule=(), pause_until_seconds=None)
        self.metrics = metrics = metrics or Metrics()
        self._pods = pods = _Pods(lambda: self._state, self.store_pod)
        deletion_costs = DeletionCosts(
            pods, metrics, AccessReview(pods.may, SystemClock(), "patch pods")
        )
        access = AccessReview(self._buffers.may, SystemClock(), "create CapacityBuffers")
        self._reconciler = Reconciler(
            config,
            self,
            owner="simulation",
            metrics=metrics,
            deletion_costs=deletion_costs,
            may_publish=lambda: access.allowed is True,
        )
        self._publisher = Publisher(self._buffers, self._reconciler, access)

    def scores(self, pod: Pod, names: Sequence[str]) -> Mapping[str, int]:
        """Return the extender's score of each node by name; *names*: nodes that admit the pod."""
        return self._peers.prioritize(pod, names)

    def node_changed(self, node: Node) -> None:
        """Notify the controller and the extender of a new or changed node."""
        for inventory in self._inventories:
            inventory.changed(NODES, node)

    def node_deleted(self, name: str) -> None:
        """Notify the controller and the extender of a deleted node."""
        for inventory in self._inventories:
            inventory.deleted(NODES, name)

    def pod_changed(self, pod: Pod) -> None:
        """Notify the controller and the extender of a new or changed pod."""
        for inventory in self._inventories:
            inventory.changed(PODS, pod)

    def pod_deleted(self, pod: Pod) -> None:
        """Notify the controller and the extender of a deleted pod."""
        for inventory in self._inventories:
            inventory.deleted(PODS, pod.key)

    def admit(self, before: Node, after: Node) -> Node:
        """Return the Node *after* as the webhook changes it; *before*: the Node until now."""
        return self._peers.mutate(before, after)

    def urgent(self) -> bool:
        """Return whether a reconciliation must run now, before the interval has passed.

        It is True, for example, if a pod is unschedulable and Ebb may have to unmark a node for
        it.
        """
        # READ_DEFAULTS, not the configuration: the simulated kube-scheduler schedules all pods,
        # whatever scheduler names are configured.
        if (
            self._controller_view.became_unschedulable.is_set()
            and self._controller_view.unschedulable_check(self.taint_key, READ_DEFAULTS)()
        ):
            self._controller_view.wake.set()
        return self._controller_view.wake.is_set()

    def reconcile(self, state: ClusterState, write: Callable[[Node], None], now_ms: int) -> None:
        """Run one reconciliation of the cluster *state*; *write* stores a Node that it changes."""
        self._controller_view.wake.clear()
        self._state, self._store = state, write
        cluster = self.outdated_cluster or state.snapshot()
        self._loop.run_until_complete(self._reconciler.reconcile(cluster, now_ms // 1000))
        self._loop.run_until_complete(self._publisher.turn())

    # The API server, as the controller sees it

    async def get(self, key: str) -> tuple[Node, str]:
        """Return the Node with the name *key*, and its version.

        The version is constant, because there is one writer at a time. Raises: UnavailableError if
        there is no such Node.
        """
        place = self._state.places.get(key)
        if place is None:
            raise UnavailableError(f"no node {key}")
        return place.node, "1"

    async def write(self, write: Write[Node], version: str) -> tuple[Node, str]:  # noqa: ARG002
        """Write labels and annotations of a Node, or its whole list of taints.

        Return the Node as stored, and its version, which never changes.
        """
        node, _ = await self.get(write.key)
        self._store(applied(write, node))
        return await self.get(write.key)
