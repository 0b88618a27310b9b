"""Reference implementation of the policy ExcessNodes, without any caching.

The reference plan provides the parts that all policies share. Only the values of the settings come
from the policy.
"""

from collections.abc import Iterable
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from core.marks.wellknown import TAINT_KEY
from core.model.node import Node
from core.model.pod import Pod
from tests.support.reference import Reference
from tests.support.reference_fit import passing
from tests.support.reference_packing import Moves
from tests.support.reference_rules import guarded, is_marked, keeps, mark_rank
from tests.support.reference_state import is_spare
from tests.support.reference_sums import Pair, held, offered

if TYPE_CHECKING:
    from core.policies.ported.excess_nodes import Settings


class Excess(Reference):
    """A plan; `run` computes it."""

    @property
    def said(self) -> "Settings":
        """Return the settings of the policy."""
        found: Settings = self.config.policies.excess_nodes
        return found

    def on(self, node: Node) -> list[Pod]:
        """Return the current pods of the node."""
        return [pod for pod in self.standing()[node.name] if not is_spare(pod)]

    def counts_in(self, node: Node) -> bool:
        """Return whether the node counts: it is schedulable, untainted, and has CPU and memory."""
        keys = [taint.key for taint in node.taints if taint.key != TAINT_KEY]
        of_others = [key for key in keys if not passing(key)]
        takes = not of_others or self.mutant == "taints are ignored"
        return takes and min(offered(node)) > 0 and self.open(node, self.standing()[node.name])

    def counted(self) -> list[Node]:
        """Return the nodes that count now; marks that must be removed do not matter."""
        return [node for node in self.cluster.nodes if self.counts_in(node)]

    def excess(self, node: Node, nodes: Iterable[Node]) -> Fraction:
        """Return the free capacity of *nodes* as a number of nodes like this one."""
        parts = []
        for resource in (0, 1):
            if self.mutant == "only CPU" and resource:
                continue
            free = sum(offered(one)[resource] - held(one, self.on(one))[resource] for one in nodes)
            parts.append(Fraction(free, offered(node)[resource]))
        return min(parts)

    def score(self, node: Node) -> tuple[Fraction, str]:
        """Return the sort key of a candidate; the lowest is removed first."""
        weights = Fraction(8, 10), Fraction(2, 10)
        pairs = zip(weights, held(node, self.on(node)), offered(node), strict=True)
        shares = [weight * Fraction(part, of) for weight, part, of in pairs if of]
        return (Fraction(0) if self.mutant == "by name" else sum(shares, Fraction())), node.name

    def is_unremovable(self, node: Node) -> bool:
        """Return whether the node is unremovable for reasons outside of the policy."""
        pods = [pod for pod in self.start[node.name] if not pod.stays_with_node]
        stuck = [pod for pod in pods if pod.key not in self.moves]
        said = guarded(node) or self.is_fixed(node) or keeps(node, self.cluster)
        return said or bool(stuck) or self.is_guessed(node)

    # Differences from the plan with thresholds.

    def dearness(self, node: Node) -> tuple[object, ...]:
        """Return the class of the node: marked nodes first, then all others."""
        return (not is_marked(node),)

    def rank(self, node: Node) -> tuple[object, ...]:
        """Return the sort key of a node in the current state."""
        if is_marked(node):
            return *self.dearness(node), *mark_rank(node, TAINT_KEY)
        return *self.dearness(node), *self.score(node)

    def is_last(self, node: Node) -> bool:  # noqa: ARG002 not needed by this policy
        """Return False, as this policy has a minimum number of nodes."""
        return False

    def sums_pass(self, node: Node, residents: Pair) -> bool:  # noqa: ARG002
        """Return whether the node is the candidate and the excess exceeds the threshold."""
        counted = self.counted()
        if node not in counted:
            return False
        if is_marked(node) and self.mutant != "no slack":
            return self.excess(node, counted) >= self.said.threshold - Fraction(1, 2)
        before = [
            one
            for one in counted
            if self.score(one) <= self.score(node) and not self.is_unremovable(one)
        ]
        if self.mutant == "only the excess of the node itself":
            before = [node]
        return all(self.excess(one, counted) > self.said.threshold for one in before)

    def exceeded(self, node: Node, touched: set[str], *, marked: bool) -> Any:  # noqa: ARG002
        """Return nothing, as this policy has no thresholds of reaches."""
        return iter(())

    def devices_exceeded(self, before: Any, *, marked: bool) -> Any:  # noqa: ARG002
        """Return nothing, as this policy has no thresholds of devices."""
        return iter(())

    def remove_all(self, removals_max: int | None) -> list[tuple[str, Moves]]:
        """Remove nodes one by one, always the first that is removable."""
        removals: list[tuple[str, Moves]] = []
        while len(removals) != removals_max:
            left = (node for node in self.order if node.name not in self.gone)
            order = list(left) if self.mutant == "initial order" else sorted(left, key=self.rank)
            found = ((node.name, self.remove(node)) for node in order)
            going = next(((name, moves) for name, moves in found if moves is not None), None)
            if going is None:
                break
            removals.append(going)
        return removals

    def told(self) -> Fraction | None:
        """Return the excess of unmarked nodes after Pending pods are placed, or None."""
        self.settle()
        nodes = [node for node in self.counted() if not is_marked(node)]
        going = [node for node in nodes if not self.is_unremovable(node)]
        return self.excess(min(going, key=self.score), nodes) if going else None
