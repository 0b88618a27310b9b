"""May a soft mark become a hard one, or would the NoSchedule taint make other pods wait or go.

Source: Kubernetes' DaemonSet controller (its pods need the toleration like all others), the
scheduler's topology spread and pod affinity, which count pods on tainted nodes too, and its
preemption, which does not look at nodes with a taint that the pod does not tolerate.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final, NamedTuple

from core.engine.reach_keys import RenamedKeys
from core.engine.snapshot import ClusterSnapshot
from core.engine.unschedulable import shape
from core.fit.inter_pod import PodTopology
from core.fit.matching import selects, tolerates
from core.fit.node_classes import NodeClasses
from core.marks.mark import ExistingMark, Mark
from core.marks.taints import hard_taint
from core.model.cluster import Cluster
from core.model.constraints import NodeConstraints, PodConstraints, without_volumes
from core.model.humanize import timestamp
from core.model.node import Node
from core.model.now import Now
from core.model.pod import Pod
from core.model.reason import Blocker, Reason
from core.model.resources import Resources
from core.model.workload import DAEMON_SET

PAUSE_SECONDS: Final = 300
"""How long a mark stays soft after what made it so has ended: the scheduler tries every pod that
waits at least that often, and marks must not change with every pod."""
SHAPES_MAX: Final = 256
"""Different placings, or pods that wait, of which each is looked at; with more all marks stay
soft."""
LOOKS_MAX: Final = 4096
"""Sizes of pods for which room is looked for in one look; with more all marks that are left stay
soft."""
_COMMON: Final = ("cpu", "memory", "ephemeral-storage")

HARD_DAEMONSET: Final = Reason(
    "hard-daemonset",
    "A DaemonSet of the node does not tolerate the taint, so its pod would not come back "
    "there once it ends, or after an update.",
    "add a toleration for {key} to the DaemonSet of pod {name} in {namespace}; or "
    "leave the mark soft",
    "all DaemonSets with a pod on the node tolerate the taint",
)
HARD_SPREAD: Final = Reason(
    "hard-spread",
    "Pods that must be spread evenly would count the node's domain although none of them "
    "could enter it, and others of them would wait.",
    "set `nodeTaintsPolicy: Honor`, and no `minDomains`, in those topologySpreadConstraints; or "
    "leave the mark soft",
    "the domain has for five minutes had a node without a mark that takes such pods, or all such "
    "constraints honor taints and have no `minDomains`",
)
HARD_AFFINITY: Final = Reason(
    "hard-affinity",
    "Pods that must run beside certain others would find those on no node that they could enter, "
    "and more of them would wait.",
    "prefer the affinity to requiring it; or run one of the pods that they must be near on a node "
    "without a mark; or leave the mark soft",
    "an unmarked node that takes such pods has for five minutes had what they must be near",
)
HARD_WAITING: Final = Reason(
    "hard-waiting",
    "A pod waits that a hard mark may be keeping from the node: Ebb cannot judge all that the "
    "pod asks for, or found it a place that the scheduler does not give it. The mark stays "
    "soft while the pod waits, and five minutes longer.",
    "see why the scheduler refuses it: kubectl -n {namespace} describe pod {name}",
    "no such pod has waited for five minutes",
)
HARD_PREEMPTION: Final = Reason(
    "hard-preemption",
    "A pod like the largest of its kind would find no room on the nodes without a mark. As "
    "its priority is above the lowest, the scheduler would evict others for it, because it "
    "does not look at a node with a hard mark, be it empty.",
    "leave the mark soft; or let fewer nodes go (`thresholds`, `maxMarked`), so that unmarked "
    "ones have room for a pod like {name} in {namespace}",
    "an unmarked node that admits such a pod has had room for it for five minutes",
)
HARD_NEW_LEADER: Final = Reason(
    "hard-new-leader",
    "The mark was soft when another leader began, and what spoke against a hard one until then is "
    "remembered nowhere: it holds for five minutes longer than its cause.",
    "wait for five minutes; where leaders follow each other sooner than that, see why: "
    "`ebb_leader`, and the log of `ebb-controller`",
    "the leader has looked on for five minutes",
)
REASONS: Final = (
    HARD_DAEMONSET,
    HARD_SPREAD,
    HARD_AFFINITY,
    HARD_WAITING,
    HARD_PREEMPTION,
    HARD_NEW_LEADER,
)

Against = Mapping[str, tuple[Blocker, ...]]
"""By marked node: why its mark must not be hard."""


_NodeBlocker = tuple[str, Blocker]
"""A node, and what speaks against a hard mark there."""


class _Context(NamedTuple):
    """What the rules that come and go rest on."""

    cluster: Cluster
    marked: Sequence[Node]
    """With our taint set aside."""
    open: Sequence[tuple[Node, Resources]]
    """Nodes without a mark that take pods, and what is free on them."""


def reasons_against(
    snapshot: ClusterSnapshot, stuck: Iterable[tuple[Pod, str]] = (), new: Collection[str] = ()
) -> dict[str, tuple[Blocker, ...]]:
    """Return what speaks against a hard mark now, for every marked node.

    *stuck*: Pending pods, and why a NoSchedule mark may keep them so (core.engine.unschedulable);
    *new*: nodes that get a mark in this pass, so that they count as marked for the others.
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
    for name, blocker in chain(
        _daemon_sets_without_toleration(snapshot),
        _closed_domains(context),
        _separated_from_affinity(context),
        _blocking_pending_pods(context, stuck),
        _causing_preemption(context),
    ):
        if name in found:
            found[name].append(blocker)
    return {name: tuple(blockers) for name, blockers in found.items()}


