"""The discrete-event simulator: pods, nodes, scans and reconciliations in virtual time."""

import heapq
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Final, Protocol

from core.config.programs import ControllerConfig
from core.marks.mark import mark_of
from core.marks.taints import without_our_taint
from core.model.constraints import HOST_LABEL, NO_DISRUPTION_FACTS
from core.model.node import Node
from core.model.pod import Pod
from core.model.resources import Resources
from core.placement.filters import first_failing_filter
from sim.autoscaler import TIMERS, UTILIZATION, Autoscaler, ScaleDown, Timers
from sim.bound import LowerBound
from sim.cluster import ClusterState
from sim.costs import Price, in_cores
from sim.deployments import DeletionCosts, Deployments
from sim.recording import Frame, Recorder, Recording
from sim.scheduler import Scheduler, Scorer, has_room
from sim.scoring import DEFAULT, Profile
from sim.simulated_load import DAY_MS, Arrival, Deployment, SimulatedLoad

SAMPLE_MS: Final = 300_000
"""Interval of samples."""
BOUND_MS: Final = 900_000
"""Interval of samples that include the lower bound of the cost."""
INTERVAL_MS: Final = 1000 * ControllerConfig().interval_seconds
PROGRESS_MS: Final = 3_600_000


class Compactor(Scorer, Protocol):
    """Ebb as the simulator uses it: notifications, scores, admission and reconciliations."""

    @property
    def taint_key(self) -> str:
        """Return the key of the taint that Ebb sets on marked nodes."""

    def node_changed(self, node: Node) -> None:
        """Notify Ebb of a new or changed node."""

    def node_deleted(self, name: str) -> None:
        """Notify Ebb of a deleted node."""

    def pod_changed(self, pod: Pod) -> None:
        """Notify Ebb of a new or changed pod."""

    def pod_deleted(self, pod: Pod) -> None:
        """Notify Ebb of a deleted pod."""

    def admit(self, before: Node, after: Node) -> Node:
        """Return the Node *after* as the webhook changes it; *before*: the Node until now."""

    def urgent(self) -> bool:
        """Return whether a reconciliation must run now, before the interval has passed.

        `reconcile` resets this.
        """

    def reconcile(self, state: ClusterState, write: Callable[[Node], None], now_ms: int) -> None:
        """Run one reconciliation of the cluster *state*; *write* stores a Node that it changes."""


@dataclass(frozen=True, slots=True)
class Sample:
    """State of the cluster at one time, for charts."""

    at_ms: int
    nodes: int
    marked: int
    requested_cpu_millis: int
    capacity_cpu_millis: int
    cost: Fraction
    """Hourly cost of all nodes."""
    least: Fraction | None
    """Lower bound of the hourly cost for the running pods; None if not computed."""
    evicted: int
    """Evictions up to this time."""
    pending_ms: int
    """Total Pending time so far, of pods that are no longer Pending."""


@dataclass(slots=True)
class Result:
    """Totals of a simulation run."""

    node_ms: int = 0
    capacity_millis_ms: int = 0
    """Allocatable millicores, times milliseconds of existence."""
    cost_ms: Fraction = Fraction()
    """Hourly prices of the nodes, times milliseconds of existence."""
    evicted: int = 0
    lost_millis_ms: int = 0
    """Lost work of evicted Jobs, which start again: millicores times milliseconds."""
    pending_by_mark: int = 0
    """Pods that were Pending although a marked node had room, only because of Ebb's taint."""
    pending_ms: int = 0
    """Waiting time of all pods, from arrival or eviction to binding."""
    longest_wait_ms: int = 0
    scale_ups: int = 0
    """Number of nodes added."""
    marks: int = 0
    unmarks: int = 0
    pods: int = 0
    moved: int = 0
    """Pods of Deployments that surge moves have replaced."""
    moves: Counter[str] = field(default_factory=Counter)
    """Number of surge moves by outcome."""
    below_desired_ms: int = 0
    """Ready pods that Deployments lacked, times milliseconds; the start and the additional
    replicas of surge moves do not count."""
    below_by_eviction_ms: int = 0
    """The part of `below_desired_ms` in which replacements of evicted pods were not Ready yet."""
    below_by_moves_ms: int = 0
    """Ready pods that Deployments lacked during a surge move or in the minute after it, without
    any other cause, times milliseconds; counted in samples of five seconds."""
    unavailable_by_moves_ms: int = 0
    """Time in which Deployments showed fewer available pods than they wanted only because a surge
    move had detached one, in milliseconds for each Deployment."""
    samples: list[Sample] = field(default_factory=list)
    recording: Recording | None = None
    """Frames of a time lapse; None: they were not requested."""


