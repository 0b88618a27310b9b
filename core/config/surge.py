"""Settings for surge moves: whether, and how many at once."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final

from core.setting_types.value_types import Flag, duration, whole_number

MOVES_MAX: Final = 100
"""Maximum of `maxInCluster` and `maxInNamespace`; each move has a record of about 400 bytes."""
HOURLY_MAX: Final = 10_000

Moves = Annotated[int, whole_number(1, MOVES_MAX)]


class SurgeMode(StrEnum):
    """Whether Ebb moves pods of Deployments from marked nodes by surge moves."""

    DISABLED = "disabled"
    ENABLED = "enabled"


@dataclass(frozen=True, slots=True, kw_only=True)
class SurgeConfig:
    """Settings for surge moves; a Deployment has at most one at a time."""

    mode: SurgeMode = SurgeMode.DISABLED
    """With `enabled`, Ebb moves pods of Deployments from marked nodes. It takes a pod out of its
    ReplicaSet, waits until the new pod is available, and gives the old one back, so that the
    ReplicaSet deletes it. Requires pod deletion costs."""
    max_in_cluster: Moves = 20
    """Maximum number of moves at the same time. A Deployment has at most one."""
    max_in_namespace: Moves = 10
    """Maximum number of moves at the same time in one namespace."""
    max_per_hour: Annotated[int, whole_number(1, HOURLY_MAX)] = 200
    """Maximum number of moves that begin within an hour."""
    min_pod_age_seconds: Annotated[int, duration()] = 600
    """Minimum age of a pod that is moved, so that no pod is moved twice in a row."""
    keep_local_storage: Flag = True
    """Whether pods that store data on their node, such as in an emptyDir volume, are not moved."""