LASTING: Final = (HARD_DAEMONSET,)
"""All else comes and goes with single pods, or with whether a node is Ready: the reserve too."""


@dataclass(frozen=True, slots=True)
class RecentReasons:
    """The transient reasons against hard marks, until PAUSE_SECONDS after they have ended."""

    last: Mapping[str, tuple[int, Blocker]] = field(default_factory=dict)
    """By marked node: when such a reason was last found (unix seconds), and the reason."""
    current: frozenset[str] = frozenset()
    """Nodes of which the last look found one."""

    @staticmethod
    def of_new_leader(marks: Mapping[str, ExistingMark], now: Now) -> "RecentReasons":
        """Return the state of a leader that begins.

        It cannot know what kept a mark soft until now, so it keeps each soft mark for as long.
        """
        message = "another leader began, and what it knew about the mark is lost"
        blocker = Blocker(HARD_NEW_LEADER, message)
        soft = (name for name, one in marks.items() if one.mark is Mark.SOFT)
        return RecentReasons(dict.fromkeys(soft, (now.seconds, blocker)))

    def observe(self, seen: Against, now: Now) -> "RecentReasons":
        """Return the state after a look that has found these reasons."""
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
        """Return the state after the same cluster was seen again."""
        found = {name: (now.seconds, self.last[name][1]) for name in self.current}
        return replace(self, last={**self.last, **found})

    def renamed(self, keys: RenamedKeys) -> "RecentReasons":  # noqa: ARG002
        """Return the state itself: it knows no reaches."""
        return self

    def merged_with(self, found: Against) -> dict[str, tuple[Blocker, ...]]:
        """Return what was *found*, and the reasons that ended less than PAUSE_SECONDS ago.

        Whether a reason has ended is told by what was found, not by when: one second may see more
        than one look.
        """
        added = dict(found)
        for name in self.last.keys() & found.keys() - self.current:
            at, blocker = self.last[name]
            message = f"{blocker.message}; last seen {timestamp(at)}"
            ended = blocker._replace(message=message, until=at + PAUSE_SECONDS)
            added[name] = (*added[name], ended)
        return added


def _daemon_sets_without_toleration(snapshot: ClusterSnapshot) -> Iterable[_NodeBlocker]:
    key = snapshot.config.taint_key
    taints = {
        n.name: hard_taint(n, key) for n in snapshot.cluster.nodes if n.name in snapshot.marks
    }
    for pod in snapshot.cluster.pods:
        if pod.owner_kind != DAEMON_SET or pod.node not in taints:
            continue
        taint = taints[pod.node]
        if not any(tolerates(toleration, taint) for toleration in pod.placing.tolerations):
            message = f"DaemonSet {pod.owner_name} does not tolerate the taint {key}"
            yield pod.node, Blocker(HARD_DAEMONSET, message, pod.key, key)


