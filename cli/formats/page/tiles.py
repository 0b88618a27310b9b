"""The tiles of the page: nodes, cost, requests and savings, now and after the plan, as JSON."""

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any, Final

from cli.answers import Planned
from cli.explain.headline import Headline
from cli.formats.text.headline import money, percent
from controller.day_report import PoolFigures
from controller.figures.pending import Cause
from controller.leader_report import LeaderFacts
from core.config.prices import HOURS_A_MONTH
from core.model.humanize import HOUR, age, plural
from core.model.pod import Pod
from core.model.quantity import format_bytes
from core.model.resources import Resources

Json = dict[str, Any]
ROUNDED_FROM: Final = 1000
DECIMALS_BELOW: Final = 100
"""Cores below which their number has decimals, so that it does not contradict its share."""


def tiles(answer: Planned) -> list[Json]:
    """Return the tiles of a plan.

    `now` and `after` are texts; `after` is None if the plan changes nothing. `bar` has both in
    percent, or is None.
    """
    facts = answer.cluster_input.facts
    pending = [pod for pod in answer.cluster_input.cluster.pods if pod.node is None]
    return [
        _nodes(answer.headline),
        *_cost(answer.headline),
        *_requests(answer.headline),
        *([_pending(pending, facts)] if pending else []),
        *(_saved(facts, answer.now_seconds) if facts else ()),
    ]


def _tile(
    label: str, now: str, after: str, about: str, bar: tuple[int, int] | None = None
) -> Json:
    changed = None if after == now else after
    return {"label": label, "now": now, "after": changed, "about": about, "bar": bar}


def _nodes(headline: Headline) -> Json:
    nodes, removable = headline.nodes, headline.removable
    about = f"{removable:,} removable ({percent(removable, nodes)} %)"
    if not removable:
        about = "compact" if headline.compact else "none removable"
    return _tile("Nodes", f"{nodes:,}", f"{nodes - removable:,}", about)


def _cost(headline: Headline) -> Iterator[Json]:
    cost = headline.cost
    if cost is None:
        return
    about = f"{rounded(cost.before * HOURS_A_MONTH)} a month"
    if cost.removed:
        share = round(100 * cost.removed / cost.before)
        about = f"{rounded(cost.saved_per_month)} a month less ({share} %)"
    if cost.unpriced:
        about = f"{about}; {plural(len(cost.unpriced), 'node')} without a price"
    yield _tile("Cost an hour", rounded(cost.before), rounded(cost.after), about)


def rounded(amount: Fraction) -> str:
    """Return an amount of money as text, without decimals from ROUNDED_FROM on."""
    return f"{round(amount):,}" if amount >= ROUNDED_FROM else money(amount)


def _requests(headline: Headline) -> Iterator[Json]:
    """Yield a tile for CPU, memory and each device: requests as a share of allocatable."""
    yield _share(headline, "CPU", lambda amount: amount.cpu_millis, _cores, " cores")
    yield _share(headline, "Memory", lambda amount: amount.memory_bytes, format_bytes)
    for name in headline.before.allocatable.devices:

        def units(amount: Resources, name: str = name) -> int:
            return amount.devices.get(name, 0)

        yield _share(headline, name.rpartition("/")[2].upper(), units, "{:,}".format)


def _share(
    headline: Headline,
    name: str,
    amount: Callable[[Resources], int],
    written: Callable[[int], str],
    unit: str = "",
) -> Json:
    (part, whole), (later, left) = (
        (amount(load.requests), amount(load.allocatable))
        for load in (headline.before, headline.after)
    )
    now, after = percent(part, whole), percent(later, left)
    before, then = f"{written(part)} of {written(whole)}", f"{written(later)} of {written(left)}"
    about = f"{before}{unit}" if then == before else f"{before}{unit}, then {then}"
    return _tile(f"{name} requested", f"{now} %", f"{after} %", about, (now, after))


def _cores(cpu_millis: int) -> str:
    cores = cpu_millis / 1000
    return f"{cores:,.0f}" if cores >= DECIMALS_BELOW else f"{cores:.3g}"


def _pending(pods: Sequence[Pod], facts: LeaderFacts | None) -> Json:
    about = f"kube-scheduler found no node for {sum(pod.unschedulable for pod in pods):,}"
    if facts is not None:
        marks = sum(one.pods for one in facts.pending if one.cause == Cause.MARK)
        about = f"{marks:,} because of marks"
    count = f"{len(pods):,}"
    return _tile("Pods Pending", count, count, about)


def _saved(facts: LeaderFacts, now_seconds: int) -> Iterator[Json]:
    """Yield a tile with what Ebb has saved today and this month, or since the leader started."""
    saved, since, today = facts.savings, facts.leading_since_seconds, facts.today
    if today is not None:
        total, month = today.total, facts.month
        share = "" if total.saved_cost else f"{_saved_share(total)} of node-hours, "
        about = f"{share}this month {_of_month(month.total) if month else 'unknown'}"
        yield _savings("Saved today", total.saved_node_seconds, total.saved_cost, about)
    elif saved is not None and since is not None:
        about = f"since the leader started {age(now_seconds - since)} ago"
        yield _savings("Saved", saved.estimated_node_seconds, saved.estimated_cost, about)


def _of_month(total: PoolFigures) -> str:
    amount = _amount(total.saved_node_seconds, total.saved_cost)
    return amount if total.saved_cost else f"{amount} ({_saved_share(total)})"


def _saved_share(total: PoolFigures) -> str:
    """Return the saved node-hours as a share of those that would exist without Ebb."""
    saved = total.saved_node_seconds
    return f"{percent(saved, saved + total.node_seconds)} %"


def _savings(label: str, node_seconds: int, cost: float, about: str) -> Json:
    hours, value = _amount(node_seconds, 0), _amount(node_seconds, cost)
    texts = (hours if cost else "", about)
    return _tile(label, value, value, ", ".join(filter(None, texts)))


def _amount(node_seconds: int, cost: float) -> str:
    return f"{cost:,.2f}" if cost else f"{node_seconds / HOUR:,.1f} node-h"
