"""Convert the engine's plan and the reference plan to plain values that can be compared."""

from typing import NamedTuple

from core.engine.plan import Plan
from core.model.cluster import Cluster
from core.placement.usable_capacity import Share, Totals, Usability
from tests.support.reference import Found
from tests.support.reference_sums import Sums, Useful

Moves = list[tuple[str, str]]


class Answer(NamedTuple):
    """Removed nodes, placements of pods, and totals of the reaches before and after."""

    removals: list[tuple[str, Moves]]
    pending: Moves
    kept: list[str]
    before: Sums
    after: Sums
    reaches: list[tuple[object, ...]]
    """Totals of each reach, without its name."""


def by_the_engine(plan: Plan) -> Answer:
    """Return the engine's plan as an Answer."""
    return Answer(
        removals=[(one.node, [(p.pod, p.node) for p in one.placements]) for one in plan.removals],
        pending=[(one.pod, one.node) for one in plan.pending],
        kept=[one.node for one in plan.kept],
        before=_sums(plan.before),
        after=_sums(plan.after),
        reaches=sorted(
            (
                (
                    _pair(one.enter),
                    _pair(one.unmark),
                    _sums(one.before),
                    _sums(one.after),
                    _useful(one.usability),
                )
                for one in plan.reaches
            ),
            key=repr,
        ),
    )


def plainly(cluster: Cluster, found: Found) -> Answer:
    """Return the reference plan as an Answer."""
    gone = {name for name, _ in found.removals}
    return Answer(
        removals=found.removals,
        pending=found.pending,
        kept=[node.name for node in cluster.nodes if node.name not in gone],
        before=found.before,
        after=found.after,
        reaches=sorted(
            (
                (
                    one.enter,
                    one.unmark,
                    one.before,
                    one.after,
                    one.usability,
                )
                for one in found.reaches
            ),
            key=repr,
        ),
    )


def _pair(share: Share) -> tuple[object, object]:
    return share.cpu, share.memory


def _sums(totals: Totals) -> Sums:
    (capacity, requests, usable) = (
        (one.cpu_millis, one.memory_bytes)
        for one in (totals.capacity, totals.requests, totals.usable)
    )
    return Sums(totals.nodes, capacity, requests, usable)


def _useful(usability: Usability | None) -> Useful | None:
    if usability is None:
        return None
    return Useful(
        least=(usability.min_cpu_millis, usability.min_memory_bytes),
        cpu_per_memory=usability.max_cpu_per_gb,
        memory_per_cpu=usability.max_gb_per_cpu,
    )
