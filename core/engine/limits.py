"""Limit removals of nodes: minimums, zone balance, and the limits on new marks.

A lasting limit is a method that yields a message if the node must not be removed next. It is
listed with its reason at the end of this module. Limits on new marks, such as budgets and
cooldowns, are those of core.engine.mark_limits.
"""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import repeat
from typing import Final, NamedTuple

from core.config.budgets import Budget
from core.eligibility.scalability import NOT_SCALABLE
from core.engine import maintenance_gate
from core.engine.leader_state import RateLimits
from core.engine.mark_limits import MARK_LIMITS, End, Ends, MarkLimit, Use
from core.engine.snapshot import NO_POOL, ClusterSnapshot
from core.engine.zones import SCHEDULABLE_NODE, ZoneClass, Zones
from core.model.humanize import plural
from core.model.node import Node
from core.model.node_groups import NodeGroup
from core.model.node_lifecycle import others_taint
from core.model.reason import Blocker, Reason, Timed

_CLUSTER: Final = "the cluster"


@dataclass(slots=True)
class _Count:
    """Numbers of nodes in a pool or in the cluster, updated while a plan is made."""

    nodes: int = 0
    """Nodes that exist now."""
    schedulable: int = 0
    """Schedulable nodes, without the nodes that the plan removes."""
    without_taint: int = 0
    """Nodes without taints other than Ebb's, without the nodes that the plan removes."""
    schedulable_without_taint: int = 0
    """Nodes that count in both `schedulable` and `without_taint`."""
    removed: int = 0
    """Nodes that the plan removes."""
    which: str = ""
    """Text for messages that says which nodes are counted; empty if all nodes are."""

    def add_remaining(self, nodes: int, node_class: "_NodeClass") -> None:
        """Add *nodes* nodes of a class to the counts that exclude nodes removed by the plan.

        A negative number subtracts them, when the plan removes nodes.
        """
        schedulable, without_taint = node_class.schedulable, node_class.without_taint
        self.schedulable += nodes * schedulable
        self.without_taint += nodes * without_taint
        self.schedulable_without_taint += nodes * (schedulable and without_taint)


@dataclass(slots=True)
class _Scope:
    """A pool or the cluster, with its budget and two counts: of all nodes, and of reached nodes.

    A node is reached if a movable pod can use it. Limits on a reached node use the count of
    reached nodes only. So the removal of an unreached node, which affects no pod, uses up no
    budget of reached nodes. Limits on an unreached node use the count of all nodes.
    """

    name: str
    budget: Budget
    all: _Count = field(default_factory=_Count)
    reached: _Count = field(default_factory=lambda: _Count(which=" that pods can use"))
    """Count of the nodes that a movable pod can use."""


@dataclass(slots=True, eq=False)
class _Scopes:
    """The cluster and, if the node has one, its pool, with the counts that limits read."""

    checked: Sequence[tuple[_Scope, _Count]]
    """Scopes, each with the count that the limits are checked with."""
    counts: Sequence[_Count]
    """Counts that include the node."""
    mark_limits: Sequence[tuple[MarkLimit, Use]]
    """Limits on new marks, each with its use in a scope that contains the node. The cluster comes
    first, the pool last."""
    uses: Sequence[Use]
    """Uses in which a mark of the node counts."""


@dataclass(slots=True)
class _LimitUses:
    """The uses of one limit on new marks, by scope, as the limit reads them for a node."""

    limit: MarkLimit
    ends: Ends
    uses: dict[tuple[str, bool], Use] = field(default_factory=dict)
    """By scope, and by whether only reached nodes count."""

    def scopes(self, nodes: Iterable[tuple[Node, str]]) -> list[Sequence[str]]:
        """Return the scopes of each node that can matter; *nodes*: each with its pool."""
        scopes = [self.limit.scopes(node, pool) for node, pool in nodes]
        if self.limit.counts_marks:
            return scopes
        known = self.ends.keys()
        return [() if known.isdisjoint(of_node) else of_node for of_node in scopes]

    def of(self, scope: str, *, reached: bool) -> Use:
        """Return the use in a scope; *reached*: for a node that a movable pod can use."""
        key = scope, reached and self.limit.separates_unreached
        if (use := self.uses.get(key)) is None:
            ends = [end for end in self.ends.get(scope, ()) if end.reached or not key[1]]
            use = self.uses[key] = Use(scope, ends)
        return use

    def counting(self, scope: str, *, reached: bool) -> Iterator[Use]:
        """Yield the uses in a scope in which a mark of a node counts; *reached*: as in `of`."""
        if self.limit.counts_marks:
            yield self.of(scope, reached=False)
            if reached and self.limit.separates_unreached:
                yield self.of(scope, reached=True)


