"""Classify unschedulable pods: pods that the scheduler has tried and could not place.

Two questions matter. Does capacity seem to be short, so that Ebb marks no further node
(`feasible_unschedulable`)? May a NoSchedule mark keep a pod Pending that Ebb cannot evaluate, or
has misjudged (`blocked_by_no_schedule`)? Tenants write these pods. So that no namespace hides the
pods of another, namespaces take turns, and the work is bounded.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Final, TypeVar

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
from core.placement.node_classes import NodeClasses
from core.placement.reaches import bare

Named_ = TypeVar("Named_", Pod, Buffer)
Any_ = TypeVar("Any_")
WAIT_SECONDS: Final = 5
"""Time for which a pod may stay Pending after Ebb found a place for it. After that Ebb assumes
that it does not know all constraints of the pod."""
WAITING_PODS_MAX: Final = 4096
"""Maximum number of Pending pods whose waiting time is remembered. For all others, each
reconciliation starts the waiting time anew."""
IMPOSSIBLE_MAX: Final = 64
"""Maximum number of pods with distinct requests or constraints that are found unplaceable before
the check stops. Unchecked pods count as unplaceable too, but Ebb keeps no NoSchedule mark that may
block one of them."""


def is_unschedulable(pod: Pod) -> bool:
    """Report whether the scheduler could not place the pod on any node.

    A pod whose status could not be decoded counts as unschedulable. A pod of so low a priority
    that autoscalers add no node for it does not.
    """
    refused = pod.unschedulable or bool(pod.unreadable)
    return pod.node is None and refused and not (pod.terminating or pod.expendable)


def by_namespace_in_turns(objects: Iterable[Named_]) -> list[Named_]:
    """Return the first object of each namespace by name, then the second of each, and so on."""
    return round_robin(sorted(objects, key=lambda item: item.key), lambda item: item.namespace)


def round_robin(ordered: Iterable[Any_], owner_of: Callable[[Any_], str]) -> list[Any_]:
    """Return the first item of each owner, then the second of each, and so on.

    *ordered*: items of all owners; the items of one owner keep their order.
    """
    counts: Counter[str] = Counter()
    turns: list[list[Any_]] = []
    for item in ordered:
        owner = owner_of(item)
        turn = counts[owner]
        counts[owner] += 1
        if turn == len(turns):
            turns.append([])
        turns[turn].append(item)
    return list(chain.from_iterable(turns))


def shape(pod: Pod) -> tuple[NodeConstraints, Resources]:
    """Return the node constraints of the pod, without volumes, and its requests.

    Pods with equal results fit on the same empty nodes.
    """
    return without_volumes(pod.node_constraints), pod.requests


class EmptyNodes:
    """The room on each node if it had no mark, and only DaemonSet and static pods ran there."""

    def __init__(
        self,
        cluster: Cluster,
        pods: Iterable[Pod],
        taint_key: str,
        *,
        ignore_cordons: bool = False,
    ) -> None:
        """Index the nodes of the cluster to check *pods* against them.

        *taint_key*: key of Ebb's taint, which is ignored. *ignore_cordons*: also ignore cordons
        and transient taints.
        """
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
        self._classes = NodeClasses(nodes, {pod.node_constraints for pod in pods})
        self._checked: dict[tuple[NodeConstraints, Resources], bool] = {}
        self._unplaceable_count = 0

    def can_hold(self, pod: Pod) -> bool | None:
        """Report whether some node, if it were empty, would admit and hold the pod.

        None means that the pod was not checked, because IMPOSSIBLE_MAX other pods found no node.
        Pods with equal requests and constraints are checked once.
        """
        alike = pod.node_constraints, pod.requests
        if alike not in self._checked and self._unplaceable_count < IMPOSSIBLE_MAX:
            allowed = self._classes.allowing(pod.node_constraints)
            holds = any(pod.requests.fits_in(self._free[number]) for number in allowed)
            self._checked[alike] = holds
            self._unplaceable_count += not holds
        return self._checked.get(alike)


def feasible_unschedulable(
    cluster: Cluster, taint_key: str, unschedulable: Iterable[Pod] | None = None
) -> Iterator[Pod]:
    """Yield the unschedulable pods that some node would admit if it were empty.

    They show a lack of capacity. A pod that no node could ever hold, or whose requests or node
    selectors are unknown, does not, and does not keep Ebb from marking nodes. *taint_key*: key of
    Ebb's taint, which is ignored. *unschedulable*: all unschedulable pods of the cluster; None:
    they are searched for.
    """
    if unschedulable is None:
        unschedulable = filter(is_unschedulable, cluster.pods)
    estimable = [pod for pod in unschedulable if pod.estimable]
    if estimable:
        empty_nodes = EmptyNodes(cluster, estimable, taint_key)
        yield from (pod for pod in by_namespace_in_turns(estimable) if empty_nodes.can_hold(pod))


def never_schedulable(
    cluster: Cluster, pending: Iterable[Pod], taint_key: str
) -> Iterator[tuple[Pod, bool]]:
    """Yield the *pending* pods that no node could hold even if all nodes were Ready and empty.

    Each pod comes with True if it was checked. Pods beyond IMPOSSIBLE_MAX are not checked and come
    with False. *taint_key*: key of Ebb's taint, which is ignored.
    """
    pods = by_namespace_in_turns(pending)
    if pods:
        empty_nodes = EmptyNodes(cluster, pods, taint_key, ignore_cordons=True)
        checked = ((pod, empty_nodes.can_hold(pod)) for pod in pods)
        yield from ((pod, holds is not None) for pod, holds in checked if not holds)


def cannot_wait(cluster: Cluster, turned: Sequence[Pod], taint_key: str) -> bool:
    """Report whether a pod that has just *turned* unschedulable requires a reconciliation at once.

    A pod that Ebb can evaluate requires one if some node could hold it. Another pod requires one
    if a NoSchedule mark may be what blocks it. *taint_key*: key of Ebb's taint.
    """
    marks = existing_marks(cluster.nodes, taint_key)
    no_schedule_nodes = tuple(
        node
        for node in cluster.nodes
        if node.name in marks and marks[node.name].mark is Mark.NO_SCHEDULE
    )
    empty_nodes = EmptyNodes(cluster, [pod for pod in turned if pod.evaluable], taint_key)
    others = {
        pod.key: replace(pod, node_constraints=without_volumes(pod.node_constraints))
        for pod in turned
        if no_schedule_nodes and not pod.evaluable
    }
    empty_no_schedule_nodes = EmptyNodes(
        replace(cluster, nodes=no_schedule_nodes, pods=()), others.values(), taint_key
    )
    return any(
        empty_nodes.can_hold(pod)
        if pod.evaluable
        else bool(no_schedule_nodes) and empty_no_schedule_nodes.can_hold(others[pod.key])
        for pod in by_namespace_in_turns(turned)
    )


def pending_since(
    since: Mapping[str, int], unschedulable: Iterable[Pod], placed: Collection[str], now: Now
) -> dict[str, int]:
    """Return by pod the unix second since which it is Pending although the plan places it.

    The keys are namespace/name. *since*: the result of the previous reconciliation.
    *unschedulable*: all unschedulable pods. *placed*: pods for which the current plan has a place.
    """
    waiting = [pod for pod in unschedulable if pod.evaluable and pod.key in placed]
    kept = by_namespace_in_turns(waiting)[:WAITING_PODS_MAX]
    return {pod.key: now.capped(since.get(pod.key, now.seconds)) for pod in kept}


def blocked_by_no_schedule(
    unschedulable: Iterable[Pod],
    since: Mapping[str, int],
    now: Now,
    untracked: Collection[NodeConstraints] = frozenset(),
    unevaluated: Collection[tuple[Resources, NodeConstraints]] = frozenset(),
) -> Iterator[tuple[Pod, str]]:
    """Yield the pods that a NoSchedule mark may keep Pending, each with a message that says why.

    Namespaces take turns. *unschedulable*: all unschedulable pods. *since*: result of
    `pending_since`. *untracked*: constraints of pods whose reach (set of usable nodes) Ebb does
    not track. *unevaluated*: requests and constraints that were not checked. Ebb treats pods of
    both kinds like pods that it cannot evaluate.
    """
    for pod in by_namespace_in_turns(unschedulable):
        placed_at = since.get(pod.key, now.seconds)
        too_many = (
            without_volumes(pod.node_constraints) in untracked
            or (pod.requests, pod.node_constraints) in unevaluated
        )
        if not pod.evaluable or too_many:
            yield pod, f"pod {pod.key} is Pending, and Ebb cannot evaluate its constraints"
        elif now.reached(placed_at + WAIT_SECONDS):
            why = f"although Ebb found room for it at {timestamp(placed_at)}"
            yield pod, f"pod {pod.key} is still Pending, {why}"
