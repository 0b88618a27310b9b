"""Node groups of a history, to which the simulated autoscaler can add nodes."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from fractions import Fraction
from statistics import median_low
from typing import Final, NamedTuple

from core.config.settings import Config
from core.eligibility.node_eligibility import (
    CONTROL_PLANE,
    UNREADABLE,
    VIRTUAL_NODE,
    node_blockers,
)
from core.engine.zones import ZONE_LABEL
from core.marks.mark import opt_out_annotation, protection_of
from core.marks.taints import without_our_taint
from core.marks.wellknown import KEEP_ANNOTATION, PROTECTION_KEYS, TAINT_KEY
from core.model.constraints import HOST_LABEL, NO_NODE_CONSTRAINTS, NodeConstraints, names_node
from core.model.node import Node, Taint
from core.model.node_lifecycle import is_transient_taint
from core.model.resources import Resources
from core.placement.filters import FILTERS, LABEL
from sim.cluster import DAEMON_REQUESTS
from sim.costs import Price
from sim.history.cluster_history import ClusterHistory, NodeLifetime, PodLifetime
from sim.simulator import Result

MEMORY_STEP_BYTES: Final = 1024**3
"""Allocatable memory of machines of one type differs by less than this."""
NO_GROUPS: Final = frozenset({CONTROL_PLANE.code, VIRTUAL_NODE.code, UNREADABLE.code})


_Annotations = tuple[tuple[str, str], ...]


class _GroupProperties(NamedTuple):
    """Properties that all nodes of a node group share; memory is rounded to MEMORY_STEP_BYTES."""

    labels: tuple[tuple[str, str], ...]
    taints: tuple[Taint, ...]
    features: tuple[str, ...]
    cpu_millis: int
    memory_steps: int
    extended: tuple[tuple[str, int], ...]


def _order(properties: _GroupProperties) -> tuple[object, ...]:
    taints = tuple((taint.key, taint.value, taint.effect) for taint in properties.taints)
    return properties.labels, taints, *properties[2:]


class Groups:
    """All node groups of a history, with a template Node for each shape (allocatable resources).

    `first` has the shapes of the nodes at the start of the history. `left_out` is the number of
    nodes that no autoscaler can scale.
    """

    def __init__(
        self, history: ClusterHistory, pod_lifetimes: Iterable[PodLifetime], config: Config
    ) -> None:
        """Group the nodes that have equal resources, taints and relevant labels.

        A label is relevant if a pod of *pod_lifetimes* or the configuration uses it.
        """
        self._read = {*_read_by_pods(pod_lifetimes), *config.node_labels(), ZONE_LABEL} - {
            HOST_LABEL
        }
        self._taint_key, self._leaving_taints = TAINT_KEY, frozenset(config.leaving_taints)
        node_lifetimes = [
            lifetime for lifetime in history.node_lifetimes if is_scalable(lifetime.node)
        ]
        self.left_out = len(history.node_lifetimes) - len(node_lifetimes)
        members: dict[_GroupProperties, list[NodeLifetime]] = {}
        for lifetime in node_lifetimes:
            members.setdefault(self._kind(lifetime.node), []).append(lifetime)
        agents = _agents(history)
        self.templates: dict[Resources, Node] = {}
        shapes = {
            (properties, kept): self._add(properties, kept, members[properties], agents)
            for properties in sorted(members, key=_order)
            for kept in sorted({(), *(_kept(lifetime.node) for lifetime in members[properties])})
        }
        self._lifetimes = [
            (
                shapes[properties, kept],
                max(lifetime.begins_ms, history.begins_ms),
                lifetime.ends_ms,
            )
            for properties, kept in shapes
            for lifetime in members[properties]
            if _kept(lifetime.node) == kept
        ]
        self.first = tuple(
            shape for shape, begins_ms, _ in self._lifetimes if begins_ms == history.begins_ms
        )

    def recorded_totals(self, price_of: Price) -> Result:
        """Return node-hours, capacity and cost of the recorded nodes; the rest of the Result is 0.

        *price_of* returns the hourly price of a node.
        """
        node_ms, capacity, cost = 0, 0, Fraction()
        for shape, begins_ms, ends_ms in self._lifetimes:
            existed_ms = max(ends_ms - begins_ms, 0)
            node_ms += existed_ms
            capacity += existed_ms * shape.cpu_millis
            cost += existed_ms * price_of(self.templates[shape])
        return Result(node_ms=node_ms, capacity_millis_ms=capacity, cost_ms=cost)

    def _kind(self, node: Node) -> _GroupProperties:
        own = without_our_taint(node, self._taint_key)
        whole = node.allocatable
        return _GroupProperties(
            tuple(sorted((key, own.labels[key]) for key in self._read if key in own.labels)),
            tuple(
                replace(taint, time_added="")
                for taint in own.taints
                if not (is_transient_taint(own, taint) or taint.key in self._leaving_taints)
            ),
            own.features,
            whole.cpu_millis,
            round(whole.memory_bytes / MEMORY_STEP_BYTES),
            whole.extended,
        )

    def _add(
        self,
        properties: _GroupProperties,
        kept: _Annotations,
        members: Iterable[NodeLifetime],
        agents: dict[str, list[Resources]],
    ) -> Resources:
        """Add a node group, and return its shape (allocatable resources).

        If another group has the same shape, some bytes less memory make it unique. *kept*:
        annotations that exclude the nodes from scale-down. *members*: nodes of the group.
        *agents*: requests of DaemonSet and static pods by node name.
        """
        nodes = [lifetime.node for lifetime in members]
        whole = min(
            (node.allocatable for node in nodes), key=lambda allocatable: allocatable.memory_bytes
        )
        taken = [Resources.total(agents.get(node.name, ())) for node in nodes]
        shape = _with_agent(whole, taken)
        while shape in self.templates:
            shape = replace(shape, memory_bytes=shape.memory_bytes - 1)
        self.templates[shape] = Node(
            name="",
            allocatable=shape,
            labels=dict(properties.labels),
            taints=properties.taints,
            features=properties.features,
            annotations=dict(kept),
        )
        return shape


def _kept(node: Node) -> _Annotations:
    """Return the annotations by which a person or tool excludes the node from scale-down.

    The annotation that Ebb itself has set does not count. Empty: nobody excludes the node.
    """
    if opt_out_annotation(node) is None:
        return ()
    ours = protection_of(node)
    keys = {KEEP_ANNOTATION, *PROTECTION_KEYS} - ({ours.key} if ours else set())
    return tuple((key, node.annotations[key]) for key in sorted(keys & node.annotations.keys()))


def is_scalable(node: Node) -> bool:
    """Return whether the node belongs to a group that an autoscaler can scale.

    Control plane nodes, virtual nodes and unreadable nodes do not.
    """
    return not any(blocker.code in NO_GROUPS for blocker in node_blockers(node))


def capacity_for_pods(template: Node) -> Resources:
    """Return the allocatable resources of a node without the requests of its DaemonSet pod.

    *template*: template of the nodes in its group.
    """
    return template.allocatable - DAEMON_REQUESTS


def _with_agent(whole: Resources, agents: list[Resources]) -> Resources:
    """Return allocatable resources *whole* with the recorded DaemonSet pods exchanged.

    The simulation has one DaemonSet pod a node, the agent. So the median of the recorded requests
    is subtracted, and the agent's requests are added. *agents*: requests of DaemonSet and static
    pods, in total for each node of the group.
    """
    requested = Resources(
        median_low(requests.cpu_millis for requests in agents),
        median_low(requests.memory_bytes for requests in agents),
        pods=median_low(requests.pods for requests in agents),
    )
    left = whole - requested + DAEMON_REQUESTS
    return replace(
        left,
        cpu_millis=max(left.cpu_millis, 0),
        memory_bytes=max(left.memory_bytes, 0),
        pods=max(left.pods, 0),
    )


def _agents(history: ClusterHistory) -> dict[str, list[Resources]]:
    """Return the requests of DaemonSet and static pods by node name.

    Each DaemonSet counts once on a node, even if its pod was replaced.
    """
    by_node: dict[str, dict[str, Resources]] = {}
    for lifetime in history.pod_lifetimes:
        pod = lifetime.pod
        if pod.stays_with_node and pod.node:
            owner = f"{pod.namespace}/{pod.owner_name}" if pod.daemon else pod.key
            by_node.setdefault(pod.node, {})[owner] = pod.requests
    return {node: list(owners.values()) for node, owners in by_node.items()}


def without_node_name(lifetime: PodLifetime) -> PodLifetime:
    """Return the pod's lifetime without constraints that name a single node.

    If no constraint names a node, *lifetime* itself is returned. Otherwise the pod also loses its
    node affinity, and keeps its tolerations and the rest of its node selector.
    """
    pod = lifetime.pod
    node_constraints = _without_hostname(pod.node_constraints)
    return (
        lifetime
        if node_constraints is pod.node_constraints
        else replace(lifetime, pod=replace(pod, node_constraints=node_constraints))
    )


def _without_hostname(node_constraints: NodeConstraints) -> NodeConstraints:
    if not names_node(node_constraints):
        return node_constraints
    selector = tuple(pair for pair in node_constraints.node_selector if pair[0] != HOST_LABEL)
    return replace(
        NO_NODE_CONSTRAINTS, node_selector=selector, tolerations=node_constraints.tolerations
    )


def _read(node_constraints: NodeConstraints) -> Iterator[tuple[str, str]]:
    for filter_ in FILTERS:
        yield from filter_.reads(node_constraints)


def _read_by_pods(pod_lifetimes: Iterable[PodLifetime]) -> Iterator[str]:
    for node_constraints in {lifetime.pod.node_constraints for lifetime in pod_lifetimes}:
        yield from (key for field, key in _read(node_constraints) if field == LABEL)
