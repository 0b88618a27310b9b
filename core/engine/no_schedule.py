"""Decide whether a PreferNoSchedule mark may become a NoSchedule mark without harm to other pods.

Source: the DaemonSet controller (its pods need the toleration like all others), the scheduler's
topology spread and pod affinity, which count pods on tainted nodes too, and preemption, which does
not consider nodes with a taint that the pod does not tolerate.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final, NamedTuple

from core.engine.reach_keys import RenamedKeys
from core.engine.snapshot import ClusterSnapshot
from core.engine.unschedulable import shape
from core.marks.mark import ExistingMark, Mark
from core.marks.taints import no_schedule_taint
from core.model.cluster import Cluster
from core.model.constraints import NodeConstraints, PodConstraints, without_volumes
from core.model.humanize import timestamp
from core.model.node import Node
from core.model.now import Now
from core.model.pod import DAEMON_SET, TOPOLOGY_FIELD, Pod
from core.model.reason import Blocker, Reason
from core.model.resources import Resources
from core.placement.inter_pod import PodTopology
from core.placement.matching import selects, tolerates
from core.placement.node_classes import NodeClasses

PAUSE_SECONDS: Final = 300
"""Time for which a mark stays PreferNoSchedule after the last reason has ended. The scheduler
retries every pending pod within this time, and marks must not change with every pod."""
SHAPES_MAX: Final = 256
"""Maximum number of pod shapes that a rule checks. If there are more, all marks stay
PreferNoSchedule."""
LOOKS_MAX: Final = 4096
"""Maximum number of pod sizes that the preemption check tries in a reconciliation. The marks that
are not checked stay PreferNoSchedule."""
_COMMON: Final = ("cpu", "memory", "ephemeral-storage")

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
    "the domain has had an unmarked node that admits such pods for five minutes, or all such "
    "constraints have honored taints and set no `minDomains` for as long",
)
NO_SCHEDULE_AFFINITY: Final = Reason(
    "no-schedule-affinity",
    "Pods with required pod affinity to pods on the node would match no schedulable node, so new "
    "ones would stay Pending.",
    "make the pod affinity preferred; or run one of the pods that it selects on an unmarked node; "
    "or accept that the mark remains PreferNoSchedule",
    "an unmarked node that admits such pods has satisfied the affinity for five minutes",
)
NO_SCHEDULE_WAITING: Final = Reason(
    "no-schedule-waiting",
    "A NoSchedule mark may keep a pod Pending: Ebb cannot evaluate all constraints of the pod, or "
    "found a place for it that the scheduler does not use. The mark stays PreferNoSchedule until "
    "five minutes after the pod is scheduled.",
    "see why the scheduler rejects the nodes: kubectl -n {namespace} describe pod {name}",
    "no such pod has been Pending for five minutes",
)
NO_SCHEDULE_PREEMPTION: Final = Reason(
    "no-schedule-preemption",
    "If another pod like the one in the message were created, it would find no room on unmarked "
    "nodes. Because its priority is above the lowest in the cluster, the scheduler would preempt "
    "other pods for it: it uses no node with a NoSchedule taint, not even an empty one.",
    "accept that the mark remains PreferNoSchedule; or keep more nodes (`thresholds`, "
    "`maxMarked`), so that unmarked nodes have room for a pod like {name} in {namespace}",
    "an unmarked node that admits such a pod has had room for it for five minutes",
)
NO_SCHEDULE_KUEUE: Final = Reason(
    "no-schedule-kueue",
    "Kueue's topology-aware scheduling has put a pod on the node. Kueue treats a node with a "
    "NoSchedule taint that the pod does not tolerate as failed, and may end the workload.",
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

Against = Mapping[str, tuple[Blocker, ...]]
"""Reasons against a NoSchedule mark, by marked node."""


_NodeBlocker = tuple[str, Blocker]
"""A node, and a reason against a NoSchedule mark on it."""


class _Context(NamedTuple):
    """Inputs of the rules whose reasons are transient."""

    cluster: Cluster
    marked: Sequence[Node]
    """Marked nodes; Ebb's taint is left out of these Node objects."""
    open: Sequence[tuple[Node, Resources]]
    """Unmarked schedulable nodes, each with its free resources."""


