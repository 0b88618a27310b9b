"""Maintain the sums that thresholds are checked against while a plan removes nodes.

A sum contains requests, capacity and usable capacity. There is one for each reach (a set of nodes
that some pods can use, core.placement.reaches), and one for all nodes that a movable pod can use.
Source: thesis 4.2 to 4.5. Node ids are those of the NodeOrder. Unschedulable nodes (cordoned, not
Ready, leaving) contribute no capacity, but their movable pods count as requests.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from core.model.node import Node
from core.placement.reach_utilization import Changes, DeviceUtilization, Exceeded, ReachUtilization
from core.placement.reaches import Reaches
from core.placement.usable_capacity import NOTHING, Amount, UsabilityEvaluator

Received = Iterable[tuple[int, Amount]]
"""Pairs of node id and added load."""
Devices = Mapping[str, int]
"""Units by name of the extended resource."""
DevicesReceived = Mapping[int, Devices]
"""Added requests of devices by node id."""
NO_DEVICES: Final[Devices] = {}
NONE_RECEIVED: Final[DevicesReceived] = {}


@dataclass(frozen=True, slots=True)
class NodeLoad:
    """Requests of CPU, memory and devices of the pods on one node."""

    used: Amount
    """Requests, limited to the node's allocatable resources."""
    resident: Amount
    """Requests of the pods that terminate with the node."""
    overcommit: Amount
    """Requests beyond the node's allocatable resources."""
    devices: Devices = field(default_factory=dict)
    """Requests of devices, limited to those that the node offers."""
    resident_devices: Devices = field(default_factory=dict)
    """Requests of devices of the pods that terminate with the node."""


_After = tuple[int, Amount, tuple[Amount, ...]]
"""Node id, with its requests and usable capacity after a removal."""


@dataclass(frozen=True, slots=True)
class RemovalEffect:
    """Changes that the removal of a node would cause to nodes and sums; they are not made yet."""

    node: int
    after: Sequence[_After]
    """New values of the nodes that receive its pods."""
    changes: Changes
    """Changes of the sums."""
    devices: DevicesReceived = field(default_factory=dict)
    """Requests of devices that the receivers get."""


@dataclass(eq=False)
class _NodeGroup:
    """Nodes that belong to the same reaches, so that the same sums include them.

    Changes of the sums are computed once for the group, in a row: a list of integers.
    """

    sums: tuple[ReachUtilization, ...]
    """Sums that include the nodes; the whole cluster comes first."""
    evaluator: UsabilityEvaluator
    """Evaluates the usability settings of the sums."""
    usability_columns: tuple[int, ...]
    """First column of each sum's usable capacity in a row of the group."""
    columns: int
    """Length of a row: CPU and memory requested, then usable with each usability setting, then
    requested and offered units of each device."""
    devices: tuple[tuple[str, int, tuple[DeviceUtilization, ...]], ...] = ()
    """For each device: its name, its first column in a row of the group, and its sums."""

    @cached_property
    def own(self) -> frozenset[ReachUtilization | DeviceUtilization]:
        """Return all sums of the cluster, of reaches and of devices that include the nodes."""
        return frozenset(self.sums).union(*(sums for _, _, sums in self.devices))

    def without(self, amount: Amount) -> list[int]:
        """Return the change of the group's row if only its requests fall, by *amount*."""
        return [-amount[0], -amount[1], *(0,) * (self.columns - 2)]


