"""Decide whether a PreferNoSchedule mark may become a NoSchedule mark without harm to other pods.

The rules follow from three parts of Kubernetes. The DaemonSet controller creates no pod on a node
whose taint the pod does not tolerate. The scheduler's topology spread and pod affinity count pods
on tainted nodes too. Preemption does not consider nodes with a taint that the pod does not
tolerate.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from operator import attrgetter
from typing import Final, NamedTuple

from core.engine.reach_keys import RenamedKeys
from core.engine.snapshot import ClusterSnapshot
from core.engine.unschedulable import shape
from core.marks.mark import ExistingMark, Mark
from core.marks.taints import no_schedule_taint
from core.marks.wellknown import TAINT_KEY
from core.model.cluster import Cluster
from core.model.constraints import NodeConstraints, PodConstraints, without_volumes
from core.model.humanize import timestamp
from core.model.node import Node, Taint
from core.model.now import Now
from core.model.pod import DAEMON_SET, TOPOLOGY_FIELD, Pod
from core.model.reason import Blocker, Reason
from core.model.resources import Resources
from core.placement.inter_pod import PodTopology
from core.placement.matching import selects, tolerates
from core.placement.node_classes import NodeClasses

PAUSE_SECONDS: Final = 300
"""Time for which a mark stays PreferNoSchedule after the last reason has ended, seconds. The
scheduler retries every pending pod within this time, and marks must not change with every pod."""
SHAPES_MAX: Final = 256
"""Maximum number of pod shapes that a rule checks. If there are more, all marks stay
PreferNoSchedule."""
PREEMPTING_SHAPES_MAX: Final = 16_384
"""Maximum number of pod shapes that the preemption rule checks. If there are more, all marks stay
PreferNoSchedule."""
_SIZE: Final = attrgetter("cpu_millis", "memory_bytes", "ephemeral_bytes", "pods", "extended")

NO_SCHEDULE_DAEMONSET: Final = Reason(
    "no-schedule-daemonset",
    "A DaemonSet does not tolerate the NoSchedule taint, so its pod would not be recreated on the "
    "node after it ends or is updated.",
    "add a toleration for {key} to the DaemonSet of pod {name} in {namespace}; or "
    "accept that the mark remains PreferNoSchedule",
    "all DaemonSets with a pod on the node tolerate the taint",
)
NO_SCHEDULE_DAEMONSET_WAITS: Final = Reason(
    "no-schedule-daemonset-waits",
    "A DaemonSet selects the node and should start a pod there, but does not tolerate the "
    "NoSchedule taint. With the taint, the DaemonSet controller would not create the pod at all, "
    "and no Pending pod would show that it is missing.",
    "add a toleration for {key} to the DaemonSet in the message; or accept that the mark remains "
    "PreferNoSchedule",
    "all DaemonSets that select the node have a pod there, or tolerate the taint",
)
NO_SCHEDULE_SPREAD: Final = Reason(
    "no-schedule-spread",
    "A topology spread constraint would count the node's domain although no pod could be "
    "scheduled there, so pods could stay Pending.",
    "set `nodeTaintsPolicy: Honor`, and no `minDomains`, in these topologySpreadConstraints; or "
    "accept that the mark remains PreferNoSchedule",
    "for five minutes, the domain has had an unmarked node that admits such pods, or all such "
    "constraints have honored taints and set no `minDomains`",
)
NO_SCHEDULE_AFFINITY: Final = Reason(
    "no-schedule-affinity",
    "New pods with required pod affinity to pods on the node would match no schedulable node, and "
    "would stay Pending.",
    "make the pod affinity preferred; or run a pod that the affinity selects on an unmarked "
    "node; or accept that the mark remains PreferNoSchedule",
    "an unmarked node that admits such pods has satisfied the affinity for five minutes",
)
NO_SCHEDULE_WAITING: Final = Reason(
    "no-schedule-waiting",
    "A NoSchedule mark may keep a pod Pending: Ebb cannot evaluate all constraints of the pod, or "
    "found a place for it that the scheduler does not use. The mark stays PreferNoSchedule until "
    "five minutes after the pod is scheduled.",
    "see why the scheduler rejects the nodes: kubectl -n {namespace} describe pod {name}",
    "for five minutes, no pod has been Pending that a NoSchedule mark may keep Pending",
)
NO_SCHEDULE_PREEMPTION: Final = Reason(
    "no-schedule-preemption",
    "If another pod like the one in the message were created, it would find no room on unmarked "
    "nodes. The scheduler would not use nodes with a NoSchedule taint, not even empty ones. It "
    "would preempt pods with a lower priority.",
    "accept that the mark remains PreferNoSchedule; or keep more nodes (`thresholds`, "
    "`maxMarked`), so that unmarked nodes have room for a pod like {name} in {namespace}",
    "for five minutes, at least one unmarked node on which such a pod may run has had room for it",
)
NO_SCHEDULE_KUEUE: Final = Reason(
    "no-schedule-kueue",
    "Kueue's topology-aware scheduling has put a pod on the node. If the pod does not "
    "tolerate a NoSchedule taint, Kueue treats the node as failed, and may end the workload.",
    "none needed: the mark stays PreferNoSchedule until the pod is gone",
    "no pod with a topology assignment of Kueue runs on the node",
)
NO_SCHEDULE_NEW_LEADER: Final = Reason(
    "no-schedule-new-leader",
    "The mark was PreferNoSchedule when a new leader started. The new leader does not know the "
    "earlier reasons, so it keeps the mark as it is for five minutes.",
    "wait for five minutes; if the leader changes more often than that, find out why from the "
    "metric `ebb_leader` and the log of `ebb-controller`",
    "the leader has run for five minutes",
)
REASONS: Final = (
    NO_SCHEDULE_DAEMONSET,
    NO_SCHEDULE_DAEMONSET_WAITS,
    NO_SCHEDULE_SPREAD,
    NO_SCHEDULE_AFFINITY,
    NO_SCHEDULE_WAITING,
    NO_SCHEDULE_PREEMPTION,
    NO_SCHEDULE_KUEUE,
    NO_SCHEDULE_NEW_LEADER,
)

NoScheduleBlockers = Mapping[str, tuple[Blocker, ...]]
"""Reasons against a NoSchedule mark, by marked node."""


_NodeBlocker = tuple[str, Blocker]
"""A node, and a reason against a NoSchedule mark on it."""


class _Context(NamedTuple):
    """A cluster and its marked and unmarked nodes; input of the rules with transient reasons."""

    cluster: Cluster
    marked: Sequence[Node]
    """Marked nodes, as Node objects without Ebb's taint. Numbers of nodes are positions here."""
    unmarked: Sequence[tuple[Node, Resources]]
    """Unmarked schedulable nodes, each with its free resources."""
    taint: Taint
    """Taint of a NoSchedule mark. No toleration can name its value, the time of the mark, in
    advance."""

    def tolerates_mark(self, node_constraints: NodeConstraints) -> bool:
        """Return whether pods with these constraints can be scheduled in spite of the mark."""
        return any(tolerates(one, self.taint) for one in node_constraints.tolerations)

    def classes(
        self, all_constraints: Collection[NodeConstraints]
    ) -> tuple[NodeClasses, NodeClasses]:
        """Return which marked, and which unmarked nodes admit pods with these constraints."""
        unmarked = [node for node, _ in self.unmarked]
        return NodeClasses(self.marked, all_constraints), NodeClasses(unmarked, all_constraints)


