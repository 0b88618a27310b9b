"""What a leader remembers of its evictions; a new one knows nothing, and looks on first."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from core.drain.pods import Owner
from core.model.pod import Pod
from core.model.reason import Blocker

LOOK_ON_SECONDS: Final = 10
"""So long a new leader looks on before it evicts: by then controllers have made the pods that are
to stand in for those that the leader before it evicted last."""
REFUSED_SECONDS_MIN: Final = 5
REFUSED_SECONDS_MAX: Final = 60
"""A pod that the API server has not let go is asked for again after this; it doubles each time."""
REFUSALS_MAX: Final = 1000
"""Pods of which that is remembered."""
MISSED_MAX: Final = 1000
"""Controllers of which it is remembered that they lack pods."""


class Eviction(NamedTuple):
    """A pod to evict."""

    pod: Pod
    owner: Owner
    ready: int
    """Ready pods of its owner, itself among them, before any of them was evicted."""


class Evicted(NamedTuple):
    """A pod that has been evicted, until another stands in its place."""

    key: str
    uid: str
    owner: Owner
    ready: int
    """As in Eviction."""
    at: int
    """Unix seconds; as long as it terminates as it should, those of the last look."""


class Refused(NamedTuple):
    """A pod that the API server has not let go."""

    times: int
    until: int
    """Unix seconds: before that it is not asked for again."""
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainState:
    """What has happened in the drains of this leader."""

    node: str = ""
    """The one at work; empty: none."""
    here: frozenset[str] = frozenset()
    """The uids of its pods, when its mark was first seen to be hard."""
    left: frozenset[Owner] = frozenset()
    """The controllers of which pods have been evicted there."""
    progress: int = 0
    """Unix seconds: when its drain last went on."""
    evicted: tuple[Evicted, ...] = ()
    refused: Mapping[str, Refused] = field(default_factory=dict)
    """By the pods' uid."""
    failed: Mapping[str, Blocker] = field(default_factory=dict)
    """Nodes whose drain has failed, until they are released."""
    missed: Mapping[Owner, Evicted] = field(default_factory=dict)
    """Controllers that have fewer Ready pods since one was evicted, and made none: no other of
    theirs is evicted, on whichever node, until that is over or for `backoff.max`."""

    def after(self, one: Eviction, now_seconds: int) -> "DrainState":
        """Return the memory after an eviction that the API server has taken on."""
        pod = one.pod
        new = Evicted(pod.key, pod.uid, one.owner, one.ready, now_seconds)
        left = self.left | {one.owner}
        return replace(self, left=left, progress=now_seconds, evicted=(*self.evicted, new))

    def released(self, failed: Mapping[str, Blocker]) -> "DrainState":
        """Return the memory without a node at work."""
        return replace(self, node="", here=frozenset(), left=frozenset(), failed=failed)

    @property
    def began(self) -> bool:
        """Say whether a pod of the node at work has been evicted."""
        return bool(self.left)

    def refusing(self, pod: Pod, why: str, *, until: int) -> "DrainState":
        """Return the memory after a refusal."""
        before = self.refused.get(pod.uid)
        new = {pod.uid: Refused(before.times + 1 if before else 1, until, why)}
        kept = [*(self.refused.keys() - new.keys())][: REFUSALS_MAX - 1]
        return replace(self, refused={uid: self.refused[uid] for uid in kept} | new)

    def pause_seconds(self, pod: Pod) -> int:
        """Return how long, at least, the pod is left alone if it is refused once more."""
        before = self.refused.get(pod.uid)
        return min(
            REFUSED_SECONDS_MIN << min(before.times if before else 0, 16), REFUSED_SECONDS_MAX
        )
