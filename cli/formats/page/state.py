"""The state that the page of a cluster shows, as JSON: plan, leader, Pending pods and nodes."""

from collections import Counter
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final, NamedTuple, cast

from cli.answers import Planned
from cli.explain.headline import Cost
from cli.formats.page.details import NodeDetails, Since
from cli.formats.page.reasons import reasons
from cli.formats.page.tiles import tiles
from cli.formats.text import headline, kept_empty, leader
from cli.formats.text.plan import emptied_by, refusal, targets
from cli.nodes import NodeRow
from controller.leader_report import LeaderFacts
from core.config.prices import HOURS_A_MONTH
from core.marks.mark import Mark, is_scale_down_allowed
from core.model.cost import cost
from core.model.humanize import amounts
from core.model.node_lifecycle import why_unready
from core.model.pod import Pod
from core.model.resources import Resources
from runtime.messages import printable
from runtime.version import ebb_version

PENDING_MAX: Final = 200
"""Maximum number of Pending pods that are listed; the others are counted."""
REMOVALS_MAX: Final = 200
"""Maximum number of removable nodes that are listed in the order of the plan."""
NAMESPACES_MAX: Final = 500
"""Maximum number of namespaces by which nodes can be filtered: those with most pods."""


class NodeState(NamedTuple):
    """A state in which the page shows a node, such as removable: the first one that applies."""

    key: str
    """Class of the box, which selects its color."""
    sign: str
    """Text in the box, so that color alone distinguishes no states."""
    label: str


LEAVING: Final = NodeState("leaving", "L", "leaving")
NOT_READY: Final = NodeState("not-ready", "!", "NotReady")
ALLOWED: Final = NodeState("scale-down-allowed", "A", "marked, scale-down allowed")
NO_SCHEDULE: Final = NodeState("no-schedule", "N", "marked NoSchedule")
PREFER_NO_SCHEDULE: Final = NodeState("prefer-no-schedule", "P", "marked PreferNoSchedule")
REMOVABLE: Final = NodeState("removable", "R", "removable")
RESERVED: Final = NodeState("reserved", "E", "empty, reserved for expected pods")
KEPT: Final = NodeState("kept", "", "not removable")
STATES: Final = (
    LEAVING, NOT_READY, ALLOWED, NO_SCHEDULE, PREFER_NO_SCHEDULE, REMOVABLE, RESERVED, KEPT,
)  # fmt: skip

Json = dict[str, Any]


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
        if is_scale_down_allowed(row.node) and status.empty:
            return ALLOWED
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
            "mode": answer.headline.mode or "unknown",
            "headline": [
                *headline.lines(answer.headline, now),
                *([kept_empty.sentence(answer.kept_empty)] if answer.kept_empty else []),
            ],
            "cost": _cost(answer.headline.cost),
            "tiles": tiles(answer),
            "reasons": reasons(answer),
            "namespaces": self._namespaces,
            "banners": [
                *headline.problems(running, now),
                *answer.cluster_input.not_read,
                *map(refusal, answer.refused),
            ],
            "warnings": [caveat.message for caveat in answer.caveats],
            "samples": [
                [one.at_seconds, one.nodes, one.marked, one.removed, one.pending]
                for one in (facts.today.samples if facts and facts.today else ())
            ],
            "plan": self._order(),
            "pending": self._pending(),
            "leader": None if running is None else _leader(facts, now),
            "states": [state._asdict() for state in STATES],
            "nodes": [self._node(row) for row in sorted(self._rows.values(), key=_place)],
            "details": {name: self._details.of(row) for name, row in self._rows.items()}
            if details
            else None,
        }
        return cast("Json", printable_json(document))

    def detail(self, name: str) -> Json | None:
        """Return the details of the node *name* as JSON; None if the node does not exist."""
        row = self._rows.get(name)
        return cast("Json", printable_json(self._details.of(row))) if row is not None else None

    @cached_property
    def _details(self) -> NodeDetails:
        states = {name: state.label for name, state in self._states.items()}
        return NodeDetails(self._answer, states, self.since, live=self._live)

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
            "device": _most_requested(requested, whole),
            "pods": row.pods,
            "size": int(cost(whole)),
            "type": row.instance_type,
            "order": row.order,
            "reasons": list(row.reasons),
            "namespaces": sorted(self._namespaces_on.get(row.name, ())),
        }

    @cached_property
    def _namespaces(self) -> list[str]:
        """Return the namespaces with most pods, by name, without DaemonSet and static pods."""
        pods = Counter(pod.namespace for pod in self._cluster.pods if not pod.stays_with_node)
        return sorted(name for name, _ in pods.most_common(NAMESPACES_MAX))

    @cached_property
    def _namespaces_on(self) -> Mapping[str, set[int]]:
        """Return the places in `_namespaces` of those with pods on a node, by name of the node."""
        places = {name: place for place, name in enumerate(self._namespaces)}
        on: dict[str, set[int]] = {}
        for pod in self._cluster.pods:
            if pod.node and pod.namespace in places and not pod.stays_with_node:
                on.setdefault(pod.node, set()).add(places[pod.namespace])
        return on

    @cached_property
    def _used(self) -> Mapping[str, Resources]:
        return self._cluster.used()

    def _order(self) -> Json:
        """Return the first removable nodes, in the order of the plan."""
        plan = self._answer.plan
        listed = [
            {
                "order": removal.order,
                "node": removal.node,
                "pool": self._rows[removal.node].pool,
                "pods": self._rows[removal.node].pods,
                "by": emptied_by(self._answer.emptying[removal.node]),
                "to": [" ".join((node, f"({pods})" if pods else "")).strip()
                       for node, pods in targets(removal)],
            }
            for removal in plan.removals[:REMOVALS_MAX]
        ]  # fmt: skip
        return {"nodes": listed, "more": len(plan.removals) - len(listed)}


def _place(row: NodeRow) -> tuple[str, str, str]:
    return row.pool, row.zone, row.name


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
                "node": decision.name if decision.kind == "Node" else None,
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


def _most_requested(requested: Resources, whole: Resources) -> int | None:
    """Return the percentage of the device that is requested most; None without devices."""
    used = requested.devices
    shares = (_percent(used.get(name, 0), units) for name, units in whole.devices.items())
    return max((share for share in shares if share is not None), default=None)


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