def blockers_by_node(
    snapshot: ClusterSnapshot,
    blocked_pods: Iterable[tuple[Pod, str]] = (),
    to_mark: Collection[str] = (),
) -> dict[str, tuple[Blocker, ...]]:
    """Return for every marked node the reasons against a NoSchedule mark on it, or an empty tuple.

    *blocked_pods*: Pending pods that a NoSchedule mark may keep Pending, each with a message that
    says why (core.engine.unschedulable). *to_mark*: names of the nodes that get a mark in this
    reconciliation. Like marked nodes, they do not count as room for pods.
    """
    marks, requests = snapshot.marks, snapshot.pod_index.requests
    if not marks:
        return {}
    nodes = sorted(snapshot.node_order.nodes, key=lambda node: node.name)
    marked = [node for node in nodes if node.name in marks]
    context = _Context(
        snapshot.cluster,
        marked,
        [
            (node, node.allocatable - requests[node.name])
            for node in nodes
            if node.name not in marks
            and node.name not in to_mark
            and node.name not in snapshot.unschedulable_nodes
        ],
        no_schedule_taint(marked[0], TAINT_KEY),
    )
    daemon_pods = [
        pod for pod in snapshot.cluster.pods if pod.owner_kind == DAEMON_SET and pod.node in marks
    ]
    blockers: dict[str, list[Blocker]] = {name: [] for name in marks}
    for name, blocker in chain(
        _daemon_sets_without_toleration(context, daemon_pods),
        _under_kueue(snapshot),
        _daemon_sets_without_pod(context, daemon_pods),
        _last_nodes_of_spread_domains(context),
        _separated_from_affinity(context),
        _admitting_blocked_pods(context, blocked_pods),
        _causing_preemption(context),
    ):
        if name in blockers:
            blockers[name].append(blocker)
    return {name: tuple(of_node) for name, of_node in blockers.items()}


