"""Why: one reason with its code."""

from typing import NamedTuple


class Blocker(NamedTuple):
    """One reason why a node stays."""

    code: str
    message: str
    pod: str | None = None
    """namespace/name of the pod that it is about, if it is about one."""