def reasons_against(
    snapshot: ClusterSnapshot, stuck: Iterable[tuple[Pod, str]] = (), new: Collection[str] = ()
) -> dict[str, tuple[Blocker, ...]]:
    """Return the reasons against a NoSchedule mark for every marked node.

    *stuck*: Pending pods, and why a NoSchedule mark may keep them so (core.engine.unschedulable).
    *new*: nodes that get a mark in this reconciliation, so that they count as marked for the
    others.
    """
    marks, used = snapshot.marks, snapshot.pod_index.requests
    if not marks:
        return {}
    found: dict[str, list[Blocker]] = {name: [] for name in marks}
    nodes = sorted(snapshot.node_order.nodes, key=lambda node: node.name)
    unmarked = (node for node in nodes if node.name not in marks and node.name not in new)
    context = _Context(
        snapshot.cluster,
        [node for node in nodes if node.name in marks],
        [
            (n, n.allocatable - used[n.name])
            for n in unmarked
            if n.name not in snapshot.unschedulable_nodes
        ],
    )
    pods = snapshot.cluster.pods
    daemons = [pod for pod in pods if pod.owner_kind == DAEMON_SET and pod.node in marks]
    for name, blocker in chain(
        _daemon_sets_without_toleration(snapshot, daemons),
        _under_kueue(snapshot),
        _daemon_sets_without_pod(snapshot, context, daemons),
        _closed_domains(context),
        _separated_from_affinity(context),
        _blocking_pending_pods(context, stuck),
        _causing_preemption(context),
    ):
        if name in found:
            found[name].append(blocker)
    return {name: tuple(blockers) for name, blockers in found.items()}


LASTING: Final = (NO_SCHEDULE_DAEMONSET, NO_SCHEDULE_DAEMONSET_WAITS, NO_SCHEDULE_KUEUE)
"""Reasons that end at once. All others, including the reserve, are transient: they change with
single pods, or with the Ready condition of a node."""


@dataclass(frozen=True, slots=True)
class RecentReasons:
    """Transient reasons against NoSchedule marks, kept until PAUSE_SECONDS after they ended."""

    last: Mapping[str, tuple[int, Blocker]] = field(default_factory=dict)
    """Time at which a reason was last found (unix seconds) and the reason, by marked node."""
    current: frozenset[str] = frozenset()
    """Nodes for which the last reconciliation found a reason."""

    @staticmethod
    def of_new_leader(marks: Mapping[str, ExistingMark], now: Now) -> "RecentReasons":
        """Return the state of a new leader, in which every PreferNoSchedule mark has a reason.

        A new leader cannot know why a mark is still PreferNoSchedule, so the mark stays so for
        now.
        """
        message = "a new leader does not know why the mark was PreferNoSchedule"
        blocker = Blocker(NO_SCHEDULE_NEW_LEADER, message)
        soft = (name for name, one in marks.items() if one.mark is Mark.PREFER_NO_SCHEDULE)
        return RecentReasons(dict.fromkeys(soft, (now.seconds, blocker)))

    def observe(self, seen: Against, now: Now) -> "RecentReasons":
        """Return the state after a reconciliation that has found these reasons."""
        kept = {
            name: (now.capped(at), blocker)
            for name, (at, blocker) in self.last.items()
            if name in seen and now.before(at + PAUSE_SECONDS)
        }
        found = {
            name: (now.seconds, blocker)
            for name, blockers in seen.items()
            for blocker in blockers
            if blocker.reason not in LASTING
        }
        return RecentReasons(kept | found, frozenset(found))

    def unchanged(self, now: Now) -> "RecentReasons":
        """Return the state after a skipped reconciliation."""
        found = {name: (now.seconds, self.last[name][1]) for name in self.current}
        return replace(self, last={**self.last, **found})

    def renamed(self, keys: RenamedKeys) -> "RecentReasons":  # noqa: ARG002
        """Return the state itself, because it contains no keys of reaches."""
        return self

    def merged_with(self, found: Against) -> dict[str, tuple[Blocker, ...]]:
        """Return the reasons in *found*, and those that ended less than PAUSE_SECONDS ago."""
        added = dict(found)
        # Whether a reason has ended depends on `current`, not on the time: two reconciliations may
        # run in the same second.
        for name in self.last.keys() & found.keys() - self.current:
            at, blocker = self.last[name]
            text = f"{blocker.message}; last seen {timestamp(at)}"
            ended = blocker._replace(text=text, until=at + PAUSE_SECONDS)
            added[name] = (*added[name], ended)
        return added


