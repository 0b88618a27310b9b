"""What a look at a cluster cannot tell, and which nodes stand aside: said beside every plan."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from core.config.settings import Config, UsabilityMode
from core.config.thresholds import Thresholds
from core.model.cluster import Cluster
from core.model.node import Node
from core.model.node_lifecycle import is_terminating, why_unready
from core.model.pod import Pod
from core.model.quantity import format_bytes, format_millis
from core.model.resources import Resources
from core.policies.all import POLICIES

STORAGE_KINDS: Final = ("PersistentVolumeClaim", "PersistentVolume", "CSINode")
BUDGET_KIND: Final = "PodDisruptionBudget"
NODES_SHOWN: Final = 3
"""Of a message."""


@dataclass(frozen=True, slots=True)
class Caveat:
    """One thing to keep in mind."""

    code: str
    message: str
    """One sentence; names stand in it as somebody has written them."""
    count: int = 0
    """Of the pods, or nodes, that it is about."""
    nodes: tuple[tuple[str, int], ...] = ()
    """The nodes that it is about, each with how many pods; most pods first, then by name."""


def caveats(cluster: Cluster, kinds: frozenset[str] | None, config: Config) -> tuple[Caveat, ...]:
    """Return what to keep in mind; *kinds* are those that a dump holds, None: all are known."""
    dumped = () if kinds is None else _of_dump(cluster, kinds)
    return (
        *_unheard(config),
        *dumped,
        *_without_requests(cluster),
        *_aside(cluster),
        *_overcommitted(cluster),
    )


def _unheard(config: Config) -> Iterator[Caveat]:
    """Name the settings of ClusterThreshold alone that a file sets under another policy."""
    if POLICIES[config.policy].thresholds:
        return
    pools = config.budgets.pools
    said = {
        "thresholds": config.thresholds != Thresholds(),
        "leaveThresholds": config.leave_thresholds is not None,
        "usability": config.usability is not UsabilityMode.AUTO,
        "thresholds of pools": any(one.thresholds or one.leave_thresholds for one in pools),
        "prices": bool(config.prices),
    }
    if names := [name for name, is_said in said.items() if is_said]:
        message = f"under policy {config.policy} nothing is decided by {', '.join(names)}"
        yield Caveat("not-heard", message)


def _of_dump(cluster: Cluster, kinds: frozenset[str]) -> Iterator[Caveat]:
    pods = len(cluster.pods)
    namespaces = {pod.namespace for pod in cluster.pods}
    if len(namespaces) == 1:
        message = (
            f"all pods ({pods:,}) are of namespace {namespaces.pop()}; a dump needs those of all "
            "(-A), or nodes look emptier than they are"
        )
        yield Caveat("one-namespace", message, pods)
    elif pods and not any(pod.daemon for pod in cluster.pods):
        message = "no pod of a DaemonSet is in the dump; if the cluster runs any, it is not whole"
        yield Caveat("no-daemonsets", f"{message} (-A)")
    if BUDGET_KIND not in kinds:
        message = f"no {BUDGET_KIND} is in the dump (pdb): whether one protects a pod is not known"
        yield Caveat("no-budgets", message)
    bound = sum(bool(pod.ties.claims) for pod in cluster.pods)
    if bound and not kinds.issuperset(STORAGE_KINDS):
        use = "uses" if bound == 1 else "use"
        message = (
            f"{bound:,} of {pods:,} pods {use} claims, and the dump lacks what stands behind them "
            "(pv,pvc,csinodes): such pods count as not movable"
        )
        yield Caveat("no-volumes", message, bound)


def _without_requests(cluster: Cluster) -> Iterator[Caveat]:
    """Count pods that would have to move and do not say what they need."""
    movable = [pod for pod in cluster.pods if not pod.stays_with_node]
    found = [
        pod
        for pod in movable
        if not (pod.requests.cpu_millis and pod.requests.memory_bytes) and not pod.unreadable
    ]
    if found:
        nodes = _on_nodes(found)
        where = _first([f"{node} ({pods})" for node, pods in nodes])
        do = "does" if len(found) == 1 else "do"
        message = (
            f"{len(found):,} of {len(movable):,} pods {do} not request both CPU and memory; what "
            f"is not requested counts as 0{where and f': {where}'}"
        )
        yield Caveat("no-requests", message, len(found), nodes)


def _on_nodes(pods: Iterable[Pod]) -> tuple[tuple[str, int], ...]:
    counts = Counter(pod.node for pod in pods if pod.node is not None)
    return tuple(sorted(counts.items(), key=lambda entry: (-entry[1], entry[0])))


ASIDE: Final[tuple[tuple[str, str, Callable[[Node], bool]], ...]] = (
    ("virtual", "{count} virtual node{s} aside, no room: {names}", lambda node: node.virtual),
    (
        "leaving",
        "{count} node{s} leaving, no room: {names}; pods there come first",
        is_terminating,
    ),
    (
        "cordoned",
        "{count} cordoned node{s}, no room though {room} stand there: {names}",
        lambda node: node.unschedulable,
    ),
    (
        "not-ready",
        "{count} node{s} not Ready, no room though {room} stand there: {names}",
        lambda node: why_unready(node) is not None,
    ),
)
"""Why a node is no room; the first that holds counts."""
OVERCOMMITTED: Final = "{count} overcommitted node{s}, asked for more than there is: {names}"


def _aside(cluster: Cluster) -> Iterator[Caveat]:
    left: Sequence[Node] = cluster.nodes
    for code, told, holds in ASIDE:
        if found := [node for node in left if holds(node)]:
            left = [node for node in left if not holds(node)]
            yield _about(code, told, found, cluster)


def _overcommitted(cluster: Cluster) -> Iterator[Caveat]:
    used = cluster.used()
    found = [
        node
        for node in cluster.nodes
        if not node.virtual
        and (
            used[node.name].cpu_millis > node.allocatable.cpu_millis
            or used[node.name].memory_bytes > node.allocatable.memory_bytes
        )
    ]
    if found:
        yield _about("overcommitted", OVERCOMMITTED, found, cluster)


def _about(code: str, told: str, nodes: list[Node], cluster: Cluster) -> Caveat:
    names = [node.name for node in nodes]
    pods = Counter(pod.node for pod in cluster.pods)
    whole = Resources.total(node.allocatable for node in nodes)
    cpu, memory = format_millis(whole.cpu_millis), format_bytes(whole.memory_bytes)
    message = told.format(
        count=f"{len(nodes):,}",
        s="" if len(nodes) == 1 else "s",
        names=_first(names),
        room=f"cpu {cpu} and memory {memory}",
    )
    return Caveat(code, message, len(nodes), tuple((name, pods[name]) for name in names))


def _first(texts: Sequence[str]) -> str:
    """Write the first of them, and how many more there are."""
    more = len(texts) - NODES_SHOWN
    rest = f" and {more:,} more node{'' if more == 1 else 's'}" if more > 0 else ""
    return ", ".join(texts[:NODES_SHOWN]) + rest
