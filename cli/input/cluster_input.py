"""What a command has before it: a cluster, and how it was come by."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, TextIO

from core.config.settings import Config
from core.edge.clock import Clock
from core.edge.decode.dump_time import DumpTime
from core.edge.kube.names import NAMESPACE
from core.model.cluster import Cluster

REFUSED_SHOWN_MAX: Final = 5
"""Objects that cannot be read and are named; the others are counted."""
REFUSED_CHARS_MAX: Final = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Leader:
    """The record of who runs the engine, or why it is not known."""

    lease: str
    """namespace/name."""
    holder: str = ""
    """Empty: nobody, or not known."""
    renewed_seconds: int | None = None
    """Unix seconds."""
    duration_seconds: int = 0
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterInput:
    """A cluster, and how it was come by."""

    cluster: Cluster
    config: Config
    where: str
    """For people: files, or a kubeconfig."""
    config_from: str | None = None
    """The configuration's file; None: built-in defaults."""
    kinds: frozenset[str] | None = None
    """The kinds of objects that a dump holds; None: a live cluster, that was asked for all."""
    leader: Leader | None = None
    """None: it was not asked for, or there is nobody to ask."""
    namespace: str = NAMESPACE
    """Where Ebb is installed."""
    dump_time: DumpTime = field(default_factory=DumpTime)
    """From which `now_seconds` estimates when the dumps were made; empty for a live cluster."""

    def now_seconds(self, clock: Clock) -> int:
        """Return the moment from which all its times count: when it was looked at."""
        clock_seconds = clock.unix_seconds()
        if self.kinds is None:
            return clock_seconds
        return self.dump_time.estimate(self.cluster.pods, clock_seconds)

    @property
    def origin(self) -> tuple[tuple[str, str], ...]:
        """Say where the cluster was seen, and what judged it."""
        built_in = "built-in defaults (give the programs' own with --config)"
        return ("seen in", self.where), ("judged by", self.config_from or built_in)


def tell_refused(refused: Sequence[str], out: TextIO) -> None:
    """Name the objects that cannot be read, a line each; they keep their own nodes."""
    out.writelines(
        f"ebb: cannot read: {reason[:REFUSED_CHARS_MAX]}\n"
        for reason in refused[:REFUSED_SHOWN_MAX]
    )
    if len(refused) > REFUSED_SHOWN_MAX:
        out.write(f"ebb: cannot read {len(refused) - REFUSED_SHOWN_MAX} more objects\n")
