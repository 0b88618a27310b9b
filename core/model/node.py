"""A node and its taints; frozen."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from core.model.resources import Resources


class Effect(StrEnum):
    """The effect of a taint on pods that do not tolerate it."""

    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint of a node; an unknown effect is kept as written, and no toleration covers it."""

    key: str
    value: str
    effect: str
    time_added: str = ""
    """Timestamp of the taint as written; a write of the list of taints must preserve it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node with the fields that Ebb reads."""

    name: str
    uid: str = ""
    version: str = field(default="", compare=False)
    """The resourceVersion, for conditional writes: the API server rejects a write if the Node has
    changed.

    Empty: unknown."""
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    annotations: Mapping[str, str] = field(default_factory=dict, hash=False)
    taints: tuple[Taint, ...] = ()
    """Taints in the order of the Node's spec."""
    leaving_taints: tuple[str, ...] = ()
    """Keys of its taints that the setting `leavingTaints` names; set in a Cluster only."""
    unschedulable: bool = False
    allocatable: Resources
    features: tuple[str, ...] = ()
    """Names of the features that the kubelet declares (constraints.ASKED_FEATURES)."""
    ready: bool = True
    suspended: bool = False
    """The machine is suspended (condition Suspended), as GKE does for standby buffers."""
    unreadable: str = ""
    """Why the Node could not be read; empty if it could.

    The other fields hold all that is known. Such a node is not removable and accepts no pods."""
    created_seconds: int | None = None
    """Unix second of the Node's creationTimestamp, which only the API server sets; None if
    unknown."""
    deleting: bool = False
    """The Node has a deletionTimestamp; a finalizer delays its deletion."""
    provider: str = ""
    """Name of the provider: the part of the providerID before `://`, such as `aws`, `gce`,
    `k3s`."""
    virtual: bool = False
    """The node is virtual (core.model.virtual): it is not removable and accepts no pods."""

    @property
    def key(self) -> str:
        """Return the name, unique in a cluster."""
        return self.name
