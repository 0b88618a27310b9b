"""A node and its taints, frozen."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from core.model.resources import Resources


class Effect(StrEnum):
    """What a taint does to pods that do not tolerate it."""

    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


@dataclass(frozen=True, slots=True)
class Taint:
    """A node's taint; an unknown effect is kept as it was written and never tolerated away."""

    key: str
    value: str
    effect: str
    time_added: str = ""
    """As it was written; it must not get lost when the list is written back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node as the scheduler and the engine see it."""

    name: str
    uid: str = ""
    version: str = field(default="", compare=False)
    """The resourceVersion: a write that goes by it fails if anything has changed; "": unknown."""
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    annotations: Mapping[str, str] = field(default_factory=dict, hash=False)
    taints: tuple[Taint, ...] = ()
    """In the order in which they stand on the node."""
    unschedulable: bool = False
    allocatable: Resources
    features: tuple[str, ...] = ()
    """What its kubelet declares that pods may ask for (constraints.ASKED_FEATURES), by name."""
    ready: bool = True
    unreadable: str = ""
    """Why it could not be read: what stands here is all that is known of it, so it stays and
    takes nothing; empty: it could."""
    created_seconds: int | None = None
    """When its object was made, unix seconds, as the API server alone says; None: not known."""
    deleting: bool = False
    """Its object has a deletionTimestamp, and a finalizer that still holds it."""
    virtual: bool = False
    """It stands for no machine (core.model.virtual): it never goes and takes nothing."""

    @property
    def key(self) -> str:
        """Return the name, unique in a cluster."""
        return self.name
