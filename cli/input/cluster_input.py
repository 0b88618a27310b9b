"""The input of a command: a cluster, its configuration and their sources."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, TextIO

from cli.input.setup import NOT_IN_DUMP, Setup
from core.config.settings import Config, Mode
from core.model.cluster import Cluster
from core.moves.objects import SurgeObjects
from kube.dump_time import DumpTime
from kube.target import NAMESPACE, Target
from runtime.clock import Clock
from runtime.messages import tell

if TYPE_CHECKING:  # only a live cluster has a leader
    from controller.leader_report import LeaderFacts, Report

UNREADABLE_SHOWN_MAX: Final = 5
"""Number of unreadable objects that are named; the others are counted."""
UNREADABLE_CHARS_MAX: Final = 300
BUILT_IN: Final = "built-in defaults (use --config for another configuration)"


class Installation(NamedTuple):
    """Namespace of Ebb, and the settings of the command line that replace its configuration."""

    namespace: str = NAMESPACE
    config: Config | None = None
    """Configuration of the command line; None: the one that runs in the cluster."""
    policy: str | None = None
    """Policy that replaces the configured one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leader:
    """Leader among the controller's replicas according to its Lease, or why it is unknown."""

    lease: str
    """Lease as namespace/name."""
    holder: str = ""
    """Identity of the leader; empty if there is none or it is unknown."""
    renewed_seconds: int | None = None
    """Time of the last renewal in Unix seconds."""
    duration_seconds: int = 0
    problem: str | None = None
    unread: bool = False
    """Whether the Lease could not be read, so that it is unknown whether a replica leads."""
    answered: bool = True
    """Whether the API server answered the read, if only that RBAC does not allow it."""

    def leads(self, now_seconds: int) -> bool:
        """Return whether a replica holds the Lease and has renewed it in time.

        *now_seconds*: present time in Unix seconds.
        """
        renewed = self.renewed_seconds
        return bool(self.holder) and (
            renewed is not None and now_seconds - renewed <= self.duration_seconds
        )


@dataclass(frozen=True, slots=True)
class Running:
    """How Ebb runs in a live cluster: its leader, the leader's report, and failed reads."""

    leader: Leader
    report: "Report | None" = None
    """Report of the leader; None if there is none, or it could not be read."""
    problems: tuple[str, ...] = ()
    """Failed reads of the running Ebb, each with its error."""
    config_unknown: bool = False
    """The configuration could not be read, so the built-in defaults are used."""

    @property
    def facts(self) -> "LeaderFacts | None":
        """Return delays, cooldowns and decisions that the leader reports; None if unknown."""
        return self.report.facts if self.report is not None else None

    def leads(self, now_seconds: int) -> bool | None:
        """Return whether a replica of the controller leads, by its own report or by the Lease.

        None: unknown, because neither could be read. *now_seconds*: present time in Unix seconds.
        """
        # The clock of this machine, with which the Lease is compared, may be wrong.
        if self.report is not None:
            return True
        return None if self.leader.unread else self.leader.leads(now_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterInput:
    """A cluster that was read live or from dumps, its configuration, and the sources of both."""

    cluster: Cluster
    config: Config
    where: str
    """Source of the cluster as text: names of files, or a kubeconfig."""
    config_from: str | None = None
    """Source of the configuration: a path, the leader or the ConfigMap; None for built-in
    defaults."""
    kinds: frozenset[str] | None = None
    """Kinds of objects in the dump; None for a live cluster, where all kinds are read."""
    target: Target | None = None
    """API server of a live cluster; None for a dump."""
    running: Running | None = None
    """How Ebb runs in a live cluster; None for a dump."""
    not_read: tuple[str, ...] = ()
    """Failed reads of a live cluster, each with its error."""
    absent: Mapping[str, str] = field(default_factory=dict)
    """Why kinds could not be read from a live cluster, by the name of the kind."""
    setup: Setup = field(default_factory=Setup)
    """Setup around Ebb; empty for commands that do not need it."""
    surge_objects: SurgeObjects | None = None
    """Objects that surge moves depend on; None if these are disabled, or for a dump without
    Deployments and ReplicaSets."""
    namespace: str = NAMESPACE
    """Namespace in which Ebb is installed."""
    dump_time: DumpTime = field(default_factory=DumpTime)
    """Timestamps from which `now_seconds` estimates the time of the dumps; empty if live."""

    @property
    def mode(self) -> Mode | None:
        """Return the configured mode; None if the configuration could not be read."""
        return None if self.running and self.running.config_unknown else self.config.mode

    def now_seconds(self, clock: Clock) -> int:
        """Return the Unix time at which the cluster was read; estimated for a dump.

        *clock*: the time for a live cluster, and the latest possible time for a dump.
        """
        clock_seconds = clock.unix_seconds()
        if self.kinds is None:
            return clock_seconds
        return self.dump_time.estimate(self.cluster.pods, clock_seconds)

    def why_absent(self, kind: str) -> str:
        """Return why the objects of a kind are unknown; an empty text if they were read."""
        if self.kinds is not None:
            return "" if kind in self.kinds else NOT_IN_DUMP
        return self.absent.get(kind, "")

    @property
    def leader(self) -> Leader | None:
        """Return the leader of ebb-controller according to its Lease; None for a dump."""
        return self.running.leader if self.running is not None else None

    @property
    def leader_pod(self) -> str:
        """Return the pod of the leader as namespace/name; empty if it is unknown."""
        if self.running is None:
            return ""
        report = self.running.report
        holder = report.identity if report is not None else self.running.leader.holder
        name = holder.rpartition("_")[0] or holder
        return name and f"{self.namespace}/{name}"

    @property
    def facts(self) -> "LeaderFacts | None":
        """Return delays, cooldowns and decisions that the leader reports; None if unknown."""
        return self.running.facts if self.running is not None else None

    @property
    def origin(self) -> tuple[tuple[str, str], ...]:
        """Return rows of label and text about the sources of cluster and configuration."""
        cluster = (("cluster", str(self.target)),) if self.target is not None else ()
        return *cluster, ("source", self.where), ("configuration", self.config_from or BUILT_IN)


def report_unreadable(unreadable: Sequence[str], out: TextIO) -> None:
    """Write a line on *out* for each of the first unreadable objects, and count the others.

    *unreadable*: each object with the reason why it cannot be read. The nodes of these objects are
    not removable.
    """
    for reason in unreadable[:UNREADABLE_SHOWN_MAX]:
        tell(f"ebb: cannot read: {reason[:UNREADABLE_CHARS_MAX]}", out)
    if len(unreadable) > UNREADABLE_SHOWN_MAX:
        tell(f"ebb: cannot read {len(unreadable) - UNREADABLE_SHOWN_MAX} more objects", out)
