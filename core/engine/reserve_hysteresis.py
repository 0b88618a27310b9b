"""Which nodes the reserve has taken back from their autoscaler, and how long they are kept; pure.

What the nodes that stay have room for changes with every pod. A node that is needed while a pod of
a CronJob runs would be handed over each time that it ends, and taken back before its autoscaler
could have it, which takes no node that has been empty for less than ten minutes. So a node that
has been taken back is kept longer than it is needed: for one length of the reserve, twice as long
each further time, and never longer than the reserve looks back.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from core.config.budgets import Reserve
from core.engine.plan import ReservedNode
from core.engine.reach_keys import RenamedKeys
from core.engine.snapshot import ClusterSnapshot
from core.marks.mark import is_released_to_autoscaler
from core.model.humanize import timestamp
from core.model.now import Now
from core.model.reason import Blocker, Reason

DOUBLINGS_MAX: Final = 32
"""More are longer than any time that can be configured."""


class ReserveHit(NamedTuple):
    """A node that the reserve needed once more after it had been released."""

    times: int
    needed: int
    """Unix seconds of the last look that found it needed."""


class NeededNodes(NamedTuple):
    """A look, and the nodes that the reserve needs now."""

    snapshot: ClusterSnapshot
    needed: Collection[str]


@dataclass(frozen=True, slots=True)
class ReserveHits:
    """The nodes that the reserve has taken back from the autoscaler."""

    nodes: Mapping[str, ReserveHit] = field(default_factory=dict)
    """By name; forgotten when the reserve looks back on nothing of it any more."""
    current: frozenset[str] = frozenset()
    """Those that the last look found needed."""

    def observe(self, seen: NeededNodes, now: Now) -> "ReserveHits":
        """Return the state after a look.

        A new leader that keeps every empty node, because it has not watched for long enough,
        passes none as needed: it does not know whether one is.
        """
        settings = seen.snapshot.config.budgets.reserve
        found: dict[str, ReserveHit] = {}
        for node in seen.snapshot.node_order.nodes:
            known = self.nodes.get(node.name)
            if known and now.reached(known.needed + settings.over_seconds):
                known = None
            if node.name in seen.needed:
                again = is_released_to_autoscaler(node) and not (
                    known and now.before(_until(known, settings))
                )
                times = (known.times if known else 0) + again
                known = ReserveHit(times, now.seconds) if times else None
            if known:
                found[node.name] = known
        return ReserveHits(found, frozenset(found.keys() & set(seen.needed)))

    def unchanged(self, now: Now) -> "ReserveHits":
        """Return the state after the same cluster was seen again."""
        found = {name: self.nodes[name]._replace(needed=now.seconds) for name in self.current}
        return replace(self, nodes={**self.nodes, **found})

    def renamed(self, keys: RenamedKeys) -> "ReserveHits":  # noqa: ARG002
        """Return the state itself: it knows no reaches."""
        return self

    def extend(
        self, snapshot: ClusterSnapshot, kept: Iterable[ReservedNode], reason: Reason, now: Now
    ) -> tuple[ReservedNode, ...]:
        """Return the nodes that are *kept*, and those that were needed lately, by name."""
        settings = snapshot.config.budgets.reserve
        found = {one.node: one for one in kept}
        for name, one in self.nodes.items():
            until = _until(one, settings)
            if now.before(until) and name not in found and _is_empty_and_marked(snapshot, name):
                message = (
                    f"it was released to the autoscaler and needed again: it is kept until "
                    f"{timestamp(until)}"
                )
                found[name] = ReservedNode(name, Blocker(reason, message, until=until))
        return tuple(found[name] for name in sorted(found))


def _until(one: ReserveHit, settings: Reserve) -> int:
    seconds: int = settings.length_seconds << min(one.times - 1, DOUBLINGS_MAX)
    return one.needed + min(seconds, settings.over_seconds)


def _is_empty_and_marked(snapshot: ClusterSnapshot, name: str) -> bool:
    empty = name not in snapshot.non_empty_nodes and name not in snapshot.unschedulable_nodes
    return empty and name in snapshot.marks and not snapshot.blockers[name]
