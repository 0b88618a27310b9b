"""Summarize a plan: removable nodes, savings, marks that are due now, and late nodes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Final, NamedTuple

from cli.explain.emptying import Emptying
from cli.explain.marking import Marking, marking
from cli.nodes import NodeRow
from core.config.prices import HOURS_A_MONTH
from core.config.settings import Mode
from core.engine import planner
from core.engine.plan import Plan
from core.engine.snapshot import ClusterSnapshot
from core.model.reason import Blocker
from core.model.resources import Resources
from core.policies import cluster_threshold

NONE: Final = Resources()
FULL: Final = frozenset(
    reason.code
    for reason in (
        planner.NO_ROOM,
        planner.PLACE_TAKEN,
        planner.HEADROOM,
        cluster_threshold.THRESHOLD,
        cluster_threshold.USABLE_THRESHOLD,
        cluster_threshold.REACH_THRESHOLD,
        cluster_threshold.LAST_NODE,
        cluster_threshold.PEAK_DEMAND,
    )
)
"""Codes of the reasons that end when pods request less, or when other nodes have more room."""

if TYPE_CHECKING:  # only a live cluster has a leader
    from controller.leader_report import LeaderFacts


class Cost(NamedTuple):
    """Cost of the nodes of a plan for an hour, in the currency of the setting `prices`."""

    before: Fraction
    """Cost of all nodes."""
    removed: Fraction
    """Cost of the removable nodes, without those that may be in no node group."""
    unpriced: tuple[str, ...]
    """Nodes that no entry of `prices` selects, removable ones first; each counts as 0."""

    @property
    def after(self) -> Fraction:
        """Return the cost of the nodes that remain."""
        return self.before - self.removed

    @property
    def saved_per_month(self) -> Fraction:
        """Return the cost of the removable nodes for a month of 730 hours."""
        return self.removed * HOURS_A_MONTH


class SlowReason(NamedTuple):
    """A reason why pods of removable nodes rarely terminate, and the number of its pods."""

    code: str
    pods: int
    example: str
    """One of these pods, as namespace/name."""


class DeviceChange(NamedTuple):
    """Requested and allocatable units of a device such as nvidia.com/gpu, for one plan."""

    resource: str
    """Name of the extended resource."""
    requested: tuple[int, int]
    """Units that pods request, before and after the plan."""
    capacity: tuple[int, int]
    """Allocatable units of the nodes that pods can use, before and after the plan."""


class Load(NamedTuple):
    """Requests of the pods on nodes, and the allocatable resources of these nodes."""

    requests: Resources
    allocatable: Resources


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """The summary of a plan. Each number counts nodes of the plan."""

    mode: Mode | None
    """Configured mode; None if the configuration could not be read."""
    nodes: int
    removable: int
    capacity: Resources
    """Allocatable resources of the removable nodes."""
    before: Load
    """Requests on all nodes that are machines, and the allocatable resources of these nodes."""
    after: Load
    """The same without the removable nodes, and with the pods that the plan places."""
    compact: bool
    """No node is removable, because the cluster is full: pods request more than half of its CPU or
    memory, and a reason of FULL keeps most nodes, alone or with others such as zone balance."""
    cost: Cost | None
    """Cost of the removable nodes; None if no prices are configured."""
    marked: int
    """Removable nodes that are marked already."""
    marking: Marking
    """The other removable nodes."""
    leader_asked: bool
    """False if the facts of the leader are unknown."""
    empty: int
    """Removable nodes that are empty already."""
    by_themselves: int
    """Removable nodes that become empty when their pods complete, or by rollouts and scale-ins."""
    by_moves: int
    """Removable nodes that become empty with the help of surge moves."""
    emptied_late: int
    """Removable nodes with pods that rarely terminate."""
    late_because: tuple[SlowReason, ...]
    """Reasons of these pods, most pods first."""
    devices: tuple[DeviceChange, ...]
    """Devices that nodes offer, by name."""


def headline(
    snapshot: ClusterSnapshot,
    plan: Plan,
    rows: Sequence[NodeRow],
    emptying: Mapping[str, Emptying],
    facts: "LeaderFacts | None",
    mode: Mode | None,
    now_seconds: int,
) -> Headline:
    """Return the summary of a plan.

    *rows*: nodes to count, removable ones first, in removal order. *emptying*: pods of each
    removable node by how they end, by name of the node. *facts*: state of the leader; None if
    unknown. *mode*: None if unknown.
    """
    if facts is not None and not facts.knows_limits:
        facts = None
    removable = [row for row in rows if row.order is not None]
    unmarked = [row.name for row in removable if not row.mark]
    markable = frozenset(row.name for row in rows if not row.mark)
    emptied = [emptying[row.name] for row in removable]
    emptied_late = [node for node in emptied if node.staying]
    before, after = _loads(snapshot, plan, rows)
    in_time = [node for node in emptied if not node.staying and node.pods]
    moved = sum(bool(node.moves) for node in in_time)
    return Headline(
        mode=mode,
        nodes=len(rows),
        removable=len(removable),
        capacity=Resources.total(row.node.allocatable for row in removable),
        before=before,
        after=after,
        compact=not removable and _is_full(before, rows),
        cost=_cost(snapshot, rows),
        marked=len(removable) - len(unmarked),
        marking=marking(snapshot, markable, unmarked, facts, now_seconds),
        leader_asked=facts is not None,
        empty=sum(not node.pods for node in emptied),
        by_themselves=len(in_time) - moved,
        by_moves=moved,
        emptied_late=len(emptied_late),
        late_because=_late_because(blocker for node in emptied_late for blocker in node.staying),
        devices=tuple(_devices(snapshot, plan)),
    )


def _loads(snapshot: ClusterSnapshot, plan: Plan, rows: Sequence[NodeRow]) -> tuple[Load, Load]:
    """Return the load of the nodes before and after the plan.

    Virtual nodes do not count: what they offer is a limit, and no machine.
    """
    pods, removed = snapshot.pod_index, [row for row in rows if row.order is not None]
    placed = {placement.pod for placement in plan.pending}
    machines = [row for row in rows if not row.node.virtual]
    before = Load(
        Resources.total(pods.requests[row.name] for row in machines),
        Resources.total(row.node.allocatable for row in machines),
    )
    ended = Resources.total(pods.resident_requests.get(row.name, NONE) for row in removed)
    pending = Resources.total(pod.requests for pod in pods.pending if pod.key in placed)
    after = Load(
        before.requests + pending - ended,
        before.allocatable - Resources.total(row.node.allocatable for row in removed),
    )
    return before, after


def _is_full(load: Load, rows: Sequence[NodeRow]) -> bool:
    (requests, whole), full = load, sum(not FULL.isdisjoint(row.reasons) for row in rows)
    halves = (
        2 * requests.cpu_millis > whole.cpu_millis,
        2 * requests.memory_bytes > whole.memory_bytes,
    )
    return any(halves) and 2 * full > len(rows)


def _cost(snapshot: ClusterSnapshot, rows: Sequence[NodeRow]) -> Cost | None:
    if not snapshot.config.prices:
        return None
    nothing, unpromised = Fraction(), snapshot.unpromised_nodes
    removed = (row for row in rows if row.order is not None and row.name not in unpromised)
    return Cost(
        before=sum((row.price or nothing for row in rows), nothing),
        removed=sum((row.price or nothing for row in removed), nothing),
        unpriced=tuple(row.name for row in rows if row.price is None),
    )


def _late_because(blockers: Iterable[Blocker]) -> tuple[SlowReason, ...]:
    pods: dict[str, list[str]] = {}
    for blocker in blockers:
        pods.setdefault(blocker.code, []).append(blocker.pod or "")
    slow_reasons = (SlowReason(code, len(keys), min(keys)) for code, keys in pods.items())
    return tuple(sorted(slow_reasons, key=lambda reason: (-reason.pods, reason.code)))


def _devices(snapshot: ClusterSnapshot, plan: Plan) -> Iterable[DeviceChange]:
    """Yield requests and capacity of each device, such as nvidia.com/gpu, by name.

    Only nodes that movable pods can use count, as in the totals of the plan.
    """
    usable = [
        node
        for node in snapshot.cluster.nodes
        if snapshot.reaches_node(node.name) and node.name not in snapshot.unschedulable_nodes
    ]
    names, removed = {node.name for node in usable}, {removal.node for removal in plan.removals}
    pending = {placement.pod for placement in plan.pending}
    counted = [pod for pod in snapshot.cluster.pods if pod.node in names or pod.key in pending]
    removed_with_node = (pod for pod in counted if pod.stays_with_node and pod.node in removed)
    capacity = Resources.total(node.allocatable for node in usable).devices
    freed = Resources.total(node.allocatable for node in usable if node.name in removed).devices
    requested = Resources.total(pod.requests for pod in counted).devices
    ended = Resources.total(pod.requests for pod in removed_with_node).devices
    for name, units in sorted(capacity.items()):
        before = requested.get(name, 0)
        yield DeviceChange(
            name,
            (before, before - ended.get(name, 0)),
            (units, units - freed.get(name, 0)),
        )
