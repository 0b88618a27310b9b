"""The engine: which nodes can the cluster do without, together, and why must the others stay.

Pure: same cluster, same configuration, same answer. The steps are those of thesis 4.4, 4.5 and
4.7, extended to a joint plan: what one removal moves is committed before the next is judged.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from core.account import Account, excess
from core.capacity import Amount, Totals, Usability
from core.config import Config, UsabilityMode
from core.guards import Blocker
from core.marks import mark_of, marked_since
from core.model import Cluster
from core.packing import Attempt, Packer, dominant_share
from core.survey import Survey


class Placement(NamedTuple):
    """Where a pod would go."""

    pod: str
    """namespace/name."""
    node: str


@dataclass(frozen=True, slots=True)
class Removal:
    """A node that can go, after those of lower order have gone."""

    node: str
    order: int
    """From 1."""
    placements: tuple[Placement, ...]
    """Every pod that must move, in packing order, those among them that earlier removals of the
    plan have put here too."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A node that stays, with every reason."""

    node: str
    blockers: tuple[Blocker, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The answer for a whole cluster."""

    policy: str
    usability: Usability | None
    """What was used; None: everything allocatable is usable."""
    usability_derived: bool
    before: Totals
    after: Totals
    removals: tuple[Removal, ...]
    kept: tuple[Kept, ...]
    """By name."""
    pending: tuple[Placement, ...]
    """Pending pods, packed first; their room is not spare."""
    marked_infeasible: tuple[str, ...]
    """Nodes that carry a mark and can not go any more, by name."""


def plan(
    cluster: Cluster,
    config: Config,
    *,
    due: frozenset[str] | None = None,
    removals_max: int | None = None,
) -> Plan:
    """Choose which nodes can go together, and say where their pods would go.

    Nodes that already carry a mark are judged first, in the order of their marks, and need not be
    due. *due* names the others whose delay has elapsed; None: all. At most *removals_max* nodes
    go, the marked ones among them; None: no limit.

    Candidates are tried in order (price, pods to move, utilization, name) until none of those
    that are left can go. Raises: nothing; "no" stands in Plan.kept.
    """
    work = _Work(cluster, config, due=due)
    before = work.account.totals()
    pending = work.settle()
    removals = work.remove_all(removals_max)
    gone = {removal.node for removal in removals}
    after = work.account.totals()
    return Plan(
        policy=config.policy,
        usability=work.survey.usability,
        usability_derived=config.usability is UsabilityMode.AUTO,
        before=before,
        after=replace(after, requests=after.requests.minus(work.pending_amount)),
        removals=removals,
        kept=work.kept(gone),
        pending=work.placements(pending),
        marked_infeasible=tuple(sorted(work.marked - gone)),
    )


def update_candidates(
    cluster: Cluster, config: Config, candidates: Mapping[str, int], now_seconds: int
) -> dict[str, int]:
    """Return since when each node has been a candidate without a break (thesis 4.4).

    Nodes that pass and were listed keep their time, new ones get *now_seconds*, those that fail
    or are gone are left out. Marked nodes are on their way: they are not listed, and the others
    are judged as if they had gone.
    """
    survey = Survey(cluster, config)
    account = survey.account(cluster.nodes)
    marked = {node.name for node in cluster.nodes if mark_of(node.labels) is not None}
    for number, node in enumerate(cluster.nodes):
        if node.name in marked and node.name not in survey.gone:
            account.remove(number, ())
            account.requests = account.requests.plus(survey.movable_amount(node.name))
    return {
        node.name: candidates.get(node.name, now_seconds)
        for number, node in enumerate(cluster.nodes)
        if node.name not in marked
        and node.name not in survey.gone
        and account.nominated(number, survey.thresholds)
    }


def due(candidates: Mapping[str, int], delay_seconds: int, now_seconds: int) -> frozenset[str]:
    """Return the candidates that have been listed longer than the delay (thesis 4.5: `>`)."""
    return frozenset(
        name for name, since in candidates.items() if now_seconds - since > delay_seconds
    )


class _Work:
    """One plan in the making: the state after the removals that have been decided."""

    def __init__(self, cluster: Cluster, config: Config, *, due: frozenset[str] | None) -> None:
        self.survey = Survey(cluster, config)
        self.packer = Packer(
            cluster, movable=self.survey.movable, closed=self.survey.closed | self.survey.gone
        )
        self.account: Account = self.survey.account(self.packer.nodes)
        self.marked = {
            node.name
            for node in cluster.nodes
            if mark_of(node.labels) is not None and node.name not in self.survey.gone
        }
        self.pending_amount = Amount(0, 0)
        self._due = due
        self._delay_seconds = config.delay_seconds
        self._order = self._candidates(config)

    def _candidates(self, config: Config) -> list[int]:
        """Return the ids of all nodes that might go, in the order in which they are tried."""
        nodes, packer = self.packer.nodes, self.packer

        def rank(node_id: int) -> tuple[object, ...]:
            node = nodes[node_id]
            if node.name in self.marked:
                return (0, marked_since(node, config.taint_key), node.name)
            share = dominant_share(packer.used[node.name], node.allocatable)
            return (1, -config.price_of(node.labels), len(packer.on[node_id]), share, node.name)

        ids = (number for number, node in enumerate(nodes) if node.name not in self.survey.gone)
        return sorted(ids, key=rank)

    def settle(self) -> Attempt:
        """Place the pods that wait for a node, and those whose node is being deleted."""
        attempt = self.packer.attempt(
            number
            for number, pod in enumerate(self.packer.pods)
            if pod.node is None or pod.node in self.survey.gone
        )
        for _, amount in self.packer.received(attempt):
            self.pending_amount = self.pending_amount.plus(amount)
        self.account.receive(self.packer.received(attempt))
        self.packer.commit(attempt)
        return attempt

    def remove_all(self, removals_max: int | None) -> tuple[Removal, ...]:
        """Remove nodes until none of the rest can go, or the limit is reached.

        A node that could not go may go later (what others move can free usable capacity), so the
        rest is tried again until nothing changes; a node that was judged on this very state is
        not judged again.
        """
        removals: list[Removal] = []
        judged: dict[int, int] = {}
        waiting, settled = self._order, False
        while not settled:
            stay: list[int] = []
            for node in waiting:
                attempt = None
                if judged.get(node) != len(removals) and len(removals) != removals_max:
                    judged[node] = len(removals)
                    attempt = self._try(node)
                if attempt is None:
                    stay.append(node)
                else:
                    removals.append(self._remove(node, attempt, len(removals) + 1))
            settled = len(stay) == len(waiting)
            waiting = stay
        return tuple(removals)

    def _try(self, node: int) -> Attempt | None:
        """Return where the node's pods would go, or None if it can not go; cheapest checks first.

        The order is that of the thesis (4.4, 4.5): sums, delay, packing, usable capacity.
        """
        name = self._name(node)
        if self.survey.blockers[name] or not self._is_due(name):
            return None
        if not self.account.nominated(node, self.survey.thresholds):
            return None
        attempt = self.packer.attempt(self.packer.on[node], node)
        if attempt.unplaced or self._usable_excess(node, attempt):
            return None
        return attempt

    def _remove(self, node: int, attempt: Attempt, order: int) -> Removal:
        removal = Removal(self._name(node), order, self.placements(attempt))
        self.account.remove(node, list(self.packer.received(attempt)))
        self.packer.commit(attempt, node)
        return removal

    def kept(self, gone: Collection[str]) -> tuple[Kept, ...]:
        """Explain every node that stays, on the state after all removals."""
        staying = (
            number for number, node in enumerate(self.packer.nodes) if node.name not in gone
        )
        found = (Kept(self._name(node), tuple(self._explain(node))) for node in staying)
        return tuple(sorted(found, key=lambda kept: kept.node))

    def _explain(self, node: int) -> list[Blocker]:
        """Return every reason against the node's going, not only the first."""
        name = self._name(node)
        blockers = list(self.survey.blockers[name])
        if name in self.survey.gone:
            return blockers
        if not self._is_due(name):
            message = f"it has not been a candidate for longer than {self._delay_seconds} s yet"
            blockers.append(Blocker("delay", message))
        over_sums = self._sum_blockers(node)
        blockers += over_sums
        attempt = self.packer.attempt(self.packer.on[node], node)
        blockers += (
            Blocker("no-room", self.packer.why_not(pod, node), self.packer.pods[pod].key)
            for pod in attempt.unplaced
        )
        # Over the sums is over the usable sums too (thesis, invariant 1): not said twice.
        if over_sums or attempt.unplaced:
            return blockers
        if over := self._usable_excess(node, attempt):
            message = f"of what would be usable without it, {over}"
            blockers.append(Blocker("usable-threshold", message))
        return blockers or [Blocker("limit", "as many nodes go already as may go in one plan")]

    def _sum_blockers(self, node: int) -> list[Blocker]:
        if self.account.nominated(node, self.survey.thresholds):
            return []
        if self.account.count == 1:
            return [Blocker("last-node", "no other node would be left")]
        over = excess(*self.account.without(node), self.survey.thresholds)
        return [Blocker("threshold", f"without it the cluster would have {over}")]

    def _usable_excess(self, node: int, attempt: Attempt) -> str:
        """Say which thresholds the final check (thesis 4.5) finds exceeded; empty: none."""
        requests, _ = self.account.without(node)
        usable = self.account.usable_after(node, self.packer.received(attempt))
        if requests.within(self.survey.thresholds, usable):
            return ""
        return excess(requests, usable, self.survey.thresholds)

    def _is_due(self, name: str) -> bool:
        return self._due is None or name in self._due or name in self.marked

    def _name(self, node: int) -> str:
        return self.packer.nodes[node].name

    def placements(self, attempt: Attempt) -> tuple[Placement, ...]:
        """Write an attempt with names instead of ids."""
        pods, nodes = self.packer.pods, self.packer.nodes
        return tuple(
            Placement(pods[pod].key, nodes[node].name) for pod, node in attempt.placements
        )
