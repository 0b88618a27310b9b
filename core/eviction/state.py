"""Define what a leader remembers of its evictions.

A new leader remembers none, so it observes the cluster for OBSERVE_SECONDS before it evicts pods.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from core.engine.maintenance_gate import MayBegin
from core.engine.node_share import Placement
from core.eviction.pods import Owner
from core.model.pod import Pod
from core.model.reason import Blocker

OBSERVE_SECONDS: Final = 10
"""Time for which a new leader observes the cluster before it evicts pods.

By then controllers have created the replacements of the pods that the previous leader evicted."""
REFUSED_SECONDS_MIN: Final = 5
REFUSED_SECONDS_MAX: Final = 60
"""Bounds of the pause after the API server rejected an eviction; it doubles with each
rejection."""
REFUSALS_MAX: Final = 1000
"""Maximum number of pods whose rejections are stored."""
MISSED_MAX: Final = 1000
"""Maximum number of controllers whose missing replacements are stored."""


class PlannedEviction(NamedTuple):
    """A pod to evict, its controller, and the permission to evict it."""

    pod: Pod
    owner: Owner
    ready: int
    """Number of Ready pods of its owner, including the pod, before any eviction."""
    permit: MayBegin
    """Permission to evict the pod; it may end before the eviction is sent."""
    others: frozenset[str]
    """UIDs of all pods of its owner before any eviction."""


class Evicted(NamedTuple):
    """An evicted pod, which the leader remembers until its replacement is Ready."""

    key: str
    uid: str
    owner: Owner
    ready: int
    """Number of Ready pods of its owner before any eviction."""
    at: int
    """Unix second of the eviction, or of the last reconciliation in which the pod was terminating
    within its grace period."""
    others: frozenset[str] = frozenset()
    """UIDs of all pods of its owner before any eviction."""


class Refused(NamedTuple):
    """The API server's rejections of a pod's eviction: their number and reason, and the retry."""

    times: int
    until: int
    """Unix second before which the eviction is not retried."""
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionState:
    """What this leader remembers of its evictions; it is replaced, never changed."""

    node: str = ""
    """Name of the node whose pods are evicted; empty if there is none."""
    initial_pods: frozenset[str] = frozenset()
    """UIDs of the node's pods when its NoSchedule mark was first observed."""
    evicted_owners: frozenset[Owner] = frozenset()
    """Controllers whose pods were evicted from the node."""
    progress: int = 0
    """Unix second of the last progress on the node; evictions without progress fail."""
    evicted: tuple[Evicted, ...] = ()
    """Evicted pods whose replacement is not Ready yet."""
    refused: Mapping[str, Refused] = field(default_factory=dict)
    """Rejected evictions by the UID of the pod."""
    failed: Mapping[str, Blocker] = field(default_factory=dict)
    """Why the evictions of a node failed, by node, until Ebb has unmarked the node."""
    missed: Mapping[Owner, Evicted] = field(default_factory=dict)
    """Controllers that did not replace an evicted pod in time, with the eviction.

    Ebb evicts no other pod of such a controller until it has as many Ready pods as before, or
    until a day has passed."""
    placed: Mapping[str, Placement] = field(default_factory=dict)
    """Where the replacements of the last window were first seen, by UID of the evicted pod."""

    def after(self, eviction: PlannedEviction, now_seconds: int) -> "EvictionState":
        """Return the state after the API server accepted an eviction; *now_seconds*: Unix time."""
        pod = eviction.pod
        new = Evicted(
            pod.key, pod.uid, eviction.owner, eviction.ready, now_seconds, eviction.others
        )
        return replace(
            self,
            evicted_owners=self.evicted_owners | {eviction.owner},
            progress=now_seconds,
            evicted=(*self.evicted, new),
        )

    def stopped(self, failed: Mapping[str, Blocker]) -> "EvictionState":
        """Return the state in which Ebb evicts pods of no node.

        *failed*: why evictions failed, by node; Ebb unmarks these nodes.
        """
        return replace(
            self,
            node="",
            initial_pods=frozenset(),
            evicted_owners=frozenset(),
            failed=failed,
        )

    @property
    def began(self) -> bool:
        """Return whether this leader has evicted a pod of the current node, `node`."""
        return bool(self.evicted_owners)

    def refusing(self, pod: Pod, why: str, *, until: int) -> "EvictionState":
        """Return the state after the API server rejected the eviction of the pod.

        *why*: the answer of the API server. *until*: Unix second before which Ebb does not retry.
        """
        before = self.refused.get(pod.uid)
        new = {pod.uid: Refused(before.times + 1 if before else 1, until, why)}
        others = [*(self.refused.keys() - new.keys())][: REFUSALS_MAX - 1]
        return replace(self, refused={uid: self.refused[uid] for uid in others} | new)

    def pause_seconds(self, pod: Pod) -> int:
        """Return the minimum pause in seconds that follows another rejection of the eviction.

        It doubles with each rejection of the pod's eviction by the API server.
        """
        before = self.refused.get(pod.uid)
        return min(
            REFUSED_SECONDS_MIN << min(before.times if before else 0, 16), REFUSED_SECONDS_MAX
        )