class UtilizationLedger:
    """Capacity, requests and usable capacity of every node, of all reaches and of the cluster."""

    def __init__(
        self,
        nodes: Sequence[Node],
        reaches: Reaches,
        sums: Sequence[ReachUtilization],
        *,
        loads: Sequence[NodeLoad],
        is_open: Sequence[bool],
        devices: Sequence[DeviceUtilization] = (),
    ) -> None:
        """Add the capacity and the requests of all nodes to *sums* and *devices*, which are empty.

        *sums*: the sum of the whole cluster, then that of each reach. *devices*: a sum for each
        device that the pods of a reach request. *loads*: requests by node id. *is_open*: by node
        id, whether the node is schedulable.
        """
        self.total, *self.reaches = sums
        self.devices = devices
        self._device_used = {n: dict(load.devices) for n, load in enumerate(loads) if load.devices}
        self._device_resident = {
            n: load.resident_devices for n, load in enumerate(loads) if load.resident_devices
        }
        self._devices_offered = (
            [node.allocatable.devices for node in nodes] if devices else [NO_DEVICES] * len(nodes)
        )
        self._is_schedulable = is_open
        self._used = [load.used for load in loads]
        self._resident = [load.resident for load in loads]
        self._overcommit = {
            n: load.overcommit for n, load in enumerate(loads) if load.overcommit != NOTHING
        }
        self._capacity = [Amount.of(node.allocatable) for node in nodes]
        groups = {of: _group(sums, of, devices) for of in set(reaches.by_node)}
        self._groups = [
            groups[of] if number in reaches.reached else None
            for number, of in enumerate(reaches.by_node)
        ]
        self._usable = [
            group.evaluator.usable(whole, used) if group else ()
            for group, whole, used in zip(self._groups, self._capacity, self._used, strict=True)
        ]
        self.schedulable_count = sum(is_open)
        """Number of schedulable nodes, including nodes that no pod reaches."""
        self.changed: list[int] = []
        """Log of changed nodes. A value computed at an earlier length is still valid for all other
        nodes."""
        self.displaced_requests = NOTHING
        """Requests of pods displaced by assumed removals, which have no new node yet."""
        self._removed: set[int] = set()
        self._sum_up_loads()
        self._sum_up_capacity()

    def _sum_up_loads(self) -> None:
        # First by group: there are few groups, and adding each node to each of its reaches would
        # take longer.
        lost: dict[_NodeGroup, list[list[int]]] = {}
        for number, group in enumerate(self._groups):
            if group:
                lost.setdefault(group, []).append(self._row_lost(number, group))
        rows = {
            group: [-sum(column) for column in zip(*rows_of_nodes, strict=True)]
            for group, rows_of_nodes in lost.items()
        }
        self._apply((), _by_sums(rows))

    def _sum_up_capacity(self) -> None:
        sum_of: dict[_NodeGroup, tuple[int, int, int]] = {}
        for number, group in enumerate(self._groups):
            if group and self._is_schedulable[number]:
                nodes, cpu, memory = sum_of.get(group, (0, 0, 0))
                capacity = self._capacity[number]
                sum_of[group] = nodes + 1, cpu + capacity[0], memory + capacity[1]
        for group, (nodes, cpu, memory) in sum_of.items():
            for sums in group.sums:
                sums.nodes += nodes
                sums.capacity = sums.capacity.plus(Amount(cpu, memory))

    def _row_lost(self, node: int, group: _NodeGroup) -> list[int]:
        """Return the change of the group's row if the node is removed together with its pods."""
        used = self._used[node]
        schedulable = self._is_schedulable[node]
        if not schedulable:
            row = group.without(used.minus(self._resident[node]))
        else:
            row = [-used[0], -used[1]]
            for amount in self._usable[node]:
                row += (-amount[0], -amount[1])
            row += (0,) * (group.columns - len(row))
        for name, column, _ in group.devices:
            requested = self._device_used.get(node, NO_DEVICES).get(name, 0)
            if schedulable:
                row[column + 1] = -self._devices_offered[node].get(name, 0)
            else:
                requested -= self._device_resident.get(node, NO_DEVICES).get(name, 0)
            row[column] = -requested
        return row

    def is_last(self, node: int) -> bool:
        """Report whether no schedulable node would remain without this node.

        If a movable pod can use the node, only nodes that a movable pod can use count.
        """
        nodes = self.schedulable_count if self._groups[node] is None else self.total.nodes
        return nodes <= (1 if self._is_schedulable[node] else 0)

    def is_reached(self, node: int) -> bool:
        """Report whether a movable pod can use the node. If not, the node is in no sum."""
        return self._groups[node] is not None

    def is_schedulable(self, node: int) -> bool:
        """Report whether the node is schedulable and the plan has not removed it."""
        return self._is_schedulable[node] and node not in self._removed

    def is_removed(self, node: int) -> bool:
        """Report whether the plan has removed the node, or `assume_removed` was called for it."""
        return node in self._removed

    def used(self, node: int) -> Amount:
        """Return the requests of the pods on the node, at most its allocatable resources.

        Pods that the plan has moved count on their new nodes.
        """
        return self._used[node]

    def requested(self, node: int) -> Amount:
        """Return the requests of the pods on the node, even beyond its allocatable resources.

        Pods that the plan has moved count on their new nodes.
        """
        beyond = self._overcommit.get(node)
        return self._used[node].plus(beyond) if beyond else self._used[node]

    def capacity(self, node: int) -> Amount:
        """Return the allocatable resources of the node."""
        return self._capacity[node]

    def totals_without(self, node: int) -> tuple[Amount, Amount]:
        """Return first the requests, then the capacity of the whole cluster without the node.

        Its DaemonSet pods leave the requests; its other pods still count, wherever they are
        placed. An unschedulable node changes nothing.
        """
        requests, whole = self.total.requests, self.total.capacity
        if not self._is_schedulable[node]:
            return requests, whole
        return requests.minus(self._resident[node]), whole.minus(self._capacity[node])

    def removal_effect(
        self, node: int, received: Received, devices: DevicesReceived = NONE_RECEIVED
    ) -> RemovalEffect:
        """Return the changes that the removal of *node* would cause, without making them.

        *received*: pairs of the id of a node that receives its pods, and their requests.
        *devices*: the requests of devices that these nodes receive.
        """
        moved: dict[_NodeGroup, list[int]] = {}
        group = self._groups[node]
        if group is not None:
            moved[group] = self._row_lost(node, group)
        after = [self._with_load(receiver, amount, moved) for receiver, amount in received]
        self._add_devices(devices, moved)
        return RemovalEffect(node, after, _by_sums(moved), devices)

    def _add_devices(self, received: DevicesReceived, moved: dict[_NodeGroup, list[int]]) -> None:
        for node, more in received.items():
            group = self._groups[node]
            for name, column, _ in group.devices if group else ():
                if group and (units := more.get(name)):
                    moved.setdefault(group, [0] * group.columns)[column] += units

    def _with_load(self, node: int, amount: Amount, moved: dict[_NodeGroup, list[int]]) -> _After:
        """Return the values of the node with *amount* more requests; add the change to *moved*.

        *moved*: changes of rows, by group of nodes.
        """
        group, before = self._groups[node], self._usable[node]
        used = self._used[node].plus(amount)
        if group is None:  # no movable pod reaches the node, so the sums do not include it
            return node, used, before
        row = moved.get(group)
        if row is None:
            row = moved[group] = [0] * group.columns
        row[0] += amount[0]
        row[1] += amount[1]
        usable = group.evaluator.usable(self._capacity[node], used)
        if usable != before:
            column = 2
            for new, old in zip(usable, before, strict=True):
                row[column] += new[0] - old[0]
                row[column + 1] += new[1] - old[1]
                column += 2
        return node, used, usable

    def exceeded(self, trial: RemovalEffect, *, marked: bool) -> Iterator[Exceeded]:
        """Yield the sums that would exceed their thresholds after the removal *trial*.

        *marked*: whether the node is marked; then the thresholds include `hysteresis`. Source:
        thesis 4.5.
        """
        group = self._groups[trial.node]
        own = group.own if group else frozenset((self.total,))
        for sums, change in trial.changes.items():
            if sums.exceeds(change, marked=marked):
                yield Exceeded(sums, change, sums in own)

    def surely_within(self, pods: int) -> bool:
        """Report whether no threshold would be exceeded, whichever unmarked node is removed.

        True is valid for all placements of the node's pods; False also means unknown. *pods*: the
        largest number of pods on a node.
        """
        if self.devices or not self._used:
            return False
        # At most as many nodes receive pods as the node has pods. Usable capacity shrinks on each
        # of them by at most its free capacity.
        frees = map(Amount.minus, self._capacity, self._used)
        free, whole = _largest(frees), _largest(self._capacity)
        moved = _largest(map(self.requested, range(len(self._used))))
        lost = (-whole[0] - pods * free[0], -whole[1] - pods * free[1])
        sums = (self.total, *self.reaches)
        return not any(reach_sums.exceeds((*moved, *lost), marked=False) for reach_sums in sums)

    def remove(self, trial: RemovalEffect) -> None:
        """Carry out the removal *trial*, a result of `removal_effect`.

        DaemonSet pods terminate with the node; the requests of all others are added to the nodes
        that receive them.
        """
        self._remove_capacity(trial.node)
        self._apply(trial.after, trial.changes)
        self._add_device_requests(trial.devices)

    def _add_device_requests(self, received: DevicesReceived) -> None:
        for node, more in received.items():
            known = self._device_used.setdefault(node, {})
            for name, units in more.items():
                known[name] = known.get(name, 0) + units

    def _apply(self, after: Iterable[_After], changes: Changes) -> None:
        for node, used, usable in after:
            self._used[node], self._usable[node] = used, usable
            self.changed.append(node)
        for sums, change in changes.items():
            row = sums.row
            for column, value in enumerate(change):
                row[column] += value

    def _remove_capacity(self, node: int) -> None:
        group = self._groups[node]
        self._removed.add(node)
        self.changed.append(node)
        if not self._is_schedulable[node]:  # its capacity is in no sum
            return
        self.schedulable_count -= 1
        for sums in group.sums if group else ():
            sums.nodes -= 1
            sums.capacity = sums.capacity.minus(self._capacity[node])

    def add_load(self, received: Received, devices: DevicesReceived = NONE_RECEIVED) -> None:
        """Add requests to nodes and to the sums of the nodes.

        *received*: pairs of node id and added CPU and memory. *devices*: added units by node id.
        """
        moved: dict[_NodeGroup, list[int]] = {}
        after = [self._with_load(receiver, amount, moved) for receiver, amount in received]
        self._add_devices(devices, moved)
        self._apply(after, _by_sums(moved))
        self._add_device_requests(devices)

    def remove_load(self, node: int, amount: Amount, devices: Devices = NO_DEVICES) -> None:
        """Subtract requests of pods that leave the node from the node and its sums.

        *amount*: their CPU and memory. *devices*: their units by name of the extended resource.
        """
        if devices:
            self.add_load((), {node: {name: -units for name, units in devices.items()}})
        self.changed.append(node)
        if beyond := self._overcommit.get(node):
            first = amount.at_most(beyond)
            self._overcommit[node], amount = beyond.minus(first), amount.minus(first)
        self._used[node] = self._used[node].minus(amount)
        group = self._groups[node]
        if group is not None:
            self._apply((), _by_sums({group: group.without(amount)}))

    def assume_removed(self, node: int) -> None:
        """Remove the capacity of a schedulable node from all sums, but place its pods nowhere.

        Their requests stay in the sums and are added to `displaced_requests`. An unschedulable
        node changes nothing. This is for checks that read only sums.
        """
        if self._is_schedulable[node]:
            self._remove_capacity(node)
            self.remove_load(node, self._resident[node])
            self.displaced_requests = self.displaced_requests.plus(self._used[node])


