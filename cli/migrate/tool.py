"""Define the types that describe a tool whose settings can be converted."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from cli.migrate.values import ValueType, read, shown
from core.config.settings import API_VERSION, KIND


class SourceSetting(NamedTuple):
    """A setting of the other tool: its key and its value, as read from the file."""

    key: str
    value: object


class TargetSetting(NamedTuple):
    """The setting of Ebb that corresponds to a setting of the other tool, with its type."""

    path: tuple[str, ...]
    """Path of the setting in an EbbConfiguration."""
    value_type: ValueType


@dataclass(frozen=True, slots=True)
class Migrated:
    """An EbbConfiguration that is built from another tool's settings, with comments."""

    document: dict[str, Any]
    notes: list[str] = field(default_factory=list)
    """Comments about settings without an exact equivalent, one line each."""

    @classmethod
    def by(cls, policy: str) -> "Migrated":
        """Return a configuration with the policy *policy* and mode enforce.

        The mode is enforce because the other tools act by default.
        """
        head = {"apiVersion": API_VERSION, "kind": KIND, "mode": ENFORCE, "policy": policy}
        return cls(head)

    def put(self, path: Sequence[str], value: object) -> None:
        """Set the value at a path of the configuration; missing sections are created."""
        *sections, name = path
        at = self.document
        for section in sections:
            at = at.setdefault(section, {})
        at[name] = value

    def take(self, setting: SourceSetting, taken: TargetSetting) -> None:
        """Convert the value of *setting*, and set *taken*, the corresponding setting of Ebb.

        Raises: InvalidInputError.
        """
        self.put(taken.path, read(setting.key, setting.value, taken.value_type))

    def leave(self, setting: SourceSetting, why: str) -> None:
        """Add a note that *setting* has no equivalent in Ebb, with the reason *why*."""
        text_of_value = "" if setting.value is None else f"={shown(setting.value)}"
        self.notes.append(f"{shown(setting.key)}{text_of_value}: {why}")

    def each(
        self,
        given: Iterable[SourceSetting],
        taken: Mapping[str, TargetSetting],
        why_not: Callable[[str], str],
    ) -> None:
        """Convert each setting, or add a note if Ebb has no equivalent.

        *taken*: Ebb's settings by key of the other tool. *why_not*: returns the reason for a key
        without an equivalent. Raises: InvalidInputError for the first setting that cannot be read.
        """
        for setting in given:
            if setting.key in taken:
                self.take(setting, taken[setting.key])
            else:
                self.leave(setting, why_not(setting.key))


ENFORCE: Final = "enforce"
OBSERVE: Final = "observe"
DRAINING: Final = (
    "Ebb marks the node and waits until its pods end; it evicts pods only with `eviction: enabled`"
)


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool whose settings `ebb migrate` can convert, with the functions that do it."""

    name: str
    taken: Mapping[str, TargetSetting]
    """Settings whose equivalent does not depend on other settings, by key."""
    settings_of: Callable[[object], Sequence[SourceSetting]]
    """Return the settings of the tool in one object of a file; empty if it has none."""
    migrated: Callable[[Sequence[SourceSetting]], Migrated]
    """Convert settings to a configuration. Raises: InvalidInputError with key and value."""
