"""Pods that wait although the scheduler has tried them, and what Ebb makes of their waiting.

Two questions. Does room seem to be short, so that nothing more is marked (`hosted`)? And does a
hard mark keep a pod waiting that Ebb cannot judge, or has misjudged (`stuck`)? Everything about a
pod is written by its tenant: what one namespace asks must not hide what another does, so pods are
looked at in turns, and what costs time is bounded.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Final, TypeVar

from core.capacity.reaches import bare
from core.fit.node_classes import NodeClasses
from core.marks.mark import Mark, existing_marks
from core.marks.taints import without_our_taint
from core.model.buffers import Buffer
from core.model.cluster import Cluster
from core.model.constraints import NodeConstraints, without_volumes
from core.model.humanize import timestamp
from core.model.node_lifecycle import is_terminating
from core.model.now import Now
from core.model.pod import Pod
from core.model.resources import Resources

Named_ = TypeVar("Named_", Pod, Buffer)
Any_ = TypeVar("Any_")
WAIT_SECONDS: Final = 5
"""How long a pod may wait after Ebb found it a place, before Ebb doubts what it knows."""
WAITING_PODS_MAX: Final = 4096
"""Pods of which it is remembered since when they wait; others count as new at every look."""
IMPOSSIBLE_MAX: Final = 64
"""Different pods that no node can hold, after which the rest are not looked at in one look: they
count as if no node could, but no mark stays hard that may keep one of them waiting."""


def is_unschedulable(pod: Pod) -> bool:
    """Say whether every node has refused the pod, as far as its status could be read.

    Expendable ones may wait: no autoscaler adds a node for them.
    """
    refused = pod.unschedulable or bool(pod.unreadable)
    return pod.node is None and refused and not (pod.terminating or pod.expendable)


def by_namespace_in_turns(found: Iterable[Named_]) -> list[Named_]:
    """Order them so that every namespace's first comes before any namespace's second."""
    return round_robin(sorted(found, key=lambda one: one.key), lambda one: one.namespace)


def round_robin(ordered: Iterable[Any_], whose: Callable[[Any_], str]) -> list[Any_]:
    """Return everyone's first before anyone's second, and else in the order that there is."""
    had: Counter[str] = Counter()
    turns: list[list[Any_]] = []
    for one in ordered:
        turn = had[whose(one)]
        had[whose(one)] += 1
        if turn == len(turns):
            turns.append([])
        turns[turn].append(one)
    return list(chain.from_iterable(turns))


def shape(pod: Pod) -> tuple[NodeConstraints, Resources]:
    """Return what can be judged of any pod: where it may go without its volumes, and how large."""
    return without_volumes(pod.placing), pod.requests


class EmptyNodes:
    """What nodes hold beside the pods that go with them, marks set aside."""

    def __init__(
        self,
        cluster: Cluster,
        pods: Iterable[Pod],
        taint_key: str,
        *,
        ignore_cordons: bool = False,
    ) -> None:
        """Prepare for those *pods*; *ignore_cordons*: cordons and taints that pass are set aside too."""
        resident: dict[str | None, list[Resources]] = {}
        for pod in cluster.pods:
            if pod.stays_with_node:
                resident.setdefault(pod.node, []).append(pod.requests)
        nodes = [
            without_our_taint(node, taint_key)
            for node in cluster.nodes
            if not (node.virtual or node.unreadable or is_terminating(node))
        ]
        if ignore_cordons:
            nodes = [bare(node) for node in nodes]
        self._free = [
            node.allocatable - Resources.total(resident.get(node.name, ())) for node in nodes
        ]
        self._classes = NodeClasses(nodes, {pod.placing for pod in pods})
        self._judged: dict[tuple[NodeConstraints, Resources], bool] = {}
        self._impossible = 0

    def can_hold(self, pod: Pod) -> bool | None:
        """Say whether some node would admit the pod; pods of one template are judged once.

        None: it is untracked those that are looked at.
        """
        alike = pod.placing, pod.requests
        if alike not in self._judged and self._impossible < IMPOSSIBLE_MAX:
            allowed = self._classes.allowing(pod.placing)
            found = any(pod.requests.fits_in(self._free[number]) for number in allowed)
            self._judged[alike] = found
            self._impossible += not found
        return self._judged.get(alike)


def feasible_unschedulable(cluster: Cluster, taint_key: str) -> Iterator[Pod]:
    """Yield the pods that wait, can be judged, and that some node would admit were it empty.

    What no node could ignore_cordons hold is nobody's lack of room, and what cannot be judged is none that
    is known of: neither keeps the engine from marking.
    """
    waiting = [pod for pod in cluster.pods if is_unschedulable(pod) and pod.evaluable]
    if waiting:
        empty_nodes = EmptyNodes(cluster, waiting, taint_key)
        yield from (pod for pod in by_namespace_in_turns(waiting) if empty_nodes.can_hold(pod))


def never_schedulable(
    cluster: Cluster, waiting: Iterable[Pod], taint_key: str
) -> Iterator[tuple[Pod, bool]]:
    """Yield those that no node could hold even when all are ready, and those untracked the bound.

    Each with whether it was looked at.
    """
    found = by_namespace_in_turns(waiting)
    if found:
        empty_nodes = EmptyNodes(cluster, found, taint_key, ignore_cordons=True)
        held = ((pod, empty_nodes.can_hold(pod)) for pod in found)
        yield from ((pod, holds is not None) for pod, holds in held if not holds)


def cannot_wait(cluster: Cluster, turned: Sequence[Pod], taint_key: str) -> bool:
    """Say whether one of the pods that have *turned* unschedulable needs a pass at once.

    Those that can be judged do if some node could hold them; the others if a hard mark may be
    what keeps them waiting.
    """
    marks = existing_marks(cluster.nodes, taint_key)
    hard = [n for n in cluster.nodes if n.name in marks and marks[n.name].mark is Mark.HARD]
    known = EmptyNodes(cluster, [pod for pod in turned if pod.evaluable], taint_key)
    others = {
        pod.key: replace(pod, placing=without_volumes(pod.placing))
        for pod in turned
        if hard and not pod.evaluable
    }
    behind = EmptyNodes(replace(cluster, nodes=tuple(hard), pods=()), others.values(), taint_key)
    return any(
        known.can_hold(pod) if pod.evaluable else bool(hard) and behind.can_hold(others[pod.key])
        for pod in by_namespace_in_turns(turned)
    )


def pending_since(
    since: Mapping[str, int], cluster: Cluster, placed: Collection[str], now: Now
) -> dict[str, int]:
    """Return since when each pod (namespace/name) waits for which the plan *placed* it somewhere.

    *since* is the answer of the last look.
    """
    waiting = [
        pod
        for pod in cluster.pods
        if is_unschedulable(pod) and pod.evaluable and pod.key in placed
    ]
    kept = by_namespace_in_turns(waiting)[:WAITING_PODS_MAX]
    return {pod.key: now.capped(since.get(pod.key, now.seconds)) for pod in kept}


def blocked_by_no_schedule(
    cluster: Cluster,
    since: Mapping[str, int],
    now: Now,
    untracked: Collection[NodeConstraints] = frozenset(),
    unevaluated: Collection[tuple[Resources, NodeConstraints]] = frozenset(),
) -> Iterator[tuple[Pod, str]]:
    """Yield the pods that a hard mark may keep waiting, and why, namespaces in turns.

    Pods with a placing *untracked* those that are told apart (Reaches) are not judged either, nor
    those like *unevaluated* ones, which come after too many that no node could hold.
    """
    for pod in by_namespace_in_turns(pod for pod in cluster.pods if is_unschedulable(pod)):
        placed_at = since.get(pod.key, now.seconds)
        too_many = (
            without_volumes(pod.placing) in untracked or (pod.requests, pod.placing) in unevaluated
        )
        if not pod.evaluable or too_many:
            yield pod, f"pod {pod.key} waits, and Ebb cannot judge what it asks for"
        elif now.reached(placed_at + WAIT_SECONDS):
            found = f"although Ebb found room for it at {timestamp(placed_at)}"
            yield pod, f"pod {pod.key} is still Pending, {found}"
