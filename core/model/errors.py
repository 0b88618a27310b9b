"""Every fault the core can name.

    EbbError
    ├── InvalidInputError      a file, object or field is not what it must be
    ├── ConfigError            the configuration: all its faults at once
    └── UnavailableError       a peer did not answer, or not as it must
        ├── ConflictError      the object has changed since it was read
        └── GarbledError       what it sent cannot be read; asking for the same again is no use

"No" is never an exception: verdicts and blockers are values (core.model, core.engine).
"""

from collections.abc import Sequence


class EbbError(Exception):
    """Any fault that Ebb can name; its text is one line, fit for a person to read."""


class InvalidInputError(EbbError):
    """Something that was read is not what it must be; *where* says what and which field."""

    def __init__(self, where: str, problem: str) -> None:
        super().__init__(f"{where}: {problem}" if where else problem)
        self.where = where
        self.problem = problem


class ConfigError(EbbError):
    """The configuration has faults; *faults* holds them all, each with path, value and allowed."""

    def __init__(self, source: str, faults: Sequence[str]) -> None:
        super().__init__("\n".join(f"{source}: {fault}" for fault in faults))
        self.source = source
        self.faults = tuple(faults)


class UnavailableError(EbbError):
    """A peer (the API server, a webhook) did not answer, or answered what it must not."""


class GarbledError(UnavailableError):
    """What a peer sent is not what it must send; to ask for the very same again is no use."""


class ConflictError(UnavailableError):
    """The object has changed since it was read; read it again."""
