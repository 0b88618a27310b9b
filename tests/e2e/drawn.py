"""The objects of a randomly drawn cluster."""

from dataclasses import dataclass, field

from tests.e2e.api import Json

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"


@dataclass
class Drawn:
    """The objects of one cluster, in the order in which they are created."""

    seed: int
    nodes: list[Json] = field(default_factory=list)
    csi_nodes: list[Json] = field(default_factory=list)
    volumes: list[Json] = field(default_factory=list)
    claims: list[Json] = field(default_factory=list)
    attachments: list[Json] = field(default_factory=list)
    """VolumeAttachments of volumes whose pods are gone."""
    pods: list[Json] = field(default_factory=list)
    waiting: set[str] = field(default_factory=set)
    """Pods, by namespace/name, that remain Pending although there may be room."""
    leaving: set[str] = field(default_factory=set)
    """Terminating pods, which exist until their finalizer is removed."""


def name_of(found: Json) -> str:
    """Return an object's name."""
    name: str = found["metadata"]["name"]
    return name
