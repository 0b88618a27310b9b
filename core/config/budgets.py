"""What the configuration says about how much may go, and how fast.

Lasting limits (pools, minimum of nodes, zones, headroom) hold in every plan; the others are about
pace and hold where time passes (core.engine.brakes).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, NamedTuple, TypeGuard

from core.config.fields import Section, parse_share
from core.config.thresholds import Thresholds, read_enter, read_leave
from core.errors import ConfigError

POOLS_MAX: Final = 100
NODES_MAX: Final = 100_000
HEADROOM_MAX: Final = 100
CLOCKS_APART_SECONDS_MAX: Final = 86_400
"""What is in the future by so much more than it can be, no leader's clock has written."""


class Limit(NamedTuple):
    """So many nodes, or a share of those that there are."""

    number: int | None
    share: Fraction | None = None

    def of(self, nodes: int) -> int:
        """Return the limit among so many nodes: a share is rounded down, but to at least 1."""
        if self.share is None:
            return self.number or 0
        return max(1, nodes * self.share.numerator // self.share.denominator)

    def __str__(self) -> str:
        return str(self.number) if self.share is None else f"{float(self.share * 100):g}%"


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Of a pool, or of the cluster; None: no limit."""

    max_marked: Limit | None = None
    """Nodes that carry a mark at once."""
    max_in_window: Limit | None = None
    """Nodes that are marked within the window, those that have left since among them."""
    min_nodes: int = 0
    """Nodes that must be left when all marked ones have gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Nodes with all these labels, and what may go of them."""

    name: str
    node_selector: tuple[tuple[str, str], ...]
    budget: Budget
    thresholds: Thresholds | None = None
    """Of what pods reach with a node of the pool in it; None: the cluster's."""
    leave_thresholds: Thresholds | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cooldown:
    """How long no node is marked."""

    after_node_add_seconds: int = 600
    after_pending_seconds: int = 600
    """After a pod has turned unschedulable that one of the nodes would admit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """How long a node is left alone that did not empty before its deadline."""

    first_seconds: int = 3600
    max_seconds: int = 24 * 3600

    def seconds(self, times: int) -> int:
        """Return how long after so many failures: twice as long each time, up to the maximum."""
        return int(min(self.first_seconds * 2 ** min(times - 1, 32), self.max_seconds))

    def possible(self, until: int, now_seconds: int) -> bool:
        """Say whether a leader, by a clock of about our time, may have written this end."""
        return until <= now_seconds + self.max_seconds + CLOCKS_APART_SECONDS_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgets:
    """All of it; the defaults are those of an empty file."""

    cluster: Budget = Budget(
        max_marked=Limit(None, Fraction(1, 5)),
        max_in_window=Limit(None, Fraction(1, 10)),
        min_nodes=1,
    )
    window_seconds: int = 600
    pools: tuple[Pool, ...] = ()
    """Empty: every node may go; else those in a pool alone, each in the first that selects it."""
    balance_zones: bool = True
    headroom: int = 1
    """Pods as large as the largest of each reach for which room must be left."""
    peak_window_seconds: int = 600
    """The demand of the busiest moment in it counts, not that of now."""
    cooldown: Cooldown = Cooldown()
    backoff: Backoff = Backoff()

    def pool_of(self, labels: Mapping[str, str]) -> Pool | None:
        """Return the pool of a node with these labels."""
        for pool in self.pools:
            if all(labels.get(key) == value for key, value in pool.node_selector):
                return pool
        return None


def read_budgets(top: Section, enter: Thresholds) -> Budgets:
    """Read the fields that are about budgets; *enter*: the cluster's thresholds."""
    new = Budgets()
    budgets = top.section("budgets")
    cooldown = top.section("cooldown")
    backoff = top.section("backoff")
    found = Budgets(
        cluster=_budget(budgets, new.cluster),
        window_seconds=budgets.duration("window", new.window_seconds),
        pools=_pools(top, enter),
        balance_zones=top.flag("balanceZones", default=new.balance_zones),
        headroom=top.integer("headroom", new.headroom, most=HEADROOM_MAX),
        peak_window_seconds=top.duration("peakWindow", new.peak_window_seconds),
        cooldown=Cooldown(
            after_node_add_seconds=cooldown.duration(
                "afterNodeAdd", new.cooldown.after_node_add_seconds
            ),
            after_pending_seconds=cooldown.duration(
                "afterPending", new.cooldown.after_pending_seconds
            ),
        ),
        backoff=Backoff(
            first_seconds=backoff.duration("first", new.backoff.first_seconds, least=1),
            max_seconds=backoff.duration("max", new.backoff.max_seconds, least=1),
        ),
    )
    for section in (budgets, cooldown, backoff):
        section.close()
    return found


def _budget(section: Section, new: Budget) -> Budget:
    return Budget(
        max_marked=_limit(section, "maxMarked", new.max_marked),
        max_in_window=_limit(section, "maxInWindow", new.max_in_window),
        min_nodes=section.integer("minNodes", new.min_nodes, most=NODES_MAX),
    )


def _limit(section: Section, name: str, new: Limit | None) -> Limit | None:
    value = section.take(name)
    if value is None:
        return new
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= NODES_MAX:
        return Limit(value)
    try:
        return Limit(None, parse_share(value, name))
    except ConfigError:
        allowed = f'a number of nodes up to {NODES_MAX:,}, or a percentage such as "20%"'
        section.fault(name, allowed)
        return new


def _pools(top: Section, enter: Thresholds) -> tuple[Pool, ...]:
    entries = top.take("pools")
    if entries is None:
        return ()
    if not isinstance(entries, list) or len(entries) > POOLS_MAX:
        allowed = f"a list of at most {POOLS_MAX} entries {{name, nodeSelector}} with limits"
        top.fault("pools", allowed)
        return ()
    pools: list[Pool] = []
    for number, entry in enumerate(entries):
        section = Section(entry, f"pools[{number}].", top.source, top.faults)
        name = section.take("name")
        if not isinstance(name, str) or not name or name in [pool.name for pool in pools]:
            section.fault("name", "a text that no other pool has")
        selector = read_selector(section)
        own = read_enter(section, enter)
        pools.append(
            Pool(
                name=str(name),
                node_selector=selector,
                budget=_budget(section, Budget()),
                thresholds=own,
                leave_thresholds=read_leave(section, own or enter),
            )
        )
        section.close()
    return tuple(pools)


def read_selector(section: Section) -> tuple[tuple[str, str], ...]:
    """Read the field nodeSelector, which must be there."""
    selector = section.take("nodeSelector")
    if _is_selector(selector):
        return tuple(sorted(selector.items()))
    section.fault("nodeSelector", "a mapping with at least one label, text to text")
    return ()


def _is_selector(value: object) -> TypeGuard[dict[str, str]]:
    return (
        isinstance(value, dict)
        and bool(value)
        and all(isinstance(k, str) and isinstance(v, str) for k, v in value.items())
    )
