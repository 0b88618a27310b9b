"""Sum up requests and usable capacity by node and reach, as they are before any removal."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from core.config.settings import Config, UsabilityMode
from core.config.thresholds import Thresholds
from core.engine.pod_index import GroupKey
from core.engine.snapshot_pods import NO_REQUESTS
from core.model.pod import Pod
from core.model.resources import Resources, is_device
from core.placement.node_order import NodeOrder
from core.placement.reach_utilization import DeviceUtilization, ReachUtilization
from core.placement.reaches import Reach, Reaches
from core.placement.usable_capacity import (
    NOTHING,
    Amount,
    PooledRatios,
    Share,
    Usability,
    derive_usability,
)
from core.placement.utilization_ledger import NodeLoad, UtilizationLedger
from core.policies.all import POLICIES
from core.setting_types.value_types import raised

DEVICES_PER_REACH_MAX: Final = 16
"""Maximum number of devices with a threshold in one reach. A kubelet can name any number."""
Shapes = Counter[tuple[int, int]]
"""Number of pods by their requests (CPU millicores, memory bytes)."""
WHOLE: Final = ""
"""Key for the whole cluster in mappings that are keyed by reach."""


@dataclass(frozen=True, kw_only=True)
class Utilization:
    """The requests on the nodes of a snapshot, and what its reaches can offer to pods.

    A reach is a set of nodes that some pods can use. Sums are computed when they are first read.
    """

    config: Config
    node_order: NodeOrder
    reaches: Reaches
    groups: Sequence[tuple[Sequence[Pod], Reach | None]]
    """Movable pods in groups with equal requests and constraints, each with its reach, if any."""
    pending_counts: Mapping[GroupKey, int]
    """Number of pending pods by requests and constraints."""
    resident_requests: Mapping[str, Resources]
    """Requests by node of the pods that end with the node; nodes without such may be absent."""
    unschedulable_nodes: Collection[str]

    def new_ledger(self, peak_excess: Mapping[str, Amount] | None = None) -> UtilizationLedger:
        """Return a new ledger with the sums of the cluster and of each reach.

        *peak_excess*: by key of a reach, how far the highest requests within `stabilizationWindow`
        exceed the current ones; the key WHOLE is the cluster. None means nowhere.
        """
        excess = peak_excess or {}
        sums = [self._sums(None, excess.get(WHOLE, NOTHING))]
        sums += [self._sums(reach, excess.get(reach.key, NOTHING)) for reach in self.reaches.all]
        nodes = self.node_order.nodes
        return UtilizationLedger(
            nodes,
            self.reaches,
            sums,
            loads=self._loads,
            is_open=[
                node.name not in self.unschedulable_nodes and not node.virtual for node in nodes
            ],
            devices=list(self._device_sums()) if self._has_thresholds else (),
        )

    def demand(self) -> Mapping[str, Amount]:
        """Return by key of a reach the CPU and memory that movable pods request.

        These are the requests on the nodes of the reach, without pods that end with their node,
        plus the Pending pods that have this reach. The key WHOLE is the cluster.
        """
        demand = {WHOLE: NOTHING, **{reach.key: NOTHING for reach in self.reaches.all}}
        for number in self.reaches.reached:
            load = self._loads[number]
            amount = load.used.minus(load.resident)
            for key in (WHOLE, *(self.reaches.all[n].key for n in self.reaches.by_node[number])):
                demand[key] = demand[key].plus(amount)
        for members, reach in self.groups:
            requests = members[0].requests
            if pending := self.pending_counts.get((requests, members[0].node_constraints)):
                amount = Amount(pending * requests.cpu_millis, pending * requests.memory_bytes)
                for key in (WHOLE, reach.key) if reach else (WHOLE,):
                    demand[key] = demand[key].plus(amount)
        return demand

    @property
    def _has_thresholds(self) -> bool:
        return POLICIES[self.config.policy].thresholds

    @cached_property
    def _loads(self) -> list[NodeLoad]:
        """Return the requests on each node in node order, at most its allocatable resources."""
        loads = []
        for node, used in zip(self.node_order.nodes, self.node_order.used, strict=True):
            allocatable, requests = Amount.of(node.allocatable), Amount.of(used)
            resident_requests = self.resident_requests.get(node.name, NO_REQUESTS)
            resident = Amount.of(resident_requests)
            # A pod with `spec.nodeName` set, or a kubelet, can request more than the node has.
            # That must not count as load of other nodes.
            most = requests.at_most(allocatable)
            load = NodeLoad(most, resident.at_most(allocatable), requests.minus(most))
            if used.extended:
                load = replace(
                    load,
                    devices=_device_requests(used, node.allocatable),
                    resident_devices=_device_requests(resident_requests, node.allocatable),
                )
            loads.append(load)
        return loads

    def _sums(self, reach: Reach | None, peak_excess: Amount) -> ReachUtilization:
        limits = self._thresholds_of(reach)
        enter = Share(min(each.cpu for each in limits), min(each.memory for each in limits))
        unmark = Share(*(raised(share, self.config.hysteresis) for share in enter))
        return ReachUtilization(reach, self._usability(reach), enter, unmark, peak_excess)

    def _device_sums(self) -> Iterator[DeviceUtilization]:
        """Yield a zero sum for each reach and each device that pods of the reach request.

        A device is an extended resource such as a GPU.
        """
        # Extended resources that are no devices, such as huge pages, have no threshold.
        for number, reach in enumerate(self.reaches.all):
            templates = self.reaches.templates_of(number)
            names = {
                name
                for node_constraints in templates
                for name in node_constraints.extended
                if is_device(name)
            }
            if names:
                limits = self._thresholds_of(reach)
                enter = min(thresholds.for_devices for thresholds in limits)
                unmark = raised(enter, self.config.hysteresis)
                for name in sorted(names)[:DEVICES_PER_REACH_MAX]:
                    yield DeviceUtilization(reach, name, enter, unmark)

    def _thresholds_of(self, reach: Reach | None) -> Collection[Thresholds]:
        """Return the different `thresholds` of a reach's nodes.

        *reach*: None for the whole cluster, which has the thresholds outside of `pools`.
        """
        by_node = self._thresholds_by_node
        numbers = reach.nodes if reach and by_node else ()
        return {id(by_node[n]): by_node[n] for n in numbers}.values() or (self.config.thresholds,)

    @cached_property
    def _thresholds_by_node(self) -> Sequence[Thresholds]:
        """Return the `thresholds` of each node by id; empty if no pool has its own."""
        if not any(pool.thresholds for pool in self.config.budgets.pools):
            return ()
        return [self.config.thresholds_of(node.labels) for node in self.node_order.nodes]

    def _usability(self, reach: Reach | None) -> Usability | None:
        if not self._has_thresholds:
            return None
        match self.config.usable_capacity:
            case UsabilityMode.AUTO:
                return self._derived_usability.get(reach.key if reach else WHOLE)
            case UsabilityMode.ALL:
                return None
            case given:
                return given

    @cached_property
    def _derived_usability(self) -> Mapping[str, Usability | None]:
        """Return by key of a reach the conditions for usable capacity, derived from pods.

        The minimum sizes come from the pods of the reach. The ratios of CPU to memory come from
        all pods that can use some of its nodes. None means that no pod allows to derive any. See
        docs/glossary.md for usable capacity.
        """
        shapes: dict[str, Shapes] = {WHOLE: Counter()}
        single_node_shapes: dict[int, Shapes] = {}
        for members, reach in self.groups:
            size = members[0].requests.cpu_millis, members[0].requests.memory_bytes
            shapes[WHOLE][size] += len(members)
            if reach is not None:
                shapes.setdefault(reach.key, Counter())[size] += len(members)
            elif len(nodes := self.reaches.members(members[0].node_constraints)) == 1:
                single_node_shapes.setdefault(nodes[0], Counter())[size] += len(members)
        own = {key: derive_usability(counter) for key, counter in shapes.items()}
        areas = [(frozenset(reach.nodes), own.get(reach.key)) for reach in self.reaches.all]
        areas += [
            (frozenset((node,)), derive_usability(counter))
            for node, counter in single_node_shapes.items()
        ]
        pooled = PooledRatios(
            [(nodes, usability) for nodes, usability in areas if usability is not None]
        )
        for reach in self.reaches.all:
            if usability := own.get(reach.key):
                own[reach.key] = pooled.ratios(usability, frozenset(reach.nodes))
        return own


def _device_requests(requests: Resources, allocatable: Resources) -> Mapping[str, int]:
    """Return the requested units by device name, at most the units that the node offers."""
    existing = allocatable.devices
    return {name: min(units, existing.get(name, 0)) for name, units in requests.devices.items()}
