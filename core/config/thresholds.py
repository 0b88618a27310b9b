"""Thresholds for utilization, of the cluster and of each pool."""

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Annotated, Any

from pydantic import (
    BeforeValidator,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from core.setting_types.structure import filled, refused
from core.setting_types.value_types import SHARE, eased, percent


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """Maximum ratios of requests to usable capacity (docs/glossary.md) after a removal.

    They are exact shares.
    """

    cpu: Annotated[Fraction, SHARE] = Fraction(4, 5)
    """Maximum for CPU."""
    memory: Annotated[Fraction, SHARE] = Fraction(4, 5)
    """Maximum for memory."""
    devices: Annotated[Fraction, SHARE] | None = None
    """Maximum for each device that pods request, such as nvidia.com/gpu. By default the same as
    for CPU."""

    def leave(self) -> "Thresholds":
        """Return the default thresholds of utilization above which Ebb removes marks.

        They are 5 percentage points above these thresholds, at most 100%.
        """
        devices = None if self.devices is None else eased(self.devices)
        return Thresholds(cpu=eased(self.cpu), memory=eased(self.memory), devices=devices)

    @property
    def for_devices(self) -> Fraction:
        """Return the maximum for each device; that for CPU if none is set."""
        return self.cpu if self.devices is None else self.devices

    @property
    def shares(self) -> tuple[tuple[str, Fraction], ...]:
        """Return pairs of name in the file and maximum: for CPU, memory and devices."""
        return ("cpu", self.cpu), ("memory", self.memory), ("devices", self.for_devices)


@dataclass(slots=True)
class FileContext:
    """Values of the file that validate later fields; passed as pydantic's context."""

    enter: Thresholds | None = field(default_factory=Thresholds)
    """Thresholds of the cluster; None if they are invalid."""
    pools: set[str] = field(default_factory=set)
    """Names of the pools read so far."""


def _cluster_enter(
    given: object, read: ValidatorFunctionWrapHandler, info: ValidationInfo[FileContext]
) -> Thresholds:
    info.context.enter = None
    thresholds: Thresholds = read(given)
    info.context.enter = thresholds
    return thresholds


def _pool_enter(given: object, info: ValidationInfo[FileContext]) -> object:
    """Return the thresholds of a pool; the cluster's thresholds replace missing values."""
    return filled(given, info.context.enter or Thresholds())


def _release_thresholds(
    given: Any,  # noqa: ANN401 YAML holds anything
    read: ValidatorFunctionWrapHandler,
    info: ValidationInfo[FileContext],
) -> Thresholds | None:
    """Return release thresholds without gaps; reject values below the thresholds for marks."""
    enter = (info.data["thresholds"] or info.context.enter) if "thresholds" in info.data else None
    thresholds: Thresholds = read(filled(given, (enter or Thresholds()).leave()))
    if enter is None:
        return thresholds
    low = [
        (name, percent(share), f"at least thresholds.{name}, {percent(least)}")
        for (name, least), (_, share) in zip(enter.shares, thresholds.shares, strict=True)
        if share < least and not (name == "devices" and thresholds.devices is None)
    ]
    if low:
        raise refused(low)
    return thresholds


Enter = Annotated[Thresholds, WrapValidator(_cluster_enter)]
PoolEnter = Annotated[Thresholds | None, BeforeValidator(_pool_enter)]
ReleaseThresholds = Annotated[Thresholds | None, WrapValidator(_release_thresholds)]
