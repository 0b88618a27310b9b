"""Keep a node reserved for longer if the reserve needed it again after it was released.

The room on the other nodes changes with every pod. A node that is needed while a pod of a CronJob
runs would be released to the autoscaler each time the pod ends. It would be protected again before
the autoscaler, which waits about ten minutes, could remove it. So such a node stays reserved for
one `reserve.window` after it was needed last, twice as long after each repetition, up to
`reserve.lookback`.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from core.config.budgets import Reserve
from core.engine.plan import ReservedNode
from core.engine.reach_keys import RenamedKeys
from core.engine.snapshot import ClusterSnapshot
from core.marks.mark import is_scale_down_allowed
from core.model.humanize import timestamp
from core.model.now import Now
from core.model.reason import Blocker, Reason

DOUBLINGS_MAX: Final = 32
"""Maximum number of doublings; more would exceed any duration that can be configured."""


class ReserveHit(NamedTuple):
    """A node that the reserve needed again after its release to the autoscaler."""

    times: int
    """Number of times that the node was needed again."""
    needed: int
    """Time of the last reconciliation that needed the node, unix seconds."""


class NeededNodes(NamedTuple):
    """A snapshot, and the nodes that the reserve needs now."""

    snapshot: ClusterSnapshot
    needed: Collection[str]


@dataclass(frozen=True, slots=True)
class ReserveHits:
    """Nodes that the reserve needed again after their release."""

    nodes: Mapping[str, ReserveHit] = field(default_factory=dict)
    """Hits by node; a hit is dropped `reserve.lookback` after the node was needed last."""
    current: frozenset[str] = frozenset()
    """Nodes that the reserve needed in the last reconciliation."""

    def observe(self, seen: NeededNodes, now: Now) -> "ReserveHits":
        """Return the state after a reconciliation.

        A new leader reserves every empty node because it does not know yet which ones are needed.
        Until it knows, it passes no needed nodes.
        """
        settings = seen.snapshot.config.budgets.reserve
        found: dict[str, ReserveHit] = {}
        for node in seen.snapshot.node_order.nodes:
            known = self.nodes.get(node.name)
            if known and now.reached(known.needed + settings.lookback_seconds):
                known = None
            if node.name in seen.needed:
                again = is_scale_down_allowed(node) and not (
                    known and now.before(_until(known, settings))
                )
                times = (known.times if known else 0) + again
                known = ReserveHit(times, now.seconds) if times else None
            if known:
                found[node.name] = known
        return ReserveHits(found, frozenset(found.keys() & set(seen.needed)))

    def unchanged(self, now: Now) -> "ReserveHits":
        """Return the state after a skipped reconciliation."""
        found = {name: self.nodes[name]._replace(needed=now.seconds) for name in self.current}
        return replace(self, nodes={**self.nodes, **found})

    def renamed(self, keys: RenamedKeys) -> "ReserveHits":  # noqa: ARG002
        """Return the state itself, because it contains no keys of reaches."""
        return self

    def extend(
        self, snapshot: ClusterSnapshot, kept: Iterable[ReservedNode], reason: Reason, now: Now
    ) -> tuple[ReservedNode, ...]:
        """Add the nodes that stay reserved because of a recent hit to *kept*; sorted by name."""
        settings = snapshot.config.budgets.reserve
        found = {one.node: one for one in kept}
        for name, one in self.nodes.items():
            until = _until(one, settings)
            if now.before(until) and name not in found and _is_empty_and_marked(snapshot, name):
                message = (
                    "it was needed again after its release to the autoscaler, and is reserved "
                    f"until {timestamp(until)}"
                )
                found[name] = ReservedNode(name, Blocker(reason, message, until=until))
        return tuple(found[name] for name in sorted(found))


def _until(one: ReserveHit, settings: Reserve) -> int:
    """Return the time until which a node stays reserved."""
    seconds: int = settings.window_seconds << min(one.times - 1, DOUBLINGS_MAX)
    return one.needed + min(seconds, settings.lookback_seconds)


def _is_empty_and_marked(snapshot: ClusterSnapshot, name: str) -> bool:
    empty = name not in snapshot.non_empty_nodes and name not in snapshot.unschedulable_nodes
    return empty and name in snapshot.marks and not snapshot.blockers[name]