class _NodeClass(NamedTuple):
    """The properties of a node that limits read, such as its scopes, mark and node group.

    Nodes with equal properties form a class. The limits are evaluated once for each class.
    """

    scopes: _Scopes
    marked: bool
    schedulable: bool
    without_taint: bool
    """Whether the node has no taints other than Ebb's."""
    low_price: Fraction | None
    """Price of the node for an hour, if it is lower than `minSavings`; else None."""
    group: NodeGroup | None
    """Node group of Cluster Autoscaler, if the node counts as one of its nodes; else None."""
    zone: ZoneClass | None
    """Similar nodes of its zone, if the zone is compared with other zones; else None."""


class RemovalLimits:
    """Count the removals of one plan, and report the limits that the next removal would exceed."""

    def __init__(self, snapshot: ClusterSnapshot, rate_limits: RateLimits | None) -> None:
        """Count the existing nodes of the snapshot.

        *rate_limits*: None if only the lasting limits apply, such as minimum sizes and zone
        balance.
        """
        budgets = snapshot.config.budgets
        self._budgets, self._snapshot = budgets, snapshot
        self._beginning = rate_limits.beginning.blockers if rate_limits else ()
        self._limit_uses = [
            _LimitUses(limit, ends)
            for limit, ends in (rate_limits.of_limits() if rate_limits else ())
            if ends or limit.counts_marks
        ]
        """Limits on new marks that can forbid a mark, in the order in which they are reported."""
        self._cluster_scope = _Scope(_CLUSTER, budgets.cluster)
        self._pools = {
            pool.name: _Scope(f"pool {pool.name}", pool.budget) for pool in budgets.pools
        }
        existing = frozenset(
            number
            for number, node in enumerate(snapshot.node_order.nodes)
            if node.name not in snapshot.leaving_nodes and not node.virtual
        )
        """Ids of the nodes that count as existing: they are neither leaving nor virtual."""
        self._zones = Zones(snapshot, existing) if budgets.balance_zones else None
        self._classes = self._class_nodes(existing)
        """Class of each node, by the id of the node."""
        self._blockers_by_class: dict[_NodeClass, Sequence[Blocker]] = {}
        """Results of `_evaluate`, valid until the next removal is counted."""
        self._group_sizes: Counter[NodeGroup] = Counter()
        """Nodes of each group, without the nodes that the plan removes."""
        classes = Counter(self._classes[number] for number in existing)
        for node_class, nodes in classes.items():
            for count in node_class.scopes.counts:
                count.nodes += nodes
                count.add_remaining(nodes, node_class)
            for use in node_class.scopes.uses:
                use.nodes += nodes
                use.marked += nodes * node_class.marked
            if node_class.group is not None:
                self._group_sizes[node_class.group] += nodes

    def _scopes_by_node(self) -> Iterator[_Scopes]:
        """Yield the scopes of each node, in node order; the same object for equal scopes."""
        nodes, reached = self._snapshot.node_order.nodes, self._snapshot.reaches.reached
        pools = [self._snapshot.pool_names.get(node.name, NO_POOL) for node in nodes]
        of_limits = [uses.scopes(zip(nodes, pools, strict=True)) for uses in self._limit_uses]
        rows = zip(*of_limits, strict=True) if of_limits else repeat(())
        known: dict[tuple[str, bool, Sequence[Sequence[str]]], _Scopes] = {}
        for number, (pool, limit_scopes) in enumerate(zip(pools, rows, strict=False)):
            key = pool, number in reached, limit_scopes
            if key not in known:
                known[key] = self._scopes_of(pool, limit_scopes, reached=key[1])
            yield known[key]

    def _scopes_of(
        self, pool: str, limit_scopes: Sequence[Sequence[str]], *, reached: bool
    ) -> _Scopes:
        """Return the scopes of nodes; *limit_scopes*: those of each limit on new marks."""
        ranked = sorted(
            (rank, number, scope)
            for number, of_limit in enumerate(limit_scopes)
            for rank, scope in enumerate(of_limit)
        )
        uses = [(self._limit_uses[number], scope) for _, number, scope in ranked]
        scopes = [self._cluster_scope]
        if pool != NO_POOL:
            scopes.append(self._pools[pool])
        of_reached = [scope.reached for scope in scopes] if reached else []
        of_all = [scope.all for scope in scopes]
        return _Scopes(
            list(zip(scopes, of_reached or of_all, strict=True)),
            [*of_all, *of_reached],
            [(of_limit.limit, of_limit.of(scope, reached=reached)) for of_limit, scope in uses],
            [use for of_limit, scope in uses for use in of_limit.counting(scope, reached=reached)],
        )

    def _class_nodes(self, existing: Container[int]) -> list[_NodeClass]:
        snapshot = self._snapshot
        zones = self._zones.of_node if self._zones else {}
        return [
            _NodeClass(
                scopes=scopes,
                marked=node.name in snapshot.marks,
                schedulable=node.name not in snapshot.unschedulable_nodes,
                # The nodes of the node order do not have Ebb's taint.
                without_taint=not node.taints or others_taint(node) is None,
                low_price=self._low_prices.get(node.name),
                group=snapshot.scalability[node.name].group if number in existing else None,
                zone=zones.get(number),
            )
            for number, (node, scopes) in enumerate(
                zip(snapshot.node_order.nodes, self._scopes_by_node(), strict=True)
            )
        ]

    @cached_property
    def _low_prices(self) -> Mapping[str, Fraction]:
        config = self._snapshot.config
        least = config.min_savings
        if not least or not config.prices:
            return {}
        prices = {node.name: config.price_of(node.labels) for node in self._snapshot.cluster.nodes}
        return {name: price for name, price in prices.items() if price < least}

    def blockers(self, node: Node) -> Sequence[Blocker]:
        """Return the reasons of all limits that forbid to remove the node next; maybe none.

        Most limits, such as budgets and cooldowns, do not apply to marked nodes.
        """
        node_class = self._classes[self._snapshot.node_order.ids[node.name]]
        blockers = self._blockers_by_class.get(node_class)
        if blockers is None:
            blockers = self._blockers_by_class[node_class] = self._evaluate(node_class)
        return blockers

    def _evaluate(self, node_class: _NodeClass) -> Sequence[Blocker]:
        marked = node_class.marked
        lasting = LASTING if marked else (*LASTING, *LASTING_UNMARKED_ONLY)
        blockers = [
            Blocker(reason, why) for reason, rule in lasting for why in rule(self, node_class)
        ]
        if not marked:
            blockers += filter(self._holds, (*self._beginning, *self._mark_blockers(node_class)))
        return blockers

    def _mark_blockers(self, node_class: _NodeClass) -> Iterator[Blocker]:
        for limit, use in node_class.scopes.mark_limits:
            why = limit.describe(use, self._snapshot.config)
            if isinstance(why, Timed):
                yield Blocker(limit.reason, why.message, until=why.until)
            elif why is not None:
                yield Blocker(limit.reason, why)

    def _holds(self, blocker: Blocker) -> bool:
        now, until = self._snapshot.now, blocker.until
        return now is None or until is None or now.before(until)

    def no_pool(self, node_class: _NodeClass) -> Iterator[str]:
        """Yield a message if pools are configured and none selects the node."""
        if self._pools and len(node_class.scopes.checked) == 1:
            yield "the node is in none of the configured `pools`"

    def group_minimum(self, node_class: _NodeClass) -> Iterator[str]:
        """Yield a message if the node group would fall below its minimum size.

        Cluster Autoscaler counts all nodes of the group, whether they are Ready or not.
        """
        group = node_class.group
        if group is not None and self._group_sizes[group] <= group.min_size:
            left = plural(self._group_sizes[group] - 1, "node")
            least = group.min_size
            yield (
                f"without the node, node group {group.name} would have {left}; its minimum is "
                f"{least}"
            )

    def min_untainted(self, node_class: _NodeClass) -> Iterator[str]:
        """Yield a message if too few nodes without taints would remain.

        Ebb's own taint is ignored.
        """
        marked = node_class.marked
        if not node_class.without_taint or not (marked or node_class.schedulable):
            return
        scope, count = node_class.scopes.checked[0]  # the cluster
        left = (count.without_taint if marked else count.schedulable_without_taint) - 1
        least = self._budgets.min_untainted_nodes
        if left < least:
            nodes = plural(left, "node without a taint", "nodes without a taint")
            yield (
                f"without the node, {scope.name} would have {nodes}; `minUntaintedNodes` is "
                f"{least}"
            )

    def min_nodes(self, node_class: _NodeClass) -> Iterator[str]:
        """Yield a message for the cluster and for the pool if too few nodes would remain.

        For unmarked schedulable nodes only schedulable nodes count. For marked nodes all nodes
        count, so that one NotReady node does not remove a mark.
        """
        only_schedulable = node_class.schedulable and not node_class.marked
        for scope, count in node_class.scopes.checked:
            left = (count.schedulable if only_schedulable else count.nodes - count.removed) - 1
            least = scope.budget.min_nodes
            if left < least:
                nouns = SCHEDULABLE_NODE if only_schedulable else ("node", "nodes")
                nodes = plural(left, *(f"{noun}{count.which}" for noun in nouns))
                yield f"without the node, {scope.name} would have {nodes}; `minNodes` is {least}"

    def min_savings(self, node_class: _NodeClass) -> Iterator[str]:
        """Yield a message if the node costs less for an hour than `minSavings`."""
        if (price := node_class.low_price) is not None:
            least = self._snapshot.config.min_savings
            yield (
                f"the price of the node for an hour is {float(price):g}; `minSavings` is "
                f"{float(least):g}"
            )

    def zone_balance(self, node_class: _NodeClass) -> Iterator[str]:
        """Yield a message if too few nodes would remain in the node's zone."""
        if node_class.zone and (why := node_class.zone.explain()):
            yield why

    def count_removal(self, node: Node) -> None:
        """Count the node as removed by the plan, before limits are asked about further nodes."""
        number = self._snapshot.node_order.ids[node.name]
        node_class = self._classes[number]
        for count in node_class.scopes.counts:
            count.removed += 1
            count.add_remaining(-1, node_class)
        for use in () if node_class.marked else node_class.scopes.uses:
            use.ends.append(End())
        if node_class.group is not None:
            self._group_sizes[node_class.group] -= 1
        if self._zones:
            self._zones.count_removal(number)
        self._blockers_by_class.clear()


