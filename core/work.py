"""One plan in the making: the state after the removals that have been decided.

The steps are those of thesis 4.4, 4.5 and 4.7, extended to a joint plan: what one removal moves is
committed before the next is judged.
"""

from collections.abc import Callable, Collection
from dataclasses import replace

from core.account import Account, excess
from core.brakes import Brakes, Pace, headroom
from core.capacity import NOTHING, Amount, Share
from core.config import Config
from core.guards import Blocker
from core.marks import Mark, mark_of, mark_order, without_our_taint
from core.model import Cluster
from core.packing import Attempt, Packer, dominant_share
from core.plan import Kept, Placement, Removal
from core.survey import Survey


class Work:
    """Packer, sums and brakes side by side, by the same ids of nodes."""

    def __init__(
        self,
        cluster: Cluster,
        config: Config,
        *,
        due: frozenset[str] | None,
        pace: Pace | None,
        in_time: Callable[[], bool],
    ) -> None:
        self.survey = Survey(cluster, config)
        spare = headroom(cluster, config.budgets.headroom)
        self._spare = frozenset(pod.key for pod in spare)
        self.packer = Packer(
            _as_if_released(cluster, config.taint_key),
            movable=[*self.survey.movable, *spare],
            closed=self.survey.closed | self.survey.gone,
        )
        self._brakes = Brakes(cluster, config, pace)
        self.reserve = pace.reserve if pace else NOTHING
        leave = config.leave()
        self._leave = Share(leave.cpu, leave.memory)
        self.account: Account = self.survey.account(self.packer.nodes)
        self.marked = {
            node.name
            for node in cluster.nodes
            if mark_of(node.labels) is not None and node.name not in self.survey.gone
        }
        self.pending_amount = Amount(0, 0)
        self._due, self._in_time = due, in_time
        self._delay_seconds = config.delay_seconds
        self._order = self._candidates(config)

    def _candidates(self, config: Config) -> list[int]:
        """Return the ids of all nodes that might go, in the order in which they are tried."""
        nodes, packer = self.packer.nodes, self.packer

        def rank(node_id: int) -> tuple[object, ...]:
            node = nodes[node_id]
            if node.name in self.marked:
                return (0, *mark_order(node, config.taint_key), node.name)
            share = dominant_share(packer.used[node.name], node.allocatable)
            price, sticky = config.price_of(node.labels), self.survey.sticky.get(node.name, 0)
            return (1, -price, sticky, len(packer.on[node_id]), share, node.name)

        ids = (number for number, node in enumerate(nodes) if node.name not in self.survey.gone)
        return sorted(ids, key=rank)

    def settle(self) -> tuple[Placement, ...]:
        """Place the pods that wait for a node, and those whose node is being deleted.

        Those that every node has refused come first: a hard mark may be all that keeps them
        waiting, and the others may have a choice. The headroom comes last: where there is no
        room for it now, none is kept.
        """
        refused: list[int] = []
        waiting: list[int] = []
        spare: list[int] = []
        for number, pod in enumerate(self.packer.pods):
            if pod.node is None and pod.unschedulable:
                refused.append(number)
            elif pod.node is None or pod.node in self.survey.gone:
                (spare if pod.key in self._spare else waiting).append(number)
        first, second = self._settle(refused), self._settle(waiting)
        self._settle(spare)
        return (*self.placements(first), *self.placements(second))

    def _settle(self, pods: list[int]) -> Attempt:
        attempt = self.packer.attempt(pods)
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
        if self.survey.blockers[name] or not self._is_due(name) or self._too_late(name):
            return None
        if not self.account.nominated(node, self._thresholds(node)):
            return None
        if self._brakes.refusals(self.packer.nodes[node]):
            return None
        attempt = self.packer.attempt(self.packer.on[node], node)
        if attempt.unplaced or self._usable_excess(node, attempt):
            return None
        return attempt

    def _remove(self, node: int, attempt: Attempt, order: int) -> Removal:
        removal = Removal(self._name(node), order, self.placements(attempt))
        self.account.remove(node, list(self.packer.received(attempt)))
        self.packer.commit(attempt, node)
        self._brakes.take(self.packer.nodes[node])
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
        blockers += self._brakes.refusals(self.packer.nodes[node])
        over_sums = self._sum_blockers(node)
        blockers += over_sums
        if self._too_late(name):
            message = "the pass ran out of time before the node, or all that speaks against it,"
            return [*blockers, Blocker("time-box", f"{message} was judged")]
        attempt = self.packer.attempt(self.packer.on[node], node)
        blockers += (self._no_room(pod, node) for pod in attempt.unplaced)
        # Over the sums is over the usable sums too (thesis, invariant 1): not said twice.
        if over_sums or attempt.unplaced:
            return blockers
        if over := self._usable_excess(node, attempt):
            message = f"of what would be usable without it, {over}"
            blockers.append(Blocker("usable-threshold", message))
        return blockers or [Blocker("limit", "as many nodes go already as may go in one plan")]

    def _no_room(self, pod: int, node: int) -> Blocker:
        found = self.packer.pods[pod]
        if found.key in self._spare:
            message = "no room would be left for one more pod as large as the largest"
            return Blocker("headroom", message)
        return Blocker("no-room", self.packer.why_not(pod, node), found.key)

    def _sum_blockers(self, node: int) -> list[Blocker]:
        thresholds = self._thresholds(node)
        if self.account.nominated(node, thresholds):
            return []
        if self.account.count == 1:
            return [Blocker("last-node", "no other node would be left")]
        requests, whole = self.account.without(node)
        if over := excess(requests.minus(self.reserve), whole, thresholds):
            return [Blocker("threshold", f"without it the cluster would have {over}")]
        over = excess(requests, whole, thresholds)
        message = f"without it the window's busiest moment would have had {over}"
        return [Blocker("peak-demand", message)]

    def _thresholds(self, node: int) -> Share:
        """Return those that hold for the node: it is harder to enter than to stay."""
        return self._leave if self._name(node) in self.marked else self.survey.thresholds

    def _usable_excess(self, node: int, attempt: Attempt) -> str:
        """Say which thresholds the final check (thesis 4.5) finds exceeded; empty: none."""
        thresholds = self._thresholds(node)
        requests, _ = self.account.without(node)
        usable = self.account.usable_after(node, self.packer.received(attempt))
        if requests.within(thresholds, usable):
            return ""
        return excess(requests, usable, thresholds)

    def _is_due(self, name: str) -> bool:
        return self._due is None or name in self._due or name in self.marked

    def _too_late(self, name: str) -> bool:
        """Say whether the node must wait for the next plan; marked ones never do."""
        return name not in self.marked and not self._in_time()

    def _name(self, node: int) -> str:
        return self.packer.nodes[node].name

    def placements(self, attempt: Attempt) -> tuple[Placement, ...]:
        """Write an attempt with names instead of ids, without the pods that do not exist."""
        pods, nodes = self.packer.pods, self.packer.nodes
        return tuple(
            Placement(pods[pod].key, nodes[node].name)
            for pod, node in attempt.placements
            if pods[pod].key not in self._spare
        )


def _as_if_released(cluster: Cluster, taint_key: str) -> Cluster:
    """Return the cluster without our hard taints: a node that must stay is released anyway."""
    if all(mark_of(node.labels) is not Mark.HARD for node in cluster.nodes):
        return cluster
    return replace(
        cluster, nodes=tuple(without_our_taint(node, taint_key) for node in cluster.nodes)
    )
