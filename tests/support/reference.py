"""The reference plan: a slow and simple implementation of the documented plan.

It shares only values with the product: cluster, configuration and rate limits. This module has the
order of the steps. The parts are reference_fit (one pod on one node), reference_beside (inter-pod
rules), reference_rules (removable nodes, their order and limits), reference_sums (totals),
reference_state (current placement of pods) and reference_packing (placement of pods).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from core.config.settings import Config
from core.marks.wellknown import TAINT_KEY
from core.model.cluster import Cluster
from core.model.node import Node
from core.model.pod import Pod
from core.model.resources import Resources
from tests.support.reference_packing import Moves, Packing
from tests.support.reference_rules import (
    Shares,
    guarded,
    is_marked,
    is_sticky,
    keeps,
    leaving,
    limits,
    mark_rank,
    price_of,
)
from tests.support.reference_scalable import is_fixed
from tests.support.reference_state import Members, is_ignored, is_spare, plain_key
from tests.support.reference_sums import (
    NONE,
    Pair,
    Sums,
    Useful,
    asked,
    dominant,
    held,
    minus,
    offered,
    plus,
    within,
    worth_share,
)

if TYPE_CHECKING:
    from core.engine.leader_state import RateLimits

ATTEMPTS_MAX = 4
"""Maximum number of packings for one node, each with fewer target nodes."""


@dataclass(frozen=True)
class Reach:
    """Thresholds and totals of one reach."""

    enter: Shares
    unmark: Shares
    before: Sums
    after: Sums
    usability: Useful | None


@dataclass(frozen=True)
class Found:
    """The finished plan."""

    removals: list[tuple[str, Moves]]
    pending: Moves
    before: Sums
    after: Sums
    reaches: list[Reach]


class Reference(Packing):
    """A plan; `run` computes it."""

    def __init__(
        self,
        cluster: Cluster,
        config: Config,
        mutant: str = "",
        rate_limits: "RateLimits | None" = None,
        *,
        due: frozenset[str] | None = None,
        key: Callable[[Members], str] = plain_key,
        clock: int | None = None,
    ) -> None:
        """Order the candidates before any pod is moved."""
        super().__init__(cluster, config, mutant, rate_limits, key=key, clock=clock)
        self.due = due
        self.order = sorted((n for n in cluster.nodes if not leaving(n)), key=self.rank)
        """Candidates in removal order."""

    # Removal order.

    def dearness(self, node: Node) -> tuple[object, ...]:
        """Return the class of the node; after a removal lower classes are tried first."""
        unreached = node.name not in self.reached
        if is_marked(node):
            return 0, unreached
        if self.mutant == "cheapest first":
            return 1, unreached, price_of(self.config, node)
        return 1, unreached, -price_of(self.config, node)

    def rank(self, node: Node) -> tuple[object, ...]:
        """Return the sort key of a candidate."""
        if is_marked(node):
            return *self.dearness(node), *mark_rank(node, TAINT_KEY)
        pods = self.start[node.name]
        used = Resources.total(pod.requests for pod in pods)
        sticky = sum(map(is_sticky, pods)) if self.mutant != "no stickiness" else 0
        moving = len([pod for pod in pods if pod.key in self.moves])
        share = worth_share(used, node.allocatable)
        if self.mutant == "lowest dominant share first":
            share = dominant(used, node.allocatable)
        last = -self.first_fit.index(node)
        if self.mutant == "equal nodes in first-fit order":
            last = -last
        if self.mutant == "fewest pods first":
            return *self.dearness(node), sticky, moving, share, last
        return *self.dearness(node), sticky, share, moving, last

    # Steps.

    def may_be_removed(self, node: Node) -> bool:
        """Return whether the node may be removed, apart from the placement of its pods."""
        moves = [
            p
            for p in self.standing()[node.name]
            if not self.leaves_with_node(p) and not is_spare(p)
        ]
        stuck = [pod for pod in moves if pod.key not in self.moves]
        due = self.due is None or node.name in self.due or is_marked(node)
        if self.mutant == "virtual nodes count as nodes" and node.virtual:
            return due and not self.counts.hold(node)
        if guarded(node) or self.is_fixed(node) or keeps(node, self.cluster):
            return False
        return not stuck and due and not self.counts.hold(node)

    def is_fixed(self, node: Node) -> bool:
        """Say whether no autoscaler removes the node."""
        fixed = is_fixed(node, self.cluster, self.config)
        return fixed and self.mutant != "everything is scalable"

    def try_remove(self, node: Node) -> Moves | None:
        """Remove the node and return the placements of its pods, or return None without changes.

        If the pods would exceed a threshold of other reaches, they are packed again without the
        nodes of these reaches. A marked node is first tried with the thresholds of unmarked nodes,
        then with the hysteresis added.
        """
        if not self.may_be_removed(node) or self.is_last(node) or self.is_guessed(node):
            return None
        here = self.standing()[node.name]
        if not self.sums_pass(node, held(node, self.residents(here))):
            return None
        strict = [False] if not is_marked(node) or self.mutant == "no hysteresis" else []
        tries = strict or ([True] if self.mutant == "hysteresis first" else [False, True])
        found = (self.remove_within(node, here, marked=marked) for marked in tries)
        return next((moves for moves in found if moves is not None), None)

    def remove_within(self, node: Node, here: list[Pod], *, marked: bool) -> Moves | None:
        """Remove the node if the thresholds for marked or unmarked nodes allow it."""
        barred: Members = frozenset()
        for _ in range(1 if self.mutant == "no second try" else ATTEMPTS_MAX):
            moving = [pod for pod in here if not self.leaves_with_node(pod)]
            placed, complete = self.pack(moving, barred | {node.name})
            if not complete:
                return None
            load = [(pod, to.name) for pod, to in placed if not is_spare(pod)]
            touched = {node.name, *(name for pod, name in load if asked([pod]) != NONE)}
            before, devices = dict(self.at), self.device_sums()
            self.at |= {pod.key: to.name for pod, to in placed}
            self.gone.append(node.name)
            over = list(self.exceeded(node, touched, marked=marked))
            if self.mutant != "devices have no threshold":
                over += self.devices_exceeded(devices, marked=marked)
            if not over:
                self.counts.gone.append(node)
                return [(pod.key, name) for pod, name in load]
            self.at = before
            self.gone.pop()
            if any(members is None or node.name in members for members in over):
                return None
            barred = barred.union(*(members for members in over if members is not None))
        return None

    def is_last(self, node: Node) -> bool:
        """Return whether this is the last schedulable node, or the last in any reach."""
        reached = node.name in self.reached
        there = self.standing()
        return not any(
            other.name != node.name
            and self.open(other, there[other.name])
            and (other.name in self.reached or not reached)
            for other in self.cluster.nodes
        )

    def is_guessed(self, node: Node) -> bool:
        """Return whether the node is in no reach, but an unsupported pod might need it."""
        asking = [
            p
            for p in self.cluster.pods
            if (p.unsupported or self.is_promised(p))
            and not (self.leaves_with_node(p) or is_ignored(p))
        ]
        known = [p for p in asking if not (p.too_much or p.unreadable)]
        machines = {None, *(name for name, one in self.nodes.items() if not one.virtual)}
        return node.name not in self.reached and any(
            node.name in self.reach_of(pod) for pod in known if pod.node in machines
        )

    def sums_pass(self, node: Node, own: Pair) -> bool:
        """Return whether requests and capacity without the node keep to the thresholds."""
        if node.name not in self.reached:
            return True
        whole = self.whole()
        marked = is_marked(node)
        requests, left = plus(whole.requests, self.reserve(None, marked=marked)), whole.capacity
        if self.open(node, self.standing()[node.name]):  # other nodes do not count in either
            requests, left = minus(requests, own), minus(left, offered(node))
        return within(requests, limits(self.config, marked=marked), left)

    def exceeded(self, node: Node, touched: set[str], *, marked: bool) -> Iterator[Members | None]:
        """Yield the reaches that exceed a threshold of usable capacity; None is the whole cluster.

        The node is already removed; *touched* are the affected nodes.
        """
        if self.reached & touched:
            whole = self.whole()
            requests = plus(whole.requests, self.reserve(None, marked=marked))
            if not within(requests, limits(self.config, marked=marked), whole.usable):
                yield None
        for members in self.all_reaches:
            if (
                len(members) < 2
                or not members & touched
                or self.mutant == "only the thresholds of the cluster"
            ):
                continue
            if (
                self.mutant == "reaches of target nodes are not checked"
                and node.name not in members
            ):
                continue
            found = self.sums(members, self.useful[members])
            requests = plus(found.requests, self.reserve(members, marked=marked))
            if not within(requests, self.thresholds(members, marked=marked), found.usable):
                yield members

    def devices_exceeded(
        self, before: dict[tuple[Members, str], tuple[int, int]], *, marked: bool
    ) -> Iterator[Members]:
        """Yield the reaches with too many requests of a device that the removal has changed."""
        for (members, name), (requested, whole) in self.device_sums().items():
            share = self.device_threshold(members, marked=marked)
            if (requested, whole) != before[members, name] and requested > share * whole:
                yield members

    def run(self, removals_max: int | None = None) -> Found:
        """Compute the plan."""
        pending = self.settle()
        before, reaches_before = self.whole(), self.reach_sums()
        removals = self.remove_all(removals_max)
        after, reaches_after = self.whole(), self.reach_sums()
        found = [
            Reach(
                enter=self.thresholds(members, marked=False),
                unmark=self.thresholds(members, marked=True),
                before=reaches_before[members],
                after=reaches_after[members],
                usability=self.useful[members],
            )
            for members in self.all_reaches
            if len(members) > 1
        ]
        return Found(removals, pending, before, after, found)

    def reach_sums(self) -> dict[Members, Sums]:
        """Return the totals of each reach."""
        return {one: self.sums(one, self.useful[one]) for one in self.all_reaches}

    def remove_all(self, removals_max: int | None) -> list[tuple[str, Moves]]:
        """Remove nodes one by one, always the most expensive that is removable.

        Within a class the search continues after the last tried node and wraps around. A removal
        restarts the search in all more expensive classes.
        """
        removals: list[tuple[str, Moves]] = []
        refused: dict[str, int] = {}
        """Number of removals when the node was last rejected."""
        tried: dict[object, str] = {}
        """Node that was tried last, by class."""
        while len(removals) != removals_max:
            node = self.next_to_try(refused, tried, len(removals))
            if node is None:
                break
            kind = self.dearness(node)
            tried[kind] = node.name
            moves = self.remove(node)
            if moves is None:
                refused[node.name] = len(removals)
                continue
            removals.append((node.name, moves))
            if self.mutant != "rejected nodes are not retried":
                for other in [one for one in tried if one < kind]:  # type: ignore[operator]
                    del tried[other]
        return removals

    def next_to_try(
        self, refused: dict[str, int], tried: dict[object, str], gone: int
    ) -> Node | None:
        """Return the most expensive node that has not been rejected in the current state yet."""
        left = [n for n in self.order if n.name not in self.gone and refused.get(n.name) != gone]
        if self.mutant == "rejected nodes are not retried":
            left = [n for n in left if n.name not in refused]
        if not left:
            return None
        kind = min(self.dearness(node) for node in left)
        names = [node.name for node in self.order]
        last = names.index(tried[kind]) if kind in tried else -1
        alike = [node for node in left if self.dearness(node) == kind]
        later = [node for node in alike if names.index(node.name) > last]
        return (later or alike)[0]
