"""Caveats: warnings about the input of a command, such as objects that a dump lacks."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from core.config.settings import Config, PodDeletionCost, UsabilityMode
from core.config.thresholds import Thresholds
from core.eligibility.node_eligibility import CONTROL_PLANE, VIRTUAL_NODE, node_blockers
from core.eligibility.scalability import Autoscalers
from core.model.cluster import Cluster
from core.model.node import Node
from core.model.node_lifecycle import is_terminating, why_unready
from core.model.pod import Pod
from core.model.quantity import format_bytes, format_millis
from core.model.resources import Resources
from core.policies.all import POLICIES
from core.writes.costs import pods_of_other_writers
from kube.dump import COMMAND

STORAGE_KINDS: Final = ("PersistentVolumeClaim", "PersistentVolume", "CSINode")
BUDGET_KIND: Final = "PodDisruptionBudget"
ATTACHMENT_KIND: Final = "VolumeAttachment"
NODES_SHOWN: Final = 3
"""Nodes named in one message; the others are counted."""


@dataclass(frozen=True, slots=True)
class Caveat:
    """One warning about the input of a command: the cluster, or the configuration."""

    code: str
    message: str
    """One sentence; names of objects are not escaped, so escape it before printing."""
    count: int = 0
    """Number of pods or nodes concerned."""
    nodes: tuple[tuple[str, int], ...] = ()
    """Nodes concerned, each with its number of pods: most pods first, then by name."""


def caveats(
    cluster: Cluster, kinds: frozenset[str] | None, config: Config, running_nowhere: int = 0
) -> tuple[Caveat, ...]:
    """Return all warnings about a cluster and its configuration.

    *kinds* are the kinds of objects in a dump (a file with the objects of a cluster); None for a
    live cluster, where all kinds are read. *running_nowhere* is the number of pods in the dump
    with phase Running but without a node.
    """
    missing = () if kinds is None else _missing_in_dump(cluster, kinds)
    return (
        *_ignored_settings(config),
        *_no_prices(config),
        *_running_nowhere(running_nowhere),
        *_empty_pools(cluster, config),
        *missing,
        *_no_autoscaler(cluster, config, in_dump=kinds is not None),
        *_unknown_groups(cluster, config),
        *_without_requests(cluster),
        *_nodes_without_capacity(cluster),
        *_overcommitted(cluster),
        *_deferred_resizes(cluster),
        *_other_cost_writers(cluster, config),
    )


def nothing_selected(names: Collection[str] | None) -> Iterator[Caveat]:
    """Warn if options select no node; *names*: the selected nodes, None: all."""
    if names is not None and not names:
        yield Caveat("nothing-selected", "no node matches the options -l and -n")


def _ignored_settings(config: Config) -> Iterator[Caveat]:
    """Warn about changed settings that the selected policy does not read."""
    policy = POLICIES[config.policy]
    if policy.thresholds:
        return
    changed = {
        "`thresholds`": config.thresholds != Thresholds(),
        "`hysteresis`": config.hysteresis != Config().hysteresis and not policy.hysteresis,
        "`usableCapacity`": config.usable_capacity is not UsabilityMode.AUTO,
        "`thresholds` of `pools`": any(pool.thresholds for pool in config.budgets.pools),
        "`prices`": bool(config.prices) and not config.min_savings,
    }
    if names := [name for name, is_changed in changed.items() if is_changed]:
        message = f"policy {config.policy} ignores the settings {', '.join(names)}"
        yield Caveat("ignored-settings", message)


def _no_prices(config: Config) -> Iterator[Caveat]:
    if config.lacks_prices:
        yield Caveat(
            "no-prices", "`minSavings` has no effect, because the configuration has no `prices`"
        )


def _running_nowhere(pods: int) -> Iterator[Caveat]:
    """Warn about Running pods without a node, which no API server returns.

    *pods*: the number of these pods.
    """
    if pods:
        run, are = ("runs", "is") if pods == 1 else ("run", "are")
        message = (
            f"{pods:,} pod{'' if pods == 1 else 's'} {run} (phase Running) but {are} on no node, "
            "so kubectl did not make the dump, and other fields may be missing too (for example, "
            f"nodeName is spelled node_name); create the dump with: {COMMAND}"
        )
        yield Caveat("running-nowhere", message, pods)


def _empty_pools(cluster: Cluster, config: Config) -> Iterator[Caveat]:
    if names := config.budgets.empty_pools(node.labels for node in cluster.nodes):
        yield Caveat(
            "empty-pools",
            f"pools of the setting `pools` without a node: {_first(names, 'pool')}",
        )


def _no_autoscaler(cluster: Cluster, config: Config, *, in_dump: bool) -> Iterator[Caveat]:
    key = config.cluster_autoscaler.status
    if Autoscalers.of(cluster, key).found:
        return
    message = (
        f"no autoscaler was found: there is neither the ConfigMap {key} nor a NodePool of "
        "Karpenter, so it is unknown which nodes an autoscaler would remove"
    )
    namespace, _, name = key.partition("/")
    dump = (
        f"; add the output of `kubectl get cm {name} -n {namespace} -o json` or `kubectl get "
        "nodepools,nodeclaims -o json` with another --from-file"
    )
    yield Caveat("no-autoscaler", message + (dump if in_dump else ""))


def _unknown_groups(cluster: Cluster, config: Config) -> Iterator[Caveat]:
    key = config.cluster_autoscaler.status
    autoscalers = Autoscalers.of(cluster, key)
    names = autoscalers.unpromised(autoscalers.verdicts(cluster.nodes))
    # Nobody expects an autoscaler to remove these nodes.
    others = (VIRTUAL_NODE, CONTROL_PLANE)
    found = [
        node.name
        for node in cluster.nodes
        if node.name in names and not any(one.reason in others for one in node_blockers(node))
    ]
    if not found:
        return
    are, their = ("is", "its") if len(found) == 1 else ("are", "their")
    message = (
        f"{len(found):,} node{'' if len(found) == 1 else 's'} {are} in no known node group of the "
        f"ConfigMap {key}, so it is unknown whether an autoscaler removes them, and {their} "
        f"removal counts as no savings: {_first(found)}"
    )
    yield Caveat("unknown-groups", message, len(found))


def _missing_in_dump(cluster: Cluster, kinds: frozenset[str]) -> Iterator[Caveat]:
    pods = len(cluster.pods)
    namespaces = {pod.namespace for pod in cluster.pods}
    if len(namespaces) == 1:
        message = (
            f"all pods ({pods:,}) are in namespace {namespaces.pop()}; if you left out -A, pods "
            "of other namespaces are missing, and nodes look emptier than they are"
        )
        yield Caveat("one-namespace", message, pods)
    elif pods and not any(pod.daemon for pod in cluster.pods):
        message = (
            "the dump has no DaemonSet pods; if the cluster has any, some namespaces are missing "
            "in the dump (use -A)"
        )
        yield Caveat("no-daemonsets", message)
    if BUDGET_KIND not in kinds:
        message = (
            f"the dump has no {BUDGET_KIND} (pdb), so pods that a {BUDGET_KIND} protects look "
            "evictable"
        )
        yield Caveat("no-budgets", message)
    with_claims = sum(bool(pod.disruption_facts.claims) for pod in cluster.pods)
    if with_claims and not kinds.issuperset(STORAGE_KINDS):
        use = "uses" if with_claims == 1 else "use"
        message = (
            f"{with_claims:,} of {pods:,} pods {use} PersistentVolumeClaims, but the dump lacks "
            "their volumes (pv,pvc,csinodes); these pods count as not movable"
        )
        yield Caveat("no-volumes", message, with_claims)
    elif with_claims and ATTACHMENT_KIND not in kinds:
        message = (
            f"the dump has no {ATTACHMENT_KIND} (volumeattachments), so volumes that are attached "
            "without a pod do not count against attach limits"
        )
        yield Caveat("no-attachments", message)


def _without_requests(cluster: Cluster) -> Iterator[Caveat]:
    movable, affected = pods_without_requests(cluster)
    if affected:
        nodes = _on_nodes(affected)
        where = _first([f"{node} ({pods})" for node, pods in nodes])
        do = "does" if len(affected) == 1 else "do"
        message = (
            f"{len(affected):,} of {len(movable):,} pods {do} not request both CPU and memory; a "
            f"missing request counts as 0{where and f'; pods by node: {where}'}"
        )
        yield Caveat("no-requests", message, len(affected), nodes)


def pods_without_requests(cluster: Cluster) -> tuple[list[Pod], list[Pod]]:
    """Return all movable pods, and the movable pods that do not request both CPU and memory.

    Movable are all pods but DaemonSet and static pods.
    """
    movable = [pod for pod in cluster.pods if not pod.stays_with_node]
    return movable, [
        pod
        for pod in movable
        if not (pod.requests.cpu_millis and pod.requests.memory_bytes) and not pod.unreadable
    ]


def _on_nodes(pods: Iterable[Pod]) -> tuple[tuple[str, int], ...]:
    counts = Counter(pod.node for pod in pods if pod.node is not None)
    return tuple(sorted(counts.items(), key=lambda entry: (-entry[1], entry[0])))


NO_CAPACITY: Final[tuple[tuple[str, str, Callable[[Node], bool]], ...]] = (
    (
        "virtual",
        "{count} virtual node{s} {are} ignored and {provide} no capacity: {names}",
        lambda node: node.virtual,
    ),
    (
        "leaving",
        "{count} leaving node{s} {provide} no capacity; {their} pods are placed first: {names}",
        is_terminating,
    ),
    (
        "cordoned",
        "{count} cordoned node{s} {provide} no capacity, although {room} are allocatable: {names}",
        lambda node: node.unschedulable,
    ),
    (
        "not-ready",
        "{count} NotReady node{s} {provide} no capacity, although {room} are allocatable: {names}",
        lambda node: why_unready(node) is not None,
    ),
)
"""(code, message, condition) of nodes that provide no capacity; the first condition wins."""
OVERCOMMITTED: Final = (
    "{count} node{s} {are} overcommitted: requests exceed allocatable capacity: {names}"
)


def _nodes_without_capacity(cluster: Cluster) -> Iterator[Caveat]:
    remaining: Sequence[Node] = cluster.nodes
    for code, template, condition in NO_CAPACITY:
        if affected := [node for node in remaining if condition(node)]:
            remaining = [node for node in remaining if not condition(node)]
            yield _about(code, template, affected, cluster)


def _overcommitted(cluster: Cluster) -> Iterator[Caveat]:
    # A nominated pod starts only when other pods have terminated, so it overcommits no node.
    used = replace(cluster, pods=tuple(p for p in cluster.pods if not p.nominated)).used()
    affected = [
        node
        for node in cluster.nodes
        if not node.virtual
        and (
            used[node.name].cpu_millis > node.allocatable.cpu_millis
            or used[node.name].memory_bytes > node.allocatable.memory_bytes
        )
    ]
    if affected:
        yield _about("overcommitted", OVERCOMMITTED, affected, cluster)


def _deferred_resizes(cluster: Cluster) -> Iterator[Caveat]:
    affected = [pod for pod in cluster.pods if pod.disruption_facts.resize_deferred]
    if affected:
        nodes = _on_nodes(affected)
        where = _first([f"{node} ({pods})" for node, pods in nodes])
        pods, wait = ("pod", "waits") if len(affected) == 1 else ("pods", "wait")
        message = (
            f"{len(affected):,} {pods} {wait} for free capacity on their node, because their "
            f"resize is deferred; pods by node: {where}"
        )
        yield Caveat("resize-deferred", message, len(affected), nodes)


def _other_cost_writers(cluster: Cluster, config: Config) -> Iterator[Caveat]:
    if config.pod_deletion_cost is PodDeletionCost.DISABLED:
        return
    if affected := pods_of_other_writers(cluster.pods):
        pods, have = ("pod", "has") if len(affected) == 1 else ("pods", "have")
        message = (
            f"{len(affected):,} {pods} {have} a pod deletion cost that another controller writes "
            "(Karpenter's PodDeletionCostManagement or Koordinator's ScaleDownBinPack, for "
            "example), so Ebb does not steer their scale-ins"
        )
        yield Caveat("cost-writer", message, len(affected), _on_nodes(affected))


def _about(code: str, template: str, nodes: list[Node], cluster: Cluster) -> Caveat:
    names = [node.name for node in nodes]
    pods = Counter(pod.node for pod in cluster.pods)
    whole = Resources.total(node.allocatable for node in nodes)
    cpu, memory = format_millis(whole.cpu_millis), format_bytes(whole.memory_bytes)
    message = template.format(
        count=f"{len(nodes):,}",
        s="" if len(nodes) == 1 else "s",
        are="is" if len(nodes) == 1 else "are",
        provide="provides" if len(nodes) == 1 else "provide",
        their="its" if len(nodes) == 1 else "their",
        names=_first(names),
        room=f"cpu {cpu} and memory {memory}",
    )
    return Caveat(code, message, len(nodes), tuple((name, pods[name]) for name in names))


def _first(texts: Sequence[str], what: str = "node") -> str:
    """Join the first NODES_SHOWN texts, and the number of the others; *what*: their noun."""
    more = len(texts) - NODES_SHOWN
    rest = f" and {more:,} more {what}{'' if more == 1 else 's'}" if more > 0 else ""
    return ", ".join(texts[:NODES_SHOWN]) + rest
