"""What a look at a cluster cannot tell, and which nodes stand aside: said beside every plan."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from core.capacity.usable import NOTHING, Amount
from core.model.cluster import Cluster
from core.model.leaving import going
from core.model.node import Node
from core.model.pod import Pod

STORAGE_KINDS: Final = ("PersistentVolumeClaim", "PersistentVolume", "CSINode")
BUDGET_KIND: Final = "PodDisruptionBudget"


@dataclass(frozen=True, slots=True)
class Caveat:
    """One thing to keep in mind; what it says of the rest is for whoever writes it down."""

    code: str
    count: int = 0
    """Of the pods, or nodes, that it is about."""
    of: int = 0
    """How many there are."""
    nodes: tuple[tuple[str, int], ...] = ()
    """The nodes that it is about, each with how many pods; most pods first, then by name."""
    amount: Amount = NOTHING
    """What those nodes have."""
    names: tuple[str, ...] = ()
    """Of namespaces or kinds."""


def caveats(cluster: Cluster, kinds: frozenset[str] | None) -> tuple[Caveat, ...]:
    """Return what to keep in mind; *kinds* are those that a dump holds, None: all are known."""
    dumped = () if kinds is None else _of_dump(cluster, kinds)
    return (*dumped, *_without_requests(cluster), *_aside(cluster), *_overcommitted(cluster))


def _of_dump(cluster: Cluster, kinds: frozenset[str]) -> Iterator[Caveat]:
    namespaces = {pod.namespace for pod in cluster.pods}
    if len(namespaces) == 1:
        yield Caveat("one-namespace", count=len(cluster.pods), names=tuple(namespaces))
    elif cluster.pods and not any(pod.daemon for pod in cluster.pods):
        yield Caveat("no-daemonsets")
    if BUDGET_KIND not in kinds:
        yield Caveat("no-budgets", names=(BUDGET_KIND,))
    missing = tuple(kind for kind in STORAGE_KINDS if kind not in kinds)
    bound = sum(bool(pod.ties.claims) for pod in cluster.pods)
    if missing and bound:
        yield Caveat("no-volumes", count=bound, of=len(cluster.pods), names=missing)


def _without_requests(cluster: Cluster) -> Iterator[Caveat]:
    """Count pods that would have to move and do not say what they need."""
    movable = [pod for pod in cluster.pods if not pod.stays_with_node]
    found = [
        pod
        for pod in movable
        if not (pod.requests.cpu_millis and pod.requests.memory_bytes) and not pod.unreadable
    ]
    if found:
        yield Caveat("no-requests", len(found), len(movable), nodes=_on_nodes(found))


def _on_nodes(pods: Iterable[Pod]) -> tuple[tuple[str, int], ...]:
    counts = Counter(pod.node for pod in pods if pod.node is not None)
    return tuple(sorted(counts.items(), key=lambda entry: (-entry[1], entry[0])))


ASIDE: Final[tuple[tuple[str, Callable[[Node], bool]], ...]] = (
    ("virtual", lambda node: node.virtual),
    ("leaving", going),
    ("cordoned", lambda node: node.unschedulable),
    ("not-ready", lambda node: not node.ready),
)
"""Why a node is no room; the first that holds counts."""


def _aside(cluster: Cluster) -> Iterator[Caveat]:
    left: Sequence[Node] = cluster.nodes
    for code, holds in ASIDE:
        if found := [node for node in left if holds(node)]:
            left = [node for node in left if not holds(node)]
            yield _about(code, found, cluster)


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
        yield _about("overcommitted", found, cluster)


def _about(code: str, nodes: list[Node], cluster: Cluster) -> Caveat:
    names = {node.name for node in nodes}
    pods = dict(_on_nodes(pod for pod in cluster.pods if pod.node in names))
    whole = NOTHING
    for node in nodes:
        whole = whole.plus(Amount.of(node.allocatable))
    counts = tuple((node.name, pods.get(node.name, 0)) for node in nodes)
    return Caveat(code, len(nodes), len(cluster.nodes), nodes=counts, amount=whole)