LASTING: Final = (NO_SCHEDULE_DAEMONSET, NO_SCHEDULE_DAEMONSET_WAITS, NO_SCHEDULE_KUEUE)
"""Reasons that end at once. All others, including the reserve, are transient: they change with
single pods, or with the Ready condition of a node."""


@dataclass(frozen=True, slots=True)
class RecentReasons:
    """Transient reasons against NoSchedule marks, kept until PAUSE_SECONDS after they ended.

    A transient reason may end with a single pod, or with the Ready condition of a node.
    """

    last: Mapping[str, tuple[int, Blocker]] = field(default_factory=dict)
    """Time at which a reason was last found (unix seconds) and the reason, by marked node."""
    current: frozenset[str] = frozenset()
    """Nodes for which the last reconciliation found a reason."""

    @staticmethod
    def of_new_leader(marks: Mapping[str, ExistingMark], now: Now) -> "RecentReasons":
        """Return the reasons of a new leader: for now, every PreferNoSchedule mark stays so.

        A new leader cannot know why a mark is still PreferNoSchedule. *marks*: existing marks by
        node.
        """
        message = (
            "the leader is new, and does not know the earlier reasons against a NoSchedule mark"
        )
        blocker = Blocker(NO_SCHEDULE_NEW_LEADER, message)
        names = (name for name, mark in marks.items() if mark.mark is Mark.PREFER_NO_SCHEDULE)
        return RecentReasons(dict.fromkeys(names, (now.seconds, blocker)))

    def observe(self, blockers: NoScheduleBlockers, now: Now) -> "RecentReasons":
        """Return the reasons to remember after a reconciliation; *blockers*: current reasons.

        Reasons that were last found PAUSE_SECONDS ago, or whose node is no longer marked, are
        dropped.
        """
        kept = {
            name: (now.capped(at), blocker)
            for name, (at, blocker) in self.last.items()
            if name in blockers and now.before(at + PAUSE_SECONDS)
        }
        current = {
            name: (now.seconds, blocker)
            for name, of_node in blockers.items()
            for blocker in of_node
            if blocker.reason not in LASTING
        }
        return RecentReasons(kept | current, frozenset(current))

    def unchanged(self, now: Now) -> "RecentReasons":
        """Return the reasons after a skipped reconciliation; the current ones last until *now*."""
        current = {name: (now.seconds, self.last[name][1]) for name in self.current}
        return replace(self, last={**self.last, **current})

    def renamed(self, keys: RenamedKeys) -> "RecentReasons":  # noqa: ARG002
        """Return the state itself, because it contains no keys of reaches."""
        return self

    def merged_with(self, blockers: NoScheduleBlockers) -> dict[str, tuple[Blocker, ...]]:
        """Return the reasons in *blockers* and those that ended recently, by marked node.

        A reason ended recently if less than PAUSE_SECONDS have passed since it was last found.
        """
        merged = dict(blockers)
        # Whether a reason has ended depends on `current`, not on the time: two reconciliations may
        # run in the same second.
        for name in self.last.keys() & blockers.keys() - self.current:
            at, blocker = self.last[name]
            text = f"{blocker.message}; last seen {timestamp(at)}"
            ended = blocker._replace(text=text, until=at + PAUSE_SECONDS)
            merged[name] = (*merged[name], ended)
        return merged