def _closed_domains(context: _Context) -> Iterable[_NodeBlocker]:
    """Yield the marked nodes in whose domains pods to be spread would find no other node.

    A soft mark counts too: all of a domain's nodes may become hard in one pass. A node that such
    pods could not use anyway closes nothing to them.
    """
    keys: dict[str, dict[NodeConstraints, None]] = {}
    # Objects before values: pods of one template share them, and hashing values is dear.
    spread = {(id(p.company), id(p.placing)): p for p in context.cluster.pods if p.company.spread}
    for pod in spread.values():
        for one in pod.company.spread:
            if not one.honor_taints or one.min_domains > 1:  # one that is missing counts as empty
                keys.setdefault(one.topology_key, {})[without_volumes(pod.placing)] = None
    every = dict.fromkeys(placing for placings in keys.values() for placing in placings)
    if len(every) > SHAPES_MAX:
        keys, every = {key: {} for key in keys}, {}
    classes, open_classes = (
        NodeClasses(nodes, every) for nodes in (context.marked, [node for node, _ in context.open])
    )
    for key, placings in sorted(keys.items()):
        closed: set[int] = set() if placings else set(range(len(context.marked)))
        for placing in placings:
            open_to = {context.open[n][0].labels.get(key) for n in open_classes.allowing(placing)}
            asked = classes.allowing(placing)
            closed |= {n for n in asked if context.marked[n].labels.get(key) not in open_to}
        for number in sorted(closed):
            node = context.marked[number]
            if (domain := node.labels.get(key)) is not None:
                message = f"pods spread over {key} would count {domain}, which no pod could enter"
                yield node.name, Blocker(HARD_SPREAD, message)


def _separated_from_affinity(context: _Context) -> Iterable[_NodeBlocker]:
    """Yield the marked nodes beside whose pods others must run that find such on no open node."""
    likes = _pods_with_affinity(context.cluster)
    if not likes:
        return
    marked, opened = context.marked, [node for node, _ in context.open]
    if len(likes) > SHAPES_MAX:
        blocker = Blocker(
            HARD_AFFINITY, f"of more than {SHAPES_MAX} classes pods must be near others"
        )
        yield from ((node.name, blocker) for node in marked)
        return
    known = {node.name for node in (*marked, *opened)}
    nodes = (*marked, *opened, *(n for n in context.cluster.nodes if n.name not in known))
    topology = PodTopology(context.cluster, nodes, likes)
    classes, open_classes = (
        NodeClasses(some, [pod.placing for pod in likes]) for some in (marked, opened)
    )
    for number, pod in enumerate(likes):
        group = topology.group(number)
        if group is None or any(
            group.finds_company(len(marked) + there)
            for there in open_classes.allowing(pod.placing)
        ):
            continue
        message = f"a pod like {pod.key} must be near pods that are on no unmarked node"
        for here in classes.allowing(pod.placing):
            if group.finds_company(here):
                yield marked[here].name, Blocker(HARD_AFFINITY, message, pod.key)


def _pods_with_affinity(cluster: Cluster) -> list[Pod]:
    """Return a pod of each kind that must be near others, as one that comes anew."""
    near = {
        (id(pod.company), id(pod.placing), id(pod.labels)): pod
        for pod in cluster.pods
        if pod.company.near and not pod.stays_with_node
    }
    classes: dict[object, Pod] = {}
    for pod in near.values():
        terms, placing = pod.company.near, without_volumes(pod.placing)
        own = all(selects(term.selector, pod) for term in terms)
        alone = replace(pod, node=None, placing=placing, company=PodConstraints(near=terms))
        classes.setdefault((terms, placing, own), alone)
    return list(classes.values())


