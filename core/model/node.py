"""A node and its taints; frozen.

Also the rule for virtual nodes: Nodes of virtual kubelets and serverless node pools. A kubelet can
write the labels of its own Node; the providerID cannot change once it is set. Ebb trusts both if
they say "virtual". A false claim excludes only that node and its own capacity from every plan.

Sources: virtual-kubelet (AKS virtual nodes, ACK with ECI, CCE, Admiralty), EKS on Fargate, Liqo,
TKE super nodes, OKE virtual nodes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from core.model.resources import Resources

VIRTUAL_LABELS: Final = (
    ("type", "virtual-kubelet"),
    ("eks.amazonaws.com/compute-type", "fargate"),
    ("liqo.io/type", "virtual-node"),
    ("node.kubernetes.io/instance-type", "eklet"),
)
VIRTUAL_ROLE_LABEL: Final = "node-role.kubernetes.io/virtual-node"
"""Label of OKE's virtual nodes; its presence counts, whatever its value."""
VIRTUAL_TAINT: Final = "virtual-kubelet.io/provider"
"""Taint of virtual kubelets, whatever its value."""
COMPUTE_TAINT: Final = ("eks.amazonaws.com/compute-type", "fargate")
"""Taint of EKS on Fargate. Hybrid nodes are machines and register with the value `hybrid`."""
VIRTUAL_PROVIDERS: Final = ("liqo://", "ocid1.virtualnode")
"""Prefixes of the providerIDs of virtual nodes."""
FARGATE: Final = "/fargate-"
"""Prefix of the last part of an `aws://` providerID on Fargate."""

CONDITION_MESSAGE_CHARS: Final = 64
"""Length to which the messages of conditions are cut."""


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


class NodeCondition(NamedTuple):
    """A condition of a node's status; types and messages of great length are cut."""

    type: str
    status: str
    message: str = ""
    since_seconds: int | None = None
    """Unix second of its lastTransitionTime; None if unknown."""


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
    conditions: tuple[NodeCondition, ...] = ()
    """Conditions besides those of each kubelet, such as MemoryPressure, in the order of the
    status."""
    leaving: str = ""
    """Why the node is leaving, by a condition or by its NodeClaim; set in a Cluster only."""
    leaving_until_seconds: int | None = None
    """Unix second at which `leaving` ends, unless the condition changes; None: it does not."""
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
    """The node is virtual (`is_virtual`): it is not removable and accepts no pods."""

    @property
    def key(self) -> str:
        """Return the name, unique in a cluster."""
        return self.name


def is_virtual(
    labels: Mapping[str, str], taints: Iterable[tuple[str, str]], provider_id: str
) -> bool:
    """Return whether a Node with these labels, taints and providerID is virtual.

    A virtual node belongs to a virtual kubelet or a serverless node pool; no machine backs it.
    *taints*: pairs of key and value.
    """
    return (
        any(labels.get(key) == value for key, value in VIRTUAL_LABELS)
        or VIRTUAL_ROLE_LABEL in labels
        or any(taint[0] == VIRTUAL_TAINT or taint == COMPUTE_TAINT for taint in taints)
        or provider_id.startswith(VIRTUAL_PROVIDERS)
        or (provider_id.startswith("aws://") and FARGATE in provider_id)
    )