def _largest(amounts: Iterable[Amount]) -> Amount:
    cpus, memories = zip(*amounts, strict=True)
    return Amount(max(cpus), max(memories))


def _group(
    sums: Sequence[ReachUtilization], of: tuple[int, ...], devices: Sequence[DeviceUtilization]
) -> _NodeGroup:
    mine = (sums[0], *(sums[number + 1] for number in of))
    distinct = list(dict.fromkeys(own.usability for own in mine))
    which = tuple(2 + 2 * distinct.index(own.usability) for own in mine)
    columns = 2 + 2 * len(distinct)
    reaches = frozenset(own.reach.key for own in mine if own.reach)
    by_name: dict[str, list[DeviceUtilization]] = {}
    for device in devices:
        if device.reach.key in reaches:
            by_name.setdefault(device.resource, []).append(device)
    placed = tuple(
        (name, columns + 2 * number, tuple(sums_of_device))
        for number, (name, sums_of_device) in enumerate(by_name.items())
    )
    return _NodeGroup(mine, UsabilityEvaluator(distinct), which, columns + 2 * len(placed), placed)


def _by_sums(
    moved: Mapping[_NodeGroup, Sequence[int]],
) -> dict[ReachUtilization | DeviceUtilization, list[int]]:
    changes: dict[ReachUtilization | DeviceUtilization, list[int]] = {}
    for group, row in moved.items():
        cpu, memory = row[0], row[1]
        for sums, column in zip(group.sums, group.usability_columns, strict=True):
            change = changes.get(sums)
            if change is None:
                changes[sums] = [cpu, memory, row[column], row[column + 1]]
            else:
                change[0] += cpu
                change[1] += memory
                change[2] += row[column]
                change[3] += row[column + 1]
        for _, column, devices in group.devices:
            requested, offered = row[column], row[column + 1]
            # A reach whose devices are all in use must not keep other pods from its nodes.
            if requested or offered:
                for device in devices:
                    total = changes.setdefault(device, [0, 0])
                    total[0] += requested
                    total[1] += offered
    return changes
