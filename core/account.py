"""The sums that thresholds are checked on, kept up to date as nodes go (thesis 4.2 to 4.5).

There is one for each reach (core.reaches), and one for the whole: all nodes that some movable pod
reaches. Nodes have their ids of the Ground. Closed nodes (cordoned, not ready, leaving) give no
capacity; the pods on them that would have to go elsewhere stay in the requests.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final, NamedTuple

from core.capacity import NOTHING, Amount, Measure, Share, Totals, Usability, capacity
from core.model import Node
from core.policies.cluster_threshold import nominated
from core.reaches import Reach, Reaches

RESOURCE_NAMES: Final = ("cpu", "memory")
DECIMALS_MAX: Final = 12
"""Of a percentage, where fewer do not tell it from its limit."""

Received = Iterable[tuple[int, Amount]]
"""(node, what it receives)."""


@dataclass(frozen=True, slots=True)
class Load:
    """What is asked for on one node."""

    used: Amount
    resident: Amount
    """The part that goes with the node."""


class Limit(NamedTuple):
    """A Share as whole numbers: `used * of <= part * whole`, for CPU and for memory."""

    cpu_part: int
    cpu_of: int
    memory_part: int
    memory_of: int


@dataclass(slots=True, eq=False)
class Sums:
    """Of one reach, or of the whole.

    The checks are asked for every node of every plan, so the sums are plain whole numbers:
    CPU and memory requested, CPU and memory usable.
    """

    reach: Reach | None
    """None: the whole."""
    usability: Usability | None
    enter: Share
    leave: Share
    """For nodes that carry a mark."""
    reserve: Amount = NOTHING
    """What the busiest moment needed beyond what is asked for now."""
    nodes: int = 0
    capacity: Amount = NOTHING
    row: list[int] = field(default_factory=lambda: [0] * COLUMNS)

    def totals(self) -> Totals:
        """Return the sums as they stand."""
        return Totals(
            nodes=self.nodes, capacity=self.capacity, requests=self.requests, usable=self.usable
        )

    @property
    def requests(self) -> Amount:
        """Return what is asked for."""
        return Amount(self.row[0], self.row[1])

    @property
    def usable(self) -> Amount:
        """Return the usable capacity."""
        return Amount(self.row[2], self.row[3])

    def over(self, change: Sequence[int], limit: Limit) -> bool:
        """Say whether the *change* would bring the requests, with the reserve, over the limit."""
        row, reserve = self.row, self.reserve
        cpu, memory = row[2] + change[2], row[3] + change[3]
        return (
            cpu <= 0
            or memory <= 0
            or (row[0] + change[0] + reserve[0]) * limit[1] > limit[0] * cpu
            or (row[1] + change[1] + reserve[1]) * limit[3] > limit[2] * memory
        )

    def limit(self, *, marked: bool) -> Limit:
        """Return the thresholds that hold for a node that carries a mark, or for one without."""
        cpu, memory = self.leave if marked else self.enter
        return Limit(cpu.numerator, cpu.denominator, memory.numerator, memory.denominator)


class Exceeded(NamedTuple):
    """Sums that would be over their thresholds, and what they would be."""

    sums: Sums
    requests: Amount
    """Without the reserve."""
    usable: Amount


COLUMNS: Final = 4
Changes = Mapping[Sums, Sequence[int]]
"""By sums: what is added to their row."""


_After = tuple[int, Amount, tuple[Amount, ...]]
"""A node, and what would be used and usable on it."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What would change if a node went: nothing has happened yet."""

    node: int
    after: Sequence[_After]
    """Of the nodes that receive its pods."""
    changes: Changes


@dataclass(slots=True, eq=False)
class _Group:
    """Nodes that count in the same sums."""

    sums: tuple[Sums, ...]
    """The whole first."""
    measure: Measure
    which: tuple[int, ...]
    """By sums: the first column of their usability in a row of the group."""
    columns: int
    """Of a row of the group: CPU and memory requested, then usable by each usability."""


