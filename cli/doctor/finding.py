"""The values of the checks of `ebb doctor`: their input, results and findings."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from cli.input.cluster_input import ClusterInput
from cli.input.setup import NOT_IN_DUMP, SETUP_DUMP, Read, Setup, SetupKind
from core.config.settings import Config
from core.model.cluster import Cluster


class CheckState(StrEnum):
    """The result of a check in one word; unknown if a necessary object could not be read."""

    PROBLEM = "problem"
    UNKNOWN = "unknown"
    OK = "ok"


class Evidence(NamedTuple):
    """One value that was read, such as a field of an object, on which a result is based."""

    object: str
    """Object as `Kind namespace/name`, or another source."""
    field: str
    value: str


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of a check: its state, a sentence, and the values on which it is based."""

    state: CheckState
    seen: str
    """One sentence about what was seen; for UNKNOWN, why the state is unknown."""
    evidence: tuple[Evidence, ...] = ()
    visible_by: str = ""
    """For UNKNOWN: what makes the state known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Input of all checks: the cluster that was read, and the configuration of kube-scheduler."""

    cluster_input: ClusterInput
    now_seconds: int
    """Time at which the cluster was read, in Unix seconds."""
    scheduler_file: str = ""
    """Path of the file with the configuration of kube-scheduler; empty if it is not given."""
    scheduler: Mapping[str, Any] | None = None
    """Content of this file; None if it is not given."""

    @property
    def setup(self) -> Setup:
        """Return the objects around Ebb, such as RBAC objects and the webhook's registration."""
        return self.cluster_input.setup

    @property
    def cluster(self) -> Cluster:
        """Return the cluster that was read."""
        return self.cluster_input.cluster

    @property
    def config(self) -> Config:
        """Return the configuration of Ebb."""
        return self.cluster_input.config

    @property
    def namespace(self) -> str:
        """Return the namespace in which Ebb is installed."""
        return self.cluster_input.namespace


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A check of `ebb doctor`: its question, its function, and effect and fix of a problem."""

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
    """Answer of `ebb doctor` for one cluster: a finding for each check."""

    cluster_input: ClusterInput
    now_seconds: int
    findings: tuple[Finding, ...]
    """A finding for each check: problems first, then unknown states, then the others."""

    def count(self, state: CheckState) -> int:
        """Return the number of checks whose result has the state."""
        return sum(finding.result.state is state for finding in self.findings)


def ok(seen: str, *evidence: Evidence) -> CheckResult:
    """Return the result OK; *seen*: a sentence about what was seen."""
    return CheckResult(CheckState.OK, seen, evidence)


def problem(seen: str, evidence: Sequence[Evidence]) -> CheckResult:
    """Return the result PROBLEM; *seen*: a sentence about what was seen."""
    return CheckResult(CheckState.PROBLEM, seen, tuple(evidence))


def unknown(why: str, visible_by: str, *evidence: Evidence) -> CheckResult:
    """Return the result UNKNOWN.

    *why*: why the state is unknown. *visible_by*: action of the user that makes it known.
    """
    return CheckResult(CheckState.UNKNOWN, why, evidence, visible_by)


def unread(resource: str, why: str, dump: str = SETUP_DUMP) -> CheckResult:
    """Return the result UNKNOWN, because the objects of a kind could not be read.

    *resource*: plural name of the kind. *why*: error of the read, or NOT_IN_DUMP. *dump*: name of
    a dump that would contain the objects.
    """
    if why == NOT_IN_DUMP:
        return unknown(
            f"{resource} are not in the dump",
            f"add {dump} with another --from-file",
        )
    return unknown(
        f"cannot read {resource}: {why}",
        f"if your user may not list {resource}, see docs/doctor.md#permissions",
    )


def first_unread(facts: Facts, *kinds: SetupKind) -> CheckResult | None:
    """Return UNKNOWN for the first of the kinds that could not be read; None if all were."""
    for kind in kinds:
        read = facts.setup.of(kind)
        if read.absent:
            return unread(kind.resource, read.absent, kind.dump)
    return None


def values(read: Read[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Return the objects that were read; empty if they could not be read."""
    return read.value or ()


def where(kind: str, metadata: Any) -> str:  # noqa: ANN401 the metadata of any object
    """Return the name of an object, as evidence contains it: `Kind namespace/name`."""
    namespace = f"{metadata.namespace}/" if metadata.namespace else ""
    return f"{kind} {namespace}{metadata.name}"
