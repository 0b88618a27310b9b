"""How full a cluster, or what pods reach of it, may be: read for the cluster and for each pool."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from core.config.fields import Section


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """Requests over usable capacity after a removal, at most; shares, exact."""

    cpu: Fraction = Fraction(4, 5)
    memory: Fraction = Fraction(4, 5)

    def leave(self) -> "Thresholds":
        """Return up to where a marked node stays marked, where nothing else is said."""
        return Thresholds(cpu=min(self.cpu + SLACK, _ALL), memory=min(self.memory + SLACK, _ALL))


SLACK: Final = Fraction(1, 20)
"""By how much the leave thresholds stand above the others where nothing is said."""
_ALL: Final = Fraction(1)


def read_enter(section: Section, new: Thresholds) -> Thresholds | None:
    """Read the field `thresholds`; None when it is not there."""
    if section.take("thresholds") is None:
        return None
    return _read(section.section("thresholds"), new)


def read_leave(section: Section, enter: Thresholds) -> Thresholds | None:
    """Read the field `leaveThresholds`, at least as high as *enter*; None when it is not there."""
    if section.take("leaveThresholds") is None:
        return None
    inner = section.section("leaveThresholds")
    leave = _read(inner, enter.leave())
    for name, least, found in (
        ("cpu", enter.cpu, leave.cpu),
        ("memory", enter.memory, leave.memory),
    ):
        if found < least:
            allowed = f"at least thresholds.{name}, {float(least * 100):g}%"
            inner.fault_at(name, f"{float(found * 100):g}%", allowed)
    return leave


def _read(section: Section, new: Thresholds) -> Thresholds:
    found = Thresholds(
        cpu=section.share("cpu", new.cpu), memory=section.share("memory", new.memory)
    )
    section.close()
    return found