@dataclass(frozen=True, slots=True)
class SimulatorOptions:
    """Options of a run, such as scheduler profile, autoscaler timers, prices and recording."""

    profile: Profile = DEFAULT
    timers: Timers = TIMERS
    """Timers of the autoscaler."""
    utilization: Fraction = UTILIZATION
    """Highest utilization of a node whose pods the autoscaler evicts."""
    price_of: Price = in_cores
    interval_ms: int = INTERVAL_MS
    """Time between reconciliations, for loads that do not set it."""
    extender: bool = True
    """True if the scheduler calls the extender; a managed scheduler does not."""
    least: LowerBound | None = None
    """Function for the lower bound of the cost; None: it is not computed."""
    scale_in: DeletionCosts | None = None
    """Function for the pod deletion costs of another tool; None: only those of Ebb."""
    record: bool = False
    """Record the frames of a time lapse."""


DEFAULT_OPTIONS: Final = SimulatorOptions()


class Simulator:
    """A simulation of one load with one seed, with or without Ebb; it can run once."""

    def __init__(
        self,
        load: SimulatedLoad,
        scale_down: ScaleDown,
        compactor: Compactor | None,
        seed: int,
        options: SimulatorOptions = DEFAULT_OPTIONS,
    ) -> None:
        self.state = ClusterState()
        self.result = Result()
        self._load, self._compactor = load, compactor
        self._interval_ms = load.interval_ms or options.interval_ms
        scorer = compactor if options.extender else None
        self._scheduler = Scheduler(self.state, scorer, seed, options.profile)
        self._autoscaler = Autoscaler(
            self, scale_down, load.shapes, seed + 1, options.timers, options.utilization
        )
        self._deployments = Deployments(self, seed + 2, options.scale_in)
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._lives: dict[str, int] = {}
        self._endings: dict[str, int] = {}
        self._pending_by_mark: set[str] = set()
        self._price_of, self._least, self._cost = options.price_of, options.least, Fraction()
        self._prices: dict[str, Fraction] = {}
        self._recorder = Recorder() if options.record else None
        self._now = self._numbers = self._capacity_millis = 0

    def now_ms(self) -> int:
        """Return the virtual time in milliseconds."""
        return self._now

    def run(self, progress: Callable[[int], None] = lambda _: None) -> Result:
        """Run the load to its end; return the totals.

        *progress* is called every simulated hour with the number of simulated hours.
        """
        for shape in self._load.nodes:
            self.ready_node(self.new_node(shape, DAY_MS))
        for arrival in self._load.in_order():
            if isinstance(arrival, Deployment):
                self._deployments.begin(arrival)
            else:
                self._at(arrival.at_ms, lambda a=arrival: self._arrive(a))  # type: ignore[misc]
        self._every(self._autoscaler.scan_ms, self._autoscaler.scan)
        self._every(SAMPLE_MS, self._sample)
        self._every(PROGRESS_MS, lambda: progress(self._now // PROGRESS_MS))
        if self._compactor is not None:
            self._every(self._interval_ms, self._reconcile)
        while self._queue and self._queue[0][0] <= self._load.duration_ms:
            at_ms, _, act = heapq.heappop(self._queue)
            self._advance(at_ms)
            act()
            self._run_urgent_reconciliations()
        self._advance(self._load.duration_ms)
        for since in self.state.pending.values():
            self._add_wait(since)
        self.result.scale_ups = self._autoscaler.scale_ups
        shortfall = self._deployments.shortfall()
        self.result.below_desired_ms = shortfall.below_desired_ms
        self.result.below_by_eviction_ms = shortfall.below_by_eviction_ms
        self.result.unavailable_by_moves_ms = shortfall.unavailable_by_moves_ms
        self.result.recording = self._recorder.recording if self._recorder else None
        return self.result

    def _add_wait(self, since_ms: int) -> None:
        waited_ms = self._now - since_ms
        self.result.pending_ms += waited_ms
        self.result.longest_wait_ms = max(self.result.longest_wait_ms, waited_ms)

    # Time

    def after(self, delay_ms: int, act: Callable[[], None]) -> None:
        """Call *act* after a delay of virtual time."""
        self._at(self._now + delay_ms, act)

    def _at(self, at_ms: int, act: Callable[[], None]) -> None:
        self._numbers += 1
        heapq.heappush(self._queue, (at_ms, self._numbers, act))

    def _every(self, period_ms: int, act: Callable[[], None]) -> None:
        def again() -> None:
            act()
            self.after(period_ms, again)

        self.after(period_ms, again)

    def _advance(self, at_ms: int) -> None:
        # A frame is no event of the queue: events number the nodes, so it would change the run.
        while self._recorder is not None and self._recorder.next_ms <= at_ms:
            self._recorder.add(self._frame(self._recorder.next_ms), self.state)
        self.result.node_ms += len(self.state.places) * (at_ms - self._now)
        self.result.capacity_millis_ms += self._capacity_millis * (at_ms - self._now)
        self.result.cost_ms += self._cost * (at_ms - self._now)
        self._now = at_ms

    def _frame(self, at_ms: int) -> Frame:
        waiting_ms = sum(at_ms - since_ms for since_ms in self.state.pending.values())
        return Frame(
            self.result.cost_ms + self._cost * (at_ms - self._now),
            len(self.state.pending),
            self.result.pending_ms + waiting_ms,
            self.result.evicted,
        )

    def _sample(self) -> None:
        places = self.state.places.values()
        capacity = sum(place.node.allocatable.cpu_millis for place in places)
        free = sum(place.free.cpu_millis for place in places)
        sample = Sample(
            self._now,
            nodes=len(places),
            marked=sum(1 for _ in self.state.marked()),
            requested_cpu_millis=capacity - free,
            capacity_cpu_millis=capacity,
            cost=self._cost,
            least=self._lower_bound_now(),
            evicted=self.result.evicted,
            pending_ms=self.result.pending_ms,
        )
        self.result.samples.append(sample)

    def _lower_bound_now(self) -> Fraction | None:
        if self._least is None or self._now % BOUND_MS:
            return None
        places = self.state.places.values()
        return self._least(pod for place in places for pod in place.pods.values())

    # Nodes

    def template(self, shape: Resources) -> Node:
        """Return the template of Nodes with this shape (allocatable resources)."""
        return self._load.template(shape)

    def new_node(self, shape: Resources, age_ms: int = 0) -> str:
        """Create a Node that is not Ready yet, and as old as *age_ms*; return its name.

        *shape*: allocatable resources, which identify its node group.
        """
        self._numbers += 1
        name = f"node-{self._numbers:06}"
        template = self.template(shape)
        made = (self._now - age_ms) // 1000
        labels = {**template.labels, HOST_LABEL: name}
        node = replace(
            template, name=name, uid=name, labels=labels, ready=False, created_seconds=made
        )
        agent = self.state.add_node(node, self._now)
        self._capacity_millis += shape.cpu_millis
        self._prices[name] = self._price_of(node)
        self._cost += self._prices[name]
        if self._compactor is not None:
            self._compactor.node_changed(node)
            self._compactor.pod_changed(agent)
        return name

    def ready_node(self, name: str) -> None:
        """Make a Node Ready, and schedule the Pending pods."""
        self._store(replace(self.state.places[name].node, ready=True))
        self._schedule_pending()

    def write(self, node: Node) -> None:
        """Store a changed Node as Ebb's webhook admits it, and count marks and unmarks."""
        before = self.state.places[node.name].node
        if self._compactor is not None:
            node = self._compactor.admit(before, node)
        if mark_of(before.labels) is None and mark_of(node.labels) is not None:
            self.result.marks += 1
        if mark_of(before.labels) is not None and mark_of(node.labels) is None:
            self.result.unmarks += 1
        self._store(node)

    def _store(self, node: Node) -> None:
        self.state.replace_node(node)
        if self._compactor is not None:
            self._compactor.node_changed(node)

    def end_node(self, name: str) -> None:
        """Delete a Node with its DaemonSet pods."""
        self._capacity_millis -= self.state.places[name].node.allocatable.cpu_millis
        self._cost -= self._prices.pop(name)
        agents = self.state.remove_node(name)
        if self._compactor is not None:
            self._compactor.node_deleted(name)
            for pod in agents:
                self._compactor.pod_deleted(pod)

    def _reconcile(self) -> None:
        if self._compactor is not None:
            self._compactor.reconcile(self.state, self.write, self._now)
            self._schedule_pending()

    def _run_urgent_reconciliations(self) -> None:
        while self._compactor is not None and self._compactor.urgent():
            self._reconcile()

    # Pods

    def _arrive(self, arrival: Arrival) -> None:
        pod = Pod(
            namespace="work",
            name=arrival.name,
            created_seconds=self._now // 1000,
            requests=arrival.requests,
            owner_kind=arrival.owner_kind,
            owner_name=arrival.owner_name or arrival.name,
            node_constraints=arrival.node_constraints,
            disruption_facts=arrival.disruption_facts or NO_DISRUPTION_FACTS,
        )
        self._lives[pod.key] = arrival.life_ms
        self.create(pod)

    def create(self, pod: Pod) -> None:
        """Create a pod, and bind it to a node if any node is feasible."""
        self.result.pods += 1
        self.state.arrive(pod, self._now)
        if not self._schedule(pod):
            self._wait(pod)

    def _wait(self, pod: Pod) -> None:
        pending_pod = self.state.refuse(pod.key)
        if self._compactor is not None:
            self._compactor.pod_changed(pending_pod)
            self._run_urgent_reconciliations()
        self._autoscaler.unschedulable()

    def _count_pending_by_mark(self, pod: Pod) -> None:
        """Count a pod that is Pending only because of Ebb's taint: a marked node has room for it.

        Each pod counts once.
        """
        if pod.key in self._pending_by_mark:
            return
        key = self._compactor.taint_key if self._compactor else ""
        if any(
            has_room(place, pod)
            and first_failing_filter(without_our_taint(place.node, key), pod.node_constraints)
            is None
            for place in self.state.marked()
        ):
            self._pending_by_mark.add(pod.key)
            self.result.pending_by_mark = len(self._pending_by_mark)

    def _schedule(self, pod: Pod) -> bool:
        name = self._scheduler.choose(pod)
        if name is None:
            self._count_pending_by_mark(pod)
            return False
        self._add_wait(self.state.pending[pod.key])
        bound = self.state.bind(pod, name)
        if self._compactor is not None:
            self._compactor.pod_changed(bound)
        if self._deployments.owns(pod.key):
            self._deployments.bound(bound)
            return True
        ending = self._now + self._lives[pod.key]
        self._endings[pod.key] = ending
        self._at(ending, lambda: self._end(pod.key, ending))
        return True

    def delete(self, keys: Iterable[str]) -> None:
        """Delete the pods of Deployments with these keys, bound or Pending."""
        for key in keys:
            self._add_wait(self.state.pending.get(key, self._now))
            pod = self.state.delete(key)
            if self._compactor is not None:
                self._compactor.pod_deleted(pod)
        self.after(0, self._schedule_pending)

    def _end(self, key: str, ending_ms: int) -> None:
        """Remove a pod at the end of its life, unless an eviction has restarted it meanwhile.

        *ending_ms*: the end that was planned when the pod was bound.
        """
        if self._endings.get(key) != ending_ms:
            return
        del self._endings[key], self._lives[key]
        pod = self.state.finish(key)
        if self._compactor is not None:
            self._compactor.pod_deleted(pod)
        self._schedule_pending()

    def evict(self, pod: Pod) -> None:
        """Evict a pod: a Job's pod becomes Pending again, a Deployment replaces its pod."""
        self.result.evicted += 1
        if self._deployments.owns(pod.key):
            self.delete([pod.key])
            self._deployments.replaced(pod.key)
            return
        ran_ms = self._lives[pod.key] - (self._endings.pop(pod.key) - self._now)
        self.result.lost_millis_ms += pod.requests.cpu_millis * ran_ms
        pending_pod = self.state.evict(pod.key, self._now)
        if self._compactor is not None:
            self._compactor.pod_changed(pending_pod)
        self.after(0, lambda: self._retry(pending_pod))

    def _retry(self, pod: Pod) -> None:
        if pod.key in self.state.pending and not self._schedule(pod):
            self._wait(pod)

    def _schedule_pending(self) -> None:
        for key in list(self.state.pending):
            if key in self.state.pending:
                self._schedule(self.state.pods[key])