def _daemon_sets_without_toleration(
    context: _Context, daemon_pods: Iterable[Pod]
) -> Iterable[_NodeBlocker]:
    for pod in daemon_pods:
        if not context.tolerates_mark(pod.node_constraints):
            message = f"DaemonSet {pod.owner_name} does not tolerate the taint {TAINT_KEY}"
            yield pod.node or "", Blocker(NO_SCHEDULE_DAEMONSET, message, pod.key, TAINT_KEY)


def _under_kueue(snapshot: ClusterSnapshot) -> Iterable[_NodeBlocker]:
    """Yield the name of each marked node with pods that Kueue placed, and a reason naming one pod.

    Kueue may end the workload of such a pod when its node gets a NoSchedule taint. Source: the
    feature gate TASReplaceNodeOnNodeTaints of kubernetes-sigs/kueue.
    """
    # Such a node is not removable, so Ebb removes its mark. Until then the mark must not become
    # NoSchedule.
    pods = {
        pod.node: pod
        for pod in snapshot.pod_index.unevaluable
        if pod.node in snapshot.marks and TOPOLOGY_FIELD in pod.unsupported
    }
    for name, pod in sorted(pods.items(), key=lambda entry: entry[1].key):
        yield name or "", Blocker(NO_SCHEDULE_KUEUE, "Kueue has put the pod on the node", pod.key)


def _daemon_sets_without_pod(
    context: _Context, daemon_pods: Iterable[Pod]
) -> Iterable[_NodeBlocker]:
    """Yield a reason for each marked node that lacks a pod of an intolerant DaemonSet.

    The pods of an intolerant DaemonSet do not tolerate Ebb's taint. With NoSchedule, the DaemonSet
    controller would never create the missing pod. When the mark becomes PreferNoSchedule, the
    controller creates the pod, and NO_SCHEDULE_DAEMONSET applies. *daemon_pods*: pods of
    DaemonSets on marked nodes.
    """
    intolerant = [
        daemon_set
        for daemon_set in context.cluster.daemon_sets
        if not context.tolerates_mark(daemon_set.node_constraints)
    ]
    if not intolerant:
        return
    all_constraints = {daemon_set.node_constraints: None for daemon_set in intolerant}
    too_many = len(all_constraints) > SHAPES_MAX
    classes = NodeClasses(context.marked, () if too_many else all_constraints)
    existing = {(pod.node, pod.namespace, pod.owner_name) for pod in daemon_pods}
    unblocked = set(range(len(context.marked)))  # one reason for each node is enough
    for daemon_set in intolerant:
        admitting = (
            unblocked
            if too_many
            else unblocked.intersection(classes.allowing(daemon_set.node_constraints))
        )
        for number in sorted(admitting):
            node = context.marked[number]
            if (node.name, daemon_set.namespace, daemon_set.name) not in existing:
                unblocked.discard(number)
                lacks = f"no pod on the node and does not tolerate the taint {TAINT_KEY}"
                message = f"DaemonSet {daemon_set.key} has {lacks}"
                yield node.name, Blocker(NO_SCHEDULE_DAEMONSET_WAITS, message, None, TAINT_KEY)


