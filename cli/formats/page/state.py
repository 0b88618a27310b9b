"""The state that the page of a cluster shows, as JSON: plan, leader, Pending pods and nodes."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple, cast

from cli.answers import Planned
from cli.explain.headline import Cost
from cli.explain.reasons import advice
from cli.formats.text import headline, kept_empty, leader
from cli.input.kept_empty import KeptEmpty
from cli.input.mark_status import MarkStatus, Protection
from cli.nodes import NodeRow
from controller.leader_report import LeaderFacts
from core.config.prices import HOURS_A_MONTH
from core.marks.mark import Mark
from core.model.humanize import amounts
from core.model.node_lifecycle import why_unready
from core.model.pod import Pod
from core.model.reason import Blocker
from core.model.resources import Resources
from runtime.messages import printable
from runtime.version import ebb_version

PENDING_MAX: Final = 200
"""Maximum number of Pending pods that are listed; the others are counted."""
PODS_MAX: Final = 500
"""Maximum number of pods that are listed for a node; the others are counted."""
LABELS_MAX: Final = 100
"""Maximum number of labels and taints that are listed for a node."""


class NodeState(NamedTuple):
    """A state in which the page shows a node, such as removable: the first one that applies."""

    key: str
    """Class of the box, which selects its color."""
    sign: str
    """Text in the box, so that color alone distinguishes no states."""
    label: str


LEAVING: Final = NodeState("leaving", "L", "leaving")
NOT_READY: Final = NodeState("not-ready", "!", "NotReady")
NO_SCHEDULE: Final = NodeState("no-schedule", "N", "marked NoSchedule")
PREFER_NO_SCHEDULE: Final = NodeState("prefer-no-schedule", "P", "marked PreferNoSchedule")
REMOVABLE: Final = NodeState("removable", "R", "removable")
RESERVED: Final = NodeState("reserved", "E", "empty, reserved for expected pods")
KEPT: Final = NodeState("kept", "–", "not removable")  # noqa: RUF001 a dash
STATES: Final = (
    LEAVING, NOT_READY, NO_SCHEDULE, PREFER_NO_SCHEDULE, REMOVABLE, RESERVED, KEPT,
)  # fmt: skip

Json = dict[str, Any]
Since = Mapping[str, tuple[str, int]]
"""Key of the state of each node, and the Unix second since which the page has seen it."""


class PageState:
    """The state of the page of one plan, as JSON; details of a node are computed on demand."""

    def __init__(
        self, answer: Planned, before: Since | None = None, *, live: bool = False
    ) -> None:
        """Prepare the state of the page of a plan.

        *before*: attribute `since` of the page of the previous plan, which says how long nodes
        have been in their state; None if this page shows a single reading. *live*: `ebb page`
        serves the page, so that it can follow the cluster.
        """
        self._answer, self._live = answer, live
        self._cluster, self._now = answer.cluster_input.cluster, answer.now_seconds
        self._rows = {row.name: row for row in answer.rows}
        self._statuses = {status.node: status for status in answer.statuses}
        self._states = {name: self._state_of(row) for name, row in self._rows.items()}
        self.since = self._since(before) if before is not None else {}

    def _state_of(self, row: NodeRow) -> NodeState:
        status = self._statuses[row.name]
        if status.leaving:
            return LEAVING
        if why_unready(row.node) is not None:
            return NOT_READY
        if status.mark is not None:
            return NO_SCHEDULE if status.mark is Mark.NO_SCHEDULE else PREFER_NO_SCHEDULE
        if row.order is not None:
            return REMOVABLE
        return RESERVED if status.reserved else KEPT

    def _since(self, before: Since) -> dict[str, tuple[str, int]]:
        since = {}
        for name, state in self._states.items():
            key, at = before.get(name, ("", self._now))
            since[name] = state.key, at if key == state.key else self._now
        return since

    def document(self, *, details: bool) -> Json:
        """Return the state as JSON; *details*: with the details of each node."""
        answer = self._answer
        running, now = answer.cluster_input.running, self._now
        facts = running.facts if running else None
        document: Json = {
            "live": self._live,
            "time": now,
            "origin": [
                list(row) for row in (*answer.cluster_input.origin, ("ebb", ebb_version()))
            ],
            "headline": [
                *headline.lines(answer.headline, now),
                *([kept_empty.sentence(answer.kept_empty)] if answer.kept_empty else []),
            ],
            "cost": _cost(answer.headline.cost),
            "banners": [
                *headline.problems(running, now),
                *answer.cluster_input.not_read,
                *(f"nothing begins now: {blocker.message}" for blocker in answer.refused),
            ],
            "warnings": [caveat.message for caveat in answer.caveats],
            "waits": [wait._asdict() for wait in answer.headline.marking.waits],
            "pending": self._pending(),
            "leader": None if running is None else _leader(facts, now),
            "states": [state._asdict() for state in STATES],
            "nodes": [self._node(row) for row in sorted(self._rows.values(), key=_place)],
            "details": {name: self._detail(row) for name, row in self._rows.items()}
            if details
            else None,
        }
        return cast("Json", printable_json(document))

    def detail(self, name: str) -> Json | None:
        """Return the details of the node *name* as JSON; None if the node does not exist."""
        row = self._rows.get(name)
        return cast("Json", printable_json(self._detail(row))) if row is not None else None

    def _pending(self) -> Json:
        targets = {placement.pod: placement.node for placement in self._answer.plan.pending}
        pods = sorted(
            (pod for pod in self._cluster.pods if pod.node is None),
            key=lambda pod: (pod.created_seconds or 0, pod.key),
        )
        listed = [
            {
                "pod": pod.key,
                "since": pod.created_seconds,
                "requests": amounts(pod.requests),
                "why": _why_pending(pod, targets.get(pod.key)),
            }
            for pod in pods[:PENDING_MAX]
        ]
        return {"pods": listed, "more": max(0, len(pods) - PENDING_MAX)}

    def _node(self, row: NodeRow) -> Json:
        requested, whole = self._used[row.name], row.node.allocatable
        return {
            "name": row.name,
            "pool": row.pool,
            "zone": row.zone,
            "state": self._states[row.name].key,
            "cpu": _percent(requested.cpu_millis, whole.cpu_millis),
            "memory": _percent(requested.memory_bytes, whole.memory_bytes),
            "pods": row.pods,
        }

    @cached_property
    def _used(self) -> Mapping[str, Resources]:
        return self._cluster.used()

    @cached_property
    def _pods(self) -> Mapping[str, Sequence[Pod]]:
        pods: dict[str, list[Pod]] = {name: [] for name in self._rows}
        for pod in self._cluster.pods:
            if pod.node in pods:
                pods[pod.node].append(pod)
        return pods

    @cached_property
    def _blockers(self) -> Mapping[str, Sequence[Blocker]]:
        return {node.node: node.blockers for node in self._answer.plan.kept}

    @cached_property
    def _kept_empty(self) -> Mapping[str, KeptEmpty]:
        return {node.node: node for node in self._answer.kept_empty}

    @cached_property
    def _placements(self) -> Mapping[str, Mapping[str, str]]:
        """Return the target node of each pod, by removable node."""
        return {removal.node: dict(removal.placements) for removal in self._answer.plan.removals}

    def _detail(self, row: NodeRow) -> Json:
        name = row.name
        targets, pods = self._placements.get(name, {}), self._pods[name]
        listed = [
            {
                "pod": pod.key,
                "requests": amounts(pod.requests),
                "to": "" if pod.stays_with_node else targets.get(pod.key, ""),
                "ends": pod.stays_with_node,
            }
            for pod in pods[:PODS_MAX]
        ]
        return {
            "facts": [list(fact) for fact in self._facts(row)],
            "since": self._time_in_state(name),
            "plan": self._plan(row),
            "reasons": [self._reason(blocker, name) for blocker in self._reasons(name)],
            "pods": listed,
            "more": max(0, len(pods) - PODS_MAX),
            "labels": [f"{key}={value}" for key, value in sorted(row.node.labels.items())][
                :LABELS_MAX
            ],
            "taints": [
                f"{taint.key}{taint.value and f'={taint.value}'}:{taint.effect}"
                for taint in row.node.taints
            ][:LABELS_MAX],
        }

    def _reasons(self, name: str) -> Iterator[Blocker]:
        """Yield why the node *name* is not removable, or why it may become empty late."""
        yield from self._blockers.get(name, ())
        if name in self._answer.emptying:
            yield from self._answer.emptying[name].staying

    def _plan(self, row: NodeRow) -> str:
        if row.order is None:
            return "The plan keeps the node."
        emptying = self._answer.emptying[row.name]
        ways = (
            ("replaced by surge moves", emptying.moves or 0),
            ("that run to completion", emptying.completing),
            ("deleted by rollouts and scale-ins", emptying.turnover),
            ("that rarely terminate", len(emptying.staying)),
        )
        pods = ", ".join(f"{count:,} {way}" for way, count in ways if count)
        text = f"Removable, number {row.order:,} of the plan."
        return f"{text} Its pods: {pods}." if pods else f"{text} It is empty."

    def _time_in_state(self, name: str) -> Json | None:
        """Return since when the node is in its state as JSON; None if one reading cannot tell.

        `at` is in Unix seconds. `least` is true if the node may have been in this state before,
        unseen by the page.
        """
        status = self._statuses[name]
        if status.mark is not None and status.since is not None and not status.leaving:
            return {"at": status.since, "least": False}
        facts = self._answer.cluster_input.facts
        for delay in facts.delays if facts else ():
            if delay.node == name:
                return {"at": delay.since_seconds, "least": False}
        if name in self.since:
            return {"at": self.since[name][1], "least": True}
        return None

    def _reason(self, blocker: Blocker, node: str) -> Json:
        text = advice(blocker, node)
        return {
            "code": blocker.code,
            "message": blocker.message,
            "pod": blocker.pod,
            "meaning": text.meaning,
            "fix": text.fix,
            "endsWhen": text.ends_when,
            "until": blocker.until,
        }

    def _facts(self, row: NodeRow) -> Iterator[tuple[str, str]]:
        node, requested = row.node, self._used[row.name]
        yield "state", self._states[row.name].label
        yield "requested", amounts(requested)
        yield "allocatable", amounts(node.allocatable)
        for label, value in (
            ("pool", row.pool),
            ("zone", row.zone),
            ("instance type", row.instance_type),
        ):
            if value:
                yield label, value
        if row.price is not None:
            month = headline.money(row.price * HOURS_A_MONTH)
            yield "price", f"{headline.money(row.price)} an hour, {month} a month"
        if why := why_unready(node):
            yield "not Ready because", why
        if (kept := self._kept_empty.get(row.name)) is not None:
            yield "kept although empty because", kept.why
        yield from _mark_facts(self._statuses[row.name])


def _place(row: NodeRow) -> tuple[str, str, str]:
    return row.pool, row.zone, row.name


def _mark_facts(status: MarkStatus) -> Iterator[tuple[str, str]]:
    if status.mark is not None:
        yield "marked", f"{status.effect}{', deadline passed' if status.overdue else ''}"
        if status.details is not None:
            yield "reason of the mark", status.details.reason
        if not status.taints_correct:
            yield "taint", "does not match the mark"
    if status.protection is not Protection.NONE:
        yield "protected from scale-down", status.protection.value


def _leader(facts: LeaderFacts | None, now_seconds: int) -> Json | None:
    if facts is None:
        return None
    savings = list(leader.savings_rows(facts))
    others = [row for row in leader.fact_rows(facts, now_seconds) if row not in savings]
    return {
        "savings": [list(row) for row in savings],
        "others": [list(row) for row in others],
        "moves": [
            {
                "deployment": move.deployment,
                "pod": move.pod,
                "node": move.node,
                "deadline": move.deadline_seconds,
            }
            for move in facts.moves
        ],
        "decisions": [
            {
                "at": decision.at_seconds,
                "action": decision.action
                if decision.written
                else f"{decision.action} (only reported)",
                "object": f"{decision.kind} {decision.name}",
                "reason": decision.reason,
            }
            for decision in facts.decisions
        ],
    }


def _cost(cost: Cost | None) -> Json | None:
    if cost is None:
        return None
    hour, month = cost.before, cost.before * HOURS_A_MONTH
    return {"hour": headline.money(hour), "month": headline.money(month)}


def _why_pending(pod: Pod, target: str | None) -> str:
    why = "kube-scheduler found no node" if pod.unschedulable else "not scheduled yet"
    return f"{why}; the plan has room on {target}" if target else why


def _percent(part: int, whole: int) -> int | None:
    """Return *part* as a rounded percentage of *whole*; None if *whole* is 0."""
    return (100 * part + whole // 2) // whole if whole else None


def printable_json(value: Any) -> Any:  # noqa: ANN401 any JSON
    """Return a JSON value with control characters in its texts escaped: names are untrusted."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, list):
        return [printable_json(item) for item in value]
    if isinstance(value, dict):
        return {printable(key): printable_json(item) for key, item in value.items()}
    return value
