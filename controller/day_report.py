"""Define the figures of a day in the leader's report, and in the answer of `ebb history`."""

import datetime as dt
from collections.abc import Mapping, Sequence

import msgspec

from core.history.days import DAY_SECONDS, Day, PoolDay, total
from core.history.today import RemovedNode, Sample, Today


class _Part(msgspec.Struct, rename="camel"):
    pass


class PoolFigures(_Part, kw_only=True):
    """The figures of a pool on one day, or of all pools."""

    pool: str = ""
    """Node group, or else the pool of the configuration; empty for nodes in neither, and for all
    pools."""
    node_seconds: int
    """Time of its nodes, summed over nodes."""
    expected_node_seconds: int
    """Time of the nodes that plans could remove and of those that count as saved."""
    expected_cost: float
    saved_node_seconds: int
    """Time of removed nodes that count as saved."""
    saved_cost: float
    marks: int
    unmarks: int
    removed_nodes: int
    moved_pods: int
    """Pods that Ebb moved from its nodes, by surge moves and evictions."""


class RemovedNodeReport(_Part):
    """A removed node: what the plan said when the node was marked, and what happened."""

    node: str
    pool: str
    marked_at_seconds: int
    price: float
    """Predicted saving for an hour, in the currency of `prices`."""
    predicted_pods: int
    """Number of pods that the plan placed on other nodes."""
    deadline_seconds: int
    """Time by which the node was to be empty."""
    allowed_at_seconds: int
    """Time at which Ebb allowed the scale-down."""
    removed_at_seconds: int
    moved_pods: int
    """Number of pods that Ebb moved; the others ended by themselves."""
    saved_node_seconds: int
    """Time for which the node has counted as saved so far."""
    saved_cost: float


class StateSample(_Part):
    """The state of the cluster at one moment."""

    at_seconds: int
    nodes: int
    marked: int
    removed: int
    """Nodes removed on this day so far."""
    pending: int
    """Unschedulable pods."""


class DayReport(_Part, kw_only=True):
    """The figures of one day, in UTC."""

    date: str
    """Such as 2026-01-31."""
    counted_until_seconds: int | None = None
    """Time up to which a day that is not over is counted; None for a past day."""
    total: PoolFigures
    pools: list[PoolFigures]
    unmarks: dict[str, int]
    """Number of removed marks by the code of the reason."""
    waited_pod_seconds: int
    """Time for which pods were Pending because of a mark, summed over pods."""
    removed: list[RemovedNodeReport] = []
    """Removed nodes of the day, as far as they are known, the last one first."""
    samples: list[StateSample] = []
    """Samples of the last 24 hours, the oldest first; only for the day that is not over."""


class MonthReport(_Part):
    """The figures of the calendar month of the day that is not over, up to this day, in UTC."""

    first: str
    """First day with figures in this month, such as 2026-01-01."""
    total: PoolFigures


def date_of(number: int) -> str:
    """Return the date of a day that is given by its number since 1970, in UTC."""
    return _date(number).isoformat()


def _date(number: int) -> dt.date:
    return dt.datetime.fromtimestamp(number * DAY_SECONDS, dt.UTC).date()


def day_report(day: Day, removed: Sequence[RemovedNode] = ()) -> DayReport:
    """Return the figures of a past day. *removed*: nodes that were removed on any day."""
    figures = [_figures(pool, row) for pool, row in sorted(day.pools.items())]
    return DayReport(
        date=date_of(day.number),
        total=_figures("", day.total),
        pools=figures,
        unmarks=dict(sorted(day.unmarks.items())),
        waited_pod_seconds=day.waited_seconds,
        removed=[
            _removed(one)
            for one in reversed(removed)
            if one.removed_at // DAY_SECONDS == day.number
        ],
    )


def today_report(today: Today) -> DayReport:
    """Return the figures of the day that is not over."""
    return msgspec.structs.replace(
        day_report(today.day, today.removed),
        counted_until_seconds=today.counted_until,
        samples=[_sample(one) for one in today.samples],
    )


def yesterday_report(today: Today) -> DayReport | None:
    """Return the figures of the day before; None if they are unknown."""
    found = (day for day in today.earlier if day.number == today.day.number - 1)
    return next((day_report(day, today.removed) for day in found), None)


def month_report(today: Today, past: Mapping[int, PoolDay]) -> MonthReport:
    """Return the figures of the calendar month up to *today*.

    *past*: sums of the days in `ebb-history`, by number of the day.
    """
    last = today.day.number
    sums = today.totals(past)
    days = [number for number in sums if last - _date(last).day < number <= last]
    return MonthReport(
        first=date_of(min(days)), total=_figures("", total(sums[number] for number in days))
    )


def _figures(pool: str, row: PoolDay) -> PoolFigures:
    return PoolFigures(
        pool=pool,
        node_seconds=row.node_seconds,
        expected_node_seconds=row.expected_seconds,
        expected_cost=float(row.expected_cost),
        saved_node_seconds=row.saved_seconds,
        saved_cost=float(row.saved_cost),
        marks=row.marks,
        unmarks=row.unmarks,
        removed_nodes=row.removed,
        moved_pods=row.moved,
    )


def _removed(one: RemovedNode) -> RemovedNodeReport:
    return RemovedNodeReport(
        node=one.node,
        pool=one.pool,
        marked_at_seconds=one.marked_at,
        price=float(one.price),
        predicted_pods=one.pods,
        deadline_seconds=one.deadline,
        allowed_at_seconds=one.allowed_at,
        removed_at_seconds=one.removed_at,
        moved_pods=one.moved,
        saved_node_seconds=one.saved_seconds,
        saved_cost=float(one.saved_cost),
    )


def _sample(one: Sample) -> StateSample:
    return StateSample(
        at_seconds=one.at,
        nodes=one.nodes,
        marked=one.marked,
        removed=one.removed,
        pending=one.pending,
    )
