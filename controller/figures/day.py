"""Count what happens on a day, so that any leader can continue where the previous one has stopped.

Marks and removed nodes are found by comparison with what was there before, which is stored too. So
the next leader also counts what happened while nobody led, and two leaders count nothing twice.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Final, NamedTuple

from controller.figures.savings import CREDIT_SECONDS_MAX, HOUR_SECONDS, SavingsFigures
from core.eligibility.scalability import group_name
from core.engine.reconcile import ReconcileResult
from core.engine.snapshot import NO_POOL
from core.history.days import DAY_SECONDS, NO_COST, NOTHING, Day, PoolDay
from core.history.today import (
    EARLIER_MAX,
    REMOVED_MAX,
    SAMPLE_SECONDS,
    SAMPLES_MAX,
    Credit,
    MarkedNode,
    Rates,
    RemovedNode,
    Sample,
    Today,
)
from core.marks.mark import ExistingMark, decode_details
from core.model.node import Node

CLOCKS_APART_SECONDS_MAX: Final = 300
"""Maximum clock skew between leaders. No leader counted further into the future."""
UNKNOWN: Final = "unknown"
"""Reason code of an unmark by another leader, or by hand."""


class Happened(NamedTuple):
    """A write of this leader that the next reconciliation counts."""

    node: str
    unmarked: str = ""
    """Code of the reason for which the node was unmarked; empty if a pod was moved from it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DayFigures:
    """The figures of the current day, without those of SavingsFigures that are stored with it."""

    today: Today | None = None
    """None before the first reconciliation."""
    pools: Mapping[str, tuple[Node, str]] = field(default_factory=dict)
    """Existing nodes with their pool, by name, so that each pool is searched once."""
    codes: Mapping[str, str] = field(default_factory=dict)
    """Reason code of each unmark of this leader that no reconciliation has seen yet, by node."""
    planned: Mapping[str, int] = field(default_factory=dict)
    """Number of pods that the last plan has placed on other nodes, by removable node."""
    early: Mapping[str, int] = field(default_factory=dict)
    """Number of pods moved from each node whose mark no reconciliation has seen yet."""

    def restored(self, stored: Today | None, now: int) -> "DayFigures":
        """Return the figures that continue *stored*, or these if it cannot be continued."""
        if stored is None or stored.counted_until > now + CLOCKS_APART_SECONDS_MAX:
            return self
        return replace(self, today=stored)

    def observe(
        self,
        result: ReconcileResult,
        before: SavingsFigures,
        removable: Mapping[str, Fraction],
        *,
        waiting: int,
        happened: Sequence[Happened],
        seconds_max: int,
    ) -> "DayFigures":
        """Return the figures after a further reconciliation, which has this result.

        *before*: the savings before it. *removable*: prices of the nodes that its plan can remove,
        by name. *waiting*: pods that are Pending because of a mark.
        *seconds_max*: maximum time since the last reconciliation that counts.
        """
        at = result.at
        today = self.today
        if today is None:
            day = Day(number=at // DAY_SECONDS)
            today = Today(counted_until=at, day=day, all_marked=False)
        since = today.counted_until
        today = _until(today, at, before.credits, seconds_max)
        today = replace(today, waiting=waiting)
        if moved := Counter(one.node for one in happened if not one.unmarked):
            today = _with_moved(today, moved, self.pools)
        early = Counter(self.early)
        early.update({name: pods for name, pods in moved.items() if name not in today.marked})
        codes = {**self.codes, **{one.node: one.unmarked for one in happened if one.unmarked}}
        if result.skipped:
            return replace(self, today=today, codes=codes, early=early)
        pools = _pools(self.pools, result)
        today = _with_marks(today, result, pools, codes, since)
        today = _with_removed(today, result, before)
        placed = {one.node: len(one.placements) for one in result.plan.removals}
        # The plan before this one has led to the new marks; pods may have been moved since.
        marked = _marked(
            today.marked, result, pools, planned={**placed, **self.planned}, early=early
        )
        rates = _rates(removable, pools)
        today = _with_sample(replace(today, marked=marked, all_marked=True, rates=rates), result)
        codes = {name: code for name, code in codes.items() if name in marked}
        return DayFigures(today=today, pools=pools, codes=codes, planned=placed)


def _until(today: Today, at: int, earned: Sequence[Credit], seconds_max: int) -> Today:
    """Return the figures counted until the Unix second *at*, split at midnight."""
    since = today.counted_until
    seconds = min(max(at - since, 0), seconds_max)
    midnight = (today.day.number + 1) * DAY_SECONDS
    if at >= midnight:
        until_midnight = min(seconds, midnight - since)
        today = _grown(today, until_midnight, earned)
        earlier = (*today.earlier, today.day.summed_up())[-EARLIER_MAX:]
        today = replace(today, day=Day(number=at // DAY_SECONDS), earlier=earlier)
        seconds -= until_midnight
    return replace(_grown(today, seconds, earned), counted_until=max(at, since))


def _grown(today: Today, seconds: int, earned: Sequence[Credit]) -> Today:
    """Return the figures after *seconds* in which nothing happened."""
    if not seconds:
        return today
    saved, prices = Counter[str](), dict[str, Fraction]()
    for credit in earned:
        saved[credit.pool] += 1
        prices[credit.pool] = prices.get(credit.pool, NO_COST) + credit.price
    hours, more = Fraction(seconds, HOUR_SECONDS), {}
    for pool in today.rates.keys() | saved.keys():
        rates, price = today.rates.get(pool, Rates()), prices.get(pool, NO_COST)
        more[pool] = PoolDay(
            node_seconds=rates.nodes * seconds,
            expected_seconds=(rates.removable + saved[pool]) * seconds,
            expected_cost=(rates.removable_price + price) * hours,
            saved_seconds=saved[pool] * seconds,
            saved_cost=price * hours,
        )
    waited = today.day.waited_seconds + today.waiting * seconds
    counting = {(credit.node, credit.until) for credit in earned}
    removed = tuple(
        one._replace(
            saved_seconds=one.saved_seconds + seconds,
            saved_cost=one.saved_cost + one.price * hours,
        )
        if (one.node, one.removed_at + CREDIT_SECONDS_MAX) in counting
        else one
        for one in today.removed
    )
    day = replace(today.day.plus(more), waited_seconds=waited)
    return replace(today, day=day, removed=removed)


def _pools(
    before: Mapping[str, tuple[Node, str]], result: ReconcileResult
) -> Mapping[str, tuple[Node, str]]:
    """Return each node with its pool: its node group, or else that of the configuration."""
    names, pools = result.snapshot.pool_names, {}
    for node in result.snapshot.cluster.nodes:
        known, own = before.get(node.name), names.get(node.name, NO_POOL)
        if known is not None and known[0] is node and own in (NO_POOL, known[1]):
            pools[node.name] = known
        else:
            pools[node.name] = node, group_name(node, own)
    return pools


def _add(more: dict[str, PoolDay], pool: str, figures: PoolDay) -> None:
    more[pool] = more.get(pool, NOTHING).plus(figures)


def _with_moved(
    today: Today, moved: Mapping[str, int], pools: Mapping[str, tuple[Node, str]]
) -> Today:
    """Return the figures with pods that Ebb has moved; *moved*: their number by node."""
    marked, more = dict(today.marked), dict[str, PoolDay]()
    for name, pods in moved.items():
        pool = pools[name][1] if name in pools else ""
        if name in marked:
            pool, before = marked[name].pool, marked[name].moved
            marked[name] = marked[name]._replace(moved=before + pods)
        _add(more, pool, PoolDay(moved=pods))
    return replace(today, day=today.day.plus(more), marked=marked)


def _with_marks(
    today: Today,
    result: ReconcileResult,
    pools: Mapping[str, tuple[Node, str]],
    codes: Mapping[str, str],
    since: int,
) -> Today:
    """Return the figures with new and removed marks.

    *codes*: reason code of each unmark of this leader, by node. *since*: Unix second up to which
    the previous figures counted.
    """
    snapshot, day = result.snapshot, today.day
    more = dict[str, PoolDay]()
    for name, mark in snapshot.marks.items():
        if _is_new(today, name, mark, since):
            _add(more, pools[name][1], PoolDay(marks=1))
    for name in _unmarked(today, result):
        _add(more, pools[name][1], PoolDay(unmarks=1))
        day = day.with_unmark(codes.get(name, UNKNOWN))
    return replace(today, day=day.plus(more))


def _is_new(today: Today, name: str, mark: ExistingMark, since: int) -> bool:
    known = today.marked.get(name)
    if known is None:
        return today.all_marked or mark.since >= since
    return mark.since > known.since


def _unmarked(today: Today, result: ReconcileResult) -> Iterable[str]:
    # A node that is being deleted is unmarked too, but that ends no attempt to remove it.
    existing = result.snapshot.node_order.ids
    return sorted(
        name
        for name in today.marked
        if name in existing
        and name not in result.snapshot.marks
        and name not in result.snapshot.leaving_nodes
    )


def _with_removed(today: Today, result: ReconcileResult, before: SavingsFigures) -> Today:
    """Return the figures with the nodes that were removed after Ebb had allowed it."""
    removed, more, at = list(today.removed), dict[str, PoolDay](), result.at
    for name, allowed in sorted(before.allowed.items()):
        if name in result.snapshot.node_order.ids:
            continue
        _add(more, allowed.pool, PoolDay(removed=1))
        since, price = allowed.since, allowed.price
        mark = today.marked.get(name) or MarkedNode(since, since, allowed.pool, price, 0)
        removed.append(
            RemovedNode(
                node=name,
                pool=mark.pool,
                marked_at=mark.since,
                deadline=mark.deadline,
                price=mark.price,
                pods=mark.pods,
                allowed_at=since,
                removed_at=at,
                moved=mark.moved,
            )
        )
    return replace(today, day=today.day.plus(more), removed=tuple(removed[-REMOVED_MAX:]))


def _marked(
    before: Mapping[str, MarkedNode],
    result: ReconcileResult,
    pools: Mapping[str, tuple[Node, str]],
    *,
    planned: Mapping[str, int],
    early: Mapping[str, int],
) -> Mapping[str, MarkedNode]:
    """Return the marked nodes, each with what the plan said when it was marked.

    *planned*: pods that the plan placed on other nodes, by node. *early*: pods moved from nodes
    that no reconciliation has seen marked yet.
    """
    snapshot, marked = result.snapshot, {}
    for name in before.keys() & snapshot.leaving_nodes - snapshot.marks.keys():
        marked[name] = before[name]
    for name, mark in snapshot.marks.items():
        known = before.get(name)
        if known is not None and mark.since <= known.since:
            marked[name] = known
            continue
        node, pool = pools[name]
        details, since = decode_details(node.annotations), mark.since or result.at
        marked[name] = MarkedNode(
            since=since,
            deadline=details.deadline if details else since,
            pool=pool,
            price=snapshot.config.price_of(node.labels),
            pods=planned.get(name, 0),
            moved=early.get(name, 0),
        )
    return marked


def _rates(
    removable: Mapping[str, Fraction], pools: Mapping[str, tuple[Node, str]]
) -> Mapping[str, Rates]:
    rates = Counter(pool for node, pool in pools.values() if not node.virtual)
    removed, prices = Counter[str](), dict[str, Fraction]()
    for name, price in removable.items():
        pool = pools[name][1]
        removed[pool] += 1
        prices[pool] = prices.get(pool, NO_COST) + price
    return {
        pool: Rates(nodes, removed[pool], prices.get(pool, NO_COST))
        for pool, nodes in sorted(rates.items())
    }


def _with_sample(today: Today, result: ReconcileResult) -> Today:
    at, snapshot = result.at, result.snapshot
    last = today.samples[-1].at if today.samples else 0
    if at // SAMPLE_SECONDS <= last // SAMPLE_SECONDS:
        return today
    sample = Sample(
        at,
        nodes=sum(rates.nodes for rates in today.rates.values()),
        marked=len(snapshot.marks),
        removed=today.day.total.removed,
        pending=len(snapshot.pods.unschedulable),
    )
    recent = tuple(one for one in today.samples if one.at > at - DAY_SECONDS)
    return replace(today, samples=(*recent, sample)[-SAMPLES_MAX:])
