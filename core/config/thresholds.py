"""Thresholds for utilization, of the cluster and of each pool."""

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, ValidationInfo

from core.setting_types.structure import ON_FIRST_PAGE, filled
from core.setting_types.value_types import SHARE


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """Maximum ratios of requests to usable capacity (docs/glossary.md) after a removal.

    They are exact shares.
    """

    cpu: Annotated[Fraction, SHARE, ON_FIRST_PAGE] = Fraction(95, 100)
    """Maximum ratio of CPU requests to usable CPU. Lower it if rollouts and scale-outs often have
    to wait for new nodes."""
    memory: Annotated[Fraction, SHARE, ON_FIRST_PAGE] = Fraction(95, 100)
    """Maximum ratio of memory requests to usable memory. Lower it if pods often wait for new nodes
    because memory is short."""
    devices: Annotated[Fraction, SHARE] | None = None
    """Maximum ratio of requests to capacity for each device that pods request, such as
    nvidia.com/gpu. By default the same as for CPU. Raise it if idle devices cost more than pods
    that wait for a new node."""

    @property
    def for_devices(self) -> Fraction:
        """Return the maximum for each device; that for CPU if none is set."""
        return self.cpu if self.devices is None else self.devices


@dataclass(slots=True)
class FileContext:
    """Values of the file that validate later fields; passed as pydantic's context."""

    enter: Thresholds = field(default_factory=Thresholds)
    """Thresholds of the cluster."""
    pools: set[str] = field(default_factory=set)
    """Names of the pools read so far."""


def _cluster_enter(thresholds: Thresholds, info: ValidationInfo[FileContext]) -> Thresholds:
    info.context.enter = thresholds
    return thresholds


def _pool_enter(given: object, info: ValidationInfo[FileContext]) -> object:
    """Return the thresholds of a pool; the cluster's thresholds replace missing values."""
    return filled(given, info.context.enter)


Enter = Annotated[Thresholds, AfterValidator(_cluster_enter)]
PoolEnter = Annotated[Thresholds | None, BeforeValidator(_pool_enter)]
