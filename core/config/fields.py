"""Reading a mapping field by field: every fault is gathered, with path, value and allowed."""

import re
from difflib import get_close_matches
from enum import StrEnum
from fractions import Fraction
from typing import Any, Final, TypeVar

from core.errors import ConfigError, InvalidQuantityError

DURATION_SECONDS_MAX: Final = 30 * 24 * 3600
NUMBER_TEXT_MAX: Final = 32

E_ = TypeVar("E_", bound=StrEnum)

_PERCENT: Final = re.compile(r"(?a)(\d{1,3}(?:\.\d{1,9})?)%")
_NUMBER: Final = re.compile(r"(?a)\d{1,15}(?:\.\d{1,12})?")
_DURATION: Final = re.compile(r"(?a)(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,8})s)?(?:(\d{1,9})ms)?")


def parse_share(value: object, path: str) -> Fraction:
    """Read a percentage above 0 and up to 100, exact. Raises: ConfigError."""
    found = _PERCENT.fullmatch(value) if isinstance(value, str) else None
    share = Fraction(found[1]) / 100 if found else Fraction(0)
    if 0 < share <= 1:
        return share
    allowed = 'a percentage above 0% and up to 100%, such as "80%" or "62.5%"'
    raise ConfigError(path, [f"{path}: {value!r:.80}; allowed: {allowed}"])


class Section:
    """A mapping that is being read: what nobody takes is unknown; faults gather in one list."""

    def __init__(self, given: object, path: str, source: str, faults: list[str]) -> None:
        self.path, self.source, self.faults = path, source, faults
        self._known: list[str] = []
        self._given: dict[Any, Any] = given if isinstance(given, dict) else {}
        self._refused = not isinstance(given, dict) and given is not None
        if self._refused:
            allowed = "a mapping of fields"
            self.faults.append(
                f"{path.rstrip('.') or 'document'}: {given!r:.80}; allowed: {allowed}"
            )
        if given is None and not path:
            self.faults.append("document: it is empty; allowed: a mapping of fields")

    def take(self, name: str) -> Any:  # noqa: ANN401 YAML holds anything
        """Return the field's value, None when it is missing, and count it as known."""
        self._known.append(name)
        return self._given.get(name)

    def fault(self, name: str, allowed: str) -> None:
        """Record that a field's value is not what it must be."""
        self.fault_at(name, self._given.get(name), allowed)

    def fault_at(self, name: str, value: object, allowed: str) -> None:
        """Record a fault about a value that was read; where no mapping stands, that is enough."""
        if self._refused:
            return
        shown = "missing" if value is None else f"{value!r:.80}"
        self.faults.append(f"{self.path}{name}: {shown}; allowed: {allowed}")

    def close(self) -> None:
        """Refuse the fields that nobody took."""
        for name in self._given:
            if name not in self._known:
                close = get_close_matches(str(name), self._known, n=1)
                hint = f"did you mean {close[0]}?" if close else ", ".join(self._known)
                shown = str(name) if str(name).isprintable() else ascii(name)
                self.faults.append(f"{self.path}{shown:.80}: unknown field; allowed: {hint}")

    def section(self, name: str) -> "Section":
        """Enter a mapping; a missing one reads as empty."""
        given = self.take(name)
        return Section(
            {} if given is None else given, f"{self.path}{name}.", self.source, self.faults
        )

    def choice(self, name: str, default: E_) -> E_:
        """Read one of an enum's words."""
        return type(default)(self.word(name, default, tuple(type(default))))

    def word(self, name: str, default: str, allowed: tuple[str, ...]) -> str:
        """Read one of some words."""
        value = self.take(name)
        if value is None or value in allowed:
            return default if value is None else str(value)
        self.fault(name, " | ".join(allowed))
        return default

    def text(
        self, name: str, default: str | None, form: re.Pattern[str], allowed: str
    ) -> str | None:
        """Read a text of a form."""
        value = self.take(name)
        if value is None:
            return default
        if isinstance(value, str) and len(value) <= 4096 and form.fullmatch(value):
            return value
        self.fault(name, allowed)
        return default

    def share(self, name: str, default: Fraction) -> Fraction:
        """Read a percentage above 0 and up to 100, exact."""
        value = self.take(name)
        if value is None:
            return default
        try:
            return parse_share(value, self.path + name)
        except ConfigError as fault:
            self.faults += fault.faults
            return default

    def number(self, name: str, *, positive: bool) -> Fraction:
        """Read a decimal number that must be there, exact."""
        value = self.take(name)
        readable = isinstance(value, (str, int, float)) and not isinstance(value, bool)
        if readable and len(str(value)) <= NUMBER_TEXT_MAX and _NUMBER.fullmatch(str(value)):
            number = Fraction(str(value))
            if number > 0 or not positive:
                return number
        self.fault(name, f"a decimal number {'above' if positive else 'of at least'} 0")
        return Fraction(1)

    def quantity(self, name: str, read: Any) -> int:  # noqa: ANN401 a cached function
        """Read a Kubernetes quantity that must be there."""
        value = self.take(name)
        try:
            if isinstance(value, (str, int, float)):
                return int(read(value))
        except InvalidQuantityError:
            pass
        self.fault(name, 'a Kubernetes quantity, such as "100m" or "90M"')
        return 0

    def integer(self, name: str, default: int, *, most: int) -> int:
        """Read a whole number, at least 0."""
        value = self.take(name)
        if value is None:
            return default
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most:
            return value
        self.fault(name, f"a whole number from 0 to {most}")
        return default

    def flag(self, name: str, *, default: bool) -> bool:
        """Read true or false."""
        value = self.take(name)
        if isinstance(value, bool):
            return value
        if value is not None:
            self.fault(name, "true | false")
        return default

    def duration(self, name: str, default: int, *, least: int = 0) -> int:
        """Read a Go duration of whole seconds."""
        value = self.take(name)
        if value is None:
            return default
        found = _DURATION.fullmatch(value) if isinstance(value, str) and value else None
        if found:
            hours, minutes, seconds, thousandths = (int(part or 0) for part in found.groups())
            total = hours * 3600 + minutes * 60 + seconds + thousandths // 1000
            if thousandths % 1000 == 0 and least <= total <= DURATION_SECONDS_MAX:
                return total
        self.fault(
            name, f'a duration of whole seconds, {least}s to 720h, such as "10m" or "1h30m"'
        )
        return default
