"""The values of checks: facts, results, findings."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from cli.input.cluster_input import ClusterInput
from cli.input.setup import NOT_IN_DUMP, SETUP_DUMP, Read, Setup, SetupKind
from core.config.settings import Config
from core.model.cluster import Cluster


class CheckState(StrEnum):
    """The state of a check."""

    PROBLEM = "problem"
    UNKNOWN = "unknown"
    OK = "ok"


class Evidence(NamedTuple):
    """One value that was read."""

    object: str
    """Object as `Kind namespace/name`, or another source."""
    field: str
    value: str


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of a check."""

    state: CheckState
    seen: str
    """One sentence about what was seen; for UNKNOWN, why the state is unknown."""
    evidence: tuple[Evidence, ...] = ()
    visible_by: str = ""
    """For UNKNOWN: what makes the state known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All facts that checks use."""

    cluster_input: ClusterInput
    now_seconds: int
    """Time at which the cluster was read, in Unix seconds."""
    scheduler_file: str = ""
    """Path of the file with the configuration of kube-scheduler; empty if it is not given."""
    scheduler: Mapping[str, Any] | None = None
    """Content of this file; None if it is not given."""

    @property
    def setup(self) -> Setup:
        """Return the setup around Ebb."""
        return self.cluster_input.setup

    @property
    def cluster(self) -> Cluster:
        """Return the cluster."""
        return self.cluster_input.cluster

    @property
    def config(self) -> Config:
        """Return the configuration of Ebb."""
        return self.cluster_input.config

    @property
    def namespace(self) -> str:
        """Return the namespace of Ebb."""
        return self.cluster_input.namespace


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A check: what it asks, and what a problem means."""

    code: str
    question: str
    """The question that state OK answers with yes; the documentation lists it."""
    effect: str
    """Effect of a problem."""
    fix: str
    """Fix of a problem: a command, a setting, or a page of the documentation."""
    run: Callable[[Facts], CheckResult]


@dataclass(frozen=True, slots=True)
class Finding:
    """A check with its result."""

    check: Check
    result: CheckResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """Answer of `ebb doctor`."""

    cluster_input: ClusterInput
    now_seconds: int
    findings: tuple[Finding, ...]
    """A finding for each check: problems first, then unknown states, then the others."""

    def count(self, state: CheckState) -> int:
        """Return the number of findings in a state."""
        return sum(finding.result.state is state for finding in self.findings)


def ok(seen: str, *evidence: Evidence) -> CheckResult:
    """Return a result without a problem."""
    return CheckResult(CheckState.OK, seen, evidence)


def problem(seen: str, evidence: Sequence[Evidence]) -> CheckResult:
    """Return a problem with its evidence."""
    return CheckResult(CheckState.PROBLEM, seen, tuple(evidence))


def unknown(why: str, visible_by: str, *evidence: Evidence) -> CheckResult:
    """Return an unknown state."""
    return CheckResult(CheckState.UNKNOWN, why, evidence, visible_by)


def unread(resource: str, why: str, dump: str = SETUP_DUMP) -> CheckResult:
    """Return an unknown state, because a kind could not be read.

    *dump*: a dump with the objects.
    """
    if why == NOT_IN_DUMP:
        return unknown(
            f"{resource} are not in the dump",
            f"add {dump} with another --from-file",
        )
    return unknown(
        f"cannot read {resource}: {why}",
        f"make {resource} readable for your user (docs/doctor.md#permissions)",
    )


def first_unread(facts: Facts, *kinds: SetupKind) -> CheckResult | None:
    """Return an unknown state if one of the kinds could not be read, else None."""
    for kind in kinds:
        read = facts.setup.of(kind)
        if read.absent:
            return unread(kind.resource, read.absent, kind.dump)
    return None


def values(read: Read[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Return the objects that were read; empty if they could not be read."""
    return read.value or ()


def where(kind: str, metadata: Any) -> str:  # noqa: ANN401 the metadata of any object
    """Return the name of an object for evidence: Kind namespace/name."""
    namespace = f"{metadata.namespace}/" if metadata.namespace else ""
    return f"{kind} {namespace}{metadata.name}"
