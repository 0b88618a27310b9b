"""The details of a node on the page: what `ebb explain` says, and its pods, as JSON."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

from cli.answers import NodeExplained, Planned
from cli.explain.explainer import Explainer
from cli.explain.reasons import advice
from cli.formats.text import headline, leader
from cli.formats.text.explain import node_facts, node_reasons
from cli.input.explaining import explainer
from cli.input.kept_empty import KeptEmpty
from cli.input.mark_status import MarkStatus, Protection
from cli.nodes import NodeRow
from core.config.prices import HOURS_A_MONTH
from core.model.humanize import amounts
from core.model.node_lifecycle import why_unready
from core.model.pod import Pod
from core.model.reason import Blocker

PODS_MAX: Final = 500
"""Maximum number of pods that are listed for a node; the others are counted."""
LABELS_MAX: Final = 100
"""Maximum number of labels and taints that are listed for a node."""
EXPLAINED_MAX: Final = 300
"""Maximum number of nodes in a file whose details are as complete as `ebb explain`."""

Json = dict[str, Any]
Since = Mapping[str, tuple[str, int]]
"""Key of the state of each node, and the Unix second since which the page has seen it."""


class NodeDetails:
    """The details of the nodes of one plan, which are computed on demand."""

    def __init__(
        self, answer: Planned, states: Mapping[str, str], since: Since, *, live: bool
    ) -> None:
        """Prepare the details of nodes.

        *states*: label of the state of each node. *since*: since when the page has seen them in
        it. *live*: `ebb page` serves the page, so that only details of opened nodes are needed.
        """
        self._answer, self._states, self._since, self._live = answer, states, since, live
        self._cluster, self._now = answer.cluster_input.cluster, answer.now_seconds
        self._rows = {row.name: row for row in answer.rows}
        self._statuses = {status.node: status for status in answer.statuses}

    def of(self, row: NodeRow) -> Json:
        """Return the details of the node of a row."""
        name = row.name
        explained, pods = self._explained(name), self._pods[name]
        places, nowhere = self._targets(name, explained)
        listed = [
            {
                "pod": pod.key,
                "requests": amounts(pod.requests),
                "to": "" if pod.stays_with_node else places.get(pod.key, ""),
                "why": nowhere.get(pod.key, ""),
                "ends": pod.stays_with_node,
            }
            for pod in pods[:PODS_MAX]
        ]
        return {
            "facts": [list(fact) for fact in self._facts(row, explained)],
            "since": self._time_in_state(name),
            "plan": self._plan(row),
            "groups": [
                {"title": title, "reasons": list(_by_code(blockers, name))}
                for title, blockers in self._reasons(name, explained)
                if blockers
            ],
            "leader": [list(fact) for fact in self._known_to_leader(explained)],
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

    @cached_property
    def _explainer(self) -> Explainer:
        answer = self._answer
        return explainer(answer.cluster_input, answer.snapshot, answer.whole, self._now)

    def _explained(self, name: str) -> NodeExplained | None:
        """Return the explanation of a node; None in the file of a large cluster."""
        if not self._live and len(self._rows) > EXPLAINED_MAX:
            return None
        answer = self._explainer.node(name)
        if answer is None:
            return None
        return NodeExplained(
            answer=answer,
            status=self._statuses[name],
            cluster_input=self._answer.cluster_input,
            now_seconds=self._now,
        )

    def _targets(
        self, name: str, explained: NodeExplained | None
    ) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """Return the target node of each pod, and why other pods have none.

        They are those of the plan, or as if only this node were removed.
        """
        if explained is None:
            return self._placements.get(name, {}), {}
        return dict(explained.answer.placements), dict(explained.answer.unassigned)

    def _reasons(
        self, name: str, explained: NodeExplained | None
    ) -> Iterator[tuple[str, Sequence[Blocker]]]:
        """Yield the reasons of a node with their heading."""
        if explained is not None:
            yield from node_reasons(explained.answer)
            return
        yield "not removable because", self._blockers.get(name, ())
        if name in self._answer.emptying:
            yield "may empty late because", self._answer.emptying[name].staying

    def _known_to_leader(self, explained: NodeExplained | None) -> Sequence[tuple[str, str]]:
        facts = self._answer.cluster_input.facts
        if explained is None or facts is None:
            return ()
        name, limits = explained.answer.node.name, explained.limits
        return leader.rows_about_node(facts, name, limits, self._now)

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
        if name in self._since:
            return {"at": self._since[name][1], "least": True}
        return None

    def _facts(self, row: NodeRow, explained: NodeExplained | None) -> Iterator[tuple[str, str]]:
        node, requested = row.node, self._answer.snapshot.pod_index.requests[row.name]
        yield "state", self._states[row.name]
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
        if explained is not None:
            yield from node_facts(explained)
        else:
            yield from _mark_facts(self._statuses[row.name])


def _by_code(blockers: Sequence[Blocker], node: str) -> Iterator[Json]:
    """Yield each reason of a node once, with the message of each pod that causes it."""
    by_code: dict[str, list[Blocker]] = {}
    for blocker in blockers:
        by_code.setdefault(blocker.code, []).append(blocker)
    for code, same in by_code.items():
        text = advice(same[0], node)
        yield {
            "code": code,
            "messages": [
                f"{blocker.pod}: {blocker.message}" if blocker.pod else blocker.message
                for blocker in same[:PODS_MAX]
            ],
            "meaning": text.meaning,
            "fix": text.fix,
            "endsWhen": text.ends_when,
            "until": same[0].until,
        }


def _mark_facts(status: MarkStatus) -> Iterator[tuple[str, str]]:
    if status.mark is not None:
        yield "marked", f"{status.effect}{', deadline passed' if status.overdue else ''}"
        if status.details is not None:
            yield "reason of the mark", status.details.reason
        if not status.taints_correct:
            yield "taint", "does not match the mark"
    if status.protection is not Protection.NONE:
        yield "protected from scale-down", status.protection.value
