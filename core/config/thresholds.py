"""How full a cluster, or what pods reach of it, may be: for the cluster and for each pool."""

from dataclasses import astuple, dataclass, field
from fractions import Fraction
from typing import Annotated, Any

from pydantic import (
    BeforeValidator,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from core.fields.structure import filled, refused
from core.fields.value_types import SHARE, eased, percent


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """Requests over usable capacity after a removal, at most; shares, exact."""

    cpu: Annotated[Fraction, SHARE] = Fraction(4, 5)
    """Of CPU."""
    memory: Annotated[Fraction, SHARE] = Fraction(4, 5)
    """Of memory."""

    def leave(self) -> "Thresholds":
        """Return up to where a marked node stays marked, where nothing else is said."""
        return Thresholds(cpu=eased(self.cpu), memory=eased(self.memory))


@dataclass(slots=True)
class Told:
    """What a file has told so far; pydantic's context while it is read."""

    enter: Thresholds | None = field(default_factory=Thresholds)
    """The cluster's; None: they cannot be read."""
    pools: set[str] = field(default_factory=set)
    """The names so far."""


def _cluster_enter(
    given: object, read: ValidatorFunctionWrapHandler, info: ValidationInfo[Told]
) -> Thresholds:
    info.context.enter = None
    found: Thresholds = read(given)
    info.context.enter = found
    return found


def _pool_enter(given: object, info: ValidationInfo[Told]) -> object:
    """Take of the cluster's what a pool does not say."""
    return filled(given, info.context.enter or Thresholds())


def _leave(
    given: Any,  # noqa: ANN401 YAML holds anything
    read: ValidatorFunctionWrapHandler,
    info: ValidationInfo[Told],
) -> Thresholds | None:
    """Take the slack for what is not said, and refuse what is below the thresholds to enter."""
    enter = (info.data["thresholds"] or info.context.enter) if "thresholds" in info.data else None
    found: Thresholds = read(filled(given, (enter or Thresholds()).leave()))
    if enter is None:
        return found
    shares = zip(("cpu", "memory"), astuple(enter), astuple(found), strict=True)
    low = [
        (name, percent(is_now), f"at least thresholds.{name}, {percent(least)}")
        for name, least, is_now in shares
        if is_now < least
    ]
    if low:
        raise refused(low)
    return found


Enter = Annotated[Thresholds, WrapValidator(_cluster_enter)]
PoolEnter = Annotated[Thresholds | None, BeforeValidator(_pool_enter)]
Leave = Annotated[Thresholds | None, WrapValidator(_leave)]