def _last_nodes_of_spread_domains(context: _Context) -> Iterable[_NodeBlocker]:
    """Yield a reason for each marked node in whose domain a spread pod would find no other node.

    A spread pod has a topology spread constraint that counts tainted nodes. PreferNoSchedule marks
    count too, because all nodes of a domain may get a NoSchedule mark in one reconciliation. Nodes
    that the spread pods cannot use anyway are ignored.
    """
    constraints_by_key: dict[str, dict[NodeConstraints, None]] = {}
    # Compare objects before values: pods of one pod template share them, and hashing is slow.
    spread_pods = {
        (id(pod.pod_constraints), id(pod.node_constraints)): pod
        for pod in context.cluster.pods
        if pod.pod_constraints.spread
    }
    for pod in spread_pods.values():
        for constraint in pod.pod_constraints.spread:
            # With minDomains, a domain without nodes counts as one without pods.
            if not constraint.honor_taints or constraint.min_domains > 1:
                constraints_by_key.setdefault(constraint.topology_key, {})[
                    without_volumes(pod.node_constraints)
                ] = None
    all_constraints = dict.fromkeys(chain.from_iterable(constraints_by_key.values()))
    if len(all_constraints) > SHAPES_MAX:
        constraints_by_key, all_constraints = {key: {} for key in constraints_by_key}, {}
    classes, unmarked_classes = context.classes(all_constraints)
    for key, constraints_of_key in sorted(constraints_by_key.items()):
        # Without constraints there were too many to check, so every marked node is blocked.
        blocked: set[int] = set() if constraints_of_key else set(range(len(context.marked)))
        for node_constraints in constraints_of_key:
            unmarked_domains = {
                context.unmarked[number][0].labels.get(key)
                for number in unmarked_classes.allowing(node_constraints)
            }
            blocked |= {
                number
                for number in classes.allowing(node_constraints)
                if context.marked[number].labels.get(key) not in unmarked_domains
            }
        for number in sorted(blocked):
            node = context.marked[number]
            if (domain := node.labels.get(key)) is not None:
                message = (
                    f"topology spread over {key} would still count domain {domain}, where no node "
                    "would accept pods with this constraint"
                )
                yield node.name, Blocker(NO_SCHEDULE_SPREAD, message)


def _separated_from_affinity(context: _Context) -> Iterable[_NodeBlocker]:
    """Yield a reason for each marked node with the only pods that satisfy other pods' affinity.

    Only required pod affinity counts, and only unmarked nodes that admit the other pods could
    satisfy it instead.
    """
    pods = _pods_with_affinity(context.cluster)
    if not pods:
        return
    marked, unmarked = context.marked, [node for node, _ in context.unmarked]
    if len(pods) > SHAPES_MAX:
        blocker = Blocker(
            NO_SCHEDULE_AFFINITY,
            f"the pods have more than {SHAPES_MAX} distinct affinities, so Ebb evaluates none of "
            "them",
        )
        yield from ((node.name, blocker) for node in marked)
        return
    known = {node.name for node in (*marked, *unmarked)}
    nodes = (*marked, *unmarked, *(n for n in context.cluster.nodes if n.name not in known))
    topology = PodTopology(context.cluster, nodes, pods)
    classes, unmarked_classes = context.classes([pod.node_constraints for pod in pods])
    for number, pod in enumerate(pods):
        group = topology.group(number)
        if group is None or any(
            group.finds_pods(len(marked) + node)
            for node in unmarked_classes.allowing(pod.node_constraints)
        ):
            continue
        message = f"a pod like {pod.key} has affinity to pods that run on no unmarked node"
        for node in classes.allowing(pod.node_constraints):
            if group.finds_pods(node):
                yield marked[node].name, Blocker(NO_SCHEDULE_AFFINITY, message, pod.key)


def _pods_with_affinity(cluster: Cluster) -> list[Pod]:
    """Return one pod for each distinct required pod affinity in the cluster.

    The pods are copies that are bound to no node and have no other constraints on pods or volumes.
    """
    # Compare objects before values: pods of one pod template share them, and hashing is slow.
    pods = {
        (id(pod.pod_constraints), id(pod.node_constraints), id(pod.labels)): pod
        for pod in cluster.pods
        if pod.pod_constraints.near and not pod.stays_with_node
    }
    distinct: dict[object, Pod] = {}
    for pod in pods.values():
        terms, node_constraints = pod.pod_constraints.near, without_volumes(pod.node_constraints)
        selects_itself = all(selects(term.selector, pod) for term in terms)
        unbound = replace(
            pod,
            node=None,
            node_constraints=node_constraints,
            pod_constraints=PodConstraints(near=terms),
        )
        distinct.setdefault((terms, node_constraints, selects_itself), unbound)
    return list(distinct.values())