def _daemon_sets_without_toleration(
    snapshot: ClusterSnapshot, daemons: Iterable[Pod]
) -> Iterable[_NodeBlocker]:
    """Yield the marked nodes with pods of DaemonSets that do not tolerate the taint.

    *daemons*: pods of DaemonSets on marked nodes.
    """
    key = snapshot.config.taint_key
    taints = {
        n.name: no_schedule_taint(n, key)
        for n in snapshot.cluster.nodes
        if n.name in snapshot.marks
    }
    for pod in daemons:
        node = pod.node or ""
        taint = taints[node]
        if not any(
            tolerates(toleration, taint) for toleration in pod.node_constraints.tolerations
        ):
            message = f"DaemonSet {pod.owner_name} does not tolerate the taint {key}"
            yield node, Blocker(NO_SCHEDULE_DAEMONSET, message, pod.key, key)


def _under_kueue(snapshot: ClusterSnapshot) -> Iterable[_NodeBlocker]:
    """Yield the marked nodes with pods whose node Kueue has chosen, each with one such pod.

    Such a node is not removable, so Ebb removes its mark. Until then the mark must not become
    NoSchedule.
    Source: the feature gate TASReplaceNodeOnNodeTaints of kubernetes-sigs/kueue.
    """
    pods = {
        pod.node: pod
        for pod in snapshot.pod_index.unevaluable
        if pod.node in snapshot.marks and TOPOLOGY_FIELD in pod.unsupported
    }
    for name, pod in sorted(pods.items(), key=lambda one: one[1].key):
        yield name or "", Blocker(NO_SCHEDULE_KUEUE, "Kueue has put a pod on the node", pod.key)


def _daemon_sets_without_pod(
    snapshot: ClusterSnapshot, context: _Context, daemons: Iterable[Pod]
) -> Iterable[_NodeBlocker]:
    """Yield the marked nodes without a pod of a DaemonSet that does not tolerate the taint.

    The DaemonSet controller creates no pod for a node with a NoSchedule taint that the pod does
    not tolerate. When the mark becomes PreferNoSchedule, the controller creates the pod, and
    NO_SCHEDULE_DAEMONSET applies. *daemons*: pods of DaemonSets on marked nodes.
    """
    key = snapshot.config.taint_key
    # The value of the taint is the time of the mark, which no toleration can name in advance.
    taint = no_schedule_taint(context.marked[0], key)
    waiting = [
        one
        for one in context.cluster.daemon_sets
        if not any(tolerates(toleration, taint) for toleration in one.node_constraints.tolerations)
    ]
    if not waiting:
        return
    all_constraints = {one.node_constraints: None for one in waiting}
    too_many = len(all_constraints) > SHAPES_MAX
    classes = NodeClasses(context.marked, () if too_many else all_constraints)
    there = {(pod.node, pod.namespace, pod.owner_name) for pod in daemons}
    left = set(range(len(context.marked)))  # one reason for each node is enough
    for one in waiting:
        admitting = left if too_many else left.intersection(classes.allowing(one.node_constraints))
        for number in sorted(admitting):
            node = context.marked[number]
            if (node.name, one.namespace, one.name) not in there:
                left.discard(number)
                message = f"DaemonSet {one.key} has no pod there and does not tolerate {key}"
                yield node.name, Blocker(NO_SCHEDULE_DAEMONSET_WAITS, message, None, key)


def _closed_domains(context: _Context) -> Iterable[_NodeBlocker]:
    """Yield the marked nodes in whose topology domain a spread pod would find no other node.

    PreferNoSchedule marks count too, because all nodes of a domain may get a NoSchedule mark in
    one reconciliation. Nodes that such pods cannot use anyway are ignored.
    """
    keys: dict[str, dict[NodeConstraints, None]] = {}
    # Compare objects before values: pods of one pod template share them, and hashing is slow.
    spread = {
        (id(p.pod_constraints), id(p.node_constraints)): p
        for p in context.cluster.pods
        if p.pod_constraints.spread
    }
    for pod in spread.values():
        for one in pod.pod_constraints.spread:
            # With minDomains, a domain without nodes counts as one without pods.
            if not one.honor_taints or one.min_domains > 1:
                keys.setdefault(one.topology_key, {})[without_volumes(pod.node_constraints)] = None
    every = dict.fromkeys(
        node_constraints
        for all_constraints in keys.values()
        for node_constraints in all_constraints
    )
    if len(every) > SHAPES_MAX:
        keys, every = {key: {} for key in keys}, {}
    classes, open_classes = (
        NodeClasses(nodes, every) for nodes in (context.marked, [node for node, _ in context.open])
    )
    for key, all_constraints in sorted(keys.items()):
        closed: set[int] = set() if all_constraints else set(range(len(context.marked)))
        for node_constraints in all_constraints:
            open_to = {
                context.open[n][0].labels.get(key) for n in open_classes.allowing(node_constraints)
            }
            asked = classes.allowing(node_constraints)
            closed |= {n for n in asked if context.marked[n].labels.get(key) not in open_to}
        for number in sorted(closed):
            node = context.marked[number]
            if (domain := node.labels.get(key)) is not None:
                message = (
                    f"topology spread over {key} would still count {domain}, where no node would "
                    "accept pods with this constraint"
                )
                yield node.name, Blocker(NO_SCHEDULE_SPREAD, message)


