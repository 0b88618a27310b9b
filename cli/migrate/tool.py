"""What one knows of a tool whose settings are taken over."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from cli.migrate.values import Kind, read, shown
from core.config.settings import API_VERSION, KIND


class Given(NamedTuple):
    """A setting as the tool has it."""

    key: str
    value: object


class Taken(NamedTuple):
    """A setting that has its equivalent."""

    path: tuple[str, ...]
    """Where it stands in an EbbConfiguration."""
    kind: Kind


@dataclass(frozen=True, slots=True)
class Migrated:
    """An EbbConfiguration in the making."""

    document: dict[str, Any]
    notes: list[str] = field(default_factory=list)
    """Of what has no equivalent, one line each."""

    @classmethod
    def by(cls, policy: str) -> "Migrated":
        """Begin one with that rule; such tools act, until a setting says otherwise."""
        head = {"apiVersion": API_VERSION, "kind": KIND, "mode": ENFORCE, "policy": policy}
        return cls(head)

    def put(self, path: Sequence[str], value: object) -> None:
        """Put a value where it stands in the file."""
        *sections, name = path
        at = self.document
        for section in sections:
            at = at.setdefault(section, {})
        at[name] = value

    def take(self, one: Given, taken: Taken) -> None:
        """Put what is given where its equivalent stands. Raises: InvalidInputError."""
        self.put(taken.path, read(one.key, one.value, taken.kind))

    def leave(self, one: Given, why: str) -> None:
        """Note what has no equivalent."""
        told = "" if one.value is None else f"={shown(one.value)}"
        self.notes.append(f"{shown(one.key)}{told}: {why}")

    def each(
        self, given: Iterable[Given], taken: Mapping[str, Taken], why_not: Callable[[str], str]
    ) -> None:
        """Take or leave each. Raises: InvalidInputError for the first that cannot be read."""
        for one in given:
            if one.key in taken:
                self.take(one, taken[one.key])
            else:
                self.leave(one, why_not(one.key))


ENFORCE: Final = "enforce"
OBSERVE: Final = "observe"
DRAINING: Final = (
    "Ebb marks the node, which empties as pods end, and evicts them only with `eviction: enabled`"
)


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool whose settings are taken over."""

    name: str
    taken: Mapping[str, Taken]
    """What has its equivalent wherever it stands, by its key."""
    settings_of: Callable[[object], Sequence[Given]]
    """Its settings in an object of a file; none: it holds none of them."""
    migrated: Callable[[Sequence[Given]], Migrated]
    """Make a configuration of them. Raises: InvalidInputError with key and value."""
