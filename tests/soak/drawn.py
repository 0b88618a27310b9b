"""A random run of the soak test: a small mixed cluster, its load, faults and settings."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

from core.config.budgets import (
    Budget,
    Budgets,
    Cooldown,
    LabelSelector,
    Limit,
    Pool,
    Reserve,
)
from core.config.programs import SCORE_NAMES, ExtenderConfig
from core.config.settings import Config, Mode, ScaleDownProtection, Scope, UsabilityMode
from core.config.thresholds import Thresholds
from core.engine.zones import ZONE_LABEL
from core.marks.wellknown import KARPENTER_LABEL
from core.model.constraints import NO_NODE_CONSTRAINTS, NodeConstraints, Toleration
from core.model.node import Effect, Node, Taint
from core.model.resources import Resources
from sim import simulated_load
from sim.autoscaler import ScaleDown
from sim.simulated_load import DAY_MS, HOUR_MS, Arrival, SimulatedLoad, amount
from tests.support.faults import Fault, Trouble

DAYS: Final = 2
"""Length of a run, long enough for backoffs and windows to interact."""
END_MS: Final = DAYS * DAY_MS
QUIET_MS: Final = 2 * HOUR_MS
"""Length of the quiet end without faults and new marks, in which all metadata must be removed."""
NODES: Final = (8, 40)
TROUBLES_MAX: Final = 12
TROUBLE_MS_MAX: Final = QUIET_MS
ZONES: Final = ("a", "b", "c")
POOL: Final = "example.org/pool"
TAINTED: Final = Taint("dedicated", "batch", Effect.NO_SCHEDULE)
TOLERATING: Final = (Toleration("dedicated", "Equal", "batch", "NoSchedule"),)
PLACINGS: Final = (
    (NO_NODE_CONSTRAINTS, 60),
    (NodeConstraints(tolerations=TOLERATING), 10),
    (NodeConstraints(node_selector=((POOL, "batch"),), tolerations=TOLERATING), 15),
    (NodeConstraints(node_selector=((POOL, "general"),)), 5),
    *((NodeConstraints(node_selector=((ZONE_LABEL, zone),)), 4) for zone in ZONES),
)
"""Node constraints of pods, with their weights in percent."""
BLOCK_MS: Final = 3 * HOUR_MS


@dataclass(frozen=True, slots=True)
class Run:
    """A run, determined by its seed."""

    seed: int
    load: SimulatedLoad
    how: ScaleDown
    config: Config
    changes: tuple[tuple[int, Config], ...]
    """Changes of the configuration with their times in ms; the last is for the quiet end."""
    troubles: tuple[Trouble, ...]

    @property
    def sets_no_schedule(self) -> bool:
        """Return whether any mark may become NoSchedule."""
        configs = (self.config, *(config for _, config in self.changes))
        return any(config.no_schedule_after_seconds is not None for config in configs)


def draw(seed: int) -> Run:
    """Return the run of a seed."""
    chance = random.Random(seed)
    config = _config(chance)
    middle = sorted(chance.randrange(HOUR_MS, END_MS - 2 * QUIET_MS) for _ in range(2))
    changes = [
        (at, replace(_config(chance), extender=config.extender))
        for at in middle[: chance.choice((0, 0, 1, 2))]
    ]
    last = _last(chance, [config, *(one for _, one in changes)])
    how = chance.choices(list(ScaleDown), weights=(1, 6, 1))[0]
    if how is ScaleDown.NEVER:  # empty nodes are not removed, and their marks do not end
        last = replace(last, mode=Mode.OBSERVE)
    changes.append((END_MS - QUIET_MS + 1, last))
    return Run(seed, _load(chance), how, config, tuple(changes), _troubles(chance))


def _config(chance: random.Random) -> Config:
    share = Fraction(chance.choice((60, 80, 90, 100)), 100)
    return Config(
        mode=Mode.ENFORCE,
        unneeded_time_seconds=chance.choice((0, 60, 600)),
        thresholds=Thresholds(cpu=share, memory=share),
        usable_capacity=chance.choice((UsabilityMode.AUTO, UsabilityMode.ALL)),
        budgets=_budgets(chance),
        deadline_seconds=chance.choice((3600, 3600, 6 * 3600, 24 * 3600)),
        no_schedule_after_seconds=chance.choice((None, None, 0, 300, 1800)),
        scale_down_protection=ScaleDownProtection(
            scope=chance.choice(list(Scope)), after_unmark_seconds=chance.choice((60, 900))
        ),
        extender=ExtenderConfig(score=chance.choice(SCORE_NAMES)),
    )


def _budgets(chance: random.Random) -> Budgets:
    pools = tuple(
        Pool(
            name=name, selector=LabelSelector(match_labels=((POOL, name),)), budget=_budget(chance)
        )
        for name in ("batch", "general")
    )
    cooldown = chance.choice((0, 60, 600))
    return Budgets(
        cluster=_budget(chance),
        period_seconds=chance.choice((0, 600)),
        pools=chance.choice(((), (), pools[:1], pools)),
        balance_zones=chance.random() < 0.5,
        headroom=chance.choice((0, 1, 3)),
        reserve=Reserve(
            window_seconds=chance.choice((None, 60, 300)),
            percentile=Fraction(chance.choice((50, 90, 100)), 100),
        ),
        stabilization_window_seconds=chance.choice((0, 600)),
        cooldown=Cooldown(delay_after_add_seconds=cooldown, delay_after_pending_seconds=cooldown),
    )


def _budget(chance: random.Random) -> Budget:
    return Budget(
        max_marked=chance.choice((None, Limit(3), Limit(None, Fraction(1, 2)))),
        max_new_marks=chance.choice((None, Limit(1), Limit(None, Fraction(1, 5)))),
        min_nodes=chance.choice((0, 1, 3)),
    )


def _last(chance: random.Random, before: Sequence[Config]) -> Config:
    """Return a configuration with which all metadata is removed within the quiet end."""
    config = before[-1]
    near = all(one.deadline_seconds <= 3600 for one in before)
    if near and chance.random() < 0.5:
        none = Budget(max_marked=Limit(0))
        budgets = replace(config.budgets, cluster=none)
        marked_only = replace(config.scale_down_protection, scope=Scope.MARKED)
        return replace(config, budgets=budgets, scale_down_protection=marked_only)
    return replace(config, mode=Mode.OBSERVE)


def _load(chance: random.Random) -> SimulatedLoad:
    count = chance.randint(*NODES)
    groups = dict(
        _group(zone, pool) for zone in range(len(ZONES)) for pool in ("general", "batch")
    )
    shapes = list(groups)
    nodes = [shapes[0], *chance.choices(shapes, weights=(3, 1) * len(ZONES), k=count - 1)]
    rows = [_row(chance) for _ in range(chance.randint(2, 8))]
    whole = simulated_load.bootstrap(
        nodes, rows, seed=chance.randrange(2**32), days=DAYS,
        at_once=count * chance.choice((1, 2)), wave=(1,),
    )  # fmt: skip
    percents = [chance.choice((0, 30, 100, 100)) for _ in range(END_MS // BLOCK_MS)]
    arrivals = [
        _placed(chance, one)
        for one in whole.arrivals
        if chance.randrange(100) < percents[one.at_ms // BLOCK_MS]
    ]
    return SimulatedLoad(
        "drawn", tuple(nodes), tuple(arrivals), END_MS, chance.choice((120_000, 180_000)), groups
    )


def _group(zone: int, pool: str) -> tuple[Resources, Node]:
    """Return a node group with a unique shape."""
    cpu, memory = (4000, 16_384) if pool == "general" else (8000, 16_384)
    shape = amount(cpu, memory + zone, 0, simulated_load.PODS_PER_NODE)
    labels = {ZONE_LABEL: ZONES[zone], POOL: pool}
    if pool == "batch":
        labels[KARPENTER_LABEL] = pool
    taints = (TAINTED,) if pool == "batch" else ()
    return shape, Node(name="", allocatable=shape, labels=labels, taints=taints)


def _row(chance: random.Random) -> tuple[Resources, int]:
    cpu, memory = chance.choice((100, 250, 500, 1000, 2000)), chance.choice((128, 512, 1024, 4096))
    minutes = chance.choice((10, 30, 60, 240, 600))
    return amount(cpu, memory, 0), minutes * 60_000


def _placed(chance: random.Random, arrival: Arrival) -> Arrival:
    all_constraints, weights = zip(*PLACINGS, strict=True)
    return replace(arrival, node_constraints=chance.choices(all_constraints, weights)[0])


def _troubles(chance: random.Random) -> tuple[Trouble, ...]:
    kinds = (None, *Fault)
    return tuple(
        Trouble(
            chance.choice(kinds),
            at_ms=chance.randrange(END_MS - QUIET_MS - TROUBLE_MS_MAX),
            for_ms=chance.randrange(TROUBLE_MS_MAX),
        )
        for _ in range(chance.randint(0, TROUBLES_MAX))
    )
