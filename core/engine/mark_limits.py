"""Limit new marks: each class is one limit, such as a cooldown, a backoff or a budget.

A limit remembers what it needs between reconciliations (`observe`), returns what counts for it now
and until when (`ends`), and says why no further node may be marked (`describe`). The planner, the
leader's report and `ebb` derive everything else from the list MARK_LIMITS.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final, NamedTuple, Self

from core.config.budgets import Budget
from core.config.settings import Config
from core.engine.snapshot import NO_POOL, ClusterSnapshot
from core.engine.unschedulable import feasible_unschedulable
from core.marks.mark import (
    BACKOFF_SECONDS_MAX,
    UNMARKED_BY_PERSON,
    Mark,
    backoff_seconds,
    backoffs,
)
from core.marks.wellknown import BACKOFF_ANNOTATION, TAINT_KEY
from core.model.humanize import duration, plural, timestamp
from core.model.node import Node
from core.model.now import Now
from core.model.pod import runs_to_completion
from core.model.reason import Reason, Timed

CLUSTER: Final = ""
"""Scope of a limit that applies to all nodes."""
WHOLE: Final = (CLUSTER,)
REFUSED_SECONDS: Final = 60
"""Minimum time for which a node is skipped after a write of its mark failed.

If a NoSchedule mark cannot be removed, this is also the maximum, because pods may be Pending
because of the mark."""


class Observed(NamedTuple):
    """What a reconciliation sees, and what the previous one saw."""

    snapshot: ClusterSnapshot
    added: frozenset[str]
    """Names of the nodes that were added since the previous reconciliation."""
    marked_before: frozenset[str]
    """Names of the nodes that had a mark in the previous reconciliation."""
    last_at: int
    """Time of the previous reconciliation, unix seconds; 0 if there was none."""
    is_first: bool
    """True if there was no previous reconciliation."""


class End(NamedTuple):
    """How long one event counts for a limit, such as an earlier mark."""

    until: int | None = None
    """Unix second from which it does not count; None if unknown, as for a mark of this plan."""
    about: str = ""
    """What the message names, such as a pod."""
    reached: bool = True
    """False for the mark of a node that no movable pod can use."""


Ends = Mapping[str, tuple[End, ...]]
"""What counts for a limit, by scope: the name of a node or pool, or CLUSTER. The first to end
comes first."""


@dataclass(slots=True, eq=False)
class Use:
    """What counts for a limit in one scope, including the marks of the plan that is made."""

    scope: str
    ends: list[End]
    nodes: int = 0
    """Number of existing nodes of the scope; 0 if marks do not count for the limit."""
    marked: int = 0
    """Number of these nodes that had a mark before the plan."""


@dataclass(frozen=True, slots=True)
class MarkLimit(ABC):
    """A limit on new marks; the fields of a subclass are what the leader remembers for it."""

    reason: ClassVar[Reason]
    counts_marks: ClassVar[bool] = False
    """Whether marks count for the limit, so that the marks of a plan use it up."""
    separates_unreached: ClassVar[bool] = False
    """Whether marks of nodes that no movable pod can use count for such nodes only."""

    def observe(self, observed: Observed, now: Now) -> Self:  # noqa: ARG002
        """Return the limit after a reconciliation; it remembers nothing unless it overrides this.

        The plan of the reconciliation is made after that.
        """
        return self

    def ends(self, snapshot: ClusterSnapshot, now: Now) -> Ends:  # noqa: ARG002
        """Return what counts for the limit at *now*, after `observe` for this snapshot.

        By default nothing but the marks of the plan counts.
        """
        return {}

    def scopes(self, node: Node, pool: str) -> Sequence[str]:  # noqa: ARG002
        """Return the scopes of the limit that contain the node, of this pool or NO_POOL."""
        return WHOLE

    def mark_until(self, config: Config, at: int) -> int | None:  # noqa: ARG002
        """Return until when a mark counts that is set at *at*; None if that is unknown."""
        return None

    def unseen_until(self, config: Config, since: int) -> int | None:  # noqa: ARG002
        """Return until when a leader may lack what counted before it began to lead at *since*.

        None if it reads everything from the cluster.
        """
        return None

    @abstractmethod
    def describe(self, use: Use, config: Config) -> str | Timed | None:
        """Return why no further node of a scope may be marked, or None if one may.

        Timed says when the limit ends.
        """


class _NodeLimit(MarkLimit):
    """A limit that skips single nodes; its scopes are their names."""

    __slots__ = ()

    def scopes(self, node: Node, pool: str) -> Sequence[str]:  # noqa: ARG002
        return (node.name,)


class _BudgetLimit(MarkLimit):
    """A limit on the number of marks in the cluster and in each pool."""

    __slots__ = ()
    counts_marks: ClassVar[bool] = True
    separates_unreached: ClassVar[bool] = True

    def scopes(self, node: Node, pool: str) -> Sequence[str]:  # noqa: ARG002
        return WHOLE if pool == NO_POOL else (CLUSTER, pool)


def _since(at: int | None, seconds: int, now: Now) -> Ends:
    """Return the end of a time without new marks that began at *at*; empty if it has ended."""
    return {} if at is None or now.reached(at + seconds) else {CLUSTER: (End(at + seconds),)}


def _no_mark(why: str, use: Use) -> Timed | None:
    return _until(f"{why}: no node is marked until", use)


def _skipped(why: str, use: Use) -> Timed | None:
    return _until(f"{why}: Ebb skips the node until", use)


def _until(text: str, use: Use) -> Timed | None:
    until = use.ends[0].until if use.ends else None
    return None if until is None else Timed(f"{text} {timestamp(until)}", until)


COOLDOWN: Final = Reason(
    "cooldown",
    "A node was added recently. Ebb marks no node while the cluster grows.",
    "wait; or shorten `cooldown.delayAfterAdd`",
    "no node has been added for `cooldown.delayAfterAdd`",
)


@dataclass(frozen=True, slots=True)
class DelayAfterAdd(MarkLimit):
    """No new marks for `cooldown.delayAfterAdd` after a node was added."""

    reason: ClassVar[Reason] = COOLDOWN
    added_at: int | None = None
    """Time at which the last node was added, virtual nodes aside, unix seconds; None if
    unknown."""

    def observe(self, observed: Observed, now: Now) -> Self:
        """Return the limit after a reconciliation."""
        if observed.added:
            return replace(self, added_at=now.seconds)
        if not observed.is_first:
            return self
        # Only the first reconciliation reads the creation times, which the clock of the API server
        # sets. Later reconciliations see nodes being added.
        nodes = observed.snapshot.cluster.nodes
        created = (node.created_seconds for node in nodes if not node.virtual)
        known = (now.capped(at) for at in created if at is not None)
        return replace(self, added_at=max(known, default=None))

    def ends(self, snapshot: ClusterSnapshot, now: Now) -> Ends:
        """Return the end of the cooldown."""
        delay = snapshot.config.budgets.cooldown.delay_after_add_seconds
        return _since(self.added_at, delay, now)

    def describe(self, use: Use, config: Config) -> Timed | None:  # noqa: ARG002
        """Return why no node may be marked."""
        return _no_mark("a node was added", use)


PODS_PENDING: Final = Reason(
    "pods-pending",
    "A pod that some node would admit became unschedulable recently. Ebb marks no node while "
    "capacity is short.",
    "wait; or shorten `cooldown.delayAfterPending`",
    "no pod has become unschedulable for `cooldown.delayAfterPending`",
)


@dataclass(frozen=True, slots=True)
class DelayAfterPending(MarkLimit):
    """No new marks for `cooldown.delayAfterPending` after a pod became unschedulable."""

    reason: ClassVar[Reason] = PODS_PENDING
    pods: frozenset[str] = frozenset()
    """Unschedulable pods (namespace/name) that some node admits, or admitted while they were
    Pending. A node that comes and goes does not restart their time."""
    pending_at: int | None = None
    """Time at which the last of these pods became unschedulable, unix seconds."""

    def observe(self, observed: Observed, now: Now) -> Self:
        """Return the limit after a reconciliation."""
        snapshot = observed.snapshot
        unschedulable, taint_key = snapshot.pods.unschedulable, TAINT_KEY
        admitted = feasible_unschedulable(snapshot.cluster, taint_key, unschedulable)
        pods = frozenset(pod.key for pod in admitted)
        if not pods >= self.pods:
            pods |= self.pods.intersection(pod.key for pod in unschedulable)
        return replace(
            self, pods=pods, pending_at=self.pending_at if pods <= self.pods else now.seconds
        )

    def ends(self, snapshot: ClusterSnapshot, now: Now) -> Ends:
        """Return the end of the delay."""
        delay = snapshot.config.budgets.cooldown.delay_after_pending_seconds
        return _since(self.pending_at, delay, now)

    def unseen_until(self, config: Config, since: int) -> int:
        """Return when all pods that were unschedulable before *since* do not count any more."""
        return since + config.budgets.cooldown.delay_after_pending_seconds

    def describe(self, use: Use, config: Config) -> Timed | None:  # noqa: ARG002
        """Return why no node may be marked."""
        return _no_mark("a pod became unschedulable", use)


SPACING: Final = Reason(
    "mark-interval",
    "Another node was marked recently, is marked first in this plan, or did not empty before its "
    "deadline. Ebb waits for a minimum interval between marks.",
    "wait; or shorten `markInterval`",
    "no node was marked for `markInterval`, and no mark was removed because its deadline passed",
)


@dataclass(frozen=True, slots=True)
class MarkInterval(MarkLimit):
    """One new mark within `markInterval`."""

    reason: ClassVar[Reason] = SPACING
    counts_marks: ClassVar[bool] = True
    last_mark_at: int | None = None
    """Time at which a mark was last set, or removed because its node did not empty in time, unix
    seconds; None if neither has happened as far as the leader knows."""

    def observe(self, observed: Observed, now: Now) -> Self:
        """Return the limit after a reconciliation."""
        marks, before = observed.snapshot.marks, observed.marked_before
        # A node's kubelet may write the annotations that contain the times, but not the mark. So
        # the times are read only in the first reconciliation, and later on nodes whose mark was
        # set or removed since the last reconciliation. A kubelet can neither stop the controller
        # for longer than the interval nor hide a mark from it.
        times = [max(marks[name].since, observed.last_at) for name in marks.keys() - before]
        for name, backoff in backoffs(observed.snapshot.cluster.nodes).items():
            if name not in marks and (observed.is_first or name in before):
                times.append(backoff.until - backoff_seconds(backoff.times))
        known = [] if self.last_mark_at is None else [self.last_mark_at]
        return replace(self, last_mark_at=max((*known, *map(now.capped, times)), default=None))

    def ends(self, snapshot: ClusterSnapshot, now: Now) -> Ends:
        """Return the end of the interval."""
        return _since(self.last_mark_at, snapshot.config.budgets.mark_interval_seconds, now)

    def mark_until(self, config: Config, at: int) -> int | None:
        """Return the end of the interval that begins with a mark at *at*."""
        return at + config.budgets.mark_interval_seconds

    def describe(self, use: Use, config: Config) -> str | Timed | None:
        """Return why no node may be marked; a text means that the plan marks another one first.

        The removal of a mark whose node did not empty before its deadline counts like a mark.
        """
        if timed := _no_mark("a node was marked, or did not empty in time", use):
            return timed
        seconds = config.budgets.mark_interval_seconds
        if not (use.ends and seconds):
            return None
        return f"Ebb marks another node first; the next node follows after {duration(seconds)}"


BACKOFF: Final = Reason(
    "backoff",
    "The node did not empty before the deadline of its last mark, evictions of its pods failed, "
    "or `ebb unmark` removed its mark. Ebb skips the node for a time that doubles with each "
    "repetition.",
    "see which pods remained: ebb explain node {node}; to retry at once: "
    f"kubectl annotate node {{node}} {BACKOFF_ANNOTATION}-",
    f"the time in the annotation {BACKOFF_ANNOTATION} of the node has passed",
)


@dataclass(frozen=True, slots=True)
class BackoffLimit(_NodeLimit):
    """No new mark of a node that did not empty, was not evicted, or was unmarked by a person."""

    reason: ClassVar[Reason] = BACKOFF

    def ends(self, snapshot: ClusterSnapshot, now: Now) -> Ends:
        """Return the end of the backoff by node, from the annotations of the Nodes."""
        return {
            name: (End(backoff.until, backoff.why),)
            for name, backoff in backoffs(snapshot.cluster.nodes).items()
            if backoff.holds(now)
        }

    def describe(self, use: Use, config: Config) -> Timed | None:  # noqa: ARG002
        """Return why the node may not be marked."""
        failed = use.ends[0].about if use.ends else ""
        if failed == UNMARKED_BY_PERSON:
            return _skipped("`ebb unmark` removed the mark", use)
        why = f"evictions failed ({failed})" if failed else "the node did not empty in time"
        return _skipped(why, use)


MARK_REFUSED: Final = Reason(
    "mark-refused",
    "The mark could not be written: the API server rejected the write or did not answer. Ebb "
    "skips the node for a time that doubles with each failure.",
    "see the error in the log of ebb-controller; common causes are an admission policy and the "
    "size limit of annotations",
    "the backoff has ended",
)


class FailedWrite(NamedTuple):
    """How often Ebb failed to write the mark of a node, and until when it skips the node."""

    times: int
    """Number of consecutive failures to set the mark."""
    until: int
    """Time until which the node is skipped, unix seconds."""


@dataclass(frozen=True, slots=True)
class MarkRefused(_NodeLimit):
    """No new mark of a node after a write of its mark failed."""

    reason: ClassVar[Reason] = MARK_REFUSED
    failures: Mapping[str, FailedWrite] = field(default_factory=dict)
    """Nodes on which a write failed recently, by name."""

    def observe(self, observed: Observed, now: Now) -> Self:
        """Return the limit after a reconciliation.

        Failures on nodes that have left, or that are marked now, are dropped.
        """
        snapshot = observed.snapshot
        written = {
            name for name, mark in snapshot.marks.items() if mark.mark is not Mark.NO_SCHEDULE
        }
        existing = {node.name for node in snapshot.cluster.nodes} - observed.added - written
        failures = {
            name: failure
            for name, failure in self.failures.items()
            if name in existing and now.before(failure.until + BACKOFF_SECONDS_MAX)
        }
        return replace(self, failures=failures)

    def ends(self, snapshot: ClusterSnapshot, now: Now) -> Ends:  # noqa: ARG002
        """Return by node when the backoff after its last failed write ends."""
        return {
            name: (End(failure.until),)
            for name, failure in self.failures.items()
            if now.before(failure.until)
        }

    def describe(self, use: Use, config: Config) -> Timed | None:  # noqa: ARG002
        """Return why the node may not be marked."""
        return _skipped("the mark could not be written", use)

    def skipped(self, now: Now) -> frozenset[str]:
        """Return the names of the nodes whose backoff after a failed write has not ended."""
        return frozenset(name for name, one in self.failures.items() if now.before(one.until))

    def with_failures(
        self,
        nodes: frozenset[str],
        now: Now,
        *,
        no_schedule: frozenset[str],
        first_seconds: int,
        max_seconds: int,
    ) -> Self:
        """Return the limit after Ebb failed to write the marks of *nodes*.

        A node that could not be marked is skipped for *first_seconds*, at least REFUSED_SECONDS,
        and twice as long after each further failure, up to *max_seconds*. *no_schedule*: nodes
        that had a mark before; they are skipped for REFUSED_SECONDS.
        """
        failures = dict(self.failures)
        for name in nodes:
            times = failures[name].times if name in failures else 0
            seconds = REFUSED_SECONDS
            if name not in no_schedule:
                times += 1
                seconds = max(first_seconds, REFUSED_SECONDS) * 2 ** min(times - 1, 32)
            failures[name] = FailedWrite(times, now.seconds + min(seconds, max_seconds))
        return replace(self, failures=failures)


OLD_JOB: Final = Reason(
    "old-job",
    "A pod on the node runs to completion and is older than `maxJobAge`. Such pods mostly still "
    "run for long, so the node would not be empty soon.",
    "wait until the pod completes; or raise `maxJobAge`",
    "no pod on the node that runs to completion is older than `maxJobAge`",
)


@dataclass(frozen=True, slots=True)
class OldJob(_NodeLimit):
    """No new mark of a node with a pod that runs to completion and is older than `maxJobAge`."""

    reason: ClassVar[Reason] = OLD_JOB

    def ends(self, snapshot: ClusterSnapshot, now: Now) -> Ends:
        """Return the unmarked nodes with such a pod, and the pod; it is unknown when it ends."""
        age_seconds = snapshot.config.max_job_age_seconds
        if age_seconds is None:
            return {}
        return {
            pod.node: (End(about=pod.key),)
            for pod in snapshot.cluster.pods
            if pod.node is not None
            and pod.node not in snapshot.marks
            and pod.created_seconds is not None
            and pod.occupies
            and not pod.terminating
            and runs_to_completion(pod)
            and now.reached(pod.created_seconds + age_seconds)
        }

    def describe(self, use: Use, config: Config) -> str | None:
        """Return why the node may not be marked."""
        if not use.ends or config.max_job_age_seconds is None:
            return None
        age = duration(config.max_job_age_seconds)
        return f"pod {use.ends[0].about} runs to completion and is older than `maxJobAge` ({age})"


BUDGET_MARKED: Final = Reason(
    "budget-marked",
    "The cluster, or the pool, has as many marked nodes as `maxMarked` allows.",
    "wait until marked nodes are removed; or raise `maxMarked` (of `budgets`, or of the pool)",
    "fewer nodes are marked than `maxMarked`",
)


@dataclass(frozen=True, slots=True)
class MaxMarked(_BudgetLimit):
    """At most `maxMarked` marked nodes in the cluster, and in the pool."""

    reason: ClassVar[Reason] = BUDGET_MARKED

    def describe(self, use: Use, config: Config) -> str | None:
        """Return why no further node of the cluster or pool may be marked."""
        limit, marked = _budget(use, config).max_marked, use.marked + len(use.ends)
        if limit is None or marked < limit.of(use.nodes):
            return None
        return f"{_name(use)} has {plural(marked, 'marked node')}; `maxMarked` is {limit}"


BUDGET_NEW_MARKS: Final = Reason(
    "budget-new-marks",
    "As many nodes of the cluster, or of the pool, were marked within `budgets.period` as "
    "`maxNewMarks` allows.",
    "wait; or raise `maxNewMarks` (of `budgets`, or of the pool), or shorten `budgets.period`",
    "fewer than `maxNewMarks` nodes were marked within `budgets.period`",
)


class RecordedMark(NamedTuple):
    """When a mark was set on a node, in which scopes it counts, and whether a pod could use it."""

    since: int
    """Time at which the mark was set, unix seconds."""
    scopes: Sequence[str]
    reached: bool
    """True if the node was in the reach of a movable pod."""


@dataclass(frozen=True, slots=True)
class NewMarks(_BudgetLimit):
    """At most `maxNewMarks` new marks within `budgets.period`, in the cluster and in the pool."""

    reason: ClassVar[Reason] = BUDGET_NEW_MARKS
    marks: Mapping[str, RecordedMark] = field(default_factory=dict)
    """Marks by node: those that exist, and those set within the period."""

    def observe(self, observed: Observed, now: Now) -> Self:
        """Return the limit after a reconciliation."""
        snapshot = observed.snapshot
        config, pools = snapshot.config, snapshot.pool_names
        marks = {
            name: mark for name, mark in self.marks.items() if self._counts(mark, config, now)
        }
        for name, mark in snapshot.marks.items():
            earlier = self.marks.get(name) if name in observed.marked_before else None
            # A kubelet, or a leader whose clock was ahead, may have written the time. So a mark
            # keeps the time of the first reconciliation that saw it, and can use up the window
            # only once.
            since = earlier.since if earlier else max(mark.since, observed.last_at)
            node = snapshot.node_order.nodes[snapshot.node_order.ids[name]]
            scopes = self.scopes(node, pools.get(name, NO_POOL))
            marks[name] = RecordedMark(now.capped(since), scopes, snapshot.reaches_node(name))
        return replace(self, marks=marks)

    def ends(self, snapshot: ClusterSnapshot, now: Now) -> Ends:
        """Return by scope when the marks within the period cease to count."""
        found: dict[str, list[End]] = {}
        for mark in self.marks.values():
            if self._counts(mark, snapshot.config, now):
                end = End(self.mark_until(snapshot.config, mark.since), reached=mark.reached)
                for scope in mark.scopes:
                    found.setdefault(scope, []).append(end)
        return {scope: tuple(sorted(ends)) for scope, ends in found.items()}

    def _counts(self, mark: RecordedMark, config: Config, now: Now) -> bool:
        return now.before(self.mark_until(config, mark.since))

    def mark_until(self, config: Config, at: int) -> int:
        """Return the end of the period that begins with a mark at *at*."""
        return at + config.budgets.period_seconds

    def unseen_until(self, config: Config, since: int) -> int:
        """Return when all marks of nodes that left before *since* do not count any more."""
        return self.mark_until(config, since)

    def describe(self, use: Use, config: Config) -> str | Timed | None:
        """Return why no further node of the cluster or pool may be marked."""
        limit, count = _budget(use, config).max_new_marks, len(use.ends)
        if limit is None or count < limit.of(use.nodes):
            return None
        period = duration(config.budgets.period_seconds)
        marks = f"{plural(count, 'new mark')} in the last {period} (`budgets.period`)"
        message = f"{_name(use)} had {marks}; `maxNewMarks` is {limit}"
        # This many marks must leave the window first. Marks of this plan have no end yet.
        leaving = count - limit.of(use.nodes) + 1
        until = use.ends[leaving - 1].until if leaving <= count else None
        return message if until is None else Timed(message, until)


def _budget(use: Use, config: Config) -> Budget:
    budgets = config.budgets
    if use.scope == CLUSTER:
        return budgets.cluster
    return next(pool.budget for pool in budgets.pools if pool.name == use.scope)


def _name(use: Use) -> str:
    return "the cluster" if use.scope == CLUSTER else f"pool {use.scope}"


MARK_LIMITS: Final[tuple[MarkLimit, ...]] = (
    DelayAfterAdd(),
    DelayAfterPending(),
    MarkInterval(),
    BackoffLimit(),
    MarkRefused(),
    OldJob(),
    MaxMarked(),
    NewMarks(),
)
"""All limits on new marks, as a new leader has them, in the order in which they are reported."""