def _blocking_pending_pods(
    context: _Context, stuck: Iterable[tuple[Pod, str]]
) -> Iterable[_NodeBlocker]:
    """Yield the marked nodes that would take a pod that waits, one pod each."""
    shapes: dict[tuple[NodeConstraints, Resources], tuple[str, str]] = {}
    for pod, message in stuck:
        if len(shapes) <= SHAPES_MAX:
            shapes.setdefault(shape(pod), (message, pod.key))
    classes = NodeClasses(context.marked, [placing for placing, _ in shapes])
    left, too_many = set(range(len(context.marked))), len(shapes) > SHAPES_MAX
    for (placing, requests), (message, key) in shapes.items():
        asked = left.intersection(classes.allowing(placing))
        for number in sorted(left if too_many else _large_enough(context, asked, requests)):
            left.discard(number)
            yield context.marked[number].name, Blocker(HARD_WAITING, message, key)


def _large_enough(context: _Context, nodes: Iterable[int], requests: Resources) -> set[int]:
    """Return those of the marked nodes that would take such a pod if it were alone."""
    return {number for number in nodes if requests.fits_in(context.marked[number].allocatable)}


def _causing_preemption(context: _Context) -> Iterable[_NodeBlocker]:
    """Yield the marked nodes that a pod would have to do without that may preempt others instead.

    For each placing the largest pods of more than the lowest priority that a marked node could
    take must find room on a node that is open and not marked. Those that it could not take say
    nothing of it, be they ever so large: a hard mark takes them nothing.
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
    for placing, alike in shapes.items():
        rooms = [context.open[number][1] for number in open_classes.allowing(placing)]
        for pods in _ranked(alike.values()):
            asked = left.intersection(classes.allowing(placing))
            for pod, takers in _largest_pods_by_node(context, asked, pods):
                looks += 1
                found = left if looks > LOOKS_MAX else takers
                if found is left or (takers and not any(map(pod.requests.fits_in, rooms))):
                    yield from _preemption_blockers(context, found, pod)
                    left = left - found


def _preemption_blockers(
    context: _Context, nodes: Iterable[int], pod: Pod
) -> Iterable[_NodeBlocker]:
    """Yield the marked nodes for the pod that may preempt others."""
    message = f"a pod like {pod.key} would find no room on unmarked nodes and may preempt"
    blocker = Blocker(HARD_PREEMPTION, message, pod.key)
    yield from ((context.marked[number].name, blocker) for number in sorted(nodes))


def _largest_pods_by_node(
    context: _Context, asked: Collection[int], pods: Iterable[Pod]
) -> Iterable[tuple[Pod, set[int]]]:
    """Yield pods, and the marked nodes among *asked* of which each is the first that they take.

    What is larger than all that they have of some resource is passed over.
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
    """Return the most that one of the marked nodes has of each resource."""
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
    """Return by placing, volumes set aside, and by what they ask for, a pod each.

    Of those whose priority is above the lowest: the others have nobody to preempt.
    """
    movers = [pod for pod in cluster.pods if not pod.stays_with_node]
    lowest = min((pod.priority for pod in movers), default=0)
    found: dict[NodeConstraints, dict[Resources, Pod]] = {}
    bare: dict[NodeConstraints, NodeConstraints] = {}
    for pod in movers:
        if pod.priority == lowest:
            continue
        if (placing := bare.get(pod.placing)) is None:
            placing = bare[pod.placing] = without_volumes(pod.placing)
        alike = found.setdefault(placing, {})
        if pod.requests not in alike or pod.key > alike[pod.requests].key:
            alike[pod.requests] = pod
    return found


def _ranked(pods: Collection[Pod]) -> Iterable[list[Pod]]:
    """Yield them for each resource, those first that ask for most of it."""
    asking: dict[str, list[tuple[tuple[int, int, int], str, Pod]]] = {}
    for pod in pods:
        for name, amount in _amounts(pod.requests):
            rank = amount, pod.requests.cpu_millis, pod.requests.memory_bytes
            asking.setdefault(name, []).append((rank, pod.key, pod))
    for found in asking.values():
        found.sort(key=lambda one: one[:2], reverse=True)
        yield [pod for _, _, pod in found]


def wanted(against: tuple[Blocker, ...], hard_after_seconds: int | None, age_seconds: int) -> Mark:
    """Return what the mark of a node should be that has had one for so long."""
    if hard_after_seconds is None or against or age_seconds < hard_after_seconds:
        return Mark.SOFT
    return Mark.HARD
