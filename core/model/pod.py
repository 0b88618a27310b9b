"""A pod, frozen: what it asks for is one value for all pods alike."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from core.model.constraints import (
    NO_DISRUPTION_FACTS,
    NO_NODE_CONSTRAINTS,
    NO_POD_CONSTRAINTS,
    DisruptionFacts,
    NodeConstraints,
    PodConstraints,
)
from core.model.now import Now
from core.model.resources import Resources

EXPENDABLE_BELOW: Final = -10
"""Cluster Autoscaler's default of `--expendable-pods-priority-cutoff`."""
DEVICES_FIELD: Final = "spec.resourceClaims"
"""In Pod.unsupported: devices by claims (DRA)."""
DEFAULT_SCHEDULER: Final = "default-scheduler"
"""What the API server writes into pods that name no scheduler."""
SCHEDULER_CHARS_MAX: Final = 253
"""Of a scheduler's name: one that is longer is none that can be known, and is cut."""
TEMPLATE_LABEL: Final = "pod-template-hash"
"""What a Deployment puts behind its own name in that of a ReplicaSet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod that holds, or asks for, room on a node. Finished pods are never in a Cluster."""

    namespace: str
    name: str
    uid: str = ""
    node: str | None = None
    """The node it is bound to; None: pending."""
    requests: Resources = Resources(pods=1)
    """As kube-scheduler counts them (core.model.requests); `pods` is 1."""
    placing: NodeConstraints = NO_NODE_CONSTRAINTS
    scheduler: str = DEFAULT_SCHEDULER
    """Who chooses its node; `unsupported` says so where it is not known how (model.schedulers)."""
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    owner_kind: str = ""
    """Kind of the controlling owner (ReplicaSet, DaemonSet, Job, ...); empty: a bare pod."""
    owner_name: str = ""
    priority: int = 0
    mirror: bool = False
    """A static pod's image in the API: it lives and goes with its node."""
    daemon: bool = False
    """Of a DaemonSet, or declared so to the autoscaler: goes with its node."""
    unsupported: tuple[str, ...] = ()
    """Constraints that the engine cannot evaluate, by field path: such a pod is not movable."""
    too_much: str = ""
    """What it asks more of than is evaluated for one pod: nothing of that is but for the ports and
    disks it holds, which others feel, and the pod is not movable; empty: nothing."""
    unreadable: str = ""
    """Why it could not be read: what stands here is all that is known of it, and neither it nor
    another pod can be placed beside it; empty: it could."""
    company: PodConstraints = NO_POD_CONSTRAINTS
    """Of a pod that lives and goes with its node: only what others feel, `apart`, ports, disks."""
    ties: DisruptionFacts = NO_DISRUPTION_FACTS
    unschedulable: bool = False
    """Pending, and the scheduler has said that no node takes it."""
    terminating: bool = False
    """It is being deleted: topology spread does not count it any more."""
    ready: bool = field(default=False, compare=False)
    """It says that it serves. No plan rests on it, so that pods are equal whether they do or not:
    what comes and goes so often must not make the engine judge anew."""
    created_seconds: int | None = field(default=None, compare=False)
    """When the API server took it in, unix seconds; nobody can change that. None: not known. No
    plan rests on it."""
    deletion_cost: str | None = None
    """What its ReplicaSet's scale-in goes by, as written; and what of it Ebb has written."""
    deletion_cost_ours: str | None = None

    @property
    def key(self) -> str:
        """Return namespace/name, unique in a cluster."""
        return f"{self.namespace}/{self.name}"

    @property
    def evaluable(self) -> bool:
        """Say whether all that it asks is known and can be judged; if not, it is not movable."""
        return not (self.unsupported or self.too_much or self.unreadable)

    @property
    def stays_with_node(self) -> bool:
        """Say whether the pod goes when its node goes, and needs no other place."""
        return self.daemon or self.mirror

    @property
    def expendable(self) -> bool:
        """Say whether autoscalers take its node without asking."""
        return self.priority < EXPENDABLE_BELOW

    @property
    def occupies(self) -> bool:
        """Say whether the pod keeps its node from being empty, as Cluster Autoscaler counts."""
        return not (self.daemon or self.mirror or self.priority < EXPENDABLE_BELOW)

    @property
    def has_our_cost(self) -> bool:
        """Say whether its deletion cost is one that Ebb has written."""
        return self.deletion_cost is not None and self.deletion_cost == self.deletion_cost_ours

    def overdue(self, now: Now | None) -> bool:
        """Return whether the pod should have ended long ago; None: no time has passed.

        Cluster Autoscaler does not wait for such a pod (LongTerminating).
        """
        due = self.ties.overdue_seconds
        return due is not None and now is not None and now.reached(due + 1)
