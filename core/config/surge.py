"""Settings for surge moves: whether, and how many at once."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final

from core.setting_types.structure import ON_FIRST_PAGE
from core.setting_types.value_types import Flag, duration, whole_number

MOVES_MAX: Final = 100
"""Maximum of `maxAtOnce`; each move has a record of about 400 bytes."""
HOURLY_MAX: Final = 10_000


class SurgeMode(StrEnum):
    """Whether Ebb moves pods of Deployments from marked nodes by surge moves."""

    DISABLED = "disabled"
    ENABLED = "enabled"


@dataclass(frozen=True, slots=True, kw_only=True)
class SurgeConfig:
    """Settings for surge moves; a Deployment has at most one at a time."""

    mode: Annotated[SurgeMode, ON_FIRST_PAGE] = SurgeMode.DISABLED
    """With `enabled`, Ebb moves pods of Deployments from marked nodes. It takes a pod out of its
    ReplicaSet, waits until the new pod is available, and gives the old one back, so that the
    ReplicaSet deletes it. Requires the component `surge` and pod deletion costs. Set it to
    `enabled` if long-running pods of Deployments keep marked nodes from becoming empty."""
    max_at_once: Annotated[int, whole_number(1, MOVES_MAX)] = 20
    """Maximum number of moves at the same time, of which at most 10 are in one namespace. Lower it
    if many pods that start at the same time overload a registry or a database."""
    max_per_hour: Annotated[int, whole_number(1, HOURLY_MAX)] = 200
    """Maximum number of moves that begin within an hour. Raise it if the marked nodes of a large
    cluster do not become empty before their deadline."""
    min_pod_age_seconds: Annotated[int, duration()] = 600
    """Minimum age of a pod that is moved, so that no pod is moved twice in a row. Raise it if pods
    need longer to warm up, such as caches."""
    keep_local_storage: Flag = True
    """Whether pods that store data on their node, such as in an emptyDir volume, are not moved.
    Set it to `false` if your pods can lose this data, as a cache can."""
