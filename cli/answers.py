"""What commands answer: values, each of which every form of output can write."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from cli.look.found import Found
from cli.look.overview import Status
from cli.look.standing import Standing
from core.config.settings import Config
from core.engine.plan import Plan
from core.explain.caveats import Caveat
from core.explain.explainer import NodeAnswer, PodAnswer


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
    standing: Standing
    found: Found
    now_seconds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PodExplained:
    """The answer of `ebb explain pod`."""

    answer: PodAnswer
    found: Found


@dataclass(frozen=True, slots=True)
class Reasons:
    """The answer of `ebb reasons`: all codes that there are."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The answer of `ebb config schema`: all settings that there are."""


Answer = Planned | NodeExplained | PodExplained | Status | Reasons | Settings