def _separated_from_affinity(context: _Context) -> Iterable[_NodeBlocker]:
    """Yield the marked nodes with the only pods that satisfy other pods' required affinity."""
    likes = _pods_with_affinity(context.cluster)
    if not likes:
        return
    marked, opened = context.marked, [node for node, _ in context.open]
    if len(likes) > SHAPES_MAX:
        blocker = Blocker(
            NO_SCHEDULE_AFFINITY,
            f"more than {SHAPES_MAX} distinct pod affinities, none was evaluated",
        )
        yield from ((node.name, blocker) for node in marked)
        return
    known = {node.name for node in (*marked, *opened)}
    nodes = (*marked, *opened, *(n for n in context.cluster.nodes if n.name not in known))
    topology = PodTopology(context.cluster, nodes, likes)
    classes, open_classes = (
        NodeClasses(some, [pod.node_constraints for pod in likes]) for some in (marked, opened)
    )
    for number, pod in enumerate(likes):
        group = topology.group(number)
        if group is None or any(
            group.finds_pods(len(marked) + there)
            for there in open_classes.allowing(pod.node_constraints)
        ):
            continue
        message = f"a pod like {pod.key} has affinity to pods that run on no unmarked node"
        for here in classes.allowing(pod.node_constraints):
            if group.finds_pods(here):
                yield marked[here].name, Blocker(NO_SCHEDULE_AFFINITY, message, pod.key)


def _pods_with_affinity(cluster: Cluster) -> list[Pod]:
    """Return an unbound pod for each distinct required pod affinity."""
    near = {
        (id(pod.pod_constraints), id(pod.node_constraints), id(pod.labels)): pod
        for pod in cluster.pods
        if pod.pod_constraints.near and not pod.stays_with_node
    }
    classes: dict[object, Pod] = {}
    for pod in near.values():
        terms, node_constraints = pod.pod_constraints.near, without_volumes(pod.node_constraints)
        own = all(selects(term.selector, pod) for term in terms)
        alone = replace(
            pod,
            node=None,
            node_constraints=node_constraints,
            pod_constraints=PodConstraints(near=terms),
        )
        classes.setdefault((terms, node_constraints, own), alone)
    return list(classes.values())


def _blocking_pending_pods(
    context: _Context, stuck: Iterable[tuple[Pod, str]]
) -> Iterable[_NodeBlocker]:
    """Yield the marked nodes that would admit one of the *stuck* pods, each with one of them."""
    shapes: dict[tuple[NodeConstraints, Resources], tuple[str, str]] = {}
    for pod, message in stuck:
        if len(shapes) <= SHAPES_MAX:
            shapes.setdefault(shape(pod), (message, pod.key))
    classes = NodeClasses(context.marked, [node_constraints for node_constraints, _ in shapes])
    left, too_many = set(range(len(context.marked))), len(shapes) > SHAPES_MAX
    for (node_constraints, requests), (message, key) in shapes.items():
        asked = left.intersection(classes.allowing(node_constraints))
        for number in sorted(left if too_many else _large_enough(context, asked, requests)):
            left.discard(number)
            yield context.marked[number].name, Blocker(NO_SCHEDULE_WAITING, message, key)


def _large_enough(context: _Context, nodes: Iterable[int], requests: Resources) -> set[int]:
    """Return the nodes whose allocatable resources hold the requests."""
    return {number for number in nodes if requests.fits_in(context.marked[number].allocatable)}


