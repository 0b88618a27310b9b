"""What commands answer: values, each of which every form of output can write."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

from cli.explain.caveats import Caveat
from cli.explain.explainer import NodeAnswer, PodAnswer
from cli.input.cluster_input import ClusterInput
from cli.input.node_status import NodeStatus
from cli.input.overview import Status
from core.config.settings import Config
from core.engine.plan import Plan

if TYPE_CHECKING:  # the simulation takes long
    from sim.report import Row


class Money(NamedTuple):
    """What nodes cost together, by the configured prices and in their unit."""

    before: Fraction
    """All nodes."""
    removed: Fraction
    """Those that can go."""

    @property
    def after(self) -> Fraction:
        """Return what is left to pay for."""
        return self.before - self.removed


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """The answer of `ebb plan`."""

    plan: Plan
    config: Config
    """The one that the plan was made with."""
    minded: Sequence[Caveat]
    money: Money | None
    """None: no prices are configured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeExplained:
    """The answer of `ebb explain node`."""

    answer: NodeAnswer
    standing: NodeStatus
    found: ClusterInput
    now_seconds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PodExplained:
    """The answer of `ebb explain pod`."""

    answer: PodAnswer
    found: ClusterInput


@dataclass(frozen=True, slots=True)
class Reasons:
    """The answer of `ebb reasons`: all codes that there are."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The answer of `ebb config schema`: all settings that there are."""


class Figure(NamedTuple):
    """A figure over all seeds, in the unit that its label says."""

    row: "Row"
    mean: Fraction | None
    """None: the runs could not tell."""
    least: Fraction | None
    most: Fraction | None

    @property
    def label(self) -> str:
        """Return what it is, and in which unit."""
        return self.row.label

    @property
    def middle(self) -> str:
        """Write the mean."""
        return self.row.shown(self.mean)

    @property
    def range(self) -> str:
        """Write the least and the most, or one of them where they look the same."""
        least, most = self.row.shown(self.least), self.row.shown(self.most)
        return least if least == most else f"{least} to {most}"


class Moment(NamedTuple):
    """What there was at a time of a run."""

    hours: float
    nodes: int
    cores: float
    cores_requested: float


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantResult:
    """What came of one way to shrink."""

    name: str
    settings: Sequence[tuple[str, str]]
    """What the sweep has set; none: a mode or a rule, and not a point of the sweep."""
    figures: Sequence[Figure]
    best: bool
    """No other way is better in cost or waits and as good in both."""
    moments: Sequence[Moment]
    """Of the first seed."""

    def figure(self, row: "Row") -> Figure:
        """Return one of its figures."""
        return next(one for one in self.figures if one.row == row)

    def mean(self, row: "Row") -> Fraction:
        """Return the mean of a figure that all runs tell."""
        return self.figure(row).mean or Fraction()


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommended:
    """The way to choose, and the file that says so."""

    name: str
    why: str
    file: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """The answer of `ebb replay`."""

    source: str
    told: str
    """What was played: how long, how much, how often."""
    notes: Sequence[str]
    """What is not in it, or not quite as it was."""
    ways: Sequence[VariantResult]
    seeds: Sequence[int]
    really: Sequence[Figure]
    """What the nodes were as they stood; empty: a trace that says nothing of it."""
    recommended: Recommended | None
    """None: under none of them all pods were left in peace."""

    @property
    def modes(self) -> Sequence[VariantResult]:
        """Return the modes and rules."""
        return [way for way in self.ways if not way.settings]

    @property
    def points(self) -> Sequence[VariantResult]:
        """Return the points of the sweep."""
        return [way for way in self.ways if way.settings]


Answer = Planned | NodeExplained | PodExplained | Status | Reasons | Settings | Replayed
