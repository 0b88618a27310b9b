"""Settings for eviction: whether, when, and how many pods at once."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final

from core.setting_types.value_types import duration, whole_number

AT_ONCE_MAX: Final = 100


class EvictionMode(StrEnum):
    """Whether Ebb evicts the pods of marked nodes."""

    DISABLED = "disabled"
    ENABLED = "enabled"


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionConfig:
    """How Ebb evicts the pods of marked nodes, one node at a time."""

    mode: EvictionMode = EvictionMode.DISABLED
    """With `enabled`, Ebb evicts the pods of marked nodes, one node at a time. Requires the
    component `eviction`. Set it to `enabled` if marked nodes do not become empty without it."""
    after_seconds: Annotated[int, duration()] = 600
    """Time for which Ebb waits for a marked node to become empty before it evicts pods. Raise
    it if most nodes become empty by themselves a little later."""
    max_at_once: Annotated[int, whole_number(1, AT_ONCE_MAX)] = 10
    """Maximum number of pods of marked nodes that are terminating or not yet replaced, whoever
    evicted them. At most 5 are on one node. At most 3 of a namespace count. Lower it if many pods
    that start at the same time overload a registry or a database."""