IN_NO_POOL: Final = Reason(
    "no-pool",
    "Pools are configured and the node is in none of them. Ebb never removes such nodes.",
    "add a pool that selects the node by its labels to `pools`",
    "a configured pool selects the node",
)
MIN_NODES: Final = Reason(
    "min-nodes",
    "The cluster, or the node's pool, would have fewer nodes than the configured minimum.",
    "lower `minNodes` (of `budgets`, or of the pool) if the minimum is not intended",
    "the cluster or pool keeps more than `minNodes` schedulable nodes after the planned removals",
)
MIN_UNTAINTED: Final = Reason(
    "min-untainted-nodes",
    "The cluster would have fewer nodes without a taint than the configured minimum.",
    "lower `budgets.minUntaintedNodes` if the minimum is not intended",
    "the cluster has more than `budgets.minUntaintedNodes` schedulable nodes without a mark and "
    "without other taints",
)
ZONE_BALANCE: Final = Reason(
    "zone-balance",
    "The node's zone would have at least two fewer schedulable nodes than another zone.",
    "wait until nodes of the larger zones are removed; or set `balanceZones: false`",
    "no zone has more schedulable nodes than the node's zone after the planned removals",
)
MIN_SAVINGS: Final = Reason(
    "min-savings",
    "The price of the node is lower than `minSavings`, so its removal is not worth the effort.",
    "lower `minSavings`; or add an entry for the node to `prices`",
    "the node costs at least `minSavings`",
)

_Rule = Callable[[RemovalLimits, _NodeClass], Iterator[str]]

LASTING: Final[Sequence[tuple[Reason, _Rule]]] = (
    (IN_NO_POOL, RemovalLimits.no_pool),
    (NOT_SCALABLE, RemovalLimits.group_minimum),
    (MIN_UNTAINTED, RemovalLimits.min_untainted),
    (MIN_NODES, RemovalLimits.min_nodes),
)
"""Limits that always apply."""
LASTING_UNMARKED_ONLY: Final[Sequence[tuple[Reason, _Rule]]] = (
    (MIN_SAVINGS, RemovalLimits.min_savings),
    (ZONE_BALANCE, RemovalLimits.zone_balance),
)
"""Further limits that always apply to unmarked nodes."""
_LASTING_REASONS: Final = tuple(reason for reason, _ in (*LASTING, *LASTING_UNMARKED_ONLY))
LASTING_REASONS: Final = frozenset(_LASTING_REASONS)
"""Reasons that do not end when requests fall."""
MARK_REASONS: Final = (*maintenance_gate.REASONS, *(limit.reason for limit in MARK_LIMITS))
"""Reasons against new marks in the running controller."""
REASONS: Final = (*_LASTING_REASONS, *MARK_REASONS)