class Account:
    """Capacity, requests and usable capacity of every node, and of all reaches."""

    def __init__(
        self,
        nodes: Sequence[Node],
        reaches: Reaches,
        sums: Sequence[Sums],
        *,
        loads: Sequence[Load],
        is_open: Sequence[bool],
    ) -> None:
        """Sum up; *sums*: empty ones, the whole first, then by reach."""
        self.whole, *self.reaches = sums
        self._open = is_open
        self._used = [load.used for load in loads]
        self._resident = [load.resident for load in loads]
        self._capacity = [capacity(node) for node in nodes]
        groups = {of: _group(sums, of) for of in set(reaches.of)}
        self._groups: list[_Group | None] = [
            groups[of] if number in reaches.reached else None
            for number, of in enumerate(reaches.of)
        ]
        self._usable: list[tuple[Amount, ...]] = []
        self._limits = [
            {one: one.limit(marked=marked) for one in sums} for marked in (False, True)
        ]
        self.standing = 0
        """Open nodes, those that nobody reaches too."""
        for number, group in enumerate(self._groups):
            self.standing += is_open[number]
            whole, used = self._capacity[number], self._used[number]
            self._usable.append(group.measure.usable(whole, used) if group else ())
            if group:
                self._enter(number, group)

    def _enter(self, node: int, group: _Group) -> None:
        if self._open[node]:
            for sums in group.sums:
                sums.nodes += 1
                sums.capacity = sums.capacity.plus(self._capacity[node])
        self._take((), _by_sums({group: [-value for value in self._lost(node, group)]}))

    def _lost(self, node: int, group: _Group) -> list[int]:
        """Return what its going takes away from the row of the node's group."""
        used = self._used[node]
        if not self._open[node]:
            used = used.minus(self._resident[node])
            return [-used[0], -used[1], *(0,) * (group.columns - 2)]
        row = [-used[0], -used[1]]
        for amount in self._usable[node]:
            row += (-amount[0], -amount[1])
        return row

    def is_last(self, node: int) -> bool:
        """Say whether no other node would be left that could take the node's part."""
        return (self.standing if self._groups[node] is None else self.whole.nodes) <= 1

    def nominated(self, node: int, *, marked: bool) -> bool:
        """Ask thesis 4.4 of the node, O(1); nobody asks for a node that no movable pod reaches."""
        if self._groups[node] is None:
            return not self.is_last(node)
        whole = self.whole
        return nominated(
            requests=whole.requests.plus(whole.reserve),
            capacity=whole.capacity,
            daemon=self._gone_with(node),
            node=self._offered(node),
            thresholds=whole.leave if marked else whole.enter,
        )

    def without(self, node: int) -> tuple[Amount, Amount]:
        """Return requests and capacity of the whole without the node."""
        whole = self.whole
        return (
            whole.requests.minus(self._gone_with(node)),
            whole.capacity.minus(self._offered(node)),
        )

    def _gone_with(self, node: int) -> Amount:
        """Return the requests that vanish from the sums with the node."""
        return self._resident[node] if self._open[node] else NOTHING

    def _offered(self, node: int) -> Amount:
        """Return the capacity that the node gives to the sums."""
        return self._capacity[node] if self._open[node] else NOTHING

    def trial(self, node: int, received: Received) -> Trial:
        """Work out what changes if *node* goes and others *received* its pods."""
        moved: dict[_Group, list[int]] = {}
        group = self._groups[node]
        if group is not None:
            moved[group] = self._lost(node, group)
        after = [self._with(receiver, amount, moved) for receiver, amount in received]
        return Trial(node, after, _by_sums(moved))

    def _with(self, node: int, amount: Amount, moved: dict[_Group, list[int]]) -> _After:
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
        usable = group.measure.usable(self._capacity[node], used)
        if usable != before:
            column = 2
            for new, old in zip(usable, before, strict=True):
                row[column] += new[0] - old[0]
                row[column + 1] += new[1] - old[1]
                column += 2
        return node, used, usable

    def exceeded(self, trial: Trial, *, marked: bool) -> Iterator[Exceeded]:
        """Yield the sums that would be over their thresholds.

        Thesis 4.5, for the whole and for every reach that loses the node or gains pods of it. It
        is harder to enter than to stay.
        """
        limits = self._limits[marked]
        for sums, change in trial.changes.items():
            if sums.over(change, limits[sums]):
                yield Exceeded(
                    sums,
                    sums.requests.plus(Amount(change[0], change[1])),
                    sums.usable.plus(Amount(change[2], change[3])),
                )

    def remove(self, trial: Trial) -> None:
        """Let the node go: its daemons vanish, its other pods go to the receivers."""
        self._drop(trial.node)
        self._take(trial.after, trial.changes)

    def _take(self, after: Iterable[_After], changes: Changes) -> None:
        for node, used, usable in after:
            self._used[node], self._usable[node] = used, usable
        for sums, change in changes.items():
            row = sums.row
            for column, value in enumerate(change):
                row[column] += value

    def _drop(self, node: int) -> None:
        group = self._groups[node]
        self.standing -= 1
        for sums in group.sums if group else ():
            sums.nodes -= 1
            sums.capacity = sums.capacity.minus(self._capacity[node])

    def receive(self, received: Received) -> None:
        """Add pods to nodes."""
        moved: dict[_Group, list[int]] = {}
        after = [self._with(receiver, amount, moved) for receiver, amount in received]
        self._take(after, _by_sums(moved))

    def leave(self, node: int, amount: Amount) -> None:
        """Take away from a closed node what has found another place."""
        self._used[node] = self._used[node].minus(amount)
        group = self._groups[node]
        if group is not None:
            row = [-amount[0], -amount[1], *(0,) * (group.columns - 2)]
            self._take((), _by_sums({group: row}))

    def expect(self, node: int) -> None:
        """Count the node as gone, wherever its pods go; for the checks of sums alone."""
        group = self._groups[node]
        if self._open[node]:
            self._drop(node)
            if group is not None:
                resident = self._resident[node]
                row = [-resident[0], -resident[1], *(0,) * (group.columns - 2)]
                self._take((), _by_sums({group: row}))


