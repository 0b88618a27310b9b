"""What the configuration says about eviction: whether, when, and how much at once."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final

from core.fields.value_types import duration, whole_number

AT_ONCE_MAX: Final = 100

AtOnce = Annotated[int, whole_number(1, AT_ONCE_MAX)]


class Eviction(StrEnum):
    """Whether the pods of marked nodes are evicted."""

    DISABLED = "disabled"
    ENABLED = "enabled"


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainConfig:
    """How marked nodes are drained; one at a time."""

    after_seconds: Annotated[int, duration()] = 600
    """A marked node is given so long to empty by itself."""
    timeout_seconds: Annotated[int, duration(1)] = 600
    """A drain that has not gone on for so long has failed: the node is released and backs off."""
    max_on_node: AtOnce = 5
    """Pods of the node that are on their way at once."""
    max_in_namespace: AtOnce = 3
    """Of them those of one namespace."""
    max_in_cluster: AtOnce = 10
    """Pods of all marked nodes that are on their way at once, whoever has sent them; of each
    namespace no more than `maxInNamespace` count."""