def _admitting_blocked_pods(
    context: _Context, blocked_pods: Iterable[tuple[Pod, str]]
) -> Iterable[_NodeBlocker]:
    """Yield a reason for each marked node that would admit one of the blocked pods.

    *blocked_pods*: Pending pods that a NoSchedule mark may keep Pending, each with a message that
    says why.
    """
    shapes: dict[tuple[NodeConstraints, Resources], tuple[str, str]] = {}
    for pod, message in blocked_pods:
        if len(shapes) <= SHAPES_MAX:
            shapes.setdefault(shape(pod), (message, pod.key))
    classes = NodeClasses(context.marked, [node_constraints for node_constraints, _ in shapes])
    unblocked, too_many = set(range(len(context.marked))), len(shapes) > SHAPES_MAX
    for (node_constraints, requests), (message, key) in shapes.items():
        admitting = unblocked.intersection(classes.allowing(node_constraints))
        blocked = unblocked if too_many else _large_enough(context, admitting, requests)
        for number in sorted(blocked):
            unblocked.discard(number)
            yield context.marked[number].name, Blocker(NO_SCHEDULE_WAITING, message, key)


def _large_enough(context: _Context, nodes: Iterable[int], requests: Resources) -> set[int]:
    return {number for number in nodes if requests.fits_in(context.marked[number].allocatable)}


def _causing_preemption(context: _Context) -> Iterable[_NodeBlocker]:
    """Yield a reason for each marked node without which a pod might preempt other pods.

    If another pod like one that exists were created, it must find room on an unmarked node. Only
    pods above the lowest priority count, since others cannot preempt. Pods that no marked node
    could hold are ignored: a NoSchedule mark changes nothing for them.
    """
    pods_by_constraints = _preempting_pods(context.cluster)
    unblocked = set(range(len(context.marked)))
    shapes = sum(map(len, pods_by_constraints.values()))
    if len(pods_by_constraints) > SHAPES_MAX or shapes > PREEMPTING_SHAPES_MAX:
        first = next(iter(next(iter(pods_by_constraints.values())).values()))
        yield from _preemption_blockers(context, unblocked, first)
        return
    classes, unmarked_classes = context.classes(pods_by_constraints)
    for node_constraints, pods_by_requests in pods_by_constraints.items():
        holding = unblocked.intersection(classes.allowing(node_constraints))
        sizes = _largest(context.marked[number].allocatable for number in holding)
        free = _largest(
            context.unmarked[number][1] for number in unmarked_classes.allowing(node_constraints)
        )
        for requests, pod in pods_by_requests.items():
            if any(map(requests.fits_in, sizes)) and not any(map(requests.fits_in, free)):
                blocked = _large_enough(context, holding, requests)
                yield from _preemption_blockers(context, blocked, pod)
                holding, unblocked = holding - blocked, unblocked - blocked
                sizes = _largest(context.marked[number].allocatable for number in holding)


def _largest(amounts: Iterable[Resources]) -> list[Resources]:
    """Return the amounts that fit into none of the others; what fits into any fits into these."""
    largest: list[Resources] = []
    for amount in sorted(set(amounts), key=_SIZE, reverse=True):
        if not any(map(amount.fits_in, largest)):
            largest.append(amount)
    return largest


def _preemption_blockers(
    context: _Context, nodes: Iterable[int], pod: Pod
) -> Iterable[_NodeBlocker]:
    message = (
        f"with a NoSchedule mark, new pods like {pod.key} may find no room, and preempt other pods"
    )
    blocker = Blocker(NO_SCHEDULE_PREEMPTION, message, pod.key)
    yield from ((context.marked[number].name, blocker) for number in sorted(nodes))


def _preempting_pods(cluster: Cluster) -> dict[NodeConstraints, dict[Resources, Pod]]:
    """Return the pods above the lowest priority of all pods: one by node constraints and requests.

    The keys are node constraints without volumes, then requests. Pods that end with their node are
    ignored.
    """
    pods = [pod for pod in cluster.pods if not pod.stays_with_node]
    lowest = min((pod.priority for pod in pods), default=0)
    found: dict[NodeConstraints, dict[Resources, Pod]] = {}
    constraints_without_volumes: dict[NodeConstraints, NodeConstraints] = {}
    for pod in pods:
        if pod.priority == lowest:
            continue
        if (node_constraints := constraints_without_volumes.get(pod.node_constraints)) is None:
            node_constraints = constraints_without_volumes[pod.node_constraints] = without_volumes(
                pod.node_constraints
            )
        found.setdefault(node_constraints, {}).setdefault(pod.requests, pod)
    return found
