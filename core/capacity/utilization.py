"""The sums that thresholds are checked on, kept up to date as nodes go (thesis 4.2 to 4.5).

There is one for each reach (core.capacity.reaches), and one for the whole: all nodes that some
movable pod reaches. Nodes have their ids of the Ground. Closed nodes (cordoned, not ready,
leaving) give no capacity; the pods on them that would have to go elsewhere stay in the requests.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from core.capacity.reaches import Reaches
from core.capacity.sums import Changes, Exceeded, ReachUtilization
from core.capacity.usable import NOTHING, Amount, UsabilityEvaluator
from core.model.node import Node

Received = Iterable[tuple[int, Amount]]
"""(node, what it receives)."""


@dataclass(frozen=True, slots=True)
class NodeLoad:
    """What is asked for on one node."""

    used: Amount
    """Of each resource no more than there is."""
    resident: Amount
    """The part that goes with the node."""
    overcommit: Amount
    """What is asked for beyond what there is."""


_After = tuple[int, Amount, tuple[Amount, ...]]
"""A node, and what would be used and usable on it."""


@dataclass(frozen=True, slots=True)
class RemovalEffect:
    """What would change if a node went: nothing has happened yet."""

    node: int
    after: Sequence[_After]
    """Of the nodes that receive its pods."""
    changes: Changes


@dataclass(slots=True, eq=False)
class _Group:
    """Nodes that count in the same sums."""

    sums: tuple[ReachUtilization, ...]
    """The whole first."""
    evaluator: UsabilityEvaluator
    usability_columns: tuple[int, ...]
    """By sums: the first column of their usability in a row of the group."""
    columns: int
    """Of a row of the group: CPU and memory requested, then usable by each usability."""

    def without(self, amount: Amount) -> list[int]:
        """Return the row of so much less that is asked for, with nothing more usable."""
        return [-amount[0], -amount[1], *(0,) * (self.columns - 2)]


class UtilizationLedger:
    """Capacity, requests and usable capacity of every node, and of all reaches."""

    def __init__(
        self,
        nodes: Sequence[Node],
        reaches: Reaches,
        sums: Sequence[ReachUtilization],
        *,
        loads: Sequence[NodeLoad],
        is_open: Sequence[bool],
    ) -> None:
        """Sum up; *sums*: empty ones, the whole first, then by reach."""
        self.total, *self.reaches = sums
        self._is_schedulable = is_open
        self._used = [load.used for load in loads]
        self._resident = [load.resident for load in loads]
        self._overcommit = {
            n: load.overcommit for n, load in enumerate(loads) if load.overcommit != NOTHING
        }
        self._capacity = [Amount.of(node.allocatable) for node in nodes]
        groups = {of: _group(sums, of) for of in set(reaches.by_node)}
        self._groups = [
            groups[of] if number in reaches.reached else None
            for number, of in enumerate(reaches.by_node)
        ]
        self._usable: list[tuple[Amount, ...]] = []
        self.schedulable_count = 0
        """Open nodes, those that nobody reaches too."""
        self.changed: list[int] = []
        """Nodes, as they change: what was worked out when it was shorter holds for all others."""
        self.displaced_requests = NOTHING
        """Asked for by the pods of nodes that count as gone, wherever these go."""
        self._removed: set[int] = set()
        rows = {group: [0] * group.columns for group in groups.values()}
        for number, group in enumerate(self._groups):
            self.schedulable_count += is_open[number]
            whole, used = self._capacity[number], self._used[number]
            self._usable.append(group.evaluator.usable(whole, used) if group else ())
            if group:
                row = rows[group]
                for column, lost in enumerate(self._row_lost(number, group)):
                    row[column] -= lost
        self._apply((), _by_sums(rows))
        self._sum_up_capacity()

    def _sum_up_capacity(self) -> None:
        """Sum up by group first: there are few of them."""
        found: dict[_Group, tuple[int, int, int]] = {}
        for number, group in enumerate(self._groups):
            if group and self._is_schedulable[number]:
                nodes, cpu, memory = found.get(group, (0, 0, 0))
                one = self._capacity[number]
                found[group] = nodes + 1, cpu + one[0], memory + one[1]
        for group, (nodes, cpu, memory) in found.items():
            for sums in group.sums:
                sums.nodes += nodes
                sums.capacity = sums.capacity.plus(Amount(cpu, memory))

    def _row_lost(self, node: int, group: _Group) -> list[int]:
        """Return what its going takes away from the row of the node's group."""
        used = self._used[node]
        if not self._is_schedulable[node]:
            return group.without(used.minus(self._resident[node]))
        row = [-used[0], -used[1]]
        for amount in self._usable[node]:
            row += (-amount[0], -amount[1])
        return row

    def is_last(self, node: int) -> bool:
        """Say whether no other node would be left that could take the node's part."""
        nodes = self.schedulable_count if self._groups[node] is None else self.total.nodes
        return nodes <= (1 if self._is_schedulable[node] else 0)

    def is_reached(self, node: int) -> bool:
        """Say whether some movable pod reaches the node; it is in no sum otherwise."""
        return self._groups[node] is not None

    def is_schedulable(self, node: int) -> bool:
        """Say whether the node takes pods and has not gone."""
        return self._is_schedulable[node] and node not in self._removed

    def is_removed(self, node: int) -> bool:
        """Say whether it went, or counts as gone."""
        return node in self._removed

    def used(self, node: int) -> Amount:
        """Return what is asked for on the node, with pods moved as far as it has been decided.

        Of each resource no more than there is.
        """
        return self._used[node]

    def requested(self, node: int) -> Amount:
        """Return the same with what is asked for beyond what the node has."""
        beyond = self._overcommit.get(node)
        return self._used[node].plus(beyond) if beyond else self._used[node]

    def capacity(self, node: int) -> Amount:
        """Return what the node has for pods."""
        return self._capacity[node]

    def totals_without(self, node: int) -> tuple[Amount, Amount]:
        """Return requests and capacity of the whole without the node."""
        requests, whole = self.total.requests, self.total.capacity
        if not self._is_schedulable[node]:
            return requests, whole
        return requests.minus(self._resident[node]), whole.minus(self._capacity[node])

    def removal_effect(self, node: int, received: Received) -> RemovalEffect:
        """Work out what changes if *node* goes and others *received* its pods."""
        moved: dict[_Group, list[int]] = {}
        group = self._groups[node]
        if group is not None:
            moved[group] = self._row_lost(node, group)
        after = [self._with_load(receiver, amount, moved) for receiver, amount in received]
        return RemovalEffect(node, after, _by_sums(moved))

    def _with_load(self, node: int, amount: Amount, moved: dict[_Group, list[int]]) -> _After:
        """Return a node with *amount* more on it, and add the change to its group's row."""
        group, before = self._groups[node], self._usable[node]
        used = self._used[node].plus(amount)
        if group is None:  # no movable pod reaches it: none is placed there
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
        """Yield the sums that would be over their thresholds (thesis 4.5)."""
        group = self._groups[trial.node]
        own = group.sums if group else (self.total,)
        for sums, change in trial.changes.items():
            if sums.exceeds(change, marked=marked):
                yield Exceeded(sums, change, sums in own)

    def remove(self, trial: RemovalEffect) -> None:
        """Let the node go: its daemons vanish, its other pods go to the receivers."""
        self._remove_capacity(trial.node)
        self._apply(trial.after, trial.changes)

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
        if not self._is_schedulable[node]:  # counted nowhere
            return
        self.schedulable_count -= 1
        for sums in group.sums if group else ():
            sums.nodes -= 1
            sums.capacity = sums.capacity.minus(self._capacity[node])

    def add_load(self, received: Received) -> None:
        """Add pods to nodes."""
        moved: dict[_Group, list[int]] = {}
        after = [self._with_load(receiver, amount, moved) for receiver, amount in received]
        self._apply(after, _by_sums(moved))

    def remove_load(self, node: int, amount: Amount) -> None:
        """Take away from a node what has found another place, or goes with it."""
        self.changed.append(node)
        if beyond := self._overcommit.get(node):
            first = amount.at_most(beyond)
            self._overcommit[node], amount = beyond.minus(first), amount.minus(first)
        self._used[node] = self._used[node].minus(amount)
        group = self._groups[node]
        if group is not None:
            self._apply((), _by_sums({group: group.without(amount)}))

    def assume_removed(self, node: int) -> None:
        """Count the node as gone, wherever its pods go; for the checks of sums alone."""
        if self._is_schedulable[node]:
            self._remove_capacity(node)
            self.remove_load(node, self._resident[node])
            self.displaced_requests = self.displaced_requests.plus(self._used[node])


def _group(sums: Sequence[ReachUtilization], of: tuple[int, ...]) -> _Group:
    mine = (sums[0], *(sums[number + 1] for number in of))
    distinct = list(dict.fromkeys(one.usability for one in mine))
    which = tuple(2 + 2 * distinct.index(one.usability) for one in mine)
    return _Group(mine, UsabilityEvaluator(distinct), which, 2 + 2 * len(distinct))


def _by_sums(moved: Mapping[_Group, Sequence[int]]) -> dict[ReachUtilization, list[int]]:
    found: dict[ReachUtilization, list[int]] = {}
    for group, row in moved.items():
        cpu, memory = row[0], row[1]
        for sums, column in zip(group.sums, group.usability_columns, strict=True):
            change = found.get(sums)
            if change is None:
                found[sums] = [cpu, memory, row[column], row[column + 1]]
            else:
                change[0] += cpu
                change[1] += memory
                change[2] += row[column]
                change[3] += row[column + 1]
    return found
