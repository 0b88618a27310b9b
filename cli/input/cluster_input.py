"""The input of a command: a cluster, its configuration and their sources."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, TextIO

from core.config.settings import Config
from core.edge.clock import Clock
from core.edge.decode.dump_time import DumpTime
from core.edge.kube.names import NAMESPACE
from core.model.cluster import Cluster
from core.surge.objects import SurgeObjects

UNREADABLE_SHOWN_MAX: Final = 5
"""Number of unreadable objects that are named; the others are counted."""
UNREADABLE_CHARS_MAX: Final = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Leader:
    """Leader of the controller according to its Lease, or why the leader is unknown."""

    lease: str
    """Lease as namespace/name."""
    holder: str = ""
    """Identity of the leader; empty if there is none or it is unknown."""
    renewed_seconds: int | None = None
    """Time of the last renewal in Unix seconds."""
    duration_seconds: int = 0
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterInput:
    """A cluster, its configuration and their sources."""

    cluster: Cluster
    config: Config
    where: str
    """Source of the cluster as text: names of files, or a kubeconfig."""
    config_from: str | None = None
    """Path of the configuration; None for built-in defaults."""
    kinds: frozenset[str] | None = None
    """Kinds of objects in the dump; None for a live cluster, where all kinds are read."""
    leader: Leader | None = None
    """Leader; None if it was not requested or the cluster was read from a dump."""
    surge_objects: SurgeObjects | None = None
    """Objects that surge moves depend on; None if these are disabled, or for a dump without
    Deployments and ReplicaSets."""
    namespace: str = NAMESPACE
    """Namespace in which Ebb is installed."""
    dump_time: DumpTime = field(default_factory=DumpTime)
    """Timestamps from which `now_seconds` estimates the time of the dumps; empty if live."""

    def now_seconds(self, clock: Clock) -> int:
        """Return the Unix time at which the cluster was read; estimated for a dump."""
        clock_seconds = clock.unix_seconds()
        if self.kinds is None:
            return clock_seconds
        return self.dump_time.estimate(self.cluster.pods, clock_seconds)

    @property
    def origin(self) -> tuple[tuple[str, str], ...]:
        """Return rows with the sources of the cluster and of the configuration."""
        built_in = "built-in defaults (use --config for the configuration of the programs)"
        return ("source", self.where), ("configuration", self.config_from or built_in)


def report_unreadable(unreadable: Sequence[str], out: TextIO) -> None:
    """Report objects that cannot be read, a line each; their nodes are not removable."""
    out.writelines(
        f"ebb: cannot read: {reason[:UNREADABLE_CHARS_MAX]}\n"
        for reason in unreadable[:UNREADABLE_SHOWN_MAX]
    )
    if len(unreadable) > UNREADABLE_SHOWN_MAX:
        out.write(f"ebb: cannot read {len(unreadable) - UNREADABLE_SHOWN_MAX} more objects\n")
