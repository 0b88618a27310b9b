"""Settings for eviction: whether, when, and how many pods at once."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final

from core.setting_types.value_types import duration, whole_number

AT_ONCE_MAX: Final = 100

AtOnce = Annotated[int, whole_number(1, AT_ONCE_MAX)]


class Eviction(StrEnum):
    """Whether Ebb evicts the pods of marked nodes."""

    DISABLED = "disabled"
    ENABLED = "enabled"


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainConfig:
    """How Ebb evicts the pods of marked nodes, one node at a time."""

    after_seconds: Annotated[int, duration()] = 600
    """Time for which Ebb waits for a marked node to become empty before it evicts pods."""
    timeout_seconds: Annotated[int, duration(1)] = 600
    """The eviction of a node's pods has failed after this time without progress. Then the mark of
    the node is removed, and the node is not marked again until its backoff ends."""
    max_on_node: AtOnce = 5
    """Maximum number of pods of the node that are evicted and not yet replaced."""
    max_in_namespace: AtOnce = 3
    """Maximum number of pods of one namespace that are terminating or not yet replaced.

    The pods of all marked nodes count together, whoever deleted them."""
    max_in_cluster: AtOnce = 10
    """Maximum number of pods of marked nodes that are terminating or not yet replaced, whoever
    evicted them. At most `maxInNamespace` of a namespace count."""
