"""Keep an empty node reserved for longer if it was needed again after its scale-down was allowed.

An empty node is reserved, so that no autoscaler removes it, while expected pods need its room. The
room on the other nodes changes with every pod. If a node is needed while a pod of a CronJob runs,
Ebb would allow its scale-down each time the pod ends. Ebb would protect the node again before the
autoscaler, which waits about ten minutes, could remove it. So such a node stays reserved for one
`reserve.window` after it was needed last, twice as long after each repetition, up to an hour.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from core.engine.arrivals import LOOKBACK_SECONDS
from core.engine.plan import ReserveCause, ReservedNode
from core.engine.reach_keys import RenamedKeys
from core.engine.snapshot import ClusterSnapshot
from core.marks.mark import is_scale_down_allowed
from core.model.humanize import timestamp
from core.model.now import Now
from core.model.reason import Blocker, Reason

DOUBLINGS_MAX: Final = 32
"""Maximum number of doublings; more would exceed any duration that can be configured."""


class ReserveHit(NamedTuple):
    """How often, and when last, a node was needed after its scale-down had been allowed."""

    times: int
    """Number of times that the node was needed again."""
    needed: int
    """Time of the last reconciliation that needed the node, unix seconds."""


class NeededNodes(NamedTuple):
    """A snapshot, and the names of the empty nodes that expected pods need now."""

    snapshot: ClusterSnapshot
    needed: Collection[str]


@dataclass(frozen=True, slots=True)
class ReserveHits:
    """Nodes that expected pods needed again after Ebb had allowed the nodes' scale-down."""

    nodes: Mapping[str, ReserveHit] = field(default_factory=dict)
    """Hits by node; a hit is dropped LOOKBACK_SECONDS after the node was needed last."""
    current: frozenset[str] = frozenset()
    """Nodes that the reserve needed in the last reconciliation."""

    def observe(self, needed_nodes: NeededNodes, now: Now) -> "ReserveHits":
        """Return the hits after a reconciliation.

        *needed_nodes*: the snapshot, and the nodes that expected pods need; none while a new
        leader has not observed arrivals for long enough to know them.
        """
        window_seconds = needed_nodes.snapshot.config.budgets.reserve.window_seconds
        if window_seconds is None:
            return ReserveHits()
        hits: dict[str, ReserveHit] = {}
        for node in needed_nodes.snapshot.node_order.nodes:
            hit = self.nodes.get(node.name)
            if hit and now.reached(hit.needed + LOOKBACK_SECONDS):
                hit = None
            if node.name in needed_nodes.needed:
                again = is_scale_down_allowed(node) and not (
                    hit and now.before(_reserved_until(hit, window_seconds))
                )
                times = (hit.times if hit else 0) + again
                hit = ReserveHit(times, now.seconds) if times else None
            if hit:
                hits[node.name] = hit
        return ReserveHits(hits, frozenset(hits.keys() & set(needed_nodes.needed)))

    def unchanged(self, now: Now) -> "ReserveHits":
        """Return the hits with time *now* for the needed nodes, as nothing has changed."""
        current = {name: self.nodes[name]._replace(needed=now.seconds) for name in self.current}
        return replace(self, nodes={**self.nodes, **current})

    def renamed(self, keys: RenamedKeys) -> "ReserveHits":  # noqa: ARG002
        """Return the state itself, because it contains no keys of reaches."""
        return self

    def extend(
        self, snapshot: ClusterSnapshot, kept: Iterable[ReservedNode], reason: Reason, now: Now
    ) -> tuple[ReservedNode, ...]:
        """Return by name the *kept* nodes, and the empty marked nodes that a recent hit keeps.

        *kept*: nodes reserved because expected pods need them now. *reason*: reason given for the
        others.
        """
        window_seconds = snapshot.config.budgets.reserve.window_seconds
        reserved = {node.node: node for node in kept}
        if window_seconds is None:
            return tuple(reserved[name] for name in sorted(reserved))
        for name, hit in self.nodes.items():
            until = _reserved_until(hit, window_seconds)
            if now.before(until) and name not in reserved and _is_empty_and_marked(snapshot, name):
                message = (
                    "the node was needed again after its scale-down was allowed, and is "
                    f"reserved until {timestamp(until)}"
                )
                why = Blocker(reason, message, until=until)
                reserved[name] = ReservedNode(name, ReserveCause.REPEATED, why)
        return tuple(reserved[name] for name in sorted(reserved))


def _reserved_until(hit: ReserveHit, window_seconds: int) -> int:
    seconds: int = window_seconds << min(hit.times - 1, DOUBLINGS_MAX)
    return hit.needed + min(seconds, LOOKBACK_SECONDS)


def _is_empty_and_marked(snapshot: ClusterSnapshot, name: str) -> bool:
    empty = name not in snapshot.non_empty_nodes and name not in snapshot.unschedulable_nodes
    return empty and name in snapshot.marks and not snapshot.blockers[name]
