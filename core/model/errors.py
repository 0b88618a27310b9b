"""Errors that Ebb raises, all of them subclasses of EbbError.

    EbbError
    ├── InvalidInputError      a file, an object or a field is invalid
    ├── ConfigError            the configuration is invalid; lists all faults
    └── UnavailableError       a peer did not answer, or its answer is invalid
        ├── ConflictError      the object has changed since it was read
        └── GarbledError       the answer cannot be read; a retry would get the same answer

A negative answer is not an error: verdicts and blockers are values (core.model, core.engine).
"""

from collections.abc import Sequence


class EbbError(Exception):
    """Base class of all errors of Ebb; the message is one line for operators."""


class InvalidInputError(EbbError):
    """A value that Ebb has read is invalid.

    *where*: the source and field of the value, or an empty text. *problem*: the fault, and usually
    the allowed values.
    """

    def __init__(self, where: str, problem: str) -> None:
        super().__init__(f"{where}: {problem}" if where else problem)
        self.where = where
        self.problem = problem


class ConfigError(EbbError):
    """The configuration is invalid; the message has one line for each fault.

    *source*: the file. *faults*: each invalid field with its path, value and allowed values.
    """

    def __init__(self, source: str, faults: Sequence[str]) -> None:
        super().__init__("\n".join(f"{source}: {fault}" for fault in faults))
        self.source = source
        self.faults = tuple(faults)


class UnavailableError(EbbError):
    """A peer, such as the API server or a webhook, did not answer, or its answer is invalid."""


class GarbledError(UnavailableError):
    """The answer of a peer cannot be read; a retry would get the same answer."""


class ConflictError(UnavailableError):
    """The object has changed since it was read; read it again before writing."""
