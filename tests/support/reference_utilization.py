"""Reference implementation of the policy NodeUtilization, one reconciliation after another.

Like the reference plan, on which it is based, it shares only values with the product.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from core.config.settings import Config
from core.marks.wellknown import TAINT_KEY
from core.model.cluster import Cluster
from core.model.node import Node
from core.model.pod import Pod
from core.model.resources import Resources
from tests.support.reference import Reference
from tests.support.reference_fit import admits, has_room
from tests.support.reference_packing import Moves
from tests.support.reference_rules import KEEP, holds_pods, is_marked, is_sticky, leaving
from tests.support.reference_state import is_spare
from tests.support.reference_sums import asked, dominant, offered

if TYPE_CHECKING:
    from core.engine.leader_state import RateLimits

EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"
VOLUMES = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"


@dataclass(frozen=True)
class Remembered:
    """The state that one reconciliation leaves to the next."""

    since: Mapping[str, int] = field(default_factory=dict)
    """Time since which each node is unneeded."""
    places: Mapping[str, Moves] = field(default_factory=dict)
    standing: frozenset[str] = frozenset()
    """Unmarked nodes that exist and are not being removed."""


class Utilization(Reference):
    """One reconciliation: call `run`, then `remembered`."""

    def __init__(
        self,
        cluster: Cluster,
        config: Config,
        mutant: str = "",
        rate_limits: "RateLimits | None" = None,
        *,
        before: Remembered | None = None,
        now: int = 0,
        **more: Any,
    ) -> None:
        """Prepare a reconciliation; without *before*, times are ignored."""
        self.settings = config.policies.node_utilization
        super().__init__(
            cluster, config, mutant, rate_limits, clock=None if before is None else now, **more
        )
        self.before, self.now = before, now
        self.since: dict[str, int] = {}
        self.places: dict[str, Moves] = {}
        self.looked = before is None
        standing = [n.name for n in cluster.nodes if not is_marked(n) and not leaving(n)]
        self.left = frozenset(standing)
        self.node_left = before is not None and any(n not in standing for n in before.standing)
        if mutant == "unneeded times restart without removals":
            self.node_left = True

    # Removal order.

    def dearness(self, node: Node) -> tuple[object, ...]:
        """Return the class of the node: marked nodes first."""
        return (not is_marked(node),)

    def rank(self, node: Node) -> tuple[object, ...]:
        """Return the sort key of a candidate; nodes that empty soonest come first."""
        if is_marked(node):
            return super().rank(node)
        pods = self.start[node.name]
        sticky = sum(map(is_sticky, pods)) if self.mutant != "no stickiness" else 0
        moving = len([pod for pod in pods if pod.key in self.moves])
        share = dominant(Resources.total(pod.requests for pod in pods), node.allocatable)
        return *self.dearness(node), sticky, moving, share, node.name

    # Unneeded nodes.

    def limit(self, node: Node) -> Fraction:
        """Return the limit of the node's utilization."""
        enter: Fraction = self.settings.utilization
        if not is_marked(node) or self.mutant == "marks have the stricter limit":
            return enter
        ignored = self.mutant == "the configured hysteresis is ignored"
        more = Fraction(5, 100) if ignored else self.config.hysteresis
        return min(enter + more, Fraction(1))

    def hardly_used(self, node: Node) -> bool:
        """Return whether the utilization of the node is below the limit."""
        pods = [pod for pod in self.standing()[node.name] if not is_spare(pod)]
        if self.mutant == "DaemonSet pods are ignored":
            pods = [pod for pod in pods if not pod.stays_with_node]
        if self.mutant == "pods do not move":
            pods = self.start[node.name]
        limit = self.limit(node)
        parts = zip(asked(pods), offered(node), strict=True)
        if self.mutant == "at the limit counts as below":
            return all(whole > 0 and Fraction(part, whole) <= limit for part, whole in parts)
        under = [whole > 0 and Fraction(part, whole) < limit for part, whole in parts]
        return any(under) if self.mutant == "one resource" else all(under)

    def keeps(self, pod: Pod) -> bool:
        """Return whether the pod makes its node unremovable."""
        notes, keep = dict(pod.disruption_facts.notes), self.settings
        word, safe = notes.get(EVICT), notes.get(VOLUMES, "").split(",")
        stays = pod.daemon or pod.mirror or pod.terminating
        if notes.get(KEEP, "").startswith("true") and not stays:
            return True
        passed_over = stays or pod.priority < -10
        if passed_over and self.mutant != "all pods block":
            return False
        if word in {"true", "on-completion"}:
            return self.mutant == "safe-to-evict: true is ignored"
        return (
            (word == "false" and self.mutant != "safe-to-evict: false is ignored")
            or (not pod.owner_kind and self.mutant != "bare pods do not block")
            or (
                keep.keep_system
                and pod.namespace == "kube-system"
                and self.mutant != "kube-system pods do not block"
            )
            or (keep.keep_local_storage and self.on_disk(pod, safe))
        )

    def on_disk(self, pod: Pod, safe: list[str]) -> bool:
        """Return whether the pod has local volumes that are not *safe* to lose."""
        if self.mutant == "local storage does not block":
            return False
        return any(
            v not in safe or self.mutant == "safe-to-evict-local-volumes is ignored"
            for v in pod.disruption_facts.local_volumes
        )

    def not_needed(self, node: Node) -> bool:
        """Return whether the node is unneeded, apart from the placement of its pods."""
        bound = [pod for pod in self.cluster.pods if pod.node == node.name]
        return self.hardly_used(node) and not any(self.keeps(pod) for pod in bound)

    def look_for_places(self) -> None:
        """List the unneeded nodes, after the removal of all marked nodes.

        Nodes whose known placements are all still valid come first. The pods of other nodes avoid
        room that two nodes already count on, if possible.
        """
        self.looked = True
        assert self.before is not None
        self.promised: dict[str, Resources] = {}
        later = []
        for node in self.cluster.nodes:
            if node.virtual or node.name not in self.left or not self.not_needed(node):
                continue
            here = [pod for pod in self.standing()[node.name] if not self.leaves_with_node(pod)]
            if any(pod.key not in self.moves and not is_spare(pod) for pod in here):
                continue
            known = self.known(node, here)
            placed = self.place(node, here, known)
            if len(placed) < len(here) and self.mutant != "known places block new pods":
                placed = self.place(node, here, {})
            if len(placed) < len(here):
                continue
            holds = real(placed).keys() == known.keys() and lost(known, placed) == []
            if known and holds and self.mutant != "nodes with known places are not first":
                self.note(node, known, placed)
            else:
                later.append((node, here, known, placed))
        for node, here, known, placed in later:
            held = {key: name for key, name in known.items() if placed.get(key) == name}
            other = self.place(node, here, held, self.promised)
            if self.mutant == "promised capacity is ignored" or len(other) < len(here):
                other = placed
            if lost(held, other):
                other = placed
            self.note(node, known, other)
        self.due = frozenset(
            name
            for name, since in self.since.items()
            if self.now - since
            > self.config.unneeded_time_seconds - (self.mutant == "at the unneeded time")
            or (
                self.mutant != "empty nodes wait"
                and not holds_pods(self.nodes[name], self.cluster, self.now)
            )
        )

    def note(self, node: Node, known: Mapping[str, str], placed: Mapping[str, str]) -> None:
        """Record the placements of the pods, and since when the node is unneeded."""
        assert self.before is not None
        self.places[node.name] = [*real(placed).items()]
        was = node.name in self.before.since and node.name in self.before.places
        anew = (
            lost(known, placed)
            and self.node_left
            and self.mutant != "the unneeded time never restarts"
        )
        self.since[node.name] = self.before.since[node.name] if was and not anew else self.now
        for name in set(placed.values()):
            asked_there = [self.pods[key].requests for key, to in placed.items() if to == name]
            self.promise(name, Resources.total(asked_there))

    def promise(self, name: str, asked_there: Resources) -> None:
        """Add promised requests of a node, except the first; an excess counts as everything."""
        if name not in self.promised:
            self.promised[name] = Resources()
            return
        free = self.free(name) - self.promised[name]
        more = asked_there if has_room(asked_there, free) else ALL
        self.promised[name] += more

    def free(self, name: str) -> Resources:
        """Return the free capacity of the node."""
        used = Resources.total(pod.requests for pod in self.standing()[name])
        return self.nodes[name].allocatable - used

    def known(self, node: Node, here: list[Pod]) -> dict[str, str]:
        """Return the known placements of the node's pods, in their order."""
        known = {**(self.before.places if self.before else {}), **self.places}
        if self.mutant == "known places are ignored":
            return {}
        keys = {pod.key for pod in here}
        return {key: name for key, name in known.get(node.name, []) if key in keys}

    def place(
        self,
        node: Node,
        here: list[Pod],
        known: Mapping[str, str],
        promised: Mapping[str, Resources] | None = None,
    ) -> dict[str, str]:
        """Return placements of the pods; known placements are tried first.

        Unplaced pods are tried again after others are placed, as their affinity may need them.
        """
        pods = {pod.key: pod for pod in here}
        there = self.standing()
        free = {
            n.name: self.free(n.name) - (promised or {}).get(n.name, Resources())
            for n in self.first_fit
            if self.open(n, there[n.name]) and n.name != node.name
        }
        remaining = [
            (self.pods[key], self.nodes[name]) for key, name in self.at.items() if key not in pods
        ]
        placed: dict[str, str] = {}
        asks = [(pods[key], [self.nodes[to]]) for key, to in known.items() if to in self.nodes]
        ordered = [(pod, self.first_fit) for pod in sorted(here, key=self.largest_first)]
        asks, before = asks + ordered, -1
        while before < len(placed) < len(here):
            before = len(placed)
            for pod, places in asks:
                for to in places:
                    if (
                        pod.key not in placed
                        and to.name in free
                        and admits(to, pod.node_constraints, TAINT_KEY)
                        and has_room(pod.requests, free[to.name])
                        and not (pod.key in self.kept_free and to.name in self.idle)
                        and self.beside(pod, to, remaining)
                    ):
                        free[to.name] -= pod.requests
                        placed[pod.key] = to.name
                        remaining.append((pod, to))
            asks = ordered if self.mutant != "pods are tried once" else []
        return placed

    # Removal.

    def try_remove(self, node: Node) -> Moves | None:
        """Remove the node and return the placements of its pods, or return None."""
        if not is_marked(node) and not self.looked:
            self.look_for_places()
        if not self.may_be_removed(node) or self.is_guessed(node) or not self.not_needed(node):
            return None
        here = [pod for pod in self.standing()[node.name] if not self.leaves_with_node(pod)]
        known = self.known(node, here)
        placed = self.place(node, here, known)
        if len(placed) < len(here) or (lost(known, placed) and not is_marked(node)):
            return None
        self.at |= placed
        self.gone.append(node.name)
        self.counts.gone.append(node)
        self.places[node.name] = [*real(placed).items()]
        return self.places[node.name]

    def remembered(self) -> Remembered:
        """Return the state for the next reconciliation."""
        if not self.looked:
            self.look_for_places()
        return Remembered(self.since, self.places, self.left)


ALL = Resources(10**30, 10**30, 10**30, 10**30)
"""More than any node has."""


def real(placed: Mapping[str, str]) -> dict[str, str]:
    """Return the placements without placeholders."""
    return {key: name for key, name in placed.items() if not key.startswith("/")}


def lost(known: Mapping[str, str], placed: Mapping[str, str]) -> list[str]:
    """Return the pods that do not get their known placement."""
    return [key for key, name in known.items() if placed.get(key) != name]