def _causing_preemption(context: _Context) -> Iterable[_NodeBlocker]:
    """Yield the marked nodes without which a pod might preempt other pods.

    For each set of node constraints, the largest pods that a marked node could hold must find room
    on an unmarked node. Only pods above the lowest priority count, since others cannot preempt.
    Pods that no marked node could hold are ignored: a NoSchedule mark changes nothing for them.
    """
    shapes = _shapes(context.cluster)
    if len(shapes) > SHAPES_MAX:
        first = next(iter(next(iter(shapes.values())).values()))
        yield from _preemption_blockers(context, range(len(context.marked)), first)
        return
    if not shapes:
        return
    classes, open_classes = (
        NodeClasses(nodes, shapes)
        for nodes in (context.marked, [node for node, _ in context.open])
    )
    left, looks = set(range(len(context.marked))), 0
    for node_constraints, alike in shapes.items():
        rooms = [context.open[number][1] for number in open_classes.allowing(node_constraints)]
        for pods in _ranked(alike.values()):
            asked = left.intersection(classes.allowing(node_constraints))
            for pod, takers in _largest_pods_by_node(context, asked, pods):
                looks += 1
                found = left if looks > LOOKS_MAX else takers
                if found is left or (takers and not any(map(pod.requests.fits_in, rooms))):
                    yield from _preemption_blockers(context, found, pod)
                    left = left - found


def _preemption_blockers(
    context: _Context, nodes: Iterable[int], pod: Pod
) -> Iterable[_NodeBlocker]:
    """Yield a blocker for each of the nodes, about the pod that may preempt others."""
    message = f"a pod like {pod.key} would find no room on unmarked nodes and may preempt others"
    blocker = Blocker(NO_SCHEDULE_PREEMPTION, message, pod.key)
    yield from ((context.marked[number].name, blocker) for number in sorted(nodes))


def _largest_pods_by_node(
    context: _Context, asked: Collection[int], pods: Iterable[Pod]
) -> Iterable[tuple[Pod, set[int]]]:
    """Yield pods, each with the nodes among *asked* for which it is the first that fits.

    Pods that exceed the largest node in some resource are skipped.
    """
    left, most = set(asked), None
    for pod in pods:
        if not left:
            return
        if most is None or pod.requests.fits_in(most):
            takers = _large_enough(context, left, pod.requests)
            left -= takers
            most = _largest_amounts(context, left) if takers or most is None else most
            yield pod, takers


def _largest_amounts(context: _Context, nodes: Iterable[int]) -> Resources:
    """Return for each resource the largest allocatable amount of the nodes."""
    most: dict[str, int] = {}
    for number in nodes:
        have = context.marked[number].allocatable
        for name, amount in (*_amounts(have), ("pods", have.pods)):
            most[name] = max(most.get(name, 0), amount)
    cpu, memory, ephemeral, pods = (most.pop(name, 0) for name in (*_COMMON, "pods"))
    return Resources(cpu, memory, ephemeral, pods, tuple(sorted(most.items())))


def _amounts(asked: Resources) -> Iterable[tuple[str, int]]:
    common = (asked.cpu_millis, asked.memory_bytes, asked.ephemeral_bytes)
    return (*zip(_COMMON, common, strict=True), *asked.extended)


def _shapes(cluster: Cluster) -> dict[NodeConstraints, dict[Resources, Pod]]:
    """Return one pod for each distinct shape among the pods above the lowest priority.

    The keys are node constraints without volumes, then requests.
    """
    movers = [pod for pod in cluster.pods if not pod.stays_with_node]
    lowest = min((pod.priority for pod in movers), default=0)
    found: dict[NodeConstraints, dict[Resources, Pod]] = {}
    bare: dict[NodeConstraints, NodeConstraints] = {}
    for pod in movers:
        if pod.priority == lowest:
            continue
        if (node_constraints := bare.get(pod.node_constraints)) is None:
            node_constraints = bare[pod.node_constraints] = without_volumes(pod.node_constraints)
        alike = found.setdefault(node_constraints, {})
        if pod.requests not in alike or pod.key > alike[pod.requests].key:
            alike[pod.requests] = pod
    return found


def _ranked(pods: Collection[Pod]) -> Iterable[list[Pod]]:
    """Yield for each resource the pods that request it, largest request first."""
    asking: dict[str, list[tuple[tuple[int, int, int], str, Pod]]] = {}
    for pod in pods:
        for name, amount in _amounts(pod.requests):
            rank = amount, pod.requests.cpu_millis, pod.requests.memory_bytes
            asking.setdefault(name, []).append((rank, pod.key, pod))
    for found in asking.values():
        found.sort(key=lambda one: one[:2], reverse=True)
        yield [pod for _, _, pod in found]


def wanted(
    against: tuple[Blocker, ...], no_schedule_after_seconds: int | None, age_seconds: int
) -> Mark:
    """Return the kind of mark for a node that has been marked for *age_seconds*."""
    if no_schedule_after_seconds is None or against or age_seconds < no_schedule_after_seconds:
        return Mark.PREFER_NO_SCHEDULE
    return Mark.NO_SCHEDULE
