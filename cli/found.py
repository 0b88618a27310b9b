"""What a command has before it: a cluster, and how it was come by."""

from dataclasses import dataclass

from core.config import Config
from core.model import Cluster


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
class Found:
    """A cluster, and how it was come by."""

    cluster: Cluster
    config: Config
    where: str
    """For people: files, or a kubeconfig."""
    config_from: str | None
    """The configuration's file; None: built-in defaults."""
    kinds: frozenset[str] | None = None
    """The kinds of objects that a dump holds; None: a live cluster, that was asked for all."""
    leader: Leader | None = None
    """None: it was not asked for, or there is nobody to ask."""