def _group(sums: Sequence[Sums], of: tuple[int, ...]) -> _Group:
    mine = (sums[0], *(sums[number + 1] for number in of))
    distinct = list(dict.fromkeys(one.usability for one in mine))
    which = tuple(2 + 2 * distinct.index(one.usability) for one in mine)
    return _Group(mine, Measure(distinct), which, 2 + 2 * len(distinct))


def _by_sums(moved: Mapping[_Group, Sequence[int]]) -> dict[Sums, list[int]]:
    found: dict[Sums, list[int]] = {}
    for group, row in moved.items():
        cpu, memory = row[0], row[1]
        for sums, column in zip(group.sums, group.which, strict=True):
            change = found.get(sums)
            if change is None:
                found[sums] = [cpu, memory, row[column], row[column + 1]]
            else:
                change[0] += cpu
                change[1] += memory
                change[2] += row[column]
                change[3] += row[column + 1]
    return found


def excess(used: Amount, whole: Amount, thresholds: Share) -> str:
    """Say which resources are over their threshold, as a person writes it; empty: none."""
    parts = []
    for name, have, total, share in zip(RESOURCE_NAMES, used, whole, thresholds, strict=True):
        if total <= 0:
            parts.append(f"{name} without capacity")
        elif have * share.denominator > share.numerator * total:
            parts.append(f"{name} at {_apart(have, total, share)}")
    return ", ".join(parts)


def _apart(have: int, total: int, share: Fraction) -> str:
    """Write a share and the limit that it is over with as many decimals as tell them apart."""
    pairs = (
        (percent(have, total, n), percent(share.numerator, share.denominator, n))
        for n in range(1, DECIMALS_MAX)
    )
    found, limit = next((one for one in pairs if one[0] != one[1]), ("more", "the limit"))
    return f"{found}, over {limit}"


def percent(part: int, whole: int, decimals: int = 1) -> str:
    """Write a share, rounded up, so that what is over a limit looks so; no zeros at the end."""
    units = -(-part * 100 * 10**decimals // whole)
    head, tail = divmod(units, 10**decimals)
    digits = f"{tail:0{decimals}}".rstrip("0")
    return f"{head}.{digits}%" if digits else f"{head}%"
